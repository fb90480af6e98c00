"""A run while it runs: what the panel says at any width and time, and that a terminal is left as it
was found."""

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

from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.api.ports import Price
from recreate.api.types import Usage
from recreate.builder.estimate import Course, course, plan
from recreate.optimizers import StudySettings
from recreate.plugins.panel.panel import Progressing, left, panel, whole
from recreate.runs.settings import Settings
from tests.pages import ROOT
from tests.toy import write_script

LONG = "swe:boltons-23.1.0:fileutils.FilePerms._FilePermProperty._update_integer-off-by-one-1"
BY_ROLE = {
    "agent": Usage(calls=1700, tokens_in=18_800_000, tokens_out=12, usd=1.5),
    "optimizer": Usage(calls=3, tokens_in=9_000, usd=0.12),
}


def score(n: int, value: float | None, reused: bool = False) -> dict[str, object]:
    told = {"score": value, "passed": value == 1, "reused": reused, "usage": Usage(calls=4)}
    return {"score": SimpleNamespace(attempt=f"a{n}", task=f"t{n}", repeat=0, **told)}


def running(jobs: int = 2, ended: int = 4, total: int = 20) -> Progressing:
    """A validation at second 100 of which some attempts, of 10, 20, 30, ... s, have ended and
    others run for 5 s."""
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


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
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
    assert (
        "agent 1,700 calls, 18.8M tokens, $1.500 | optimizer 3 calls, 9,000 tokens, $0.120" in text
    )
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
    # 6, 0, 10 and 10 s in two lanes
    assert left([10.0] * 3, [4.0, 50.0], 4, 2) == pytest.approx((13.0, 13.0, 13.0))


WAY = Course(rounds=2, judged=6, first=4, batch=4, proposing=0, calls=(10, 30), call=2.0)


def building(known: Progressing | None = None) -> Progressing:
    """A build that validates its seed: 4 of 6 attempts took 10 s each, of 4 calls, one at a
    time."""
    known = known or Progressing(at_once=1)
    known.take("build", {"course": WAY, "over": 0}, 0.0)
    gather(known, "validation", 6, 4, 0.0)
    return known


def gather(known: Progressing, phase: str, total: int, ended: int, now: float) -> float:
    """A phase of which so many attempts ended, 10 s each; when the last one did."""
    known.take("gather", {"phase": phase, "total": total}, now)
    for n in range(ended):
        known.take("begin", {"attempt": f"a{n}", "task": f"t{n}"}, now)
        now += 10.0
        known.take("ended", {"attempt": f"a{n}", "task": f"t{n}"}, now)
        known.take("score", score(n, 1.0), now)
    return now


def test_time_left_is_of_the_whole_build_with_its_proposals_as_the_plan_reckons_them() -> None:
    known = building()
    assert known.ahead() == (20, 2)
    # 22 attempts of 10 s, and two proposals of 10 to 30 calls, each as long as two calls of 2.5 s
    assert whole(known, 40.0) == pytest.approx((220 + 100, 220 + 200, 220 + 300))
    assert "about 7 min left in all (5 to 9 min)" in "\n".join(shown(known, 120))


def test_what_is_left_of_a_build_shrinks_through_its_stages_to_nothing() -> None:
    known = building()
    now, found = 40.0, [whole(known, 40.0)]
    for number in (1, 2):
        known.take("round", {"round": number, "rounds": 2}, now)
        now = gather(known, "train", 4, 4, now)
        found.append(whole(known, now))
        known.take("propose", {"experiences": 4, "failures": 1}, now)
        now += 60.0
        found.append(whole(known, now))
        known.take("candidate", {"edits": []}, now)
        now = gather(known, "validation", 6, 6, now)
        known.take("revision", {"revision": None}, now)
        found.append(whole(known, now))
    likely = [each[1] for each in found if each is not None]
    assert likely == sorted(likely, reverse=True)
    # a round: ten attempts, and a proposal as long as the first
    assert likely[3] == pytest.approx(100 + 60)
    assert likely[-1] == 0
    assert shown(known)[2].endswith("  done")


def test_a_proposal_in_work_has_its_time_left_though_it_has_no_attempts() -> None:
    known = building()
    known.take("round", {"round": 2, "rounds": 2}, 40.0)
    known.take("propose", {"experiences": 4, "failures": 1}, 40.0)
    assert whole(known, 70.0) == pytest.approx((60 + 20, 60 + 70, 60 + 120))
    assert panel(known, {}, 1.0, "", 70.0, 80)[2] == "about 2 min left in all (80 s to 3 min)"


def test_of_a_run_that_is_no_build_the_phases_time_is_said() -> None:
    assert whole(running(), 100.0) is None
    assert "left in this phase" in "\n".join(shown(running()))


def test_no_more_time_is_left_than_the_budget_has() -> None:
    known = building()
    assert "about 60 s left of the budget's time" in "\n".join(
        panel(known, {}, 1.0, "2 min", 40.0, 80, stops=60.0)
    )
    assert "(5 to 6 min)" in "\n".join(panel(known, {}, 1.0, "7 min", 40.0, 80, stops=360.0))


