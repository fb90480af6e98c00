"""`recreate`: an agent that investigates before it edits, for strong models.

For every experience of a batch, success and failure alike, one study; then one distilling of what
they propose. Studies see nothing of each other and run side by side. After ReCreate (arXiv
2601.11100, section 3); ours are the evidence that is checked to have been read, the choice to
change nothing, and a merge that loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import Fault
from recreate.api.types import Edit, Experience, Study
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.distill import distil, merged
from recreate.optimizers.investigator.study import read_study, study


class Investigator:
    """The optimizer `recreate`."""

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> Sequence[Edit]:
        """Edits that the batch supports; [] when every study found that none is needed.

        Raises Fault when every study was lost to one: then nothing was learnt, and a resumed build
        tries again.
        """
        studies = self.studies(scaffold, experiences)
        if studies and all(s.ending == "fault" for s in studies):
            raise Fault(
                f"no study could be made: {studies[-1].why}",
                fix="mend that, then recreate resume RUN",
                code="outage",
            )
        with_edits = [s for s in studies if s.edits]
        if not with_edits:
            return []
        if len(with_edits) == 1 or "distilling" in self.context.without:
            return merged(self.context, scaffold, with_edits)
        return distil(
            self.context, scaffold, [s for s in studies if s.ending == "finished"], experiences
        )

    def studies(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> list[Study]:
        """Return one study an experience, in their order; those of an earlier session are read
        back."""

        def one(experience: Experience) -> Study:
            known = read_study(self.context, self.context.thread(experience.id))
            return known or study(self.context, scaffold, experience, experiences)

        with ThreadPoolExecutor(self.context.jobs, thread_name_prefix="study") as pool:
            return list(pool.map(one, experiences))
