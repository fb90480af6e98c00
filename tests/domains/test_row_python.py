"""Rows in Python: a list or a file, and a function that scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.types import Trace
from recreate.sandboxes import choose

ROWS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(30)]


def graded(domain: Any, answer: str, number: int = 3) -> recreate.Grade:
    task = domain.tasks()[number]
    grade: recreate.Grade = domain.grade(
        task, Trace(attempt="a", task=task.id, scaffold="", model="", answer=answer), choose()
    )
    return grade


def test_rows_in_python_are_a_domain(workspace: Path) -> None:
    domain = recreate.domain(ROWS, score="numeric", prompt="question", answer="answer", name="sums")
    assert isinstance(domain, recreate.Domain)
    assert graded(domain, "it is 6").passed
    assert not (workspace / "benchmarks").exists()
    with pytest.raises(BadInput, match="rows 2, 3: its answer has no number"):
        recreate.domain(
            [ROWS[0], *({"question": "a", "answer": "b"} for _ in range(2))], score="numeric"
        )
    with pytest.raises(BadInput, match="no column"):
        recreate.domain(ROWS, score="exact", prompt="nothing")


def test_a_file_in_python_keeps_what_was_decided(workspace: Path) -> None:
    (workspace / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    domain = recreate.domain("sums.jsonl", score="exact")
    assert domain.name == "sums"
    assert (workspace / "benchmarks" / "sums" / "domain.toml").is_file()


@pytest.mark.plugin("scorers")
def test_a_function_of_the_callers_scores_in_its_own_process(workspace: Path) -> None:
    seen: list[str] = []

    def close(answer: str, row: Any) -> dict[str, Any]:
        seen.append(answer)
        return {"score": 0.25, "passed": True, "evidence": f"for {row['question']}"}

    domain = recreate.domain(ROWS, score=close)
    assert graded(domain, "six") == recreate.Grade(
        score=0.25, passed=True, evidence="for What is 3 + 3?"
    )
    assert seen == ["six"]
    assert domain.grader != recreate.domain(ROWS, score=lambda answer, row: True).grader


@pytest.mark.plugin("scorers")
@pytest.mark.parametrize("value", [1.7, float("nan"), None, "1", {"passed": True}, -0.1])
def test_a_function_that_gives_no_score_is_named(workspace: Path, value: Any) -> None:
    def wrong(answer: str, row: Any) -> Any:
        return value

    with pytest.raises(
        Fault, match=r"test_row_python.py:\d+ \(wrong\) gave .*, which is no score"
    ) as caught:
        graded(recreate.domain(ROWS, score=wrong), "x")
    assert caught.value.code == UNSOUND


@pytest.mark.plugin("scorers")
def test_a_function_that_raises_is_named_by_its_line(workspace: Path) -> None:
    def raises(answer: str, row: Any) -> Any:
        return row["nothing"]

    with pytest.raises(
        Fault, match=r"test_row_python.py:\d+ \(raises\) raised KeyError: 'nothing'"
    ):
        graded(recreate.domain(ROWS, score=raises), "x")
