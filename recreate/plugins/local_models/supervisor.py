"""Runs a server for as long as its parent lives: `python supervisor.py COMMAND...`; it imports
nothing of ours.

When standard input closes (the parent ended, in whatever way) the whole process group is ended:
asked first, by force after 10 s. When the command ends by itself, or is killed, what it leaves of
the group is ended too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

GRACE_SECONDS = 10.0
"""From asking to forcing."""

REST_SECONDS = 3.0
"""For what a server that has ended leaves: its workers clear their shared memory."""

_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> int:
    """The command's exit status. It runs in this process's group, which must be its own.

    The command's standard input is a pipe that closes with this process.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc = ctypes.CDLL(None)

    def as_usual() -> None:
        if hasattr(libc, "prctl"):  # Linux: a supervisor that is killed takes the server along
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    child = subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=as_usual)

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os.killpg(0, signal.SIGTERM)
        end = time.monotonic() + GRACE_SECONDS
        while child.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        _clear()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    status = child.wait()
    _clear()
    return status if status >= 0 else 128 - status


def _clear() -> None:
    """End what is left of the group but for this process."""
    end = time.monotonic() + REST_SECONDS
    while (left := list(_others())) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _others() -> Iterator[int]:
    """The group's living processes, this one left out; none where there is no /proc."""
    own = os.getpid()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(group) == own != int(folder.name) and state != "Z":
            yield int(folder.name)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    sys.exit(main(sys.argv[1:]))
