"""The decisions on a lesson: intervals that hold, and counts that nothing can bend."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.types import Gain, Lesson, Trial
from recreate.lessons.promotion import (
    add_trials,
    bound,
    doubted,
    earned,
    find_surplus,
    finding,
    is_lost,
    joined,
    measured_more,
    ripe,
)

DIFFS = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), max_size=30)
ORDER = ["useless", "open", "helps"]


def gains(diffs: Sequence[float], rounds: Sequence[int] = ()) -> tuple[Gain, ...]:
    at = [*rounds, *[0] * len(diffs)]
    return tuple(
        Gain(experience=f"e{n}", task=f"t{n}", group=f"g{n % 3}", diff=d, round=at[n])
        for n, d in enumerate(diffs)
    )


def candidate(diffs: Sequence[float], groups: int = 3, **more: object) -> Lesson:
    given: dict[str, object] = {
        "groups": tuple(f"g{n}" for n in range(groups)),
        "gains": gains(diffs),
    }
    return Lesson.model_validate({"id": "l", "title": "t", "body": "b"} | given | more)


@given(DIFFS, st.randoms(use_true_random=False))
def test_the_order_of_the_evidence_does_not_matter(
    diffs: list[float], shuffle: random.Random
) -> None:
    found = list(gains(diffs))
    mixed = list(found)
    shuffle.shuffle(mixed)
    one, other = bound(found, 0), bound(mixed, 0)
    assert all(abs(a - b) < 1e-5 for a, b in zip(one, other, strict=True))


@given(DIFFS, st.integers(0, 29), st.integers(0, 2))
def test_a_greater_gain_never_speaks_against_a_lesson(
    diffs: list[float], at: int, rounds: int
) -> None:
    if at >= len(diffs):
        return
    better = [*diffs]
    better[at] = min(1.0, better[at] + 0.5)
    assert ORDER.index(finding(gains(better), rounds)) >= ORDER.index(finding(gains(diffs), rounds))
    assert bound(gains(better), rounds)[1] >= bound(gains(diffs), rounds)[1] - 1e-5


@given(DIFFS)
def test_evidence_counts_once(diffs: list[float]) -> None:
    found = gains(diffs)
    assert bound([*found, *found], 0) == bound(found, 0)
    lesson = measured_more(measured_more(candidate([]), found), found)
    assert lesson.gains == found
    trials = [Trial(experience=f"e{n}", score=(d + 1) / 2) for n, d in enumerate(diffs)]
    assert add_trials(add_trials(candidate([]), trials), trials).offered == len(diffs)


@given(DIFFS)
def test_the_bounds_lie_around_the_mean_and_agree_with_the_finding(diffs: list[float]) -> None:
    mean, lo, hi = bound(gains(diffs), 0)
    assert -1 <= lo <= mean <= hi <= 1
    if abs(lo) > 1e-5:
        assert (lo > 0) == (finding(gains(diffs), 0) == "helps")


@pytest.mark.parametrize(
    "diffs", [[1.0] * 5, [1.0] * 12 + [0.0] * 6, [1.0] * 9 + [-1.0] * 9, [0.5] * 20, [0.0] * 8]
)
def test_the_lower_bound_is_where_bets_of_ten_sizes_made_five_of_one_on_average(
    diffs: list[float],
) -> None:
    lo = bound(gains(diffs), 0)[1]
    made = [
        math.prod(1 + stake * (d - lo) / (1 + lo) for d in diffs)
        for stake in (n / 100 for n in range(5, 100, 10))
    ]
    assert sum(made) / 10 == pytest.approx(5, rel=1e-3)


def test_a_test_without_a_re_run_is_open_and_a_lesson_is_given_up_only_at_95_percent() -> None:
    assert finding([], 0) == "open"
    assert bound([], 0) == (0.0, -1.0, 1.0)
    found = {n: finding(gains([-1.0] * n), 0) for n in range(1, 9)}
    assert [n for n, said in found.items() if said == "useless"] == [5, 6, 7, 8]
    assert finding(gains([0.0] * 12), 0) == "open"


@pytest.mark.slow
def test_a_useless_lesson_is_rarely_found_to_help_however_often_one_looks() -> None:
    draw = random.Random(7)
    wrong = 0
    for _ in range(150):
        diffs = [float((draw.random() < 0.45) - (draw.random() < 0.45)) for _ in range(48)]
        wrong += any(finding(gains(diffs[: n + 1]), 0) == "helps" for n in range(11, 48, 2))
    assert wrong / 150 <= 0.20


def test_a_lesson_that_raises_the_rate_by_a_third_is_mostly_found_to_help() -> None:
    draw = random.Random(7)
    right = 0
    for _ in range(100):
        diffs = [float((draw.random() < 0.80) - (draw.random() < 0.45)) for _ in range(48)]
        right += any(finding(gains(diffs[: n + 1]), 0) == "helps" for n in range(2, 48))
    assert right / 100 >= 0.85


def test_a_later_round_weighs_more_than_an_earlier_one() -> None:
    turned = gains([1.0] * 10 + [-1.0] * 10, [0] * 10 + [1] * 10)
    mended = gains([-1.0] * 10 + [1.0] * 10, [0] * 10 + [1] * 10)
    assert bound(turned, 1)[0] < 0 < bound(mended, 1)[0]
    assert finding(mended, 1) == "helps"


def test_a_pattern_needs_three_groups_that_support_it_and_three_that_were_measured() -> None:
    assert earned(candidate([1.0] * 9))
    assert not earned(candidate([1.0] * 9, groups=2))
    one_group = tuple(g.model_copy(update={"group": "g0"}) for g in gains([1.0] * 9))
    assert not earned(candidate([], gains=one_group))


@given(DIFFS, st.sampled_from(["candidate", "active", "quarantined", "vetoed", "merged"]))
def test_code_decides_nothing_on_what_a_person_froze_or_vetoed(
    diffs: list[float], status: str
) -> None:
    trials = tuple(Trial(experience=f"e{n}", score=0.0) for n in range(60))
    frozen = candidate(diffs, status=status, frozen=True, trials=trials)
    assert not earned(frozen)
    assert not is_lost(frozen)
    assert not doubted(frozen)
    if status in ("vetoed", "merged"):
        free = frozen.model_copy(update={"frozen": False})
        assert [earned(free), is_lost(free), doubted(free)] == [False, False, ""]


def test_attempts_that_go_worse_raise_a_doubt_and_steady_ones_do_not() -> None:
    def scores(values: Sequence[float]) -> tuple[Trial, ...]:
        return tuple(Trial(experience=f"e{n}", score=v) for n, v in enumerate(values))

    steady = [1.0, 1.0, 0.0, 1.0] * 4
    assert not doubted(candidate([], status="active", trials=scores(steady)))
    assert "score" in doubted(candidate([], status="active", trials=scores([*steady, 0, 0, 0])))
    assert "score" in doubted(candidate([], status="active", trials=scores([*steady, 0, 0])))
    assert not doubted(candidate([], status="active", trials=scores([*steady, 0])))
    assert not doubted(candidate([], status="active", trials=scores([0, 0, 0, *[1.0] * 8])))
    due = candidate([], status="active", trials=scores([1.0] * 20))
    assert "20 attempts" in doubted(due)
    later = [t.model_copy(update={"round": 2}) for t in due.trials]
    assert not doubted(due.model_copy(update={"rounds": 2, "trials": tuple(later)}))


def test_what_does_not_fit_the_budget_is_the_weakest() -> None:
    strong = candidate([1.0] * 20, status="active").model_copy(update={"id": "strong"})
    weak = candidate([1.0] * 5, status="active").model_copy(update={"id": "weak"})
    assert [x.id for x in find_surplus([strong, weak], 1, 1000)] == ["weak"]
    assert [x.id for x in find_surplus([strong, weak], 5, 3)] == ["weak"]
    held = weak.model_copy(update={"frozen": True})
    assert [x.id for x in find_surplus([strong, held], 1, 1000)] == ["strong"]
    often = candidate([1.0] * 15 + [-1.0] * 3, status="active").model_copy(update={"id": "often"})
    once = candidate([1.0] * 2, status="active").model_copy(update={"id": "once"})
    assert [x.id for x in find_surplus([once, often], 1, 1000)] == ["once"]
    long = weak.model_copy(update={"id": "a-long-one", "body": "x" * 200})
    assert [x.id for x in find_surplus([strong, long, weak], 2, 100)] == ["a-long-one"], (
        "what is left out takes no place"
    )


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"supports": ()}, True),
        ({"supports": ("a", "b", "c"), "tested": 1}, True),
        ({"supports": ("a", "b", "c"), "tested": 2}, False),
        ({"supports": ("a", "b", "c", "d"), "tested": 2}, True),
        ({"supports": ("a", "b", "c", "d"), "tested": 2, "status": "quarantined"}, True),
        ({"supports": ("a",), "status": "active"}, False),
        ({"supports": ("a",), "status": "vetoed"}, False),
        ({"supports": ("a",), "frozen": True}, False),
        ({"supports": ("a", "b", "c"), "groups": 2}, False),
    ],
)
def test_a_further_test_wants_twice_the_supports_of_the_last(
    more: dict[str, object], wanted: bool
) -> None:
    assert ripe(candidate([], **more)) is wanted


def test_who_joins_a_frozen_lesson_leaves_it_as_it_is() -> None:
    def born(id: str) -> Lesson:
        return Lesson(
            id=id,
            title=id,
            body=id,
            born_of=(f"e-{id}",),
            supports=(f"e-{id}",),
            groups=(f"g-{id}",),
        )

    lessons = {"a": born("a"), "b": born("b"), "c": born("c")}
    together = lessons | joined(lessons, "a", "b")
    assert together["a"].groups == ("g-a", "g-b")
    frozen = together | {"a": together["a"].model_copy(update={"frozen": True})}
    assert joined(frozen, "a", "c").keys() == {"c"}
