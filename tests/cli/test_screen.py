"""A run while it runs: what the panel says at any width and time, and that a terminal is left as it was found."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from recreate.api.types import Usage
from recreate.cli.screen import Progressing, left, panel
from tests.pages import ROOT
from tests.toy import write_script

LONG = "swe:boltons-23.1.0:fileutils.FilePerms._FilePermProperty._update_integer-off-by-one-1"
BY_ROLE = {
    "agent": Usage(calls=1700, tokens_in=18_800_000, tokens_out=12, usd=1.5),
    "optimizer": Usage(calls=3, tokens_in=9_000, usd=0.12),
}


def score(n: int, value: float | None, reused: bool = False) -> dict[str, object]:
    one = SimpleNamespace(attempt=f"a{n}", task=f"t{n}", repeat=0, score=value, passed=value == 1, reused=reused)
    return {"score": one}


def running(jobs: int = 2, ended: int = 4, total: int = 20) -> Progressing:
    """A validation at second 100 of which some attempts, of 10, 20, 30, ... s, have ended and others run for 5 s."""
    known = Progressing(at_once=jobs)
    known.take("gather", {"phase": "validation", "total": total}, 0.0)
    for n in range(ended):
        known.take("begin", {"attempt": f"a{n}", "task": f"t{n}"}, 0.0)
        known.take("ended", {"attempt": f"a{n}", "task": f"t{n}"}, 10.0 * (n + 1))
        known.take("score", score(n, float(n % 2)), 10.0 * (n + 1))
    for n in range(ended, ended + jobs):
        known.take("begin", {"attempt": f"a{n}", "task": LONG}, 95.0)
    return known


def shown(known: Progressing, width: int = 80, height: int = 24) -> list[str]:
    return panel(known, BY_ROLE, 8.2, "$25 or 40 min", 100.0, width, height)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_every_line_fits_and_half_of_the_terminal_stays_free(width: int) -> None:
    known = running(jobs=16)
    known.take("step", {"attempt": "a4", "step": SimpleNamespace(step=8)}, 97.0)
    known.take("grading", {"attempt": "a5", "task": "日付" * 40}, 98.0)
    for height in (14, 24, 60):
        lines = shown(known, width, height)
        assert max(map(cell_len, lines)) <= width
        assert len(lines) <= max(10, height // 2 + 2)
        assert any("more" in line for line in lines)


def test_phase_score_jobs_time_and_money_are_said() -> None:
    known = running()
    known.take("step", {"attempt": "a4", "step": SimpleNamespace(step=2)}, 97.0)
    known.take("grading", {"attempt": "a5"}, 99.0)
    text = "\n".join(shown(known, 120))
    assert "validation 4 of 20   2 passed, score 0.50 [" in text
    assert re.search(r"step 4 +0:03 +swe:boltons", text)
    assert re.search(r"grading +0:01 +swe:boltons", text)
    assert re.search(r"about \d min left in this phase \(\d to \d min\)", text)
    assert "agent 1,700 calls, 18.8M tokens, $1.500 | optimizer 3 calls, 9,000 tokens, $0.120" in text
    assert text.endswith("8.2 min, $1.620 of $25 or 40 min")


def test_a_candidate_stands_beside_what_was_before_it() -> None:
    known = running(jobs=0, ended=4, total=4)
    known.take("candidate", {"edits": []}, 100.0)
    known.take("gather", {"phase": "validation", "total": 4}, 100.0)
    known.take("score", score(1, 1.0), 100.0)
    assert "the candidate on validation 1 of 4   1 passed, score 1.00 [" in shown(known, 120)[1]
    assert shown(known, 120)[1].endswith("before 0.50")


def test_what_is_read_back_after_a_resume_counts_and_is_no_measure_of_time() -> None:
    known = Progressing(at_once=2)
    known.take("gather", {"phase": "validation", "total": 8}, 0.0)
    for n in range(5):
        known.take("score", score(n, 1.0, reused=True), 0.1)
    text = "\n".join(shown(known))
    assert "validation 5 of 8   5 passed" in text
    assert "time left: known after 3 attempts" in text


def test_an_attempt_that_ended_without_a_score_is_no_longer_shown() -> None:
    known = running(jobs=1)
    assert LONG[:30] in "\n".join(shown(known))
    known.take("ended", {"attempt": "a4", "task": LONG}, 99.0)
    assert LONG[:30] not in "\n".join(shown(known))


def test_an_attempt_lost_to_the_infrastructure_is_done_and_has_no_score() -> None:
    known = running(jobs=0, ended=0, total=3)
    known.take("score", score(1, None), 1.0)
    assert shown(known)[1] == "validation 1 of 3"


def test_time_left_is_unsure_as_long_as_little_is_known() -> None:
    assert left([5.0, 6.0], [], 10, 2) is None
    few, many = left([10.0, 20.0, 30.0], [], 10, 2), left([10.0, 20.0, 30.0] * 10, [], 10, 2)
    assert few is not None
    assert many is not None
    assert few[1] == many[1] == pytest.approx(100.0)
    assert few[0] < many[0] < 100 < many[2] < few[2]
    assert left([10.0] * 3, [4.0, 50.0], 4, 2) == pytest.approx((13.0, 13.0, 13.0))  # 6, 0, 10 and 10 s in two lanes


# --- on a terminal ----------------------------------------------------------------------------------------


class Terminal:
    """As much of a terminal as rich uses: lines that wrap and scroll, the cursor up, a line erased, colours passed."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height, self.x, self.cursor = width, height, 0, True
        self.lines = [""]
        self.y = 0

    def feed(self, text: str) -> None:
        for code, number, kind, end, char in re.findall(r"\x1b\[(\??)([\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n])", text):
            if kind == "A":
                self.y -= int(number or 1)
            elif kind == "K":
                self.lines[self.y] = "" if number == "2" else self.lines[self.y][: self.x]
            elif code and number == "25":
                self.cursor = kind == "h"
            elif end == "\r":
                self.x = 0
            elif end or char:
                if end or self.x == self.width:
                    self.x, self.y = 0, self.y + 1
                    self.lines += [""] * (self.y + 1 - len(self.lines))
                if char:
                    line = self.lines[self.y].ljust(self.x)
                    self.lines[self.y] = line[: self.x] + char + line[self.x + 1 :]
                    self.x += 1

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


