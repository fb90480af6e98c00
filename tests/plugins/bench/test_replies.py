"""Replies are recorded, replayed and cached while agents are measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recreate.cli import run as cli
from recreate.models.replies import SharedReplies, folder_of
from tests.runs.test_recorded_runs import TAPE, Go
from tests.stub import Stub
from tests.toy import write_script


@pytest.fixture
def go(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Go:
    """Type a command; returns its exit code and the JSON that it prints."""
    write_script(workspace / "script.jsonl")

    def go(*words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = cli([*words, "--json"])
        out = capsys.readouterr().out.strip().splitlines()
        return code, json.loads(out[-1]) if out else {}

    return go


def measured(bench: dict[str, Any]) -> list[dict[str, Any]]:
    """Its cells, but for the command that measures them anew: that names the run's own folder."""
    return [{k: v for k, v in cell.items() if k != "command"} for cell in bench["cells"]]


@pytest.mark.slow
def test_a_run_and_a_bench_are_replayed_too(go: Go, workspace: Path) -> None:
    model = ("--domain", "tests.toy:Toy", "--model", "scripted:script.jsonl")
    code, first = go("run", "seed", "toy:train:0", *model, "--record", "one")
    assert code == 0
    code, bench = go(
        "bench", "--scaffold", "seed", *model, "--tasks", "3", "--repeats", "2", "--record", "many"
    )
    assert code == 0
    (workspace / "script.jsonl").unlink()
    code, again = go("run", "seed", "toy:train:0", "--replay", "one", "--out", "runs/again")
    assert (code, again["experience"], again["score"]) == (0, first["experience"], first["score"])
    code, cells = go(
        "bench", "--scaffold", "seed", "--tasks", "3", "--replay", "many", "--out", "runs/more"
    )
    assert (code, measured(cells)) == (0, measured(bench))
    code, found = go("run", "seed", "toy:train:1", "--replay", "one", "--out", "runs/other")
    assert (code, found["expected"]) == (4, None)


BENCH = (
    "bench",
    "--scaffold",
    "seed",
    "--domain",
    "tests.toy:Toy",
    "--tasks",
    "3",
    "--repeats",
    "2",
    "--fresh",
)


def test_cached_replies_are_asked_once_over_runs_and_cost_nothing(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Stub("```bash\nsubmit\n```") as stub:
        words = (*BENCH, "--model", f"openai:{stub.url}#stub", "--price", "1000,1000", "--cache")
        code, first = go(*words, "--out", "runs/a")
        asked = stub.count
        assert (code, asked) == (0, 6)  # each repeat was asked for itself
        code, again = go(*words, "--out", "runs/b", "--jobs", "1")
        assert (code, measured(again), stub.count) == (0, measured(first), asked)
    code, shown = go("show", "runs/b")
    assert (shown["spend"]["usd"], shown["spend"]["tokens_in"], shown["spend"]["cached"]) == (
        0.0,
        0,
        6,
    )
    assert cli(["show", "runs/b"]) == 0
    assert " min; 6 calls were cached, which cost nothing\n" in capsys.readouterr().out
    code, shown = go("show", "runs/a")
    assert shown["spend"]["usd"] > 0
    assert "cached" not in shown["spend"]


def test_a_cached_call_is_made_though_the_budget_could_not_pay_for_it(
    go: Go, workspace: Path
) -> None:
    with Stub("```bash\nsubmit\n```") as stub:
        words = (
            *BENCH,
            "--model",
            f"openai:{stub.url}#stub",
            "--price",
            "1000,1000",
            "--cache",
            "kept",
        )
        assert go(*words, "--out", "runs/a")[0] == 0
        assert go(*words, "--out", "runs/b", "--budget", "0.01usd")[0] == 0
        assert go(*words[:-2], "--out", "runs/c", "--budget", "0.01usd")[0] == 3
    assert SharedReplies(workspace / "kept").size()[0] == 6


def test_cached_calls_are_replayed_as_such_though_the_budget_could_not_pay_for_them(
    go: Go, workspace: Path
) -> None:
    with Stub("```bash\nsubmit\n```") as stub:
        words = (
            *BENCH,
            "--model",
            f"openai:{stub.url}#stub",
            "--price",
            "1000,1000",
            "--cache",
            "kept",
        )
        assert go(*words, "--out", "runs/a")[0] == 0
        code, cached = go(*words, "--out", "runs/b", "--budget", "0.01usd", *TAPE)
        assert code == 0
    code, again = go(*BENCH, "--replay", "tape", "--out", "runs/c")
    assert (code, measured(again)) == (0, measured(cached))
    assert go("show", "runs/c")[1]["spend"]["cached"] == 6


def test_a_cache_that_cannot_be_one_is_refused(go: Go, workspace: Path) -> None:
    (workspace / "notes.txt").write_text("mine")
    code, found = go(*BENCH, "--model", "scripted:script.jsonl", "--cache", "notes.txt")
    assert (code, found["error"]["code"]) == (2, "bad-cache")


def test_failed_calls_are_never_kept(go: Go, workspace: Path) -> None:
    with Stub("```bash\nsubmit\n```", faults=[500] * 6) as stub:
        words = (
            *BENCH,
            "--model",
            f"openai:{stub.url}#stub",
            "--price",
            "0,0",
            "--cache",
            "--models.retries",
            "0",
        )
        go(*words, "--out", "runs/a", "--jobs", "1")
        code, cells = go(*words, "--out", "runs/b", "--jobs", "1")
        assert (code, cells["cells"][0]["set_aside"]) == (0, 0)
    assert SharedReplies(folder_of("on")).size()[0] == 6
