"""`build`: attempt -> propose -> settle -> again, until the rounds or the budget are used.

    attempt   validation of the current agent (where no outcome could be kept in place of the seed,
              the build ends here, status `ceiling`), then a train batch with it; every attempt
              becomes an experience (with --from-experience the first batch is what memory holds
              already)
    propose   the optimizer reads the batch and proposes edits           (none: next round)
    settle    apply -> check -> leak scan -> paired re-runs on validation -> judge -> keep or drop
              -> history (again for the next candidate of the round, when it proposed several and
              none was kept yet)
    review    with --review: what would be kept waits for a person             (langgraph's
              interrupt)
    decide    keep it, drop it, or judge what the person made of it and offer that -> review

The graph is langgraph's, its state is small (digests and ids) and checkpointed in SQLite before the
next node begins; what costs money is in the journal besides, so that a node which was killed
half-way pays for nothing twice, and a checkpoint that is lost or does not agree with the journal is
made again from it. `build` never opens the test split.
"""

from __future__ import annotations

import inspect
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from recreate.agents import scaffold as scaffolds
from recreate.agents.history import History, describe
from recreate.agents.lint import problems, refuse
from recreate.agents.retrieval import LessonRetrieval
from recreate.agents.scaffold import BadEdit, Scaffold
from recreate.agents.workplace import try_servers
from recreate.api.errors import BadInput, Fault, OutOfBudget
from recreate.api.paths import short
from recreate.api.ports import Population, Price, extras
from recreate.api.registry import find
from recreate.api.theirs import all_are, expect
from recreate.api.types import Edit, Experience, Record, Revision, Split, Task, Verdict, digest
from recreate.builder import proposals
from recreate.builder.batches import draw_batch, recall_batch
from recreate.builder.estimate import course
from recreate.builder.learning import Learning
from recreate.builder.past import read_spread
from recreate.builder.proposals import Proposals
from recreate.builder.review import ReviewDesk, Reviewer, human_edits
from recreate.builder.selection import cannot_decide, strata, tasks_of, too_few
from recreate.lessons.context import offered
from recreate.optimizers.investigator.create import create as write_seed
from recreate.runs.attempts import Score, ended, fresh, run_attempts, stretch_of
from recreate.runs.gate import (
    MIN_TASKS,
    Scores,
    alone,
    interval,
    judge,
    not_worse,
    saved,
    saving,
    unjudged,
)
from recreate.runs.reader import BuildResult, Run
from recreate.runs.session import Session
from recreate.runs.settings import MOST
from recreate.runs.trial import SPREAD, Terms, decidable, detectable, handed_on, room, share, tried
from recreate.storage import files


class BuildState(TypedDict, total=False):
    """What is checkpointed between nodes: ids and edits.

    edits      of the candidate to be judged; others: those of the round's further candidates
    more       the round goes on with `edits` unless a person accepts what was offered
    candidate  what a person is asked about, '' for nothing
    offer      how often a person was asked, which is the number of the offer; answer: what was said
               of it
    """

    round: int
    scaffold: str
    experiences: list[str]
    edits: list[dict[str, Any]]
    others: list[list[dict[str, Any]]]
    more: bool
    candidate: str
    offer: int
    answer: dict[str, Any]


def choose_tasks(session: Session) -> tuple[list[Task], list[Task]]:
    """(train, validation): the first N of each split in an order that the seed fixes; with a
    curriculum all of train, of which each round takes its own.

    What the workspace holds out as another split is left out first, and said, then what is not
    selected. Raises BadInput when there are too few validation tasks for the gate to decide
    anything, or no train tasks to learn from; with `from_experience` none are needed.
    """

    def pick(split: Split, most: int, *, needed: bool) -> list[Task]:
        tasks = tasks_of(session, split, needed=needed)
        random.Random(f"{session.settings.seed}/{split}").shuffle(tasks)
        return tasks[:most]

    uniform = session.settings.choose == "uniform"
    if not uniform:
        find("curriculum", session.settings.choose)
    train = pick(
        "train",
        session.settings.train if uniform else MOST,
        needed=not session.settings.from_experience,
    )
    validation = pick("validation", session.settings.validation, needed=False)
    if len(validation) < MIN_TASKS:
        raise too_few(len(validation), session)
    count = session.settings.model_copy(update={"validation": len(validation)})
    # perhaps when a build that learns lessons was not refused
    begun = any(session.journal.records("proposal"))
    if not begun and (wrong := cannot_decide(count)):
        raise wrong
    return train, validation


