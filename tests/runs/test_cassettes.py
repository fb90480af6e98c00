"""A run is recorded, and is the same again from its cassette: no key, no network, no model."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.errors import BadInput, Transient
from recreate.api.paths import shipped
from recreate.api.types import Call, Reply
from recreate.cli import run as cli
from recreate.models.cassette import ABOUT, LINES, PACKED, Cassette, Recording, Request, read_about
from recreate.models.reply_cache import ReplyCache, folder_of
from recreate.sandboxes.none import NoSandbox
from recreate.sandboxes.sandbox import UIDS
from recreate.storage.log import seal, unseal
from tests.cli.test_data import model, questions
from tests.pages import ROOT
from tests.stub import Stub
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


def measured(bench: dict[str, Any]) -> list[dict[str, Any]]:
    """Its cells, but for the command that measures them anew: that names the run's own folder."""
    return [{k: v for k, v in cell.items() if k != "command"} for cell in bench["cells"]]


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
    same = {k: record[k] for k in ("status", "validation", "revisions", "set_aside")}
    return {**same, "scaffold": record["scaffold"]["digest"]}


def test_a_whole_build_is_the_same_from_its_cassette_with_sockets_closed_and_other_jobs(
    go: Go, recorded: dict[str, Any], workspace: Path, request: pytest.FixtureRequest
) -> None:
    (workspace / "script.jsonl").unlink()
    shutil.rmtree(workspace / "scaffolds")
    request.getfixturevalue("closed")
    code, again = go("build", "--replay", "tape", "--jobs", "5", "--out", "runs/b")
    assert code == 0
    assert outcome(again) == outcome(recorded)
    assert recorded["revisions"][0]["verdict"]["verdict"] == "better"
    spent = again["spend"]
    assert (spent["calls"], spent["tokens_in"]) == (
        recorded["spend"]["calls"],
        recorded["spend"]["tokens_in"],
    )
    assert spent["replayed"] == {"usd": 0.0}
    ids = [{p.name for p in (workspace / "runs" / name / "attempts").iterdir()} for name in "ab"]
    assert ids[0] == ids[1]


@pytest.mark.slow
def test_a_trial_that_ends_early_is_replayed_with_other_jobs(
    go: Go, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "validation", 20)
    build = [*BUILD, "--validation", "20", "--jobs", "1", "--model", "scripted:script.jsonl"]
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
    assert str(workspace) not in (workspace / "tape" / ABOUT).read_text().replace(
        model(workspace), ""
    )
    elsewhere = workspace / "elsewhere"
    (elsewhere / "rows").mkdir(parents=True)
    shutil.move(workspace / "tape", elsewhere / "tape")
    shutil.move(workspace / "sums.jsonl", elsewhere / "rows")
    (elsewhere / "recreate.toml").write_text("")
    monkeypatch.chdir(elsewhere)
    code, again = go("build", "--replay", "tape", "--data", "rows/sums.jsonl")
    assert (code, outcome(again)) == (0, outcome(made))


@pytest.mark.parametrize(
    ("domain", "data"),
    [
        ("code", "humanevalpack.jsonl"),
        ("dacode", "da-dev-questions.jsonl"),
        ("math", "test.jsonl"),
        ("sql", "six"),
    ],
)
def test_a_build_on_published_rows_that_ships_is_sound_and_holds_no_request(
    domain: str, data: str
) -> None:
    folder = shipped("benchmarks") / domain / "tape"
    tape = Cassette(folder)
    assert tape.about.replies_only
    assert tape.about.end["status"] == "done"
    assert sum(f.stat().st_size for f in folder.iterdir()) < 300_000
    text = (
        json.dumps(tape.about.model_dump(mode="json"))
        + gzip.decompress((folder / PACKED).read_bytes()).decode()
    )
    assert not any(word in text for word in ("/work/main", "/work/exp", "/home/", "/root/"))
    assert all(len(path) < 16 for path in re.findall(r"/tmp/[\w./-]*", text)), (
        "files of studies' own sandboxes alone"
    )
    assert tape.about.settings["data"] == data
    assert all(
        text.keys() <= {"temperature", "max_tokens", "tools"} for text in tape._texts.values()
    )


