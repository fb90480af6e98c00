"""`recreate`: a lesson is born at an instance, joins others of its meaning, and becomes a pattern
when re-runs say so.

    instance   one structured call on a failure beside its nearest success, or on a success beside
               an earlier failure
    domain     3 independent groups support it, and re-runs with and without it show a gain
    general    the same has happened in a second domain
    quarantine attempts in which it was offered went worse, and re-runs no longer show a gain

A model writes and compares texts; what becomes of them is decided by `promotion`, from counts and
intervals. Only active patterns are offered: a candidate is shown to nobody but its own re-runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from recreate.agents.template import object_of
from recreate.agents.trajectory import tell
from recreate.api.types import Change, Experience, Gain, Lesson, Trial
from recreate.lessons import promotion
from recreate.lessons.context import (
    STRING,
    AskingPolicy,
    PolicyContext,
    RerunGroup,
    RerunRequest,
    learnable,
    new_lesson,
    step_of,
    text,
)
from recreate.lessons.similarity import dot, fitting, tell_lesson, text_of

LEARN = object_of(happened=STRING, title=STRING, body=STRING, when=STRING, step={"type": "integer"})
SAME = object_of(same={"type": "boolean"})
NEAR = 0.6
"""The cosine from which a model is asked whether two lessons say the same; it decides, so this is a
low bar."""
ASKED = 3
"""So many near lessons a model is asked about."""
PAIRS = 48
"""Re-runs with and without a lesson that one test may take; for a pattern in use twice as many,
since it has earned more doubt."""
LEAST = 12
"""Before so many nothing is found to help: the bound is for one gain, and the first few places are
not all."""
PLACES = 12
"""Tasks that a test takes them from, the groups in turn."""
OFFERED = 6
PATTERNS = 24
CHARACTERS = 12_000
"""The size of a domain's active patterns: their number, and their texts together."""
FORGET = 400
"""Attempts observed since a lesson was last offered or supported, after which it is forgotten."""


