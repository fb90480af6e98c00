"""A build's rounds: what its nodes share, and the nodes, which langgraph calls in `loop`.

Each node goes from what is checkpointed (`BuildState`) to what changes in it. What costs money is
in the journal besides, so a node that was killed half-way and runs again pays for nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from recreate.agents.history import History, describe
from recreate.agents.lint import problems
from recreate.agents.retrieval import LessonRetrieval
from recreate.agents.scaffold import Scaffold
from recreate.api.ports import Population
from recreate.api.registry import find
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.theirs import all_are, expect
from recreate.api.types import Edit, Experience, Record, Revision, Split, Task, Verdict, digest
from recreate.builder.batches import draw_batch, recall_batch
from recreate.builder.estimate import Past, plan
from recreate.builder.gates import Judge
from recreate.builder.learning import Learning
from recreate.builder.proposals import Proposals
from recreate.builder.review import ReviewDesk, human_edits
from recreate.builder.selection import cannot_decide, draw_tasks, strata, tasks_of, too_few
from recreate.lessons.context import offered_ids
from recreate.runs.attempts import read_ended, run_attempts
from recreate.runs.gate import MIN_TASKS, unjudged
from recreate.runs.session import Session
from recreate.runs.settings import MOST


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
    edits: list[JsonDict]
    others: list[list[JsonDict]]
    more: bool
    candidate: str
    offer: int
    answer: JsonDict


def choose_tasks(session: Session) -> tuple[list[Task], list[Task]]:
    """Return (train, validation): the first N of each split in an order that the seed fixes; with a
    curriculum all of train, of which each round takes its own.

    What the workspace holds out as another split is left out first, and said, then what is not
    selected. Raises BadInput when there are too few validation tasks for the gate to decide
    anything, or no train tasks to learn from; with `from_experience` none are needed.
    """

    def pick(split: Split, most: int, *, needed: bool) -> list[Task]:
        tasks = tasks_of(session, split, needed=needed)
        return draw_tasks(tasks, session.settings.seed, split, most)

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


class NoRoom(Exception):
    """No candidate could be kept in place of the seed: why."""


class Build:
    """What the nodes of one run share: tasks, versions, judge and memory."""

    def __init__(self, session: Session, seed: Scaffold) -> None:
        self.session = session
        self.seed = seed
        self.history = History(session.folder / "scaffold.git")
        self.desk = ReviewDesk(session, self.history)
        self.train, self.validation = choose_tasks(session)  # what is refused leaves nothing
        there = {"train": min(session.settings.train, len(self.train))}
        there["validation"] = len(self.validation)
        self.settings = session.settings.model_copy(update=there)
        self.known: Past | None = None
        if seed.digest not in {e.digest for e in self.history.log()}:
            self.history.commit(seed, None, True, f"Start from {seed.name}")
        held = [t for split in ("validation", "test") for t in session.domain.tasks(split)]
        session.memory.hold_out(held)
        count = len(self.validation) * session.settings.repeats
        self.learning = Learning(session, count, seed)
        self.judge = Judge(session, self.validation, self.learning, seed)
        self.read = {seed.digest: seed}
        records = session.journal.records("revision")
        self.revisions = [Revision.model_validate(r["revision"]) for r in records]
        self.learning.announce(seed)
        self.learning.offers()  # before anybody learns: what validation is offered

    def scaffold(self, digest: str) -> Scaffold:
        """Return an agent of this run. Raises BadInput for one that is not."""
        if digest not in self.read:
            self.read[digest] = self.history.read(digest)
        return self.read[digest]

    def say_estimate(self, known: Past, lead: str) -> None:
        """Say what the whole build takes, by what is known of attempts and studies."""
        session, self.known = self.session, known
        prices = session.price, session.models.optimizer_price
        made = plan(self.settings, self.seed, *prices, known, finds=False)
        text = f"{lead}: at most {made.attempts} attempts, {made.spans(self.settings.jobs)}"
        session.say("note", {"text": text})

    @property
    def kept_ids(self) -> list[str]:
        """The digests of the agents kept so far."""
        return [r.id for r in self.revisions if r.kept]

    @property
    def best(self) -> Scaffold:
        """The last kept version."""
        return self.scaffold(self.kept_ids[-1]) if self.kept_ids else self.seed

    def experiences(self, ids: Iterable[str]) -> list[Experience]:
        """Return those that are not held out since they were attempted, and recalled no such
        attempt."""
        known = (read_ended(self.session, id) for id in ids)
        return [e for e in known if e is not None and not self.session.memory.is_closed(e)]

    def judge_candidate(
        self, current: Scaffold, child: Scaffold, edits: Sequence[Edit], round: int, of: int = 0
    ) -> Verdict:
        """Return the gate's verdict on a candidate. of: how many its round has, 0 for a person's
        edit. Raises OutOfBudget where judging it cannot be paid any more."""
        self.judge.afford(child)
        self.session.say("candidate", {"edits": edits})
        kept = [self.scaffold(id) for id in self.kept_ids]
        better = [r.id for r in self.revisions if r.kept and r.verdict.better]
        return self.judge.judge(current, child, round, of, kept, better)

    def record(self, revision: Revision) -> None:
        """Write a revision's end into the history and the journal; once, however often a killed
        node runs again."""
        if any(r.id == revision.id for r in self.revisions):
            return
        child = self.scaffold(revision.id)
        text = describe(revision)
        self.history.commit(child, revision.parent, revision.kept, text)
        self.session.journal.add("revision", revision=revision.model_dump(mode="json"))
        self.revisions.append(revision)
        self.session.say("revision", {"revision": revision})

    def offer(self, state: BuildState, revision: Revision) -> BuildState:
        """Lay a candidate before the person."""
        number = self.desk.offer(state.get("offer", 0), revision, self.scaffold(revision.id))
        return {"candidate": revision.id, "offer": number}

    def proposals(
        self,
        key: str,
        current: Scaffold,
        experiences: Sequence[Experience],
        retrieval: LessonRetrieval | None = None,
    ) -> Proposals:
        """Return the batch as the optimizer and the check of its edits know it."""
        return Proposals(
            self.session,
            key,
            current,
            experiences,
            self.revisions,
            self.judge.attempts,
            self.scaffold,
            retrieval,
            [task.id for task in self.train],
            strata(self.session.domain, self.train) if key else {},
        )

    def matches_journal(self, state: BuildState) -> bool:
        """Whether a checkpoint says nothing that the journal does not."""
        journal = self.session.journal
        made = list(journal.records("proposal"))
        edits = [e for r in made for e in (r["edits"], *r.get("others", ()))]
        offers = {r["offer"]: r["revision"]["id"] for r in journal.records("candidate")}
        return (
            state["round"] <= len({r["round"] for r in made})
            and state["scaffold"] in {self.seed.digest, *self.kept_ids}
            and all(e in edits for e in (state.get("edits") or [], *state.get("others", ())) if e)
            and set(state.get("experiences", ())) <= journal.ended
            and (not state.get("candidate") or offers.get(state["offer"]) == state["candidate"])
        )


# --------------------------------------------------------------------------------------------
# the nodes


def attempt(build: Build, state: BuildState) -> BuildState:
    """Attempt a batch of train tasks with the current agent, or recall one from memory. Raises
    NoRoom where nothing could be kept in place of the seed."""
    session = build.session
    round = state["round"]
    current = build.scaffold(state["scaffold"])
    if top := build.judge.find_ceiling(current):
        raise NoRoom(top)
    if build.known is not None and not build.known.usages:
        usages = [score.usage for score in build.judge.attempt(current)]
        lead = f"by the {len(usages)} attempts so far it takes"
        build.say_estimate(replace(build.known, usages=usages), lead)
    session.say("round", {"round": round + 1, "rounds": session.settings.rounds})
    if session.settings.from_experience and (round == 0 or not build.train):
        return {"experiences": recall_batch(session, round)}
    batch = draw_batch(session, build.train, build.seed, build.kept_ids, round)
    tasks = [task for task, _ in batch]
    first = {task.id: repeat for task, repeat in batch}
    offers = build.learning.offers(round, drawn=True)
    scores = run_attempts(session, current, tasks, phase="train", offers=offers, first=first)
    ids = [s.attempt for s in scores if s.score is not None]
    if offers is not None and offers.lessons:
        _say_offered(session, build.experiences(ids), len(ids), offers)
    return {"experiences": ids}


def _say_offered(
    session: Session, experiences: Sequence[Experience], attempts: int, offers: LessonRetrieval
) -> None:
    """Say which lessons the attempts of a round were offered, and from how many each was held back,
    by lot."""
    shown = Counter[str]()
    held = Counter[str]()
    for e in experiences:
        got = offered_ids(e)
        shown.update(got)
        held.update({id for step in e.trace.steps for id in step.propensities} - got)
    ids = sorted({*shown, *held}, key=lambda id: (-shown[id], id))
    if ids:
        counts = {id: (shown[id], held[id]) for id in ids}
        unproven = sorted(counts.keys() & {*offers.unproven})
        session.say("offered", {"lessons": counts, "attempts": attempts, "unproven": unproven})


def propose(build: Build, state: BuildState) -> BuildState:
    """Ask the optimizer for candidates; a proposal that stands in the journal is read back."""
    session = build.session
    round = state["round"]
    current = build.scaffold(state["scaffold"])
    experiences = build.experiences(state["experiences"])
    parts = [current.digest, round, state["experiences"], session.settings.optimizer]
    key = digest(["proposal", *parts])
    records = session.journal.records("proposal")
    known = next((r for r in records if r["attempt"] == key), None)
    if known is not None:
        _remember(build, known, current, build.proposals("", current, experiences))
        return {"edits": known["edits"], "others": known.get("others", [])}
    build.learning.observe(round, current, experiences)
    # of a build that was begun when one that learns lessons went on
    if build.judge.find_ceiling(current):
        session.journal.add("proposal", attempt=key, round=round, edits=[])
        return {"edits": [], "others": []}
    failures = sum(not e.grade.passed for e in experiences)
    session.say("propose", {"experiences": len(experiences), "failures": failures})
    batch = build.proposals(key, current, experiences, build.learning.offers(round))

    def ask() -> JsonDict:
        proposed = _ask_optimizer(session.optimizer(batch.context()), current, experiences)
        promoted = build.learning.promotions(current, build.revisions)
        candidates = [[*map(batch.own_words, edits), *promoted] for edits in proposed]
        candidates.append(build.learning.removals(current, build.revisions))
        dumped = [[e.model_dump(mode="json") for e in edits] for edits in candidates if edits]
        first, *others = dumped or [[]]
        return {"edits": first} | ({"others": others} if others else {})

    made = batch.propose(ask, round=round)
    record = {"attempt": key, "round": round, **made, "made": list(batch.attempted)}
    session.journal.add("proposal", **record)
    _remember(build, record, current, batch)
    for thread in batch.threads:
        session.journal.forget(thread)
    return {"edits": made["edits"], "others": made.get("others", [])}


def _ask_optimizer(
    optimizer: Any, current: Scaffold, experiences: Sequence[Experience]
) -> list[list[Edit]]:
    """Return the edits of each candidate."""
    shown = current.model_copy(), [*experiences]  # a stranger may change them
    method = "candidates" if isinstance(optimizer, Population) else "propose"
    made = getattr(optimizer, method)(*shown)
    expect(_are_several(made), optimizer, method, made)
    candidates = list(made) if method == "candidates" else [made]
    expect(all(map(_are_several, candidates)), optimizer, method, made)
    proposed = [list(edits) for edits in candidates] or [[]]
    for edits in proposed:
        expect(all_are(edits, Edit), optimizer, method, edits)
    return proposed


def _are_several(made: Any) -> bool:
    """Whether what a stranger returned is a list of its kind: a record and a text can be iterated
    over too."""
    return isinstance(made, Iterable) and not isinstance(made, Record | str | Mapping)


def _remember(build: Build, record: JsonMap, current: Scaffold, batch: Proposals) -> None:
    """Take a proposal's attempts and lessons into memory once it is in the journal. Doing it again
    changes nothing.

    Until then they stay out of memory: a proposal that is made again must find what it found.
    """
    made = build.experiences(record.get("made", ()))
    batch.attempted.update({e.id: e for e in made})
    several = (record["edits"], *record.get("others", ()))
    edits = [Edit.model_validate(e) for edits in several for e in edits]
    accepted = [e for e in edits if not batch.validate(current, [e])]
    build.learning.adopt_lessons(accepted, batch.batch | batch.attempted)
    build.session.memory.add(made)
    if made and build.session.own_memory is not None:
        build.session.own_memory.add(made)


def settle(build: Build, state: BuildState) -> BuildState:
    """Apply a candidate's edits, judge it, and keep it, drop it or offer it to a person."""
    session = build.session
    round = state["round"]
    current = build.scaffold(state["scaffold"])
    others = state.get("others", [])
    over: BuildState = {"round": round + 1, "others": [], "more": False}
    after: BuildState = over
    if others:
        after = {"edits": others[0], "others": others[1:], "more": True}
    edits = [Edit.model_validate(e) for e in state["edits"]]
    batch = build.proposals("", current, build.experiences(state["experiences"]))
    batch.tried = _tried_before(build, batch, round, current, edits)
    child, made, faults = batch.apply(current, edits)
    if not made:
        reason = "; ".join(faults) or build.judge.find_ceiling(current)
        _say_nothing(session, round, reason or "the optimizer proposed no edit", len(others))
        return after
    earlier = next((r for r in build.revisions if r.id == child.digest), None)
    if earlier is not None:
        reason = f"the same files were tried before (revision {earlier.id})"
        session.say("nothing", {"reason": reason})
        return {**over, "scaffold": child.digest} if earlier.kept else after
    build.read[child.digest] = child
    wrong = problems(child, session.backend)
    if wrong:
        verdict = unjudged("not-better", "the check failed: " + "; ".join(wrong))
    else:
        records = session.journal.records("proposal")
        counts = (
            1 + len(r.get("others", ())) for r in records if r["round"] == round and r["edits"]
        )
        verdict = build.judge_candidate(current, child, made, round, max(counts, default=1))
    won = build.judge.keeps(verdict)
    revision = Revision(
        id=child.digest,
        parent=current.digest,
        round=round,
        edits=tuple(made),
        verdict=verdict,
        kept=won and not session.settings.review,
        faults=tuple([*faults, *wrong]),
    )
    if won and not revision.kept:
        return {**after, **build.offer(state, revision)}
    build.record(revision)
    return {**over, "scaffold": child.digest} if revision.kept else after


