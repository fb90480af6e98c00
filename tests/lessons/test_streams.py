"""The synthetic streams on which policies are compared are what their page says they are."""

from __future__ import annotations

import statistics

import pytest

from recreate.lessons.similarity import dot
from tests.perf import streams


@pytest.mark.parametrize("policy", ["randomised", "recreate", "mistakes", "none"])
def test_a_stream_is_the_same_for_its_seed_and_keeps_to_its_budget(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BUDGET", 160)
    result = streams.stream(policy, 3)
    assert result == streams.stream(policy, 3)
    assert 160 - streams.BATCH < result.attempts + result.reruns <= 160
    assert (result.reruns > 0) == (policy in ("recreate", "mistakes"))


def test_rules_turn_between_batches_when_half_of_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BUDGET", 16)
    world = streams.World(1)
    turning = next(rule for rule in world.rules.values() if rule.kind == "turning")
    assert [world.turn(), world.effect(turning) > 0] == [False, True]
    for _ in range(8):
        world.attempt("t0", [])
    assert [world.turn(), world.turn()] == [True, False]
    assert world.effect(turning) == turning.turned <= 0


def test_a_true_rule_raises_the_rate_where_it_applies_and_only_there() -> None:
    world = streams.World(1)
    rule = next(rule for rule in world.rules.values() if rule.kind == "true")
    for task, places in world.prompts.items():
        assert (world.rate(task, [rule.id]) > world.rate(task, [])) == (rule.situation in places)


def test_texts_are_as_near_as_is_said() -> None:
    def text(rule: int, word: str, n: int) -> list[float]:
        return streams._vector(f"rule{rule:02d} wording {n}\nIn situation {word} do rule{rule:02d}")

    same = [dot(text(r, "alpha", r), text(r, "alpha", r + 50)) for r in range(16)]
    near = [dot(text(r, "alpha", r), text(r + 1, "alpha", r)) for r in range(16)]
    far = [dot(text(r, "alpha", r), text(r + 1, "grove", r)) for r in range(16)]
    assert statistics.fmean(same) == pytest.approx(0.93, abs=0.04)
    assert statistics.fmean(near) == pytest.approx(0.75, abs=0.08)
    assert statistics.fmean(far) < 0.4
