"""The gate: what is kept, what is not, and how sure the figures are."""

from __future__ import annotations

import math
import random
import statistics
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recreate.api.errors import BadInput
from recreate.runs.gate import (
    alone,
    interval,
    judge,
    not_worse,
    saving,
    student_quantile,
)

settings.register_profile("steady", deadline=None, database=None)
settings.load_profile("steady")

Scores = dict[tuple[str, int], float | None]


def scores(*values: float | None) -> Scores:
    """One repeat a task."""
    return {(f"t{i}", 0): value for i, value in enumerate(values)}


@st.composite
def sides(draw: st.DrawFn) -> tuple[Scores, Scores]:
    score = draw(
        st.sampled_from(
            [
                st.sampled_from([0.0, 1.0]),
                st.sampled_from([0.0, 0.1, 0.2, 0.3, 1 / 3, 1.0]),
                st.floats(0, 1),
                st.sampled_from([0.0, 1.0, None]),
            ]
        )
    )
    tasks, repeats = draw(st.integers(1, 22)), draw(st.integers(1, 3))
    keys = [(f"t{t}", r) for t in range(tasks) for r in range(repeats)]
    one, two = (draw(st.lists(score, min_size=len(keys), max_size=len(keys))) for _ in "ab")
    return dict(zip(keys, one, strict=True)), dict(zip(keys, two, strict=True))


# ------------------------------------------------------------------------------------------- what
# is decided


@pytest.mark.parametrize(
    ("alpha", "degrees", "quantile"),
    [
        (0.1, 9, 1.833113),
        (0.1, 30, 1.697261),
        (0.05, 9, 2.262157),
        (0.05, 30, 2.042272),
        (0.01, 30, 2.749996),
    ],
)
def test_students_quantile_is_that_of_the_tables(
    alpha: float, degrees: int, quantile: float
) -> None:
    assert student_quantile(degrees + 1, alpha) == pytest.approx(quantile, rel=2e-4)
    assert student_quantile(5, 0.1) == pytest.approx(2.131847, rel=2e-3)
    assert student_quantile(1, 0.1) == student_quantile(2, 0.1) > student_quantile(3, 0.1)


def test_a_verdict_says_all_that_it_rests_on() -> None:
    verdict = judge(scores(0, 0, 0.5, 0, 1, None, 0.25), scores(1, 1, 0.5, 1, 0.5, 1, 0.75))
    assert verdict.model_dump(exclude={"schema_"}) == {
        "before": 1.75 / 6,
        "after": 4.75 / 6,
        "diff": 0.5,
        "lo": 0.0,
        "hi": 1.0,
        "p": 0.1875,
        "tasks": 6,
        "repeats": 1,
        "dropped": 1,
        "verdict": "undecided",
        "reason": "the interval of 6 tasks holds 0",
    }
    even = judge(scores(0, 1, 0, 1, 0, 1), scores(1, 0, 1, 0, 1, 0))
    assert (even.diff, even.p, even.before, even.after) == (0.0, 1.0, 0.5, 0.5)


@pytest.mark.parametrize("alpha", [-0.1, 0.0, 1.0, 1.1])
def test_an_alpha_that_is_no_share_is_bad_input(alpha: float) -> None:
    with pytest.raises(BadInput, match=f"alpha is {alpha}"):
        judge(scores(*[0] * 9), scores(*[1] * 9), alpha=alpha)


def test_p_of_many_uneven_differences_is_a_count_of_ten_thousand_pairs_of_flips() -> None:
    draw = random.Random(1)
    before = [draw.random() for _ in range(60)]
    p = judge(scores(*before), scores(*(score + draw.uniform(-0.3, 0.35) for score in before))).p
    assert p is not None
    assert 0 < p * 10_000 == round(p * 10_000) < 1000


