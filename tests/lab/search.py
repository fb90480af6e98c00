"""What the gate finds and promises: builds of simulated candidates, judged by the gate's own code.

    python -m tests.lab.search [NAME ...] [--builds N] [--worst N] [--jobs N] [--json]

    gains      three rounds of candidates of which three in ten gain and two in ten harm: the true
               gain that is handed over, and at what price
    nulls      candidates that change nothing, yes-or-no, graded, lop-sided and with rare losses:
               how often is one called shown, or likely?
    harms      candidates that all harm, or that do nothing and sometimes harm: how often is a user
               handed a worse agent?
    chooser    an adversary who keeps the kind of candidate that looked best, and one who offers
               four in each round
    graded     a gain of +0.20 on each of 20 tasks: how often is it handed over?
    repeats    the first table's case, with one, two and three attempts at each task
    riders     agents of several steps that help, do nothing or harm: what is handed over where each
               step is left out once before the looks, and taken out where the score is no lower
    rebuilds   a second build from a seed whose first build claimed something of candidates that
               change nothing: how often does it claim that again, where it attempts the seed anew,
               where its search goes by the first one's attempts, and where its looks do too?

A build has a true mean score by its world, so that what is handed over can be held against it.
Seeds are fixed; shares come with the upper end of Wilson's 95 % interval. --worst plays so many
worlds again, those in which most was claimed wrongly, by four times as many builds of other seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import Pool
from statistics import fmean
from typing import Any, NamedTuple

from recreate.api.types import Verdict
from recreate.plugins.measuring.shares import wilson
from recreate.plugins.measuring.simulated import Ended, Score, SimulatedAgent, SimulatedBuild
from recreate.runs import search
from recreate.runs.gate import Scores, unjudged

Row = dict[str, Any]


class World(NamedTuple):
    """row: what it is, as the first cells of its row; play: returns the build of a number."""

    row: Row
    tasks: int
    play: Callable[[int], Ended]


def judge_lightly(before: Scores, after: Scores, **_: Any) -> Verdict:
    """Return the difference of two agents without an interval, which no simulation reads and which
    takes most of the time."""
    diffs = search.compare(before, after, dict.fromkeys(task for task, _ in before))
    return unjudged("undecided", "").model_copy(update={"diff": fmean(diffs), "tasks": len(diffs)})


def solve(rate: float, draw: random.Random) -> float:
    """Return a yes-or-no score."""
    return float(draw.random() < rate)


def grade(rate: float, draw: random.Random, of: int = 4) -> float:
    """Return the share of so many checks that pass; without any, the rate."""
    return sum(draw.random() < rate for _ in range(of)) / of if of else rate


SCORES: Mapping[str, Score] = {"yes-or-no": solve, "graded": grade}


def make_seed(tasks: int, base: float, draw: random.Random) -> SimulatedAgent:
    """Return an agent that solves tasks of mixed difficulty, `base` of them in the mean."""
    return SimulatedAgent([draw.betavariate(base, 1 - base) for _ in range(tasks)], base)


def build(
    name: object,
    tasks: int,
    gains: Sequence[float],
    odds: Sequence[float] | None = None,
    *,
    rounds: int = 3,
    base: float = 0.3,
    repeats: int = 1,
    score: str = "yes-or-no",
) -> Ended:
    draw = random.Random(repr((tasks, rounds, base, gains, name)))
    seed = make_seed(tasks, base, draw)
    work = SimulatedBuild(seed, rounds, draw, repeats=repeats, score=SCORES[score])
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
    worse = sum(e.gain < 0 for e in ended)
    row["gain"] = round(fmean(e.gain for e in ended), 4)
    row |= {"false": round(false / count, 4), "false_most": round(wilson(false, count)[1], 4)}
    row |= {"worse": round(worse / count, 4), "worse_most": round(wilson(worse, count)[1], 4)}
    row["attempts"] = round(fmean(e.attempts for e in ended) / tasks, 2)
    return row


MIXED = (0.3, 0.2, 0.5)
"""How many in ten gain, harm as much, and change nothing."""


def gains() -> Iterator[World]:
    for tasks in (20, 32, 60):
        for gain in (0.10, 0.15, 0.20, 0.30):
            play = partial(build, tasks=tasks, gains=(gain, -gain, 0.0), odds=MIXED)
            yield World({"tasks": tasks, "of": gain}, tasks, play)


def nulls() -> Iterator[World]:
    for tasks in (8, 20, 40, 100):
        for rounds in (1, 3, 10):
            row = {"tasks": tasks, "rounds": rounds}
            for score in SCORES:
                for base in (0.1, 0.3, 0.7):
                    world = {"rounds": rounds, "base": base, "score": score}
                    play = partial(build, tasks=tasks, gains=(0.0,), **world)
                    yield World({**row, "scores": score, "base": base}, tasks, play)
            for what, rise, part in (
                ("rare loss", 0.05, 1 / 21),
                ("lop-sided", 0.25, 1 / 4),
                ("lop-sided", 0.4, 1 / 3),
            ):
                play = partial(_balance, tasks=tasks, rounds=rounds, rise=rise, part=part)
                yield World({**row, "scores": what, "base": rise}, tasks, play)


def _keep(rate: float, _: random.Random) -> float:
    return max(0.0, min(1.0, rate))


def _balance(name: object, tasks: int, rounds: int, rise: float, part: float) -> Ended:
    """Return a build whose candidates rise a little at most tasks and lose all at a few: no gain
    over such tasks, whichever tasks were drawn."""
    draw = random.Random(repr(("balance", tasks, rounds, rise, part, name)))
    fall = rise * (1 - part) / part
    seed = SimulatedAgent([min(1.0, fall)] * tasks, min(1.0, fall))
    work = SimulatedBuild(seed, rounds, draw, repeats=1, score=_keep)
    for _ in range(rounds):
        rates = [0.0 if draw.random() < part else fall + rise for _ in range(tasks)]
        work.offer(SimulatedAgent(rates, seed.level))
    return work.end()


def harms() -> Iterator[World]:
    for tasks in (8, 20, 100):
        for rounds in (1, 3, 10):
            for what, falls, odds in (
                ("all -.02", (-0.02,), (1.0,)),
                ("all -.05", (-0.05,), (1.0,)),
                ("all -.10", (-0.10,), (1.0,)),
                ("half -.10", (-0.10, 0.0), (0.5, 0.5)),
            ):
                world = {"rounds": rounds, "gains": falls, "odds": odds}
                play = partial(build, tasks=tasks, **world)
                yield World({"tasks": tasks, "rounds": rounds, "of": what}, tasks, play)


def chooser() -> Iterator[World]:
    """Candidates of three kinds: alike; better at half of the tasks and worse at the others; the
    same chance at each. It goes on with the kind that looked best."""
    for tasks in (8, 20, 40, 100):
        for rounds in (1, 3, 10):
            for score in SCORES:
                for each in (1, 4):
                    world = {"rounds": rounds, "score": score, "each": each}
                    play = partial(_choose, tasks=tasks, **world)
                    row = {"tasks": tasks, "rounds": rounds, "a round": each, "scores": score}
                    yield World(row, tasks, play)


def _choose(name: object, tasks: int, rounds: int, score: str, each: int) -> Ended:
    draw = random.Random(repr(("chooser", tasks, rounds, each, name)))
    seed = make_seed(tasks, 0.4, draw)
    work = SimulatedBuild(seed, rounds, draw, repeats=1, score=SCORES[score])
    looked = [1.0, 1.0, 1.0]

    def shift(rate: float) -> float:
        return rate + 0.4 * min(rate, 1 - rate) * draw.choice((1, -1))

    for _ in range(rounds):
        for _ in range(each):
            kind = max(range(3), key=lambda k: (looked[k], draw.random()))
            rates = [list(seed.rates), [*map(shift, seed.rates)], [0.4] * tasks][kind]
            looked[kind] = work.offer(SimulatedAgent(rates, 0.4), of=each)
    return work.end()


def graded() -> Iterator[World]:
    """One candidate of three gains +0.20 on each task; scores are four checks, twelve, or a
    number without noise."""
    for what, checks in {"4 checks": 4, "12 checks": 12, "exact": 0}.items():
        for tasks in (20, 40):
            play = partial(_rise, what=what, tasks=tasks, checks=checks)
            yield World({"scores": what, "tasks": tasks}, tasks, play)


def _rise(name: object, what: str, tasks: int, checks: int) -> Ended:
    draw = random.Random(repr(("graded", what, tasks, name)))
    seed = SimulatedAgent([draw.uniform(0.0, 0.8) for _ in range(tasks)], 0.4)
    work = SimulatedBuild(seed, 3, draw, repeats=1, score=partial(grade, of=checks))
    work.offer(SimulatedAgent([r + 0.2 for r in seed.rates], 0.6))
    for _ in range(2):
        work.offer(work.current)
    return work.end()


def repeats() -> Iterator[World]:
    for tasks in (20, 40):
        for gain in (0.10, 0.20, 0.30):
            for times in (1, 2, 3):
                mixed = {"gains": (gain, -gain, 0.0), "odds": MIXED, "repeats": times}
                play = partial(build, tasks=tasks, **mixed)
                yield World({"tasks": tasks, "of": gain, "repeats": times}, tasks, play)


def riders(builds: int) -> Iterator[Row]:
    """Rules: `none` takes nothing out; `anew` attempts the agent and each one without a step once
    more, and takes the step out where the mean is no lower; `sure` where it is higher by one
    standard error."""
    for tasks in (20, 60):
        for gain in (0.10, 0.20, 0.30):
            for rule, lead in (("none", None), ("anew", 0.0), ("sure", 1.0)):
                ended = [_prune(tasks, gain, lead, n) for n in range(builds)]
                row = {"tasks": tasks, "of": gain, "rule": rule}
                several = [steps for _, steps in ended if len(steps) + len(steps.out) > 1]
                for what, sign in (("useful", 1), ("idle", 0), ("harmful", -1)):
                    kept = [sum((s > 0) - (s < 0) == sign for s in each) for each in several]
                    row[what] = round(fmean(kept), 3) if kept else None
                yield {**row, "several": len(several), **summarise([e for e, _ in ended], tasks)}


class _Steps(tuple[float, ...]):
    """The gains of an agent's steps; out: of those that were taken out."""

    out: tuple[float, ...] = ()


