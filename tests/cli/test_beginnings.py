"""The unique beginning of an id is enough, a search shows the words that it found, a report says
whose agent ran."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.types import Split, Task
from recreate.builder.selection import find_task
from recreate.cli import run as cli
from recreate.memory.index.tokenizer import marked, standing
from recreate.runs.reader import Run
from recreate.viewer.facts import RunFacts
from tests.studied import Acts, Try, lesson, takes_all
from tests.toy import Toy, write_script

pytestmark = pytest.mark.plugin("each")

TOY = ("--domain", "tests.toy:Toy")


class Two(Toy):
    """The first task of each split."""

    def tasks(self, split: Split | None = None) -> list[Task]:
        return [task for task in super().tasks(split) if task.id.endswith(":0")]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a build, runs/alpha-1, and the folder of another run."""
    folder = tmp_path_factory.mktemp("beginnings")
    (folder / "recreate.toml").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RECREATE_HOME", str(folder / "home"))
        model = write_script(Path("s.jsonl"))
        flags = [
            "--memory.embedder",
            "hashed",
            "--train",
            "2",
            "--validation",
            "5",
            "--sandbox",
            "none",
        ]
        assert (
            cli(["build", *TOY, "--model", model, *flags, "--out", "runs/alpha-1", "--json"]) == 0
        )
    shutil.copytree(folder / "runs/alpha-1", folder / "runs/alps")
    return folder


@pytest.fixture
def there(once: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(once)
    capsys.readouterr()
    return once


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert cli([*words, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[0])
    return found


@pytest.mark.slow
@pytest.mark.plugin("review")
def test_of_a_run(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "show", "runs/alpha-1")["run"] == said(capsys, "show", "alph")["run"]
    error = said(capsys, "log", "alp", code=2)["error"]
    assert (error["message"], error["fix"]) == ("2 runs begin with 'alp'", "one of: alpha-1, alps")
    (revision,) = [r for r in Run(there / "runs/alpha-1").revisions() if r.kept]
    found = said(capsys, "keep", f"alph:{revision.id[:5]}", "--as", "other")
    assert found["scaffold"]["digest"] == revision.id


def test_of_a_task(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = [
        Task(id=id, domain="d", prompt="", split="train", group=id)
        for id in ("d:one:1", "d:one:12", "d:two:1")
    ]
    assert [find_task(few, id).id for id in ("d:t", "d:one:1", "d:one:12")] == [
        "d:two:1",
        "d:one:1",
        "d:one:12",
    ]
    assert (
        said(capsys, "grade", "tests.cli.test_beginnings:Two", "toy:te", "--answer", "w0!")["task"]
        == "toy:test:0"
    )
    flags = (*TOY, "--model", "scripted:s.jsonl", "--sandbox", "none")
    error = said(capsys, "run", "seed", "toy:tr", *flags, code=2)["error"]
    assert error["message"] == "8 tasks begin with 'toy:tr'"
    assert "toy:train:0, toy:train:1" in error["fix"]
    assert (
        "did you mean toy:train:0"
        in said(capsys, "run", "seed", "toy:trian:0", *flags, code=2)["error"]["fix"]
    )


@given(st.text(), st.text())
@pytest.mark.slow
def test_a_text_in_which_words_are_marked_is_still_that_text(text: str, question: str) -> None:
    parts = marked(text, question)
    assert "".join(part for part, _ in parts) == text
    assert bool([part for part, stands in parts if stands]) <= bool(standing(text, question))


def test_of_scripts_without_spaces_the_characters_asked_for_are_marked() -> None:
    assert marked("東京都庁へ行く", "東京都") == [("東京都", True), ("庁へ行く", False)]
    assert marked("parse_header and parseHeaders", "header")[1] == ("header", True)


def test_the_report_prints_a_command_that_can_be_typed(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(there / "runs/alpha-1")
    report = (run.folder / "report.md").read_text()
    assert "..." not in report.partition("## Revisions")[0]
    (line,) = [x for x in report.splitlines() if "recreate bench" in x]
    command = line.partition("`recreate ")[2].partition("`")[0].split()
    assert command[command.index("--scaffold") + 1] == f"runs/alpha-1:{run.revisions()[-1].id}"
    assert cli(["show", command[command.index("--scaffold") + 1]]) == 0


@pytest.mark.slow
def test_the_report_says_whose_scaffold_a_rehearsal_ran(attempt: Try) -> None:
    from recreate.viewer import html, markdown

    def study(first: str) -> Acts:
        yield "steps", {"first": 0, "last": 1}
        yield lesson()
        yield "rehearse", {}
        yield "finish", {"summary": "The mark was missing.", "cause": "knowledge"}

    tried = attempt(study, takes_all, rounds=1, **{"study.rehearsals": 1})
    rehearsed = [r for r in tried.run.records("experience") if r["phase"] == "rehearse"]
    assert rehearsed
    facts = RunFacts(tried.run, tried.built)
    report = markdown.report(facts)
    part = report.partition("## Tried by the optimizer")[2].partition("\n## ")[0]
    for record in rehearsed:
        by = (
            f"a rehearsal of an edit, run by {facts.tell_agent(record['scaffold'])}"
            f" (`{record['scaffold']}`)"
        )
        assert f"`{record['attempt']}` {record['task']}, " in part
        assert by in part
    assert "the seed" not in part
    page = html.page(tried.run, tried.built)
    assert "a rehearsal of an edit" in page
    assert ": the seed." in page
