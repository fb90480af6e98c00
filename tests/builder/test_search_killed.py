"""A build by the rule `search` that is killed: wherever it was, in the search, between the looks or
in one of them, it ends as the one that nobody stopped, and asks for nothing twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.api.ports import SandboxBackend
from recreate.api.types import Call, Grade, Message, Reply, Split, Task, Trace
from recreate.builder.loop import BuildResult, build
from recreate.models import open_model
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import Parts, open_session
from tests.toy import LESSON, Toy, script

SEED = scaffolds.load(shipped("scaffolds") / "seed")
TASKS = 20


class Said(Toy):
    """Say the word, on 20 validation tasks. No attempt runs a command."""

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        held = [task for task in super().tasks(split) if task.split != "validation"]
        return held + [
            Task(
                id=f"toy:validation:{n}",
                domain="toy",
                prompt=f"Say the word number {n} of the validation list.",
                split="validation",
                group=f"validation-{n}",
                facts={"word": f"w{n}!"},
            )
            for n in range(TASKS)
            if split in (None, "validation")
        ]

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        right = task.facts["word"] in trace.steps[-1].reply
        return Grade(score=float(right), passed=right, evidence="" if right else "another word")


def write(file: Path, solved: Sequence[int]) -> None:
    """Write a script by which the lesson solves so many validation tasks in each attempt at
    them."""
    rows = [
        {
            "role": "agent",
            "task": f"toy:validation:{n}",
            "repeat": repeat,
            "text": f"w{n}{'!' * (bool(text) and n < most)}\n```bash\nsubmit\n```",
            **text,
        }
        for n, (repeat, most) in product(range(TASKS), enumerate(solved))
        for text in ({"contains": LESSON}, {})
    ]
    rows += [row for row in script() if "task" not in row]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Killed(BaseException):
    """Stands for a kill: nothing in recreate catches it."""


class Counted:
    """The scripted model, that counts its calls and ends the process, as it were, at one of
    them."""

    def __init__(self, file: Path, at: int) -> None:
        self.model = open_model(f"scripted:{file}")
        self.name, self.price, self.at = self.model.name, self.model.price, at
        self.calls = list[Call]()

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if len(self.calls) == self.at:
            raise Killed
        self.calls.append(call)
        return self.model.reply(messages, call, **params)

    def close(self) -> None:
        self.model.close()


class Built:
    """A build in which the lesson solves `solved` validation tasks, a number for each attempt."""

    def __init__(
        self, workspace: Path, name: str, solved: Sequence[int], at: int = -1, **flags: Any
    ) -> None:
        file = workspace / "script.jsonl"
        write(file, solved)
        values: dict[str, Any] = {
            "domain": "tests.builder.test_search_killed:Said",
            "model": f"scripted:{file}",
            "optimizer": "reflect",
            "train": 2,
            "batch": 2,
            "validation": TASKS,
            "rounds": 1,
            "jobs": 1,
            "sandbox": "none",
            "fresh": True,
            "models.retries": 0,
            "memory.embedder": "hashed",
            **flags,
        }
        self.model = Counted(file, at)
        folder = workspace / "runs" / name
        resume = (folder / "settings.toml").exists()
        parts = Parts(model=self.model, optimizer_model=self.model)
        loaded = settings.load(workspace, values, {})
        session = open_session(loaded, workspace, folder, resume=resume, parts=parts)
        try:
            self.built: BuildResult = build(session, SEED)
        finally:
            session.close()
        self.run = Run(folder)
        self.asked = [call.id.partition("/")[2] for call in self.model.calls]

    @property
    def claim(self) -> tuple[str, int]:
        """The word, and how many looks were had."""
        claim = self.built.verdict.claim
        assert claim is not None
        return claim.word, len(claim.looks)

    @property
    def first_anew(self) -> int:
        """How many requests there were before the first look that needs further attempts."""
        calls = self.model.calls
        return next(n for n, c in enumerate(calls) if c.phase == "validation" and c.repeat)


def kill_and_go_on(
    workspace: Path, whole: Built, solved: Sequence[int], ats: Sequence[int], **flags: Any
) -> None:
    """Assert of each kill that what went on ends as the whole build, and asks for the rest."""
    for at in ats:
        with pytest.raises(Killed):
            Built(workspace, f"killed-{at}", solved, at, **flags)
        folder = workspace / "runs" / f"killed-{at}"
        before = [r["call"].partition("/")[2] for r in Run(folder).records("reply")]
        again = Built(workspace, f"killed-{at}", solved, **flags)
        assert sorted(before + again.asked) == sorted(whole.asked), at
        assert again.built.verdict == whole.built.verdict, at
        assert again.built.scaffold.digest == whole.built.scaffold.digest, at
        assert again.run.result == whole.run.result, at
        kept = [(r.id, r.kept, r.verdict) for r in again.built.revisions]
        assert kept == [(r.id, r.kept, r.verdict) for r in whole.built.revisions], at


@pytest.mark.slow
def test_a_build_of_five_tasks_may_be_killed_at_each_request(workspace: Path) -> None:
    solved = (20, 15, 20)
    whole = Built(workspace, "whole", solved, validation=5)
    assert whole.claim == ("likely", 1)
    kill_and_go_on(workspace, whole, solved, range(len(whole.asked)), validation=5)


@pytest.mark.slow
def test_one_whose_search_goes_by_another_runs_attempts_may_be_killed_at_each_request(
    workspace: Path,
) -> None:
    solved = (20, 15, 20)
    Built(workspace, "earlier", solved, validation=5)
    whole = Built(workspace, "whole", solved, validation=5, fresh=False)
    assert len(whole.run.taken_attempts()) == 5
    assert whole.claim == ("likely", 1)
    ats = range(len(whole.asked))
    kill_and_go_on(workspace, whole, solved, ats, validation=5, fresh=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solved", "claim"),
    [((5, 6, 4), ("likely", 3)), ((5, 7, 0), ("shown", 2)), ((2, 0, 0), ("none", 3))],
)
def test_a_kill_between_the_looks_or_in_one_changes_no_claim(
    workspace: Path, solved: Sequence[int], claim: tuple[str, int]
) -> None:
    whole = Built(workspace, "whole", solved)
    assert whole.claim == claim
    first, end = whole.first_anew, len(whole.asked)
    # 20 tasks of the seed, the batch, the optimizer, 20 of the candidate, 40 a look
    ats = {30, first - 1, first, first + 20, first + 39, first + 40, end - 1}
    kill_and_go_on(workspace, whole, solved, sorted(at for at in ats if at < end))


@pytest.mark.slow
def test_a_build_that_is_killed_twice_in_one_look_looks_once(workspace: Path) -> None:
    solved = (5, 6, 4)
    whole = Built(workspace, "whole", solved)
    first = whole.first_anew
    for at in (first + 3, 5, 20):
        with pytest.raises(Killed):
            Built(workspace, "killed", solved, at)
    again = Built(workspace, "killed", solved)
    assert again.built.verdict == whole.built.verdict
    replies = [r["call"].partition("/")[2] for r in again.run.records("reply")]
    assert sorted(replies) == sorted(whole.asked)


@pytest.mark.slow
def test_a_build_that_ended_asks_for_nothing_when_it_is_gone_on_with(workspace: Path) -> None:
    solved = (5, 6, 4)
    whole = Built(workspace, "whole", solved)
    again = Built(workspace, "whole", solved)
    assert (again.asked, again.built.verdict) == ([], whole.built.verdict)
