"""A run is recorded, and is the same again from its cassette: no key, no network, no model."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.types import Call, Reply
from recreate.cli import run as cli
from recreate.models.replies import ModelQuestion, SharedReplies, folder_of
from recreate.runs.replay import PACKED, SETTINGS, Replay
from recreate.sandboxes.none import NoSandbox
from tests.cli.test_data import model, questions
from tests.pages import ROOT
from tests.toy import SIZES, script, write_script

Go = Callable[..., tuple[int, dict[str, Any]]]
BUILD = ("build", "--domain", "tests.toy:Toy", "--train", "4", "--validation", "6", "--rounds", "2")
BUILD += ("--models.retries", "0", "--memory.embedder", "hashed")
TAPE = ("--record", "tape")


@pytest.fixture
def go(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Go:
    """Type a command; returns its exit code and the JSON that it prints."""
    write_script(workspace / "script.jsonl")

    def go(*words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = cli([*words, "--json"])
        out = capsys.readouterr().out.strip().splitlines()
        return code, json.loads(out[-1]) if out else {}

    return go


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which a build was recorded, made once for all tests."""
    folder = tmp_path_factory.mktemp("once")
    (folder / "recreate.toml").write_text("")
    write_script(folder / "script.jsonl")
    with pytest.MonkeyPatch.context() as here, contextlib.redirect_stdout(io.StringIO()) as out:
        here.chdir(folder)
        here.setenv("RECREATE_HOME", str(folder / "home"))
        assert (
            cli([*BUILD, "--model", "scripted:script.jsonl", "--out", "runs/a", *TAPE, "--json"])
            == 0
        )
    (folder / "built.json").write_text(out.getvalue())
    return folder


@pytest.fixture
def recorded(once: Path, workspace: Path) -> dict[str, Any]:
    """What the build printed; its cassette is `tape`, its run `runs/a`."""
    shutil.copytree(once, workspace, dirs_exist_ok=True)
    built: dict[str, Any] = json.loads((workspace / "built.json").read_text())
    return built


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket can be opened in this process."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "socketpair"):
        monkeypatch.setattr(socket, name, refuse)


def outcome(record: dict[str, Any]) -> dict[str, Any]:
    """What must be the same again."""
    same = {k: record[k] for k in ("status", "validation", "revisions")}
    aside = [{k: v for k, v in row.items() if k != "fault"} for row in record["set_aside"]]
    faults = [row["fault"].partition(" (tried")[0] for row in record["set_aside"]]
    return {**same, "aside": aside, "faults": faults, "scaffold": record["scaffold"]["digest"]}


def test_a_whole_build_is_the_same_from_its_cassette_with_sockets_closed_and_other_jobs(
    go: Go, recorded: dict[str, Any], workspace: Path, request: pytest.FixtureRequest
) -> None:
    (workspace / "script.jsonl").unlink()
    shutil.rmtree(workspace / "scaffolds")
    request.getfixturevalue("closed")
    code, again = go("build", "--replay", "tape", "--jobs", "5", "--out", "runs/b")
    assert code == 0
    assert outcome(again) == outcome(recorded)
    assert recorded["claim"] in ("shown", "likely")
    spent = again["spend"]
    assert (spent["calls"], spent["tokens_in"]) == (
        recorded["spend"]["calls"],
        recorded["spend"]["tokens_in"],
    )
    assert spent["replayed"] == {"usd": 0.0}
    ids = [{p.name for p in (workspace / "runs" / name / "attempts").iterdir()} for name in "ab"]
    assert ids[0] == ids[1]


@pytest.mark.plugin("each")
@pytest.mark.slow
def test_a_trial_that_ends_early_is_replayed_with_other_jobs(
    go: Go, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "validation", 20)
    build = [*BUILD, "--validation", "20", "--jobs", "1", "--model", "scripted:script.jsonl"]
    build += ["--gate.keep", "each"]
    code, made = go(*build, "--out", "runs/b", "--record", "tape-b")
    assert code == 0
    assert made["revisions"][0]["verdict"]["tasks"] < 20, "it ends before all tasks are tried"
    code, again = go(
        "build", "--replay", "tape-b", "--jobs", "4", "--out", "runs/c", "--domain", "tests.toy:Toy"
    )
    assert code == 0, again
    assert again["scaffold"]["digest"] == made["scaffold"]["digest"]
    assert again["revisions"] == made["revisions"]


