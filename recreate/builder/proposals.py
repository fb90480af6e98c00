"""A batch of experiences under study: what the optimizer is handed, and what is accepted of its edits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.attempt import furnish, replay
from recreate.agents.evidence import uncited
from recreate.agents.leakage import leaks
from recreate.agents.lint import check
from recreate.agents.retrieval import LessonRetrieval
from recreate.agents.scaffold import BadEdit, Scaffold
from recreate.api.errors import BadInput, Missing, OutOfBudget
from recreate.api.ports import Hit, Sandbox, ToolCalling
from recreate.api.types import Call, Edit, Experience, Message, Reply, Revision, Task, digest
from recreate.optimizers.context import OptimizerContext
from recreate.runs.attempts import attempt_task, read_experience, run_attempts
from recreate.runs.session import Session


class Proposals:
    """`key` is the proposal's address among the run's calls.

    start        the agent that lived through it
    tried        the run's revisions so far
    judging      how many attempts it takes to judge a candidate: trying one out must leave them over
    scaffold_of  an agent of this run by digest; raises BadInput for one that is not
    offers       what its agents are offered of memory
    """

    def __init__(
        self,
        session: Session,
        key: str,
        start: Scaffold,
        experiences: Sequence[Experience],
        tried: Sequence[Revision],
        judging: int,
        scaffold_of: Callable[[str], Scaffold],
        offers: LessonRetrieval | None = None,
    ) -> None:
        self.session = session
        self.key = key
        self.start = start
        self.lived = {e.id: e for e in experiences}
        self.tried = tried
        self.judging = judging
        self.scaffold_of = scaffold_of
        self.offers = offers
        self.rehearsed: dict[str, Experience] = {}

    def materials(self) -> OptimizerContext:
        """What the optimizer works with."""
        key, settings = self.key, self.session.settings

        def ask(messages: Sequence[Message], *, step: int, thread: str = "", **params: Any) -> Reply:
            attempt = thread or key
            call = Call(run=self.session.run, attempt=attempt, step=step, role="optimizer", phase="propose")
            return self.session.ask_optimizer(list(messages), call, seed=int(digest([attempt, step], 7), 16), **params)

        def start(child: Scaffold) -> list[str]:
            return [f"{f.file}:{f.line}: {f.message}" for f in check(child, self.session.backend)]

        return OptimizerContext(
            ask=ask,
            recall=self.recall,
            search=lambda words, k, filters: self.session.memory.search(words, filters, "optimizer", k),
            find=self.find,
            complain=self.complain,
            start=start,
            open=self.reopen,
            empty=lambda: self.session.backend.open(),
            rehearse=self.rehearse if settings.study.rehearsals else None,
            measure=self.measure,
            rejected=[r for r in self.tried if not r.kept],
            without=settings.without,
            limits=settings.study,
            best_of=settings.best_of,
            jobs=settings.jobs,
            native=self.native,
            key=key,
            folder=self.session.folder / "studies",
            domain=self.session.domain.name,
            note=lambda text: self.session.say("note", {"text": text}),
            studied=lambda study: self.session.say("study", {"study": study}),
        )

    def native(self) -> bool:
        """Whether tools are called in the endpoint's own way: as `study.tools` says, else what the model can."""
        asked = self.session.settings.study.tools
        model = self.session.optimizer_model
        return asked == "native" or (asked == "auto" and isinstance(model, ToolCalling) and model.native_tools)

    @cached_property
    def train(self) -> dict[str, Task]:
        """The domain's train tasks by id; asked for once, since every edit is checked against them."""
        return {task.id: task for task in self.session.domain.tasks("train")}

    def find(self, id: str) -> Experience | None:
        """A train experience: of the batch, rehearsed in this proposal, or of memory."""
        found: Experience | None = (
            self.lived.get(id) or self.rehearsed.get(id) or self.session.memory.get(id, "optimizer")
        )
        return found

    def complain(self, scaffold: Scaffold, edits: Sequence[Edit]) -> list[str]:
        """Why edits cannot be used: they cite what is not there, do not apply, break the agent, or leak a task."""
        experiences = dict(self.lived)
        for id in {c.experience for edit in edits for c in edit.evidence} - experiences.keys():
            if (other := self.find(id)) is not None:
                experiences[id] = other
        faults = uncited(edits, experiences)
        if faults:
            return faults
        try:
            child = scaffolds.apply(scaffold, edits)
        except BadEdit as e:
            return [e.message]
        broken = [f"{f.file}:{f.line}: {f.message}" for f in check(child)]
        for edit in edits:
            tried = next(
                (r for r in self.tried if not r.kept and r.verdict.tasks and _same(edit, r.edits)),
                None,
            )
            if tried is not None:
                why = f"a person {tried.review}" if tried.review else "did not help"
                return [f"{edit.path}: exactly this was tried before and {why}; propose something else"]
        seen = {e.task for e in experiences.values()}
        tasks = [self.train[id] for id in sorted(seen & self.train.keys())]
        tasks += [_as_task(e) for e in experiences.values() if e.task not in self.train]
        # what was handed in names the places of one task; whole traces are left out, since what the environment says
        # (a command, a format) is just what there is to learn
        return broken or leaks(edits, scaffold, tasks, [e.trace.answer for e in experiences.values()])

    def apply(self, current: Scaffold, edits: Sequence[Edit]) -> tuple[Scaffold, list[Edit], list[str]]:
        """(the child, the edits it is made of, what was wrong with the others)."""
        child, made, faults = current, [], []
        for edit in edits:
            complaints = self.complain(child, [edit])
            if complaints:
                faults += complaints
                continue
            child = scaffolds.apply(child, [edit])
            made.append(edit)
        return (child, made, faults) if child.digest != current.digest else (current, [], faults)

    def reopen(self, experience: Experience, done: bool) -> tuple[Sandbox, str]:
        """The box of an experience: as it was given, or with the agent's actions done again."""
        task = self.train.get(experience.task)
        if task is None:
            raise BadInput(f"the task of {experience.id} is not here any more", fix="read its steps instead")
        try:
            scaffold, other = self.scaffold_of(experience.digest), ""
        except BadInput:
            scaffold, other = (
                self.start,
                "; its agent's files are not in this run, so those of the present one were used",
            )
        if not done:
            sandbox = self.session.domain.prepare(task, self.session.backend)
            furnish(sandbox, scaffold)
            return sandbox, "as the agent found it" + other
        sandbox, told = replay(scaffold, task, experience.trace, self.session.domain, self.session.backend)
        return sandbox, told + other

    def rehearse(self, child: Scaffold, experience: Experience) -> Experience | None:
        """An attempt of `child` at the task of a train experience; None when judging it could then not be paid.
        Raises BadInput when the domain has no such task: it was imported, or is gone.

        It comes into memory when the proposal is made: until then a search must find what it found before.
        """
        task = self.train.get(experience.task)
        if task is None:
            raise BadInput(f"the task of {experience.id} is not here any more", fix="read its steps instead")
        try:
            self.session.ledger.afford(1 + self.judging)
        except OutOfBudget:
            return None
        score = attempt_task(self.session, child, task, 0, "rehearse", in_memory=False, offers=self.offers)
        made = read_experience(self.session.folder / "attempts" / score.attempt)
        if made is not None:
            self.rehearsed[made.id] = made
        return made

    def measure(self, child: Scaffold) -> float:
        """The mean score of a candidate on the train tasks of a batch."""
        chosen = [self.train[id] for id in dict.fromkeys(e.task for e in self.lived.values()) if id in self.train]
        self.session.ledger.afford(len(chosen) + self.judging)
        held = [
            s.score
            for s in run_attempts(self.session, child, chosen, phase="select", offers=self.offers)
            if s.score is not None
        ]
        return sum(held) / len(held) if held else 0.0

    def recall(self, query: str, k: int, filters: Mapping[str, Any]) -> Sequence[Hit]:
        """Search memory as the optimizer may. Without the `memory` extra there is nothing to search, and it says so."""
        try:
            return self.session.recall(query, k, filters)
        except Missing as e:
            self.session.say("note", {"text": f"the optimizer cannot search memory: {e.message} ({e.fix})"})
            return []


def _as_task(e: Experience) -> Task:
    """What is known of a task that the domain does not have: that an edit must not name it either."""
    return Task(id=e.task, domain=e.domain, prompt=e.prompt, split=e.split, group=e.group)


def _same(edit: Edit, tried: Sequence[Edit]) -> bool:
    """Whether a dropped revision was this one edit. What a lesson was born of makes it no other lesson."""

    def said(e: Edit) -> tuple[str, str, str]:
        return e.path, e.old, "\n".join(line for line in e.new.splitlines() if not line.startswith("born_of:"))

    return len(tried) == 1 and said(edit) == said(tried[0])
