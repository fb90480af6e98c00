"""A model asked outside of a run, by a command that grades or writes: each reply is paid once, kept
in a folder of its own with its ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from recreate.api.ports import AskJudge, AsksModel, Domain, Model, Price
from recreate.api.shapes import JsonMap
from recreate.api.types import Call, Message, Reply, digest
from recreate.runs.budget import Budget, Ledger
from recreate.runs.calls import Calls
from recreate.runs.journal import Journal
from recreate.runs.settings import Settings
from recreate.storage.log import Log

Ready = Callable[[Model], None]
"""Told of the model before its first call."""


class Alone(NamedTuple):
    """A model outside of a run: its name, what asks it, and what that costs."""

    model: str
    ask: Callable[..., Reply]
    ledger: Ledger


def ask_judge(calls: Calls, judge: tuple[Model, Price], patience: JsonMap) -> AskJudge:
    """Return what asks a judge's model: every call reserved, journalled, paid once, in the ledger
    as `judge`."""

    def ask(
        messages: Sequence[Message], *, attempt: str, task: str, step: int = 0, **params: Any
    ) -> Reply:
        call = Call(
            run=calls.run, attempt=attempt, step=step, role="judge", phase="grade", task=task
        )
        return calls.ask(judge[0], judge[1], messages, call, **patience, **params)

    return ask


@contextmanager
def judging(
    settings: Settings, workspace: Path, domain: Domain, ready: Ready = lambda model: None
) -> Iterator[tuple[Domain, Ledger | None]]:
    """Hand a domain that asks a model its judge: (it with its judge, the ledger of that); as it is
    where it asks none. Kept and raised as `judge_alone` does."""
    if not (isinstance(domain, AsksModel) and domain.asks_model):
        yield domain, None
        return
    with judge_alone(settings, workspace, domain.name, ready) as judge:
        yield domain.judged_by(judge.model, judge.ask), judge.ledger


@contextmanager
def judge_alone(
    settings: Settings, workspace: Path, name: str, ready: Ready = lambda model: None
) -> Iterator[Alone]:
    """Open the judge's model for a domain of that name. What it is asked is kept in
    runs/judge-NAME, so that the same question is paid once. Raises BadInput, `run-in-use` while
    another process judges there."""
    from recreate.models import default_model

    models = settings.models
    spec = models.judge or models.optimizer or settings.model or default_model()[0]
    folder = workspace / "runs" / f"judge-{name}"
    price = models.judge_price
    with open_alone(settings, folder, name, spec, price, "--models.judge_price", ready) as alone:
        model, patience, calls = alone
        yield Alone(model[0].name, ask_judge(calls, model, patience), calls.ledger)


@contextmanager
def open_alone(
    settings: Settings, folder: Path, name: str, spec: str, price: str, flag: str, ready: Ready
) -> Iterator[tuple[tuple[Model, Price], JsonMap, Calls]]:
    """Open a model whose replies and ledger a folder keeps. flag: what names its price."""
    from recreate.models.pricing import known_price, parse_price
    from recreate.runs.opening import open_named

    given = parse_price(price) if price else None
    with ExitStack() as stack:
        model = open_named(settings, spec, given)
        stack.callback(model.close)
        priced = model, given or known_price(model, flag=flag)
        ready(model)
        journal = Journal(folder)
        stack.callback(journal.close)
        journal.open()
        ledger = Ledger(Log(folder / "ledger.jsonl"), Budget.parse(settings.budget))
        stack.callback(ledger.close)
        run = digest([name, model.name], 12)
        calls = Calls(run, journal, ledger, retries=settings.models.retries)
        timeout = settings.models.timeout
        yield priced, {"timeout": timeout} if timeout else {}, calls
