"""Search, then show: which candidate is the current agent, and what is claimed of the last one.

A build goes on from whatever scores higher, and claims nothing of it. At its end the agent that it
arrived at is compared with the seed, by attempts at the same tasks, and by further attempts that
chose nothing. Pure functions of scores.

Why not each step against its parent: a build that asks for proof of each step spends its error on
every candidate, and throws away the gain that it could not prove by itself. Steps that helped never
add up. What a user is handed is one agent, so that one comparison is what has to be believed.

    search    A candidate is attempted on the validation tasks in three stretches, in an order of
              its own. It is given up where it falls behind (`is_given_up`), and is the current
              agent where it is ahead of that one on all of them.
    show      The last current agent beside the seed (`conclude`), in up to three looks: by what was
              attempted, and twice more after one further attempt at each task by both. Each look
              spends a part (`looks`) of the error that stood in the agent's terms before its first
              attempt.

    shown     a look found p at most its part of the error
    likely    p at most LIKELY times as much, and ahead in all that was attempted
    none      else

Promise. An agent whose mean score over such tasks is not above the seed's is called `shown` with at
most the chance that its terms give it, whatever chose it: the shares of candidates add up to no
more than `gate.false_keep`, and the looks of one to its share (Bonferroni). Assumed: the validation
tasks are independent draws, and no candidate is made from their scores one by one.

The test. Yes-or-no scores: the signs of the tasks' differences are flipped in all ways, and p is
the share of ways whose sum is at least the one seen. Other scores may rise a little on many tasks
and fall far on few, which signs do not tell. There a capital of 1 is bet on each task in turn, at
one look, and p is 1 / the largest that it became: where the mean is 0 or less that is at best a
fair game (Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B
2024; Ville's inequality). `python -m tests.lab.search` simulates both; figures in docs/log.md.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from recreate.api.registry import find
from recreate.api.types import GateClaim, Look, Saving, Verdict
from recreate.runs.gate import MAX_DROPPED, MIN_TASKS, Scores, alone, flip_signs, judge, saved
from recreate.runs.settings import Gate
from recreate.runs.terms import Terms, share

BEHIND = (-0.7, -0.3)
"""A candidate is given up after the first and the second stretch where the sum of its differences,
in roots of the sum of their squares, is less."""

HOPE = 0.3
"""Further attempts are made while p is at most this: beyond, they hardly ever show anything."""

LIKELY = 10
"""`likely` allows so many times the error of `shown`."""

FEW = 16
"""Up to so many tasks one attempt at each decides nothing: the first look is left out."""

FIRST = 0.4
"""The part of its error that an agent's first look spends; further looks share the rest."""

CAREFUL = 0.95
"""At most this part of the capital is bet on a task, so that one loss does not end it."""


WORDS = ("none", "likely", "shown")

LEAST = 1e-9
"""The share of a candidate for which nothing is left."""


class CurrentAgent(NamedTuple):
    """An agent that was the current one: its terms and its validation scores."""

    terms: Terms
    scores: Scores


class Conclusion(NamedTuple):
    """What a build hands over, and what it may claim of it.

    agent: its digest, '' for the seed. verdict: on the agent that the search arrived at, or an
    earlier one that is handed over, beside the seed. repeats: up to so many attempts a task the
    next look needs, 0 where there is none.
    """

    agent: str
    verdict: Verdict | None
    repeats: int = 0


def make_terms(
    gate: Gate,
    known: Sequence[Terms],
    *,
    candidate: str,
    parent: str,
    round: int,
    of: int,
    rounds: int,
    repeats: int,
    tasks: Sequence[str],
    draw: int,
    strata: Mapping[str, str],
) -> Terms:
    """Return the terms of a candidate, whatever the settings were before: its share of the error
    leaves the whole what the build may err.

    known: the terms of earlier candidates; of: how many candidates the round has, 0 for a person's
    edit; draw: what its order of the tasks is drawn with.
    """
    alpha = (
        share(gate, rounds, of=of)
        if of
        else share(gate, rounds, extra=1 + sum(not t.of for t in known))
    )
    left = gate.false_keep - math.fsum(terms.alpha for terms in known)
    order = [*tasks]
    random.Random(f"{draw}/{candidate}").shuffle(order)
    return Terms(
        candidate=candidate,
        parent=parent,
        round=round,
        of=of,
        alpha=max(min(alpha, left), LEAST),
        gain=1.0,
        repeats=repeats,
        order=tuple(order),
        strata=strata,
        stretch=stretch_of(len(order)) * repeats,
        rule="search",
        confirm=gate.confirm,
    )


