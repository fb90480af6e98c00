"""The command line as a whole: help, usage errors, settings and their precedence, and mistakes of
our own."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api.errors import BadInput
from recreate.cli import main, options, run
from recreate.cli.app import program
from recreate.runs.settings import as_flags

ROOT = Path(recreate.__file__).parent.parent
HEAVY = (
    "langgraph",
    "chromadb",
    "litellm",
    "requests",
    "xllamacpp",
    "jinja2",
    "rich",
    "sqlite3",
    "pypi_simple",
)


def commands(
    group: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it; none that says that it needs
    a plug-in which is not here."""
    group = group or program()
    for name in group.commands:
        try:
            command = group.commands[name]
        except BadInput:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


EVERY = [words for words, _ in commands()]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_says_what_it_does_with_an_example_and_can_speak_json(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    typed = " ".join(word for word in words if not word.isupper())  # those stand for any word
    assert f"Example: recreate {typed}" in said
    assert "--json" in said


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"recreate {recreate.__version__}\n"


def test_a_clone_runs_without_being_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "cli.py", "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"recreate {recreate.__version__}\n")


def test_help_imports_nothing_heavy_and_that_of_all_commands_no_settings_either(
    tmp_path: Path,
) -> None:
    code = f"""
import sys
from recreate.cli import app, run
run(["--version"])
run(["--help"])
print([m for m in ("pydantic", "recreate.runs", "recreate.cli.build") if m in sys.modules], \
file=sys.stderr)
for words in app.COMMANDS:
    run([*words.split(), "--help"])
print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "[]\n[]\n")


def test_a_wrong_flag_is_bad_input_with_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["build", "--rouns", "3", "--json"]) == 2
    out, err = capsys.readouterr()
    error = json.loads(out)
    assert error["schema"] == 1
    assert error["error"]["code"] == "usage"
    assert "--rounds" in error["error"]["message"]
    assert "recreate build --help" in error["error"]["fix"]
    assert "--rouns" in err


def test_an_unknown_command_names_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bulid"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "'build'" in err


def test_a_group_alone_shows_its_commands_and_is_bad_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["tasks"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "check" in err
    assert "list" in err


def test_the_flags_of_a_sandboxed_command_are_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    run(["sandbox", "exec", "--rung", "bogus", "--", "prog", "--json"])
    assert capsys.readouterr().out == ""


# --- settings ---


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `plan` with flags and returns the settings the command was called with, without doing
    anything."""
    seen: list[Any] = []

    def stop(settings: Any, where: Path) -> Any:
        seen.append(settings)
        raise BadInput("seen")

    monkeypatch.setattr("recreate.runs.opening.open_domain", stop)

    def ask(*flags: str) -> Any:
        run(["plan", *flags])
        return seen[-1]

    return ask


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    workspace: Path, settings_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "recreate.toml").write_text(
        'rounds = 3\n[models]\noptimizer = "local:a"\nretries = 7\n'
    )
    assert settings_of().models.optimizer == "local:a"
    monkeypatch.setenv("RECREATE_MODELS__OPTIMIZER", "local:b")
    assert settings_of().models.optimizer == "local:b"
    found = settings_of("--models.optimizer", "local:c", "--seed", "5")
    assert (found.models.optimizer, found.models.retries, found.rounds, found.seed) == (
        "local:c",
        7,
        3,
        5,
    )


@pytest.mark.parametrize(
    "flags",
    [
        "",
        (
            "--domain my.module:Class --rounds 3 --repeats 2 --jobs 4 --seed 7 --review --out"
            " runs/elsewhere"
        ),
        (
            "--models.optimizer litellm:x/y --model openai:http://h/v1#m --price 1,2"
            " --gate.false_keep 0 --keep-cheaper"
        ),
        ("--without evidence,guidance --budget 5usd --budget 30min --optimizer reflect"),
        (
            "--tasks a:1,a:2 --kind real --memory recreate --limits.steps 9 --agent.max_tokens 50"
            " --study.usd 0.5"
        ),
    ],
)
def test_the_command_beside_a_score_gives_the_settings_it_was_made_with(
    flags: str, workspace: Path, settings_of: Any
) -> None:
    made = settings_of(*flags.split())
    words = as_flags(made)
    assert "--out" not in words, "it is made anew in a folder of its own"
    assert settings_of(*words) == made.model_copy(update={"out": ""})
    assert settings_of() == made or len(words) > 1


def test_several_budgets_are_all_kept(workspace: Path, settings_of: Any) -> None:
    assert settings_of("--budget", "5usd", "--budget", "30min").budget == ("5usd", "30min")


def test_an_unknown_setting_names_the_nearest(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "recreate.toml").write_text('[models]\noptimiser = "x"\n')
    assert run(["plan", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "unknown-setting"
    assert "models.optimiser" in error["message"]
    assert "models.optimizer" in error["fix"]


def test_a_wrong_value_says_where_it_stands(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECREATE_JOBS", "many")
    assert run(["plan", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "bad-setting"
    assert "jobs" in error["message"]


def test_a_broken_settings_file_names_the_line(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "recreate.toml").write_text("rounds = \n")
    assert run(["plan", "--json"]) == 2
    assert "line 1" in json.loads(capsys.readouterr().out)["error"]["message"]


# --- our own mistakes ---


def broken(monkeypatch: pytest.MonkeyPatch, error: Exception) -> int:
    def raises(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("recreate.runs.reader.find_run", raises)
    return run(["log", "a", "--json"])


def test_a_mistake_of_ours_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value")
    assert broken(monkeypatch, ValueError("a bug with very-secret-value")) == 1
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error["code"] == "crash"
    assert "Traceback" not in err
    (file,) = (tmp_path / "home").glob("crash-*.txt")
    assert str(file) in error["fix"]
    text = file.read_text()
    assert "Traceback" in text
    assert Path(options.__file__).name in text
    assert "very-secret-value" not in out + err + text


def test_a_mistake_of_ours_is_told_when_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    assert broken(monkeypatch, ValueError("a bug")) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_full_disk_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/some/file")
    assert broken(monkeypatch, full) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "disk"
    assert "/some/file" in error["message"]
    assert not list(tmp_path.glob("home/crash-*"))


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    command = (
        f"set -o pipefail; {sys.executable} {ROOT / 'cli.py'} tasks list tests.toy:Toy --json |"
        " true"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raises(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recreate.runs.reader.find_run", raises)
    assert run(["log", "a"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert run(["log", "a", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "interrupted"


def test_ctrl_c_while_the_program_is_loaded_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loading(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("recreate.cli.run", loading)
    # that is of a process which ends; this one goes on
    monkeypatch.setattr("recreate.cli._settle", lambda code: None)
    monkeypatch.setattr(sys, "argv", ["recreate", "build", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "interrupted"


def test_a_ctrl_c_after_the_end_was_told_changes_no_exit_code() -> None:
    late = """
import os, signal, sys
import recreate.cli as cli

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)

def run(arguments):
    sys.last = Last()  # goes when Python has taken its own handlers away
    return CODE

cli.run = run
cli.main()
"""
    for code in (0, 130):
        done = subprocess.run(
            [sys.executable, "-c", late.replace("CODE", str(code))], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (code, "")
