"""A candidate's trial: validation tasks in an order fixed beforehand, a bet on each, an end when it
is clear; pure.

The promise is one for a whole build: the chance that it keeps anything that does not help is at
most `gate.false_keep`, over all its rounds, candidates and reviews, whenever somebody looks and
whenever it ends.

How. A task gives one difference d in [-1, 1], the candidate's mean over its repeats less its
parent's. The trial owns a stake of `alpha`, its candidate's share of the error. On each task a part
x in 0..1 of it, chosen before the task is seen, is bet: it grows by 1 + x * d. Where the mean of d
is 0 or less that is at best a fair game, whatever the scores are and however x is chosen, so that
by Ville's inequality the stake reaches 1 in at most a share `alpha` of trials, and looking after
each task costs nothing (Waudby-Smith and Ramdas, Estimating means of bounded random variables by
betting, JRSS B 2024). How x is chosen decides what is found, not what is promised (`_Deadline`):
the trial ends with its last task, and a stake that cannot have reached 1 by then is lost; so the
stake is held at the chance that a walk without drift and with the variance seen so far would still
come up to what is needed, in the tasks that are left. That is 2 * (1 - Phi(u)) by reflection, u
being the way to go in standard deviations, which makes x the hazard of u over the deviation of what
is left (the hedge of a digital option: Browne, Reaching goals by a deadline, Adv. Appl. Prob. 1999;
the boundary of O'Brien and Fleming, Biometrics 1979). On yes-or-no scores it finds nearly what the
paired test of all tasks finds, at the same error.

    better       the stake has reached 1
    not-better   bets against "a gain of `gain` or more" (`BETS`) have made 1 / MISS of 1, so that a
                 gain worth finding is ruled out; or the whole interval lies below 0; or it fails
                 each time what its parent solves each time, in RELIABLE repeats or more: with fewer
                 nothing is held against it, since luck does that too
    undecided    else: all tasks were tried, or none that is left could still show a gain

    lo, hi       the m that a stake spread over `BETS` leaves possible, bet against "the mean is m
                 or less" (or more):
                 each end at alpha, at every time at once. lo is above 0 exactly where it is better,
                 which is a second way for it to be wrong of an agent that does not help
    p            alpha / the largest that the stake was: alpha where it is better, since no more is
                 bet than is needed

The shares of candidates add up to `gate.false_keep` at most (`share`), and so do their errors,
however alike they are and whatever made them (Bonferroni). Two things are assumed: that the
validation tasks stand for others like them, and that no candidate is made from the very scores that
judge it: of validation an optimizer is told means and verdicts, no task. That a parent's scores
serve for each of its candidates breaks nothing: each candidate has a share of its own, and shares
add up. It does forbid to carry what is left of a stake on to the next candidate (alpha investing,
one wealth for all trials): scores that were low by luck would help every one of them, so that a
stake could grow on the luck that the last one left. Only the share of a candidate that was kept
goes on, to the next one: if it helped, nothing was spent on it, and if not, the error is made (the
fallback of Tian and Ramdas, Online control of the familywise error rate, Stat. Methods Med. Res.
2021, which holds under any dependence).

`python -m tests.lab.evidence` simulates it; figures in docs/log.md.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from functools import lru_cache
from operator import mul
from statistics import NormalDist
from typing import NamedTuple

from recreate.api.shapes import JsonDict
from recreate.api.types import Decision, Verdict
from recreate.plugins.each.paired import ceiling, detectable_gain
from recreate.runs.gate import MAX_DROPPED, Scores, by_kind, unjudged
from recreate.runs.settings import Gate
from recreate.runs.terms import POWER, SPREAD, Terms, share

BETS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Small ones grow on small gains over many tasks, large ones on a few tasks that are all won; one
loss ends 1.0."""

FEW = 3
CAREFUL = 0.95
"""One bet takes at most this part, so that one loss does not end a trial; the whole only where
there are no more tasks than FEW times the wins in a row that it takes at the least, which leave
nothing to be careful with."""

MISS = 0.2
"""How often a trial may be ended for want of a gain that is there. At 0.1 candidates that do
nothing take 35 % of the tasks and not 25 %, and the gain that is found eight times in ten falls by
0.02 only."""

RELIABLE = 3
"""From so many repeats on, a task that is solved in each is one that an agent solves reliably: a
candidate that fails it in each is not kept."""

DRAWS = 1000
ALIKE = 8
"""So many first tasks of a draw are reckoned once for all draws that begin with the same
differences."""

