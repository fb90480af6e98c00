"""The facts of a run as lines of text."""

from __future__ import annotations

import pytest

from recreate.agents.history import describe
from recreate.api.types import Edit, Revision, Verdict
from recreate.viewer.facts import explain_fate, tell_fate, verdict_text
from recreate.viewer.text import signed

STEP = Verdict(
    verdict="undecided",
    before=0.25,
    after=0.5,
    diff=0.25,
    lo=0.0,
    hi=0.5,
    p=0.1,
    tasks=8,
    repeats=1,
    step=True,
    ahead=True,
    reason="kept for now",
)


def revise(verdict: Verdict, *, kept: bool = True) -> Revision:
    edit = Edit(path="system.md", old="", new="x", reason="It asks twice.", origin="search")
    return Revision(id="b", parent="a", round=0, edits=(edit,), verdict=verdict, kept=kept)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.25, "+0.250"),
        (-0.0406, "-0.041"),
        (0.0, "+0.000"),
        (0.0004, "+0.0004"),
        (-0.00004, "-4e-05"),
    ],
)
def test_a_difference_that_is_not_0_does_not_read_as_0(value: float, text: str) -> None:
    assert signed(value) == text


def test_an_interval_does_not_touch_0_beside_better_by_rounding() -> None:
    better = STEP.model_copy(
        update={"step": False, "verdict": "better", "lo": 0.0002, "reason": ""}
    )
    line = "better: 0.250 -> 0.500, difference +0.250 [+0.0002, +0.500] over 8 tasks x 1, p = 0.100"
    assert verdict_text(better) == line
    assert explain_fate(revise(better)) == "better, +0.250 [+0.0002, +0.500]"


def test_a_step_of_the_search_claims_nothing_wherever_it_is_told() -> None:
    assert verdict_text(STEP) == "ahead: 0.250 -> 0.500 on 8 tasks; kept for now"
    revision = revise(STEP)
    assert explain_fate(revision) == "ahead, +0.250 on 8 tasks: kept for now"
    assert tell_fate(revision) == "kept for now"
    message = describe(revision).splitlines()
    assert message[0] == "Kept (for now): It asks twice."
    assert "Score: 0.250 -> 0.500 on 8 tasks; kept for now" in message
    level = STEP.model_copy(update={"ahead": False, "diff": 0.0, "reason": "not ahead"})
    assert verdict_text(level).startswith("level: ")
    assert tell_fate(revise(level, kept=False)) == "dropped"
