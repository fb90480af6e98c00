"""Append-only files of sealed lines (as in the journal: JSON with a schema and a checksum), shared by processes.

A line without a newline at its end is torn (the writer was killed): it is no record, and it is never glued to
the next one. A complete line whose checksum is wrong is damaged: it is passed over and counted.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.types import SCHEMA
from recreate.storage.redact import redact


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


def masked(record: Mapping[str, Any]) -> bytes:
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
            fix=paths.upgrade(),
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
        data = masked(record)
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


class Line(NamedTuple):
    """One complete line of a file: where it is (bytes), its checksum, and its record, None when damaged."""

    offset: int
    length: int
    sum: str
    record: dict[str, Any] | None


def seal(record: Mapping[str, Any]) -> bytes:
    """One line, as `journal.unseal` reads it. Unlike the journal's, its keys were masked field by field before."""
    return seal_text(encode({**record, "schema": SCHEMA}))


def seal_text(text: str) -> bytes:
    """The same of a record that is JSON already, `schema` and all."""
    data = text.encode("utf-8", "surrogatepass")
    return data[:-1] + b',"sum":"%08x"}\n' % zlib.crc32(data)


def lines(path: Path, start: int = 0) -> Iterator[Line]:
    """The complete lines of a file from byte `start` on, damaged ones included; a torn end is left out.

    Raises BadInput when a newer recreate wrote one of them, Fault when the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            offset = start
            for raw in file:
                if not raw.endswith(b"\n"):
                    return
                if raw != b"\n":
                    yield _line(path, offset, raw)
                offset += len(raw)
    except OSError as e:
        raise fault(path.parent, e) from e


def line_at(path: Path, offset: int, length: int) -> Line | None:
    """The line that was seen at a place; None when the file does not reach there any more."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            raw = file.read(length)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise fault(path.parent, e) from e
    return _line(path, offset, raw) if len(raw) == length and raw.endswith(b"\n") else None


def _line(path: Path, offset: int, raw: bytes) -> Line:
    try:
        record = unseal(raw)
        inner = record.get("experience") if record else None
        newer = inner.get("schema") if isinstance(inner, dict) else None
        if isinstance(newer, int) and newer > SCHEMA:
            raise BadInput(
                f"this record has schema {newer}; this recreate reads up to {SCHEMA}",
                fix=paths.upgrade(),
                code="newer-schema",
            )
    except BadInput as e:
        raise BadInput(f"{path}, byte {offset}: {e.message}", fix=e.fix, code=e.code) from None
    return Line(offset, len(raw), str(raw[-11:-3], "ascii") if record else "", record)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this thread of this process alone: an flock on the folder itself, so no lock file.

    Not re-entrant. The kernel lets go when the process dies. Raises Fault when the folder cannot be opened.
    """
    while True:
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as e:
            raise fault(folder, e) from e
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as e:  # some network file systems have no locks
                raise fault(folder, e) from e
            try:
                # Somebody may have deleted and remade the folder while we waited.
                same = os.fstat(handle).st_ino == folder.stat().st_ino
            except OSError:
                same = False
            if same:
                yield
                return
            make(folder)
        finally:
            os.close(handle)


def append(path: Path, data: Sequence[bytes], *, mend: bool = False) -> None:
    """Append whole lines; all of them or, when the disk is full, none. Like the journal's they survive a kill of
    the process, not a power cut: an fsync takes 10 ms, and all attempts would wait for it in turn.

    The caller holds the lock. A torn end left by a killed writer is closed by a newline, so that it stays a
    damaged line of its own; with `mend` it is cut off, and the lines are put on the disk at once: a file that must
    not lose any. Raises Fault naming the folder.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o644)
    except OSError as e:
        raise fault(path.parent, e) from e
    try:
        size = os.fstat(handle).st_size
        block = b"".join(data)
        if size and os.pread(handle, 1, size - 1) != b"\n":
            if mend:
                size = _last_newline(handle, size)
                os.ftruncate(handle, size)
            else:
                block = b"\n" + block
        try:
            view = memoryview(block)
            while view:
                view = view[os.write(handle, view) :]
            if mend:
                os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
    except OSError as e:
        raise fault(path.parent, e) from e
    finally:
        os.close(handle)


def _last_newline(handle: int, size: int) -> int:
    """How many bytes there are up to and with the last newline."""
    while size:
        start = max(0, size - 65536)
        found = os.pread(handle, size - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0


def make(folder: Path, *, ignored: bool = False) -> None:
    """Make a folder; with `ignored` git never shows it, whatever the workspace's own .gitignore says."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark = folder / ".gitignore"
        if ignored and not mark.exists():
            mark.write_text("*\n")
    except OSError as e:
        raise fault(folder, e) from e


def fault(folder: Path, e: OSError) -> Fault:
    """What the operating system said, with the folder and what to do about it."""
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return Fault(
            f"the disk that holds {folder} is full", fix=f"free some space there: df -h {folder}", code="disk-full"
        )
    if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Fault(
            f"{folder} cannot be written: {e.strerror}",
            fix=f"make it writable, or work in another workspace: ls -ld {folder}",
            code="unwritable",
        )
    return Fault(f"{folder}: {e.strerror or e}", fix=f"ls -ld {folder}", code="disk")
