"""Keys: shapes that are missed, lines of programs and prose that are masked, and the speed."""

from __future__ import annotations

import os
import random
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recreate.storage.redact import redact
from tests.lab.perf.table import Row
from tests.storage import key_shapes

ROOT = Path(__file__).parents[3]
SUFFIXES = ("*.py", "*.md", "*.txt", "*.rst")


def measure(size: int = 10_000) -> Iterator[Row]:
    """size: so many lines, of 50 places in each file that is drawn."""
    shapes = key_shapes.texts()
    missed = sum(secret in redact(text) for text, secret in shapes.values())
    for name, (value, secret) in key_shapes.variables().items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, value)
            missed += secret in redact(f"it said {value}, and {secret} alone")
    count = len(shapes) + len(key_shapes.NAMES)
    yield _row(f"missed, of {count} texts and variables", "", missed, "<= 3")
    lines = _ordinary_lines(size)
    changed = 100 * sum(redact(line) != line for line in lines) / len(lines)
    yield _row(f"masked, of {len(lines):,} lines of programs and prose", "%", changed, "<= 0.1")
    text = "\n".join(lines)
    for case, acted_on in (("what is kept", False), ("what is acted on", True)):
        begun = time.process_time()
        redact(text, acted_on=acted_on)
        spent = time.process_time() - begun
        yield _row(f"speed, {case}", "MB/s", len(text) / 1e6 / spent, "")


def _ordinary_lines(size: int) -> list[str]:
    """Lines of the installed packages, the standard library and our pages."""
    folders = [Path(sysconfig.get_path("purelib")), Path(os.__file__).parent, ROOT / "docs"]
    files = sorted({f for folder in folders for kind in SUFFIXES for f in folder.rglob(kind)})
    chance, lines = random.Random(size), list[str]()
    while len(lines) < size:
        found = chance.choice(files).read_text("utf-8", "replace").splitlines()
        lines += chance.sample(found, min(50, len(found), size - len(lines)))
    return lines


def _row(case: str, unit: str, ours: float, goal: str) -> Row:
    return Row("keys", case, unit, ours, None, None, None, None, goal, "ours")
