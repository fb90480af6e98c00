"""report.html of a bench: its cells, what flipped between two of them, nothing in it trusted, at
three widths."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from recreate.api.paths import shipped
from recreate.cli import run as cli
from recreate.storage.log import Log
from tests import chromium
from tests.toy import LESSON, Toy, script, write_script

MARKUP = "<script>document.title = 'taken'</script><img src=x onerror=alert(1)>"


class Grouped(Toy):
    """The same tasks in three groups. tests.plugins.view.test_bench_page:Grouped"""

    def tasks(self, split: Any = None) -> Any:
        return [t.model_copy(update={"group": group_of(t.id)}) for t in super().tasks(split)]


def group_of(task: str) -> str:
    return f"{task.split(':')[1]}-{'abc'[int(task[-1]) % 3]}"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """report.html of two models on eight train tasks: one that never solves any, and says markup,
    and one that does."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "recreate.toml").write_text('sandbox = "none"\n[memory]\nembedder = "hashed"\n')
    (folder / "scaffolds" / "a").mkdir(parents=True)
    for file in (shipped("scaffolds") / "seed").iterdir():
        (folder / "scaffolds" / "a" / file.name).write_bytes(file.read_bytes())
    rows = [row for row in script() if row.get("task", "").startswith("toy:train")]
    plain = [{**row, "text": MARKUP + row["text"]} for row in rows if "contains" not in row]
    right = [
        {k: v for k, v in row.items() if k != "contains"}
        for row in rows
        if row.get("contains") == LESSON
    ]
    for name, lines in (("plain", plain), ("right", right)):
        lines.append({"role": "agent", "text": "```bash\nsubmit\n```"})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        models = ["--model", "scripted:plain.jsonl", "--model", "scripted:right.jsonl"]
        flags = [
            "--scaffold",
            "a",
            "--domain",
            "tests.toy:Toy",
            "--split",
            "train",
            "--out",
            "runs/x",
        ]
        assert cli(["bench", *models, *flags]) == 0
        assert cli(["show", "runs/x", "--html"]) == 0
        for model in ("plain", "right"):
            assert (
                cli(["bench", "--model", f"scripted:{model}.jsonl", *flags[:-1], f"runs/{model}"])
                == 0
            )
    return folder / "runs" / "x" / "report.html"


