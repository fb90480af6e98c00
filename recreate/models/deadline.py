"""A deadline for what cannot be given one: name look-ups, TLS, other people's clients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def within(
    seconds: float, work: Callable[..., T], *args: Any, late: Callable[[T], object] | None = None
) -> T:
    """Return what `work(*args)` returns or raises, if it does so in time; else TimeoutError, and
    `late` gets what it returns afterwards. It runs on a thread of its own, which ends with it and
    holds no process back."""
    lock, ended, given_up = threading.Lock(), threading.Event(), False
    result: list[T] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            found = work(*args)
        except BaseException as e:
            error.append(e)
        else:
            with lock:
                result.append(found)
                if given_up and late is not None:
                    late(found)
        ended.set()

    threading.Thread(target=run, name="deadline", daemon=True).start()
    try:
        ended.wait(max(0.0, seconds))
    finally:  # Ctrl-C too
        with lock:
            given_up = not (result or error)
    if error:
        raise error[0]
    if result:
        return result[0]
    raise TimeoutError(f"no end within {seconds:g} s")