@pytest.mark.slow
def test_a_recording_says_when_memory_has_what_a_replay_has_not(
    go: Go, recorded: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*BUILD, "--model", "scripted:script.jsonl", "--scaffold", "seed"]
    assert cli([*words, "--out", "runs/b", "--record", "tape-b"]) == 0
    assert (
        "memory holds 4 train experiences of toy, and a replay has none" in capsys.readouterr().err
    )
    assert cli([*words, "--out", "runs/c"]) == 0
    assert "a replay has none" not in capsys.readouterr().err


def test_leaving_out_what_was_asked_is_said_of_a_recording(go: Go) -> None:
    code, told = go(*BUILD, "--model", "scripted:script.jsonl", "--record-replies-only")
    assert (code, told["error"]["fix"]) == (2, "give --record DIR too")


def test_a_cassette_says_what_it_is(recorded: dict[str, Any], workspace: Path) -> None:
    about = read_about(workspace / "tape")
    assert (about.version, about.command, about.settings["rounds"]) == (1, "build", 2)
    assert about.models["agent"].name == "scripted:script.jsonl"
    assert about.cost["calls"] == recorded["spend"]["calls"]
    assert about.end == {"status": "done", "scaffold": recorded["scaffold"]["digest"]}
    raw = gzip.decompress((workspace / "tape" / PACKED).read_bytes())
    assert (about.lines, about.bytes) == (raw.count(b"\n"), len(raw))
    assert about.packed == (workspace / "tape" / PACKED).stat().st_size < len(raw) / 4
    assert not (workspace / "tape" / LINES).exists()


def test_a_tool_that_answers_otherwise_stops_the_replay_at_that_call_and_shows_the_two_requests(
    go: Go,
    recorded: dict[str, Any],
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from recreate.agents import attempt

    was = attempt.Attempt.act

    def act(self: Any, *args: Any) -> Any:
        output, text = was(self, *args)
        return output, text + "a new word"

    monkeypatch.setattr(attempt.Attempt, "act", act)
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
    from recreate.agents import attempt

    was, took = attempt.Attempt.act, ["0.31s"]

    def act(self: Any, *args: Any) -> Any:
        output, text = was(self, *args)
        return output, f"{text}\n1 passed in {took[0]}\n"

    monkeypatch.setattr(attempt.Attempt, "act", act)
    code, built = go(
        *BUILD, "--rounds", "1", "--model", "scripted:script.jsonl", "--out", "runs/a", *TAPE
    )
    assert code == 0
    took[0] = "4.07s"
    assert cli(["build", "--replay", "tape", "--out", "runs/b", "--json"]) == 0
    said = capsys.readouterr()
    assert outcome(json.loads(said.out)) == outcome(built)
    assert "requests differed from the recorded ones in times" in said.err


def steady(printed: str) -> str:
    return Request.of(
        "m", [{"role": "user", "content": f"ran\n{printed}\n[exit status 0]"}], {}
    ).steady


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("1 passed in 0.31s", "1 passed in 4.07s"),
        ("real\t0m0.412s", "real\t2m4.8s"),
        ("Thu Nov 26 16:39:02 UTC 2026", "Fri Nov 27 06:00:11 UTC 2026"),
        ("<A object at 0x7f3a9c0b1d50>", "<A object at 0x55d0aa31>"),
        ("/tmp/tmpab_1x/f", "/tmp/pip-77/f"),
        (
            "-rw-r--r--  1 agent agent  946 Nov 26 19:25 a.py",
            "-rw-r--r--  1 agent agent 1946 Nov 27 01:25 a.py",
        ),
        ("1795731608.904913324", "1795733604.317325720"),
        ("f\n  2.4\n0.31", "f\n  12.04\n1.0"),
        (str(UIDS[0]), str(UIDS[-1])),
        (
            f"uid={UIDS[1]}(agent) gid={UIDS[1]}(agent)",
            f"uid={UIDS[-2]}(agent) gid={UIDS[-2]}(agent)",
        ),
    ],
)
def test_what_wavers_by_itself_is_the_same_request(then: str, now: str) -> None:
    assert steady(then) == steady(now)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("1 passed", "2 passed"),
        ("a.py", "b.py"),
        ("score 0.31", "score 0.32"),
        ("f\n 2.4 ", "f\n 2.5 "),
        ("31", "32"),
        (str(UIDS[0]), str(UIDS[0] - 1)),
        (str(UIDS[-1]), str(UIDS[-1] + 1)),
        (str(UIDS[0]), f"{UIDS[0]}0"),
        ("1079573160", "1079573161"),
    ],
)
def test_what_says_something_else_is_another_request(then: str, now: str) -> None:
    assert steady(then) != steady(now)


