"""How the parts of a run are opened, one after the other, from settings or from objects.

Each opener finds its part, refuses the settings that are about it, and is told what was opened
before. `OPENERS` has them in their order: a session is what they made. Nothing is fetched, started,
asked or spent here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recreate.api import paths, plugins, registry
from recreate.api.errors import BadInput
from recreate.api.ports import (
    AsksModel,
    Domain,
    Embedder,
    Memory,
    MemoryPolicy,
    Model,
    Optimizer,
    Price,
    SandboxBackend,
)
from recreate.api.registry import fit, fit_tasks
from recreate.api.shapes import JsonDict
from recreate.api.theirs import expect, spelled
from recreate.models.replies import Answerer, Replies, SharedReplies, folder_of
from recreate.runs import folder as folders
from recreate.runs import settings as settings_
from recreate.runs.budget import Budget, Ledger
from recreate.runs.calls import Calls
from recreate.runs.defaults import with_defaults
from recreate.runs.journal import Journal, passed_over
from recreate.runs.replay import Replay, check_recording, claim
from recreate.runs.settings import Settings
from recreate.storage.log import Log

if TYPE_CHECKING:
    from recreate.memory.store import ExperienceStore

log = logging.getLogger("recreate")

Say = Callable[[str, JsonDict], None]
"""Where progress goes: (event, facts). The CLI shows it; a library user may ignore it."""


def silent(event: str, facts: JsonDict) -> None:
    """Say nothing."""


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
        """Return the agent's model, and the optimizer's and the judge's where they are others."""
        every = [self.model, self.optimizer_model, *([self.judge[0]] if self.judge else [])]
        return list({id(model): model for model in every}.values())

    def close(self, given: Parts = Parts()) -> None:
        """Close those that were opened for the run, whatever fails: who gave a model closes it."""
        with ExitStack() as stack:
            for model in self.each():
                if model is not given.model and model is not given.optimizer_model:
                    stack.callback(model.close)

    def answerers(self) -> dict[str, Answerer]:
        """Return who answers, by role; the optimizer's and the judge's only where they are
        others."""
        roles = {"agent": Answerer.of(self.model, self.price)}
        if self.optimizer_model is not self.model:
            roles["optimizer"] = Answerer.of(self.optimizer_model, self.optimizer_price)
        if self.judge is not None and self.judge[0] is not self.optimizer_model:
            roles["judge"] = Answerer.of(*self.judge)
        return roles


@dataclass
class Opening:
    """A session that is being made: what it is made of, and the parts that are open so far.

    settings   with the defaults that were chosen, once the models are open
    undo       closes what is open, where a later part is refused
    """

    settings: Settings
    workspace: Path
    folder: Path
    given: Parts
    command: str
    resume: bool
    say: Say
    undo: ExitStack
    run: str = ""
    replay: Replay | None = None
    parts: JsonDict = field(default_factory=dict)

    def __getattr__(self, kind: str) -> Any:
        """Return the part of a kind that was opened."""
        try:
            return self.parts[kind]
        except KeyError:
            raise AttributeError(kind) from None

    @property
    def has_proposals(self) -> bool:
        """Whether a recording has what was proposed, so that no optimizer need be here."""
        return self.replay is not None and bool(self.replay.proposals)

    def open(self, openers: dict[str, Callable[[Opening], Any]]) -> JsonDict:
        """Open one part after the other; return them all. Raises what the first refusal raises."""
        for kind, opener in openers.items():
            self.parts[kind] = opener(self)
        return self.parts


# ------------------------------------------------------------------------------- one part each


def open_backend(settings: Settings, given: SandboxBackend | None = None) -> SandboxBackend:
    """Open the sandbox backend, seen to work. Raises BadInput: `misfit`, or `no-sandbox` with the
    reason that its probe gives."""
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


def open_domain(
    settings: Settings, workspace: Path, backend: SandboxBackend | None = None
) -> Domain:
    """Open the domain by name, with its tasks from where the settings say, for sandboxes of
    `backend`, else of the one that is named."""
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


