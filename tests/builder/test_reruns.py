"""How many re-runs a memory policy gets: a cap of each round that holds against one that wants
without end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.api.types import Change, Experience, Lesson
from recreate.builder.loop import build
from recreate.lessons.context import PolicyContext, RerunRequest
from recreate.runs import settings as settings_
from recreate.runs.reader import Run
from recreate.runs.session import Parts, open_session
from tests.toy import script

SEED = scaffolds.load(shipped("scaffolds") / "seed")
Go = Callable[..., Run]


class Greedy:
    """Re-runs without end, and believes everything."""

    def __init__(self, context: PolicyContext) -> None:
        self.context = context

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        for repeat in range(6):
            for e in experiences:
                self.context.rerun(
                    [Lesson(id="mark", title="How answers end", body="Well.")], e, repeat
                )
        return []

    def offer(self, query: str, budget: int) -> Sequence[Lesson]:
        return []


class GreedyTogether(Greedy):
    """Wants all its re-runs at once. `scores`: what it was answered."""

    scores: ClassVar[list[float | None]] = []

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        lesson = Lesson(id="mark", title="How answers end", body="Well.")
        wanted = [[RerunRequest([lesson], e, repeat)] for repeat in range(6) for e in experiences]
        while wanted:
            answered = [score for (score,) in self.context.reruns(wanted)]
            self.scores.extend(answered)
            wanted = wanted[len(answered) :]
        return []


@pytest.fixture
def go(workspace: Path) -> Go:
    def go(policy: type[Greedy] = Greedy, **flags: Any) -> Run:
        rows = [r for r in script() if r["role"] != "optimizer"] + [
            {"role": "optimizer", "text": "{}"}
        ]
        file = workspace / "script.jsonl"
        file.write_text("".join(json.dumps(r) + "\n" for r in rows))
        values: dict[str, Any] = {
            "domain": "tests.toy:Toy",
            "model": f"scripted:{file}",
            "rounds": 1,
            "batch": 8,
        }
        values |= {
            "memory.policy": "randomised",
            "memory.embedder": "hashed",
            "price": "1,1",
            **flags,
        }
        values |= {"models.optimizer_price": values["price"]}
        folder = workspace / "runs" / "a"
        loaded = settings_.load(workspace, values, {})
        session = open_session(
            loaded,
            workspace,
            folder,
            resume=(folder / "settings.toml").exists(),
            parts=Parts(policy=policy),
        )
        try:
            build(replace(session, policy_name="randomised"), SEED)
            return Run(folder)
        finally:
            session.close()

    return go


def reruns(run: Run) -> int:
    return sum(r["phase"] == "rerun" for r in run.records("experience"))


@pytest.mark.parametrize("flags", [{}, {"budget": ["5usd"], "price": "0,0"}])
def test_without_a_budget_that_counts_them_nothing_is_re_run(go: Go, flags: dict[str, Any]) -> None:
    assert reruns(go(**flags)) == 0


@pytest.mark.parametrize("policy", [Greedy, GreedyTogether])
@pytest.mark.slow
def test_a_round_re_runs_so_many_and_no_more(go: Go, policy: type[Greedy]) -> None:
    GreedyTogether.scores.clear()
    run = go(policy, budget=["100attempts"], jobs=4)
    assert reruns(run) == 24
    counted = [score for score in GreedyTogether.scores if score is not None]
    assert len(counted) in (0, 24)


@pytest.mark.parametrize("budget", [[], ["60attempts"]])
@pytest.mark.slow
def test_a_count_that_is_set_is_the_cap(go: Go, budget: list[str]) -> None:
    assert reruns(go(budget=budget, **{"memory.reruns": 6})) == 6


@pytest.mark.slow
def test_re_runs_leave_the_attempts_over_that_judge_a_candidate(go: Go) -> None:
    run = go(budget=["40attempts"])
    judged = [r for r in run.records("experience") if r["split"] == "validation"]
    assert 0 < reruns(run) < 24
    assert judged


@pytest.mark.slow
def test_a_build_that_goes_on_makes_none_anew(go: Go) -> None:
    run = go(budget=["100attempts"])
    before = reruns(run)
    journal = run.folder / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if json.loads(line)["kind"] == "memory")
    journal.write_text("".join(lines[:at]))
    (run.folder / "checkpoint.sqlite").unlink()
    assert reruns(go(budget=["100attempts"])) == before