class Ladder(AskingPolicy):
    """The policy by which lessons climb."""

    pairs = PAIRS

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.batch: dict[str, Experience] = {}
        self.answers: dict[tuple[str, str], bool] = {}

    def offer(self, query: str, budget: int) -> Sequence[Lesson]:
        """Active patterns that the query calls for, best first."""
        among = [x for x in self.lessons.values() if x.status not in ("merged", "vetoed")]
        active = [x for x in among if x.status == "active" and self.here(x)]
        return fitting(self.similarity.ranked(query, active, among)[:OFFERED], budget)

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        batch = learnable(experiences)
        self.observed += len(batch)
        self.batch = {e.id: e for e in batch}
        changes = list(self.count_all(batch))
        failed = [e for e in batch if not e.grade.passed]
        few = [*_in_turn(failed), *_in_turn([e for e in batch if e.grade.passed])]
        for experience in few if self.context.questions else batch:
            if self.left > ASKED:  # or what was learned could not be held against what is known
                changes += self.learn(experience)
        changes += self.test()
        changes += self.generalise()
        changes += self.shed()
        self.note_malformed()
        return changes

    def here(self, lesson: Lesson) -> bool:
        """Whether a lesson speaks of this domain: not one that stands in others only, or that
        failed here."""
        if self.context.domain in lesson.failed_in:
            return False
        return (
            lesson.scope == "general" or not lesson.domains or self.context.domain in lesson.domains
        )

    def count_all(self, batch: Sequence[Experience]) -> Iterator[Change]:
        """Yield what came of the attempts in which lessons were offered."""
        for lesson in list(self.lessons.values()):
            new = self.count(lesson, batch)
            failed = tuple(e.id for e in new if not e.grade.passed)
            if failed:
                contradicts = tuple(dict.fromkeys((*lesson.contradicts, *failed)))
                self.put_lesson(self.lessons[lesson.id], contradicts=contradicts)
                yield Change(
                    kind="contradicted",
                    lesson=lesson.id,
                    why=f"{len(failed)} of {len(new)} attempts failed",
                )

    def learn(self, experience: Experience) -> Iterator[Change]:
        """Yield the lesson of one experience, and which other it joins."""
        if any(experience.id in lesson.born_of for lesson in self.lessons.values()):
            return
        failed = not experience.grade.passed
        other = self.context.nearest(experience)
        if not failed and other is None:
            return
        found = self.ask(
            "learn",
            LEARN,
            outcome="failed" if failed else "succeeded",
            other_is=(
                "the nearest one that succeeded"
                if failed
                else "an earlier one at this task that failed"
            ),
            told=[tell_lesson(x) for x in self.offered_to(experience)],
            attempt=tell(experience),
            other=tell(other, 1600) if other else "",
        )
        title = text(found, "title", 120)
        body = text(found, "body", 1200)
        when = text(found, "when", 300)
        if not title or not body:
            return
        body = f"{body}\n\nWhen: {when}" if when else body
        born_of = [experience, *([other] if other and other.trust != "own" else [])]
        steps = step_of(found, experience)
        lesson = new_lesson(self.context.domain, title, body, born_of, steps)
        if lesson.id not in self.lessons:
            yield from self.join(lesson.model_copy(update={"seen": self.observed}))

    def join(self, lesson: Lesson) -> Iterator[Change]:
        """Put a new lesson to those of its meaning, or on its own; under a vetoed one it is not
        born. What others said neither supports what we learned nor is supported by it."""
        others = [
            x
            for x in self.lessons.values()
            if x.status not in ("merged", "vetoed") and self.here(x) and x.trusted == lesson.trusted
        ]
        vetoed = [x for x in self.lessons.values() if x.status == "vetoed"]
        near = (self.similarity.nearest(lesson, some, NEAR, ASKED) for some in (vetoed, others))
        for other in chain.from_iterable(near):
            if not self.same(lesson, other):
                continue
            if other.status == "vetoed":
                self.context.note(f"not learned again, since {other.id} is vetoed: {lesson.title}")
                return
            self.lessons[lesson.id] = lesson
            for id, changed in promotion.joined(self.lessons, other.id, lesson.id).items():
                self.lessons[id] = changed
            yield Change(kind="merged", lesson=lesson.id, why=f"says the same as {other.id}")
            if not other.frozen:
                now = self.lessons[other.id]
                if now.status == "forgotten":
                    now = self.put_lesson(now, status="candidate", seen=self.observed)
                why = f"{len(now.supports)} experiences of {len(now.groups)} groups"
                yield Change(kind="supported", lesson=other.id, why=why)
            return
        self.lessons[lesson.id] = lesson
        yield Change(
            kind="born", lesson=lesson.id, why=f"of {', '.join(lesson.cited(lesson.born_of))}"
        )

    def same(self, one: Lesson, other: Lesson) -> bool:
        """Ask a model whether two lessons say the same; asked once a pair of texts."""
        first, second = sorted((tell_lesson(one), tell_lesson(other)))
        if first != second and (first, second) not in self.answers:
            found = self.ask("same", SAME, first=first, second=second)
            self.answers[first, second] = found is not None and found.get("same") is True
        return first == second or self.answers[first, second]

    def test(self) -> Iterator[Change]:
        """Re-runs of what is doubted, then of what has the supports for it."""
        by_id = sorted(self.lessons.values(), key=lambda x: x.id)
        yield from self.try_all(each for x in by_id if (each := self.doubted(x)) is not None)
        ripe = sorted(
            (x for x in self.lessons.values() if promotion.ripe(x)),
            key=lambda x: (-len(x.groups), x.id),
        )
        again = [
            x.model_copy(update={"rounds": x.rounds + (x.status == "quarantined")}) for x in ripe
        ]
        yield from self.try_all((x, f"{len(x.groups)} groups support it") for x in again)

    def doubted(
        self, lesson: Lesson, trials: tuple[Trial, ...] | None = None
    ) -> tuple[Lesson, str] | None:
        """Return a pattern as it is tested anew by these trials, or all of its own, and why; None
        for one that is not.

        One whose attempts did not fall most likely helps: it is tested when what is left does to
        find that.
        """
        tried = lesson if trials is None else lesson.model_copy(update={"trials": trials})
        why = promotion.doubted(tried)
        if not why or not self.here(lesson):
            return None
        again = lesson.model_copy(update={"rounds": lesson.rounds + 1})
        test = _Test(again, self.places(again), self.pairs)
        if (
            not promotion.fell(tried)
            and test.going
            and not self.affords(test, self.needed(test, [1.0]))
        ):
            return None
        return again, why

    def try_all(self, doubts: Iterable[tuple[Lesson, str]]) -> Iterator[Change]:
        """Test these lessons, and settle what became of each whose test came to an end."""
        lessons = []
        reasons = []
        for lesson, why in doubts:
            lessons.append(lesson)
            reasons.append(why)
        for why, (tested, done) in zip(reasons, self.measure(lessons), strict=True):
            if done:
                self.lessons[tested.id] = tested
                yield from self.settle(tested, why)

    def measure(self, lessons: Sequence[Lesson]) -> list[tuple[Lesson, bool]]:
        """Return (each lesson with the re-runs of one test, whether that came to an end): until
        decided, or `pairs` of them.

        Re-runs go side by side as far as they are made whatever the others say: those of one lesson
        until its test could end, those of the next ones while re-runs are left for all that the
        tests before them may take. So the same are made as one after the other, in any number at
        once.

        A test is not begun, nor gone on with, where what is left cannot end it. One that re-runs
        cannot be paid for has not ended: what was measured is dropped, and found again by the same
        addresses when it is tried anew. A place that cannot be re-run (its image cannot be had) is
        passed over while GROUPS of others are left.
        """
        tests = [_Test(lesson, self.places(lesson), self.pairs) for lesson in lessons]
        while going := [test for test in tests if test.going]:
            room = self.context.room()
            asked = list[tuple[_Test, _Pair]]()
            for test in going:
                room -= 2 * test.remaining
                if asked and room < 0:
                    break
                count = self.needed(test)
                if self.affords(test, count):
                    asked += [(test, pair) for pair in test.next(count)]
                else:
                    test.places = []
            if not asked:
                continue
            groups = [pair.group(test.lesson) for test, pair in asked]
            for (test, pair), scores in zip(asked, self.context.reruns(groups), strict=False):
                test.take(pair, *scores)
                if test.going and test.made and self.decided(test.lesson, test.made):
                    test.done = True
        return [test.outcome for test in tests]

    def affords(self, test: _Test, count: int) -> bool:
        """Whether what is left does for so many more pairs of a test."""
        return self.context.affords([pair.group(test.lesson) for pair in test.next(count)])

    def needed(self, test: _Test, diffs: Sequence[float] = (1.0, -1.0)) -> int:
        """Return how many more pairs a test takes whatever they say: until they decide if all say
        the same, one of `diffs`, for no other scores decide sooner (`promotion.finding` is
        monotone)."""
        lesson = test.lesson
        made = test.made
        for n in range(1, test.remaining):
            if any(self.decided(_supposed(lesson, n, diff), made + n) for diff in diffs):
                return n
        return test.remaining

    def decided(self, lesson: Lesson, made: int) -> bool:
        """Whether a test ends after so many pairs."""
        odds = promotion.ODDS if lesson.status == "active" else self.context.odds
        found = promotion.finding(lesson.gains, lesson.rounds, odds)
        return found == "useless" or (found == "helps" and made >= LEAST)

    def places(self, lesson: Lesson) -> list[Experience]:
        """Return where a test re-runs: one experience a task, the groups in turn.

        Those that support it, the newest first: there it applies, which is not said of all to which
        it was offered; these are asked when too few of the others can be attempted (a pattern of
        another domain, an imported one, other tasks by now). When they are few, others that are as
        near to its text as its supports are.
        """
        own = self.find_experiences(reversed(lesson.supports))
        if len({e.group for e in own}) < promotion.GROUPS:
            own += self.find_experiences(t.experience for t in reversed(lesson.trials))
        places = _by_task(own)
        if own and len(places) < PLACES:
            near_it = self.context.alike(text_of(lesson), 3 * PLACES)
            more = [e for e in near_it if e.task not in places and self.context.there(e)]
            (here,) = self.similarity.vectors([text_of(lesson)])
            near, far = (
                [dot(here, vector) for vector in self.similarity.vectors([e.prompt for e in some])]
                for some in (own[:PLACES], more)
            )
            places |= _by_task(
                [e for cosine, e in zip(far, more, strict=True) if cosine >= sum(near) / len(near)]
            )
        return _in_turn(list(places.values()))[:PLACES]

    def find_experiences(self, ids: Iterable[str]) -> list[Experience]:
        """Return the experiences of this domain among these whose tasks can be attempted."""
        found = (self.batch.get(id) or self.context.find(id) for id in ids)
        return [
            e
            for e in found
            if e is not None and e.domain == self.context.domain and self.context.there(e)
        ]

    def settle(self, lesson: Lesson, why: str) -> Iterator[Change]:
        """Yield what a test makes of a lesson."""
        mean, lo, hi = promotion.bound(lesson.gains, lesson.rounds)
        pairs = sum(g.round == lesson.rounds for g in lesson.gains)
        why = f"{why}; gain {mean:+.2f}, 80 % bounds {lo:+.2f} to {hi:+.2f}, {pairs} re-runs"
        yield Change(kind="tested", lesson=lesson.id, why=why)
        if promotion.earned(lesson, self.context.odds):
            domains = tuple(dict.fromkeys((*lesson.domains, self.context.domain)))
            scope = "general" if len(domains) > 1 else "domain"
            self.put_lesson(
                lesson, status="active", scope=scope, domains=domains, seen=self.observed
            )
            yield Change(kind="promoted", lesson=lesson.id, why=why)
        elif promotion.is_lost(lesson):
            yield from self.fall(lesson, why, "its lower bound is not above 0")
        if promotion.finding(lesson.gains, lesson.rounds) == "helps":
            yield from self.stands(lesson.id, why)

    def stands(self, id: str, why: str) -> Iterator[Change]:
        """Make a general pattern one of this domain too, where its re-runs here say that it
        helps."""
        lesson = self.lessons[id]
        domain = self.context.domain
        new = lesson.scope == "general" and domain not in lesson.domains and self.here(lesson)
        if new and lesson.status == "active":
            self.put_lesson(lesson, domains=(*lesson.domains, domain))
            yield Change(kind="supported", lesson=id, why=f"it stands in {domain} too: {why}")

    def fall(self, lesson: Lesson, why: str, quarantined: str) -> Iterator[Change]:
        """Take a pattern out of use here; where it stands in no other domain it is quarantined,
        which is said so. What was drawn before speaks for it no more."""
        here = self.context.domain
        domains = tuple(d for d in lesson.domains if d != here)
        self.put_lesson(
            lesson,
            status="active" if domains else "quarantined",
            scope="general" if len(domains) > 1 else "domain",
            domains=domains,
            failed_in=promotion.union(lesson.failed_in, (here,)) if domains else (),
            falls=lesson.falls + 1,
            tested=max(lesson.tested, len(lesson.supports)),
        )
        yield Change(kind="demoted", lesson=lesson.id, why=why)
        if not domains:
            yield Change(kind="quarantined", lesson=lesson.id, why=quarantined)

    def generalise(self) -> Iterator[Change]:
        """Make a domain pattern a general one where another domain has a pattern of the same
        meaning."""
        for lesson in sorted(self.lessons.values(), key=lambda x: x.id):
            if lesson.scope != "domain" or lesson.status != "active" or not promotion.free(lesson):
                continue
            if not self.here(lesson):
                continue
            there = [x for x in self.context.elsewhere if x.status == "active"]
            for other in self.similarity.nearest(lesson, there, NEAR, ASKED):
                if self.same(lesson, other):
                    domains = tuple(dict.fromkeys((*lesson.domains, *other.domains)))
                    if len(domains) > 1:
                        self.put_lesson(lesson, scope="general", domains=domains)
                        why = f"a pattern of {' and '.join(domains)}; there it is {other.id}"
                        yield Change(kind="promoted", lesson=lesson.id, why=why)
                        break

    def shed(self) -> Iterator[Change]:
        """Forget what nobody used, and what does not fit."""
        for lesson in list(self.lessons.values()):
            unused = self.observed - lesson.seen
            free = promotion.free(lesson) and lesson.status != "forgotten"
            if free and unused > FORGET and self.context.domain not in lesson.failed_in:
                self.put_lesson(lesson, status="forgotten")
                yield Change(
                    kind="forgotten", lesson=lesson.id, why=f"unused for {unused} attempts"
                )
        for lesson in promotion.find_surplus(
            [x for x in self.lessons.values() if self.here(x)], PATTERNS, CHARACTERS
        ):
            self.put_lesson(lesson, status="forgotten")
            why = f"the weakest of more than {PATTERNS} patterns or {CHARACTERS} characters"
            yield Change(kind="forgotten", lesson=lesson.id, why=why)


