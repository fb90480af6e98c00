"""What memory policies are tried on: experiences nobody had, a model and re-runs that go by
rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recreate.api.types import Experience, Grade, Lesson, Message, Reply, Split, Step, Trace
from recreate.lessons.context import PolicyContext
from recreate.memory.embedders.hashed import Hashed

READ = {
    "title": "Read the failing test first",
    "body": "It says what is expected.",
    "when": "a test fails",
}
"""The lesson that everybody's failures teach here."""


def attempted(
    id: str,
    *,
    passed: bool = False,
    task: str = "",
    group: str = "",
    offered: Sequence[str] = (),
    split: Split = "train",
    prompt: str = "Mend the parser: a test fails",
) -> Experience:
    """An attempt; without more said it is a failure at a task and group of its own."""
    step = Step(
        step=0, reply="looked", action="ls", output="parser.py", status=0, offered=tuple(offered)
    )
    task = task or f"task-{id}"
    return Experience(
        id=id,
        domain="code",
        task=task,
        group=group or f"group-{task}",
        split=split,
        prompt=prompt,
        digest="d",
        trace=Trace(attempt=id, task=task, scaffold="s", model="m", steps=(step,), answer="a"),
        grade=Grade(
            score=float(passed), passed=passed, evidence="ok" if passed else "AssertionError"
        ),
    )


class Says:
    """The model: an answer for each kind of question, by the fields it asks for. `asked`: what it
    was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {"title": READ, "same": {"same": True}, **answers}
        self.asked: list[tuple[str, str, str]] = []

    def __call__(
        self, messages: Sequence[Message], *, step: int, thread: str = "", **params: Any
    ) -> Reply:
        field = next(name for name in params["json_schema"]["properties"] if name != "happened")
        text = messages[0]["content"]
        self.asked.append((field, f"{thread}/{step}", text))
        answer = self.answers.get(field, {})
        found = answer(text) if callable(answer) else answer
        return Reply(text=found if isinstance(found, str) else json.dumps(found))

    def count(self, field: str) -> int:
        return sum(kind == field for kind, _, _ in self.asked)


class Reruns:
    """Scores of re-runs: `with_` while any lesson is offered, `without` else; or a function of
    (lessons, repeat)."""

    def __init__(self, with_: float | None = 1.0, without: float | None = 0.0) -> None:
        self.with_, self.without = with_, without
        self.made: list[tuple[tuple[str, ...], str, int]] = []

    def __call__(
        self,
        lessons: Sequence[Lesson],
        experience: Experience,
        repeat: int = 0,
        without: Sequence[Lesson] = (),
    ) -> float | None:
        self.made.append((tuple(x.id for x in lessons), experience.task, repeat))
        return self.with_ if lessons else self.without


def held(
    ask: Callable[..., Reply] | None = None,
    rerun: Callable[..., float | None] | None = None,
    lessons: Mapping[str, Lesson] | None = None,
    experiences: Sequence[Experience] = (),
    **more: Any,
) -> PolicyContext:
    """Materials whose memory holds these experiences."""
    known = {e.id: e for e in experiences}
    return PolicyContext(
        domain=more.pop("domain", "code"),
        lessons=dict(lessons or {}),
        ask=ask or Says(),
        embed=Hashed().embed,
        rerun=rerun or Reruns(),
        find=known.get,
        **more,
    )
