"""Does the solve rate of generated tasks come near its target, whatever the learner?
`recreate.plugins.generators.levels` on simulated learners: of six levels, 30 tasks a round,
levels that follow the attempts beside even ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from statistics import fmean, stdev
from typing import Any

from recreate.plugins.generators import levels

LEVELS, TASKS, ROUNDS, TOLD = 6, 30, 12, (1, 2, 4, 12)


def learner(kind: str, number: int) -> list[float]:
    """Its solve rate of each level, which falls: along a logistic curve, in a step, or anyhow."""
    draw = random.Random(repr((kind, number)))
    if kind == "logistic":
        middle, width = draw.uniform(0, LEVELS + 1), draw.uniform(0.2, 2)
        return [1 / (1 + math.exp((level - middle) / width)) for level in range(1, LEVELS + 1)]
    if kind == "step":
        last = draw.randint(0, LEVELS)
        return [0.97 if level <= last else 0.03 for level in range(1, LEVELS + 1)]
    return sorted((draw.random() for _ in range(LEVELS)), reverse=True)


def rates_by_round(
    truth: list[float], target: float, seed: object, rounds: int = ROUNDS
) -> list[float]:
    """The true mean solve rate of the tasks that are made after 1, 2, ... rounds of attempts, the
    first one even."""
    draw, tried = random.Random(repr(seed)), {level: (0, 0) for level in range(1, LEVELS + 1)}
    counts, found = levels.even(LEVELS, TASKS), list[float]()
    for _ in range(rounds):
        for level, count in enumerate(counts, 1):
            passed, attempts = tried[level]
            tried[level] = (
                passed + sum(draw.random() < truth[level - 1] for _ in range(count)),
                attempts + count,
            )
        counts = levels.spread(levels.solve_rates(tried, LEVELS), target, TASKS)
        found.append(
            math.fsum(rate * count for rate, count in zip(truth, counts, strict=True)) / TASKS
        )
    return found


def rows(builds: int) -> Iterator[dict[str, Any]]:
    """after_N: how far the true mean is from the nearest rate that the learner's levels allow, and
    half its 95 % interval; even: the same of even levels."""
    each = max(10, builds // 10)
    for kind in ("logistic", "step", "anyhow"):
        for target in (0.3, 0.5, 0.7):
            off: dict[str, list[float]] = {"even": [], **{f"after_{n}": [] for n in TOLD}}
            for number in range(each):
                truth = learner(kind, number)
                wanted = min(max(target, truth[-1]), truth[0])
                off["even"].append(abs(fmean(truth) - wanted))
                found = rates_by_round(truth, target, (kind, number, target))
                for n in TOLD:
                    off[f"after_{n}"].append(abs(found[n - 1] - wanted))
            shown = {
                name: [round(fmean(far), 3), round(1.96 * stdev(far) / math.sqrt(each), 3)]
                for name, far in off.items()
            }
            yield {"learner": kind, "target": target, "learners": each, **shown}
