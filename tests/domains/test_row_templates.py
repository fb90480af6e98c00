"""Examples of a domain: each is sound and builds with the scripted model; and rows in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.types import Trace
from recreate.cli import run as cli
from recreate.sandboxes import choose
from tests.cli.test_bad_input import refused

ROWS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(30)]


def graded(domain: Any, answer: str, number: int = 3) -> recreate.Grade:
    task = domain.tasks()[number]
    grade: recreate.Grade = domain.grade(
        task, Trace(attempt="a", task=task.id, scaffold="", model="", answer=answer), choose()
    )
    return grade


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "qa", "tools"])
def test_an_example_holds_and_builds_by_what_is_told_to_type(
    workspace: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    assert cli(["init", "--domain", "mine", "--template", kind, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    check, build, _ = made["next"]
    assert cli([*check.split()[1:], "--shuffled", "3", "--json"]) == 0, capsys.readouterr().out
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["gold"] for row in rows] == [1.0] * 20
    flags = ["--memory.embedder", "hashed", "--train", "3", "--validation", "6", "--json"]
    assert cli([*build.split()[1:], *flags]) == 0
    built = json.loads(capsys.readouterr().out)
    assert (built["validation"]["verdict"], built["validation"]["after"]) == ("better", 1.0)


def test_an_example_makes_a_workspace_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli(["init", "fresh", "--domain", "shop", "--template", "files"]) == 0
    said = capsys.readouterr().out
    assert "cd " in said
    assert "recreate tasks check shop" in said
    assert (tmp_path / "fresh" / "recreate.toml").is_file()
    assert (tmp_path / "fresh" / "benchmarks" / "shop" / "data.jsonl").is_file()
    monkeypatch.chdir(tmp_path / "fresh")
    # a workspace takes another
    assert cli(["init", "--domain", "tools", "--template", "tools"]) == 0
    assert (
        'score = "score.py:score"'
        in (tmp_path / "fresh" / "benchmarks" / "tools" / "domain.toml").read_text()
    )


def test_an_example_goes_beside_what_data_left_in_a_plain_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # as `tasks check --data sums.jsonl` makes it
    (tmp_path / "benchmarks" / "sums").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert cli(["init", "--domain", "mine", "--template", "qa"]) == 0, capsys.readouterr().err
    assert (tmp_path / "benchmarks" / "mine" / "domain.toml").is_file()
    assert cli(["tasks", "list", "mine"]) == 0


def test_an_example_overwrites_nothing_and_needs_a_name_and_a_kind(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "benchmarks" / "qa").mkdir(parents=True)
    assert refused(capsys, "init", "--domain", "qa", "--template", "qa")["code"] == "exists"
    assert refused(capsys, "init", "--domain", "x", "--template", "haiku")["fix"].endswith(
        "tools, files"
    )
    assert refused(capsys, "init", "--domain", "x")["message"] == "which kind of example?"
    assert (
        refused(capsys, "init", "--domain", "rows", "--template", "qa")["message"]
        == "'rows' is a domain already"
    )
    assert refused(capsys, "init", "--domain", "../x", "--template", "qa")["code"] == "bad-name"
    assert list((workspace / "benchmarks").iterdir()) == [workspace / "benchmarks" / "qa"]


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


@pytest.mark.parametrize("value", [1.7, float("nan"), None, "1", {"passed": True}, -0.1])
def test_a_function_that_gives_no_score_is_named(workspace: Path, value: Any) -> None:
    def wrong(answer: str, row: Any) -> Any:
        return value

    with pytest.raises(
        Fault, match=r"test_row_templates.py:\d+ \(wrong\) gave .*, which is no score"
    ) as caught:
        graded(recreate.domain(ROWS, score=wrong), "x")
    assert caught.value.code == UNSOUND


def test_a_function_that_raises_is_named_by_its_line(workspace: Path) -> None:
    def raises(answer: str, row: Any) -> Any:
        return row["nothing"]

    with pytest.raises(
        Fault, match=r"test_row_templates.py:\d+ \(raises\) raised KeyError: 'nothing'"
    ):
        graded(recreate.domain(ROWS, score=raises), "x")
