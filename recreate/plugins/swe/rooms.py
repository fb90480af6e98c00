"""Who may run at once: an exam, from which expected values are withheld, or suites, which hold
them.

What a suite's run holds it could tell an exam beside it, by whatever two sandboxes share. Locks in
RECREATE_HOME keep them apart, over all processes: a package's exams run one at a time, while none
of its suites does.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from recreate.api import paths
from recreate.api.types import digest
from recreate.storage.files import exclusive, home_disk


@contextmanager
def enter(group: str, *, alone: bool) -> Iterator[None]:
    """Hold the room of a task's package: alone for an exam, beside others for a suite."""
    room = paths.home() / "swe" / "rooms" / digest(group.partition("/")[0], 16)
    # the door: whoever comes later waits behind who waits
    with home_disk(room), exclusive(room.with_suffix(".door")):
        handle = os.open(room, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        except BaseException:
            os.close(handle)
            raise
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # a child that was forked has it too
        os.close(handle)