def _say_nothing(session: Session, round: int, reason: str, left: int) -> None:
    session.say("nothing", {"reason": reason})
    record = {"round": round, "reason": reason, "left": left}
    if not any(record.items() <= r.items() for r in session.journal.records("nothing")):
        session.journal.add("nothing", **record)


def _tried_before(
    build: Build, batch: Proposals, round: int, current: Scaffold, edits: Sequence[Edit]
) -> Sequence[Revision]:
    """Return what had been tried when these edits were settled: all, or what stands before their
    own revision, which a process that was killed since left behind, and for which they would be
    refused."""
    for place, revision in enumerate(build.revisions):
        if (revision.round, revision.parent) == (round, current.digest):
            batch.tried = build.revisions[:place]
            if batch.apply(current, edits)[0].digest == revision.id:
                return batch.tried
    return build.revisions


def review(build: Build, state: BuildState) -> BuildState:
    """Wait for a person's word. Nothing else may stand here: a node that was interrupted runs again
    from its start."""
    from langgraph.types import interrupt

    return {"answer": interrupt({"revision": state["candidate"], "offer": state["offer"]})}


def decide(build: Build, state: BuildState) -> BuildState:
    """Do what the person said of the candidate: keep it, drop it, or judge what was made of it."""
    waiting = build.desk.read_offer(state["offer"])
    answer = state["answer"]
    if answer["decision"] == "accept":
        build.record(waiting.model_copy(update={"kept": True, "review": "accepted"}))
        after: BuildState = {"candidate": "", "scaffold": waiting.id}
        if state.get("more"):
            after |= {"round": state["round"] + 1, "more": False}
        return after
    if answer["decision"] == "reject":
        build.record(waiting.model_copy(update={"review": f"rejected: {answer['reason']}"}))
        return {"candidate": ""}
    current = build.scaffold(waiting.parent)
    child = build.scaffold(waiting.id)
    edited = build.scaffold(answer["edited"])
    reason = answer["reason"] or "edited by a person"
    edits = human_edits(current, waiting, child, edited, reason)
    verdict = build.judge_candidate(current, edited, edits, state["round"])
    changes = {"id": edited.digest, "edits": tuple(edits), "verdict": verdict, "faults": ()}
    made = waiting.model_copy(update=changes)
    if build.judge.keeps(verdict):
        words = f"rejected: a person's edit of it, {made.id}, replaced it"
        build.record(waiting.model_copy(update={"review": words}))
        return build.offer(state, made)
    build.record(made)
    return build.offer(state, waiting)


def choose_next(build: Build, state: BuildState) -> str:
    """Return the name of the node that comes after `settle` or `decide`, or `end`."""
    if state.get("candidate"):
        return "review"
    if state.get("more"):
        return "settle"
    return "attempt" if state["round"] < build.session.settings.rounds else "end"
