"""A trajectory as another tool recorded it, and the port of the formats that read one; our own."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pydantic import ValidationError

from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import SCHEMA, Ending, Experience, Grade, Record, Step, Usage


class Foreign(Record):
    """One attempt in our terms, before it has an id, a group and a split.

    task     the tool's own name of the task, '' when it has none; `names`: others by which a domain
             may know it
    prompt   what was asked; `system`: the system prompt
    grade    None when the file says nothing of the outcome
    rest     what has no place among our fields, as it stood
    """

    task: str = ""
    names: tuple[str, ...] = ()
    prompt: str
    system: str = ""
    steps: tuple[Step, ...]
    ending: Ending = "submitted"
    limit: str = ""
    answer: str = ""
    model: str = ""
    usage: Usage = Usage()
    repeat: int = 0
    fault: str = ""
    grade: Grade | None = None
    rest: Mapping[str, Any] = {}


class Bad(NamedTuple):
    """What could not be read: the place in a file (`line 3`, `samples/1.json`) and why."""

    place: str
    reason: str


class Unreadable(Exception):
    """Raised by a format for a record that it cannot make a trajectory of; the message is the
    reason."""


@runtime_checkable
class Format(Protocol):
    """A format of traces (kind `traces`). Records are JSON values; how a file holds them is not its
    business."""

    def reads(self, value: Any) -> bool:
        """Whether a record is of this format, by its content."""
        ...

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign | Experience]:
        """The trajectories of one record; of a SplitFormat the trajectory `key`, of all records
        that are part of it.

        source: the file's name without folder and suffix. Raises Unreadable.
        """
        ...


@runtime_checkable
class SplitFormat(Format, Protocol):
    """A format whose trajectories may be spread over several records of a file."""

    def parts(self, value: Any) -> Sequence[str]:
        """The ids of the trajectories that this record is a part of; () when it holds whole
        ones."""
        ...


def grade(score: Any, evidence: str) -> Grade | None:
    """A grade of what a tool calls a score: a truth value, a number in 0..1, or C, P, I, N as
    inspect writes them.

    None for anything else: a score on another scale says nothing until somebody says what it means.
    """
    if isinstance(score, str):
        score = _WORDS.get(score.strip().lower(), score)
    if isinstance(score, bool):
        score = float(score)
    if isinstance(score, int | float) and math.isfinite(score) and 0 <= score <= 1:
        return Grade(score=float(score), passed=score >= 1, evidence=evidence)
    return None


_WORDS: dict[str, float] = {
    "c": 1.0,
    "p": 0.5,
    "i": 0.0,
    "n": 0.0,
    "correct": 1.0,
    "incorrect": 0.0,
    "pass": 1.0,
    "passed": 1.0,
    "fail": 0.0,
    "failed": 0.0,
    "true": 1.0,
    "false": 0.0,
    "resolved": 1.0,
    "unresolved": 0.0,
}


def nothing_handed_in(how: str) -> Grade:
    """An agent that reached a limit with nothing to show has failed, whatever the grader would
    be."""
    return Grade(score=0.0, passed=False, evidence=f"nothing was handed in: {how}")


def object_of(value: Any) -> JsonMap:
    """The value when it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def list_of(value: Any) -> Sequence[Any]:
    """The value when it is a JSON array, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def parsed(value: Any) -> Any:
    """The JSON that a text holds; the value as it is when it is no text, or no JSON."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def count(value: Any) -> int:
    """A number of tokens or calls; 0 for what is none. OTLP writes 64-bit numbers as text."""
    try:
        return max(0, int(value)) if not isinstance(value, bool) else 0
    except (TypeError, ValueError, OverflowError):
        return 0


def amount(value: Any) -> float:
    """Seconds or dollars; 0 for what is no finite number."""
    try:
        number = float(value) if not isinstance(value, bool) else 0.0
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) and number >= 0 else 0.0


def without(value: JsonMap, *known: str) -> JsonDict:
    """The fields that were not read and say something."""
    return {k: v for k, v in value.items() if k not in known and v not in (None, "", [], {})}


class Own:
    """Our own format: a line an experience, as `recreate traces export --format jsonl` and the
    files of memory write it. Nothing is derived anew: ids, splits and grades are as they were
    recorded."""

    def reads(self, value: Any) -> bool:
        return {"id", "trace", "grade", "split", "task"} <= _inner(value).keys()

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Experience]:
        for value in values:
            raw = _inner(value)
            schema = raw.get("schema")
            if isinstance(schema, int) and schema > SCHEMA:
                raise Unreadable(f"it has schema {schema}; this recreate reads up to {SCHEMA}")
            try:
                yield Experience.model_validate(raw)
            except ValidationError as e:
                first = e.errors()[0]
                raise Unreadable(
                    f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
                ) from None


def _inner(value: Any) -> JsonDict:
    value = object_of(value)
    return dict(object_of(value.get("experience")) or value)
