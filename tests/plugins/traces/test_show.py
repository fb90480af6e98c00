"""`traces list`, `show` and `search` on a run that a scripted model made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import test_show
from tests.cli.test_show import Ask, Say
from tests.toy import LESSON

ask = test_show.ask
built = test_show.built
say = test_show.say


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


def test_looking_changes_nothing(say: Say, built: Path) -> None:
    def state() -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in (built / "runs").rglob("*") if p.is_file()}

    before = state()
    for words in (["log"], ["show"], ["traces", "list", "last"], ["diff", "seed", "a"]):
        assert say(*words)[0] == 0
    assert state() == before


KEYS = {"experience", "task", "split", "digest", "ending", "passed", "score", "steps", "evidence"}


def test_traces_are_listed_from_memory_and_from_a_run_alike(ask: Ask, say: Say) -> None:
    remembered, of_run = ask("traces", "list"), ask("traces", "list", "last")
    assert len(remembered) == 16
    assert all(set(row) >= KEYS for row in remembered)
    by_id = {row["experience"]: row for row in remembered}
    assert by_id == {row["experience"]: row for row in of_run}
    assert len(say("traces", "list")[1].splitlines()) == 16


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


def test_an_unknown_trace_is_bad_input(say: Say) -> None:
    for words in (["zz"], [""], ["zz", "--run", "last"]):
        code, out, _ = say("traces", "show", *words, "--json")
        assert (code, json.loads(out)["error"]["code"]) == (2, "no-attempt")
    assert say("traces", "list", "--split", "tset")[0] == 2


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
