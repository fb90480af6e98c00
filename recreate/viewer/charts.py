"""The agent's versions: the seed and every candidate, with scores, and the places where the charts
draw them.

Places are plain numbers (y in pixels, x in per cent of the width), so that the template draws them
without a script and the width of the page may change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from recreate.api.shapes import JsonMap
from recreate.viewer.facts import Version, read_figure

CURVE = {
    "reward": "mean reward",
    "passed": "share passed",
    "kl": "KL to the reference (nats a token)",
    "entropy": "entropy (nats a token)",
    "clip": "share of tokens clipped",
    "length": "tokens an attempt",
}
"""What a training tells of each step, and what it is called."""

HEIGHT = 240
"""Of the learning curve's plot, in pixels."""


# ------------------------------------------------------------------------------------------- the
# learning curve


@dataclass(frozen=True)
class Point:
    """A version on the curve."""

    version: Version
    x: float
    y: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Curve:
    """ticks: (y, label). steps: the line through what was kept, (x1, y1, x2, y2)."""

    points: Sequence[Point]
    ticks: Sequence[tuple[float, str]]
    steps: Sequence[tuple[float, float, float, float]]


def draw_curve(found: Sequence[Version]) -> Curve | None:
    """Return the learning curve over what was measured; None when nothing was."""
    measured = [v for v in found if v.mean is not None]
    if not measured:
        return None
    low = min(v.lo for v in measured if v.lo is not None)
    high = max(v.hi for v in measured if v.hi is not None)
    ticks = _round_ticks(low, high)
    low = ticks[0]
    high = ticks[-1]

    def y(value: float | None) -> float:
        return round(HEIGHT - HEIGHT * ((value or 0.0) - low) / (high - low), 1)

    points = [
        Point(v, round(100 * (i + 0.5) / len(measured), 2), y(v.mean), y(v.hi), y(v.lo))
        for i, v in enumerate(measured)
    ]
    on = [p for p in points if p.version.on]
    decimals = max(1, min(4, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)))
    if any(abs(t * 10**decimals - round(t * 10**decimals)) > 1e-6 for t in ticks):
        decimals += 1
    return Curve(
        points=points,
        ticks=[(y(t), f"{t:.{decimals}f}") for t in ticks],
        steps=[(a.x, a.y, b.x, b.y) for a, b in pairwise(on)],
    )


def _round_ticks(low: float, high: float) -> list[float]:
    """Four to seven round values that hold low and high."""
    span = max(high - low, 1e-3)
    unit = 10 ** math.floor(math.log10(span / 4))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if span / (unit * m) <= 5)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]


# ------------------------------------------------------------------------------------------------
# the lineage


@dataclass(frozen=True)
class CurveSegment:
    """One piece of an edge in one row: shape is full | top | bottom (of the row), or bend (at its
    top, from lane a to lane b). on: whether the agent went on along it."""

    shape: str
    a: int
    b: int
    on: bool


@dataclass(frozen=True)
class ChartRow:
    """One version in the lineage: the lane its node is in and the pieces of edges that cross its
    row."""

    version: Version
    lane: int
    segments: Sequence[CurveSegment]


def draw_lineage(found: Sequence[Version]) -> tuple[list[ChartRow], int]:
    """Return (rows from the seed down, number of lanes). Works for any tree; what was kept in a
    row stays in one lane.

    An edge runs down its parent's lane and bends just above the child. When another node is in the
    way there (the agent had gone on before somebody went back to the parent), it bends just below
    the parent, into a free lane.
    """
    lane: dict[int, int] = {}
    owner: dict[tuple[int, int], int] = {}
    pieces: dict[tuple[int, str, int, int], bool] = {}

    def draw(row: int, shape: str, a: int, b: int) -> None:
        pieces[row, shape, a, b] = pieces.get((row, shape, a, b), False) or child.on

    def first_free(rows: range, after: int = -1) -> int:
        return next(
            n
            for n in range(after + 1, len(found) + after + 2)
            if all((r, n) not in owner for r in rows)
        )

    for child in found:
        c = child.number
        p = child.parent
        if p is None:
            lane[c] = first_free(range(c, c + 1))
        else:
            between = range(p + 1, c)
            straight = all(owner.get((row, lane[p]), p) == p for row in between)
            if not straight:
                lane[c] = first_free(range(p + 1, c + 1))
            elif child.on and (c, lane[p]) not in owner:
                lane[c] = lane[p]
            else:
                lane[c] = first_free(range(c, c + 1), lane[p])
            path = lane[p] if straight else lane[c]
            draw(p, "bottom", lane[p], lane[p])
            for row in between:
                owner[row, path] = p if straight else c
                (
                    draw(row, "full", path, path)
                    if straight or row > p + 1
                    else draw(row, "bottom", path, path)
                )
            if not straight:
                draw(p + 1, "bend", lane[p], lane[c])
            draw(c, "bend" if straight and lane[c] != lane[p] else "top", path, lane[c])
        owner[c, lane[c]] = c
    rows = [
        ChartRow(
            v,
            lane[v.number],
            [CurveSegment(s, a, b, on) for (r, s, a, b), on in pieces.items() if r == v.number],
        )
        for v in found
    ]
    return rows, 1 + max(lane.values(), default=0)