def test_the_number_of_any_sandboxes_user_wavers() -> None:
    assert len({steady(f"{uid}:{uid}") for uid in UIDS}) == 1


def test_another_grade_stops_the_replay(
    go: Go, recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from recreate.api.types import Grade
    from tests.toy import Toy

    monkeypatch.setattr(Toy, "grade", lambda *_: Grade(score=1.0, passed=True))
    code, found = go("build", "--replay", "tape", "--out", "runs/b", "--jobs", "1")
    assert (code, found["expected"], found["got"]) == (4, 0.0, 1.0)


@pytest.mark.slow
def test_a_run_and_a_bench_are_replayed_too(go: Go, workspace: Path) -> None:
    model = ("--domain", "tests.toy:Toy", "--model", "scripted:script.jsonl")
    code, first = go("run", "seed", "toy:train:0", *model, "--record", "one")
    assert code == 0
    code, bench = go(
        "bench", "--scaffold", "seed", *model, "--tasks", "3", "--repeats", "2", "--record", "many"
    )
    assert code == 0
    (workspace / "script.jsonl").unlink()
    code, again = go("run", "seed", "toy:train:0", "--replay", "one", "--out", "runs/again")
    assert (code, again["experience"], again["score"]) == (0, first["experience"], first["score"])
    code, cells = go(
        "bench", "--scaffold", "seed", "--tasks", "3", "--replay", "many", "--out", "runs/more"
    )
    assert (code, measured(cells)) == (0, measured(bench))
    code, found = go("run", "seed", "toy:train:1", "--replay", "one", "--out", "runs/other")
    assert (code, found["expected"]) == (4, None)


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
        (("--record", "two"), "usage"),
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


def no_replies(folder: Path) -> None:
    (folder / PACKED).unlink()


def about_edited(folder: Path) -> None:
    text = (folder / ABOUT).read_bytes()
    (folder / ABOUT).write_bytes(text.replace(b'"rounds":2', b'"rounds":3'))


@pytest.mark.parametrize(
    "spoil", [cut, a_line_less, another_order, a_word_changed, no_replies, about_edited]
)
def test_a_cassette_that_was_cut_or_edited_is_refused(
    go: Go, recorded: dict[str, Any], workspace: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(workspace / "tape")
    code, found = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, found["error"]["code"]) == (2, "damaged")
    assert "record it again" in found["error"]["fix"]
    assert not (workspace / "runs/b").exists()


@pytest.mark.parametrize(("version", "says"), [(2, "pull"), (0, "record it again")])
def test_a_cassette_of_another_version_is_refused_with_what_to_type(
    go: Go, recorded: dict[str, Any], workspace: Path, version: int, says: str
) -> None:
    record = unseal((workspace / "tape" / ABOUT).read_bytes()) or {}
    (workspace / "tape" / ABOUT).write_bytes(seal({**record, "version": version}))
    code, found = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, found["error"]["code"]) == (2, "other-version")
    assert says in found["error"]["fix"]


