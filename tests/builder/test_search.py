"""Builds by the rule `search`, offline, with the scripted model that ships."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.api.types import Grade, Review, Revision
from recreate.builder.loop import BuildResult, build
from recreate.builder.review import Reviewer
from recreate.cli import run as cli
from recreate.runs import settings
from recreate.runs.attempts import run_attempts
from recreate.runs.reader import Run
from recreate.runs.session import open_session
from recreate.viewer import markdown
from recreate.viewer.facts import RunFacts
from tests.toy import LESSON, Toy, script, write_script

Go = Callable[..., tuple[BuildResult, Run]]


@pytest.fixture
def go(workspace: Path) -> Go:
    def go(
        rows: list[dict[str, Any]] | None = None, reviewer: Reviewer | None = None, **flags: Any
    ) -> tuple[BuildResult, Run]:
        file = workspace / "script.jsonl"
        file.write_text("".join(json.dumps(r) + "\n" for r in rows or script()))
        values: dict[str, Any] = {"domain": "tests.toy:Toy", "model": f"scripted:{file}"}
        values |= {"models.retries": 0, "memory.embedder": "hashed", "rounds": 1}
        values |= {"review": reviewer is not None, **flags}
        folder = workspace / "runs" / "a"
        resume = (folder / "settings.toml").exists()
        loaded = settings.load(workspace, values, {})
        session = open_session(loaded, workspace, folder, resume=resume)
        try:
            seed = scaffolds.load(shipped("scaffolds") / "seed")
            return build(session, seed, review=reviewer), Run(folder)
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


# --------------------------------------------------------------------------------------------
# bad input


class Odd(Toy):
    """Write the word to answer.txt. Right answers score TOP, wrong ones LEAST."""

    name = "odd"
    TOP, LEAST = 1.2, 0.0

    def grade(self, *given: Any) -> Grade:
        grade = super().grade(*given)
        return grade.model_copy(update={"score": self.TOP if grade.passed else self.LEAST})


@pytest.fixture
def flags(workspace: Path) -> list[str]:
    model = write_script(workspace / "s.jsonl")
    return ["--model", model, "--rounds", "1", "--out", "runs/a", "--sandbox", "none"]


@pytest.mark.parametrize("tasks", ["1", "2", "4"])
def test_too_few_validation_tasks_are_refused_by_plan_and_build_before_anything_is_made(
    tasks: str, flags: list[str], workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("plan", "build"):
        given = [each for each in flags if each not in ("--out", "runs/a")]
        out = ["--out", "runs/a"] * (command == "build")
        few = [*given, *out, "--domain", "tests.toy:Toy", "--validation", tasks, "--json"]
        assert cli([command, *few]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["code"] == "too-few-tasks"
        assert "--rounds" not in error["fix"]
        assert "1 validation tasks" not in error["message"]
    assert not (workspace / "runs" / "a").exists()


@pytest.mark.slow
def test_a_domain_that_grades_above_1_is_told_so_and_goes_on_once_it_is_mended(
    flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = f"{__name__}:Odd"
    assert cli(["build", "--domain", domain, *flags, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "Odd.grade graded toy:validation:" in error["message"]
    assert "score=1.2" in error["message"]
    assert "score=0..1" in error["fix"]
    monkeypatch.setattr(Odd, "TOP", 1.0)
    assert cli(["resume", "runs/a", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["claim"] == "shown"
    # the agent's two calls of each attempt, and the optimizer's three: none is made twice
    attempts = len(list(Run(Path("runs/a")).records("experience")))
    assert found["spend"]["calls"] == 2 * attempts + 3


@pytest.mark.slow
def test_scores_that_are_all_the_same_claim_nothing(
    flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "TOP", 0.5)
    monkeypatch.setattr(Odd, "LEAST", 0.5)
    assert cli(["build", "--domain", f"{__name__}:Odd", *flags, "--json"]) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert (found["claim"], found["validation"]["diff"]) == ("none", 0.0)
    assert "0.50 so far, 0.50 before: level" in told.err
    assert found["scaffold"]["digest"] == found["revisions"][0]["parent"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rounds = 1", "rounds = 3"),
        ("validation = 20", "validation = 7"),
        ('keep = "search"', 'keep = "each"'),
        ("confirm = 2", "confirm = 0"),
    ],
)
def test_a_build_goes_on_by_its_own_rounds_tasks_and_rule_alone(
    old: str,
    new: str,
    flags: list[str],
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    domain = ["--domain", "tests.toy:Toy"]
    assert cli(["build", *domain, *flags, "--budget", "27attempts", "--json"]) == 3
    capsys.readouterr()
    file = workspace / "runs" / "a" / "settings.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    assert cli(["resume", "runs/a", "--budget", "99attempts", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "another-run"
    file.write_text(text)
    assert cli(["resume", "runs/a", "--budget", "99attempts", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["claim"] == "shown"


@pytest.mark.slow
def test_a_persons_edit_is_judged_at_a_share_of_its_own_and_shown_like_any_other(go: Go) -> None:
    other = "Put an exclamation mark behind every answer."
    rows = script()
    rows[:0] = [{**r, "contains": other} for r in rows if r.get("contains") == LESSON]

    def review(revision: Revision, parent: Any, child: Any) -> Review:
        path = next(p for p in child.files if p.startswith("memory/"))
        if LESSON not in child.files[path]:
            return Review(decision="accept")
        files = {**child.files, path: child.files[path].replace(LESSON, other)}
        return Review(decision="edit", files=files)

    built, run = go(rows, review)
    first, second = built.revisions
    assert (first.kept, second.kept) == (False, True)
    trials = [record["terms"] for record in run.records("trial")]
    assert [(t["candidate"], t["of"]) for t in trials] == [(first.id, 1), (second.id, 0)]
    assert math.fsum(t["alpha"] for t in trials) <= 0.05
    assert built.verdict.claim is not None
    assert built.scaffold.digest == second.id
    assert (built.verdict.claim.word, built.verdict.alpha) == ("likely", trials[1]["alpha"])


@pytest.mark.slow
def test_attempts_beyond_the_looks_change_no_claim(go: Go, workspace: Path) -> None:
    built, run = go(partly(4, 5, 6, 7))
    assert built.verdict.claim is not None
    assert built.verdict.claim.word == "likely"
    session = open_session(run.settings, workspace, run.folder, resume=True)
    try:
        tasks = session.tasks("validation")
        for agent in (built.seed, built.scaffold):
            run_attempts(session, agent, tasks, phase="validation", first={t.id: 3 for t in tasks})
    finally:
        session.close()
    assert max(count_validation(run).values()) == 8 * 4
    assert Run(run.folder).validation(built.seed.digest, built.scaffold.digest) == built.verdict
    again, _ = go(partly(4, 5, 6, 7))
    assert again.verdict == built.verdict
