"""Many attempts at once, each graded, remembered and never paid twice.

An attempt that has ended in this run folder is read back from it; what a kill or a damaged file
took of it comes back from memory, and into the journal. An infrastructure failure is tried again,
and then the attempt is excluded: it is reported and counts for nobody. What is kept in memory is
one small `Score` per attempt.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from recreate.agents.attempt import attempt, attempt_key
from recreate.agents.functions import function_name
from recreate.agents.guards.untrusted import mark_untrusted
from recreate.agents.kinds import open_kind
from recreate.agents.progress import AskAgent
from recreate.agents.retrieval import LessonRetrieval
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import try_servers
from recreate.api.errors import (
    IMAGE,
    OUTAGE,
    REFUSED_REQUEST,
    UNSOUND,
    BadInput,
    Fault,
    Interrupted,
    OutOfBudget,
    Refused,
)
from recreate.api.paths import short
from recreate.api.ports import ToolCalling, extras
from recreate.api.shapes import JsonDict
from recreate.api.theirs import expect
from recreate.api.types import (
    UNTRUSTED,
    Call,
    Experience,
    Grade,
    Step,
    Task,
    Trace,
    Trust,
    Usage,
    digest,
    least_trust,
)
from recreate.memory.codec import masked
from recreate.runs.budget import CELL_BUDGET
from recreate.runs.session import Session
from recreate.storage import files
from recreate.storage.log import Log, encode, seal, unseal
from recreate.storage.redact import redact

TRIES = 3
"""How often an attempt that a fault of ours ended is started again."""

STEPS = "step_count"
"""In experience.json: how many lines steps.jsonl has. Not a field of the Experience."""

_ITS_OWN = (UNSOUND, IMAGE, REFUSED_REQUEST)
"""Codes of faults that are one task's own: it is not tried again, and the others go on."""

FIRST = 3
"""So many attempts of a program that break in one way, before any ended otherwise, stop a run."""
IN_A_ROW = 3
"""So many attempts excluded one after the other, with none between that ended, is an outage: the
run stops."""

Place = tuple[str, str, int]
"""A cell of a table ('' for none), a task's id, a repeat."""


@dataclass(frozen=True)
class Score:
    """How one attempt ended; ending and limit as in Trace. score is None when it was excluded for
    an infrastructure failure, which `fault` names."""

    attempt: str
    task: str
    repeat: int
    score: float | None
    passed: bool = False
    ending: str = ""
    limit: str = ""
    usage: Usage = field(default_factory=Usage)
    reused: bool = False
    fault: str = ""

    @property
    def how(self) -> str:
        """How it ended, in a word: passed | failed (it handed in) | limit NAME | error NAME |
        excluded."""
        return "excluded" if self.score is None else how(self.passed, self.ending, self.limit)


SCORES = TypeAdapter(Score)
"""Makes records of scores, and scores of these."""


def how(passed: bool, ending: str, limit: str = "") -> str:
    """Return how a graded attempt ended, in a word, as `Score.how` has it."""
    return (
        "passed" if passed else "failed" if ending == "submitted" else f"{ending} {limit}".strip()
    )


@dataclass(frozen=True)
class Work:
    """An attempt that is to be made. cell: of a table what it is a part of; a cap of its own ends
    that cell alone."""

    session: Session
    scaffold: Scaffold
    task: Task
    repeat: int
    phase: str = "train"
    in_memory: bool = True
    offers: LessonRetrieval | None = None
    cell: str = ""

    @property
    def place(self) -> Place:
        return self.cell, self.task.id, self.repeat


