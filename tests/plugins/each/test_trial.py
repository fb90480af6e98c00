"""A candidate's trial decides as its module says: nothing is kept by chance more often than
promised."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recreate.plugins.each.trial import (
    BETS,
    detectable,
    handed_on,
    no_room,
    odds,
    room,
    trial,
    tried,
    wins,
)
from recreate.runs.gate import Scores
from recreate.runs.settings import Gate
from recreate.runs.terms import Terms, share

ORDER = [f"t{n}" for n in range(20)]
Kept = dict[tuple[str, int], float | None]


def side(*scores: float | None, repeats: int = 1) -> Kept:
    """Of tasks t0, t1, ...: each has so many of the scores, one after the other."""
    return {(f"t{n // repeats}", n % repeats): score for n, score in enumerate(scores)}


def verdict(
    before: Scores, after: Scores, order: list[str] = ORDER, **terms: float
) -> tuple[str, int, bool]:
    given: dict[str, float] = {"repeats": 1, "alpha": 0.05, "gain": 1.0, **terms}
    found, settled = trial(before, after, order, **given)  # type: ignore[arg-type]
    return found.verdict, found.tasks, settled


def test_a_candidate_is_kept_as_soon_as_it_is_clear_and_not_before() -> None:
    zeros = side(*[0.0] * 20)
    assert wins(20, 0.05) == 8
    assert verdict(zeros, side(*[1.0] * 7)) == ("undecided", 7, False)
    assert verdict(zeros, side(*[1.0] * 8)) == ("better", 8, True)
    # what comes after is not looked at
    assert verdict(zeros, side(*[1.0] * 8, *[0.0] * 12)) == ("better", 8, True)


def test_the_fewer_tasks_are_left_the_bolder_is_the_bet() -> None:
    """Five wins and no loss are 1 in 32 by chance."""
    zeros = side(*[0.0] * 20)
    assert verdict(zeros, side(*[0.0] * 15, *[1.0] * 5)) == ("better", 20, True)
    assert verdict(zeros, side(*[0.0] * 16, *[1.0] * 4)) == ("undecided", 16, True)


def test_what_was_settled_stays_so_while_the_scores_are_of_all_tasks() -> None:
    found, settled = trial(
        side(*[0.0] * 20),
        side(*[1.0] * 8, *[0.0] * 12),
        ORDER,
        repeats=1,
        alpha=0.05,
        gain=1.0,
        whole=True,
    )
    assert (found.verdict, found.tasks, found.diff, settled) == ("better", 20, 0.4, True)
    assert found.lo is not None
    assert found.lo > 0
    assert found.reason == "clear after 8 of 20 tasks"


def test_few_tasks_are_enough_for_what_wins_nearly_all_of_them() -> None:
    assert (wins(5, 0.04), wins(6, 0.02), wins(8, 0.0134), wins(5, 0.02)) == (5, 6, 7, 6)
    order = ORDER[:6]
    assert verdict(side(*[0.0] * 6), side(*[1.0] * 6), order, alpha=0.02) == ("better", 6, True)
    # a tie harms not
    assert verdict(side(*[0.0] * 5, 1.0), side(*[1.0] * 6), order, alpha=0.04) == (
        "better",
        5,
        True,
    )
    assert verdict(side(1.0, *[0.0] * 5), side(0.0, *[1.0] * 5), order, alpha=0.04) == (
        "undecided",
        1,
        True,
    )


def test_a_gain_worth_finding_is_ruled_out_early() -> None:
    found, settled = trial(
        side(*[0.0] * 20), side(*[0.0] * 6), ORDER, repeats=1, alpha=0.05, gain=0.5
    )
    assert (found.verdict, settled) == ("not-better", True)
    assert found.tasks == 4
    assert found.reason == "a gain of +0.50 or more is ruled out after 4 of 20 tasks"


def test_a_trial_ends_when_no_task_that_is_left_could_change_it() -> None:
    before = side(*[0.0] * 6, *[1.0] * 14)
    assert verdict(before, side(0.0, 0.0))[1:] == (2, True)
    assert verdict(before, side(1.0, 0.0))[1:] == (2, False)


def test_one_loss_does_not_end_a_trial_of_a_candidate_that_wins_all_else() -> None:
    assert verdict(side(1.0, *[0.0] * 19), side(0.0, *[1.0] * 19))[0] == "better"


def test_a_candidate_that_is_worse_is_said_to_be_worse() -> None:
    found, _ = trial(
        side(*[1.0] * 8), side(*[0.0] * 8), ORDER[:8], repeats=1, alpha=0.05, gain=1.0, whole=True
    )
    assert (found.verdict, found.hi is not None and found.hi < 0) == ("not-better", True)


def test_a_task_that_the_parent_solves_each_time_must_not_be_failed_each_time() -> None:
    before = side(*[1.0] * 3, *[0.0] * 57, repeats=3)
    after = side(*[0.0] * 3, *[1.0] * 57, repeats=3)
    found, _ = trial(before, after, ORDER, repeats=3, alpha=0.05, gain=1.0)
    assert found.verdict == "not-better"
    assert found.reason.startswith(
        "it fails each time 1 of the tasks that its parent solves each time"
    )
    assert verdict(before, {**after, ("t0", 0): 1.0}, repeats=3)[0] == "better"
    once = {**after, ("t0", 1): None, ("t0", 2): None}
    assert verdict(before, once, repeats=3)[0] == "better", "it failed once, which is not each time"


def test_excluded_attempts_drop_their_task_and_too_many_leave_it_undecided() -> None:
    after = side(None, *[1.0] * 19)
    found, _ = trial(side(*[0.0] * 20), after, ORDER, repeats=1, alpha=0.05, gain=1.0)
    assert (found.verdict, found.tasks, found.dropped) == ("better", 8, 1)
    lost = side(*[1.0, None] * 6, *[1.0] * 28, repeats=2)
    found, _ = trial(side(*[0.0] * 40, repeats=2), lost, ORDER, repeats=2, alpha=0.05, gain=1.0)
    assert (found.verdict, found.dropped) == ("better", 6), "a task with one of its pairs is a task"
    half = side(*[1.0, None] * 10, *[0.0] * 20, repeats=2)
    found, _ = trial(
        side(*[0.0] * 40, repeats=2), half, ORDER, repeats=2, alpha=0.001, gain=1.0, whole=True
    )
    assert (found.before, found.after, found.diff, found.dropped) == (
        0.0,
        0.5,
        0.5,
        10,
    ), "each task counts once"
    found, settled = trial(
        side(*[0.0] * 20), side(*[None] * 5), ORDER, repeats=1, alpha=0.05, gain=1.0
    )
    assert (found.verdict, found.diff, settled) == ("undecided", None, True)


def test_where_no_outcome_could_be_better_is_said_beforehand() -> None:
    assert no_room(side(*[0.0] * 6, *[1.0] * 14), alpha=0.05) == ""
    assert "4 of 20 tasks leave room above it" in no_room(side(*[0.0] * 4, *[1.0] * 16), alpha=0.05)
    assert "every task is solved" in room(Gate(), 1, side(1.0, 1.0))
    assert "there is no task" in no_room({}, alpha=0.05)


@given(
    st.floats(0.001, 0.5), st.integers(1, 30), st.integers(1, 8), st.integers(0, 60), st.booleans()
)
def test_all_candidates_together_spend_no_more_than_the_build_has(
    error: float, rounds: int, of: int, extra: int, cheaper: bool
) -> None:
    gate = Gate(false_keep=error, cheaper=cheaper)
    spent = rounds * of * share(gate, rounds, of=of) + sum(
        share(gate, rounds, extra=n) for n in range(1, extra + 1)
    )
    assert spent <= error / (2 if cheaper else 1) + 1e-12


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(1, 4))
def test_a_kept_candidate_hands_on_its_error_and_others_spend_no_more_than_there_is(
    kept: list[bool], of: int
) -> None:
    known: list[Terms] = []
    better: list[str] = []
    for number, won in enumerate(kept):
        alpha = share(Gate(), len(kept), of=of) + handed_on(known, better)
        known.append(
            Terms(
                candidate=f"c{number}",
                parent="p",
                round=number,
                of=of,
                alpha=alpha,
                gain=1,
                repeats=1,
                order=(),
            )
        )
        better += [f"c{number}"] * won
    assert (
        math.fsum(t.alpha for t in known if t.candidate not in better) <= Gate().false_keep + 1e-12
    )
    assert all(
        t.alpha > share(Gate(), len(kept), of=of)
        for t, before in zip(known[1:], kept, strict=False)
        if before
    )


SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@settings(max_examples=60)
@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=20), st.sampled_from([0.01, 0.05]))
@pytest.mark.slow
def test_the_interval_the_verdict_and_p_never_disagree(
    pairs: list[tuple[float, float]], alpha: float
) -> None:
    before, after = (side(*scores) for scores in zip(*pairs, strict=True))
    found, settled = trial(
        before, after, ORDER[: len(pairs)], repeats=1, alpha=alpha, gain=1.0, whole=True
    )
    assert settled
    assert found.lo is not None
    assert found.hi is not None
    assert found.p is not None
    assert -1 <= found.lo <= found.hi <= 1
    assert (found.verdict == "better") == (found.lo > 0) == (found.p <= alpha)


@settings(max_examples=60)
@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=20), st.integers(1, 20))
def test_what_comes_later_never_changes_what_was_settled(
    pairs: list[tuple[float, float]], cut: int
) -> None:
    before, after = (side(*scores) for scores in zip(*pairs, strict=True))
    order = ORDER[: len(pairs)]
    part = {key: after[key] for key in list(after)[:cut]}
    early, settled = trial(before, part, order, repeats=1, alpha=0.05, gain=0.4)
    late, _ = trial(before, after, order, repeats=1, alpha=0.05, gain=0.4)
    if settled:
        assert (early.verdict, early.tasks, early.p) == (late.verdict, late.tasks, late.p)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=4))
def test_the_stake_is_a_fair_game_against_no_gain(values: list[float]) -> None:
    """Whatever the differences are, as long as their mean is 0: the mean of what a bet makes of 1
    is 1."""
    fair = [*values, *(-v for v in values)]
    for x in BETS:
        assert math.fsum(1 + x * v for v in fair) / len(fair) == pytest.approx(1)


NULLS = st.lists(st.sampled_from([-1.0, -0.5, -0.25, 0.25, 0.5, 1.0]), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(NULLS, st.sampled_from([0.2, 0.1, 0.04]), st.integers(3, 7))
def test_no_candidate_that_does_not_help_is_kept_more_often_than_its_share(
    values: list[float], alpha: float, tasks: int
) -> None:
    """Over all outcomes: each difference is one of a few values, weighted so that their mean is 0,
    skewed or not."""
    down, up = [v for v in values if v < 0] or [-1.0], [v for v in values if v > 0] or [0.25]
    low, high = math.fsum(down) / len(down), math.fsum(up) / len(up)
    likely = [(v, high / (high - low) / len(down)) for v in down] + [
        (v, -low / (high - low) / len(up)) for v in up
    ]

    def kept(seen: tuple[float, ...]) -> float:
        sides = side(*(0.5 - d / 2 for d in seen)), side(*(0.5 + d / 2 for d in seen))
        before = {**side(*[0.5] * tasks), **sides[0]}
        found, settled = trial(before, sides[1], ORDER[:tasks], repeats=1, alpha=alpha, gain=1.0)
        if settled:
            return float(found.better)
        return math.fsum(chance * kept((*seen, d)) for d, chance in likely)

    assert kept(()) <= alpha + 1e-9


def test_a_record_of_the_journal_gives_the_same_verdict() -> None:
    terms = Terms(
        candidate="b",
        parent="a",
        round=0,
        of=1,
        order=tuple(ORDER),
        repeats=1,
        alpha=0.05,
        gain=0.5,
    )
    sides = side(*[0.0] * 20), side(*[1.0] * 8)
    assert tried(terms, *sides) == trial(*sides, ORDER, repeats=1, alpha=0.05, gain=0.5)


def test_the_chances_of_a_gain_are_the_same_whatever_was_reckoned_before() -> None:
    alone = odds(12, 2, 0.3, 0.4, alpha=0.04, worth=0.4)
    odds.cache_clear()
    for gain in (0.6, 0.2):
        odds(12, 2, 0.3, gain, alpha=0.04, worth=gain)
    assert odds(12, 2, 0.3, 0.4, alpha=0.04, worth=0.4) == alone


@pytest.mark.slow
def test_more_tasks_find_smaller_gains_and_more_candidates_larger_ones() -> None:
    found = [detectable(tasks, 1, 0.3, 0.04) for tasks in (10, 20, 60, 120)]
    assert found == sorted(found, reverse=True)
    assert detectable(20, 1, 0.3, 0.004) > detectable(20, 1, 0.3, 0.04)
    assert detectable(20, 3, 0.3, 0.04) < detectable(20, 1, 0.3, 0.04)
    assert (detectable(4, 1, 0.3, 0.04), detectable(20, 1, 1.0, 0.04)) == (1.0, 1.0)


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.slow
def test_the_chances_that_plan_goes_by_are_those_of_the_trial(repeats: int) -> None:
    draw, kept, tasks, worlds = random.Random(5), 0, 0, 300
    gain = detectable(20, repeats, 0.3, 0.04)
    for _ in range(worlds):
        before: Kept = {}
        after: Kept = {}
        for task in ORDER:
            rate = draw.betavariate(0.3, 0.7)
            for repeat in range(repeats):
                before[task, repeat] = float(draw.random() < rate)
                after[task, repeat] = float(draw.random() < rate + gain / 0.7 * (1 - rate))
        found, _ = trial(before, after, ORDER, repeats=repeats, alpha=0.04, gain=gain)
        kept += found.better
        tasks += found.tasks
    expected = odds(20, repeats, 0.3, gain, alpha=0.04, worth=gain)
    assert kept / worlds == pytest.approx(expected.kept, abs=0.08)
    assert tasks / worlds == pytest.approx(expected.tasks, rel=0.12)


def test_a_loss_in_one_kind_of_task_beside_a_gain_in_another_is_said_first() -> None:
    kinds = {task: "real" if n % 4 == 0 else "injected" for n, task in enumerate(ORDER)}
    terms = Terms(
        candidate="b",
        parent="a",
        round=0,
        of=1,
        order=tuple(ORDER),
        repeats=1,
        alpha=0.05,
        gain=1.0,
        strata=kinds,
    )
    before = side(*[1.0, 0.0, 0.0, 0.0] * 5)
    after = side(*[0.0, 1.0, 1.0, 1.0] * 5)
    found, _ = tried(terms, before, after, whole=True)
    assert [(s.name, s.tasks, s.before, s.after) for s in found.strata] == [
        ("injected", 15, 0, 1),
        ("real", 5, 1, 0),
    ]
    assert found.reason.startswith(
        "a gain in one kind of task with a loss in another (injected +1.00 on 15, real -1.00 on 5)"
    )
    alike, _ = tried(terms, before, side(*[1.0] * 20))
    assert not alike.reason.startswith("a gain in one")
    assert sum(s.tasks for s in alike.strata) == alike.tasks
