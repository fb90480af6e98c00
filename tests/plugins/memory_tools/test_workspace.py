"""Memory's commands where there is none yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.cli import run


def test_recall_where_nothing_was_ever_attempted_says_what_makes_a_memory(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["memory", "recall", "a tab"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "nothing is remembered here yet" in said.err
