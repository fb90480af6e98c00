"""Code that somebody else wrote: what is said when it raises, returns the wrong thing, or does not
return at all.

A part may be anybody's (a domain, a model, an optimizer, a callback), and its mistakes are its
author's to mend. So they are named by method, file and line, with what was expected, and are no
crash of ours. A domain's own way to say that something is not the attempt's fault is to raise
Fault; what it means for the user to mend, BadInput.
"""

from __future__ import annotations

import ctypes
import errno
import inspect
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import cache, wraps
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from pydantic import ValidationError

from recreate.api import paths, ports
from recreate.api.errors import BadInput, Interrupted, RecreateError

T = TypeVar("T")

RETURNS = {
    "tasks": ("a list of recreate.Task", "docs/ports/domain.md"),
    "prepare": ("an opened sandbox, such as backend.open()", "docs/ports/domain.md"),
    "collect": ("what is handed in, as a str", "docs/ports/domain.md"),
    "grade": ("recreate.Grade(score=0..1, passed=..., evidence=...)", "docs/ports/domain.md"),
    "gold": ("a str, as collect returns it", "docs/ports/domain.md"),
    "hidden": ("a list of texts", "docs/ports/domain.md"),
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

PATIENCE = 600.0
"""Seconds that a call of somebody else's may stay in its own code on end, where it says nothing of
it itself."""

_ROOT = Path(__file__).resolve().parents[1]
_LIBRARY = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib"))


@cache
def _methods() -> frozenset[str]:
    """What we call a part by: the methods of all ports, and its making."""
    found = {"__init__", "__call__"}
    for port in vars(ports).values():
        if isinstance(port, type) and getattr(port, "_is_protocol", False):
            found |= {name for name in vars(port) if not name.startswith("_")}
    return frozenset(found)


def callback(call: Callable[..., T]) -> Callable[..., T]:
    """A function of the caller's, under whatever name, whose mistakes are said to be its own."""

    @wraps(call)
    def called(*arguments: Any, **named: Any) -> T:
        try:
            return call(*arguments, **named)
        except Exception as e:
            if (theirs := raised(e, anything=True)) is None:
                raise
            raise theirs from e

    return called


def raised(error: BaseException, *, anything: bool = False) -> BadInput | None:
    """What to say of an exception that a part of somebody else's raised where we called it; None
    for one of ours, and for one that says already what it is. anything: whatever the function is
    called."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, RecreateError) or not isinstance(error, Exception | SystemExit) or full:
        return None
    called, last, below, known = "", None, False, False
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if _is_ours(code.co_filename):
            below, called = True, ""
        elif below and _is_theirs(code.co_filename, str(frame.f_globals.get("__name__"))):
            if not called:  # what we called; the frames after it are what that called
                called, known = (
                    _method(frame),
                    anything or code.co_name in _methods() or "self" in frame.f_locals,
                )
            last = (called, f"{_short(code.co_filename)}:{line}") if known else None
    if last is None:
        return None
    name, place = last
    return BadInput(
        f"{name} raised {said(error)} ({place})",
        fix=f"mend {place}{_expected(name)}",
        code="their-code",
    )


def said(error: BaseException) -> str:
    """An exception in a line: its type and words; of a record that cannot be made, which field and
    why."""
    if isinstance(error, ValidationError):
        first, *more = error.errors(include_url=False)
        field = ".".join(map(str, first["loc"])) or "it"
        rest = f", and {len(more)} more" if more else ""
        return f"ValidationError: {error.title}: {field}: {first['msg']}{rest}"
    return f"{type(error).__name__}: {error}".partition("\n")[0]


class OwnTime:
    """The time that calls of one part take for themselves: none may stay in the part's own code for
    longer than its patience on end. What it asks of us meanwhile, by functions that `asked` made,
    takes what it takes.

    A call that stays longer is given up. Whoever waits for it is told where it is; what it asks of
    us from then on raises Interrupted, so that it spends nothing any more; and its thread is told
    to end, which one that waits for something outside of Python hears late or never.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking = 0
        self._back = time.monotonic()
        self._given_up = False

    def asked(self, call: Callable[..., T]) -> Callable[..., T]:
        """A function of ours, for the part."""

        @wraps(call)
        def asking(*arguments: Any, **named: Any) -> T:
            with self._lock:
                if self._given_up:
                    raise Interrupted("nobody waits for this any more")
                self._asking += 1
            try:
                return call(*arguments, **named)
            finally:
                with self._lock:
                    self._asking -= 1
                    self._back = time.monotonic()

        return asking

    def run(self, call: Callable[..., T], name: str, patience: float, *arguments: Any) -> T:
        """What the call returns, or raises. patience: in seconds; 0: without end. Raises BadInput,
        `hangs`, which names the call, when it is given up."""
        done: Future[T] = Future()

        def work() -> None:
            try:
                done.set_result(call(*arguments))
            except BaseException as e:
                done.set_exception(e)

        thread, began = threading.Thread(target=work, name=name, daemon=True), time.monotonic()
        thread.start()
        try:
            while not wait([done], self._left(began, patience)).done:
                if self._gives_up(began, patience):
                    raise _hangs(name, patience, _place_in(thread))
        finally:
            with self._lock:
                self._given_up |= not done.done()
            if not done.done() and thread.is_alive():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
                )
        return done.result()

    def _left(self, began: float, patience: float) -> float | None:
        """Seconds to wait before a look at how long it has been away."""
        with self._lock:
            since = time.monotonic() - max(began, self._back)
            return (
                None if not patience else patience if self._asking else max(0.0, patience - since)
            )

    def _gives_up(self, began: float, patience: float) -> bool:
        with self._lock:
            self._given_up |= (
                not self._asking and time.monotonic() - max(began, self._back) >= patience
            )
            return self._given_up