def open_models(
    settings: Settings, given: Parts | None = None, *, asked: bool = True
) -> OpenedModels:
    """Open the agent's model and the optimizer's. asked: False where none of them will be asked
    anything, so that none needs its key. Raises BadInput, also for a price that is none."""
    from recreate.models import default_model
    from recreate.models.pricing import known_price, parse_price

    given = given or Parts()
    spec, note = (settings.model, "")
    if not spec and given.model is None:
        spec, note = default_model()
    other = settings.models.optimizer
    models = settings.models
    own, of_other = (
        parse_price(text) if text else None for text in (settings.price, models.optimizer_price)
    )
    model = open_named(settings, spec, own, asked) if given.model is None else given.model
    model = fit("model", model)
    price = own or known_price(model)
    if given.optimizer_model is None and (not other or other == spec):
        return OpenedModels(model, price, model, price, note)
    optimizer = given.optimizer_model
    if optimizer is None:
        optimizer = open_named(settings, other, of_other, asked)
    optimizer = fit("model", optimizer)
    known = of_other or known_price(optimizer, flag="--models.optimizer_price")
    return OpenedModels(model, price, optimizer, known, note)


def open_named(settings: Settings, spec: str, price: Price | None, asked: bool = True) -> Model:
    """Open the model spelled `spec` as the settings say."""
    from recreate.models import open_model

    own = {"jobs": settings.jobs, "threads": settings.models.threads, "drop": settings.models.drop}
    return open_model(spec, price=price, asked=asked, **settings.plugins, **own)


def open_judge(
    settings: Settings,
    models: OpenedModels,
    domain: Domain,
    replay: Replay | None = None,
    *,
    asked: bool = True,
) -> tuple[Model, Price] | None:
    """Open the judge's model, that of `--models.judge`, else the optimizer's: (it, its price); None
    for a domain that asks none. asked: False where nothing will be asked."""
    from recreate.models.pricing import known_price, parse_price

    asks = isinstance(domain, AsksModel) and domain.asks_model
    spec = settings.models.judge
    other = models.optimizer_model, models.optimizer_price
    if asks and replay is not None:
        return replay.open_judge() or other
    given = parse_price(settings.models.judge_price) if settings.models.judge_price else None
    if replay is not None or not spec or spec == (settings.models.optimizer or settings.model):
        return other if asks else None
    model = open_named(settings, spec, given, asked=asks and asked)
    if not asks:
        model.close()
        return None
    return model, given or known_price(model, flag="--models.judge_price")


def open_store(opening: Opening) -> ExperienceStore:
    """Open the workspace's memory. A replay has one of its own: what came after the recording must
    not be recalled."""
    from recreate.memory import embedders
    from recreate.memory.store import ExperienceStore

    settings = opening.settings
    given = opening.given.embedder
    say = opening.say
    if given is None and settings.memory.embedder:
        embedders.find(settings.memory.embedder)
    # who hears nothing has the log
    store = ExperienceStore(
        opening.folder / "replay" if settings.replay else opening.workspace,
        settings.memory.embedder or None if given is None else fit("embedder", given),
        lambda done, total: say("indexing", {"done": done, "total": total}),
        log.warning if say is silent else lambda text: say("note", {"text": text}),
        namespace="" if settings.replay else settings.memory.namespace,
    )
    opening.undo.callback(store.close)
    return store


def open_memory(opening: Opening) -> Memory | None:
    """Open the user's own Memory, told of the train experiences there are; None when the
    workspace's answers."""
    given = opening.given.memory
    named = opening.settings.memory.recall
    if given is None and not named:
        return None
    memory: Memory
    if given is None:
        memory = registry.open("memory", named, workspace=opening.workspace)
    else:
        memory = fit("memory", given)
    for experience in opening.store.experiences(
        domain=opening.domain.name, split="train", reader="optimizer"
    ):
        memory.add([experience])
    return memory


def open_cache(opening: Opening) -> Replies | None:
    """Open the replies that the run takes in place of asking: those of the run that is replayed,
    else those that runs share, as `--cache` names them, with what plug-ins put around them."""
    if opening.replay is not None or not opening.settings.cache:
        return opening.replay
    cache: Replies = SharedReplies(folder_of(opening.settings.cache))
    for name in plugins.names("replies"):
        cache = registry.find("replies", name)(opening.settings, opening.store, cache)
    return cache


def check_optimizer(settings: Settings, part: Any = None, *, imported: bool = True) -> Any:
    """Return what the optimizer makes of the settings that are its own. part: it, where it is an
    object; imported: whether the packages that it needs must be here. Raises BadInput for one that
    is not there, does not fit, or does not know them; Missing for an absent package."""
    part = registry.find("optimizer", settings.optimizer) if part is None else part
    registry.factory("optimizer", part)
    if imported:
        registry.need_all(part)
    return settings_.own(part, settings.optimizer or spelled(part), settings.optimizer_settings)


