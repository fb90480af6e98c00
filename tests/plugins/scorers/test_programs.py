"""A person's function as the scorer: what is wrong with it is no agent's fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import SandboxBackend
from recreate.api.types import Grade
from recreate.domains.rows.domain import RowDomain
from recreate.sandboxes import choose
from tests.row_domains import graded, opened

KEY = "sk-proj-" + "a1B2" * 12
SCORERS = f"""
import json

def right(answer, row):
    print(json.dumps({{"value": 0.0}}) * 3)
    return answer.strip() == row["answer"]

def words(answer, row):
    return {{"score": 0.5, "passed": True, "evidence": "half of it"}}

def large(answer, row):
    return 1.7

def not_a_number(answer, row):
    return float("nan")

def nothing(answer, row):
    pass

def raises(answer, row):
    if answer != "fine":
        raise KeyError("{KEY}")
    return 1

def hangs(answer, row):
    while True:
        pass

def floods(answer, row):
    while True:
        print("x" * 100000)

def dies(answer, row):
    import os
    os._exit(0)

def looks(answer, row):
    import os, socket
    assert not [name for name in os.environ if "KEY" in name]
    try:
        socket.create_connection(("1.1.1.1", 53), timeout=2)
    except OSError:
        return 1
    return 0
"""


@pytest.fixture(scope="module")
def backend() -> SandboxBackend:
    return choose()


def mine(workspace: Path, function: str, seconds: float = 30.0) -> RowDomain:
    (workspace / "score.py").write_text(SCORERS)
    rows = [{"question": f"{n}?", "answer": f"word {n}"} for n in range(3)]
    part = opened(workspace, rows, f"{workspace / 'score.py'}:{function}", function)
    if seconds != 30.0:
        assert part.tasks()
        file = workspace / "benchmarks" / function / "domain.toml"
        file.write_text(file.read_text().replace("seconds = 30.0", f"seconds = {seconds}"))
        part = opened(workspace, rows, "", function)
    return part


def test_a_function_of_ones_own_scores_in_a_sandbox(
    workspace: Path, backend: SandboxBackend
) -> None:
    part = mine(workspace, "right")
    assert graded(part, 1, "word 1", backend) == Grade(
        score=1.0, passed=True, evidence="right gives 1."
    )
    assert graded(part, 1, "word 2", backend).score == 0.0
    assert graded(mine(workspace, "words"), 0, "x", backend) == Grade(
        score=0.5, passed=True, evidence="half of it"
    )
    assert graded(mine(workspace, "looks"), 0, "x", backend).score == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("large", "score.py:11 gave 1.7 (float), which is no score"),
        ("not_a_number", "gave nan (float)"),
        ("nothing", "gave None (NoneType)"),
        ("raises", "score.py:22 raised KeyError"),
        ("hangs", "longer than 1 s"),
        ("floods", "longer than 1 s"),
        ("dies", "ended with the status 0 and told nothing"),
        ("absent", "no function absent"),
    ],
)
def test_a_scorer_that_gives_no_score_is_named_and_no_answer_is_wrong(
    workspace: Path, backend: SandboxBackend, function: str, said: str
) -> None:
    part = mine(workspace, function, 1.0)
    with pytest.raises(Fault) as caught:
        graded(part, 0, "x", backend)
    assert caught.value.code == UNSOUND
    assert said in caught.value.message
    assert KEY not in caught.value.message
    assert f"mend {function} in score.py: it must return a number from 0 to 1" in caught.value.fix
    with pytest.raises(BadInput) as broken:  # before the first attempt is paid for
        part.prepare(part.tasks()[0], backend)
    assert broken.value.code == "bad-scorer"


def test_a_scorer_that_fails_on_one_answer_lets_attempts_begin(
    workspace: Path, backend: SandboxBackend
) -> None:
    (workspace / "score.py").write_text(
        "def odd(answer, row):\n    return 1 / (row['n'] - 1) >= 0\n"
    )
    rows = [{"question": f"{n}?", "answer": "x", "n": n} for n in (1, 2, 3)]
    part = opened(workspace, rows, f"{workspace / 'score.py'}:odd")
    part.prepare(part.tasks()[0], backend).close()
    with pytest.raises(Fault, match=r"score.py:2 raised ZeroDivisionError"):
        graded(part, 0, "x", backend)
    assert graded(part, 1, "x", backend).passed


def test_another_text_of_the_scorer_is_another_grader(workspace: Path) -> None:
    before = mine(workspace, "right").grader
    (workspace / "score.py").write_text(SCORERS.replace("strip()", "lower()"))
    rows = [{"question": f"{n}?", "answer": f"word {n}"} for n in range(3)]
    assert opened(workspace, rows, "", "right").grader != before


def test_rows_whose_right_answer_is_not_named_say_that_edits_are_not_scanned_for_it(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "score.py").write_text(SCORERS)
    (workspace / "a.jsonl").write_text('{"question": "Which?", "tag7": "this"}\n' * 2)
    named = {"score": "score.py:right", "data": "a.jsonl"}
    for columns in ({}, {"answer": "tag7"}):
        RowDomain("a", **named, columns=columns).tasks()
        said = "score.py:right may read a right answer in tag7; none is known" in " ".join(
            capsys.readouterr().err.split()
        )
        assert said == (not columns)
