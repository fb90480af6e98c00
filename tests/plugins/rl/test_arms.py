"""The table of seed, scaffold, weights and both on a tiny random model, and a tuning that its
budget stops."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recreate.api.types import Grade, Task, Trace
from recreate.cli import run as cli
from recreate.memory.held_out import Held, HeldOut
from recreate.runs.reader import Run
from recreate.runs.results import read_results
from tests.plugins.rl import tiny

pytestmark = [pytest.mark.rl, pytest.mark.filterwarnings("ignore")]

Call = Callable[..., tuple[int, dict[str, Any]]]


class Stopping(tiny.Sheet):
    """Somebody types Ctrl-C while an attempt is graded, as often as STOPS says after how many."""

    STOPS: ClassVar[list[int]] = []

    def grade(self, task: Task, trace: Trace, backend: Any) -> Grade:
        stops = type(self).STOPS
        if stops:
            stops[0] -= 1
            if stops[0] == 0:
                stops.pop(0)
                os.kill(os.getpid(), signal.SIGINT)
        return super().grade(task, trace, backend)


@pytest.fixture
def place(workspace: Path) -> Path:
    tiny.model(workspace / "model")
    # of two turns: an empty reply, one in 100 of so small a model, is not all it says
    tiny.agent(workspace / "agent")
    tiny.optimizer(workspace / "optimizer.jsonl", ".lower() + 'a' * 50")
    tiny.small(
        "grpo", workspace, prompts=2, group_size=3, mini_batches=1, lora_rank=0, learning_rate=1e-2
    )
    return workspace


@pytest.fixture
def call(place: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command on the tiny model: (exit code, the JSON object)."""

    def run(
        command: str, *flags: str, domain: str = "tests.plugins.rl.tiny:Sheet"
    ) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        model = ["--domain", domain, "--scaffold", "./agent", "--jobs", "2"]
        model += ["--model", "./model"] if "--model" not in flags else []
        code = cli([command, *model, *flags, "--json"])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return code, found

    return run


TABLE = (
    "--arms",
    "seed,scaffold,weights,both",
    "--recipe",
    "./grpo-small.toml",
    "--steps",
    "3",
    "--rounds",
    "1",
    "--train",
    "2",
    "--validation",
    "5",
    "--gate.false_keep",
    "0",
    "--models.optimizer",
    "scripted:optimizer.jsonl",
    "--split",
    "test",
    "--budget",
    "26attempts",
    "--build-share",
    "0.6",
)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def test_four_arms_under_one_budget_are_one_table(call: Call, place: Path) -> None:
    code, made = call("bench", *TABLE, "--out", "run")
    assert code == 0, made
    rows = {cell["arm"]: cell for cell in made["cells"]}
    assert list(rows) == ["seed", "scaffold", "weights", "both"]
    assert len({row["model"] for row in rows.values()}) == 3  # the base answers for two of them
    assert {row["n"] for row in rows.values()} == {8}
    assert made["test_openings"] == 4
    assert sorted(row["test_openings"] for row in rows.values()) == [1, 2, 3, 4]
    spent = {name: row["made"]["spent"]["attempts"] for name, row in rows.items()}
    # 2 train tasks and 5 validation tasks twice; 3 steps of 2 x 3; a build, then what is left pays
    # for two steps
    assert spent == {"seed": 0, "scaffold": 12, "weights": 18, "both": 26}
    assert rows["both"]["made"]["build"]["spent"]["attempts"] == 12
    tuned = rows["both"]["made"]["tune"]
    assert (tuned["status"], tuned["spent"]["attempts"]) == ("budget", 14)
    assert tuned["told"] == "grpo-small, 2 of 3 steps"
    assert {name: row["made"]["stopped"] for name, row in rows.items()} == {
        "seed": False,
        "scaffold": False,
        "weights": False,
        "both": True,
    }
    assert not any(row["made"]["over"] for row in rows.values())
    assert rows["scaffold"]["diff"]["diff"] == pytest.approx(
        rows["scaffold"]["mean"] - rows["seed"]["mean"]
    )
    assert rows["scaffold"]["diff"]["verdict"] == "better"  # its tool writes small letters
    assert rows["weights"]["digest"] == rows["seed"]["digest"]
    assert rows["both"]["digest"] == rows["scaffold"]["digest"]
    assert rows["both"]["beyond"]["arm"] in ("scaffold", "weights")
    for stage in ("scaffold/build", "weights/tune", "both/build", "both/tune"):
        splits = {
            r["split"] for r in records(place / "run/arms" / stage) if r["kind"] == "experience"
        }
        assert splits == ({"train"} if stage.endswith("tune") else {"train", "validation"})
    cells = {
        (cell.model, cell.digest): cell.mean for cell in read_results(Run(place / "run"), place)
    }
    assert cells == {(row["model"], row["digest"]): row["mean"] for row in rows.values()}
    report = (place / "run/report.md").read_text()
    assert "26 attempts" in report
    assert "; stopped by the budget |" in report


