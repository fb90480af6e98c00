"""An agent against itself: what its noise lets the gate see, and that plan and build go by it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.builder.past import CALIBRATION, read_spread
from recreate.cli import run as cli
from recreate.plugins.each.paired import detectable_gain
from recreate.plugins.measuring import calibration
from recreate.plugins.measuring.calibration import Calibration
from recreate.runs.settings import Settings
from recreate.runs.terms import SPREAD, spread_of
from tests.toy import script

WHO = ("toy", "seed", "d1", "m")


def drawn(rates: list[float], repeats: int, seed: int = 0) -> dict[tuple[str, int], float]:
    draw = random.Random(seed)
    return {
        (f"t{n}", r): float(draw.random() < rate)
        for n, rate in enumerate(rates)
        for r in range(repeats)
    }


def of(scores: dict[tuple[str, int], float], **settings: Any) -> Calibration:
    return calibration.calibration(scores, Settings(validation=20, **settings), WHO)


@pytest.mark.slow
def test_tasks_that_are_solved_always_or_never_are_told_from_those_that_are_solved_at_times() -> (
    None
):
    sure = of(drawn([0.0] * 12 + [1.0] * 8, 3))
    assert (sure.noise.within, sure.noise.flips, sure.mean) == (0, 0, 0.4)
    assert sure.spread == 0.95
    coins = of(drawn([0.4] * 20, 3))
    assert coins.noise.flips > 0.5
    assert coins.spread < 0.3
    gains = [
        next(d.gain for d in found.detectable if (d.tasks, d.repeats) == (20, 1))
        for found in (sure, coins)
    ]
    assert gains[0] < gains[1]  # where the same tasks are solved each time, a smaller gain is seen


@pytest.mark.slow
def test_more_tasks_and_repeats_see_smaller_gains_and_nothing_is_kept_by_chance() -> None:
    found = of(drawn([0.1, 0.3, 0.5, 0.7] * 5, 3), rounds=5)
    by = {(d.tasks, d.repeats): d.gain for d in found.detectable}
    assert by[100, 1] < by[40, 1] < by[20, 1]
    assert by[40, 3] < by[40, 1]
    assert found.false_keep.candidates == 5
    assert found.false_keep.rate <= 0.05
    assert found.false_keep.lo <= found.false_keep.rate <= found.false_keep.hi < 0.06


def test_the_gate_of_one_promise_a_candidate_is_told_as_plan_tells_it() -> None:
    found = of(drawn([0.3] * 20, 3), rounds=2, gate={"false_keep": 0})
    by = {(d.tasks, d.repeats): d.gain for d in found.detectable}
    assert by[20, 1] == pytest.approx(detectable_gain(20, 1, found.mean), abs=0.001)
    assert by[100, 1] < by[20, 1] < 1
    assert 0 < found.false_keep.rate < 0.1, "each candidate by itself: 5 % at most"


def test_one_attempt_a_task_and_too_few_tasks_are_refused() -> None:
    with pytest.raises(BadInput, match="4 tasks were scored more than once, at least 5"):
        of(drawn([0.5] * 4, 3))


def test_variances_of_nothing_leave_what_is_assumed() -> None:
    assert spread_of(0, 0) == SPREAD
    assert (spread_of(1, 0), spread_of(0, 1)) == (0.05, 0.95)


@pytest.mark.slow
def test_a_line_is_kept_for_each_agent_and_model_and_a_broken_one_is_none(tmp_path: Path) -> None:
    file = tmp_path / "benchmarks" / "toy" / CALIBRATION
    one = of(drawn([0.5] * 10, 2))
    for found in (
        one,
        one.model_copy(update={"model": "other"}),
        one.model_copy(update={"mean": 0.25}),
    ):
        calibration.keep(file, found)
    with file.open("a") as more:
        more.write("{]\n")
    assert len(file.read_text().splitlines()) == 3
    assert '"mean":0.25' in file.read_text().replace(" ", "")
    assert read_spread(tmp_path, "toy", "d1", "m") == one.spread
    assert read_spread(tmp_path, "toy", "d2", "m") is None
    assert read_spread(tmp_path, "nothing", "d1", "m") is None


@pytest.mark.slow
def test_calibrate_measures_the_agent_and_plan_goes_by_it(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in script()))
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        f"scripted:{workspace / 's.jsonl'}",
        "--scaffold",
        "seed",
    ]
    assert cli(["plan", *flags, "--json"]) == 0
    assert not any("calibrated" in text for text in json.loads(capsys.readouterr().out)["assumes"])
    measured = [
        "calibrate",
        *flags,
        "--validation",
        "8",
        "--sandbox",
        "none",
        "--out",
        "runs/c",
        "--json",
    ]
    assert cli(measured) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tasks"], found["repeats"], found["mean"]) == (8, 3, 0.0)
    assert found["noise"] == {"schema": 1, "within": 0.0, "between": 0.0, "flips": 0.0}
    assert found["false_keep"]["rate"] == 0
    assert {(d["tasks"], d["repeats"]) for d in found["detectable"]} == {
        (n, r) for n in (8, 16, 40) for r in (1, 2, 3)
    }
    assert (workspace / "benchmarks/toy" / CALIBRATION).is_file()
    assert cli(["plan", *flags, "--json"]) == 0
    assert any(
        text.startswith("how tasks differ: calibrated")
        for text in json.loads(capsys.readouterr().out)["assumes"]
    )
    assert cli(measured) == 0  # nothing is attempted again
    assert json.loads(capsys.readouterr().out) == found
    assert cli([*measured[:-1], "--repeats", "1", "--out", "runs/d", "--json"]) == 2
    assert "--repeats 3" in json.loads(capsys.readouterr().out)["error"]["fix"]
    assert cli(measured[:-1]) == 0
    assert "the smallest gain that is kept eight times in ten" in capsys.readouterr().out


@pytest.mark.slow
def test_calibrate_measures_the_agent_that_a_build_would_start_from(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in script()))
    shutil.copytree(shipped("scaffolds") / "seed", workspace / "scaffolds/seed-toy")
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        f"scripted:{workspace / 's.jsonl'}",
        "--sandbox",
        "none",
    ]
    assert cli(["calibrate", *flags, "--validation", "5", "--repeats", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scaffold"] == "seed-toy"
    assert cli(["calibrate", *flags, "--scaffold", "sed", "--out", "runs/none"]) == 2
    assert not (workspace / "runs/none").exists(), "refused before a run folder is made"