def run_attempts(
    session: Session,
    scaffold: Scaffold,
    tasks: Sequence[Task],
    *,
    repeats: int = 1,
    phase: str = "train",
    in_memory: bool = True,
    offers: LessonRetrieval | None = None,
    first: Mapping[str, int] | None = None,
    until: Callable[[Sequence[Score]], bool] | None = None,
    stretch: int = 0,
    known: Mapping[Place, Score] = {},
) -> list[Score]:
    """Scores in the order of (task, repeat). in_memory: False when the experiences come into memory
    later. first: the number of a task's first repeat where it is not 0. known: scores that are
    taken as they are.

    until: asked after each `stretch` of attempts, 0 for twice as many as go on at once, with all
    scores so far; when it says so, no more are made. Stretches end together, so that which attempts
    are made is no matter of who was faster.

    Raises OutOfBudget, Refused or Interrupted after the attempts in flight have ended; all that
    ended is on disk.
    """
    each = (
        (task, (first or {}).get(task.id, 0) + repeat)
        for task in tasks
        for repeat in range(repeats)
    )
    work = [
        Work(session, scaffold, task, repeat, phase, in_memory, offers) for task, repeat in each
    ]
    session.say("gather", {"phase": phase, "total": len(work), "scaffold": scaffold.digest})
    scores = {each.place: known[each.place] for each in work if each.place in known}
    for score in scores.values():
        session.say("score", {"phase": phase, "score": score, "cell": ""})
    if until is None:
        run_work(session, [each for each in work if each.place not in known], scores)
    begun = 0
    outages = dict[str, _Outage]()
    stretch = stretch or stretch_of(session, repeats)
    while until is not None and begun < len(work):
        run_work(session, work[begun : begun + stretch], scores, outages)
        begun += stretch
        if until([scores[w.place] for w in work[:begun]]):
            break
    for outage in outages.values():
        outage.beginning.release()
    return [scores[w.place] for w in work if w.place in scores]


def stretch_of(session: Session, repeats: int) -> int:
    """Return how many attempts are made before they are looked at: whole tasks, twice as many as go
    on at once when the run began, so that one that goes on, and a replay, asks for what it asked
    for.
    """
    jobs = session.journal.first.get("jobs") or session.settings.jobs
    return repeats * max(1, 2 * jobs // repeats)


def run_work(
    session: Session,
    work: Sequence[Work],
    scores: dict[Place, Score],
    outages: dict[str, _Outage] | None = None,
) -> None:
    """Make these attempts, `jobs` at once, in their order; of several models the one with the
    fewest in flight is next, so that a slow one holds nobody up. scores: takes each as it ends.

    A cell whose own cap is reached ends alone, and a model that is out or refuses ends its cells
    alone. Raises what the first of them ended with once the rest is done; OutOfBudget, Interrupted
    and what else stops a run after the attempts in flight have ended. All that ended is on disk.

    outages: by model, where several calls of this are one stretch after the other.
    """
    for own in {id(each.session): each.session for each in work}.values():
        own.start()
    last = outages is None
    outages = {} if outages is None else outages
    queue = _Queue(work)
    jobs = session.settings.jobs
    with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="attempt") as pool:
        pending: dict[Future[Score], Work] = {}
        while True:
            while len(pending) < jobs and (each := queue.take()) is not None:
                outage = outages.setdefault(each.session.model_name, _Outage())
                pending[pool.submit(_attempt, each, outage)] = each
            if not pending:
                break
            finished, _ = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            if session.calls.stop.is_set():
                queue.failed = queue.failed or Interrupted("stopped")
            for future in finished:
                each = pending.pop(future)
                error = future.exception()
                queue.release(each, error)
                score = error.score if isinstance(error, _Out) else None
                if error is None:
                    score = future.result()
                if score is not None:
                    scores[each.place] = score
                    session.say("score", {"phase": each.phase, "score": score, "cell": each.cell})
    error = queue.failed or queue.ended_alone
    for outage in outages.values() if last or error else ():
        outage.beginning.release()
    if error:
        raise error


