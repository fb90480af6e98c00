"""Code that somebody else wrote: what is said when it raises or returns the wrong thing.

A part may be anybody's (a domain, a model, an optimizer, a callback), and its mistakes are its
author's to mend. So they are named by method, file and line, with what was expected, and are no
crash of ours. A domain's own way to say that something is not the attempt's fault is to raise
Fault; what it means for the user to mend, BadInput.
"""

from __future__ import annotations

import errno
import inspect
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import ValidationError

from recreate.api import paths, ports
from recreate.api.errors import BadInput, RecreateError
from recreate.api.plugins import declared

RETURNS = {
    "tasks": ("a list of recreate.Task", "docs/ports/domain.md"),
    "prepare": ("an opened sandbox, such as backend.open()", "docs/ports/domain.md"),
    "collect": ("what is handed in, as a str", "docs/ports/domain.md"),
    "grade": ("recreate.Grade(score=0..1, passed=..., evidence=...)", "docs/ports/domain.md"),
    "gold": ("a str, as collect returns it", "docs/ports/domain.md"),
    "hidden": ("a list of texts", "docs/ports/domain.md"),
    "exploits": ("a dict of name -> answer", "docs/ports/domain.md"),
    "pass_rates": ("a list of recreate.api.types.PassRate", "docs/ports/domain.md"),
    "reply": ("recreate.Reply(text=...)", "docs/ports/model.md"),
    "propose": ("a list of recreate.Edit, [] for none", "docs/ports/optimizer.md"),
    "candidates": ("a list of candidates, each a list of recreate.Edit", "docs/ports/optimizer.md"),
    "observe": ("a list of recreate.Change, [] for none", "docs/ports/policy.md"),
    "offer": ("a list of recreate.Lesson, [] for none", "docs/ports/policy.md"),
    "propensities": ("lesson -> a probability above 0 and below 1", "docs/ports/policy.md"),
    "embed": ("a list of floats for each text", "docs/ports/embedder.md"),
    "add": ("nothing", "docs/ports/memory.md"),
    "recall": ("a list of recreate.Hit, [] for none", "docs/ports/memory.md"),
    "run": ("recreate.Output(...)", "docs/ports/sandbox.md"),
    "write": ("nothing", "docs/ports/sandbox.md"),
    "read": ("bytes", "docs/ports/sandbox.md"),
    "open": ("a sandbox", "docs/ports/sandbox.md"),
    "probe": ("'' when it works here, else why not, as a str", "docs/ports/sandbox.md"),
    "review": ("recreate.Review(decision=...), or None to let it wait", "docs/review.md"),
}
"""Method of a port -> what it returns, and the page that has an example."""

_ROOT = Path(__file__).resolve().parents[1]
_LIBRARY = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib"))


@cache
def _methods() -> frozenset[str]:
    """Return what we call a part by: the methods of all ports, and its making."""
    found = {"__init__", "__call__"}
    for port in vars(ports).values():
        if isinstance(port, type) and getattr(port, "_is_protocol", False):
            found |= {name for name in vars(port) if not name.startswith("_")}
    return frozenset(found)


@contextmanager
def boundary(
    part: Any = None, what: str = "", code: str = "their-code", *, anything: bool = False
) -> Iterator[None]:
    """Attribute what escapes to the part of somebody else's that raised it: BadInput that names its
    method, file and line. Our own mistakes, our own words (RecreateError) and Ctrl-C pass as they
    are.

    part: the one that is called; without it, the traceback says which. what: what is said before,
    such as "the domain x cannot be made". anything: it may be raised by whatever function, not only
    a port's method.
    """
    try:
        yield
    except (Exception, SystemExit) as e:
        ours = part is None or module_of(part).partition(".")[0] == "recreate"
        if isinstance(e, RecreateError) or (part is not None and ours):
            raise
        mistake = attribute_error(e, anything=anything)
        if mistake is None and not ours:
            mistake = BadInput(describe_error(e), fix=f"mend {spelled(part)}")
        if mistake is None:
            raise
        if what:
            mistake = BadInput(f"{what}: {mistake.message}", fix=mistake.fix, code=code)
        raise mistake from e


def module_of(part: Any) -> str:
    """Return the module of a class or function, or of an object's class."""
    return str(getattr(_kind_of(part), "__module__", ""))


def spelled(part: Any) -> str:
    """Return how an object is named in settings: `module:Class`, or `module:function`."""
    return f"{module_of(part)}:{_kind_of(part).__qualname__}"


def _kind_of(part: Any) -> Any:
    return part if isinstance(part, type) or inspect.isroutine(part) else type(part)


