"""The parts of one run, put together: what every verb that costs something is handed.

`open_workshop` finds the parts by name; whoever writes Python can also make a `Workshop` of their own parts.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recreate import paths
from recreate import settings as settings_
from recreate.calls import Calls
from recreate.errors import BadInput, Fault
from recreate.journal import Journal, Lines
from recreate.ledger import Budget, Ledger
from recreate.ports import Domain, Model, Optimizer, Price, Rung
from recreate.settings import Settings
from recreate.types import Call, Message, Reply, digest

Say = Callable[[str, dict[str, Any]], None]
"""Where progress goes: (event, facts). The CLI shows it; a library user may ignore it."""


def silent(event: str, facts: dict[str, Any]) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Parts:
    """Parts that are objects already and need not be found by name."""

    domain: Domain | None = None
    rung: Rung | None = None
    model: Model | None = None
    optimizer_model: Model | None = None
    optimizer: Callable[..., Optimizer] | None = None


@dataclass
class Workshop:
    """Settings and parts of a run. Close it when done: it stops child servers and releases the folder."""

    settings: Settings
    workspace: Path
    folder: Path
    run: str
    domain: Domain
    rung: Rung
    model: Model
    price: Price
    optimizer_model: Model
    optimizer_price: Price
    memory: Any
    journal: Journal
    ledger: Ledger
    calls: Calls
    optimizer: Callable[..., Optimizer]
    say: Say = silent
    aside: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, messages: list[Message], call: Call, **params: Any) -> Reply:
        """The agent's model."""
        return self.calls.ask(self.model, self.price, messages, call, **self.patience(), **params)

    def ask_optimizer(self, messages: list[Message], call: Call, **params: Any) -> Reply:
        """The optimizer's model."""
        return self.calls.ask(
            self.optimizer_model,
            self.optimizer_price,
            messages,
            call,
            **self.patience(),
            **params,
        )

    def patience(self) -> dict[str, float]:
        """The timeout to ask with; each kind of model has its own when none is set."""
        return {"timeout": self.settings.models.timeout} if self.settings.models.timeout else {}

    def close(self) -> None:
        """Release everything, whatever fails on the way: a full disk must not keep the folder taken."""
        with ExitStack() as stack:
            stack.callback(self.model.close)
            stack.callback(self.optimizer_model.close)
            stack.callback(self.memory.close)
            stack.callback(self.journal.close)
            try:
                self.ledger.close()
            except Fault:
                self.say("note", {"text": "how long this session ran could not be written down: the disk is full"})


def run_id(settings: Settings) -> str:
    """Derived from what was asked for, not from the clock: the same settings give the same run id."""
    return digest(settings.model_dump(exclude={"out", "jobs", "budget", "review"}), 12)


def run_folder(workspace: Path, settings: Settings) -> Path:
    """--out, else runs/<domain>-<when>."""
    if settings.out:
        return Path(settings.out).expanduser().resolve()
    return workspace / "runs" / f"{settings.domain.replace(':', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"


def open_models(settings: Settings, parts: Parts | None = None) -> tuple[Model, Price, Model, Price, str]:
    """(agent's model, its price, optimizer's, its price, what to tell the user about the choice)."""
    from recreate.models import default_model, open_model
    from recreate.models.price import known_price, parse_price

    parts = parts or Parts()
    spec, told = (settings.model, "") if settings.model else default_model()
    options: dict[str, Any] = {"jobs": settings.jobs, "threads": settings.models.threads}
    given = parse_price(settings.price) if settings.price else None
    model = parts.model or open_model(spec, price=given, **options)
    price = given or known_price(model)
    other = settings.models.optimizer
    if parts.optimizer_model is None and (not other or other == spec):
        return model, price, model, price, told
    given = parse_price(settings.models.optimizer_price) if settings.models.optimizer_price else None
    optimizer = parts.optimizer_model or open_model(other, price=given, **options)
    return model, price, optimizer, given or known_price(optimizer, flag="--models.optimizer_price"), told


def default_optimizer(model: Model) -> str:
    """Who proposes edits when nobody says: the agent for a hosted model, the one structured call for others."""
    return "recreate" if model.name.startswith("litellm:") else "reflect"


def open_domain(settings: Settings, workspace: Path) -> Domain:
    """The domain by name. A domain may take the workspace (to find the user's own tasks)."""
    from recreate.plug import find

    part = find("domain", settings.domain)
    made: Domain = part(workspace=workspace) if "workspace" in inspect.signature(part).parameters else part()
    return made


def open_workshop(
    settings: Settings,
    workspace: Path,
    folder: Path,
    *,
    say: Say = silent,
    resume: bool = False,
    parts: Parts | None = None,
) -> Workshop:
    """Find every part that is not given, take the run folder, and be ready to spend.

    Raises BadInput for an unknown part, a missing key or price, a folder in use or already holding another run.
    """
    from recreate.memory import Workspace
    from recreate.plug import find
    from recreate.sandboxes import choose

    parts = parts or Parts()

    file = folder / "settings.toml"
    if file.exists() and not resume:
        raise BadInput(
            f"{folder} already holds a run",
            fix=f"recreate resume {paths.short(folder)}, or give another folder with --out",
            code="run-exists",
        )
    domain = parts.domain or open_domain(settings, workspace)
    rung = parts.rung or choose(settings.sandbox or None)
    optimizer = parts.optimizer or (find("optimizer", settings.optimizer) if settings.optimizer else None)
    model, price, optimizer_model, optimizer_price, told = open_models(settings, parts)
    if optimizer is None:
        settings = settings.model_copy(update={"optimizer": default_optimizer(optimizer_model)})
        optimizer = find("optimizer", settings.optimizer)
    if told:
        say("model", {"text": told})
    budget = Budget.parse(settings.budget)
    journal = Journal(folder)
    try:
        journal.open()
    except BaseException:
        model.close()
        raise
    file.write_text(settings_.dump(settings), "utf-8")
    ledger = Ledger(Lines(folder / "ledger.jsonl"), budget)
    run = run_id(settings)
    shop = Workshop(
        settings=settings,
        workspace=workspace,
        folder=folder,
        run=run,
        domain=domain,
        rung=rung,
        model=model,
        price=price,
        optimizer_model=optimizer_model,
        optimizer_price=optimizer_price,
        memory=Workspace(workspace, settings.memory.embedder or None),
        journal=journal,
        ledger=ledger,
        optimizer=optimizer,
        calls=Calls(run, journal, ledger, retries=settings.models.retries),
        say=say,
    )
    journal.add("start", run=run, pid=os.getpid(), model=model.name, sandbox=rung.name, domain=domain.name)
    return shop


def load_run(folder: Path) -> Settings:
    """The settings of an existing run folder."""
    import tomllib

    file = folder / "settings.toml"
    if not file.is_file():
        raise BadInput(f"{folder} is not a run folder", fix="runs lie under runs/; `ls runs` shows them", code="no-run")
    return Settings.model_validate(tomllib.loads(file.read_text("utf-8")))
