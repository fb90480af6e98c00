"""Who may run at once: exams, from which expected values are withheld, or suites, which hold them.

What a suite's run holds it could tell an exam beside it, by whatever two sandboxes share. Locks in
RECREATE_HOME keep the two apart, over all processes: while one of a package's suites runs none of
its exams does, nor the other way round.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from recreate.api import paths
from recreate.api.types import digest
from recreate.storage.files import exclusive, home_disk


@contextmanager
def enter(group: str, kind: Literal["exam", "suite"]) -> Iterator[None]:
    """Hold the room of a task's package, beside others of the same kind alone."""
    room = paths.home() / "swe" / "rooms" / digest(group.partition("/")[0], 16)
    other = room.with_suffix(".exam" if kind == "suite" else ".suite")
    # the door: whoever comes later waits behind who waits until the others have left
    with home_disk(room), exclusive(room.with_suffix(".door")):
        os.close(_locked(other, fcntl.LOCK_EX))
        handle = _locked(room.with_suffix(f".{kind}"), fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # a child that was forked has it too
        os.close(handle)


def _locked(file: Path, how: int) -> int:
    """Return a descriptor that holds the file's lock."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, how)
    except BaseException:
        os.close(handle)
        raise
    return handle