def test_a_packed_file_that_is_longer_than_it_says_is_refused_before_it_is_read(
    recorded: dict[str, Any], workspace: Path
) -> None:
    packed = workspace / "tape" / PACKED
    with packed.open("ab") as out:
        out.write(gzip.compress(bytes(200_000_000), 1))
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="more than it says"):
            Cassette(workspace / "tape")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_a_file_that_is_no_recording_is_not_taken_for_one(workspace: Path) -> None:
    (workspace / "keys").mkdir()
    (workspace / "keys" / LINES).write_text("mine\n")
    with pytest.raises(BadInput, match="holds"):
        Recording(workspace / "keys", read_about_of_nothing())
    assert (workspace / "keys" / LINES).read_text() == "mine\n"


def test_a_cassette_whose_recording_ended_before_an_agent_was_read_is_refused(
    go: Go, recorded: dict[str, Any], workspace: Path
) -> None:
    about = unseal((workspace / "tape" / ABOUT).read_bytes()) or {}
    (workspace / "tape" / ABOUT).write_bytes(seal({**about, "lines": None}))
    (workspace / "tape" / PACKED).unlink()
    code, found = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, found["error"]["code"]) == (2, "damaged")
    assert "no agent" in found["error"]["message"]


def test_what_is_no_cassette_is_refused(go: Go, workspace: Path) -> None:
    code, found = go("build", "--replay", "nowhere")
    assert (code, found["error"]["code"]) == (2, "no-cassette")


@pytest.mark.slow
def test_a_cassette_is_not_written_over(go: Go, recorded: dict[str, Any], workspace: Path) -> None:
    code, found = go(*BUILD, "--model", "scripted:script.jsonl", "--out", "runs/b", *TAPE)
    assert (code, found["error"]["code"]) == (2, "cassette-exists")
    assert not (workspace / "runs/b").exists()
    assert go("build", "--replay", "tape", "--out", "runs/c")[0] == 0


def test_two_recordings_do_not_share_a_folder_and_the_first_goes_on(
    recorded: dict[str, Any], workspace: Path
) -> None:
    about = read_about(workspace / "tape").model_copy(update={"lines": None})
    call, asked = Call(run=about.run, attempt="a", step=0), {"role": "user", "content": "What?"}
    first = Recording(workspace / "new", about)
    for begun in (False, True):
        with pytest.raises(BadInput, match="another run records into") as e:
            Recording(workspace / "new", about, begun=begun)
        assert e.value.code == "cassette-in-use"
    first.keep("m", [asked], {}, call, Reply(text="That."))
    there = Cassette(workspace / "new")  # what is there can be played while it is recorded
    assert there.find(call, Request.of("m", [asked], {}))["reply"]["text"] == "That."
    first.close()
    assert read_about(workspace / "new").lines == 3
    with pytest.raises(BadInput) as e:
        Recording(workspace / "new", about)
    assert e.value.code == "cassette-exists"


def test_of_two_replies_to_what_differs_in_times_alone_the_last_is_played(
    recorded: dict[str, Any], workspace: Path
) -> None:
    """A run that was resumed went on with the last, also where the first was asked before it was
    killed."""
    about = read_about(workspace / "tape").model_copy(update={"lines": None})
    call = Call(run=about.run, attempt="a", step=0)
    tape = Recording(workspace / "new", about)
    for at, text in (("07:36:01", "first"), ("09:31:02", "last")):
        tape.keep("m", [{"role": "user", "content": f"ended at {at}"}], {}, call, Reply(text=text))
    tape.close()
    asked = Request.of("m", [{"role": "user", "content": "ended at 11:00:00"}], {})
    assert Cassette(workspace / "new").find(call, asked)["reply"]["text"] == "last"


