"""Agents of other packages, as recreate/plugins/foreign/README.md glues them: attempted, recorded,
and found in memory."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.cli import run as cli
from recreate.models.scripted import Scripted
from tests.pages import ROOT, examples
from tests.toy import Toy

CALLS = [
    {
        "lacks": "w0!",
        "text": "so:",
        "tool_calls": [{"name": "bash", "arguments": {"command": "echo 'w0!' | tee answer.txt"}}],
    },
    {"text": "That is all."},
]
PROMPT = "You write answers with a shell.\n"


def glue(word: str) -> str:
    """The one Python block of the page that holds a word."""
    (text,) = [
        block for block in examples(ROOT / "recreate/plugins/foreign/README.md") if word in block
    ]
    assert len([line for line in text.splitlines() if line.strip()]) < 20
    return text


def attempted(scaffold: Any, workspace: Path, rows: list[dict[str, Any]]) -> recreate.Experience:
    return recreate.run(
        scaffold, "toy:train:0", Toy(), model=Scripted.of(rows), out=str(workspace / "runs" / "one")
    )


def searchable(made: recreate.Experience, capsys: pytest.CaptureFixture[str]) -> None:
    """By what it did."""
    capsys.readouterr()
    assert cli(["traces", "search", "tee answer.txt", "--json"]) == 0
    assert made.id in capsys.readouterr().out


def passed(made: recreate.Experience) -> None:
    assert (made.trace.ending, made.grade.passed) == ("submitted", True), made.trace.steps[
        -1
    ].output
    (acted,) = [
        step
        for step in made.trace.steps
        if "tee answer.txt" in step.action and step.kind == "action"
    ]
    assert "echo 'w0!' | tee answer.txt" in acted.action
    assert "w0!" in acted.output


def wrapped(word: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (workspace / "prompt.md").write_text(PROMPT)
    (workspace / f"glue_{word}.py").write_text(glue(word))  # smolagents reads the source of tools
    monkeypatch.syspath_prepend(workspace)
    return importlib.import_module(f"glue_{word}").agent


def test_a_langgraph_graph(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = attempted(wrapped("langgraph", workspace, monkeypatch), workspace, CALLS)
    passed(made)
    searchable(made, capsys)


OTHERS = pytest.mark.filterwarnings("ignore")
"""What other packages warn of is their affair."""


@OTHERS
@pytest.mark.slow
def test_a_solver_of_inspect(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("inspect_ai")
    made = attempted(wrapped("inspect_ai", workspace, monkeypatch), workspace, CALLS)
    passed(made)
    searchable(made, capsys)


@OTHERS
@pytest.mark.slow
def test_an_agent_of_smolagents(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("smolagents")
    ends = {"text": "", "tool_calls": [{"name": "final_answer", "arguments": {"answer": "done"}}]}
    made = attempted(wrapped("smolagents", workspace, monkeypatch), workspace, [CALLS[0], ends])
    passed(made)
    searchable(made, capsys)


@OTHERS
@pytest.mark.slow
def test_mini_swe_agent_in_the_sandbox(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("minisweagent")
    import minisweagent as mini

    capsys.readouterr()  # it greets
    page = (
        (ROOT / "recreate/plugins/foreign/README.md")
        .read_text("utf-8")
        .partition("## mini-swe-agent")[2]
    )
    found = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    folder = workspace / "scaffolds" / "mini"
    folder.mkdir(parents=True)
    (folder / "agent.toml").write_text(found[1].replace("~/venvs/mini", sys.prefix))
    (folder / "mini.yaml").write_text(
        (Path(mini.__file__).parent / "config" / "mini.yaml").read_text("utf-8")
    )
    ends = {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}
    rows = [CALLS[0], {"text": "Done.", "tool_calls": [{"name": "bash", "arguments": ends}]}]
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:s.jsonl",
        "--out",
        "runs/one",
        "--json",
    ]
    assert cli(["run", "mini", "toy:train:0", *flags]) == 0
    made = recreate.ExperienceStore(workspace, "hashed").get(
        json.loads(capsys.readouterr().out)["experience"]
    )
    assert made is not None
    passed(made)
    searchable(made, capsys)