@pytest.mark.slow
def test_a_replay_leaves_the_memory_of_the_workspace_alone(
    go: Go, recorded: dict[str, Any], workspace: Path
) -> None:
    before = {p: p.read_bytes() for p in (workspace / "memory").rglob("*.jsonl")}
    assert go("build", "--replay", "tape", "--out", "runs/b")[0] == 0
    assert {p: p.read_bytes() for p in (workspace / "memory").rglob("*.jsonl")} == before


@pytest.mark.slow
def test_a_cassette_of_replies_only_holds_no_task_and_is_replayed_by_whoever_has_the_rows(
    go: Go, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ("--data", questions(workspace).name)
    flags = (
        "--train",
        "4",
        "--validation",
        "10",
        "--memory.embedder",
        "hashed",
        "--model",
        model(workspace),
    )
    code, made = go("build", *data, *flags, *TAPE, "--record-replies-only")
    assert (code, made["validation"]["after"]) == (0, 1.0)
    assert "record" not in made["command"], "a cassette is not written over"
    held = gzip.decompress((workspace / "tape" / PACKED).read_bytes()).decode()
    assert "What is" not in held
    assert "FAILED" not in held, "what the optimizer was asked is left out too"
    settings = (workspace / "tape" / SETTINGS).read_text()
    assert str(workspace) not in settings.replace(model(workspace), "")
    elsewhere = workspace / "elsewhere"
    (elsewhere / "rows").mkdir(parents=True)
    shutil.move(workspace / "tape", elsewhere / "tape")
    shutil.move(workspace / "sums.jsonl", elsewhere / "rows")
    (elsewhere / "recreate.toml").write_text("")
    monkeypatch.chdir(elsewhere)
    code, again = go("build", "--replay", "tape", "--data", "rows/sums.jsonl")
    assert (code, outcome(again)) == (0, outcome(made))


@pytest.mark.slow
def test_a_recording_says_when_memory_has_what_a_replay_has_not(
    go: Go, recorded: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*BUILD, "--model", "scripted:script.jsonl", "--scaffold", "seed"]
    assert cli([*words, "--out", "runs/b", "--record", "tape-b"]) == 0
    assert (
        "memory holds 2 train experiences of toy, and a replay has none" in capsys.readouterr().err
    )
    assert cli([*words, "--out", "runs/c"]) == 0
    assert "a replay has none" not in capsys.readouterr().err


def test_leaving_out_what_was_asked_is_said_of_a_recording(go: Go) -> None:
    code, told = go(*BUILD, "--model", "scripted:script.jsonl", "--record-replies-only")
    assert (code, told["error"]["fix"]) == (2, "give --record DIR too")


def test_a_tool_that_answers_otherwise_stops_the_replay_at_that_call_and_shows_the_two_requests(
    go: Go,
    recorded: dict[str, Any],
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from recreate.agents.workplace import Workplace

    was = Workplace.act

    def act(self: Any, *args: Any) -> Any:
        output, text = was(self, *args)
        return output, text + "a new word"

    monkeypatch.setattr(Workplace, "act", act)
    code, found = go("build", "--replay", "tape", "--out", "runs/b", "--jobs", "1")
    assert code == 4
    _, attempt_id, step = found["call"].split("/")
    assert step == "1"
    assert found["expected"] != found["got"]
    assert found["error"]["code"] == "differs"
    assert any(p.name == attempt_id for p in (workspace / "runs/a/attempts").iterdir())
    cli(["build", "--replay", "tape", "--out", "runs/c", "--jobs", "1"])
    said = capsys.readouterr().err
    assert "--- recorded" in said
    assert "+a new word" in said or "a new word" in said
    spent = [
        json.loads(line) for line in (workspace / "runs/b/ledger.jsonl").read_text().splitlines()
    ]
    assert not [line for line in spent if line["kind"] == "lost"]


@pytest.mark.slow
def test_a_replay_goes_on_where_only_a_duration_differs_and_says_how_often(
    go: Go, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from recreate.agents.workplace import Workplace

    was, took = Workplace.act, ["0.31s"]

    def act(self: Any, *args: Any) -> Any:
        output, text = was(self, *args)
        return output, f"{text}\n1 passed in {took[0]}\n"

    monkeypatch.setattr(Workplace, "act", act)
    code, built = go(
        *BUILD, "--rounds", "1", "--model", "scripted:script.jsonl", "--out", "runs/a", *TAPE
    )
    assert code == 0
    took[0] = "4.07s"
    assert cli(["build", "--replay", "tape", "--out", "runs/b", "--json"]) == 0
    said = capsys.readouterr()
    assert outcome(json.loads(said.out)) == outcome(built)
    assert "requests differed from the recorded ones in times" in said.err


def test_another_grade_stops_the_replay(
    go: Go, recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from recreate.api.types import Grade
    from tests.toy import Toy

    monkeypatch.setattr(Toy, "grade", lambda *_: Grade(score=1.0, passed=True))
    code, found = go("build", "--replay", "tape", "--out", "runs/b", "--jobs", "1")
    assert (code, found["expected"], found["got"]) == (4, 0.0, 1.0)


def test_a_replay_of_another_agent_is_refused(
    go: Go, recorded: dict[str, Any], workspace: Path
) -> None:
    shutil.copytree(shipped("scaffolds") / "seed", workspace / "mine")
    (workspace / "mine/system.md").write_text("Something else.")
    code, found = go("build", "--replay", "tape", "--out", "runs/b", "--scaffold", "mine")
    assert (code, found["error"]["code"]) == (2, "another-scaffold")
    assert "--scaffold" in found["error"]["fix"]
    model = ("--domain", "tests.toy:Toy", "--model", "scripted:script.jsonl")
    assert go("run", "seed", "toy:train:0", *model, "--record", "one")[0] == 0
    code, found = go("run", "mine", "toy:train:0", "--replay", "one")
    assert (code, found["error"]["code"]) == (2, "another-scaffold")


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--rounds", "1"), "another-build"),
        (("--model", "scripted:other.jsonl"), "another-build"),
        (("--sandbox", "none"), "another-build"),
    ],
)
def test_a_replay_with_other_settings_is_refused(
    go: Go, recorded: dict[str, Any], flags: tuple[str, ...], code: str
) -> None:
    exit_code, found = go("build", "--replay", "tape", "--out", "runs/b", *flags)
    assert (exit_code, found["error"]["code"]) == (2, code)
    assert found["error"]["fix"]


@pytest.mark.parametrize("sandbox", ["none", "recreate.sandboxes.none:NoSandbox"])
def test_what_was_recorded_without_a_sandbox_runs_as_you_only_where_you_say_so(
    go: Go, workspace: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    task = ("run", "seed", "toy:train:0")
    recording = (
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:script.jsonl",
        "--sandbox",
        sandbox,
    )
    assert go(*task, *recording, "--record", "tape")[0] == 0
    (workspace / "recreate.toml").write_text('sandbox = "none"')
    there = sorted(workspace.rglob("*"))
    for said in ("", "bwrap"):
        monkeypatch.setenv("RECREATE_SANDBOX", said)
        code, found = go(*task, "--replay", "tape")
        assert (code, found["error"]["code"]) == (2, "no-walls")
        assert "--sandbox none" in found["error"]["fix"]
    assert sorted(workspace.rglob("*")) == there, "nothing was begun"
    code, found = go(*task, "--replay", "tape", "--sandbox", "bwrap")
    assert (code, found["error"]["code"]) == (2, "another-build")
    assert go(*task, "--replay", "tape", "--sandbox", "none")[0] == 0
    monkeypatch.setenv("RECREATE_SANDBOX", "none")
    assert go(*task, "--replay", "tape")[0] == 0
    monkeypatch.delenv("RECREATE_SANDBOX")
    with pytest.raises(BadInput, match="without a sandbox"):
        recreate.run("seed", "toy:train:0", "tests.toy:Toy", replay="tape")
    for given in ("none", NoSandbox()):
        assert (
            recreate.run(
                "seed", "toy:train:0", "tests.toy:Toy", sandbox=given, replay="tape"
            ).grade.passed
            is not None
        )


@pytest.mark.slow
def test_a_replay_without_a_sandbox_that_was_allowed_is_resumed_as_any_run(go: Go) -> None:
    assert (
        go(
            *BUILD,
            "--model",
            "scripted:script.jsonl",
            "--sandbox",
            "none",
            "--out",
            "runs/a",
            *TAPE,
        )[0]
        == 0
    )
    code, again = go("build", "--replay", "tape", "--sandbox", "none", "--out", "runs/b")
    assert code == 0
    assert go("resume", "runs/b")[1]["scaffold"]["digest"] == again["scaffold"]["digest"]


def test_a_cassette_of_a_build_is_not_one_of_a_run(go: Go, recorded: dict[str, Any]) -> None:
    code, found = go("run", "seed", "toy:train:0", "--replay", "tape")
    assert (code, found["error"]["code"]) == (2, "another-build")


def edited(folder: Path, change: Callable[[bytes], bytes]) -> None:
    packed = folder / PACKED
    packed.write_bytes(gzip.compress(change(gzip.decompress(packed.read_bytes()))))


def cut(folder: Path) -> None:
    (folder / PACKED).write_bytes((folder / PACKED).read_bytes()[:-200])


def a_line_less(folder: Path) -> None:
    edited(folder, lambda raw: b"".join(raw.splitlines(keepends=True)[:-1]))


def another_order(folder: Path) -> None:
    edited(folder, lambda raw: b"".join(reversed(raw.splitlines(keepends=True))))


def a_word_changed(folder: Path) -> None:
    edited(folder, lambda raw: raw.replace(b"answer.txt", b"question.txt", 1))


def settings_edited(folder: Path) -> None:
    text = (folder / SETTINGS).read_text()
    (folder / SETTINGS).write_text(text.replace("rounds = 2", "rounds = 3"))


@pytest.mark.parametrize(
    "spoil", [cut, a_line_less, another_order, a_word_changed, settings_edited]
)
def test_a_cassette_that_was_cut_or_edited_is_refused(
    go: Go, recorded: dict[str, Any], workspace: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(workspace / "tape")
    code, found = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, found["error"]["code"]) == (2, "damaged")
    assert "record it again" in found["error"]["fix"]
    assert not (workspace / "runs/b").exists()


def test_what_is_no_cassette_is_refused(go: Go, workspace: Path) -> None:
    code, found = go("build", "--replay", "nowhere")
    assert (code, found["error"]["code"]) == (2, "no-cassette")


@pytest.mark.slow
def test_a_cassette_is_not_written_over(go: Go, recorded: dict[str, Any], workspace: Path) -> None:
    code, found = go(*BUILD, "--model", "scripted:script.jsonl", "--out", "runs/b", *TAPE)
    assert (code, found["error"]["code"]) == (2, "cassette-exists")
    assert not (workspace / "runs/b").exists()
    assert go("build", "--replay", "tape", "--out", "runs/c")[0] == 0


@pytest.mark.slow
def test_tries_that_failed_are_replayed_at_their_charge_and_without_waiting(
    go: Go, workspace: Path
) -> None:
    rows = [
        {**row, "fault": "503", "fault_times": 1} if row.get("step") == 0 else row
        for row in script()
    ]
    (workspace / "script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [*BUILD, "--model", "scripted:script.jsonl"]
    words[words.index("--models.retries") + 1] = "1"
    code, built = go(*words, "--out", "runs/a", *TAPE)
    assert (code, built["spend"]["by_role"]["lost in flight"]["calls"] > 0) == (0, True)
    code, again = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, outcome(again)) == (0, outcome(built))
    roles = [{k: v for k, v in r["spend"]["by_role"].items()} for r in (built, again)]
    assert roles[0] == roles[1]


@pytest.mark.slow
def test_a_call_that_failed_for_good_fails_again(go: Go, workspace: Path) -> None:
    dead = {"role": "agent", "task": "toy:validation:3", "fault": "503"}
    (workspace / "script.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [dead, *script()])
    )
    # without further attempts: each refusal slows all that comes after it
    words = (*BUILD, "--rounds", "1", "--gate.confirm", "0", "--model", "scripted:script.jsonl")
    code, built = go(*words, "--out", "runs/a", *TAPE)
    assert code == 0
    assert built["set_aside"]
    (workspace / "script.jsonl").unlink()
    code, again = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, outcome(again)) == (0, outcome(built))


@pytest.mark.slow
def test_any_run_is_replayed_from_its_own_folder(go: Go, workspace: Path) -> None:
    code, built = go(*BUILD, "--model", "scripted:script.jsonl", "--out", "runs/a")
    assert code == 0
    (workspace / "script.jsonl").unlink()
    code, again = go("build", "--replay", "runs/a", "--out", "runs/b")
    assert (code, outcome(again)) == (0, outcome(built))
    code, third = go("build", "--replay", "runs/b", "--out", "runs/c")
    assert (code, outcome(third)) == (0, outcome(built))


@pytest.mark.slow
def test_a_run_that_was_stopped_is_recorded_as_far_as_it_came_and_whole_once_it_was_resumed(
    go: Go, workspace: Path
) -> None:
    words = (*BUILD, "--model", "scripted:script.jsonl", "--out", "runs/a", *TAPE)
    code, stopped = go(*words, "--budget", "15attempts")
    assert (code, stopped["status"]) == (3, "budget")
    part = Replay(workspace / "tape").calls
    code, found = go("build", "--replay", "tape", "--out", "runs/b", "--budget", "500attempts")
    assert (code, found["expected"]) == (4, None)
    assert "not finished" in found["error"]["message"]
    code, built = go("resume", "runs/a", "--budget", "500attempts", "--jobs", "3")
    assert (code, built["status"]) == (0, "done")
    assert Replay(workspace / "tape").calls > part
    (workspace / "script.jsonl").unlink()
    code, again = go("build", "--replay", "tape", "--out", "runs/c")
    assert (code, outcome(again)) == (0, outcome(built))


@pytest.mark.slow
def test_a_run_that_was_killed_is_replayed_from_its_folder_and_recorded_by_resume(
    go: Go, workspace: Path
) -> None:
    write_script(workspace / "slow.jsonl", delay_ms=100)
    words = [*BUILD, "--model", "scripted:slow.jsonl", "--out", "runs/a", *TAPE, "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    asked = subprocess.Popen(
        [sys.executable, "-m", "recreate", *words], stdout=subprocess.PIPE, env=env
    )
    journal = workspace / "runs/a/journal.jsonl"
    while not journal.exists() or b'"kind":"experience"' not in journal.read_bytes():
        assert asked.poll() is None
        time.sleep(0.05)
    asked.kill()
    asked.communicate(timeout=60)
    assert not (workspace / "tape" / PACKED).exists()
    assert Replay(workspace / "runs/a").calls
    code, built = go("resume", "runs/a")
    assert (code, built["status"]) == (0, "done")
    (workspace / "slow.jsonl").unlink()
    code, again = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, outcome(again)) == (0, outcome(built))


# -------------------------------------------------------------------------------------------------
# the cache


def test_clean_says_what_is_cached_and_removes_it_when_asked(go: Go) -> None:
    cache = SharedReplies(folder_of("on"))
    cache.keep(ModelQuestion("m", [], {}, Call(run="r", attempt="a", step=0)), Reply(text="one"))
    code, found = go("clean")
    assert (code, found["replies"]["count"], found["replies"]["removed"]) == (0, 1, False)
    code, found = go("clean", "--replies", "--dry-run")
    assert (found["replies"]["removed"], cache.size()[0]) == (False, 1)
    code, found = go("clean", "--replies")
    assert (code, found["replies"]["removed"], cache.size()) == (0, True, (0, 0))
