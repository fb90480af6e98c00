"""A program that never does its work stops the run: it is quoted, nobody is paid to mend prompts,
and the run goes on when it is mended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.errors import BadInput
from recreate.models.scripted import Scripted
from recreate.plugins.foreign.kind import ForeignAgent
from recreate.runs.reader import Run
from tests.plugins.foreign.test_in_process import TEXTS, by_shell
from tests.toy import Toy, script


class Program:
    """Works once it is mended; `how` it fails until then."""

    def __init__(self, how: str, good: Sequence[str] = ()) -> None:
        self.how, self.good, self.asked = how, good, 0

    def attempt(self, desk: recreate.Desk) -> str | None:
        self.asked += 1
        if not self.how or any(word in desk.prompt for word in self.good):
            return by_shell(desk)
        if self.how == "raises after it asked":
            desk.ask([{"role": "user", "content": desk.prompt}])
        if self.how == "asks nobody":
            return "x"
        if self.how == "raises another each time":
            raise RuntimeError(f"of {self.asked}") if self.asked % 2 else ValueError("no")
        raise KeyError(desk.prompt)


class Counted:
    """A scripted model that counts who asks it."""

    def __init__(self) -> None:
        self.inner = Scripted.of(script())
        self.name, self.price = self.inner.name, self.inner.price
        self.roles: list[str] = []

    def reply(self, messages: Any, call: Any, **params: Any) -> Any:
        self.roles.append(call.role)
        return self.inner.reply(messages, call, **params)

    def close(self) -> None:
        pass


def build(program: Program, model: Counted, out: Path, **more: Any) -> Any:
    given: dict[str, Any] = {
        "validation": 8,
        "train": 4,
        "rounds": 1,
        "jobs": 1,
        "optimizer": "reflect",
        "memory__embedder": "hashed",
        "models__optimizer": model,
        "out": str(out),
    }
    agent = recreate.wrap(program, TEXTS)
    return recreate.build(Toy(), model=model, scaffold=agent, **{**given, **more})


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "KeyError: "),
        ("raises after it asked", "KeyError: "),
        ("asks nobody", "it never asked its model"),
    ],
)
def test_three_attempts_that_break_alike_stop_a_build_and_it_goes_on_when_mended(
    how: str, said: str, workspace: Path
) -> None:
    program, model, out = Program(how), Counted(), workspace / "runs" / "a"
    with pytest.raises(BadInput) as stopped:
        build(program, model, out)
    assert stopped.value.code == "agent-breaks"
    assert said in stopped.value.message
    assert how == "asks nobody" or f"{__file__}, line " in stopped.value.message
    assert program.asked == 3
    assert "optimizer" not in model.roles
    run = Run(out)
    assert not list(run.records("experience"))
    assert len(list(run.records("aside"))) == 3
    paid, program.how = len(model.roles), ""
    made = build(program, model, out)
    assert made.verdict.after is not None
    assert {r["ending"] for r in run.records("experience")} == {"submitted"}
    assert len(model.roles) > paid
    assert "optimizer" in model.roles


@pytest.mark.parametrize("jobs", [1, 4])
def test_one_that_works_at_a_task_is_data_whatever_it_does_at_others(
    workspace: Path, jobs: int
) -> None:
    program, model = Program("raises", good=[f"number {n}" for n in range(6)]), Counted()
    out = workspace / "runs" / "a"
    build(program, model, out, jobs=jobs)
    endings = [r["ending"] for r in Run(out).records("experience")]
    assert "error" in endings
    assert "submitted" in endings
    assert not list(Run(out).records("aside"))


def test_one_that_breaks_in_other_ways_each_time_is_data(workspace: Path) -> None:
    program, model = Program("raises another each time"), Counted()
    build(program, model, workspace / "runs" / "a")
    assert len(list(Run(workspace / "runs" / "a").records("experience"))) >= 5


def test_a_single_attempt_is_written_down_as_it_ended(workspace: Path) -> None:
    made = recreate.run(
        recreate.wrap(Program("raises"), TEXTS),
        "toy:train:0",
        Toy(),
        model=Counted(),
        out=str(workspace / "runs" / "one"),
    )
    assert (made.trace.ending, made.trace.limit) == ("error", "exit")
    assert json.loads((workspace / "runs" / "one" / "journal.jsonl").read_text().splitlines()[0])
    assert len(list(Run(workspace / "runs" / "one").records("experience"))) == 1


TRACEBACK = (
    'Traceback (most recent call last):\n  File "/work/.recreate/agent/a.py", line 7, in <module>\n'
    "    import nothing\nModuleNotFoundError: No module named 'nothing'"
)


@pytest.mark.parametrize(
    ("ending", "limit", "output", "words"),
    [
        ("error", "exit", TRACEBACK, "/work/.recreate/agent/a.py, line 7: ModuleNotFoundError"),
        ("error", "exit", "KeyError: 'a' (/x/b.py:3, in f)", "/x/b.py, line 3: KeyError"),
        ("error", "exit", "sh: 12: agent: not found", "sh: 12: agent: not found"),
        ("error", "exit", "", "it printed nothing"),
        ("error", "no-calls", "bye", "it never asked its model; bye"),
        (
            "error",
            "no-calls",
            TRACEBACK,
            "it never asked its model; /work/.recreate/agent/a.py, line",
        ),
        ("error", "filter", "x", ""),
        ("limit", "seconds", TRACEBACK, ""),
        ("submitted", "", TRACEBACK, ""),
    ],
)
def test_what_a_program_broke_by_is_quoted_with_file_and_line(
    ending: Any, limit: str, output: str, words: str
) -> None:
    last = recreate.api.types.Step(step=0, kind="ended", output=output)
    trace = recreate.api.types.Trace(
        attempt="a", task="t", scaffold="s", model="m", steps=(last,), ending=ending, limit=limit
    )
    cause, said = ForeignAgent().failure(trace)
    assert said.startswith(words)
    assert bool(cause) == bool(words)


def test_the_same_place_is_one_cause_whatever_its_words_say_of_the_task() -> None:
    def cause(text: str) -> str:
        last = recreate.api.types.Step(step=0, kind="ended", output=text)
        about = {"attempt": "a", "task": "t", "scaffold": "s", "model": "m", "steps": (last,)}
        trace = recreate.api.types.Trace(**about, ending="error", limit="exit")
        return ForeignAgent().failure(trace)[0]

    assert cause("KeyError: 'a' (/x/b.py:3, in f)") == cause("KeyError: 'b' (/x/b.py:3, in f)")
    assert cause("KeyError: 'a' (/x/b.py:3, in f)") != cause("KeyError: 'a' (/x/b.py:4, in f)")
    assert cause("KeyError: 'a' (/x/b.py:3, in f)") != cause("TypeError: a (/x/b.py:3, in f)")
