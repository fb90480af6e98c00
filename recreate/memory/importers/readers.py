"""Files as JSON values, one in memory at a time: JSON lines, one JSON document, or a zip of documents.

What cannot be read is told with its place and passed over. Bounds: LINE bytes for a line, WHOLE for a document, which
is read at once; of a zip no member larger than WHOLE is unpacked, however small it says it is.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from recreate.api.errors import BadInput
from recreate.memory.importers.format import Bad
from recreate.memory.importers.zipped import members

LINE = 256 << 20
WHOLE = 512 << 20
SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".eval")
"""What is looked for in a folder; a file that is named is read whatever it is called."""


class ReadDocument(NamedTuple):
    """One JSON value. offset: the byte where its line begins, None when it is no line."""

    place: str
    value: Any
    offset: int | None = None


def files(paths: Sequence[Path]) -> list[Path]:
    """The files to read, folders looked through (links are not followed). Raises BadInput for what is not there."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for folder, folders, names in os.walk(path):
                folders.sort()
                found |= dict.fromkeys(Path(folder, n) for n in sorted(names) if n.endswith(SUFFIXES))
        elif path.exists():
            found[path] = None
        else:
            raise BadInput(f"there is no {path}", fix="name files, or folders of them", code="no-file")
    return list(found)


def documents(path: Path) -> Iterator[ReadDocument | Bad]:
    """The JSON values of a file. Nothing is raised: what is wrong is told as Bad."""
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
                yield from _whole(file)
    except OSError as e:
        yield Bad("", e.strerror or str(e))


@lru_cache(maxsize=16)
def line_at(path: Path, offset: int) -> Any:
    """The value of the line at a byte, which was read before; spans of a trace often share one."""
    with path.open("rb") as file:
        file.seek(offset)
        return json.loads(file.readline(LINE))


def _is_lines(file: IO[bytes]) -> bool:
    """Whether the first two lines are a JSON object each; one alone is a document, which is read the same."""
    first = file.readline(LINE).strip()
    while first == b"":
        line = file.readline(LINE)
        if not line:
            return False
        first = line.strip()
    return first.startswith(b"{") and isinstance(_parsed(first), dict)


def _lines(file: IO[bytes]) -> Iterator[ReadDocument | Bad]:
    number, offset = 0, 0
    while raw := file.readline(LINE):
        number += 1
        place, start = f"line {number}", offset
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
        yield Bad(place, str(value)) if isinstance(value, _Wrong) else ReadDocument(place, value, start)


def _whole(file: IO[bytes]) -> Iterator[ReadDocument | Bad]:
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
    for name, raw in members(path, ("header.json", "_journal/start.json"), ("samples/",), WHOLE):
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


class _Wrong(str):
    """Why a text is not JSON."""


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as e:
        return _Wrong(f"not JSON: {e.msg} at column {e.colno}" + (f" of line {e.lineno}" if e.lineno > 1 else ""))
    except UnicodeDecodeError as e:
        return _Wrong(f"not text: byte {e.start} is no {e.encoding}")
    except RecursionError:
        return _Wrong("not readable: it is nested too deeply")
    except ValueError as e:  # a number of thousands of digits
        return _Wrong(f"not JSON: {e}")
