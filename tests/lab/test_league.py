"""The league's worlds: known answers, no sentence to copy, traps that are traps."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.sandboxes import choose
from tests.lab.league import CONDITIONS, SIZES, Domain, Rule, infer, play, rules, table, worlds

ALL = worlds(60)


def test_sixty_worlds_of_four_kinds_the_same_each_time() -> None:
    assert worlds(60) == ALL
    assert [sum(w.kind == kind for w in ALL) for kind in ("one", "two", "where", "trap")] == [
        15
    ] * 4
    assert all(w.score(w.rule) == 1.0 for w in ALL)


def test_an_agent_that_knows_nothing_fails_where_the_rule_holds_and_is_right_elsewhere() -> None:
    for world in ALL:
        assert world.score(Rule()) <= (0.6 if world.rule.condition else 0.1), world


def test_in_a_trap_the_shorter_rule_fits_all_of_train_and_harms_on_other_words() -> None:
    for world in (w for w in ALL if w.kind == "trap"):
        short = Rule(world.rule.changes)
        train = world.words("train", SIZES["train"]) + world.words(
            "train:earlier:league:train:0", 3
        )
        assert all(short(word) == world.rule(word) for word in train)
        assert world.score(short) < 0.7
        assert all(CONDITIONS[world.rule.condition](word) for word in train)


def test_no_word_of_a_rule_is_told_by_a_task_or_its_sandbox(tmp_path: Path) -> None:
    for world in ALL[:8]:
        domain = Domain(world)
        task = domain.tasks("train")[0]
        with domain.prepare(task, choose("none")) as sandbox:
            told = task.prompt + sandbox.read("history").decode()
        assert "Rule" not in told
        assert not any(change in told for change in world.rule.changes)


def test_what_is_inferred_fits_an_order_that_was_seen() -> None:
    world = ALL[1]
    orders = "".join(f"order {w} was accepted as {world.rule(w)}\n" for w in world.words("some", 4))
    found = {infer(orders, seed) for seed in range(40)}
    assert world.rule.text in found
    assert len(found) > 1  # it errs
    assert all(
        any(rules()[said](w) == world.rule(w) for w in world.words("some", 4)) for said in found
    )
    assert infer("nothing here", 1) == ""


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["recreate", "opro"])
def test_a_build_on_a_world_ends_with_an_agent_that_is_right_on_fresh_words(optimizer: str) -> None:
    row = play(optimizer, ALL[0])
    assert (row["before"], row["after"]) == (0.0, 1.0)
    assert f"| `{optimizer}` | +1.00 [+1.00, +1.00] | +1.00 |" in table([row])
