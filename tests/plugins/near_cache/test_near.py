"""`--cache-near`: train attempts answered with the reply to a near question, marked, and told from
others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api.types import Split, Task
from recreate.cli import run as cli
from recreate.memory.held_out import Held, HeldOut
from tests.toy import Toy, write_script

Go = Callable[..., tuple[int, Any]]
BENCH = (
    "bench",
    "--scaffold",
    "seed",
    "--domain",
    "tests.plugins.near_cache.test_near:Paraphrased",
    "--model",
    "scripted:script.jsonl",
    "--jobs",
    "1",
)
BENCH += ("--memory.embedder", "hashed", "--cache", "kept")
NEAR = ("--cache-near", "0.8")


ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


class Paraphrased(Toy):
    """The toy's tasks without a number in their words: vectors tell them apart hardly."""

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            task.model_copy(
                update={"prompt": task.prompt.replace(f"number {n}", f"that is the {ORDINALS[n]}")}
            )
            for task in super().tasks(split)
            for n in [int(task.id.rpartition(":")[2])]
        ]


@pytest.fixture
def go(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Go:
    """Type a command; returns its exit code and the JSON that it prints."""
    write_script(workspace / "script.jsonl")

    def go(*words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = cli([*words, "--json"])
        out = capsys.readouterr().out.strip().splitlines()
        return code, json.loads(out[-1]) if out else {}

    return go


def attempts(run: Path) -> dict[str, list[dict[str, Any]]]:
    """The steps of each attempt of a run, by its id."""
    found = {}
    for folder in sorted((run / "attempts").iterdir()):
        found[folder.name] = [
            json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()
        ]
    return found


@pytest.mark.slow
def test_a_train_bench_with_a_near_cache_says_how_many_calls_and_tokens_it_saved(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = go(*BENCH, "--split", "train", *NEAR, "--out", "runs/near")
    assert code == 0
    spend = go("show", "runs/near")[1]["spend"]
    marked = [
        step["near"]
        for steps in attempts(workspace / "runs/near").values()
        for step in steps
        if "near" in step
    ]
    assert len(marked) == spend["near"]["calls"] > 0
    assert printed["near"] == spend["near"]
    assert spend["near"]["tokens_saved"] > 0
    assert all(
        0.8 <= each["similarity"] <= 1 and each["task"].startswith("toy:train:") for each in marked
    )
    capsys.readouterr()
    assert cli(["show", "runs/near"]) == 0
    assert f"{len(marked)} had the reply to a near question" in capsys.readouterr().out
    assert cli([*BENCH[:-1], "other", "--split", "train", *NEAR, "--out", "runs/b", "--fresh"]) == 0
    assert re.search(
        r"\d+ calls had the reply to a near question, \d+ tokens saved", capsys.readouterr().out
    )


def test_a_trace_shows_which_question_its_reply_was_made_for(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go(*BENCH, "--split", "train", *NEAR, "--out", "runs/near")[0] == 0
    (id, step), *_ = [
        (id, s) for id, ss in attempts(workspace / "runs/near").items() for s in ss if "near" in s
    ]
    shown = go("traces", "show", id)[1]["steps"][step["step"]]["near"]
    assert shown.items() >= step["near"].items()
    capsys.readouterr()
    assert cli(["traces", "show", id]) == 0
    assert (
        f"the reply to a near question ({step['near']['similarity']:.3f})"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("split", ["validation", "test"])
def test_measured_attempts_are_never_answered_from_a_near_question(
    go: Go, workspace: Path, split: str
) -> None:
    assert go(*BENCH, "--split", "train", *NEAR, "--out", "runs/train")[0] == 0
    before = sorted((workspace / "kept/near").iterdir())
    size = [file.stat().st_size for file in before]
    assert go(*BENCH, "--split", split, *NEAR, "--out", "runs/measured")[0] == 0
    assert "near" not in go("show", "runs/measured")[1]["spend"]
    after = sorted((workspace / "kept/near").iterdir())
    assert (after, [file.stat().st_size for file in after]) == (before, size)


@pytest.mark.slow
def test_what_a_workspace_holds_out_by_now_answers_no_train_attempt(
    go: Go, workspace: Path
) -> None:
    def sources(run: str) -> list[str]:
        return [
            s["near"]["task"]
            for steps in attempts(workspace / run).values()
            for s in steps
            if "near" in s
        ]

    assert go(*BENCH, "--split", "train", "--cache-near", "0.8", "--out", "runs/a")[0] == 0
    first = sources("runs/a")[0]
    assert go(*BENCH, "--split", "train", "--cache-near", "0.81", "--out", "runs/b")[0] == 0
    assert first in sources("runs/b")
    (task,) = [task for task in Paraphrased().tasks("train") if task.id == first]
    HeldOut(workspace / "memory").add([Held(task.group, task.id, "test", task.domain)])
    assert go(*BENCH, "--split", "train", "--cache-near", "0.82", "--out", "runs/c")[0] == 0
    assert sources("runs/c")
    assert first not in sources("runs/c")


@pytest.mark.slow
def test_an_attempt_with_a_near_cache_is_not_read_back_as_one_without(
    go: Go, workspace: Path
) -> None:
    for out, words in (("a", NEAR), ("b", ("--cache-near", "0.9")), ("c", ()), ("d", ())):
        assert go(*BENCH, "--split", "train", *words, "--out", f"runs/{out}")[0] == 0
    ids = {out: set(attempts(workspace / "runs" / out)) for out in "abcd"}
    assert ids["c"] == ids["d"]
    assert not ids["a"] & ids["b"]
    assert not (ids["a"] | ids["b"]) & ids["c"]
    assert "near" not in str(attempts(workspace / "runs/d"))


@pytest.mark.slow
def test_a_run_with_a_near_cache_is_replayed_as_it_was(go: Go, workspace: Path) -> None:
    words = (*BENCH, "--split", "train")
    assert go(*words, *NEAR, "--out", "runs/near", "--record", "tape")[0] == 0
    told = go("show", "runs/near")[1]["spend"]["near"]
    code, _ = go(
        "bench", "--scaffold", "seed", "--split", "train", "--replay", "tape", "--out", "runs/again"
    )
    assert (code, go("show", "runs/again")[1]["spend"]["near"]) == (0, told)


def test_nearness_without_a_cache_is_refused_with_what_to_type(go: Go) -> None:
    code, found = go(*BENCH[:-2], *NEAR)
    assert (code, found["error"]["code"], found["error"]["fix"]) == (
        2,
        "usage",
        "--cache --cache-near 0.8",
    )
    code, found = go(*BENCH, "--cache-near", "1.5")
    assert (code, found["error"]["code"]) == (2, "bad-setting")
