"""A run while it runs: a line for each event."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from recreate.api.types import Usage
from recreate.cli.screen import Screen


def test_a_round_says_in_one_line_which_lessons_its_attempts_were_offered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lessons = {"ends-1": (5, 4), "way-2": (3, 0), "way-3": (1, 0), "way-4": (1, 0)}
    Screen()("offered", {"lessons": lessons, "attempts": 12, "unproven": ["ends-1"]})
    said = "ends-1 to 5 of 9 by lot (not proven here yet), way-2 to 3, way-3 to 1, and 1 more"
    assert capsys.readouterr().err == f"lessons offered in 12 attempts: {said}\n"


def test_a_score_says_how_far_its_phase_is(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen("gather", {"phase": "train", "total": 3})
    facts = {"passed": True, "reused": False, "ending": "done", "limit": ""}
    score = SimpleNamespace(task="t1", repeat=0, score=1.0, usage=Usage(calls=2), **facts)
    screen("score", {"score": score})
    assert "  train 1/3  passed  t1 (done, 2 calls)   0 calls" in capsys.readouterr().err