def stretch_of(tasks: int) -> int:
    """Return after how many tasks a candidate is looked at: a third of them."""
    return math.ceil(tasks / 3)


def compare(before: Scores, after: Scores, order: Iterable[str]) -> list[float]:
    """Return each task's difference of mean scores over the repeats that both have, in order."""
    pairs: dict[str, list[float]] = {}
    for place, new in after.items():
        old = before.get(place)
        if old is not None and new is not None:
            pairs.setdefault(place[0], []).append(new - old)
    return [math.fsum(pairs[task]) / len(pairs[task]) for task in order if task in pairs]


def is_given_up(terms: Terms, before: Scores, after: Scores) -> bool:
    """Whether a candidate fell so far behind the current agent, on whole stretches of its tasks,
    that the others are not attempted."""
    begun = {task for task, _ in after}
    done = next((at for at, task in enumerate(terms.order) if task not in begun), len(terms.order))
    stretch = stretch_of(len(terms.order))
    if done < stretch or done == len(terms.order):
        return False
    differences = compare(before, after, terms.order[:done])
    size = math.sqrt(math.fsum(d * d for d in differences))
    return bool(size) and math.fsum(differences) / size < BEHIND[done >= 2 * stretch]


def tell_standing(terms: Terms, before: Scores, after: Scores) -> str:
    """Return how a candidate stands beside the current agent, and what it needs, in words; '' by
    another rule."""
    done, tasks = len({task for task, _ in after}), len(terms.order)
    differences = compare(before, after, terms.order)
    if terms.rule != "search" or not differences:
        return ""
    total, stretch = math.fsum(differences), stretch_of(tasks)
    stands = "level"
    if abs(total) > 1e-9:
        stands = f"{'ahead' if total > 0 else 'behind'} by {round(abs(total), 3):g}"
    if done == tasks:
        return stands
    at = next((n for n in (stretch, 2 * stretch) if done <= n < tasks), 0)
    if not at:
        return f"{stands}; has to end ahead"
    least = BEHIND[at > stretch] * math.sqrt(math.fsum(d * d for d in differences))
    return f"{stands}; given up after {at} of {tasks} tasks below {round(least, 3) + 0:g}"


def judge_step(terms: Terms, before: Scores, after: Scores, *, alpha: float, seed: int) -> Verdict:
    """Return the verdict on a candidate beside the current agent: `ahead`, or why it is dropped.
    alpha: 1 - the level of its interval."""
    begun = {task for task, _ in after}
    places = {(task, repeat) for task in begun for repeat in range(terms.repeats)}
    before, after = ({p: s for p, s in side.items() if p in places} for side in (before, after))
    verdict = judge(before, after, alpha=alpha, seed=seed, kinds=terms.strata)
    attempted, tasks = len(begun), len(terms.order)
    ahead = attempted == tasks and (verdict.diff or 0.0) > 0
    ahead = ahead and verdict.dropped <= MAX_DROPPED * len(after)
    reason = "kept for now"
    if verdict.dropped > MAX_DROPPED * len(after):
        reason = verdict.reason
    elif not ahead:
        reason = "not ahead of the current agent"
        if attempted < tasks:
            reason = f"given up after {attempted} of {tasks} tasks"
    word: Any = "undecided" if ahead else "not-better"
    changes = {"verdict": word, "reason": reason, "step": True, "ahead": ahead}
    return verdict.model_copy(update=changes)


def looks(tasks: int, confirm: int) -> tuple[float, ...]:
    """Return which part of its error an agent may spend after 0, 1, ... further attempts a task; 0
    where there is no look."""
    if not confirm:
        return (1.0,)
    first = 0.0 if tasks <= FEW else FIRST
    return first, *[(1 - first) / confirm] * confirm


