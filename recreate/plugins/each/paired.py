"""What the paired test of all tasks could keep, and finds."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

from recreate.runs.gate import MIN_TASKS, Scores, judge, mean_by_task


def could_be_better(before: Scores, *, alpha: float = 0.10, seed: int = 0) -> bool:
    """Whether any outcome could be `better` than these scores (in 0..1). What was not scored may
    still turn out 0."""
    held = {key: score or 0.0 for key, score in before.items()}
    return judge(held, dict.fromkeys(held, 1.0), alpha=alpha, seed=seed).better


def ceiling(before: Scores, *, alpha: float = 0.10, seed: int = 0) -> str:
    """Return why no outcome could be `better` than these scores, '' when one could."""
    if could_be_better(before, alpha=alpha, seed=seed):
        return ""
    tasks = mean_by_task({key: score or 0.0 for key, score in before.items()}, list(before))
    if not tasks:
        return "no outcome could be better: there is no task"
    mean, room = (
        float(sum(tasks.values(), Fraction(0)) / len(tasks)),
        sum(mean < 1 for mean in tasks.values()),
    )
    needed = max(1, math.ceil(math.log2(2 / alpha)))
    left = (
        "every task is solved" if not room else f"{room} of {len(tasks)} tasks leave room above it"
    )
    return (
        f"no outcome could be better: the score is {mean:.3f}, {left}, and the gate keeps nothing"
        f" that improves fewer than {needed}"
    )


def detectable_gain(
    tasks: int, repeats: int = 1, base_rate: float = 0.3, *, power: float = 0.80
) -> float:
    """Return the smallest true gain in the mean score that the gate would keep with this power; 1.0
    when there is none.

    A formula, checked by simulation. Assumed: tasks differ in difficulty (half of the variance of a
    yes-or-no score lies between tasks), and the agent gains the same share of what each task still
    lets it gain. The gate then asks for 1.645 standard errors, which the gain itself makes larger.
    """
    if tasks < MIN_TASKS or not 0 <= base_rate < 1:
        return 1.0
    ask, reach = NormalDist().inv_cdf(0.95), NormalDist().inv_cdf(power)
    left, between = 1 - base_rate, 0.5 * base_rate * (1 - base_rate)

    def kept(gain: float) -> bool:
        share = gain / left
        after = (1 - share) * (between + share * (left * left + between))
        variance = (between + after) / max(1, repeats) + share * share * between
        step = 0.5 / (tasks * max(1, repeats))  # lost to the grid of possible means
        needed = ask * math.sqrt(variance + gain * gain) + reach * math.sqrt(variance)
        return gain - step >= needed / math.sqrt(tasks)

    if not kept(left):
        return 1.0
    low, high = 0.0, left
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high