class _Queue:
    """Which attempt is begun next. failed: what ends the whole of it, ended_alone: what ended the
    first part of it that ended alone."""

    def __init__(self, work: Sequence[Work]) -> None:
        self.lanes: dict[str, deque[Work]] = {}
        for each in work:
            self.lanes.setdefault(each.session.model_name, deque()).append(each)
        self.several = len(self.lanes) > 1
        self.in_flight = Counter[str]()
        self.failed: BaseException | None = None
        self.ended_alone: BaseException | None = None

    def take(self) -> Work | None:
        """Take the next attempt; None where none is to be begun."""
        waiting = [name for name, lane in self.lanes.items() if lane]
        if not waiting or self.failed is not None:
            return None
        name = min(waiting, key=self.in_flight.__getitem__)
        self.in_flight[name] += 1
        return self.lanes[name].popleft()

    def release(self, work: Work, error: BaseException | None) -> None:
        """Note that an attempt ended, and with it what its error ends."""
        name = work.session.model_name
        self.in_flight[name] -= 1
        if error is None:
            return
        if isinstance(error, OutOfBudget) and error.code == CELL_BUDGET:
            self.lanes[name] = deque(each for each in self.lanes[name] if each.cell != work.cell)
            self.ended_alone = self.ended_alone or error
        elif self.several and (
            isinstance(error, Refused) or (isinstance(error, Fault) and error.code == OUTAGE)
        ):
            self.lanes[name].clear()
            self.ended_alone = self.ended_alone or error
        else:
            self.failed = self.failed or error


def attempt_task(
    session: Session,
    scaffold: Scaffold,
    task: Task,
    repeat: int,
    phase: str,
    *,
    in_memory: bool = True,
    offers: LessonRetrieval | None = None,
) -> Score:
    """Return one attempt, graded and remembered (in memory too, unless told not to yet), or read
    back.

    offers: what its agent may be told of the workspace's lessons, when it asks for that.
    """
    outage = _Outage()
    try:
        work = Work(session, scaffold, task, repeat, phase, in_memory, offers)
        return _attempt(work, outage)
    finally:
        outage.beginning.release()


def _attempt(work: Work, outage: _Outage) -> Score:
    session = work.session
    task = work.task
    held_out = session.memory.held_out.split_of(task) != "train"
    if work.phase not in ("validation", "test") and held_out:
        raise BadInput(
            f"{task.id} is held out in {session.workspace}, so nothing may be learned from it",
            fix=(
                "the same command again leaves out what is held out by now: recreate resume RUN, or"
                " --out RUN"
            ),
            code="held-out",
        )
    key, fault = _key_or_fault(session, work.scaffold, task, work.repeat, work.offers)
    if fault is not None:
        session.ledger.begin(key)
        return _set_aside(work, key, outage, fault)
    id = session.journal.renamed.get(key, key)
    folder = session.folder / "attempts" / id
    known = read_ended(session, id, steps=False)
    if known is not None:
        if id not in session.journal.ended:  # killed between its file and its line
            whole = read_experience(folder) or known
            known = note_end(session, whole, folder, work.phase, in_memory=work.in_memory)
        session.journal.forget(key)
        return score_of(known, work)
    session.ledger.begin(key)
    return _attempt_anew(work, key, folder, outage)


def _attempt_anew(work: Work, key: str, folder: Path, outage: _Outage) -> Score:
    """Return an attempt that is made now; a fault of ours is tried again."""
    session = work.session
    task = work.task
    place: JsonDict = {"phase": work.phase, "task": task.id, "repeat": work.repeat}
    call = Call(run=session.run, attempt=key, step=0, role="agent", **place)
    for left in reversed(range(TRIES)):
        if session.calls.stop.is_set():
            raise Interrupted("stopped")
        try:
            with _in_flight(session, call):
                experience = attempt_and_grade(
                    session, work.scaffold, task, call, folder, work.offers
                )
        except Fault as e:
            if e.code in ("disk", OUTAGE):
                raise
            if e.code in _ITS_OWN or not left:
                return _set_aside(work, key, outage, e)
        else:
            outage.reset()
            return score_of(_settle(work, experience, folder, outage.beginning), work, reused=False)
    raise AssertionError("unreachable")


