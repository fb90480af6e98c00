"""Append-only files of sealed lines (as in the journal: JSON with a schema and a checksum), shared by processes.

A line without a newline at its end is torn (the writer was killed): it is no record, and it is never glued to
the next one. A complete line whose checksum is wrong is damaged: it is passed over and counted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from recreate.errors import BadInput, Fault
from recreate.journal import encode, unseal
from recreate.types import SCHEMA


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
                fix="pip install --upgrade recreate",
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
