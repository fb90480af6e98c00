"""report.html of a bench: its cells, what flipped between two of them, nothing in it trusted, at three widths."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recreate.api.paths import shipped
from recreate.cli import run as cli
from tests import chromium
from tests.toy import LESSON, script, write_script

MARKUP = "<script>document.title = 'taken'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """report.html of two models on eight train tasks: one that never solves any, and says markup, and one that does."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "recreate.toml").write_text('sandbox = "none"\n[memory]\nembedder = "hashed"\n')
    (folder / "scaffolds" / "a").mkdir(parents=True)
    for file in (shipped("scaffolds") / "seed").iterdir():
        (folder / "scaffolds" / "a" / file.name).write_bytes(file.read_bytes())
    rows = [row for row in script() if row.get("task", "").startswith("toy:train")]
    plain = [{**row, "text": MARKUP + row["text"]} for row in rows if "contains" not in row]
    right = [{k: v for k, v in row.items() if k != "contains"} for row in rows if row.get("contains") == LESSON]
    for name, lines in (("plain", plain), ("right", right)):
        lines.append({"role": "agent", "text": "```bash\nsubmit\n```"})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        models = ["--model", "scripted:plain.jsonl", "--model", "scripted:right.jsonl"]
        flags = ["--scaffold", "a", "--domain", "tests.toy:Toy", "--split", "train", "--out", "runs/x"]
        assert cli(["bench", *models, *flags]) == 0
        assert cli(["show", "runs/x", "--html"]) == 0
        for model in ("plain", "right"):
            assert cli(["bench", "--model", f"scripted:{model}.jsonl", *flags[:-1], f"runs/{model}"]) == 0
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


@pytest.fixture(scope="module")
def beside(page: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(page.parents[2])
        assert cli(["compare", "runs/plain", "runs/right", "--html"]) == 0
    return page.parents[1] / "right" / "beside-plain.html"


def test_two_runs_have_a_page_beside_each_other_with_the_verdict_and_both_commands(
    beside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = beside.read_text("utf-8")
    assert "<title>plain beside right</title>" in text
    assert text.index("<td>plain</td>") < text.index("<td>right</td>"), "a row says of which run it is"
    assert "beside a of plain" in text
    assert "better, +1.000" in text
    assert text.count('<tr><th scope="row">toy:train:') == 8
    assert text.count('<details class="trace">') == 8, "the attempts of both, each from its own run"
    assert "<script>document.title" not in text
    assert [text.count(f"recreate bench runs/{name}/bench.toml --fresh") for name in ("plain", "right")] == [1, 1]
    monkeypatch.chdir(beside.parents[2])
    assert cli(["compare", "runs/plain", "runs/right", "--html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["html"] == str(beside)


def test_of_a_build_its_result_on_validation_stands_beside_another_run(page: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(page.parents[2])
        flags = ["--domain", "tests.toy:Toy", "--model", write_script(Path("s.jsonl")), "--scaffold", "a"]
        assert cli(["build", *flags, "--optimizer", "reflect", "--out", "runs/made"]) == 0
        assert cli(["bench", *flags, "--split", "validation", "--out", "runs/before"]) == 0
        assert cli(["compare", "runs/before", "runs/made", "--html"]) == 0
    text = (page.parents[1] / "made" / "beside-before.html").read_text("utf-8")
    assert text.count("<td>made</td>") == 1, "the agent that was kept, and neither its seed nor a train batch"
    assert re.search(r"<b>[0-9a-f]{8} of made</b> beside a of before: (better|undecided), \+1.000", text)
    assert '<details class="trace">' not in text, "attempts at validation tasks are shown to nobody"


def test_arms_that_became_the_same_agent_are_all_named(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(page.parents[2])
        flags = ["--domain", "tests.toy:Toy", "--model", write_script(Path("s.jsonl")), "--scaffold", "a"]
        cap = ["--budget", "80attempts", "--best-of", "1", "--out", "runs/arms"]
        assert cli(["bench", "--optimizers", "reflect,best-of-n", *flags, *cap]) == 0
        capsys.readouterr()
        assert cli(["show", "runs/arms", "--json"]) == 0
        names = [cell["scaffold"] for cell in json.loads(capsys.readouterr().out)["cells"]]
        assert cli(["show", "runs/arms", "--html"]) == 0
    assert names == ["seed", "reflect and best-of-n"]
    assert "<b>reflect and best-of-n</b> beside seed:" in (page.parents[1] / "arms" / "report.html").read_text("utf-8")


def test_runs_without_a_task_in_common_are_not_judged_on_their_page(page: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(page.parents[2])
        flags = ["--model", "scripted:right.jsonl", "--scaffold", "a", "--domain", "tests.toy:Toy"]
        assert cli(["bench", *flags, "--split", "validation", "--out", "runs/other"]) == 0
        assert cli(["compare", "runs/plain", "runs/other", "--html"]) == 0
    text = (page.parents[1] / "other" / "beside-plain.html").read_text("utf-8")
    assert "No task was scored in both" in text


@pytest.mark.skipif(not chromium.find(), reason="no chromium on PATH: apt-get install -y chromium")
def test_two_cells_are_compared_and_filtered_in_a_browser(page: Path, beside: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DISPLAY", raising=False)
        tab = chromium.Chromium()
    try:
        for width in (360, 768, 1280):
            tab.open(page.as_uri(), width=width)
            assert tab.js("document.documentElement.scrollWidth") <= width
        assert "8 won, 0 lost" in tab.js("document.getElementById('matches').textContent")
        assert tab.js("document.title").startswith("Bench of 2 cells")
        change = "(e => {e.value = '%s'; e.dispatchEvent(new Event('input'))})(document.getElementById('%s'))"
        tab.js(change % ("lost", "which"))
        assert tab.js("document.querySelectorAll('#flips tbody tr:not([hidden])').length") == 0
        tab.js(change % ("", "which"))
        tab.js(change % ("train:3", "filter"))
        assert tab.js("document.querySelectorAll('#flips tbody tr:not([hidden])').length") == 1
        tab.js(change % ("1", "from"))
        tab.js(change % ("0", "to"))
        assert "8 lost" in tab.js("document.getElementById('matches').textContent")
        for width in (360, 768, 1280):
            tab.open(beside.as_uri(), width=width)
            assert tab.js("document.documentElement.scrollWidth") <= width
        assert "8 won, 0 lost" in tab.js("document.getElementById('matches').textContent")
        assert not [r for r in tab.requests if not r.startswith(("file:", "data:"))]
        assert not tab.complaints
    finally:
        tab.close()