def build(session: Session, seed: Scaffold, review: Reviewer | None = None) -> BuildResult:
    """Improve `seed` on the session's domain. Resumes by itself when the run folder holds a part of
    the work.

    review: asked before a revision is kept when `settings.review`; without one the build stops
    there, status `review`. Raises what stops a run (OutOfBudget is not raised but is the status);
    everything paid for is on disk.
    """
    refuse(seed, session.backend)
    if seed.agent.action == "tools" or extras(session.domain).tools_only:
        for task in session.tasks("validation", needed=False)[:1]:
            try_servers(seed, task, session.domain, session.backend)
    return _Build(session, seed, review).run()


def create(session: Session, start: Scaffold) -> Scaffold:
    """A seed for the session's domain, written by the optimizer's model from `start` and two train
    tasks.

    Raises BadInput, before anything is asked, where nothing could be kept in place of a seed that
    solves a task.
    """
    work = _Build(session, start, None)
    work.worth_writing()
    session.start()
    tasks = work.train[:2]
    key = digest(["create", start.digest, [t.id for t in tasks]])
    context = replace(
        work.proposals(key, start, []).context(),
        validate=lambda scaffold, edits: _unfit(session, scaffold, edits),
    )
    domain = session.domain
    description = extras(domain).description or inspect.getdoc(type(domain)) or ""
    text = (
        "the optimizer writes a seed from the domain's description and two train tasks; run folder "
    )
    session.say("note", {"text": text + short(session.folder)})
    seed = write_seed(context, start, description, tasks, session.model_name)
    work.history.commit(
        seed, start.digest, True, f"Create a seed for {domain.name} from {start.name}"
    )
    return seed.model_copy(update={"name": f"created-{domain.name}"})


def judge_candidate(
    session: Session, agent: Scaffold, edits: Sequence[Edit], seen: Sequence[str] = ()
) -> BuildResult:
    """A candidate that somebody has made already, through the gate of a build: kept or dropped, in
    the history and the journal. Doing it again changes nothing. seen: validation tasks whose scores
    it was made from; it is judged on others, where there are enough. Raises BadEdit, BadInput for
    one that the check refuses, OutOfBudget.
    """
    if not (session.folder / "seed").is_dir():
        session.journal.add("seed", name=agent.name, scaffold=agent.digest)
        scaffolds.save(agent, session.folder / "seed")
    work = _Build(session, agent, None)
    others, gate = [task for task in work.validation if task.id not in seen], session.settings.gate
    if decidable(gate, len(others), 1) if gate.false_keep else len(others) >= MIN_TASKS:
        work.validation = others
    elif seen:
        work.validation = [task for task in work.validation if task.id in seen]
        text = (
            "there are too few other validation tasks: the candidate is judged on those that it was"
            " made from, which "
        )
        session.say("note", {"text": text + "flatters it"})
    child = scaffolds.apply(agent, edits)
    refuse(child, session.backend)
    work.known[child.digest] = child
    if not work.revisions:
        work.afford(child)
        session.say("candidate", {"edits": edits})
        verdict = work.judged(agent, child, 0, 1)
        made = Revision(
            id=child.digest,
            parent=agent.digest,
            round=0,
            edits=tuple(edits),
            verdict=verdict,
            kept=work.wins(verdict),
        )
        work.record(made)
    best = work.best()
    session.journal.add("end", status="done", scaffold=best.digest)
    return BuildResult("done", agent, best, work.compare(agent, best), tuple(work.revisions))


def _unfit(session: Session, scaffold: Scaffold, edits: Sequence[Edit]) -> list[str]:
    """What is wrong with edits that come from no experience."""
    try:
        child = scaffolds.apply(scaffold, edits)
    except BadEdit as e:
        return [e.message]
    return (
        proposals.closed(scaffold, child)
        or problems(child)
        or session.scanner.leaks(edits, scaffold)
    )


def _are_several(made: Any) -> bool:
    """Whether what a stranger returned is a list of its kind: a record and a text can be iterated
    over too."""
    return isinstance(made, Iterable) and not isinstance(made, Record | str | Mapping)


class _NoRoom(Exception):
    """No candidate could be kept in place of the seed: why."""


