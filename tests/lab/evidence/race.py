"""Several proposals measured on the train tasks of a batch: what does a race among them save, and
what does it lose?

The parent solves 0.3 of such tasks; of the proposals 4 in 10 gain (0.1 to 0.5 of what is missing),
35 in 100 change nothing in the mean, the others lose up to half, and each makes some tasks easier
and others harder.

    all        every proposal on every task; the best is chosen, the first of equals
    hopeless   one after the other, two tasks at a time; no further once it cannot beat the best so
               far (best-of-n)
    halving    side by side; after a quarter and a half of the tasks the worse half is dropped
               (successive halving, Jamieson and Talwalkar 2016)

gain: of the chosen one over the parent, on all tasks like these, in points of a hundred. attempts:
of those of `all`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from statistics import fmean, stdev
from typing import Any

BASE, JOBS = 0.3, 2
Scores = list[list[float]]


def proposals(number: int, tasks: int, luck: random.Random) -> tuple[list[float], Scores]:
    """(each one's gain over all tasks, its scores at these)."""
    base, gains, scores = (
        [luck.betavariate(BASE, 1 - BASE) for _ in range(tasks)],
        list[float](),
        Scores(),
    )
    for _ in range(number):
        kind = luck.random()
        by = luck.uniform(0.1, 0.5) if kind < 0.4 else 0.0 if kind < 0.75 else -luck.uniform(0, 0.5)
        rates = [rate + by * (1 - rate) if by > 0 else rate * (1 + by) for rate in base]
        rates = [rate + 0.5 * min(rate, 1 - rate) * luck.choice((-1, 1)) for rate in rates]
        gains.append(by * (1 - BASE if by > 0 else BASE))
        scores.append([float(luck.random() < rate) for rate in rates])
    return gains, scores


def every(scores: Scores) -> tuple[int, int]:
    return max(range(len(scores)), key=lambda n: (sum(scores[n]), -n)), sum(map(len, scores))


def hopeless(scores: Scores) -> tuple[int, int]:
    best, most, attempts = 0, -1.0, 0
    for number, row in enumerate(scores):
        made = 0
        while made < len(row) and sum(row[:made]) + len(row) - made > most:
            made = min(made + JOBS, len(row)) if number else len(row)
        attempts += made
        if sum(row[:made]) > most:
            best, most = number, sum(row[:made])
    return best, attempts


def halving(scores: Scores) -> tuple[int, int]:
    left, tasks, made, attempts = list(range(len(scores))), len(scores[0]), 0, 0
    for end in (max(1, tasks // 4), max(1, tasks // 2), tasks):
        attempts += len(left) * (end - made)
        made = end
        left.sort(key=lambda n: (-sum(scores[n][:made]), n))
        left = left[: -(-len(left) // 2)]
    return left[0], attempts


RULES: dict[str, Callable[[Scores], tuple[int, int]]] = {
    "all": every,
    "hopeless": hopeless,
    "halving": halving,
}


def race(builds: int) -> Iterator[dict[str, Any]]:
    for number, tasks in ((4, 4), (4, 8), (4, 16), (8, 8)):
        found = [
            proposals(number, tasks, random.Random(repr((number, tasks, n)))) for n in range(builds)
        ]
        row: dict[str, Any] = {"proposals": number, "tasks": tasks, "batches": builds}
        for name, rule in RULES.items():
            ended = [(gains, *rule(scores)) for gains, scores in found]
            gains = [100 * gains[chosen] for gains, chosen, _ in ended]
            off = 1.96 * stdev(gains) / math.sqrt(builds)
            row[f"{name}_gain"] = [round(fmean(gains) + sign * off, 1) for sign in (0, -1, 1)]
            row[f"{name}_attempts"] = fmean(attempts for _, _, attempts in ended) / number / tasks
        yield row
