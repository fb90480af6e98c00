"""A bench of several agents, models and domains: one table, one queue, paid once, stopped by
budgets and resumed."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents.scaffold import load
from recreate.api.errors import UNSOUND, Fault
from recreate.api.paths import shipped
from recreate.api.ports import SandboxBackend
from recreate.api.types import Grade, Task, Trace
from recreate.cli import run as cli
from recreate.runs.gate import pass_hat
from recreate.runs.reader import Run
from tests.builder.test_loop import PATIENCE, start, toy_reply, until_held
from tests.stub import Stub
from tests.toy import LESSON, Toy, script

Go = Callable[..., tuple[int, dict[str, Any]]]


class Other(Toy):
    """The same tasks under another name. tests.plugins.bench.test_batch:Other"""

    name = "other"

    def tasks(self, split: Any = None) -> Any:
        return [
            t.model_copy(
                update={
                    "id": t.id.replace("toy:", "other:"),
                    "domain": "other",
                    "group": f"o{t.group}",
                }
            )
            for t in super().tasks(split)
        ]


class Unsound(Toy):
    """Three of eight validation tasks cannot be graded. tests.plugins.bench.test_batch:Unsound"""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        if task.id in ("toy:validation:0", "toy:validation:1", "toy:validation:2"):
            raise Fault("its tests cannot be run", fix="mend it", code=UNSOUND)
        return super().grade(task, trace, backend)


class Kinded(Toy):
    """Its tasks are of two kinds, by turns. tests.plugins.bench.test_batch:Kinded"""

    def kind(self, task: Task) -> str:
        return ("even", "odd")[int(task.id.rpartition(":")[2]) % 2]


class Moving(Toy):
    """Its train tasks become validation tasks once a file says so.
    tests.plugins.bench.test_batch:Moving"""

    def tasks(self, split: Any = None) -> Any:
        moved = {"train": "validation"} if Path("moved").exists() else {}
        found = [
            t.model_copy(update={"split": moved.get(t.split, t.split)}) for t in super().tasks()
        ]
        return [t for t in found if split in (None, t.split)]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models, plain.jsonl that never ends an answer as it must and right.jsonl that does, and
    two agents."""
    (tmp_path / "recreate.toml").write_text('sandbox = "none"\n[memory]\nembedder = "hashed"\n')
    for name in ("a", "b"):
        place = tmp_path / "scaffolds" / name
        place.mkdir(parents=True)
        for file in (shipped("scaffolds") / "seed").iterdir():
            (place / file.name).write_text(file.read_text("utf-8") + ("\n" if name == "b" else ""))
    rows = [
        {k: v for k, v in row.items() if k != "task"} | {"task": row["task"]}
        for row in script()
        if "task" in row
    ]
    plain = [row for row in rows if "contains" not in row]
    right = [
        {k: v for k, v in row.items() if k != "contains"}
        for row in rows
        if row.get("contains") == LESSON
    ]
    for name, lines in (("plain", plain), ("right", right)):
        lines = [
            *lines,
            *({**line, "task": line["task"].replace("toy:", "other:")} for line in lines),
        ]
        lines.append({"role": "agent", "text": "```bash\nsubmit\n```"})
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def go(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Go:
    def called(*words: str) -> tuple[int, dict[str, Any]]:
        code = cli([*words, "--json"])
        out = capsys.readouterr().out.strip()
        return code, json.loads(out) if out else {}

    return called


TWO = (
    "bench",
    "--scaffold",
    "a",
    "--scaffold",
    "b",
    "--domain",
    "tests.toy:Toy",
    "--model",
    "scripted:plain.jsonl",
)
FOUR = (*TWO, "--model", "scripted:right.jsonl")


def test_every_scaffold_is_measured_with_every_model_on_every_domain(
    go: Go, workspace: Path
) -> None:
    words = (
        *FOUR,
        "--domain",
        "tests.plugins.bench.test_batch:Other",
        "--repeats",
        "2",
        "--tasks",
        "0:3",
        "--jobs",
        "4",
    )
    code, made = go(*words, "--out", "runs/x", "--format", "jsonl,csv,predictions")
    assert code == 0
    cells = made["cells"]
    assert len(cells) == 8
    assert {(c["scaffold"], c["model"], c["domain"]) for c in cells} == {
        (s, f"scripted:{m}.jsonl", d)
        for s in "ab"
        for m in ("plain", "right")
        for d in ("toy", "other")
    }
    for cell in cells:
        right = float("right" in cell["model"])
        assert (cell["n"], cell["repeats"], cell["mean"], cell["pass_1"]) == (3, 2, right, right)
        assert cell["pass_hat"] == {"1": right, "2": right}
        assert cell["endings"] == {"passed" if right else "failed": 6}
    pairs = [(d["scaffold"], d["model"] == d["baseline"]["model"]) for d in made["differences"]]
    assert pairs == [("b", True)] * 4, "the first scaffold is the baseline, with the same model"
    lines = [
        json.loads(line) for line in (workspace / "runs/x/results.jsonl").read_text().splitlines()
    ]
    assert len(lines) == 48
    assert len({(r["digest"], r["model"], r["task"], r["repeat"]) for r in lines}) == 48
    rows = list(csv.DictReader((workspace / "runs/x/cells.csv").read_text().splitlines()))
    assert [row["pass^2"] for row in rows] == [str(c["pass_hat"]["2"]) for c in cells]
    answers = [
        json.loads(x)
        for f in (workspace / "runs/x/predictions").iterdir()
        for x in f.read_text().splitlines()
    ]
    assert len(answers) == 24
    assert {"task", "answer", "instance_id", "model_patch"} <= answers[0].keys()


def test_two_agents_of_one_name_are_told_apart_in_the_table(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "other").mkdir()
    (workspace / "scaffolds/b").rename(workspace / "other/a")
    words = ["other/a" if word == "b" else word for word in TWO]
    assert cli([*words, "--tasks", "0:2", "--out", "runs/x"]) == 0
    lines = capsys.readouterr().out.splitlines()
    digests = [load(workspace / place).digest[:6] for place in ("scaffolds/a", "other/a")]
    assert [line.split()[:2] for line in lines[2:4]] == [["a", digest] for digest in digests]
    assert lines[4].startswith(f"a {digests[1]} with ")
    assert f", to a {digests[0]} with " in lines[4]


def test_tasks_that_no_agent_could_be_graded_at_count_as_dropped(go: Go, workspace: Path) -> None:
    words = [
        word.replace("tests.toy:Toy", "tests.plugins.bench.test_batch:Unsound") for word in TWO
    ]
    models = ("--model", "scripted:right.jsonl", "--baseline", "scripted:plain.jsonl")
    code, table = go(*words, *models, "--out", "runs/x")
    assert code == 0
    assert [(cell["n"], cell["set_aside"]) for cell in table["cells"]] == [(5, 3)] * 4
    assert len(table["differences"]) == 2
    for found in table["differences"]:
        assert (found["tasks"], found["dropped"], found["won"], found["lost"]) == (5, 3, 5, 0)
        assert found["verdict"] == "undecided", "over a fifth of the pairs were dropped"
    code, shown = go("show", "runs/x")
    assert (code, [cell["set_aside"] for cell in shown["cells"]]) == (0, [3] * 4)
    code, beside = go("compare", "runs/x", "runs/x")
    assert (code, {found["dropped"] for found in beside["differences"]}) == (0, {3})


def test_a_suite_says_the_same_as_flags_and_its_folder_goes_on(go: Go, workspace: Path) -> None:
    (workspace / "suite.toml").write_text(
        'scaffold = ["a", "b"]\nmodel = ["scripted:plain.jsonl", "scripted:right.jsonl"]\ndomain ='
        ' "tests.toy:Toy"\ntasks = "0:2"\nbaseline = "scripted:plain.jsonl"\nbudget ='
        ' ["3attempts"]\njobs = 1\n'
    )
    code, first = go("bench", "suite.toml", "--out", "runs/x")
    assert (code, first["status"]) == (3, "budget")
    assert sum(len(c["scores"]) for c in first["cells"]) == 3
    code, again = go("bench", "runs/x", "--budget", "100attempts")
    assert (code, again["status"], again["stopped"]) == (0, "done", [])
    assert [c["n"] for c in again["cells"]] == [2] * 4
    assert [d["diff"] for d in again["differences"]] == [
        1.0,
        1.0,
    ], "with the other model, each scaffold to itself"
    code, spent = go("show", "runs/x")
    assert spent["spend"]["calls"] == 8 * 2, (
        "what was attempted before the budget ended was not paid again"
    )
    code, whole = go("bench", "suite.toml", "--out", "runs/y", "--budget", "100attempts", "--fresh")
    assert scored(again) == scored(whole), (
        "and the table is that of a suite which no budget stopped"
    )


# ------------------------------------------------------------------------------ killed, and on a
# full disk


SUITE = """
scaffold = ["a", "b"]
model = "openai:{url}#toy"
domain = "tests.toy:Toy"
tasks = "0:4"
repeats = 2
jobs = 2
price = "0,0"
"""
AGAIN = ("bench", "suite.toml", "--out", "runs/x", "--json")


def suite(folder: Path, workspace: Path, url: str) -> Path:
    """A workspace with a suite of 16 attempts: of two agents, b knows the lesson."""
    folder.mkdir()
    shutil.copy(workspace / "recreate.toml", folder)
    shutil.copytree(workspace / "scaffolds", folder / "scaffolds")
    with (folder / "scaffolds" / "b" / "system.md").open("a") as file:
        file.write(LESSON)
    (folder / "suite.toml").write_text(SUITE.format(url=url))
    return folder


def scored(record: dict[str, Any]) -> list[Any]:
    """What a table says of each cell and attempt, but for the clock and the run; and of the cells
    beside each other."""
    clock = ("latency", "date", "scores", "command")
    cells = [{k: v for k, v in cell.items() if k not in clock} for cell in record["cells"]]
    scores = [
        {k: v for k, v in s.items() if k != "seconds"}
        for cell in record["cells"]
        for s in cell["scores"]
    ]
    return [record["status"], cells, scores, record["differences"]]


def whole_suite(folder: Path) -> dict[str, Any]:
    """The table of a suite that nothing disturbs."""
    out, err = start(folder, *AGAIN).communicate(timeout=PATIENCE)
    made: dict[str, Any] = json.loads(out or "{}")
    assert [cell["mean"] for cell in made["cells"]] == [0.0, 1.0], err.decode()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 11, 31])
