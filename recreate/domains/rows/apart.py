"""Tests in one sandbox, the answer in another, and lines between them: what is handed in can bend neither the tests nor
what they tell. two_sides.py is the program of both, data_sides.py that of snippets that work on data; here their lines
are carried from one to the other."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api.errors import Fault
from recreate.api.ports import WALL_FACTOR, RunningProgram, Sandbox, Talking
from recreate.api.types import digest
from recreate.sandboxes.process import Deadline

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
    """Changes with the program: part of a grader's version. data: that of data_sides.py too."""
    return digest(_text("two_sides") + (_text("data_sides") if data else ""), 12)


def for_tests() -> str:
    """The program of both sides where tests import what is handed in."""
    return _text("two_sides")


def for_data() -> str:
    """The program of both sides where a snippet gives data."""
    texts = [(f"{__package__}.{name}", _text(name)) for name in _PROGRAMS]
    return _START.replace("PROGRAMS", repr(texts))


def is_test(path: str) -> bool:
    """Whether a file of the tests is run as one. The others lie beside the answer, over what it has there."""
    stem = path.rpartition("/")[2]
    return stem.endswith(".py") and (stem.startswith("test_") or stem.endswith("_test.py"))


def run(
    program: str, tests: Sandbox, answer: Sandbox, asked: Mapping[str, Any], seconds: float, told: Sequence[str] = ()
) -> tuple[dict[str, Any], str]:
    """(what the tests tell: passed, failed, count; why nothing was told). Both sandboxes hold their files already.

    asked: what the side of the tests is told. told: arguments of the answer's side.
    """
    if not isinstance(tests, Talking) or not isinstance(answer, Talking):
        raise Fault(
            f"the sandboxes of {answer.backend} hold no program that goes on, which these tests need",
            fix="--sandbox bwrap",
        )
    key = secrets.token_hex(16)
    longest = WALL_FACTOR * seconds  # one that sleeps while the other waits for a core must not be ended
    one = tests.start(["python3", "-B", "-c", program, "tests"], longest)
    try:
        other = answer.start(["python3", "-B", "-c", program, "answer", *told], longest)
        try:
            one.send(json.dumps({**asked, "key": key}).encode(), seconds)  # which waits until its sandbox stands
            return _carried(one, other, key, Deadline(seconds, one, other))
        finally:
            other.close()
    finally:
        one.close()


def _carried(one: RunningProgram, other: RunningProgram, key: str, ends: Deadline) -> tuple[dict[str, Any], str]:
    while (line := ends.take(one)) is not None:
        if line.endswith(f'"key": "{key}"}}'.encode()):
            told = json.loads(line)["verdict"]
            if isinstance(told, dict) and "gone" not in told:
                return told, ""
            because = told.get("because") if isinstance(told, dict) else ""
            return {}, str(because or "the answer's program ended, or told what cannot be read")
        reply = ends.take(other) if other.send(line, ends.left()) else None
        if not one.send(reply if reply is not None and len(reply) < _LONGEST else GONE, ends.left()):
            break
    return {}, f"took longer than {ends.seconds:g} s" if ends.left() <= 0 else "ended and told nothing"
