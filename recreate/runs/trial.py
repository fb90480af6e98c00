"""A candidate's trial: validation tasks in an order fixed beforehand, a bet on each, an end when it is clear; pure.

The promise is one for a whole build: the chance that it keeps anything that does not help is at most `gate.false_keep`,
over all its rounds, candidates and reviews, whenever somebody looks and whenever it ends.

How. A task gives one difference d in [-1, 1], the candidate's mean over its repeats less its parent's. Against the
claim that the mean of d is m or less, a stake of 1 grows by 1 + x * ((d + 1) / (1 + m) - 1) a task: at best a fair game
under that claim, for each x in 0..1. The stake is spread evenly over several x (`bets`). By Ville's inequality it ever
reaches 1 / a in at most a share a of trials, so that looking after each task costs nothing, with scores of any kind and
tasks of any difficulty (Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B 2024).

    better       the stake against "no gain" has reached 1 / alpha, alpha being the candidate's share of the error
    not-better   the stake against "a gain of `gain` or more" has reached 1 / MISS, so that a gain worth finding is
                 ruled out; or the whole interval lies below 0; or it fails each time what its parent solves each time
    undecided    else: all tasks were tried, or none that is left could still show a gain

    lo, hi       the m that such stakes leave possible, each end at the candidate's alpha, at every time at once; lo is
                 above 0 exactly where it is better
    p            1 / the largest stake against "no gain": at most alpha where it is better

The shares of candidates add up to `gate.false_keep` at most (`share`), and so do their errors, however alike they are
and whatever made them (Bonferroni). Two things are assumed: that the validation tasks stand for others like them, and
that no candidate is made from the very scores that judge it: of validation an optimizer is told means and verdicts, no
task. That a parent's scores serve for each of its candidates breaks nothing: each bet is fair by itself.

`python -m tests.evidence` simulates it; figures in docs/log.md.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import mul, not_
from typing import Any, NamedTuple

from pydantic import Field

from recreate.api.types import Decision, Record, Stratum, Verdict
from recreate.runs.gate import MAX_DROPPED, Scores, ceiling, unjudged
from recreate.runs.settings import Gate

BETS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Small ones grow on small gains over many tasks, large ones on a few tasks that are all won; one loss ends 1.0. Of
eight spreads tried these find the smallest gains from 20 to 100 tasks, within 0.01."""

BOLD = (1.0,)
"""The bet of a trial of few tasks, which only a candidate that loses none can win: n wins are as certain as n heads."""

MISS = 0.2
"""How often a trial may be ended for want of a gain that is there. At 0.1 candidates that do nothing take 35 % of the
tasks and not 25 %, and the gain that is found eight times in ten falls by 0.02 only."""

RELIABLE = 3
"""From so many repeats on, a task that is solved in each is one that an agent solves reliably: a candidate that fails
it in each is not kept."""

POWER = 0.80
"""How often the gate keeps the gain that `detectable` names."""

EXTRA = 0.2
"""The part of the build's error that is left for candidates beyond one a round: a population's, and people's edits."""

DRAWS = 800
LATTICE = 60
"""Up to so many tasks the chances are reckoned task by task; beyond, gains shrink with the root of their number."""


def share(gate: Gate, rounds: int, *, of: int = 1, extra: int = 0) -> float:
    """What a candidate may spend of the build's `gate.false_keep`: all together spend no more, however many come.

    of: how many candidates its round has, in how many rounds (`decidable`); extra: of one beyond those, such as a
    person's edit, its number from 1. Where candidates are kept as cheaper too, that is a second way to be wrong, and
    takes half.
    """
    part = EXTRA / (extra * (extra + 1)) if extra else (1 - EXTRA) / max(1, rounds) / of
    return gate.false_keep * part / (2 if gate.cheaper else 1)


def decidable(gate: Gate, tasks: int, rounds: int) -> int:
    """Over how many of the rounds the build's error is spread: over all, or as many as so few tasks can decide; 0 when
    not even one."""
    return next((n for n in range(max(1, rounds), 0, -1) if wins(tasks, share(gate, n)) <= tasks), 0)