def _settle(work: Work, experience: Experience, folder: Path, beginning: _Beginning) -> Experience:
    """Remember an attempt, and return it as it is known from now on; or hold it back, while all
    that its agent's program has done in this run is to break in one way. Raises BadInput at the
    FIRST of these: nothing can be learned of them, and mending prompts mends no program."""
    session = work.session
    key = experience.trace.attempt
    write = partial(remember, session, experience, folder, work.phase, in_memory=work.in_memory)
    cause, words = _failure_of(work, experience)
    if due := beginning.take(cause, write, partial(_note_aside, work, key, words)):
        return [each() for each in due][-1]
    if stopped := beginning.stop():
        for note in stopped:
            note()
        raise BadInput(
            f"the first {FIRST} attempts ended alike, so no more are made, and nobody is asked to"
            f" mend prompts: {words}",
            fix=(
                "mend it, then recreate resume RUN; of a command the files came along as they were:"
                " where one of them is mended, build again with another --out"
            ),
            code="agent-breaks",
        )
    held: Experience = session.memory.identify(experience)
    return held


def _failure_of(work: Work, experience: Experience) -> tuple[str, str]:
    """Return what a program broke by, where it is the first thing that it does in a run, and the
    words; two '' otherwise."""
    session = work.session
    agent = work.scaffold.agent
    if not agent.foreign or work.cell or session.replay is not None:
        return "", ""
    if any(True for _ in session.journal.records("experience")):
        return "", ""
    return open_kind(agent.action).failure(experience.trace)


@contextlib.contextmanager
def _in_flight(session: Session, call: Call) -> Iterator[None]:
    """Tell when an attempt begins, and when it has ended, however that was."""
    facts = {"attempt": call.attempt, "task": call.task}
    session.say("begin", facts)
    try:
        yield
    finally:
        session.say("ended", facts)


def _set_aside(work: Work, key: str, outage: _Outage, fault: Fault) -> Score:
    """Return an attempt that is excluded. Raises _Out when it is one too many of them."""
    work.session.say("aside", _note_aside(work, key, fault.message))
    place: JsonDict = {"task": work.task.id, "repeat": work.repeat}
    score = Score(attempt=key, **place, score=None, ending="error", fault=fault.message)
    if fault.code not in _ITS_OWN:
        outage.excluded(fault, score, work.session.model_name)
    return score


def _note_aside(work: Work, key: str, why: str) -> JsonDict:
    """Write an attempt down that counts for nobody, and return its record."""
    session = work.session
    record = {
        "attempt": key,
        "task": work.task.id,
        "repeat": work.repeat,
        "phase": work.phase,
        "fault": redact(why),
        "scaffold": work.scaffold.digest,
        "model": session.model_name,
        "domain": session.domain.name,
    }
    session.journal.add("aside", **record)
    return record


def _lessons_for(scaffold: Scaffold, offers: LessonRetrieval | None) -> LessonRetrieval | None:
    return (
        offers if offers is not None and (offers.forced or scaffold.agent.memory.tokens) else None
    )


def _tells_lessons(told: LessonRetrieval | None) -> bool:
    """Whether an agent that recalls is told lessons too: not where it is tried what one is
    worth."""
    return told is None or not (told.forced or told.propensities)


def key_of(
    session: Session,
    scaffold: Scaffold,
    task: Task,
    repeat: int,
    offers: LessonRetrieval | None = None,
    *,
    image: str | None = None,
) -> str:
    """Return what an attempt is known by: what it would be made from.

    image: in place of what tells the task's container image, which is else pulled. Raises Fault
    when it cannot be had.
    """
    told = _lessons_for(scaffold, offers)
    memory = told.digest if told else ""
    if scaffold.agent.memory.recall:
        memory = digest([memory, session.recallable.digest, _tells_lessons(told)])
    if image is None:
        image = extras(session.domain).image(task)
    return attempt_key(
        scaffold,
        task,
        model=session.model_name,
        sandbox=f"{session.backend.name}@{image}" if image else session.backend.name,
        memory=memory,
        grader=extras(session.domain).grader or session.domain.name,
        repeat=repeat,
        near=session.near_key,
        tools=_listed_tools(session, scaffold, task),
    )


_LISTING = threading.Lock()


