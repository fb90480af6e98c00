"""What the commands do, as functions: `recreate.build`, `recreate.run`, `recreate.bench`.

Every part may be a name, as on the command line, or an object of your own that fits its port; every
setting has the name of its flag (`models.timeout` is written `models__timeout`). What is paid for
is on disk, as with the commands.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from recreate.agents import scaffold as scaffolds
from recreate.agents.history import History
from recreate.agents.scaffold import Scaffold
from recreate.agents.workplace import try_servers
from recreate.api import paths
from recreate.api.errors import BadInput, Fault, Interrupted
from recreate.api.plugins import names
from recreate.api.ports import (
    Domain,
    Embedder,
    Memory,
    MemoryPolicy,
    Model,
    Optimizer,
    Preparable,
    SandboxBackend,
)
from recreate.api.registry import find
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.theirs import boundary, spelled
from recreate.api.types import Experience, Revision, Split, Task, Verdict
from recreate.builder.estimate import refuse_if_too_small
from recreate.builder.learning import Learning
from recreate.builder.loop import build as build_loop
from recreate.builder.loop import create
from recreate.builder.measure import measure, record_opening, warn_of_faults
from recreate.builder.publish import Kept, left_alone, publish, standing, stranger, target_of
from recreate.builder.review import Reviewer
from recreate.builder.selection import CREATE, find_task, fitted, named_or_default, selected
from recreate.domains.rows.domain import RowDomain
from recreate.runs import settings as settings_
from recreate.runs.attempts import attempt_task, read_ended
from recreate.runs.folder import run_folder
from recreate.runs.opening import Parts, Say, silent
from recreate.runs.reader import BuildResult, Run, find_agent
from recreate.runs.replay import Replay
from recreate.runs.results import BenchResult
from recreate.runs.session import Session, open_session
from recreate.runs.settings import AgentCaps, Settings, load_run
from recreate.storage import files
from recreate.viewer import html, markdown
from recreate.viewer.facts import RunFacts
from recreate.viewer.text import visible

_OLD = {"optimizer_model": "models__optimizer", "policy": "memory"}
"""Names that arguments had; taken for one release."""
_ADDRESS = {
    "models__optimizer": "models.optimizer",
    "embedder": "memory.embedder",
    "recall": "memory.recall",
    "memory": "memory.policy",
}
"""Arguments whose setting has another name."""


@dataclass(frozen=True)
class Outcome:
    """What a build ended with.

    run        the run folder: reports, lineage, every attempt
    path       the agent's folder, scaffolds/NAME (`name=`, else the domain's); written when
               something was kept, or when there was none
    status     done | budget | review | ceiling: the seed leaves no room for an outcome that the
               gate could keep
    scaffold   the best version, which is `seed` when nothing was kept
    verdict    how `scaffold` and `seed` compare on validation: scores 0..1, `.better`
    revisions  what was judged, kept and dropped alike, in order
    place      where the result is found again: `path`, or RUN:DIGEST when what stands there
               `stays`, since a person changed it meanwhile
    waiting    the candidate that a person must see first, with status `review`
    kept       what was put into the folder, and what stood there before; None when nothing was
    """

    run: Path
    path: Path
    place: str
    stays: bool
    status: str
    seed: Scaffold
    scaffold: Scaffold
    verdict: Verdict
    revisions: tuple[Revision, ...]
    record: JsonMap
    """The object that `recreate build --json` prints."""
    waiting: Revision | None = None
    kept: Kept | None = None


def build(
    domain: str | Domain = "swe",
    *,
    model: str | Model = "",
    optimizer: str | Optimizer | Callable[..., Optimizer] = "",
    models__optimizer: str | Model = "",
    scaffold: str | Path | Scaffold = "",
    sandbox: str | SandboxBackend = "",
    embedder: str | Embedder = "",
    memory: str | Callable[..., MemoryPolicy] = "",
    recall: str | Memory = "",
    workspace: str | Path | None = None,
    review: bool | Reviewer = False,
    say: Say = silent,
    **settings: Any,
) -> Outcome:
    """Create an agent for a domain from experience: what `recreate build` does.

    domain           its name, `module:Class`, or an object that fits the port; so for the other
                     parts
    optimizer        an Optimizer, or a class or function that makes one from OptimizerContext
    scaffold         the agent to start from: itself, its folder or name, "create"; "": the domain's
                     own, else a seed
    memory           the policy, as `--memory`: who learns lessons and offers them, recreate,
                     playbook, mistakes, reasoningbank, workflows, or what makes a MemoryPolicy from
                     PolicyContext; "": none
    recall           who recalls for the optimizer; "": the workspace's own memory
    review           asked before a revision is kept (docs/review.md); True waits there, with status
                     `review`
    workspace        the folder that holds scaffolds/, memory/ and runs/; None: the one around the
                     current folder
    say              progress, called from several threads: say(event, facts)
    settings         the flags of the command: budget="5usd", rounds=2, train=8, validation=20,
                     jobs=4, out="runs/mine"

    With `out` naming a run folder that holds a part of the same build, it goes on there and pays
    for nothing twice. Objects are the caller's: a model that was given is not closed.

    Raises, before anything is spent, BadInput for what the caller can mend (a part that does not
    fit its port, an unknown setting, another build in `out`); later Refused when an endpoint
    refuses for good, Fault for the infrastructure, Interrupted after Ctrl-C in the main thread. A
    budget that is used up is not raised: the status says it. In every case what was paid for is in
    the run folder.
    """
    settings = {"review": True, **settings} if review else settings
    named: JsonDict = {
        "domain": domain,
        "model": model,
        "sandbox": sandbox,
        "scaffold": scaffold,
    }
    old = {name: settings.pop(name) for name in _OLD if name in settings}
    for name in old:
        warnings.warn(f"{name}= is called {_OLD[name]}= now", DeprecationWarning, stacklevel=2)
    if isinstance(memory, Memory):
        warnings.warn(
            "a Memory that recalls is given as recall= now", DeprecationWarning, stacklevel=2
        )
        memory, recall = "", memory
    models__optimizer = old.get("optimizer_model", models__optimizer)
    memory = old.get("policy", memory)
    parts = {
        "optimizer": optimizer,
        "models__optimizer": models__optimizer,
        "embedder": embedder,
        "memory": memory,
    }
    named |= {_ADDRESS.get(name, name): part for name, part in (parts | {"recall": recall}).items()}
    with boundary(), _started(named, workspace, say, settings) as (session, where):
        built = improve(session, where, scaffold, review=review if callable(review) else None)
        folder = session.folder
        name = session.domain.name
    return deliver(where, folder, name, built)


def run(
    scaffold: str | Path | Scaffold,
    task: str | Task,
    domain: str | Domain = "",
    *,
    model: str | Model = "",
    sandbox: str | SandboxBackend = "",
    workspace: str | Path | None = None,
    say: Say = silent,
    **settings: Any,
) -> Experience:
    """Let one agent attempt one task, and grade it: what `recreate run` does.

    scaffold: itself, its folder or name, RUN:DIGEST. task: its id, or a Task of the domain. domain:
    without one, that which the task's id begins with. The rest as for `build`.

    Returns the graded attempt: `.grade` (score 0..1, passed, the grader's words), `.trace` (its
    steps, what it cost). Raises BadInput for an unknown task, Fault when the attempt was lost to
    the infrastructure three times, OutOfBudget.
    """
    named = {"domain": domain, "model": model, "sandbox": sandbox}
    if not isinstance(task, str | Task):
        raise BadInput(
            f"task={task!r} is no task",
            fix="its id, or a recreate.Task of the domain",
            code="unknown-task",
        )
    id = task if isinstance(task, str) else task.id
    with (
        boundary(),
        _started(named, workspace, say, settings, prefix="run", scaffold=scaffold, task=id) as (
            session,
            where,
        ),
    ):
        return attempt_one(session, starting(session.settings, where, scaffold), id)


def bench(
    scaffold: str | Path | Scaffold | Sequence[str | Path | Scaffold],
    domain: str | Domain = "swe",
    *,
    split: Split = "validation",
    tasks: int | Sequence[str] = 0,
    model: str | Model = "",
    sandbox: str | SandboxBackend = "",
    workspace: str | Path | None = None,
    say: Say = silent,
    **settings: Any,
) -> list[BenchResult]:
    """Measure scaffolds on a split, a result each, in their order: what `recreate bench` does.

    tasks: at most so many, 0 for all; or their ids. repeats=3 attempts each task three times. The
    rest as for `build`. split="test" opens the test tasks, which is written down in the workspace
    and counted. Raises BadInput, Fault, Refused, OutOfBudget; with `out` the next call goes on.
    """
    several = [scaffold] if isinstance(scaffold, str | Path | Scaffold) else list(scaffold or ())
    if not several:
        raise BadInput(
            "there is no scaffold to measure",
            fix='scaffold="seed", or a list of them',
            code="no-scaffold",
        )
    named = {"domain": domain, "model": model, "sandbox": sandbox}
    most = tasks if isinstance(tasks, int) else 0
    settings = settings if isinstance(tasks, int) else {"tasks": tuple(tasks), **settings}
    if {"difficulty", "select__difficulty"} & settings.keys() and isinstance(
        several[0], str | Path
    ):
        settings = {"scaffold": str(several[0]), **settings}  # whose pass rates it goes by
    with (
        boundary(),
        _started(named, workspace, say, settings, prefix="bench-{domain}") as (session, where),
    ):
        agents = [starting(session.settings, where, each) for each in several]
        return [measure(session, agent, split, most) for agent in agents]


# ------------------------------------------------------------------------------- the parts that
# commands share


def improve(
    session: Session,
    where: Path,
    scaffold: str | Path | Scaffold = "",
    *,
    review: Reviewer | None = None,
) -> BuildResult:
    """Turn the loop in an opened session, from its seed; the run folder remembers which one that
    was."""
    if session.journal.runs - {session.run}:
        raise BadInput(
            f"{paths.short(session.folder)} was begun with other settings than its settings.toml"
            " has now",
            fix="put them back, or give another folder with --out",
            code="another-run",
        )
    fit = fitted(session.settings, session.domain, session.memory.held_out, selected(session))
    session = replace(session, settings=fit)
    seed = _seed(session, where, scaffold)
    if seed.agent.foreign and not any(map(seed.agent.declares, seed.files)):
        raise BadInput(
            f"{seed.name} declares no texts, so there is nothing of it to improve",
            fix="--texts 'prompts/*.md', or `texts` in its agent.toml",
            code="no-texts",
        )
    _refuse_if_too_small(session, seed)
    if session.replay is not None:
        session.replay.check_agent(seed.name, seed.digest)
    session.say("seed", {"scaffold": seed, "session": session})
    built = build_loop(session, seed, review=review)
    for name in names("ending"):
        find("ending", name)(session, built)
    session.journal.add("end", status=built.status, scaffold=built.scaffold.digest)
    if session.replay is not None:
        session.replay.check_end(built.scaffold.digest)
    return built


def deliver(where: Path, folder: Path, domain: str, built: BuildResult) -> Outcome:
    """Put the agent into scaffolds/NAME and write the reports; after the session is closed.

    An agent there that a person changed while the build ran stays as it stands: then `stays` is
    True.
    """
    seen = Run(folder)
    facts = RunFacts(seen, built)
    target = target_of(seen.settings.name or domain, where)
    agent = built.scaffold.model_copy(update={"name": target.name})
    place = str(target)
    stays = ""
    kept = None
    if built.scaffold.digest != built.seed.digest or not target.exists():
        if stays := left_alone(target, seen):
            place = f"{paths.short(folder)}:{agent.digest}"
        else:
            kept = publish(agent, folder, target, visible(markdown.readme(agent, seen, built)))
    said: JsonDict = {"stays": stays} if stays else {}
    if kept is not None and stranger(kept.before, seen):
        # of another build, or a person's: the run's history has it now
        said["replaced"] = kept.before
    files.write(folder / "report.md", visible(markdown.report(facts)))
    html.write(seen, built)
    return Outcome(
        run=folder,
        path=target,
        place=place,
        stays=bool(stays),
        status=built.status,
        seed=built.seed,
        scaffold=built.scaffold,
        verdict=built.verdict,
        revisions=built.revisions,
        record={**markdown.result(facts, place), **said},
        waiting=built.waiting,
        kept=kept,
    )


def attempt_one(session: Session, agent: Scaffold, task: str) -> Experience:
    """Make one graded attempt in an opened session, and return it."""
    known = task_of(session, task)
    session.memory.hold_out(())
    split = session.memory.held_out.split_of(known)
    if session.replay is not None:
        session.replay.check_agent(agent.name, agent.digest)
    session.journal.add("agent", name=agent.name, scaffold=agent.digest)
    wanted = known.model_copy(update={"split": split})
    offers = Learning(session).offers()
    warn_of_faults(session, agent)
    try_servers(agent, wanted, session.domain, session.backend)
    session.start()
    if split == "test":
        record_opening(session, agent, [wanted], 1, offers)
    score = attempt_task(session, agent, wanted, 0, split, offers=offers)
    experience = read_ended(session, score.attempt)
    if experience is None:
        raise Fault(score.fault, fix="mend that and run it again", code="set-aside")
    return experience


def task_of(session: Session, id: str) -> Task:
    """Raises BadInput when it is not there."""
    return find_task(session.domain.tasks(), id)


def check_scaffold(folder: Path, where: Path, scaffold: str | Path | Scaffold) -> None:
    """Raise BadInput for one that is not there, before a run folder is made or a model fetched."""
    if scaffold and scaffold != CREATE and not (folder / "seed").is_dir():
        find_scaffold(scaffold, where)


def prepare_model(
    model: Model, progress: Any = None, say: Callable[[str], None] = lambda text: None
) -> None:
    """Let a model that must be fetched or started do so now, and not inside its first call."""
    if isinstance(model, Preparable):
        model.prepare(progress or (lambda done, total: None), say)


def _seed(session: Session, where: Path, scaffold: str | Path | Scaffold) -> Scaffold:
    folder = session.folder / "seed"
    if not folder.is_dir():
        wanted = scaffold or session.settings.scaffold
        if wanted == CREATE:
            start = starting(session.settings, where, "seed")
            _refuse_if_too_small(session, start)
            chosen = made_of = create(session, start)
        elif session.replay is not None and not wanted:
            chosen = made_of = _recorded(session.replay)
        else:
            who = (where, wanted, session.domain.name, session.model_name)
            chosen = starting(session.settings, *who)
            made_of = starting(session.settings.model_copy(update={"limits": AgentCaps()}), *who)
        target = target_of(session.settings.name or session.domain.name, where)
        stood = standing(target)
        record = {"name": chosen.name, "scaffold": chosen.digest}
        # killed right after it
        if not any(record.items() <= r.items() for r in session.journal.records("seed")):
            from_ = {"made_of": made_of.digest} if made_of.digest != chosen.digest else {}
            session.journal.add("seed", **record, stood=stood, **from_)
        if stood not in ("", chosen.digest, made_of.digest):
            text = (
                f"{paths.short(target)} holds {stood}, and this build begins from {chosen.name}"
                f" {chosen.digest}: "
            )
            text += (
                "what it makes takes that place (recreate keep brings it back); --name NAME puts it"
                " beside instead"
            )
            session.say("note", {"text": text})
        scaffolds.save(chosen, folder)
    begun = next(session.journal.records("seed"), None)
    if begun is None:
        return scaffolds.load(folder)
    try:
        seed: Scaffold | None = scaffolds.load(folder)
    except BadInput:
        seed = None
    if seed is None or seed.digest != begun["scaffold"]:
        seed = History(session.folder / "scaffold.git").read(begun["scaffold"])
        session.say(
            "note",
            {"text": f"{paths.short(folder)} was changed since the build began; it is put back"},
        )
        scaffolds.save(seed, folder)
    return seed.model_copy(update={"name": begun["name"]})


def _refuse_if_too_small(session: Session, seed: Scaffold) -> None:
    """Refuse a budget in which no build of this agent fits; a replay's optimizer may be gone, and
    what it takes is not known then."""
    if session.replay is None:
        prices = session.price, session.models.optimizer_price
        refuse_if_too_small(session.settings, seed, *prices)


def _recorded(replay: Replay) -> Scaffold:
    """Return the agent that a recorded build began with. Raises BadInput where the recording has
    none."""
    if (seed := replay.load_seed()) is None:
        raise BadInput(
            f"the recording {paths.short(replay.folder)} has no agent that a build began with",
            fix="replay it with the command it is of",
            code="no-scaffold",
        )
    return seed


@contextmanager
def stopping(
    session: Session,
    go_on: str,
    signals: Sequence[signal.Signals] = (),
    told: Callable[[str], None] | None = None,
    at_once: Callable[[str], NoReturn] | None = None,
) -> Iterator[None]:
    """Let Ctrl-C stop the work cleanly: the calls in flight are waited for. A second one raises
    KeyboardInterrupt, for which the threads that wait for a call are still joined.

    signals: what to take over; without any, SIGINT where nobody else has taken it. Only the main
    thread can. at_once: ends the process at the second one instead, told what to type; it is called
    in a signal handler. Raises Interrupted whose fix is `go_on`.
    """

    def stop(number: int, frame: object) -> None:
        if not session.started:  # nothing is in flight: a model is being fetched, at most
            raise KeyboardInterrupt
        if session.calls.stop.is_set():
            if at_once is not None:
                at_once(go_on)
            raise KeyboardInterrupt
        session.calls.stop.set()
        if told is not None:
            told(
                "stopping: the calls in flight are waited for, and answers that came are graded;"
                " Ctrl-C again stops at once"
            )

    if not signals and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signals = (signal.SIGINT,)
    main = threading.current_thread() is threading.main_thread()
    old = {number: signal.signal(number, stop) for number in signals} if main else {}
    try:
        yield
    except Interrupted:
        raise Interrupted(
            f"stopped after {session.ledger.attempts} attempts; all that ended is on disk",
            fix=go_on,
        ) from None
    except KeyboardInterrupt:
        if session.started:
            raise
        raise Interrupted("before anything was attempted", fix=go_on) from None
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def _started(
    named: JsonMap,
    workspace: str | Path | None,
    say: Say,
    settings: JsonMap,
    prefix: str = "",
    scaffold: str | Path | Scaffold = "",
    task: str = "",
) -> Iterator[tuple[Session, Path]]:
    """Open a session of the parts named, by their settings' addresses; yield it and the workspace.

    scaffold, task: what must be there, besides what the settings name.
    """
    where = Path(workspace).expanduser().resolve() if workspace else paths.workspace()
    for key, part in {**named, "scaffold": named.get("scaffold", scaffold)}.items():
        if part is None:
            name = {address: name for name, address in _ADDRESS.items()}.get(key, key)
            raise BadInput(
                f"{name}=None names nothing",
                fix=f"a name or an object; without {name}= one is chosen",
            )
    if not callable(say):
        raise BadInput(
            f"say={say!r} cannot be called", fix="def say(event, facts): ...", code="misfit"
        )
    given = {
        key: part for key, part in named.items() if not isinstance(part, str | Path | Scaffold)
    }
    flags = {key: _spelling(part) for key, part in named.items() if key in given or str(part)}
    flags |= {key.replace("__", "."): value for key, value in settings.items()}
    loaded = settings_.load(where, flags).attempting(task)
    folder = run_folder(
        where,
        loaded.model_copy(update={"domain": prefix.format(domain=loaded.domain) or loaded.domain}),
    )
    parts = Parts(
        domain=given.get("domain"),
        model=given.get("model"),
        optimizer=given.get("optimizer"),
        optimizer_model=given.get("models.optimizer"),
        backend=given.get("sandbox"),
        embedder=given.get("memory.embedder"),
        memory=given.get("memory.recall"),
        policy=given.get("memory.policy"),
    )
    check_scaffold(folder, where, scaffold or named.get("scaffold") or loaded.scaffold)
    resume = (folder / "settings.toml").exists()
    if resume:
        _refuse_another(folder, loaded)
    fresh = not folder.exists()
    session = open_session(
        loaded,
        where,
        folder,
        say=boundary(anything=True)(say),
        resume=resume,
        parts=parts,
        command="" if prefix else "build",
        ready=prepare_model,
    )
    with (
        session.closing(fresh),
        stopping(session, f"the same call with out={str(folder)!r} goes on"),
    ):
        yield session, where


def _spelling(part: Any) -> str:
    """Return how a part is written in settings.toml: an object by its class, a scaffold by its
    digest."""
    if isinstance(part, Scaffold):
        return f"{part.name}@{part.digest}"
    if isinstance(part, RowDomain):
        return part.name
    return str(part) if isinstance(part, str | Path) else spelled(part)


def _refuse_another(folder: Path, loaded: Settings) -> None:
    """Raises BadInput when `folder` holds a run with other settings: its replies would not be found
    again."""
    known = load_run(folder)
    if not loaded.optimizer:  # it was chosen then, and written down
        loaded = loaded.model_copy(update={"optimizer": known.optimizer})
    if not loaded.memory.is_named:
        loaded = loaded.learning(known.memory.policy)
    for name, (then, now) in settings_.differing(known, loaded).items():
        raise BadInput(
            f"{paths.short(folder)} holds a run with {name} = {then!r}, and this is {now!r}",
            fix="give the settings it was begun with, or another out=",
            code="another-run",
        )


def starting(
    settings: Settings, where: Path, named: str | Path | Scaffold, domain: str = "", model: str = ""
) -> Scaffold:
    """Return the agent to start from, with the limits that the settings give in place of its own.
    '' names the domain's own, else a seed for the model."""
    return named_or_default(
        settings, find_scaffold(named, where) if named else None, domain, where, model
    )


def find_scaffold(named: str | Path | Scaffold, where: Path) -> Scaffold:
    """Return a scaffold itself, or by folder, name or RUN:DIGEST."""
    return named if isinstance(named, Scaffold) else find_agent(str(named), where)
