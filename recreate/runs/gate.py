"""The gate: is the candidate better than its parent, on the same tasks and repeats? Pure, and the
same every time.

How it decides. Repeats are averaged within a task, over the (task, repeat) pairs both sides have;
each task gives one difference after - before. If the change did nothing, each difference might as
well have had the other sign; so the signs are flipped in all ways (sign-flip permutation test):

    p        two-sided: the share of flips whose mean is at least as far from 0 as the observed mean
    lo, hi   diff -+ q, q being what chance alone stays within: the flips' mean exceeds q in at most
             alpha/2 of them

By this choice p and interval never disagree: lo > 0 exactly when the one-sided p is at most alpha/2
(0.05). When parent and candidate are alike, a keep happens in at most 5 % of trials, at any number
of tasks, with no normality assumed. The interval is on the wide side for large effects (the flips
include the effect itself) and, having only the differences seen to go by, too narrow when hardly
any task differs: with none it is [0, 0].

Simulated (yes-or-no scores, tasks of mixed difficulty, base rate 0.3): alike agents are kept in 0 %
of trials with 5 tasks, 1.0 % with 20 and 3.3 % with 80 at one repeat, 2.2 % and 3.6 % at three; the
interval holds a true gain of 0.05 in 71 % with 8 tasks and one repeat, 89 % with 20 and with 60,
and a gain that is kept four times in five in 92 to 99 %. tests/runs/test_gate.py repeats part of
this.

    better       lo > 0
    not-better   hi < 0, or no task differs at all
    undecided    else; also with fewer than 5 paired tasks, and when over 20 % of the pairs were
                 dropped

A candidate may also be cheaper and not worse (`not_worse`, `saving`): that is another question,
with a margin, and only a build that was told to (`gate.cheaper`) keeps one for it. docs/gate.md
says why that is not the default.

Flips are counted exactly (for scores on a grid, such as 0 and 1 over some repeats, at any number of
tasks; else up to 16 tasks); beyond that 20 000 flips are drawn from `seed`, in mirrored pairs.
"""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.api.types import Decision, Saving, Stratum, Verdict

Scores = Mapping[tuple[str, int], float | None]
"""(task, repeat) -> score; None when the attempt was excluded for an infrastructure failure."""

MIN_TASKS = 5
"""With 4 tasks even four wins out of four are 1 in 16: no result could be kept."""
MAX_DROPPED = 0.20
FLIPS = 20_000
EXACT_TASKS = 16
LEAST_SAVING = 0.05
"""What is cheaper by less than this share is not worth a change."""
_BETS = ((0.8, 1.0), (0.2, 0.8))
_MAX_BITS = 20_000_000


def judge(
    before: Scores,
    after: Scores,
    *,
    alpha: float = 0.10,
    seed: int = 0,
    attempted: int | None = None,
    kinds: Mapping[str, str] = {},
) -> Verdict:
    """Return the verdict on `after` against `before`; the interval has level 1 - alpha. kinds: task
    -> its kind, where there are several: then the verdict has the scores of each.

    attempted: how many pairs were started, when that is more than both maps show; pairs that are
    missing or None on either side count as dropped. Too few tasks is `undecided` with a reason,
    never an error.
    """
    if not 0 < alpha < 1:
        raise BadInput(f"alpha is {alpha}", fix="give a number between 0 and 1, such as 0.10")
    pairs = [key for key in before if before[key] is not None and after.get(key) is not None]
    started = max(len(before.keys() | after.keys()), attempted or 0)
    dropped = started - len(pairs)
    old = mean_by_task(before, pairs)
    new = mean_by_task(after, pairs)
    tasks = len(old)
    if not tasks:
        return unjudged("undecided", "no task was scored on both sides", dropped)
    differences, scale = _units([new[task] - old[task] for task in old])
    total = sum(differences)
    p, reach = _flips(sorted(abs(d) for d in differences if d), abs(total), alpha, seed)
    diff, lo, hi = (Fraction(sum_, scale * tasks) for sum_ in (total, total - reach, total + reach))
    given = [score for side in (before, after) for score in side.values() if score is not None]
    if all(0 <= score <= 1 for score in given):
        lo = max(lo, Fraction(-1))
        hi = min(hi, Fraction(1))
    verdict: Decision = "undecided"
    reason = ""
    if tasks < MIN_TASKS:
        reason = f"refused: {tasks} paired tasks, at least {MIN_TASKS} are needed"
    elif dropped > MAX_DROPPED * started:
        reason = f"{dropped} of {started} pairs were dropped, more than {MAX_DROPPED:.0%}"
    elif lo > 0:
        verdict = "better"
    elif hi < 0:
        verdict = "not-better"
    elif not any(differences):
        verdict = "not-better"
        reason = "no task scored differently"
    else:
        reason = f"the interval of {tasks} tasks holds 0"
    counts: dict[str, int] = {}
    for task, _ in pairs:
        counts[task] = counts.get(task, 0) + 1
    return Verdict(
        before=float(sum(old.values(), Fraction(0)) / tasks),
        after=float(sum(new.values(), Fraction(0)) / tasks),
        diff=float(diff),
        lo=float(lo),
        hi=float(hi),
        p=p,
        tasks=tasks,
        repeats=max(counts.values()),
        verdict=verdict,
        reason=reason,
        dropped=dropped,
        strata=by_kind(before, after, kinds) if len(set(kinds.values())) > 1 else (),
    )


