"""What randomised offers say of a lesson, by an anytime-valid test; pure, the same for the same
rows.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from recreate.agents.retrieval import support
from recreate.api.types import Lesson

STAKES = tuple((n + 0.5) / 10 for n in range(10))


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
        """Count one draw. least: the size of the least that z could be."""
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


def describe_draws(lesson: Lesson) -> str:
    """Return what came of the draws of a lesson, in a few words; '' without any."""
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
    """Return all that was counted of a lesson, in a few words: what an agent is told of it, and
    what came of its draws."""
    return "; ".join(filter(None, (support(lesson), describe_draws(lesson))))
