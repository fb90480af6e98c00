"""What a build claims is said in the same words wherever a person or a program reads it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from tests.toy import LESSON, script

Rows = list[dict[str, Any]]
LINES = {
    "shown": "better (shown): 0.000 -> 1.000, +1.000 in the attempts that chose nothing, 8 won, 0"
    " lost of 8 tasks x 2 attempts",
    "likely": "likely better: 0.000 -> 0.500, +0.500 in the attempts that chose nothing, 4 won, 0"
    " lost of 8 tasks x 3 attempts; 8 tasks do not show it",
    "none": "no difference shown: 0.000 -> 0.250, +0.250 in the attempts that chose nothing, 2 won,"
    " 0 lost of 8 tasks x 3 attempts; 8 tasks do not tell it from the seed, which stays",
    "cheaper": "cheaper, and not worse: the score is 0.000; 1,600 tokens -> 643 tokens a task",
}


def solves(tasks: int) -> Rows:
    """A lesson that helps with so many of the eight validation tasks."""
    still = {f"toy:validation:{n}" for n in range(tasks, 8)}
    return [r for r in script() if not (r.get("contains") and r.get("task") in still)]


def saves() -> Rows:
    """A lesson that makes the agent say less, and answer as wrongly as before."""
    told = [r for r in script() if "validation" in r.get("task", "") and not r.get("contains")]
    wordy = [{**r, "text": "word " * 400 + "\n" + r["text"]} for r in told]
    return [{**r, "contains": LESSON} for r in told] + wordy + script()


@pytest.fixture
def build(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Build into runs/a; return what was printed as text, and as JSON by a resume."""

    def build(rows: Rows, *flags: str, code: int = 0) -> tuple[str, str]:
        (workspace / "s.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        given = ["--domain", "tests.toy:Toy", "--model", f"scripted:{workspace}/s.jsonl"]
        given += ["--rounds", "1", "--out", "runs/a", "--sandbox", "none", *flags]
        assert cli(["build", *given]) == code
        text = capsys.readouterr().out
        assert cli(["resume", "runs/a", "--json"]) == code
        return text, capsys.readouterr().out

    return build


CASES: dict[str, tuple[Rows, list[str]]] = {
    "shown": (solves(8), []),
    "likely": (solves(4), []),
    "none": (solves(2), []),
    "cheaper": (saves(), ["--keep-cheaper", "--gate.margin", "0.5"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("word", CASES)
def test_a_claim_is_the_same_on_the_terminal_in_each_page_and_for_programs(
    word: str,
    build: Callable[..., tuple[str, str]],
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows, flags = CASES[word]
    text, printed = build(rows, *flags)
    line = text.splitlines()[0]
    assert line.startswith(LINES[word])
    run, record = workspace / "runs" / "a", json.loads(printed)
    assert record["claim"] == word
    gains = {"shown": 1.0, "likely": 0.5, "none": 0.25, "cheaper": 0.0}
    assert record["gain"]["search"] == gains[word]
    assert record["gain"]["anew"] in (gains[word], None)
    assert line in (run / "report.md").read_text()
    page = html.unescape(re.sub(r"<[^>]+>", "", (run / "report.html").read_text()))
    assert line in page
    # one interval, and no second p beside those of the looks
    assert "p = " not in page.partition("Learning curve")[0].partition("Outcome")[2]
    assert line in (workspace / "scaffolds" / "toy" / "README.md").read_text()
    assert cli(["show", "runs/a"]) == 0
    shown = capsys.readouterr().out
    assert line in shown
    # what the build went on from is not called kept where it was not handed over
    assert "1. kept for now" in shown
    assert "1 kept for now" in page
    assert cli(["show", "runs/a", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["validation"]["claim"]["word"] == word
    assert [look["share"] for look in record["looks"]] == [
        look["share"] for look in told["validation"]["claim"]["looks"]
    ]
    if word == "none":
        taken = f"recreate keep {record['left_out']}"
        assert all(taken in each for each in (page, (run / "report.md").read_text()))


@pytest.mark.slow
def test_a_claim_of_a_build_that_was_stopped_is_the_one_of_a_build_that_was_not(
    build: Callable[..., tuple[str, str]], workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, printed = build(solves(8), "--budget", "27attempts", code=3)
    assert text.startswith("no difference shown: 0.000 -> 1.000")
    assert json.loads(printed)["claim"] == "none"
    assert cli(["resume", "runs/a", "--budget", "99attempts"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == LINES["shown"]
    assert LINES["shown"] in (workspace / "runs" / "a" / "report.md").read_text()


def test_a_candidate_as_good_as_the_agent_before_it_is_not_called_behind(
    build: Callable[..., tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    build(script(learns=False))
    assert cli(["log", "runs/a"]) == 0
    assert "level: 0.000 -> 0.000 on" in capsys.readouterr().out
