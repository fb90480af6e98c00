"""Append-only files of sealed lines: JSON with a schema and a checksum. And the moments that are
written in them.

    {"kind":"start", ... ,"schema":1,"sum":"1c2d3e4f"}

A line without a newline at its end is torn (its writer was killed): it is no record, and who
appends next cuts it off. A complete line whose checksum is wrong is damaged: it is passed over, and
can be counted.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import IO, Any, NamedTuple, Self

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import SCHEMA
from recreate.storage.files import RESUME, fault, make_folders, mode_in, refuse_odd, take_lock

DEEPEST = 100
"""Levels of JSON that somebody else wrote."""


BLOCK = 1 << 22
"""Bytes of a file that are looked through at once."""


def encode(value: Any) -> str:
    """Compact JSON, not escaped beyond need."""
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except PydanticSerializationError:  # a lone surrogate, from a program's broken output
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_fields)


def decode(text: str | bytes, *, strict: bool = True) -> Any:
    """Return the value of JSON that somebody else wrote. strict: no line ends and other control
    characters in a string.

    Raises ValueError for what is none, and for what is nested deeper than DEEPEST: who walks it
    afterwards would fail.
    """
    try:
        found = json.loads(text, strict=strict)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if is_deep(found):
        raise ValueError("it is nested too deeply")
    return found


def is_deep(value: Any) -> bool:
    """Whether a value of JSON is nested deeper than DEEPEST."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            v
            for x in level
            if isinstance(x, dict | list)
            for v in (x.values() if isinstance(x, dict) else x)
        ]
        if not level:
            return False
    return True


