"""`build`: attempt -> propose -> settle -> again, until the rounds or the budget are used.

    attempt   a train batch with the current agent; every attempt becomes an experience
    propose   the optimizer reads the batch and proposes edits           (none: next round)
    settle    apply -> check -> leak scan -> paired re-runs on validation -> judge -> keep or drop -> history

The graph is langgraph's, its state is small (digests and ids) and checkpointed in SQLite after every node; what
costs money is in the journal besides, so that a node which was killed half-way pays for nothing twice.
`build` never opens the test split.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from recreate import scaffold as scaffolds
from recreate.attempt import furnish, replay
from recreate.check import check
from recreate.errors import BadInput, Missing, OutOfBudget
from recreate.evidence import uncited
from recreate.gather import Score, gather, read_experience
from recreate.history import History
from recreate.judge import MIN_TASKS, judge, unjudged
from recreate.leak import leaks
from recreate.optimizers.create import create as write_seed
from recreate.optimizers.materials import Materials
from recreate.ports import Hit, Sandbox
from recreate.scaffold import BadEdit, Scaffold
from recreate.types import Call, Edit, Experience, Message, Reply, Revision, Task, Verdict, digest
from recreate.workshop import Workshop


class State(TypedDict, total=False):
    """What is checkpointed between nodes: ids only."""

    round: int
    scaffold: str
    experiences: list[str]
    edits: list[dict[str, Any]]


@dataclass(frozen=True)
class Built:
    """What a build ended with. status: done | budget."""

    status: str
    seed: Scaffold
    scaffold: Scaffold
    verdict: Verdict
    revisions: tuple[Revision, ...]


def choose_tasks(shop: Workshop) -> tuple[list[Task], list[Task]]:
    """(train, validation): the first N of each split in an order that the seed fixes.

    Raises BadInput when the domain has too few validation tasks for the gate to decide anything.
    """

    def pick(split: Any, most: int) -> list[Task]:
        tasks = list(shop.domain.tasks(split))
        random.Random(f"{shop.settings.seed}/{split}").shuffle(tasks)
        return tasks[:most]

    train, validation = pick("train", shop.settings.train), pick("validation", shop.settings.validation)
    if not train:
        raise BadInput(
            f"domain {shop.domain.name} has no train tasks",
            fix=f"recreate tasks list {shop.domain.name} shows what there is; recreate tasks make adds some",
            code="no-tasks",
        )
    if len(validation) < MIN_TASKS:
        raise BadInput(
            f"{len(validation)} validation tasks are too few: the gate decides from {MIN_TASKS} on",
            fix="raise --validation, or add tasks with recreate tasks make",
            code="too-few-tasks",
        )
    return train, validation


def build(shop: Workshop, seed: Scaffold) -> Built:
    """Improve `seed` on the workshop's domain. Resumes by itself when the run folder holds a part of the work.

    Raises what stops a run (OutOfBudget is not raised but is the status); everything paid for is on disk.
    """
    faults = check(seed, shop.rung)
    if faults:
        raise BadInput(
            f"{seed.name}/{faults[0].file}:{faults[0].line}: {faults[0].message}",
            fix="recreate scaffold check shows all faults of a scaffold",
            code="bad-scaffold",
        )
    return _Build(shop, seed).run()


def create(shop: Workshop, start: Scaffold) -> Scaffold:
    """A seed for the workshop's domain, written by the optimizer's model from `start` and two train tasks."""
    work = _Build(shop, start)
    tasks = work.train[:2]
    key = digest(["create", start.digest, [t.id for t in tasks]])
    materials = replace(work.materials(key, []), complain=lambda scaffold, edits: _unfit(scaffold, edits, tasks))
    domain = shop.domain
    description = str(getattr(domain, "description", "") or inspect.getdoc(type(domain)) or "")
    shop.say("note", {"text": "the optimizer writes a seed from the domain's description and two train tasks"})
    seed = write_seed(materials, start, description, tasks)
    work.history.commit(seed, start.digest, True, f"Create a seed for {domain.name} from {start.name}")
    return seed.model_copy(update={"name": f"created-{domain.name}"})


def _unfit(scaffold: Scaffold, edits: Sequence[Edit], tasks: Sequence[Task]) -> list[str]:
    """What is wrong with edits that come from no experience."""
    try:
        child = scaffolds.apply(scaffold, edits)
    except BadEdit as e:
        return [e.message]
    return [f"{f.file}:{f.line}: {f.message}" for f in check(child)] or leaks(edits, scaffold, tasks)


class _Build:
    def __init__(self, shop: Workshop, seed: Scaffold) -> None:
        self.shop = shop
        self.seed = seed
        self.history = History(shop.folder / "scaffold.git")
        if seed.digest not in {e.digest for e in self.history.log()}:
            self.history.commit(seed, None, True, f"Start from {seed.name}")
        self.train, self.validation = choose_tasks(shop)
        self.known = {seed.digest: seed}
        shop.memory.hold_out([t for s in ("validation", "test") for t in shop.domain.tasks(s)])
        self.revisions = [Revision.model_validate(r["revision"]) for r in shop.journal.records("revision")]

    def run(self) -> Built:
        import sqlite3

        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(State)
        graph.add_node("attempt", self.attempt)
        graph.add_node("propose", self.propose)
        graph.add_node("settle", self.settle)
        graph.add_edge(START, "attempt")
        graph.add_edge("attempt", "propose")
        graph.add_edge("propose", "settle")
        graph.add_conditional_edges("settle", self.again, {"attempt": "attempt", "end": END})
        connection = sqlite3.connect(self.shop.folder / "checkpoint.sqlite", check_same_thread=False)
        status = "done"
        try:
            compiled = graph.compile(checkpointer=SqliteSaver(connection))
            config: Any = {
                "configurable": {"thread_id": "build"},
                "recursion_limit": 10 + 4 * self.shop.settings.rounds,
            }
            earlier = compiled.get_state(config)
            start: Any = None if earlier.next else {"round": 0, "scaffold": self.seed.digest}
            self.shop.say("build", {"train": len(self.train), "validation": len(self.validation)})
            if self.shop.settings.rounds == 0:
                self.scores(self.seed)
            elif not (earlier.values and not earlier.next):
                try:
                    compiled.invoke(start, config)
                except OutOfBudget as e:
                    status = "budget"
                    self.shop.say("budget", {"text": e.message})
        finally:
            connection.close()
        best = self.best()
        return Built(
            status=status,
            seed=self.seed,
            scaffold=best,
            verdict=self.compare(self.seed, best),
            revisions=tuple(self.revisions),
        )

    # ------------------------------------------------------------------------------------------------ nodes

    def attempt(self, state: State) -> State:
        current = self.scaffold(state["scaffold"])
        self.scores(current)
        batch = self.batch(state["round"])
        self.shop.say("round", {"round": state["round"] + 1, "rounds": self.shop.settings.rounds})
        scores = gather(self.shop, current, batch, phase="train")
        return {"experiences": [s.attempt for s in scores if s.score is not None]}

    def propose(self, state: State) -> State:
        current = self.scaffold(state["scaffold"])
        experiences = [e for id in state["experiences"] if (e := self.experience(id)) is not None]
        key = digest(["proposal", current.digest, state["round"], state["experiences"], self.shop.settings.optimizer])
        known = next((r for r in self.shop.journal.records("proposal") if r["attempt"] == key), None)
        if known is not None:
            return {"edits": known["edits"]}
        self.shop.say(
            "propose", {"experiences": len(experiences), "failures": sum(not e.grade.passed for e in experiences)}
        )
        optimizer = self.shop.optimizer(self.materials(key, experiences))
        proposed = list(optimizer.propose(current, experiences))
        if strange := [type(e).__name__ for e in proposed if not isinstance(e, Edit)]:
            raise BadInput(
                f"the optimizer {self.shop.settings.optimizer} proposed a {strange[0]}, not an Edit",
                fix="docs/ports/optimizer.md has an example",
                code="misfit",
            )
        edits = [e.model_dump(mode="json") for e in proposed]
        self.shop.journal.add("proposal", attempt=key, round=state["round"], edits=edits)
        for thread in [key, *(digest([key, e.id]) for e in experiences), digest([key, "distil"])]:
            self.shop.journal.forget(thread)
        return {"edits": edits}

    def settle(self, state: State) -> State:
        current = self.scaffold(state["scaffold"])
        after: State = {"round": state["round"] + 1, "scaffold": current.digest}
        edits = [Edit.model_validate(e) for e in state["edits"]]
        experiences = {id: e for id in state["experiences"] if (e := self.experience(id)) is not None}
        child, made, faults = self.apply(current, edits, list(experiences.values()))
        if not made:
            reason = "; ".join(faults) or "the optimizer proposed no edit"
            self.shop.say("nothing", {"reason": reason})
            self.shop.journal.add("nothing", round=state["round"], reason=reason)
            return after
        tried = next((r for r in self.revisions if r.id == child.digest), None)
        if tried is not None:
            self.shop.say("nothing", {"reason": f"the same files were tried before (revision {tried.id})"})
            return after if not tried.kept else {**after, "scaffold": child.digest}
        self.known[child.digest] = child
        wrong = [f"{f.file}:{f.line}: {f.message}" for f in check(child, self.shop.rung)]
        if wrong:
            verdict = unjudged("not-better", "the check failed: " + "; ".join(wrong))
        else:
            self.afford(len(self.validation) * self.shop.settings.repeats)
            self.shop.say("candidate", {"edits": made})
            verdict = self.compare(current, child)
        revision = Revision(
            id=child.digest,
            parent=current.digest,
            round=state["round"],
            edits=tuple(made),
            verdict=verdict,
            kept=verdict.better,
            faults=tuple([*faults, *wrong]),
        )
        self.history.commit(child, current.digest, revision.kept, message(revision))
        self.shop.journal.add("revision", revision=revision.model_dump(mode="json"))
        self.revisions.append(revision)
        self.shop.say("revision", {"revision": revision})
        return {**after, "scaffold": child.digest} if revision.kept else after

    def again(self, state: State) -> str:
        return "attempt" if state["round"] < self.shop.settings.rounds else "end"

    # ---------------------------------------------------------------------------------------------- their parts

    def apply(
        self, current: Scaffold, edits: Sequence[Edit], experiences: Sequence[Experience]
    ) -> tuple[Scaffold, list[Edit], list[str]]:
        """(the child, the edits it is made of, what was wrong with the others)."""
        child, made, faults = current, [], []
        for edit in edits:
            complaints = self.complain(child, [edit], experiences)
            if complaints:
                faults += complaints
                continue
            child = scaffolds.apply(child, [edit])
            made.append(edit)
        return (child, made, faults) if child.digest != current.digest else (current, [], faults)

    def complain(self, scaffold: Scaffold, edits: Sequence[Edit], batch: Sequence[Experience]) -> list[str]:
        """Why edits cannot be used: they cite what is not there, do not apply, break the agent, or leak a task."""
        experiences = {e.id: e for e in batch}
        for id in {c.experience for edit in edits for c in edit.evidence} - experiences.keys():
            if (earlier := self.shop.memory.get(id, "optimizer")) is not None:
                experiences[id] = earlier
        faults = uncited(edits, experiences)
        if faults:
            return faults
        try:
            child = scaffolds.apply(scaffold, edits)
        except BadEdit as e:
            return [e.message]
        broken = [f"{f.file}:{f.line}: {f.message}" for f in check(child)]
        for edit in edits:
            if any(_same(edit, r.edits) for r in self.revisions if not r.kept and r.verdict.tasks):
                return [f"{edit.path}: exactly this was tried before and did not help; propose something else"]
        seen = {e.task for e in experiences.values()}
        tasks = [t for t in self.shop.domain.tasks("train") if t.id in seen]
        # what was handed in names the places of one task; whole traces are left out, since what the environment says
        # (a command, a format) is just what there is to learn
        return broken or leaks(edits, scaffold, tasks, [e.trace.answer for e in experiences.values()])

    def materials(self, key: str, experiences: Sequence[Experience]) -> Materials:
        settings = self.shop.settings
        by_id = {e.id: e for e in experiences}

        def known(id: str) -> Experience | None:
            return by_id.get(id) or self.shop.memory.get(id, "optimizer")

        def ask(messages: Sequence[Message], *, step: int, thread: str = "", **params: Any) -> Reply:
            attempt = thread or key
            call = Call(run=self.shop.run, attempt=attempt, step=step, role="optimizer", phase="propose")
            return self.shop.ask_optimizer(list(messages), call, seed=int(digest([attempt, step], 7), 16), **params)

        def start(child: Scaffold) -> list[str]:
            return [f"{f.file}:{f.line}: {f.message}" for f in check(child, self.shop.rung)]

        return Materials(
            ask=ask,
            recall=self.recall,
            search=lambda words, k, filters: self.shop.memory.search(words, filters, "optimizer", k),
            find=known,
            complain=lambda scaffold, edits: self.complain(scaffold, edits, experiences),
            start=start,
            open=self.reopen,
            empty=lambda: self.shop.rung.open(),
            measure=lambda child: self.measure(child, experiences),
            rejected=[r for r in self.revisions if not r.kept],
            without=settings.without,
            limits=settings.study,
            best_of=settings.best_of,
            jobs=settings.jobs,
            native=settings.study.tools == "native"
            or (settings.study.tools == "auto" and bool(getattr(self.shop.optimizer_model, "native_tools", False))),
            key=key,
            folder=self.shop.folder / "studies",
            domain=self.shop.domain.name,
            note=lambda text: self.shop.say("note", {"text": text}),
            studied=lambda study: self.shop.say("study", {"study": study}),
        )

    def reopen(self, experience: Experience, done: bool) -> tuple[Sandbox, str]:
        """The box of an experience: as it was given, or with the agent's actions done again."""
        task = next((t for t in self.shop.domain.tasks() if t.id == experience.task), None)
        if task is None or task.split != "train":
            raise BadInput(f"the task of {experience.id} is not here any more", fix="read its steps instead")
        try:
            scaffold, other = self.scaffold(experience.digest), ""
        except BadInput:
            scaffold, other = self.seed, "; its agent's files are not in this run, so the seed's tools were used"
        if not done:
            box = self.shop.domain.prepare(task, self.shop.rung)
            furnish(box, scaffold)
            return box, "as the agent found it" + other
        box, told = replay(scaffold, task, experience.trace, self.shop.domain, self.shop.rung)
        return box, told + other

    def measure(self, child: Scaffold, experiences: Sequence[Experience]) -> float:
        """The mean score of a candidate on the train tasks of a batch."""
        tasks = {t.id: t for t in self.train}
        chosen = [tasks[id] for id in dict.fromkeys(e.task for e in experiences) if id in tasks]
        self.afford(len(chosen))
        held = [s.score for s in gather(self.shop, child, chosen, phase="select") if s.score is not None]
        return sum(held) / len(held) if held else 0.0

    def recall(self, query: str, k: int, filters: Mapping[str, Any]) -> Sequence[Hit]:
        """Search memory as the optimizer may. Without the `memory` extra there is nothing to search, and it says so."""
        try:
            return self.shop.recall(query, k, filters)
        except Missing as e:
            self.shop.say("note", {"text": f"the optimizer cannot search memory: {e.message} ({e.fix})"})
            return []

    def scores(self, scaffold: Scaffold) -> list[Score]:
        """Validation scores: run once, read back ever after."""
        return gather(self.shop, scaffold, self.validation, repeats=self.shop.settings.repeats, phase="validation")

    def compare(self, before: Scaffold, after: Scaffold) -> Verdict:
        """The gate. With less than the gate needs on disk (the budget ended first): undecided."""
        try:
            a, b = self.scores(before), self.scores(after)
        except OutOfBudget:
            if before.digest != after.digest:
                raise
            return unjudged("undecided", "the budget ended before validation did")
        if before.digest == after.digest:
            held = [s.score for s in a if s.score is not None]
            mean = sum(held) / len(held) if held else None
            verdict = unjudged("undecided", "nothing was kept: before and after are the same agent")
            return verdict.model_copy(
                update={
                    "before": mean,
                    "after": mean,
                    "diff": 0.0 if held else None,
                    "lo": 0.0 if held else None,
                    "hi": 0.0 if held else None,
                    "tasks": len(self.validation),
                    "repeats": self.shop.settings.repeats,
                }
            )
        return judge(_by_task(a), _by_task(b), alpha=self.shop.settings.gate.alpha, seed=self.shop.settings.seed)

    def afford(self, attempts: int) -> None:
        """Do not start to judge what cannot be judged to the end within the cap on attempts."""
        cap = self.shop.ledger.budget.attempts
        if cap is not None and self.shop.ledger.attempts + attempts > cap:
            raise OutOfBudget(
                f"{cap - self.shop.ledger.attempts} attempts are left; judging this candidate takes {attempts}",
                fix="recreate resume RUN --budget with a larger cap goes on where this stopped",
            )

    def batch(self, round: int) -> list[Task]:
        size = min(self.shop.settings.batch_size, len(self.train))
        return [self.train[(round * size + i) % len(self.train)] for i in range(size)]

    def scaffold(self, digest: str) -> Scaffold:
        if digest not in self.known:
            self.known[digest] = self.history.read(digest)
        return self.known[digest]

    def best(self) -> Scaffold:
        """The last kept version."""
        kept = [r.id for r in self.revisions if r.kept]
        return self.scaffold(kept[-1]) if kept else self.seed

    def experience(self, id: str) -> Experience | None:
        return read_experience(self.shop.folder / "attempts" / id)


