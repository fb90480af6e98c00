"""What does it cost that the same validation tasks judge every candidate of a build?

Nothing in error (`nulls`), but the score of what was kept is of tasks that chose it. A build has so
many rounds, one candidate each: 3 in 10 help (the mean score by 0.05 to 0.3), 5 change nothing in
the mean, 2 harm (by up to 0.2); each besides makes some tasks easier and others harder. The seed
solves 0.3 of all tasks. Three ways:

    same      one set of tasks for the whole build, as it is
    fresh     each candidate is judged on a set of its own, where its parent is attempted beside it
    once      as `same`, and what was kept last is attempted on one more set, which decides nothing

optimism: by how much the score that the build ends with is above the mean of all tasks like these;
of builds that kept something. gain: what the build gained there, of all builds. attempts: on
validation tasks.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from statistics import fmean, stdev
from typing import Any, NamedTuple

from recreate.plugins.each.trial import MISS, _Deadline, _Stake, detectable
from recreate.runs.settings import Gate
from recreate.runs.terms import share

BASE, SHIFT = 0.3, 0.5
WIDER = ((65, 10), (165, 10))
"""(tasks, rounds): about the attempts of fresh sets of 40 and of 100 tasks, spent on one set."""
Side = dict[tuple[str, int], float | None]


class Agent(NamedTuple):
    """rates: its chance at each task of a set; level: at all tasks like these, in the mean."""

    rates: dict[str, float]
    level: float


def changed(agent: Agent, by: float, luck: random.Random) -> Agent:
    """The same share of what is missing (of what is there, where it harms) at each task, and some
    luck."""

    def moved(rate: float) -> float:
        rate = (
            rate + by / (1 - agent.level) * (1 - rate) if by > 0 else rate * (1 + by / agent.level)
        )
        return rate + SHIFT * min(rate, 1 - rate) * luck.choice((-1, 1))

    return Agent({task: moved(rate) for task, rate in agent.rates.items()}, agent.level + by)


def scores(agent: Agent, order: list[str], luck: random.Random) -> Side:
    return {(task, 0): float(luck.random() < agent.rates[task]) for task in order}


def trial(
    before: Side, after: Side, order: list[str], alpha: float, gain: float
) -> tuple[bool, int]:
    """(kept, tasks): what `recreate.plugins.each.trial.trial` decides, without its interval."""
    up, down = _Deadline(len(order), alpha), _Stake(-gain)
    for number, task in enumerate(order, 1):
        difference = (after[task, 0] or 0.0) - (before[task, 0] or 0.0)
        up.bet(difference)
        down.bet(-difference)
        if up.worth >= 1:
            return True, number
        if down.log >= -math.log(MISS) or up.worth * 2**up.left < 1:
            return False, number
    return False, len(order)


class Ended(NamedTuple):
    """kept: revisions; optimism: of the score that the build ends with, and of one on a set more;
    gain, attempts."""

    kept: int
    optimism: tuple[float, float]
    gain: float
    attempts: int


def build(way: str, tasks: int, rounds: int, number: int) -> Ended:
    luck = random.Random(repr((tasks, rounds, number)))
    sets = rounds if way == "fresh" else 1
    names = [[f"{n}/{task}" for task in range(tasks)] for n in range(sets + 1)]
    agent = Agent({task: luck.betavariate(BASE, 1 - BASE) for each in names for task in each}, BASE)
    alpha, kept, attempts, before = share(Gate(), rounds), 0, tasks, scores(agent, names[0], luck)
    seen = mean(before)
    for round_ in range(rounds):
        order, anew = list(names[round_ % sets]), way == "fresh" and round_ > 0
        before = scores(agent, order, luck) if anew else before
        luck.shuffle(order)
        kind = luck.random()
        by = luck.uniform(0.05, 0.3) if kind < 0.3 else 0.0 if kind < 0.8 else -luck.uniform(0, 0.2)
        child = changed(agent, by * (1 - agent.level if by > 0 else agent.level), luck)
        after = scores(child, order, luck)
        gain = detectable(tasks, 1, min(0.9, round(mean(before), 1)), alpha)
        better, took = trial(before, after, order, alpha, gain)
        attempts += (1 + anew) * (tasks if better else took)
        if better:
            agent, before, kept, seen = child, after, kept + 1, mean(after)
    again = mean(scores(agent, names[-1], luck))
    return Ended(kept, (seen - agent.level, again - agent.level), agent.level - BASE, attempts)


def mean(side: Side) -> float:
    return fmean(score or 0.0 for score in side.values())


def reuse(builds: int) -> Iterator[dict[str, Any]]:
    """optimism: (mean, and its 95 % interval), in points of a hundred; kept: the share of builds
    that kept anything."""
    each = max(20, builds // 10)
    for tasks, rounds in (*itertools.product((20, 40, 100), (5, 10, 20)), *WIDER):
        ways = ("same",) if (tasks, rounds) in WIDER else ("same", "fresh")
        both = {way: [build(way, tasks, rounds, number) for number in range(each)] for way in ways}
        for way in (*ways, "once"):
            ended = both["same" if way == "once" else way]
            over = [100 * e.optimism[way == "once"] for e in ended if e.kept]
            off = 1.96 * stdev(over) / math.sqrt(len(over)) if len(over) > 1 else math.nan
            yield {
                "tasks": tasks,
                "rounds": rounds,
                "way": way,
                "builds": each,
                "kept": len(over) / each,
                "optimism": [round(fmean(over or [0.0]) + sign * off, 1) for sign in (0, -1, 1)],
                "gain": 100 * fmean(e.gain for e in ended),
                "attempts": fmean(
                    e.attempts + tasks * (way == "once" and e.kept > 0) for e in ended
                ),
            }
