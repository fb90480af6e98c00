"""A namespace is a memory of its own in a workspace: what one team lives through and learns,
another is not told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.cli import run as cli
from recreate.lessons.store import LessonStore
from recreate.memory.store import ExperienceStore
from recreate.runs.session import open_session
from recreate.runs.settings import load_run
from tests.toy import write_script


def build(workspace: Path, out: str) -> None:
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        write_script(workspace / "s.jsonl"),
        "--scaffold",
        "seed",
    ]
    few = ["--train", "2", "--validation", "5", "--sandbox", "none", "--memory.embedder", "hashed"]
    assert (
        cli(["build", *flags, *few, "--out", f"runs/{out}", "--optimizer", "reflect", "--json"])
        == 0
    )


@pytest.mark.plugin("memory_tools")
@pytest.mark.slow
def test_a_teams_attempts_are_in_its_memory_alone(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECREATE_MEMORY__NAMESPACE", "web")
    build(workspace, "a")
    assert list((workspace / "memory/@web/toy/experiences").glob("*.jsonl"))
    assert (workspace / "memory/@web/held_out.jsonl").is_file()
    assert not (workspace / "memory/toy").exists()
    capsys.readouterr()
    asked = ["memory", "recall", "toy", "--json"]
    assert cli(asked) == 0
    assert json.loads(capsys.readouterr().out)["hits"]
    for other in ("", "data"):
        monkeypatch.setenv("RECREATE_MEMORY__NAMESPACE", other)
        assert cli(asked) == 0
        assert not json.loads(capsys.readouterr().out)["hits"]
        assert cli(["memory", "stats", "--json"]) == 0
        assert not json.loads(capsys.readouterr().out)["domains"]


def test_a_run_goes_on_in_the_memory_that_it_began_in(workspace: Path) -> None:
    (workspace / "recreate.toml").write_text('[memory]\nnamespace = "web"\n')
    build(workspace, "a")
    (workspace / "recreate.toml").write_text("")
    folder = workspace / "runs/a"
    session = open_session(load_run(folder), workspace, folder, resume=True)
    try:
        assert session.memory.folder == workspace / "memory/@web"
    finally:
        session.close()


@pytest.mark.plugin("memory_tools")
def test_lessons_of_a_namespace_are_not_among_those_of_all(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECREATE_MEMORY__NAMESPACE", "web")
    assert (
        cli(
            [
                "memory",
                "add",
                "Read first",
                "The failing test says what is expected.",
                "--domain",
                "swe",
            ]
        )
        == 0
    )
    (workspace / "memory/@web/general").mkdir()
    general = workspace / "memory/@web/general/be-brief.md"
    general.write_text(
        '+++\nscope = "general"\nstatus = "active"\n+++\n# Be brief\n\nSay it once.\n'
    )
    own = paths.memory(workspace)
    assert own == workspace / "memory/@web"
    assert {store.domain for store in LessonStore.every(own)} == {"swe", "general"}
    monkeypatch.delenv("RECREATE_MEMORY__NAMESPACE")
    assert list(LessonStore.every(paths.memory(workspace))) == []
    assert ExperienceStore(workspace).folder == workspace / "memory"


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "Web", "@web", " ", "x" * 41])
def test_a_name_that_no_folder_should_have_is_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(BadInput, match="cannot name a namespace"):
        paths.memory(workspace, name)
    monkeypatch.setenv("RECREATE_MEMORY__NAMESPACE", name)
    assert cli(["plan", "--domain", "tests.toy:Toy"]) == 2
    assert "namespace" in capsys.readouterr().err
