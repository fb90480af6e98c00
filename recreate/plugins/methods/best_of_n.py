"""`best-of-n`: n independent proposals from the same evidence, the best of them on the batch's own
train tasks.

The floor that every optimizer has to beat: sampling without investigation. What is chosen is chosen
on train tasks, so the gate's verdict on validation stays that of one candidate. A proposal that can
no longer become the best is not attempted further, which changes no choice (`python -m
tests.lab.evidence race`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import BadEdit, Scaffold
from recreate.api.types import Edit, Experience
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.reflect import MOST_CALLS, Reflect
from recreate.optimizers.search import Search


class BestOfNSettings(BaseModel, frozen=True, extra="forbid"):
    """n: proposals that the best is chosen from."""

    n: int = Field(default=4, ge=1, le=64)


class BestOfN:
    """The optimizer `best-of-n`; `[optimizer_settings]`: see BestOfNSettings."""

    Config = BestOfNSettings

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context
        self.settings: BestOfNSettings = context.settings or BestOfNSettings()

    @staticmethod
    def takes(settings: BestOfNSettings, batch: int) -> tuple[int, int]:
        return MOST_CALLS * settings.n, settings.n * batch

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """The edits of the proposal that gains most on the batch's train tasks; the first of
        equals."""
        search = Search(self.context, scaffold, experiences)
        best = None
        seen: set[str] = {scaffold.digest}
        for number in range(self.settings.n):
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
            made = search.measure(edits, beat=search.gain(best) if best else None)
            if made is None:
                break
            whole = len(search.parent.scores)
            on = f"{len(made.scores)} of {whole}" if len(made.scores) < whole else "the"
            self.context.note(
                f"proposal {number + 1} of {self.settings.n}: {made.mean:.3f} on {on} train"
                " tasks of the batch"
            )
            if best is None or search.gain(made) > search.gain(best):
                best = made
        return best.edits if best else []
