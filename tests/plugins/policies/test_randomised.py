"""Offers that are drawn: bets that are won no more often than they may be, and patterns that fall
when they turn."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from recreate.agents.lesson import headed, read_lesson
from recreate.agents.retrieval import draw_lesson
from recreate.api.types import Change, Draw, Experience, Lesson
from recreate.lessons.context import RerunGroup
from recreate.lessons.promotion import ODDS
from recreate.plugins.policies import beliefs
from recreate.plugins.policies.randomised import STAND, Randomised, _Alone
from tests.policies import Reruns, attempted, held

Rate = Callable[[bool, int], float]


WON = math.log(ODDS)


def rows(seed: int, rate: Rate, count: int = 200) -> beliefs.ScoreModel:
    """What draws say of a lesson `x` beside one that helps: rate(whether x is shown, the task's
    number)."""
    found, chance = beliefs.ScoreModel(), random.Random(seed)
    for at in range(count):
        task = chance.randrange(12)
        given = {id: found.propensity(id, 0.15, 0.7) for id in ("x", "other")}
        shown = {id: chance.random() < p for id, p in given.items()}
        score = float(chance.random() < rate(shown["x"], task) + 0.3 * shown["other"])
        drawn = {
            id: Draw(
                experience=f"e{at}",
                task=f"t{task}",
                group=f"g{task % 3}",
                score=score,
                shown=shown[id],
                propensity=p,
                at=at,
            )
            for id, p in given.items()
        }
        found.add(beliefs.DrawnAttempt(at, score, f"t{task}", f"g{task % 3}", drawn))
    return found


def won(rate: Rate, streams: int = 60, count: int = 200) -> float:
    """The share of streams at whose end the bet on `x` is won."""
    return (
        sum(rows(seed, rate, count).evidence["x"].capital > WON for seed in range(streams))
        / streams
    )


@pytest.mark.slow
def test_a_bet_on_draws_is_seldom_won_by_a_lesson_without_effect_whatever_the_tasks_are() -> None:
    assert won(lambda shown, task: 0.1 + 0.05 * task) <= 0.10
    assert won(lambda shown, task: 0.1 + 0.05 * task - 0.1 * shown) == 0.0


def test_a_bet_on_draws_is_mostly_won_by_a_lesson_that_helps() -> None:
    assert won(lambda shown, task: 0.1 + 0.02 * task + 0.35 * shown, count=120) >= 0.8


@pytest.mark.slow
def test_the_estimate_is_the_effect() -> None:
    means = [
        rows(seed, lambda shown, task: 0.2 + 0.3 * shown).evidence["x"].mean[0]
        for seed in range(60)
    ]
    assert sum(means) / len(means) == pytest.approx(0.3, abs=0.03)


def test_a_draw_is_the_same_for_the_same_attempt_and_comes_as_often_as_its_probability_says() -> (
    None
):
    shown = [draw_lesson(f"attempt {n}", "x", 0.3) for n in range(2000)]
    assert shown == [draw_lesson(f"attempt {n}", "x", 0.3) for n in range(2000)]
    assert sum(shown) / 2000 == pytest.approx(0.3, abs=0.04)
    assert shown != [draw_lesson(f"attempt {n}", "y", 0.3) for n in range(2000)]


def seen(*scores: float, falls: int = 0, since: int = 0) -> tuple[Draw, ...]:
    """Draws of a lesson, one an attempt: it is shown to every second."""
    at = range(since, since + len(scores))
    given = {"task": "t", "group": "g", "propensity": 0.5, "falls": falls}
    return tuple(
        Draw(experience=f"e{n}", score=s, shown=n % 2 == 0, at=n, **given)
        for n, s in zip(at, scores, strict=True)
    )


def test_a_lesson_that_fell_is_on_trial_from_the_beginning() -> None:
    helped, since = seen(*[1.0, 0.0] * 30), seen(*[0.0, 0.0] * 5, falls=1, since=60)
    stood = beliefs.read_draws({"x": Lesson(id="x", title="X", body="b", draws=helped)})
    fell = beliefs.read_draws(
        {"x": Lesson(id="x", title="X", body="b", falls=1, draws=(*helped, *since))}
    )
    assert stood.evidence["x"].capital > WON
    assert (fell.evidence["x"].count, fell.evidence["x"].shown) == (
        10,
        5,
    ), "what spoke for it before speaks no more"
    assert fell.evidence["x"].capital < 0


def test_a_pattern_that_was_re_run_alarms_by_what_came_since() -> None:
    turned = (*seen(*[1.0, 0.0] * 30), *seen(*[0.0, 1.0] * 10, since=60))
    lesson = Lesson(id="x", title="X", body="b", draws=turned)
    assert beliefs.read_draws({"x": lesson}).evidence["x"].alarm > 1
    assert (
        beliefs.read_draws({"x": lesson.model_copy(update={"checked": 80})}).evidence["x"].alarm
        == 0
    )
    later = beliefs.read_draws({"x": lesson.model_copy(update={"checked": 70})}).evidence["x"].alarm
    assert 0 < later < beliefs.read_draws({"x": lesson}).evidence["x"].alarm


class Batches:
    """A policy that observes batches of eight; `learned`: all changes."""

    def __init__(
        self, lesson: Lesson, rerun: Callable[..., float | None], odds: float = ODDS
    ) -> None:
        self.known: dict[str, Experience] = {}
        for n in range(6):
            self.known[f"s{n}"] = attempted(f"s{n}", task=f"task-{n}", group=f"g{n % 3}")
        supports = tuple(self.known)
        lesson = lesson.model_copy(
            update={"supports": supports, "born_of": supports, "groups": ("g0", "g1", "g2")}
        )
        self.context = held(
            rerun=rerun,
            lessons={lesson.id: lesson},
            experiences=list(self.known.values()),
            odds=odds,
        )
        self.policy = Randomised(self.context)
        self.learned: list[Change] = []
        self.chance = random.Random(1)
        self.count = 0

    def observe(self, rate: Callable[[bool], float], batches: int) -> None:
        for _ in range(batches):
            batch = []
            for _ in range(8):
                p = self.policy.propensities().get("x", 0.0)
                shown = self.chance.random() < p
                n = self.count = self.count + 1
                e = attempted(
                    f"e{n}",
                    passed=self.chance.random() < rate(shown),
                    task=f"task-{n % 6}",
                    group=f"g{n % 3}",
                    offered=("x",) if shown else (),
                )
                step = e.trace.steps[0].model_copy(update={"propensities": {"x": p} if p else {}})
                batch.append(
                    e.model_copy(update={"trace": e.trace.model_copy(update={"steps": (step,)})})
                )
            self.learned += self.policy.observe(batch)

    @property
    def lesson(self) -> Lesson:
        return self.context.lessons["x"]


LESSON = Lesson(id="x", title="Read the failing test first", body="It says what is expected.")


def test_a_lesson_that_helps_becomes_a_pattern_by_draws_alone_and_falls_soon_after_it_turned() -> (
    None
):
    """Without a re-run until it turned; the re-runs with it alone then say that it has no
    effect."""
    reruns = Reruns(with_=0.0)
    found = Batches(LESSON, reruns)
    found.observe(lambda shown: 0.9 if shown else 0.3, 12)
    assert found.lesson.status == "active"
    assert found.lesson.scope == "domain"
    found.observe(lambda shown: 0.3, 1)
    assert (found.lesson.status, found.lesson.falls) == ("quarantined", 1)
    assert found.policy.offer("Mend the parser", 600) == []
    assert found.policy.eligible("Mend the parser", 600) == []
    assert found.policy.propensities() == {}
    before = len(found.lesson.draws)
    found.observe(lambda shown: 0.3, 1)
    assert len(found.lesson.draws) == before  # of an attempt that supports it nothing was drawn
    assert [x.id for x in found.policy.eligible("Mend the parser", 600)] == ["x"], (
        "it is on trial again, by what is new"
    )


def test_a_carried_pattern_that_turned_false_does_not_return_on_its_old_draws() -> None:
    found = Batches(LESSON, Reruns(with_=0.0, without=1.0))
    found.observe(lambda shown: 1.0 if shown else 0.0, 12)
    assert found.lesson.status == "active"
    for batch in range(4):
        carried = [
            attempted(
                f"c{batch}-{n}",
                passed=batch < 1,
                task=f"task-{n % 6}",
                group=f"g{n % 3}",
                offered=("x",),
            )
            for n in range(8)
        ]
        found.learned = list(found.policy.observe(carried))
        if found.lesson.status == "quarantined":
            break
    became = [c.kind for c in found.learned if c.kind in ("demoted", "quarantined", "promoted")]
    assert became == ["demoted", "quarantined"]
    assert (found.lesson.status, found.lesson.falls) == ("quarantined", 1)
    assert [c.kind for c in found.policy.observe([])] == []


def test_a_lesson_that_is_drawn_becomes_a_pattern_at_the_odds_that_are_asked_for() -> None:
    taken = {}
    for odds in (2.0, 5.0, 100.0):
        found = Batches(LESSON, Reruns(with_=0.0), odds)
        taken[odds] = 0
        while found.lesson.status != "active" and taken[odds] < 40:
            found.observe(lambda shown: 0.9 if shown else 0.3, 1)
            taken[odds] += 1
    assert taken[2.0] <= taken[5.0] < taken[100.0] < 40


@pytest.mark.parametrize("helps", [True, False])
def test_patterns_are_re_run_side_by_side_after_an_alarm_as_they_would_be_one_after_the_other(
    helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alarm of all of them: those are re-run at once that are re-run whatever the others
    say."""
    born = [attempted(f"s{n}", task=f"task-{n}", group=f"g{n % 3}") for n in range(6)]
    supports = tuple(e.id for e in born)
    found = []
    for side_by_side in (True, False):
        waves: list[list[tuple[str, str, int]]] = []

        def reruns(groups: Sequence[RerunGroup], waves: Any = waves) -> list[list[float | None]]:
            waves.append([(r.lessons[0].id, r.experience.task, r.repeat) for (r,) in groups])
            rate = 0.8 if helps else 0.2
            return [[float(random.Random(f"{each}").random() < rate)] for each in waves[-1]]

        lessons = {
            f"p{n}": Lesson(
                id=f"p{n}",
                title=f"Way {n}",
                body="b",
                status="active",
                supports=supports,
                born_of=supports,
            )
            for n in range(9)
        }
        policy = Randomised(held(lessons=lessons, experiences=born, side_by_side=reruns))
        policy.beliefs.common = 4.0
        if not side_by_side:
            policy.context = replace(policy.context, room=lambda: 0)
            several = _Alone.next
            monkeypatch.setattr(
                _Alone, "next", lambda self, several=several: islice(several(self), 1)
            )
        found.append((list(policy.test()), sorted(each for wave in waves for each in wave), waves))
    (changes, made, waves), (alone, again, ones) = found
    assert (changes, made) == (alone, again)
    assert max(map(len, ones)) == 1
    assert len({id for id, *_ in waves[0]}) == STAND
    assert len({id for id, *_ in made}) == (STAND if helps else 9)


