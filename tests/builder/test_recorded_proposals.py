"""A recording holds what the optimizer proposed: a replay asks it nothing, and does the rest."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents.scaffold import apply
from recreate.api.errors import BadInput, Differs
from recreate.api.types import Edit, Evidence, Grade, digest
from recreate.builder.sdk import Outcome
from recreate.memory.store import ExperienceStore
from recreate.optimizers.context import OptimizerContext
from recreate.runs.reader import Run
from recreate.runs.recording import PACKED, SETTINGS
from recreate.runs.replay import Replay, pack
from recreate.storage.log import Log, seal
from tests.investigator import Investigator
from tests.pages import ROOT
from tests.studied import DONE, Acts, lesson, takes_all
from tests.toy import LESSON, Toy, script, write_script

HERE = "tests.builder.test_recorded_proposals"


def built(**settings: Any) -> Outcome:
    """A build of the toy, by default with `reflect`."""
    if not Path("script.jsonl").exists():
        write_script(Path("script.jsonl"))
    toy = {"model": "scripted:script.jsonl", "train": 2, "validation": 6, "rounds": 2}
    how: dict[str, Any] = {"models__retries": 0, "memory__embedder": "hashed", "jobs": 1}
    return recreate.build("tests.toy:Toy", **{**toy, **how, **settings})


def packed(tape: str) -> list[dict[str, Any]]:
    lines = gzip.decompress((Path(tape) / PACKED).read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


def outcome(made: Outcome) -> dict[str, Any]:
    """What must be the same again."""
    record = made.record
    spent = {role: {**row} for role, row in record["spend"]["by_role"].items()}
    for row in spent.values():
        row["usd"] = 0.0
    same = {key: record[key] for key in ("status", "claim", "validation", "revisions")}
    return {**same, "agent": made.scaffold.digest, "spent": spent}


def replayed(
    monkeypatch: pytest.MonkeyPatch, tape: str = "tape", out: str = "runs/b", **settings: Any
) -> Outcome:
    """The same build again, while no optimizer can be asked."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("an optimizer was asked")

    with monkeypatch.context() as now:
        now.setattr(OptimizerContext, "__init__", refuse)
        return recreate.build("tests.toy:Toy", replay=tape, out=out, **settings)


