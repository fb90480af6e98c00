"""An append-only file of JSON lines, each with a schema and a checksum: what happened, in order.

A line is `{"kind": ..., ..., "schema": 1, "sum": "crc32 of all before it"}`. A torn last line (the process was
killed while writing) is cut off when the journal is opened again; a damaged line further up is skipped and
counted in `damaged`, so that only what it recorded is done again.

Writes are flushed to the kernel, not fsync'ed: they survive a kill -9 of the process, and a power cut may cost
the last lines. An fsync per model call would cost more than everything else recreate does in that time.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from recreate.errors import BadInput, Fault
from recreate.redact import redact
from recreate.types import SCHEMA


def _fields(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_fields).encode


def encode(value: Any) -> str:
    """Compact JSON, not escaped beyond need."""
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except PydanticSerializationError:  # a lone surrogate, from a program's broken output
        return _encode(value)


def seal(record: Mapping[str, Any]) -> bytes:
    """One line: the record with `schema` and `sum` added, secrets masked."""
    data = redact(encode({**record, "schema": SCHEMA})).encode("utf-8", "surrogatepass")
    return data[:-1] + b',"sum":"%08x"}\n' % zlib.crc32(data)


def unseal(line: bytes) -> dict[str, Any] | None:
    """The record of a line, or None when the line is damaged. Raises BadInput for a newer schema."""
    head, mark, tail = line.rstrip(b"\n").rpartition(b',"sum":"')
    if not mark or tail != b'%08x"}' % zlib.crc32(head + b"}"):
        return None
    record: dict[str, Any] = json.loads((head + b"}").decode("utf-8", "surrogatepass"))
    if record.get("schema", 0) > SCHEMA:
        raise BadInput(
            f"this file has schema {record['schema']}; this recreate reads up to {SCHEMA}",
            fix="pip install --upgrade recreate",
            code="newer-schema",
        )
    return record


class Lines:
    """A sealed append-only file. Thread-safe; one process writes it (the run folder's lock sees to that)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._end = 0

    def append(self, record: Mapping[str, Any]) -> int:
        """Write one record and return its byte offset.

        Raises Fault when the disk does not take it; nothing half-written stays.
        """
        data = seal(record)
        with self._lock:
            if self._fd is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._mend()
                self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                self._end = os.lseek(self._fd, 0, os.SEEK_END)
            end = self._end
            try:
                left = data
                while left:
                    left = left[os.write(self._fd, left) :]
                self._end = end + len(data)
            except OSError as e:
                os.ftruncate(self._fd, end)
                raise Fault(
                    f"cannot write {self.path}: {e.strerror}",
                    fix="free some disk space, then run `recreate resume` on this run",
                    code="disk",
                ) from None
            except BaseException:  # Ctrl-C: who knows how far it came
                self._end = os.lseek(self._fd, 0, os.SEEK_END)
                raise
            return end

    def read(self) -> Iterator[dict[str, Any]]:
        """All undamaged records, streaming."""
        for _, record in self.read_at():
            yield record

    def read_at(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """All undamaged records with the byte offset of each."""
        self.damaged = 0
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            offset = 0
            for line in file:
                record = unseal(line)
                if record is not None:
                    yield offset, record
                elif line.endswith(b"\n"):
                    self.damaged += 1
                offset += len(line)

    def at(self, offset: int) -> dict[str, Any] | None:
        """The record that starts at a byte offset."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return unseal(file.readline())

    def close(self) -> None:
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _mend(self) -> None:
        """Cut a torn last line off, so that the next record starts on a line of its own."""
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            at = size
            while at > 0:
                back = min(65536, at)
                file.seek(at - back)
                chunk = file.read(back)
                cut = chunk.rfind(b"\n")
                if cut >= 0:
                    at = at - back + cut + 1
                    break
                at -= back
            if at < size:
                file.truncate(at)


class Journal:
    """A run's journal: replies that need not be paid for again, and the events of the run.

    Kinds of record: `start` (a session began), `seed`, `reply` (call, check, reply), `experience` (an attempt ended and
    was graded), `aside` (it was set aside for a fault of ours), `proposal`, `nothing`, `revision`,
    `candidate` (it waits for a person), `review` (what the person decided), `test-opened`, `arm` (a row of a table),
    `end`.

    Only replies of attempts that have not ended are kept findable, as byte offsets: memory does not grow with
    the number of finished attempts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines = Lines(folder / "journal.jsonl")
        self._replies: dict[str, dict[str, int]] = {}
        self._lock_file: int | None = None
        self.replayed = 0

    def open(self) -> None:
        """Take the run folder for this process and index what is there.

        Raises BadInput when another process holds the folder or it was written by a newer recreate.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._lock_file, 20).decode("ascii", "replace").strip()
            os.close(self._lock_file)
            self._lock_file = None
            raise BadInput(
                f"{self.folder} is in use by process {holder or '?'}",
                fix="wait for it, stop it with Ctrl-C, or give another folder with --out",
                code="run-in-use",
            ) from None
        os.ftruncate(self._lock_file, 0)
        os.pwrite(self._lock_file, str(os.getpid()).encode(), 0)
        for offset, record in self.lines.read_at():
            if record["kind"] == "reply":
                self._remember(record["call"], offset)
            elif record["kind"] in ("experience", "proposal"):
                self.forget(record["attempt"])

    def forget(self, attempt: str) -> None:
        """An attempt (or a proposal) is complete: its replies will not be asked for again."""
        self._replies.pop(attempt, None)

    def reply(self, call: str, check: str) -> dict[str, Any] | None:
        """The journalled reply to this very request, or None. `check` guards against a changed request."""
        offset = self._replies.get(call.split("/")[1], {}).get(call)
        record = self.lines.at(offset) if offset is not None else None
        if record is None or record["check"] != check:
            return None
        self.replayed += 1
        found: dict[str, Any] = record["reply"]
        return found

    def keep(self, call: str, check: str, reply: Mapping[str, Any]) -> None:
        """Journal a reply. From here on it is paid for."""
        self._remember(call, self.lines.append({"kind": "reply", "call": call, "check": check, "reply": reply}))

    def _remember(self, call: str, offset: int) -> None:
        self._replies.setdefault(call.split("/")[1], {})[call] = offset

    def add(self, kind: str, **fields: Any) -> None:
        self.lines.append({"kind": kind, **fields})

    def records(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """The records of some kinds (all when none is named), in order."""
        for record in self.lines.read():
            if not kinds or record["kind"] in kinds:
                yield record

    def close(self) -> None:
        self.lines.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None