def flip_signs(differences: Sequence[float], seed: int = 0) -> float:
    """Return p of "the mean is 0 or less", one-sided: the share of ways to flip the signs whose sum
    is at least the one seen; 1 where that is not above 0. seed: see `_drawn`."""
    units, _ = _units([_exact(difference) for difference in differences])
    total = sum(units)
    return _flips(sorted(abs(u) for u in units if u), total, 0.1, seed)[0] / 2 if total > 0 else 1.0


def not_worse(before: Scores, after: Scores, *, margin: float, alpha: float = 0.10) -> str:
    """Return '' when the mean score (in 0..1) is not seen to fall, and a fall by `margin` or more
    is ruled out, else why not.

    A bet against the claim that the true mean difference is -margin or less: the stake grows by 1 +
    x * (difference + margin) a task, which under that claim is a fair game at best for every x up
    to 1 / (1 - margin); a mean over two such x reaches 2 / alpha in at most alpha/2 of trials,
    whatever the distribution (Waudby-Smith and Ramdas, Estimating means of bounded random variables
    by betting, 2024; Ville's inequality). Sign flips would not do here: where no task differs their
    interval is [0, 0], and five such tasks rule out nothing. With margin 0.10 it takes 30 tasks of
    which none got worse, or 74 of which one did.
    """
    pairs = [key for key in before if before[key] is not None and after.get(key) is not None]
    old = mean_by_task(before, pairs)
    new = mean_by_task(after, pairs)
    if len(before.keys() | after.keys()) - len(pairs) > MAX_DROPPED * len(
        before.keys() | after.keys()
    ):
        return "too many pairs were dropped"
    differences = [float(new[task] - old[task]) for task in old]
    if not differences or sum(differences) < -1e-9:
        return "its score is lower"
    if _stake(differences, margin) * alpha / 2 >= 1:
        return ""
    needed = next(n for n in itertools.count(1) if _stake([0.0] * n, margin) * alpha / 2 >= 1)
    return (
        f"{len(differences)} tasks do not rule out that its score falls by {margin:g} "
        f"({needed} tasks do of which none gets worse)"
    )


def _stake(differences: list[float], margin: float) -> float:
    """Return what a stake of 1 has become: most of it bet as boldly as can be, which one lost task
    ends, the rest less so."""
    return math.fsum(
        part * math.prod(1 + bet / (1 - margin) * (d + margin) for d in differences)
        for part, bet in _BETS
    )


def saving(
    before: Scores, after: Scores, *, unit: str, alpha: float = 0.10, seed: int = 0
) -> Saving | None:
    """Return what a task costs before and after, paired like the scores; None when nothing could be
    paired, or costs nothing.

    before, after: (task, repeat) -> `unit`s that the attempt took: usd, tokens, calls, seconds. The
    interval is the gate's own.
    """
    verdict = judge(before, after, alpha=alpha, seed=seed)
    if verdict.diff is None or verdict.lo is None or verdict.hi is None or not verdict.before:
        return None
    return Saving(
        unit=unit,
        before=verdict.before,
        after=verdict.after or 0.0,
        diff=verdict.diff,
        lo=verdict.lo,
        hi=verdict.hi,
        cheaper=verdict.tasks >= MIN_TASKS and verdict.hi < -LEAST_SAVING * verdict.before,
    )


def saved(found: Saving) -> str:
    """Return a saving in words."""
    form = {
        "usd": "${:.4f}",
        "tokens": "{:,.0f} tokens",
        "calls": "{:.1f} calls",
        "seconds": "{:.1f} s",
    }[found.unit]
    share = [f"{value / found.before:+.0%}" for value in (found.diff, found.lo, found.hi)]
    return (
        f"{form.format(found.before)} -> {form.format(found.after)} a task, {share[0]} [{share[1]},"
        f" {share[2]}]"
    )


