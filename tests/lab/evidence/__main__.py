"""How the gate of a whole build and the scan for leaks behave.

    python -m tests.lab.evidence [NAME ...] [--json]

    nulls      2,000 builds of 20 candidates that change nothing: how often is anything kept?
    chooser    the same, of an adversary who picks the next candidate and the end by what was seen
               so far
    cost       attempts to a verdict and power, beside a paired test of fixed size, for true gains
               of 0 to 0.5
    plan       does `plan` name the gain that is kept eight times in ten?
    credit     does `recreate credit` tell planted edits apart, and at what cost beside one
               knock-out after the other?
    leaks      what of 200 planted leaks is found, and how many of 500 other edits are refused
               (leaks.py here); `--python PATH` has another interpreter judge the same cases
    beside     ours and the two rules of autocontext on the same simulated tasks, eight candidates a
               build
    race       several proposals on the train tasks of a batch: what a race saves, and loses
    reuse      by how much is a kept score too high, of validation tasks that chose it, and of fresh
               ones?
    tasks      train attempts until causes are found: tasks chosen where learning is, and all in
               turn
    levels     how near generated tasks come to the solve rate that was asked for (levels.py here)

Yes-or-no and partial scores, tasks of mixed difficulty, scores of the parent used again for each of
its candidates. Seeds are fixed; shares come with Wilson's 95 % interval. All of it takes long;
`--builds N` for fewer.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from statistics import fmean as mean
from typing import Any, NamedTuple

from recreate.plugins.each.paired import detectable_gain
from recreate.plugins.each.trial import detectable, trial
from recreate.plugins.measuring.shares import wilson
from recreate.runs.gate import judge
from recreate.runs.settings import Gate
from recreate.runs.terms import share
from tests.lab.evidence import curriculum, levels
from tests.lab.evidence.planted import credit
from tests.lab.evidence.race import race
from tests.lab.evidence.reuse import reuse

CANDIDATES = 20
GATE = Gate()
Row = dict[str, Any]
Kept = dict[tuple[str, int], float | None]


class World(NamedTuple):
    """rates: each task's chance to be solved; partial: scores of 0, 1/4, ... 1 in place of 0 and
    1."""

    rates: list[float]
    partial: bool
    draw: random.Random

    @classmethod
    def of(cls, tasks: int, base: float, partial: bool, seed: object) -> World:
        draw = random.Random(repr(seed))
        return cls([draw.betavariate(base, 1 - base) for _ in range(tasks)], partial, draw)

    @property
    def order(self) -> list[str]:
        return [str(n) for n in range(len(self.rates))]

    def scores(self, gain: Callable[[int, float], float] = lambda _, rate: rate) -> Kept:
        return {(str(n), 0): self.score(gain(n, rate)) for n, rate in enumerate(self.rates)}

    def score(self, rate: float) -> float:
        rate = min(1.0, max(0.0, rate))
        if self.partial:
            return sum(self.draw.random() < rate for _ in range(4)) / 4
        return float(self.draw.random() < rate)


def tried(world: World, before: Kept, after: Kept, alpha: float) -> tuple[bool, int, float]:
    """(kept, tasks, difference seen) of one trial, its tasks in an order of its own."""
    order = world.order
    world.draw.shuffle(order)
    held = [score for score in before.values() if score is not None]
    gain = detectable(len(order), 1, min(0.99, float(f"{mean(held):.1f}")), alpha)
    found, _ = trial(before, after, order, repeats=1, alpha=alpha, gain=gain)
    return found.better, found.tasks, found.diff or 0.0


def shifted(world: World) -> Callable[[int, float], float]:
    """Better at half of the tasks and worse by as much at the others: no help in the mean."""
    up = {n for n in range(len(world.rates)) if world.draw.random() < 0.5}
    return lambda n, rate: rate + 0.4 * min(rate, 1 - rate) * (1 if n in up else -1)


def helped(gain: float, base: float) -> Callable[[int, float], float]:
    """The same share of what each task still lets an agent gain."""
    return lambda _, rate: rate + gain / (1 - base) * (1 - rate)


def nulls(builds: int) -> Iterator[Row]:
    settings = [(t, b, p) for t in (20, 40, 100) for b in (0.1, 0.3, 0.7) for p in (False, True)]
    for tasks, base, partial in settings:
        each = max(1, builds // len(settings))
        wrong, made, paired = 0, 0, 0
        for number in range(each):
            world = World.of(tasks, base, partial, ("nulls", tasks, base, partial, number))
            before, alike = world.scores(), [world.scores() for _ in range(CANDIDATES)]
            # each by itself, as before this gate
            paired += any(judge(before, after).better for after in alike)
            for after in alike:
                kept, took, _ = tried(world, before, after, share(GATE, CANDIDATES))
                made += took
                if kept:
                    wrong += 1
                    break
        yield {
            "tasks": tasks,
            "base": base,
            "partial": partial,
            "builds": each,
            "wrong": wrong,
            "each_by_itself": paired,
            "attempts": made / each / CANDIDATES,
        }


def chooser(builds: int) -> Iterator[Row]:
    """It has candidates of three kinds (alike; better at half of the tasks and worse at the others;
    random guesses with the same mean), tries on the kind whose last trial looked best, and stops
    when a kept one is at hand.
    """
    for tasks, partial in [(t, p) for t in (20, 100) for p in (False, True)]:
        each, wrong = max(1, builds // 4), 0
        for number in range(each):
            world = World.of(tasks, 0.4, partial, ("chooser", tasks, partial, number))
            before, level = world.scores(), mean(world.rates)
            kinds: list[Callable[[], Kept]] = [
                lambda w=world: w.scores(),  # type: ignore[misc]
                lambda w=world: w.scores(shifted(w)),  # type: ignore[misc]
                lambda w=world, m=level: w.scores(lambda _, __: m),  # type: ignore[misc]
            ]
            looks = [1.0, 1.0, 1.0]
            for _ in range(CANDIDATES):
                at = max(range(3), key=lambda k: (looks[k], world.draw.random()))
                kept, _, looks[at] = tried(world, before, kinds[at](), share(GATE, CANDIDATES))
                if kept:
                    wrong += 1
                    break
        yield {"tasks": tasks, "partial": partial, "builds": each, "wrong": wrong}


def cost(builds: int) -> Iterator[Row]:
    """One candidate a build. The paired test takes all tasks and has the same error (one-sided)."""
    alpha, base = share(GATE, 1), 0.3
    for tasks in (20, 50, 100, 200):
        for gain in (0.0, 0.1, 0.2, 0.3, 0.5):
            each, kept, took, fixed, ended = max(20, builds // 20), 0, 0, 0, []
            for number in range(each):
                world = World.of(tasks, base, False, ("cost", tasks, gain, number))
                before = world.scores()
                after = world.scores(helped(gain, base))
                won, spent, _ = tried(world, before, after, alpha)
                kept, took = kept + won, took + spent
                ended.append(spent)
                fixed += judge(before, after, alpha=2 * alpha).better
            lo, hi = wilson(kept, each)
            yield {
                "tasks": tasks,
                "gain": gain,
                "kept": kept / each,
                "kept_lo": lo,
                "kept_hi": hi,
                "paired_kept": fixed / each,
                "attempts": took / each,
                "ratio": took / each / tasks,
                "median": sorted(ended)[each // 2],
            }


def plan(builds: int) -> Iterator[Row]:
    for tasks, rounds, base in [
        (20, 1, 0.3),
        (40, 1, 0.3),
        (40, 5, 0.3),
        (100, 1, 0.3),
        (40, 1, 0.05),
        (60, 3, 0.6),
    ]:
        alpha, each, kept = share(GATE, rounds), max(50, builds // 4), 0
        gain = detectable(tasks, 1, base, alpha)
        for number in range(each):
            world = World.of(tasks, base, False, ("plan", tasks, rounds, base, number))
            order = world.order
            found, _ = trial(
                world.scores(),
                world.scores(helped(gain, base)),
                order,
                repeats=1,
                alpha=alpha,
                gain=gain,
            )
            kept += found.better
        lo, hi = wilson(kept, each)
        old = detectable_gain(tasks, 1, base)
        yield {
            "tasks": tasks,
            "rounds": rounds,
            "base": base,
            "gain": gain,
            "kept": kept / each,
            "lo": lo,
            "hi": hi,
            "gain_of_the_paired_test_per_candidate": old,
        }


THEIRS = 8
LOOK_FROM, HELD_OUT = 6, 2


@lru_cache(maxsize=4096)
def t_quantile(tail: float, freedom: int) -> float:
    """Of Student's t: what is exceeded with this probability, by Simpson's rule."""
    front = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(
        freedom * math.pi
    )

    def below(x: float, steps: int = 400) -> float:
        at = [
            front * (1 + (x * n / steps) ** 2 / freedom) ** (-(freedom + 1) / 2)
            for n in range(steps + 1)
        ]
        return 0.5 + x / steps / 3 * (at[0] + at[-1] + 4 * sum(at[1:-1:2]) + 2 * sum(at[2:-1:2]))

    low, high = 0.0, 200.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < 1 - tail else (low, middle)
    return high


def cluster_t(effects: Sequence[float], number: int) -> tuple[bool, int]:
    """autocontext's campaign gate (docs/false-promotion-calibration.md there, stored copy at
    6ca2e401), by its rule: candidate i has 0.05 / 2 ** (i + 1), spread evenly over the looks, which
    are after each block from the sixth on; a two-sided t interval above 0 promotes, if two further
    blocks have a mean above 0; one at 95 %, spread over the looks likewise, that is not above 0
    ends it. (promoted, blocks)."""
    blocks, held_out = effects[:-HELD_OUT], effects[-HELD_OUT:]
    looks = len(blocks) - LOOK_FROM + 1

    def half(alpha: float, n: int) -> float:
        middle = mean(blocks[:n])
        squares = math.fsum((d - middle) ** 2 for d in blocks[:n])
        return t_quantile(alpha / looks / 2, n - 1) * math.sqrt(squares / (n - 1) / n)

    for n in range(LOOK_FROM, len(blocks) + 1):
        middle = mean(blocks[:n])
        if middle + half(0.05, n) <= 0:
            return False, n
        if middle - max(half(0.05, n), half(0.05 / 2 ** (number + 1), n)) > 0:
            return mean(held_out) > 0, n + HELD_OUT
    return False, len(blocks)


def all_wins(effects: Sequence[float], _: int) -> tuple[bool, int]:
    """autocontext's kernel gate (docs/kernel-evolution.md there): a sign e-process that doubles on
    a win and ends on anything else, against 0.05 / 8, in a number of blocks that is fixed
    beforehand."""
    blocks = math.ceil(math.log2(THEIRS / 0.05))
    return all(d > 0 for d in effects[:blocks]), blocks


def ours(effects: Sequence[float], _: int) -> tuple[bool, int]:
    order, alpha = [str(n) for n in range(len(effects))], share(GATE, THEIRS)
    sides: list[Kept] = [
        {(task, 0): 0.5 + way * d / 2 for task, d in zip(order, effects, strict=True)}
        for way in (-1, 1)
    ]
    gain = detectable(len(order), 1, 0.3, alpha)
    found, _settled = trial(sides[0], sides[1], order, repeats=1, alpha=alpha, gain=gain)
    return found.better, found.tasks


def beside(builds: int) -> Iterator[Row]:
    """Blocks are their normal effects (deviation 0.2, cut to -1..1), and ours: yes-or-no tasks from
    a score of 0.3. rare-loss gains 0.05 on most tasks and loses 1 on few: no help in the mean. A
    build ends with its first promotion.
    """

    def normal(effect: float) -> Callable[[random.Random, int], list[float]]:
        return lambda draw, n: [max(-1.0, min(1.0, draw.gauss(effect, 0.2))) for _ in range(n)]

    def tasks(gain: float) -> Callable[[random.Random, int], list[float]]:
        def drawn(draw: random.Random, n: int) -> list[float]:
            world = World([draw.betavariate(0.3, 0.7) for _ in range(n)], False, draw)
            before, after = world.scores(), world.scores(helped(gain, 0.3))
            return [(after[key] or 0.0) - (before[key] or 0.0) for key in before]

        return drawn

    def rare(draw: random.Random, n: int) -> list[float]:
        return [-1.0 if draw.random() < 0.05 else 0.05 for _ in range(n)]

    rows = [(f"normal {e:+.2f}", normal(e), n) for e in (0.0, 0.03, 0.4) for n in (14, 40)]
    rows += [(f"yes-or-no {g:+.2f}", tasks(g), n) for n in (20, 50) for g in (0.0, 0.3, 0.5)] + [
        ("rare-loss", rare, 20)
    ]
    for what, drawn, blocks in rows:
        row: Row = {"what": what, "blocks": blocks, "builds": max(1, builds // 4)}
        for rule in (ours, cluster_t, all_wins):
            promoted = first = used = 0
            for number in range(row["builds"]):
                draw = random.Random(repr((what, blocks, number)))
                for candidate in range(THEIRS):
                    won, took = rule(drawn(draw, blocks), candidate)
                    used, promoted, first = (
                        used + took,
                        promoted + won,
                        first + (won and not candidate),
                    )
                    if won:
                        break
            lo, hi = wilson(promoted, row["builds"])
            row[rule.__name__] = {
                "promoted": promoted / row["builds"],
                "lo": round(lo, 3),
                "hi": round(hi, 3),
                "by_the_first": first / row["builds"],
                "blocks_a_build": used / row["builds"],
            }
        yield row


PYTHONS: list[str] = []


def leaks(_: int) -> Iterator[Row]:
    from tests.lab.evidence.leaks import leaks  # it imports what it takes texts from

    yield from leaks(_, pythons=PYTHONS)


NAMES: dict[str, Callable[[int], Iterator[Row]]] = {
    "nulls": nulls,
    "chooser": chooser,
    "cost": cost,
    "plan": plan,
    "beside": beside,
    "credit": credit,
    "leaks": leaks,
    "tasks": curriculum.tasks,
    "levels": levels.rows,
    "reuse": reuse,
    "race": race,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--builds", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--python", action="append", default=[], metavar="PATH")
    given = parser.parse_args()
    PYTHONS.extend(given.python)
    for name in given.names or NAMES:
        began, rows = time.monotonic(), []
        for row in NAMES[name](given.builds):
            rows.append(row)
            told = {
                key: round(value, 3) if isinstance(value, float) else value
                for key, value in row.items()
            }
            print(
                json.dumps({"name": name, **told}) if given.json else f"{name}: {told}", flush=True
            )
        if "wrong" in rows[0]:
            wrong, n = sum(row["wrong"] for row in rows), sum(row["builds"] for row in rows)
            lo, hi = wilson(wrong, n)
            record = {
                "name": name,
                "builds": n,
                "wrong": wrong,
                "share": wrong / n,
                "lo": lo,
                "hi": hi,
            }
            said = (
                f"{name}: {wrong} of {n} builds kept anything, {wrong / n:.4f} [{lo:.4f}, {hi:.4f}]"
            )
            print(json.dumps(record) if given.json else said)
        if not given.json:
            print(f"{name}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