def _fields(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


def seal(record: JsonMap | str) -> bytes:
    """Return one line: the record with `schema` and `sum` added. A text is a record that is JSON
    already, schema and all."""
    text = record if isinstance(record, str) else encode({**record, "schema": SCHEMA})
    data = text.encode("utf-8", "surrogatepass")
    return data[:-1] + b',"sum":"%08x"}\n' % zlib.crc32(data)


def unseal(line: bytes) -> JsonDict | None:
    """Return the record of a line, or None when the line is damaged. Raises BadInput for a newer
    schema."""
    head, mark, tail = line.rstrip(b"\n").rpartition(b',"sum":"')
    if not mark or tail != b'%08x"}' % zlib.crc32(head + b"}"):
        return None
    try:
        record = json.loads((head + b"}").decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):  # somebody sealed what is no JSON, or nested without end
        return None
    if not isinstance(record, dict):
        return None
    for each in (record, record.get("experience")):
        schema = each.get("schema", SCHEMA) if isinstance(each, dict) else SCHEMA
        if not isinstance(schema, int):
            return None
        if schema > SCHEMA:
            raise BadInput(
                f"this record has schema {schema}; this recreate reads up to {SCHEMA}",
                fix=paths.upgrade(),
                code="newer-schema",
            )
    return record


KIND = b'{"kind":"'
"""How nearly every line of a log with kinds begins: which kind it is can be seen before it is
read."""

LARGEST = 1e15
"""A number in a record of ours is no larger: sums, squares and columns of it stay numbers."""

Fields = Mapping[str, JsonMap]
"""By kind of record the fields it must have: a type (`int` and `float` are numbers up to LARGEST,
`X | None` may be absent), a Record that it must make, [that] for a list of such, `dict[str, that]`,
the fields of an object, or a tuple of which one will do."""


def fits(record: JsonMap, fields: Fields) -> bool:
    """Whether a record has a kind, and what that kind must have; one that `fields` does not name
    may have anything."""
    kind = record.get("kind")
    return isinstance(kind, str) and _has(record, fields.get(kind, {}))


def _has(record: JsonMap, fields: JsonMap) -> bool:
    # a plain loop, as below: every line of every log comes by
    for name, wanted in fields.items():  # noqa: SIM110
        if not _is(record.get(name), wanted):
            return False
    return True


_SEVERAL = (tuple, UnionType)


def _is(value: Any, wanted: Any) -> bool:
    if wanted is str:
        return isinstance(value, str)
    if wanted is int or wanted is float:
        return type(value) in (int, wanted) and abs(value) <= LARGEST
    if isinstance(wanted, _SEVERAL):
        for each in wanted if isinstance(wanted, tuple) else wanted.__args__:
            if value is None if each is None or each is NoneType else _is(value, each):
                return True
        return False
    if isinstance(wanted, list):
        (inner,) = wanted
        return isinstance(value, list) and all(_is(each, inner) for each in value)
    if isinstance(wanted, GenericAlias):
        _, inner = wanted.__args__
        return isinstance(value, dict) and all(_is(each, inner) for each in value.values())
    if isinstance(wanted, Mapping):
        return isinstance(value, dict) and _has(value, wanted)
    if not issubclass(wanted, BaseModel):
        return isinstance(value, wanted)
    if not plain(value):
        return False
    try:
        wanted.model_validate(value)
    except ValidationError:
        return False
    return True


def plain(value: Any, depth: int = DEEPEST) -> bool:
    """Whether JSON is nested no deeper than that, and no number in it, but for lists of numbers, is
    past LARGEST."""
    if isinstance(value, dict):
        numbers = (v for v in value.values() if isinstance(v, int | float))
        if not all(abs(number) <= LARGEST for number in numbers):
            return False
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(plain(v, depth - 1) for v in inner if isinstance(v, dict | list))


class Line(NamedTuple):
    """One complete line of a file: where it is (bytes), its checksum, and its record, None when
    damaged."""

    offset: int
    length: int
    sum: str
    record: JsonDict | None


class Log:
    """A file of sealed lines. Thread-safe.

    Either one process writes it and keeps it open, as a run does under the lock of its folder; or
    several do, each opening it anew for what it appends, under a lock that they share: `with
    locked(folder), Log(path) as log`; or several keep it open, and each appends while it has
    `taken` the file.

    durable: on the disk when `append` returns, whatever happens to the
    machine; without it a line survives a kill of the process, not a power cut (an fsync takes 10
    ms, and all attempts would wait for it in turn). fix: what a Fault advises; "" for what it
    advises of any folder of a workspace.
    """

    def __init__(self, path: Path, *, durable: bool = False, fix: str = RESUME) -> None:
        self.path = path
        self.durable = durable
        self.fix = fix
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._end = 0

    def append(self, *records: JsonMap | bytes) -> int:
        """Write records, or lines that are sealed already; returns the byte offset of the first.

        All or none: nothing half-written stays. Raises Fault when the disk does not take it.
        """
        data = b"".join([each if isinstance(each, bytes) else seal(each) for each in records])
        with self._lock:
            try:
                fd = self._open() if self._fd is None else self._fd
                left = data
                while left:
                    left = left[os.write(fd, left) :]
                if self.durable:
                    os.fsync(fd)
            except OSError as e:
                if self._fd is not None:
                    os.ftruncate(self._fd, self._end)
                raise fault(self.path if self.fix else self.path.parent, e, self.fix) from e
            except BaseException:  # Ctrl-C: who knows how far it came
                if self._fd is not None:
                    self._end = _mended(self._fd)
                raise
            at = self._end
            self._end = self._end + len(data)
            return at

    def take(self, start: int) -> Sequence[JsonDict]:
        """Hold the file against the other processes that take it, until `let_go`; its records from
        byte `start` on.

        `end` is then the file's own end, and stays so while this Log appends. Raises Fault.
        """
        try:
            with self._lock:
                fd = self._open(mend=False) if self._fd is None else self._fd
            take_lock(fd, fcntl.LOCK_EX, self.path)
            self._end = os.fstat(fd).st_size
            if self._end == start:
                return ()
            self._end = _mended(fd)
            return [line.record for line in self.lines(start) if line.record is not None]
        except OSError as e:
            raise fault(self.path, e, self.fix) from e

    def let_go(self) -> None:
        """Give the file free. Safe to call when it was not taken."""
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    @property
    def end(self) -> int:
        """The byte offset behind what was last appended here."""
        return self._end

    def lines(
        self, start: int = 0, wanted: Callable[[bytes], bool] | None = None
    ) -> Iterator[Line]:
        """Yield the complete lines from byte `start` on, damaged ones included; none when there is
        no file.

        wanted: of what a line is, whether to read it; the record of one that is not read is {}.
        Raises BadInput when a newer recreate wrote one of them, Fault when the file cannot be read.
        """
        offset = start
        try:
            with self._open_to_read() as file:
                file.seek(start)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        return
                    if wanted is not None and not wanted(raw):
                        yield Line(offset, len(raw), "", {})
                    elif raw != b"\n":
                        yield _line(offset, raw)
                    offset += len(raw)
        except BadInput as e:
            raise self._newer(e, offset) from None
        except FileNotFoundError:
            return
        except OSError as e:
            raise fault(self.path.parent, e) from e

    def having(self, words: Collection[bytes]) -> Iterator[Line]:
        """Yield the complete lines in which one of these stands, damaged ones included. Raises as
        `lines` does."""
        offset = 0
        try:
            with self._open_to_read() as file:
                while block := file.read(BLOCK) + file.readline():
                    if not any(word in block for word in words):
                        offset += len(block)
                        continue
                    for raw in BytesIO(block):
                        if raw.endswith(b"\n") and any(word in raw for word in words):
                            yield _line(offset, raw)
                        offset += len(raw)
        except BadInput as e:
            raise self._newer(e, offset) from None
        except FileNotFoundError:
            return
        except OSError as e:
            raise fault(self.path.parent, e) from e

    def read(self, fields: Fields | None = None, kinds: Collection[str] = ()) -> Iterator[JsonDict]:
        """Yield all undamaged records, or those of some kinds, streaming. fields: one that lacks
        what it must have is damaged as well."""
        heads = tuple(KIND + kind.encode() + b'"' for kind in kinds)

        def wanted(raw: bytes) -> bool:
            return raw.startswith(heads) or not raw.startswith(KIND)

        for line in self.lines(wanted=wanted if kinds else None):
            if line.record is None or (kinds and line.record.get("kind") not in kinds):
                continue
            if fields is None or fits(line.record, fields):
                yield line.record

    def damaged(self, fields: Fields | None = None) -> int:
        """Return how many lines `read` passes over."""
        lines = (line.record for line in self.lines())
        return sum(
            record is None or not (fields is None or fits(record, fields)) for record in lines
        )

    def at(self, offset: int) -> Line | None:
        """Return the line that starts at a byte offset; None when the file does not reach there any
        more."""
        try:
            with self._open_to_read() as file:
                file.seek(offset)
                raw = file.readline()
            return _line(offset, raw) if raw.endswith(b"\n") else None
        except BadInput as e:
            raise self._newer(e, offset) from None
        except FileNotFoundError:
            return None
        except OSError as e:
            raise fault(self.path.parent, e) from e

    def close(self) -> None:
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_to_read(self) -> IO[bytes]:
        refuse_odd(self.path)
        return self.path.open("rb")

    def _open(self, mend: bool = True) -> int:
        make_folders(self.path.parent)
        refuse_odd(self.path)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(self.path, flags, mode_in(self.path.parent))
        if mend:
            self._end = _mended(fd)
        self._fd = fd
        return fd

    def _newer(self, e: BadInput, offset: int) -> BadInput:
        if e.code == "no-file":
            return e
        return BadInput(f"{self.path}, byte {offset}: {e.message}", fix=e.fix, code=e.code)


def _line(offset: int, raw: bytes) -> Line:
    record = unseal(raw)
    return Line(offset, len(raw), "" if record is None else str(raw[-11:-3], "ascii"), record)


def _mended(fd: int) -> int:
    """Cut a torn end off, so that the next record starts on a line of its own; returns how many
    bytes stay."""
    size = end = os.fstat(fd).st_size
    while end and os.pread(fd, 1, end - 1) != b"\n":
        start = max(0, end - 65536)
        end = start + os.pread(fd, end - start, start).rfind(b"\n") + 1
    if end < size:
        os.ftruncate(fd, end)
    return end


def now() -> str:
    """Return this second, such as 2026-11-21T19:12:21Z."""
    return iso(time.time())


def iso(seconds: float) -> str:
    """Unix seconds as they are recorded: ISO 8601, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix(value: Any) -> float | None:
    """Whole unix seconds of a moment (a day is its beginning; without a zone it is UTC); None for
    what is none."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    # nan, milliseconds and what lies before the year 1 are no moment
    return float(seconds // 1) if -62135596800 <= seconds < 1e11 else None