def patience_of(part: Any) -> float:
    """Seconds that a part's calls may stay in its own code on end: its `patience`, 0 for without
    end; 0 for ours. Raises BadInput."""
    if type(part).__module__.partition(".")[0] == __name__.partition(".")[0]:
        return 0.0
    found = getattr(part, "patience", PATIENCE)
    if isinstance(found, bool) or not isinstance(found, int | float) or not found >= 0:
        raise BadInput(
            f"{type(part).__name__}.patience is {found!r}",
            fix="seconds, such as 60.0; 0 for without end",
            code="misfit",
        )
    return float(found)


def _hangs(name: str, patience: float, place: str) -> BadInput:
    return BadInput(
        f"{name} did not come back: it was in its own code for {patience:g}"
        f" s{f', last at {place}' if place else ''}",
        fix=(
            f"mend {place or name}, or say `patience = SECONDS` in its class if it takes so long;"
            " what was attempted and paid for is kept, and recreate resume asks it again"
        ),
        code="hangs",
    )


def _place_in(thread: threading.Thread) -> str:
    """FILE:LINE where a thread is in somebody else's code; '' where it is not."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_ours(file) and _is_theirs(file, str(frame.f_globals.get("__name__"))):
            return f"{_short(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def expect(fits: bool, part: Any, method: str, value: Any, why: str = "") -> None:
    """Raise BadInput (`misfit`) unless what a part's method returned `fits`. why: what is wrong but
    for its type."""
    if not fits:
        returned = why or f"returned {_kind(value)}"
        wanted, page = RETURNS[method]
        raise BadInput(
            f"{_called(part, method)} {returned}{place_of(part, method)}",
            fix=f"it returns {wanted}: {page}",
            code="misfit",
        )


def all_are(values: Any, kind: type) -> bool:
    """Whether these are a list (or tuple) of one kind."""
    return isinstance(values, list | tuple) and all(isinstance(value, kind) for value in values)


def place_of(part: Any, method: str) -> str:
    """` (FILE:LINE)` of a part's method, or of a function that is the part; '' where that cannot be
    known."""
    try:
        code = inspect.unwrap(part if inspect.isroutine(part) else getattr(part, method)).__code__
    except (AttributeError, ValueError):
        return ""
    return f" ({_short(code.co_filename)}:{code.co_firstlineno})"


def _expected(name: str) -> str:
    wanted, page = RETURNS.get(name.rpartition(".")[2], ("", ""))
    return f"; it returns {wanted}: {page}" if page else ""


def _called(part: Any, method: str) -> str:
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
    me, code = frame.f_locals.get("self"), frame.f_code
    return _name(code.co_qualname) if me is None else f"{type(me).__name__}.{code.co_name}"


def _name(qualified: str) -> str:
    """`Toy.grade`, without the functions that it was made in."""
    return qualified.rpartition("<locals>.")[2]


def _short(file: str) -> str:
    return paths.short(Path(file)) if Path(file).is_absolute() else file


def _is_ours(file: str) -> bool:
    return Path(file).is_relative_to(_ROOT)


def _is_theirs(file: str, module: str) -> bool:
    """A user's file, or one of an installed package that brings parts; no library that either of us
    only uses. What has no file was typed (`python -`, `-c`, a console) where its module is the
    program itself, and is generated elsewhere.
    """
    if file.startswith("<"):
        return module == "__main__"
    if any(file.startswith(place + "/") and "-packages/" not in file for place in _LIBRARY):
        return False
    if "-packages/" not in file:
        return True
    groups = entry_points()
    kinds = [group for group in groups.groups if group.startswith("recreate.")]
    bring = {
        point.module.partition(".")[0] for kind in kinds for point in groups.select(group=kind)
    }
    return module.partition(".")[0] in bring
