"""Exploits against rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_bad_input import refused
from tests.cli.test_data import asked, model, questions


def test_every_command_about_tasks_takes_it(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions(workspace)
    code, rows, said = asked(capsys, "tasks", "list", "--data", "sums.jsonl", "--split", "test")
    assert code == 0
    assert rows
    assert {row["split"] for row in rows} == {"test"}
    assert "guessed of sums.jsonl" in said
    assert refused(capsys, "tasks", "list", "sums", "--kind", "real")["code"] == "unknown-kind"
    code, rows, _ = asked(capsys, "tasks", "check", "sums", "--shuffled", "10", "--jobs", "1")
    assert (code, len(rows)) == (0, 40)
    assert sum(bool(row["other"]) for row in rows) == 10
    code, (graded,), _ = asked(capsys, "grade", "sums", "sums:sums:q3", "--answer", "27")
    assert (code, graded["score"]) == (0, 1.0)
    code, (graded,), _ = asked(
        capsys, "grade", "--data", "sums.jsonl", "sums:sums:q3", "--answer", "28"
    )
    assert (code, graded["passed"]) == (0, False)
    code, (planned,), _ = asked(capsys, "plan", "--data", "sums.jsonl", "--model", model(workspace))
    assert code == 0
    assert planned["attempts"] > 0
