"""What the gate finds and promises: builds of simulated candidates, judged by the gate's own code.

    python -m tests.lab.search [NAME ...] [--builds N] [--json]

    gains      three rounds of candidates of which three in ten gain and two in ten harm: the true
               gain that is handed over, and at what price
    nulls      candidates that change nothing, yes-or-no, graded, lop-sided and with rare losses:
               how often is one called shown, or likely?
    chooser    the same, of an adversary who keeps the kind of candidate that looked best
    graded     a gain of +0.20 on each of 20 tasks: how often is it handed over?
    repeats    the first table's case, with one, two and three attempts at each task

A build has a true mean score by its world, so that what is handed over can be held against it.
Seeds are fixed; shares come with Wilson's 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from recreate.plugins.measuring.shares import wilson
from recreate.plugins.measuring.simulated import Ended, Score, SimulatedAgent, SimulatedBuild

Row = dict[str, Any]


def solve(rate: float, draw: random.Random) -> float:
    """Return a yes-or-no score."""
    return float(draw.random() < rate)


def grade(rate: float, draw: random.Random) -> float:
    """Return the share of four checks that pass."""
    return sum(draw.random() < rate for _ in range(4)) / 4


def make_seed(tasks: int, base: float, draw: random.Random) -> SimulatedAgent:
    """Return an agent that solves tasks of mixed difficulty, `base` of them in the mean."""
    return SimulatedAgent([draw.betavariate(base, 1 - base) for _ in range(tasks)], base)


def build(
    tasks: int,
    gains: Sequence[float],
    odds: Sequence[float],
    name: object,
    *,
    rounds: int = 3,
    base: float = 0.3,
    repeats: int = 1,
    score: Score = solve,
) -> Ended:
    draw = random.Random(repr((tasks, rounds, base, name)))
    work = SimulatedBuild(make_seed(tasks, base, draw), rounds, draw, repeats=repeats, score=score)
    for _ in range(rounds):
        most = 1 - work.current.level
        gain = min(draw.choices(gains, odds)[0], most)
        work.offer(work.current.improve(max(gain, -work.current.level)))
    return work.end()


def summarise(ended: Sequence[Ended], tasks: int) -> Row:
    """Return what came of builds, as a row of a table."""
    count, row = len(ended), Row()
    for word in ("shown", "likely"):
        row[word] = round(sum(e.word == word for e in ended) / count, 4)
    false = sum(e.word == "shown" and e.gain <= 0 for e in ended)
    worse = sum(e.word in ("shown", "likely") and e.gain < 0 for e in ended)
    row["gain"] = round(fmean(e.gain for e in ended), 4)
    row |= {"false": round(false / count, 4), "false_most": round(wilson(false, count)[1], 4)}
    row |= {"worse": round(worse / count, 4), "worse_most": round(wilson(worse, count)[1], 4)}
    row["attempts"] = round(fmean(e.attempts for e in ended) / tasks, 2)
    return row


def gains(builds: int) -> Iterator[Row]:
    for tasks in (20, 32, 60):
        for gain in (0.10, 0.15, 0.20, 0.30):
            mixed = ([gain, -gain, 0.0], [0.3, 0.2, 0.5])
            ended = [build(tasks, *mixed, ("gains", gain, n)) for n in range(builds)]
            yield {"tasks": tasks, "of": gain, **summarise(ended, tasks)}


def nulls(builds: int) -> Iterator[Row]:
    for tasks in (8, 20, 40, 100):
        for rounds in (1, 3, 10):
            for what, score in (("yes-or-no", solve), ("graded", grade)):
                for base in (0.1, 0.3, 0.7):
                    each = [
                        build(tasks, [0.0], [1.0], n, rounds=rounds, base=base, score=score)
                        for n in range(builds)
                    ]
                    row = {"tasks": tasks, "rounds": rounds, "scores": what, "base": base}
                    yield {**row, **summarise(each, tasks)}
            for what, rise, part in (
                ("rare loss", 0.05, 1 / 21),
                ("lop-sided", 0.25, 1 / 4),
                ("lop-sided", 0.4, 1 / 3),
            ):
                each = [_balance(tasks, rounds, rise, part, n) for n in range(builds)]
                row = {"tasks": tasks, "rounds": rounds, "scores": what, "base": rise}
                yield {**row, **summarise(each, tasks)}


def _balance(tasks: int, rounds: int, rise: float, part: float, name: object) -> Ended:
    """Return a build whose candidates rise a little at most tasks and lose all at a few: no gain
    over such tasks, whichever tasks were drawn."""
    draw = random.Random(repr(("balance", tasks, rounds, rise, part, name)))
    fall = rise * (1 - part) / part
    seed = SimulatedAgent([min(1.0, fall)] * tasks, min(1.0, fall))

    def exact(rate: float, _: random.Random) -> float:
        return max(0.0, min(1.0, rate))

    work = SimulatedBuild(seed, rounds, draw, repeats=1, score=exact)
    for _ in range(rounds):
        rates = [fall - fall if draw.random() < part else fall + rise for _ in range(tasks)]
        work.offer(SimulatedAgent(rates, seed.level))
    return work.end()


def chooser(builds: int) -> Iterator[Row]:
    """Candidates of three kinds: alike; better at half of the tasks and worse at the others; the
    same chance at each. It goes on with the kind that looked best."""
    for tasks in (20, 100):
        for rounds in (3, 10):
            for what, score in (("yes-or-no", solve), ("graded", grade)):
                each = [_choose(tasks, rounds, score, n) for n in range(builds)]
                row = {"tasks": tasks, "rounds": rounds, "scores": what}
                yield {**row, **summarise(each, tasks)}


def _choose(tasks: int, rounds: int, score: Score, name: object) -> Ended:
    draw = random.Random(repr(("chooser", tasks, rounds, name)))
    seed = make_seed(tasks, 0.4, draw)
    work, looked = SimulatedBuild(seed, rounds, draw, repeats=1, score=score), [1.0, 1.0, 1.0]

    def shift(rate: float) -> float:
        return rate + 0.4 * min(rate, 1 - rate) * draw.choice((1, -1))

    for _ in range(rounds):
        kind = max(range(3), key=lambda k: (looked[k], draw.random()))
        rates = [list(seed.rates), [*map(shift, seed.rates)], [0.4] * tasks][kind]
        looked[kind] = work.offer(SimulatedAgent(rates, 0.4))
    return work.end()


def graded(builds: int) -> Iterator[Row]:
    """One candidate of three gains +0.20 on each task; scores are four checks, twelve, or a
    number without noise."""
    noise = {"4 checks": 4, "12 checks": 12, "exact": 0}
    for what, checks in noise.items():

        def mark(rate: float, draw: random.Random, of: int = checks) -> float:
            return sum(draw.random() < rate for _ in range(of)) / of if of else rate

        for tasks in (20, 40):
            ended = []
            for n in range(builds):
                draw = random.Random(repr(("graded", what, tasks, n)))
                seed = SimulatedAgent([draw.uniform(0.0, 0.8) for _ in range(tasks)], 0.4)
                work = SimulatedBuild(seed, 3, draw, repeats=1, score=mark)
                work.offer(SimulatedAgent([r + 0.2 for r in seed.rates], 0.6))
                for _ in range(2):
                    work.offer(work.current)
                ended.append(work.end())
            yield {"scores": what, "tasks": tasks, **summarise(ended, tasks)}


def repeats(builds: int) -> Iterator[Row]:
    for tasks in (20, 40):
        for gain in (0.10, 0.20, 0.30):
            for times in (1, 2, 3):
                mixed = ([gain, -gain, 0.0], [0.3, 0.2, 0.5])
                ended = [
                    build(tasks, *mixed, ("repeats", gain, n), repeats=times) for n in range(builds)
                ]
                yield {"tasks": tasks, "of": gain, "repeats": times, **summarise(ended, tasks)}


NAMES = {"gains": gains, "nulls": nulls, "chooser": chooser, "graded": graded, "repeats": repeats}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", choices=[*NAMES, []])
    parser.add_argument("--builds", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    for name in given.names or NAMES:
        for row in NAMES[name](given.builds):
            row = {"name": name, **row}
            print(
                json.dumps(row) if given.json else "  ".join(f"{k} {v}" for k, v in row.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
