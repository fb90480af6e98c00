"""--tasks, --kind and --difficulty: which tasks a build, a plan, a bench and a listing take, and
what is said of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import BadInput
from recreate.api.types import PassRate, Task
from recreate.builder.selection import find_task
from recreate.cli import run as cli
from recreate.domains import rates
from recreate.memory.held_out import HeldOut
from recreate.runs.reader import Run
from recreate.runs.settings import load_run
from tests.toy import Toy, write_script


class Kinds(Toy):
    """The toy, with every second task of another kind. tests.builder.test_selection:Kinds"""

    def kind(self, task: Task) -> str:
        return "odd" if int(task.id.rpartition(":")[2]) % 2 else "even"


ODD = "tests.builder.test_selection:Kinds"


@pytest.fixture
def flags(workspace: Path) -> list[str]:
    return ["--domain", ODD, "--scaffold", "seed", "--model", write_script(workspace / "s.jsonl")]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert cli([*arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    capsys.readouterr()
    assert cli(["tasks", "list", ODD, *arguments, "--json"]) == 0
    return [json.loads(line)["task"] for line in capsys.readouterr().out.splitlines()]


def attempted(run: str | Path, split: str = "validation") -> set[str]:
    return {r["task"] for r in Run(Path(run)).records("experience") if r["split"] == split}


def rated(
    workspace: Path, passed: Sequence[int], split: str = "validation", model: str = ""
) -> None:
    """Task n of the split was passed so often in four attempts of `seed`."""
    tasks = {t.id: t for t in Toy().tasks()}
    name = model or f"scripted:{workspace / 's.jsonl'}"
    found = [
        PassRate(task=t.id, digest=t.digest, scaffold="seed", model=name, attempts=4, passed=n)
        for number, n in enumerate(passed)
        for t in [tasks[f"toy:{split}:{number}"]]
    ]
    rates.add(workspace / "benchmarks/toy/pass_rates.jsonl", found)


@pytest.mark.slow
def test_a_build_takes_the_tasks_that_are_named_and_no_others(
    workspace: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [f"toy:validation:{n}" for n in range(2, 8)]
    (workspace / "ids.txt").write_text("# to learn from\ntoy:train:3\ntoy:train:5  # and this\n")
    build = ["build", *flags, "--out", "runs/a", "--tasks", ",".join(ids), "--tasks", "@ids.txt"]
    made = printed(capsys, *build, "--rounds", "1", "--gate.false_keep", "0")
    assert made["validation"]["tasks"] == 6
    assert attempted("runs/a") == set(ids)
    assert attempted("runs/a", "train") == {"toy:train:3", "toy:train:5"}
    # the run keeps what the file said, not the file
    (workspace / "ids.txt").write_text("toy:train:0\n")
    assert load_run(workspace / "runs/a").select.tasks == (*ids, "toy:train:3", "toy:train:5")
    # what the domain holds out is registered whole, whatever is selected
    held = HeldOut(workspace / "memory").read()
    assert {t.group for t in Toy().tasks() if t.split != "train"} <= set(held.groups)


@pytest.mark.parametrize("text", ["toy:validation:99", "20", "@nowhere.txt"])
def test_tasks_that_are_not_there_are_refused(
    text: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    error = printed(capsys, "plan", *flags, "--tasks", text, code=2)["error"]
    assert error["code"] in ("unknown-task", "no-tasks-file")
    assert error["fix"]


def test_a_slice_may_have_a_step_as_in_python_and_one_of_nothing_is_refused(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def numbers(text: str) -> list[int]:
        return [
            int(id.rpartition(":")[2])
            for id in listed(capsys, "--split", "validation", "--tasks", text)
        ]

    assert numbers("::2") == [0, 2, 4, 6]
    assert numbers("1:6:2") == [1, 3, 5]
    assert numbers("::-3") == [1, 4, 7], "in the order of the tasks"
    for text in ("0:4:0", "::0", "-:3", "::-"):
        error = printed(capsys, "tasks", "list", ODD, "--tasks", text, code=2)["error"]
        assert (error["code"], error["message"]) == ("usage", f"--tasks {text} is no slice")
        assert "0:40:2" in error["fix"]


def test_a_task_is_named_by_the_end_of_its_id_where_one_alone_ends_so(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"prompt": f"{n}?", "answer": str(n), "id": f"q{n}", "split": "validation"}
        for n in range(8)
    ]
    (workspace / "quiz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["tasks", "list", "--data", "quiz.jsonl"]
    assert printed(capsys, *given, "--tasks", "q7")["task"] == "quiz:quiz:q7"
    assert listed(capsys, "--tasks", "validation:3") == ["toy:validation:3"]
    for words, near in (
        ([*given, "--tasks", "Q7"], "quiz:quiz:q7"),
        ([*given, "--tasks", "quiz:q11"], "quiz:quiz:q1"),
        (["tasks", "list", ODD, "--tasks", "abc:2"], "toy:train:2"),
        (["tasks", "list", ODD, "--tasks", "1:x"], "toy:train:1"),
        (["tasks", "list", ODD, "--tasks", "3"], "toy:train:3"),  # a number is how many, elsewhere
    ):
        error = printed(capsys, *words, code=2)["error"]
        assert (error["code"], error["fix"]) == ("unknown-task", f"did you mean {near}?")
    twice = [{**row, "id": f"{row['split']}:{row['id']}"} for row in rows]
    few = [
        Task(id=f"d:{n}:{row['id']}", domain="d", prompt="", split="train", group="g")
        for n in "ab"
        for row in twice
    ]
    with pytest.raises(BadInput, match="2 tasks end with 'q7'") as e:
        find_task(few, "q7")
    assert e.value.fix == "one of: d:a:validation:q7, d:b:validation:q7"


@pytest.mark.plugin("each")
def test_plan_refuses_what_build_refuses(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    few = [*flags, "--validation", "5", "--rounds", "3", "--gate.false_keep", "0.01"]
    refused = [printed(capsys, command, *few, code=2)["error"] for command in ("plan", "build")]
    assert refused[0] == refused[1]
    assert refused[0]["code"] == "too-few-tasks"
    assert printed(capsys, "plan", *few, "--gate.false_keep", "0")["proposals"] == 3
