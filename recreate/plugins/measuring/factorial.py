"""Which parts to switch off together, and what each is worth by the scores that came of it; pure.

Every part is off in half of the attempts, in an order that makes all of them orthogonal, so that
each attempt says something of every part: a foldover of Hadamard matrices, two levels, resolution
IV (Plackett and Burman, The design of optimum multifactorial experiments, Biometrika 1946; Box and
Hunter, The 2^(k-p) fractional factorial designs, Technometrics 1961). One part after the other
against a control takes four to five times the attempts for the same certainty, and sees no two that
get in each other's way.

    block      a task under a row of the design and under its mirror image (what was on is off): the
               difference of the two holds no task, and no pair of parts; their sum tells pairs
    stretch    as many blocks as the matrix has rows. Within one, parts are orthogonal; each has
               columns and signs of its own, so that two pairs that cannot be told apart in one can
               be in the next
    task       its own level is taken out as far as the scores say it has one (a random intercept,
               Swamy and Arora 1972); `python -m tests.lab.evidence credit` has the figures

A part's worth is what the score loses without it, the others being on in half of the attempts;
where two were found to depend on each other, with the other one on, as in the agent. Intervals hold
for all parts at once (Bonferroni), and a pair is named only where its interval, one of those of all
pairs, leaves out 0.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from operator import mul
from statistics import fmean, pvariance
from typing import Literal, NamedTuple

from recreate.runs.gate import student_quantile

SUSPECT = 0.20
"""How often, at most, pairs are looked at again where none depends on the other."""
PAIRS = 0.05
"""How often, at most, any pair is named where none depends on the other."""
FOLLOWED = 4
"""So many suspected pairs are looked at again, the clearest first."""

Row = tuple[bool, ...]
"""Which parts are on."""

Advice = Literal["keep", "harmful", "dead weight", "clash", "undecided"]


class Observation(NamedTuple):
    """What an attempt at a task under a row came to: a score, or what it cost."""

    task: str
    on: Row
    value: float


class Worth(NamedTuple):
    """Of a part: value with its interval [lo, hi]. with_: the part that it clashes with, drop:
    whether it is the weaker of the two. needed: about how many attempts in all would tell, where
    they do not yet; 0 for none.
    """

    value: float
    lo: float
    hi: float
    advice: Advice
    with_: int | None = None
    drop: bool = False
    needed: int = 0


class Interaction(NamedTuple):
    """Two parts that depend on each other: value, with its interval, is by how much one is worth
    more where the other is on. kind: `clash`, one is of use without the other and harmful beside
    it; `overlap`, together they are worth less than one by one; `need`, more."""

    first: int
    second: int
    value: float
    lo: float
    hi: float
    kind: Literal["clash", "overlap", "need"]


class Analysis(NamedTuple):
    """parts: in their order. pairs: those that were found. suspects: to be looked at again. full,
    bare: the predicted value with all parts, and with none; gain: their difference with its 90 %
    interval."""

    parts: tuple[Worth, ...]
    pairs: tuple[Interaction, ...]
    suspects: tuple[tuple[int, int], ...]
    full: float
    bare: float
    gain: tuple[float, float, float]
    attempts: int


# --------------------------------------------------------------------------------------------------
# the design


def stretch(parts: int) -> int:
    """How many blocks it takes to tell so many parts apart: the order of the smallest Hadamard
    matrix that has them."""
    return next(order for order in range(max(1, parts), 2 * parts + 8) if _matrix(order))


def design(parts: int, blocks: int, seed: int = 0) -> list[Row]:
    """A row for each block; `mirror` gives the other half. The first stretch has the agent as it is
    among its rows."""
    order = stretch(parts)
    draw = random.Random(f"{seed}/design")
    rows = list[Row]()
    matrix = _matrix(order)
    while len(rows) < blocks:
        columns = draw.sample(range(order), parts)
        signs = [1 if not rows else draw.choice((1, -1)) for _ in columns]
        made = [
            tuple(line[c] * s > 0 for c, s in zip(columns, signs, strict=True)) for line in matrix
        ]
        draw.shuffle(made)
        rows += made
    return rows[:blocks]


def mirror(row: Row) -> Row:
    """What was on is off."""
    return tuple(not on for on in row)


def cells(parts: int, pair: tuple[int, int]) -> list[Row]:
    """The four ways in which two parts are on and off, all others being on; the agent as it is
    comes first."""
    return [
        tuple((i != pair[0] or a) and (i != pair[1] or b) for i in range(parts))
        for a in (True, False)
        for b in (True, False)
    ]


@lru_cache(maxsize=64)
def _matrix(order: int) -> tuple[tuple[int, ...], ...]:
    """A Hadamard matrix whose first row and column are 1; () where neither Paley's nor Sylvester's
    way makes one."""
    if order == 1:
        return ((1,),)
    if order % 2 == 0 and (half := _matrix(order // 2)):
        return tuple((*row, *row) for row in half) + tuple(
            (*row, *(-x for x in row)) for row in half
        )
    prime = order - 1
    if order % 4 or any(prime % n == 0 for n in range(2, math.isqrt(prime) + 1)):
        return ()
    squares = {n * n % prime for n in range(1, prime)}  # quadratic residues: Paley 1933
    lines = (
        (1, *(1 if (j - i) % prime in squares else -1 for j in range(prime))) for i in range(prime)
    )
    return ((1,) * order, *lines)


# ------------------------------------------------------------------------------------------------
# the analysis


def analyse(
    outcomes: Sequence[Observation],
    parts: int,
    *,
    alpha: float = 0.10,
    margin: float = 0.10,
    bounded: bool = True,
) -> Analysis:
    """What the outcomes say of every part and pair.

    margin: a part that is worth less, with certainty, is dead weight. bounded: they are scores, 0
    to 1. Raises ValueError when there are too few to tell.
    """
    every = list(combinations(range(parts), 2))
    fit = _Fit(outcomes, parts, (), bounded)
    suspects = list[tuple[int, int]]()
    while len(suspects) < FOLLOWED and (
        found := fit.nearest([p for p in every if p not in suspects], SUSPECT)
    ):
        suspects.append(found)
        fit = _Fit(outcomes, parts, suspects, bounded)
    confirmed = [
        pair
        for n, pair in enumerate(suspects)
        if abs(fit.beta[parts + n])
        > fit.reach(PAIRS / len(every)) * math.sqrt(fit.variance(parts + n))
    ]
    fit = _Fit(outcomes, parts, confirmed, bounded)
    pairs = tuple(
        _pair(fit, parts, n, pair, PAIRS / len(every)) for n, pair in enumerate(confirmed)
    )
    return Analysis(
        _advised(fit, parts, pairs, alpha, margin),
        pairs,
        tuple(suspects),
        *_ends(fit, parts, confirmed),
        attempts=len(outcomes),
    )


class _Fit:
    """Least squares over attempts, each task's own level taken out in the share that it has one.

    A part is +1/2 or -1/2, a pair their product: coefficients are differences of means, and of such
    differences.
    """

    def __init__(
        self,
        outcomes: Sequence[Observation],
        parts: int,
        pairs: Sequence[tuple[int, int]],
        bounded: bool,
    ) -> None:
        self.parts = parts
        self.most = 1.0 if bounded else math.inf
        self.tasks: dict[str, list[int]] = {}
        for at, outcome in enumerate(outcomes):
            self.tasks.setdefault(outcome.task, []).append(at)
        self.signs = [[0.5 if on else -0.5 for on in outcome.on] for outcome in outcomes]
        self.values = [outcome.value for outcome in outcomes]
        rows = [[*row, *(row[a] * row[b] for a, b in pairs), 1.0] for row in self.signs]
        width = len(rows[0])
        free = len(rows) - len(rows[0])
        if free < 1:
            raise ValueError(f"{len(rows)} attempts do not tell {parts} parts apart")
        # what lies within tasks and what between, by a first fit without tasks
        first = _solved(rows, self.values)
        left = [y - _dot(row, first[0]) for row, y in zip(rows, self.values, strict=True)]
        means = {task: fmean(left[n] for n in at) for task, at in self.tasks.items()}
        inside = sum((left[n] - means[task]) ** 2 for task, at in self.tasks.items() for n in at)
        within = inside / max(1, len(rows) - len(self.tasks) - width + 1)
        size = len(rows) / len(self.tasks)
        between = max(0.0, pvariance(list(means.values())) - within / size)
        self.take = {
            task: (
                min(0.999, 1 - math.sqrt(within / (within + len(at) * between)))
                if within + between > 0
                else 0.0
            )
            for task, at in self.tasks.items()
        }
        held = self.within(rows)
        wanted = [row[0] for row in self.within([[y] for y in self.values])]
        self.beta, self.inverse = _solved(held, wanted)
        self.left = [y - _dot(row, self.beta) for row, y in zip(held, wanted, strict=True)]
        self.free = free
        # where hardly any score differs the residuals are too sure of themselves: as if one more
        # had gone either way
        mean = min(1.0, max(0.0, fmean(self.values)))
        n = len(self.values)
        least = (mean * n + 1) * ((1 - mean) * n + 1) / (n + 2) ** 2 if bounded else 0.0
        self.noise = max(sum(e * e for e in self.left) / free, min(least, 1 / n))

    def within(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """Columns less the share of their task's mean."""
        made: list[list[float]] = [[] for _ in rows]
        for task, at in self.tasks.items():
            means = [
                fmean(column) * self.take[task]
                for column in zip(*(rows[n] for n in at), strict=True)
            ]
            for n in at:
                made[n] = [x - mean for x, mean in zip(rows[n], means, strict=True)]
        return made

    def reach(self, alpha: float) -> float:
        """So many standard errors on either side."""
        return student_quantile(self.free + 1, alpha)

    def variance(self, at: int) -> float:
        return self.noise * self.inverse[at][at]

    def of(self, weights: Sequence[float]) -> tuple[float, float]:
        """(a weighted sum of coefficients, its standard error)."""
        used = [n for n, w in enumerate(weights) if w]
        spread = sum(weights[a] * weights[b] * self.inverse[a][b] for a in used for b in used)
        return _dot(weights, self.beta), math.sqrt(max(0.0, self.noise * spread))

    def nearest(self, pairs: Sequence[tuple[int, int]], error: float) -> tuple[int, int] | None:
        """The pair that explains most of what is left, if it is more than chance explains of so
        many."""
        best = 0.0
        found = None
        count = self.parts * (self.parts - 1) // 2
        left = [row[0] for row in self.within([[e] for e in self.left])]
        signs = list(zip(*self.signs, strict=True))
        takes = [
            (at, (2 - self.take[task]) * self.take[task] / len(at))
            for task, at in self.tasks.items()
        ]
        for a, b in pairs:
            column = list(map(mul, signs[a], signs[b]))
            # the square of the column less the shares of its tasks' means, without making it
            square = _dot(column, column) - sum(
                take * sum(column[n] for n in at) ** 2 for at, take in takes
            )
            told = abs(_dot(column, left)) / math.sqrt(square) if square > 1e-9 else 0.0
            if told > best:
                best = told
                found = (a, b)
        return found if found and best > self.reach(error / count) * math.sqrt(self.noise) else None


