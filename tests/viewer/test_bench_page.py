"""report.html of a bench: its cells, what flipped between two of them, nothing in it trusted, at three widths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.api.paths import shipped
from recreate.cli import run as cli
from tests import chromium
from tests.toy import LESSON, script

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
        change = "(e => {e.value = '%s'; e.dispatchEvent(new Event('input'))})(document.getElementById('%s'))"
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
