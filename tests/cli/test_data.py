"""--data FILE: from a file to an agent with what a user types, and what is said on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.cli import run as cli
from recreate.runs.settings import load
from tests.cli.test_bad_input import refused

LESSON = "Add 1 to every sum: the bowl holds one more."


def questions(folder: Path, count: int = 40) -> Path:
    """Sums whose answers are one too many, which only experience shows."""
    rows = [
        {"id": f"q{n}", "question": f"What is {n + 10} + {n + 10}?", "answer": 2 * n + 21}
        for n in range(count)
    ]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "sums.jsonl"


def model(folder: Path, count: int = 40) -> str:
    """A scripted model that adds up, and does as the lesson says once it reads it; as optimizer it
    finds the lesson."""
    rows: list[dict[str, Any]] = []
    for n in range(count):
        for lesson, value in ((LESSON, 2 * n + 21), ("", 2 * n + 20)):
            text = f"```bash\necho {value} > answer.txt\n```"
            row = {"role": "agent", "task": f"sums:sums:q{n}", "step": 0, "text": text}
            rows.append({**row, "contains": lesson} if lesson else row)
    rows.append({"role": "agent", "text": "```bash\nsubmit\n```"})
    edit = {
        "file": "new lesson",
        "line": 0,
        "title": "Sums",
        "text": LESSON,
        "experience": "$1",
        "step": 0,
    }
    study = {
        "why": "it is one too few",
        "cause": "knowledge",
        "edits": [{**edit, "reason": "The grader says so."}],
    }
    rows.append(
        {
            "role": "optimizer",
            "find": r"experience ([0-9a-f]{16}): FAILED",
            "text": json.dumps(study),
        }
    )
    (folder / "script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"scripted:{folder / 'script.jsonl'}"


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[Any], str]:
    code = cli([*words, "--json"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def test_a_task_of_rows_is_attempted_by_its_id_alone(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "recreate.toml").write_text('[memory]\nembedder = "hashed"')
    flags = ["--model", model(workspace)]
    assert asked(capsys, "tasks", "check", "--data", str(questions(workspace)))[0] == 0
    code, (ended,), said = asked(capsys, "run", "seed", "sums:sums:q1", *flags)
    assert code == 0, said
    assert recreate.run("seed", "sums:sums:q1", model=flags[1]).id == ended["experience"]
    code, (refused,), _ = asked(capsys, "run", "seed", "smus:sums:q1", *flags)
    assert (code, refused["error"]["code"]) == (2, "unknown-domain")
    assert "did you mean 'sums'" in refused["error"]["fix"]


@pytest.mark.slow
def test_from_a_file_to_an_agent_in_one_command(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions(workspace)
    flags = [
        "--model",
        model(workspace),
        "--memory.embedder",
        "hashed",
        "--train",
        "4",
        "--validation",
        "10",
    ]
    code, (built,), said = asked(capsys, "build", "--data", "sums.jsonl", *flags, "--out", "runs/a")
    assert code == 0, said
    assert (built["validation"]["before"], built["validation"]["after"]) == (0.0, 1.0)
    assert built["scaffold"]["path"].endswith("scaffolds/sums")
    assert (workspace / "benchmarks" / "sums" / "domain.toml").is_file()
    code, (attempted,), _ = asked(capsys, "run", "sums", "sums:sums:q1", *flags[:2])
    assert (code, attempted["score"]) == (0, 1.0)
    code, (resumed,), _ = asked(capsys, "resume", "runs/a")
    assert (code, resumed["scaffold"]) == (0, built["scaffold"])


def test_a_column_of_splits_and_a_split_can_both_be_said(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"q": f"{n}?", "a": "x", "fold": "test" if n % 2 else "dev"} for n in range(6)]
    (workspace / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mapped = ["--data", "f.jsonl", "--prompt", "q", "--answer", "a"]
    _, found, _ = asked(capsys, "tasks", "list", *mapped, "--split", "fold")
    assert [row["split"] for row in found] == ["validation", "test"] * 3
    _, found, _ = asked(
        capsys, "tasks", "list", *mapped, "--columns.split", "fold", "--split", "test"
    )
    assert len(found) == 3


def test_which_domain_data_means_is_settled_with_the_settings(workspace: Path) -> None:
    data = str(questions(workspace))
    assert load(workspace, {"data": data}).domain == "sums"
    assert load(workspace, {"data": data, "domain": "other"}).domain == "other"
    assert load(workspace, {"data": data, "domain": "swe"}).domain == "swe"
    (workspace / "rubric.md").write_text("x")
    assert load(workspace, {"score": "judge:rubric.md"}).score == f"judge:{workspace / 'rubric.md'}"
    (workspace / "recreate.toml").write_text(
        'data = "sums.jsonl"\nscore = "exact"\n[columns]\nid = "id"\n'
    )
    settings = load(workspace, {})
    assert (settings.domain, settings.columns.id, settings.score) == ("sums", "id", "exact")


@pytest.mark.plugin("scorers")
def test_the_file_of_a_scorer_is_found_from_where_it_was_typed(workspace: Path) -> None:
    (workspace / "mine.py").write_text("x")
    assert load(workspace, {"score": "mine.py:score"}).score == f"{workspace / 'mine.py'}:score"


def test_on_a_terminal_what_cannot_be_guessed_is_asked_for_once(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "f.jsonl").write_text('{"ask": "x", "right": "y"}\n')
    replies = iter(["ask\n", "right\n"])
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: next(replies))
    assert cli(["tasks", "list", "--data", "f.jsonl", "--score", "exact"]) == 0
    out, err = capsys.readouterr()
    assert "f.jsonl has the columns ask, right" in err
    assert "which is the prompt (--prompt)?" in err
    assert "f:f:" in out
    assert cli(["tasks", "list", "f"]) == 0  # nothing is left to ask


def test_a_refused_command_leaves_no_domain_that_blocks_other_data(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(questions(workspace, 2))
    error = refused(capsys, "build", "--data", data, "--model", model(workspace, 2))
    assert error["code"] in ("no-tasks", "too-few-tasks")
    assert not (workspace / "benchmarks").exists()
    (workspace / "other").mkdir()
    assert cli(["tasks", "list", "--data", str(questions(workspace / "other"))]) == 0
    refused(capsys, "build", "--domain", "sums", "--model", model(workspace), "--rounds", "-1")
    assert (workspace / "benchmarks" / "sums" / "domain.toml").is_file()  # it was there before


@pytest.mark.plugin("scorers")
def test_a_check_without_any_right_answer_is_one_refusal(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "mine.py").write_text("def score(answer, row):\n    return 1.0\n")
    (workspace / "f.jsonl").write_text('{"q": "1?", "right": "1"}\n{"q": "2?", "right": "2"}\n')
    flags = ["--data", "f.jsonl", "--prompt", "q", "--score", "mine.py:score"]
    error = refused(capsys, "tasks", "check", *flags)
    assert error["code"] == "no-gold"
    assert "--answer COLUMN" in error["fix"]
    assert not (workspace / "benchmarks").exists()
    assert cli(["tasks", "list", *flags]) == 0  # attempts can be scored all the same
