"""What a test sees of the tested code, told in a form that goes by equality. Runs inside the
sandbox.

Nothing in it runs outside of one while recreate grades: its text stands before that of
pytest_runner.py. It holds no expected value and is believed in nothing but what it was told: the
process that reads its records knows what is right.

    _seen(n, x)      stands in an assertion for what it asserts of `x`: tells the form of x and
                     whether x is true
    _raised(n)       stands for `pytest.raises(E)`: takes any exception, and tells its classes and
                     its text
What is asserted (equal to what, true or not, which exception) is not here; with it as a further
argument (only on sources that are known to be right) it is told too.
"""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import datetime
import enum
import hashlib
import json
import numbers
import pathlib
import re
import uuid
from collections import UserList, UserString, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

_UTC = datetime.timezone.utc
_LONG = 4000
"""A longer form is told by its digest."""

LOOSE = "\0"
"""Stands in a form before the words of an object that is equal to none but such as its own class
says."""


class Opaque(Exception):
    """A value about which nothing can be said but that it is itself."""


def form(value: Any, depth: int = 60) -> str:  # noqa: C901
    """A text that is the same for equal values: 1, 1.0 and True, a dict in any order, a subclass of
    str. LOOSE is in it when it goes by what an object says of itself.

    Raises Opaque for what has no such text.
    """
    if depth == 0:
        raise Opaque
    below = depth - 1
    kind = type(value)
    if value is None or value is Ellipsis or value is NotImplemented:
        return repr(value)
    if isinstance(value, str):
        return repr(str.__str__(value))
    if isinstance(value, UserString):
        return repr(value.data)
    if isinstance(value, enum.Enum) and not isinstance(value, (int, float)):
        return f"<{kind.__module__}.{kind.__qualname__}.{value._name_}>"
    if isinstance(value, numbers.Number):
        return _number(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return repr(bytes(value))
    if isinstance(value, tuple):
        return (
            f"({', '.join(form(v, below) for v in tuple.__iter__(value))},)"
            if tuple.__len__(value)
            else "()"
        )
    if isinstance(value, (list, UserList)):
        return f"[{', '.join(form(v, below) for v in value)}]"
    if isinstance(value, deque):
        return f"deque[{', '.join(form(v, below) for v in value)}]"
    if isinstance(value, collections.abc.Mapping):
        pairs = sorted(f"{form(k, below)}: {form(v, below)}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, collections.abc.Set):
        return f"{{{', '.join(sorted(form(v, below) for v in value))}}}" if len(value) else "set()"
    if isinstance(value, range):
        ends = (value[0], value[-1], len(value)) if len(value) > 2 else ", ".join(map(str, value))
        return f"range[{ends}]"
    if isinstance(value, datetime.datetime):
        return (
            f"datetime("
            f"{(value.astimezone(_UTC) if value.utcoffset() is not None else value).isoformat()})"
        )
    if isinstance(value, (datetime.date, datetime.time)):
        return f"{'date' if isinstance(value, datetime.date) else 'time'}({value.isoformat()})"
    if isinstance(value, datetime.timedelta):
        return f"timedelta({value // datetime.timedelta(microseconds=1)})"
    if isinstance(value, type):
        return f"<class {value.__module__}.{value.__qualname__}>"
    if isinstance(value, re.Pattern):
        return f"re({value.pattern!r}, {value.flags})"
    if isinstance(value, (pathlib.PurePath, uuid.UUID)):
        return f"{'path' if isinstance(value, pathlib.PurePath) else 'uuid'}({str(value)!r})"
    if isinstance(value, slice):
        return (
            f"slice({form(value.start, below)}, {form(value.stop, below)},"
            f" {form(value.step, below)})"
        )
    if dataclasses.is_dataclass(value) and kind.__dataclass_params__.eq:
        held = (form(getattr(value, f.name), below) for f in dataclasses.fields(value) if f.compare)
        return f"<{kind.__module__}.{kind.__qualname__}>({', '.join(held)})"
    if getattr(kind, "__repr__", None) is not object.__repr__ and " at 0x" not in (
        text := repr(value)
    ):
        return f"{LOOSE}{kind.__module__}.{kind.__qualname__} {text!r}"
    raise Opaque


def _number(value: Any) -> str:
    if isinstance(value, complex):
        return (
            _number(value.real)
            if value.imag == 0
            else f"{_number(value.real)}+{_number(value.imag)}j"
        )
    if isinstance(value, (float, Decimal)) and value != value:
        return "nan"
    if isinstance(value, (float, Decimal)) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, int):
        return _digits(int(value))
    if isinstance(value, (float, Decimal)):
        value = Fraction(value)
    if isinstance(value, numbers.Rational):
        above, under = int(value.numerator), int(value.denominator)
        return _digits(above) if under == 1 else f"{_digits(above)}/{_digits(under)}"
    raise Opaque


def _digits(value: int) -> str:
    return str(value) if abs(value) < 10**18 else hex(value)


def form_of(value: Any) -> str | None:
    """The form of any object, a long one as a digest; None for one that has none."""
    try:
        text = form(value)
    except BaseException:  # the tested code's own methods may raise anything
        return None
    if len(text) <= _LONG:
        return text
    loose = LOOSE if LOOSE in text else ""
    return (
        f"{loose}{text[:60]}... {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
    )


def _classes(value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [name for v in value for name in _classes(v)]
    return [value.__qualname__]


def observe(tell: Any) -> None:
    """Give every module the two names of this file's head. tell: called with a dict for each
    observation."""

    def record_seen(number: int, value: Any, *known: Any) -> bool:
        try:
            truth = bool(value)
        except Exception:  # the tested code's own, too
            truth = None
        tell(
            {
                "kind": "seen",
                "claim": number,
                "saw": form_of(value),
                "truth": truth,
                "known": form_of(*known or (value,)),
            }
        )
        return True

    class Raised:
        """In place of pytest.raises and assertRaises."""

        def __init__(self, number: int, *known: Any) -> None:
            self.number = number
            self.known = json.dumps([_classes(known[0]), known[1]]) if known else None

        def __enter__(self) -> Raised:
            return self

        def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
            self.type, self.value, self.exception, self.tb = kind, value, value, trace
            saw = None
            if kind is not None:
                saw = json.dumps([[c.__qualname__ for c in kind.__mro__], str(value)[:1000]])
            tell(
                {
                    "kind": "seen",
                    "claim": self.number,
                    "saw": saw,
                    "truth": saw is not None,
                    "known": self.known,
                }
            )
            return saw is not None

        @property
        def typename(self) -> str:
            return str(self.type.__name__)

        def match(self, pattern: Any) -> bool:
            assert re.search(pattern, str(self.value))
            return True

        def exconly(self, tryshort: bool = False) -> str:
            return f"{self.type.__name__}: {self.value}"

    for name, meaning in (("_seen", record_seen), ("_raised", Raised)):
        setattr(builtins, name, meaning)
