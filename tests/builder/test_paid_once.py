"""What runs/ has of a seed is not paid for again, unless a build judged that very agent by it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply
from recreate.builder import sdk
from recreate.cli import run as cli
from recreate.models.scripted import Scripted
from recreate.runs.reader import Run
from tests.toy import SIZES, Toy, script


class Counting:
    """The toy's scripted model, which remembers whose attempts asked it."""

    name = "tests:counting"
    price: Price | None = Price()

    def __init__(self) -> None:
        self.inner = Scripted.of(script())
        self.attempts = set[tuple[str | None, str]]()

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if call.role == "agent":
            self.attempts.add((call.task, call.attempt))
        return self.inner.reply(messages, call, **params)

    def close(self) -> None: ...


def build(workspace: Path, name: str, **more: Any) -> tuple[sdk.Outcome, Counting]:
    model = Counting()
    settings: dict[str, Any] = {
        "scaffold": "seed",
        "rounds": 1,
        "memory.embedder": "hashed",
        "models.retries": 0,
    }
    made = sdk.build(
        Toy(),
        model=model,
        workspace=workspace,
        out=str(workspace / "runs" / name),
        **{**settings, **more},
    )
    return made, model


def test_a_second_build_pays_for_no_attempt_of_the_same_seed(workspace: Path) -> None:
    first, paid = build(workspace, "a")
    second, anew = build(workspace, "b")
    records = list(Run(first.run).records("experience"))
    seeds = {r["attempt"] for r in records if r["scaffold"] == first.seed.digest}
    assert len(seeds) == 2 * SIZES["validation"] + SIZES["train"], "twice, to show what was gained"
    assert not seeds & {attempt for _, attempt in anew.attempts}
    assert seeds <= {attempt for _, attempt in paid.attempts}
    assert second.verdict == first.verdict
    assert second.scaffold.digest == first.scaffold.digest


@pytest.mark.plugin("bench")
def test_what_a_bench_measured_is_the_seeds_first_score(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Counting()
    recreate.bench("seed", Toy(), model=model, split="validation", workspace=workspace)
    made, anew = build(workspace, "b")
    assert len(model.attempts) == SIZES["validation"]
    assert not anew.attempts & model.attempts
    assert made.verdict.better


def test_a_score_by_which_a_build_kept_an_agent_is_no_seeds_score(workspace: Path) -> None:
    first, _ = build(workspace, "a")
    _, anew = build(workspace, "b", scaffold=str(first.path), rounds=1)
    validation = {task for task, _ in anew.attempts if task and ":validation:" in task}
    assert len(validation) == SIZES["validation"], "measured anew"


@pytest.mark.plugin("measuring")
def test_a_calibration_pays_only_for_what_was_not_attempted(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in script()))
    words = ["calibrate", "--scaffold", "seed", "--domain", "tests.toy:Toy", "--repeats", "2"]
    words += ["--model", f"scripted:{workspace / 's.jsonl'}", "--validation", "8"]
    told = []
    for name in ("a", "b"):
        assert cli([*words, "--out", f"runs/{name}"]) == 0
        told.append(capsys.readouterr().err)
    assert "read back" not in told[0]
    assert f"{2 * SIZES['validation']} attempts of seed are read back from runs/" in told[1]
