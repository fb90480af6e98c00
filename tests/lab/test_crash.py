"""A sample of `python -m tests.lab.crash`: what a build leaves does not depend on where it was
killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def crashed(*which: str, **numbers: int) -> None:
    """So many builds of each kind are stopped, and none is wrong."""
    flags = [*which, *(f"--{name}={number}" for name, number in numbers.items())]
    command = [sys.executable, "-m", "tests.lab.crash", *flags, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["tried"], row["faults"]) for row in rows] == [
        (number, []) for number in numbers.values()
    ], done.stderr
    assert done.returncode == 0


@pytest.mark.slow
def test_a_build_that_is_killed_or_whose_disk_is_full_ends_as_the_one_that_nobody_stopped() -> None:
    crashed(boundaries=16, disk=4, random=2)


@pytest.mark.slow
def test_a_build_that_is_killed_in_the_search_or_in_a_look_does_too() -> None:
    crashed("--search", boundaries=4, random=1)


@pytest.mark.slow
def test_a_build_that_is_killed_inside_a_trial_that_ends_early_does_too() -> None:
    crashed("--sequential", boundaries=6, random=2)


@pytest.mark.slow
def test_a_bench_that_is_killed_or_whose_disk_is_full_goes_on_by_the_same_command() -> None:
    crashed("--bench", boundaries=10, disk=6, random=2)
