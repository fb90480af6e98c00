"""A run while it runs: a line for each event."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from recreate.api.types import Usage
from recreate.cli import run as cli
from recreate.cli.screen import Screen
from tests.toy import script, write_script


def test_a_round_says_in_one_line_which_lessons_its_attempts_were_offered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lessons = {"ends-1": (5, 4), "way-2": (3, 0), "way-3": (1, 0), "way-4": (1, 0)}
    Screen()("offered", {"lessons": lessons, "attempts": 12, "unproven": ["ends-1"]})
    said = "ends-1 to 5 of 9 by lot (not proven here yet), way-2 to 3, way-3 to 1, and 1 more"
    assert capsys.readouterr().err == f"lessons offered in 12 attempts: {said}\n"


def test_a_score_says_how_far_its_phase_is(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen("gather", {"phase": "train", "total": 3})
    facts = {"passed": True, "reused": False, "ending": "done", "limit": ""}
    score = SimpleNamespace(task="t1", repeat=0, score=1.0, usage=Usage(calls=2), **facts)
    screen("score", {"score": score})
    assert "  train 1/3  passed  t1 (done, 2 calls)   0 calls" in capsys.readouterr().err


@pytest.mark.slow
def test_counters_go_forward_over_a_resume_a_retry_and_further_attempts(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = script()
    # one attempt loses its endpoint for a while, and is made again
    broken = {"role": "agent", "task": "toy:validation:3", "step": 0, "fault": "reset"}
    rows.insert(0, {**broken, "fault_times": 1, "text": "```bash\nsubmit\n```"})
    file = workspace / "s.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--model", f"scripted:{file}", "--rounds", "1", "--jobs", "1", "--out", "runs/a"]
    flags += ["--models.retries", "0"]
    assert cli(["build", "--domain", "tests.toy:Toy", *flags, "--budget", "27attempts"]) == 3
    first = capsys.readouterr().err
    assert cli(["resume", "runs/a", "--budget", "99attempts"]) == 0
    said = first + capsys.readouterr().err
    counts = [(int(done), int(of)) for done, of in re.findall(r"validation (\d+)/(\d+)  \w+", said)]
    # the seed, the candidate, and both once more
    assert [done for done, _ in counts] == [*range(1, 9), *range(1, 9), *range(1, 17)]
    assert {of for _, of in counts} == {8, 16}


@pytest.mark.slow
def test_a_candidate_and_the_agent_before_it_are_shown_side_by_side(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_script(workspace / "s.jsonl")
    flags = ["--model", model, "--rounds", "1", "--jobs", "1", "--out", "runs/a"]
    assert cli(["build", "--domain", "tests.toy:Toy", *flags]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "validation " in line]
    seed, candidate, seed_again, agent = said[1:9], said[9:17], said[17:25], said[25:]
    assert all("0.00 so far  " in line for line in seed)
    ahead = "1.00 so far, 0.00 before: ahead by 2; given up after 3 of 8 tasks below -0.99"
    assert ahead in candidate[1]
    assert "ahead by 8  " in candidate[7]
    assert all("0.00 so far by the seed" in line for line in seed_again)
    assert all("1.00 so far by the agent, 0.00 by the seed" in line for line in agent)


def test_a_graded_score_is_said_as_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen("gather", {"phase": "validation", "total": 2, "scaffold": "a"})
    facts = {"passed": False, "reused": False, "ending": "done", "limit": ""}
    for task, value in (("t1", 0.8), ("t2", 0.6)):
        score = SimpleNamespace(task=task, repeat=0, score=value, usage=Usage(calls=2), **facts)
        screen("score", {"score": score})
    said = capsys.readouterr().err
    assert "  validation 1/2  0.80  t1 (done, 2 calls)   0.80 so far" in said
    assert "  validation 2/2  0.60  t2 (done, 2 calls)   0.70 so far" in said
