"""Each module of the harness runs, in its smallest form: what is never run is broken unnoticed."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.lab.evidence.__main__ import NAMES as EVIDENCE
from tests.lab.perf.__main__ import NAMES as PERF

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
ROOT = Path(__file__).parents[2]
SMALLEST: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "step": ({"CASES": ((2, 2, 1),)}, {}),
    "throughput": ({"CASES": ((5, 2, 4, 1, ""),), "AGENTS": 4}, {}),
    "help": ({"CASES": {"cli.py --help": ("cli.py", "--help")}}, {}),
    "toy-build": ({"TIMES": 1}, {}),
    "memory": ({"FIRST": 4, "ALL": 8}, {}),
    "study": ({"CHILDREN": 1}, {}),
    "streams": ({}, {"seeds": 1, "policies": ("none",), "jobs": 1}),
    "oracle": ({"TURNS": 2, "ALARMS": (1.0,)}, {}),
    "retrieval": ({"DRAWS": 20, "EMBEDDERS": ("hashed",)}, {}),
    "recall": ({"ASKED": 5, "INGESTED": 20, "GROWN": 3}, {"size": 500}),
    "house": ({}, {}),
    "grading": ({"_ROUNDS": 1}, {"size": 1}),
    "view": ({"ASKED": 5}, {"size": 200}),
    "batch": ({}, {"size": 6}),
    "near": ({"NEARNESS": (0.9,)}, {"size": 30}),
    "pace": ({}, {"size": 1}),
    "tiny": ({}, {"size": 500}),
    "keys": ({}, {"size": 500}),
}
"""Name -> what its constants are here, and how it is measured."""
ELSEWHERE = {"local", "rl"}
"""They need a local model, and torch."""


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """What a measurement leaves open is closed here, and not in the next test."""
    yield
    gc.collect()


def test_each_measurement_has_a_smallest_form() -> None:
    assert SMALLEST.keys() | ELSEWHERE == PERF.keys()


@pytest.mark.parametrize("name", SMALLEST)
def test_a_measurement_of_cost_gives_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    constants, given = SMALLEST[name]
    module = importlib.import_module(PERF[name])
    for constant, value in constants.items():
        monkeypatch.setattr(module, constant, value)
    rows = list(module.measure(**given))
    assert rows
    assert all(json.dumps(row.record()) and str(row) for row in rows)


@pytest.mark.parametrize("name", EVIDENCE)
def test_a_measurement_of_a_rule_gives_rows(name: str) -> None:
    rows = list(islice(EVIDENCE[name](2), 3))
    assert rows
    assert all(json.dumps(row) for row in rows)


@pytest.mark.parametrize(
    "words",
    [
        "perf",
        "cap --kills 1",
        "faults --attempts 10 --faults 20",
        "league opro --worlds 1 --jobs 1 --json",
        "retrieval hashed --first 2",
        "planted --help",
        "search gains --builds 2 --json",
        "hostile --traces 10 --builds 2 --json",
        *(["mutate gate --per-module 1"] if importlib.util.find_spec("cosmic_ray") else []),
    ],
)
def test_a_command_of_the_harness_ends_well(words: str) -> None:
    command = [sys.executable, "-m", *f"tests.lab.{words}".split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
