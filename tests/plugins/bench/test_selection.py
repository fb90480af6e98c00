"""Which tasks a bench takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builder.test_selection import ODD, attempted, listed, printed
from tests.toy import write_script


@pytest.fixture
def flags(workspace: Path) -> list[str]:
    return ["--domain", ODD, "--scaffold", "seed", "--model", write_script(workspace / "s.jsonl")]


def test_a_kind_of_task_is_chosen_for_build_bench_plan_and_listing(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {f"toy:validation:{n}" for n in (1, 3, 5, 7)}
    assert set(listed(capsys, "--kind", "odd", "--split", "validation")) == odd
    bench = ["bench", *flags, "--out", "runs/b", "--kind", "odd"]
    assert printed(capsys, *bench)["cells"][0]["n"] == 4
    assert attempted("runs/b") == odd
    error = printed(capsys, "build", *flags, "--kind", "odd", "--out", "runs/c", code=2)["error"]
    assert error["code"] == "too-few-tasks"
    assert "4 validation tasks are left by --kind odd" in error["message"]
    assert printed(capsys, "plan", *flags, "--kind", "odd", "--rounds", "0")["attempts"] == 4
    error = printed(capsys, "build", *flags, "--kind", "prime", code=2)["error"]
    assert (error["code"], error["fix"]) == ("unknown-kind", "--kind even, odd")


def test_bench_takes_a_number_of_tasks_as_ever(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, "bench", *flags, "--tasks", "3")["cells"][0]["n"] == 3
    assert printed(capsys, "bench", *flags, "--tasks", "toy:validation:3")["cells"][0]["n"] == 1
