"""`best-of-n`: n independent proposals from the same evidence, the best of them on the batch's own train tasks.

The floor that every optimizer has to beat: sampling without investigation. What is chosen is chosen on train tasks,
so the gate's verdict on validation stays that of one candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import BadEdit, Scaffold
from recreate.api.types import Edit, Experience
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.reflect import Reflect


class BestOfN:
    """The optimizer `best-of-n`; n is the setting `best_of`."""

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edits of the proposal with the best mean score on the batch's train tasks; the first of equals."""
        best: tuple[float, Sequence[Edit]] | None = None
        seen: set[str] = {scaffold.digest}
        tasks = list(dict.fromkeys(e.task for e in experiences))
        for number in range(self.context.best_of):
            thread = self.context.thread(f"sample {number}")
            edits = Reflect(self.context, thread).propose(scaffold, experiences)
            try:
                child = scaffolds.apply(scaffold, edits)
            except BadEdit as e:
                self.context.note(f"proposal {number + 1} does not hold together: {e.message}")
                continue
            if child.digest in seen:
                continue
            seen.add(child.digest)
            made = self.context.evaluate(child, [task for task in tasks if task in self.context.tasks])
            score = sum(e.grade.score for e in made) / len(made) if made else 0.0
            self.context.note(
                f"proposal {number + 1} of {self.context.best_of}: {score:.3f} on the batch's train tasks"
            )
            if best is None or score > best[0]:
                best = (score, edits)
        return best[1] if best else []
