"""Runs a repository's own test command inside a sandbox, and frames what it prints.

It is never imported by recreate: its text is the program of `python3 -I -c`. The order of one JSON
line on stdin:
    mark   a word that nobody else knows: `begin MARK` and `end MARK STATUS` stand around what the
           command prints
    argv   the command; `roots`: folders for its PYTHONPATH
    most   bytes of output after which the command is stopped, with the status `flood`
The command is another process than this one, so that what it prints after its end, or instead of
it, is no frame. What it prints of itself is its own word (docs/grading.md).
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

_LINGER = 5.0
"""Seconds that what the command left behind may hold its output open."""


def main() -> None:
    order = json.loads(sys.stdin.readline())
    with suppress(OSError, AttributeError):
        # PR_SET_DUMPABLE: the command cannot read the mark in our memory
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    mark, out = order["mark"].encode(), sys.stdout.buffer
    out.write(b"begin " + mark + b"\n")
    out.flush()
    command = subprocess.Popen(
        order["argv"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, order["roots"]))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    status = _copied(command, out, order["most"])
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(command.pid, signal.SIGKILL)
    out.write(b"\nend " + mark + b" " + status.encode() + b"\n")
    out.flush()


def _copied(command: "subprocess.Popen[bytes]", out: object, most: int) -> str:
    """What the command printed goes to `out`; its exit status as a word, or `flood`."""
    assert command.stdout is not None
    handle = command.stdout.fileno()
    os.set_blocking(handle, False)
    ended = 0.0
    while True:
        try:
            data = os.read(handle, 65536)
            if not data:
                return str(command.wait())
        except BlockingIOError:
            data = b""
            time.sleep(0.02)
        most -= len(data)
        if most < 0:
            return "flood"
        out.write(data)  # type: ignore[attr-defined]
        if not data and command.poll() is not None:
            ended = ended or time.monotonic()
            if time.monotonic() - ended > _LINGER:
                return str(command.returncode)


if __name__ == "__main__":
    main()
