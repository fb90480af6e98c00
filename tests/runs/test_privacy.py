"""What a run, memory and a recording hold is closed to other users of the machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import recreate
from recreate.cli import run as cli
from recreate.models.scripted import Scripted
from recreate.runs.journal import Journal
from tests.toy import Toy, script


@pytest.fixture(
    params=[0o022, *(pytest.param(each, marks=pytest.mark.slow) for each in (0o002, 0o000))],
    ids=oct,
)
def mask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def build(workspace: Path, name: str = "a", **more: object) -> Path:
    made = recreate.build(
        Toy(),
        model=Scripted.of(script()),
        workspace=workspace,
        out=str(workspace / "runs" / name),
        rounds=1,
        memory__embedder="hashed",
        models__retries=0,
        **more,
    )
    return made.run


def is_open(path: Path) -> bool:
    """Whether somebody else may do anything with it."""
    return bool(path.lstat().st_mode & 0o077) and not path.is_symlink()


@pytest.mark.usefixtures("mask")
def test_nothing_of_a_build_is_open_to_others(workspace: Path) -> None:
    """From the start: a file is never made open and closed later, since its folder is closed."""
    run = build(workspace, record=str(workspace / "tape"))
    places = [run, workspace / "memory", workspace / "tape"]
    assert [str(p) for p in places if is_open(p)] == []
    agents = [p for place in (run / "seed", run / "scaffold.git") for p in place.rglob("*")]
    inside = {p for place in places for p in place.rglob("*")} - set(agents)
    lessons = set((workspace / "memory").rglob("*.md"))
    assert [str(p) for p in sorted(inside - lessons) if is_open(p)] == []


@pytest.mark.usefixtures("mask")
def test_an_agent_that_is_published_is_as_open_as_its_folder(workspace: Path) -> None:
    build(workspace)
    agent = workspace / "scaffolds" / "toy"
    opened = stat.S_IMODE((workspace / "scaffolds").stat().st_mode) & 0o755
    assert stat.S_IMODE(agent.stat().st_mode) == opened
    assert stat.S_IMODE((agent / "agent.toml").stat().st_mode) == opened & 0o644


def test_what_was_open_is_closed_when_it_is_opened(workspace: Path) -> None:
    places = [build(workspace), workspace / "memory", workspace / "runs"]
    for place in places:
        place.chmod(0o755)
    build(workspace, "b", seed=7)
    assert [is_open(place) for place in places[1:]] == [False, False]
    journal = Journal(places[0])
    journal.open()
    journal.close()
    assert not is_open(places[0])


def test_a_folder_that_is_shared_with_a_group_stays_shared(workspace: Path) -> None:
    (workspace / "memory").mkdir(exist_ok=True)
    (workspace / "memory").chmod(0o2770)
    build(workspace)
    assert stat.S_IMODE((workspace / "memory").stat().st_mode) == 0o2770


def test_a_strangers_folder_that_is_named_for_a_run_keeps_its_mode(workspace: Path) -> None:
    place = workspace / "runs" / "a"
    place.mkdir(parents=True)
    (place / "notes.txt").write_text("mine")
    place.chmod(0o755)
    build(workspace)
    assert stat.S_IMODE(place.stat().st_mode) == 0o755


@pytest.mark.usefixtures("mask")
def test_a_new_workspace_has_a_closed_memory_and_open_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli(["init", "w"]) == 0
    assert not stat.S_IMODE((tmp_path / "w" / "memory").stat().st_mode) & 0o077
    assert (tmp_path / "w" / "scaffolds").stat().st_mode & 0o044
