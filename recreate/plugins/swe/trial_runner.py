"""Runs a project's tests many times in one sandbox, each time with other files changed and in a
process of its own.

It is never imported by recreate: it is the program of `python3 -s -B -c`. The order of one JSON
line on stdin:
    ready    printed as soon as the order is read
    runner   the text of the program that runs the tests once (pytest_runner.py)
    runs     [{order: what that program is told, files: {path: text, or null for one that is
             deleted}, most: failures after which it stops, 0 for never, seconds: of processor time
             and, five times as many, of wall time}]
    crowd    how many processes want each processor, at least 1: wall time is longer by so much
The last line on stdout is the processor seconds of each run, a JSON list. What is imported here,
pytest above all, each run finds imported.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest  # noqa: F401  # so that no run has to


def main() -> None:
    told = json.loads(sys.stdin.readline())
    print(told["ready"], end="", flush=True)
    runner: dict[str, Any] = {"__name__": "runner"}
    exec(compile(told["runner"], "<runner>", "exec"), runner)
    sys.dont_write_bytecode = (
        False  # the tests are compiled once; a changed file is told by its time, a new one each
    )
    gc.freeze()
    used: list[float] = []
    for number, run in enumerate(told["runs"]):
        kept = {
            path: (Path(path).read_bytes(), Path(path).stat())
            for path in run["files"]
            if Path(path).is_file()
        }
        for path, text in run["files"].items():
            if text is None:
                Path(path).unlink(missing_ok=True)
            else:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_bytes(text.encode("utf-8"))
                os.utime(path, (number, number))
        child = os.fork()
        if child == 0:
            try:
                run_once(runner, run)
            finally:
                os._exit(0)
        used.append(watch(child, 5.0 * told["crowd"] * run["seconds"]))
        for path in run["files"]:
            if path in kept:
                data, known = kept[path]
                Path(path).write_bytes(data)
                os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
            else:
                Path(path).unlink(missing_ok=True)
    print(json.dumps(used))


def run_once(runner: dict[str, Any], run: dict[str, Any]) -> None:
    os.setsid()
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    seconds = int(run["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    if run["most"]:
        os.environ["PYTEST_ADDOPTS"] = f"--maxfail={run['most']}"
    sys.stdin = io.StringIO(json.dumps(run["order"]) + "\n")
    runner["main"]()


def watch(child: int, seconds: float) -> float:
    """The processor seconds of a run; one that takes longer than `seconds` is ended with all that
    it started."""
    until = time.monotonic() + seconds
    while True:
        done, _, usage = os.wait4(child, os.WNOHANG)
        if done:
            end(child)
            return usage.ru_utime + usage.ru_stime
        if time.monotonic() > until:
            end(child)
            until += 3600.0
        time.sleep(0.004)


def end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