def _listed_tools(session: Session, scaffold: Scaffold, task: Task) -> str:
    """Return what tells the tools that MCP servers of the agent's, and those elsewhere, list: they
    are asked once in a run, with the first task for which that is wanted. '' without any."""
    agent = scaffold.agent
    if agent.action != "tools":
        return ""
    brought = extras(session.domain).servers(task).items()
    entries: JsonDict = {function_name(n): told for n, told in brought if isinstance(told, str)}
    entries |= {name: entry.model_dump() for name, entry in agent.mcp.items()}
    if not entries:
        return ""
    about = digest([entries, *(scaffold.tools.get(e.server, "") for e in agent.mcp.values())])
    with _LISTING:
        if about not in session.listed:
            try:
                offered = try_servers(scaffold, task, session.domain, session.backend)
                told = [f.native for f in offered.values() if f.server in entries]
                session.listed[about] = digest(sorted(told, key=str))
            except (BadInput, Fault) as e:  # the attempt ends by it
                session.listed[about] = e.code
        return session.listed[about]


def _key_or_fault(
    session: Session, scaffold: Scaffold, task: Task, repeat: int, offers: LessonRetrieval | None
) -> tuple[str, Fault | None]:
    """Return an attempt's key, and why the task's image cannot be had: the key is then one without
    it."""
    try:
        return key_of(session, scaffold, task, repeat, offers), None
    except Fault as e:
        return key_of(session, scaffold, task, repeat, offers, image=""), e


def count_new(
    session: Session,
    scaffold: Scaffold,
    tasks: Sequence[Task],
    repeats: Sequence[int] = (0,),
    offers: LessonRetrieval | None = None,
) -> int:
    """Return how many of these attempts the budget has not counted yet: a session before a kill may
    have begun some."""
    keys = (
        _key_or_fault(session, scaffold, task, repeat, offers)[0]
        for task in tasks
        for repeat in repeats
    )
    return sum(not session.ledger.has_begun(key) for key in keys)


def attempt_and_grade(
    session: Session,
    scaffold: Scaffold,
    task: Task,
    call: Call,
    folder: Path | None,
    offers: LessonRetrieval | None = None,
    ask: AskAgent | None = None,
) -> Experience:
    """Attempt and grade. folder: where its steps are written. ask: who is asked in the model's
    place: then nobody is told of it. Raises Fault for what is ours."""
    offers = _lessons_for(scaffold, offers)
    say = session.say if ask is None else lambda *_: None

    def on_step(step: Step) -> None:
        say("step", {"attempt": call.attempt, "task": task.id, "step": step})

    ask = ask or (session.ask if scaffold.agent.foreign else session.asking(task))
    given = scaffold, task, session.domain, session.backend, ask, call
    told: JsonDict = {
        "model": session.model_name,
        "folder": folder,
        "on_step": on_step,
        "offers": offers,
    }
    told["full"] = session.full
    if tokens := scaffold.agent.memory.recall:
        lessons = _tells_lessons(offers)
        state = session.recallable
        told["recall"] = session.recollection.asked_by(task, tokens, lessons=lessons, state=state)
    if scaffold.agent.foreign:
        kind = open_kind(scaffold.agent.action)
        trace = kind.attempt(*given, **told, stop=session.calls.stop)
    else:
        native = (
            scaffold.agent.takes_tools
            and isinstance(session.model, ToolCalling)
            and session.model.native_tools
        )
        trace = attempt(*given, **told, native=native)
    say("grading", {"attempt": call.attempt, "task": task.id})
    grade = session.domain.grade(task, trace, session.backend)
    good = isinstance(grade, Grade) and 0 <= grade.score <= 1
    expect(good, session.domain, "grade", grade, f"graded {task.id} with {grade!r}"[:250])
    experience = Experience(
        id=call.attempt,
        domain=session.domain.name,
        task=task.id,
        group=task.group,
        split=task.split,
        prompt=task.prompt,
        digest=scaffold.digest,
        trace=trace,
        grade=grade,
        run=call.run,
        trust=(trust := _trust_of(session, trace)),
        checked=trust in UNTRUSTED,
    )
    return masked(experience)  # what was handed in is graded as it is, and from here on is masked


def _trust_of(session: Session, trace: Trace) -> Trust:
    """Return the least trust of what the agent recalled: its words stand in the attempt."""
    ids = sorted({id for step in trace.steps for id in step.recalled})
    return least_trust(e for id in ids if (e := session.memory.get(id)) is not None)