@pytest.mark.parametrize("alarm", [False, True])
def test_a_general_pattern_whose_re_runs_here_say_that_it_helps_is_one_of_this_domain_too(
    alarm: bool,
) -> None:
    """Be it doubted since the agent carries it for long, or after an alarm of all lessons."""
    there = {"status": "active", "scope": "general", "domains": ("alpha", "beta")}
    found = Batches(LESSON.model_copy(update=there), Reruns())
    if alarm:
        found.policy.beliefs.common = 4.0
    for n in range(24):
        e = attempted(f"c{n}", passed=True, task=f"task-{n % 6}", group=f"g{n % 3}", offered=("x",))
        found.learned += found.policy.observe([e])
    assert found.lesson.domains == ("alpha", "beta", "code")
    assert any(c.kind == "supported" and "stands in code too" in c.why for c in found.learned)


def test_attempts_that_carried_a_lesson_count_apart_from_those_offered_it() -> None:
    found = Batches(LESSON.model_copy(update={"status": "active"}), Reruns())
    plain, carrying = (attempted("own", offered=()), attempted("own", offered=("x",)))
    found.known["own"] = plain  # as memory has it: the agent's own files are no offer
    policy = Randomised(replace(found.context, find=found.known.get))
    policy.observe([carrying, attempted("given", offered=("x",))])
    lesson = policy.lessons["x"]
    assert (lesson.offered, lesson.carried, len(lesson.trials)) == (1, 1, 2)
    assert read_lesson("x", headed(lesson)) == lesson


