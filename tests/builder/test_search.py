"""Builds by the rule `search`, offline, with the scripted model that ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.builder.loop import BuildResult, build
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import open_session
from recreate.viewer import markdown
from recreate.viewer.facts import RunFacts
from tests.toy import script

Go = Callable[..., tuple[BuildResult, Run]]


@pytest.fixture
def go(workspace: Path) -> Go:
    def go(rows: list[dict[str, Any]] | None = None, **flags: Any) -> tuple[BuildResult, Run]:
        file = workspace / "script.jsonl"
        file.write_text("".join(json.dumps(r) + "\n" for r in rows or script()))
        values: dict[str, Any] = {"domain": "tests.toy:Toy", "model": f"scripted:{file}"}
        values |= {"models.retries": 0, "memory.embedder": "hashed", "rounds": 1, **flags}
        folder = workspace / "runs" / "a"
        resume = (folder / "settings.toml").exists()
        loaded = settings.load(workspace, values, {})
        session = open_session(loaded, workspace, folder, resume=resume)
        try:
            return build(session, scaffolds.load(shipped("scaffolds") / "seed")), Run(folder)
        finally:
            session.close()

    return go


def partly(*still: int) -> list[dict[str, Any]]:
    """A lesson that helps with all validation tasks but these."""
    ids = {f"toy:validation:{n}" for n in still}
    return [r for r in script() if not (r.get("contains") and r.get("task") in ids)]


def count_validation(run: Run) -> dict[str, int]:
    found = dict[str, int]()
    for r in run.records("experience"):
        if r["split"] == "validation":
            found[r["scaffold"]] = found.get(r["scaffold"], 0) + 1
    return found


def test_a_gain_is_shown_by_attempts_that_chose_nothing(go: Go) -> None:
    built, run = go()
    assert built.verdict.claim is not None
    assert built.verdict.claim.word == "shown"
    assert (built.verdict.claim.search, built.verdict.claim.anew) == (1.0, 1.0)
    (revision,) = built.revisions
    assert (revision.kept, revision.verdict.ahead, revision.verdict.claim) == (True, True, None)
    assert count_validation(run) == {built.seed.digest: 16, revision.id: 16}
    record = markdown.result(RunFacts(run, built), "x")
    assert (record["claim"], record["gain"]) == ("shown", {"search": 1.0, "anew": 1.0})
    assert [look["attempts"] for look in record["looks"]] == [2]
    assert run.validation(built.seed.digest, built.scaffold.digest) == built.verdict


def test_what_is_not_told_from_the_seed_stays_in_the_run_by_a_name_that_takes_it(go: Go) -> None:
    built, run = go(partly(2, 3, 4, 5, 6, 7))
    assert built.verdict.claim is not None
    assert built.verdict.claim.word == "none"
    assert built.scaffold.digest == built.seed.digest
    (revision,) = built.revisions
    facts = RunFacts(run, built)
    assert facts.left_out.endswith(f":{revision.id}")
    assert markdown.result(facts, "x")["left_out"] == facts.left_out
    assert f"recreate keep {facts.left_out}" in markdown.report(facts)
    assert run.result == built.seed.digest


def test_a_build_that_goes_on_pays_for_no_look_twice(go: Go) -> None:
    built, run = go()
    records = list(run.records("experience"))
    again, run = go()
    assert again.verdict == built.verdict
    assert list(run.records("experience")) == records


def test_a_budget_that_ends_before_the_looks_claims_what_was_attempted(go: Go) -> None:
    # 8 of the seed, the batch, 8 of the candidate, and not all of the looks
    built, run = go(budget=("30attempts",))
    assert built.verdict.claim is not None
    assert (built.status, built.verdict.claim.word) == ("budget", "none")
    assert sum(count_validation(run).values()) <= 30
    done, run = go(budget=("99attempts",))
    assert done.verdict.claim is not None
    assert (done.status, done.verdict.claim.word) == ("done", "shown")


def test_a_lesson_that_changes_nothing_is_dropped_and_nothing_is_attempted_anew(go: Go) -> None:
    built, run = go(script(learns=False))
    assert [r.kept for r in built.revisions] == [False]
    assert built.verdict.claim is not None
    assert built.verdict.claim.word == "none"
    assert set(count_validation(run).values()) <= {8}


def test_a_build_ends_once_its_agent_solves_every_validation_task(go: Go) -> None:
    built, run = go(rounds=3)
    assert built.status == "done"
    assert built.verdict.claim is not None
    assert built.verdict.claim.word in ("shown", "likely")
    assert len({r["round"] for r in run.records("proposal")}) == 1


def test_five_tasks_may_make_an_agent_likely_better(go: Go) -> None:
    built, _ = go(validation=5)
    assert built.verdict.claim is not None
    assert built.verdict.claim.word == "likely"
    assert built.scaffold.digest != built.seed.digest


def test_a_build_that_waits_for_a_person_attempts_nothing_anew_before_it_goes_on(go: Go) -> None:
    built, run = go(review=True)
    assert built.status == "review"
    assert built.waiting is not None
    assert set(count_validation(run).values()) == {8}


def test_what_changes_nothing_is_not_called_cheaper(
    go: Go,
) -> None:
    built, _ = go(script(learns=False), **{"gate.cheaper": True})
    assert built.verdict.claim is not None
    assert built.verdict.claim.word == "none"