def test_a_table_that_was_stopped_again_and_again_is_the_same_table(call: Call) -> None:
    code, whole = call("bench", *TABLE, "--out", "whole")
    assert code == 0, whole
    # while the scaffold is built, while weights are tuned, while both's are, and while measuring
    Stopping.STOPS[:] = [5, 20, 20, 20]
    stopped = []
    for _ in range(4):
        code, said = call(
            "bench", *TABLE, "--out", "parts", domain="tests.plugins.rl.test_arms:Stopping"
        )
        stopped.append((code, said.get("error", {}).get("code")))
        assert "--out parts" in said["error"]["fix"]
    assert stopped == [(130, "interrupted")] * 4
    code, parts = call(
        "bench", *TABLE, "--out", "parts", domain="tests.plugins.rl.test_arms:Stopping"
    )
    assert code == 0, parts
    for one, other in zip(whole["cells"], parts["cells"], strict=True):
        keys = ("arm", "scaffold", "n", "mean", "lo", "hi", "diff", "measured", "digest")
        assert {k: one[k] for k in keys} == {k: other[k] for k in keys}
        assert one["made"]["spent"]["attempts"] == other["made"]["spent"]["attempts"]


def test_a_budget_ends_tuning_with_what_was_learned(call: Call, place: Path) -> None:
    flags = ("--recipe", "./grpo-small.toml", "--steps", "3")
    whole = call("tune", *flags, "--out", "whole")[1]
    code, made = call("tune", *flags, "--out", "run", "--budget", "16attempts")
    assert (code, made["status"]) == (3, "budget")
    assert [row["step"] for row in made["curve"]] == [0, 1]
    assert Path(made["checkpoint"]).name == "step-000002"
    assert "stopped by the budget" in (place / "run/report.md").read_text()
    # a budget of tokens ends it as well, before anything was learned
    code, none = call("tune", *flags, "--out", "few", "--budget", "100tokens")
    assert (code, none["status"], none["curve"]) == (3, "budget", [])
    # the four attempts of the step that was given up are read back
    code, rest = call("tune", *flags, "--out", "run", "--budget", "18attempts")
    assert (code, rest["status"]) == (0, "done")
    for one, other in zip(whole["curve"], rest["curve"], strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    # a run made before is a row, and flagged when it cost more than the budget that is stated
    code, table = call("bench", *_suite(place, "runs"))
    assert code == 0, table
    before = table["cells"][1]["made"]
    assert (before["before"], before["over"], before["spent"]["attempts"]) == (
        True,
        ["attempts"],
        18,
    )
    assert table["cells"][1]["diff"]["tasks"] == 6


def _suite(place: Path, name: str) -> tuple[str, ...]:
    (place / f"{name}.toml").write_text('budget = ["5attempts"]\n[arms.tuned]\nrun = "run"\n')
    return (f"{name}.toml",)


def test_weights_that_cannot_be_trained_are_refused_before_anything_is_spent(
    call: Call, place: Path
) -> None:
    code, said = call("bench", *TABLE, "--out", "bad", "--model", "local:smollm2-135m")
    assert (code, said["error"]["code"]) == (2, "not-trainable")
    (place / "model" / "adapter_config.json").write_text("{}")
    code, said = call("bench", *TABLE, "--out", "bad")
    assert (code, said["error"]["code"]) == (2, "not-trainable")
    assert not (place / "bad").exists()


def test_groups_that_the_workspace_held_out_are_not_trained_on_before_or_between_calls(
    call: Call, place: Path
) -> None:
    first, second = tiny.Sheet().tasks("train")[:2]
    held = HeldOut(place / "memory")
    flags = ("--arms", "weights", "--recipe", "./grpo-small.toml", "--steps", "3", "--out", "run")
    held.add([Held(first.group, first.id, "test", "tiny")])
    assert call("bench", *flags, "--budget", "8attempts")[0] == 0
    attempted = [
        r["task"] for r in records(place / "run/arms/weights/tune") if r["kind"] == "experience"
    ]
    assert attempted
    assert first.id not in attempted
    held.add([Held(second.group, second.id, "validation", "tiny")])
    assert call("bench", *flags, "--budget", "40attempts")[0] == 0
    after = [
        r["task"] for r in records(place / "run/arms/weights/tune") if r["kind"] == "experience"
    ][len(attempted) :]
    assert after
    assert not {first.id, second.id} & set(after)