def test_a_lesson_without_effect_stays_on_trial() -> None:
    found = Batches(LESSON, Reruns(with_=0.0, without=0.0))
    found.observe(lambda shown: 0.4, 30)
    assert found.lesson.status == "candidate"
    assert found.policy.offer("Mend the parser", 600) == []


def test_a_policy_made_anew_from_the_files_draws_with_the_same_probabilities() -> None:
    found = Batches(LESSON, Reruns())
    found.observe(lambda shown: 0.7 if shown else 0.4, 6)
    lesson = read_lesson("x", headed(found.lesson))
    anew = Randomised(
        held(lessons={"x": lesson}, experiences=list(found.known.values()), observed=found.count)
    )
    assert anew.propensities() == pytest.approx(found.policy.propensities())


def test_draws_and_what_is_made_of_them_do_not_ask_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for clock in (lambda: 1.8e9, lambda: random.SystemRandom().uniform(0, 4e9)):
        monkeypatch.setattr("time.time", clock)
        found.append(Batches(LESSON, Reruns()))
        found[-1].observe(lambda shown: 0.7 if shown else 0.4, 6)
    assert found[0].lesson == found[1].lesson
    assert found[0].learned == found[1].learned


def test_what_a_person_vetoed_or_froze_is_not_drawn_into_anything() -> None:
    found = Batches(LESSON.model_copy(update={"status": "vetoed"}), Reruns())
    assert found.policy.propensities() == {}
    assert found.policy.eligible("Mend the parser", 600) == []
