"""The parts of one run, put together: what every verb that costs something is handed.

`open_session` finds the parts by name; whoever writes Python can also make a `Session` of their own
parts.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from recreate.agents.guards.leaks import Scanner
from recreate.agents.progress import AskAgent
from recreate.api import paths, plugins, registry
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import (
    AsksModel,
    Domain,
    Embedder,
    Hit,
    Memory,
    MemoryPolicy,
    Model,
    Optimizer,
    Price,
    SandboxBackend,
    TaskQuestion,
    extras,
)
from recreate.api.registry import fit, fit_tasks
from recreate.api.theirs import all_are, expect, spelled
from recreate.api.types import Call, Lesson, Message, Reply, Split, Task, digest
from recreate.memory.held_out import lacking
from recreate.models.replies import Answerer, Replies, SharedReplies, folder_of
from recreate.runs import settings as settings_
from recreate.runs.alone import ask_judge
from recreate.runs.budget import Budget, Ledger
from recreate.runs.calls import Calls
from recreate.runs.defaults import with_defaults
from recreate.runs.journal import Journal, passed_over
from recreate.runs.recall import READER, Recallable, Recollection
from recreate.runs.replay import Replay, claim, pack
from recreate.runs.settings import TRUSTED, Settings, recorded_text, settings_text
from recreate.storage import files
from recreate.storage.log import Log, now
from recreate.storage.redact import redact, redacted

if TYPE_CHECKING:
    from recreate.memory.store import ExperienceStore

log = logging.getLogger("recreate")

Say = Callable[[str, dict[str, Any]], None]
"""Where progress goes: (event, facts). The CLI shows it; a library user may ignore it."""


def silent(event: str, facts: dict[str, Any]) -> None:
    """Say nothing."""


Ready = Callable[[Model], None]
"""Lets a model be fetched and started that must be: `Session.start` tells it of each."""


def as_it_is(model: Model) -> None:
    """Leave a model to its first call."""


@dataclass(frozen=True)
class Parts:
    """Parts that are objects already and need not be found by name. Who made them closes them.

    optimizer: an object with `propose`, or what makes one, from its context or from nothing;
    policy: the same of a MemoryPolicy.
    """

    domain: Domain | None = None
    backend: SandboxBackend | None = None
    model: Model | None = None
    optimizer_model: Model | None = None
    optimizer: Optimizer | Callable[..., Optimizer] | None = None
    embedder: Embedder | None = None
    memory: Memory | None = None
    policy: Callable[..., MemoryPolicy] | None = None


@dataclass(frozen=True)
class OpenedModels:
    """Who answers in a run, and for how much. judge: of a domain that asks one; note: what to tell
    of the choice."""

    model: Model
    price: Price
    optimizer_model: Model
    optimizer_price: Price
    note: str = ""
    judge: tuple[Model, Price] | None = None

    def each(self) -> list[Model]:
        """The agent's model, and the optimizer's and the judge's where they are others."""
        every = [self.model, self.optimizer_model, *([self.judge[0]] if self.judge else [])]
        return list({id(model): model for model in every}.values())

    def close(self, given: Parts = Parts()) -> None:
        """Close those that were opened for the run, whatever fails: who gave a model closes it."""
        with ExitStack() as stack:
            for model in self.each():
                if model is not given.model and model is not given.optimizer_model:
                    stack.callback(model.close)

    def answerers(self) -> dict[str, Answerer]:
        """Who answers, by role; the optimizer's and the judge's only where they are others."""
        found = {"agent": Answerer.of(self.model, self.price)}
        if self.optimizer_model is not self.model:
            found["optimizer"] = Answerer.of(self.optimizer_model, self.optimizer_price)
        if self.judge is not None and self.judge[0] is not self.optimizer_model:
            found["judge"] = Answerer.of(*self.judge)
        return found