def test_a_recording_that_ends_while_it_is_read_is_read_with_the_same_command_again(
    recorded: dict[str, Any], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_about(workspace / "tape").model_copy(update={"lines": None})
    monkeypatch.setattr("recreate.models.cassette.read_about", lambda folder: before)
    with pytest.raises(BadInput, match="ended while it was read"):
        Cassette(workspace / "tape")


@pytest.mark.slow
def test_ctrl_c_while_recording_leaves_what_resume_makes_whole(workspace: Path, go: Go) -> None:
    write_script(workspace / "slow.jsonl", delay_ms=100)
    words = [*BUILD, "--model", "scripted:slow.jsonl", "--out", "runs/a", *TAPE, "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    asked = subprocess.Popen(
        [sys.executable, "-m", "recreate", *words], stdout=subprocess.PIPE, env=env
    )
    while (
        not (workspace / "tape" / LINES).exists()
        or b'"kind":"grade"' not in (workspace / "tape" / LINES).read_bytes()
    ):
        assert asked.poll() is None
        time.sleep(0.05)
    asked.send_signal(signal.SIGINT)
    asked.communicate(timeout=60)
    assert asked.returncode == 130
    part = read_about(workspace / "tape")
    assert part.lines is not None
    code, built = go("resume", "runs/a")
    assert (code, built["status"]) == (0, "done")
    (workspace / "slow.jsonl").unlink()
    code, again = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, outcome(again)) == (0, outcome(built))


@pytest.mark.slow
def test_a_recording_that_was_stopped_goes_on_with_resume_and_is_whole(
    go: Go, workspace: Path
) -> None:
    words = (
        *BUILD,
        "--model",
        "scripted:script.jsonl",
        "--out",
        "runs/a",
        *TAPE,
        "--budget",
        "15attempts",
    )
    code, stopped = go(*words)
    assert (code, stopped["status"]) == (3, "budget")
    part = read_about(workspace / "tape").lines or 0
    code, built = go("resume", "runs/a", "--budget", "500attempts", "--jobs", "3")
    assert (code, built["status"]) == (0, "done")
    assert (read_about(workspace / "tape").lines or 0) > part
    (workspace / "script.jsonl").unlink()
    code, again = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, outcome(again)) == (0, outcome(built))


@pytest.mark.slow
def test_a_killed_recording_is_played_as_far_as_it_goes_and_resume_makes_it_whole(
    go: Go, workspace: Path
) -> None:
    words = (
        *BUILD,
        "--model",
        "scripted:script.jsonl",
        "--out",
        "runs/a",
        *TAPE,
        "--budget",
        "15attempts",
    )
    assert go(*words)[0] == 3
    tape = workspace / "tape"
    record = unseal((tape / ABOUT).read_bytes()) or {}
    # as a kill leaves it
    (tape / LINES).write_bytes(gzip.decompress((tape / PACKED).read_bytes()) + b'{"kind":"rep')
    (tape / PACKED).unlink()
    (tape / ABOUT).write_bytes(seal({**record, "lines": None, "end": {}}))
    code, found = go("build", "--replay", "tape", "--out", "runs/b", "--budget", "500attempts")
    assert (code, found["expected"]) == (4, None)
    assert "not finished" in found["error"]["message"]
    assert go("resume", "runs/a", "--budget", "500attempts")[0] == 0
    assert go("build", "--replay", "tape", "--out", "runs/c")[0] == 0


def test_a_run_begun_without_a_cassette_cannot_be_recorded_from_its_middle(
    go: Go, workspace: Path
) -> None:
    words = (
        "bench",
        "--scaffold",
        "seed",
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:script.jsonl",
    )
    assert go(*words, "--tasks", "2", "--out", "runs/a")[0] == 0
    code, found = go(*words, "--tasks", "3", "--out", "runs/a", *TAPE)
    assert (code, found["error"]["code"]) == (2, "not-recorded")


