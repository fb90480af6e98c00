"""What was written survives a kill; what was damaged is noticed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.types import Call, Reply
from recreate.models.replies import ModelQuestion
from recreate.runs.journal import Journal, passed_over


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    import zlib

    body = json.dumps({"kind": "start", "schema": 99})[:-1].encode()
    (tmp_path / "journal.jsonl").write_bytes(body + b',"sum":"%08x"}\n' % zlib.crc32(body + b"}"))
    with pytest.raises(BadInput, match="schema 99") as e:
        Journal(tmp_path).open()
    assert e.value.fix == paths.upgrade()


def test_a_run_folder_has_one_owner(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "by" / "it"
    first = Journal(folder)
    first.open()
    with pytest.raises(BadInput, match=f"in use by process {os.getpid()}\n") as e:
        Journal(folder).open()
    assert e.value.code == "run-in-use"
    assert (folder / "lock").read_text() == str(os.getpid())
    first.close()
    Journal(folder).open()


def asked(attempt: str, step: int = 0, words: str = "What?") -> ModelQuestion:
    call = Call(run="run", attempt=attempt, step=step)
    return ModelQuestion("m", [{"role": "user", "content": words}], {}, call)


def test_replies_of_finished_attempts_are_not_kept_in_memory(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.open()
    for n in range(50):
        journal.keep(asked(f"a{n}"), Reply(text="x"))
        journal.forget(f"a{n}")
    assert journal._replies == {}


def opened(folder: Path) -> Journal:
    journal = Journal(folder)
    journal.open()
    return journal


def test_a_reply_that_was_paid_for_is_given_again_to_the_same_request_alone(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.keep(asked("a"), Reply(text="one"))
    first.keep(asked("a", 1), Reply(text="two"))
    first.keep(asked("b"), Reply(text="three"))
    first.keep(asked("b", 1), Fault("it is down"))
    first.log.append({**asked("b", 2).record(Reply(text="")), "reply": {"tokens_in": "many"}})
    first.close()
    for journal in (first, opened(tmp_path)):
        assert journal.reply(asked("a")) == Reply(text="one")
        assert journal.reply(asked("a", 1)) == Reply(text="two")
        assert journal.reply(asked("b")) == Reply(text="three")
        assert journal.reply(asked("a", words="another")) is None
        assert journal.reply(asked("a", 2)) is None
        assert journal.reply(asked("c")) is None
        assert journal.reply(asked("b", 1)) is None
        assert journal.reply(asked("b", 2)) is None
        assert journal.runs == {"run"}


def test_replies_of_an_attempt_that_ended_are_not_given_again_and_others_are(
    tmp_path: Path,
) -> None:
    graded = {"task": "t", "split": "train", "passed": True}
    more = {"repeat": 0, "scaffold": "s", "score": 1.0, "ending": "submitted"}
    journal = opened(tmp_path)
    for attempt in "abcd":
        journal.keep(asked(attempt), Reply(text=attempt))
    journal.add("experience", attempt="a", **graded, **more)
    journal.add("brought", attempt="b", **graded)
    journal.add("proposal", attempt="c", round=0, edits=[])
    journal.close()
    for again in (journal, opened(tmp_path)):
        assert [bool(again.reply(asked(attempt))) for attempt in "abcd"] == [
            False,
            False,
            False,
            True,
        ]
        assert again.ended == {"a", "b"}


def test_a_session_that_was_begun_is_known_and_another_is_not_made_up(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.keep(asked("a"), Reply(text=""))
    assert not journal.first
    journal.add("start", run="r")
    journal.add("start", run="again")
    journal.close()
    assert opened(tmp_path).first["run"] == "r"


def test_who_holds_a_run_folder_is_said(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(BadInput, match=f"by process {os.getpid()}") as e:
        opened(tmp_path)
    assert e.value.code == "run-in-use"
    (tmp_path / "lock").write_text("")
    with pytest.raises(BadInput, match=r"by process \?"):
        opened(tmp_path)
    first.close()


def test_records_come_in_order_and_by_their_kinds(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for kind in ("note", "nothing", "note", "end"):
        journal.add(kind, text="x", round=0, reason="y", status="done")
    assert [r["kind"] for r in journal.records()] == ["note", "nothing", "note", "end"]
    assert [r["kind"] for r in journal.records("note", "end")] == ["note", "note", "end"]
    assert list(journal.records("seed")) == []


def test_lines_that_cannot_be_used_are_counted_and_passed_over(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.add("note", text="one")
    journal.add("note", text=2)
    journal.add("note", text="three")
    journal.close()
    file = tmp_path / "journal.jsonl"
    file.write_bytes(file.read_bytes().replace(b"three", b"thrEe"))
    again = opened(tmp_path)
    assert again.damaged == 2
    assert [r["text"] for r in again.records("note")] == ["one"]
    assert passed_over(file, 0) == ""
    assert passed_over(file, 1).startswith("1 damaged line of ")
    assert passed_over(file, 2).startswith("2 damaged lines of ")
