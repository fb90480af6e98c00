"""What randomised offers say of lessons: effects, an anytime-valid test, an alarm; pure, the same
for the same rows.

Which of the lessons that an attempt calls for it is shown is drawn, with a known probability p, and
both are recorded (`Draw`). So each attempt is an experiment on each of these lessons at once, and
costs nothing more.

The test (`LessonEvidence.capital`). With y the score, m what was forecast of it before the attempt,
and s whether the lesson was shown,

    z = (s - p) / (p (1 - p)) (y - m)

has the lesson's effect on this attempt as its mean whatever m is: the augmented inverse-propensity
estimate (Robins, Rotnitzky and Zhao, "Estimation of regression coefficients when some regressors
are not always observed", JASA 89, 1994). A good m only makes it vary less. To test "it does not
help" one bets on z as `promotion` bets on re-runs: if it is true, capital grows to 1/a with
probability at most a, however often one looks, and with propensities that depend on all that came
before (Ville's inequality). Capitals of draws and of re-runs multiply, for these are bets one after
the other.

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
from dataclasses import dataclass, field
from typing import NamedTuple

from recreate.agents.retrieval import support
from recreate.api.types import Draw, Lesson

STAKES = tuple((n + 0.5) / 10 for n in range(10))
PRIORS = {"all": 2.0, "group": 0.15, "task": 0.15, "lesson": 0.7}
"""Variances of coefficients before anything is known."""
DRIFT = 0.001
"""What a lesson's variance grows by with each attempt that calls for it: effects do not stand
still."""
GONE, ALL_GONE = 1.3, 0.35
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


def attempts(lessons: Iterable[Lesson], since: int = 0) -> list[DrawnAttempt]:
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


@dataclass
class LessonEvidence:
    """Of one lesson since it fell last. count, shown: draws, and those that were for it; bets: the
    log of the capital for each stake; total, squares: the sums of z and its square; alarm: the sum
    of the alarm."""

    falls: int = 0
    count: int = 0
    shown: int = 0
    bets: list[float] = field(default_factory=lambda: [0.0] * len(STAKES))
    total: float = 0.0
    squares: float = 0.0
    alarm: float = 0.0

    def add(self, z: float, least: float) -> None:
        """least: the size of the least that z could be."""
        self.count += 1
        self.total += z
        self.squares += z * z
        self.bets = [
            bet + math.log1p(stake * z / least)
            for bet, stake in zip(self.bets, STAKES, strict=True)
        ]

    @property
    def capital(self) -> float:
        """The log of what betting on "it helps" made of 1: the mean over the stakes."""
        top = max(self.bets)
        return top + math.log(sum(math.exp(bet - top) for bet in self.bets) / len(self.bets))

    @property
    def mean(self) -> tuple[float, float]:
        """(the estimated effect on the score, its standard error); (0, 1) without two draws."""
        if self.count < 2:
            return 0.0, 1.0
        mean = self.total / self.count
        return mean, math.sqrt(max(0.0, self.squares / self.count - mean * mean) / (self.count - 1))


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
        self.all_checked, self.common = at, 0.0

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
            found, p = self.evidence[id], draw.propensity
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
        logit, spread = sum(self.mean[x] for x in present), sum(self.variance[x] for x in present)
        rate = _rate(logit / math.sqrt(1 + math.pi * spread / 8))
        slope = rate * (1 - rate)
        for x in present:
            step = self.variance[x] / (1 + slope * spread)
            self.mean[x] += step * (y - rate)
            self.variance[x] -= slope * self.variance[x] * step


def describe_draws(lesson: Lesson) -> str:
    """What came of the draws of a lesson, in a few words; '' without any."""
    if not lesson.draws:
        return ""
    parts = [
        f"shown by lot to {sum(d.shown for d in lesson.draws)} of {len(lesson.draws)} attempts that"
        " called for it"
    ]
    for word, shown in (("with", True), ("without", False)):
        scores = [d.score for d in lesson.draws if d.shown is shown]
        parts += [f"{sum(scores) / len(scores):.2f} {word} it"] if scores else []
    return ", ".join(parts)


def speaks_for(lesson: Lesson) -> str:
    """All that was counted of a lesson, in a few words: what an agent is told of it, and what came
    of its draws."""
    return "; ".join(filter(None, (support(lesson), describe_draws(lesson))))


def read(lessons: Mapping[str, Lesson]) -> ScoreModel:
    """What all draws of these lessons say."""
    found = ScoreModel({x.id: x.checked for x in lessons.values()})
    for attempt in attempts(lessons.values()):
        found.add(attempt)
    return found


def _rate(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))


def ratio(y: float, one: float, other: float) -> float:
    """The log likelihood ratio of a score under two logits."""
    p, q = _rate(one), _rate(other)
    return y * math.log(p / q) + (1 - y) * math.log((1 - p) / (1 - q))
