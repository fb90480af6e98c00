"""What was written survives a kill; what was damaged is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.runs.journal import Journal
from recreate.storage.log import Log, seal, unseal

plain = st.dictionaries(st.text(max_size=8).filter(lambda k: k not in ("schema", "sum")), st.text() | st.integers())


@given(plain)
def test_a_record_comes_back_as_it_was(record: dict[str, object]) -> None:
    found = unseal(seal(record))
    assert found is not None
    assert {k: v for k, v in found.items() if k != "schema"} == record


@given(plain, st.integers(0), st.integers(1, 255))
def test_a_changed_byte_is_noticed(record: dict[str, object], where: int, change: int) -> None:
    line = bytearray(seal(record))
    at = where % (len(line) - 1)
    line[at] ^= change
    if b"\n" not in line[:-1]:
        assert unseal(bytes(line)) is None


def test_a_torn_last_line_is_cut_off_and_the_rest_kept(tmp_path: Path) -> None:
    lines = Log(tmp_path / "j.jsonl")
    lines.append({"n": 1})
    lines.append({"n": 2})
    lines.close()
    with (tmp_path / "j.jsonl").open("ab") as file:
        file.write(seal({"n": 3})[:-9])
    again = Log(tmp_path / "j.jsonl")
    again.append({"n": 4})
    assert [r["n"] for r in again.read()] == [1, 2, 4]
    assert None not in [line.record for line in again.lines()]


def test_a_damaged_line_in_the_middle_is_skipped_and_counted(tmp_path: Path) -> None:
    lines = Log(tmp_path / "j.jsonl")
    for n in range(3):
        lines.append({"n": n})
    data = (tmp_path / "j.jsonl").read_bytes().replace(b'"n":1', b'"n":7')
    (tmp_path / "j.jsonl").write_bytes(data)
    again = Log(tmp_path / "j.jsonl")
    assert [r["n"] for r in again.read()] == [0, 2]
    assert [line.record is None for line in again.lines()] == [False, True, False]


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    import zlib

    body = json.dumps({"kind": "start", "schema": 99})[:-1].encode()
    (tmp_path / "journal.jsonl").write_bytes(body + b',"sum":"%08x"}\n' % zlib.crc32(body + b"}"))
    with pytest.raises(BadInput, match="schema 99") as e:
        Journal(tmp_path).open()
    assert e.value.fix == paths.upgrade()


def test_a_run_folder_has_one_owner(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.open()
    with pytest.raises(BadInput, match="in use"):
        Journal(tmp_path).open()
    first.close()
    Journal(tmp_path).open()


def test_replies_of_finished_attempts_are_not_kept_in_memory(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.open()
    for n in range(50):
        journal.keep(f"r/a{n}/0", "c", {"text": "x"})
        journal.forget(f"a{n}")
    assert journal._replies == {}


def test_keys_do_not_reach_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "verysecretvalue123")
    journal = Journal(tmp_path)
    journal.open()
    journal.add("note", text="the key is verysecretvalue123, and sk-abcdefghijklmnopqrstuvwx too")
    text = (tmp_path / "journal.jsonl").read_text()
    assert "verysecret" not in text
    assert "sk-abc" not in text
