"""Keys that a model says, a command prints, a task or a person names: none reaches a byte that a
build leaves."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import SandboxBackend
from recreate.api.types import Edit, Evidence, Experience, Grade, Review, Split, Task, Trace
from recreate.builder import sdk
from recreate.runs.reader import Run
from tests.toy import LESSON, Toy, script

KEYS = {
    "prompt": "sk-ant-api03-prompt-5bq8N2vX7wLk",
    "printed": "ghp_printed7Qb2Xw9Lk4Tz8Vn3Mc6Rd1Yf5Hs",
    "said": "glpat-said7Qb2Xw9Lk4Tz8V",
    "evidence": "hf_evidenceQbXwLkTzVnMcRdYfHs",
    "answer": "sk_live_answer7Qb2Xw9Lk4Tz8V",
    "edit": "npm_edit7Qb2Xw9Lk4Tz8Vn3Mc6Rd1Yf5Hsabcd",
    "reason": "xoxb-123456789012-reason7Qb2Xw9",
    "review": "whsec_review7Qb2Xw9Lk4Tz8V",
    "imported": "AKIAIMPORTED7QB2XW9L",
    "added": "AIzaadded7Qb2Xw9Lk4Tz8Vn3Mc6Rd1Yf5Hs",
    "fault": "sk-proj-fault7Qb2Xw9Lk4Tz8Vn3",
    "environment": "of the environment, as it is",
}


class Leaking(Toy):
    """The toy domain, where every place that text comes from names a key."""

    name = "leaking"

    def tasks(self, split: Split | None = None) -> list[Task]:
        own = [t for t in super().tasks() if split in (None, t.split)]
        return [
            t.model_copy(update={"domain": self.name, "prompt": f"{t.prompt} {KEYS['prompt']}"})
            for t in own
        ]

    def collect(self, task: Task, sandbox: Any) -> str:
        return super().collect(task, sandbox) + f" {KEYS['answer']}"

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        if task.id.endswith("train:7"):
            raise Fault(f"the grader's key is {KEYS['fault']}")
        assert KEYS["answer"] in trace.answer  # what was handed in is graded as it is
        bare = trace.model_copy(update={"answer": trace.answer.partition(" ")[0]})
        made = super().grade(task, bare, backend)
        return made.model_copy(update={"evidence": f"{made.evidence} {KEYS['evidence']}"})


def rows() -> list[dict[str, Any]]:
    """The toy's script, in which replies, commands and edits name keys."""
    made = []
    for row in script():
        text = row["text"]
        if row["role"] == "optimizer":
            study = json.loads(text)
            study["edits"][0]["text"] += f" {KEYS['edit']} {KEYS['environment']}"
            study["edits"][0]["reason"] += f" {KEYS['reason']}"
            text = json.dumps(study)
        elif "answer.txt" in text:
            printed = KEYS["printed"]
            text = (
                f"I use {KEYS['said']}.\n{text[:-4]}\nprintf '%s%s\\n' {printed[:6]}"
                f" {printed[6:]}\n```"
            )
        made.append({**row, "text": text})
    return made


def bytes_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All that lies below a folder: files as they are, git's objects unpacked, the values of
    SQLite's tables."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        yield name, name.encode() + path.read_bytes()
        if path.name == "HEAD":
            git = [
                "git",
                "--git-dir",
                str(path.parent),
                "cat-file",
                "--batch",
                "--batch-all-objects",
            ]
            yield f"{name} objects", subprocess.run(git, capture_output=True, check=True).stdout
        if path.suffix in (".sqlite", ".sqlite3", ".db"):
            with sqlite3.connect(path) as connection:
                connection.text_factory = bytes
                for (table,) in connection.execute(
                    "select name from sqlite_master where type = 'table'"
                ).fetchall():
                    found = connection.execute(f'select * from "{table.decode()}"').fetchall()
                    yield f"{name} {table.decode()}", repr(found).encode()


def leaked(folder: Path) -> list[str]:
    return [
        f"{key} in {name}"
        for name, data in bytes_of(folder)
        for key, text in KEYS.items()
        if text.encode() in data
    ]


@pytest.fixture
def go(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., sdk.Outcome]:
    monkeypatch.setenv("DEPLOY_TOKEN", KEYS["environment"])

    def go(name: str, **also: Any) -> sdk.Outcome:
        from recreate.models.scripted import Scripted

        own = workspace / f"of-{name}"  # each build is the first of its workspace
        own.mkdir(exist_ok=True)
        (own / "recreate.toml").touch()
        settings: dict[str, Any] = {
            "rounds": 1,
            "models.retries": 0,
            "memory.embedder": "hashed",
            **also,
        }
        return sdk.build(
            Leaking(),
            model=Scripted.of(rows()),
            workspace=own,
            out=str(own / "runs" / name),
            **settings,
        )

    return go


