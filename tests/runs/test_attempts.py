"""Every attempt that is paid for is kept, and shown as itself: also the second one of the same
thing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import recreate
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply
from recreate.memory.store import ExperienceStore
from recreate.runs.attempts import copy_in, read_experience
from recreate.runs.journal import Journal
from recreate.runs.reader import Run
from recreate.runs.replay import Replay
from tests.toy import Toy


class Wavering:
    """Answers one word at its first attempt of anything, and another at each later one."""

    name = "tests:wavering"
    price: Price | None = Price()

    def __init__(self, *words: str) -> None:
        self.words = list(words)
        self.asked = 0

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if call.step:
            return Reply(text="```bash\nsubmit\n```")
        self.asked += 1
        return Reply(text=f"```bash\nprintf %s '{self.words.pop(0)}' > answer.txt\n```")

    def close(self) -> None: ...


def attempted(model: Wavering, **more: Any) -> recreate.Experience:
    return recreate.run(
        "seed", "toy:train:0", Toy(), model=model, memory__embedder="hashed", **more
    )


class AtALogin:
    """Writes a file with a password, reads it, and hands in whether it saw it."""

    name = "tests:at-a-login"
    price: Price | None = Price()

    def __init__(self) -> None:
        self.seen = list[str]()

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        self.seen.append(messages[-1]["content"])
        command = ["echo 'password: h0rse9Batt' | tee db.yaml", "cp db.yaml answer.txt", "submit"]
        return Reply(text=f"```bash\n{command[call.step]}\n```")

    def close(self) -> None: ...


def test_a_password_of_the_task_is_acted_on_and_not_kept(workspace: Path) -> None:
    model = AtALogin()
    made = attempted(model)
    assert "password: h0rse9Batt" in model.seen[1]
    assert made.trace.answer == "password: [redacted]"
    written = [f for name in ("memory", "runs") for f in (workspace / name).rglob("*")]
    holds = [f.name for f in written if f.is_file() and b"h0rse9Batt" in f.read_bytes()]
    assert set(holds) <= {"journal.jsonl"}


def test_its_id_is_made_from_what_happened(workspace: Path, tmp_path: Path) -> None:
    """Same inputs, same ids: the same two attempts in another workspace are called the same."""
    other = tmp_path / "other"
    (other / "scaffolds").mkdir(parents=True)
    ids = [
        [attempted(m, workspace=w).id for _ in range(2)]
        for w in (workspace, other)
        for m in [Wavering("a", "b")]
    ]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("killed", ["_rename", "add", "after"])
def test_a_kill_before_it_has_its_name_pays_for_nothing_twice(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    attempted(Wavering("first"))
    model = Wavering("second")

    class Killed(BaseException): ...

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if killed == "_rename":
            patch.setattr("recreate.runs.attempts._rename", die)
        elif killed == "add":
            patch.setattr(ExperienceStore, "keep", die)
        else:
            add = Journal.add
            patch.setattr(
                Journal,
                "add",
                lambda self, kind, **f: die() if kind == "experience" else add(self, kind, **f),
            )
        with pytest.raises(Killed):
            attempted(model, out="runs/b")
    again = attempted(model, out="runs/b")
    assert (again.trace.answer, model.asked) == ("second", 1)
    assert [p.name for p in (workspace / "runs" / "b" / "attempts").iterdir()] == [again.id]
    assert read_experience(workspace / "runs" / "b" / "attempts" / again.id) == again
    kept = [(e.id, e.trace.answer) for e in ExperienceStore(workspace).experiences()]
    assert sorted(answer for _, answer in kept) == ["first", "second"]
    assert (again.id, "second") in kept
    assert Run(workspace / "runs" / "b").spend().attempts == 1


def test_a_replay_calls_it_what_it_was_called(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attempted(Wavering("first"))
    second = attempted(Wavering("second"), record="tape")
    assert Replay(workspace / "tape").renamed[second.trace.attempt] == second.id
    again = recreate.run("seed", "toy:train:0", Toy(), replay="tape")
    assert (again.id, again.trace.answer) == (second.id, "second")


def test_calls_are_found_by_the_key_that_they_were_made_under(workspace: Path) -> None:
    attempted(Wavering("first"))
    second = attempted(Wavering("second"), out="runs/b")
    calls = [r["call"].split("/")[1] for r in Run(workspace / "runs" / "b").records("reply")]
    assert set(calls) == {second.trace.attempt}
    assert second.trace.attempt != second.id


def test_an_attempt_of_memory_is_copied_into_a_run_once(workspace: Path) -> None:
    made = attempted(Wavering("first"))
    told: list[tuple[str, dict[str, Any]]] = []
    journal = SimpleNamespace(ended=set[str](), add=lambda kind, **f: told.append((kind, f)))
    session: Any = SimpleNamespace(folder=workspace / "other", journal=journal)
    copy_in(session, made)
    assert read_experience(workspace / "other" / "attempts" / made.id) == made
    facts = {"attempt": made.id, "task": made.task, "split": "train", "passed": False}
    assert told == [("brought", facts)]
    journal.ended.add(made.id)
    copy_in(session, made)
    assert len(told) == 1
