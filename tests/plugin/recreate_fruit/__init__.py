"""Fruit to be written in capitals: an example of a plug-in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from recreate import (
    Call,
    Edit,
    Evidence,
    Experience,
    Grade,
    Message,
    OptimizerContext,
    Price,
    Reply,
    Sandbox,
    SandboxBackend,
    Scaffold,
    Split,
    Task,
    Trace,
)

NEEDS = ()
"""The plug-ins that this one needs: its parts are refused where one is not there."""
FRUIT = ("apple", "fig", "kiwi", "lemon", "mango", "melon", "olive", "peach", "pear", "plum")
WAY = {"train": "Name", "validation": "Say", "test": "Spell"}


class Fruit:
    """Write a fruit to fruit.txt, in capitals: which no task says, and the grader does."""

    name = "fruit"

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        splits: tuple[Split, ...] = ("train", "validation", "test")
        return [_task(each, fruit) for each in splits if split in (None, each) for fruit in FRUIT]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        return sandbox.run("cat fruit.txt 2>/dev/null").text.strip()

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        right = trace.answer == self.gold(task)
        return Grade(
            score=float(right),
            passed=right,
            evidence="right" if right else "A fruit is written in capitals.",
        )

    def gold(self, task: Task) -> str:
        return str(task.facts["fruit"]).upper()


def _task(split: Split, fruit: str) -> Task:
    return Task(
        id=f"fruit:{split}:{fruit}",
        domain="fruit",
        prompt=f"{WAY[split]} the fruit {fruit} in fruit.txt.",
        split=split,
        group=f"{split} {fruit}",
        facts={"fruit": fruit},
    )


class GraderSays:
    """What the grader said of the first failure becomes a lesson, as it stands."""

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> list[Edit]:
        failed = next((e for e in experiences if not e.grade.passed), None)
        if failed is None:
            return []
        cited = Evidence(experience=failed.id, step=len(failed.trace.steps) - 1)
        text = f"# The grader says\n\n{failed.grade.evidence}\n"
        return [
            Edit(
                path="memory/grader-says.md",
                new=text,
                reason="the grader says so",
                evidence=(cited,),
            )
        ]


class Monkey:
    """Writes the fruit that it reads, and heeds what it was taught of capitals. `monkey` or
    `monkey:NAME`."""

    price: Price | None = Price()

    def __init__(self, nick: str = "") -> None:
        self.name = f"monkey:{nick}" if nick else "monkey"

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        found = re.search(r"the fruit (\w+)", messages[-1]["content"])
        fruit = found[1] if found else ""
        if "in capitals" in messages[0]["content"]:
            fruit = fruit.upper()
        text = f"```bash\necho {fruit} > fruit.txt\n```" if found else "```bash\nsubmit\n```"
        asked = sum(len(m["content"]) for m in messages)
        return Reply(text=text, model=self.name, tokens_in=asked // 4, tokens_out=len(text) // 4)

    def close(self) -> None:
        """Nothing is open."""


def make(n: int = 3) -> None:
    """Make tasks of fruit: what a source of tasks of yours would do.

    Example: recreate tasks make fruit --n 3
    """
    print(*(task.id for task in Fruit().tasks("train")[:n]), sep="\n")
