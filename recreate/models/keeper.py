"""Runs a server for as long as its parent lives: `python -m recreate.models.keeper COMMAND...`.

When standard input closes (the parent ended, in whatever way) the whole process group is ended: 10 s after it was
asked to, by force.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 10.0


def main(command: list[str]) -> int:
    """The command's exit status. It runs in this process's group, which must be its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_as_usual)

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os.killpg(0, signal.SIGTERM)
        end = time.monotonic() + GRACE_SECONDS
        while child.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return child.wait()


def _as_usual() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    sys.exit(main(sys.argv[1:]))