def test_five_wins_of_five_are_kept_and_four_wins_of_four_are_not() -> None:
    won = judge(scores(0, 0, 0, 0, 0), scores(1, 1, 1, 1, 1))
    assert (won.verdict, won.diff, won.p, won.better) == ("better", 1.0, 0.0625, True)
    assert won.lo is not None
    assert won.lo > 0
    few = judge(scores(0, 0, 0, 0), scores(1, 1, 1, 1))
    assert few.verdict == "undecided"
    assert "at least 5" in few.reason


def test_a_clear_loss_is_not_better() -> None:
    lost = judge(scores(*[1] * 8), scores(*[0] * 8))
    assert (lost.verdict, lost.diff) == ("not-better", -1.0)
    assert lost.hi is not None
    assert lost.hi < 0


def test_no_difference_is_not_better_with_an_interval_of_nothing() -> None:
    same = judge(scores(0, 1, 0, 1, 1, 0), scores(0, 1, 0, 1, 1, 0))
    assert (same.verdict, same.diff, same.lo, same.hi, same.p) == ("not-better", 0, 0, 0, 1)


def test_an_interval_that_just_reaches_0_is_undecided_on_either_side() -> None:
    won = judge(scores(0, 0, 0, 0, 0), scores(1, 1, 1, 1, 0))
    assert (won.verdict, won.lo, won.better) == ("undecided", 0.0, False)
    lost = judge(scores(1, 1, 1, 1, 0), scores(0, 0, 0, 0, 0))
    assert (lost.verdict, lost.hi, lost.better) == ("undecided", 0.0, False)


def test_the_score_of_one_agent_is_no_change_and_leaves_out_what_was_excluded() -> None:
    scores = {("a", 0): 1.0, ("a", 1): 0.5, ("b", 0): 0.0, ("b", 1): None}
    found = alone(scores, "nothing was kept")
    assert (found.before, found.after, found.diff, found.lo, found.hi) == (
        0.375,
        0.375,
        0.0,
        0.0,
        0.0,
    )
    assert interval(scores)[0] == 0.375, "bench says the same of it"
    assert (found.tasks, found.repeats, found.dropped) == (2, 2, 1)
    assert (found.verdict, found.reason) == ("undecided", "nothing was kept")
    nothing = alone({("a", 0): None}, "nothing was kept")
    assert (nothing.before, nothing.tasks, nothing.dropped) == (None, 0, 1)


def test_one_win_of_twenty_is_undecided() -> None:
    v = judge(scores(*[0] * 20), scores(1, *[0] * 19))
    assert (v.verdict, v.diff, v.p) == ("undecided", 0.05, 1.0)
    assert v.reason


def test_attempts_set_aside_drop_their_pair_and_too_many_leave_it_undecided() -> None:
    before, after = scores(*[0.0] * 10), scores(*[1.0] * 10)
    after[("t0", 0)] = None
    before[("t1", 0)] = None
    kept = judge(before, after)
    assert (kept.verdict, kept.tasks, kept.dropped) == ("better", 8, 2)
    del after[("t2", 0)]
    dropped = judge(before, after)
    assert (dropped.verdict, dropped.tasks, dropped.dropped) == ("undecided", 7, 3)
    assert "3 of 10" in dropped.reason
    assert judge(scores(*[0] * 8), scores(*[1] * 8), attempted=11).verdict == "undecided"
    assert judge(scores(*[0] * 8), scores(*[1] * 8), attempted=10).verdict == "better"


def test_a_repeat_only_one_side_has_does_not_count() -> None:
    before: Scores = {(f"t{i}", r): 0.0 for i in range(6) for r in range(5)}
    after: Scores = {**{k: 0.0 for k in before}, **{(f"t{i}", 9): 1.0 for i in range(6)}}
    v = judge(before, after)
    assert (v.diff, v.repeats, v.dropped) == (0.0, 5, 6)


