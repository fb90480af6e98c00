"""The parts of one run, put together: what every verb that costs something is handed.

`open_session` finds the parts by name; whoever writes Python can also make a `Session` of their own
parts.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from recreate.agents.guards.leaks import Scanner
from recreate.agents.progress import AskAgent
from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import (
    AsksModel,
    Domain,
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
from recreate.api.registry import find, fit_tasks
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.theirs import all_are, expect, spelled
from recreate.api.types import Call, Lesson, Message, Reply, Split, Task
from recreate.memory.held_out import lacking
from recreate.runs.alone import ask_judge
from recreate.runs.budget import Ledger
from recreate.runs.calls import Calls
from recreate.runs.folder import OPENED
from recreate.runs.journal import Journal
from recreate.runs.opening import OPENERS, OpenedModels, Opening, Parts, Say, open_domain, silent
from recreate.runs.replay import Replay, pack
from recreate.runs.settings import Settings, recorded_text
from recreate.storage.redact import redact

if TYPE_CHECKING:
    pass

Ready = Callable[[Model], None]
"""Lets a model be fetched and started that must be: `Session.start` tells it of each."""


def leave_model(model: Model) -> None:
    """Leave a model to its first call."""


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
    models: OpenedModels
    model_name: str
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
    ready: Ready = leave_model
    listed: dict[str, str] = field(default_factory=dict)
    """What tells the tools of an agent's MCP servers, by what tells the servers."""
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
        """Return the same run with another model for its agents, known by `name`. Closing the model
        is the caller's."""
        models = replace(self.models, model=model, price=price or self.price)
        return replace(self, models=models, model_name=name or model.name)

    def with_domain(self, settings: Settings) -> Session:
        """Return the same run with the tasks that `settings` name. Where they are judged by a
        model, it is this run's judge, else the optimizer's model."""
        domain = open_domain(settings, self.workspace, self.backend)
        fit_tasks(domain)
        return replace(self, settings=settings, domain=domain).with_judge()

    def with_judge(self) -> Session:
        """Return the same run with a domain that asks its judge, where it wants one."""
        if not (isinstance(self.domain, AsksModel) and self.domain.asks_model):
            return self
        judge = self.models.judge or (self.optimizer_model, self.models.optimizer_price)
        ask = ask_judge(self.calls, judge, self.patience())
        return replace(self, domain=self.domain.judged_by(judge[0].name, ask))

    @property
    def model(self) -> Model:
        """The agent's model."""
        return self.models.model

    @property
    def price(self) -> Price:
        """The price of the agent's model."""
        return self.models.price

    @property
    def optimizer_model(self) -> Model:
        """The optimizer's model."""
        return self.models.optimizer_model

    def tasks(self, split: Split, *, needed: bool = True) -> list[Task]:
        """Return the domain's tasks of a split but for those that the workspace holds out as
        another one, and those for which this machine lacks something; both are said.

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
        """Return what finds what no edit or lesson may carry: all that tasks say, of every split,
        their answers and hidden tests too, and what memory holds of tasks that were imported. Read
        once; what is not known of answers is said."""
        tasks = {t.id: t for t in self.domain.tasks()}
        hidden = dict[str, list[str]]()
        unknown = list[str]()
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
        """Find what is wrong with a lesson: it names what belongs to a task, or is about the things
        of one that it was born of, or that is of `groups`."""
        text = f"{lesson.title}\n{lesson.body}"
        born_of = [
            e.group for id in lesson.born_of if (e := self.memory.get(id, "optimizer")) is not None
        ]
        return self.scanner.says(text) or self.scanner.particular(text, [*born_of, *groups])

    def ask(self, messages: list[Message], call: Call, **params: Any) -> Reply:
        """Ask the agent's model."""
        return self.calls.ask(self.model, self.price, messages, call, **self.patience(), **params)

    @property
    def near_key(self) -> str:
        """Return how a plug-in answers what was asked otherwise, as an attempt's key has it; '' for
        not at all."""
        return self.calls.cache.key if self.calls.cache is not None else ""

    def asking(self, task: Task) -> AskAgent:
        """Return the agent's model as an attempt at this task asks it: where a plug-in answers
        questions that are nearly the same, with its own."""
        if not self.near_key:
            return self.ask
        return partial(self.ask, task=TaskQuestion(redact(task.prompt), task.group))

    def full(self, params: JsonMap) -> JsonDict:
        """Return all that the agent's model is asked for by a call with these parameters."""
        return self.calls.params(self.model, params)

    def ask_optimizer(self, messages: list[Message], call: Call, **params: Any) -> Reply:
        """Ask the optimizer's model."""
        return self.calls.ask(
            self.optimizer_model,
            self.models.optimizer_price,
            messages,
            call,
            **{**self.patience(), **params},
        )

    def recall(
        self, query: str, k: int, filters: JsonMap, reader: str = "optimizer"
    ) -> Sequence[Hit]:
        """Return what the optimizer, or a working agent, may be told: train experiences of groups
        that are not held out, whoever recalls."""
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
    def recollection(self) -> Any:
        """Return memory, as this run's working agents may ask it: a part of the kind
        `recollection`. Raises BadInput where none is here."""
        theirs = (
            self.settings.memory.recall if self.given.memory is None else spelled(self.given.memory)
        )
        return find("recollection", "experience")(
            memory=self.memory,
            journal=self.journal,
            folder=self.folder,
            domain=self.domain.name,
            search=lambda query, k, filters: self.recall(query, k, filters, "agent"),
            leaks=self.lesson_leaks,
            replay=self.replay,
            found_by=(self.settings.memory.embedder, theirs),
        )

    @cached_property
    def recallable(self) -> Any:
        """Return what the agents of this run may recall, and its digest."""
        return self.recollection.state()

    def patience(self) -> JsonDict:
        """Return the timeout to ask with; each kind of model has its own when none is set."""
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
        if self.journal.closed:
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


def open_session(
    settings: Settings,
    workspace: Path,
    folder: Path,
    *,
    say: Say = silent,
    resume: bool = False,
    parts: Parts | None = None,
    command: str = "",
    ready: Ready = leave_model,
) -> Session:
    """Find every part that is not given, see that each fits its port, take the run folder, and be
    ready to spend.

    command: what was asked for, such as `build`; the journal remembers it. ready: see
    `Session.start`. Raises BadInput for a part that is unknown or does not fit, a missing key or
    price, a folder in use or already holding another run, or one whose journal is gone.
    """
    with ExitStack() as undo:
        opening = Opening(settings, workspace, folder, parts or Parts(), command, resume, say, undo)
        made = opening.open(OPENERS)
        undo.pop_all()
    models: OpenedModels = made["models"]
    given = opening.given
    named = opening.settings.memory.policy if given.policy is None else spelled(given.policy)
    return Session(
        settings=opening.settings,
        workspace=workspace,
        folder=folder,
        run=opening.run,
        domain=made["domain"],
        backend=made["backend"],
        models=models,
        model_name=models.model.name,
        memory=made["store"],
        journal=made["journal"],
        ledger=made["ledger"],
        optimizer=made["optimizer"],
        optimizer_settings=made["optimizer_settings"],
        policy=made["policy"],
        policy_name=named,
        calls=made["calls"],
        say=say,
        own_memory=made["own_memory"],
        replay=opening.replay,
        given=given,
        ready=ready,
    ).with_judge()
