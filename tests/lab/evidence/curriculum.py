"""How many train attempts does it take to find what is wrong, by how train tasks are chosen?

A pool of tasks, and six causes of failure in them. A round attempts eight tasks; for each failed
attempt that has a cause the optimizer understands it half of the time; what it understood is mended
by one candidate, which the gate keeps in 4 of 5 cases, and in 1 of 5 of those it breaks a few tasks
that were solved. Counted are the attempts that the optimizer was shown until half of the causes,
and all, are mended (at most ROUNDS rounds).

    again      `--choose uniform`: every task in turn; one that the same agent attempted is read
               back, at no cost but the study's
    turns      every task in turn, each time a new attempt
    seeds      builds of one round, each with a random seed of its own
    learning   `--choose learning`
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from statistics import fmean, stdev
from typing import Any

from recreate.plugins.measuring.curriculum import Tried, draw

BATCH, ROUNDS, CAUSES = 8, 60, 6
RULES = ("again", "turns", "seeds", "learning")

WORLDS: dict[str, tuple[float, float, float, tuple[float, float]]] = {
    "mixed": (0.3, 0.4, 0.0, (0.2, 0.8)),
    "mostly solved": (0.05, 0.75, 0.0, (0.4, 0.9)),
    "mostly hopeless": (0.75, 0.05, 0.0, (0.1, 0.5)),
    "a third by chance": (0.2, 0.3, 0.3, (0.2, 0.8)),
    "one in ten teaches": (0.4, 0.5, 0.0, (0.3, 0.7)),
    "bad: causes never pass, two fifths by chance": (0.0, 0.4, 0.4, (0.0, 0.0)),
    "bad: they look hopeless, a fifth by chance": (0.4, 0.2, 0.2, (0.0, 0.0)),
}
"""Shares of tasks that are never solved, always solved, solved by chance, none of which teaches
anything; the others have a cause, and are solved at a rate in this range until it is mended."""


class Pool:
    """rate: each task's chance; cause: of those that have one."""

    def __init__(self, world: str, tasks: int, number: int) -> None:
        self.luck = random.Random(repr((world, tasks, number)))
        never, always, chance, rates = WORLDS[world]
        self.tasks = [str(n) for n in range(tasks)]
        order = self.luck.sample(self.tasks, tasks)
        ends = [round(tasks * part) for part in (never, never + always, never + always + chance)]
        self.rate = {
            t: 0.0 if n < ends[0] else 0.97 if n < ends[1] else 0.5 for n, t in enumerate(order)
        }
        self.cause = {t: n % CAUSES for n, t in enumerate(order[ends[2] :])}
        self.rate |= {t: self.luck.uniform(*rates) for t in self.cause}

    def break_some(self, cause: int) -> None:
        solved = [t for t in self.tasks if self.rate[t] > 0.9]
        for task in self.luck.sample(solved, min(len(solved), max(1, len(self.tasks) // 20))):
            self.rate[task], self.cause[task] = 0.1, cause


def attempts_to_mend(world: str, tasks: int, number: int, rule: str) -> tuple[int, int]:
    """(until half of the causes are mended, until all are)."""
    pool = Pool(world, tasks, number)
    there, mended, lineage, history = set(pool.cause.values()), set[int](), ["0"], list[Tried]()
    known, half = dict[tuple[str, str], bool](), 0
    draws = random.Random(repr(number))
    for round_ in range(ROUNDS):
        if rule == "learning":
            batch = [d.task for d in draw(pool.tasks, history, lineage, BATCH, (number, round_))]
        elif rule == "seeds":
            batch = draws.sample(pool.tasks, BATCH)
        else:
            batch = [pool.tasks[(round_ * BATCH + n) % tasks] for n in range(BATCH)]
        understood = set[int]()
        for task in batch:
            cause = pool.cause.get(task, -1)
            passed = pool.luck.random() < (0.95 if cause in mended else pool.rate[task])
            if rule == "again":
                passed = known.setdefault((lineage[-1], task), passed)
            history.append(Tried(task, lineage[-1], 0, float(passed)))
            if not passed and cause >= 0 and cause not in mended and pool.luck.random() < 0.5:
                understood.add(cause)
        if understood and pool.luck.random() < 0.8:
            mended |= understood
            lineage.append(str(len(lineage)))
            if pool.luck.random() < 0.2:
                pool.break_some(CAUSES + len(lineage))
        if not half and 2 * len(there & mended) >= len(there):
            half = (round_ + 1) * BATCH
        if there <= mended:
            return half, (round_ + 1) * BATCH
    return half or ROUNDS * BATCH, ROUNDS * BATCH


def tasks(builds: int) -> Iterator[dict[str, Any]]:
    """by_RULE: (ratio of the geometric means, learning to that rule, and its 95 % interval over
    paired worlds)."""
    each = max(10, builds // 10)
    for world in WORLDS:
        for size in (16, 40, 200):
            found = {
                rule: [attempts_to_mend(world, size, n, rule) for n in range(each)]
                for rule in RULES
            }
            for at, what in enumerate(("half", "all")):
                row: dict[str, Any] = {
                    "world": world,
                    "tasks": size,
                    "causes": what,
                    "worlds": each,
                }
                ends = {rule: [both[at] for both in rows] for rule, rows in found.items()}
                row |= {rule: round(fmean(rows), 1) for rule, rows in ends.items()}
                for rule in RULES[:-1]:
                    logs = [
                        math.log(b / a) for a, b in zip(ends[rule], ends[RULES[-1]], strict=True)
                    ]
                    off = 1.96 * stdev(logs) / math.sqrt(each)
                    row[f"by_{rule}"] = [
                        round(math.exp(fmean(logs) + way * off), 2) for way in (0, -1, 1)
                    ]
                yield row
