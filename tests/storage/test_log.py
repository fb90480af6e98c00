"""A line comes back as it was, or is known to be damaged; nothing half-written stays, whatever
stopped the writer."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.errors import BadInput, Fault
from recreate.api.types import Trial
from recreate.storage import log as storage
from recreate.storage.files import locked
from recreate.storage.log import Log, decode, encode, fits, iso, seal, unix, unseal

plain = st.dictionaries(
    st.text(max_size=8).filter(lambda k: k not in ("schema", "sum")), st.text() | st.integers()
)


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
    lines = Log(tmp_path / "not" / "there" / "j.jsonl")
    lines.append({"n": 1})
    lines.close()
    assert [r["n"] for r in lines.read()] == [1]
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


@pytest.mark.parametrize("block", [1, 50, 1 << 20])
def test_lines_with_a_word_are_found_where_they_stand_however_much_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(storage, "BLOCK", block)
    log = Log(tmp_path / "a.jsonl")
    with log:
        log.append(
            *({"n": n, "text": "needle" if n % 3 == 0 else "hay\r\u2028"} for n in range(10))
        )
        log.append(b'{"damaged": "needle"}\n\n')
    with log.path.open("ab") as file:
        file.write(b'{"torn": "needle')
    wanted = [each for each in log.lines() if each.record is None or each.record["n"] % 3 == 0]
    assert list(log.having([b"needle"])) == wanted


def test_several_writers_take_turns_and_cut_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "shared.jsonl"
    for n in range(3):
        with locked(tmp_path), Log(path) as log:
            at = log.append({"n": n, "what": "first"}, seal({"n": n, "what": "second"}))
        line = log.at(at)
        assert line is not None
        assert (line.record or {})["n"] == n
        with path.open("ab") as file:
            file.write(seal({"n": "torn"})[:-1])
    assert [(r["n"], r["what"]) for r in Log(path).read()] == [
        (n, w) for n in range(3) for w in ("first", "second")
    ]
    assert Log(path).at(path.stat().st_size) is None


@pytest.mark.parametrize(
    ("stop", "raised", "code"),
    [
        (OSError(errno.ENOSPC, "full"), Fault, "disk-full"),
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
    ],
)
def test_what_stops_a_write_halfway_leaves_nothing_half(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: BaseException,
    raised: type[BaseException],
    code: str,
) -> None:
    log = Log(tmp_path / "l.jsonl", fix="")
    log.append({"n": 1})
    write = os.write

    def halfway(handle: int, data: Any) -> int:
        write(handle, bytes(data)[:7])
        raise stop

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", halfway)
        with pytest.raises(raised) as e:
            log.append({"n": 2})
    assert getattr(e.value, "code", "") == code
    log.append({"n": 3})
    assert [r["n"] for r in log.read()] == [1, 3]
    assert b"\n\n" not in (tmp_path / "l.jsonl").read_bytes()


def test_what_must_not_be_lost_is_on_the_disk_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    Log(tmp_path / "a.jsonl").append({"n": 1})
    assert synced == []
    Log(tmp_path / "b.jsonl", durable=True).append({"n": 1})
    assert len(synced) == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-11-21T19:12:21Z", 1795288341.0),
        ("2026-11-21", 1795219200.0),
        ("2026-11-21 21:12:21+02:00", 1795288341.0),
        (1795288341.9, 1795288341.0),
        (99_999_999_999, 99_999_999_999.0),
        (100_000_000_000, None),
        (1795288341900, None),
        ("yesterday", None),
        (True, None),
    ],
)
def test_a_moment_is_read_strictly(value: Any, seconds: float | None) -> None:
    assert unix(value) == seconds
    if isinstance(value, str) and value.endswith("Z"):
        assert seconds is not None
        assert iso(seconds) == value


def test_what_a_broken_program_printed_can_be_kept() -> None:
    said = encode({"text": "a\ud800b", "é": Trial(experience="e", score=0.5)})
    assert json.loads(said) == {
        "text": "a\ud800b",
        "é": Trial(experience="e", score=0.5).model_dump(),
    }
    assert said.startswith('{"text":"a\ud800b","é":')
    with pytest.raises(TypeError, match="object is not JSON"):
        encode({"text": "a\ud800b", "other": object()})


def test_json_of_others_is_read_a_hundred_levels_deep_and_no_deeper() -> None:
    for opened, leaf, closed in (("[", "[]", "]"), ('{"a":', "{}", "}")):
        assert decode(opened * 99 + leaf + closed * 99)
        for deeper in (100, 100_000):
            with pytest.raises(ValueError, match="deeply"):
                decode(opened * deeper + leaf + closed * deeper)


def test_a_line_end_in_a_string_of_others_is_read_only_when_that_is_allowed() -> None:
    assert decode('"a\nb"', strict=False) == "a\nb"
    with pytest.raises(ValueError, match="control character"):
        decode('"a\nb"')


def test_half_a_line_of_a_process_that_holds_the_file_is_not_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "shared.jsonl"
    holder, other = Log(path), Log(path)
    holder.append({"n": 1})
    holder.take(0)
    line, found = seal({"n": 2}), list[int]()
    with path.open("ab", buffering=0) as file:
        file.write(line[:9])
        waiting = threading.Thread(target=lambda: found.extend(r["n"] for r in other.take(0)))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        file.write(line[9:])
    holder.let_go()
    waiting.join(30)
    assert found == [1, 2]
    other.let_go()
    assert other.end == path.stat().st_size


def test_what_is_taken_is_read_from_where_one_was_and_a_torn_end_of_it_is_cut_off(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shared.jsonl"
    one, other = Log(path), Log(path)
    assert list(one.take(0)) == []
    one.append({"n": 1})
    seen = one.end
    one.append({"n": 2})
    one.let_go()
    with path.open("ab") as file:
        file.write(seal({"n": 3})[:-1])
    assert [r["n"] for r in other.take(seen)] == [2]
    assert other.end == path.stat().st_size
    other.append({"n": 4})
    other.let_go()
    assert [r["n"] for r in Log(path).read()] == [1, 2, 4]
    assert list(one.take(other.end)) == []
    one.let_go()
    never = Log(path)
    never.let_go()
    never.close()
    held = sum(1 for _ in Path("/proc/self/fd").iterdir())
    one.close()
    one.close()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == held - 1


def test_a_line_that_the_disk_takes_in_pieces_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data)[:7]))
    log = Log(tmp_path / "log.jsonl")
    assert [log.append({"n": n}, {"n": -n}) for n in (1, 2)] == [0, log.end // 2]
    assert [r["n"] for r in log.read()] == [1, -1, 2, -2]


@pytest.mark.parametrize(
    "record",
    [
        {"schema": 99, "n": 1},
        {"schema": 1, "experience": {"schema": 99}},
        {"experience": {"schema": 2}},
    ],
)
def test_a_record_of_a_newer_recreate_says_where_it_is(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    path = tmp_path / "log.jsonl"
    first = seal({"n": 1})
    path.write_bytes(first + seal(json.dumps({"kind": "k", **record})))
    for read in (lambda: list(Log(path).lines()), lambda: Log(path).at(len(first))):
        with pytest.raises(
            BadInput, match=f"log.jsonl, byte {len(first)}: this record has schema (99|2)"
        ) as e:
            read()
        assert e.value.code == "newer-schema"


def test_a_file_that_is_not_there_has_no_lines_and_a_folder_in_its_place_is_named(
    tmp_path: Path,
) -> None:
    assert list(Log(tmp_path / "none.jsonl").lines()) == []
    assert Log(tmp_path / "none.jsonl").at(0) is None
    (tmp_path / "folder").mkdir()
    log = Log(tmp_path / "folder")
    for does in (
        lambda: list(log.lines()),
        lambda: log.at(0),
        lambda: log.append({"n": 1}),
        lambda: log.take(0),
    ):
        with pytest.raises(BadInput, match="folder is a folder, and must be a file"):
            does()


def test_damaged_lines_and_those_that_lack_a_field_are_counted(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    for text in ("one", 2, "three"):
        log.append({"kind": "note", "text": text})
    log.close()
    log.path.write_bytes(log.path.read_bytes().replace(b"three", b"thrEe"))
    assert log.damaged() == 1
    assert log.damaged({"note": {"text": str}}) == 2
    assert [r["text"] for r in log.read({"note": {"text": str}})] == ["one"]


def test_a_field_that_must_make_a_record_is_looked_into_and_so_is_each_of_a_list() -> None:
    trial = {"experience": "e", "score": 0.5}
    wanted = {"note": {"one": Trial, "many": [Trial]}}
    assert fits({"kind": "note", "one": trial, "many": [trial, trial]}, wanted)
    assert fits({"kind": "note", "one": trial, "many": []}, wanted)
    assert fits({"kind": "other"}, wanted)
    for wrong in (
        {"one": {"score": 0.5}},
        {"many": [trial, {}]},
        {"many": trial},
        {"one": None},
        {"kind": None},
    ):
        assert not fits({"kind": "note", "one": trial, "many": [trial], **wrong}, wanted)


def test_a_torn_end_is_cut_off_however_long_it_is(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    log.append({"kind": "note", "text": "x" * 100_000})
    log.append({"kind": "note", "text": "kept"})
    log.close()
    whole = log.path.read_bytes()
    for torn in (1, 65_535, 65_536, 65_537, 200_000):
        log.path.write_bytes(whole + b"y" * torn)
        again = Log(log.path)
        again.append({"kind": "note", "text": "after"})
        again.close()
        assert [r["text"][-5:] for r in again.read()] == ["xxxxx", "kept", "after"]


def test_a_log_that_is_one_torn_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for torn in (1, 65_536, 65_537):
        path.write_bytes(b"y" * torn)
        log = Log(path)
        log.append({"kind": "note"})
        log.close()
        assert [r["kind"] for r in log.read()] == ["note"]


def test_a_line_says_where_it_is_and_what_its_checksum_is(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    assert log.end == 0
    for text in ("one", "two"):
        log.append({"kind": "note", "text": text})
    log.close()
    assert log.end == log.path.stat().st_size
    data = log.path.read_bytes()
    half = len(data) // 2
    first, second = log.lines()
    assert [(line.offset, line.length) for line in (first, second)] == [(0, half), (half, half)]
    for line, raw in ((first, data[:half]), (second, data[half:])):
        assert raw.endswith(f',"sum":"{line.sum}"}}\n'.encode())
    assert len(first.sum) == len(second.sum) == 8
    assert log.at(half) == second
    assert list(log.lines(half)) == [second]


def test_records_of_some_kinds_are_found_wherever_their_line_says_the_kind(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    for record in (
        {"kind": "a", "n": 1},
        {"n": 2, "kind": "a"},
        {"kind": "b", "n": 3},
        {"kind": "ab", "n": 4},
    ):
        log.append(record)
    log.append({"n": 5})
    log.close()
    assert [r["n"] for r in log.read(kinds=["a"])] == [1, 2]
    assert [r["n"] for r in log.read(kinds=["ab", "b"])] == [3, 4]
    assert [r["n"] for r in log.read({"a": {"n": int}, "b": {"m": int}}, ["a", "b"])] == [1, 2]
    assert len(list(log.read())) == 5
