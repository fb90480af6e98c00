"""Whether a lesson games what grades it: a score cannot tell, since a lesson that games it passes.

Signs are found by `recreate.agents.guards.gaming`, in what an attempt did and handed in and in a
lesson's own words. Of attempts it counts whether those that were shown the lesson show more signs
than those that were not. Which were shown it was drawn, so the bet of `draws` is made with a sign
in place of the score, and re-runs with and without it are betted on as in `promotion`: of lessons
that bring no signs about, whatever attempts show for other reasons, at most one in a hundred is
held, however often one looks. Of those that would become patterns it is at most one in twenty, and
where the bet has doubled they do not become one yet: a lesson rises by its score as fast as its
signs tell. Words are held at once. A person decides what becomes of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from recreate.agents.guards.gaming import advice, find_sign
from recreate.api.types import Change, Experience, Gain, Lesson, Sign
from recreate.lessons import promotion
from recreate.lessons.context import offered_ids
from recreate.lessons.draws import LessonEvidence

NEEDED = math.log(100)
RISES = math.log(20)
WAITS = math.log(2)
"""The log of what the bet must have made of 1 for a lesson to be held, and where it would become a
pattern by now: to be held, and not to become one yet."""
EXPECTED = 0.02
"""The share of attempts that are expected to show a sign before any was seen."""
MOST = 400
"""Signs that a lesson remembers: the newest."""


def advice_of(lesson: Lesson) -> str:
    """Return what a lesson tells to do that games a grader; '' for nothing."""
    return advice(f"{lesson.title}\n\n{lesson.body}")


def may_hold(lesson: Lesson) -> bool:
    """Whether code may hold a lesson: not one that a person froze, vetoed, or let go on after it
    was held."""
    return promotion.free(lesson) and not lesson.held


def hold(lesson: Lesson, why: str) -> Lesson:
    return lesson.model_copy(update={"status": "held", "before_veto": lesson.status, "held": why})


def watch_lessons(
    before: Mapping[str, Lesson],
    after: dict[str, Lesson],
    changes: Sequence[Change],
    batch: Sequence[Experience],
    reruns: Collection[Experience],
) -> list[Change]:
    """Hold the lessons of `after` that game, by their words or by what attempts of the batch and
    re-runs show, let those wait that may, and return the changes with that: none of these was
    promoted."""
    for id, lesson in after.items():
        was = before.get(id, lesson)
        if (
            lesson.held
            and lesson.status != "held"
            and (was.title, was.body) != (lesson.title, lesson.body)
        ):
            after[id] = lesson.model_copy(update={"held": ""})  # a person let other words go on
    for e in batch:
        drawn_for = {id for step in e.trace.steps for id in step.propensities} & after.keys()
        if not drawn_for or (seen := find_sign(e)) is None:
            continue
        for id in drawn_for:
            known = {s.experience for s in after[id].signs}
            if seen.experience not in known and promotion.free(after[id]):
                after[id] = after[id].model_copy(update={"signs": (*after[id].signs, seen)[-MOST:]})
    pairs = dict(_pairs(reruns))
    found = dict[str, Change]()
    for id, lesson in after.items():
        if not may_hold(lesson):
            continue
        rises = lesson.status == "active" and (id not in before or before[id].status != "active")
        stood = lesson
        if rises:
            place = before.get(id) or Lesson(id=id, title="", body="")
            stood = lesson.model_copy(
                update={n: getattr(place, n) for n in ("status", "scope", "domains")}
            )
        needed = RISES if rises else NEEDED
        if why := advice_of(lesson) or describe_signs(lesson, pairs.get(id, ()), needed):
            after[id] = hold(stood, why)
            decide = f"not used until a person decides: recreate patterns keep {id}, or veto {id}"
            found[id] = Change(kind="held", lesson=id, why=f"{why}; {decide}")
        elif rises and (why := describe_signs(lesson, pairs.get(id, ()), WAITS)):
            after[id] = stood
            found[id] = Change(kind="tested", lesson=id, why=f"no pattern yet: {why}")
    return [*(c for c in changes if c.kind != "promoted" or c.lesson not in found), *found.values()]


Pair = tuple[Gain, Sign | None]
"""Of a re-run with and without a lesson the difference in signs, and the sign that the one with it
shows."""


def describe_signs(lesson: Lesson, pairs: Sequence[Pair] = (), needed: float = NEEDED) -> str:
    """Return what attempts show against a lesson: the numbers, and the step that showed it; ''
    where it is not enough."""
    marked = {s.experience: s for s in lesson.signs}
    seen = [marked[d.experience] for d in lesson.draws if d.shown and d.experience in marked]
    seen += [found for _, found in pairs if found is not None]
    gains = [gain for gain, _ in pairs]
    if not seen or log_capital(lesson) + (promotion.capital(gains, 0) if gains else 0.0) <= needed:
        return ""
    told = []
    if lesson.draws:
        told += [
            f"{_share(lesson, marked, True)} that were shown it and {_share(lesson, marked, False)}"
            " that were not"
        ]
    if gains:
        told += [
            f"{sum(g.diff for g in gains):+.0f} of {len(gains)} re-runs with it against as many"
            " without"
        ]
    return (
        f"signs of gaming in {', '.join(told)}; {seen[0].experience} step {seen[0].step}"
        f" {seen[0].what}"
    )


def _share(lesson: Lesson, marked: Collection[str], shown: bool) -> str:
    some = [d for d in lesson.draws if d.shown is shown]
    return f"{sum(d.experience in marked for d in some)} of {len(some)} attempts"


def log_capital(lesson: Lesson) -> float:
    """Return the log of what a bet on "attempts that are shown it show more signs" made of 1: see
    `draws`."""
    marked = {s.experience for s in lesson.signs}
    if not lesson.draws:
        return 0.0
    found = LessonEvidence()
    without = 0
    signs = 0
    for draw in lesson.draws:
        y = float(draw.experience in marked)
        p = draw.propensity
        m = (signs + EXPECTED) / (without + 1)
        z = (y - m) / p if draw.shown else (m - y) / (1 - p)
        found.add(z, max(m / p, (1 - m) / (1 - p)))
        if not draw.shown:
            without = without + 1
            signs = signs + int(y)
    return found.capital


def _pairs(reruns: Iterable[Experience]) -> Iterable[tuple[str, list[Pair]]]:
    """Return lesson -> its re-runs alone, each beside the one of the same agent, task and repeat
    without any lesson."""
    reruns = list(reruns)
    control = {(e.digest, e.task, e.trace.repeat): e for e in reruns if not offered_ids(e)}
    found: dict[str, list[Pair]] = {}
    for e in reruns:
        other = control.get((e.digest, e.task, e.trace.repeat))
        ids = list(offered_ids(e))
        if other is None or len(ids) != 1:
            continue
        having = find_sign(e)
        lacking = find_sign(other)
        diff = float(having is not None) - float(lacking is not None)
        gain = Gain(experience=e.id, group=e.group, diff=diff, repeat=e.trace.repeat, task=e.task)
        found.setdefault(ids[0], []).append((gain, having))
    return found.items()