def _prune(tasks: int, gain: float, lead: float | None, name: object) -> tuple[Ended, _Steps]:
    """Return a build of five rounds whose agent is pruned before the looks, and its steps."""
    draw = random.Random(repr(("riders", tasks, gain, name)))
    seed = make_seed(tasks, 0.3, draw)
    work = SimulatedBuild(seed, 5, draw, repeats=1, score=solve)

    def compose(steps: Sequence[float]) -> SimulatedAgent:
        agent = seed
        for step in steps:
            agent = agent.improve(max(min(step, 0.99 - agent.level), 0.01 - agent.level))
        return agent

    steps = tuple[float, ...]()
    for _ in range(5):
        step = draw.choices([gain, -gain, 0.0], MIXED)[0]
        before = len(work.chain)
        work.offer(compose([*steps, step]))
        steps = (*steps, step) if len(work.chain) > before else steps
    out = list[float]()
    if lead is not None and len(steps) > 1:
        anew = work.attempt(work.current)
        for step in reversed(steps):
            rest = list(steps)
            rest.remove(step)
            without = compose(rest)
            scores = work.attempt(without)
            differences = search.compare(anew, scores, work.order)
            error = math.sqrt(math.fsum(d * d for d in differences))
            if rest and math.fsum(differences) >= lead * error:
                work.take(without, scores)
                steps, anew = tuple(rest), scores
                out.append(step)
    found = _Steps(steps)
    found.out = tuple(out)
    return work.end(), found


