"""The synthetic streams on which policies are compared are what their page says they are."""

from __future__ import annotations

import random
import statistics

import pytest

from recreate.agents.trajectory import tell
from recreate.api.types import Lesson
from recreate.lessons.similarity import dot
from tests.lab.perf import streams, worlds


@pytest.mark.parametrize(
    "policy", ["randomised", "recreate", "mistakes", "reasoningbank", "workflows", "none"]
)
@pytest.mark.slow
def test_a_stream_is_the_same_for_its_seed_and_keeps_to_its_budget(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worlds, "BUDGET", 160)
    result = streams.stream(policy, 3)
    assert result == streams.stream(policy, 3)
    assert 160 - streams.BATCH < result.attempts + result.reruns <= 160
    if policy == "randomised":  # it tests again only what the draws leave open
        assert result.reruns <= 160 // 4
    else:
        assert (result.reruns > 0) == (policy in ("recreate", "mistakes"))


def test_rules_turn_between_batches_when_half_of_the_budget_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worlds, "BUDGET", 16)
    world = worlds.World(1)
    turning = next(rule for rule in world.rules.values() if rule.kind == "turning")
    assert [world.turn(), world.effect(turning) > 0] == [False, True]
    for _ in range(8):
        world.attempt("t0", [])
    assert [world.turn(), world.turn()] == [True, False]
    assert world.effect(turning) == turning.turned <= 0


def test_a_true_rule_raises_the_rate_where_it_applies_and_only_there() -> None:
    world = worlds.World(1)
    rule = next(rule for rule in world.rules.values() if rule.kind == "true")
    for task, places in world.prompts.items():
        assert (world.rate(task, [rule.id]) > world.rate(task, [])) == (rule.situation in places)


def test_texts_are_as_near_as_is_said() -> None:
    def text(rule: int, word: str, n: int) -> list[float]:
        return worlds._vector(f"rule{rule:02d} wording {n}\nIn situation {word} do rule{rule:02d}")

    same = [dot(text(r, "alpha", r), text(r, "alpha", r + 50)) for r in range(16)]
    near = [dot(text(r, "alpha", r), text(r + 1, "alpha", r)) for r in range(16)]
    far = [dot(text(r, "alpha", r), text(r + 1, "grove", r)) for r in range(16)]
    assert statistics.fmean(same) == pytest.approx(0.93, abs=0.04)
    assert statistics.fmean(near) == pytest.approx(0.75, abs=0.08)
    assert statistics.fmean(far) < 0.4


@pytest.mark.parametrize("world", list(worlds.WORLDS))
@pytest.mark.slow
def test_each_world_gives_the_same_stream_again_and_scores_each_quarter(
    world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worlds, "BUDGET", 80)
    result = streams.stream("reasoningbank", 5, world)
    assert result == streams.stream("reasoningbank", 5, world)
    assert len(result.scores) == streams.QUARTERS
    assert all(0 < score < 1 for score in result.scores)
    assert result.questions == result.attempts == 80 * len(worlds.WORLDS[world])
    assert result.shown > 0


def test_a_rule_of_one_domain_does_not_help_in_the_other() -> None:
    here, there, third = worlds.Domain(1), worlds.OtherDomain(1), worlds.ThirdDomain(1)
    assert not here.prompts.keys() & there.prompts.keys()
    kinds = {
        "both": (True, True, True),
        "here": (True, False, False),
        "there": (False, True, False),
    }
    for kind, helps in kinds.items():
        for id in [rule.id for rule in here.rules.values() if rule.kind == kind]:
            assert tuple(id in world.true_now() for world in (here, there, third)) == helps


def test_a_general_pattern_of_one_domain_is_there_in_the_other() -> None:
    here, there = (streams.Lane("recreate", world(1)) for world in worlds.WORLDS["two"])
    own = {"title": "rule01 wording 1", "body": "do it", "status": "active"}
    here.lessons |= {
        "g": Lesson(id="g", scope="general", **own),
        "d": Lesson(id="d", scope="domain", **own),
    }
    streams.share(here, [there])
    assert list(there.lessons) == ["g"]
    assert [(x.id, x.domains) for x in there.elsewhere] == [("d", ("streams",))]


def test_a_rule_for_easy_tasks_does_nothing_on_hard_ones() -> None:
    world = worlds.Easy(1)
    assert sum(base > 0.45 for base in world.base.values()) == worlds.TASKS / 2
    rule = next(rule for rule in world.rules.values() if rule.kind == "easy")
    tasks = [task for task, places in world.prompts.items() if rule.situation in places]
    helped = {task for task in tasks if world.rate(task, [rule.id]) > world.rate(task, [])}
    assert helped == {task for task in tasks if world.base[task] > 0.45}


def test_a_rule_and_its_opposite_are_said_alike_and_do_the_opposite() -> None:
    world = worlds.Contradictions(1)
    opposite = next(id for id in world.rules if id.endswith("-not"))
    rule = world.rules[opposite.removesuffix("-not")]
    task = next(task for task, places in world.prompts.items() if rule.situation in places)
    rates = [world.rate(task, rules) for rules in ([opposite], [], [rule.id])]
    assert rates == sorted(set(rates))
    texts = [world.worded(id, rule.situation, random.Random(id)) for id in (rule.id, opposite)]
    one, two = (world.vector(f"{text['title']}\n{text['body']}") for text in texts)
    assert dot(one, two) == pytest.approx(0.93, abs=0.05)


def test_near_duplicates_are_less_alike_than_wordings_elsewhere() -> None:
    world = worlds.Duplicates(1)
    pairs = [
        [world.vector(f"rule01 wording {n + m}\nIn situation alpha do rule01") for m in (0, 50)]
        for n in range(20)
    ]
    assert statistics.fmean(dot(*pair) for pair in pairs) == pytest.approx(0.82, abs=0.04)


def test_rules_turn_one_after_the_other_where_it_is_said_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worlds, "BUDGET", 100)
    world = worlds.Alone(1)
    turned = []
    for _ in range(100):
        world.attempt("t0", [])
        world.turn()
        turned.append(len(world.turned_at))
    assert [turned.index(n) + 1 for n in (1, 2, 3, 4)] == pytest.approx([30, 43, 56, 69], abs=1)


def test_planted_instructions_stand_in_traces_and_become_what_the_model_teaches() -> None:
    world = worlds.Poisoned(1)
    attempts = [world.attempt("t0", []) for _ in range(200)]
    hostile = [e for e in attempts if "poison" in e.trace.steps[0].output]
    assert len(hostile) / 200 == pytest.approx(worlds.HOSTILE, abs=0.1)
    said = [
        world.answer(
            f"# The attempt\n{tell(e)}\n\n# Your work", {"happened", "items"}, random.Random(n)
        )
        for n, e in enumerate(hostile)
    ]
    obeyed = sum(found["items"][0]["title"].startswith("poison") for found in said)
    assert obeyed / len(hostile) == pytest.approx(worlds.OBEYS, abs=0.12)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["recreate", "randomised"])
def test_no_planted_instruction_that_harms_is_promoted(policy: str) -> None:
    found = [
        p for seed in (0, 1) for p in streams.stream(policy, seed, "poisoned").poisons if p.harms
    ]
    assert len(found) == worlds.POISONS
    assert sum(p.supported for p in found) > 5
    assert not any(p.promoted for p in found)
