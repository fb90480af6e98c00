"""`build --review`, `review`, `keep` and `revert` as a person types them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.cli import run
from recreate.runs.reader import Run
from tests.builder.test_review import OTHER, REJECT, rows
from tests.ready import ready
from tests.toy import LESSON

Say = Callable[..., tuple[int, str, str]]
FLAGS = [
    "--domain",
    "tests.toy:Toy",
    "--train",
    "4",
    "--validation",
    "6",
    "--gate.false_keep",
    "0",
    "--sandbox",
    "none",
]
FLAGS += ["--memory.embedder", "hashed", "--rounds", "2"]


def in_workspace(folder: Path, *words: str) -> None:
    (folder / "recreate.toml").write_text('domain = "tests.toy:Toy"\n')
    (folder / "script.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in rows(**{REJECT.reason: OTHER}))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RECREATE_HOME", str(folder / "home"))
        assert run(["build", *FLAGS, "--model", "scripted:script.jsonl", "--json", *words]) == 0


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose run `a` waits for a review."""
    folder = tmp_path_factory.mktemp("paused")
    in_workspace(folder, "--out", "runs/a", "--review")
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose run `a` kept one revision: scaffolds/toy."""
    folder = tmp_path_factory.mktemp("built")
    in_workspace(folder, "--out", "runs/a")
    return folder


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command: (exit code, stdout, stderr)."""

    def say(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return say


@pytest.fixture
def here(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the workspace that the test names, as the current folder."""
    folder = tmp_path / "workspace"
    shutil.copytree(request.getfixturevalue(request.param), folder)
    monkeypatch.chdir(folder)
    return folder


in_paused = pytest.mark.parametrize("here", ["paused"], indirect=True)
in_built = pytest.mark.parametrize("here", ["built"], indirect=True)


def agent(folder: Path) -> scaffolds.Scaffold:
    return scaffolds.load(folder / "scaffolds/toy")


# ------------------------------------------------------------------------------------------------
# off a terminal


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


# -------------------------------------------------------------------------------------------------
# at a terminal


class Terminal:
    """A person at a real pseudo-terminal: waits for words, then types."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        env = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
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


# -----------------------------------------------------------------------------------------------
# keep and revert


@in_built
@pytest.mark.slow
def test_keep_and_revert_go_there_and_back(here: Path, say: Say) -> None:
    (kept,) = Run(here / "runs/a").revisions()
    seed = kept.parent
    assert agent(here).digest == kept.id
    code, out, _ = say("revert", "toy", "--json")
    record = json.loads(out)
    assert code == 0
    assert record == {
        "schema": 1,
        "run": str(here / "runs/a"),
        "before": kept.id,
        "scaffold": {"path": str(here / "scaffolds/toy"), "digest": seed},
    }
    assert agent(here).digest == seed
    readme = (here / "scaffolds/toy/README.md").read_text()
    assert "0.000 -> 0.000" in readme
    assert kept.id not in readme
    code, out, err = say("keep", f"a:{kept.id[:6]}")
    assert (code, out.strip()) == (0, f"scaffolds/toy is now {kept.id} (it was {seed})")
    assert f"recreate keep a:{seed} --as toy puts it back" in err
    assert "0.000 -> 1.000" in (here / "scaffolds/toy/README.md").read_text()
    assert say("keep", "last", "--as", "mine")[0] == 0
    assert scaffolds.load(here / "scaffolds/mine").digest == kept.id
    # the domain of recreate.toml
    assert json.loads(say("revert", "--json")[1])["scaffold"]["digest"] == seed


@in_built
def test_what_a_person_wrote_is_saved_before_it_is_replaced_and_comes_back(
    here: Path, say: Say
) -> None:
    system = here / "scaffolds/toy/system.md"
    system.write_text(system.read_text() + "Mine.\n")
    (here / "scaffolds/toy/tools").mkdir()
    (here / "scaffolds/toy/tools/look.py").write_text('"""Looks."""\n')
    mine = agent(here)
    code, out, _ = say("revert", "toy", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "no-revision")
    code, out, err = say("keep", "a", "--json")
    assert (code, json.loads(out)["before"]) == (0, mine.digest)
    assert f"human/{mine.digest}" in err
    assert f"recreate keep a:{mine.digest}" in err
    assert "Mine." not in system.read_text()
    assert say("keep", f"a:{mine.digest}")[0] == 0
    back = agent(here)
    assert {p: t for p, t in back.files.items() if p != "README.md"} == {
        p: t for p, t in mine.files.items() if p != "README.md"
    }
    assert "written by a person" in back.files["README.md"]
    assert "Not measured" in back.files["README.md"]
    assert say("show", f"a:{mine.digest}")[0] == 0
    (kept,) = Run(here / "runs/a").revisions()
    assert json.loads(say("revert", "toy", "--json")[1])["scaffold"]["digest"] == kept.id
    assert say("revert", "toy")[0] == 0
    code, out, _ = say("revert", "toy", "--json")
    assert json.loads(out)["error"]["code"] == "no-parent"


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


@in_built
@pytest.mark.parametrize(
    ("words", "code", "fix"),
    [
        (("keep", "a:ffffff"), "no-revision", "there are:"),
        (("keep", "nowhere:ffff"), "no-run", "RUN:REVISION"),
        (("keep", "toy"), "no-run", "RUN:REVISION"),
        (("keep", "a", "--as", "../out"), "bad-name", "plain name"),
        (("revert", "nobody"), "no-scaffold", "toy"),
        (("review", "nowhere"), "no-run", "runs/"),
    ],
)
def test_what_is_not_there_is_said_with_what_to_type(
    here: Path, say: Say, words: tuple[str, ...], code: str, fix: str
) -> None:
    found, out, _ = say(*words, "--json")
    error = json.loads(out)["error"]
    assert (found, error["code"]) == (2, code)
    assert fix in error["fix"]


def test_revert_without_any_run_says_so(workspace: Path, say: Say) -> None:
    shutil.copytree(Path(__file__).parents[2] / "scaffolds/seed", workspace / "scaffolds/toy")
    assert json.loads(say("revert", "toy", "--json")[1])["error"]["code"] == "no-run"


@in_built
def test_a_run_that_is_being_worked_on_is_not_written_to(here: Path, say: Say) -> None:
    system = here / "scaffolds/toy/system.md"
    system.write_text(system.read_text() + "Mine.\n")
    with (here / "runs/a/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, _ = say("keep", "a", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "run-in-use")
    assert "Mine." in system.read_text()


# ------------------------------------------------------------------------------------------------
# hand edits


@in_built
def test_the_next_build_starts_from_what_a_person_wrote_but_not_from_a_new_readme(
    here: Path, say: Say
) -> None:
    digest = agent(here).digest
    (here / "scaffolds/toy/README.md").write_text("# Mine\n")
    assert agent(here).digest == digest
    system = here / "scaffolds/toy/system.md"
    system.write_text(system.read_text() + "Mine.\n")
    mine = agent(here).digest
    code, out, _ = say(
        "build", *FLAGS, "--model", "scripted:script.jsonl", "--out", "runs/b", "--json"
    )
    assert (code, json.loads(out)["validation"]["before"]) == (0, 1.0)
    assert next(Run(here / "runs/b").records("seed"))["scaffold"] == mine
    assert "Mine." in system.read_text()
    assert (here / "scaffolds/toy/README.md").read_text() == "# Mine\n"


@in_built
def test_a_build_from_another_seed_saves_what_stood_there_and_says_so(here: Path, say: Say) -> None:
    system = here / "scaffolds/toy/system.md"
    system.write_text(system.read_text() + "Mine.\n")
    mine = agent(here).digest
    flags = [*FLAGS, "--model", "scripted:script.jsonl", "--scaffold", "seed", "--rounds", "1"]
    code, _, err = say("build", *flags, "--out", "runs/b")
    assert (code, err.splitlines()[-2]) == (0, f"recreate keep b:{mine} --as toy puts it back")
    assert "Mine." not in system.read_text()
    assert say("keep", f"b:{mine}")[0] == 0
    assert agent(here).digest == mine


@pytest.mark.slow
def test_the_sdk_asks_a_function_and_waits_without_one(workspace: Path) -> None:
    (workspace / "script.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows()))
    options: dict[str, Any] = {
        "model": "scripted:script.jsonl",
        "train": 4,
        "validation": 6,
        "rounds": 1,
    }
    options |= {
        "sandbox": "none",
        "memory__embedder": "hashed",
        "out": "runs/a",
        "optimizer": "reflect",
    }
    waits = recreate.build("tests.toy:Toy", review=True, **options)
    assert (waits.status, waits.waiting is not None, waits.record["waiting"]) == (
        "review",
        True,
        waits.waiting.id,
    )  # type: ignore[union-attr]
    said = recreate.build(
        "tests.toy:Toy", review=lambda *offer: recreate.Review(decision="accept"), **options
    )
    assert (said.status, said.revisions[0].review) == ("done", "accepted")
    assert said.kept is not None
    assert (said.kept.digest, said.kept.saved) == (said.scaffold.digest, False)


class Meddler:
    """A person's hand during a build: an optimizer that writes into scaffolds/toy before it
    proposes."""

    def __init__(self, materials: Any) -> None:
        from recreate.optimizers.reflect import Reflect

        self.reflect = Reflect(materials)

    def propose(self, scaffold: Any, experiences: Any) -> Any:
        with Path("scaffolds/toy/system.md").open("a") as file:
            file.write("Written meanwhile.\n")
        return self.reflect.propose(scaffold, experiences)


@pytest.mark.slow
def test_a_build_does_not_write_over_what_a_person_wrote_meanwhile(
    workspace: Path, say: Say
) -> None:
    shutil.copytree(Path(__file__).parents[2] / "scaffolds/seed", workspace / "scaffolds/toy")
    (workspace / "script.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows()))
    flags = [
        *FLAGS,
        "--model",
        "scripted:script.jsonl",
        "--optimizer",
        "tests.cli.test_review:Meddler",
    ]
    code, out, err = say("build", *flags, "--out", "runs/a", "--json", "--rounds", "1")
    record = json.loads(out)
    place = f"runs/a:{record['scaffold']['digest']}"
    assert (code, record["validation"]["verdict"], record["scaffold"]["path"]) == (
        0,
        "better",
        place,
    )
    assert "Written meanwhile." in (workspace / "scaffolds/toy/system.md").read_text()
    assert err.splitlines()[-1] == f"recreate keep {place} puts the result there"
    mine = agent(workspace).digest
    code, _, err = say("keep", place)
    assert (code, agent(workspace).digest) == (0, record["scaffold"]["digest"])
    assert say("keep", f"a:{mine}")[0] == 0
    assert "Written meanwhile." in (workspace / "scaffolds/toy/system.md").read_text()