def on_terminal(
    workspace: Path, words: str, width: int = 80, seen: Callable[[Terminal, int, int], None] = lambda *_: None
) -> tuple[int, Terminal, str]:
    """(exit code, terminal, all bytes) of a command; seen(terminal, file, pid) is called at each piece of output."""
    pid, file = pty.fork()
    if pid == 0:
        os.chdir(workspace)
        os.environ["PYTHONPATH"] = str(ROOT)
        os.environ["TERM"] = "xterm"
        for name in ("COLUMNS", "LINES"):  # which a program would believe over the terminal
            os.environ.pop(name, None)
        os.execv(sys.executable, [sys.executable, "-m", "recreate", *words.split()])
    resize(file, width)
    terminal, raw = Terminal(width, 24), b""
    while select.select([file], [], [], 60)[0]:
        try:
            piece = os.read(file, 65536)
        except OSError:
            break
        raw += piece
        terminal.feed(piece.decode("utf-8", "replace"))
        seen(terminal, file, pid)
    os.close(file)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), terminal, raw.decode("utf-8", "replace")


def resize(file: int, width: int) -> None:
    fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))


def command(workspace: Path, delay_ms: int) -> str:
    model = write_script(workspace / "s.jsonl", delay_ms=delay_ms)
    return f"build --domain tests.toy:Toy --model {model} --optimizer reflect --train 2 --validation 6 --out runs/a"


def test_a_build_ends_with_its_verdict_once_and_what_to_type_next(workspace: Path) -> None:
    panels: list[str] = []

    def look(terminal: Terminal, file: int, pid: int) -> None:
        if "─" * 40 in terminal.text():
            panels.append(terminal.text().rpartition("─" * 40)[2])
            if len(panels) == 1:
                resize(file, 60)
                terminal.width = 60

    code, terminal, _ = on_terminal(workspace, command(workspace, 100), 80, look)
    assert code == 0, terminal.text()
    assert any("validation" in text and "toy:validation:" in text for text in panels)
    assert any("the candidate on validation" in text for text in panels)
    text = terminal.text()
    assert "─" not in text, text
    assert terminal.cursor
    assert text.count("better: 0.000 -> 1.000") == 1
    assert "next: recreate diff runs/a/seed scaffolds/toy" in text


def test_ctrl_c_leaves_the_terminal_clean_and_says_how_to_go_on(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    sent = []

    def stop(terminal: Terminal, file: int, pid: int) -> None:
        if "validation 0 of 6" in terminal.text() and "step 1" in terminal.text() and not sent:
            sent.append(pid)
            os.kill(pid, signal.SIGINT)

    code, terminal, raw = on_terminal(workspace, command(workspace, 500), 80, stop)
    assert code == 130
    assert terminal.cursor
    assert "─" not in terminal.text()
    assert "recreate resume runs/a" in terminal.text()
    assert not re.search(r"\x1b\[[\d;]*m", raw)
