"""An optimizer that keeps a population: evaluated on train tasks, several candidates a round, a
state of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.types import Call, Message, Reply
from recreate.builder.loop import BuildResult, build
from recreate.models import open_model
from recreate.runs import settings
from recreate.runs.reader import Run
from recreate.runs.session import Parts, open_session
from recreate.runs.settings import load_run
from recreate.viewer import markdown
from recreate.viewer.facts import RunFacts
from tests.toy import LESSON, SIZES

pytestmark = pytest.mark.plugin("each")

SEED = scaffolds.load(shipped("scaffolds") / "seed")
SHOUT = "Shout every answer."
TRAIN = 4


def rows() -> list[dict[str, Any]]:
    """SHOUT is right on three of the run's train tasks and on no other; LESSON on the fourth and on
    all others."""
    found: list[dict[str, Any]] = []
    for split, size in SIZES.items():
        for n in range(size):
            for text in (LESSON, SHOUT, None):
                shouted = split == "train" and text == SHOUT and n != 6
                right = shouted or (text == LESSON and (split != "train" or n == 6))
                answer = f"```bash\nprintf %s 'w{n}{'!' * right}' > answer.txt\n```"
                row = {"role": "agent", "task": f"toy:{split}:{n}", "step": 0, "text": answer}
                found.append(row | ({"contains": text} if text else {}))
    found.append({"role": "agent", "text": "```bash\nsubmit\n```"})
    found.append({"role": "optimizer", "contains": "none yet", "text": SHOUT})
    found.append({"role": "optimizer", "contains": "number 1", "text": LESSON})
    found.append({"role": "optimizer", "text": "Read the task twice."})
    return found


class Killed(BaseException):
    """Stands for a kill: nothing in recreate catches it."""


class Counted:
    """The scripted model, that counts its calls and ends the process, as it were, at one of
    them."""

    def __init__(self, file: Path, at: int = -1) -> None:
        self.model = open_model(f"scripted:{file}")
        self.name, self.price, self.at = self.model.name, self.model.price, at
        self.calls: list[str] = []
        self.asked: list[str] = []

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if len(self.calls) == self.at:
            raise Killed
        self.calls.append(call.id)
        if call.role == "optimizer":
            self.asked.append(messages[-1]["content"])
        return self.model.reply(messages, call, **params)

    def close(self) -> None:
        self.model.close()


class Built:
    def __init__(self, workspace: Path, name: str, at: int = -1, **flags: Any) -> None:
        file = workspace / "script.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
        values: dict[str, Any] = {
            "domain": "tests.toy:Toy",
            "model": f"scripted:{file}",
            "train": TRAIN,
            "jobs": 1,
        }
        values |= {
            "optimizer": "tests.examples.population:Pool",
            "gate.keep": "each",
            "rounds": 2,
            "validation": 8,
            "batch": TRAIN,
        }
        values |= {"models.retries": 0, "memory.embedder": "hashed", "sandbox": "none", **flags}
        self.model = Counted(file, at)
        folder = workspace / "runs" / name
        resume = (folder / "settings.toml").exists()
        parts = Parts(model=self.model, optimizer_model=self.model)
        session = open_session(
            settings.load(workspace, values, {}), workspace, folder, resume=resume, parts=parts
        )
        try:
            self.built: BuildResult = build(session, SEED)
        finally:
            session.close()
        self.run = Run(folder)


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_the_candidates_of_a_round_are_judged_in_turn_against_the_same_parent_until_one_is_kept(
    workspace: Path,
) -> None:
    made = Built(workspace, "a")
    first, second, *later = made.built.revisions
    assert [first.edits[0].new.split("\n")[2], second.edits[0].new.split("\n")[2]] == [
        SHOUT,
        LESSON,
    ]
    assert (first.parent, second.parent) == (SEED.digest, SEED.digest)
    assert (first.round, first.kept, second.round, second.kept) == (0, False, 0, True)
    assert {r.parent for r in later} == {second.id}
    assert LESSON in made.built.scaffold.lessons[-1].body
    page = markdown.report(RunFacts(made.run, made.built))
    assert f"{len(made.built.revisions)} candidates were judged, 1 kept" in page


@pytest.mark.slow
def test_the_candidates_of_a_round_are_tried_in_turn_until_one_is_ahead_and_the_last_is_shown(
    workspace: Path,
) -> None:
    made = Built(workspace, "a", **{"gate.keep": "search"})
    first, second = made.built.revisions
    assert (first.parent, second.parent) == (SEED.digest, SEED.digest)
    assert (first.kept, second.kept, second.verdict.ahead) == (False, True, True)
    terms = [record["terms"] for record in made.run.records("trial")]
    assert [t["of"] for t in terms] == [2, 2]
    claim = made.built.verdict.claim
    assert claim is not None
    assert (claim.word, claim.anew) == ("shown", 1.0)
    assert sum(look.share for look in claim.looks) <= terms[1]["alpha"]


@pytest.mark.slow
def test_candidates_are_scored_on_train_tasks_by_attempts_that_are_paid_and_remembered(
    workspace: Path,
) -> None:
    made = Built(workspace, "a", rounds=1)
    experiences = [made.run.experience(r["attempt"]) for r in made.run.records("experience")]
    tried = [
        e
        for e in experiences
        if e.digest in {r.id for r in made.built.revisions} and e.split == "train"
    ]
    assert Counter(e.grade.passed for e in tried) == {True: 4, False: 4}
    assert len(tried) == 2 * TRAIN
    ledger = [
        json.loads(line) for line in (made.run.folder / "ledger.jsonl").read_text().splitlines()
    ]
    assert {e.id for e in tried} <= {r.get("attempt") for r in ledger}


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_the_pool_is_there_again_in_the_next_round(workspace: Path) -> None:
    made = Built(workspace, "a")
    assert ["none yet" in asked for asked in made.model.asked][:3] == [True, False, False]
    assert any(f"on other tasks: {SHOUT}" in asked for asked in made.model.asked[2:])
    folders = sorted((made.run.folder / "optimizer").iterdir())
    assert len(folders) == 2  # of the last proposal and the one before
    assert all((folder / "pool.json").exists() for folder in folders)


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "least"), [("each", 4), ("search", 2)])
def test_a_build_killed_anywhere_ends_as_the_uninterrupted_one_and_pays_for_nothing_twice(
    workspace: Path, keep: str, least: int
) -> None:
    rule = {"gate.keep": keep}
    whole = Built(workspace, "whole", **rule)
    pool = [
        (f / "pool.json").read_bytes() for f in sorted((whole.run.folder / "optimizer").iterdir())
    ]
    optimizing = [n for n, call in enumerate(whole.model.calls) if call in _proposing(whole)]
    assert len(optimizing) >= least
    ats = {optimizing[1], optimizing[1] + 2, optimizing[1] + 2 * TRAIN + 3, optimizing[-1] + 1}
    for at in sorted(ats | ({len(whole.model.calls) - 9} if keep == "search" else set())):
        name = f"killed-{at}"
        with pytest.raises(Killed):
            Built(workspace, name, at, **rule)
        before = {r["call"] for r in Run(workspace / "runs" / name).records("reply")}
        again = Built(workspace, name, **rule)
        assert not before & set(again.model.calls)
        assert len(before) + len(again.model.calls) == len(whole.model.calls)
        assert again.built.scaffold.files == whole.built.scaffold.files
        assert again.built.verdict == whole.built.verdict
        assert [(r.id, r.kept) for r in again.built.revisions] == [
            (r.id, r.kept) for r in whole.built.revisions
        ]
        assert [
            (f / "pool.json").read_bytes()
            for f in sorted((again.run.folder / "optimizer").iterdir())
        ] == pool


def _proposing(made: Built) -> set[str]:
    keys = {r["attempt"] for r in made.run.records("proposal")}
    return {call for call in made.model.calls if call.split("/")[1] in keys}


def test_only_train_tasks_can_be_evaluated(workspace: Path) -> None:
    with pytest.raises(BadInput, match="toy:validation:0 is no train task of toy"):
        Built(workspace, "a", optimizer="tests.optimizers.test_population:Curious")


class Curious:
    """Wants to know how its candidate does on validation."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def propose(self, scaffold: Any, experiences: Any) -> Any:
        return self.context.evaluate(scaffold, ["toy:validation:0"])


@pytest.mark.slow
def test_its_own_settings_are_checked_by_its_own_config_before_anything_is_spent(
    workspace: Path,
) -> None:
    (workspace / "recreate.toml").write_text("[optimizer_settings]\nchildren = 1\n")
    made = Built(workspace, "a", rounds=1, optimizer_settings=["proposed=1"])
    assert len(made.model.asked) == 1
    assert [len(list(made.run.records(kind))) for kind in ("proposal", "revision")] == [1, 1]
    assert settings.load(
        workspace, {}, {"RECREATE_OPTIMIZER_SETTINGS__CHILDREN": "3"}
    ).optimizer_settings == {"children": "3"}
    kept = load_run(made.run.folder)
    assert kept.optimizer_settings == {"children": 1, "proposed": "1"}
    for wrong, said in (
        ("sides=1", "has no setting optimizer_settings.sides"),
        ("children=0", "greater than"),
    ):
        with pytest.raises(BadInput, match=said):
            Built(workspace, "b", optimizer_settings=[wrong])
    with pytest.raises(BadInput, match="the optimizer reflect has no setting"):
        Built(workspace, "b", optimizer="reflect")
    assert not (workspace / "runs" / "b").exists()
