"""The model that writes a generator, each of its replies paid once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recreate.api.types import Call, Message, Reply, digest
from recreate.runs.alone import Alone, Ready, open_alone
from recreate.runs.settings import Settings


@contextmanager
def writer_alone(
    settings: Settings, folder: Path, what: str, ready: Ready = lambda model: None, **params: Any
) -> Iterator[Alone]:
    """Open `--model` for one thing, in a word: `ask(messages, step)` is reply by reply, each in the
    folder, in its ledger as `writer`, and paid once. Raised as of `judge_alone`."""
    spec = settings.model
    price = settings.price
    with open_alone(settings, folder, what, spec, price, "--price", ready) as alone:
        model, patience, calls = alone

        def ask(messages: Sequence[Message], step: int) -> Reply:
            attempt = digest([what, messages[0]])
            call = Call(run=calls.run, attempt=attempt, step=step, role="writer", phase=what)
            return calls.ask(model[0], model[1], messages, call, **patience, **params)

        yield Alone(model[0].name, ask, calls.ledger)
