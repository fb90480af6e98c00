"""What was attempted goes out, and comes back as it was."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from recreate.api.types import Step
from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.export import purify
from recreate.runs.attempts import write_whole
from tests.memory.test_store import experience, task
from tests.plugins.traces.test_importers import SAMPLES
from tests.plugins.view.test_site import START, attempt, write


@pytest.fixture
def filled(workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A workspace with train experiences of several formats and one of test."""
    assert cli(["traces", "import", str(SAMPLES), "--domain", "foreign"]) == 0
    row = {
        "messages": [{"role": "user", "content": "held"}, {"role": "assistant", "content": "out"}],
        "score": 1,
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    assert (
        cli(
            [
                "traces",
                "import",
                str(tmp_path / "t.jsonl"),
                "--domain",
                "foreign",
                "--split",
                "test",
            ]
        )
        == 0
    )
    return workspace


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_our_own_lines_come_back_identically(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "all.jsonl"
    assert (
        cli(["traces", "export", "--domain", "foreign", "--format", "jsonl", "--out", str(out)])
        == 0
    )
    before = {e.id: e for e in ExperienceStore(filled).experiences() if e.split == "train"}
    assert {row["id"] for row in lines(out)} == before.keys()
    other = tmp_path / "other"
    other.mkdir()
    (other / "recreate.toml").write_text("")
    monkeypatch.chdir(other)
    assert cli(["traces", "import", str(out), "--domain", "foreign"]) == 0
    after = {e.id: e for e in ExperienceStore(other).experiences()}
    assert after == before
    assert cli(["traces", "import", str(out), "--domain", "another"]) == 2


def test_of_a_run_goes_out_to_train_on_neither_what_is_held_out_by_now_nor_who_was_told_of_it(
    workspace: Path, tmp_path: Path
) -> None:
    steps = (Step(step=0, observation="", action="recall x", output="held", recalled=("held",)),)
    made = [experience("open"), experience("held"), experience("told", steps=steps)]
    memory = ExperienceStore(workspace)
    memory.add(made)
    memory.hold_out([task("x", "test", group="module-held")])
    ended = [{**attempt(n, e.task, 0.0), "attempt": e.id} for n, e in enumerate(made)]
    write(workspace / "runs" / "x", [START, *ended])
    for e in made:
        folder = workspace / "runs" / "x" / "attempts" / e.id
        folder.mkdir(parents=True)
        write_whole(e, folder)
    out = tmp_path / "train.jsonl"
    assert cli(["traces", "export", "--run", "runs/x", "--format", "jsonl", "--out", str(out)]) == 0
    assert [row["id"] for row in lines(out)] == ["open"]


def test_a_line_of_ours_that_is_held_out_here_arrives_closed(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "test.jsonl"
    assert (
        cli(
            [
                "traces",
                "export",
                "--domain",
                "foreign",
                "--format",
                "jsonl",
                "--split",
                "test",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    assert "test attempts" in capsys.readouterr().err
    (row,) = lines(out)
    row |= {"id": "0" * 16, "split": "train"}
    out.write_text(json.dumps(row))
    assert cli(["traces", "import", str(out), "--domain", "foreign", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["held_out"][0]["split"] == "test"
    assert ExperienceStore(filled).get("0" * 16, "optimizer") is None


def test_chats_are_what_fine_tuning_takes(filled: Path, tmp_path: Path) -> None:
    out = tmp_path / "chat.jsonl"
    assert (
        cli(
            [
                "traces",
                "export",
                "--domain",
                "foreign",
                "--format",
                "openai",
                "--passed",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    rows = lines(out)
    assert len(rows) == 4
    assert all(row.keys() == {"messages"} for row in rows)
    for row in rows:
        open_calls: list[str] = []
        for said in row["messages"]:
            if said["role"] == "tool":
                assert said["tool_call_id"] in open_calls
            else:
                open_calls = [c["id"] for c in said.get("tool_calls", ())]
        assert row["messages"][-1]["role"] == "assistant"
    weather = next(r for r in rows if "Oslo" in json.dumps(r))
    assert [m["role"] for m in weather["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert weather["messages"][3]["content"] == "rain, 9 C"


def test_spans_tell_the_same_attempt_again(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "spans.jsonl"
    assert (
        cli(["traces", "export", "--domain", "foreign", "--format", "otel", "--out", str(out)]) == 0
    )
    before = {e.prompt: e for e in ExperienceStore(filled).experiences() if e.split == "train"}
    other = tmp_path / "other"
    other.mkdir()
    (other / "recreate.toml").write_text("")
    monkeypatch.chdir(other)
    assert cli(["traces", "import", str(out), "--domain", "foreign"]) == 0
    after = {e.prompt: e for e in ExperienceStore(other).experiences()}
    assert after.keys() == before.keys()
    for prompt, e in after.items():
        was = before[prompt]
        assert (e.grade.score, e.grade.passed) == (was.grade.score, was.grade.passed)
        assert [s.reply for s in e.trace.steps] == [s.reply for s in was.trace.steps]


def test_an_export_overwrites_nothing_and_says_when_there_is_nothing(
    filled: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.jsonl"
    out.write_text("mine")
    assert cli(["traces", "export", "--format", "jsonl", "--out", str(out)]) == 2
    assert out.read_text() == "mine"
    assert (
        cli(
            [
                "traces",
                "export",
                "--domain",
                "none",
                "--format",
                "jsonl",
                "--out",
                str(tmp_path / "y"),
            ]
        )
        == 2
    )
    assert not (tmp_path / "y").exists()


def step(at: int, action: str, status: int | None = 0, output: str = "", **more: Any) -> Step:
    words = f"I do this:\n{action}"
    given = {"reply": words, "observation": f"saw {at}", **more}
    return Step(step=at, action=action, status=status, output=output, **given)


def test_a_failure_that_was_put_right_at_once_is_not_taught() -> None:
    steps = [
        step(0, "ls"),
        step(1, "sed -n 1,20p src/cvs.py", 1, "no such file"),
        step(
            2,
            "sed -n 1,20p src/csv.py",
            0,
            "import csv",
            reply="Sorry, a slip:\nsed -n 1,20p src/csv.py",
        ),
        step(3, "", None, "use one block", kind="malformed", reply="hm"),
        step(4, "", None, "use one block", kind="malformed", reply="well"),
        step(5, "grep -n quote src/csv.py", 0, "7: quote"),
    ]
    found = purify(steps)
    assert [(s.action, s.observation, s.output) for s in found] == [
        ("ls", "saw 0", ""),
        ("sed -n 1,20p src/csv.py", "saw 1", "import csv"),
        ("grep -n quote src/csv.py", "saw 3", "7: quote"),
    ]
    assert found[1].reply == "I do this:\nsed -n 1,20p src/csv.py", "not the words about the slip"
    assert found[2].reply == "I do this:\ngrep -n quote src/csv.py"
    assert purify(found) == found


def test_what_failed_and_tells_something_stays() -> None:
    tests = [
        step(0, "pytest -q tests/a.py", 1, "=== 1 failed in 0.1s ==="),
        step(1, "pytest -q tests/a.py", 0),
    ]
    given_up = [step(0, "make docs", 2), step(1, "cat README.md", 0)]
    between = [
        step(0, "python -c 'x'", 1),
        step(1, "cat README.md", 0),
        step(2, "python -c 'y'", 0),
    ]
    late = [step(n, f"cat fil{n}.txt", 1) for n in range(4)] + [step(4, "cat file.txt")]
    stuck = [step(0, "open door", 1, "it is stuck"), step(1, "open door", 0, "it opens")]
    for steps in (tests, given_up, between, stuck, [step(0, "cat a", 1)]):
        assert purify(steps) == steps
    assert len(purify(late)) == 2, "of four failures the first is too far from what put them right"
    assert purify([]) == []


def test_purified_chats_are_whole_conversations(filled: Path, tmp_path: Path) -> None:
    plain, pure = tmp_path / "plain.jsonl", tmp_path / "pure.jsonl"
    words = ["traces", "export", "--domain", "foreign", "--format", "openai"]
    assert cli([*words, "--out", str(plain)]) == 0
    assert cli([*words, "--purified", "--out", str(pure)]) == 0
    assert len(lines(pure)) == len(lines(plain))
    assert sum(len(r["messages"]) for r in lines(pure)) <= sum(
        len(r["messages"]) for r in lines(plain)
    )
    for row in lines(pure):
        assert row["messages"][-1]["role"] == "assistant"
        assert not any(
            a["role"] == b["role"] == "assistant" for a, b in itertools.pairwise(row["messages"])
        )
    assert (
        cli(["traces", "export", "--format", "otel", "--purified", "--out", str(tmp_path / "x")])
        == 2
    )
