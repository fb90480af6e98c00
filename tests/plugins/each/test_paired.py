"""What the paired test of all tasks could keep, and finds."""

from __future__ import annotations

import random

import pytest

from recreate.plugins.each.paired import ceiling, could_be_better, detectable_gain
from recreate.runs.gate import judge
from tests.runs.test_gate import agents


@pytest.mark.parametrize(
    ("tasks", "repeats", "base"), [(12, 3, 0.3), (20, 1, 0.1), (40, 1, 0.3), (40, 3, 0.6)]
)
def test_the_detectable_gain_is_kept_about_four_times_in_five(
    tasks: int, repeats: int, base: float
) -> None:
    rng = random.Random(5)
    gain = detectable_gain(tasks, repeats, base)
    kept = sum(judge(*agents(rng, tasks, repeats, base, gain)).better for _ in range(300))
    assert 0.70 <= kept / 300 <= 0.92


def test_more_tasks_and_repeats_detect_less() -> None:
    gains = [detectable_gain(n, 1, 0.3) for n in (8, 20, 60, 200)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 2 * gains[2]
    assert detectable_gain(20, 3, 0.3) < detectable_gain(20, 1, 0.3)
    assert detectable_gain(4, 9, 0.3) == 1.0
    assert detectable_gain(20, 1, 1.0) == 1.0


@pytest.mark.parametrize(
    ("tasks", "solved", "alpha", "could"),
    [
        (6, 6, 0.10, False),
        (20, 15, 0.10, True),
        (20, 16, 0.10, False),
        (20, 14, 0.02, False),
        (20, 13, 0.02, True),
    ],
)
def test_whether_anything_could_be_better_is_what_the_gate_says_of_the_best_outcome(
    tasks: int, solved: int, alpha: float, could: bool
) -> None:
    before = {(f"t{n}", 0): float(n < solved) for n in range(tasks)}
    assert could_be_better(before, alpha=alpha) is could
    assert judge(before, dict.fromkeys(before, 1.0), alpha=alpha).better is could
    assert bool(ceiling(before, alpha=alpha)) is not could
    # no outcome that the gate has not tried does better than the best one
    chance = random.Random(0)
    for _ in range(50):
        after = {place: max(score, float(chance.random() < 0.9)) for place, score in before.items()}
        assert could or not judge(before, after, alpha=alpha).better
    # an attempt that was excluded may still turn out as it likes
    assert could_be_better({place: None for place in before}, alpha=alpha)
