"""What a lesson's evidence says of it: pure decisions from counts and intervals, the same for the
same evidence.

The interval of a gain. Each re-run with and without a lesson gives one difference in -1..1, mostly
-1, 0 or 1, and a decision must be possible after a dozen and at any moment. So: a confidence
sequence by betting (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", JRSS B 86, 2024). To test "the gain is at most m" one bets a share of one's capital on
each difference; if it is true, capital grows 5-fold with probability at most 1/5, however often one
looks (Ville's inequality). The lower 80 % bound is the largest m at which it did; the upper one
mirrors it. The capital is a mixture over fixed stakes, so it does not depend on the order, and no
difference that grows can lower it. Nothing is assumed of the distribution but its bounds and that
re-runs are independent given the gain. What is not covered: that the gain differs between groups;
so re-runs take the groups in turn, and three of them must have been measured.

Rules turn false. Whenever a lesson is doubted a new round of re-runs begins, and what was measured
in the round before weighs FADE of what it did. A weight below 1 is a smaller stake, so the bound
stays one.

Measured (48 re-runs at most, 12 at least, looked at after each; a rate of 0.45 without the lesson):
a lesson of no effect is found to help in 7 % of tests, one that lowers the rate by 0.10 in 2 %; one
that raises it by 0.25 in 74 % after 28 re-runs on average, by 0.35 in 96 % after 20.
tests/lessons/test_promotion.py repeats part of this.

    promote      3 independent groups support it, 3 were measured, lower bound above 0
    keep         the same bound, with fresh evidence, each time it is doubted
    quarantine   the bound is not above 0 when its re-runs are used up, or an upper one of 95 % is
                 below WORTH
    doubt        attempts in which it was offered score worse than they used to (Page's test on
                 their scores), or so many were seen that it is due
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeVar

from recreate.api.types import Gain, Lesson, Trial, least_trust

ODDS = 5.0
"""What a bet on "it helps" must have made of 1 (`--memory.odds`): at most 1 in so many that do not
help gets there."""
GROUPS = 3
WORTH = 0.15
GIVE_UP = 0.95
"""A test ends when the upper bound is below WORTH: the lesson may help, but not by what its words
cost. This bound has a higher level, since a lesson that is given up waits long for its next test
and one more re-run costs little."""
FADE = 0.25
STAKES = tuple((n + 0.5) / 10 for n in range(10))
SLACK = 0.10
ALARM = 1.0
DUE = 20
DUE_MOST = 80
"""Trials until the next test in any case: DUE after the first, twice as many after each that it
stood, to DUE_MOST."""
TRIALS = 400
"""Trials that a lesson remembers: the newest."""

Finding = Literal["helps", "useless", "open"]


def finding(gains: Sequence[Gain], rounds: int, odds: float = ODDS) -> Finding:
    """Return what the re-runs say: `helps` when a bet on it is won at these odds (at ODDS: when the
    lower bound is above 0), `useless` when the upper bound (95 %) is below WORTH.

    Monotone: greater differences never turn `helps` into something else. At most one in `odds`
    lessons whose gain is not above 0 is ever found to help, however often this is asked within a
    round.
    """
    pairs = _weighed(gains, rounds)
    if _capital(pairs, 0.0) > math.log(odds):
        return "helps"
    return "useless" if hopeless(gains, rounds, -math.log(1 - GIVE_UP)) else "open"


def hopeless(gains: Sequence[Gain], rounds: int, needed: float) -> bool:
    """Whether a bet on "its gain is below WORTH" made so much of 1, as a log."""
    return _capital([(-x, w) for x, w in _weighed(gains, rounds)], -WORTH) > needed


def capital(gains: Sequence[Gain], rounds: int) -> float:
    """Return the log of what betting on "it helps" made of 1; above log 5 the lower 80 % bound is
    above 0."""
    return _capital(_weighed(gains, rounds), 0.0)


def bound(gains: Sequence[Gain], rounds: int) -> tuple[float, float, float]:
    """Return (weighed mean, lower, upper 80 % bound) of a lesson's gain; (0, -1, 1) without a
    re-run."""
    pairs = _weighed(gains, rounds)
    total = sum(w for _, w in pairs)
    mean = sum(x * w for x, w in pairs) / total if total else 0.0
    return mean, _lower(pairs), -_lower([(-x, w) for x, w in pairs])


def measured(gains: Sequence[Gain]) -> int:
    """Return how many groups were re-run."""
    return len({gain.group for gain in gains})


def earned(lesson: Lesson, odds: float = ODDS) -> bool:
    """Whether a candidate becomes a domain pattern; a frozen one stays what it is, a vetoed one
    too."""
    return (
        may_rise(lesson)
        and len(set(lesson.groups)) >= GROUPS
        and measured(lesson.gains) >= GROUPS
        and finding(lesson.gains, lesson.rounds, odds) == "helps"
    )


def is_lost(lesson: Lesson) -> bool:
    """Whether a pattern whose re-runs are used up is to be quarantined."""
    return (
        free(lesson)
        and lesson.status == "active"
        and finding(lesson.gains, lesson.rounds) != "helps"
    )


def free(lesson: Lesson) -> bool:
    """Whether code may change it: a person neither froze nor vetoed it nor is to decide, and it
    joined no other."""
    return not lesson.frozen and lesson.status not in ("vetoed", "merged", "held")


def may_rise(lesson: Lesson) -> bool:
    """Whether code may try a lesson, and make it a pattern: what others said is never shown to an
    agent unless a person let it."""
    return free(lesson) and lesson.trusted and lesson.status in ("candidate", "quarantined")


def ripe(lesson: Lesson) -> bool:
    """Whether a candidate, or a quarantined pattern, has the supports for a (new) test.

    A further test wants twice the supports of the last: re-runs go where evidence grows, and a rule
    that is often proposed and never helps gets few chances.
    """
    if not may_rise(lesson):
        return False
    return len(set(lesson.groups)) >= GROUPS and len(lesson.supports) >= 2 * lesson.tested


def doubted(lesson: Lesson) -> str:
    """Return why a pattern must be tested anew, or '': its attempts fell, or after so many trials
    (DUE) in any case."""
    if not free(lesson) or lesson.status != "active":
        return ""
    recent = sum(t.round == lesson.rounds for t in lesson.trials)
    due = min(DUE_MOST, DUE << min(lesson.rounds, 10))
    return fell(lesson) or (f"{recent} attempts since its last test" if recent >= due else "")


def fell(lesson: Lesson) -> str:
    """Return how far attempts in which a lesson was offered fell since its last test, where that is
    an alarm, or ''.

    Page's cumulative sum over the trials since then: how far their scores fell below the mean of
    those before them, less SLACK each; above ALARM it is one.
    """
    recent = [t for t in lesson.trials if t.round == lesson.rounds]
    total, count = _before(lesson.trials, lesson.rounds)
    below = 0.0
    for trial in recent:
        if count >= 5:
            below = max(0.0, below + total / count - trial.score - SLACK)
        total = total + trial.score
        count = count + 1
        if below > ALARM:
            return f"attempts in which it was offered score {below:.1f} below those before"
    return ""


def add_trials(lesson: Lesson, trials: Sequence[Trial], carried: Collection[str] = ()) -> Lesson:
    """Return the lesson with more trials; one whose experience is known counts once. carried: the
    experiences among them whose agent was not offered it but had it in its own files."""
    known = {t.experience for t in lesson.trials}
    new = [t for t in {t.experience: t for t in trials}.values() if t.experience not in known]
    if not new:
        return lesson
    kept = (*lesson.trials, *new)[-TRIALS:]
    own = sum(t.experience in carried for t in new)
    counts = {"offered": lesson.offered + len(new) - own, "carried": lesson.carried + own}
    return lesson.model_copy(update={"trials": kept, **counts})


def measured_more(lesson: Lesson, gains: Sequence[Gain]) -> Lesson:
    """Return the lesson with more gains; the same task and repeat counts once."""
    found = {key(gain): gain for gain in (*gains, *lesson.gains)}
    order = dict.fromkeys(key(gain) for gain in (*lesson.gains, *gains))
    return lesson.model_copy(update={"gains": tuple(found[place] for place in order)})


def joined(lessons: Mapping[str, Lesson], id: str, member: str) -> dict[str, Lesson]:
    """Both lessons after `member` joined `id`: the member stays, as `merged`. A frozen target is
    left as it is."""
    target = lessons[id]
    other = lessons[member]
    changed = {member: other.model_copy(update={"status": "merged", "merged_into": id})}
    if not target.frozen:
        changed[id] = target.model_copy(
            update={
                "supports": union(target.supports, other.supports),
                "groups": union(target.groups, other.groups),
                "steps": union(target.steps, other.steps),
                "merged": union(target.merged, (member,)),
                "trust": least_trust((target, other)),
                "seen": max(target.seen, other.seen),
            }
        )
    return changed


def find_surplus(lessons: Sequence[Lesson], patterns: int, characters: int) -> list[Lesson]:
    """Return the active patterns that do not fit the budget: those of the lowest bound; what a
    person froze stays."""
    active = [lesson for lesson in lessons if lesson.status == "active"]
    ranked = sorted(active, key=lambda x: (not x.frozen, -bound(x.gains, x.rounds)[1], x.id))
    out = []
    kept = 0
    size = 0
    for lesson in ranked:
        whole = size + len(lesson.title) + len(lesson.body)
        if (kept >= patterns or whole > characters) and free(lesson):
            out.append(lesson)
        else:
            kept = kept + 1
            size = whole
    return out


Pair = tuple[float, float]
_Each = TypeVar("_Each")


def _weighed(gains: Sequence[Gain], rounds: int) -> list[Pair]:
    """Return (difference, weight) of each gain, each task and repeat once."""
    once = {key(gain): gain for gain in gains}
    return [(max(-1.0, min(1.0, g.diff)), FADE ** max(0, rounds - g.round)) for g in once.values()]


def key(gain: Gain) -> tuple[str, int]:
    """Return what a re-run is of: the same task and repeat counts once."""
    return gain.task or gain.experience, gain.repeat


def _capital(pairs: Sequence[Pair], m: float) -> float:
    """Return the log of what betting on "more than m" made of 1: the mean over the stakes."""
    logs = [sum(math.log1p(stake * w * (x - m) / (1 + m)) for x, w in pairs) for stake in STAKES]
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs) / len(logs))


def _lower(pairs: Sequence[Pair]) -> float:
    low = -1.0
    high = 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if _capital(pairs, middle) > math.log(ODDS) else (low, middle)
    return low


def _before(trials: Sequence[Trial], rounds: int) -> tuple[float, int]:
    scores = [t.score for t in trials if t.round < rounds]
    return sum(scores), len(scores)


def union(first: Sequence[_Each], second: Sequence[_Each]) -> tuple[_Each, ...]:
    """Both in their order, each once."""
    return tuple(dict.fromkeys((*first, *second)))
