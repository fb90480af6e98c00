"""What a memory policy may spend: its part of the budget holds against a policy that wants all of
it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.api.errors import OutOfBudget
from recreate.api.paths import shipped
from recreate.api.types import Change, Experience, Lesson
from recreate.builder.loop import build
from recreate.lessons.context import PolicyContext, RerunRequest
from recreate.runs import settings as settings_
from recreate.runs.reader import Run
from recreate.runs.session import Parts, open_session
from tests.toy import script

SEED = scaffolds.load(shipped("scaffolds") / "seed")
Go = Callable[..., tuple[Run, "Greedy"]]


class Greedy:
    """Asks and re-runs without end, and believes everything."""

    asked = 0

    def __init__(self, context: PolicyContext) -> None:
        self.context = context

    def observe(self, experiences: Sequence[Experience]) -> Sequence[Change]:
        for n in range(60):
            try:
                self.context.ask(
                    [{"role": "user", "content": f"{n}: what was learned?"}], step=0, thread=f"{n}"
                )
                type(self).asked += 1
            except OutOfBudget as e:
                if e.code != "memory-share":
                    raise
                break
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
    def go(policy: type[Greedy] = Greedy, **flags: Any) -> tuple[Run, Greedy]:
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
        Greedy.asked = 0
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
            return Run(folder), Greedy  # type: ignore[return-value]
        finally:
            session.close()

    return go


def spent(run: Run, *phases: str) -> dict[str, float]:
    """What replies of some phases took, by the ledger's own lines."""
    lines = [json.loads(line) for line in (run.folder / "ledger.jsonl").read_text().splitlines()]
    used = [x["usage"] for x in lines if x["kind"] == "settle" and x["phase"] in phases]
    usd = sum(u["usd"] for u in used)
    return {
        "usd": usd,
        "tokens": sum(u["tokens_in"] + u["tokens_out"] for u in used),
        "calls": len(used),
    }


def reruns(run: Run) -> int:
    return sum(r["phase"] == "rerun" for r in run.records("experience"))


def test_without_a_stated_budget_nothing_is_re_run_and_it_is_said_how_to(go: Go) -> None:
    run, _ = go()
    assert reruns(run) == 0
    assert spent(run, "rerun")["calls"] == 0


@pytest.mark.slow
def test_of_attempts_a_policy_re_runs_its_share(go: Go) -> None:
    run, _ = go(budget=["100attempts"])
    assert reruns(run) == 15


@pytest.mark.slow
def test_no_share_lets_re_runs_have_more_than_a_quarter_of_a_budget(go: Go) -> None:
    run, _ = go(budget=["100attempts"], **{"memory.share": 1.0})
    assert reruns(run) == 25


@pytest.mark.parametrize(
    ("budget", "unit", "cap"), [("0.1usd", "usd", 0.1), ("100ktokens", "tokens", 100_000)]
)
@pytest.mark.parametrize("share", [0.15, 0.6])
@pytest.mark.slow
def test_of_dollars_and_tokens_questions_and_re_runs_take_the_share_and_re_runs_a_quarter_at_most(
    go: Go, budget: str, unit: str, cap: float, share: float
) -> None:
    run, _ = go(budget=[budget], **{"memory.share": share})
    assert 0 < spent(run, "rerun", "observe")[unit] <= share * cap
    assert spent(run, "rerun")[unit] <= 0.25 * cap


@pytest.mark.parametrize(
    ("budget", "unit", "cap"), [("0.2usd", "usd", 0.2), ("200ktokens", "tokens", 200_000)]
)
@pytest.mark.slow
def test_re_runs_side_by_side_take_no_more_than_the_share_and_count_while_it_lasts(
    go: Go, budget: str, unit: str, cap: float
) -> None:
    GreedyTogether.scores.clear()
    run, _ = go(GreedyTogether, budget=[budget], jobs=4)
    assert spent(run, "rerun")[unit] <= 0.15 * cap
    counted = [score for score in GreedyTogether.scores if score is not None]
    assert len(counted) == reruns(run) > 4


@pytest.mark.slow
def test_of_attempts_re_runs_side_by_side_take_the_share(go: Go) -> None:
    run, _ = go(GreedyTogether, budget=["100attempts"], jobs=4)
    assert reruns(run) == 15


def test_a_budget_in_dollars_is_none_for_a_model_without_a_price(go: Go) -> None:
    run, _ = go(budget=["5usd"], price="0,0")
    assert reruns(run) == 0


@pytest.mark.parametrize(("budget", "most"), [([], 6), (["60attempts"], 20)])
@pytest.mark.slow
def test_a_count_that_is_set_is_the_cap_whatever_the_share(
    go: Go, budget: list[str], most: int
) -> None:
    run, _ = go(budget=budget, **{"memory.reruns": most})
    assert reruns(run) == most


@pytest.mark.slow
def test_a_build_that_goes_on_is_not_given_its_share_anew(go: Go) -> None:
    run, _ = go(budget=["100attempts", "1Mtokens"])
    before = reruns(run), spent(run, "observe")
    journal = run.folder / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if json.loads(line)["kind"] == "memory")
    journal.write_text("".join(lines[:at]))
    (run.folder / "checkpoint.sqlite").unlink()
    again, _ = go(budget=["100attempts", "1Mtokens"])
    assert (reruns(again), spent(again, "observe")) == before
