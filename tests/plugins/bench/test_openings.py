"""Each look at test tasks is written down, and told beside the score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.cli import run as cli
from recreate.storage.log import Log
from tests.builder.test_held_out import lines
from tests.toy import write_script


@pytest.fixture
def model(workspace: Path) -> str:
    return write_script(workspace / "script.jsonl")


def taught(workspace: Path, *words: str) -> list[str]:
    """Agents that differ in a word."""
    names = []
    for word in words:
        files = scaffolds.load(shipped("scaffolds") / "seed").files
        changed = recreate.Scaffold(
            name=word, files={**files, "system.md": files["system.md"] + f"\n{word}\n"}
        )
        scaffolds.save(changed, workspace / "scaffolds" / word)
        names.append(word)
    return names


def bench(capsys: pytest.CaptureFixture[str], model: str, *more: str) -> dict[str, Any]:
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        model,
        "--sandbox",
        "none",
        "--split",
        "test",
        "--json",
    ]
    assert cli(["bench", *flags, *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_every_agent_measured_on_test_is_a_line_and_its_number_stands_beside_its_score(
    workspace: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = taught(workspace, "one", "two", "three")
    for n, name in enumerate((a, b, c), 1):
        made = bench(capsys, model, "--scaffold", name, "--out", "runs/x")
        assert (made["cells"][0]["test_openings"], made["test_openings"]) == (n, n)
    assert len({row["scaffold"] for row in lines(workspace)}) == 3
    both = bench(capsys, model, "--scaffold", a, "--scaffold", b, "--out", "runs/y")
    assert [cell["test_openings"] for cell in both["cells"]] == [4, 5]
    again = bench(capsys, model, "--scaffold", a, "--out", "runs/x")
    assert (again["cells"][0]["test_openings"], again["test_openings"]) == (
        1,
        5,
    ), "read back, not opened"
    assert len(lines(workspace)) == 5
    flags = ["--domain", "tests.toy:Toy", "--model", model, "--sandbox", "none", "--split", "test"]
    assert cli(["bench", *flags, "--scaffold", b, "--out", "runs/x"]) == 0
    assert "; opening 2 of the test split" in capsys.readouterr().out


def test_other_tasks_or_more_repeats_of_one_agent_are_another_opening(
    workspace: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for n, more in enumerate((["--tasks", "2"], ["--tasks", "3"], [], ["--repeats", "2"]), 1):
        out = ["--out", "runs/x" if "--repeats" not in more else "runs/z"]
        assert bench(capsys, model, "--scaffold", "seed", *out, *more)["test_openings"] == n


def test_a_second_opening_for_the_same_question_says_so(
    workspace: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = taught(workspace, "one", "two")
    flags = [
        "bench",
        "--domain",
        "tests.toy:Toy",
        "--model",
        model,
        "--sandbox",
        "none",
        "--split",
        "test",
    ]

    def said(*more: str) -> str:
        assert cli([*flags, *more]) == 0
        return next(line for line in capsys.readouterr().out.splitlines() if "; opening" in line)

    first = said("--scaffold", a, "--tasks", "toy:test:1")
    assert "which 1 agent was measured on" in first
    assert "before" not in first
    other = said("--scaffold", a, "--tasks", "toy:test:2")
    assert "before" not in other, "another task is another question"
    second = said("--scaffold", b)
    assert "which 2 agents were measured on" in second
    assert "before" not in second
    assert "the same was asked of this agent before, by opening 1, 2: all of them count" in said(
        "--scaffold", a
    )
    file = workspace / "runs/test_openings.jsonl"
    old = [
        {k: v for k, v in line.items() if k not in ("model", "of", "sum")}
        for line in lines(workspace)
    ]
    file.unlink()
    with Log(file) as log:
        for line in old:
            log.append(line)
    assert "by opening 3: all of them count" in said("--scaffold", b), (
        "an older line may be of the same tasks"
    )