def _pair(fit: _Fit, parts: int, n: int, pair: tuple[int, int], alpha: float) -> Interaction:
    value = fit.beta[parts + n]
    error = math.sqrt(fit.variance(parts + n))
    half = fit.reach(alpha) * error
    kind: Literal["clash", "overlap", "need"] = "need"
    if value < 0:
        worse = False
        for part in pair:  # of use where the other one is off, and harmful where it is on
            beside = [0.0] * len(fit.beta)
            alone = [0.0] * len(fit.beta)
            beside[part], beside[parts + n], alone[part], alone[parts + n] = 1.0, 0.5, 1.0, -0.5
            (harm, one), (use, other) = fit.of(beside), fit.of(alone)
            worse = worse or (harm + fit.reach(0.10) * one < 0 < use - fit.reach(0.10) * other)
        kind = "clash" if worse else "overlap"
    return Interaction(*pair, value, value - half, value + half, kind)


def _advised(
    fit: _Fit, parts: int, pairs: Sequence[Interaction], alpha: float, margin: float
) -> tuple[Worth, ...]:
    # of two that are too much together: the one that is worth less alone
    weaker: dict[int, int] = {}
    for pair in sorted(pairs, key=lambda p: p.value):
        if pair.kind != "need" and not {pair.first, pair.second} & weaker.keys():
            one, other = sorted((pair.first, pair.second), key=lambda i: fit.beta[i])
            weaker[one] = other
    found = []
    for part in range(parts):
        value, lo, hi = _interval(fit, parts, part, pairs, frozenset(), alpha)
        clash = next((p for p in pairs if p.kind == "clash" and part in (p.first, p.second)), None)
        if clash is not None:
            other = clash.second if part == clash.first else clash.first
            found.append(Worth(value, lo, hi, "clash", other, weaker.get(part) == other))
            continue
        # the stronger of two that overlap is judged as if the weaker were gone: not both of them
        # are dead weight
        gone = frozenset(one for one, other in weaker.items() if other == part)
        judged = _interval(fit, parts, part, pairs, gone, alpha)
        advice = _advice(*judged[1:], margin)
        needed = _needed(*judged, margin, len(fit.values)) if advice == "undecided" else 0
        found.append(Worth(value, lo, hi, advice, needed=needed))
    return tuple(found)