def alone(scores: Scores, reason: str, top: str = "") -> Verdict:
    """Return the score of one agent as a verdict on no change at all: before and after are the
    same. top: why nothing could be better, where that is so; then it is `not-better`."""
    held = {key: score for key, score in scores.items() if score is not None}
    top = top if held else ""
    verdict = unjudged("not-better" if top else "undecided", top or reason, len(scores) - len(held))
    if not held:
        return verdict
    tasks = mean_by_task(held, list(held))
    mean = float(sum(tasks.values(), Fraction(0)) / len(tasks))
    same = {"before": mean, "after": mean, "diff": 0.0, "lo": 0.0, "hi": 0.0}
    return verdict.model_copy(
        update={**same, "tasks": len(tasks), "repeats": len({repeat for _, repeat in held})}
    )


def by_kind(before: Scores, after: Scores, kinds: Mapping[str, str]) -> tuple[Stratum, ...]:
    """Mean scores of both on the tasks of each kind that both have, over the same repeats; a task
    that is not in `kinds` is left out."""
    parts: dict[str, list[tuple[str, int]]] = {}
    for place in before:
        if place[0] in kinds and before[place] is not None and after.get(place) is not None:
            parts.setdefault(kinds[place[0]], []).append(place)
    found = []
    for name, places in sorted(parts.items()):
        old = mean_by_task(before, places)
        new = mean_by_task(after, places)
        sides = (float(sum(side.values(), Fraction(0)) / len(side)) for side in (old, new))
        found.append(Stratum(name=name, tasks=len(old), before=next(sides), after=next(sides)))
    return tuple(found)


def unjudged(verdict: Decision, reason: str, dropped: int = 0) -> Verdict:
    """Return a verdict without scores: nothing was compared, and why."""
    nothing: JsonDict = dict.fromkeys(("before", "after", "diff", "lo", "hi", "p"))
    return Verdict(**nothing, tasks=0, repeats=0, dropped=dropped, verdict=verdict, reason=reason)


def interval(scores: Scores, *, alpha: float = 0.10) -> tuple[float, float, float]:
    """Return (mean, lo, hi) of one agent's mean score over tasks, repeats averaged within a task.

    For scores in 0..1: Wilson's interval, with the number of tasks n replaced by the number of
    yes-or-no tasks that would be as certain, mean * (1 - mean) / (variance of the mean); it is
    never below n, nor above n * repeats. With one repeat of 0 or 1 that is exactly Wilson's; with
    repeats, Student's quantile is used. For other scores: Student's t. Raises BadInput when nothing
    was scored.
    """
    values = mean_by_task(scores, [key for key, score in scores.items() if score is not None])
    if not values:
        raise BadInput(
            "no attempt was scored", fix="see which attempts were excluded", code="no-scores"
        )
    n = len(values)
    means = [float(value) for value in values.values()]
    mean = math.fsum(means) / n
    spread = math.fsum((m - mean) ** 2 for m in means) / n
    z = NormalDist().inv_cdf(1 - alpha / 2)
    if not all(0 <= score <= 1 for score in scores.values() if score is not None):
        half = student_quantile(n, alpha) * math.sqrt(spread / max(n - 1, 1))
        return mean, mean - half, mean + half
    repeats = sum(score is not None for score in scores.values()) / n
    worth = min(n * repeats, mean * (1 - mean) * n / spread) if spread else float(n)
    worth = max(float(n), worth)
    if repeats > 1:
        z = student_quantile(n, alpha)  # the variance between few tasks is itself uncertain
    middle = (mean + z * z / (2 * worth)) / (1 + z * z / worth)
    half = (
        z / (1 + z * z / worth) * math.sqrt(mean * (1 - mean) / worth + z * z / (4 * worth * worth))
    )
    return mean, max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half))


def pass_hat(passes: Mapping[tuple[str, int], bool]) -> dict[int, float]:
    """Return pass^k for k from 1 to the most repeats a task has: the chance that k attempts at a
    task all pass, over tasks.

    passes: (task, repeat) -> whether it passed. Of c passes in n attempts C(c, k) / C(n, k) is
    unbiased for one task (tau-bench, Yao et al. 2024, arXiv 2406.12045, section 4); tasks with
    fewer than k attempts are left out of that k. pass^1 is pass@1, the mean share of passes (Chen
    et al. 2021, arXiv 2107.03374).
    """
    by_task: dict[str, list[bool]] = {}
    for (task, _), passed in passes.items():
        by_task.setdefault(task, []).append(passed)
    counts = [(sum(each), len(each)) for each in by_task.values()]
    found = {}
    for k in range(1, max((n for _, n in counts), default=0) + 1):
        shares = [math.comb(c, k) / math.comb(n, k) for c, n in counts if n >= k]
        found[k] = math.fsum(shares) / len(shares)
    return found