def test_nothing_scored_on_both_sides_is_undecided_without_figures() -> None:
    v = judge(scores(None, 1), scores(1, None))
    assert (v.verdict, v.diff, v.lo, v.p, v.tasks) == ("undecided", None, None, None, 0)
    assert judge({}, {}).verdict == "undecided"


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1)),
        min_size=1,
        max_size=20,
    )
)
def test_the_kinds_of_a_verdict_make_up_its_means(
    tasks: list[tuple[str, float | None, float | None]],
) -> None:
    kinds = {f"t{n}": kind for n, (kind, _, _) in enumerate(tasks)}
    old, new = ({(f"t{n}", 0): each[side] for n, each in enumerate(tasks)} for side in (1, 2))
    found = judge(old, new, kinds=kinds)
    if len(set(kinds.values())) == 1:
        assert found.strata == ()
        return
    assert sum(s.tasks for s in found.strata) == found.tasks
    if found.diff is not None:
        assert sum(
            s.tasks * (s.after - s.before) for s in found.strata
        ) / found.tasks == pytest.approx(found.diff)


def test_repeats_are_averaged_within_a_task_before_tasks_are_compared() -> None:
    before: Scores = {("a", r): 0.0 for r in range(9)} | {("b", 0): 0.0}
    after: Scores = {("a", r): 0.0 for r in range(9)} | {("b", 0): 1.0}
    assert judge(before, after).diff == 0.5


# -------------------------------------------------------------------------------------------- what
# always holds


@given(sides())
def test_exchanging_before_and_after_only_turns_the_sign(pair: tuple[Scores, Scores]) -> None:
    one, two = judge(*pair), judge(*reversed(pair))
    if one.diff is None or one.lo is None or one.hi is None:
        assert two.diff is None
        return
    assert two.diff == -one.diff
    assert (two.lo, two.hi, two.p) == (-one.hi, -one.lo, one.p)
    assert (two.before, two.after) == (one.after, one.before)
    assert not (one.better and two.better)


@pytest.mark.slow
@given(sides(), st.randoms())
def test_the_order_and_the_names_of_tasks_do_not_matter(
    pair: tuple[Scores, Scores], rng: random.Random
) -> None:
    names = [f"n{i}" for i in range(30)]
    rng.shuffle(names)
    renamed = []
    for side in pair:
        items = [((names[int(task[1:])], repeat), score) for (task, repeat), score in side.items()]
        rng.shuffle(items)
        renamed.append(dict(items))
    assert judge(*renamed) == judge(*pair)


@given(sides())
def test_the_interval_holds_the_difference_and_agrees_with_p(pair: tuple[Scores, Scores]) -> None:
    v = judge(*pair)
    if v.diff is None or v.lo is None or v.hi is None or v.p is None:
        return
    assert -1 <= v.lo <= v.diff <= v.hi <= 1
    assert 0 <= v.p <= 1
    assert (v.lo > 0 or v.hi < 0) == (v.p <= 0.10)
    assert v.better <= (v.lo > 0)


@pytest.mark.slow
@given(sides(), st.sampled_from([0.25, 1.0, -3.5]))
def test_a_constant_added_to_both_sides_changes_nothing(
    pair: tuple[Scores, Scores], more: float
) -> None:
    v = judge(*pair)
    w = judge(*({k: None if s is None else s + more for k, s in side.items()} for side in pair))
    assert v.diff is None or w.diff == pytest.approx(v.diff, abs=1e-5)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.1, 0.3, 1.0]), min_size=1, max_size=9))
@pytest.mark.slow
def test_p_is_the_share_of_sign_flips_as_far_out(differences: list[float]) -> None:
    exact = [Fraction(d).limit_denominator(10) for d in differences]
    seen = abs(sum(exact))
    flips = [
        abs(sum(s * d for s, d in zip(signs, exact, strict=True)))
        for signs in product((1, -1), repeat=len(exact))
    ]
    v = judge(scores(*[0] * len(exact)), scores(*differences))
    assert v.p == pytest.approx(sum(f >= seen for f in flips) / len(flips))


