"""Mutants that no test needs to kill are of code that is there."""

from __future__ import annotations

from pathlib import Path

from tests.lab.mutants import is_excused, read_rows, squeeze

ROOT = Path(__file__).resolve().parents[2]


def test_an_excused_mutant_is_of_code_that_is_there() -> None:
    rows = read_rows()
    code = {row["module"]: squeeze((ROOT / row["module"]).read_text("utf-8")) for row in rows}
    assert [row for row in rows if squeeze(row["was"]) not in code[row["module"]]] == []
    assert all(row["why"] for row in rows)


def test_a_mutant_is_excused_however_its_statement_is_broken_into_lines() -> None:
    rows = [{"module": "a.py", "was": "x = f(1, n + 1)", "becomes": "x = f(1, n + 2)", "why": "."}]
    assert is_excused(rows, "a.py", "n + 1,", "n + 2,")
    assert not is_excused(rows, "a.py", "n + 1,", "n + 3,")
    assert not is_excused(rows, "b.py", "n + 1,", "n + 2,")