def message(revision: Revision) -> str:
    """The commit message of a revision: outcome, reasons, evidence, score."""
    verdict = revision.verdict
    files = ", ".join(dict.fromkeys(e.path for e in revision.edits))
    lines = [f"{'Keep' if revision.kept else 'Drop'} {files}: {verdict.verdict}", ""]
    if verdict.diff is not None:
        lines.append(
            f"validation {verdict.before:.3f} -> {verdict.after:.3f}, difference {verdict.diff:+.3f} "
            f"[{verdict.lo:+.3f}, {verdict.hi:+.3f}] over {verdict.tasks} tasks x {verdict.repeats}"
        )
    if verdict.reason:
        lines.append(verdict.reason)
    for edit in revision.edits:
        cited = ", ".join(f"{e.experience} step {e.step}" for e in edit.evidence)
        lines += ["", f"{edit.path}: {edit.reason}", f"  evidence: {cited}"]
    return "\n".join(lines)


def _same(edit: Edit, tried: Sequence[Edit]) -> bool:
    """Whether a dropped revision was this one edit. What a lesson was born of makes it no other lesson."""

    def said(e: Edit) -> tuple[str, str, str]:
        return e.path, e.old, "\n".join(line for line in e.new.splitlines() if not line.startswith("born_of:"))

    return len(tried) == 1 and said(edit) == said(tried[0])


def _by_task(scores: Sequence[Score]) -> dict[tuple[str, int], float | None]:
    return {(s.task, s.repeat): s.score for s in scores}
