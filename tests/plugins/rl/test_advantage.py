"""What holds of every advantage, whatever the rewards."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recreate.api.errors import BadInput
from recreate.plugins.rl.parts.advantages import dr_grpo, grpo, rloo
from recreate.plugins.rl.parts.gapo import covered, gapo
from recreate.plugins.rl.parts.gigpo import discounted_returns, gigpo, step_groups
from recreate.plugins.rl.parts.groups import Groups, grouped, sorted_columns, spread
from tests.plugins.rl import published
from tests.plugins.rl.published import interval

pytestmark = pytest.mark.rl

Part = Callable[..., Tensor]
PARTS: dict[str, Part] = {
    "grpo": grpo,
    "grpo-batch": lambda r, g, **k: grpo(r, g, scale="batch", **k),
    "dr-grpo": dr_grpo,
    "rloo": rloo,
    "gapo": gapo,
    "gapo-mean": lambda r, g, **k: gapo(r, g, center="mean", fraction=0.3, **k),
    "gapo-std": lambda r, g, **k: gapo(r, g, scale="std", **k),
    "gapo-plain": lambda r, g, **k: gapo(r, g, scale="none", **k),
}
each_part = pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())

# exact in float32, so that shifts and scales are exact too
grids = st.integers(0, 64).map(lambda n: n / 64)
batches = st.lists(st.tuples(st.integers(0, 4), grids), min_size=1, max_size=30)


def tensors(rows: list[tuple[int, float]]) -> tuple[Tensor, Groups]:
    return torch.tensor([r for _, r in rows]), grouped(torch.tensor([g for g, _ in rows]))


@each_part
@settings(max_examples=40, deadline=None)
@given(rows=batches, seed=st.integers(0, 99))
def test_a_permutation_of_rows_permutes_the_result(
    part: Part, rows: list[tuple[int, float]], seed: int
) -> None:
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    whole, mixed = part(*tensors(rows)), part(*tensors([rows[i] for i in order]))
    assert torch.allclose(whole[order], mixed, rtol=1e-6, atol=1e-7)


@each_part
@settings(max_examples=40, deadline=None)
@given(rows=batches, other=st.lists(grids, min_size=1, max_size=5))
def test_a_group_does_not_see_another(
    part: Part, rows: list[tuple[int, float]], other: list[float]
) -> None:
    if part is PARTS["grpo-batch"]:
        return  # the scale is the batch's, by name
    alone = part(*tensors(rows))
    beside = part(*tensors(rows + [(9, r) for r in other]))
    assert torch.equal(alone, beside[: len(rows)])


@each_part
@settings(max_examples=40, deadline=None)
@given(rows=batches, shift=st.sampled_from([-8.0, 1.0, 1024.0]))
def test_a_shift_of_rewards_changes_nothing(
    part: Part, rows: list[tuple[int, float]], shift: float
) -> None:
    plain, moved = part(*tensors(rows)), part(*tensors([(g, r + shift) for g, r in rows]))
    assert torch.allclose(plain, moved, rtol=1e-5, atol=1e-6)


@each_part
@settings(max_examples=40, deadline=None)
@given(rows=batches, factor=st.sampled_from([0.5, 4.0, 64.0]))
def test_a_scale_of_rewards_scales_or_vanishes(
    part: Part, rows: list[tuple[int, float]], factor: float
) -> None:
    plain, scaled = part(*tensors(rows)), part(*tensors([(g, r * factor) for g, r in rows]))
    linear = part in (PARTS["dr-grpo"], PARTS["rloo"], PARTS["gapo-plain"])
    wanted = plain * factor if linear else plain
    # eps stands beside a std of at least 1/128
    assert torch.allclose(wanted, scaled, rtol=1e-3, atol=1e-5)


@each_part
@settings(max_examples=60, deadline=None)
@given(
    value=st.floats(-1e6, 1e6, width=32), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4)
)
def test_equal_rewards_give_exactly_zero(part: Part, value: float, sizes: list[int]) -> None:
    r = torch.full((sum(sizes),), value)
    g = grouped(torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)))
    assert bool((part(r, g) == 0).all())


@each_part
@settings(max_examples=40, deadline=None)
@given(rows=batches)
def test_float32_and_float64_agree(part: Part, rows: list[tuple[int, float]]) -> None:
    r, g = tensors(rows)
    single, double = part(r, g), part(r.double(), g)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    assert torch.allclose(single.double(), double, rtol=1e-6, atol=1e-7)


@each_part
def test_whole_number_rewards_are_numbers(part: Part) -> None:
    g = grouped([0] * 4)
    assert torch.equal(
        part(torch.tensor([0, 1, 1, 3]), g), part(torch.tensor([0.0, 1.0, 1.0, 3.0]), g)
    )


@each_part
def test_an_empty_batch_is_an_empty_batch(part: Part) -> None:
    assert part(torch.empty(0), grouped([])).shape == (0,)


@each_part
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_broken_reward_gives_its_group_nothing(part: Part, bad: float) -> None:
    r, g = torch.tensor([0.1, bad, 0.9, 0.2, 0.4, 0.9]), grouped(list("aaabbb"))
    out = part(r, g)
    assert out[:3].tolist() == [0.0, 0.0, 0.0]
    assert torch.equal(out[3:], part(r[3:], grouped(list("bbb"))))
    row = part(r, g, unscored="row")
    assert (
        torch.allclose(row[[0, 2]], part(r[[0, 2]], grouped(list("aa"))), atol=1e-6)
        or part is PARTS["grpo-batch"]
    )
    assert row[1] == 0


def test_a_group_of_one_gets_nothing_and_as_published_its_raw_reward() -> None:
    r, g = torch.tensor([0.7, 0.1, 0.5]), grouped(["alone", "b", "b"])
    for part in PARTS.values():
        assert part(r, g)[0] == 0
    theirs = published.gapo_advantages(
        r, g, fraction=0.5, center="median", scale="deviation", eps=1e-6
    )
    for out in (
        published.grpo(r, g),
        published.rloo(r, g),
        published.grpo(r, g, scale="none"),
        theirs,
    ):
        assert out[0] == pytest.approx(0.7, abs=1e-5)


def test_masked_tokens_get_zero_even_of_what_is_not_a_number() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    assert spread(torch.tensor([2.0, math.nan]), mask).tolist() == [
        [2.0, 2.0, 0.0],
        [0.0, 0.0, 0.0],
    ]


def test_gapo_of_two_is_the_gap_from_the_worse() -> None:
    r = torch.tensor([0.9, 0.2])
    assert torch.allclose(gapo(r, grouped([0, 0])), torch.tensor([1.0, 0.0]), atol=1e-5)
    assert torch.allclose(
        gapo(r, grouped([0, 0]), pair="grpo"), grpo(r, grouped([0, 0])), atol=1e-6
    )


@pytest.mark.parametrize(
    ("ones", "right"), [(2, math.sqrt(7 / 2)), (6, 0.0), (4, math.sqrt(7 / 4))]
)
def test_gapo_on_binary_rewards_leaves_the_majority_alone(ones: int, right: float) -> None:
    r = torch.tensor([1.0] * ones + [0.0] * (8 - ones))
    out = gapo(r, grouped([0] * 8))
    assert out[:ones].tolist() == pytest.approx([right] * ones, abs=1e-5)
    wrong = 0.0 if ones <= 4 else -math.sqrt(7 / 2)
    assert out[ones:].tolist() == pytest.approx([wrong] * (8 - ones), abs=1e-5)


def test_gapo_takes_the_lowest_of_equal_windows_as_float32_sees_them() -> None:
    assert interval([0.0, 1.0, 2.0, 3.0], 2).median == 0.5
    # in float32, 0.4 .. 0.7 is narrower than 0.1 .. 0.4
    steps = torch.arange(1, 9, dtype=torch.float32) / 10
    assert interval(steps.double().tolist(), 4).median == pytest.approx(0.55)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.floats(-5, 5, width=32), min_size=3, max_size=40),
    fraction=st.floats(0.05, 1.0),
)
def test_gapo_holds_what_the_paper_says_of_its_scale(rows: list[float], fraction: float) -> None:
    """D >= s and |A| <= sqrt(n - 1); the window is the narrowest, by brute force."""
    n, k = len(rows), covered(len(rows), fraction)
    ordered = sorted(rows)
    widths = [ordered[s + k - 1] - ordered[s] for s in range(n - k + 1)]
    held = ordered[widths.index(min(widths)) :][:k]
    q = (held[(k - 1) // 2] + held[k // 2]) / 2
    assert interval(rows, k).median == q
    out = gapo(torch.tensor(rows, dtype=torch.float64), grouped([0] * n), fraction=fraction)
    assert float(out.abs().max()) <= math.sqrt(n - 1) + 1e-9
    flat = grpo(torch.tensor(rows, dtype=torch.float64), grouped([0] * n))
    assert float(out.max() - out.min()) <= float(flat.max() - flat.min()) + 1e-9


def test_the_share_of_a_group_is_not_lost_to_floats() -> None:
    assert covered(100, 0.07) == 7
    assert published.covered(100, 0.07) == 8
    with pytest.raises(BadInput, match="fraction is 0"):
        gapo(torch.ones(3), grouped([0] * 3), fraction=0.0)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(st.floats(-9, 9), min_size=13, max_size=13), min_size=1, max_size=4))
def test_columns_are_sorted(rows: list[list[float]]) -> None:
    block = torch.tensor(rows, dtype=torch.float64)
    assert torch.equal(torch.stack(sorted_columns(block), 1), torch.sort(block, 1).values)


@pytest.mark.parametrize(
    "ids",
    [
        ["x", "y", "x"],
        [(1, "a"), (2, "b"), (1, "a")],
        torch.tensor([7, -(10**12), 7]),
        torch.tensor([5, 6, 5]),
    ],
)
def test_groups_are_of_any_ids(ids: Any) -> None:
    out = dr_grpo(torch.tensor([0.0, 9.0, 1.0]), grouped(ids))
    assert out.tolist() == [-0.5, 0.0, 0.5]
    with pytest.raises(BadInput, match="one integer a row"):
        grouped(torch.tensor([0.5]))


def test_gigpo_with_weight_0_and_a_row_a_trajectory_is_grpo_bit_for_bit() -> None:
    r, g = torch.rand(12, generator=torch.Generator().manual_seed(1)), grouped([0] * 6 + [1] * 6)
    own = grouped(list(range(12)))
    out = gigpo(r, g, trajectories=own, returns=r, steps=own, weight=0.0)
    assert torch.equal(out, grpo(r, g))


def test_gigpo_counts_an_attempt_once_however_long_it_was() -> None:
    """One long success, one short failure: over attempts their advantages are opposite; over rows
    they are not."""
    r, g, t = torch.tensor([1.0, 1.0, 1.0, 0.0]), grouped([0] * 4), grouped([0, 0, 0, 1])
    steps = grouped(list(range(4)))
    out = gigpo(r, g, trajectories=t, returns=r, steps=steps, scale="none")
    assert out.tolist() == [0.5, 0.5, 0.5, -0.5]
    rows = gigpo(r, g, trajectories=t, returns=r, steps=steps, scale="none", across_steps=True)
    assert rows.tolist() == [0.25, 0.25, 0.25, -0.75]


def test_gigpo_compares_steps_that_answered_the_same_observation_of_one_prompt() -> None:
    g = grouped(["p", "p", "p", "q"])
    found = step_groups([["a", 1], ("a", 1), "b", ["a", 1]], g)
    assert found.index[0] == found.index[1]
    assert len(set(found.index.tolist())) == 3
    near = step_groups(
        ["the door is open", "the door is  open", "a cat", "the door is open"], g, similarity=0.9
    )
    assert near.index.tolist() == [0, 0, 1, 2]
    with pytest.raises(BadInput, match="NoneType"):
        step_groups([None] * 4, g)


def test_returns_are_discounted_within_a_trajectory() -> None:
    out = discounted_returns(torch.tensor([0.0, 5.0, 1.0, 2.0]), grouped(["t", "u", "t", "t"]), 0.5)
    assert out.tolist() == [1.0, 5.0, 2.0, 2.0]
