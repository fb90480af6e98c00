"""Bad input: exit 2, one clear message, what to type next, and nothing lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from recreate.api.paths import shipped
from recreate.cli import run as cli
from tests.stub import Stub
from tests.toy import write_script

TOY = ["--domain", "tests.toy:Toy", "--memory.embedder", "hashed"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> dict[str, str]:
    """The error object of a command that must fail."""
    capsys.readouterr()
    assert cli([*arguments, "--json"]) == code
    out = capsys.readouterr().out.splitlines()
    error: dict[str, str] = json.loads(out[-1])["error"]
    assert error["message"]
    assert error["fix"], "every error says what to type next"
    return error


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--domain", "row"], "rows"),
        (["--domain", "nowhere:Thing"], "nowhere"),
        ([*TOY, "--sandbox", "dokcer"], "bwrap"),
        ([*TOY, "--model", "scripted:/nowhere.jsonl"], "scripted"),
        ([*TOY, "--optimizer", "reflekt"], "reflect"),
        ([*TOY, "--budget", "a lot"], "5usd"),
        ([*TOY, "--rounds", "-1"], "rounds"),
        ([*TOY, "--scaffold", "sed"], "seed"),
    ],
)
def test_an_unknown_part_names_the_ones_there_are(
    workspace: Path, capsys: pytest.CaptureFixture[str], flags: list[str], names: str
) -> None:
    model = [] if "--model" in flags else ["--model", write_script(workspace / "s.jsonl")]
    error = refused(capsys, "build", *flags, *model, "--out", "runs/x")
    assert names in error["message"] + error["fix"]


def test_a_misspelt_setting_in_the_file_names_the_nearest(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "recreate.toml").write_text("[models]\noptimiser = 'x'\n")
    assert "models.optimizer" in refused(capsys, "plan", *TOY)["fix"]


@pytest.mark.plugin("hosted")
def test_a_hosted_model_without_its_key_names_the_variable(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(
        capsys, "build", *TOY, "--model", "litellm:openai/gpt-4o-mini", "--out", "runs/x"
    )
    assert "OPENAI_API_KEY" in error["message"] + error["fix"]


def test_a_model_of_unknown_price_asks_for_it(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(
        capsys, "build", *TOY, "--model", "openai:http://127.0.0.1:9/v1#mine", "--out", "runs/x"
    )
    assert error["code"] == "unknown-price"
    assert "--price" in error["fix"]


def test_a_refused_key_stops_at_once_and_is_not_shown(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-thisisaverysecretkey0123456789")
    with Stub(fault=lambda body: (401, "bad key sk-thisisaverysecretkey0123456789")) as stub:
        flags = ["--model", f"openai:{stub.url}#m", "--price", "0,0", "--out", "runs/x"]
        error = refused(capsys, "build", *TOY, *flags)
        assert stub.count <= 2
    assert "OPENAI_API_KEY" in error["message"] + error["fix"]
    assert "verysecret" not in json.dumps(error)
    for file in (workspace / "runs/x").rglob("*"):
        if file.is_file():
            assert b"verysecret" not in file.read_bytes()


def test_an_endpoint_that_is_down_stops_the_run_and_it_can_go_on(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--model",
        "openai:http://127.0.0.1:9/v1#m",
        "--price",
        "0,0",
        "--out",
        "runs/x",
        "--models.retries",
        "0",
    ]
    error = refused(capsys, "build", *TOY, *flags, code=1)
    assert "127.0.0.1:9" in error["message"] + error["fix"]
    assert (workspace / "runs/x/journal.jsonl").exists()


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("system.md", "Answer {{key: value}}", "system.md:1"),
        ("workflow.md", "line\n{{ task.promt }}", "workflow.md:2"),
        ("system.md", "{{ nobody }}", "nobody"),
        ("agent.toml", "stepps = 3\n", "stepps"),
        ("agent.toml", "[limits]\nsteps = 0\n", "steps"),
        ("tools/bad.py", "import nothing_like_it\n", "tools/bad.py"),
    ],
)
def test_a_broken_scaffold_is_refused_before_anything_is_spent(
    workspace: Path, capsys: pytest.CaptureFixture[str], file: str, text: str, says: str
) -> None:
    folder = workspace / "scaffolds/mine"
    shutil.copytree(shipped("scaffolds") / "seed", folder)
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(text)
    model = write_script(workspace / "s.jsonl")
    error = refused(
        capsys, "build", *TOY, "--model", model, "--scaffold", "mine", "--out", "runs/x"
    )
    assert says in error["message"] + error["fix"]
    capsys.readouterr()
    assert cli(["scaffold", "check", "scaffolds/mine", "--json"]) in (2, 4)


def test_a_link_out_of_the_scaffold_is_refused(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workspace / "scaffolds/mine"
    shutil.copytree(shipped("scaffolds") / "seed", folder)
    (workspace / "secret").write_text("s")
    (folder / "memory").mkdir()
    (folder / "memory/x.md").symlink_to(workspace / "secret")
    model = write_script(workspace / "s.jsonl")
    error = refused(
        capsys, "build", *TOY, "--model", model, "--scaffold", "mine", "--out", "runs/x"
    )
    assert "memory/x.md" in error["message"]


def test_a_run_folder_of_a_newer_schema_is_not_touched(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import zlib

    model = write_script(workspace / "s.jsonl")
    assert cli(["build", *TOY, "--model", model, "--rounds", "0", "--out", "runs/x"]) == 0
    journal = workspace / "runs/x/journal.jsonl"
    body = b'{"kind":"start","schema":99'
    journal.write_bytes(body + b',"sum":"%08x"}\n' % zlib.crc32(body + b"}"))
    before = journal.read_bytes()
    assert refused(capsys, "resume", "runs/x")["code"] == "newer-schema"
    assert journal.read_bytes() == before


def test_a_folder_that_is_no_run_says_where_runs_are(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "runs/" in refused(capsys, "resume", "elsewhere")["fix"]


@pytest.mark.parametrize("text", ["", "not toml [", "[[bug]]\nid = 3\n"])
def test_an_empty_or_broken_tasks_file_names_the_file(
    workspace: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = workspace / "tasks.toml"
    file.write_text(text)
    assert "tasks.toml" in json.dumps(refused(capsys, "tasks", "check", "swe", "--data", str(file)))


def test_a_task_that_is_not_there_names_the_nearest(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_script(workspace / "s.jsonl")
    error = refused(capsys, "run", "seed", "toy:train:99", *TOY[:2], "--model", model)
    assert "toy:train" in error["fix"]


@pytest.mark.slow
def test_a_full_disk_is_our_fault_and_loses_nothing(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes 60 more lines of the run's records and then none: the build stops, and goes on
    when it can."""
    model = write_script(workspace / "s.jsonl")
    write, left = os.write, [60]

    def full(handle: int, data: bytes) -> int:
        if bytes(data[:8]).startswith(b'{"kind":'):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data)

    monkeypatch.setattr(os, "write", full)
    error = refused(capsys, "build", *TOY, "--model", model, "--out", "runs/x", code=1)
    assert error["code"] == "disk"
    assert "resume" in error["fix"]
    monkeypatch.setattr(os, "write", write)
    assert cli(["resume", "runs/x", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["validation"]["verdict"] == "better"
