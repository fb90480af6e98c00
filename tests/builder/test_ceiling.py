"""A build that can keep nothing stops before training and says so; what keeps a cheaper agent of
the same score."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.ports import Price
from recreate.api.types import Usage
from recreate.builder.gates import cost_of
from recreate.cli import run as cli
from recreate.runs.attempts import Score
from recreate.runs.gate import saved, saving
from recreate.runs.reader import Run
from tests.toy import LESSON, SIZES, script

TOY = ["--domain", "tests.toy:Toy", "--scaffold", "seed"]


def solves(wrong: int) -> list[dict[str, Any]]:
    """A script whose agent solves all but so many validation tasks without any lesson; the lesson
    solves all."""
    still = {f"toy:validation:{n}" for n in range(wrong)}
    rows = [
        {k: v for k, v in r.items() if k != "contains"}
        for r in script()
        if r.get("contains") == LESSON
    ]
    solved = [r for r in rows if r["task"] not in still]
    return solved + [r for r in script() if r.get("task") in still or "task" not in r]


@pytest.fixture
def model(workspace: Path) -> Callable[[list[dict[str, Any]]], list[str]]:
    def write(rows: list[dict[str, Any]]) -> list[str]:
        (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return ["--model", f"scripted:{workspace / 's.jsonl'}"]

    return write


def splits(run: Path) -> set[str]:
    return {r["split"] for r in Run(run).records("experience")}


def test_a_build_whose_seed_leaves_no_room_stops_before_training_and_names_the_flags(
    workspace: Path, model: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*TOY, *model(solves(0)), "--out", "runs/a"]
    assert cli(["build", *flags, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["status"], found["revisions"], found["spend"]["calls"]) == ("ceiling", [], 16)
    assert (found["validation"]["before"], found["validation"]["verdict"]) == (1.0, "not-better")
    assert found["validation"]["reason"].startswith(
        "no outcome could be better: the score is 1.000, every task is"
    )
    assert splits(workspace / "runs/a") == {"validation"}
    for flag in ("--difficulty", "--kind", "--data", "--validation", "--keep-cheaper"):
        assert flag in found["advice"]
        assert flag in err
    # going on with it says the same, and pays for nothing
    assert cli(["resume", "runs/a", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert {k: again[k] for k in ("status", "advice", "validation")} == {
        k: found[k] for k in ("status", "advice", "validation")
    }
    assert again["spend"]["calls"] == 16
    # and so do those who read the run
    assert cli(["show", "runs/a"]) == 0
    out, err = capsys.readouterr()
    assert "(ceiling)" in out
    assert "no outcome could be better" in out
    assert "--difficulty" in err
    assert "no outcome could be better" in (workspace / "runs/a/report.html").read_text("utf-8")
    assert "--difficulty" in (workspace / "runs/a/report.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("wrong", "error", "status"),
    [(3, "0.03", "ceiling"), (4, "0.03", "done"), (4, "0", "ceiling"), (5, "0", "done")],
)
@pytest.mark.plugin("each")
def test_a_build_stops_exactly_where_the_gate_could_keep_nothing(
    wrong: int,
    error: str,
    status: str,
    workspace: Path,
    model: Callable[..., list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        cli(
            [
                "build",
                *TOY,
                *model(solves(wrong)),
                "--rounds",
                "1",
                "--gate.false_keep",
                error,
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["status"] == status


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--validation", "5", "--gate.false_keep", "0.001"], "too-few-tasks"),
        (["--validation", "5", "--gate.false_keep", "0"], "too-few-tasks"),
        (["--budget", "3attempts"], "budget-too-small"),
        (["--validation", "6"], "no-seed"),  # one that solves one of six leaves room
    ],
)
@pytest.mark.plugin("each")
def test_a_seed_is_not_paid_for_where_nothing_could_be_kept_in_its_place(
    flags: list[str],
    code: str,
    workspace: Path,
    model: Callable[..., list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [
        "build",
        *TOY,
        *model(script()),
        "--scaffold",
        "create",
        "--rounds",
        "1",
        "--out",
        "runs/a",
        *flags,
    ]
    assert cli([*command, "--json"]) == (1 if code == "no-seed" else 2)
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == code
    paid = (workspace / "runs/a").exists() and any(Run(workspace / "runs/a").records("reply"))
    assert paid == (code == "no-seed")
    if code == "no-seed":
        assert (
            "a seed that solves more than 3 of 6 validation tasks leaves nothing to be kept" in err
        )


def test_a_build_that_learns_lessons_ends_there_too(workspace: Path) -> None:
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in solves(0)))
    made = recreate.build(
        "tests.toy:Toy",
        model=f"scripted:{workspace / 's.jsonl'}",
        memory="recreate",
        scaffold="seed",
        memory__embedder="hashed",
    )
    assert (made.status, made.revisions) == ("ceiling", ())
    assert splits(made.run) == {"validation"}


# ------------------------------------------------------------------------------------------------
# cheaper


def thrifty(cost: int) -> list[dict[str, Any]]:
    """An agent that solves every validation task, with the lesson in fewer words; train tasks only
    with it."""
    told = [r for r in solves(0) if "validation" in r.get("task", "")]
    wordy = [{**r, "text": "word " * cost + "\n" + r["text"]} for r in told]
    return [{**r, "contains": LESSON} for r in told] + wordy + script()


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "validation", 40)


@pytest.mark.slow
@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(("flags", "kept"), [([], False), (["--keep-cheaper"], True)])
def test_a_cheaper_agent_of_the_same_score_is_kept_where_that_is_asked_for(
    flags: list[str],
    kept: bool,
    workspace: Path,
    model: Callable[..., list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [
        "build",
        *TOY,
        *model(thrifty(400)),
        "--validation",
        "40",
        "--rounds",
        "1",
        "--out",
        "runs/a",
        *flags,
    ]
    assert cli([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    if not kept:
        assert found["status"] == "ceiling"
        return
    (revision,) = found["revisions"]
    assert revision["kept"]
    assert found["claim"] == "cheaper"
    # the word stays what it is; the reason says why it is kept
    assert revision["verdict"]["verdict"] == "undecided"
    assert revision["verdict"]["reason"].startswith("cheaper: ")
    saving = revision["verdict"]["saving"]
    assert saving["unit"] == "tokens"
    assert saving["cheaper"]
    assert saving["after"] < saving["before"]
    assert saving["hi"] < 0
    assert "cheaper: " in (workspace / "runs/a/report.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("unit", "said"),
    [("usd", "$0.5000"), ("tokens", "100 tokens"), ("calls", "4.0 calls"), ("seconds", "8.0 s")],
)
def test_what_cheaper_means_is_counted_as_it_is_named(unit: str, said: str) -> None:
    used = Usage(calls=4, tokens_in=80, tokens_out=20, usd=0.01, seconds=8.0)
    scores = [Score(f"a{n}", f"t{n}", 0, 1.0, True, "submitted", usage=used) for n in range(6)]
    before = cost_of(scores, Price(tokens_in=5000, tokens_out=5000), unit)
    found = saving(before, {place: (cost or 0) / 2 for place, cost in before.items()}, unit=unit)
    assert found is not None
    assert saved(found).startswith(f"{said} -> ")


@pytest.mark.usefixtures("many")
@pytest.mark.slow
def test_too_few_tasks_to_rule_out_harm_are_said_before_training(
    workspace: Path, model: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "build",
        *TOY,
        *model(thrifty(400)),
        "--validation",
        "20",
        "--rounds",
        "1",
        "--keep-cheaper",
        "--json",
    ]
    assert cli(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "ceiling"
    assert (
        "20 tasks do not rule out that its score falls by 0.1 (39 tasks do"
        in found["validation"]["reason"]
    )
