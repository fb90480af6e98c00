"""`--agent COMMAND`: an agent that exists already is run, measured and improved like one of
ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.cli import run as cli
from tests.toy import LESSON, script

STAND_IN = (Path(__file__).parent / "stand_in.py").read_text("utf-8")
AGENT = ["--agent", "python3 agent.py {prompt_file}", "--texts", "prompts/*.md"]
FLAGS = ["--domain", "tests.toy:Toy", "--model", "scripted:script.jsonl", "--json"]


@pytest.fixture
def theirs(workspace: Path) -> Path:
    """A folder with somebody's agent in it, and a model that learns by an edit of its prompt."""
    (workspace / "prompts").mkdir()
    (workspace / "prompts" / "system.md").write_text("You write answers.\n")
    (workspace / "agent.py").write_text(STAND_IN)
    rows = script()
    edit = {
        "file": "prompts/system.md",
        "line": 0,
        "title": "",
        "text": LESSON,
        "reason": "It wants a mark.",
    }
    study = {"why": "w", "cause": "knowledge", "edits": [{**edit, "experience": "$1", "step": 0}]}
    rows[-1]["text"] = json.dumps(study)
    (workspace / "script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return workspace


def go(capsys: pytest.CaptureFixture[str], args: Sequence[str]) -> tuple[int, Any]:
    code = cli([*args])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


def test_it_attempts_one_task(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = go(capsys, ["run", *AGENT, "toy:train:0", *FLAGS, "--out", "runs/one"])
    assert (code, found["ending"], found["score"], found["steps"]) == (0, "submitted", 0.0, 3)
    id = found["experience"]
    assert (
        go(capsys, ["traces", "show", id, "--json"])[1]["steps"][0]["action"]
        == "printf %s 'w0' > answer.txt"
    )
    assert cli(["traces", "search", "answer.txt", "--json"]) == 0
    assert id in capsys.readouterr().out


def test_its_run_is_replayed_without_a_model(
    theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, first = go(
        capsys, ["run", *AGENT, "toy:train:0", *FLAGS, "--record", "tape", "--out", "runs/one"]
    )
    (theirs / "script.jsonl").unlink()
    code, again = go(
        capsys, ["run", *AGENT, "toy:train:0", "--replay", "tape", "--out", "runs/two", "--json"]
    )
    assert (code, again["experience"], again["usage"]) == (0, first["experience"], first["usage"])


def test_after_a_fault_it_goes_on_with_the_replies_that_were_paid(
    theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    acts = "```bash\nprintf w0! > answer.txt\n```"
    rows = [
        {"step": 0, "text": acts},
        {"step": 1, "fault": "503", "fault_times": 1, "text": "Done."},
    ]
    (theirs / "script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    once = ["--tasks", "1", "--models.retries", "0", "--out", "runs/one"]
    code, found = go(capsys, ["bench", *AGENT, *FLAGS, *once])
    assert (code, found["cells"][0]["n"]) == (0, 1)
    kinds = [
        json.loads(line) for line in (theirs / "runs/one/journal.jsonl").read_text().splitlines()
    ]
    asked = [record["call"].rpartition("/")[2] for record in kinds if record["kind"] == "reply"]
    assert asked == ["0", "1"]


@pytest.mark.slow
def test_a_build_edits_the_texts_that_it_declares_and_nothing_else(
    theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [
        "--optimizer",
        "reflect",
        "--train",
        "2",
        "--validation",
        "5",
        "--memory.embedder",
        "hashed",
    ]
    code, found = go(capsys, ["build", *AGENT, *FLAGS, *small, "--out", "runs/one"])
    assert (code, found["validation"]["before"], found["validation"]["after"]) == (0, 0.0, 1.0)
    agent, seed = scaffolds.load("scaffolds/toy"), scaffolds.load("runs/one/seed")
    changed = {path for path in agent.files if agent.files[path] != seed.files.get(path)}
    assert changed == {"README.md", "prompts/system.md"}
    assert agent.files["prompts/system.md"] == f"You write answers.\n{LESSON}\n"
    code, found = go(
        capsys,
        ["bench", "--scaffold", "scaffolds/toy", "--tasks", "2", *FLAGS, "--out", "runs/two"],
    )
    assert (code, found["cells"][0]["mean"]) == (0, 1.0)


def test_its_limits_are_given_by_flags(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = go(
        capsys, ["run", *AGENT, "toy:train:0", *FLAGS, "--limits.steps", "1", "--out", "runs/one"]
    )
    assert (found["ending"], found["limit"]) == ("limit", "steps")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (
            ["run", "--agent", "python3 agent.py", "--texts", "nothing/*.md", "toy:train:0"],
            "no-files",
        ),
        (["run", "--agent", "python3 agent.py", "seed", "toy:train:0"], "usage"),
        (["run", "--texts", "prompts/*.md", "seed", "toy:train:0"], "usage"),
        (["run", "seed"], "usage"),
        (["build", "--agent", "python3 agent.py", "--train", "2", "--validation", "5"], "no-texts"),
        (
            [
                "build",
                "--agent",
                "no-such-agent {prompt_file} && cat prompts/system.md",
                "--texts",
                "prompts/*.md",
            ],
            "bad-scaffold",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_spent(
    theirs: Path, capsys: pytest.CaptureFixture[str], args: list[str], code: str
) -> None:
    status, found = go(capsys, [*args, *FLAGS, "--out", "runs/one"])
    assert (status, found["error"]["code"]) == (2, code)
    assert not list(theirs.glob("runs/*/attempts/*"))
