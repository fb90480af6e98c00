"""An attempt named by the beginning of its id."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.runs.reader import Run
from tests.cli import test_beginnings
from tests.cli.test_beginnings import said

once = test_beginnings.once
there = test_beginnings.there


def test_of_an_attempt_and_a_lesson(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    id = next(Run(there / "runs/alpha-1").records("experience"))["attempt"]
    assert said(capsys, "traces", "show", id[:7])["experience"] == id
    assert said(capsys, "traces", "show", id[:7], "--run", "alpha")["experience"] == id


def test_the_place_that_is_shown_has_most_of_the_words() -> None:
    from recreate.plugins.traces.attempts import around

    text = "tab " + "x " * 300 + "the unicode width of a tab" + " y" * 300
    assert "unicode width of a tab" in around(text, "unicode width tab")
    assert around(text, "nowhere") == ""
    assert around("stable table tab", "tab").endswith("tab")
    assert around(text, "").startswith("tab x x")
