"""Measured pass rates, and the tasks that are chosen by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.cli import run as cli
from tests.builder import test_selection
from tests.builder.test_selection import ODD, listed, printed, rated
from tests.toy import Toy

flags = test_selection.flags


def test_a_named_set_takes_its_tasks_or_goes_by_the_rates_it_names(
    workspace: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rated(workspace, [4, 2, 2, 2, 2, 2, 0], model="another")
    sets = '[small]\ntasks = ["toy:validation:1", "toy:train:2"]\n'
    sets += '[capable]\nscaffold = "seed"\nmodel = "another"\ndifficulty = "0.3..0.7"\n'
    (workspace / "benchmarks/toy/sets.toml").write_text(sets)
    assert listed(capsys, "--difficulty", "small") == ["toy:train:2", "toy:validation:1"]
    assert listed(capsys, "--difficulty", "capable") == [f"toy:validation:{n}" for n in range(1, 6)]
    assert listed(capsys, "--difficulty", "capable", "--kind", "odd") == [
        f"toy:validation:{n}" for n in (1, 3, 5)
    ]


def test_rates_are_written_from_finished_attempts_once_and_a_changed_task_has_none(
    workspace: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bench = [
        "bench",
        *flags[:2],
        *flags[4:],
        "--scaffold",
        "seed",
        "--repeats",
        "2",
        "--out",
        "runs/b",
    ]
    assert cli(bench) == 0
    rate = ["tasks", "rate", ODD, "--from", "runs/b"]
    made = printed(capsys, *rate)
    assert (made["tasks"], made["new"]) == (8, 16)
    assert {(r["scaffold"], r["attempts"], r["passed"]) for r in made["rates"]} == {("seed", 2, 0)}
    assert printed(capsys, *rate)["new"] == 0
    file = workspace / "benchmarks/toy/pass_rates.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    digests = {t.id: t.digest for t in Toy().tasks()}
    assert [line["digest"] for line in lines] == [digests[line["task"]] for line in lines]
    assert cli(["tasks", "list", ODD, "--split", "validation"]) == 0
    assert "passed 0/2 by seed" in capsys.readouterr().out
    # of a task that is another one now, nothing is known
    file.write_text("".join(json.dumps({**line, "digest": "0" * 16}) + "\n" for line in lines))
    assert (
        printed(capsys, "plan", *flags, "--difficulty", "0..1", code=2)["error"]["code"]
        == "not-rated"
    )
    file.write_text(json.dumps({**lines[0], "passed": 3}) + "\n")
    assert (
        "line 1"
        in printed(capsys, "plan", *flags, "--difficulty", "0..1", code=2)["error"]["message"]
    )
