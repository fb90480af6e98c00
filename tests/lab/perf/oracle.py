"""What can be seen of one lesson that turns alone: an oracle's delay, beside its false alarms and
their re-runs.

The oracle tells two hypotheses apart, "the lesson helps as it did" and "it does what it does now",
and knows both effects, the rate of every task and all other lessons: what
`recreate.plugins.policies.randomised` has to estimate. An ordinary attempt tells it something where
the task calls for the lesson (one in four, as in `tests.lab.perf.worlds`) and shows it (the most
that a pattern is shown, PATTERN of `randomised`). It sums log likelihood ratios (Page's cumulative
sum, the quickest rule for as rare false alarms where all attempts are alike; Moustakides, Annals of
Statistics 14, 1986), and at an alarm re-runs the lesson alone until a sequential test has decided
(DECIDES nats) or SINGLE are made, as `randomised` does.

    gone             demoted within WITHIN attempts of the turn
    false demotions  of one lesson that helps as ever, in what is left of a stream when its first
                     rule turns
    re-runs          that false alarms cost meanwhile, of the PATTERNS lessons that help in a stream
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from statistics import fmean

from recreate.plugins.policies.beliefs import ratio
from recreate.plugins.policies.randomised import DECIDES, PATTERN, SINGLE
from tests.lab.perf.streams import WITHIN
from tests.lab.perf.table import Row
from tests.lab.perf.worlds import BUDGET, SITUATIONS, World, _logit

CALLS = 2 / SITUATIONS
PATTERNS = 9
FOUND = 0.3
"""The share of a stream's budget at which its first rule turns in the world `alone`."""
ALARMS = (0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
TURNS = 400


class Oracle:
    """One lesson's watch. before, now: its effect as it was and as it is after the turn, in
    logits."""

    def __init__(self, before: float, now: float, alarm: float, draw: random.Random) -> None:
        self.before, self.now, self.alarm, self.draw = before, now, alarm, draw
        self.sum = 0.0
        self.reruns = 0

    def score(self, effect: float) -> float:
        """The log likelihood ratio that one attempt with the lesson gives, of a lesson that has
        this effect."""
        base = _logit(self.draw.uniform(0.3, 0.6))
        passed = self.draw.random() < 1 / (1 + math.exp(-base - effect))
        return ratio(float(passed), base + self.now, base + self.before)

    def attempt(self, effect: float) -> bool:
        """One ordinary attempt; whether the lesson is demoted after it."""
        if self.draw.random() >= CALLS * PATTERN[1]:
            return False
        self.sum = max(0.0, self.sum + self.score(effect))
        return self.sum > self.alarm and self.tested(effect)

    def tested(self, effect: float) -> bool:
        self.sum = found = 0.0
        for _ in range(SINGLE):
            if abs(found) >= DECIDES:
                break
            found += self.score(effect)
            self.reruns += 1
        return found > 0


def turns(harms: bool, seed: int) -> tuple[float, float]:
    """(the effect of a rule that turns, what it becomes), of a world of this seed."""
    rules = [
        r for r in World(seed).rules.values() if r.kind == "turning" and (r.turned < 0) == harms
    ]
    return rules[0].effect, rules[0].turned


def watched(alarm: float, harms: bool, seed: int) -> tuple[bool, int, int]:
    """(gone within WITHIN attempts of the turn, false demotions and re-runs in a stream without
    one)."""
    draw = random.Random(f"{alarm} {harms} {seed}")
    before, now = turns(harms, seed)
    still, turned = Oracle(before, now, alarm, draw), Oracle(before, now, alarm, draw)
    false = sum(still.attempt(before) for _ in range(int(BUDGET * (1 - FOUND))))
    return any(turned.attempt(now) for _ in range(WITHIN)), false, still.reruns


def measure() -> Iterable[Row]:
    for alarm in ALARMS:
        for harms in (False, True):
            gone, false, reruns = zip(
                *(watched(alarm, harms, seed) for seed in range(TURNS)), strict=True
            )
            case = f"alarm {alarm:g}, a rule that {'harms' if harms else 'does nothing'} now"
            for name, unit, value in (
                (f"gone within {WITHIN} attempts", "share", fmean(gone)),
                ("false demotions", "of one lesson", fmean(false)),
                ("re-runs of false alarms", "a stream", PATTERNS * fmean(reruns)),
            ):
                yield Row(f"oracle: {name}", case, unit, value, None, None, None, None, "")