class Careful:
    """Tries the lesson out on train tasks and in a rehearsal, and proposes something else; then
    finds in memory what came of it, and proposes the lesson."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def propose(self, scaffold: Any, experiences: Sequence[Any]) -> list[Edit]:
        ask = self.context.ask
        said = ask([{"role": "user", "content": "How?"}], step=0, thread=self.context.thread("x"))
        assert said.text == "Louder."
        text = f"# Mark\n\n{LESSON}\n"
        mark = Edit(path="memory/mark.md", new=text, reason="r", origin="search")
        if self.context.rejected:
            hits = self.context.search("word", 20, {})
            found = [self.context.get(hit.experience) for hit in hits]
            id = min(e.id for e in found if e is not None and e.grade.passed)
            return [mark.model_copy(update=cites(id))]
        child = apply(scaffold, [mark])
        assert all(e.grade.passed for e in self.context.evaluate(child, self.context.tasks))
        assert self.context.attempt(apply(child, [QUIET]), experiences[0]) is not None
        return [QUIET.model_copy(update=cites(experiences[0].id))]


def cites(id: str) -> dict[str, Any]:
    return {"origin": "experience", "evidence": (Evidence(experience=id, step=0),), "reason": "r"}


QUIET = Edit(path="system.md", new="Be quiet.", origin="search")
CAREFUL = {"optimizer": f"{HERE}:Careful"}


def louder() -> None:
    """Write the script of a model that is asked `How?`."""
    rows = [{"role": "optimizer", "contains": "How?", "text": "Louder."}, *script()]
    Path("script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def careful(workspace: Path) -> Outcome:
    """A build by `Careful`, recorded in `tape`."""
    louder()
    return built(**CAREFUL, record="tape", out="runs/a")


# --- what is recorded


def test_a_recording_holds_each_proposal_and_none_of_the_optimizers_calls(
    workspace: Path, careful: Outcome
) -> None:
    lines = packed("tape")
    asked = {x["role"] for x in lines if x["kind"] == "reply"}
    assert asked == {"agent"}
    assert "How?" not in json.dumps(lines), "nor what it was asked"
    first, second = (x for x in lines if x["kind"] == "proposal")
    given = first["recorded"]["given"]
    assert (given["round"], given["optimizer"]) == (0, CAREFUL["optimizer"])
    assert list(given["attempts"]) == ["toy:train:4, repeat 0"]
    paths = [each["edits"][0]["path"] for each in (first, second)]
    assert paths == ["system.md", "memory/mark.md"]
    assert [t["phase"] for t in first["recorded"]["tries"]] == ["select", "rehearse"]
    spent = [each["recorded"]["spend"]["optimizer"]["calls"] for each in (first, second)]
    assert spent == [1, 1]
    kept = [r["role"] for r in Run(careful.run).records("reply")]
    assert kept.count("optimizer") == 2, "the run folder has them for who wants to read"


# --- what is replayed


def test_a_replay_asks_no_optimizer_and_ends_as_the_build_did(
    workspace: Path, careful: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("script.jsonl").unlink()
    made = replayed(monkeypatch)
    assert outcome(made) == outcome(careful)
    assert made.record["spend"]["replayed"]
    for kind in ("proposal", "experience"):
        ids = [{r["attempt"] for r in Run(m.run).records(kind)} for m in (careful, made)]
        assert ids[0] == ids[1], "what was attempted on the way is attempted again"
    assert outcome(replayed(monkeypatch, "runs/b", "runs/c")) == outcome(careful)


def test_attempts_on_the_way_come_into_memory_in_a_replay_as_they_did(
    workspace: Path, careful: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed(monkeypatch)
    held = [
        {e.id for e in ExperienceStore(Path(place)).experiences(domain="toy", split="train")}
        for place in (".", "runs/b/replay")
    ]
    assert held[0] == held[1]
    assert len(held[0]) > 3


def test_an_optimizer_that_is_gone_is_not_needed(
    workspace: Path, careful: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys.modules[HERE], "Careful")
    assert outcome(replayed(monkeypatch)) == outcome(careful)


@pytest.mark.slow
def test_what_an_optimizer_needs_today_does_not_matter(
    workspace: Path, careful: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Careful, "needs", ("no_such_module",), raising=False)
    assert outcome(replayed(monkeypatch)) == outcome(careful)


@pytest.mark.slow
def test_every_prompt_may_change_and_the_methods_may_be_gone(workspace: Path) -> None:
    made = built(record="tape", out="runs/a")
    copy = workspace / "copy"
    shutil.copytree(ROOT / "recreate", copy / "recreate")
    for folder in ("tests", "benchmarks", "scaffolds", "pyproject.toml"):
        (copy / folder).symlink_to(ROOT / folder)
    prompts = [*(copy / "recreate/optimizers").rglob("*.md")]
    prompts += (copy / "recreate/plugins/methods/prompts").rglob("*.md")
    assert len(prompts) > 15
    for prompt in prompts:
        prompt.write_text("Something else, {{ and broken.")
    words = ["build", "--replay", "tape", "--out", "runs/b", "--json"]
    env = {**os.environ, "PYTHONPATH": str(copy)}
    asked = [sys.executable, "-m", "recreate", *words]
    done = subprocess.run(asked, capture_output=True, env=env, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["scaffold"]["digest"] == made.scaffold.digest
    assert found["validation"] == made.record["validation"]


@pytest.mark.slow
def test_studies_and_what_they_cost_are_shown_of_a_replay(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def study(first: str) -> Acts:
        yield "steps", {"first": 0}
        yield lesson()
        yield "rehearse", {}
        yield "finish", DONE

    model = Investigator(script(), study, takes_all)
    price = {"price": "1,2", "models__optimizer_price": "3,4"}
    made = built(optimizer="recreate", model=model, record="tape", out="runs/a", **price)
    again = replayed(monkeypatch)
    assert outcome(again) == outcome(made)
    spend = again.record["spend"]
    assert (spend["usd"], spend["replayed"]["usd"]) == (0, made.record["spend"]["usd"])
    studies = [Run(each.run).studies() for each in (made, again)]
    assert [(s.id, s.summary, s.usage) for s in studies[1]] == [
        (s.id, s.summary, s.usage) for s in studies[0]
    ]
    texts = [(each.run / "report.md").read_text() for each in (made, again)]
    told = [line for line in texts[0].splitlines() if "study of" in line]
    assert told
    assert all(line in texts[1] for line in told)
    assert "nothing was paid now" in texts[1]


@pytest.mark.slow
def test_a_seed_that_the_optimizer_wrote_is_a_proposal_too(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def study(first: str) -> Acts:
        if "experience " in first:
            yield "steps", {"first": 0}
            yield lesson()
            yield "finish", DONE
        yield "edit", {"path": "system.md", "old": "", "new": "Write it.", "reason": "r"}
        while True:
            yield "finish", {"summary": "An agent."}

    model = Investigator(script(), study, takes_all)
    how: dict[str, Any] = {"optimizer": "recreate", "scaffold": "create"}
    made = built(model=model, **how, record="tape", out="runs/a")
    assert "Write it." in made.seed.files["system.md"]
    (created,) = (x for x in packed("tape") if x["kind"] == "created")
    assert created["recorded"]["spend"]["optimizer"]["calls"] == 2
    again = replayed(monkeypatch)
    assert (outcome(again), again.seed.files) == (outcome(made), made.seed.files)


# --- what is refused


def test_other_words_of_the_grader_are_another_input_and_it_says_so(
    workspace: Path, careful: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = Toy.grade

    def grade(*args: Any) -> Grade:
        found = was(*args)
        return found.model_copy(update={"evidence": found.evidence + " Be loud."})

    monkeypatch.setattr(Toy, "grade", grade)
    with pytest.raises(Differs, match="something else than when it proposed") as e:
        replayed(monkeypatch)
    assert "attempts.toy:train:4, repeat 0.evidence was" in e.value.message
    assert "score" not in e.value.message
    assert (e.value.exit_code, e.value.expected != e.value.got) == (4, True)
    assert "record again" in e.value.fix


def test_what_wavers_in_a_graders_words_is_no_other_input(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was, took = Toy.grade, ["0.31s"]

    def grade(*args: Any) -> Grade:
        return was(*args).model_copy(update={"evidence": f"1 failed in {took[0]}"})

    monkeypatch.setattr(Toy, "grade", grade)
    made = built(record="tape", rounds=1)
    took[0] = "4.07s"
    assert outcome(replayed(monkeypatch)) == outcome(made)


def test_a_proposal_that_was_never_made_is_said_to_be_missing(
    workspace: Path, careful: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line for line in packed("tape") if line["kind"] not in ("proposal", "end", "packed")]
    rewrite("tape", lines)
    with pytest.raises(Differs, match="no proposal of this round; the run was not finished") as e:
        replayed(monkeypatch)
    assert e.value.expected is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"edits": "all"},
        {"recorded": {"given": {}, "tries": [], "spend": {"optimizer": 1}, "studies": []}},
        {"recorded": {"given": {}}},
        {"recorded": {"given": {}, "tries": [{}], "spend": {}, "studies": []}},
    ],
)
def test_a_proposal_of_another_shape_is_refused_whatever_its_checksum(
    workspace: Path, careful: Outcome, wrong: dict[str, Any]
) -> None:
    lines = [{**x, **wrong} if x["kind"] == "proposal" else x for x in packed("tape")]
    rewrite("tape", lines)
    with pytest.raises(BadInput) as e:
        Replay(Path("tape"))
    assert e.value.code == "damaged"


@pytest.mark.slow
def test_a_study_of_a_strangers_recording_is_written_nowhere_else(
    workspace: Path, careful: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = packed("tape")
    for line in lines:
        if line["kind"] == "proposal":
            line["recorded"]["studies"] = [{"id": "../../../escaped"}]
    rewrite("tape", lines)
    made = replayed(monkeypatch)
    assert not list(workspace.parent.rglob("escaped*"))
    assert {s.id for s in Run(made.run).studies()} == {"../../../escaped"}


# --- where the budget ended it


class Greedy(Careful):
    """Wants more attempts than there are."""

    def propose(self, scaffold: Any, experiences: Sequence[Any]) -> list[Edit]:
        said = self.context.ask([{"role": "user", "content": "How?"}], step=0)
        assert said.text == "Louder."
        self.context.evaluate(apply(scaffold, [QUIET]), self.context.tasks[:1])
        self.context.evaluate(apply(scaffold, [QUIET]), self.context.tasks)
        return []


def test_a_budget_that_ended_a_proposal_ends_it_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    louder()
    how: dict[str, Any] = {"optimizer": f"{HERE}:Greedy", "train": 8, "gate__keep": "search"}
    made = built(**how, budget="20attempts", record="tape", out="runs/a")
    assert made.status == "budget"
    (stopped,) = (x for x in packed("tape") if x["kind"] == "stopped")
    assert stopped["recorded"]["spend"]["optimizer"]["calls"] == 1
    again = replayed(monkeypatch)
    assert outcome(again) == outcome(made)
    made = built(**how, budget="500attempts", record="tape", out="runs/a")
    assert made.status == "done"
    assert outcome(replayed(monkeypatch, out="runs/c")) == outcome(made)


# --- recordings of before


def rewrite(tape: str, lines: list[dict[str, Any]]) -> None:
    """Write a recording's lines, with the checksum that they have then."""
    settings = digest((Path(tape) / SETTINGS).read_text())
    raw = [seal({k: v for k, v in x.items() if k not in ("schema", "sum")}) for x in lines]
    raw = [each for each, x in zip(raw, lines, strict=True) if x["kind"] != "packed"]
    whole = hashlib.sha256(b"".join(raw)).hexdigest()
    end = seal({"kind": "packed", "sha256": whole, "settings": settings})
    (Path(tape) / PACKED).write_bytes(gzip.compress(b"".join([*raw, end])))


