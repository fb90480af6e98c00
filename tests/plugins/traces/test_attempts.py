"""Attempts as the commands of traces show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from recreate.runs.reader import Run
from tests.runs.test_attempts import Wavering, attempted
from tests.toy import Toy


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert cli(["traces", "show", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_second_run_with_another_answer_is_kept_and_shown_as_itself(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Wavering("wrong", "w0!", "w0!", "third")
    made = [attempted(model) for _ in range(4)]
    assert [e.trace.answer for e in made] == ["wrong", "w0!", "w0!", "third"]
    assert made[1].id == made[2].id, "what went the same way is the same attempt"
    assert len({e.id for e in made}) == 3
    for e in made:
        told = shown(capsys, e.id)
        assert (told["experience"], told["answer"], told["score"]) == (
            e.id,
            e.trace.answer,
            e.grade.score,
        )
    kept = {e.id: e.trace.answer for e in ExperienceStore(workspace).experiences()}
    assert kept == {e.id: e.trace.answer for e in made}


def test_a_second_bench_keeps_its_own_scores(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Wavering("w0!", "w0", "w0", "w0!")
    how: dict[str, Any] = {
        "model": model,
        "memory__embedder": "hashed",
        "repeats": 2,
        "jobs": 1,
        "split": "train",
    }
    benches = [
        recreate.bench("seed", Toy(), tasks=["toy:train:0"], out=f"runs/{n}", **how)[0]
        for n in "ab"
    ]
    assert [[s["score"] for s in b.scores] for b in benches] == [[1.0, 0.0], [0.0, 1.0]]
    assert len({s["experience"] for b in benches for s in b.scores}) == 4
    for bench in benches:
        for score in bench.scores:
            assert shown(capsys, score["experience"])["score"] == score["score"]
    again = recreate.bench("seed", Toy(), tasks=["toy:train:0"], out="runs/b", **how)[0]
    assert (again.scores, model.asked) == (
        benches[1].scores,
        4,
    ), "going on with it pays for nothing"
    run = Run(workspace / "runs" / "b")
    assert run.spend().attempts == 2
    assert not run.excluded()
    assert {p.name for p in (run.folder / "attempts").iterdir()} == {
        s["experience"] for s in benches[1].scores
    }
