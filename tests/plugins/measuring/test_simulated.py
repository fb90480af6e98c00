"""What a build by the rule `search` finds and promises, on simulated candidates."""

from __future__ import annotations

import itertools
import random

import pytest

from recreate.plugins.measuring.simulated import Ended, SimulatedAgent, SimulatedBuild, find_gain
from recreate.runs.chances import find_chances
from recreate.runs.settings import Gate


def solve(rate: float, draw: random.Random) -> float:
    return float(draw.random() < rate)


def simulate(gains: list[float], builds: int, tasks: int = 20, repeats: int = 1) -> list[Ended]:
    ended = []
    for number in range(builds):
        draw = random.Random(number)
        seed = SimulatedAgent([draw.betavariate(0.3, 0.7) for _ in range(tasks)], 0.3)
        work = SimulatedBuild(seed, len(gains), draw, repeats=repeats, score=solve)
        for gain in gains:
            work.offer(work.current.improve(gain))
        ended.append(work.end())
    return ended


def test_candidates_that_change_nothing_are_hardly_ever_called_better() -> None:
    ended = simulate([0.0, 0.0, 0.0], 300)
    assert sum(e.word == "shown" for e in ended) <= 6
    assert sum(e.word == "likely" for e in ended) <= 45


def test_gains_of_several_rounds_add_up() -> None:
    one, three = (simulate([0.15] * n + [0.0] * (3 - n), 150) for n in (1, 3))
    assert sum(e.gain for e in three) > 2 * sum(e.gain for e in one)


def test_what_harms_is_not_handed_over() -> None:
    assert all(e.gain >= 0 for e in simulate([-0.1, -0.2, -0.1], 150))


@pytest.mark.slow
def test_a_plan_says_what_such_builds_come_to() -> None:
    (chance,) = [c for c in find_chances(Gate(), 20, 1, 0.3, 3, 0.5) if c.gain == 0.2]
    seen = 0
    for number in range(400):
        draw = random.Random(-number - 1)
        seed = SimulatedAgent([draw.betavariate(0.3, 0.7) for _ in range(20)], 0.3)
        work = SimulatedBuild(seed, 3, draw, score=solve)
        work.offer(seed.improve(0.2))
        seen += work.end().word in ("shown", "likely")
    assert seen / 400 == pytest.approx(chance.shown + chance.likely, abs=0.1)


@pytest.mark.slow
def test_more_tasks_and_more_repeats_find_smaller_gains() -> None:
    found = [[find_gain(Gate(), n, r, 0.3, 3, 0.5) for r in (1, 2, 3)] for n in (10, 20, 40)]
    for row in found:
        assert row == sorted(row, reverse=True)
    for column in zip(*found, strict=True):
        assert list(column) == sorted(column, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("base", [0.1, 0.3, 0.6])
def test_more_tasks_and_more_repeats_find_gains_that_are_no_larger(base: float) -> None:
    """At the sizes that `calibrate` has a row for: --validation, twice and five times as many."""
    sizes = [(tasks, times) for tasks in (10, 20, 50) for times in (1, 2, 3)]
    found = {size: find_gain(Gate(), *size, base, 3, 0.5) for size in sizes}
    for few, many in itertools.permutations(sizes, 2):
        if few[0] <= many[0] and few[1] <= many[1]:
            assert found[many] <= found[few], (few, many)
