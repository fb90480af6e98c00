"""`recreate demo`: the build that ships, replayed in under a minute by whoever has just installed
it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.scaffold import load
from recreate.api.errors import Interrupted
from recreate.api.paths import shipped
from recreate.cli import run as cli
from recreate.plugins.demo import demo
from recreate.plugins.demo.functions import Functions
from recreate.runs.replay import SETTINGS
from recreate.sandboxes import choose
from tests.plugins.demo.demo import once

DEMO = shipped("benchmarks") / "demo"


@pytest.mark.slow
def test_the_demo_needs_no_network_and_no_key_and_ends_as_it_was_recorded(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr("webbrowser.open", refuse)
    assert cli(["demo", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["scaffold"]["digest"] == demo.read_tape().end["scaffold"]
    assert (found["network"], found["calls"]) == (False, demo.read_tape().calls)
    assert found["validation"]["verdict"] == "better"
    assert (Path(found["run"]) / "report.html").is_file()
    assert list(workspace.iterdir()) == [workspace / "recreate.toml"]
    steps = [line for line in said.err.splitlines() if line[:2] in {f"{n}." for n in range(1, 7)}]
    assert [line[0] for line in steps] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.slow
def test_the_page_is_opened_and_the_next_commands_are_said(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert cli(["demo"]) == 0
    out = capsys.readouterr().out
    assert [url.rpartition("/")[2] for url in opened] == ["report.html"]
    assert "recreate build --domain" in out
    assert "$0 paid" in out


def test_a_grade_of_the_demo_is_made_here_and_not_read(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Functions, "_values", lambda self, answer, calls, backend: ["nothing"] * len(calls)
    )
    assert cli(["demo", "--json"]) == 4


def test_without_walls_the_demo_says_what_it_needs(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECREATE_SANDBOX", "none")
    assert cli(["demo", "--json"]) == 2
    assert "RECREATE_SANDBOX" in json.loads(capsys.readouterr().out)["error"]["fix"]


def test_ctrl_c_in_the_demo_says_what_to_type(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*args: Any, **how: Any) -> Any:
        raise Interrupted("stopped", fix="the same call with out=... goes on")

    monkeypatch.setattr(demo, "replay", stopped)
    assert cli(["demo", "--json"]) == 130
    assert "recreate demo" in json.loads(capsys.readouterr().out)["error"]["fix"]


def test_a_demo_that_was_edited_is_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "tape", lambda: workspace / "nothing")
    assert cli(["demo", "--json"]) == 2
    assert "install recreate again" in json.loads(capsys.readouterr().out)["error"]["fix"]


@pytest.mark.slow
def test_two_replays_end_in_the_same_digest_with_other_jobs(tmp_path: Path) -> None:
    one, other = (once(tmp_path / str(jobs), jobs)["ended"] for jobs in (1, 5))
    assert one == other


def test_the_shipped_cassette_is_small_is_of_the_shipped_seed_and_names_no_path() -> None:
    files = list(DEMO.rglob("*"))
    assert sum(f.stat().st_size for f in files if f.is_file()) < 3_000_000
    tape = demo.read_tape()
    assert list(tape.agents) == [load(DEMO / "seed").digest]
    text = json.dumps(tape.start) + (DEMO / "tape" / SETTINGS).read_text()
    assert not any(word in text for word in ("/work", "/tmp", "/home", "/root"))
    assert tape.models["optimizer"].name != tape.models["agent"].name


@pytest.mark.slow
def test_every_task_of_the_demo_is_sound() -> None:
    domain, backend = Functions(), choose(None)
    for task in domain.tasks():
        checks = [call for call, _ in task.facts["checks"]]
        # most of what is graded is not shown
        assert 2 * sum(call in task.prompt for call in checks) < len(checks)
    task = domain.tasks("test")[0]
    calls, wanted = zip(*task.facts["checks"], strict=True)
    assert domain._values(domain.gold(task), calls, backend) == list(wanted)
    assert [
        x
        for x in domain.exploits(task).values()
        if domain._values(x, calls, backend) == list(wanted)
    ] == []
