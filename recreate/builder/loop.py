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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.lint import problems, refuse
from recreate.agents.scaffold import BadEdit, Scaffold
from recreate.agents.workplace import try_servers
from recreate.api.errors import Fault, OutOfBudget
from recreate.api.paths import short
from recreate.api.ports import extras
from recreate.api.shapes import JsonDict
from recreate.api.types import Edit, digest
from recreate.builder import rounds
from recreate.builder.estimate import course
from recreate.builder.gates import find_limits
from recreate.builder.past import read_past
from recreate.builder.proposals import list_closed
from recreate.builder.review import Reviewer, list_changes
from recreate.builder.rounds import Build, BuildState, NoRoom
from recreate.builder.selection import Rater
from recreate.optimizers.investigator.create import create as write_seed
from recreate.runs.reader import BuildResult
from recreate.runs.session import Session
from recreate.storage import files

NODES = (rounds.attempt, rounds.propose, rounds.settle, rounds.review, rounds.decide)


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
    return _run(Build(session, seed), review)


def create(session: Session, start: Scaffold) -> Scaffold:
    """Return a seed for the session's domain, written by the optimizer's model from `start` and
    two train tasks.

    Raises BadInput, before anything is asked, where nothing could be kept in place of a seed that
    solves a task.
    """
    work = Build(session, start)
    work.judge.check_seed_is_worth()
    session.start()
    tasks = work.train[:2]
    key = digest(["create", start.digest, [t.id for t in tasks]])
    batch = work.proposals(key, start, [])
    domain = session.domain
    description = extras(domain).description or inspect.getdoc(type(domain)) or ""
    text = (
        "the optimizer writes a seed from the domain's description and two train tasks; run folder "
    )
    session.say("note", {"text": text + short(session.folder)})

    def ask() -> JsonDict:
        unfit = partial(_unfit, session)
        context = replace(batch.context(), validate=unfit)
        seed = write_seed(context, start, description, tasks, session.model_name)
        return {"edits": [e.model_dump(mode="json") for e in list_changes(start, seed, "search")]}

    made = batch.propose(ask, tasks=[task.id for task in tasks])
    session.journal.add("created", attempt=key, **made)
    seed = scaffolds.apply(start, map(Edit.model_validate, made["edits"]))
    work.history.commit(
        seed, start.digest, True, f"Create a seed for {domain.name} from {start.name}"
    )
    return seed.model_copy(update={"name": f"created-{domain.name}"})


def _unfit(session: Session, scaffold: Scaffold, edits: Sequence[Edit]) -> list[str]:
    """Return what is wrong with edits that come from no experience."""
    try:
        child = scaffolds.apply(scaffold, edits)
    except BadEdit as e:
        return [e.message]
    wrong = list_closed(scaffold, child) or problems(child)
    return wrong or session.scanner.leaks(edits, scaffold)