def room(gate: Gate, rounds: int, before: Scores, seed: int = 0) -> str:
    """Why no candidate could be `better` than these scores (in 0..1), '' when one could."""
    if not gate.false_keep:
        return ceiling(before, alpha=gate.alpha, seed=seed)
    over = decidable(gate, len({task for task, _ in before}), rounds)
    return no_room(before, alpha=share(gate, over))


class Terms(Record):
    """How a candidate is judged, in the journal before its first attempt: see `trial`.

    round: of the build, from 0; of: how many candidates the round has, 0 for a person's edit; order: of the tasks' ids;
    strata: task -> what it is counted with, where there are several.
    """

    candidate: str
    parent: str
    round: int
    of: int
    alpha: float = Field(gt=0, lt=1)
    gain: float = Field(gt=0, le=1)
    repeats: int = Field(ge=1, le=1000)
    order: tuple[str, ...]
    strata: Mapping[str, str] = Field(default={}, exclude_if=not_)


def tried(terms: Terms, before: Scores, after: Scores, *, whole: bool = False) -> tuple[Verdict, bool]:
    """`trial` on these terms, split by stratum; a loss in one beside a gain in another is said."""
    given: dict[str, Any] = {"repeats": terms.repeats, "alpha": terms.alpha, "gain": terms.gain}
    verdict, settled = trial(before, after, terms.order, **given, whole=whole)
    if not terms.strata or verdict.diff is None:
        return verdict, settled
    parts: dict[str, dict[str, list[tuple[str, int]]]] = {}
    left = verdict.tasks
    for task in terms.order:
        places = [(task, repeat) for repeat in range(terms.repeats)]
        pairs = [place for place in places if before.get(place) is not None and after.get(place) is not None]
        if pairs and left:
            parts.setdefault(terms.strata.get(task, ""), {})[task] = pairs
            left -= 1
    strata = []
    for name, tasks in sorted(parts.items()):
        sides = [math.fsum(_mean(side, pairs) for pairs in tasks.values()) / len(tasks) for side in (before, after)]
        strata.append(Stratum(name=name, tasks=len(tasks), before=sides[0], after=sides[1]))
    lost, won = ([s for s in strata if (s.after - s.before) * sign > 0] for sign in (-1, 1))
    reason = verdict.reason
    if lost and won:
        told = [f"{s.name} {s.after - s.before:+.2f} on {s.tasks}" for s in (*won, *lost)]
        reason = f"a gain in one kind of task with a loss in another ({', '.join(told)})" + (
            f"; {reason}" if reason else ""
        )
    return verdict.model_copy(update={"strata": tuple(strata), "reason": reason}), settled


