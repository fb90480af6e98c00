"""--difficulty: tasks by measured pass rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.cli import run as cli
from tests.builder import test_selection
from tests.builder.test_selection import ODD, attempted, printed, rated

flags = test_selection.flags


def test_difficulty_goes_by_what_the_builds_own_agent_passed_and_counts_what_is_left_out(
    workspace: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rated(workspace, [0, 1, 1, 2, 2, 3, 4])  # and the last was never measured
    rated(workspace, [2, 2, 4], "train")
    rated(workspace, [4] * 8, model="another")
    command = [
        "build",
        *flags,
        "--difficulty",
        "0.2..0.8",
        "--out",
        "runs/a",
        "--rounds",
        "1",
        "--gate.false_keep",
        "0",
        "--memory.embedder",
        "hashed",
    ]
    assert cli(command) == 0
    said = capsys.readouterr().err
    assert "goes by what seed with scripted:" in said
    assert "2 train, 5 validation, 0 test are at a rate of 0.2..0.8" in said
    assert "left out are 1 at 0, 2 at 1, 12 never measured" in said
    assert attempted("runs/a") == {f"toy:validation:{n}" for n in range(1, 6)}
    assert attempted("runs/a", "train") <= {"toy:train:0", "toy:train:1"}
    # rates that are measured later, by this very run, change nothing in it
    before = attempted("runs/a")
    assert cli(["tasks", "rate", ODD, "--from", "runs/a"]) == 0
    assert printed(capsys, "resume", "runs/a")["validation"]["tasks"] == 5
    assert attempted("runs/a") == before


def test_too_few_tasks_in_a_range_say_how_many_there_are_where(
    workspace: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rated(workspace, [0, 1, 2, 4, 4])
    rated(workspace, [2] * 8, "train")
    error = printed(capsys, "build", *flags, "--difficulty", "0.2..0.8", "--out", "runs/a", code=2)[
        "error"
    ]
    assert error["code"] == "too-few-tasks"
    assert error["message"].startswith(
        "2 validation tasks are left by --difficulty 0.2..0.8: the gate decides from 5 on"
    )
    assert "1 at 0, 2 at 1" in error["message"]
    assert not Path("runs/a").exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [("hard", "bad-difficulty"), ("0.8..0.2", "bad-difficulty"), ("0.2..0.8", "not-rated")],
)
def test_a_difficulty_that_cannot_be_is_refused_with_what_there_is(
    text: str, code: str, workspace: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rated(workspace, [1, 1], model="another")
    (workspace / "benchmarks/toy/sets.toml").write_text('[small]\ntasks = ["toy:validation:1"]\n')
    error = printed(capsys, "plan", *flags, "--difficulty", text, code=2)["error"]
    assert error["code"] == code
    if code == "not-rated":
        assert "seed with another" in error["fix"]
        assert "tasks rate toy --from RUN" in error["fix"]
    if text == "hard":
        assert "small" in error["fix"]