class _Pair(NamedTuple):
    """A re-run with a lesson, and one without."""

    place: Experience
    repeat: int

    def group(self, lesson: Lesson) -> RerunGroup:
        given = self.place, self.repeat, [lesson]
        return [RerunRequest([lesson], *given), RerunRequest([], *given)]


class _Test:
    """A test of one lesson under way: places in turn, pairs that were made."""

    def __init__(self, lesson: Lesson, places: list[Experience], pairs: int) -> None:
        self.begun = self.lesson = lesson
        self.places = places
        self.most = pairs * (2 if lesson.status == "active" else 1)
        self.made = 0
        self.done = False
        self.repeats: dict[str, int] = {}
        for gain in lesson.gains:
            self.repeats[gain.task] = max(self.repeats.get(gain.task, 0), gain.repeat + 1)

    @property
    def remaining(self) -> int:
        return self.most - self.made

    @property
    def going(self) -> bool:
        return not self.done and len({e.group for e in self.places}) >= promotion.GROUPS

    @property
    def outcome(self) -> tuple[Lesson, bool]:
        if not self.done:
            return self.begun, False
        return self.lesson.model_copy(update={"tested": len(self.lesson.supports)}), True

    def next(self, count: int) -> Iterator[_Pair]:
        repeats = dict(self.repeats)
        for n in range(self.made, self.made + count):
            place = self.places[n % len(self.places)]
            repeat = repeats.get(place.task, 0)
            repeats[place.task] = repeat + 1
            yield _Pair(place, repeat)

    def take(self, pair: _Pair, having: float | None, lacking: float | None) -> None:
        place = pair.place
        if having is None or lacking is None:
            self.places = [e for e in self.places if e is not place]
            return
        self.made += 1
        self.repeats[place.task] = pair.repeat + 1
        gain = Gain(
            experience=place.id,
            group=place.group,
            diff=having - lacking,
            repeat=pair.repeat,
            task=place.task,
            round=self.lesson.rounds,
        )
        self.lesson = promotion.measured_more(self.lesson, [gain])
        self.done = self.made >= self.most


def _supposed(lesson: Lesson, count: int, diff: float) -> Lesson:
    """Return the lesson with so many more pairs that all say the same."""
    more = (
        Gain(
            experience="",
            group="",
            diff=diff,
            repeat=n,
            task=f"supposed {diff}",
            round=lesson.rounds,
        )
        for n in range(count)
    )
    return lesson.model_copy(update={"gains": (*lesson.gains, *more)})


def _by_task(experiences: Sequence[Experience]) -> dict[str, Experience]:
    """Return the first experience of each task, in their order."""
    found: dict[str, Experience] = {}
    for e in experiences:
        found.setdefault(e.task, e)
    return found


def _in_turn(experiences: Sequence[Experience]) -> list[Experience]:
    """Return one of each group, then a second of each, ..."""
    groups: dict[str, list[Experience]] = {}
    for e in experiences:
        groups.setdefault(e.group, []).append(e)
    longest = max(map(len, groups.values()), default=0)
    return [members[n] for n in range(longest) for members in groups.values() if n < len(members)]
