"""A seed's attempts that other runs of the workspace have are not paid for again while it is
searched, and claim nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.errors import RecreateError
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply
from recreate.builder import sdk
from recreate.cli import run as cli
from recreate.models.scripted import Scripted
from recreate.runs.reader import Run
from recreate.runs.settings import load_run
from recreate.storage.files import lock
from recreate.viewer import markdown
from recreate.viewer.facts import RunFacts
from tests.toy import SIZES, Toy, script

pytestmark = pytest.mark.slow

VALIDATION = SIZES["validation"]


class Counting:
    """The toy's scripted model, which remembers whose attempts asked it. learns: whether its
    optimizer finds the lesson. stop: after so many calls."""

    name = "tests:counting"
    price: Price | None = Price(tokens_in=1.0, tokens_out=1.0)

    def __init__(self, learns: bool = True, stop: int = 0) -> None:
        self.inner = Scripted.of(script(learns=learns))
        self.seen: list[tuple[str | None, int | None, str]] = []
        self.left = stop or -1

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        if call.role == "agent":
            self.seen.append((call.task, call.repeat, call.attempt))
        return self.inner.reply(messages, call, **params)

    def close(self) -> None: ...

    @property
    def attempts(self) -> set[str]:
        return {attempt for _, _, attempt in self.seen}

    @property
    def validation(self) -> set[str]:
        return {attempt for task, _, attempt in self.seen if task and ":validation:" in task}


def build(
    workspace: Path, name: str, *, learns: bool = True, stop: int = 0, **more: Any
) -> tuple[sdk.Outcome, Counting, list[str]]:
    model, notes = Counting(learns, stop), list[str]()

    def say(event: str, facts: dict[str, Any]) -> None:
        if event == "note":
            notes.append(facts["text"])

    settings: dict[str, Any] = {
        "scaffold": "seed",
        "rounds": 1,
        "jobs": 1,
        "memory.embedder": "hashed",
        "models.retries": 0,
    }
    folder = workspace / "runs" / name
    made = sdk.build(
        Toy(), model=model, workspace=workspace, out=str(folder), say=say, **{**settings, **more}
    )
    return made, model, notes


def seed_attempts(outcome: sdk.Outcome) -> set[str]:
    records = Run(outcome.run).records("experience")
    seed = outcome.seed.digest
    return {r["attempt"] for r in records if r["scaffold"] == seed and r["split"] == "validation"}


def taken(run: Path) -> list[dict[str, Any]]:
    return Run(run).taken_attempts()


def test_a_second_build_that_keeps_nothing_asks_nothing_for_its_seed(workspace: Path) -> None:
    first, _, told = build(workspace, "a", learns=False)
    second, anew, notes = build(workspace, "b", learns=False)
    assert not any("taken" in text for text in told), "there was nothing to take"
    assert not anew.validation & seed_attempts(first)
    words = f"{VALIDATION} of {VALIDATION} attempts at the seed are taken from runs/a"
    assert [text for text in notes if words in text]
    assert second.verdict.before == first.verdict.before == 0.0
    assert seed_attempts(second) == set()
    assert len(taken(second.run)) == VALIDATION


def test_the_report_and_the_record_say_what_was_taken_and_what_it_saves(workspace: Path) -> None:
    first, _, _ = build(workspace, "a", learns=False)
    second, _, _ = build(workspace, "b", learns=False)
    calls = sum(Run(first.run).experience(id).trace.usage.calls for id in seed_attempts(first))
    usd = sum(Run(first.run).experience(id).trace.usage.usd for id in seed_attempts(first))
    words = f"nothing is asked for them, which saves {calls} calls and ${usd:.3f}"
    assert usd > 0
    assert words in second.record["taken"]
    assert words in (second.run / "report.md").read_text("utf-8")
    assert words in (second.run / "report.html").read_text("utf-8")
    assert "taken" not in first.record
    table = (second.run / "report.md").read_text("utf-8")
    assert "| toy:validation:0 | 0.00 | 0.00 |" in table, "the seed's scores are shown"


def test_what_is_claimed_goes_by_attempts_of_the_builds_own(workspace: Path) -> None:
    first, _, _ = build(workspace, "a")
    second, anew, _ = build(workspace, "b")
    assert len(taken(second.run)) == VALIDATION
    assert second.verdict.claim is not None
    assert seed_attempts(first) == seed_attempts(second) <= anew.attempts
    assert second.verdict == first.verdict
    assert second.scaffold.digest == first.scaffold.digest


def test_luck_of_the_attempts_that_are_taken_reaches_no_claim(workspace: Path) -> None:
    """The earlier run's seed is said to have solved nothing: here it solves what its candidate
    does, so that nothing may be claimed of it."""
    first, _, _ = build(workspace, "a")

    class Lucky(Counting):
        """Whoever is asked at validation after the search solves all."""

        def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
            made = super().reply(messages, call, **params)
            if call.role == "agent" and ":validation:" in (call.task or "") and not call.step:
                word = f"w{(call.task or '').rpartition(':')[2]}!"
                text = f"```bash\nprintf %s '{word}' > answer.txt\n```"
                return made.model_copy(update={"text": text})
            return made

    made = sdk.build(
        Toy(),
        model=Lucky(),
        workspace=workspace,
        out=str(workspace / "runs/b"),
        **{"scaffold": "seed", "rounds": 1, "memory.embedder": "hashed", "models.retries": 0},
    )
    assert first.verdict.claim is not None
    assert first.verdict.claim.word != "none"
    assert any(r.kept for r in made.revisions), "the search goes by what was taken"
    assert made.verdict.claim is not None
    assert made.verdict.claim.word == "none"
    assert made.scaffold.digest == made.seed.digest


def test_confirming_attempts_are_always_new(workspace: Path) -> None:
    first, _, _ = build(workspace, "a", **{"gate.confirm": 3})
    second, anew, _ = build(workspace, "b", **{"gate.confirm": 3, "repeats": 2})
    later = {r["repeat"] for r in taken(second.run)}
    records = [r for r in Run(second.run).records("experience") if r["split"] == "validation"]
    own = {r["attempt"] for r in records}
    assert first.run != second.run
    assert later == {0, 1}
    assert own <= anew.attempts


def test_with_fresh_a_build_attempts_all_of_its_seed(workspace: Path) -> None:
    first, _, _ = build(workspace, "a", learns=False)
    second, anew, notes = build(workspace, "b", learns=False, fresh=True)
    assert seed_attempts(first) == seed_attempts(second) <= anew.attempts
    assert not any("taken from" in text for text in notes)
    assert "taken" not in second.record


def test_each_step_shown_takes_nothing(workspace: Path) -> None:
    pytest.importorskip("recreate.plugins.each")
    first, _, _ = build(workspace, "a", learns=False)
    second, anew, _ = build(workspace, "b", learns=False, **{"gate.keep": "each"})
    assert seed_attempts(first) <= anew.attempts
    assert seed_attempts(second)


def test_a_recording_build_attempts_everything_and_its_replay_takes_the_tape(
    workspace: Path,
) -> None:
    build(workspace, "a", learns=False)
    recorded, anew, _ = build(workspace, "b", learns=False, record=str(workspace / "tape"))
    assert seed_attempts(recorded) <= anew.attempts
    assert list(Run(recorded.run).records("taken")) == []
    again, _, notes = build(workspace, "c", learns=False, replay=str(workspace / "tape"))
    assert list(Run(again.run).records("taken")) == []
    assert not any("taken from" in text for text in notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"limits.steps": 3},
        {"models.drop": ("temperature",)},
        {"sandbox": "none"},
        {"seed": 0, "scaffold": "other"},
    ],
)
def test_attempts_that_were_asked_otherwise_are_not_taken(
    workspace: Path, changes: dict[str, Any]
) -> None:
    build(workspace, "a", learns=False)
    if changes.get("scaffold") == "other":
        from recreate.api.paths import shipped

        shutil.copytree(shipped("scaffolds") / "seed", workspace / "other")
        file = next((workspace / "other").rglob("*.md"))
        file.write_text(file.read_text("utf-8") + "\nBe brief.\n", "utf-8")
        changes = {"scaffold": str(workspace / "other")}
    second, anew, _ = build(workspace, "b", learns=False, **changes)
    assert taken(second.run) == []
    assert seed_attempts(second) <= anew.attempts


def test_attempts_of_a_run_that_goes_on_are_not_taken(workspace: Path) -> None:
    first, _, _ = build(workspace, "a", learns=False)
    held = lock(first.run / "lock", wait=False)
    assert held is not None
    second, anew, _ = build(workspace, "b", learns=False)
    assert taken(second.run) == []
    assert seed_attempts(second) <= anew.attempts


def test_what_is_damaged_or_not_there_is_attempted_and_the_rest_is_taken(workspace: Path) -> None:
    first, _, _ = build(workspace, "a", learns=False)
    one, two, *rest = sorted(seed_attempts(first))
    (first.run / "attempts" / one / "experience.json").write_text("{")
    shutil.rmtree(first.run / "attempts" / two)
    second, anew, notes = build(workspace, "b", learns=False)
    assert {r["attempt"] for r in taken(second.run)} == set(rest)
    assert seed_attempts(second) == {one, two} <= anew.attempts
    assert any(f"{len(rest)} of {VALIDATION} attempts" in text for text in notes)


def test_what_is_taken_is_decided_once(workspace: Path) -> None:
    """Whatever comes into the workspace, or goes, while a build is stopped."""
    first, _, _ = build(workspace, "a", learns=False)
    one = sorted(seed_attempts(first))[0]
    shutil.rmtree(first.run / "attempts" / one)
    with pytest.raises((RecreateError, KeyboardInterrupt)):
        build(workspace, "b", learns=False, stop=3)
    (record,) = Run(workspace / "runs/b").records("taken")
    shutil.rmtree(first.run)
    build(workspace, "c", learns=False)
    second, anew, notes = build(workspace, "b", learns=False)
    assert list(Run(second.run).records("taken")) == [record]
    assert seed_attempts(second) == {one}
    assert len(anew.validation - {one}) <= VALIDATION, "its candidate's at most"
    assert not any("taken from" in text for text in notes), "it was said"
    assert "taken from runs/a" in second.record["taken"]


def test_a_score_by_which_a_build_kept_an_agent_is_no_seeds_score(workspace: Path) -> None:
    first, _, _ = build(workspace, "a")
    second, anew, _ = build(workspace, "b", scaffold=str(first.path))
    assert taken(second.run) == []
    assert len(anew.validation) >= VALIDATION, "measured anew"


@pytest.mark.plugin("bench")
def test_what_a_bench_measured_is_taken(workspace: Path) -> None:
    model = Counting()
    recreate.bench("seed", Toy(), model=model, split="validation", workspace=workspace)
    made, anew, _ = build(workspace, "b", learns=False)
    assert len(model.attempts) == VALIDATION
    assert not anew.attempts & model.attempts
    assert len(taken(made.run)) == VALIDATION


def test_a_budget_leaves_what_a_claim_takes(workspace: Path) -> None:
    """A candidate is not begun where nothing would be left to attempt the seed anew."""
    build(workspace, "a", learns=False)
    most = SIZES["train"] + 2 * VALIDATION
    made, _, _ = build(workspace, "b", budget=(f"{most}attempts",))
    assert any(r.kept for r in made.revisions)
    assert len(seed_attempts(made)) == VALIDATION
    shutil.rmtree(made.run)
    with pytest.raises(RecreateError, match="does not pay for one proposal"):
        build(workspace, "b", budget=(f"{most - 1}attempts",))


def test_a_report_before_the_seed_was_attempted_anew_claims_nothing(workspace: Path) -> None:
    build(workspace, "a", learns=False)
    second, _, _ = build(workspace, "b")
    journal = second.run / "journal.jsonl"
    seed = second.seed.digest
    lines = journal.read_text("utf-8").splitlines(keepends=True)
    journal.write_text(
        "".join(
            line
            for line in lines
            if not ('"kind":"experience"' in line and seed in line and ":validation:" in line)
        )
    )
    ended = Run(second.run).conclude()
    assert ended.agent == ""
    assert ended.repeats == 1
    assert ended.verdict is not None
    assert ended.verdict.verdict == "undecided"
    assert "before the seed's own attempts are made" in ended.verdict.reason
    assert "nothing is claimed" in markdown.report(RunFacts(Run(second.run)))


def typed(workspace: Path, *words: str) -> list[str]:
    (workspace / "recreate.toml").write_text('[memory]\nembedder = "hashed"\n')
    (workspace / "s.jsonl").write_text("".join(json.dumps(r) + "\n" for r in script(learns=False)))
    return [
        *words,
        *("--domain", "tests.toy:Toy", "--scaffold", "seed", "--rounds", "1"),
        *("--model", f"scripted:{workspace / 's.jsonl'}"),
    ]


def test_plan_says_what_build_will_take(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(typed(workspace, "build", "--out", "runs/a")) == 0
    capsys.readouterr()
    assert cli([*typed(workspace, "plan"), "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    words = f"{VALIDATION} of {VALIDATION} attempts at the seed are taken from runs/a"
    assert [text for text in planned["assumes"] if text.startswith(words)]
    assert cli([*typed(workspace, "plan"), "--fresh", "--json"]) == 0
    fresh = json.loads(capsys.readouterr().out)
    assert not [text for text in fresh["assumes"] if "taken" in text]
    assert planned["attempts"] == fresh["attempts"], "the most that it takes"
    assert planned["low"]["calls"] < fresh["low"]["calls"]
    assert cli(typed(workspace, "build", "--out", "runs/b")) == 0
    assert words in capsys.readouterr().err
    assert load_run(workspace / "runs/b").fresh is False
    assert cli([*typed(workspace, "build"), "--out", "runs/b", "--fresh"]) == 2


@pytest.mark.plugin("measuring")
def test_a_calibration_pays_only_for_what_was_not_attempted(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = typed(workspace, "calibrate", "--repeats", "2", "--validation", "8")
    told = []
    for name in ("a", "b"):
        assert cli([*words, "--out", f"runs/{name}"]) == 0
        told.append(capsys.readouterr().err)
    assert "read back" not in told[0]
    assert f"{2 * VALIDATION} attempts of seed are read back from runs/" in told[1]
