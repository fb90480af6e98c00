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

from recreate.api.types import Edit, Evidence
from recreate.cli import run
from recreate.viewer.text import reasons
from tests.toy import LESSON, write_script

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


@pytest.mark.plugin("traces")
@pytest.mark.slow
def test_log_has_a_line_per_revision_with_its_evidence_and_verdict(ask: Ask, say: Say) -> None:
    (revision,) = ask("log", "last")
    (edit,) = revision["edits"]
    assert edit["path"].startswith("memory/")
    assert (edit["old"], edit["origin"]) == ("", "experience")
    assert LESSON in edit["new"]
    assert edit["reason"]
    (cited,) = edit["evidence"]
    assert ask("traces", "show", cited["experience"])[0]["split"] == "train"
    assert revision["verdict"]["verdict"] == "better"
    code, out, _ = say("log", "runs/a")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 2)
    assert "kept" in lines[0]
    assert edit["path"] in lines[0]
    assert "nothing" in lines[1]


def test_show_tells_a_run(ask: Ask, say: Say, built: Path) -> None:
    (record,) = ask("show", "last")
    (revision,) = ask("log", "last")
    assert record["run"] == str(built / "runs" / "a")
    assert record["status"] == "done"
    assert record["settings"]["validation"] == 6
    assert record["revisions"] == [{k: v for k, v in revision.items() if k != "schema"}]
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


@pytest.mark.plugin("traces")
def test_looking_changes_nothing(say: Say, built: Path) -> None:
    def state() -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in (built / "runs").rglob("*") if p.is_file()}

    before = state()
    for words in (["log"], ["show"], ["traces", "list", "last"], ["diff", "seed", "a"]):
        assert say(*words)[0] == 0
    assert state() == before


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

KEYS = {"experience", "task", "split", "digest", "ending", "passed", "score", "steps", "evidence"}


@pytest.mark.plugin("traces")
def test_traces_are_listed_from_memory_and_from_a_run_alike(ask: Ask, say: Say) -> None:
    remembered, of_run = ask("traces", "list"), ask("traces", "list", "last")
    assert len(remembered) == 16
    assert all(set(row) >= KEYS for row in remembered)
    by_id = {row["experience"]: row for row in remembered}
    assert by_id == {row["experience"]: row for row in of_run}
    assert len(say("traces", "list")[1].splitlines()) == 16


@pytest.mark.plugin("traces")
@pytest.mark.parametrize("source", [[], ["last"]])
def test_traces_are_filtered(ask: Ask, source: list[str]) -> None:
    def ids(*flags: str) -> set[str]:
        return {row["experience"] for row in ask("traces", "list", *source, *flags)}

    everything = {row["experience"]: row for row in ask("traces", "list", *source)}
    assert ids("--passed") == {i for i, row in everything.items() if row["passed"]}
    assert ids("--failed") == {i for i, row in everything.items() if not row["passed"]}
    assert ids("--split", "train") == {
        i for i, row in everything.items() if row["split"] == "train"
    }
    task = next(iter(everything.values()))["task"]
    assert ids("--task", task, "--passed") == {
        i for i, row in everything.items() if row["task"] == task and row["passed"]
    }
    assert ids("--domain", "toy") == set(everything)
    assert ids("--domain", "other") == set()


@pytest.mark.plugin("traces")
def test_a_trace_is_shown_step_by_step(ask: Ask, say: Say, built: Path) -> None:
    whole = ask("traces", "list", "--failed")[0]
    (row,) = ask("traces", "show", whole["experience"][:8])
    assert row == whole
    assert row["steps"][0]["reply"].startswith("```bash")
    assert ask("traces", "show", whole["experience"], "--run", "a") == [row]
    _, out, _ = say("traces", "show", whole["experience"])
    assert row["prompt"] in out
    assert row["steps"][0]["reply"] in out
    assert row["evidence"] in out
    assert "! failed" in out


