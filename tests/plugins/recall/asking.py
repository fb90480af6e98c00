"""A workspace with an agent that asks memory once, and does as it is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from tests.agents.test_attempt import agent, bash
from tests.plugins.recall.test_recall import RECALLS

DOMAIN = ("--domain", "tests.toy:Toy", "--sandbox", "none", "--model", "scripted:s.jsonl")


@pytest.fixture
def type_(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Type a command in a workspace with an agent `asks` that recalls once and then does as it was
    told."""
    rows = [
        bash("recall how a word is written", step=0, contains="`recall WORDS`"),
        {
            **bash("echo $1 > answer.txt", contains="it handed in"),
            "step": 1,
            "find": "it handed in: (\\S+)",
        },
        {**bash("echo $1! > answer.txt", step=0), "find": "word number (\\d)"},
        bash("submit"),
    ]
    (workspace / "recreate.toml").write_text('[memory]\nembedder = "hashed"\n')
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for path, text in agent(RECALLS).files.items():
        (workspace / "asks" / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / "asks" / path).write_text(text)

    def run(*words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = cli([*words, "--json"])
        out = capsys.readouterr().out.strip().splitlines()
        return code, json.loads(out[-1]) if out else {}

    return run
