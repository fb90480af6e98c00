"""A comparison ends, whatever the answer is: after its seconds of CPU time, or out of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recreate.api.ports import Limits, Sandbox
from recreate.api.types import Task, Trace
from recreate.domains.rows import bounded
from recreate.domains.rows.scorers import RowTask, Scored, find_scorer
from recreate.domains.rows.settings import Columns, Definition, ScorerSettings

BRIEF = ScorerSettings(seconds=0.2)
MARKS = "a" + "\u0300\u0316" * 300_000
"""Characters that normalising sorts, pair by pair."""


def no_sandbox(limits: Limits) -> Sandbox:
    raise AssertionError("no sandbox is opened")


def score(kind: str, answer: str, right: Any, settings: ScorerSettings = BRIEF) -> Scored:
    task = Task(id="a:b:c", domain="a", prompt="?", split="train", group="g",
                facts={"answer": right, "row": {}})  # fmt: skip
    known = Definition(data="x", score=kind, columns=Columns(), scorer=settings)
    trace = Trace(attempt="t", task=task.id, scaffold="", model="", answer=answer)
    return find_scorer(kind).score(RowTask(task, known, Path()), trace, no_sandbox)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "answer", "right"),
    [
        ("exact", MARKS, "Paris"),
        ("contains", MARKS, "Paris"),
        ("numeric", MARKS, "42"),
    ],
)
def test_an_answer_that_takes_for_ever_to_compare_is_wrong(
    kind: str, answer: str, right: object
) -> None:
    found = score(kind, answer, right)
    assert found.score == 0.0
    if kind in ("exact", "contains"):
        assert "0.2 s of CPU time" in found.why


@pytest.mark.slow
def test_comparisons_go_on_after_one_that_was_ended() -> None:
    assert bounded.compare("exact", MARKS, "Paris", BRIEF) is None
    long = "Paris " * 5_000
    assert score("exact", long, long).score == 1.0
    assert score("exact", long, "Paris").score == 0.0


def test_a_short_answer_is_compared_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "compare", None)
    assert score("exact", "Paris", "Paris").score == 1.0
