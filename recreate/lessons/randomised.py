"""`randomised`: the hierarchy of `recreate`, on evidence that is nearly free: it is drawn which lessons are shown.

    on trial    a lesson that 3 independent groups support: train attempts that call for it are shown it or not, by a
                draw whose probability is recorded; so is every pattern
    promote     the capital of a bet on its draws, half of it staked, times that of a bet on its re-runs is above 5 (of
                those that do not help at most one in five gets there by the draws that are remembered, the newest KEPT:
                one that is on trial for longer has more chances), and the forecasts agree
    re-runs     with and without it, a few at a time, of one on trial that is believed to help; until draws and re-runs
                together decide
    alarm       attempts that were shown a pattern do worse than was forecast. It is then re-run alone until the scores
                say that it helps as it did, or not at all; so are others that are suspected, while patterns fall
    quarantine  they say not at all. It is on trial again, from the beginning

`draws` has the evidence. A pattern that the agent carries is never drawn: it is tested as by `recreate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from recreate.api.types import Change, Draw, Experience, Lesson
from recreate.lessons import draws, promotion
from recreate.lessons.context import PolicyContext, offered
from recreate.lessons.ladder import OFFERED, Ladder
from recreate.lessons.similarity import fitting

NEEDED, LIKELY = math.log(5), 0.9
"""What a lesson has earned its place by: the log of its capital, and its belief."""
STAKED = 0.5
"""The share of the capital that is bet on draws: where they say nothing, re-runs alone decide."""
PAIRS, SINGLE = 6, 24
"""Re-runs with and without a lesson in one go, and the most alone after an alarm."""
BELIEVED = 0.97
"""What a lesson's belief must be above, for re-runs to be spent on it; DRAWS that were made, REST since the last go."""
DRAWS = 20
REST = 100
HOPELESS = 1.5
FADED = 0.8
"""A pattern of less belief is re-run without an alarm, REST attempts after the last time."""
ALARM = 3.0
COMMON = 3.0
STAND = 6
"""After an alarm patterns are re-run in the order of what speaks against them, until so many in a row have stood."""
HELD, DECIDES = 1.0, 2.0
"""The log likelihood ratio for "it helps as it did": with which re-runs after an alarm begin (less where it is little
believed in), and at which they end."""
EFFECT = 0.8
"""The least that a pattern is expected to do, in logits."""
PATTERN, TRIAL = (0.5, 0.8), (0.15, 0.7)
"""Between these are the propensities of a pattern, and of a lesson on trial."""
QUESTIONS = 12
"""A round asks the model so often in a build: for lessons of four failures or more, and which of them say the same."""
KEPT = 400
"""Draws that a lesson remembers: the newest."""