LATTICE = 60
"""Up to so many tasks the chances are reckoned task by task; beyond, gains shrink with the root of
their number."""


def decidable(gate: Gate, tasks: int, rounds: int) -> int:
    """Over how many of the rounds the build's error is spread: over all, or as many as so few tasks
    can decide; 0 when not even one."""
    return next(
        (n for n in range(max(1, rounds), 0, -1) if wins(tasks, share(gate, n)) <= tasks), 0
    )


def room(gate: Gate, rounds: int, before: Scores, seed: int = 0) -> str:
    """Return why no candidate could be `better` than these scores (in 0..1), '' when one could."""
    if not gate.false_keep:
        return ceiling(before, alpha=gate.alpha, seed=seed)
    over = decidable(gate, len({task for task, _ in before}), rounds)
    return no_room(before, alpha=share(gate, over))


def handed_on(known: Sequence[Terms], better: Collection[str]) -> float:
    """Return what the next candidate may spend besides its own share: all that the last one might,
    where that was kept as better. known: the terms so far, in their order; better: the candidates
    that were kept so."""
    return known[-1].alpha if known and known[-1].candidate in better else 0.0


def tried(
    terms: Terms, before: Scores, after: Scores, *, whole: bool = False
) -> tuple[Verdict, bool]:
    """Return what `trial` says on these terms, split by stratum; a loss in one beside a gain in
    another is said."""
    given: JsonDict = {
        "repeats": terms.repeats,
        "alpha": terms.alpha,
        "gain": terms.gain,
    }
    verdict, settled = trial(before, after, terms.order, **given, whole=whole)
    if not terms.strata or verdict.diff is None:
        return verdict, settled
    old, new = (
        {at: s for at, s in side.items() if at[1] < terms.repeats} for side in (before, after)
    )
    paired = {at[0] for at, score in old.items() if score is not None and new.get(at) is not None}
    counted = [task for task in terms.order if task in paired][: verdict.tasks]
    strata = by_kind(old, new, {task: terms.strata.get(task, "") for task in counted})
    lost, won = ([s for s in strata if (s.after - s.before) * sign > 0] for sign in (-1, 1))
    reason = verdict.reason
    if lost and won:
        told = ", ".join(map(str, (*won, *lost)))
        reason = f"a gain in one kind of task with a loss in another ({told})" + (
            f"; {reason}" if reason else ""
        )
    return verdict.model_copy(update={"strata": strata, "reason": reason}), settled


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
    """Return (the verdict on the tasks that have all their scores, in this order; whether it is
    settled). What comes after the task that settled it is not looked at.

    before: the parent's scores (0..1) of all tasks; after: the candidate's so far; None in either:
    excluded. gain: what is worth finding, see `detectable`; from 1 on nothing is ruled out. whole:
    what was settled stays so, and scores and interval are of all tasks that have been scored since.
    """
    walk = _Walk(before, after, order, repeats, alpha, gain)
    end = _End("undecided", "")
    ended = 0
    for task in order:
        if not walk.takes(task):
            break
        found = None if ended else walk.end()
        if found is not None:
            end = found
            ended = walk.tried
            if not whole:
                break
    settled = bool(ended) or walk.tried == len(order)
    if not walk.differences:
        return unjudged("undecided", "no task was scored on both sides", walk.dropped), settled
    return walk.verdict(end, ended), settled


class _End(NamedTuple):
    decision: Decision
    reason: str


