"""At which levels of difficulty the next tasks are made; pure.

SCALER (arXiv 2601.04809) keeps a learner where it solves some tasks and not others, by moving the
difficulty of what it is given. Here the levels of a generator play the part of item difficulty in
item response theory: the rate at which a learner solves level k is `1 / (1 + exp((k - middle) /
width))`, and what is known of middle and width is their posterior over a grid. Levels that nobody
attempted have a rate too, and no level's rate is above that of one below it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

_MIDDLES = 61
_WIDTHS = (0.15, 0.3, 0.6, 1.2, 2.4, 4.8)
"""The grid: places of the middle, from a whole span of levels below the first to one above the
last; widths of the fall, in levels."""


def solve_rates(tried: Mapping[int, tuple[int, int]], levels: int) -> list[float]:
    """The expected solve rate of levels 1 to `levels`, never rising.

    tried: level -> (attempts that passed, attempts). Without any the rates lie evenly around a
    half.
    """
    weighed: list[tuple[float, list[float]]] = []
    for width in _WIDTHS:
        for step in range(_MIDDLES):
            middle = 1 - levels + (3 * levels - 1) * step / (_MIDDLES - 1)
            curve = [
                1 / (1 + math.exp(min(700.0, (level - middle) / width)))
                for level in range(1, levels + 1)
            ]
            sound = [min(max(rate, 1e-9), 1 - 1e-9) for rate in curve]
            weighed.append(
                (
                    math.fsum(
                        passed * math.log(sound[level - 1])
                        + (attempts - passed) * math.log(1 - sound[level - 1])
                        for level, (passed, attempts) in tried.items()
                    ),
                    curve,
                )
            )
    best = max(fit for fit, _ in weighed)
    weights = [math.exp(fit - best) for fit, _ in weighed]
    whole = math.fsum(weights)
    means = [
        math.fsum(w * curve[at] for w, (_, curve) in zip(weights, weighed, strict=True)) / whole
        for at in range(levels)
    ]
    return [min(means[: at + 1]) for at in range(levels)]  # rounding apart, they fall already


def spread(rates: Sequence[float], target: float, n: int) -> list[int]:
    """How many of `n` tasks each level gets, so that their mean expected solve rate is as near to
    the target as two neighbouring levels can bring it: those between whose rates it lies, else the
    one that is nearest to it.

    rates: of each level, never rising, as `solve_rates` gives them.
    """
    counts = [0] * len(rates)
    below = next((at for at, rate in enumerate(rates) if rate < target), len(rates))
    if below in (0, len(rates)):
        counts[0 if below == 0 else -1] = n
        return counts
    easy, hard = rates[below - 1], rates[below]
    counts[below - 1] = round(n * (target - hard) / (easy - hard))
    counts[below] = n - counts[below - 1]
    return counts


def even(levels: int, n: int) -> list[int]:
    """The same number for every level; what is left over goes to the lower ones."""
    return [n // levels + (at < n % levels) for at in range(levels)]