def rebuilds(builds: int) -> Iterator[Row]:
    for tasks in (20, 40, 100):
        for way in ("anew", "search", "looks"):
            ended = []
            for n in range(builds):
                draw = random.Random(repr(("rebuilds", tasks, n)))
                seed = make_seed(tasks, 0.3, draw)
                first = SimulatedBuild(seed, 3, draw, score=solve)
                taken = dict(first.seed_scores)
                if _offer_nulls(first).word == "none":
                    continue
                second = SimulatedBuild(seed, 3, draw, score=solve)
                if way != "anew":
                    second.scores = taken
                if way == "looks":
                    second.seed_scores = dict(taken)
                ended.append(_offer_nulls(second))
            yield {"tasks": tasks, "way": way, "of": len(ended), **summarise(ended, tasks)}


def _offer_nulls(work: SimulatedBuild) -> Ended:
    for _ in range(3):
        work.offer(work.seed)
    return work.end()


NAMES = {
    "gains": gains,
    "nulls": nulls,
    "harms": harms,
    "chooser": chooser,
    "graded": graded,
    "repeats": repeats,
}


TABLES: Mapping[str, Callable[[int], Iterator[Row]]] = {"riders": riders, "rebuilds": rebuilds}
"""What yields whole rows by itself."""


def play_world(world: World, first: int, builds: int) -> Row:
    """Return the row of a world, of so many builds from number `first` on."""
    search.judge = judge_lightly  # type: ignore[attr-defined]
    ended = [world.play(n) for n in range(first, first + builds)]
    return {**world.row, "builds": builds, **summarise(ended, world.tasks)}


def play_worlds(
    worlds: Sequence[World], first: int, builds: int, jobs: int
) -> Iterator[tuple[World, Row]]:
    """Yield each world with its row, in their order."""
    with Pool(jobs) as pool:
        play = partial(play_world, first=first, builds=builds)
        yield from zip(worlds, pool.imap(play, worlds), strict=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", choices=[*NAMES, *TABLES, []])
    parser.add_argument("--builds", type=int, default=2000)
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)

    def tell(name: str, row: Row) -> None:
        row = {"name": name, **row}
        text = json.dumps(row) if given.json else "  ".join(f"{k} {v}" for k, v in row.items())
        print(text, flush=True)

    for name in given.names or [*NAMES, *TABLES]:
        for row in TABLES[name](given.builds) if name in TABLES else ():
            tell(name, row)
        if name in TABLES:
            continue
        found = list[tuple[World, Row]]()
        for world, row in play_worlds([*NAMES[name]()], 0, given.builds, given.jobs):
            found.append((world, row))
            tell(name, row)
        found.sort(key=lambda each: -max(each[1]["false"], each[1]["worse"]))
        again = [world for world, _ in found[: given.worst]]
        for _, row in play_worlds(again, given.builds, 4 * given.builds, given.jobs):
            tell(f"{name}, again", row)


if __name__ == "__main__":
    main()