class _Walk:
    """A trial on its way: what its tasks so far have told.

    tried: tasks with all their scores; sides: the means of both of those that have a pair; lost:
    those without one; dropped: pairs that were excluded; broken: tasks that the parent solves each
    time, and the candidate never.
    """

    def __init__(
        self,
        before: Scores,
        after: Scores,
        order: Sequence[str],
        repeats: int,
        alpha: float,
        gain: float,
    ) -> None:
        self.before = before
        self.after = after
        self.order = order
        self.repeats = repeats
        self.alpha = alpha
        self.gain = gain
        self.up = _Deadline(len(order), alpha)
        self.down = _Stake(-gain) if gain < 1 else None
        self.hopes = _hopes(before, order, repeats, self.up.bets)
        self.differences = list[float]()
        self.sides = list[tuple[float, float]]()
        self.tried = self.lost = self.dropped = self.broken = 0

    def takes(self, task: str) -> bool:
        """Bet on the next task; False where a score of it is still to come."""
        places = [(task, repeat) for repeat in range(self.repeats)]
        if any(place not in self.after for place in places):
            return False
        self.tried += 1
        self.up.left = len(self.order) - self.tried + 1
        pairs = [
            place
            for place in places
            if self.before.get(place) is not None and self.after[place] is not None
        ]
        self.dropped += len(places) - len(pairs)
        self.lost += not pairs
        if pairs:
            before = _mean(self.before, pairs)
            after = _mean(self.after, pairs)
            difference = after - before
            self.sides.append((before, after))
            self.differences.append(difference)
            self.up.bet(difference)
            if self.down is not None:
                self.down.bet(-difference)
            self.broken += len(pairs) >= RELIABLE and difference == -1
        return True

    def end(self) -> _End | None:
        """Return how the trial ends here; None where it goes on."""
        needed = -math.log(self.alpha)
        all_of_them = len(self.order)
        if self.lost > MAX_DROPPED * all_of_them:
            why = (
                f"of {self.lost} of {all_of_them} tasks no pair was scored, more than"
                f" {MAX_DROPPED:.0%}"
            )
            return _End("undecided", why)
        if self.up.log >= needed and self.broken:
            why = f"it fails each time {self.broken} of the tasks that its parent solves each time"
            return _End("not-better", why)
        if self.up.log >= needed:
            return _End("better", "")
        if self.down is not None and self.down.log >= -math.log(MISS):
            return _End("not-better", f"a gain of {self.gain:+.2f} or more is ruled out")
        if self.up.with_hope(self.hopes[self.tried]) < needed:
            left = self.tried < all_of_them
            return _End("undecided", "no task that is left could still show a gain" if left else "")
        return None

    def verdict(self, end: _End, ended: int) -> Verdict:
        """Return the verdict on what was seen. ended: after how many tasks it was settled, 0 where
        it was not."""
        decision = end.decision
        reason = end.reason
        differences = self.differences
        lo = _lowest(differences, self.alpha)
        hi = -_lowest([-d for d in differences], self.alpha)
        # a bisection ends beside the true end
        lo = max(lo, 1e-6) if decision == "better" else min(lo, 0.0)
        if decision == "undecided" and hi < 0:
            decision = "not-better"
            reason = "it is worse"
        if 0 < ended < len(self.order):
            reason = f"{reason or 'clear'} after {ended} of {len(self.order)} tasks"
        return Verdict(
            before=math.fsum(before for before, _ in self.sides) / len(self.sides),
            after=math.fsum(after for _, after in self.sides) / len(self.sides),
            diff=math.fsum(differences) / len(differences),
            lo=lo,
            hi=hi,
            p=self.up.p,
            tasks=len(differences),
            repeats=self.repeats,
            verdict=decision,
            reason=reason
            or (
                ""
                if decision == "better"
                else f"{len(differences)} tasks do not tell it from no gain"
            ),
            dropped=self.dropped,
            alpha=self.alpha,
        )


def no_room(before: Scores, *, alpha: float) -> str:
    """Return why no outcome could be `better` than these scores (in 0..1), '' when one could."""
    tasks: dict[str, list[float]] = {}
    for (task, _), score in before.items():
        tasks.setdefault(task, []).append(score or 0.0)
    if not tasks:
        return "no outcome could be better: there is no task"
    means = [math.fsum(scores) / len(scores) for scores in tasks.values()]
    most = _Deadline(len(means), alpha).bets[0]
    if (
        math.fsum(math.log1p(most * max(0.0, 1 - mean)) for mean in means)
        >= -math.log(alpha) - 1e-9
    ):
        return ""
    room = sum(mean < 1 for mean in means)
    left = (
        "every task is solved" if not room else f"{room} of {len(means)} tasks leave room above it"
    )
    return (
        f"no outcome could be better: the score is {math.fsum(means) / len(means):.3f}, {left}, and"
        " the gate keeps nothing that improves fewer than"
        f" {math.ceil(-math.log(alpha) / math.log1p(most) - 1e-9)}"
    )


@lru_cache(maxsize=1024)
def wins(tasks: int, alpha: float) -> int:
    """Return how many tasks must go from 0 to 1 from the first on, none lost, before a candidate is
    kept; more than all where so few tasks decide nothing."""
    stake = _Deadline(tasks, alpha)
    for number in range(1, tasks + 1):
        stake.bet(1.0)
        if stake.log >= -math.log(alpha):
            return number
    return max(tasks + 1, math.ceil(math.log2(1 / alpha)))


