"""Agents recall while they are measured."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.recall import asking
from tests.plugins.recall.asking import DOMAIN
from tests.plugins.recall.test_recall import steps

pytestmark = pytest.mark.plugin("recall")
type_ = asking.type_


@pytest.mark.slow
def test_run_and_bench_recall_train_attempts_and_a_held_out_one_is_told_of_no_other(
    type_: Callable[..., tuple[int, Any]], workspace: Path
) -> None:
    train = type_("run", "seed", "toy:train:3", *DOMAIN, "--out", "runs/one")[1]["experience"]
    type_("run", "seed", "toy:validation:1", *DOMAIN, "--out", "runs/two")
    assert (
        type_(
            "bench", "--scaffold", "asks", *DOMAIN, "--split", "validation", "--out", "runs/three"
        )[0]
        == 0
    )
    found = steps(workspace / "runs/three")
    assert len(found) == 8
    assert {tuple(each[0]["recalled"]) for each in found.values()} == {(train,)}
    assert {each[1]["action"] for each in found.values()} == {"echo 3! > answer.txt"}


@pytest.mark.slow
def test_an_attempt_is_read_back_only_while_memory_stands_as_it_did(
    type_: Callable[..., tuple[int, Any]], workspace: Path
) -> None:
    def measured(scaffold: str, out: str) -> set[str]:
        words = (
            "bench",
            "--scaffold",
            scaffold,
            *DOMAIN,
            "--split",
            "validation",
            "--tasks",
            "2",
            "--out",
            out,
        )
        assert type_(*words)[0] == 0
        return set(steps(workspace / out))

    plain, asks = measured("seed", "runs/a"), measured("asks", "runs/b")
    assert (measured("seed", "runs/c"), measured("asks", "runs/d")) == (plain, asks)
    type_("run", "seed", "toy:train:3", *DOMAIN, "--out", "runs/one")
    assert measured("seed", "runs/e") == plain
    assert measured("asks", "runs/f").isdisjoint(asks)


@pytest.mark.slow
def test_a_recording_holds_what_memory_answered_and_its_replay_needs_no_memory(
    type_: Callable[..., tuple[int, Any]], workspace: Path
) -> None:
    type_("run", "seed", "toy:train:3", *DOMAIN, "--out", "runs/one")
    bench = ("bench", "--scaffold", "asks", "--split", "validation", "--tasks", "2")
    code, first = type_(*bench, *DOMAIN, "--out", "runs/two", "--record", "tape")
    shutil.rmtree(workspace / "memory")
    again, second = type_(*bench, "--out", "runs/three", "--replay", "tape", "--sandbox", "none")
    assert (code, again) == (0, 0)
    assert steps(workspace / "runs/three").keys() == steps(workspace / "runs/two").keys()
    assert [cell["mean"] for cell in first["cells"]] == [cell["mean"] for cell in second["cells"]]
    told = [each[0]["output"] for each in steps(workspace / "runs/three").values()]
    assert all("it handed in: 3!" in text for text in told)