# ------------------------------------------------------------------------------- in their order


def check_settings(settings: Settings, folder: Path, resume: bool = False) -> None:
    """Refuse what no part need be opened to see: a folder that holds another run, a key among the
    settings, a recording that could not be made, what a plug-in refuses of its own."""
    folders.check_free(folder, resume)
    folders.check_keys(settings)
    check_recording(settings)
    for table in settings.plugins.values():
        table.check(settings)


def _check_settings(opening: Opening) -> None:
    check_settings(opening.settings, opening.folder, opening.resume)


def _open_replay(opening: Opening) -> None:
    if opening.settings.replay:
        opening.replay = Replay(Path(opening.settings.replay))
    replay = opening.replay
    opening.run = folders.run_id(opening.settings) if replay is None else replay.run


def _open_backend(opening: Opening) -> SandboxBackend:
    return open_backend(opening.settings, opening.given.backend)


def _open_domain(opening: Opening) -> Domain:
    given = opening.given.domain
    if given is None:
        domain = open_domain(opening.settings, opening.workspace, opening.backend)
    else:
        domain = fit("domain", given)
    fit_tasks(domain)
    if opening.replay is not None:
        opening.replay.check(opening.command, domain.name, opening.backend.name)
    return domain


def _factory(kind: str, given: Any, name: str) -> Callable[..., Any]:
    return registry.factory(kind, name if given is None else given)


def _check_named(opening: Opening) -> None:
    """Refuse an optimizer or a policy by its name before a model is opened."""
    given = opening.given
    settings = opening.settings
    if (given.optimizer is not None or settings.optimizer) and not opening.has_proposals:
        _factory("optimizer", given.optimizer, settings.optimizer)
    if given.policy is not None or settings.memory.is_named or opening.command != "build":
        _factory("policy", given.policy, settings.memory.policy)


def _open_budget(opening: Opening) -> Budget:
    return Budget.parse(opening.settings.budget)


def _open_models(opening: Opening) -> OpenedModels:
    """Open who answers, and choose by that who proposes and learns where nobody says."""
    given = opening.given
    replay = opening.replay
    say = opening.say
    models = open_models(opening.settings, given) if replay is None else None
    models = models or OpenedModels(*replay.open_models())  # type: ignore[union-attr]
    opening.undo.callback(lambda: models.close(given))
    if models.note:
        begun = f"this run's settings name no model: it goes on with {models.model.name}"
        say("model", {"text": begun if opening.resume else models.note})
    named = opening.settings.memory.is_named or opening.command != "build"
    chosen = with_defaults(
        opening.settings,
        models.optimizer_model,
        optimizer=given.optimizer is None,
        policy=given.policy is None and not named,
    )
    opening.settings = chosen.settings
    if replay is None:  # settings.toml has what was chosen, and a run that goes on is known by it
        opening.run = folders.run_id(chosen.settings)
    for text in chosen.notes() if opening.command == "build" else ():
        say("note", {"text": text})
    judge = open_judge(chosen.settings, models, opening.domain, replay)
    return replace(models, judge=judge)


def _open_optimizer(opening: Opening) -> Callable[..., Optimizer]:
    def make(context: Any) -> Any:
        named = opening.given.optimizer, opening.settings.optimizer
        return _factory("optimizer", *named)(context)

    return make


def _open_optimizer_settings(opening: Opening) -> Any:
    settings = opening.settings
    part = opening.given.optimizer
    if opening.has_proposals:
        return None
    # nobody proposes elsewhere, so that nothing need be installed for it
    return check_optimizer(settings, part, imported=opening.command == "build")


def _open_policy(opening: Opening) -> Callable[..., MemoryPolicy]:
    return _factory("policy", opening.given.policy, opening.settings.memory.policy)


