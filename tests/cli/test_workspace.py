"""init, doctor, list, models, sandbox exec and scaffold check."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped, workspace
from recreate.cli import run
from recreate.runs.settings import Settings, addresses, load
from tests.toy import write_script

Ask = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command with --json: exit code and the objects it printed."""

    def ask(*words: str) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = run([*words, "--json"])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return ask


# --- init ---


def test_init_makes_a_workspace(ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "place"
    code, (said,) = ask("init", str(folder))
    assert code == 0
    assert said["path"] == str(folder)
    assert "recreate build" in said["next"]
    assert all((folder / name).is_file() for name in said["files"])
    assert {"recreate.toml", ".gitignore", "scaffolds/seed/agent.toml"} <= set(said["files"])
    assert workspace(folder / "memory") == folder
    assert load(folder, {}, {}) == Settings()
    for seed in shipped("scaffolds").glob("seed*/agent.toml"):
        copy = scaffolds.load(folder / "scaffolds" / seed.parent.name)
        assert copy.digest == scaffolds.load(seed.parent).digest
        assert all(
            os.access(folder / "scaffolds" / copy.name / path, os.X_OK)
            for path in copy.tools.values()
        )


def test_every_setting_is_explained_and_its_line_works_when_uncommented(tmp_path: Path) -> None:
    assert run(["init", str(tmp_path / "w")]) == 0
    text = (tmp_path / "w" / "recreate.toml").read_text()
    wanted = [
        line
        for line in text.splitlines()
        if line.startswith("[") or " = " in line.partition("`")[0]
    ]
    (tmp_path / "w" / "recreate.toml").write_text(
        "\n".join(line.removeprefix("# ") for line in wanted)
    )
    found = tomllib.loads((tmp_path / "w" / "recreate.toml").read_text())
    flat = {k: v for k, v in found.items() if not isinstance(v, dict)}
    flat |= {
        f"{t}.{k}": v
        for t, table in found.items()
        if isinstance(table, dict)
        for k, v in table.items()
    }
    assert set(flat) == set(addresses())
    assert load(tmp_path / "w", {}, {}) == Settings()


def test_init_overwrites_nothing(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "scaffolds").mkdir()
    (tmp_path / "scaffolds" / "mine.txt").write_text("mine")
    code, (error,) = ask("init", str(tmp_path))
    assert (code, error["error"]["code"]) == (2, "exists")
    assert "scaffolds" in error["error"]["message"]
    assert not (tmp_path / "recreate.toml").exists()
    assert (tmp_path / "scaffolds" / "mine.txt").read_text() == "mine"
    (tmp_path / "file").write_text("")
    assert ask("init", str(tmp_path / "file"))[0] == 2


def test_init_in_a_project_keeps_what_git_ignores_there(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log")
    assert run(["init", str(tmp_path)]) == 0
    lines = (tmp_path / ".gitignore").read_text().splitlines()
    assert lines[0] == "*.log"
    assert "/runs/" in lines
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for made in (
        "runs/a/journal.jsonl",
        "memory/swe/experiences/r.jsonl",
        "memory/index/memory.sqlite",
    ):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("x")
    listed = subprocess.run(
        ["git", "-C", tmp_path, "status", "--porcelain", "-uall"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "recreate.toml" in listed
    assert not any(word in listed for word in ("runs/", "experiences", "index"))


# --- doctor ---


def checks(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in record["checks"]}


def test_doctor_says_what_works(ask: Ask, workspace: Path) -> None:
    code, (record,) = ask("doctor")
    found = checks(record)
    assert code == 0
    assert record["sandbox"] in ("bwrap", "unshare")
    assert {"python", "git", "sandbox", "home", "default model", "keys", "extra.local"} <= set(
        found
    )
    assert all({"name", "ok", "detail", "fix"} <= set(c) for c in record["checks"])
    assert all(c["ok"] != bool(c["fix"]) for c in record["checks"])
    assert "package index" not in found
    assert found["default model"]["ok"] is False
    assert found["default model"]["fix"]


def test_a_needed_thing_that_is_missing_exits_4_and_says_what_to_type(
    ask: Ask, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(workspace))
    code, (record,) = ask("doctor")
    git = checks(record)["git"]
    assert (code, git["ok"]) == (4, False)
    assert "install" in git["fix"]


def test_doctor_names_keys_and_never_shows_them(
    ask: Ask, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "no-one-may-see-this")
    _, (record,) = ask("doctor")
    assert "ANTHROPIC_API_KEY" in checks(record)["keys"]["detail"]
    assert "no-one-may-see-this" not in json.dumps(record)


def test_doctor_finds_a_broken_settings_file_and_a_home_that_is_none(
    ask: Ask, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "recreate.toml").write_text("rouns = 1\n")
    (workspace / "file").write_text("")
    monkeypatch.setenv("RECREATE_HOME", str(workspace / "file"))
    code, (record,) = ask("doctor")
    found = checks(record)
    assert code == 4
    assert "rounds" in found["settings"]["fix"]
    assert "RECREATE_HOME" in found["home"]["fix"]


def test_doctor_asks_the_index_only_when_told_to(
    ask: Ask, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:word@127.0.0.1:9/simple/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    code, (record,) = ask("doctor", "--online")
    index = checks(record)["package index"]
    assert (code, index["ok"]) == (0, False)
    assert "word" not in json.dumps(index)


# --- list, models ---


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("model", "scripted"),
        ("sandbox", "none"),
        ("domain", "rows"),
        ("optimizer", "reflect"),
        ("embedder", "hashed"),
        ("scaffold", "seed"),
    ],
)
def test_the_parts_of_a_kind_are_listed_with_where_they_come_from(
    ask: Ask, workspace: Path, kind: str, name: str
) -> None:
    code, rows = ask("list", kind)
    (row,) = [r for r in rows if r["name"] == name]
    assert code == 0
    assert (row["schema"], row["kind"]) == (1, kind)
    assert row["state"]
    assert row["source"].startswith(("built in", "shipped"))


def test_a_scaffold_of_the_workspace_hides_the_shipped_one(ask: Ask, workspace: Path) -> None:
    scaffolds.save(scaffolds.load(shipped("scaffolds") / "seed"), workspace / "scaffolds" / "seed")
    (workspace / "scaffolds" / "broken").mkdir()
    (workspace / "scaffolds" / "broken" / "agent.toml").write_text("")
    rows = {row["name"]: row for row in ask("list", "scaffolds")[1]}
    assert rows["seed"]["source"].startswith("workspace")
    assert "missing" in rows["broken"]["state"]


def test_an_unknown_kind_names_the_near_one(ask: Ask, workspace: Path) -> None:
    code, (error,) = ask("list", "modle")
    assert (code, error["error"]["code"]) == (2, "unknown-kind")
    assert "'model'" in error["error"]["fix"]


def test_a_download_tells_bytes_share_and_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from recreate.cli import terminal

    now = iter((0.0, 1.0, 11.0, 12.0))
    # its own clock alone
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: next(now)))
    with terminal.Progress("tiny") as progress:
        for done in (0, 1_000_000, 110_000_000, 200_000_000):
            progress(done, 200_000_000)
    first, last = capsys.readouterr().err.splitlines()
    assert first == "tiny: 110 of 200 MB (55%), 10.0 MB/s"
    assert last.startswith("tiny: 200 of 200 MB (100%)")


# --- sandbox exec ---


def test_the_childs_exit_code_and_output_are_ours(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sandbox", "exec", "--", "bash", "-c", "echo hello; echo bad >&2; exit 7"]) == 7
    out, err = capsys.readouterr()
    assert out == "hello\nbad\n"
    assert "exit code 7" in err
    assert any(backend in err for backend in ("bwrap", "unshare"))


def test_the_backend_is_chosen_by_flag_else_by_setting(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "recreate.toml").write_text('sandbox = "none"\n')
    assert run(["sandbox", "exec", "--json", "true"]) == 0
    assert json.loads(capsys.readouterr().out)["rung"] == "none"
    assert run(["sandbox", "exec", "--json", "--rung", "unshare", "--", "true"]) == 0
    assert json.loads(capsys.readouterr().out)["rung"] == "unshare"
    assert run(["sandbox", "exec", "--json", "--rung", "bogus", "--", "true"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "unknown-sandbox"


def test_a_command_is_stopped_at_its_time_limit(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sandbox", "exec", "--json", "--timeout", "0.3", "--", "sleep", "30"]) == 124
    found = json.loads(capsys.readouterr().out)
    assert (found["timed_out"], found["limit"], found["status"]) == (True, "seconds", 124)
    assert run(["sandbox", "exec", "--timeout", "0", "true"]) == 2


def test_a_command_sees_a_copy_of_a_folder_and_no_key_of_ours(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "no-one-may-see-this")
    (workspace / "work").mkdir()
    (workspace / "work" / "a.txt").write_text("here\n")
    assert (
        run(
            [
                "sandbox",
                "exec",
                "--dir",
                "work",
                "--",
                "bash",
                "-c",
                "cat a.txt; echo x > a.txt; env",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("here\n")
    assert "SOME_API_KEY" not in out
    assert (workspace / "work" / "a.txt").read_text() == "here\n"


def test_output_that_is_no_text_is_printed_all_the_same(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sandbox", "exec", "--", "printf", r"a\377b"]) == 0
    out = capsys.readouterr().out
    assert (out[0], out[-1]) == ("a", "b")


# --- scaffold check ---


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    folder = tmp_path / "agent"
    scaffolds.save(scaffolds.load(shipped("scaffolds") / "seed"), folder)
    return folder


def test_a_sound_scaffold_has_no_faults(ask: Ask, agent: Path) -> None:
    for named in (str(agent), "seed"):
        code, (record,) = ask("scaffold", "check", named)
        assert (code, record["faults"]) == (0, [])


def test_every_fault_is_listed_with_file_and_line_and_exits_4(
    ask: Ask, agent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (agent / "workflow.md").write_text("{{ task.prompt }}\n{{ nope }}\n")
    (agent / "agent.toml").write_text("stps = 3\n")
    (agent / "tools").mkdir()
    (agent / "tools" / "t.py").write_text(
        '#!/usr/bin/env python3\n"""A tool."""\nimport no_such_package\n'
    )
    code, (record,) = ask("scaffold", "check", str(agent))
    assert code == 4
    found = {fault["file"]: fault for fault in record["faults"]}
    assert set(found) == {"workflow.md", "agent.toml", "tools/t.py"}
    assert found["workflow.md"]["line"] == 2
    assert "nope" in found["workflow.md"]["message"]
    assert found["agent.toml"]["line"] == 1
    assert "no_such_package" in found["tools/t.py"]["message"]
    assert run(["scaffold", "check", str(agent)]) == 4
    assert "workflow.md:2: " in capsys.readouterr().out


def test_a_link_out_of_the_folder_is_a_fault(ask: Ask, agent: Path) -> None:
    (agent / "memory").mkdir()
    (agent / "memory" / "x.md").symlink_to("/etc/passwd")
    code, (record,) = ask("scaffold", "check", str(agent))
    assert code == 4
    (fault,) = record["faults"]
    assert fault["file"] == "memory/x.md"
    assert "outside" in fault["message"]


def test_a_scaffold_that_a_build_has_not_made_yet_is_refused_with_those_there_are(
    ask: Ask, workspace: Path
) -> None:
    code, (error,) = ask("show", "swe")
    assert (code, error["error"]["code"]) == (2, "no-scaffold")
    assert "seed-swe-small" in error["error"]["fix"]
    assert "a build that keeps something makes more" in error["error"]["fix"]


def test_a_folder_that_cannot_be_written_is_named_with_what_to_look_at(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Path.mkdir

    def denied(folder: Path, *more: Any, **flags: Any) -> None:
        if folder.is_relative_to(workspace / "runs"):
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        made(folder, *more, **flags)

    monkeypatch.setattr(Path, "mkdir", denied)
    model = write_script(workspace / "s.jsonl")
    flags = ["--domain", "tests.toy:Toy", "--model", model, "--out", "runs/a", "--validation", "5"]
    assert run(["build", *flags, "--scaffold", "seed", "--memory.embedder", "hashed"]) == 1
    said = capsys.readouterr().err
    assert f"error: {workspace / 'runs' / 'a'} cannot be written: Permission denied" in said
    assert f"ls -ld {workspace}\n" in said, "the nearest folder that is there"


def test_a_missing_file_is_a_fault_and_a_missing_folder_bad_input(ask: Ask, agent: Path) -> None:
    (agent / "system.md").unlink()
    code, (record,) = ask("scaffold", "check", str(agent))
    assert (code, record["faults"][0]["file"]) == (4, "system.md")
    code, (error,) = ask("scaffold", "check", str(agent.parent / "agnet"))
    assert (code, error["error"]["code"]) == (2, "no-scaffold")
    assert "agent" in error["error"]["fix"]