def copy_in(session: Session, experience: Experience) -> None:
    """Put an experience of memory into the run folder, steps and all, so that the run can be read
    without memory."""
    if experience.id in session.journal.ended:
        return
    write_whole(experience, session.folder / "attempts" / experience.id)
    session.journal.add(
        "brought",
        attempt=experience.id,
        task=experience.task,
        split=experience.split,
        passed=experience.grade.passed,
    )


def remember(
    session: Session,
    experience: Experience,
    folder: Path,
    phase: str = "",
    *,
    in_memory: bool = True,
) -> Experience:
    """Write the graded attempt: to its folder, which makes it final, to memory, and to the journal.
    Returns it as it is known from now on."""
    _write(experience, folder)
    return note_end(session, experience, folder, phase, in_memory=in_memory)


def note_end(
    session: Session,
    experience: Experience,
    folder: Path,
    phase: str = "",
    *,
    in_memory: bool = True,
) -> Experience:
    """Write down an attempt that is final: in its folder, to memory and to the journal. Doing it
    again changes nothing there.

    Where memory has another attempt of the same key that went otherwise, this one gets an id of its
    own, and its folder that name: every attempt that was paid for is kept, and shown as itself.
    """
    key = experience.trace.attempt
    if session.replay is not None:  # memory was another when it was recorded
        experience = experience.model_copy(
            update={"id": session.replay.renamed.get(key, experience.id)}
        )
    experience = (
        session.memory.keep(experience) if in_memory else session.memory.identify(experience)
    )
    if folder.name != experience.id:
        folder = _rename(experience, folder)
    if in_memory and session.own_memory is not None and experience.split == "train":
        session.own_memory.add([experience])
    grade = experience.grade
    session.journal.add(
        "experience",
        attempt=experience.id,
        **({"key": key} if key != experience.id else {}),
        **({} if session.ledger.has_begun(key) else {"reused": True}),
        task=experience.task,
        split=experience.split,
        phase=phase,
        repeat=experience.trace.repeat,
        scaffold=experience.digest,
        model=session.model_name,
        domain=experience.domain,
        score=grade.score,
        passed=grade.passed,
        ending=experience.trace.ending,
    )
    if session.replay is not None:
        session.replay.check_grade(experience.id, grade.score, grade.passed)
    return experience


def _rename(experience: Experience, folder: Path) -> Path:
    """Put the folder of an attempt under the name of its id; what a kill left under that name was
    of the same attempt."""
    _write(experience, folder)
    target = folder.with_name(experience.id)
    with files.disk(target, files.RESUME):
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)
    return target


def _write(experience: Experience, folder: Path) -> None:
    """Write experience.json: without the steps, which have a file of their own, but with their
    number."""
    record = experience.model_dump(mode="json", exclude={"trace": {"steps"}})
    record["trace"]["steps"] = []
    record[STEPS] = len(experience.trace.steps)
    files.write(folder / "experience.json", seal(encode(record)), fix=files.RESUME)


def write_whole(experience: Experience, folder: Path) -> None:
    """Write an attempt's folder with its steps. The attempt has ended then: who asks for that
    attempt reads it back."""
    path = folder / "steps.jsonl"
    path.unlink(missing_ok=True)
    with Log(path) as lines:
        for step in experience.trace.steps:
            lines.append(step.model_dump(mode="json", by_alias=True, exclude={"schema_"}))
    _write(experience, folder)


def read_ended(session: Session, id: str, *, steps: bool = True) -> Experience | None:
    """Return an attempt that ended in this run, or None. What is lost or damaged in its folder is
    put back from memory.

    Raises BadInput (damaged) when memory does not have it.
    """
    folder = session.folder / "attempts" / id
    try:
        found = read_experience(folder, steps=steps)
        why = "gone"
    except BadInput as e:
        if (whole := session.memory.get(id)) is None:
            raise
        found = None
        why = e.message
    else:
        whole = session.memory.get(id) if found is None and id in session.journal.ended else None
    if whole is None:
        return found
    session.say("note", {"text": f"attempt {id} is put back from memory: {why}"})
    whole = mark_untrusted(whole)
    write_whole(whole, folder)
    return Experience.model_validate(whole)