def trial(
    before: Scores,
    after: Scores,
    order: Sequence[str],
    *,
    repeats: int,
    alpha: float,
    gain: float,
    whole: bool = False,
) -> tuple[Verdict, bool]:
    """(the verdict on the tasks that have all their scores, in this order; whether it is settled). What comes after the
    task that settled it is not looked at.

    before: the parent's scores (0..1) of all tasks; after: the candidate's so far; None in either: excluded. gain: what
    is worth finding, see `detectable`; from 1 on nothing is ruled out. whole: what was settled stays so, and scores and
    interval are of all tasks that have been scored since.
    """
    needed, given_up = -math.log(alpha), -math.log(MISS)
    spread = bets(len(order), alpha)
    hopes = _hopes(before, order, repeats, spread)
    up, down = _Stake(0.0, spread), _Stake(-gain) if gain < 1 else None
    differences, used = list[float](), list[tuple[str, int]]()
    tried = lost = dropped = 0
    decision: Decision = "undecided"
    reason, broken, ended = "", 0, 0
    for task in order:
        places = [(task, repeat) for repeat in range(repeats)]
        if any(place not in after for place in places):
            break
        tried += 1
        pairs = [place for place in places if before.get(place) is not None and after[place] is not None]
        dropped += len(places) - len(pairs)
        lost += not pairs
        if pairs:
            used += pairs
            differences.append(_mean(after, pairs) - _mean(before, pairs))
            up.bet(differences[-1])
            if down is not None:
                down.bet(-differences[-1])
            broken += repeats >= RELIABLE and differences[-1] == -1
        if ended:
            continue
        if lost > MAX_DROPPED * len(order):
            reason = f"of {lost} of {len(order)} tasks no pair was scored, more than {MAX_DROPPED:.0%}"
        elif up.log >= needed and broken:
            decision, reason = (
                "not-better",
                f"it fails each time {broken} of the tasks that its parent solves each time",
            )
        elif up.log >= needed:
            decision = "better"
        elif down is not None and down.log >= given_up:
            decision, reason = "not-better", f"a gain of {gain:+.2f} or more is ruled out"
        elif up.with_hope(hopes[tried]) < needed:
            reason = "no task that is left could still show a gain" if tried < len(order) else ""
        else:
            continue
        ended = tried
        if not whole:
            break
    settled = bool(ended) or tried == len(order)
    if not differences:
        return unjudged("undecided", "no task was scored on both sides", dropped), settled
    lo, hi = _lowest(differences, alpha, spread), -_lowest([-d for d in differences], alpha, spread)
    lo = max(lo, 1e-6) if decision == "better" else min(lo, 0.0)  # a bisection ends beside the true end
    if decision == "undecided" and hi < 0:
        decision, reason = "not-better", "it is worse"
    if 0 < ended < len(order):
        reason = f"{reason or 'clear'} after {ended} of {len(order)} tasks"
    return Verdict(
        before=_mean(before, used),
        after=_mean(after, used),
        diff=math.fsum(differences) / len(differences),
        lo=lo,
        hi=hi,
        p=min(1.0, math.exp(-up.log)),
        tasks=len(differences),
        repeats=repeats,
        verdict=decision,
        reason=reason or ("" if decision == "better" else f"{len(differences)} tasks do not tell it from no gain"),
        dropped=dropped,
        alpha=alpha,
    ), settled


def no_room(before: Scores, *, alpha: float) -> str:
    """Why no outcome could be `better` than these scores (in 0..1), '' when one could."""
    tasks: dict[str, list[float]] = {}
    for (task, _), score in before.items():
        tasks.setdefault(task, []).append(score or 0.0)
    if not tasks:
        return "no outcome could be better: there is no task"
    means = [math.fsum(scores) / len(scores) for scores in tasks.values()]
    stake = _Stake(0.0, bets(len(means), alpha))
    for mean in means:
        stake.bet(max(0.0, 1 - mean))
    if stake.log >= -math.log(alpha):
        return ""
    room = sum(mean < 1 for mean in means)
    left = "every task is solved" if not room else f"{room} of {len(means)} tasks leave room above it"
    return (
        f"no outcome could be better: the score is {math.fsum(means) / len(means):.3f}, {left}, and the gate keeps "
        f"nothing that improves fewer than {wins(len(means), alpha)}"
    )


def bets(tasks: int, alpha: float) -> tuple[float, ...]:
    """How the stake of a trial of so many tasks is spread: by nothing that is seen in it."""
    return BOLD if tasks < 3 * math.ceil(math.log2(1 / alpha)) else BETS


def wins(tasks: int, alpha: float) -> int:
    """How many tasks must go from 0 to 1, with none lost, before a candidate is kept; it may be more than all."""
    stake, number = _Stake(0.0, bets(tasks, alpha)), 0
    while stake.log < -math.log(alpha):
        stake.bet(1.0)
        number += 1
    return number