def test_p_of_uneven_differences_is_the_share_of_flips_to_the_last_one() -> None:
    won = judge(scores(*[0] * 6), scores(*(math.sqrt(n) / 3 for n in range(2, 8))))
    assert (won.verdict, won.p) == ("better", 2 / 2**6)
    lost = judge(scores(*(math.sqrt(n) / 3 for n in range(2, 8))), scores(*[0] * 6))
    assert (lost.verdict, lost.p) == ("not-better", 2 / 2**6)


def test_sixteen_uneven_differences_are_still_counted_and_not_drawn() -> None:
    uneven = scores(*(math.sqrt(n) / 7 for n in range(2, 18)))
    won = [judge(scores(*[0] * 16), uneven, seed=seed).p for seed in (1, 2)]
    assert won == [2 / 2**16] * 2


def test_drawn_flips_agree_with_counted_ones_and_are_the_same_each_time() -> None:
    rng = random.Random(3)
    on_grid = [rng.choice([0.0, 0.5, 1.0]) - rng.choice([0.0, 0.25, 0.5]) for _ in range(40)]
    off_grid = [d + rng.uniform(-1, 1) * 1e-5 for d in on_grid]
    counted = judge(scores(*[0] * 40), scores(*on_grid))
    drawn = judge(scores(*[0] * 40), scores(*off_grid))
    assert drawn == judge(scores(*[0] * 40), scores(*off_grid))
    assert drawn.p == pytest.approx(counted.p, abs=0.02)
    assert drawn.lo == pytest.approx(counted.lo, abs=0.02)


def test_p_of_drawn_flips_is_never_nothing() -> None:
    rng = random.Random(1)
    v = judge(scores(*[0] * 40), scores(*(rng.uniform(0.9, 1) for _ in range(40))))
    assert v.p is not None
    assert 0 < v.p < 0.001


def test_thousands_of_tasks_are_judged_too() -> None:
    rng = random.Random(4)
    v = judge(
        scores(*(rng.random() < 0.3 for _ in range(2000))),
        scores(*(rng.random() < 0.4 for _ in range(2000))),
    )
    assert v.verdict == "better"


# ------------------------------------------------------------------------------------------ how
# often it is wrong


def agents(
    rng: random.Random, tasks: int, repeats: int, base: float, gain: float
) -> tuple[Scores, Scores]:
    """Two agents on tasks of mixed difficulty; the second gains the same share of what each task
    leaves."""
    before: Scores = {}
    after: Scores = {}
    for task in range(tasks):
        rate = rng.betavariate(base, 1 - base)
        better = rate + (1 - rate) * gain / (1 - base)
        for repeat in range(repeats):
            before[(f"t{task}", repeat)] = float(rng.random() < rate)
            after[(f"t{task}", repeat)] = float(rng.random() < better)
    return before, after


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "repeats"), [(5, 1), (8, 3), (20, 1), (20, 3), (60, 1)])
def test_alike_agents_are_kept_in_at_most_six_of_a_hundred_trials(tasks: int, repeats: int) -> None:
    rng = random.Random(tasks * 10 + repeats)
    kept = sum(judge(*agents(rng, tasks, repeats, 0.4, 0)).better for _ in range(600))
    assert kept / 600 <= 0.06


# ----------------------------------------------------------------------------------------------- a
# single mean


def test_one_repeat_of_yes_or_no_has_wilsons_interval() -> None:
    mean, lo, hi = interval(scores(*[1] * 8, *[0] * 2))
    assert (mean, lo, hi) == (0.8, pytest.approx(0.5407, abs=1e-3), pytest.approx(0.9315, abs=1e-3))
    mean, lo, hi = interval(scores(*[0] * 20))
    assert (mean, lo) == (0.0, 0.0)
    assert hi == pytest.approx(0.1191, abs=1e-3)


