"""Syntax nodes, branches, long functions and circles of the package, against the goals.

`--root DIR` counts another checkout.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests import house
from tests.lab.perf.table import Row

GOALS = {"nodes_a_line": "<=5.6", "wide": "==0", "bare": "<=60", "outward": "==0"}
NODES = {"core": "<=200_000", "all": "<=370_000"}


def measure(root: Path = house.ROOT) -> Iterator[Row]:
    """Yield the counts of the checkout at `root`, one row each."""
    rooms = house.measure_rooms(root)
    for case in NODES:
        total = house.sum_rooms(rooms, root, core=case == "core")
        for key, goal in ({key: "" for key in total} | GOALS | {"nodes": NODES[case]}).items():
            yield _row(f"{case}: {house.MEANS[key]}", total[key], goal)
    graph = house.imports(root)
    yield _row("modules in a circle", len(house.find_circle(graph)), "==0")
    yield _row("rooms in a circle", len(house.find_circle(house.fold(graph, house.room))), "==0")
    yield _row("class names defined twice", len(house.repeated_classes(root)), "==0")


def _row(case: str, count: float, goal: str = "") -> Row:
    return Row("house", case, "", count, None, None, None, None, goal, "ours")
