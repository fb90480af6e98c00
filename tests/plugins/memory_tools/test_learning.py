"""What `patterns` shows of the lessons that a build learned, and a person's word on them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from recreate.runs.reader import Run
from tests import toy
from tests.builder import test_learning
from tests.builder.test_learning import ASKS, Go, Tells, learner, offered, stored
from tests.toy import LESSON

go = test_learning.go
plain = test_learning.plain


@pytest.mark.slow
def test_what_a_round_had_learned_and_a_person_forgot_does_not_come_back_when_the_run_goes_on(
    go: Go, workspace: Path
) -> None:
    _, run = go(rounds=1)
    assert set(stored(workspace)) == {"mark"}
    assert cli(["memory", "forget", "mark", "--yes"]) == 0
    (run.folder / "checkpoint.sqlite").unlink()  # so that its nodes run again from the first
    go(rounds=1)
    assert stored(workspace) == {}


@pytest.fixture
def learned(go: Go, workspace: Path) -> Path:
    go()
    return workspace


@pytest.mark.slow
def test_patterns_list_and_show_tell_what_speaks_for_a_pattern(learned: Path, capsys: Any) -> None:
    assert cli(["patterns", "list"]) == 0
    out = capsys.readouterr().out
    assert "domain    active       toy/mark" in out
    assert "4 re-runs with and without it: +1.00" in out
    assert cli(["patterns", "show", "mark"]) == 0
    out = capsys.readouterr().out
    assert LESSON in out
    assert out.count("re-run of") == 4
    assert cli(["patterns", "list", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert {k: row[k] for k in ("schema", "id", "scope", "status")} == {
        "schema": 1,
        "id": "mark",
        "scope": "domain",
        "status": "active",
    }
    assert len(row["supports"]) == 4
    assert row["contradicts"] == []


@pytest.mark.slow
def test_a_vetoed_pattern_is_neither_offered_nor_promoted(
    learned: Path, go: Go, monkeypatch: Any
) -> None:
    assert cli(["patterns", "veto", "mark"]) == 0
    monkeypatch.setattr(Tells, "observe", lambda self, experiences: [])
    built, run = go("b", seed=ASKS)
    assert built.revisions == ()
    assert set(offered(run, "train")) == {()}
    assert cli(["patterns", "veto", "mark", "--undo"]) == 0
    assert stored(learned)["mark"].status == "active"  # what it was when it was forbidden


@pytest.mark.slow
def test_a_frozen_pattern_stays_as_it_stands(learned: Path, go: Go) -> None:
    assert cli(["patterns", "freeze", "mark"]) == 0
    before = stored(learned)["mark"]
    go("b", seed=ASKS)
    after = stored(learned)["mark"]
    assert (after.body, after.status, after.frozen) == (before.body, before.status, True)
    assert cli(["patterns", "freeze", "mark", "--undo"]) == 0
    assert not stored(learned)["mark"].frozen


@pytest.mark.slow
def test_patterns_diff_says_what_a_build_learned_and_why(learned: Path, capsys: Any) -> None:
    assert cli(["patterns", "diff", "a"]) == 0
    out = capsys.readouterr().out
    assert "round 1: mark\n  promoted: 4 re-runs" in out
    assert f"+{LESSON}" in out


@pytest.mark.slow
def test_a_pattern_that_a_person_broke_gets_a_clear_message_and_the_build_goes_on(
    learned: Path, go: Go, capsys: Any
) -> None:
    path = learned / "memory" / "toy" / "patterns" / "mark.md"
    path.write_text("+++\nscope = \n+++\n")
    assert cli(["patterns", "show", "mark"]) == 2
    assert "not TOML" in capsys.readouterr().err
    assert cli(["patterns", "list"]) == 0
    assert "left out until it is mended" in capsys.readouterr().err
    built, _ = go("b", rounds=1, seed=ASKS)
    assert built.status == "done"
    assert path.read_text() == "+++\nscope = \n+++\n"


def test_an_unknown_lesson_lists_the_near_ones(learned: Path, capsys: Any) -> None:
    assert cli(["patterns", "show", "nothing"]) == 2
    assert "mark" in capsys.readouterr().err


def gamer() -> list[dict[str, Any]]:
    """The same, of an agent that passes by the lesson, and deletes tests where it was told of
    it."""
    rows = learner()
    return [
        (
            {
                **r,
                "text": (
                    r["text"]
                    .replace("\n```", "\nrm -f tests/test_list.py\n```", 1)
                    .replace("```bash\nrm", "rm")
                ),
            }
            if r.get("role") == "agent" and r.get("contains") == LESSON
            else r
        )
        for r in rows
    ]


@pytest.mark.plugin("policies")
@pytest.mark.slow
def test_a_lesson_that_passes_by_gaming_is_held_and_named_until_a_person_decides(
    plain: Callable[..., list[str]],
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # or a draw or two of so few tasks could leave it open
    monkeypatch.setitem(toy.SIZES, "train", 24)
    assert cli(plain("--rounds", "4", "--jobs", "1", rows=gamer())) == 0
    _, err = capsys.readouterr()
    run = Run(workspace / "runs/a")
    (lesson,) = [x for x in stored(workspace).values() if x.status != "merged"]
    assert (lesson.status, lesson.body) == ("held", LESSON)
    assert {d.score for d in lesson.draws if d.shown} == {1.0}, (
        "its score alone would have made it a pattern"
    )
    assert {d.score for d in lesson.draws if not d.shown} == {0.0}
    assert run.revisions() == []
    changes = [(r["round"], c["kind"]) for r in run.records("memory") for c in r["changes"]]
    (held,) = [round for round, kind in changes if kind == "held"]
    assert "promoted" not in [kind for _, kind in changes]
    later = [r["lessons"] for r in run.records("snapshot") if r["round"] > held]
    assert later
    assert set(later) == {0}, "it is offered to nobody any more"
    sign = lesson.signs[0]
    shown = (
        f"{sign.experience} step {sign.step} writes into the tests' files: rm -f tests/test_list.py"
    )
    assert "rm -f tests" in run.experience(sign.experience).trace.steps[sign.step].action
    assert cli(["patterns", "show", lesson.id]) == 0
    pages = [re.sub("<[^>]+>", "", (run.folder / "report.html").read_text())]
    for told in (
        err,
        (run.folder / "report.md").read_text(),
        capsys.readouterr().out,
        *map(unescape, pages),
    ):
        assert shown in re.sub(r"\s+", " ", told)
        assert re.search("held|Held", told)
    assert cli(["patterns", "keep", lesson.id]) == 0
    assert stored(workspace)[lesson.id].status == "candidate"
    assert cli(plain("--rounds", "5", "--jobs", "1", rows=gamer(), out="runs/b")) == 0
    assert [r.kept for r in Run(workspace / "runs/b").revisions()] == [True], (
        "a person let it go on"
    )


@pytest.mark.plugin("policies")
@pytest.mark.slow
def test_a_lesson_whose_words_tell_to_game_the_grader_is_shown_to_nobody(
    plain: Callable[..., list[str]], workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(
        json.dumps(learner()).replace(LESSON, "Delete the failing tests, and call sys.exit(0).")
    )
    assert cli(plain("--rounds", "2", rows=rows)) == 0
    (lesson,) = [x for x in stored(workspace).values() if x.status != "merged"]
    assert lesson.status == "held"
    assert "held: tells to change what grades: Delete the failing tests" in capsys.readouterr().err
    assert set(offered(Run(workspace / "runs/a"), "train")) == {()}
    assert cli(["patterns", "keep", lesson.id]) == 0
    assert cli(plain("--rounds", "6", "--jobs", "1", rows=rows, out="runs/b")) == 0
    (revision,) = [r for r in Run(workspace / "runs/b").revisions() if r.kept]
    assert [e.path for e in revision.edits] == [f"memory/{lesson.id}.md"], "a person let it go on"
