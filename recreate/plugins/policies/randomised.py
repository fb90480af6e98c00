"""`randomised`: the hierarchy of `recreate`, on evidence that is nearly free: it is drawn which
lessons are shown.

    on trial    a lesson that 3 independent groups support: train attempts that call for it are
                shown it or not, by a
                draw whose probability is recorded; so is every pattern
    promote     the capital of a bet on its draws, half of it staked, times that of a bet on its
                re-runs is above the odds that are asked for, 5 where nobody said (of those that do
                not help at most one in five gets there by the draws that are remembered, the newest
                KEPT: one that is on trial for longer has more chances), and the forecasts agree
    re-runs     with and without it, a few at a time, of one on trial that is believed to help;
                until draws and re-runs together decide
    alarm       attempts that were shown a pattern do worse than was forecast. It is then re-run
                alone until the scores say that it helps as it did, or not at all; so are others
                that are suspected, while patterns fall
    quarantine  they say not at all. It is on trial again, from the beginning, once something new
                supports it

`draws` has the evidence. A pattern that the agent carries is never drawn: it is tested as by
`recreate`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from recreate.api.types import Change, Draw, Experience, Lesson
from recreate.lessons import promotion
from recreate.lessons.context import PolicyContext, RerunRequest, offered_ids
from recreate.lessons.draws import LessonEvidence
from recreate.lessons.ladder import OFFERED, Ladder
from recreate.lessons.similarity import fitting
from recreate.plugins.policies import beliefs

LIKELY = 0.9
"""What the belief in a lesson must be above that has earned its place, beside its capital."""
STAKED = 0.5
"""The share of the capital that is bet on draws: where they say nothing, re-runs alone decide."""
PAIRS = 6
SINGLE = 24
"""Re-runs with and without a lesson in one go, and the most alone after an alarm."""
BELIEVED = 0.97
"""What a lesson's belief must be above, for re-runs to be spent on it; DRAWS that were made, REST
since the last go."""
DRAWS = 20
REST = 100
HOPELESS = 1.5
FADED = 0.8
"""A pattern of less belief is re-run without an alarm, REST attempts after the last time."""
ALARM = 3.0
COMMON = 3.0
STAND = 6
"""After an alarm patterns are re-run in the order of what speaks against them, until so many in a
row have stood."""
HELD = 1.0
DECIDES = 2.0
"""The log likelihood ratio for "it helps as it did": with which re-runs after an alarm begin (less
where it is little believed in), and at which they end."""
EFFECT = 0.8
"""The least that a pattern is expected to do, in logits."""
PATTERN = (0.5, 0.8)
TRIAL = (0.15, 0.7)
"""Between these are the propensities of a pattern, and of a lesson on trial."""
KEPT = 400
"""Draws that a lesson remembers: the newest."""


class Randomised(Ladder):
    """The policy whose offers in train attempts are drawn."""

    pairs = PAIRS

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.beliefs = beliefs.read_draws(self.lessons)
        self.read_to = self.observed

    def eligible(self, query: str, budget: int) -> Sequence[Lesson]:
        """What may be drawn for a query: active patterns, and lessons on trial, best first."""
        among = [x for x in self.lessons.values() if x.status not in ("merged", "vetoed")]
        some = [x for x in among if drawable(x) and self.here(x)]
        return fitting(self.similarity.ranked(query, some, among)[:OFFERED], budget)

    def propensities(self) -> Mapping[str, float]:
        """With which probability an attempt that calls for a lesson is shown it."""
        some = [x for x in self.lessons.values() if drawable(x) and self.here(x)]
        return {
            x.id: self.beliefs.propensity(x.id, *(PATTERN if x.status == "active" else TRIAL))
            for x in some
        }

    def count_all(self, batch: Sequence[Experience]) -> Iterator[Change]:
        yield from super().count_all(batch)
        rows: dict[str, list[Draw]] = {}
        for at, e in enumerate(batch, self.observed - len(batch)):
            for id, propensity in _list_propensities(e).items():
                row = Draw(
                    experience=e.id,
                    task=e.task,
                    group=e.group,
                    score=e.grade.score,
                    shown=id in offered_ids(e),
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
                self.put_lesson(lesson, draws=(*lesson.draws, *new)[-KEPT:], seen=self.observed)

    def test(self) -> Iterator[Change]:
        for attempt in beliefs.attempts_of(self.lessons.values(), self.read_to):
            self.beliefs.add(attempt)
        self.read_to = self.observed
        yield from self.doubt_carried()
        yield from self.doubt()
        trial = sorted((x for x in self.lessons.values() if on_trial(x)), key=lambda x: x.id)
        tested = self.measure([x for x in trial if self.open(x)])
        ended = {lesson.id: lesson if done else None for lesson, done in tested}
        for lesson in trial:
            yield from self.judge(lesson, ended)

    def doubt_carried(self) -> Iterator[Change]:
        """As `recreate` does it: patterns that attempts had without a draw, since the agent carries
        them."""
        doubts = []
        for lesson in sorted(
            (x for x in self.lessons.values() if x.status == "active"), key=lambda x: x.id
        ):
            drawn = {d.experience for d in lesson.draws}
            trials = tuple(t for t in lesson.trials if t.experience not in drawn)
            if trials and (each := self.doubted(lesson, trials)) is not None:
                doubts.append(each)
        yield from self.try_all(doubts)

    def doubt(self) -> Iterator[Change]:
        """Re-runs of patterns after an alarm: of one, or of all at once."""
        active = [
            x
            for x in self.lessons.values()
            if x.status == "active" and promotion.free(x) and self.here(x)
        ]
        evidence = self.beliefs.evidence
        alarm = {x.id: evidence[x.id].alarm if x.id in evidence else 0.0 for x in active}
        common = self.beliefs.common > COMMON
        stood = 0
        checked = list[str]()
        waiting = deque(sorted(active, key=lambda x: (-alarm[x.id], x.id)))
        while waiting:
            sure = list[Lesson]()  # those that are re-run whatever becomes of the ones before them
            while waiting:
                lesson = waiting[0]
                faded = (
                    self.beliefs.belief(lesson.id) < FADED
                    and self.observed - lesson.checked >= REST
                )
                if alarm[lesson.id] > ALARM or faded or (common and stood + len(sure) < STAND):
                    sure.append(waiting.popleft())
                elif sure:
                    break
                else:
                    waiting.popleft()
            for lesson, (made, ratio) in zip(sure, self.rerun_alone(sure), strict=True):
                if not made:
                    continue
                checked.append(lesson.id)
                told = f"alarm {alarm[lesson.id]:.1f}, of all {self.beliefs.common:.1f}"
                why = f"{told}; {made} re-runs, log ratio {ratio:+.1f}"
                yield Change(kind="tested", lesson=lesson.id, why=why)
                changes = {"rounds": lesson.rounds + 1, "checked": self.observed}
                if ratio > 0:
                    self.put_lesson(lesson, **changes)
                    yield from self.stands(lesson.id, why)
                    stood += 1
                    continue
                stood = 0
                common = True
                fallen = lesson.model_copy(update=changes)
                yield from self.fall(fallen, why, "re-runs say that it has no effect any more")
        if checked or common:
            self.beliefs.check(checked, self.observed)

    def rerun_alone(self, lessons: Sequence[Lesson]) -> list[tuple[int, float]]:
        """For each pattern (re-runs made with just this one, the log likelihood ratio of what it
        did before to nothing); side by side as in `measure`."""
        tests = [_Alone(self, lesson) for lesson in lessons]
        while going := [test for test in tests if test.going]:
            room = self.context.room()
            asked = list[tuple[_Alone, RerunRequest]]()
            for test in going:
                room -= SINGLE - test.made
                if asked and room < 0:
                    break
                asked += [(test, each) for each in test.next()]
            for (test, each), (score,) in zip(
                asked, self.context.reruns([[x] for _, x in asked]), strict=False
            ):
                test.take(each, score)
        return [(test.made, test.ratio) for test in tests]

    def open(self, lesson: Lesson) -> bool:
        """Whether a lesson on trial is believed to help, and its draws leave it open."""
        found = self.beliefs.evidence.get(lesson.id)
        return (
            found is not None
            and found.falls == lesson.falls
            and not self.helps(lesson)
            and found.count >= DRAWS
            and self.beliefs.belief(lesson.id) > BELIEVED
            and self.observed - lesson.checked >= REST
        )

    def judge(self, lesson: Lesson, ended: Mapping[str, Lesson | None]) -> Iterator[Change]:
        """What draws, and re-runs where they left it open, make of a lesson on trial. ended: of
        those that were re-run, the lesson with what came of it; None where it could not be brought
        to an end."""
        found = self.beliefs.evidence.get(lesson.id)
        if found is None or found.falls != lesson.falls:
            return
        if lesson.id in ended:
            if (tested := ended[lesson.id]) is None:
                return
            lesson = self.lessons[lesson.id] = tested.model_copy(update={"checked": self.observed})
            yield Change(kind="tested", lesson=lesson.id, why=self.describe_evidence(lesson))
        if self.helps(lesson):
            domains = tuple(dict.fromkeys((*lesson.domains, self.context.domain)))
            scope = "general" if len(domains) > 1 else "domain"
            self.put_lesson(
                lesson,
                status="active",
                scope=scope,
                domains=domains,
                seen=self.observed,
                checked=self.observed,
            )
            self.beliefs.evidence[lesson.id].alarm = 0.0
            yield Change(kind="promoted", lesson=lesson.id, why=self.describe_evidence(lesson))

    def helps(self, lesson: Lesson) -> bool:
        won = self.capital(lesson) > math.log(self.context.odds)
        return won and promotion.free(lesson) and self.beliefs.belief(lesson.id) > LIKELY

    def capital(self, lesson: Lesson) -> float:
        """The log of what bets on draws and on re-runs made of 1."""
        found = self.beliefs.evidence.get(lesson.id)
        drawn = math.log(STAKED * math.exp(min(50.0, found.capital)) + 1 - STAKED) if found else 0.0
        return drawn + (promotion.capital(lesson.gains, lesson.rounds) if lesson.gains else 0.0)

    def decided(self, lesson: Lesson, made: int) -> bool:
        if lesson.status == "active":
            return super().decided(lesson, made)
        return self.helps(lesson) or promotion.hopeless(lesson.gains, lesson.rounds, HOPELESS)

    def describe_evidence(self, lesson: Lesson) -> str:
        """What speaks for a lesson, for a person."""
        found = self.beliefs.evidence.get(lesson.id) or LessonEvidence()
        gain, error = found.mean
        pairs = sum(g.round == lesson.rounds for g in lesson.gains)
        drawn = (
            f"{found.count} draws, {found.shown} for it: {gain:+.2f}, standard error {error:.2f}"
        )
        return (
            f"{drawn}; {pairs} re-runs; odds against no help"
            f" {math.exp(min(50.0, self.capital(lesson))):.1f}"
        )


class _Alone:
    """A pattern after an alarm, and the log likelihood ratio of what it did before to nothing."""

    def __init__(self, policy: Randomised, lesson: Lesson) -> None:
        self.beliefs = policy.beliefs
        self.lesson = lesson
        self.made = self.number = (
            0  # number: of the next one; more than were made where one among others failed
        )
        self.places = policy.places(lesson)
        self.ratio = max(-0.9 * DECIDES, min(HELD, _logit(self.beliefs.belief(lesson.id))))
        self.effect = max(EFFECT, self.beliefs.effect(lesson.id)[0])

    @property
    def going(self) -> bool:
        return bool(self.places) and self.made < SINGLE and abs(self.ratio) < DECIDES

    def next(self) -> Iterator[RerunRequest]:
        """The re-runs that are made whatever they say: until all of one score would decide."""
        best = worst = self.ratio
        for n in range(self.number, self.number + SINGLE - self.made):
            place = self.places[n % len(self.places)]
            yield RerunRequest(
                [self.lesson], place, ALONE * (self.lesson.rounds + 1) + n, [self.lesson]
            )
            best = best + self.says(place, 1.0)
            worst = worst + self.says(place, 0.0)
            if max(best, -worst) >= DECIDES:
                return

    def says(self, place: Experience, score: float) -> float:
        without = self.beliefs.place(place.task, place.group)
        return beliefs.ratio(score, without + self.effect, without)

    def take(self, made: RerunRequest, score: float | None) -> None:
        if score is None:
            self.places = [e for e in self.places if e is not made.experience]
            return
        self.made += 1
        self.number = made.repeat % ALONE + 1
        self.ratio += self.says(made.experience, score)


ALONE = 1000
"""Re-runs of a pattern alone have repeats from here on, a thousand for each test: no other re-run
has them."""


def _list_propensities(e: Experience) -> dict[str, float]:
    """The lessons for which it was drawn whether the attempt is shown them, with the
    probabilities."""
    return {id: p for step in reversed(e.trace.steps) for id, p in step.propensities.items()}


def _logit(p: float) -> float:
    return math.log(p / (1 - p)) if 0 < p < 1 else math.inf * (p - 0.5)


def on_trial(lesson: Lesson) -> bool:
    """Whether attempts may be shown a lesson to see what it does: it has not earned its place, but
    may; a quarantined one once something new supports it."""
    new = lesson.status != "quarantined" or len(lesson.supports) > lesson.tested
    return new and promotion.may_rise(lesson) and len(set(lesson.groups)) >= promotion.GROUPS


def drawable(lesson: Lesson) -> bool:
    """Whether it is drawn which attempts a lesson is shown to."""
    return lesson.status == "active" or on_trial(lesson)
