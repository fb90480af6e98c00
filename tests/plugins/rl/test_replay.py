"""A2R's reference reading: what is replayed, how much it counts, and that nothing else changes."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recreate.api.errors import BadInput
from recreate.plugins.rl.parts.a2r import (
    A2R,
    AmbiguityReplay,
    Rollouts,
    ambiguity,
    divergence,
    probabilities,
    staleness_weight,
    truncated_weight,
)
from recreate.plugins.rl.parts.advantages import grpo
from recreate.plugins.rl.parts.groups import grouped

pytestmark = pytest.mark.rl


def rollouts(task: str, epoch: int, fill: float = -1.0) -> Rollouts:
    two = torch.full((2, 3), fill)
    ids = torch.ones(2, 3, dtype=torch.long)
    return Rollouts(
        task, epoch, ids, ids, torch.ones(2, 3), torch.tensor([0.0, 1.0]), two, two.sign()
    )


def filled(seed: int = 7, **knobs: Any) -> AmbiguityReplay:
    """Ten tasks over two epochs, the first four of which changed."""
    replay = A2R(**{"share": 0.3, **knobs})(seed)
    for epoch in (0, 1):
        for n in range(10):
            score = [0.0, 1.0] if n < 4 and epoch else [0.0, 0.0]
            replay.record(f"t{n}", score, epoch)
            replay.store(rollouts(f"t{n}", epoch))
    return replay


def test_only_change_across_epochs_is_ambiguous() -> None:
    assert ambiguity([0.5, 0.5, 0.5]) == 0
    assert ambiguity([1.0, 0.0, 1.0, 0.0]) == 0.5
    assert ambiguity([0.3]) == 0
    assert ambiguity([1.0, 0.0, 0.5, 0.5], window=2) == 0


def test_nothing_is_replayed_in_the_first_epochs_or_without_a_share() -> None:
    replay = A2R(share=1.0)()
    replay.record("t", [0.0, 1.0], 0)
    replay.store(rollouts("t", 0))
    assert replay.draw(8, 0, 0) == []
    assert replay.draw(8, 1, 0) == []
    assert filled(share=0.0).draw(100, 2, 0) == []


def test_a_draw_is_the_same_for_a_seed_and_a_step_and_without_repeats() -> None:
    drawn = [r.task for r in filled().draw(10, 2, 5)]
    assert drawn == [r.task for r in filled().draw(10, 2, 5)]
    assert len(set(drawn)) == len(drawn) == 3
    assert set(drawn) <= {"t0", "t1", "t2", "t3"}
    others = {tuple(r.task for r in filled(seed=s).draw(10, 2, 5)) for s in range(20)}
    assert len(others) > 3


def test_tasks_are_drawn_in_proportion_to_their_ambiguity() -> None:
    replay = A2R(share=1.0)()
    for task, scores in {"a": (0.0, 1.0), "b": (0.0, 0.25), "c": (0.5, 0.5)}.items():
        for epoch, score in enumerate(scores):
            replay.record(task, [score], epoch)
            replay.store(rollouts(task, epoch))
    first = Counter(replay.draw(1, 2, step)[0].task for step in range(2000))
    assert first["c"] == 0
    assert first["a"] / 2000 == pytest.approx(0.8, abs=0.04)
    assert probabilities({"a": [0.0, 1.0], "b": [0.0, 0.25]}, alpha=0.0) == {"a": 0.5, "b": 0.5}
    assert (
        probabilities({"a": [0.0, 1.0], "b": [0.0, 0.25], "c": [0.0, 0.1]}, select="band")["a"]
        == 1.0
    )


def test_stale_groups_are_dropped_for_good() -> None:
    replay = filled(max_age=2)
    assert replay.draw(10, 3, 0)
    assert replay.draw(10, 4, 0) == []
    assert replay.stored == {}


def test_a_group_with_a_nan_is_neither_recorded_nor_stored() -> None:
    replay = A2R()()
    replay.record("t", [0.0, math.nan], 0)
    replay.store(rollouts("t", 0, fill=math.nan))
    assert (replay.histories, replay.stored) == ({}, {})


def test_replayed_groups_never_change_the_advantages_of_fresh_ones() -> None:
    replay = filled()
    fresh = torch.tensor([0.0, 1.0, 0.5, 0.5])
    alone = grpo(fresh, grouped(["t0", "t0", "t1", "t1"]))
    old = replay.draw(10, 2, 0)
    ids = ["t0", "t0", "t1", "t1"] + [r.group for r in old for _ in range(2)]
    assert torch.equal(grpo(torch.cat([fresh, *(r.rewards for r in old)]), grouped(ids))[:4], alone)


@settings(max_examples=50, deadline=None)
@given(moves=st.lists(st.floats(-2, 2), min_size=1, max_size=6), temperature=st.floats(0.1, 5))
def test_a_weight_is_1_only_where_nothing_diverged(moves: list[float], temperature: float) -> None:
    beta = torch.full((1, len(moves)), -1.0, dtype=torch.float64)
    now, mask = beta + torch.tensor(moves, dtype=torch.float64), torch.ones_like(beta)
    away = divergence(now, beta, mask)
    weight = float(staleness_weight(away, temperature=temperature))
    assert 0 <= weight <= 1
    assert float(away) >= 0
    assert float(divergence(now + 0.0, now, mask)) == 0
    if any(abs(m) > 0.01 for m in moves):
        assert weight < 1
    doubled = divergence(now.repeat(1, 2), beta.repeat(1, 2), mask.repeat(1, 2))
    assert float(doubled) == pytest.approx(float(away))
    assert 0 < float(truncated_weight(now, beta, mask)) <= 1


def test_masked_tokens_do_not_diverge_and_an_empty_row_does_not_either() -> None:
    beta, now = torch.full((2, 3), -1.0), torch.tensor([[-1.0, -1.0, math.nan], [-9.0, -9.0, -9.0]])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    assert divergence(now, beta, mask).tolist() == [0.0, 0.0]


def test_the_median_temperature_gives_a_typical_row_1_over_e() -> None:
    replay = A2R(temperature="median")()
    now = torch.tensor([[-1.5], [-1.5], [-1.5]])
    weight = replay.weight(now, torch.full((3, 1), -1.0), torch.ones(3, 1))
    assert weight.tolist() == pytest.approx([math.exp(-1)] * 3)


def test_a_resumed_replay_goes_on_as_if_it_had_not_stopped() -> None:
    replay = filled(temperature="median")
    replay.weight(torch.full((1, 1), -2.0), torch.full((1, 1), -1.0), torch.ones(1, 1))
    state, tensors = replay.state()
    again = A2R(share=0.3, temperature="median")(7)
    again.restore(json.loads(json.dumps(state)), tensors)
    assert [r.group for r in again.draw(10, 2, 3)] == [r.group for r in replay.draw(10, 2, 3)]
    assert again.chances() == replay.chances()
    assert torch.equal(again.stored["t1"].behaviour, replay.stored["t1"].behaviour)
    tensors.pop("0.mask")
    with pytest.raises(BadInput, match="checkpoint"):
        again.restore(state, tensors)