def mean_by_task(scores: Scores, keys: list[tuple[str, int]]) -> dict[str, Fraction]:
    """Return each task's mean score, exactly: 0.1 is one tenth, so that equal results tie."""
    found: dict[str, list[Fraction]] = {}
    for key in keys:
        score = scores[key]
        assert score is not None
        found.setdefault(key[0], []).append(_exact(score))
    return {task: sum(values[1:], values[0]) / len(values) for task, values in found.items()}


@lru_cache(maxsize=1024)
def _exact(score: float) -> Fraction:
    return Fraction(score).limit_denominator(1_000_000)


def _units(differences: list[Fraction]) -> tuple[list[int], int]:
    """Return (the differences in whole units, how many units make 1): no rounding below decides
    between equal sums."""
    scale = math.lcm(*(d.denominator for d in differences))
    if scale > 10**9:
        scale = 10**12
    return [round(d * scale) for d in differences], scale


def _flips(units: list[int], observed: int, alpha: float, seed: int) -> tuple[float, int]:
    """Return (two-sided p, reach) of the sum of `units` (sizes, none 0) under random signs;
    `observed` is a size too.

    reach: the smallest sum that is exceeded in at most alpha/2 of the flips.
    """
    if not units:
        return 1.0, 0
    count = len(units)
    exact = len(units) <= EXACT_TASKS
    if 2 * sum(units) * (count + 8) <= _MAX_BITS and not (exact and 2**count <= sum(units)):
        sums = _counted(units)
    elif exact:
        sums = _listed(units)
    else:
        sums = _drawn(units, observed, seed)
    total = sum(count for _, count in sums)
    room = math.floor(Fraction(alpha / 2).limit_denominator(10**6) * total)
    above = 0
    as_far = 0
    reach = None
    for value, count in sums:  # from the largest down
        if reach is None and above + count > room:
            reach = value
        above += count
        if value >= observed:
            as_far += count
    return (min(1.0, 2 * as_far / total) if observed else 1.0), reach or 0


def _counted(units: list[int]) -> list[tuple[int, int]]:
    """Return all sums with how many flips give them, largest first: one big integer holds the
    counts side by side."""
    width = (len(units) + 8) // 8
    # read at once, where that goes
    form = next((form for form in "BHIQ" if struct.calcsize(f"<{form}") >= width), "")
    width = struct.calcsize(f"<{form}") or width
    polynomial = 1
    for unit in units:
        polynomial += polynomial << (2 * unit * width * 8)
    top = sum(units)
    data = polynomial.to_bytes((2 * top + 1) * width, "little")
    if form:
        counts: Sequence[int] = struct.unpack(f"<{2 * top + 1}{form}", data)
    else:
        counts = [
            int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)
        ]
    return [(at - top, counts[at]) for at in range(2 * top, -1, -1) if counts[at]]


def _listed(units: list[int]) -> list[tuple[int, int]]:
    sums = [0]
    for unit in units:
        sums = [s + unit for s in sums] + [s - unit for s in sums]
    return [(value, 1) for value in sorted(sums, reverse=True)]


def _drawn(units: list[int], target: int, seed: int) -> list[tuple[int, int]]:
    """FLIPS sums in mirrored pairs, so that exchanging before and after only changes the sign; the
    observed is one.

    Drawn by tables of eight signs at a time: 20 000 flips of 100 tasks take a tenth of a second.
    """
    tables = []
    for start in range(0, len(units), 8):
        part = [0]
        for unit in units[start : start + 8]:
            part = [s + unit for s in part] + [s - unit for s in part]
        tables.append(part)
    draw = random.Random(seed)
    half = [target, *(sum(draw.choice(table) for table in tables) for _ in range(FLIPS // 2 - 1))]
    return [(value, 1) for value in sorted([*half, *(-s for s in half)], reverse=True)]


def student_quantile(n: int, alpha: float) -> float:
    """Student's t quantile by the Cornish-Fisher expansion; the error is below 1 % from 4 degrees
    of freedom on."""
    z = NormalDist().inv_cdf(1 - alpha / 2)
    v = max(n - 1, 1)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