@pytest.mark.slow
def test_no_byte_that_a_build_leaves_holds_a_key(
    go: Callable[..., sdk.Outcome], workspace: Path
) -> None:
    made = go("a")
    assert made.verdict.better
    assert leaked(workspace) == []
    assert leaked(made.path) == []
    lesson = made.scaffold.lessons[0].body
    assert lesson == f"{LESSON} [redacted] [redacted:DEPLOY_TOKEN]"
    run = Run(made.run)
    step = run.experience(next(run.records("experience"))["attempt"]).trace.steps[0]
    assert "I use [redacted]." in step.reply
    assert "[redacted]" in step.output
    assert "[redacted]" in step.observation
    assert [r["fault"] for r in run.excluded()] == ["the grader's key is [redacted]"]


class Proposes:
    """An optimizer of somebody else, which asks no model: its words come in with its edits."""

    def propose(self, scaffold: Any, experiences: Sequence[Experience]) -> list[Edit]:
        cited = (Evidence(experience=experiences[0].id, step=0),)
        about = {"reason": KEYS["reason"], "evidence": cited}
        return [
            Edit(path="system.md", new=f"{LESSON} {KEYS['edit']}\n", **about),
            Edit(path="a.md", old=KEYS["edit"], **about),
        ]


@pytest.mark.slow
def test_no_byte_holds_a_key_that_an_optimizer_of_another_proposes(
    go: Callable[..., sdk.Outcome], workspace: Path
) -> None:
    made = go("a", optimizer=Proposes())
    assert f"{LESSON} [redacted]" in made.scaffold.files["system.md"]
    assert leaked(workspace) == []


@pytest.mark.slow
def test_a_resumed_build_ends_in_the_same_agent(
    go: Callable[..., sdk.Outcome], workspace: Path
) -> None:
    whole = go("whole")
    for calls in (24, 30):
        name = f"stopped-{calls}"
        first = go(name, budget=f"{calls}attempts")
        again = go(name, budget="1000attempts")
        assert first.status in ("budget", "done")
        assert again.scaffold.digest == whole.scaffold.digest
        journals = [list(Run(o.run).records("proposal")) for o in (whole, again)]
        assert [r["edits"][0]["new"] for r in journals[0]] == [
            r["edits"][0]["new"] for r in journals[1]
        ]


@pytest.mark.slow
def test_what_a_person_says_in_a_review_is_masked(
    go: Callable[..., sdk.Outcome], workspace: Path
) -> None:
    def says(revision: Any, parent: Any, child: Any) -> Review:
        return Review(decision="reject", reason=f"it names {KEYS['review']}")

    made = go("a", review=says)
    assert [r.review for r in made.revisions] == ["rejected: it names [redacted]"]
    assert leaked(workspace) == []


def test_an_agent_that_holds_a_key_is_refused_before_anything_is_spent(
    go: Callable[..., sdk.Outcome], workspace: Path
) -> None:
    from recreate.api.paths import shipped

    seed = scaffolds.load(shipped("scaffolds") / "seed")
    files = {**seed.files, "workflow.md": seed.files["workflow.md"] + f"\nUse {KEYS['said']}.\n"}
    with pytest.raises(BadInput, match=r"workflow.md:\d+: holds what looks like a key"):
        go("a", scaffold=scaffolds.Scaffold(name="open", files=files))


def test_a_setting_that_is_a_key_is_refused(
    go: Callable[..., sdk.Outcome], workspace: Path
) -> None:
    with pytest.raises(BadInput, match="holds what looks like a key"):
        go("a", optimizer_settings={"key": KEYS["said"]})
    assert leaked(workspace) == []


@pytest.mark.slow
def test_passwords_that_are_words_of_ours_destroy_nothing(
    go: Callable[..., sdk.Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = go("whole")
    for word in (
        "experience",
        "validation",
        "00000000",
        "knowledge",
        "optimizer",
        "submitted",
        "new lesson",
    ):
        monkeypatch.setenv(f"{word.upper().replace(' ', '_')}_PASSWORD", word)
    again = go("again")
    assert again.scaffold.digest == whole.scaffold.digest
    assert again.verdict == whole.verdict
    runs = [Run(each.run) for each in (whole, again)]
    assert len({tuple(sorted(str(r["kind"]) for r in run.records())) for run in runs}) == 1
    assert (
        len(
            {
                tuple(sorted((r["split"], r["ending"]) for r in run.records("experience")))
                for run in runs
            }
        )
        == 1
    )
