"""The optimizer `workbench`: sessions in a folder, each of which hands one candidate in.

scope `batch` has one session over the batch; `cause` first groups the attempts by what went wrong,
then has a session a cause, then one that merges; `attempt` has a session an attempt, then one that
merges (ReCreate, arXiv 2601.11100, section 3). Several sessions (`--study.sessions`) make several
candidates of the same batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import Fault
from recreate.api.types import Edit, Experience, Study, digest
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.draft import tell_edit
from recreate.plugins.workbench.causes import Cause, read_causes
from recreate.plugins.workbench.folder import name_attempts
from recreate.plugins.workbench.session import FolderWorker, run_loop, work


class Workbench:
    """Proposes what sessions in a folder hand in."""

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context

    @staticmethod
    def takes(settings: object, batch: int) -> tuple[int, int]:
        """Return how many calls and attempts a proposal takes at most, by default settings."""
        return 40, 2 * batch

    @property
    def worker(self) -> FolderWorker:
        """Who works in the folder."""
        return run_loop

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> list[Edit]:
        """Return the edits of the first candidate."""
        return next(iter(self.candidates(scaffold, experiences)), [])

    def candidates(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> list[list[Edit]]:
        """Return the candidates that sessions handed in; none where each found that nothing is to
        be changed. Raises Fault when every session was lost to one."""
        numbers = range(self.context.limits.sessions)
        with ThreadPoolExecutor(self.context.jobs, thread_name_prefix="session") as pool:
            made = list(pool.map(lambda n: self._session(scaffold, experiences, n), numbers))
        if all(study.ending == "fault" for study in made):
            raise Fault(
                f"no session could be held: {made[-1].why}",
                fix="mend that, then recreate resume RUN",
                code="outage",
            )
        different = {digest([e.model_dump() for e in s.edits]): [*s.edits] for s in made if s.edits}
        return list(different.values())

    def _session(self, scaffold: Scaffold, experiences: Sequence[Experience], number: int) -> Study:
        thread = f"session {number}"
        attempts = name_attempts(experiences)
        scope = self.context.limits.scope
        if scope == "batch" or len(attempts) == 1:
            return self._work(scaffold, attempts, thread)
        if scope == "attempt":
            parts = [(f"{thread} attempt {n}", {n: e}, "") for n, e in attempts.items()]
        else:
            triage = self._work(scaffold, attempts, f"{thread} triage", wanted="triage")
            causes = read_causes(triage.summary)
            if triage.ending != "finished" or not causes:
                return triage
            parts = [
                (f"{thread} cause {n}", _attempts_of(cause, attempts), cause.text)
                for n, cause in enumerate(causes, 1)
            ]

        def one(part: tuple[str, Mapping[str, Experience], str]) -> Study:
            name, own, cause = part
            return self._work(scaffold, own, name, cause=cause)

        with ThreadPoolExecutor(self.context.jobs, thread_name_prefix="study") as pool:
            made = list(pool.map(one, parts))
        with_edits = [study for study in made if study.edits]
        if len(with_edits) < 2 or "distilling" in self.context.without:
            return with_edits[0] if with_edits else made[-1]
        ideas = {f"ideas/{n:02d}.md": _tell_idea(s) for n, s in enumerate(with_edits, 1)}
        merged = self._work(scaffold, attempts, f"{thread} merge", wanted="merge", more=ideas)
        return merged if merged.edits else with_edits[0]

    def _work(
        self,
        scaffold: Scaffold,
        attempts: Mapping[str, Experience],
        thread: str,
        *,
        wanted: str = "change",
        cause: str = "",
        more: Mapping[str, str] | None = None,
    ) -> Study:
        first = next(iter(attempts.values()))
        blank = Study(
            id=self.context.thread(thread),
            kind="distil" if wanted == "merge" else "study",
            scaffold=scaffold.digest,
            experience=first.id if len(attempts) == 1 else "",
            task=first.task if len(attempts) == 1 else "",
        )
        return work(
            self.context,
            scaffold,
            attempts,
            blank,
            self.worker,
            more,
            wanted=wanted,
            cause=cause,
            model=first.trace.model or "a model that was not recorded",
            guidance="guidance" not in self.context.without,
        )


def _attempts_of(cause: Cause, attempts: Mapping[str, Experience]) -> dict[str, Experience]:
    """Return the attempts that a cause quotes; all where it quotes none."""
    own = {quote.attempt for quote in cause.quotes}
    return {n: e for n, e in attempts.items() if n in own} or dict(attempts)


def _tell_idea(study: Study) -> str:
    edits = "\n\n".join(map(tell_edit, study.edits))
    return f"{study.summary}\n\n# What it changed\n\n{edits}\n"