class _Deadline:
    """What a stake of `alpha` has become that shall be 1 by the last task.

    top, log: the largest that it has been, and how much larger than alpha, as a log; left: the
    tasks that are left, the next one included; bets: the largest part that one bet may take.
    """

    def __init__(self, tasks: int, alpha: float) -> None:
        self.bets = (1.0 if tasks <= FEW * math.ceil(math.log2(1 / alpha)) else CAREFUL,)
        self.left = tasks
        self.alpha = alpha
        self.worth = alpha
        self.top = alpha
        # as if two tasks had been seen, whose differences vary by 0.25
        self.weight = 2.0
        self.squares = 0.5
        self.steps = self.size = 0.0
        self.later: dict[float, _Deadline] = {}

    def after(self, difference: float) -> _Deadline:
        """Return what it becomes by the next difference; reckoned once, and itself left as it
        is."""
        if (found := self.later.get(difference)) is None:
            found = self.copy()
            found.bet(difference)
            self.later[difference] = found
        return found

    def copy(self) -> _Deadline:
        made = object.__new__(_Deadline)
        made.__dict__ |= self.__dict__ | {"later": {}}
        return made

    def stake(self) -> float:
        """Return the part that is bet on the next task: by what was seen before it. No more than
        reaches 1 by a step of the usual size."""
        if not 1e-12 < self.worth < 1:
            return 0.0
        way = NORMAL.inv_cdf(self.worth / 2)
        hazard = math.exp(-way * way / 2) / math.sqrt(2 * math.pi) / (self.worth / 2)
        enough = (1 / self.worth - 1) * (self.steps / self.size if self.size else 1.0)
        return min(
            self.bets[0], enough, hazard / math.sqrt(self.squares / self.weight * max(1, self.left))
        )

    def bet(self, difference: float) -> None:
        self.worth *= 1 + self.stake() * difference
        if self.worth > 1 - 1e-9:
            self.worth = max(1.0, self.worth)
        self.weight += 1
        self.squares += difference * difference
        self.steps += difference != 0
        self.size += abs(difference)
        self.left -= 1
        self.top = max(self.top, self.worth)

    @property
    def log(self) -> float:
        return math.log(self.top) - math.log(self.alpha)

    @property
    def p(self) -> float:
        return min(1.0, self.alpha / self.top)

    def with_hope(self, hope: Sequence[float]) -> float:
        """Return the log after more than the best that can still come: the most is bet each
        time."""
        return math.log(self.worth / self.alpha) + hope[0] + 1e-9 if self.worth > 0 else -math.inf


NORMAL = NormalDist()


class _Stake:
    """What a stake of 1 against "the mean is `mean` or less" has become; log: of the largest that
    it has been."""

    def __init__(self, mean: float) -> None:
        self.scale = 1 / max(1 + mean, 1e-9)
        self.parts = [0.0] * len(BETS)
        self.log = 0.0

    def bet(self, difference: float) -> None:
        self.parts = [
            part + grown
            for part, grown in zip(self.parts, _grows(difference, BETS, self.scale), strict=True)
        ]
        self.log = max(self.log, _whole(self.parts))


@lru_cache(maxsize=10_000)
def _grows(difference: float, bets: tuple[float, ...], scale: float = 1.0) -> tuple[float, ...]:
    ahead = (difference + 1) * scale - 1
    return tuple(math.log(grown) if (grown := 1 + x * ahead) > 1e-12 else -math.inf for x in bets)


def _whole(parts: Sequence[float]) -> float:
    top = max(parts)
    return (
        top + math.log(math.fsum(math.exp(part - top) for part in parts) / len(parts))
        if top > -math.inf
        else top
    )


def _hopes(
    before: Scores, order: Sequence[str], repeats: int, bets: tuple[float, ...]
) -> list[list[float]]:
    """Return how much each part grows at best from the n-th task on: where every task ends
    solved."""
    hopes = [[0.0] * len(bets)]
    for task in reversed(order):
        scores = [before.get((task, repeat)) for repeat in range(repeats)]
        held = [score for score in scores if score is not None]
        # of what is excluded on the other side nothing is known yet
        best = max(0.0, 1 - min(held)) if held else 0.0
        hopes.append(
            [hope + more for hope, more in zip(hopes[-1], _grows(best, bets), strict=True)]
        )
    return hopes[::-1]


def _lowest(differences: Sequence[float], alpha: float) -> float:
    """Return the largest m in -1..1 at which "the mean is m or less" is ruled out: a stake falls as
    its m rises."""
    low = -1.0
    high = 1.0
    for _ in range(24):
        middle = (low + high) / 2
        stake = _Stake(middle)
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


