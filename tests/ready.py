"""Whether a descriptor can be read: `select` knows those below 1024 only, and a test process may
hold more."""

from __future__ import annotations

import select
from typing import Any


def ready(file: Any, seconds: float) -> bool:
    """Wait so long for something to read, or for the end."""
    poll = select.poll()
    poll.register(file, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(seconds * 1000))
