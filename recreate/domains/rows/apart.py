"""Tests in one sandbox, the answer in another, and lines between them: what is handed in can bend neither the tests nor
what they tell. two_sides.py is the program of both; here its lines are carried from one to the other."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recreate.api.errors import Fault
from recreate.api.ports import RunningProgram, Sandbox, Talking
from recreate.api.types import digest

_PROGRAM = Path(__file__).with_name("two_sides.py")
_LONGEST = 3_000_000
"""Bytes of a line that are carried."""
GONE = b'{"gone": 1}'


def version() -> str:
    """Changes with the program: part of a grader's version."""
    return digest(_PROGRAM.read_text("utf-8"), 12)


def is_test(path: str) -> bool:
    """Whether a file of the tests is run as one. The others lie beside the answer, over what it has there."""
    stem = path.rpartition("/")[2]
    return stem.endswith(".py") and (stem.startswith("test_") or stem.endswith("_test.py"))


def run(
    tests: Sandbox, answer: Sandbox, files: Mapping[str, str], modules: list[str], seconds: float, python: str
) -> tuple[dict[str, Any], str]:
    """(what the tests tell: passed, failed, count; why nothing was told). Both sandboxes hold their files already."""
    if not isinstance(tests, Talking) or not isinstance(answer, Talking):
        raise Fault(
            f"the sandboxes of {answer.backend} hold no program that goes on, which these tests need",
            fix="--sandbox bwrap",
        )
    program, key = _PROGRAM.read_text("utf-8"), secrets.token_hex(16)
    ends = time.monotonic() + seconds
    one = tests.start([python, "-B", "-c", program, "tests"], seconds)
    try:
        other = answer.start([python, "-B", "-c", program, "answer"], seconds)
        try:
            asked = {"files": sorted(filter(is_test, files)), "modules": modules, "key": key}
            one.send(json.dumps(asked).encode(), seconds)
            return _carried(one, other, key, ends, seconds)
        finally:
            other.close()
    finally:
        one.close()


def _carried(
    one: RunningProgram, other: RunningProgram, key: str, ends: float, seconds: float
) -> tuple[dict[str, Any], str]:
    while (left := ends - time.monotonic()) > 0:
        line = one.take(left)
        if line is None:
            break
        if line.endswith(f'"key": "{key}"}}'.encode()):
            told = json.loads(line)["verdict"]
            if isinstance(told, dict) and "gone" not in told:
                return told, ""
            return {}, "the answer's program ended, or told what cannot be read"
        reply = other.take(max(0.0, ends - time.monotonic())) if other.send(line, left) else None
        if not one.send(reply if reply is not None and len(reply) < _LONGEST else GONE, left):
            break
    return {}, f"took longer than {seconds:g} s" if time.monotonic() >= ends else "ended and told nothing"