@pytest.mark.plugin("traces")
def test_an_unknown_trace_is_bad_input(say: Say) -> None:
    for words in (["zz"], [""], ["zz", "--run", "last"]):
        code, out, _ = say("traces", "show", *words, "--json")
        assert (code, json.loads(out)["error"]["code"]) == (2, "no-attempt")
    assert say("traces", "list", "--split", "tset")[0] == 2


@pytest.mark.plugin("traces")
def test_long_texts_are_folded_errors_marked_and_nothing_moves_the_cursor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from recreate.api.types import Experience, Grade, Step, Trace
    from recreate.cli.terminal import show
    from recreate.plugins.traces.attempts import _text

    long = "start " + "x" * 5000 + " end"
    steps = (
        Step(step=0, reply=long, action="ls", output="\x1b[2Jgone\rover\n", status=3),
        Step(step=1, kind="malformed", reply="what?"),
    )
    trace = Trace(attempt="a", task="t", scaffold="s", model="m", steps=steps)
    one = Experience(
        id="a",
        domain="d",
        task="t",
        group="g",
        split="train",
        prompt="p",
        digest="s",
        trace=trace,
        grade=Grade(score=0.0, passed=False, evidence="no"),
    )
    show(*_text(one, full=False))
    out = capsys.readouterr().out
    assert "start" in out
    assert " end" in out
    assert long not in out
    assert "--full" in out
    assert "exit status 3" in out
    assert "could not be read" in out
    assert "\x1b" not in out
    assert "\r" not in out
    assert "$ ls" in out
    show(*_text(one, full=True))
    assert long in capsys.readouterr().out


@pytest.mark.plugin("traces")
def test_traces_are_found_by_their_words(ask: Ask, say: Say) -> None:
    found = ask("traces", "search", "ASSERTIONERROR", "end")
    assert {row["experience"] for row in found} == {
        r["experience"] for r in ask("traces", "list", "--failed")
    }
    assert all("AssertionError" in row["matches"][0]["text"] for row in found)
    (hit,) = ask("traces", "search", "AssertionError", "--failed", "--task", found[0]["task"])
    assert set(hit) >= KEYS
    assert say("traces", "search", "AssertionError", "--passed")[1] == ""
    _, out, err = say("traces", "search", "no such words anywhere")
    assert out == ""
    assert "no attempt" in err


@pytest.mark.plugin("memory_tools")
def test_memory_is_counted_and_recalled_within_what_the_reader_may_see(ask: Ask, say: Say) -> None:
    (stats,) = ask("memory", "stats")
    assert (stats["experiences"], stats["splits"]) == (16, {"train": 4, "validation": 12})
    (found,) = ask("memory", "recall", "write", "the", "word", "-k", "4", "--where", "domain=toy")
    assert 0 < len(found["hits"]) <= 4
    assert {hit["split"] for hit in found["hits"]} == {"train"}
    assert all({"id", "grain", "score", "split"} <= set(hit) for hit in found["hits"])
    (found,) = ask("memory", "recall", "word", "--as", "human", "--where", "split=validation")
    assert {hit["split"] for hit in found["hits"]} == {"validation"}
    (found,) = ask("memory", "recall", "word", "--as", "agent", "--where", "split=validation")
    assert found["hits"] == []
    for words, said in (
        (
            ["word", "--as", "agent", "--where", "split=validation"],
            "nothing that this reader may see matches under split",
        ),
        (
            ["zebra", "--how", "keywords"],
            "nothing that this reader may see matches; --how hybrid",
        ),
    ):
        assert said in say("memory", "recall", *words)[2]
    (again,) = ask("memory", "rebuild")
    assert again["experiences"] == 16
    assert ask("memory", "rebuild")[0]["digest"] == again["digest"] != ""
    for wrong in (["--where", "domain"], ["--where", "flavour=x"], ["--as", "god"]):
        assert say("memory", "recall", "x", *wrong)[0] == 2


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
