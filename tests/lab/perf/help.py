"""CPU that `recreate --help` takes, beside importing the libraries a command line like it cannot do
without."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from tests.lab.perf.table import Row, paired

ROOT = Path(__file__).resolve().parents[3]
GOAL = "<=0.5"
CASES = {"cli.py --help": ("cli.py", "--help"), "-m recreate --help": ("-m", "recreate", "--help")}


def measure() -> list[Row]:
    libraries = ("-c", "import typer, pydantic, rich")
    return [
        paired(
            "help",
            name,
            "s of CPU",
            lambda a=arguments: child_cpu(*a),  # type: ignore[misc]
            lambda: child_cpu(*libraries),
            pairs=7,
            goal=GOAL,
            goal_of="ours",
        )
        for name, arguments in CASES.items()
    ]


def child_cpu(*arguments: str) -> float:
    """User and system seconds of `python ARGUMENTS`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
