"""Tests in one sandbox, the answer in another, and lines between them: what is handed in can bend
neither the tests nor what they tell. two_sides.py is the program of both, data_sides.py that of
snippets that work on data; here their lines are carried from one to the other."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from recreate.api.errors import Fault
from recreate.api.ports import RunningProgram, Sandbox, Talking
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import digest

_PROGRAMS = ("two_sides", "data_sides")
"""Each goes by its text, in this order: the second stands on the first."""
_START = """import sys, types
for name, text in PROGRAMS:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""
_LONGEST = 3_000_000
"""Bytes of a line that are carried."""
GONE = b'{"gone": 1}'


def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text("utf-8")


def version(data: bool = False) -> str:
    """Changes with the program: part of a grader's version. data: that of snippets; else of
    tests."""
    return digest(_text("two_sides") + _text("data_sides" if data else "looks"), 12)


def for_tests() -> str:
    """The program of both sides where tests import what is handed in."""
    return _text("two_sides")


def for_data() -> str:
    """The program of both sides where a snippet gives data."""
    texts = [(f"{__package__}.{name}", _text(name)) for name in _PROGRAMS]
    return _START.replace("PROGRAMS", repr(texts))


def is_test(path: str) -> bool:
    """Whether a file of the tests is run as one. The others can be imported and read by those."""
    stem = path.rpartition("/")[2]
    return stem.endswith(".py") and (stem.startswith("test_") or stem.endswith("_test.py"))


def run(
    program: str,
    tests: Sandbox,
    answer: Sandbox,
    asked: JsonMap,
    seconds: float,
    told: Sequence[str] = (),
) -> tuple[JsonDict, str]:
    """(what the tests tell: passed, failed, count; why nothing was told). Both sandboxes hold their
    files already.

    asked: what the side of the tests is told. told: arguments of the answer's side.
    """
    if not isinstance(tests, Talking) or not isinstance(answer, Talking):
        raise Fault(
            f"the sandboxes of {answer.backend} hold no program that goes on, which these tests"
            " need",
            fix="--sandbox bwrap",
        )
    key = secrets.token_hex(16)
    # each waits for the other, so that neither's own limit may come before the one of both
    longest = 2 * seconds
    one = tests.start(["python3", "-B", "-c", program, "tests"], longest)
    try:
        other = answer.start(["python3", "-B", "-c", program, "answer", *told], longest)
        try:
            # which waits until its sandbox stands
            one.send(json.dumps({**asked, "key": key}).encode(), seconds)
            return _carried(one, other, key, seconds)
        finally:
            other.close()
    finally:
        one.close()


def _carried(
    one: RunningProgram, other: RunningProgram, key: str, seconds: float
) -> tuple[JsonDict, str]:
    ends = time.monotonic() + seconds

    def seconds_left() -> float:
        return max(0.0, ends - time.monotonic())

    while (line := one.take(seconds_left())) is not None:
        if line.endswith(f'"key": "{key}"}}'.encode()):
            told = json.loads(line)["verdict"]
            if isinstance(told, dict) and "gone" not in told:
                return told, ""
            because = told.get("because") if isinstance(told, dict) else ""
            return {}, str(because or "the answer's program ended, or told what cannot be read")
        reply = other.take(seconds_left()) if other.send(line, seconds_left()) else None
        if not one.send(
            reply if reply is not None and len(reply) < _LONGEST else GONE, seconds_left()
        ):
            break
    return {}, "ended and told nothing" if seconds_left() else f"took longer than {seconds:g} s"