def conclude(seed: Scores, chain: Sequence[CurrentAgent], *, alpha: float, draw: int) -> Conclusion:
    """Return which of the agents that were current ones is handed over in place of the seed.

    chain: in their order, each with all that was attempted, excluded attempts as None. alpha: 1 -
    the level of intervals; draw: of the flips beyond those that are counted.
    """
    if not chain:
        return Conclusion("", None)
    last = chain[-1]
    graded = any(s not in (0, 1, None) for k in chain for s in (*seed.values(), *k.scores.values()))
    found = _look(seed, last, graded, alpha, draw)
    if found.repeats or (found.agent and found.verdict and found.verdict.better):
        return found
    for earlier in reversed(chain[:-1]):
        if graded and all(repeat < earlier.terms.repeats for _, repeat in earlier.scores):
            # its one look is by what there is, if it was not looked at by more before
            earlier = earlier._replace(terms=earlier.terms.model_copy(update={"confirm": 0}))
        passed = _look(seed, earlier, graded, alpha, draw)
        if passed.verdict and passed.verdict.better:
            return passed._replace(repeats=0)
    return found


def _look(seed: Scores, kept: CurrentAgent, graded: bool, alpha: float, draw: int) -> Conclusion:
    """Go through an agent's looks, as far as there are attempts for them."""
    terms, shares = kept.terms, looks(len(kept.terms.order), kept.terms.confirm)
    word, made, more, repeats = "none", list[Look](), 0, 0
    for at, part in enumerate(shares):
        if not _has_all(seed, kept, terms.repeats + at):
            more = terms.repeats + at if _may_raise(word, kept, at, graded) else 0
            break
        repeats = terms.repeats + at
        differences = compare(*_within(seed, kept, 0, repeats), terms.order)
        if len(differences) < max(MIN_TASKS, (1 - MAX_DROPPED) * len(terms.order)):
            break
        p = flip_signs(differences, draw)
        hopeless = p > HOPE
        if graded:
            part, p = float(at == len(shares) - 1), bet(differences, terms.alpha)
        if part:
            made.append(Look(attempts=repeats, p=p, share=part * terms.alpha))
            word = "likely" if p <= LIKELY * part * terms.alpha else word
            word = "shown" if p <= part * terms.alpha else word
        if hopeless or word == "shown":
            break
    before, after = _within(seed, kept, 0, repeats)
    verdict = judge(before, after, alpha=alpha, seed=draw, kinds=terms.strata)
    if word == "likely" and (verdict.diff or 0.0) <= 0:
        word = "none"
    differences = compare(before, after, terms.order)
    claim: dict[str, Any] = {"word": word, "looks": made}
    claim |= {"won": sum(d > 0 for d in differences), "lost": sum(d < 0 for d in differences)}
    claim["search"] = _mean(compare(*_within(seed, kept, 0, terms.repeats), terms.order))
    claim["anew"] = _mean(compare(*_within(seed, kept, terms.repeats, repeats), terms.order))
    changes = {
        "verdict": "better" if word == "shown" else "undecided",
        "reason": _explain(verdict, word),
        "alpha": terms.alpha,
        "claim": GateClaim.model_validate(claim),
    }
    agent = terms.candidate if word != "none" else ""
    return Conclusion(agent, verdict.model_copy(update=changes), more)


def _may_raise(word: str, kept: CurrentAgent, at: int, graded: bool) -> bool:
    """Whether the looks from this one on could find more than the word that stands."""
    terms = kept.terms
    parts = (1.0,) if graded else looks(len(terms.order), terms.confirm)[at:]
    most = _best_word([1.0] * len(terms.order), terms.alpha, parts, graded)
    return WORDS.index(most) > WORDS.index(word)


def _has_all(seed: Scores, kept: CurrentAgent, repeats: int) -> bool:
    """Whether both were attempted so many times at each task."""
    places = {(task, repeats - 1) for task in kept.terms.order}
    return places <= seed.keys() & kept.scores.keys()


def _within(seed: Scores, kept: CurrentAgent, start: int, stop: int) -> tuple[Scores, Scores]:
    """Return both sides' scores of some repeats of the tasks."""
    tasks = set(kept.terms.order)
    before, after = (
        {p: s for p, s in side.items() if start <= p[1] < stop and p[0] in tasks}
        for side in (seed, kept.scores)
    )
    return before, after


