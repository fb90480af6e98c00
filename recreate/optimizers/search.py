"""Candidates of one proposal, measured on the train tasks of its batch: what every optimizer that
searches stands on.

What is chosen is chosen on train tasks, so that the gate's verdict on validation stays that of one
candidate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from recreate.agents.scaffold import Scaffold, apply
from recreate.api.errors import OutOfBudget
from recreate.api.types import Edit, Evidence, Experience
from recreate.optimizers.context import OptimizerContext

ATTEMPT_CHARS = 3000
"""Of an attempt in a question, about."""
CITED = 5
"""Failures that an edit cites at most."""


@dataclass(frozen=True)
class Measured:
    """A candidate and how it did: score 0..1 by train task. experiences: its attempts, one a
    task."""

    edits: Sequence[Edit]
    scores: Mapping[str, float]
    experiences: Sequence[Experience] = ()

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / len(self.scores) if self.scores else 0.0


class Search:
    """The batch's train tasks, how the parent did on them, and `measure` for its candidates.

    spent: the budget has no further candidate in it; `measure` answers None from then on.
    """

    def __init__(
        self, context: OptimizerContext, scaffold: Scaffold, experiences: Sequence[Experience]
    ) -> None:
        self.context = context
        self.scaffold = scaffold
        by_task: defaultdict[str, list[float]] = defaultdict(list)
        for experience in experiences:
            if experience.task in context.tasks:
                by_task[experience.task].append(experience.grade.score)
        scores = {task: sum(each) / len(each) for task, each in by_task.items()}
        self.parent = Measured((), scores, tuple(e for e in experiences if e.task in scores))
        self.failed = [e for e in experiences if not e.grade.passed]
        cited = [e for e in self.failed if e.trace.steps][:CITED]
        self.evidence = tuple(Evidence(experience=e.id, step=len(e.trace.steps) - 1) for e in cited)
        self.spent = False

    def gain(self, made: Measured) -> float:
        """Return by how much it beats the parent, on average over the parent's tasks; one that was
        excluded counts as level, so that candidates are compared on the same tasks, and one with
        few attempts that count is not the best.
        """
        return self._gain(made.scores)

    def _gain(self, scores: Mapping[str, float]) -> float:
        known = self.parent.scores
        return fsum(score - known[task] for task, score in scores.items() if task in known) / max(
            1, len(known)
        )

    def edits(self, files: Mapping[str, str], reason: str) -> list[Edit]:
        """Return the edits that make these files of the parent's; '' takes a file out. What stays
        as it was needs none."""
        made = []
        for path, new in sorted(files.items()):
            old = self.scaffold.files.get(path, "")
            if new != old:
                made.append(
                    Edit(path=path, old=old, new=new, reason=reason, evidence=self.evidence)
                )
        return made

    def measure(
        self, edits: Sequence[Edit], tasks: Sequence[str] = (), beat: float | None = None
    ) -> Measured | None:
        """Measure the candidate on these train tasks (default: all of the batch). Its edits are
        valid: `context.validate` says nothing. None once the budget has none to spare; attempts
        that were made before cost nothing.

        beat: a `gain` that it has to exceed. It is then measured a few tasks at a time, and no
        further once it could not exceed it if all that is left were solved; what was measured does
        not exceed it either.
        """
        if self.spent:
            return None
        child = apply(self.scaffold, edits)
        wanted = list(tasks or self.parent.scores)
        made = list[Experience]()
        block = max(1, len(wanted) if beat is None else self.context.jobs)
        try:
            for at in range(0, len(wanted), block):
                made += self.context.evaluate(child, wanted[at : at + block])
                hoped = dict.fromkeys(wanted[at + block :], 1.0)
                if (
                    beat is not None
                    and self._gain(hoped | {e.task: e.grade.score for e in made}) <= beat
                ):
                    break
        except OutOfBudget:
            self.spent = True
            self.context.note(
                "the budget has no attempts left to choose with: the best so far is proposed"
            )
            return None
        return Measured(tuple(edits), {e.task: e.grade.score for e in made}, made)