def test_a_suite_that_is_killed_goes_on_by_the_same_command_and_nothing_that_ended_is_asked_again(
    workspace: Path, tmp_path: Path, at: int
) -> None:
    with Stub(toy_reply(script())) as stub:
        expected = whole_suite(suite(tmp_path / "whole", workspace, stub.url))
        total = len(stub.calls)
        assert total == 16 * 2
        stub.hold = total + at
        folder = suite(tmp_path / "killed", workspace, stub.url)
        killed = start(folder, *AGAIN)
        until_held(stub, killed)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        stub.release()
        ended = {file.parent.name for file in folder.glob("runs/x/attempts/*/experience.json")}
        before = len(stub.calls)
        again = start(folder, *AGAIN)
        out, err = again.communicate(timeout=PATIENCE)
        assert again.returncode == 0, err.decode()
        assert scored(json.loads(out)) == scored(expected)
        asked = Counter(stub.calls[total:])
        assert len([call for call, n in asked.items() if n > 1]) <= 2, (
            "only calls in flight at the kill (jobs = 2)"
        )
        assert not {call.split("/")[1] for call in stub.calls[before:]} & ended
        assert len((folder / "runs/x/results.jsonl").read_text().splitlines()) == 16


@pytest.mark.parametrize("words", [TWO, (*TWO[:3], *TWO[5:])], ids=["two cells", "one cell"])
def test_a_disk_that_takes_no_more_lines_ends_the_suite_with_the_command_that_goes_on(
    go: Go, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, left = os.write, [40]

    def full(handle: int, data: bytes) -> int:
        if bytes(data[:8]).startswith(b'{"kind":'):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data)

    words = (*words, "--jobs", "1", "--out", "runs/x")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        code, told = go(*words)
    assert (code, told["error"]["code"]) == (1, "disk")
    fix = (
        "free some disk space, then the same command with --out runs/x: what ended is not paid"
        " again"
    )
    assert told["error"]["fix"] == fix
    assert len(list(Run(Path("runs/x")).records("experience"))) > 1
    code, table = go(*words)
    assert (code, {cell["n"] for cell in table["cells"]}) == (0, {8})
    calls = [record["call"] for record in Run(Path("runs/x")).records("reply")]
    assert len(calls) == len(set(calls)) == 2 * 8 * len(table["cells"])


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def mounts() -> bool:
    """Whether a file system of our own can be mounted here, as user namespaces allow."""
    command = [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"]
    return (
        subprocess.run(command, capture_output=True, check=False).returncode == 0
        if shutil.which("unshare")
        else False
    )


@pytest.mark.slow
@pytest.mark.skipif(not mounts(), reason="no user namespaces, so that no small disk can be mounted")
def test_a_suite_whose_disk_is_full_says_how_it_goes_on_and_does_once_there_is_room(
    workspace: Path, tmp_path: Path
) -> None:
    """The disk is a tmpfs that holds half of what the suite writes."""
    used = lambda folder: sum(file.lstat().st_blocks for file in folder.rglob("*")) // 2  # noqa: E731
    with Stub(toy_reply(script())) as stub:
        whole = suite(tmp_path / "whole", workspace, stub.url)
        suite(tmp_path / "small", workspace, stub.url)
        before = used(whole)
        expected = whole_suite(whole)
        total, kilobytes = len(stub.calls), (before + used(whole)) // 2
        again = " ".join([sys.executable, "-m", "recreate", *AGAIN])
        on = lambda n: f"{again} > ../../{n}.out 2> ../../{n}.err; echo $? > ../../{n}.code"  # noqa: E731
        steps = [
            f"mount -t tmpfs -o size={kilobytes}k none disk && cp -r small disk/w && cd disk/w",
            f"{on(1)}; ls runs/x/attempts/*/experience.json > ../../ended",
            f"mount -o remount,size=64m ..; {on(2)}",
        ]
        (tmp_path / "disk").mkdir()
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [*NAMESPACE, "sh", "-c", "\n".join(steps)]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        text = {
            name: (tmp_path / name).read_text()
            for name in ("1.out", "1.code", "ended", "2.out", "2.err", "2.code")
        }
        error = json.loads(text["1.out"])["error"]
        assert (int(text["1.code"]), error["code"] in ("disk", "disk-full")) == (
            1,
            True,
        ), done.stderr
        assert "the same command" in error["fix"]
        assert "resume" not in error["fix"]
        assert int(text["2.code"]) == 0, text["2.err"]
        assert scored(json.loads(text["2.out"])) == scored(expected)
        ended = re.findall(r"attempts/(\w+)/", text["ended"])
        assert 0 < len(ended) < 16
        counts = Counter(stub.calls[total:])
        twice = {call.split("/")[1] for call, n in counts.items() if n > 1}
        assert len(twice) <= 2, "only the attempts that were in flight (jobs = 2)"
        assert not twice & set(ended)


def test_what_goes_on_writes_the_files_that_it_was_begun_with(go: Go, workspace: Path) -> None:
    words = (
        *TWO,
        "--tasks",
        "0:2",
        "--out",
        "runs/x",
        "--format",
        "predictions",
        "--budget",
        "2attempts",
    )
    assert go(*words)[0] == 3
    assert go("bench", "runs/x", "--budget", "9attempts")[0] == 0
    assert {
        len(f.read_text().splitlines()) for f in (workspace / "runs/x/predictions").iterdir()
    } == {2}
    assert not (workspace / "runs/x/results.jsonl").exists()
    (workspace / "s.toml").write_text(
        'scaffold = "a"\nmodel = "scripted:plain.jsonl"\ndomain = "tests.toy:Toy"\ntasks = 2\n'
        'format = "csv"\ncell_budget = "9attempts"\n'
    )
    assert go("bench", "s.toml", "--out", "runs/y")[0] == 0
    assert (workspace / "runs/y/cells.csv").is_file()
    assert not (workspace / "runs/y/results.jsonl").exists()


def test_a_bench_that_died_is_stopped_and_says_how_it_goes_on(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go(*TWO, "--tasks", "0:2", "--out", "runs/x")[0] == 0
    assert cli(["show", "runs/x"]) == 0
    assert "runs/x (done)" in capsys.readouterr().out
    journal = workspace / "runs/x/journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"kind":"end"' not in line))
    assert cli(["show", "runs/x"]) == 0
    said = capsys.readouterr()
    assert "runs/x (stopped)" in said.out
    assert "recreate bench runs/x goes on" in said.err
    assert cli(["bench", "runs/x"]) == 0
    capsys.readouterr()
    assert cli(["show", "runs/x"]) == 0
    assert "runs/x (done)" in capsys.readouterr().out


@pytest.mark.slow
def test_show_and_the_page_say_what_the_table_of_a_bench_said(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        *FOUR,
        "--domain",
        "tests.plugins.bench.test_batch:Other",
        "--repeats",
        "2",
        "--tasks",
        "0:5",
        "--jobs",
        "4",
    )
    settings = workspace / "recreate.toml"
    settings.write_text(settings.read_text() + "[gate]\nalpha = 0.2\n")
    code, made = go(*words, "--baseline", "scripted:plain.jsonl", "--out", "runs/x")
    assert (code, len(made["differences"])) == (0, 4)
    code, shown = go("show", "runs/x")
    assert shown["differences"] == made["differences"]
    interval = ("mean", "lo", "hi", "pass_hat", "endings")
    assert [[c[k] for k in interval] for c in shown["cells"]] == [
        [c[k] for k in interval] for c in made["cells"]
    ]
    assert cli(["show", "runs/x"]) == 0
    text = capsys.readouterr().out
    assert [
        text.count(word) for word in ("pass^2", " other ", "a with scripted:right.jsonl on other")
    ] == [1, 4, 1]
    assert cli(["show", "runs/x", "--html"]) == 0
    page = (workspace / "runs/x/report.html").read_text("utf-8")
    for d in made["differences"]:
        who = (
            f"<b>{d['scaffold']}, {d['model']}, {d['domain']}</b> beside {d['scaffold']},"
            " scripted:plain.jsonl"
        )
        said = (
            f"{who}, {d['domain']}: {d['verdict']}, {d['diff']:+.3f} [{d['lo']:+.3f},"
            f" {d['hi']:+.3f}]"
        )
        assert said in page
    assert page.count(f"[{made['cells'][0]['lo']:.3f}, {made['cells'][0]['hi']:.3f}]") == 4
    assert "10 failed" in page
    rows = list(csv.DictReader((workspace / "runs/x/cells.csv").read_text().splitlines()))
    assert [(r["baseline"], r["baseline_model"]) for r in rows if r["diff"]] == [
        (d["baseline"]["scaffold"], d["baseline"]["model"]) for d in made["differences"]
    ]


@pytest.mark.plugin("view")
def test_a_table_says_in_which_kind_of_task_a_difference_lies(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the file of replies that solve every task the odd ones' are kept."""
    lines = [json.loads(line) for line in (workspace / "right.jsonl").read_text().splitlines()]
    wrong = {
        (line.get("task"), line.get("step")): line
        for line in map(json.loads, (workspace / "plain.jsonl").read_text().splitlines())
    }
    odd = [x if int(x.get("task", "1")[-1]) % 2 else wrong[x["task"], x.get("step")] for x in lines]
    (workspace / "odd.jsonl").write_text("".join(json.dumps(line) + "\n" for line in odd))
    words = [
        "bench",
        "--scaffold",
        "a",
        "--domain",
        "tests.plugins.bench.test_batch:Kinded",
        "--model",
        "scripted:plain.jsonl",
    ]
    words += ["--model", "scripted:odd.jsonl", "--out", "runs/x"]
    code, made = go(*words)
    assert code == 0
    (found,) = made["differences"]
    told = [(s["name"], s["tasks"], s["before"], s["after"]) for s in found["strata"]]
    assert told == [("even", 4, 0, 0), ("odd", 4, 0, 1)]
    assert go(*words)[1]["differences"] == made["differences"], "gone on with, it says the same"
    assert len(list(Run(workspace / "runs/x").records("kinds"))) == 1
    assert go("show", "runs/x")[1]["differences"] == made["differences"]
    for command in (["show", "runs/x"], ["compare", "runs/x", "runs/x"]):
        assert cli(command) == 0
        assert "of these even +0.00 on 4, odd +1.00 on 4" in capsys.readouterr().out


def test_a_cell_that_is_used_up_ends_alone_and_goes_on_with_a_larger_cap(
    go: Go, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*TWO, "--jobs", "1", "--tasks", "0:4", "--out", "runs/x")
    assert cli([*words, "--cell-budget", "1attempts"]) == 3
    assert "recreate bench runs/x --cell-budget MORE goes on" in capsys.readouterr().err
    code, made = go(*words, "--cell-budget", "2attempts")
    assert (code, made["status"]) == (3, "budget")
    assert [len(c["scores"]) for c in made["cells"]] == [2, 2], "each has its own"
    assert {s["task"] for s in made["cells"][0]["scores"]} == {
        s["task"] for s in made["cells"][1]["scores"]
    }
    code, made = go(*words, "--cell-budget", "4attempts")
    assert (code, [len(c["scores"]) for c in made["cells"]]) == (0, [4, 4])


def test_what_a_run_measured_is_read_back_by_another_and_measured_anew_when_asked(go: Go) -> None:
    one = (
        "bench",
        "--scaffold",
        "a",
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:plain.jsonl",
        "--tasks",
        "0:3",
    )
    assert go(*one, "--out", "runs/first")[0] == 0
    code, more = go(*FOUR, "--tasks", "0:3", "--out", "runs/second")
    assert (code, [c["n"] for c in more["cells"]]) == (0, [3] * 4)
    assert go("show", "runs/second")[1]["spend"]["calls"] == 9 * 2, (
        "three of twelve attempts lay in runs/first"
    )
    assert go(*one, "--out", "runs/third", "--fresh")[0] == 0
    assert go("show", "runs/third")[1]["spend"]["calls"] == 3 * 2


def test_runs_of_one_agent_and_a_run_beside_itself_are_said_to_be_that(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(workspace / "scaffolds/a", workspace / "scaffolds/again")
    one = (
        "bench",
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:plain.jsonl",
        "--tasks",
        "0:3",
    )
    for name in ("a", "again", "b"):
        assert go(*one, "--scaffold", name, "--out", f"runs/{name}")[0] == 0

    def said(before: str, after: str) -> tuple[bool, bool, bool]:
        (pair,) = go("compare", before, after)[1]["differences"]
        assert cli(["compare", before, after]) == 0
        out = capsys.readouterr().out
        one_agent = f"both are one agent ({pair['after_digest']}): a difference is chance" in out
        return (
            pair["before_digest"] == pair["after_digest"],
            one_agent,
            "both are one run, runs/a:" in out,
        )

    assert said("runs/a", "runs/again") == (True, True, False)
    assert said("runs/a", "runs/b") == (False, False, False)
    assert said("runs/a", "runs/a") == (True, True, True)


@pytest.mark.slow
def test_what_was_attempted_in_another_split_is_attempted_anew(go: Go, workspace: Path) -> None:
    words = [word.replace("tests.toy:Toy", "tests.plugins.bench.test_batch:Moving") for word in TWO]
    assert go(*words, "--split", "train", "--out", "runs/x")[0] == 0
    (workspace / "moved").touch()
    code, table = go(*words, "--out", "runs/y")
    assert (code, [cell["n"] for cell in table["cells"]]) == (0, [16, 16])
    records = [
        json.loads(file.read_bytes())
        for file in workspace.glob("runs/y/attempts/*/experience.json")
    ]
    assert {record["split"] for record in records} == {"validation"}


def test_of_what_two_runs_attempted_the_first_is_read_back_and_not_what_one_left_unfinished(
    go: Go, workspace: Path
) -> None:
    one = (
        "bench",
        "--scaffold",
        "a",
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:right.jsonl",
        "--tasks",
        "0:1",
    )
    assert go(*one, "--out", "runs/m")[0] == 0
    (first,) = (workspace / "runs" / "m" / "attempts").iterdir()
    record = first / "experience.json"
    os.utime(record, (1_000_000_000, 1_000_000_000))
    for name in ("a", "z"):  # attempted there too, later, and damaged
        shutil.copytree(workspace / "runs" / "m", workspace / "runs" / name)
        (workspace / "runs" / name / "attempts" / first.name / "experience.json").write_text("{}")
    assert go(*one, "--out", "runs/q")[0] == 0
    assert go("show", "runs/q")[1]["spend"]["calls"] == 0
    for name in ("a", "q", "z"):  # as a kill leaves it
        (workspace / "runs" / name / "attempts" / first.name / "experience.json").unlink()
    assert go(*one, "--out", "runs/r")[0] == 0
    assert go("show", "runs/r")[1]["spend"]["calls"] == 0


def test_what_went_otherwise_than_memory_has_it_is_paid_once_too(go: Go, workspace: Path) -> None:
    one = (
        "bench",
        "--scaffold",
        "a",
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:plain.jsonl",
        "--tasks",
        "0:2",
    )
    assert go(*one, "--out", "runs/first")[0] == 0
    shutil.rmtree(workspace / "runs")
    # the model answers otherwise by now
    shutil.copy(workspace / "right.jsonl", workspace / "plain.jsonl")
    code, made = go(*one, "--out", "runs/x")
    assert (code, made["cells"][0]["mean"]) == (0, 1.0)
    assert go("show", "runs/x")[1]["spend"]["calls"] == 2 * 2, "memory is no run"
    code, again = go(*one, "--out", "runs/y")
    assert again["cells"][0]["scores"] == made["cells"][0]["scores"]
    assert go("show", "runs/y")[1]["spend"]["calls"] == 0
    assert len(list((workspace / "runs/y/attempts").iterdir())) == 2


def test_what_was_read_back_counts_for_no_cap_of_the_run_that_goes_on(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = (
        "bench",
        "--scaffold",
        "a",
        "--domain",
        "tests.toy:Toy",
        "--model",
        "scripted:plain.jsonl",
    )
    assert go(*one, "--tasks", "0:2", "--out", "runs/first")[0] == 0
    words = (*one, "--tasks", "0:4", "--out", "runs/x", "--jobs", "1")
    code, made = go(*words, "--budget", "1attempts")
    assert (code, len(made["cells"][0]["scores"])) == (3, 3)
    assert cli(["bench", "runs/x", "--budget", "2attempts"]) == 0
    assert "damaged" not in capsys.readouterr().err


def test_a_model_that_refuses_ends_its_cells_alone(go: Go, workspace: Path) -> None:
    (workspace / "gone.jsonl").write_text(json.dumps({"role": "agent", "fault": "refused"}) + "\n")
    words = (
        *TWO,
        "--model",
        "scripted:gone.jsonl",
        "--tasks",
        "0:3",
        "--models.retries",
        "0",
        "--out",
        "runs/x",
    )
    code, told = go(*words)
    assert (code, told["status"], told["error"]["code"]) == (1, "stopped", "outage")
    lines = [
        json.loads(line) for line in (workspace / "runs/x/results.jsonl").read_text().splitlines()
    ]
    whole = [r for r in lines if r["model"] == "scripted:plain.jsonl"]
    assert len(whole) == 6, "the other model was measured to its end"


def test_of_a_model_that_is_out_graded_and_excluded_attempts_are_told_apart(
    go: Go, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many of its attempts were excluded, each count of them that is told is the same."""
    answered = 0

    def fault(body: Any) -> int | None:
        nonlocal answered
        answered += (fine := answered < 2)
        return None if fine else 503

    with Stub(toy_reply(script())) as good, Stub(toy_reply(script()), fault=fault) as bad:
        models = (
            "--model",
            f"openai:{good.url}#good",
            "--model",
            f"openai:{bad.url}#bad",
            "--models.retries",
            "0",
        )
        words = ("bench", "--scaffold", "a", "--domain", "tests.toy:Toy", *models, "--price", "0,0")
        code, told = go(*words, "--tasks", "0:8", "--jobs", "4", "--out", "runs/x")
    whole, cut = told["cells"]
    excluded = [row for row in cut["scores"] if row["score"] is None]
    assert (code, told["status"], told["error"]["code"]) == (1, "stopped", "outage")
    assert (len(whole["scores"]), whole["set_aside"]) == (8, 0)
    assert len(excluded) == cut["set_aside"] == cut["endings"]["excluded"] >= 3
    graded = len(cut["scores"]) - len(excluded)
    assert told["stopped"][0] == f"a, bad: {graded} of 8 attempts graded, {len(excluded)} excluded"
    assert f"attempts in a row with openai:{bad.url}#bad were excluded" in told["stopped"][1]
    assert cli(["show", "runs/x"]) == 0
    said = capsys.readouterr().out
    assert f"{8 + graded} validation" in said
    assert f", {len(excluded)} excluded (not graded)" in said
    assert said.count("\nexcluded (not graded): ") == len(excluded)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((*TWO, "--baseline", "c"), "no-baseline", "there are: a, b"),
        ((*TWO, "--scaffold", "scaffolds/a"), "named-twice", "--repeats"),
        ((*TWO, "--scaffold", "a"), "named-twice", "--repeats"),
        ((*TWO, "--model", "scripted:plain.jsonl"), "named-twice", "name one of them"),
        ((*TWO, "--domain", "tests.toy:Toy"), "named-twice", "name one of them"),
        ((*TWO, "--format", "xml"), "usage", "jsonl"),
        ((*TWO, "--cell-budget", "5min"), "bad-budget", "--budget"),
        ((*TWO, "--tasks", "nothing*"), "unknown-task", "tasks list"),
        ((*TWO, "--tasks", "90:99"), "unknown-task", "0:20"),
        ((*TWO, "--tasks", "0:4:0"), "usage", "0:40:2"),
        (
            (*TWO, "--domain", "tests.plugins.bench.test_batch:Other", "--tasks", "0:4:0"),
            "usage",
            "0:40:2",
        ),
        (("bench", "none.toml"), "no-suite", "recreate bench --help"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_what_to_type(
    go: Go, words: Any, code: str, says: str
) -> None:
    exit_code, told = go(*words)
    assert (exit_code, told["error"]["code"]) == (2, code)
    assert says in told["error"]["fix"]


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ('scaffold = ["a"]\nrepeat = 2\n', "unknown-key", "did you mean 'repeats'?"),
        ('scaffold = ["a"]\nbase_line = "a"\n', "unknown-key", "did you mean 'baseline'?"),
        (
            'scaffold = ["a"]\noptimizers = ["gepa"]\n',
            "unknown-key",
            '[arms.gepa] build = true, optimizer = "gepa"',
        ),
        ('scaffold = ["a", 3]\n', "bad-suite", 'scaffold = ["NAME", "NAME"]'),
        (
            (
                'scaffold = ["a", "b", "a"]\nmodel = "scripted:plain.jsonl"\ndomain ='
                ' "tests.toy:Toy"\n'
            ),
            "named-twice",
            "name one of them; --repeats N",
        ),
        ('scaffold = ["a"]\ntasks = -3\n', "bad-suite", "recreate bench --help"),
        ('scaffold = ["a"]\nformat = ["xml"]\n', "bad-suite", "recreate bench --help"),
        ("domain = 'toy'\n", "usage", "--scaffold NAME"),
        ("scaffold = [", "bad-suite", "mend the line"),
    ],
)
def test_a_suite_with_a_mistake_names_the_right_key(
    go: Go, workspace: Path, text: str, code: str, says: str
) -> None:
    (workspace / "s.toml").write_text(text)
    exit_code, told = go("bench", "s.toml")
    assert (exit_code, told["error"]["code"]) == (2, code)
    assert says in told["error"]["fix"]
    assert not (workspace / "runs").exists()


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), st.booleans(), min_size=1)
)
def test_the_chance_that_several_attempts_all_pass_falls_with_how_many_there_are(
    passes: Any,
) -> None:
    found = pass_hat(passes)
    assert set(found) == set(range(1, max(found) + 1))
    assert all(0 <= value <= 1 for value in found.values())
    whole = {(t, r): p for (t, r), p in passes.items()}
    counts = {t: sum(1 for (u, _) in whole if u == t) for t, _ in whole}
    if len(set(counts.values())) == 1:  # else each k is over other tasks
        assert list(found.values()) == sorted(found.values(), reverse=True)
    if all(passes.values()):
        assert set(found.values()) == {1.0}


def test_three_passes_in_four_attempts_are_half_of_all_pairs() -> None:
    passes = {("t", n): n < 3 for n in range(4)}
    assert pass_hat(passes) == pytest.approx({1: 3 / 4, 2: 3 / 6, 3: 1 / 4, 4: 0.0})