def _explain(verdict: Verdict, word: str) -> str:
    """Return why an agent is not called shown."""
    if verdict.reason.startswith("refused") or "dropped" in verdict.reason:
        return verdict.reason
    if verdict.diff is None:
        return "nothing is claimed before the seed's own attempts are made"
    told = {"shown": "", "likely": f"{verdict.tasks} tasks do not show it"}
    return told.get(word, f"{verdict.tasks} tasks do not tell it from the seed, which stays")


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def bet(differences: Sequence[float], alpha: float) -> float:
    """Return 1 / the largest that a capital of 1 became, bet on a gain in each task in turn: the p
    of "the mean difference is 0 or less".

    The part that is bet is what grows fastest to 1 / alpha over so many tasks of the variance that
    was seen before (the predictable plug-in of Waudby-Smith and Ramdas, section 3.2), as if two
    tasks of variance 0.25 had been seen at the start. differences: in -1..1.
    """
    capital = largest = 1.0
    squares, aim = 0.5, 2 * math.log(1 / alpha) / max(1, len(differences))
    for seen, difference in enumerate(differences):
        part = min(CAREFUL, math.sqrt(aim * (seen + 2) / squares))
        capital *= 1 + part * difference
        squares += difference * difference
        largest = max(largest, capital)
    return 1 / largest


def call_cheaper(verdict: Verdict, agent: str, less: Saving, margin: float) -> Conclusion:
    """Return that an agent is handed over since it is cheaper than the seed and not worse."""
    assert verdict.claim is not None
    claim = verdict.claim.model_copy(update={"word": "cheaper"})
    reason = f"{saved(less)}; a fall of its score by {margin:g} or more is ruled out"
    changes = {"claim": claim, "saving": less, "reason": reason}
    return Conclusion(agent, verdict.model_copy(update=changes))


def judge_seed(gate: Gate, rounds: int, scores: Scores, reason: str, draw: int) -> Verdict:
    """Return the verdict of a build that hands the seed over, since nothing else was kept."""
    if not gate.searches:
        return alone(scores, reason, find("gate", "each").find_room(gate, rounds, scores, draw))
    verdict = alone(scores, reason, find_top(gate, rounds, scores, scores))
    return verdict.model_copy(update={"claim": GateClaim(word="none")})


def find_top(gate: Gate, rounds: int, seed: Scores, current: Scores) -> str:
    """Return why no further candidate could be called even likely, '' when one could: none could be
    ahead of the current agent, or one that solves each task could not be told from the seed."""
    tasks: dict[str, list[float]] = {}
    for (task, _), score in seed.items():
        tasks.setdefault(task, []).append(score or 0.0)
    means = [math.fsum(each) / len(each) for each in tasks.values()]
    mean = math.fsum(means) / max(1, len(means))
    if current and all(score is not None and score >= 1 for score in current.values()):
        score = math.fsum(s or 0.0 for s in current.values()) / len(current)
        return f"no outcome could be better: the score is {score:.3f}, every task is solved"
    best = [1 - mean for mean in means]
    graded = any(score not in (0, 1, None) for score in seed.values())
    if best_word(gate, rounds, best, graded=graded) != "none":
        return ""
    room = sum(d > 0 for d in best)
    return (
        f"no outcome could be better: the score is {mean:.3f}, {room} of {len(means)} tasks leave"
        " room above it, and an agent that solved them all could not be told from the seed"
    )


def best_word(gate: Gate, rounds: int, gains: Sequence[float], *, graded: bool = False) -> str:
    """Return the most that could be claimed of an agent with these gains in the tasks."""
    parts = (1.0,) if graded else looks(len(gains), gate.confirm)
    return _best_word(gains, share(gate, rounds), parts, graded)


def _best_word(gains: Sequence[float], alpha: float, parts: Sequence[float], graded: bool) -> str:
    if len(gains) < MIN_TASKS:
        return "none"
    p = bet(gains, alpha) if graded else flip_signs(gains)
    most = alpha * max(parts)
    return "shown" if p <= most else "likely" if p <= LIKELY * most else "none"