def score_of(experience: Experience, work: Work, *, reused: bool = True) -> Score:
    """Return an attempt's score. reused: it was not made now."""
    return Score(
        attempt=experience.id,
        task=work.task.id,
        repeat=work.repeat,
        score=experience.grade.score,
        passed=experience.grade.passed,
        ending=experience.trace.ending,
        limit=experience.trace.limit,
        usage=experience.trace.usage,
        reused=reused,
    )


def read_experience(folder: Path, *, steps: bool = True) -> Experience | None:
    """Return an attempt's folder as an Experience, or None when the attempt has not ended.

    Raises BadInput (damaged) when its files are not as they were written.
    """
    try:
        files.refuse_odd(folder / "experience.json")
        raw = (folder / "experience.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        if (record := unseal(raw)) is None:
            raise ValueError("experience.json is not as it was written")
        count = record.pop(STEPS, None)
        if steps:
            record["trace"]["steps"] = found = list(read_steps(folder))
            if len(found) != (
                sum(1 for _ in Log(folder / "steps.jsonl").lines()) if count is None else count
            ):
                raise ValueError("steps.jsonl is not as it was written")
        return Experience.model_validate(record)
    except (ValueError, TypeError, KeyError) as e:
        run = short(folder.parents[1])
        raise BadInput(
            f"{short(folder)} is damaged: {str(e).splitlines()[0]}",
            fix=(
                f"recreate resume {run} puts it back from memory; what memory has not is attempted,"
                f" and paid, again after rm -r {short(folder)}"
            ),
            code="damaged",
        ) from None


def read_steps(folder: Path) -> Iterator[Step]:
    """Yield the steps that happened, also of an attempt that is still running or was killed;
    damaged ones are passed over."""
    for record in Log(folder / "steps.jsonl").read():
        with contextlib.suppress(ValidationError):
            yield Step.model_validate(record)


class _Out(Fault):
    """Ends what a model is asked. score: of the attempt that was one too many, which is excluded as
    those before it."""

    def __init__(self, message: str, score: Score, fix: str) -> None:
        super().__init__(message, fix=fix, code=OUTAGE)
        self.score = score


class _Beginning:
    """The first attempts of an agent that is a program, held back while all break in one way."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.cause = ""
        self.count = 0
        self.over = False
        self.held: list[tuple[Callable[[], Experience], Callable[[], object]]] = []

    def take(
        self, cause: str, write: Callable[[], Experience], note: Callable[[], object]
    ) -> list[Callable[[], Experience]]:
        """Take an attempt that ended, and return what is to be written now, it the last; [] where
        it is held back."""
        with self.lock:
            if self.over or not cause or cause != (self.cause or cause):
                self.over = True
                due = [each for each, _ in self.held]
                self.held = []
                return [*due, write]
            self.cause = cause
            self.count = self.count + 1
            self.held.append((write, note))
            return []

    def stop(self) -> list[Callable[[], object]]:
        """Return how to note those that are held, where they are enough to stop; they are not
        written any more."""
        with self.lock:
            if self.count < FIRST:
                return []
            notes = [note for _, note in self.held]
            self.held = []
            return notes

    def release(self) -> None:
        """Write those that are held: they were too few to say anything."""
        with self.lock:
            due = [each for each, _ in self.held]
            self.held = []
        for write in due:
            write()


class _Outage:
    """Counts attempts excluded in a row. beginning: the first attempts with the same model."""

    def __init__(self) -> None:
        self.beginning = _Beginning()
        self.row = 0
        self.lock = threading.Lock()

    def reset(self) -> None:
        with self.lock:
            self.row = 0

    def excluded(self, fault: Fault, score: Score, model: str) -> None:
        with self.lock:
            self.row += 1
            if self.row >= IN_A_ROW:
                raise _Out(
                    f"{self.row} attempts in a row with {model} were excluded for infrastructure"
                    f" failures; the last: {fault.message}",
                    score,
                    fault.fix or "mend that, then recreate resume RUN",
                ) from fault