# --------------------------------------------------------------------------------------------------
# the flips


TRACKED = 14
"""Versions that the tasks' squares show."""


def choose_tracked(found: Sequence[Version]) -> list[Version]:
    """Return the versions to draw squares of: all, or the seed and, of the rest, first what was
    kept and then the latest."""
    rest = sorted(found[1:], key=lambda v: (not v.on, -v.number))[: TRACKED - 1]
    return [found[0], *sorted(rest, key=lambda v: v.number)]


@dataclass(frozen=True)
class Flip:
    """One validation task before and after; track: its score with each of `tracked`, None: not
    measured.

    outcome: won | lost | same | unknown (one side was excluded). changes: how often the score
    changed from one version to the next, over all of them.
    """

    task: str
    before: float | None
    after: float | None
    track: Sequence[float | None]
    outcome: str
    changes: int


def list_flips(found: Sequence[Version], final: str) -> list[Flip]:
    """Return every validation task, the ones that changed most first."""
    last = next((v for v in reversed(found) if v.id == final), found[0])
    tasks = dict.fromkeys(task for v in found for task in v.tasks)
    squares = choose_tracked(found)
    made = []
    for task in tasks:
        held = [v.tasks[task] for v in found if task in v.tasks]
        made.append(
            Flip(
                task=task,
                before=found[0].tasks.get(task),
                after=last.tasks.get(task),
                track=[v.tasks.get(task) for v in squares],
                outcome=name_outcome(found[0].tasks.get(task), last.tasks.get(task)),
                changes=sum(a != b for a, b in pairwise(held)),
            )
        )
    order = {"won": 0, "lost": 1, "unknown": 2, "same": 3}
    return sorted(made, key=lambda f: (order[f.outcome], -f.changes, f.task))


def name_outcome(before: float | None, after: float | None) -> str:
    """Return won | lost | same | unknown."""
    if before is None or after is None:
        return "unknown"
    return "won" if after > before else "lost" if after < before else "same"


# ------------------------------------------------------------------------------------------------
# over the steps


@dataclass(frozen=True)
class Series:
    """A number over the steps of a training: its points as SVG writes them (x and y in 0..100, y
    downwards), its least and greatest value, the first and the last."""

    name: str
    points: str
    low: float
    high: float
    first: float
    last: float


def draw_series(name: str, values: Sequence[float], most: int = 400) -> Series:
    """Return the drawing of a number; of many values at most `most` are drawn: each the mean of
    its neighbours."""
    count = min(len(values), most)
    parts = [
        values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)
    ]
    drawn = [math.fsum(part) / len(part) for part in parts]
    low = min(drawn)
    high = max(drawn)
    across = 100 / max(1, count - 1)
    up = 100 / (high - low) if high > low else 0.0
    points = " ".join(f"{i * across:.2f},{100 - (v - low) * up:.2f}" for i, v in enumerate(drawn))
    return Series(name, points, low, high, values[0], values[-1])


def draw_curves(updates: Sequence[JsonMap]) -> list[Series]:
    """Return what a training told of its steps, as far as it can be drawn."""
    told = {name: [read_figure(step.get(key)) for step in updates] for key, name in CURVE.items()}
    drawn = {
        name: [value for value in values if value is not None] for name, values in told.items()
    }
    return [draw_series(name, values) for name, values in drawn.items() if values]
