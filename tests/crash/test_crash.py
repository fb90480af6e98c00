"""A sample of `python -m tests.crash`: what a build leaves does not depend on where it was killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_build_that_is_killed_or_whose_disk_is_full_ends_as_the_one_that_nobody_stopped() -> None:
    command = [sys.executable, "-m", "tests.crash", "--boundaries", "16", "--disk", "4", "--random", "2", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = {row["kind"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert {kind: (row["tried"], row["faults"]) for kind, row in rows.items()} == {
        "kill": (16, []), "full disk": (4, []), "random": (2, []),
    }, done.stderr  # fmt: skip
    assert done.returncode == 0
