"""Files as JSON values, one in memory at a time: JSON lines, one JSON document, or a zip of
documents.

What cannot be read is returned as Bad with its place. Bounds: LINE bytes for a line, WHOLE for a
document, which is read at once; of a zip no member larger than WHOLE is unpacked, however small it
says it is. Nothing of a zip is written to the disk: a name is only a name. inspect_ai compresses
with Zstandard, which Python's own zipfile reads from 3.14 on; before, the package zstandard does.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from recreate.api.errors import BadInput, Missing
from recreate.api.registry import need
from recreate.plugins.traces.format import Bad

LINE = 256 << 20
WHOLE = 512 << 20
MEMBERS = 200_000
_ZSTANDARD = 93
SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".eval")
"""What is looked for in a folder; a file that is named is read whatever it is called."""


class ReadDocument(NamedTuple):
    """One JSON value. offset: the byte where its line begins, None when it is no line."""

    place: str
    value: Any
    offset: int | None = None


def files(paths: Sequence[Path]) -> list[Path]:
    """The files to read, folders looked through (links are not followed). Raises BadInput for what
    is not there."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for folder, folders, names in os.walk(path):
                folders.sort()
                found |= dict.fromkeys(
                    Path(folder, n) for n in sorted(names) if n.endswith(SUFFIXES)
                )
        elif path.exists():
            found[path] = None
        else:
            raise BadInput(
                f"there is no {path}", fix="name files, or folders of them", code="no-file"
            )
    return list(found)


def documents(path: Path) -> Iterator[ReadDocument | Bad]:
    """The JSON values of a file. Nothing is raised: what is wrong is returned as Bad."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            yield Bad("", "it is no regular file")
            return
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                yield from _zip(path)
                return
            file.seek(0)
            if path.name.endswith((".jsonl", ".ndjson")) or _is_lines(file):
                file.seek(0)
                yield from _lines(file)
            else:
                file.seek(0)
                yield from _read_document(file)
    except OSError as e:
        yield Bad("", e.strerror or str(e))


@lru_cache(maxsize=16)
def line_at(path: Path, offset: int) -> Any:
    """The value of the line at a byte, which was read before; spans of a trace often share one."""
    with path.open("rb") as file:
        file.seek(offset)
        return json.loads(file.readline(LINE))


def _is_lines(file: IO[bytes]) -> bool:
    """Whether the first two lines are a JSON object each; one alone is a document, which is read
    the same."""
    first = file.readline(LINE).strip()
    while first == b"":
        line = file.readline(LINE)
        if not line:
            return False
        first = line.strip()
    return first.startswith(b"{") and isinstance(_parsed(first), dict)


def _lines(file: IO[bytes]) -> Iterator[ReadDocument | Bad]:
    number = 0
    offset = 0
    while raw := file.readline(LINE):
        number += 1
        place = f"line {number}"
        start = offset
        offset += len(raw)
        if len(raw) == LINE and not raw.endswith(b"\n"):
            while (more := file.readline(LINE)) and not more.endswith(b"\n"):
                offset += len(more)
            offset += len(more)
            yield Bad(place, f"it is longer than {LINE >> 20} MiB")
            continue
        if not raw.strip():
            continue
        value = _parsed(raw)
        yield (
            Bad(place, str(value))
            if isinstance(value, _Wrong)
            else ReadDocument(place, value, start)
        )


def _read_document(file: IO[bytes]) -> Iterator[ReadDocument | Bad]:
    raw = file.read(WHOLE + 1)
    if len(raw) > WHOLE:
        yield Bad("", f"one document of more than {WHOLE >> 20} MiB: write it as JSON lines")
        return
    if not raw.strip():
        yield Bad("", "the file is empty")
        return
    value = _parsed(raw)
    if isinstance(value, _Wrong):
        yield Bad("", str(value))
    elif isinstance(value, list):
        for number, each in enumerate(value, 1):
            yield ReadDocument(f"entry {number}", each)
    else:
        yield ReadDocument("", value)


def _zip(path: Path) -> Iterator[ReadDocument | Bad]:
    """An inspect log: header.json once, and each of samples/."""
    header: Any = None
    for name, raw in _members(path, ("header.json", "_journal/start.json"), ("samples/",), WHOLE):
        if isinstance(raw, str):
            yield Bad(name, raw)
            continue
        value = _parsed(raw)
        if isinstance(value, _Wrong):
            yield Bad(name, str(value))
        elif name.startswith("samples/"):
            yield ReadDocument(name, {"inspect": header or {}, "sample": value})
        else:
            header = header or value


def _members(
    path: Path, first: Sequence[str], prefixes: Sequence[str], most: int
) -> Iterator[tuple[str, bytes | str]]:
    """(name, bytes, or why there are none) of the members called one of `first`, then of those
    under `prefixes`."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            if len(infos) > MEMBERS:
                yield "", f"the zip has {len(infos)} members, more than {MEMBERS}"
                return
            by_name = {info.filename: info for info in infos}
            wanted = [by_name[name] for name in first if name in by_name]
            wanted += [
                i
                for i in infos
                if i.filename.startswith(tuple(prefixes)) and i.filename.endswith(".json")
            ]
            for info in wanted:
                if ".." in info.filename.split("/"):
                    yield info.filename, "its name leads out of the zip"
                    continue
                yield info.filename, _bytes(archive, info, most)
    except (zipfile.BadZipFile, NotImplementedError, OSError, EOFError) as e:
        yield "", f"the zip cannot be read: {e}"


def unpack_errors() -> tuple[type[Exception], ...]:
    """What unpacking raises for data that is damaged, locked or packed in an unknown way."""
    known = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)
    loaded = sys.modules.get("zstandard")
    own = (loaded.ZstdError,) if loaded is not None else ()
    # zipfile's for a password; NotImplementedError, for a method, is one
    return (*known, *own, RuntimeError)


def _bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> bytes | str:
    """A member unpacked, at most so many bytes; else why not. Its stated size is not believed."""
    try:
        with _open_member(archive, info) as file:
            raw = file.read(most + 1)
    except Missing as e:
        return f"{e}; {e.fix}"
    except unpack_errors() as e:
        return f"it cannot be unpacked: {e}"
    return raw if len(raw) <= most else f"it unpacks to more than {most >> 20} MiB"


def _open_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    if info.compress_type != _ZSTANDARD or _ZSTANDARD in getattr(zipfile, "compressor_names", {}):
        return archive.open(info)
    file: Any = archive.fp
    file.seek(info.header_offset)
    head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile("a member's header is damaged")
    name, extra = struct.unpack("<HH", head[26:30])
    file.seek(name + extra, io.SEEK_CUR)
    packed = file.read(info.compress_size)
    reader: IO[bytes] = (
        need("zstandard").ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    )
    return reader


class _Wrong(str):
    """Why a text is not JSON."""


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as e:
        return _Wrong(
            f"not JSON: {e.msg} at column {e.colno}"
            + (f" of line {e.lineno}" if e.lineno > 1 else "")
        )
    except UnicodeDecodeError as e:
        return _Wrong(f"not text: byte {e.start} is no {e.encoding}")
    except RecursionError:
        return _Wrong("not readable: it is nested too deeply")
    except ValueError as e:  # a number of thousands of digits
        return _Wrong(f"not JSON: {e}")
