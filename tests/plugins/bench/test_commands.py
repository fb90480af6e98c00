"""bench and compare: what they print and count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.agents.scaffold import load
from recreate.api.paths import shipped
from recreate.cli import run as cli
from tests.cli.test_spending import TOY, printed
from tests.toy import write_script


@pytest.fixture
def model(workspace: Path) -> list[str]:
    return ["--model", write_script(workspace / "s.jsonl")]


@pytest.mark.slow
def test_two_runs_are_put_side_by_side_and_judged_on_the_tasks_they_share(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    built = printed(
        capsys, "build", *TOY, *model, "--out", "runs/b", "--rounds", "1", "--scaffold", "seed"
    )
    assert (
        cli(
            [
                "bench",
                *TOY,
                *model,
                "--scaffold",
                "seed",
                "--out",
                "runs/v",
                "--split",
                "validation",
            ]
        )
        == 0
    )
    found = printed(capsys, "compare", "runs/v", "runs/b")
    before, after = found["cells"]
    assert (before["n"], before["repeats"], before["mean"], before["usd"]) == (8, 1, 0.0, 0.0)
    assert (after["digest"], after["mean"]) == (built["scaffold"]["digest"], 1.0)
    assert {"scaffold", "model", "domain", "lo", "hi"} <= before.keys()
    (difference,) = found["differences"]
    assert (difference["verdict"], difference["diff"], difference["tasks"]) == ("better", 1.0, 8)
    assert found["test_openings"] == 0
    # other tasks: two means, and nothing that may be said of their difference
    assert (
        cli(["bench", *TOY, *model, "--scaffold", "seed", "--out", "runs/t", "--split", "test"])
        == 0
    )
    other = printed(capsys, "compare", "runs/v", "runs/t")
    assert (len(other["cells"]), other["differences"], other["test_openings"]) == (2, [], 1)
    assert printed(capsys, "compare", "runs/v", "runs/none", code=2)["error"]["code"] == "no-run"


def test_a_script_is_told_by_the_exit_code_what_was_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def scores(name: str, each: float) -> str:
        rows = ({"task": f"t{n}", "repeat": 0, "score": each} for n in range(8))
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    worse, better = scores("a", 0.0), scores("b", 1.0)
    assert printed(capsys, "judge", worse, better, "--fail-unless", "better")["verdict"] == "better"
    assert (
        printed(capsys, "judge", better, worse, "--fail-unless", "better", code=4)["verdict"]
        == "not-better"
    )
    assert printed(capsys, "judge", better, worse)["verdict"] == "not-better"
    assert (
        printed(capsys, "judge", better, worse, "--fail-unless", "fine", code=2)["error"]["code"]
        == "usage"
    )


def test_the_limits_of_an_agent_are_flags(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "seed", "toy:train:1", *TOY, *model]
    found = printed(capsys, *run, "--limits.steps", "1")
    assert (found["ending"], found["limit"], found["steps"]) == ("limit", "steps", 1)
    bench = ["bench", *TOY, *model, "--scaffold", "seed", "--tasks", "1", "--agent.max_tokens"]
    cells = [printed(capsys, *bench, most)["cells"][0]["digest"] for most in ("9", "0")]
    # 0: as the agent has it
    assert cells[1] == load(shipped("scaffolds") / "seed").digest != cells[0]


def test_the_test_split_opens_only_in_bench_and_each_opening_is_counted(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["bench", *TOY, *model, "--scaffold", "seed", "--split"]
    assert printed(capsys, *flags, "validation", "--out", "runs/v")["test_openings"] == 0
    first = printed(capsys, *flags, "test", "--out", "runs/a")
    assert first["test_openings"] == 1
    cell = first["cells"][0]
    assert (cell["n"], cell["repeats"], cell["mean"], cell["usd"]) == (6, 1, 0.0, 0.0)
    assert cell["lo"] <= cell["mean"] <= cell["hi"]
    # the same run folder again is the same opening, and nothing is paid for twice
    again = printed(capsys, *flags, "test", "--out", "runs/a")
    assert again["test_openings"] == 1
    assert again["cells"] == first["cells"]
    assert printed(capsys, *flags, "test", "--out", "runs/b")["test_openings"] == 2


def test_a_bench_is_not_resumed_as_a_build(
    workspace: Path, model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["bench", *TOY, *model, "--scaffold", "seed", "--out", "runs/v"]) == 0
    assert printed(capsys, "resume", "runs/v", code=2)["error"]["code"] == "not-a-build"
