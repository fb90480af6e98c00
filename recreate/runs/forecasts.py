"""What candidates were expected to do, beside what they did.

An optimizer says it before a candidate is judged, and it is in the journal before the first attempt
of the trial. The gain is scored by its squared error on validation tasks, which is Brier's score
(1950) for shares in place of single outcomes, and by its calibration: how much more was expected,
on average, than came. What was named is true when the score of that train task or kind of task rose
(`mends`) or fell (`breaks`); not known while it was not measured again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from recreate.api.types import Edit, Forecast, Revision

Scores = Mapping[tuple[str, str], float]
"""(agent's digest, train task) -> its mean score."""
LAST = 5
"""So many candidates are told one by one."""


def expected(edits: Iterable[Edit]) -> Forecast | None:
    """What edits are expected to do together: the largest gain that one of them promises, and all
    that they name."""
    found = [e.forecast for e in edits if e.forecast is not None]
    if not found:
        return None
    mends = dict.fromkeys(name for f in found for name in f.mends)
    breaks = dict.fromkeys(name for f in found for name in f.breaks)
    return Forecast(gain=max(f.gain for f in found), mends=tuple(mends), breaks=tuple(breaks))


class ForecastOutcome(NamedTuple):
    """A candidate's forecast and what came. seen: the difference on validation tasks, None when
    none was measured. mended, broken: each name -> whether it came so, None while that is not
    known."""

    revision: str
    gain: float
    seen: float | None
    tasks: int
    kept: bool
    mended: Mapping[str, bool | None]
    broken: Mapping[str, bool | None]

    @property
    def error(self) -> float | None:
        """The square of what the gain was missed by."""
        return None if self.seen is None else (self.gain - self.seen) ** 2

    def text(self) -> str:
        """In one line."""
        seen = (
            "not measured" if self.seen is None else f"{self.seen:+.2f} seen on {self.tasks} tasks"
        )
        named = [
            f"{word} {name}{ {True: ' (it did)', False: ' (it did not)', None: ''}[came] }"
            for word, names in (("mends", self.mended), ("may break", self.broken))
            for name, came in names.items()
        ]
        return "; ".join([f"a gain of {self.gain:.2f} expected, {seen}", *named])

    def record(self) -> dict[str, Any]:
        """As `log --json` and `show --json` print it."""
        named = {"mends": dict(self.mended), "breaks": dict(self.broken)}
        return {"gain": self.gain, "seen": self.seen, "error": self.error, **named}


def scored(revision: Revision, scores: Scores) -> ForecastOutcome | None:
    """A candidate's forecast beside its outcome; None for one of which nothing was forecast.

    scores: of the parent and of the candidate at train tasks, as far as they were attempted.
    """
    said = expected(revision.edits)
    if said is None:
        return None
    verdict = revision.verdict
    moved = {s.name: s.after - s.before for s in verdict.strata}
    for agent, task in scores:
        if agent == revision.id and (revision.parent, task) in scores:
            moved[task] = scores[agent, task] - scores[revision.parent, task]

    def came(names: Iterable[str], sign: int) -> dict[str, bool | None]:
        return {name: sign * moved[name] > 0 if name in moved else None for name in names}

    return ForecastOutcome(
        revision=revision.id,
        gain=said.gain,
        seen=verdict.diff,
        tasks=verdict.tasks,
        kept=revision.kept,
        mended=came(said.mends, 1),
        broken=came(said.breaks, -1),
    )


def train_scores(records: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Scores at train tasks from a journal's `experience` records. An optimizer's own rehearsals
    are left out: what it saw before it spoke is no forecast."""
    found: dict[tuple[str, str], list[float]] = {}
    for r in records:
        # old journals do not say what for
        if r["split"] == "train" and r.get("phase", "train") == "train":
            found.setdefault((r["scaffold"], r["task"]), []).append(r["score"])
    return {key: fmean(values) for key, values in found.items()}


def forecasts_of(
    revisions: Sequence[Revision], experiences: Iterable[Mapping[str, Any]]
) -> list[ForecastOutcome]:
    """Every forecast of a run beside its outcome, from its revisions and its journal's `experience`
    records."""
    scores = train_scores(experiences)
    return [each for r in revisions if (each := scored(r, scores)) is not None]


class Tally(NamedTuple):
    """Several forecasts together. gain, seen: means; error: mean squared error; mended, broken:
    (came so, known)."""

    candidates: int
    gain: float
    seen: float
    error: float
    mended: tuple[int, int]
    broken: tuple[int, int]

    def text(self) -> str:
        """In two sentences; '' when nothing was measured."""
        if not self.candidates:
            return ""
        much = self.gain - self.seen
        off = (
            "just right"
            if abs(much) < 0.005
            else f"{abs(much):.2f} too {'much' if much > 0 else 'little'}"
        )
        who = "1 candidate" if self.candidates == 1 else f"{self.candidates} candidates"
        text = (
            f"{who}: a gain of {self.gain:.2f} was expected on average and {self.seen:+.2f} was"
            f" seen, {off}"
        )
        text += f" (mean squared error {self.error:.3f})."
        if self.mended[1]:
            text += f" Of {self.mended[1]} named as mended, {self.mended[0]} rose."
        if self.broken[1]:
            text += f" Of {self.broken[1]} named as at risk, {self.broken[0]} fell."
        return text

    def record(self) -> dict[str, Any]:
        return self._asdict()


def tally(found: Sequence[ForecastOutcome]) -> Tally:
    """What forecasts were worth, of those whose candidates were measured."""
    measured = [s for s in found if s.seen is not None]

    def hits(names: Iterable[Mapping[str, bool | None]]) -> tuple[int, int]:
        known = [came for each in names for came in each.values() if came is not None]
        return sum(known), len(known)

    if not measured:
        return Tally(0, 0.0, 0.0, 0.0, (0, 0), (0, 0))
    return Tally(
        candidates=len(measured),
        gain=fmean(s.gain for s in measured),
        seen=fmean(s.seen for s in measured if s.seen is not None),
        error=fmean(s.error for s in measured if s.error is not None),
        mended=hits(s.mended for s in measured),
        broken=hits(s.broken for s in measured),
    )


def told(revisions: Sequence[Revision], scores: Scores, earlier: str = "") -> list[str]:
    """An optimizer's own record, as it is shown it: earlier builds, this one, and its last
    candidates one by one."""
    found = [
        each for r in revisions if (each := scored(r, scores)) is not None and each.seen is not None
    ]
    lines = [f"In earlier builds here: {earlier}"] if earlier else []
    if text := tally(found).text():
        lines.append(f"In this build: {text}")
    return lines + [
        f"{'kept' if each.kept else 'dropped'}: {each.text()}" for each in found[-LAST:]
    ]
