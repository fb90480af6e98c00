"""An optimizer with a population, in one file: pieces of advice, scored on train tasks; the two
best are proposed.

The pool is kept in `context.state` from round to round. A member stays while no other is at least
as good on every train task and better on one (the Pareto front). `--optimizer
tests.examples.population:Pool`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice

from pydantic import BaseModel, Field

from recreate import Edit, Evidence, Experience, OptimizerContext, Scaffold
from recreate.agents.scaffold import apply
from recreate.api.types import Record

QUESTION = """An agent was told: {prompt}
It handed in: {answer}
The grader said: {grader}
Advice that helped on other tasks: {parent}
Write one better piece of advice, number {number}, in one sentence."""


class PoolSettings(BaseModel, frozen=True, extra="forbid"):
    """children: pieces of advice that a round writes; proposed: how many of the pool the gate
    judges in a round."""

    children: int = Field(default=2, ge=1)
    proposed: int = Field(default=2, ge=1)


class Advice(Record):
    """One member: the lesson, what it comes from, and its score on each train task."""

    text: str
    evidence: Evidence
    scores: Mapping[str, float]

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / max(1, len(self.scores))

    def beaten_by(self, other: Advice) -> bool:
        pairs = [(other.scores.get(task, 0.0), score) for task, score in self.scores.items()]
        return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


class Pool:
    """`[optimizer_settings]`: see PoolSettings."""

    Config = PoolSettings

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context
        self.settings: PoolSettings = context.settings
        self.file = context.state / "pool.json"
        rows = json.loads(self.file.read_text()) if self.file.exists() else []
        self.members = [Advice.model_validate(row) for row in rows]

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        return next(iter(self.candidates(scaffold, experiences)), [])

    def candidates(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> list[list[Edit]]:
        failed = [e for e in experiences if not e.grade.passed]
        for number in range(self.settings.children if failed else 0):
            self.grow(scaffold, failed[number % len(failed)], number)
        self.members = [a for a in self.members if not any(a.beaten_by(b) for b in self.members)]
        self.members.sort(key=lambda a: -a.mean)
        self.file.write_text(json.dumps([a.model_dump(mode="json") for a in self.members]))
        usable = ([edit(a)] for a in self.members if not self.context.validate(scaffold, [edit(a)]))
        return list(islice(usable, self.settings.proposed))

    def grow(self, scaffold: Scaffold, failed: Experience, number: int) -> None:
        """One more member, when it is new and may be used."""
        parent = self.members[number % len(self.members)].text if self.members else "none yet"
        about = {
            "answer": failed.trace.answer,
            "grader": failed.grade.evidence,
            "parent": parent,
            "number": number,
        }
        question = QUESTION.format(prompt=failed.prompt, **about)
        text = self.context.ask([{"role": "user", "content": question}], step=number).text.strip()
        advice = Advice(text=text, evidence=Evidence(experience=failed.id, step=0), scores={})
        if text in [a.text for a in self.members] or self.context.validate(
            scaffold, [edit(advice)]
        ):
            return
        made = self.context.evaluate(apply(scaffold, [edit(advice)]), self.context.tasks)
        self.members.append(
            advice.model_copy(update={"scores": {e.task: e.grade.score for e in made}})
        )


def edit(advice: Advice) -> Edit:
    name = "-".join(word for word in advice.text.lower().split() if word.isalpha())[:40]
    new = f"# Advice\n\n{advice.text}\n"
    return Edit(
        path=f"memory/{name}.md",
        new=new,
        reason=f"{advice.mean:.2f} on train",
        evidence=(advice.evidence,),
    )
