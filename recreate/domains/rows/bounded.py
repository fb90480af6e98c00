"""Comparing in a process of its own, which the kernel ends: some comparisons take for ever, or all
memory, over an answer that was made for it.

A process serves many comparisons, one after the other, and is replaced when one has ended it. What
it reads are lines on stdin: [scorer, answer, expected, settings].
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import resource
import select
import subprocess
import sys
from typing import Any

from recreate.api.errors import Fault
from recreate.api.registry import find
from recreate.domains.rows.settings import ScorerSettings

MEMORY = 2 << 30
"""Bytes of address space that a comparison may have."""
_SERVE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from recreate.domains.rows.bounded import serve; serve()"
)
_idle: queue.LifoQueue[subprocess.Popen[bytes]] = queue.LifoQueue()


def compare(scorer: str, answer: str, expected: Any, settings: ScorerSettings) -> list[Any] | None:
    """Return what the scorer's `compare_all` gives as a list, None where it takes more of the CPU
    than `settings.seconds`, or more memory than there is. Raises ValueError as it does, Fault."""
    asked = json.dumps([scorer, answer, expected, settings.model_dump(mode="json")])
    try:
        child = _idle.get_nowait()
    except queue.Empty:
        command = [sys.executable, "-I", "-c", _SERVE, json.dumps(sys.path)]
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", "")},
        )
    told = b""
    try:
        told = _ask(child, asked.encode() + b"\n", 60 + 6 * settings.seconds)
    finally:
        if told:
            _idle.put(child)
        else:
            _end(child)
    if not told:
        return None
    found, why = json.loads(told)
    if why:
        raise ValueError(why)
    return list(found)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    with contextlib.suppress(BrokenPipeError):
        child.communicate()


@atexit.register
def end_idle() -> None:
    """End the processes that wait for a comparison."""
    with contextlib.suppress(queue.Empty):
        while True:
            _end(_idle.get_nowait())


def _ask(child: subprocess.Popen[bytes], line: bytes, patience: float) -> bytes:
    """Return the answering line, b'' where the process has ended. Raises Fault where it does not
    end either: the machine was busy, which no answer brings about."""
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(line)
        child.stdin.flush()
    if not select.select([child.stdout], [], [], patience)[0]:
        why = f"a comparison did not end in {patience:g} s of a busy machine"
        raise Fault(why, fix="--jobs 1")
    return child.stdout.readline()


def serve() -> None:
    """Compare what is asked on stdin, until its end."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        name, answer, expected, given = json.loads(line)
        settings = ScorerSettings.model_validate(given)
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        most = int(used + settings.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        try:
            told: list[Any] = [
                list(find("scorer", name)().compare_all(answer, expected, settings)),
                "",
            ]
        except ValueError as e:
            told = [None, str(e)]
        print(json.dumps(told), flush=True)