def attribute_error(error: BaseException, *, anything: bool = False) -> BadInput | None:
    """Return what to say of an exception that a part of somebody else's raised where we called it;
    None for one of ours, and for one that says already what it is. anything: whatever the function
    is called."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, RecreateError) or not isinstance(error, Exception | SystemExit) or full:
        return None
    called = ""
    last = None
    below = False
    known = False
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if _is_ours(code.co_filename):
            below = True
            called = ""
        elif below and _is_theirs(code.co_filename, str(frame.f_globals.get("__name__"))):
            if not called:  # what we called; the frames after it are what that called
                called = _method(frame)
                known = anything or code.co_name in _methods() or "self" in frame.f_locals
            last = (called, f"{_short(code.co_filename)}:{line}") if known else None
    if last is None:
        return None
    name, place = last
    return BadInput(
        f"{name} raised {describe_error(error)} ({place})",
        fix=f"mend {place}{_expected(name)}",
        code="their-code",
    )


def describe_error(error: BaseException) -> str:
    """Return an exception in a line: its type and words; of a record that cannot be made, which
    field and why."""
    if isinstance(error, ValidationError):
        first, *more = error.errors(include_url=False)
        field = ".".join(map(str, first["loc"])) or "it"
        rest = f", and {len(more)} more" if more else ""
        return f"ValidationError: {error.title}: {field}: {first['msg']}{rest}"
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def expect(fits: bool, part: Any, method: str, value: Any, why: str = "") -> None:
    """Raise BadInput (`misfit`) unless what a part's method returned `fits`. why: what is wrong but
    for its type."""
    if not fits:
        returned = why or f"returned {_kind(value)}"
        wanted, page = RETURNS[method]
        raise BadInput(
            f"{_name_method(part, method)} {returned}{place_of(part, method)}",
            fix=f"it returns {wanted}: {page}",
            code="misfit",
        )


def all_are(values: Any, kind: type) -> bool:
    """Whether these are a list (or tuple) of one kind."""
    return isinstance(values, list | tuple) and all(isinstance(value, kind) for value in values)


def place_of(part: Any, method: str) -> str:
    """Return ` (FILE:LINE)` of a part's method, or of a function that is the part; '' where that
    cannot be known."""
    try:
        code = inspect.unwrap(part if inspect.isroutine(part) else getattr(part, method)).__code__
    except (AttributeError, ValueError):
        return ""
    return f" ({_short(code.co_filename)}:{code.co_firstlineno})"


def place_of_frame(frame: FrameType) -> str:
    """Return FILE:LINE of a frame of somebody else's code; '' for any other."""
    file = frame.f_code.co_filename
    theirs = not _is_ours(file) and _is_theirs(file, str(frame.f_globals.get("__name__")))
    return f"{_short(file)}:{frame.f_lineno}" if theirs else ""


def _expected(name: str) -> str:
    wanted, page = RETURNS.get(name.rpartition(".")[2], ("", ""))
    return f"; it returns {wanted}: {page}" if page else ""


def _name_method(part: Any, method: str) -> str:
    return (
        _name(part.__qualname__) if inspect.isroutine(part) else f"{type(part).__name__}.{method}"
    )


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        return (
            f"a {type(value).__name__} that holds"
            f" {', '.join(sorted({type(v).__name__ for v in value}))}"
        )
    return "None" if value is None else f"{type(value).__name__} {value!r}"[:100]


def _method(frame: FrameType) -> str:
    me = frame.f_locals.get("self")
    code = frame.f_code
    return _name(code.co_qualname) if me is None else f"{type(me).__name__}.{code.co_name}"


def _name(qualified: str) -> str:
    """Return `Toy.grade`, without the functions that it was made in."""
    return qualified.rpartition("<locals>.")[2]


def _short(file: str) -> str:
    return paths.short(Path(file)) if Path(file).is_absolute() else file


def _is_ours(file: str) -> bool:
    return Path(file).is_relative_to(_ROOT)


def _is_theirs(file: str, module: str) -> bool:
    """Whether it is a user's file, or one of an installed package that brings parts; no library
    that either of us only uses. What has no file was typed (`python -`, `-c`, a console) where its
    module is the program itself, and is generated elsewhere.
    """
    if file.startswith("<"):
        return module == "__main__"
    if any(file.startswith(place + "/") and "-packages/" not in file for place in _LIBRARY):
        return False
    if "-packages/" not in file:
        return True
    return module.partition(".")[0] in {point.module.partition(".")[0] for point in declared()}
