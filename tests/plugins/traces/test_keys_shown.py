"""Keys are masked in what is exported and shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recreate.builder import sdk
from recreate.cli import run as cli
from tests.builder import test_keys
from tests.builder.test_keys import KEYS, leaked

go = test_keys.go


@pytest.mark.slow
def test_nothing_that_is_printed_of_it_holds_a_key(
    go: Callable[..., sdk.Outcome],
    workspace: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go("a")
    monkeypatch.chdir(workspace / "of-a")
    for words in (
        "log last",
        "show last",
        "diff seed scaffolds/leaking",
        "traces list last",
        "show scaffolds/leaking --json",
    ):
        assert cli(words.split()) == 0
        told = capfd.readouterr()
        assert [k for k, text in KEYS.items() if text in told.out + told.err] == []
    assert cli(["show", "last", "--html"]) == 0
    assert leaked(workspace) == []
