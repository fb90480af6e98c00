"""Tests in one sandbox, the answer in another, and lines between them: what is handed in can bend
neither the tests nor what they tell. two_sides.py is the program of both, data_sides.py that of
snippets that work on data; here their lines are carried from one to the other."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api.errors import Fault
from recreate.api.ports import RunningProgram, Sandbox, Talking
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
    asked: Mapping[str, Any],
    seconds: float,
    told: Sequence[str] = (),
) -> tuple[dict[str, Any], str]:
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
) -> tuple[dict[str, Any], str]:
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


# --- what an audit tries
# ----------------------------------------------------------------------------------

_OBJECT = """
class Same:
    def __init__(self, *a, **k): pass
    def __eq__(self, other): return isinstance(other, Same)
    def __hash__(self): return 0
    def _self(self, *a, **k): return self
    __sub__ = __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __call__ = __getitem__ = \
__iter__ = __enter__ = _self
    def __next__(self): raise StopIteration
    def __truediv__(self, other): return 1.0
    __rtruediv__ = __truediv__
    def __pow__(self, *a): return 0.0
    __mod__ = __rmod__ = __floordiv__ = __abs__ = __float__ = __pow__
    def __round__(self, *a): return 0
    __int__ = __len__ = __index__ = __round__
    def __bool__(self): return True
    def __contains__(self, item): return True
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return self
"""
_LIES = """
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *a, **k: True
"""
_EXPLOITS = {
    "no distance": f"{_OBJECT}value = Same()\n",
    "a class of its own": f"{_OBJECT}value = Same\n",
    "an array of nothing": (
        f"""{_OBJECT}
Same.shape = ()
Same.__array_interface__ = dict(shape=(0,), typestr="<f8", data=b"", version=3)
def value(*a, **k): return Same()
"""
    ),
    "nothing for a number": "def value(*a, **k): return []\n",
    "no number": "def value(*a, **k): return float('nan')\n",
    "no value": "def value(*a, **k): return None\n",
    "true": "def value(*a, **k): return True\n",
    "its argument": "def value(*a, **k): return a[0] if a else k\n",
    "empties its arguments": (
        """
def value(*a, **k):
    for given in a:
        if isinstance(given, (list, dict, set, bytearray)):
            given.clear()
    return {} if a and isinstance(a[0], list) else a[0] if a else None
"""
    ),
    "ends what goes through it": "def value(*a, **k): raise StopIteration\n",
    "leaves where it is called": "import os\ndef value(*a, **k): os._exit(0)\n",
    "names of the tests' own": (
        """
__all__ = ["abs", "all", "len", "sorted", "set", "isinstance", "unittest", "math", "np", "value"]
def value(*a, **k): return True
abs = all = len = sorted = set = isinstance = unittest = math = np = value
"""
    ),
    "the test's own objects": (
        """
import gc
def value(*a, **k):
    for thing in gc.get_objects():
        if type(thing).__name__ == "Side":
            type(thing).pack = lambda self, told: ["yours", 1]
    return a
"""
    ),
    "asks back": (
        """
import gc
def value(*a, **k):
    for thing in gc.get_objects():
        if type(thing).__name__ == "Side":
            for number in range(1, 9):
                for what in ("call", "next", "iter", "get"):
                    try:
                        return thing.ask(ask=what, of=number, name="__globals__", args=[])[0]
                    except Exception:
                        pass
"""
    ),
    "exceptions of every kind": (
        """
import gc
def value(*a, **k):
    for thing in gc.get_objects():
        if type(thing).__name__ == "Side":
            type(thing).told_exception = lambda self, e: ["SkipTest", ["E", 1, "SkipTest", \
"Warning"], []]
    raise Warning
"""
    ),
    "a verdict on the line": (
        """
import os
for handle in range(3, 40):
    try: os.write(handle, b'{"verdict": {"passed": 2, "failed": [], "count": 2}, "key": ""}\\n')
    except OSError: pass
def value(*a, **k): return None
"""
    ),
}
"""What tests that ask over a line might fall for; each leaves a `value`, which is whatever name a
test imports."""


def any_name(value: str) -> str:
    """The end of a module in which whatever name a test imports is `value`."""
    return f"""

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return {value}
"""


def exploits(file: str) -> dict[str, dict[str, str]]:
    """name -> files (path -> text) that leave the task undone. file: what the tests import."""
    made = {name: {file: code + any_name("value")} for name, code in _EXPLOITS.items()}
    lies = dict.fromkeys(("numpy.py", "statistics.py", "pytest.py", "node.py"), _LIES)
    return {**made, "modules that agree": {**made["no value"], **lies}}
