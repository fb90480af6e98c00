"""A model that answers from a file: whole builds run offline, in seconds, the same each time.

    {"role": "agent", "task": "toy:1", "step": 0, "text": "echo hello"}
    {"role": "agent", "contains": "FAILED", "lacks": "fixed", "text": "try again", "delay_ms": 20}
    {"role": "optimizer", "fault": "503", "fault_times": 2, "text": "{}"}
    {"role": "optimizer", "step": 0, "tool_calls": [{"name": "steps", "arguments": {"first": 3}}]}

A line matches a call when everything it names agrees: `role`, `task`, `repeat`, `step` (the call's
step), `sample`; `contains` must occur in one of the messages, `lacks` in none. **The first matching
line answers**; order decides, not how specific a line is, so put the special ones first and a
general one last.

    text         the reply                      finish       stop (default) | length | tool_calls |
                 other
    tool_calls   tools called natively, besides the text or instead of it: [{"name", "arguments"},
                 ...], with arguments an object, or a text to be handed on as it is. With such a
                 line in it the script is a model that takes tools natively (`native_tools`), and
                 that line's finish is tool_calls by default
    delay_ms     how long it takes              tokens_in, tokens_out    counts; len/4 when absent
    find         a pattern searched in the messages; `$1` in the text, and in the strings of the
                 tool calls' arguments, becomes its first group (ids are not known when a script is
                 written)
    fault        timeout | 503 | 429 | refused | reset: raised instead of answering
    fault_times  how often this line faults before it answers (default: always)
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api.config import read_json
from recreate.api.errors import BadInput, Transient
from recreate.api.ports import Price
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Call, Message, Reply
from recreate.models.chat import content, estimate, estimate_reply, tool_calls
from recreate.models.pricing import FREE

_KEYS: dict[str, type] = {"role": str, "task": str, "repeat": int, "step": int, "sample": int}
_SEARCHED: dict[str, type] = {"contains": str, "lacks": str}
_REST: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "tool_calls": list,
    "find": str,
    "delay_ms": (int, float),
    "fault": (str, int),
    "fault_times": int,
    "finish": str,
    "tokens_in": int,
    "tokens_out": int,
}
_FAULTS = {
    "timeout": ("timeout", "the model did not answer in time"),
    "503": ("http-503", "the model answered 503"),
    "429": ("http-429", "the model answered 429"),
    "refused": ("connection-refused", "the connection was refused"),
    "reset": ("reset", "the connection was reset"),
}


class Scripted:
    """Answers from FILE.jsonl, whose format is described above. Thread-safe. Price 0."""

    price: Price | None = FREE

    def __init__(self, file: str | Path, **options: Any) -> None:
        self.name = f"scripted:{file}"
        path = Path(file).expanduser()
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
            raise BadInput(
                f"the script {path} cannot be read: {why}",
                fix="name a JSON-lines file: scripted:FILE.jsonl",
                code="no-script",
            ) from None
        rows: list[JsonMap] = []
        numbers: list[int] = []
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                row = read_json(line)
            except ValueError as e:
                raise _broken(path.name, number, f"not JSON ({e})") from None
            rows.append(row)
            numbers.append(number)
        self._begin(rows, numbers, path.name)

    @classmethod
    def of(cls, rows: Sequence[JsonMap], name: str = "scripted:here") -> Scripted:
        """Return the same from dicts, for code."""
        model = cls.__new__(cls)
        model.name = name
        model._begin(rows, list(range(1, len(rows) + 1)), name.partition(":")[2])
        return model

    def _begin(self, rows: Sequence[JsonMap], numbers: Sequence[int], source: str) -> None:
        for row, number in zip(rows, numbers, strict=True):
            _check(row, number, source)
        self.rows = tuple(dict(row) for row in rows)
        self.native_tools = any("tool_calls" in row for row in rows)
        self.source = source
        self._numbers = tuple(numbers)
        self._lock = threading.Lock()
        self._faulted = [0] * len(rows)

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """Return the first matching line's text and tool calls. Raises BadInput
        (script-has-no-line) when none matches."""
        for i, row in enumerate(self.rows):
            if _matches(row, messages, call):
                return self._answer(i, row, messages, params)
        asked = " ".join(f"{key}={getattr(call, key)!r}" for key in _KEYS)
        raise BadInput(
            f"no line of {self.source} answers the call {call.id} ({asked})",
            fix="add a line that matches it, or a last line with only `text`",
            code="script-has-no-line",
        )

    def close(self) -> None:
        pass

    def _answer(self, i: int, row: JsonMap, messages: Sequence[Message], params: JsonMap) -> Reply:
        begun = time.perf_counter()
        if row.get("delay_ms"):
            time.sleep(row["delay_ms"] / 1000)
        if "fault" in row:
            with self._lock:
                again = self._faulted[i] < row.get("fault_times", float("inf"))
                self._faulted[i] += again
            if again:
                code, words = _FAULTS[str(row["fault"])]
                where = f"{self.source} line {self._numbers[i]}"
                raise Transient(f"{words} (scripted: {where})", fix="the script says so", code=code)
        text = row.get("text", "")
        called = row.get("tool_calls", ())
        if "find" in row:
            found = re.search(row["find"], "\n".join(map(content, messages)))
            text, called = _filled([text, called], (found and found[1]) or "")
        calls = tool_calls(({"function": c} for c in called), len(messages))
        return Reply(
            text=text,
            tool_calls=calls,
            model=self.name,
            finish=row.get("finish", "tool_calls" if calls else "stop"),
            tokens_in=row.get("tokens_in", estimate(messages)),
            tokens_out=row.get("tokens_out", estimate_reply(text, calls)),
            latency=time.perf_counter() - begun if row.get("delay_ms") else 0.0,
        )


def _matches(row: JsonMap, messages: Sequence[Message], call: Call) -> bool:
    for key in _KEYS:
        if key in row and row[key] != getattr(call, key):
            return False
    if "contains" in row and not any(row["contains"] in content(m) for m in messages):
        return False
    return not ("lacks" in row and any(row["lacks"] in content(m) for m in messages))


def _filled(value: Any, found: str) -> Any:
    """Return `value` with `$1` in each of its strings replaced."""
    if isinstance(value, str):
        return value.replace("$1", found)
    if isinstance(value, dict):
        return {k: _filled(v, found) for k, v in value.items()}
    return [_filled(v, found) for v in value] if isinstance(value, list | tuple) else value


def _check(row: Any, number: int, source: str) -> None:
    if not isinstance(row, Mapping):
        raise _broken(source, number, "not a JSON object")
    known: JsonDict = {**_KEYS, **_SEARCHED, **_REST}
    for key, value in row.items():
        if key not in known:
            raise _broken(source, number, f"{key!r} is not known; there are: {', '.join(known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise _broken(source, number, f"{key!r} has the wrong type: {value!r}")
    if "fault" in row and str(row["fault"]) not in _FAULTS:
        raise _broken(
            source, number, f"no fault is called {row['fault']!r}; there are: {', '.join(_FAULTS)}"
        )
    if not 0 <= row.get("delay_ms", 0) < 1e9:
        raise _broken(source, number, f"'delay_ms' is no time: {row['delay_ms']!r}")
    try:
        if "find" in row and not re.compile(row["find"]).groups:
            raise _broken(source, number, "`find` has no group, which `$1` would be")
    except re.error as e:
        raise _broken(source, number, f"`find` is no pattern: {e}") from None
    for called in row.get("tool_calls", ()):
        form = (
            isinstance(called, dict)
            and set(called) <= {"name", "arguments"}
            and isinstance(called.get("name"), str)
        )
        if not form or not isinstance(called.get("arguments", {}), dict | str):
            raise _broken(
                source,
                number,
                f'a tool call is {{"name": TEXT, "arguments": OBJECT}}, not {called!r}',
            )
    answers = "text" in row or "tool_calls" in row
    if not answers and "fault" not in row:
        raise _broken(source, number, "it has neither `text` nor `tool_calls` nor `fault`")
    if "fault_times" in row and not answers:
        raise _broken(
            source,
            number,
            "with `fault_times` it needs the `text` or `tool_calls` it answers afterwards",
        )


def _broken(source: str, number: int, why: str) -> BadInput:
    return BadInput(
        f"{source} line {number}: {why}",
        fix="mend that line: one JSON object a line",
        code="broken-script",
    )