class _Stake:
    """What a stake of 1 against "the mean is `mean` or less" has become; log: of the largest that it has been."""

    def __init__(self, mean: float, bets: tuple[float, ...] = BETS) -> None:
        self.bets = bets
        self.scale = 1 / max(1 + mean, 1e-9)
        self.parts = [0.0] * len(bets)
        self.log = 0.0

    def bet(self, difference: float) -> None:
        self.parts = [
            part + grown for part, grown in zip(self.parts, _grows(difference, self.bets, self.scale), strict=True)
        ]
        self.log = max(self.log, _whole(self.parts))

    def with_hope(self, hope: Sequence[float]) -> float:
        """The log after the best that can still come."""
        return _whole([part + more for part, more in zip(self.parts, hope, strict=True)])


@lru_cache(maxsize=10_000)
def _grows(difference: float, bets: tuple[float, ...], scale: float = 1.0) -> tuple[float, ...]:
    ahead = (difference + 1) * scale - 1
    return tuple(math.log(grown) if (grown := 1 + x * ahead) > 1e-12 else -math.inf for x in bets)


def _whole(parts: Sequence[float]) -> float:
    top = max(parts)
    return top + math.log(math.fsum(math.exp(part - top) for part in parts) / len(parts)) if top > -math.inf else top


def _hopes(before: Scores, order: Sequence[str], repeats: int, bets: tuple[float, ...]) -> list[list[float]]:
    """How much each part grows at best from the n-th task on: where every task ends solved."""
    hopes = [[0.0] * len(bets)]
    for task in reversed(order):
        scores = [before.get((task, repeat)) for repeat in range(repeats)]
        held = [score for score in scores if score is not None]
        best = max(0.0, 1 - min(held)) if held else 0.0  # of what is excluded on the other side nothing is known yet
        hopes.append([hope + more for hope, more in zip(hopes[-1], _grows(best, bets), strict=True)])
    return hopes[::-1]


def _lowest(differences: Sequence[float], alpha: float, bets: tuple[float, ...]) -> float:
    """The largest m in -1..1 at which "the mean is m or less" is ruled out: a stake falls as its m rises."""
    low, high = -1.0, 1.0
    for _ in range(24):
        middle = (low + high) / 2
        stake = _Stake(middle, bets)
        for difference in differences:
            stake.bet(difference)
            if stake.log >= -math.log(alpha):
                low = middle
                break
        else:
            high = middle
    return low


def _mean(scores: Scores, places: Sequence[tuple[str, int]]) -> float:
    return math.fsum(scores[place] or 0.0 for place in places) / len(places)


# ---------------------------------------------------------------------------------- what a trial finds, and costs


class Odds(NamedTuple):
    """kept: how often a candidate is kept; tasks: how many it is tried on, in the mean."""

    kept: float
    tasks: float


SPREAD = 0.5
"""The part of the variance of a yes-or-no score that lies between tasks, where nobody measured it (`calibrate`)."""


def spread_of(within: float, between: float) -> float:
    """That part, of variances that were measured; kept off the ends, which few tasks cannot prove."""
    return min(0.95, max(0.05, between / (within + between))) if within + between > 0 else SPREAD


def odds(
    tasks: int, repeats: int, base_rate: float, gain: float, *, alpha: float, worth: float, spread: float = SPREAD
) -> Odds:
    """Of a candidate with this true gain, in trials of so many tasks that look for a gain of `worth`.

    For yes-or-no scores. Assumed: tasks differ in difficulty (`spread`), and the agent gains the same share of what
    each task still lets it gain. Reckoned over all outcomes with one repeat, else drawn DRAWS times from one seed.
    """
    if repeats == 1:
        return _reckoned(tasks, (1 - spread) * base_rate * (1 - base_rate), base_rate, gain, alpha, worth)
    return _drawn(tasks, repeats, 1 / spread - 1, base_rate, gain, alpha, worth)


