"""A lesson, a study or an attempt named by the beginning of its id."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recreate.cli import run as cli
from tests.cli import test_beginnings
from tests.cli.test_beginnings import said

once = test_beginnings.once
there = test_beginnings.there


def test_recall_shows_the_words_that_it_found(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = said(
        capsys,
        "memory",
        "recall",
        "AssertionError",
        "--how",
        "keywords",
        "--as",
        "human",
        "-k",
        "2",
    )
    assert all("AssertionError" in hit["match"] for hit in found["hits"])
    assert (
        cli(["memory", "recall", "AssertionError", "--how", "keywords", "--as", "human", "-k", "2"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert all("AssertionError" in line for line in lines[1::2])


LESSON = (
    "A tab is eight columns wide, so what has the width of one asks maxWidth and not the tabloid."
)


ASKED = ("memory", "recall", "how wide is the width of a tab?", "--how", "keywords")


def test_recall_underlines_the_words_that_it_found_on_a_terminal_and_nowhere_else(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    (workspace / "recreate.toml").write_text('[memory]\nembedder = "hashed"\n')
    assert cli(["memory", "add", "Tabs", LESSON]) == 0
    leader, follower = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "recreate", *ASKED]
    subprocess.run(command, env=env, stdout=follower, stderr=subprocess.DEVNULL, check=True)
    os.close(follower)
    shown = os.read(leader, 10_000).decode().replace("\r\n", "\n")
    os.close(leader)
    marked = re.findall(r"\x1b\[1;4m(.*?)\x1b\[0m", shown)
    assert marked == ["A", "tab", "is", "wide", "the", "width", "of", "maxWidth", "the"]
    capsys.readouterr()
    assert cli([*ASKED]) == 0
    piped = capsys.readouterr().out
    assert piped == re.sub(r"\x1b\[[0-9;]+m", "", shown)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    (hit,) = said(capsys, *ASKED)["hits"]
    assert hit["match"] == piped.splitlines()[1].strip()
    assert set(hit["facts"]["words"]) == {
        "is",
        "wide",
        "the",
        "width",
        "of",
        "a",
        "tab",
    }, "why it was found"
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli([*ASKED]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_key_is_masked_before_the_words_in_it_are_underlined(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from recreate.cli import terminal
    from recreate.plugins.memory_tools import memory

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    key = "ghp_" + "a1B2" * 9
    terminal.show(memory._lit(f"the key {key} is old", "key ghp"))
    assert "a1B2" not in capsys.readouterr().out