def _interval(
    fit: _Fit,
    parts: int,
    part: int,
    pairs: Sequence[Interaction],
    gone: frozenset[int],
    alpha: float,
) -> tuple[float, float, float]:
    weights = [0.0] * len(fit.beta)
    weights[part] = 1.0
    for n, pair in enumerate(pairs):
        if part in (pair.first, pair.second):
            weights[parts + n] = -0.5 if {pair.first, pair.second} & gone else 0.5
    value, error = fit.of(weights)
    half = fit.reach(alpha / parts) * error
    return value, max(-fit.most, value - half), min(fit.most, value + half)


def _advice(lo: float, hi: float, margin: float) -> Advice:
    if lo > 0:
        return "keep"
    if hi < 0:
        return "harmful"
    return "dead weight" if hi < margin else "undecided"


def _needed(value: float, lo: float, hi: float, margin: float, attempts: int) -> int:
    """An interval shrinks with the root of its attempts: until it leaves out 0, or all that is
    worth keeping."""
    wanted = max(abs(value), margin - value)
    return math.ceil(attempts * ((hi - lo) / 2 / wanted) ** 2)


def _ends(
    fit: _Fit, parts: int, pairs: Sequence[tuple[int, int]]
) -> tuple[float, float, tuple[float, float, float]]:
    full = [*([0.5] * parts), *([0.25] * len(pairs)), 1.0]
    bare = [*([-0.5] * parts), *([0.25] * len(pairs)), 1.0]
    gain, error = fit.of([a - b for a, b in zip(full, bare, strict=True)])
    half = fit.reach(0.10) * error
    return (
        fit.of(full)[0],
        fit.of(bare)[0],
        (gain, max(-fit.most, gain - half), min(fit.most, gain + half)),
    )


