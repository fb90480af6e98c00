"""The documentation as its readers use it: each port's page has one example, which is a module in a
workspace.

`python -m tests.pages` checks the types of all examples, strictly; `.ci/run` calls it after mypy,
for its cache.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PORTS = (
    "agent",
    "domain",
    "embedder",
    "memory",
    "model",
    "optimizer",
    "policy",
    "sandbox",
    "scaffold",
)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"Save it as `(\w+\.py)`")


def examples(page: Path) -> list[str]:
    """The fenced Python blocks of a page."""
    return _PYTHON.findall(page.read_text("utf-8"))


def port_example(port: str) -> tuple[str, str]:
    """(the file's name, its text) of a port's example."""
    page = ROOT / "docs" / "ports" / f"{port}.md"
    (text,) = examples(page)
    (name,) = _SAVED.findall(page.read_text("utf-8"))
    return name, text


def save_all(folder: Path) -> None:
    """Put every port's example into a workspace, as its page says."""
    for port in PORTS:
        name, text = port_example(port)
        (folder / name).write_text(text, "utf-8")


CALLER = """
import recreate
from brief import agent
from first_failure import FirstFailure
from function import Function
from logged import Logged
from problems import Problems
from remarks import Remarks
from trigrams import Trigrams
from words import Words

built: recreate.Outcome = recreate.build(
    Problems(), model=Function(), optimizer=FirstFailure, sandbox=Logged(), embedder=Trigrams(), \
recall=Words()
)
better: bool = built.verdict.better
experience: recreate.Experience = recreate.run(built.scaffold, "problems:sums:test-0", Problems(), \
model=Function())
cells: list[recreate.BenchResult] = recreate.bench([built.path, "seed"], Problems(), split="test")
own: list[recreate.BenchResult] = recreate.bench(agent, Problems(), model=Function())
provable: recreate.Validatable = Problems()
policy: type[recreate.MemoryPolicy] = Remarks
"""
"""What a type checker must accept: every example takes its place in `build`."""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        save_all(Path(folder))
        (Path(folder) / "caller.py").write_text(CALLER, "utf-8")
        for page in (ROOT / "docs" / "sdk.md",):
            for n, text in enumerate(examples(page)):
                (Path(folder) / f"{page.stem}_{n}.py").write_text(text, "utf-8")
        plugin = ROOT / "tests" / "plugin" / "recreate_fruit"
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file",
            ROOT / "pyproject.toml",
            folder,
            plugin,
        ]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