class _Build:
    def __init__(self, session: Session, seed: Scaffold, reviewer: Reviewer | None) -> None:
        self.session = session
        self.seed = seed
        self.reviewer = reviewer
        self.history = History(session.folder / "scaffold.git")
        self.desk = ReviewDesk(session, self.history)
        # first: what is refused there leaves nothing
        self.train, self.validation = choose_tasks(session)
        if seed.digest not in {e.digest for e in self.history.log()}:
            self.history.commit(seed, None, True, f"Start from {seed.name}")
        session.memory.hold_out(
            [t for s in ("validation", "test") for t in session.domain.tasks(s)]
        )
        measured = read_spread(
            session.workspace, session.domain.name, seed.digest, session.model_name
        )
        self.spread = SPREAD if measured is None else measured
        self.learning = Learning(session, self.judging, seed)
        self.known = {seed.digest: seed}
        self.revisions = [
            Revision.model_validate(r["revision"]) for r in session.journal.records("revision")
        ]
        self.learning.announce(seed)
        self.learning.offers()  # before anybody learns: what validation is offered

    def run(self) -> BuildResult:
        from langgraph.graph import END, START, StateGraph
        from langgraph.types import Command

        self.session.start()
        graph = StateGraph(BuildState)
        for node in (self.attempt, self.propose, self.settle, self.review, self.decide):
            graph.add_node(node.__name__, node)
        graph.add_edge(START, "attempt")
        graph.add_edge("attempt", "propose")
        graph.add_edge("propose", "settle")
        graph.add_edge("review", "decide")
        for node in (self.settle, self.decide):
            graph.add_conditional_edges(
                node.__name__,
                self.again,
                {"review": "review", "settle": "settle", "attempt": "attempt", "end": END},
            )
        config: Any = {
            "configurable": {"thread_id": "build"},
            "recursion_limit": 1000 * (1 + self.session.settings.rounds),
        }
        status, waiting, top = "done", None, ""
        with checkpoints(
            self.session.folder / "checkpoint.sqlite", graph, config, self.agrees, self.note
        ) as compiled:
            earlier: BuildState = compiled.get_state(config).values
            start: Any = None if earlier else {"round": 0, "scaffold": self.seed.digest}
            there = {
                "train": min(self.session.settings.train, len(self.train)),
                "validation": len(self.validation),
            }
            ahead = course(
                self.session.settings.model_copy(update=there), self.session.optimizer_price
            )
            settings = self.session.settings
            over = (
                decidable(settings.gate, len(self.validation), settings.rounds)
                if settings.gate.false_keep
                else 0
            )
            if 0 < over < settings.rounds and not earlier:
                first = f"the first {over}" if over > 1 else "the first one"
                text = (
                    f"{len(self.validation)} validation tasks decide {first} of {settings.rounds}"
                    " rounds' candidates"
                )
                self.session.say(
                    "note", {"text": f"{text}: more with --validation, or --gate.false_keep"}
                )
            facts = {"pool": len(self.train), "course": ahead, "over": earlier.get("round", 0)}
            self.session.say("build", {**there, **facts})
            if self.session.settings.rounds == 0:
                self.scores(self.seed)
            elif not earlier or self.again(earlier) != "end":
                try:
                    state = compiled.invoke(start, config, durability="sync")
                    while asked := state.get("__interrupt__"):
                        answer = self.desk.answer(asked[0].value["offer"], self.reviewer)
                        if answer is None:
                            status, waiting = "review", self.desk.offered(asked[0].value["offer"])
                            break
                        state = compiled.invoke(Command(resume=answer), config, durability="sync")
                except OutOfBudget as e:
                    status = "budget"
                    self.session.say("budget", {"text": e.message})
                except _NoRoom as e:
                    status, top = "ceiling", str(e)
                    self.session.say("ceiling", {"text": top})
        best = self.best()
        verdict = self.compare(self.seed, best)
        return BuildResult(
            status=status,
            seed=self.seed,
            scaffold=best,
            verdict=verdict.model_copy(update={"reason": top}) if top else verdict,
            revisions=tuple(self.revisions),
            waiting=waiting,
        )

    # --------------------------------------------------------------------------------------------
    # nodes

    def attempt(self, state: BuildState) -> BuildState:
        current = self.scaffold(state["scaffold"])
        if state["round"] == 0 and (top := self.top(current)):
            raise _NoRoom(top)
        self.session.say(
            "round", {"round": state["round"] + 1, "rounds": self.session.settings.rounds}
        )
        if self.session.settings.from_experience and (state["round"] == 0 or not self.train):
            return {"experiences": recall_batch(self.session, state["round"])}
        kept = [r.id for r in self.revisions if r.kept]
        batch = draw_batch(self.session, self.train, self.seed, kept, state["round"])
        tasks, first = [task for task, _ in batch], {task.id: repeat for task, repeat in batch}
        offers = self.learning.offers(state["round"], drawn=True)
        scores = run_attempts(
            self.session, current, tasks, phase="train", offers=offers, first=first
        )
        ids = [s.attempt for s in scores if s.score is not None]
        self.say_offered(ids, offers)
        return {"experiences": ids}

    def say_offered(self, ids: Sequence[str], offers: LessonRetrieval | None) -> None:
        """Say which lessons the attempts of a round were offered, and from how many each was held
        back, by lot."""
        if offers is None or not offers.lessons:
            return
        shown, held = Counter[str](), Counter[str]()
        for e in filter(None, map(self.experience, ids)):
            got = offered(e)
            shown.update(got)
            held.update({id for step in e.trace.steps for id in step.propensities} - got)
        if shown or held:
            counts = {
                id: (shown[id], held[id])
                for id in sorted({*shown, *held}, key=lambda id: (-shown[id], id))
            }
            facts = {
                "lessons": counts,
                "attempts": len(ids),
                "unproven": sorted(counts.keys() & {*offers.unproven}),
            }
            self.session.say("offered", facts)

    def propose(self, state: BuildState) -> BuildState:
        current = self.scaffold(state["scaffold"])
        experiences = [e for id in state["experiences"] if (e := self.experience(id)) is not None]
        key = digest(
            [
                "proposal",
                current.digest,
                state["round"],
                state["experiences"],
                self.session.settings.optimizer,
            ]
        )
        known = next(
            (r for r in self.session.journal.records("proposal") if r["attempt"] == key), None
        )
        if known is not None:
            self.proposed(known, current, self.proposals("", current, experiences))
            return {"edits": known["edits"], "others": known.get("others", [])}
        self.learning.observe(state["round"], current, experiences)
        if self.top(current):  # of a build that was begun when one that learns lessons went on
            self.session.journal.add("proposal", attempt=key, round=state["round"], edits=[])
            return {"edits": [], "others": []}
        self.session.say(
            "propose",
            {
                "experiences": len(experiences),
                "failures": sum(not e.grade.passed for e in experiences),
            },
        )
        batch = self.proposals(key, current, experiences, self.learning.offers(state["round"]))
        optimizer = self.session.optimizer(batch.context())
        shown = current.model_copy(), [*experiences]  # a stranger may change them
        if isinstance(optimizer, Population):
            made = optimizer.candidates(*shown)
            expect(_are_several(made), optimizer, "candidates", made)
            made = list(made)
            expect(all(map(_are_several, made)), optimizer, "candidates", made)
            proposed = [list(edits) for edits in made] or [[]]
        else:
            found = optimizer.propose(*shown)
            expect(_are_several(found), optimizer, "propose", found)
            proposed = [list(found)]
        method = "candidates" if isinstance(optimizer, Population) else "propose"
        for edits in proposed:
            expect(all_are(edits, Edit), optimizer, method, edits)
        proposed = [[proposals.proposed(e) for e in edits] for edits in proposed]
        promoted = self.learning.promotions(current, self.revisions)
        candidates = [[*edits, *promoted] for edits in proposed] + [
            self.learning.removals(current, self.revisions)
        ]
        first, *others = [
            [e.model_dump(mode="json") for e in edits] for edits in candidates if edits
        ] or [[]]
        record: dict[str, Any] = {
            "attempt": key,
            "round": state["round"],
            "edits": first,
            "made": list(batch.attempted),
        }
        record |= {"others": others} if others else {}
        self.session.journal.add("proposal", **record)
        self.proposed(record, current, batch)
        for thread in [key, *(digest([key, e.id]) for e in experiences), digest([key, "distil"])]:
            self.session.journal.forget(thread)
        return {"edits": first, "others": others}

    def proposed(self, record: Mapping[str, Any], current: Scaffold, batch: Proposals) -> None:
        """What follows from a proposal once it is in the journal. Doing it again changes nothing.

        Until then its attempts and lessons stay out of memory: a proposal that is made again must
        find what it found.
        """
        made = [e for id in record.get("made", ()) if (e := self.experience(id)) is not None]
        batch.attempted.update({e.id: e for e in made})
        edits = [
            Edit.model_validate(e)
            for edits in (record["edits"], *record.get("others", ()))
            for e in edits
        ]
        self.learning.born(
            [e for e in edits if not batch.validate(current, [e])], batch.batch | batch.attempted
        )
        self.session.memory.add(made)
        if made and self.session.own_memory is not None:
            self.session.own_memory.add(made)

    def settle(self, state: BuildState) -> BuildState:
        current = self.scaffold(state["scaffold"])
        others = state.get("others", [])
        over: BuildState = {"round": state["round"] + 1, "others": [], "more": False}
        after: BuildState = (
            {"edits": others[0], "others": others[1:], "more": True} if others else over
        )
        edits = [Edit.model_validate(e) for e in state["edits"]]
        experiences = {
            id: e for id in state["experiences"] if (e := self.experience(id)) is not None
        }
        batch = self.proposals("", current, list(experiences.values()))
        batch.tried = self.tried_then(batch, state["round"], current, edits)
        child, made, faults = batch.apply(current, edits)
        if not made:
            reason = "; ".join(faults) or self.top(current) or "the optimizer proposed no edit"
            self.session.say("nothing", {"reason": reason})
            told = {"round": state["round"], "reason": reason, "left": len(others)}
            if not any(told.items() <= r.items() for r in self.session.journal.records("nothing")):
                self.session.journal.add("nothing", **told)
            return after
        tried = next((r for r in self.revisions if r.id == child.digest), None)
        if tried is not None:
            self.session.say(
                "nothing", {"reason": f"the same files were tried before (revision {tried.id})"}
            )
            return {**over, "scaffold": child.digest} if tried.kept else after
        self.known[child.digest] = child
        wrong = problems(child, self.session.backend)
        if wrong:
            verdict = unjudged("not-better", "the check failed: " + "; ".join(wrong))
        else:
            self.afford(child)
            self.session.say("candidate", {"edits": made})
            known = self.session.journal.records("proposal")
            several = [
                1 + len(r.get("others", ()))
                for r in known
                if r["round"] == state["round"] and r["edits"]
            ]
            verdict = self.judged(current, child, state["round"], max(several, default=1))
        won = self.wins(verdict)
        revision = Revision(
            id=child.digest,
            parent=current.digest,
            round=state["round"],
            edits=tuple(made),
            verdict=verdict,
            kept=won and not self.session.settings.review,
            faults=tuple([*faults, *wrong]),
        )
        if won and not revision.kept:
            return {**after, **self.offer(state, revision)}
        self.record(revision)
        return {**over, "scaffold": child.digest} if revision.kept else after

    def tried_then(
        self, batch: Proposals, in_round: int, current: Scaffold, edits: Sequence[Edit]
    ) -> Sequence[Revision]:
        """What had been tried when these edits were settled: all, or what stands before their own
        revision, which a process that was killed since left behind, and for which they would be
        refused."""
        for place, revision in enumerate(self.revisions):
            if (revision.round, revision.parent) == (in_round, current.digest):
                batch.tried = self.revisions[:place]
                if batch.apply(current, edits)[0].digest == revision.id:
                    return batch.tried
        return self.revisions

    def review(self, state: BuildState) -> BuildState:
        """Nothing else may stand here: a node that was interrupted runs again from its start."""
        from langgraph.types import interrupt

        return {"answer": interrupt({"revision": state["candidate"], "offer": state["offer"]})}

    def decide(self, state: BuildState) -> BuildState:
        offered, answer = self.desk.offered(state["offer"]), state["answer"]
        match answer["decision"]:
            case "accept":
                self.record(offered.model_copy(update={"kept": True, "review": "accepted"}))
                after: BuildState = {"candidate": "", "scaffold": offered.id}
                return (
                    {**after, "round": state["round"] + 1, "more": False}
                    if state.get("more")
                    else after
                )
            case "reject":
                self.record(offered.model_copy(update={"review": f"rejected: {answer['reason']}"}))
                return {"candidate": ""}
        current, child = self.scaffold(offered.parent), self.scaffold(offered.id)
        edited = self.scaffold(answer["edited"])
        self.afford(edited)
        edits = human_edits(
            current, offered, child, edited, answer["reason"] or "edited by a person"
        )
        self.session.say("candidate", {"edits": edits})
        verdict = self.judged(current, edited, state["round"])
        changes = {"id": edited.digest, "edits": tuple(edits), "verdict": verdict, "faults": ()}
        made = offered.model_copy(update=changes)
        if self.wins(verdict):
            self.record(
                offered.model_copy(
                    update={"review": f"rejected: a person's edit of it, {made.id}, replaced it"}
                )
            )
            return self.offer(state, made)
        self.record(made)
        return self.offer(state, offered)

    def again(self, state: BuildState) -> str:
        if state.get("candidate"):
            return "review"
        if state.get("more"):
            return "settle"
        return "attempt" if state["round"] < self.session.settings.rounds else "end"

    # ----------------------------------------------------------------------------------------------
    # their parts

    def record(self, revision: Revision) -> None:
        """A revision's end, in the history and in the journal; once, however often a killed node
        runs again."""
        if any(r.id == revision.id for r in self.revisions):
            return
        self.history.commit(
            self.scaffold(revision.id), revision.parent, revision.kept, describe(revision)
        )
        self.session.journal.add("revision", revision=revision.model_dump(mode="json"))
        self.revisions.append(revision)
        self.session.say("revision", {"revision": revision})

    def offer(self, state: BuildState, revision: Revision) -> BuildState:
        number = self.desk.offer(state.get("offer", 0), revision, self.scaffold(revision.id))
        return {"candidate": revision.id, "offer": number}

    @property
    def judging(self) -> int:
        """How many attempts it takes to judge a candidate."""
        return len(self.validation) * self.session.settings.repeats

    def afford(self, child: Scaffold) -> None:
        """Raises OutOfBudget when the attempts that judging a candidate still takes are not
        left."""
        repeats = range(self.session.settings.repeats)
        self.session.ledger.afford(
            fresh(self.session, child, self.validation, repeats, self.learning.offers())
        )

    def proposals(
        self,
        key: str,
        current: Scaffold,
        experiences: Sequence[Experience],
        retrieval: LessonRetrieval | None = None,
    ) -> Proposals:
        """The batch as the optimizer and the check of its edits know it."""
        tasks = [task.id for task in self.train]
        kinds = strata(self.session.domain, self.train) if key else {}
        return Proposals(
            self.session,
            key,
            current,
            experiences,
            self.revisions,
            self.judging,
            self.scaffold,
            retrieval,
            tasks,
            kinds,
        )

    def scores(self, scaffold: Scaffold) -> list[Score]:
        """Validation scores: run once, read back ever after."""
        return run_attempts(
            self.session,
            scaffold,
            self.validation,
            repeats=self.session.settings.repeats,
            phase="validation",
            offers=self.learning.offers(),
        )

    def compare(self, before: Scaffold, after: Scaffold) -> Verdict:
        """What the build ends with, on all validation tasks. With less than the gate needs on disk
        (the budget ended first): undecided."""
        ended = "the budget ended before validation did"
        try:
            a, b = self.scores(before), self.scores(after)
        except OutOfBudget:
            if before.digest == after.digest:
                return unjudged("undecided", ended)
            found = Run(self.session.folder).validation(before.digest, after.digest)
            return found or unjudged("undecided", ended)
        if before.digest == after.digest:
            settings = self.session.settings
            top = room(settings.gate, settings.rounds, _by_task(a), settings.seed)
            return alone(_by_task(a), "nothing was kept: before and after are the same agent", top)
        if (terms := self.terms_of(before, after)) is not None:
            return tried(terms, _by_task(a), _by_task(b), whole=True)[0]
        return judge(_by_task(a), _by_task(b), **self.rule)

    def terms(self) -> list[Terms]:
        """How candidates were judged so far."""
        return [Terms.model_validate(r["terms"]) for r in self.session.journal.records("trial")]

    def terms_of(self, current: Scaffold, child: Scaffold) -> Terms | None:
        """How a candidate is judged, if that stands."""
        ends = current.digest, child.digest
        return next((t for t in self.terms() if (t.parent, t.candidate) == ends), None)

    def trial(self, current: Scaffold, child: Scaffold, in_round: int, of: int) -> Verdict:
        """A candidate's validation tasks, one stretch after the other, until it is clear. What it
        may err stands in the journal before its first attempt. of: how many candidates the round
        has; 0: this is a person's edit.
        """
        settings, gate = self.session.settings, self.session.settings.gate
        before = _by_task(self.scores(current))
        terms = self.terms_of(current, child)
        if terms is None:
            known, over = self.terms(), decidable(gate, len(self.validation), settings.rounds)
            if len({t.round for t in known if t.of} - {in_round}) >= over:
                of = 0  # more candidates than so few tasks decide
            extra = sum(not t.of for t in known) + 1
            alpha = share(gate, over, of=of) if of else share(gate, over, extra=extra)
            alpha += handed_on(known, [r.id for r in self.revisions if r.kept and r.verdict.better])
            order = [task.id for task in self.validation]
            random.Random(f"{settings.seed}/{child.digest}").shuffle(order)
            held = [score for score in before.values() if score is not None]
            rate = min(0.99, round(sum(held) / max(1, len(held)), 2))
            terms = Terms(
                candidate=child.digest,
                parent=current.digest,
                round=in_round,
                of=of,
                alpha=alpha,
                gain=(
                    1.0
                    if gate.cheaper
                    else detectable(len(order), settings.repeats, rate, alpha, self.spread)
                ),
                repeats=settings.repeats,
                order=tuple(order),
                strata=strata(self.session.domain, self.validation),
                rule=known[0].rule if known else "deadline",
                stretch=stretch_of(self.session, settings.repeats),
            )
            self.session.journal.add("trial", terms=terms.model_dump(mode="json"))
        place = {id: at for at, id in enumerate(terms.order)}

        def clear(done: Sequence[Score]) -> bool:
            if gate.cheaper:  # that it is not worse takes every task to be seen
                return False
            return self.unfit(done) is not None or tried(terms, before, _by_task(done))[1]

        scores = run_attempts(
            self.session,
            child,
            sorted(self.validation, key=lambda task: place[task.id]),
            repeats=settings.repeats,
            phase="validation",
            offers=self.learning.offers(),
            until=clear,
            stretch=terms.stretch,
        )
        return self.unfit(scores) or tried(terms, before, _by_task(scores))[0]

    def unfit(self, scores: Sequence[Score]) -> Verdict | None:
        """The verdict on an agent whose template could not be filled in with what happened."""
        if not (failed := [s for s in scores if s.limit == "template"]):
            return None
        first = ended(self.session, failed[0].attempt)
        assert first is not None
        # where, and not what it met: these tasks are held out
        at = first.trace.steps[-1].output.partition(": ")[0]
        words = (
            f"the check failed: {at} cannot be filled in at run time: it ended {len(failed)}"
            " attempts"
        )
        return unjudged("not-better", words)

    @property
    def rule(self) -> dict[str, Any]:
        """What the paired test decides by, besides the scores."""
        return {"alpha": self.session.settings.gate.alpha, "seed": self.session.settings.seed}

    def top(self, current: Scaffold) -> str:
        """Why nothing could be kept in place of the seed, '' when something could, or `current` is
        another agent."""
        before = _by_task(self.scores(current))
        return self.no_room(before) if current.digest == self.seed.digest else ""

    def no_room(self, before: Scores) -> str:
        """Why nothing could be kept in place of an agent with these scores, '' when something
        could."""
        settings, gate = self.session.settings, self.session.settings.gate
        text = room(gate, settings.rounds, before, settings.seed)
        if not text or not gate.cheaper:
            return text
        best = not_worse(before, dict.fromkeys(before, 1.0), margin=gate.margin, alpha=self.half)
        return f"{text}; nor could one be kept as cheaper: {best}" if best else ""

    def worth_writing(self) -> None:
        """Say how many validation tasks a seed that is to be written may solve for the build to go
        on with it; raises BadInput where it is none."""
        if not self.session.settings.rounds:
            return
        tasks = [task.id for task in self.validation]

        def ends(solved: int) -> bool:
            return bool(
                self.no_room({(task, 0): float(n < solved) for n, task in enumerate(tasks)})
            )

        most = bisect_left(range(1, len(tasks) + 1), True, key=ends)
        if not most:
            raise BadInput(
                f"{len(tasks)} validation tasks are too few to write a seed for: nothing could be"
                " kept in place of one that solves a single one of them",
                fix="more with --validation, or start from a seed: leave --scaffold out",
                code="too-few-tasks",
            )
        if most < len(tasks):
            text = (
                f"a seed that solves more than {most} of {len(tasks)} validation tasks leaves"
                " nothing to be kept"
            )
            self.session.say("note", {"text": f"{text}: the build then ends with it"})

    @property
    def half(self) -> float:
        """Twice the error that keeping one candidate as cheaper may make."""
        gate = self.session.settings.gate
        over = decidable(gate, len(self.validation), self.session.settings.rounds)
        return 2 * share(gate, over) if gate.false_keep else gate.alpha

    def judged(self, current: Scaffold, child: Scaffold, in_round: int, of: int = 0) -> Verdict:
        """The gate on a candidate; what is not better may be cheaper and not worse, which the
        reason then says.

        Not worse than the best agent so far, which need not be the one that it came from: or each
        that is kept as cheaper could lose a little, and all of them together a lot.
        """
        gate = self.session.settings.gate
        if gate.false_keep:
            verdict = self.trial(current, child, in_round, of)
        else:
            verdict = self.unfit(self.scores(child)) or judge(
                _by_task(self.scores(current)), _by_task(self.scores(child)), **self.rule
            )
        if verdict.better or verdict.diff is None or (gate.false_keep and not gate.cheaper):
            return verdict
        price, after = self.session.price, self.scores(child)
        unit = gate.cost or ("usd" if price.tokens_in or price.tokens_out else "tokens")
        found = saving(
            *(_costs(side, price, unit) for side in (self.scores(current), after)),
            unit=unit,
            **self.rule,
        )
        if found is None or not found.cheaper:
            return verdict
        so_far = [self.seed, *(self.scaffold(r.id) for r in self.revisions if r.kept)]
        best = max(
            (_by_task(self.scores(each)) for each in so_far), key=lambda scores: interval(scores)[0]
        )
        why = not_worse(best, _by_task(after), margin=gate.margin, alpha=self.half)
        if why and not gate.cheaper:
            return verdict
        reason = (
            f"cheaper: {saved(found)}, and a fall of its score by {gate.margin:g} or more is"
            " ruled out"
        )
        if why:
            reason = f"{verdict.reason}; it is cheaper ({saved(found)}), but {why}"
        elif not gate.cheaper:
            reason = f"{verdict.reason}; {reason}: --keep-cheaper would keep it"
        return verdict.model_copy(update={"reason": reason, "saving": None if why else found})

    def wins(self, verdict: Verdict) -> bool:
        """Whether a candidate is kept: better, or cheaper where that was asked for."""
        return verdict.better or (self.session.settings.gate.cheaper and verdict.saving is not None)

    def scaffold(self, digest: str) -> Scaffold:
        if digest not in self.known:
            self.known[digest] = self.history.read(digest)
        return self.known[digest]

    def best(self) -> Scaffold:
        """The last kept version."""
        kept = [r.id for r in self.revisions if r.kept]
        return self.scaffold(kept[-1]) if kept else self.seed

    def experience(self, id: str) -> Experience | None:
        """One of the batch; None for what was held out since it was attempted, or recalled such an
        attempt."""
        found = ended(self.session, id)
        return None if found is None or self.session.memory.closed(found) else found

    def agrees(self, state: BuildState) -> bool:
        """Whether a checkpoint says nothing that the journal does not."""
        journal = self.session.journal
        made = list(journal.records("proposal"))
        edits = [e for r in made for e in (r["edits"], *r.get("others", ()))]
        offers = {r["offer"]: r["revision"]["id"] for r in journal.records("candidate")}
        return (
            state["round"] <= len({r["round"] for r in made})
            and state["scaffold"] in {self.seed.digest, *(r.id for r in self.revisions if r.kept)}
            and all(e in edits for e in (state.get("edits") or [], *state.get("others", ())) if e)
            and set(state.get("experiences", ())) <= journal.ended
            and (not state.get("candidate") or offers.get(state["offer"]) == state["candidate"])
        )

    def note(self, text: str) -> None:
        self.session.say("note", {"text": text})


