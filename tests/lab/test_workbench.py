"""An optimizer's trial begins from a batch that stands still, and is paid for once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recreate.api.types import Call, Message, Reply
from recreate.runs.opening import Parts
from recreate.runs.reader import Run
from tests.investigator import Acts, Investigator
from tests.lab.planted import SEED
from tests.lab.workbench import Trial, main, measure
from tests.toy import LESSON, Toy, script

FLAGS: dict[str, Any] = {"domain": "toy", "sandbox": "none", "jobs": 1, "train": 3}
FLAGS |= {"validation": 8, "memory.embedder": "hashed", "models.retries": 0}


def study(first: str) -> Acts:
    """Find the lesson and finish: in a folder, or by the tools of a study."""
    if "causes.md" in first:
        causes = '## No mark\n- 01 step 0: "printf"\nChanged: workflow.md\n'
        edit = f"printf '\\n{LESSON}\\n' >> agent/workflow.md"
        yield "shell", {"command": f"{edit}\ncat > causes.md <<'X'\n{causes}X\nfinish"}
    yield "steps", {"first": 0, "last": 1}
    yield (
        "lesson",
        {"title": "How answers end", "text": LESSON, "reason": "The mark.", "steps": [0]},
    )
    while True:
        yield "finish", {"summary": "A mark is missing.", "cause": "knowledge"}


def distil(first: str) -> Acts:
    while True:
        yield "finish", {"summary": "All of it."}


class Reader(Investigator):
    """Both roles: it studies, or answers a question that is asked once; it counts."""

    def __init__(self) -> None:
        super().__init__(script(), study, distil)
        self.asked = 0

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        self.asked += call.role == "optimizer"
        if len(messages) == 1:
            return self.agent.reply(messages, call, **params)
        return super().reply(messages, call, **params)


def trial(folder: Path, reader: Reader, optimizer: str = "recreate") -> Trial:
    parts = Parts(domain=Toy(), model=reader, optimizer_model=reader)
    return Trial(folder, optimizer, "", dict(FLAGS), parts=parts, seed=SEED)


@pytest.mark.slow
def test_a_trial_says_what_the_optimizer_took_and_what_its_edits_are_worth(tmp_path: Path) -> None:
    reader = Reader()
    row = measure(trial(tmp_path, reader))
    assert (row["batch"]["attempts"], row["batch"]["passed"]) == (3, 0)
    (made,) = row["candidates"]
    assert (made["validation"]["before"], made["validation"]["after"]) == (0.0, 1.0)
    assert made["validation"]["verdict"] == "better"
    assert row["requests"] == reader.asked > row["sessions"]
    assert row["commands"] > 0
    assert row["tokens_in"] > 0
    assert json.loads(json.dumps(row)) == row


@pytest.mark.slow
@pytest.mark.plugin("workbench")
def test_a_session_in_a_folder_is_measured_as_studies_are(tmp_path: Path) -> None:
    reader = Reader()
    row = measure(trial(tmp_path, reader, "workbench"))
    assert (row["requests"], row["commands"], row["sessions"]) == (reader.asked, 1, 1)
    assert row["of_commands"]["finish"] == 1
    assert row["candidates"][0]["validation"]["after"] == 1.0


@pytest.mark.slow
def test_the_same_trial_again_asks_nobody_and_says_the_same(tmp_path: Path) -> None:
    first = measure(trial(tmp_path, Reader()))
    reader = Reader()
    assert measure(trial(tmp_path, reader)) == first
    assert reader.asked == 0


@pytest.mark.slow
def test_a_killed_trial_goes_on_with_the_replies_that_it_has(tmp_path: Path) -> None:
    whole = measure(trial(tmp_path, Reader()))
    killed = tmp_path / "trials" / "recreate"
    (killed / "proposed.json").unlink()
    reader = Reader()
    again = measure(trial(tmp_path, reader))
    assert again["candidates"] == whole["candidates"]
    assert again["requests"] == whole["requests"]


@pytest.mark.slow
def test_two_optimizers_see_the_same_batch_and_nothing_of_each_other(tmp_path: Path) -> None:
    one = measure(trial(tmp_path, Reader()))
    other = measure(trial(tmp_path, Reader(), "reflect"))
    assert one["batch"] == other["batch"]
    batch = {r["attempt"] for r in Run(tmp_path / "batch/runs/batch").records("experience")}
    for row in (one, other):
        run = Run(Path(row["out"]) / "runs/trial")
        assert not batch & {r["attempt"] for r in run.records("experience")}
    assert one["out"] != other["out"]


def test_a_batch_of_other_settings_is_not_taken_for_this_one(tmp_path: Path) -> None:
    begun = trial(tmp_path, Reader())
    folder = tmp_path / "batch"
    folder.mkdir()
    (folder / "batch.json").write_text(json.dumps({"flags": {"train": "9"}}))
    with pytest.raises(SystemExit, match="another --folder"):
        measure(replace(begun, flags={"train": 3}))


def test_a_setting_without_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--optimizer", "recreate", "--model", "m", "--agent-model", "m", "--folder", "f"]
    with pytest.raises(SystemExit):
        main([*given, "--set", "study.steps"])
    assert "ADDRESS=VALUE" in capsys.readouterr().err