def _reckoned(tasks: int, within: float, base_rate: float, gain: float, alpha: float, worth: float) -> Odds:
    part, left = gain / (1 - base_rate), 1 - base_rate
    won, lost = part * left + (1 - part) * within, (1 - part) * within
    kept = mean = 0.0
    stakes, needed = bets(tasks, alpha), -math.log(alpha)
    states = {(0, 0): 1.0}
    for number in range(1, tasks + 1):
        mean += math.fsum(states.values())
        ahead: dict[tuple[int, int], float] = {}
        for (up, down), chance in states.items():
            for place, share_ in (((up + 1, down), won), ((up, down + 1), lost), ((up, down), 1 - won - lost)):
                if share_ > 0:
                    ahead[place] = ahead.get(place, 0.0) + chance * share_
        states = {}
        for (up, down), chance in ahead.items():
            if chance < 1e-9:
                continue
            open = worth >= 1 or _counted(down, up, number - up - down, -worth, BETS) < -math.log(MISS)
            if _counted(up, down, 0, 0.0, stakes) >= needed:
                kept += chance
            elif open and _counted(up + tasks - number, down, 0, 0.0, stakes) >= needed:
                states[up, down] = chance
    return Odds(kept, mean)


def _drawn(tasks: int, repeats: int, shape: float, base_rate: float, gain: float, alpha: float, worth: float) -> Odds:
    draw, stakes = random.Random(0), bets(tasks, alpha)
    steps = [n / repeats for n in range(-repeats, repeats + 1)]
    ups = [tuple(1 + x * d for x in stakes) for d in steps]
    downs = [tuple(1 + x * ((1 - d) / max(1 - worth, 1e-9) - 1) for x in BETS) for d in steps]
    enough, hopeless = len(stakes) / alpha, len(BETS) / MISS if worth < 1 else math.inf
    kept, tried, part = 0, 0, gain / (1 - base_rate)
    a, b = shape * base_rate, shape * (1 - base_rate)
    rates = [draw.betavariate(a, b) for _ in range(2000)] if a > 0 else [base_rate]
    for _ in range(DRAWS):
        up, down = (1.0,) * len(stakes), (1.0,) * len(BETS)
        for _ in range(tasks):
            rate = rates[int(draw.random() * len(rates))]
            better = rate + part * (1 - rate)
            at = repeats + sum((draw.random() < better) - (draw.random() < rate) for _ in range(repeats))
            tried += 1
            up = tuple(map(mul, up, ups[at]))
            down = tuple(map(mul, down, downs[at]))
            if sum(up) >= enough:
                kept += 1
                break
            if sum(down) >= hopeless:
                break
    return Odds(kept / DRAWS, tried / DRAWS)


def detectable(tasks: int, repeats: int, base_rate: float, alpha: float, spread: float = SPREAD) -> float:
    """The smallest true gain in the mean score that a trial keeps with probability POWER; 1.0 when there is none."""
    if not 0 <= base_rate < 1 or tasks < 1:
        return 1.0
    most = min(tasks, LATTICE)
    found = _detectable(most, repeats, base_rate, alpha, spread)
    return found if found >= 1 else found * math.sqrt(most / tasks)


@lru_cache(maxsize=1024)
def _detectable(tasks: int, repeats: int, base_rate: float, alpha: float, spread: float) -> float:
    def found(gain: float) -> bool:
        return odds(tasks, repeats, base_rate, gain, alpha=alpha, worth=gain, spread=spread).kept >= POWER

    low, high = 0.0, 1 - base_rate
    if not found(min(high, 0.999)):
        return 1.0
    while high - low > 0.005:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


@lru_cache(maxsize=200_000)
def _counted(won: int, lost: int, tied: int, mean: float, bets: tuple[float, ...]) -> float:
    """The log of the stake against "the mean is `mean` or less" after so many tasks of each kind."""
    win, loss, tie = (_grows(d, bets, 1 / (1 + mean)) for d in (1.0, -1.0, 0.0))
    parts = [
        w * won + (tied * t if tied else 0.0) + (lost * x if lost else 0.0)
        for w, x, t in zip(win, loss, tie, strict=True)
    ]
    return _whole(parts)