@dataclass(frozen=True)
class Session:
    """Settings and parts of a run. Close it when done: it stops child servers and releases the
    folder.

    model_name   what attempts are known by; another than the model's own where its weights change
                 under one name
    own_memory   a user's Memory, asked in place of the workspace's; its hits are held against the
                 registry all the same
    replay       the run that is replayed; None for none
    """

    settings: Settings
    workspace: Path
    folder: Path
    run: str
    domain: Domain
    backend: SandboxBackend
    model: Model
    model_name: str
    price: Price
    optimizer_model: Model
    optimizer_price: Price
    memory: Any
    journal: Journal
    ledger: Ledger
    calls: Calls
    optimizer: Callable[..., Optimizer]
    policy: Callable[..., MemoryPolicy]
    policy_name: str = "none"
    optimizer_settings: BaseModel | None = None
    """What the optimizer has of its own, as its `Config` made it."""
    say: Say = silent
    own_memory: Memory | None = None
    replay: Replay | None = None
    given: Parts = field(default_factory=Parts)
    judge: tuple[Model, Price] | None = None
    """Who judges answers, of a domain that asks a model while it grades."""
    ready: Ready = as_it_is
    started: set[int] = field(default_factory=set)
    """The models that are ready, by their identity; of a session that was made from this one
    too."""

    def start(self) -> None:
        """Let its models be fetched and started now: all that could be refused without one was
        looked at, and a first call must not wait for that. Doing it again changes nothing."""
        new = [model for model in self.models.each() if id(model) not in self.started]
        for model in new:
            self.ready(model)
        self.started.update(map(id, new))

    def with_model(self, model: Model, name: str = "", price: Price | None = None) -> Session:
        """The same run with another model for its agents, known by `name`. Closing the model is the
        caller's."""
        return replace(self, model=model, model_name=name or model.name, price=price or self.price)

    def with_domain(self, settings: Settings) -> Session:
        """The same run with the tasks that `settings` name. Where they are judged by a model, it is
        this run's judge, else the optimizer's model."""
        domain = open_domain(settings, self.workspace, self.backend)
        fit_tasks(domain)
        return replace(self, settings=settings, domain=domain).judged()

    def judged(self) -> Session:
        """The same, with a domain that asks its judge, where it wants one."""
        if not (isinstance(self.domain, AsksModel) and self.domain.asks_model):
            return self
        judge = self.judge or (self.optimizer_model, self.optimizer_price)
        ask = ask_judge(self.calls, judge, self.patience())
        return replace(self, domain=self.domain.judged_by(judge[0].name, ask))

    @property
    def models(self) -> OpenedModels:
        """Those that answer in this run."""
        return OpenedModels(
            self.model, self.price, self.optimizer_model, self.optimizer_price, judge=self.judge
        )

    def tasks(self, split: Split, *, needed: bool = True) -> list[Task]:
        """The domain's tasks of a split but for those that the workspace holds out as another one,
        and those for which this machine lacks something; both are said.

        needed: raises BadInput when none is left: `held-out`, or `no-tasks` for a domain that has
        none.
        """
        held = self.memory.held_out
        self.memory.hold_out(())
        tasks, left = held.usable(self.domain, split)
        if needed and not tasks:
            raise held.refuse_empty(self.domain, split)
        if left:
            some = ", ".join(t.id for t in left[:3]) + (", ..." if left[3:] else "")
            text = (
                f"{len(left)} of {len(tasks) + len(left)} {split} tasks are left out, since"
                f" {paths.short(held.path)} "
            )
            self.say(
                "note", {"text": f"{text} holds their groups out as validation or test: {some}"}
            )
        without = lacking(self.domain, split)
        for why, count in Counter(without.values()).items():
            some = next(task for task, because in without.items() if because == why)
            self.say("note", {"text": f"{count} {split} tasks are left out ({some} is one): {why}"})
        return list(tasks)

    @cached_property
    def scanner(self) -> Scanner:
        """What no edit or lesson may carry: all that tasks say, of every split, their answers and
        hidden tests too, and what memory holds of tasks that were imported. Read once; what is not
        known of answers is said.
        """
        tasks = {t.id: t for t in self.domain.tasks()}
        hidden, unknown = dict[str, list[str]](), list[str]()
        for task in tasks.values():
            try:
                hidden[task.id] = _hidden(self.domain, task)
            # a stranger's domain: an answer that cannot be had must not stop a build
            except Exception as e:
                unknown.append(
                    f"{task.id}: {str(e).splitlines()[0] if str(e) else type(e).__name__}"
                )
                if isinstance(e, Fault):
                    break  # the next one would fail as well, and take as long
        if unknown or len(hidden) < len(tasks):
            text = (
                f"the answers of {len(tasks) - len(hidden)} of {len(tasks)} tasks are not known"
                f" here ({unknown[0]}): "
            )
            self.say(
                "note", {"text": text + "edits are scanned for what these tasks say themselves"}
            )
        for row in self.memory.facts({"domain": self.domain.name}, "human"):
            if row["task"] not in tasks and (found := self.memory.get(row["id"])) is not None:
                tasks[found.task] = Task(
                    id=found.task,
                    domain=found.domain,
                    prompt=found.prompt,
                    split=found.split,
                    group=found.group,
                )
                hidden[found.task] = [found.trace.answer] * found.grade.passed
        return Scanner(list(tasks.values()), hidden, _packages(self.domain))

    def lesson_leaks(self, lesson: Lesson, groups: Sequence[str] = ()) -> list[str]:
        """What is wrong with a lesson: it names what belongs to a task, or is about the things of
        one that it was born of, or that is of `groups`."""
        text = f"{lesson.title}\n{lesson.body}"
        born_of = [
            e.group for id in lesson.born_of if (e := self.memory.get(id, "optimizer")) is not None
        ]
        return self.scanner.says(text) or self.scanner.particular(text, [*born_of, *groups])

    def ask(self, messages: list[Message], call: Call, **params: Any) -> Reply:
        """The agent's model."""
        return self.calls.ask(self.model, self.price, messages, call, **self.patience(), **params)

    @property
    def near(self) -> str:
        """How a plug-in answers what was asked otherwise, as an attempt's key has it; '' for not at
        all."""
        return self.calls.cache.key if self.calls.cache is not None else ""

    def asking(self, task: Task) -> AskAgent:
        """The agent's model as an attempt at this task asks it: where a plug-in answers questions
        that are nearly the same, with its own."""
        if not self.near:
            return self.ask
        return partial(self.ask, task=TaskQuestion(redact(task.prompt), task.group))

    def full(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """All that the agent's model is asked for by a call with these parameters."""
        return self.calls.params(self.model, params)

    def ask_optimizer(self, messages: list[Message], call: Call, **params: Any) -> Reply:
        """The optimizer's model."""
        return self.calls.ask(
            self.optimizer_model,
            self.optimizer_price,
            messages,
            call,
            **{**self.patience(), **params},
        )

    def recall(
        self, query: str, k: int, filters: Mapping[str, Any], reader: str = "optimizer"
    ) -> Sequence[Hit]:
        """What the optimizer, or a working agent, may be told: train experiences of groups that are
        not held out, whoever recalls."""
        if self.own_memory is None:
            hits: Sequence[Hit] = self.memory.recall(query, k, filters, reader)
            return hits
        found = self.own_memory.recall(query, k, filters, reader)
        expect(all_are(found, Hit), self.own_memory, "recall", found)
        seen = [
            h
            for h in found
            if not h.experience or self.memory.get(h.experience, reader) is not None
        ]
        return [h.model_copy(update={"text": redact(h.text)}) for h in seen[:k]]

    @cached_property
    def recollection(self) -> Recollection:
        """Memory, as this run's working agents may ask it."""
        theirs = (
            self.settings.memory.recall if self.given.memory is None else spelled(self.given.memory)
        )
        return Recollection(
            memory=self.memory,
            journal=self.journal,
            folder=self.folder,
            domain=self.domain.name,
            search=lambda query, k, filters: self.recall(query, k, filters, READER),
            leaks=self.lesson_leaks,
            replay=self.replay,
            found_by=(self.settings.memory.embedder, theirs),
        )

    @cached_property
    def recallable(self) -> Recallable:
        """What the agents of this run may recall."""
        return self.recollection.state()

    def patience(self) -> dict[str, Any]:
        """The timeout to ask with; each kind of model has its own when none is set."""
        return {"timeout": self.settings.models.timeout} if self.settings.models.timeout else {}

    @contextmanager
    def closing(self, fresh: bool) -> Iterator[None]:
        """Close it in the end. What is refused (BadInput) before a model was asked or anything was
        attempted leaves no folder either: the corrected command may name the same one. fresh: it
        was made for this session.
        """
        idle = False
        try:
            yield
        except BadInput:
            idle = fresh and not self.ledger.spent.calls and not self.ledger.attempts
            idle = idle and {path.name for path in self.folder.iterdir()} <= OPENED
            raise
        finally:
            self.close()
            if idle:
                shutil.rmtree(self.folder, ignore_errors=True)
                if self.folder.parent == self.workspace / "runs":
                    with suppress(OSError):  # there are other runs
                        self.folder.parent.rmdir()

    def close(self) -> None:
        """Release everything, whatever fails on the way: a full disk must not keep the folder
        taken."""
        with ExitStack() as stack:
            stack.callback(self.models.close, self.given)
            stack.callback(self.memory.close)
            stack.callback(self.journal.close)
            stack.callback(self._record)
            if self.replay is not None and (n := len(self.replay.wavered)):
                what = (
                    "times, durations, lone decimals, addresses, temporary names, user numbers or"
                    " lines of ls alone"
                )
                self.say(
                    "note", {"text": f"{n} requests differed from the recorded ones in {what}"}
                )
            try:
                self.ledger.close()
            except Fault:
                self.say(
                    "note",
                    {
                        "text": (
                            "how long this session ran could not be written down: the disk is full"
                        )
                    },
                )

    def _record(self) -> None:
        """Journal who answered, as far as that is known by now, and pack the run where it is
        recorded."""
        if self.replay is not None or self.journal.closed:
            return
        models = {role: who.model_dump() for role, who in self.models.answerers().items()}
        if models != self.journal.models:
            self.journal.add("answerers", models=models)
        if self.settings.record:
            pack(self.folder, Path(self.settings.record), recorded_text(self.settings))


def _hidden(domain: Domain, task: Task) -> list[str]:
    hidden = extras(domain).hidden(task)
    method = "hidden" if hasattr(domain, "hidden") else "gold"
    expect(all_are(hidden, str), domain, method, hidden)
    return list(hidden)


def _packages(domain: Domain) -> list[str]:
    packages = extras(domain).packages()
    expect(all_are(packages, str), domain, "packages", packages)
    return list(packages)


OPENED = frozenset(
    {"settings.toml", "journal.jsonl", "ledger.jsonl", "lock", "seed", "bench.toml", "scaffold.git"}
)
"""What a run folder holds before anything happens in it."""


def run_id(settings: Settings) -> str:
    """Derived from what was asked for, not from the clock: the same settings give the same run
    id."""
    return digest(settings.identity(), 12)


def run_folder(workspace: Path, settings: Settings) -> Path:
    """--out, else runs/<domain>-<when>; a second run within the same second gets a number."""
    if settings.out:
        return _possible(settings.out, workspace)
    name = f"{settings.domain.replace(':', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (name, *(f"{name}-{n}" for n in range(2, 10_000)))
    return next(folder for n in names if not (folder := workspace / "runs" / n).exists())


def _possible(out: str, workspace: Path) -> Path:
    """The folder that --out names. Raises BadInput (`bad-out`) when no run could be kept there."""

    def bad(why: str) -> BadInput:
        shown = out if len(out) <= 80 else out[:77] + "..."
        return BadInput(
            f"{shown!r} cannot be a run folder: {why}",
            fix="give a plain path: --out runs/mine",
            code="bad-out",
        )

    if not out.strip() or not out.isprintable():
        raise bad("its name is empty, or has characters that cannot be seen")
    try:
        folder = Path(out).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as e:
        raise bad(str(e)) from None
    if len(os.fsencode(folder)) > 3500 or any(
        len(os.fsencode(part)) > 255 for part in folder.parts
    ):
        raise bad("its name is too long for a disk")
    if workspace.resolve().is_relative_to(folder):
        raise bad("the workspace itself lies there")
    for place in (folder, *folder.parents):
        if place.exists():
            if not place.is_dir():
                raise bad(f"{paths.short(place)} is a file")
            if not os.access(place, os.W_OK | os.X_OK):
                raise bad(f"{paths.short(place)} cannot be written")
            break
    return folder


def open_models(
    settings: Settings, parts: Parts | None = None, *, asked: bool = True
) -> OpenedModels:
    """The agent's model and the optimizer's. asked: False where none of them will be asked
    anything, so that none needs its key."""
    from recreate.models import default_model, open_model
    from recreate.models.pricing import known_price, parse_price

    parts = parts or Parts()
    spec, told = (settings.model, "") if settings.model else default_model()
    options: dict[str, Any] = {"jobs": settings.jobs, "threads": settings.models.threads}
    options |= {**settings.plugins, "asked": asked}
    given = parse_price(settings.price) if settings.price else None
    model = (
        open_model(spec, price=given, **options)
        if parts.model is None
        else fit("model", parts.model)
    )
    price = given or known_price(model)
    other = settings.models.optimizer
    if parts.optimizer_model is None and (not other or other == spec):
        return OpenedModels(model, price, model, price, told)
    given = (
        parse_price(settings.models.optimizer_price) if settings.models.optimizer_price else None
    )
    if parts.optimizer_model is None:
        optimizer = open_model(other, price=given, **options)
    else:
        optimizer = fit("model", parts.optimizer_model)
    known = given or known_price(optimizer, flag="--models.optimizer_price")
    return OpenedModels(model, price, optimizer, known, told)


def open_judge(
    settings: Settings, models: OpenedModels, replay: Replay | None = None
) -> tuple[Model, Price]:
    """(the judge's model, its price): that of `--models.judge`, else the optimizer's."""
    from recreate.models import open_model
    from recreate.models.pricing import known_price, parse_price

    other = models.optimizer_model, models.optimizer_price
    if replay is not None:
        return replay.open_judge() or other
    spec = settings.models.judge
    if not spec or spec == (settings.models.optimizer or settings.model):
        return other
    given = parse_price(settings.models.judge_price) if settings.models.judge_price else None
    options: dict[str, Any] = {"jobs": settings.jobs, "threads": settings.models.threads}
    model = open_model(spec, price=given, **settings.plugins, **options)
    return model, given or known_price(model, flag="--models.judge_price")


def tried(settings: Settings, workspace: Path) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """(address, name, what opens it) of the parts that the settings name, each to be opened by
    itself: nothing is fetched, started or asked. What opens it raises BadInput for one that is not
    there or does not fit.
    """
    from recreate.memory import embedders
    from recreate.models import open_model

    def policy() -> Any:
        return registry.factory("policy", settings.memory.policy)

    def model(spec: str) -> Callable[[], Any]:
        return lambda: open_model(spec, **settings.plugins).close()

    memory = settings.memory
    found: tuple[tuple[str, str, Callable[[], Any]], ...] = (
        ("domain", settings.domain, lambda: open_domain(settings, workspace)),
        ("model", settings.model, model(settings.model)),
        ("models.optimizer", settings.models.optimizer, model(settings.models.optimizer)),
        ("optimizer", settings.optimizer, lambda: try_optimizer(settings)),
        ("memory.policy", memory.policy, policy),
        ("memory.embedder", memory.embedder, lambda: embedders.named(memory.embedder)),
        (
            "memory.recall",
            memory.recall,
            lambda: registry.open("memory", memory.recall, workspace=workspace),
        ),
        ("budget", ", ".join(settings.budget), lambda: Budget.parse(settings.budget)),
    )
    defaults = settings_.addresses()
    for address, name, opens in found:
        elsewhere = address == "domain" and (settings.data or settings.repos or settings.prompt)
        if name and (name != defaults[address] or elsewhere):
            yield address, name, opens


def try_optimizer(settings: Settings) -> None:
    """Raises BadInput for an optimizer that is not there, does not fit, or does not know the
    settings that are its own; Missing for one whose package is not installed."""
    registry.factory("optimizer", settings.optimizer)
    found = registry.find("optimizer", settings.optimizer)
    registry.need_all(found)
    settings_.own(found, settings.optimizer, settings.optimizer_settings)


def open_domain(
    settings: Settings, workspace: Path, backend: SandboxBackend | None = None
) -> Domain:
    """The domain by name, with its tasks from where the settings say, for sandboxes of `backend`,
    else of the one that is named."""
    from recreate.sandboxes import named_backend

    backend = backend or named_backend(settings.sandbox)
    return registry.open_domain(
        settings.domain,
        workspace,
        settings.data,
        settings.repos,
        settings.prompt,
        backend,
        score=settings.score,
        columns=settings.columns.model_dump(),
    )


def open_backend(settings: Settings, given: SandboxBackend | None = None) -> SandboxBackend:
    """The backend, seen to work. Raises BadInput: `misfit`, or `no-sandbox` with the reason that
    its probe gives."""
    from recreate.sandboxes import choose

    if given is None:
        backend = choose(settings.sandbox or None)
    else:
        backend = fit("sandbox", given)
        why = backend.probe()
        expect(isinstance(why, str), backend, "probe", why)
        if why:
            raise BadInput(
                f"the sandbox {backend.name} does not work here: {why}",
                fix="mend that",
                code="no-sandbox",
            )
    if not type(backend).__module__.startswith("recreate."):
        sandbox = backend.open()
        expect(sandbox is not None and hasattr(sandbox, "run"), backend, "open", sandbox)
        fit("opened-sandbox", sandbox)
        sandbox.close()
    return backend


def open_memory(
    settings: Settings, workspace: Path, given: Memory | None, domain: str, known: Any
) -> Memory | None:
    """The user's own Memory, told of the train experiences there are; None when the workspace's
    answers."""
    if given is None and not settings.memory.recall:
        return None
    memory: Memory
    if given is None:
        memory = registry.open("memory", settings.memory.recall, workspace=workspace)
    else:
        memory = fit("memory", given)
    for experience in known.experiences(domain=domain, split="train", reader="optimizer"):
        memory.add([experience])
    return memory


def open_session(
    settings: Settings,
    workspace: Path,
    folder: Path,
    *,
    say: Say = silent,
    resume: bool = False,
    parts: Parts | None = None,
    command: str = "",
    ready: Ready = as_it_is,
) -> Session:
    """Find every part that is not given, see that each fits its port, take the run folder, and be
    ready to spend.

    command: what was asked for, such as `build`; the journal remembers it. ready: see
    `Session.start`. Raises BadInput for a part that is unknown or does not fit, a missing key or
    price, a folder in use or already holding another run, or one whose journal is gone.
    """
    parts = parts or Parts()
    refuse(settings, folder, resume)
    replay = Replay(Path(settings.replay)) if settings.replay else None
    backend = open_backend(settings, parts.backend)
    domain = (
        open_domain(settings, workspace, backend)
        if parts.domain is None
        else fit("domain", parts.domain)
    )
    fit_tasks(domain)
    optimizer, policy = _named(settings, parts, command)
    budget = Budget.parse(settings.budget)
    if replay is not None:
        _refuse_another(replay, command, domain, backend)
    with ExitStack() as undo:
        memory = _open_store(settings, workspace, folder, parts.embedder, say)
        undo.callback(memory.close)
        models = (
            open_models(settings, parts) if replay is None else OpenedModels(*replay.open_models())
        )
        undo.callback(lambda: models.close(parts))
        if models.note:
            say("model", {"text": models.note})
        chosen = with_defaults(
            settings, models.optimizer_model, optimizer=optimizer is None, policy=policy is None
        )
        settings = chosen.settings
        for text in chosen.notes() if command == "build" else ():
            say("note", {"text": text})
        optimizer = optimizer or registry.factory("optimizer", settings.optimizer)
        policy = policy or registry.factory("policy", settings.memory.policy)
        proposer = (
            registry.find("optimizer", settings.optimizer)
            if parts.optimizer is None
            else parts.optimizer
        )
        own = settings_.own(
            proposer, settings.optimizer or spelled(proposer), settings.optimizer_settings
        )
        if command == "build":  # nobody proposes elsewhere
            registry.need_all(proposer)
        if isinstance(domain, AsksModel) and domain.asks_model:
            models = replace(models, judge=open_judge(settings, models, replay))
        own_memory = open_memory(settings, workspace, parts.memory, domain.name, memory)
        begun = Begun(
            run=run_id(settings) if replay is None else replay.run,
            model=models.model.name,
            sandbox=backend.name,
            domain=domain.name,
            command=command,
        )
        if settings.record:
            undo.callback(claim(Path(settings.record), begun.run, resumed=resume))
        known = memory.count(domain.name)
        if settings.record and command == "build" and known and not resume:
            say("note", {"text": _not_on_it(known, domain.name)})
        journal = Journal(folder)
        undo.callback(journal.close)
        facts = {
            "recreate": paths.version(),
            "jobs": settings.jobs if replay is None else replay.start.get("jobs", settings.jobs),
            "memory": known,
            "models": {role: who.model_dump() for role, who in models.answerers().items()},
        }
        objects = [kind for kind, part in vars(parts).items() if part is not None]
        _take(journal, settings, begun, {**facts, **({"objects": objects} if objects else {})})
        journal.listed = bool(settings.record)
        journal.worded = journal.listed and not settings.record_replies_only
        ledger = Ledger(Log(folder / "ledger.jsonl"), budget, replayed=replay is not None)
        _count_again(ledger, journal, settings.jobs, say)
        undo.pop_all()
    calls = Calls(
        begun.run,
        journal,
        ledger,
        retries=settings.models.retries,
        cache=replay or open_cache(settings, memory),
        told=lambda text: say("note", {"text": text}),
    )
    return Session(
        settings=settings,
        workspace=workspace,
        folder=folder,
        run=begun.run,
        domain=domain,
        backend=backend,
        model=models.model,
        model_name=models.model.name,
        price=models.price,
        optimizer_model=models.optimizer_model,
        optimizer_price=models.optimizer_price,
        memory=memory,
        journal=journal,
        ledger=ledger,
        optimizer=optimizer,
        optimizer_settings=own,
        policy=policy,
        policy_name=settings.memory.policy if parts.policy is None else spelled(parts.policy),
        calls=calls,
        say=say,
        judge=models.judge,
        own_memory=own_memory,
        replay=replay,
        given=parts,
        ready=ready,
    ).judged()


def refuse(settings: Settings, folder: Path, resume: bool = False) -> None:
    """Raises BadInput for what no part need be opened to see."""
    from recreate.models import open_model
    from recreate.models.pricing import parse_price

    if (folder / "settings.toml").exists() and not resume:
        raise BadInput(
            f"{folder} already holds a run",
            fix=f"recreate resume {paths.short(folder)}, or give another folder with --out",
            code="run-exists",
        )
    _refuse_keys(settings)
    if settings.name and not re.fullmatch(r"\w[\w.-]{0,99}", settings.name):
        raise BadInput(
            f"{settings.name!r} cannot be a folder's name",
            fix="give a plain --name",
            code="bad-name",
        )
    for price in filter(
        None, (settings.price, settings.models.optimizer_price, settings.models.judge_price)
    ):
        parse_price(price)
    if settings.models.judge and not settings.replay:
        open_model(settings.models.judge, asked=False, **settings.plugins).close()
    _refuse_tapes(settings)
    for table in settings.plugins.values():
        table.check(settings)


def _named(
    settings: Settings, parts: Parts, command: str
) -> tuple[Callable[..., Optimizer] | None, Callable[..., MemoryPolicy] | None]:
    """(the optimizer, the memory policy) that were given or named; None where the choice is
    `with_defaults`'s."""
    optimizer = policy = None
    if parts.optimizer is not None or settings.optimizer:
        optimizer = registry.factory(
            "optimizer", settings.optimizer if parts.optimizer is None else parts.optimizer
        )
    if parts.policy is not None or settings.memory.is_named or command != "build":
        policy = registry.factory(
            "policy", settings.memory.policy if parts.policy is None else parts.policy
        )
    return optimizer, policy


def _open_store(
    settings: Settings, workspace: Path, folder: Path, given: Embedder | None, say: Say
) -> ExperienceStore:
    """The workspace's memory. A replay has one of its own: what came after the recording must not
    be recalled."""
    from recreate.memory import embedders
    from recreate.memory.store import ExperienceStore

    if given is None and settings.memory.embedder:
        embedders.find(settings.memory.embedder)
    # who hears nothing has the log
    return ExperienceStore(
        folder / "replay" if settings.replay else workspace,
        settings.memory.embedder or None if given is None else fit("embedder", given),
        lambda done, total: say("indexing", {"done": done, "total": total}),
        (log.warning if say is silent else lambda text: say("note", {"text": text})),
        namespace="" if settings.replay else settings.memory.namespace,
    )


@dataclass(frozen=True)
class Begun:
    """What a run is known by, in its journal's first line."""

    run: str
    model: str
    sandbox: str
    domain: str
    command: str


def _not_on_it(memory: int, domain: str) -> str:
    """Return what is said of a build that is recorded where its domain was attempted before."""
    many = f"{memory} train experience{'s' * (memory != 1)} of {domain}"
    return (
        f"memory holds {many}, and a replay has none: where the optimizer is told of them, it stops"
        " with exit code 4. A build that is recorded in a fresh workspace can be replayed"
    )


def _count_again(ledger: Ledger, journal: Journal, jobs: int, say: Say) -> None:
    """Put back into the ledger what only the journal knows; what was lost of either is said."""
    unwritten, attempts = ledger.put_back(journal.records("reply", "experience", "aside"))
    if text := passed_over(journal.log.path, journal.damaged):
        say("note", {"text": text})
    if attempts or unwritten > jobs:  # fewer calls are what a kill leaves
        many = f"{unwritten} calls and {attempts} attempts"
        told = f"ledger.jsonl was damaged or lost: {many} are counted again from the journal"
        say("note", {"text": f"{told}; how long earlier sessions ran may not be known any more"})


def _take(journal: Journal, settings: Settings, begun: Begun, facts: Mapping[str, Any]) -> None:
    """Make the folder a run's, or go on with the one that began there: from now on it can be
    resumed. facts: what else the journal's first line tells of the beginning."""
    folder = journal.folder
    with files.disk(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        # /proc, /dev and the like
        except (FileNotFoundError, NotADirectoryError, FileExistsError) as e:
            raise BadInput(
                f"{folder} cannot be made: {e.strerror}", fix="give another --out", code="bad-out"
            ) from None
    journal.open()
    _same_parts(journal, domain=begun.domain, model=begun.model)
    _refuse_emptied(journal)
    journal.add("start", **vars(begun), pid=os.getpid(), at=now(), **facts)
    files.write(folder / "settings.toml", settings_text(settings), fix=files.RESUME)


def open_cache(settings: Settings, memory: Any) -> Replies | None:
    """Return the replies that runs share, as `--cache` names them, with what plug-ins put around
    them; None where nobody wants them."""
    if not settings.cache:
        return None
    cache: Replies = SharedReplies(folder_of(settings.cache))
    for name in plugins.names("replies"):
        cache = registry.find("replies", name)(settings, memory, cache)
    return cache


def _refuse_tapes(settings: Settings) -> None:
    if settings.record and settings.replay:
        fix = "to copy a recording, copy its folder"
        raise BadInput(
            "a replay is not recorded: it is --record or --replay", fix=fix, code="usage"
        )
    if Path(settings.record).is_file():
        raise BadInput(
            f"{settings.record} is a file, and a recording a folder",
            fix="--record DIR",
            code="usage",
        )
    if settings.record_replies_only and not settings.record:
        raise BadInput(
            "--record-replies-only says how to record", fix="give --record DIR too", code="usage"
        )
    if settings.record and settings.from_experience:
        raise BadInput(
            "a recording holds replies, and not the memory that --from-experience learns from: it"
            " could not be replayed",
            fix="leave --record or --from-experience out",
            code="usage",
        )


def _refuse_another(replay: Replay, command: str, domain: Domain, backend: SandboxBackend) -> None:
    """Attempts are known by their sandbox too: in another one nothing would be found."""
    then = {kind: str(replay.start.get(kind) or "") for kind in ("command", "domain", "sandbox")}
    now = {"command": command, "domain": domain.name, "sandbox": backend.name}
    walls = f"--sandbox {then['sandbox']}; recreate doctor says what works here"
    fixes = {
        "command": "replay it with the command it is of",
        "domain": "leave --domain out: a replay has that of its recording",
        "sandbox": TRUSTED if then["sandbox"] == "none" else walls,
    }
    for kind, fix in fixes.items():
        if now[kind] != then[kind]:
            other = "run or bench"
            raise BadInput(
                f"the recording {paths.short(replay.folder)} was made with the {kind}"
                f" {then[kind] or other}, and this is {now[kind] or other}",
                fix=fix,
                code="another-build",
            )


def _refuse_keys(settings: Settings) -> None:
    """What is set is written into settings.toml: a key must not be among it."""
    for address, value in settings_.flat(settings.model_dump(exclude={"out"})).items():
        if redacted(value) is not value:
            raise BadInput(
                f"{address} holds what looks like a key: it would be written into settings.toml",
                fix="leave it out, and put it into the environment, where the part reads it",
                code="key-in-setting",
            )


def _same_parts(journal: Journal, **parts: str) -> None:
    """A run goes on with the parts it began with: a class found by name may make another object
    than a script did."""
    for kind, name in parts.items():
        if (first := journal.first.get(kind, name)) != name:
            raise BadInput(
                f"{paths.short(journal.folder)} was begun with the {kind} {first}, and this"
                f" is {name}",
                fix=f"go on with the {kind} it was begun with, or give another folder with --out",
                code="another-run",
            )


def _refuse_emptied(journal: Journal) -> None:
    """A run that has attempts or spent something, and no journal, is none that begins."""
    if journal.first or not any(
        map(_holds, (journal.folder / "attempts", journal.folder / "ledger.jsonl"))
    ):
        return
    raise BadInput(
        f"{paths.short(journal.log.path)} does not say how this run began, and there are attempts:"
        " it was emptied or lost",
        fix=(
            "put it back from a copy, or give another folder with --out; what was attempted is"
            f" still in memory, and in {paths.short(journal.folder / 'attempts')}"
        ),
        code="damaged",
    )


def _holds(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.is_file() and path.stat().st_size > 0
