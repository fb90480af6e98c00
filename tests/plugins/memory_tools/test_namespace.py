"""A namespace's memory, by the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.api import paths
from recreate.cli import run as cli
from recreate.lessons.store import LessonStore
from recreate.memory.store import ExperienceStore
from tests.memory.test_namespace import build


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
