"""What was written survives a kill; what was damaged is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.runs.journal import Journal


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
