"""`build --review` and `review` as a person types them."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recreate.agents import scaffold as scaffolds
from recreate.runs.reader import Run
from tests.builder.test_review import OTHER, REJECT, rows
from tests.plugins.review.test_keep import FLAGS, Say, agent, in_built, in_paused
from tests.ready import ready
from tests.toy import LESSON


@in_paused
@pytest.mark.slow
def test_off_a_terminal_the_build_waits_and_says_what_to_type(here: Path, say: Say) -> None:
    code, out, err = say("resume", "a", "--json")
    record = json.loads(out)
    assert (code, record["status"], record["revisions"]) == (0, "review", [])
    assert record["waiting"] == Run(here / "runs/a").waiting().id  # type: ignore[union-attr]
    assert (
        err.splitlines()[-1]
        == "recreate review runs/a --accept, --edit or --reject WHY decides, and goes on"
    )
    assert "waits" in (here / "runs/a/report.md").read_text().lower()


@in_paused
def test_what_waits_is_shown_with_verdict_reason_cited_step_and_diff(here: Path, say: Say) -> None:
    code, out, err = say("review")
    assert code == 0
    for words in (
        "would be kept",
        "better: 0.000 -> 1.000",
        "The grader wants a mark",
        "the agent answered",
        f"+{LESSON}",
    ):
        assert words in out
    assert "\033" not in out
    assert "--accept" in err
    record = json.loads(say("review", "a", "--json")[1])
    assert (record["waiting"], record["kept"], record["verdict"]["verdict"]) == (
        True,
        False,
        "better",
    )
    assert record["edits"][0]["evidence"]
    assert "recreate review" in say("show", "a")[2]


@in_paused
def test_accepting_goes_on_with_the_build(here: Path, say: Say) -> None:
    code, out, _ = say("review", "a", "--accept", "--json")
    record = json.loads(out)
    assert (code, record["status"], record["waiting"]) == (0, "done", None)
    assert [(r["kept"], r["review"]) for r in record["revisions"]] == [(True, "accepted")]
    assert [x.body for x in agent(here).lessons] == [LESSON]
    assert json.loads(say("review", "a", "--json")[1])["waiting"] is False
    code, out, _ = say("review", "a", "--accept", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "nothing-waits")


@pytest.mark.slow
@in_paused
def test_a_rejection_is_told_to_the_optimizer_whose_next_candidate_waits_in_turn(
    here: Path, say: Say
) -> None:
    assert say("review", "a", "--reject", " ")[0] == 2
    assert say("review", "a", "--reject", "x", "--accept")[0] == 2
    code, out, _ = say("review", "a", "--reject", REJECT.reason, "--json")
    record = json.loads(out)
    assert (code, record["status"]) == (0, "review")
    assert [r["review"] for r in record["revisions"]] == ["rejected: it shouts"]
    assert OTHER in say("review", "a")[1]
    assert json.loads(say("review", "a", "--accept", "--json")[1])["status"] == "done"
    assert "a person rejected: it shouts" in say("log", "a")[1]
    assert [x.body for x in agent(here).lessons] == [OTHER]


@pytest.mark.slow
@in_paused
def test_editing_lays_the_files_and_takes_them_as_they_stand(here: Path, say: Say) -> None:
    place = here / "runs/a/review"
    assert json.loads(say("review", "a", "--edit", "--json")[1])["review"] == str(place)
    assert json.loads(say("review", "a", "--edit", "--json")[1])["error"]["code"] == "not-edited"
    (place / "system.md").write_text("{{ nonsense }}")
    code, out, _ = say("review", "a", "--edit", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "bad-scaffold")
    assert "'nonsense' is undefined" in out
    (file,) = (place / "memory").iterdir()
    shutil.copy(here / "scaffolds/toy/system.md", place)
    file.write_text(file.read_text().replace(LESSON, OTHER))
    record = json.loads(say("review", "a", "--edit", "--json")[1])
    assert record["status"] == "review"
    assert record["waiting"] == scaffolds.load(place).digest
    assert json.loads(say("review", "a", "--accept", "--json")[1])["status"] == "done"
    assert [x.body for x in agent(here).lessons] == [OTHER]


class Terminal:
    """A person at a real pseudo-terminal: waits for words, then types."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        env = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "TERM": "xterm",
            "COLUMNS": "200",
        }
        env = {
            k: v for k, v in env.items() if k not in ("VISUAL", "EDITOR", "NO_COLOR")
        } | environment
        self.fd, theirs = pty.openpty()
        # the terminal must be the session's own for Ctrl-C to arrive; pty.fork would fork a process
        # with threads
        own = (
            "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from recreate.cli import"
            " main; main()"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", own, *words],
            cwd=folder,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, words: str) -> str:
        """What was printed up to `words`."""
        end = time.monotonic() + 60
        while words not in self.seen:
            assert time.monotonic() < end, self.seen
            if ready(self.fd, 1):
                try:
                    self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:  # the other side is gone
                    raise AssertionError(self.seen) from None
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> tuple[int, str]:
        """(exit code, the rest of what was printed)."""
        end = time.monotonic() + 60
        while True:
            assert time.monotonic() < end, self.seen
            if not ready(self.fd, 1):
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += data.decode("utf-8", "replace")
        os.close(self.fd)
        return self.process.wait(60), self.seen