# ---------------------------------------------------------------------------------- what a trial
# finds, and costs


class Odds(NamedTuple):
    """kept: how often a candidate is kept; tasks: how many it is tried on, in the mean."""

    kept: float
    tasks: float


@lru_cache(maxsize=1024)
def odds(
    tasks: int,
    repeats: int,
    base_rate: float,
    gain: float,
    *,
    alpha: float,
    worth: float,
    spread: float = SPREAD,
) -> Odds:
    """Return the odds of a candidate with this true gain, in trials of so many tasks that look for
    a gain of `worth`.

    For yes-or-no scores. Assumed: tasks differ in difficulty (`spread`), and the agent gains the
    same share of what each task still lets it gain. Drawn DRAWS times from fixed seeds, so that it
    is reckoned once.
    """
    draw = random.Random(1)
    shape = 1 / spread - 1
    part = gain / (1 - base_rate)
    seen = [n / repeats for n in range(-repeats, repeats + 1)]
    downs = [tuple(1 + x * ((1 - d) / max(1 - worth, 1e-9) - 1) for x in BETS) for d in seen]
    hopeless = len(BETS) / MISS if worth < 1 else math.inf
    a = shape * base_rate
    b = shape * (1 - base_rate)
    rates = [draw.betavariate(a, b) for _ in range(2000)] if a > 0 and repeats > 1 else [base_rate]
    # once, over tasks of all difficulties
    lost = (1 - part) * (1 - spread) * base_rate * (1 - base_rate)
    won = lost + part * (1 - base_rate)

    def drawn(at: float) -> int:
        if repeats == 1:
            return 1 if at < won else -1 if at < won + lost else 0
        rate = rates[int(draw.random() * len(rates))]
        better = rate + part * (1 - rate)
        return sum((draw.random() < better) - (draw.random() < rate) for _ in range(repeats))

    kept = tried = 0
    for luck in _luck(tasks):
        up = _start(tasks, alpha)
        down = (1.0,) * len(BETS)
        for place, chance in enumerate(luck):
            at = drawn(chance)
            tried += 1
            if place < ALIKE:
                up = up.after(at / repeats)
            else:
                up = up.copy() if place == ALIKE else up
                up.bet(at / repeats)
            down = tuple(map(mul, down, downs[repeats + at]))
            if up.worth >= 1:
                kept += 1
                break
            if sum(down) >= hopeless or up.worth * 2**up.left < 1:
                break
    return Odds(kept / DRAWS, tried / DRAWS)


@lru_cache(maxsize=1)
def _start(tasks: int, alpha: float) -> _Deadline:
    """Shared by the draws of all gains that are tried in turn: most of them begin alike."""
    return _Deadline(tasks, alpha)


@lru_cache(maxsize=8)
def _luck(tasks: int) -> tuple[tuple[float, ...], ...]:
    """Return the same draws for every gain, so that a larger one is not found less often by
    chance."""
    draw = random.Random(0)
    return tuple(tuple(draw.random() for _ in range(tasks)) for _ in range(DRAWS))


def finds(
    gate: Gate, tasks: int, repeats: int, base_rate: float, rounds: int, spread: float
) -> float:
    """Return the smallest true gain that a build of so many rounds keeps with probability POWER;
    1.0 when there is none."""
    if not gate.false_keep:
        return detectable_gain(tasks, repeats, base_rate)
    alpha = share(gate, decidable(gate, tasks, rounds))
    return detectable(tasks, repeats, min(0.99, round(base_rate, 2)), alpha, spread)


def detectable(
    tasks: int, repeats: int, base_rate: float, alpha: float, spread: float = SPREAD
) -> float:
    """Return the smallest true gain in the mean score that a trial keeps with probability POWER;
    1.0 when there is none."""
    if not 0 <= base_rate < 1 or tasks < 1:
        return 1.0
    most = min(tasks, LATTICE)
    found = _detectable(most, repeats, base_rate, alpha, spread)
    return found if found >= 1 else found * math.sqrt(most / tasks)


@lru_cache(maxsize=1024)
def _detectable(tasks: int, repeats: int, base_rate: float, alpha: float, spread: float) -> float:
    def found(gain: float) -> bool:
        return (
            odds(tasks, repeats, base_rate, gain, alpha=alpha, worth=gain, spread=spread).kept
            >= POWER
        )

    low = 0.0
    high = 1 - base_rate
    if not found(min(high, 0.999)):
        return 1.0
    while high - low > 0.005:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high
