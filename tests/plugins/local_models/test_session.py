"""A run whose model is on this machine."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from recreate.api.errors import BadInput
from recreate.models.scripted import Scripted
from recreate.runs import settings
from recreate.runs.session import Parts, open_session
from tests.toy import Toy


def test_another_model_is_another_session_of_the_same_run(workspace: Path) -> None:
    model, other = Scripted.of([{"text": "a"}]), Scripted.of([{"text": "b"}])
    loaded = settings.load(workspace, {"optimizer": "reflect", "memory.embedder": "hashed"}, {})
    parts = Parts(domain=Toy(), model=model)
    session = open_session(loaded, workspace, workspace / "runs" / "a", parts=parts)
    try:
        with pytest.raises(FrozenInstanceError):
            session.model = other  # type: ignore[misc]
        trained = session.with_model(other, "base@1234")
        assert (trained.model, trained.model_name) == (other, "base@1234")
        assert (session.model, session.model_name) == (model, model.name)
        assert (trained.journal, trained.ledger, trained.run) == (
            session.journal,
            session.ledger,
            session.run,
        )
    finally:
        session.close()


def test_a_model_that_was_given_is_open_still_when_the_session_could_not_be_opened(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, closed = Scripted.of([{"text": "a"}]), list[Scripted]()
    monkeypatch.setattr(Scripted, "close", lambda self: closed.append(self))
    flags = {"optimizer": "reflect", "optimizer_settings.nothing": 1, "memory.embedder": "hashed"}
    with pytest.raises(BadInput, match="nothing"):
        open_session(
            settings.load(workspace, flags, {}),
            workspace,
            workspace / "runs/a",
            parts=Parts(domain=Toy(), model=model),
        )
    assert closed == []