def test_no_key_is_on_a_cassette(go: Go, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-proj-" + "Zk3vQ9xL2mN8pR5tW7yB4cD6fG1hJ0aS" * 2
    monkeypatch.setenv("SOME_API_KEY", key)
    recorder = Recording(workspace / "keys", read_about_of_nothing())
    call = Call(run="r", attempt="a", step=0)
    params = {"max_tokens": 5, "stop": key}
    recorder.keep(
        "m",
        [{"role": "user", "content": f"the key is {key}"}],
        params,
        call,
        Transient(f"not with {key}"),
    )
    recorder.keep("m", [{"role": "user", "content": "hello"}], {}, call, Reply(text="ok"))
    recorder.close()
    text = (
        gzip.decompress((workspace / "keys" / PACKED).read_bytes())
        + (workspace / "keys" / ABOUT).read_bytes()
    )
    assert key.encode() not in text
    assert b"redacted" in text


def read_about_of_nothing() -> Any:
    from recreate.api.ports import Price
    from recreate.models.cassette import About, Answerer

    agent = Answerer(name="m", price=Price())
    return About(
        run="r", command="", domain="d", sandbox="none", settings={}, models={"agent": agent}
    )


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
    code, built = go(*BUILD, "--model", "scripted:script.jsonl", "--out", "runs/a", *TAPE)
    assert code == 0
    assert built["set_aside"]
    (workspace / "script.jsonl").unlink()
    code, again = go("build", "--replay", "tape", "--out", "runs/b")
    assert (code, outcome(again)) == (0, outcome(built))


def test_a_request_is_the_same_whatever_its_patience_and_another_with_any_other_part() -> None:
    said: list[Any] = [{"role": "user", "content": "hello"}]
    params = {"max_tokens": 5, "seed": 1, "timeout": 3.0}
    one = Request.of("m", said, params).digest
    assert Request.of("m", said, {**params, "timeout": 9.0}).digest == one
    others = [
        ("n", said, params),
        ("m", [*said, *said], params),
        ("m", said, {**params, "seed": 2}),
    ]
    others += [
        ("m", said, {**params, "tools": [{"type": "function"}]}),
        ("m", said, {**params, "max_tokens": 6}),
    ]
    assert len({one, *(Request.of(*other).digest for other in others)}) == 6


# -------------------------------------------------------------------------------------------------
# the cache

BENCH = (
    "bench",
    "--scaffold",
    "seed",
    "--domain",
    "tests.toy:Toy",
    "--tasks",
    "3",
    "--repeats",
    "2",
    "--fresh",
)


def test_cached_replies_are_asked_once_over_runs_and_cost_nothing(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Stub("```bash\nsubmit\n```") as stub:
        words = (*BENCH, "--model", f"openai:{stub.url}#stub", "--price", "1000,1000", "--cache")
        code, first = go(*words, "--out", "runs/a")
        asked = stub.count
        assert (code, asked) == (0, 6)  # each repeat was asked for itself
        code, again = go(*words, "--out", "runs/b", "--jobs", "1")
        assert (code, measured(again), stub.count) == (0, measured(first), asked)
    code, shown = go("show", "runs/b")
    assert (shown["spend"]["usd"], shown["spend"]["tokens_in"], shown["spend"]["cached"]) == (
        0.0,
        0,
        6,
    )
    assert cli(["show", "runs/b"]) == 0
    assert " min; 6 calls were cached, which cost nothing\n" in capsys.readouterr().out
    code, shown = go("show", "runs/a")
    assert shown["spend"]["usd"] > 0
    assert "cached" not in shown["spend"]


def test_a_cached_call_is_made_though_the_budget_could_not_pay_for_it(
    go: Go, workspace: Path
) -> None:
    with Stub("```bash\nsubmit\n```") as stub:
        words = (
            *BENCH,
            "--model",
            f"openai:{stub.url}#stub",
            "--price",
            "1000,1000",
            "--cache",
            "kept",
        )
        assert go(*words, "--out", "runs/a")[0] == 0
        assert go(*words, "--out", "runs/b", "--budget", "0.01usd")[0] == 0
        assert go(*words[:-2], "--out", "runs/c", "--budget", "0.01usd")[0] == 3
    assert ReplyCache(workspace / "kept").size()[0] == 6


def test_cached_calls_are_replayed_as_such_though_the_budget_could_not_pay_for_them(
    go: Go, workspace: Path
) -> None:
    with Stub("```bash\nsubmit\n```") as stub:
        words = (
            *BENCH,
            "--model",
            f"openai:{stub.url}#stub",
            "--price",
            "1000,1000",
            "--cache",
            "kept",
        )
        assert go(*words, "--out", "runs/a")[0] == 0
        code, cached = go(*words, "--out", "runs/b", "--budget", "0.01usd", *TAPE)
        assert code == 0
    code, again = go(*BENCH, "--replay", "tape", "--out", "runs/c")
    assert (code, measured(again)) == (0, measured(cached))
    assert go("show", "runs/c")[1]["spend"]["cached"] == 6


def test_a_cache_that_cannot_be_one_is_refused(go: Go, workspace: Path) -> None:
    (workspace / "notes.txt").write_text("mine")
    code, found = go(*BENCH, "--model", "scripted:script.jsonl", "--cache", "notes.txt")
    assert (code, found["error"]["code"]) == (2, "bad-cache")


def test_failed_calls_are_never_kept(go: Go, workspace: Path) -> None:
    with Stub("```bash\nsubmit\n```", faults=[500] * 6) as stub:
        words = (
            *BENCH,
            "--model",
            f"openai:{stub.url}#stub",
            "--price",
            "0,0",
            "--cache",
            "--models.retries",
            "0",
        )
        go(*words, "--out", "runs/a", "--jobs", "1")
        code, cells = go(*words, "--out", "runs/b", "--jobs", "1")
        assert (code, cells["cells"][0]["set_aside"]) == (0, 0)
    assert ReplyCache(folder_of("on")).size()[0] == 6


def test_a_damaged_cached_reply_is_asked_anew_and_a_repeat_is_never_served_anothers(
    workspace: Path,
) -> None:
    cache = ReplyCache(workspace / "kept")
    call = Call(run="r", attempt="a", step=0)
    question: tuple[str, list[Any], dict[str, Any]] = (
        "m",
        [{"role": "user", "content": "hello"}],
        {"seed": 1},
    )
    cache.put(*question, call, Reply(text="one"))
    found = cache.get(*question, call.model_copy(update={"run": "another", "attempt": "b"}))
    assert found is not None
    assert (found.text, found.from_cache) == ("one", True)
    assert cache.get(*question, call.model_copy(update={"repeat": 1})) is None
    assert cache.get(*question, call.model_copy(update={"sample": 1})) is None
    cache.put(*question, call.model_copy(update={"repeat": 1}), Reply(text="two", doubtful=True))
    assert cache.get(*question, call.model_copy(update={"repeat": 1})) is None
    (file,) = (workspace / "kept").glob("??/*.json")
    file.write_bytes(file.read_bytes().replace(b"one", b"two"))
    assert cache.get(*question, call) is None


def test_a_script_that_was_edited_is_another_model(workspace: Path) -> None:
    model = f"scripted:{workspace}/s.jsonl"
    (workspace / "s.jsonl").write_text("a")
    cache, call = ReplyCache(workspace / "kept"), Call(run="r", attempt="a", step=0)
    cache.put(model, [], {}, call, Reply(text="one"))
    assert cache.get(model, [], {}, call) is not None
    (workspace / "s.jsonl").write_text("ab")
    assert cache.get(model, [], {}, call) is None


def test_clean_says_what_is_cached_and_removes_it_when_asked(go: Go) -> None:
    cache = ReplyCache(folder_of("on"))
    cache.put("m", [], {}, Call(run="r", attempt="a", step=0), Reply(text="one"))
    code, found = go("clean")
    assert (code, found["replies"]["count"], found["replies"]["removed"]) == (0, 1, False)
    code, found = go("clean", "--replies", "--dry-run")
    assert (found["replies"]["removed"], cache.size()[0]) == (False, 1)
    code, found = go("clean", "--replies")
    assert (code, found["replies"]["removed"], cache.size()) == (0, True, (0, 0))


def test_a_cassette_is_read_by_its_own_kind_of_reader(
    recorded: dict[str, Any], workspace: Path
) -> None:
    tape = Cassette(workspace / "tape")
    assert [name for name, _ in tape.agents.values()] == ["seed"]
