"""Code that somebody else wrote and that does not return: it is given up, and said where it is."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import wraps
from typing import Any, TypeVar

from recreate.api.errors import BadInput, Interrupted
from recreate.api.theirs import place_of_frame

T = TypeVar("T")

PATIENCE = 600.0
"""Seconds that a call of somebody else's may stay in its own code on end, where it says nothing of
it itself."""


class OwnTime:
    """The time that calls of one part take for themselves: none may stay in the part's own code for
    longer than its patience on end. What it asks of us meanwhile, by functions that `wrap` made,
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

    def wrap(self, call: Callable[..., T]) -> Callable[..., T]:
        """Return a function of ours, for the part."""

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
        """Return what the call returns, or raises. patience: in seconds; 0: without end. Raises
        BadInput, `hangs`, which names the call, when it is given up."""
        done: Future[T] = Future()

        def work() -> None:
            try:
                done.set_result(call(*arguments))
            except BaseException as e:
                done.set_exception(e)

        thread = threading.Thread(target=work, name=name, daemon=True)
        began = time.monotonic()
        thread.start()
        try:
            while not wait([done], self._time_left(began, patience)).done:
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

    def _time_left(self, began: float, patience: float) -> float | None:
        """Return the seconds to wait before a look at how long it has been away."""
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
    """Return the seconds that a part's calls may stay in its own code on end: its `patience`, 0 for
    without end; 0 for ours. Raises BadInput."""
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
    """Return FILE:LINE where a thread is in somebody else's code; '' where it is not."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and not (place := place_of_frame(frame)):
        frame = frame.f_back
    return place if frame is not None else ""
