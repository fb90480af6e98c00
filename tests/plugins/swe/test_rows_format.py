"""Which files are the domain swe's."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet as parquet

from recreate.domains.rows import name_domain

ROW = {"instance_id": "a__b-1", "repo": "a/b", "patch": "x", "FAIL_TO_PASS": "[]"}


def put(path: Path, row: object) -> str:
    path.write_text(json.dumps(row) + "\n")
    return str(path)


def test_rows_of_swe_bench_and_recipes_stay_swes(workspace: Path) -> None:
    recipe = {"schema": 1, "kind": "source", "name": "x"}
    for name, first in (("a.jsonl", ROW), ("b.jsonl", recipe), ("c.json", [ROW])):
        assert name_domain(put(workspace / name, first)) == "swe"
    assert [name_domain(str(workspace / name)) for name in ("d.toml", "e")] == ["swe"] * 2
    assert name_domain("princeton-nlp/SWE-bench_Lite") == "swe"
    parquet.write_table(pyarrow.Table.from_pylist([ROW]), workspace / "rows.parquet")
    assert name_domain(str(workspace / "rows.parquet")) == "swe"


def test_other_rows_do_not_take_its_name(workspace: Path) -> None:
    row = {"question": "How many?", "answer": 2}
    assert name_domain(put(workspace / "swe.jsonl", row)) == "swe-rows"
