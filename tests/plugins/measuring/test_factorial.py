"""Which parts are switched off together, and that what each is worth is found again in the
scores."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recreate.plugins.measuring.factorial import (
    Analysis,
    Observation,
    Row,
    analyse,
    cells,
    design,
    half_width,
    mirror,
    stretch,
)


def found(
    parts: int,
    blocks: int,
    score: Callable[[Row, random.Random], float],
    tasks: int = 20,
    **how: float,
) -> Analysis:
    draw = random.Random(1)
    outcomes = [
        Observation(str(n % tasks), row, score(row, draw))
        for n, half in enumerate(design(parts, blocks))
        for row in (half, mirror(half))
    ]
    return analyse(outcomes, parts, **how)


def coin(rate: float, draw: random.Random) -> float:
    return float(draw.random() < rate)


@given(st.integers(1, 24), st.integers(0, 9))
@settings(max_examples=12)
def test_over_a_stretch_every_part_is_off_in_half_and_no_two_go_together(
    parts: int, seed: int
) -> None:
    rows = design(parts, 2 * stretch(parts), seed)
    for half in (rows[: stretch(parts)], rows[stretch(parts) :]):
        both = [*half, *map(mirror, half)]
        assert all(sum(row[n] for row in both) == len(half) for n in range(parts))
        for a, b in combinations(range(parts), 2):
            assert sum(1 if row[a] == row[b] else -1 for row in both) == 0
        # no pair is mistaken for a part: resolution IV
        for a, b, c in list(combinations(range(parts), 3))[:20]:
            assert sum((1 if row[a] == row[b] else -1) * (1 if row[c] else -1) for row in both) == 0
    assert (True,) * parts in rows[: stretch(parts)]
    assert design(parts, 5, seed) == rows[:5] or len(rows) < 5


def test_a_pair_is_looked_at_with_all_others_on() -> None:
    assert cells(3, (0, 2)) == [
        (True, True, True),
        (True, True, False),
        (False, True, True),
        (False, True, False),
    ]


def test_good_useless_and_harmful_parts_are_told_apart() -> None:
    def score(on: Row, draw: random.Random) -> float:
        return coin(0.5 + 0.25 * on[0] - 0.25 * on[2], draw)

    got = found(6, 300, score, margin=0.2)
    assert [part.advice for part in got.parts] == [
        "keep",
        "dead weight",
        "harmful",
        *["dead weight"] * 3,
    ]
    assert all(
        part.lo <= truth <= part.hi
        for part, truth in zip(got.parts, (0.25, 0, -0.25, 0, 0, 0), strict=True)
    )
    assert (got.pairs, got.attempts) == ((), 600)
    assert got.gain[1] < 0 < got.gain[2]


def test_what_a_part_costs_may_be_any_number() -> None:
    got = found(3, 60, lambda on, draw: 2000 + 500.0 * on[0] + draw.gauss(0, 50), bounded=False)
    assert got.parts[0].lo < 500 < got.parts[0].hi < 600
    assert got.gain[1] < 500 < got.gain[2] < 600


def test_of_two_parts_that_help_alone_and_hurt_together_the_weaker_is_to_drop() -> None:
    def score(on: Row, draw: random.Random) -> float:
        return coin(
            0.4
            + (0.2 if on[0] and on[1] else 0.3 if on[1] else 0.4 if on[0] else 0)
            - 0.3 * (on[0] and on[1]),
            draw,
        )

    got = found(5, 300, score)
    (pair,) = got.pairs
    assert ((pair.first, pair.second), pair.kind) == ((0, 1), "clash")
    assert pair.hi < 0
    assert [(p.advice, p.with_, p.drop) for p in got.parts[:2]] == [
        ("clash", 1, False),
        ("clash", 0, True),
    ]
    assert all(part.hi < 0 for part in got.parts[:2])  # as the agent is, each of them costs
    assert {part.advice for part in got.parts[2:]} <= {"dead weight", "undecided"}


def test_of_two_that_do_the_same_only_one_is_dead_weight() -> None:
    got = found(3, 300, lambda on, draw: coin(0.2 + 0.5 * (on[0] or on[1]), draw), margin=0.2)
    (pair,) = got.pairs
    assert pair.kind == "overlap"
    assert sorted(part.advice for part in got.parts[:2]) == ["dead weight", "keep"]


def test_a_part_that_needs_another_is_worth_what_it_is_beside_it() -> None:
    got = found(4, 300, lambda on, draw: coin(0.2 + 0.6 * (on[0] and on[3]), draw))
    (pair,) = got.pairs
    assert ((pair.first, pair.second), pair.kind) == ((0, 3), "need")
    assert [part.advice for part in got.parts] == ["keep", "dead weight", "dead weight", "keep"]
    assert got.parts[0].value == pytest.approx(0.6, abs=0.15)


def test_how_hard_tasks_are_is_no_part_of_a_worth() -> None:
    levels = [0.0, 0.5] * 10

    def within(tasks: list[float]) -> list[float]:
        outcomes = [
            Observation(str(n % 20), row, tasks[n % 20] + 0.25 * row[1])
            for n, half in enumerate(design(4, 40))
            for row in (half, mirror(half))
        ]
        return [part.value for part in analyse(outcomes, 4).parts]

    assert within(levels) == pytest.approx([0, 0.25, 0, 0], abs=1e-9)
    assert within([0.25] * 20) == pytest.approx([0, 0.25, 0, 0], abs=1e-9)


def test_scores_that_are_all_alike_are_no_certainty() -> None:
    got = found(4, 20, lambda on, draw: 0.0)
    assert all(part.lo < -0.01 and part.hi > 0.01 for part in got.parts)


def test_what_is_undecided_says_how_many_attempts_would_tell() -> None:
    got = found(4, 12, lambda on, draw: coin(0.5, draw), tasks=12)
    undecided = [part for part in got.parts if part.advice == "undecided"]
    assert undecided
    assert all(part.needed > got.attempts for part in undecided)
    assert all(part.needed == 0 for part in got.parts if part.advice != "undecided")


def test_too_few_attempts_are_refused_and_more_give_narrower_intervals() -> None:
    with pytest.raises(ValueError, match="do not tell"):
        found(8, 4, lambda on, draw: 1.0)
    assert half_width(8, 100) > half_width(8, 400) > half_width(4, 400)
