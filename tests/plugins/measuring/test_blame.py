"""Each line of an agent leads to who wrote it: the seed, an edit with its verdict and steps, or a
person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from recreate.runs.reader import Run
from tests.toy import LESSON, script


@pytest.fixture
def flags(workspace: Path) -> list[str]:
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in script()))
    return [
        "--domain",
        "tests.toy:Toy",
        "--model",
        f"scripted:{workspace / 's.jsonl'}",
        "--sandbox",
        "none",
    ]


def blamed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert cli(["blame", *words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_lines_of_the_seed_of_an_edit_and_of_a_person_are_told_apart_over_two_builds(
    workspace: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["build", *flags, "--scaffold", "seed", "--rounds", "1", "--out", "runs/a"]) == 0
    (revision,) = Run(workspace / "runs/a").revisions()
    (edit,) = revision.edits
    agent = workspace / "scaffolds" / "toy"
    assert {row["origin"] for row in blamed(capsys, str(agent / "workflow.md"))} == {"seed"}
    rows = blamed(capsys, f"toy/{edit.path}")
    (lesson,) = [row for row in rows if row["text"] == LESSON]
    assert {row["origin"] for row in rows} == {"edit"}
    assert (lesson["revision"], lesson["verdict"]["verdict"]) == (revision.id, "better")
    assert lesson["evidence"] == [
        {"experience": e.experience, "step": e.step} for e in edit.evidence
    ]
    assert lesson["edit"]["reason"] == edit.reason

    # a person writes a line, and another build begins from that
    system = agent / "system.md"
    system.write_text(system.read_text("utf-8") + "Be kind.\n", "utf-8")
    assert [row["origin"] for row in blamed(capsys, str(system))][-1] == "human"
    assert cli(["build", *flags, "--rounds", "1", "--out", "runs/b"]) == 0
    assert [row["origin"] for row in blamed(capsys, str(system))][-1] == "human"
    again = blamed(capsys, f"toy/{edit.path}:{lesson['line']}")
    assert [(row["text"], row["revision"]) for row in again] == [(LESSON, revision.id)]

    capsys.readouterr()
    assert cli(["blame", f"toy/{edit.path}:{lesson['line']}"]) == 0
    said = capsys.readouterr().out
    assert f"traces show {edit.evidence[0].experience}" in said
    assert "kept in round 1: better" in said


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("nothing.md", "there is no file 'nothing.md'"),
        ("seed/system.md:999", "lines"),
        ("recreate.toml", "is in no agent's folder"),
    ],
)
def test_what_is_no_line_of_an_agent_is_refused(
    file: str, told: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["blame", file, "--json"]) == 2
    assert told in json.loads(capsys.readouterr().out)["error"]["message"]


def test_an_agent_that_no_run_made_is_its_seed(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = blamed(capsys, "seed/system.md")
    assert {(row["origin"], row["revision"]) for row in rows} == {("seed", "")}
    assert [row["line"] for row in rows] == list(range(1, len(rows) + 1))