class Randomised(Ladder):
    """The policy whose offers in train attempts are drawn."""

    pairs = PAIRS

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.found = draws.read(self.lessons)
        self.read_to = self.observed

    def eligible(self, query: str, budget: int) -> Sequence[Lesson]:
        """What may be drawn for a query: active patterns, and lessons on trial, best first."""
        among = [x for x in self.lessons.values() if x.status not in ("merged", "vetoed")]
        some = [x for x in among if drawable(x) and self.here(x)]
        return fitting(self.similarity.ranked(query, some, among)[:OFFERED], budget)

    def propensities(self) -> Mapping[str, float]:
        """With which probability an attempt that calls for a lesson is shown it."""
        some = [x for x in self.lessons.values() if drawable(x)]
        return {x.id: self.found.propensity(x.id, *(PATTERN if x.status == "active" else TRIAL)) for x in some}

    def count_all(self, batch: Sequence[Experience]) -> Iterator[Change]:
        yield from super().count_all(batch)
        rows: dict[str, list[Draw]] = {}
        for at, e in enumerate(batch, self.observed - len(batch)):
            for id, propensity in _drawn(e).items():
                row = Draw(
                    experience=e.id,
                    task=e.task,
                    group=e.group,
                    score=e.grade.score,
                    shown=id in offered(e),
                    propensity=propensity,
                    at=at,
                    falls=self.lessons[id].falls if id in self.lessons else 0,
                )
                rows.setdefault(id, []).append(row)
        for id in rows.keys() & self.lessons.keys():
            lesson = self.lessons[id]
            known = {d.experience for d in lesson.draws}
            new = [row for row in rows[id] if row.experience not in known]
            if new and promotion.free(lesson):
                self.put(lesson, draws=(*lesson.draws, *new)[-KEPT:], seen=self.observed)

    def test(self) -> Iterator[Change]:
        for attempt in draws.attempts(self.lessons.values(), self.read_to):
            self.found.add(attempt)
        self.read_to = self.observed
        yield from self.doubt_carried()
        yield from self.doubt()
        for lesson in sorted(self.lessons.values(), key=lambda x: x.id):
            if on_trial(lesson):
                yield from self.judge(lesson)

    def doubt_carried(self) -> Iterator[Change]:
        """As `recreate` does it: patterns that attempts had without a draw, since the agent carries them."""
        for lesson in sorted((x for x in self.lessons.values() if x.status == "active"), key=lambda x: x.id):
            drawn = {d.experience for d in lesson.draws}
            trials = tuple(t for t in lesson.trials if t.experience not in drawn)
            why = promotion.doubted(lesson.model_copy(update={"trials": trials})) if trials else ""
            if why and self.here(lesson):
                tested, done = self.measure(lesson.model_copy(update={"rounds": lesson.rounds + 1}))
                if done:
                    self.lessons[lesson.id] = tested
                    yield from self.settle(tested, why)

    def doubt(self) -> Iterator[Change]:
        """Re-runs of patterns after an alarm: of one, or of all at once."""
        active = [x for x in self.lessons.values() if x.status == "active" and promotion.free(x) and self.here(x)]
        evidence = self.found.evidence
        alarm = {x.id: evidence[x.id].alarm if x.id in evidence else 0.0 for x in active}
        common, stood, checked = self.found.common > COMMON, 0, list[str]()
        for lesson in sorted(active, key=lambda x: (-alarm[x.id], x.id)):
            faded = self.found.belief(lesson.id) < FADED and self.observed - lesson.checked >= REST
            if alarm[lesson.id] <= ALARM and not faded and not (common and stood < STAND):
                continue
            made, ratio = self.alone(lesson)
            if not made:
                continue
            checked.append(lesson.id)
            why = (
                f"alarm {alarm[lesson.id]:.1f}, of all {self.found.common:.1f}; {made} re-runs, log ratio {ratio:+.1f}"
            )
            yield Change(kind="tested", lesson=lesson.id, why=why)
            changes = {"rounds": lesson.rounds + 1, "checked": self.observed}
            if ratio > 0:
                self.put(lesson, **changes)
                stood += 1
                continue
            stood, common = 0, True
            domains = tuple(d for d in lesson.domains if d != self.context.domain)
            status = "active" if domains else "quarantined"
            self.put(lesson, **changes, status=status, scope="domain", domains=domains, falls=lesson.falls + 1)
            yield Change(kind="demoted", lesson=lesson.id, why=why)
            if not domains:
                yield Change(kind="quarantined", lesson=lesson.id, why="re-runs say that it has no effect any more")
        if checked or common:
            self.found.check(checked, self.observed)

    def alone(self, lesson: Lesson) -> tuple[int, float]:
        """(re-runs made with just this pattern, the log likelihood ratio of what it did before to nothing)."""
        places, made = self.places(lesson), 0
        ratio = max(-0.9 * DECIDES, min(HELD, _logit(self.found.belief(lesson.id))))
        effect = max(EFFECT, self.found.effect(lesson.id)[0])
        while places and made < SINGLE and abs(ratio) < DECIDES:
            place = places[made % len(places)]
            score = self.context.rerun([lesson], place, ALONE * (lesson.rounds + 1) + made, [lesson])
            if score is None:
                places.remove(place)
                continue
            made += 1
            without = self.found.place(place.task, place.group)
            ratio += draws.ratio(score, without + effect, without)
        return made, ratio

    def judge(self, lesson: Lesson) -> Iterator[Change]:
        """What draws, and re-runs where they leave it open, make of a lesson on trial."""
        found = self.found.evidence.get(lesson.id)
        if found is None or found.falls != lesson.falls:
            return
        if (
            not self.helps(lesson)
            and found.count >= DRAWS
            and self.found.belief(lesson.id) > BELIEVED
            and self.observed - lesson.checked >= REST
        ):
            tested, done = self.measure(lesson)
            if not done:
                return
            lesson = self.lessons[lesson.id] = tested.model_copy(update={"checked": self.observed})
            yield Change(kind="tested", lesson=lesson.id, why=self.told(lesson))
        if self.helps(lesson):
            domains = tuple(dict.fromkeys((*lesson.domains, self.context.domain)))
            scope = "general" if len(domains) > 1 else "domain"
            self.put(lesson, status="active", scope=scope, domains=domains, seen=self.observed, checked=self.observed)
            self.found.evidence[lesson.id].alarm = 0.0
            yield Change(kind="promoted", lesson=lesson.id, why=self.told(lesson))

    def helps(self, lesson: Lesson) -> bool:
        return promotion.free(lesson) and self.found.belief(lesson.id) > LIKELY and self.capital(lesson) > NEEDED

    def capital(self, lesson: Lesson) -> float:
        """The log of what bets on draws and on re-runs made of 1."""
        found = self.found.evidence.get(lesson.id)
        drawn = math.log(STAKED * math.exp(min(50.0, found.capital)) + 1 - STAKED) if found else 0.0
        return drawn + (promotion.capital(lesson.gains, lesson.rounds) if lesson.gains else 0.0)

    def decided(self, lesson: Lesson, made: int) -> bool:
        if lesson.status == "active":
            return super().decided(lesson, made)
        return self.helps(lesson) or promotion.hopeless(lesson.gains, lesson.rounds, HOPELESS)

    def told(self, lesson: Lesson) -> str:
        """What speaks for a lesson, for a person."""
        found = self.found.evidence.get(lesson.id) or draws.LessonEvidence()
        gain, error = found.mean
        pairs = sum(g.round == lesson.rounds for g in lesson.gains)
        drawn = f"{found.count} draws, {found.shown} for it: {gain:+.2f}, standard error {error:.2f}"
        return f"{drawn}; {pairs} re-runs; odds against no help {math.exp(min(50.0, self.capital(lesson))):.1f}"


ALONE = 1000
"""Re-runs of a pattern alone have repeats from here on, a thousand for each test: no other re-run has them."""


def _drawn(e: Experience) -> dict[str, float]:
    """The lessons for which it was drawn whether the attempt is shown them, with the probabilities."""
    return {id: p for step in reversed(e.trace.steps) for id, p in step.propensities.items()}


def _logit(p: float) -> float:
    return math.log(p / (1 - p)) if 0 < p < 1 else math.inf * (p - 0.5)


def on_trial(lesson: Lesson) -> bool:
    """Whether attempts may be shown a lesson to see what it does: it has not earned its place, but may."""
    if not promotion.free(lesson) or lesson.status not in ("candidate", "quarantined"):
        return False
    return len(set(lesson.groups)) >= promotion.GROUPS


def drawable(lesson: Lesson) -> bool:
    """Whether it is drawn which attempts a lesson is shown to."""
    return lesson.status == "active" or on_trial(lesson)