@pytest.mark.parametrize(("tasks", "repeats", "base"), [(10, 1, 0.3), (20, 3, 0.3), (30, 8, 0.6)])
def test_the_interval_of_a_mean_holds_the_true_mean_nine_times_in_ten(
    tasks: int, repeats: int, base: float
) -> None:
    rng = random.Random(6)
    held = 0
    for _ in range(500):
        _, lo, hi = interval(agents(rng, tasks, repeats, base, 0)[0])
        held += lo <= base <= hi
    assert 0.86 <= held / 500 <= 0.96


def test_scores_outside_0_and_1_have_students_interval() -> None:
    values = (-0.5, 0.0, 0.25, 0.75, 1.0, 0.5)
    mean, lo, hi = interval(scores(*values))
    half = student_quantile(6, 0.10) * statistics.stdev(values) / math.sqrt(6)
    assert (mean, lo, hi) == pytest.approx((1 / 3, 1 / 3 - half, 1 / 3 + half))
    assert half == pytest.approx(2.015 * statistics.stdev(values) / math.sqrt(6), rel=0.01)


@given(sides())
def test_the_interval_of_a_mean_holds_it_and_stays_within_0_and_1(
    pair: tuple[Scores, Scores],
) -> None:
    if all(score is None for score in pair[0].values()):
        return
    mean, lo, hi = interval(pair[0])
    assert 0 <= lo <= mean <= hi <= 1


def test_the_mean_of_nothing_is_bad_input() -> None:
    with pytest.raises(BadInput, match="no attempt"):
        interval(scores(None, None))


@pytest.mark.slow
@pytest.mark.parametrize("swings", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("tasks", [30, 60])
def test_an_agent_that_is_worse_by_the_margin_is_called_not_worse_in_at_most_five_percent(
    tasks: int, swings: float
) -> None:
    """Of 2,000 trials: each task falls with chance 0.1 + swings, and rises with chance swings."""
    chance, kept, trials = random.Random(1), 0, 2000
    for _ in range(trials):
        draws = {(f"t{n}", 0): chance.random() for n in range(tasks)}
        before = {
            place: float(not 0.1 + swings <= u < 0.1 + 2 * swings) for place, u in draws.items()
        }
        after = {place: float(u >= 0.1 + swings) for place, u in draws.items()}
        kept += not not_worse(before, after, margin=0.1)
    assert kept / trials <= 0.05


def test_what_may_have_done_harm_is_never_not_worse() -> None:
    """One task in 32 lost: a fall of 0.1 is not ruled out, and with as many tasks and none lost it
    is."""
    before = {(f"t{n}", 0): 1.0 for n in range(32)}
    assert not_worse(before, before, margin=0.10) == ""
    assert "its score is lower" in not_worse(before, {**before, ("t0", 0): 0.0}, margin=0.10)
    low = {place: float(int(place[0][1:]) % 2) for place in before}
    swapped = {**low, ("t0", 0): 1.0, ("t1", 0): 0.0}
    assert "do not rule out" in not_worse(low, swapped, margin=0.10)


def test_a_saving_is_paired_and_must_be_worth_a_change() -> None:
    before = {(f"t{n}", 0): 1000.0 + 100 * n for n in range(8)}
    less = saving(before, {place: cost * 0.7 for place, cost in before.items()}, unit="tokens")
    assert less is not None
    assert less.cheaper
    assert (less.before, less.after) == (1350.0, pytest.approx(945.0))
    hardly = saving(before, {place: cost * 0.97 for place, cost in before.items()}, unit="tokens")
    assert hardly is not None
    assert hardly.hi < 0
    assert not hardly.cheaper
    one = saving(before, {**before, ("t0", 0): 1.0}, unit="tokens")
    assert one is not None
    assert not one.cheaper
    assert saving({}, {}, unit="usd") is None
