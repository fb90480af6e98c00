"""Worlds with planted edits: does `credit` tell good, neutral, harmful and clashing ones apart, and
for how much?

A world is a set of validation tasks of mixed difficulty and an agent of 6 to 14 edits: good,
neutral, harmful, and pairs that clash (each helps alone, together they hurt). The chance to solve a
task is logistic in what is switched on, and each edit helps on some tasks more than on others. The
baseline switches edits off one at a time beside a control that has its best share of the attempts,
judges them by the same rule with the same errors, and follows up each two that look harmful by
switching both off.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from statistics import fmean, variance
from typing import Any, NamedTuple

from recreate.plugins.measuring.factorial import (
    PAIRS,
    Analysis,
    Observation,
    Row,
    analyse,
    cells,
    design,
    mirror,
)
from recreate.plugins.measuring.shares import wilson
from recreate.runs.gate import student_quantile

WORLDS = 60
TASKS = 40
GOAL, RATIO = 0.95, 0.40
DESIGNED = (6, 8, 11, 16, 23)
SINGLY = (4, 6, 8, 11, 16, 23)
"""Pairs of attempts a task, of the design; attempts a task and edit, of one at a time."""
MARGIN, ALPHA = 0.10, 0.10


class Planted(NamedTuple):
    """kinds: of each edit, `good`, `neutral`, `harmful`, `clash`; partner: of those that clash;
    tasks: the level of each; pull: what each edit does to each task, in logits; together: what a
    pair does besides."""

    kinds: list[str]
    partner: dict[int, int]
    tasks: list[float]
    pull: list[list[float]]
    together: dict[tuple[int, int], float]
    partial: bool
    draw: random.Random

    @classmethod
    def of(cls, seed: int) -> Planted:
        draw = random.Random(f"planted/{seed}")
        clashes = draw.choice((0, 1, 1, 2))
        kinds = ["clash"] * (2 * clashes)
        kinds += [
            draw.choice(("good", "neutral", "neutral", "harmful"))
            for _ in range(draw.randint(6, 14) - len(kinds))
        ]
        order = draw.sample(range(2 * clashes), 2 * clashes)
        pairs = list(zip(order[::2], order[1::2], strict=True))
        size = {"good": 1.0, "neutral": 0.0, "harmful": -1.0, "clash": 1.0}
        strength = [size[kind] * draw.uniform(1.0, 1.6) for kind in kinds]
        tasks = [draw.gauss(0, 1.0) for _ in range(TASKS)]
        level = sum(strength) - sum(strength[a] + strength[b] for a, b in pairs)
        return cls(
            kinds,
            {a: b for one, other in pairs for a, b in ((one, other), (other, one))},
            [task - level / 2 for task in tasks],
            [[s * draw.uniform(0.5, 1.5) for _ in tasks] for s in strength],
            {
                tuple(sorted(pair)): -strength[pair[0]] - strength[pair[1]] - draw.uniform(1.0, 1.6)
                for pair in pairs
            },
            seed % 2 == 1,
            draw,
        )

    def score(self, task: int, on: Row) -> float:
        logit = self.tasks[task] + sum(
            pull[task] for pull, used in zip(self.pull, on, strict=True) if used
        )
        logit += sum(add for (a, b), add in self.together.items() if on[a] and on[b])
        chance = 1 / (1 + math.exp(-logit))
        tries = 4 if self.partial else 1
        return sum(self.draw.random() < chance for _ in range(tries)) / tries

    def outcome(self, task: int, on: Row) -> Observation:
        return Observation(str(task), on, self.score(task, on))


def designed(world: Planted, blocks: int) -> tuple[Analysis, int]:
    """(what is found, the attempts that it took): the design, and a follow-up on suspected
    pairs."""
    parts = len(world.kinds)
    outcomes = [
        world.outcome(n % TASKS, row)
        for n, half in enumerate(design(parts, blocks, seed=blocks))
        for row in (half, mirror(half))
    ]
    first = analyse(outcomes, parts, alpha=ALPHA, margin=MARGIN)
    follow = list(dict.fromkeys(row for pair in first.suspects for row in cells(parts, pair)))
    outcomes += [world.outcome(task, row) for row in follow for task in range(TASKS)]
    return analyse(outcomes, parts, alpha=ALPHA, margin=MARGIN) if follow else first, len(outcomes)


def told(found: Analysis, world: Planted) -> list[bool]:
    """Of each edit, whether it was told what it is."""
    names = {"keep": "good", "dead weight": "neutral", "harmful": "harmful", "clash": "clash"}
    return [
        names.get(part.advice) == kind and (kind != "clash" or part.with_ == world.partner[n])
        for n, (part, kind) in enumerate(zip(found.parts, world.kinds, strict=True))
    ]


def singly(world: Planted, each: int) -> tuple[list[bool], int]:
    """(of each edit, whether it was told what it is; the attempts) by switching off one at a time,
    `each` attempts an edit, and pairs of those that look harmful."""
    parts = len(world.kinds)

    def arm(off: Sequence[int], attempts: int) -> dict[int, list[float]]:
        row, scores = tuple(n not in off for n in range(parts)), dict[int, list[float]]()
        for n in range(attempts):
            scores.setdefault(n % TASKS, []).append(world.score(n % TASKS, row))
        return scores

    shared = max(each, round(each * math.sqrt(parts)))
    control, alone = arm((), shared), [arm((n,), each) for n in range(parts)]
    cost = shared + parts * each
    found = [_contrast(((1.0, control), (-1.0, off)), ALPHA / parts) for off in alone]
    harmful = [n for n, (_, hi) in enumerate(found) if hi < 0]
    clash: dict[int, int] = {}
    every = max(1, parts * (parts - 1) // 2)
    for a, b in combinations(harmful, 2):
        both = arm((a, b), each)
        cost += each
        _, hi = _contrast(
            ((1.0, control), (-1.0, alone[a]), (-1.0, alone[b]), (1.0, both)), PAIRS / every
        )
        alone_helps = [_contrast(((1.0, alone[other]), (-1.0, both)), ALPHA)[0] for other in (a, b)]
        if hi < 0 < max(alone_helps):
            clash[a], clash[b] = b, a
    right = []
    for n, (kind, (lo, hi)) in enumerate(zip(world.kinds, found, strict=True)):
        said = (
            "clash"
            if n in clash
            else "good"
            if lo > 0
            else "harmful"
            if hi < 0
            else "neutral"
            if hi < MARGIN
            else ""
        )
        right.append(said == kind and (kind != "clash" or clash.get(n) == world.partner[n]))
    return right, cost


def _contrast(
    arms: Sequence[tuple[float, dict[int, list[float]]]], alpha: float
) -> tuple[float, float]:
    """The interval of a sum of arms, task by task where each was attempted in all of them."""
    tasks = [task for task in arms[0][1] if all(task in scores for _, scores in arms)]
    values = [sum(sign * fmean(scores[task]) for sign, scores in arms) for task in tasks]
    middle, spread = fmean(values), math.sqrt(variance(values) / len(values))
    half = student_quantile(len(values), alpha) * spread
    return middle - half, middle + half


def credit(builds: int) -> Iterator[dict[str, Any]]:
    """Each way at growing sizes, until the lower end of its share's interval is at the goal; then
    the two costs."""
    worlds, reached = min(WORLDS, builds), dict[str, float]()

    def design_of(size: int) -> Callable[[Planted], tuple[list[bool], int]]:
        def run(world: Planted) -> tuple[list[bool], int]:
            found, cost = designed(world, size * TASKS)
            return told(found, world), cost

        return run

    for way, sizes in (("design", DESIGNED), ("one at a time", SINGLY)):
        for size in sizes:
            run = (
                design_of(size)
                if way == "design"
                else lambda world, size=size: singly(world, size * TASKS)
            )
            row = {"way": way, "size": size, **_share(run, worlds)}
            yield row
            if row["lo"] >= GOAL:
                reached[way] = row["attempts"]
                break
    costs = [reached.get(way) for way in ("design", "one at a time")]
    ratio = costs[0] / costs[1] if costs[0] and costs[1] else None
    yield {
        "goal": GOAL,
        "cost_ratio": ratio,
        "at_most": RATIO,
        "reached": ratio is not None and ratio <= RATIO,
    }


def _share(run: Callable[[Planted], tuple[list[bool], int]], worlds: int) -> dict[str, Any]:
    right, of, cost = 0, 0, 0
    kinds: dict[str, list[bool]] = {}
    for seed in range(worlds):
        world = Planted.of(seed)
        found, took = run(world)
        right, of, cost = right + sum(found), of + len(found), cost + took
        for kind, good in zip(world.kinds, found, strict=True):
            kinds.setdefault(kind, []).append(good)
    lo, hi = wilson(right, of)
    return {
        "told": right / of,
        "lo": lo,
        "hi": hi,
        "edits": of,
        "attempts": cost / worlds,
        **{kind: fmean(each) for kind, each in sorted(kinds.items())},
    }