def _open_journal(opening: Opening) -> Journal:
    """Take the run folder: from now on it can be resumed."""
    settings = opening.settings
    models = opening.models
    known = opening.store.count(opening.domain.name)
    if settings.record:
        opening.undo.callback(claim(Path(settings.record), opening.run, resumed=opening.resume))
        if opening.command == "build" and known and not opening.resume:
            opening.say("note", {"text": _not_on_it(known, opening.domain.name)})
    jobs = settings.jobs
    cache = open_cache(opening)
    facts = {
        "near": cache.key if cache is not None else "",
        "run": opening.run,
        "model": models.model.name,
        "sandbox": opening.backend.name,
        "domain": opening.domain.name,
        "command": opening.command,
        "recreate": paths.version(),
        "jobs": jobs if opening.replay is None else opening.replay.start.get("jobs", jobs),
        "memory": known,
        "models": {role: who.model_dump() for role, who in models.answerers().items()},
        "pid": os.getpid(),
    }
    if objects := [kind for kind, part in vars(opening.given).items() if part is not None]:
        facts["objects"] = objects
    journal = Journal(opening.folder)
    opening.undo.callback(journal.close)
    folders.take(journal, settings, facts)
    journal.listed = bool(settings.record)
    journal.worded = journal.listed and not settings.record_replies_only
    return journal


def _not_on_it(memory: int, domain: str) -> str:
    """Return what is said of a build that is recorded where its domain was attempted before."""
    many = f"{memory} train experience{'s' * (memory != 1)} of {domain}"
    return (
        f"memory holds {many}, and a replay has none: where an edit cites one of them, or a lesson"
        " is of one, it stops with exit code 4. A build that is recorded in a fresh workspace can"
        " be replayed"
    )


def _open_ledger(opening: Opening) -> Ledger:
    """Open the ledger, with what only the journal knows put back; what was lost of either is
    said."""
    journal = opening.journal
    say = opening.say
    lines = Log(opening.folder / "ledger.jsonl")
    ledger = Ledger(lines, opening.budget, replayed=opening.replay is not None)
    unwritten, attempts = ledger.put_back(journal.records("reply", "experience", "aside"))
    if text := passed_over(journal.log.path, journal.damaged):
        say("note", {"text": text})
    if attempts or unwritten > opening.settings.jobs:  # fewer calls are what a kill leaves
        many = f"{unwritten} calls and {attempts} attempts"
        lost = f"ledger.jsonl was damaged or lost: {many} are counted again from the journal"
        say("note", {"text": f"{lost}; how long earlier sessions ran may not be known any more"})
    return ledger


def _open_calls(opening: Opening) -> Calls:
    return Calls(
        opening.run,
        opening.journal,
        opening.ledger,
        retries=opening.settings.models.retries,
        cache=open_cache(opening),
        told=lambda text: opening.say("note", {"text": text}),
    )


OPENERS: dict[str, Callable[[Opening], Any]] = {
    "settings": _check_settings,
    "replayed": _open_replay,
    "backend": _open_backend,
    "domain": _open_domain,
    "named": _check_named,
    "budget": _open_budget,
    "store": open_store,
    "models": _open_models,
    "optimizer": _open_optimizer,
    "optimizer_settings": _open_optimizer_settings,
    "policy": _open_policy,
    "own_memory": open_memory,
    "journal": _open_journal,
    "ledger": _open_ledger,
    "calls": _open_calls,
}
"""Kind of part -> what opens it, in the order in which they are opened: what costs least to refuse
comes first."""


# ------------------------------------------------------------------------------- each by itself


def list_openers(
    settings: Settings, workspace: Path
) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield (address, name, what opens it) of the parts that the settings name, each to be opened
    by itself. What opens it raises BadInput for one that is not there or does not fit."""
    from recreate.memory import embedders

    memory = settings.memory
    models = settings.models

    def model(spec: str) -> Callable[[], Any]:
        return lambda: open_named(settings, spec, None).close()

    openers: tuple[tuple[str, str, Callable[[], Any]], ...] = (
        ("domain", settings.domain, lambda: open_domain(settings, workspace)),
        ("model", settings.model, model(settings.model)),
        ("models.optimizer", models.optimizer, model(models.optimizer)),
        ("optimizer", settings.optimizer, lambda: check_optimizer(settings)),
        ("memory.policy", memory.policy, lambda: registry.factory("policy", memory.policy)),
        ("memory.embedder", memory.embedder, lambda: embedders.open_embedder(memory.embedder)),
        (
            "memory.recall",
            memory.recall,
            lambda: registry.open("memory", memory.recall, workspace=workspace),
        ),
        ("budget", ", ".join(settings.budget), lambda: Budget.parse(settings.budget)),
    )
    defaults = settings_.addresses()
    for address, name, opens in openers:
        elsewhere = address == "domain" and (settings.data or settings.repos or settings.prompt)
        if name and (name != defaults[address] or elsewhere):
            yield address, name, opens
