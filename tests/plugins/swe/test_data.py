"""Rows that are swe's, named by --data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_bad_input import refused
from tests.cli.test_data import questions


def test_a_wrong_split_is_no_column(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions(workspace)
    assert (
        refused(capsys, "tasks", "list", "tests.toy:Toy", "--split", "tset")["code"] == "bad-split"
    )
    assert (
        "no column 'tset' (--split)"
        in refused(capsys, "tasks", "list", "--data", "sums.jsonl", "--split", "tset")["message"]
    )
    assert not (workspace / "benchmarks").exists()


def test_bad_rows_are_one_error_with_exit_2(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "bad.jsonl").write_text('{"question": "x"}\nnope\n')
    error = refused(
        capsys,
        "tasks",
        "list",
        "--data",
        "bad.jsonl",
        "--answer",
        "question",
        "--prompt",
        "question",
    )
    assert (error["code"], "line 2: it is not JSON" in error["message"]) == ("bad-rows", True)
    assert refused(capsys, "tasks", "list", "--data", "none.jsonl")["code"] == "no-tasks-file"
    assert refused(capsys, "tasks", "list")["code"] == "usage"
    assert refused(capsys, "tasks", "list", "nosuch")["code"] == "unknown-domain"
    assert (
        refused(capsys, "build", "--domain", "tests.toy:Toy", "--score", "exact")["message"]
        == "the domain tests.toy:Toy takes no --score"
    )
    assert (
        refused(capsys, "build", "--domain", "tests.toy:Toy", "--group", "x")["message"]
        == "the domain tests.toy:Toy takes no --group"
    )
