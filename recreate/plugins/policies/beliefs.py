"""What is believed of lessons whose offers are drawn: how likely each helps, and an alarm.

Pure: the same for the same rows.

The forecast (`ScoreModel`). A logistic regression on the task, its group and the lessons shown, by
a Gaussian for each coefficient that each attempt moves (assumed density filtering; Glickman,
"Parameter estimation in large dynamic paired comparison experiments", Applied Statistics 48, 1999).
It is a model and may be wrong: it decides how often a lesson is shown and when an alarm is raised,
never that a lesson is promoted.

The alarm. Page's cumulative sum of the log likelihood ratio of "it has no effect any more" to the
forecast, over the attempts in which the lesson was shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from recreate.api.types import Draw, Lesson
from recreate.lessons.draws import LessonEvidence

PRIORS = {"all": 2.0, "group": 0.15, "task": 0.15, "lesson": 0.7}
"""Variances of coefficients before anything is known."""
DRIFT = 0.001
"""What a lesson's variance grows by with each attempt that calls for it: effects do not stand
still."""
GONE = 1.3
ALL_GONE = 0.35
"""The share of its effect that a lesson's alarm supposes gone, more than all, for it may harm; and
the common one."""


class DrawnAttempt(NamedTuple):
    """One attempt: what was drawn for each lesson that it called for. at: how many were observed
    before."""

    at: int
    score: float
    task: str
    group: str
    drawn: Mapping[str, Draw]


def attempts_of(lessons: Iterable[Lesson], since: int = 0) -> list[DrawnAttempt]:
    """The attempts behind the draws of lessons, in the order in which they were observed, from
    `since` on."""
    found: dict[tuple[int, str], dict[str, Draw]] = {}
    for lesson in lessons:
        for draw in reversed(lesson.draws):
            if draw.at < since:
                break
            found.setdefault((draw.at, draw.experience), {})[lesson.id] = draw
    each = [(next(iter(drawn.values())), drawn) for _, drawn in sorted(found.items())]
    return [DrawnAttempt(one.at, one.score, one.task, one.group, drawn) for one, drawn in each]


class ScoreModel:
    """Takes attempts one after the other. `evidence`: lesson -> what they say of it; common: the
    alarm of all at once.

    checked: attempts before this one raise no alarm of a lesson, for it has been tested since.
    """

    def __init__(self, checked: Mapping[str, int] | None = None) -> None:
        self.mean: dict[str, float] = {}
        self.variance: dict[str, float] = {}
        self.evidence: dict[str, LessonEvidence] = {}
        self.checked = dict(checked or {})
        self.common = 0.0
        self.all_checked = max(self.checked.values(), default=0)

    def check(self, ids: Iterable[str], at: int) -> None:
        """Let the alarms of these begin anew, and the common one with them."""
        for id in ids:
            self.checked[id] = at
            if id in self.evidence:
                self.evidence[id].alarm = 0.0
        self.all_checked = at
        self.common = 0.0

    def effect(self, id: str) -> tuple[float, float]:
        """(mean, standard deviation) of a lesson's coefficient, in logits."""
        return self.mean.get(id, 0.0), math.sqrt(self.variance.get(id, PRIORS["lesson"]))

    def belief(self, id: str) -> float:
        """The probability that a lesson helps."""
        mean, deviation = self.effect(id)
        return 0.5 * math.erfc(-mean / deviation / math.sqrt(2))

    def propensity(self, id: str, least: float, most: float) -> float:
        """That probability (Thompson sampling), kept between two."""
        return min(most, max(least, self.belief(id)))

    def place(self, task: str, group: str) -> float:
        """The logit of passing a task without a lesson."""
        return sum(self.mean.get(x, 0.0) for x in ("all", f"group {group}", f"task {task}"))

    def add(self, attempt: DrawnAttempt) -> None:
        for id, draw in attempt.drawn.items():
            if id not in self.evidence or self.evidence[id].falls < draw.falls:
                self.evidence[id] = LessonEvidence(draw.falls)
                self.variance[id] = PRIORS["lesson"]
            self.mean.setdefault(id, 0.0)
            self.variance[id] = min(PRIORS["lesson"], self.variance[id] + DRIFT)
        places = {"all": "all", f"group {attempt.group}": "group", f"task {attempt.task}": "task"}
        for place, kind in places.items():
            self.mean.setdefault(place, 0.0)
            self.variance.setdefault(place, PRIORS[kind])
        shown = [id for id, draw in attempt.drawn.items() if draw.shown]
        self._weigh(attempt, list(places), shown)
        self._learn(attempt.score, [*places, *shown])

    def _weigh(self, attempt: DrawnAttempt, places: Sequence[str], shown: Sequence[str]) -> None:
        logit = sum(self.mean[x] for x in (*places, *shown))
        y = attempt.score
        for id, draw in attempt.drawn.items():
            found = self.evidence[id]
            p = draw.propensity
            without = logit - (self.mean[id] if draw.shown else 0.0)
            m = _rate(without + self.mean[id] * (1 - p))
            z = (y - m) / p if draw.shown else (m - y) / (1 - p)
            found.add(z, max(m / p, (1 - m) / (1 - p)))
            if draw.shown:
                found.shown += 1
                if self.mean[id] > 0 and draw.at >= self.checked.get(id, 0):
                    found.alarm = max(
                        0.0, found.alarm + ratio(y, logit - GONE * self.mean[id], logit)
                    )
        gone = sum(max(0.0, self.mean[id]) for id in shown)
        if gone and attempt.at >= self.all_checked:
            self.common = max(0.0, self.common + ratio(y, logit - ALL_GONE * gone, logit))

    def _learn(self, y: float, present: Sequence[str]) -> None:
        logit = sum(self.mean[x] for x in present)
        spread = sum(self.variance[x] for x in present)
        rate = _rate(logit / math.sqrt(1 + math.pi * spread / 8))
        slope = rate * (1 - rate)
        for x in present:
            step = self.variance[x] / (1 + slope * spread)
            self.mean[x] += step * (y - rate)
            self.variance[x] -= slope * self.variance[x] * step


def read_draws(lessons: Mapping[str, Lesson]) -> ScoreModel:
    """What all draws of these lessons say."""
    found = ScoreModel({x.id: x.checked for x in lessons.values()})
    for attempt in attempts_of(lessons.values()):
        found.add(attempt)
    return found


def _rate(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))


def ratio(y: float, one: float, other: float) -> float:
    """The log likelihood ratio of a score under two logits."""
    p = _rate(one)
    q = _rate(other)
    return y * math.log(p / q) + (1 - y) * math.log((1 - p) / (1 - q))