def _run(work: Build, reviewer: Reviewer | None) -> BuildResult:
    """Go through the rounds, from the last checkpoint."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command

    session = work.session
    settings = work.session.settings
    session.start()
    work.judge.take()
    graph = StateGraph(BuildState)
    for node in NODES:
        graph.add_node(node.__name__, partial(node, work))
    for start, to in ((START, "attempt"), ("attempt", "propose"), ("propose", "settle")):
        graph.add_edge(start, to)
    graph.add_edge("review", "decide")
    ways: Any = {name: name for name in ("review", "settle", "attempt")} | {"end": END}
    for name in ("settle", "decide"):
        graph.add_conditional_edges(name, partial(rounds.choose_next, work), ways)
    limit = 1000 * (1 + settings.rounds)
    config: Any = {"configurable": {"thread_id": "build"}, "recursion_limit": limit}
    status = "done"
    waiting = None
    top = ""
    with _checkpoints(work, graph, config) as compiled:
        earlier: BuildState = compiled.get_state(config).values
        step: Any = None if earlier else {"round": 0, "scaffold": work.seed.digest}
        _announce(work, earlier)
        if settings.rounds == 0:
            work.judge.attempt(work.seed)
        elif not earlier or rounds.choose_next(work, earlier) != "end":
            try:
                state = compiled.invoke(step, config, durability="sync")
                while asked := state.get("__interrupt__"):
                    offer = asked[0].value["offer"]
                    answer = work.desk.answer(offer, reviewer)
                    if answer is None:
                        status = "review"
                        waiting = work.desk.read_offer(offer)
                        break
                    state = compiled.invoke(Command(resume=answer), config, durability="sync")
            except OutOfBudget as e:
                status = "budget"
                session.say("budget", {"text": e.message})
            except NoRoom as e:
                top = str(e)
                if work.kept_ids:
                    session.say("note", {"text": f"{top}: the build ends"})
                else:
                    status = "ceiling"
                    session.say("ceiling", {"text": top})
    best = work.best
    chain = [work.scaffold(id) for id in work.kept_ids]
    searched = work.judge.conclude(chain, paused=status == "review")
    if searched.verdict is None:
        verdict = work.judge.compare(work.seed, best)
    else:
        verdict = searched.verdict
        if searched.repeats and status == "done":  # the budget left no look
            status = "budget"
        best = work.scaffold(searched.agent) if searched.agent else work.seed
    return BuildResult(
        status=status,
        seed=work.seed,
        scaffold=best,
        verdict=verdict.model_copy(update={"reason": top})
        if top and not searched.agent
        else verdict,
        revisions=tuple(work.revisions),
        waiting=waiting,
    )


def _announce(work: Build, earlier: BuildState) -> None:
    """Say what the build will do, and how many of its candidates can be decided."""
    session = work.session
    settings = session.settings
    count = len(work.validation)
    ahead = course(work.settings, session.models.optimizer_price)
    first = not earlier and settings.rounds
    if first and (text := find_limits(settings.gate, count, settings.rounds)):
        session.say("note", {"text": text})
    facts = {"pool": len(work.train), "course": ahead, "over": earlier.get("round", 0)}
    session.say("build", {"train": work.settings.train, "validation": count, **facts})
    if first and session.replay is None:
        rater = Rater(work.seed.name, work.seed.digest, session.model_name)
        where, space = session.workspace, settings.memory.namespace
        known = read_past(where, session.domain, work.validation, rater, session.models, space)
        work.say_estimate(known, "this build takes")


@contextmanager
def _checkpoints(work: Build, graph: Any, config: Any) -> Iterator[Any]:
    """Yield the graph with its checkpoints in a file; a damaged one is begun anew. Raises Fault
    when the disk is full."""
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver

    file = work.session.folder / "checkpoint.sqlite"

    def connect() -> tuple[sqlite3.Connection, Any]:
        file.touch(files.mode_in(file.parent))
        connection = sqlite3.connect(file, check_same_thread=False)
        return connection, graph.compile(checkpointer=SqliteSaver(connection))

    def is_sound() -> bool:
        if connection.execute("pragma integrity_check").fetchone() != ("ok",):
            return False
        values = compiled.get_state(config).values
        return not values or work.matches_journal(values)

    with disk_of(file):
        connection, compiled = connect()
    try:
        with disk_of(file):
            try:
                good = is_sound()
            except sqlite3.OperationalError:
                raise
            except Exception:  # whatever a decoder makes of wrong bytes
                good = False
            if not good:
                text = f"{file.name} is damaged: the build goes on from what its journal says"
                work.session.say("note", {"text": text})
                connection.close()
                for end in ("", "-wal", "-shm", "-journal"):
                    file.with_name(file.name + end).unlink(missing_ok=True)
                connection, compiled = connect()
            yield compiled
    finally:
        connection.close()


@contextmanager
def disk_of(file: Path) -> Iterator[None]:
    """Turn what SQLite says of a full disk, into the Fault that other files raise."""
    import sqlite3

    try:
        yield
    except sqlite3.OperationalError as e:
        if found := files.misplaced(file):
            raise found from e
        raise Fault(f"cannot write {file}: {e}", fix=files.RESUME, code="disk") from e