def test_a_build_that_goes_on_in_its_second_round_has_only_that_round_left() -> None:
    known = Progressing(at_once=1)
    known.take("build", {"course": WAY, "over": 1}, 0.0)
    assert known.ahead() == (4 + 6 + 6, 1)  # the agent it has is looked up first
    known.take("candidate", {"edits": []}, 1.0)
    gather(known, "validation", 6, 3, 1.0)
    assert known.ahead() == (0, 0)


def test_the_further_attempts_of_seed_and_agent_are_counted_together() -> None:
    known = building()
    known.take("confirm", {"attempts": 2, "total": 12}, 40.0)
    gather(known, "validation", 6, 6, 40.0)
    assert (known.done, known.total) == (6, 12)
    gather(known, "validation", 6, 2, 100.0)
    assert (known.done, known.total) == (8, 12)


@pytest.mark.parametrize("optimizer", ["reflect", "best-of-n", "recreate"])
@pytest.mark.parametrize("from_experience", [False, True])
def test_the_panel_and_the_plan_count_the_same_attempts(
    optimizer: str, from_experience: bool
) -> None:
    asked = Settings(
        optimizer=optimizer,
        from_experience=from_experience,
        rounds=3,
        train=8,
        validation=10,
        repeats=2,
        study=StudySettings(rehearsals=0),
    )
    way = course(asked, Price())
    estimate = plan(asked, scaffolds.load(shipped("scaffolds") / "seed"), Price(), Price())
    assert way.attempts() == estimate.attempts
    known = Progressing()
    known.take("build", {"course": way, "over": 0}, 0.0)
    assert known.ahead() == (estimate.attempts, 3)


# --- on a terminal
# ----------------------------------------------------------------------------------------


class Terminal:
    """As much of a terminal as rich uses: lines that wrap and scroll, the cursor up, a line erased,
    colours passed."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height, self.x, self.cursor = width, height, 0, True
        self.lines = [""]
        self.y = 0

    def feed(self, text: str) -> None:
        for code, number, kind, end, char in re.findall(
            r"\x1b\[(\??)([\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n])", text
        ):
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
    workspace: Path,
    words: str,
    width: int = 80,
    seen: Callable[[Terminal, int, int], None] = lambda *_: None,
) -> tuple[int, Terminal, str]:
    """(exit code, terminal, all bytes) of a command; seen(terminal, file, pid) is called at each
    piece of output."""
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
    return (
        os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]),
        terminal,
        raw.decode("utf-8", "replace"),
    )


def resize(file: int, width: int) -> None:
    fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))


def command(workspace: Path, delay_ms: int) -> str:
    model = write_script(workspace / "s.jsonl", delay_ms=delay_ms)
    return (
        f"build --domain tests.toy:Toy --model {model} --optimizer reflect --train 2 --validation 6"
        " --rounds 1 --out runs/a"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
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


@pytest.mark.slow
def test_a_build_says_its_claim_once_after_the_attempts_that_chose_nothing(
    workspace: Path,
) -> None:
    panels: list[str] = []

    def look(terminal: Terminal, file: int, pid: int) -> None:
        if "─" * 40 in terminal.text():
            panels.append(terminal.text().rpartition("─" * 40)[2])

    rule = " --rounds 1 --gate.keep search"
    code, terminal, _ = on_terminal(workspace, command(workspace, 20) + rule, 80, look)
    assert code == 0, terminal.text()
    text = terminal.text()
    assert "─" not in text, text
    assert text.count("better (shown): 0.000 -> 1.000") == 1
    assert not any("better (shown)" in panel for panel in panels)


@pytest.mark.slow
@pytest.mark.usefixtures("each_step")
def test_a_terminal_of_20_columns_has_a_panel_that_fits_and_back_at_80_all_of_it(
    workspace: Path,
) -> None:
    narrow: list[str] = []
    wide: list[str] = []

    def look(terminal: Terminal, file: int, pid: int) -> None:
        text = terminal.text()
        panel = text.rpartition("─" * 20)[2]
        if terminal.width == 80 and not narrow and "starting" in panel:
            resize(file, 20)
            terminal.width = 20
        elif terminal.width == 20 and "─" * 40 not in text and "min, $" in panel:
            narrow.append(panel)
            if re.search("validation [1-5] of 6", panel):
                resize(file, 80)
                terminal.width = 80
        elif narrow and "─" * 40 in text:
            wide.append(text.rpartition("─" * 40)[2])

    code, terminal, _ = on_terminal(workspace, command(workspace, 200), 80, look)
    assert code == 0, terminal.text()
    assert re.search("validation [1-5] of 6", narrow[-1]), narrow
    assert all(len(line) <= 20 for panel in narrow for line in panel.splitlines()), narrow
    assert any("toy:validation:" in text for text in wide)
    after = terminal.text().partition("validation 6/6")[2]
    assert after
    # above, a rule may stay that was drawn for 80 just as the terminal became 20
    assert "─" not in after, after
    assert terminal.cursor
    assert terminal.text().count("better: 0.000 -> 1.000") == 1


@pytest.mark.slow
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