@contextmanager
def checkpoints(
    file: Path,
    graph: Any,
    config: Any,
    agrees: Callable[[BuildState], bool],
    note: Callable[[str], None],
) -> Iterator[Any]:
    """The graph with its checkpoints in a file; a damaged one is begun anew. Raises Fault when the
    disk is full."""
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver

    def opened() -> tuple[sqlite3.Connection, Any]:
        connection = sqlite3.connect(file, check_same_thread=False)
        return connection, graph.compile(checkpointer=SqliteSaver(connection))

    def sound() -> bool:
        if connection.execute("pragma integrity_check").fetchone() != ("ok",):
            return False
        values = compiled.get_state(config).values
        return not values or agrees(values)

    connection, compiled = opened()
    try:
        with disk_of(file):
            try:
                good = sound()
            except sqlite3.OperationalError:
                raise
            except Exception:  # whatever a decoder makes of wrong bytes
                good = False
            if not good:
                note(f"{file.name} is damaged: the build goes on from what its journal says")
                connection.close()
                for name in (
                    file.name,
                    f"{file.name}-wal",
                    f"{file.name}-shm",
                    f"{file.name}-journal",
                ):
                    file.with_name(name).unlink(missing_ok=True)
                connection, compiled = opened()
            yield compiled
    finally:
        connection.close()


@contextmanager
def disk_of(file: Path) -> Iterator[None]:
    """What SQLite says of a full disk, as the Fault that other files raise."""
    import sqlite3

    try:
        yield
    except sqlite3.OperationalError as e:
        raise Fault(f"cannot write {file}: {e}", fix=files.RESUME, code="disk") from e


def _by_task(scores: Sequence[Score]) -> dict[tuple[str, int], float | None]:
    return {(s.task, s.repeat): s.score for s in scores}


def _costs(scores: Sequence[Score], price: Price, unit: str) -> dict[tuple[str, int], float | None]:
    """What each attempt took: usd at the full price of its tokens, which no cache takes part of;
    tokens in and out; calls; or seconds."""
    found: dict[tuple[str, int], float | None] = {}
    for s in scores:
        used = s.usage
        cost = {
            "usd": price.usd(used.tokens_in, used.tokens_out),
            "tokens": used.tokens_in + used.tokens_out,
            "calls": used.calls,
            "seconds": used.seconds,
        }[unit]
        found[s.task, s.repeat] = None if s.score is None else float(cost)
    return found
