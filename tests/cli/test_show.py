"""log, show, diff and traces, on a run that a scripted model made."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recreate import models
from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.api.types import Edit, Evidence
from recreate.cli import run
from recreate.viewer.text import reasons
from tests.storage.test_files import not_waiting
from tests.toy import LESSON, write_script

pytestmark = pytest.mark.plugin("each")
Say = Callable[..., tuple[int, str, str]]
Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one build in it, runs/a: one revision is kept, then nothing is proposed."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "recreate.toml").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RECREATE_HOME", str(folder / "home"))
        model = write_script(folder / "script.jsonl")
        flags = [
            "--domain",
            "tests.toy:Toy",
            "--model",
            model,
            "--train",
            "4",
            "--validation",
            "6",
            "--rounds",
            "2",
            "--gate.keep",
            "each",
        ]
        assert run(["build", *flags, "--sandbox", "none", "--out", "runs/a", "--json"]) == 0
    return folder


@pytest.fixture
def say(built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command in the workspace: (exit code, stdout, stderr)."""
    monkeypatch.chdir(built)
    capsys.readouterr()

    def say(*words: str) -> tuple[int, str, str]:
        code = run(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return say


@pytest.fixture
def ask(say: Say) -> Ask:
    """Runs a command with --json: the objects it printed."""

    def ask(*words: str) -> list[dict[str, Any]]:
        code, out, err = say(*words, "--json")
        assert code == 0, err
        rows = [json.loads(line) for line in out.splitlines()]
        assert all(row["schema"] == 1 for row in rows)
        return rows

    return ask


# --- log, show ---


def test_show_tells_a_run(ask: Ask, say: Say, built: Path) -> None:
    (record,) = ask("show", "last")
    (revision,) = ask("log", "last")
    assert record["run"] == str(built / "runs" / "a")
    assert record["status"] == "done"
    assert record["settings"]["validation"] == 6
    (shown,) = record["revisions"]
    assert {**shown, "schema": 1} == {**revision, "parts": shown["parts"]}
    assert (
        record["scaffold"]["digest"]
        == revision["id"]
        != record["seed"]["digest"]
        == revision["parent"]
    )
    assert record["validation"] == revision["verdict"]
    assert record["attempts"]["train"]["attempts"] == 4
    assert record["attempts"]["validation"] == {"attempts": 12, "passed": 6}
    assert (
        record["spend"]["by_role"]["agent"]["calls"]
        + record["spend"]["by_role"]["optimizer"]["calls"]
    )
    assert record["set_aside"] == []
    _, out, _ = say("show")
    assert revision["edits"][0]["reason"] in out
    assert revision["edits"][0]["evidence"][0]["experience"] in out


def test_show_tells_one_revision_with_its_diff(ask: Ask, say: Say) -> None:
    (revision,) = ask("log", "last")
    (shown,) = ask("show", "last", revision["id"][:6])
    assert {k: shown[k] for k in revision} == revision
    assert f"+{LESSON}" in shown["diff"].splitlines()
    assert f"+{LESSON}" in say("show", "last", revision["id"])[1]
    code, _, err = say("show", "last", "ffff")
    assert code == 2
    assert revision["id"] in err


def test_edits_of_a_file_for_one_reason_are_told_once() -> None:
    once, other = Evidence(experience="a" * 16, step=0), Evidence(experience="b" * 16, step=0)
    edits = [
        Edit(path="t.py", old="x", new="y", reason="bounds", evidence=(once,)),
        Edit(path="t.py", old="u", new="v", reason="bounds", evidence=(once,)),
        Edit(path="w.md", old="u", new="v", reason="bounds", evidence=(once,)),
        Edit(path="t.py", old="p", new="q", reason="bounds", evidence=(other,)),
        Edit(path="t.py", old="y", new="z", reason="bounds", evidence=(once,)),
        Edit(path="n.md", new="z"),
    ]
    told = ["t.py (3 edits): bounds", "w.md: bounds", "t.py: bounds", "n.md: no reason given"]
    assert list(reasons(edits)) == list(
        zip((edits[0], edits[2], edits[3], edits[5]), told, strict=True)
    )


def test_show_tells_an_agents_examples_and_which_of_them_no_prompt_shows(
    ask: Ask, say: Say, tmp_path: Path
) -> None:
    seed = scaffolds.load(shipped("scaffolds") / "seed")
    toml = seed.files["agent.toml"] + "\n[examples]\ntokens = 10\n"
    texts = {f"examples/{n}.md": f"# Of {n}\n\n{n * 40}\n\nborn_of: abc\n" for n in "ab"}
    files = {**seed.files, "agent.toml": toml, **texts}
    scaffolds.save(Scaffold(name="shows", files=files), tmp_path / "shows")
    (record,) = ask("show", str(tmp_path / "shows"))
    assert [(x["title"], x["born_of"]) for x in record["examples"]] == [
        ("Of a", ["abc"]),
        ("Of b", ["abc"]),
    ]
    _, out, _ = say("show", str(tmp_path / "shows"))
    assert "example: Of a (born of abc)\n  aaaa" in out
    assert "example: Of b (born of abc), not shown: over [examples] tokens\n" in out


def test_show_tells_an_agent_in_words(ask: Ask, say: Say) -> None:
    (record,) = ask("show", "toy")
    assert record["digest"] == ask("show", "last")[0]["scaffold"]["digest"]
    assert [lesson["body"] for lesson in record["lessons"]] == [LESSON]
    assert {"agent.toml", "system.md", "workflow.md"} <= {f["path"] for f in record["files"]}
    assert record["agent"]["action"] == "bash"
    _, out, _ = say("show", "toy")
    assert "one bash command a turn" in out
    assert LESSON in out


def test_a_run_that_is_held_is_running_and_one_without_an_end_is_stopped(
    ask: Ask, built: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(built / "runs" / "a", copy)
    journal = (copy / "journal.jsonl").read_text().splitlines(keepends=True)
    (copy / "journal.jsonl").write_text(
        "".join(line for line in journal if '"kind":"end"' not in line)
    )
    assert ask("show", str(copy))[0]["status"] == "stopped"
    held = os.open(copy / "lock", os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert ask("show", str(copy))[0]["status"] == "running"
    finally:
        os.close(held)


# --- diff ---


def test_diff_brings_reasons_and_the_verdict_of_a_run_along(ask: Ask, say: Say) -> None:
    (revision,) = ask("log", "last")
    for a, b in (
        ("runs/a:seed", f"runs/a:{revision['id'][:5]}"),
        ("seed", "a"),
        ("seed", "toy"),
    ):
        (record,) = ask("diff", a, b)
        assert record["edits"] == revision["edits"]
        assert record["verdict"] == revision["verdict"]
        assert f"+{LESSON}" in record["diff"].splitlines()
        assert say("diff", a, b)[1] == record["diff"]


def test_diff_of_two_folders_says_what_changed_and_claims_no_reason(
    ask: Ask, say: Say, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "agent.toml").write_text("")
        (folder / "workflow.md").write_text("{{ task.prompt }}\n")
        (folder / "system.md").write_text(f"I am {folder.name}.\n")
    (record,) = ask("diff", str(one), str(two))
    (edit,) = record["edits"]
    assert (edit["path"], edit["old"], edit["new"]) == ("system.md", "I am one.\n", "I am two.\n")
    assert (edit["reason"], edit["origin"], edit["evidence"], record["verdict"]) == (
        "",
        None,
        [],
        None,
    )
    code, out, err = say("diff", str(one), str(one))
    assert (code, out) == (0, "")
    assert "the same" in err


def test_an_unknown_agent_or_run_names_the_near_ones(say: Say) -> None:
    code, _, err = say("diff", "seed", "toi")
    assert code == 2
    assert "toy" in err
    assert say("log", "nope")[0] == 2
    assert say("diff", "seed", "runs/a:ffff")[0] == 2


# --- traces ---


@pytest.mark.slow
def test_who_proposed_is_named_with_its_model_where_that_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recreate.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    mine, other = write_script(tmp_path / "script.jsonl"), write_script(tmp_path / "other.jsonl")
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        mine,
        "--train",
        "4",
        "--validation",
        "6",
        "--sandbox",
        "none",
    ]
    assert (
        run(
            [
                "build",
                *flags,
                "--models.optimizer",
                other,
                "--name",
                "theirs",
                "--out",
                "runs/theirs",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert run(["show", "runs/theirs"]) == 0
    named = f"with {other}"
    assert named in capsys.readouterr().out.partition("measured")[0]
    assert named in (tmp_path / "runs/theirs/report.md").read_text()
    assert named in (tmp_path / "scaffolds/theirs/README.md").read_text()
    attempt = ["run", "theirs", "toy:train:1", *flags[:4], "--sandbox", "none"]
    assert run([*attempt, "--out", "runs/one"]) == 0
    capsys.readouterr()
    assert run(["show", "runs/one"]) == 0
    assert "optimizer" not in capsys.readouterr().out.partition("attempts")[0]  # it took no part


def test_a_run_that_names_no_model_goes_on_with_its_own(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = "no model is named: using this one"
    monkeypatch.setattr(models, "default_model", lambda: ("scripted:script.jsonl", found))
    monkeypatch.delenv("RECREATE_MODEL", raising=False)
    words = ("--domain", "tests.toy:Toy", "--rounds", "0", "--validation", "6", "--out", "runs/c")
    code, _, err = say("build", *words, "--models.optimizer", "scripted:script.jsonl")
    assert (code, found in err) == (0, True), err
    code, _, err = say("resume", "runs/c")
    assert code == 0, err
    assert found not in err
    assert "settings name no model: it goes on with scripted:script.jsonl" in " ".join(err.split())


@pytest.mark.parametrize("name", ["journal.jsonl", "settings.toml", "ledger.jsonl"])
def test_a_pipe_where_a_file_of_a_run_should_be_is_said_and_not_waited_for(
    say: Say, built: Path, tmp_path: Path, name: str
) -> None:
    run = tmp_path / "a"
    shutil.copytree(built / "runs/a", run)
    (run / name).unlink()
    os.mkfifo(run / name)
    for words in ("show", "log", "resume", "traces list"):
        with not_waiting():
            code, _, err = say(*words.split(), str(run))
        assert (code, "error:" in err) == (2, True)
        assert "is a pipe" in err or name == "settings.toml"
