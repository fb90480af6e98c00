"""recreate tasks make swe: what its flags refuse, and which command a word means."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run

Refused = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def refused(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command with --json: its exit code, and the one object that it printed."""

    def refused(*words: str) -> tuple[int, dict[str, Any]]:
        code = run([*words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return refused


def test_a_variable_needs_a_value(refused: Refused) -> None:
    code, error = refused("tasks", "make", "swe", "--package", "a==1", "--env", "A")
    assert (code, error["error"]["fix"]) == (2, "--env NAME=VALUE")


@pytest.mark.parametrize(
    "flags",
    [[], ["--package", "parse"], ["--package", "==1"], ["--package", "parse==1", "--repo", "."]],
    ids=str,
)
def test_making_tasks_needs_one_source(refused: Refused, flags: list[str]) -> None:
    code, error = refused("tasks", "make", "swe", *flags)
    assert (code, error["error"]["code"]) == (2, "no-source")
    assert "NAME==VERSION" in error["error"]["fix"]


def test_the_domain_chooses_the_source_of_tasks(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tasks", "make", "swe", "--help"]) == 0
    assert "--package" in capsys.readouterr().out
    assert run(["tasks", "make", "bills", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--generator" in out
    assert "--package" not in out