def test_a_bench_has_a_page_with_its_cells_in_the_order_they_were_named(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page.read_text("utf-8")
    assert text.index("scripted:plain.jsonl") < text.index("scripted:right.jsonl")
    assert "better, +1.000" in text
    assert text.count('<tr><th scope="row">toy:train:') == 8
    assert text.count('<details class="trace">') == 8
    assert "<script>document.title" not in text
    assert "&lt;script&gt;document.title" in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    monkeypatch.chdir(page.parents[2])
    assert cli(["show", "runs/x", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [(c["scaffold"], c["model"], c["mean"], c["n"]) for c in cells] == [
        ("a", "scripted:plain.jsonl", 0.0, 8),
        ("a", "scripted:right.jsonl", 1.0, 8),
    ]


@pytest.mark.slow
def test_arms_that_became_the_same_agent_are_all_named(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(page.parents[2])
        flags = [
            "--domain",
            "tests.toy:Toy",
            "--model",
            write_script(Path("s.jsonl")),
            "--scaffold",
            "a",
        ]
        cap = ["--budget", "80attempts", "--out", "runs/arms"]
        assert cli(["bench", "--optimizers", "reflect,best-of-n", *flags, *cap]) == 0
        capsys.readouterr()
        assert cli(["show", "runs/arms", "--json"]) == 0
        names = [cell["scaffold"] for cell in json.loads(capsys.readouterr().out)["cells"]]
        assert cli(["show", "runs/arms", "--html"]) == 0
    assert names == ["seed", "reflect and best-of-n"]
    assert "<b>reflect and best-of-n</b> beside seed:" in (
        page.parents[1] / "arms" / "report.html"
    ).read_text("utf-8")


@pytest.mark.skipif(not chromium.find(), reason="no chromium on PATH: apt-get install -y chromium")
def test_two_cells_are_compared_and_filtered_in_a_browser(page: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DISPLAY", raising=False)
        tab = chromium.Chromium()
    try:
        for width in (360, 768, 1280):
            tab.open(page.as_uri(), width=width)
            assert tab.js("document.documentElement.scrollWidth") <= width
        assert "8 won, 0 lost" in tab.js("document.getElementById('matches').textContent")
        assert tab.js("document.title").startswith("Bench of 2 cells")
        change = (
            "(e => {e.value = '%s'; e.dispatchEvent(new"
            " Event('input'))})(document.getElementById('%s'))"
        )
        tab.js(change % ("lost", "which"))
        assert tab.js("document.querySelectorAll('#flips tbody tr:not([hidden])').length") == 0
        tab.js(change % ("", "which"))
        tab.js(change % ("train:3", "filter"))
        assert tab.js("document.querySelectorAll('#flips tbody tr:not([hidden])').length") == 1
        tab.js(change % ("1", "from"))
        tab.js(change % ("0", "to"))
        assert "8 lost" in tab.js("document.getElementById('matches').textContent")
        assert not [r for r in tab.requests if not r.startswith(("file:", "data:"))]
        assert not tab.complaints
    finally:
        tab.close()


MODELS = ("plain", "half", "slow")
WIDTHS = (360, 768, 1280)
Shown = tuple[Path, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """report.html of three models, twice at six tasks of three groups, and its cells as the files
    of the run have them. plain solves nothing; half solves tasks 0 and 1, and 2 and 3 at one try;
    slow 2 and 5, 4 at one; they look around before they hand in."""
    folder = tmp_path_factory.mktemp("three")
    (folder / "recreate.toml").write_text('sandbox = "none"\n[memory]\nembedder = "hashed"\n')
    shutil.copytree(shipped("scaffolds") / "seed", folder / "scaffolds" / "a")
    solved: dict[str, dict[int, int]] = {
        "plain": {},
        "half": {0: 2, 1: 2, 2: 1, 3: 1},
        "slow": {2: 2, 5: 2, 4: 1},
    }
    looks = {"plain": 0, "half": 1, "slow": 3}
    for name, tries in solved.items():
        rows: list[dict[str, Any]] = []
        for n in range(6):
            for repeat in (0, 1):
                word = f"w{n}" + "!" * (repeat < tries.get(n, 0))
                texts = [f"printf %s '{word}' > answer.txt", *["ls -la"] * looks[name], "submit"]
                at = {"role": "agent", "task": f"toy:train:{n}", "repeat": repeat}
                rows += [
                    {**at, "step": k, "text": f"```bash\n{text}\n```"}
                    for k, text in enumerate(texts)
                ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    models = [word for name in MODELS for word in ("--model", f"scripted:{name}.jsonl")]
    flags = [
        "--scaffold",
        "a",
        "--domain",
        "tests.plugins.view.test_bench_page:Grouped",
        "--split",
        "train",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert (
            cli(["bench", *models, *flags, "--tasks", "0:6", "--repeats", "2", "--out", "runs/x"])
            == 0
        )
        assert cli(["show", "runs/x", "--html"]) == 0
    run = folder / "runs" / "x"
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    cells = []
    for row in csv.DictReader((run / "cells.csv").read_text().splitlines()):
        mine = [line for line in lines if line["model"] == row["model"]]
        interval = {key: float(row[key]) for key in ("mean", "lo", "hi")}
        cells.append({"lines": mine, "tokens": mean(line["tokens"] for line in mine), **interval})
    assert [len({cell[key] for cell in cells}) for key in ("mean", "tokens")] == [3, 3]
    return run / "report.html", cells


@pytest.fixture(scope="module")
def tab() -> Iterator[chromium.Chromium]:
    if not chromium.find():
        pytest.skip("no chromium on PATH: apt-get install -y chromium")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DISPLAY", raising=False)
        opened = chromium.Chromium()
    try:
        yield opened
    finally:
        opened.close()


def means(cell: Mapping[str, Any], by: Callable[[str], str] = str) -> dict[str, float]:
    """A cell's mean score of each task, or of each of what `by` makes of one."""
    found = defaultdict[str, list[float]](list)
    for line in cell["lines"]:
        found[by(line["task"])].append(line["score"])
    return {key: mean(scores) for key, scores in found.items()}


PLOT = """(() => {
  const box = (e) => e.getBoundingClientRect();
  const x = (e) => box(e).x + box(e).width / 2, y = (e) => box(e).y + box(e).height / 2;
  const all = (what, tell) => [...document.querySelectorAll(what)].map(tell);
  return {
    up: Object.fromEntries(all(".plot .scale text", (e) => [e.textContent, y(e)])),
    across: all(".plot .field > text", (e) => [e.textContent, e.matches("[text-anchor=end]") ? \
box(e).right : x(e)]),
    points: all(".plot .point", (e) => {
      const [dot, line] = [e.querySelector("circle"), box(e.querySelector("line"))];
      return {x: x(dot), y: y(dot), top: line.top, bottom: line.bottom, number: \
e.querySelector(".value").textContent};
    }),
    legend: all(".legend li", (e) => e.textContent),
  };
})()"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.slow
def test_the_point_of_each_cell_stands_at_its_cost_and_score(
    three: Shown, tab: chromium.Chromium, width: int
) -> None:
    page, cells = three
    tab.open(page.as_uri(), width=width)
    assert tab.js("document.documentElement.scrollWidth") <= width
    plot = tab.js(PLOT)
    zero, one = plot["up"]["0.00"], plot["up"]["1.00"]
    (none, left), _, (most, right) = plot["across"]
    dearest = max(cell["tokens"] for cell in cells)
    assert (none, most) == ("0", f"{dearest:,.0f}"), "across stand the tokens of an attempt"
    assert right - left > width / 2

    def height(score: float) -> Any:
        return pytest.approx(zero + (one - zero) * score, abs=1)

    assert [point["number"] for point in plot["points"]] == ["1", "2", "3"]
    for cell, name, point, says in zip(cells, MODELS, plot["points"], plot["legend"], strict=True):
        assert point["x"] == pytest.approx(left + (right - left) * cell["tokens"] / dearest, abs=1)
        assert (point["y"], point["top"], point["bottom"]) == tuple(
            map(height, (cell["mean"], cell["hi"], cell["lo"]))
        )
        assert (
            f"scripted:{name}.jsonl: {cell['mean']:.3f}, {cell['tokens']:.0f} tokens an attempt"
            in says
        )


BARS = """[...document.querySelectorAll("#groups ~ h3")].map((h) => {
  const bars = [];
  for (let e = h.nextElementSibling; e && e.matches("figure"); e = e.nextElementSibling) {
    const [whole, bar] = [...e.querySelectorAll("rect")].map((r) => r.getBoundingClientRect());
    bars.push({says: e.textContent.trim().replace(/\\s+/g, " "), part: bar.width / whole.width, \
from: bar.x - whole.x,
               height: bar.height, wide: whole.width});
  }
  return [h.textContent, bars];
})"""


@pytest.mark.parametrize("width", WIDTHS)
def test_each_group_of_tasks_has_a_bar_for_each_cell_as_long_as_its_score(
    three: Shown, tab: chromium.Chromium, width: int
) -> None:
    page, cells = three
    tab.open(page.as_uri(), width=width)
    found = dict(tab.js(BARS))
    assert sorted(found) == ["train-a", "train-b", "train-c"]
    scores = [means(cell, group_of) for cell in cells]
    assert len({score[group] for score in scores for group in found}) > 3, (
        "else one bar could stand for another"
    )
    for group, bars in found.items():
        for name, score, bar in zip(MODELS, scores, bars, strict=True):
            assert bar["part"] == pytest.approx(score[group], abs=0.005)
            assert (bar["from"], bar["height"]) == (0, 10)
            assert bar["wide"] > 200
            assert bar["says"] == f"a, scripted:{name}.jsonl {score[group]:.3f}"


FLIPS = """[...document.querySelectorAll("#flips tbody tr:not([hidden])")].map((row) =>
  [row.cells[0].textContent, row.cells[1].textContent, ...[...row.cells].slice(2).map((cell) => \
cell.textContent)])"""


def choose(tab: chromium.Chromium, **values: str) -> tuple[dict[str, Any], str]:
    """What the rows that are left say by task, and the line that counts, once these were chosen and
    typed."""
    for id, value in values.items():
        name = {"from_": "from"}.get(id, id)
        script = (
            "(e => {e.value = %s; e.dispatchEvent(new"
            " Event('input'))})(document.getElementById(%s))"
        )
        tab.js(script % (json.dumps(value), json.dumps(name)))
    return {row[0]: row[1:] for row in tab.js(FLIPS)}, tab.js(
        "document.getElementById('matches').textContent"
    )


def test_what_flipped_between_any_two_cells_is_marked_and_filters_narrow_it(
    three: Shown, tab: chromium.Chromium
) -> None:
    page, cells = three
    tab.open(page.as_uri(), width=WIDTHS[-1])
    scores = [means(cell) for cell in cells]
    for before, after in itertools.permutations(range(3), 2):
        change = {
            task: (
                "won"
                if scores[after][task] > old
                else "lost"
                if scores[after][task] < old
                else "same"
            )
            for task, old in scores[before].items()
        }
        rows, counted = choose(tab, from_=str(before), to=str(after), which="", filter="")
        assert {task: row[0].split()[-1] for task, row in rows.items()} == change
        assert all(
            row[1:] == [f"{each[task]:.2f}" for each in scores] for task, row in rows.items()
        )
        numbers = {word: list(change.values()).count(word) for word in ("won", "lost", "same")}
        said = "{won} won, {lost} lost, {same} the same; ".format(**numbers)
        assert counted == f"{said}6 shown"
        for word, number in numbers.items():
            rows, counted = choose(tab, which=word)
            assert set(rows) == {task for task, how in change.items() if how == word}
            assert counted == f"{said}{number} shown"
    rows, _ = choose(tab, from_="1", to="2", which="lost", filter="TRAIN :0")
    assert list(rows) == ["toy:train:0"], "every word, in any case, and the change"
    rows, counted = choose(tab, filter="nothing")
    assert (rows, counted.split("; ")[1]) == ({}, "0 shown")


def test_a_bench_has_no_line_wider_than_the_screen(three: Shown, tab: chromium.Chromium) -> None:
    """With a name of a model that is longer than a narrow screen, too."""
    page, _ = three
    folder = page.parents[2]
    long = "a-model-whose-name-is-longer-than-any-telephone-is-wide-" * 2
    shutil.copy(folder / "half.jsonl", folder / f"{long}.jsonl")
    flags = [
        "--scaffold",
        "a",
        "--domain",
        "tests.plugins.view.test_bench_page:Grouped",
        "--split",
        "train",
        "--tasks",
        "0:6",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        models = ["--model", "scripted:plain.jsonl", "--model", f"scripted:{long}.jsonl"]
        assert cli(["bench", *models, *flags, "--out", "runs/long"]) == 0
        assert cli(["show", "runs/long", "--html"]) == 0
    for width in WIDTHS:
        tab.open((folder / "runs" / "long" / "report.html").as_uri(), width=width)
        assert tab.js("document.documentElement.scrollWidth") <= width
        wide = "[...document.querySelectorAll('main > *, figure, .plot, .tools, .legend')]"
        edges = tab.js(f"{wide}.map((e) => e.getBoundingClientRect().right)")
        assert max(edges) <= width
    assert not tab.complaints


def test_a_training_is_shown_and_has_a_page_with_its_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recreate.toml").write_text("")
    (tmp_path / "runs" / "t").mkdir(parents=True)
    (tmp_path / "runs" / "t" / "settings.toml").write_text(
        'format = 2\ndomain = "toy"\nmodel = "<i>m"\n'
    )
    start = {
        "kind": "start",
        "run": "r",
        "model": "m",
        "domain": "toy",
        "sandbox": "none",
        "command": "tune",
    }
    tune = {"kind": "tune", "name": "g", "recipe": "g", "scaffold": "s", "seed": 0, "base": "b"}
    steps = [{"kind": "update", "step": n, "reward": n / 4, "kl": 0.5} for n in range(4)]
    with Log(tmp_path / "runs" / "t" / "journal.jsonl") as log:
        log.append(start, tune, *steps)
    assert cli(["show", "t"]) == 0
    assert "training   mean reward: 0 -> 0.75 in 4 steps" in capsys.readouterr().out
    assert cli(["show", "t", "--json"]) == 0
    assert [row["reward"] for row in json.loads(capsys.readouterr().out)["curve"]] == [
        0,
        0.25,
        0.5,
        0.75,
    ]
    assert cli(["show", "t", "--html"]) == 0
    text = (tmp_path / "runs" / "t" / "report.html").read_text("utf-8")
    assert ("Over 4 training steps" in text, "<i>m" in text) == (True, False)
    assert text.count("<polyline") == 2
