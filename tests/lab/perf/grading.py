"""What a grade of swe costs beside the plain run of the suite: the gold of one task of each
package, in turns.

Needs the package index. The plain run is what a grade was before expected values were withheld; a
gold is the dearest answer, as nothing of it fails early.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping

from recreate.api.ports import SandboxBackend
from recreate.api.types import Task, Trace
from recreate.plugins.swe import Swe
from recreate.plugins.swe.case import case_of
from recreate.sandboxes import choose
from tests.lab.perf.table import Row

_TASKS = 16
_ROUNDS = 3


def measure(size: int = _TASKS) -> Iterator[Row]:
    """size: how many tasks. Seconds of the median task; the ratio is of all tasks' seconds
    together, its range that of the rounds. Wall time: what a sandbox's processes use is not told to
    who waits for them."""
    swe, backend = Swe(say=lambda _: None), choose()
    tasks = list({t.id.split(":")[1].partition("-")[0]: t for t in swe.tasks()}.values())[:size]
    took: dict[tuple[int, int, int], float] = {}
    for number, task in enumerate(tasks):
        swe.exam(task, backend)
        ways = (_graded(swe, task, backend), _plain(swe, task, backend))
        for turn in range(_ROUNDS):
            for side in (0, 1) if turn % 2 else (1, 0):
                started = time.perf_counter()
                ways[side]()
                took[side, turn, number] = time.perf_counter() - started
    rounds = sorted(_sum(took, 0, turn) / _sum(took, 1, turn) for turn in range(_ROUNDS))
    typical = [
        [statistics.median(took[s, r, n] for r in range(_ROUNDS)) for n in range(len(tasks))]
        for s in (0, 1)
    ]
    ours, plain = map(statistics.median, typical)
    ratio = sum(typical[0]) / sum(typical[1])
    yield Row(
        "grading",
        f"the gold of {len(tasks)} tasks",
        "s",
        ours,
        plain,
        ratio,
        rounds[0],
        rounds[-1],
        "<=2",
    )


def _sum(took: Mapping[tuple[int, int, int], float], side: int, turn: int) -> float:
    return sum(seconds for (s, t, _), seconds in took.items() if (s, t) == (side, turn))


def _graded(swe: Swe, task: Task, backend: SandboxBackend) -> Callable[[], object]:
    trace = Trace(attempt="perf", task=task.id, scaffold="", model="", answer=swe.gold(task))

    def run() -> None:
        grade = swe.grade(task, trace, backend)
        assert grade.passed, f"{task.id}: {grade.evidence[:500]}"

    return run


def _plain(swe: Swe, task: Task, backend: SandboxBackend) -> Callable[[], object]:
    case = case_of(task, lambda _: None)
    gold = case.gold()
    return lambda: swe._run(backend, case, gold, 600.0)
