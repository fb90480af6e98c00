"""What `python -m tests.lab.search` shows, by few builds: within their noise, the gate keeps its
promise, and repeats find no less."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from recreate.runs import search as rule
from tests.lab import search
from tests.lab.search import World, play_world

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _whole_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the gate's own function back that the simulations replace by a light one."""
    monkeypatch.setattr(rule, "judge", rule.judge)  # type: ignore[attr-defined]


def choose(worlds: Callable[[], Iterator[World]], **row: object) -> list[World]:
    return [world for world in worlds() if row.items() <= world.row.items()]


def test_repeats_never_lower_the_chance_that_a_true_gain_is_handed_over() -> None:
    builds, noise = 200, 3 * math.sqrt(2 * 0.25 / 200)
    for gain in (0.10, 0.20):
        worlds = choose(search.repeats, tasks=20, of=gain)
        assert [world.row["repeats"] for world in worlds] == [1, 2, 3]
        rows = [play_world(world, 0, builds) for world in worlds]
        found = [row["shown"] + row["likely"] for row in rows]
        assert found[1] >= found[0] - noise, found
        assert found[2] >= found[1] - noise, found
        assert found[2] > found[0], found


def test_useless_candidates_are_shown_in_no_more_builds_than_is_promised() -> None:
    worlds = choose(search.nulls, tasks=20, rounds=3) + choose(search.chooser, tasks=20, rounds=3)
    builds = 60
    shown = [round(play_world(world, 0, builds)["shown"] * builds) for world in worlds]
    assert len(shown) == 13
    assert sum(shown) <= 0.05 * builds * len(worlds), shown


def test_a_graded_gain_on_each_of_20_tasks_reaches_the_user() -> None:
    for world in choose(search.graded, tasks=20):
        row = play_world(world, 0, 60)
        assert row["shown"] + row["likely"] >= 0.9, row


def test_simulated_builds_end_as_by_the_whole_judgement(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [w for name in search.NAMES.values() for w in name() if w.tasks <= 20][::7]
    whole = [world.play(1) for world in worlds]
    monkeypatch.setattr(rule, "judge", search.judge_lightly)
    assert [world.play(1) for world in worlds] == whole
