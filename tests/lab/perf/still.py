"""A domain and a sandbox in which nothing happens, so that what is measured is recreate itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.api.ports import Limits, Sandbox, SandboxBackend
from recreate.api.types import Grade, Output, Split, Task, Trace
from recreate.runs.session import Session, open_session
from recreate.runs.settings import load

TASKS = 4000
REPLY = (
    "The test fails because the parser drops the last token when the input has no newline at its"
    " end. I look at the function that splits the lines before I change it, and at who calls"
    " it.\n\n```bash\ngrep -rn 'def split_lines' src | head -5; sed -n '40,80p'"
    " src/parser.py\n```\nThen I run the one test again."
)
"""About 300 characters, as an agent's turn has."""

_LINE = (
    'File "src/lib/parser.py", line {}, in parse: assert tokens[-1] == "\\n", (len(tokens), {!r})\n'
)
OUTPUTS = tuple(
    "".join(_LINE.format(n * 17 + k, "x" * (k * 3 % 11)) for k in range(5 + n % 5))
    for n in range(16)
)
"""What commands print: 450 to 1,000 characters."""


class StillBox:
    """A box that answers every command at once."""

    backend = "still"

    def __init__(self) -> None:
        self.commands = 0

    def run(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None
    ) -> Output:
        self.commands += 1
        return Output(text=OUTPUTS[self.commands % len(OUTPUTS)], status=1, seconds=0.01)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        pass

    def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    def close(self) -> None:
        pass


class StillRung:
    """tests.lab.perf.still:StillRung"""

    name = "still"

    def probe(self) -> str:
        return ""

    def open(
        self,
        *,
        source: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Sandbox:
        return StillBox()


class Still:
    """tests.lab.perf.still:Still: tasks of which nobody asks anything."""

    name = "still"

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"still:{n}",
                domain="still",
                prompt="A test of this package fails: the last token of the input is lost. " * 10,
                split="train",
                group=f"g{n}",
            )
            for n in range(TASKS if split in (None, "train") else 0)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        return "answer"

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        return Grade(score=0.0, passed=False, evidence="AssertionError: nothing was done")


def agent(steps: int) -> Scaffold:
    """The shipped seed, with that many steps an attempt and no other limit in the way."""
    seed = scaffolds.load(shipped("scaffolds") / "seed")
    toml = (
        f"[limits]\nsteps = {steps}\ntokens = 1000000000\nusd = 1000\nseconds ="
        " 36000\n[model]\nmax_tokens = 512\n"
    )
    return Scaffold(name="still", files={**seed.files, "agent.toml": toml})


@contextmanager
def run_session(model: str, jobs: int = 1, **more: Any) -> Iterator[Session]:
    """A run in a new workspace, put together as `recreate build` does it: with a price and a cap.

    It lies in memory where there is such a place, because what the kernel takes to make a file on a
    disk depends on what others have just deleted there. TMPDIR names another place.
    """
    place = "/dev/shm" if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="recreate-perf-", dir=place) as name:
        flags: dict[str, Any] = {
            "domain": "tests.lab.perf.still:Still",
            "sandbox": "tests.lab.perf.still:StillRung",
            "model": model,
            "price": "0.5,1.5",
            "budget": "1000000usd",
            "jobs": jobs,
            **more,
        }
        session = open_session(
            load(Path(name), flags, environ={}), Path(name), Path(name) / "runs" / "perf"
        )
        try:
            yield session
        finally:
            session.close()
