"""Nothing that a command prints moves a cursor, hides a word or turns the order of writing,
whatever was recorded."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recreate.api.ports import SandboxBackend
from recreate.api.types import Grade, Review, Split, Task, Trace
from recreate.builder import sdk
from recreate.cli import run as cli
from recreate.models.scripted import Scripted
from recreate.runs.reader import Run
from recreate.viewer.text import json_text, visible
from tests.toy import Toy, script

ESC = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\u202egnp\u2066\u200f\x7f\u2028\ufdd0"


def hidden(text: str) -> list[str]:
    """The characters of a text that do what a reader does not see."""
    return [
        hex(ord(c))
        for c in text
        if (ord(c) < 32 and c not in "\n\t")
        or 0x7F <= ord(c) < 0xA0
        or c in "\u061c\u200b\u200e\u200f\u2028\u2029\ufeff\ufdd0\ufdd1"
        or "\u202a" <= c <= "\u202e"
        or "\u2066" <= c <= "\u2069"
    ]


class Hostile(Toy):
    """The toy domain, hostile in every text. tests.cli.test_hidden:Hostile"""

    name = "hostile"
    description = f"A domain {ESC}"

    def tasks(self, split: Split | None = None) -> list[Task]:
        own = [t for t in super().tasks() if split in (None, t.split)]
        return [
            t.model_copy(update={"domain": self.name, "prompt": f"{t.prompt} {ESC}"}) for t in own
        ]

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        made = super().grade(task, trace, backend)
        return made.model_copy(update={"evidence": f"{made.evidence} {ESC}"})


def rows() -> list[dict[str, Any]]:
    made = []
    for row in script():
        text = row["text"]
        if row["role"] == "optimizer":
            study = json.loads(text)
            for key in ("text", "reason", "title"):
                study["edits"][0][key] += f" {ESC}"
            text = json.dumps(study)
        elif "answer.txt" in text:
            text = f"{ESC}\n{text[:-4]}\nprintf 'out \\033[2J\\302\\23331m\\342\\200\\256'\n```"
        made.append({**row, "text": text})
    return made


@pytest.fixture
def built(workspace: Path) -> sdk.Outcome:
    """A build whose candidate waits for a person."""
    (workspace / "recreate.toml").write_text('domain = "tests.cli.test_hidden:Hostile"\n')
    model = Scripted.of(rows())
    settings: dict[str, Any] = {"rounds": 1, "memory.embedder": "hashed", "models.retries": 0}
    return sdk.build(
        Hostile(),
        model=model,
        review=True,
        workspace=workspace,
        out=str(workspace / "runs/a"),
        **settings,
    )


HOSTILE = "tests.cli.test_hidden:Hostile"
SHOWING = (
    "log last",
    "show last",
    "show scaffolds/bad",
    "show last --json",
    "log last --json",
    "diff seed scaffolds/bad",
    "diff seed scaffolds/bad --json",
    "review last",
    "review last --json",
    f"tasks list {HOSTILE}",
    f"tasks list {HOSTILE} --json",
    f"tasks check {HOSTILE} --split test",
    f"tasks check {HOSTILE} --split test --json",
    f"grade {HOSTILE} toy:test:1 --answer x",
    f"grade {HOSTILE} toy:test:1 --answer x --json",
    "scaffold check scaffolds/bad",
    "scaffold check scaffolds/bad --json",
    "list domain",
    "show last --html",
)


LOOKING = (
    "traces list last",
    "traces show {id}",
    "traces show {id} --full",
    "traces show {id} --json",
    "traces search word",
    "studies list last",
    "memory recall word --how keywords",
    "memory recall word --json",
    "memory stats",
    "patterns list",
    "patterns list --json",
    "patterns show mark",
    "patterns show mark --json",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "showing",
    [SHOWING, pytest.param(LOOKING, marks=pytest.mark.plugin("memory_tools", "traces"))],
    ids=["core", "plug-ins"],
)
def test_no_command_prints_what_cannot_be_seen(
    built: sdk.Outcome,
    workspace: Path,
    capfd: pytest.CaptureFixture[str],
    showing: tuple[str, ...],
) -> None:
    bad = workspace / "scaffolds" / "bad"
    bad.mkdir(parents=True)
    (bad / "agent.toml").write_text(f"description = {json.dumps(ESC)}\n".replace("\x7f", "\\u007f"))
    (bad / "system.md").write_text(f"{{{{ unknown }}}} {ESC}\n")
    (bad / "workflow.md").write_text(f"{{{{ task.prompt }}}} {ESC}\n")
    (bad / "memory").mkdir()
    (bad / "memory" / "mark.md").write_text(f"# A mark {ESC}\n\nPut a mark {ESC}\n")
    patterns = workspace / "memory" / "hostile" / "patterns"
    patterns.mkdir(parents=True, exist_ok=True)
    (patterns / "mark.md").write_text(
        f"---\nscope: domain\nstatus: active\n---\n# A mark {ESC}\n\nPut a mark {ESC}\n"
    )
    run = Run(built.run)
    id = next(run.records("experience"))["attempt"]
    failed = []
    for words in showing:
        code = cli(words.format(id=id).split())
        told = capfd.readouterr()
        failed += [(words, c) for c in hidden(told.out + told.err)[:3]]
        if code not in (0, 4):
            failed.append((words, told.err))
    assert failed == []
    for words in (
        ["show", ESC],
        ["run", ESC, ESC],
        ["grade", ESC, "x", "--answer", "x"],
        ["build", f"--{ESC}"],
        [ESC],
    ):
        for flags in ([], ["--json"]):
            assert cli([*words, *flags]) == 2
            told = capfd.readouterr()
            assert hidden(told.out + told.err) == []


@pytest.mark.slow
def test_what_a_build_writes_to_be_read_has_nothing_hidden(
    built: sdk.Outcome, workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = sdk.build(
        Hostile(),
        model=Scripted.of(rows()),
        review=lambda *_: Review(decision="accept"),
        workspace=workspace,
        out=str(workspace / "runs/a"),
        rounds=1,
        **{"memory.embedder": "hashed", "models.retries": 0},
    )
    assert made.kept is not None
    for file in (made.run / "report.md", made.run / "report.html", made.path / "README.md"):
        text = file.read_text("utf-8")
        assert hidden(text) == [], file
        assert "u202e" in text  # it is told, not dropped


def test_json_gives_back_the_very_text() -> None:
    record = {"text": ESC, ESC: "key", "emoji": "e\u0301 ü 漢"}
    text = json_text(record)
    assert hidden(text) == []
    assert json.loads(text) == record
    assert "ü 漢" in text
    assert hidden(visible(ESC)) == []


def test_a_program_s_output_is_its_own_in_a_pipe_and_shown_on_a_terminal(workspace: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "recreate",
        "sandbox",
        "exec",
        "--rung",
        "none",
        "--",
        "printf",
        r"a\033[2Jb\n",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "RECREATE_SANDBOX": "none",
    }
    piped = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert piped.stdout == b"a\x1b[2Jb\n"
    leader, follower = pty.openpty()
    subprocess.run(command, stdout=follower, stderr=subprocess.DEVNULL, check=True, env=environment)
    os.close(follower)
    assert os.read(leader, 1000) == b"a\\x1b[2Jb\r\n"
    os.close(leader)


def test_colours_of_ours_pass_on_a_terminal_and_no_others(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from recreate.cli import terminal

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    terminal.show(terminal.painted(f"red {ESC}", "31", sys.stdout), "\ufdd031\ufdd1 forged")
    told = capsys.readouterr().out
    assert told.startswith("\x1b[31mred \\x1b[2J")
    assert hidden(told.replace("\x1b[31m", "").replace("\x1b[0m", "")) == []