def half_width(parts: int, attempts: int, alpha: float = 0.10, noise: float = 0.20) -> float:
    """Half of the interval of a part's worth after so many attempts, before there are any. noise:
    the variance of a score within a task; 0.25 is the most that yes-or-no scores have."""
    free = max(1, attempts - parts - 1)
    return student_quantile(free + 1, alpha / parts) * math.sqrt(4 * noise / max(1, attempts))


# -------------------------------------------------------------------------------------------------
# small algebra


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return float(sum(map(mul, a, b)))


def _solved(
    rows: Sequence[Sequence[float]], values: Sequence[float]
) -> tuple[list[float], list[list[float]]]:
    """(coefficients, inverse of the normal matrix) by Gauss and Jordan; by hand, since numpy is no
    dependency and the matrix has as many rows as an agent has parts. Raises ValueError where the
    columns do not tell the parts apart.
    """
    columns = list(zip(*rows, strict=True))
    width = len(columns)
    matrix = [
        [_dot(a, b) for b in columns] + [float(i == j) for j in range(width)]
        for i, a in enumerate(columns)
    ]
    for at in range(width):
        best = max(range(at, width), key=lambda n: abs(matrix[n][at]))
        if abs(matrix[best][at]) < 1e-9:
            raise ValueError("the attempts do not tell all parts apart")
        matrix[at], matrix[best] = matrix[best], matrix[at]
        lead = matrix[at][at]
        matrix[at] = [x / lead for x in matrix[at]]
        for n in range(width):
            if n != at and matrix[n][at]:
                factor = matrix[n][at]
                matrix[n] = [x - factor * y for x, y in zip(matrix[n], matrix[at], strict=True)]
    inverse = [row[width:] for row in matrix]
    sums = [_dot(column, values) for column in columns]
    return [_dot(row, sums) for row in inverse], inverse