def of_before(run: Path, tape: str) -> None:
    """Make the recording what it was when it held the optimizer's replies."""
    lines = [line for line in packed(tape) if line["kind"] not in ("proposal", "created")]
    journal = Log(run / "journal.jsonl").read()
    asked = [x for x in journal if x["kind"] == "text" or x.get("role") == "optimizer"]
    rewrite(tape, [*lines, *asked])


def test_a_recording_of_before_is_read_and_made_one_of_today(
    workspace: Path, careful: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_before(careful.run, "tape")
    old = [x["role"] for x in packed("tape") if x["kind"] == "reply"]
    assert old.count("optimizer") == 2
    made = recreate.build("tests.toy:Toy", replay="tape", record="new", out="runs/b")
    assert outcome(made) == outcome(careful)
    assert {x["role"] for x in packed("new") if x["kind"] == "reply"} == {"agent"}
    shutil.rmtree("runs")
    assert outcome(replayed(monkeypatch, "new", "runs/c")) == outcome(careful)


@pytest.mark.slow
def test_a_run_that_was_begun_before_keeps_the_optimizers_replies_in_its_recording(
    workspace: Path, careful: Outcome
) -> None:
    journal = careful.run / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    first = next(line for line in lines if line["kind"] == "proposal")
    del first["recorded"]
    journal.write_bytes(
        b"".join(seal({k: v for k, v in x.items() if k not in ("schema", "sum")}) for x in lines)
    )
    pack(careful.run, Path("mixed"), (Path("tape") / SETTINGS).read_text())
    assert [x["role"] for x in packed("mixed") if x["kind"] == "reply"].count("optimizer") == 2
    made = recreate.build("tests.toy:Toy", replay="mixed", out="runs/b")
    assert outcome(made) == outcome(careful)
