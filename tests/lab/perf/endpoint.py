"""The stub endpoint of tests/stub.py, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def endpoint(reply: str, delay_ms: float = 0.0) -> Iterator[str]:
    """Its URL, while the block runs."""
    command = [
        sys.executable,
        "-m",
        "tests.stub",
        "--port",
        "0",
        "--delay-ms",
        str(delay_ms),
        "--reply",
        reply,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http"), "the stub did not start"
            yield url
        finally:
            process.terminate()
            process.wait(10)