ASK = "[a]ccept, [e]dit, [r]eject WHY, [l]ater? "


@pytest.mark.slow
def test_at_a_terminal_the_person_is_asked_in_the_middle_of_the_build(workspace: Path) -> None:
    (workspace / "script.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in rows(**{REJECT.reason: OTHER}))
    )
    flags = [*FLAGS, "--model", "scripted:script.jsonl", "--out", "runs/a", "--review"]
    person = Terminal(workspace, "build", *flags)
    shown = person.until(ASK)
    assert "would be kept" in shown
    assert f"\033[32m+{LESSON}\033[0m" in shown
    assert "the agent answered" in shown
    person.type("what\n")
    person.until(ASK)
    person.type("r\n")
    person.until("why? the optimizer reads it: ")
    person.type(f"{REJECT.reason}\n")
    assert OTHER in person.until(ASK)
    person.type("e\n")
    person.until("then press Enter ")
    person.type("\n")
    assert "nothing was edited" in person.until(ASK)
    (file,) = (workspace / "runs/a/review/memory").iterdir()
    file.write_text(file.read_text().replace(OTHER, f"{OTHER} Always."))
    person.type("e\n")
    person.until("then press Enter ")
    person.type("\n")
    assert f"+{OTHER} Always." in person.until(ASK)
    person.type("a\n")
    code, rest = person.end()
    assert code == 0, rest
    run_ = Run(workspace / "runs/a")
    assert [(r.kept, r.review.split(":")[0]) for r in run_.revisions()] == [
        (False, "rejected"),
        (False, "rejected"),
        (True, "accepted"),
    ]
    assert [x.body for x in agent(workspace).lessons] == [f"{OTHER} Always."]


@pytest.mark.slow
@in_paused
def test_the_editor_is_opened_on_the_files_and_leaving_keeps_it_waiting(here: Path) -> None:
    script = here / "editor.sh"
    script.write_text(f"#!/bin/sh\nsed -i 's/{LESSON}/{OTHER}/' \"$1\"/memory/*.md\n")
    script.chmod(0o755)
    person = Terminal(here, "resume", "a", VISUAL=str(script), NO_COLOR="1")
    assert "\033[32m" not in person.until(ASK)
    person.type("edit\n")
    assert f"+{OTHER}" in person.until(ASK)
    person.type("\x04")  # Ctrl-D
    code, rest = person.end()
    assert (code, Run(here / "runs/a").waiting() is not None) == (0, True)
    assert "recreate review runs/a --accept" in rest.splitlines()[-1]


@pytest.mark.slow
@in_paused
def test_ctrl_c_at_the_question_stops_at_once_and_loses_nothing(here: Path) -> None:
    person = Terminal(here, "resume", "a")
    person.until(ASK)
    person.type("\x03")
    code, rest = person.end()
    assert code == 130
    assert "recreate resume runs/a" in re.sub(r"\s+", " ", rest)
    assert Run(here / "runs/a").waiting() is not None


@pytest.mark.slow
@in_paused
def test_a_kill_at_the_question_loses_nothing(here: Path, say: Say) -> None:
    person = Terminal(here, "resume", "a")
    person.until(ASK)
    calls = len(list(Run(here / "runs/a").records("reply")))
    person.process.kill()
    assert person.end()[0] == -9
    record = json.loads(say("review", "a", "--accept", "--json")[1])
    assert [(r["kept"], r["review"]) for r in record["revisions"]] == [(True, "accepted")]
    made = [r["call"] for r in Run(here / "runs/a").records("reply")]
    assert len(made) == len(set(made)) == calls + 4  # two train attempts of the next round


@in_built
def test_a_dropped_revision_can_be_kept_and_its_readme_says_so(here: Path, say: Say) -> None:
    journal = here / "runs/a/journal.jsonl"
    assert '"kept":true' in journal.read_text()
    code, out, _ = say(
        "build",
        *FLAGS,
        "--model",
        "scripted:script.jsonl",
        "--out",
        "runs/b",
        "--review",
        "--json",
        "--scaffold",
        "seed",
        "--rounds",
        "1",
    )
    waits = json.loads(out)["waiting"]
    assert code == 0
    assert json.loads(say("review", "b", "--reject", "no", "--json")[1])["status"] == "done"
    assert (
        json.loads(say("keep", f"b:{waits}", "--as", "bold", "--json")[1])["scaffold"]["digest"]
        == waits
    )
    text = (here / "scaffolds/bold/README.md").read_text()
    assert "(not kept by the build)" in text
    assert "0.000 -> 1.000" in text
