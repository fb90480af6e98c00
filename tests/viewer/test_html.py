"""report.html: what it shows, that nothing in it is trusted, and that it works in a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from recreate.api.types import (
    Edit,
    Evidence,
    Experience,
    Grade,
    Revision,
    Step,
    Study,
    Trace,
    Verdict,
)
from recreate.cli import run as cli
from recreate.runs.attempts import write_whole
from recreate.runs.reader import Run
from recreate.storage.log import Log
from recreate.viewer import html as page
from recreate.viewer.charts import choose_tracked, draw_curve, draw_lineage
from recreate.viewer.facts import RunFacts, Version
from recreate.viewer.text import cut, read_diff, visible
from recreate.viewer.traces import MOST_TRACES, ROOM, Room, read_traces
from tests import chromium
from tests.words import ESCAPE, write_script

pytestmark = pytest.mark.plugin("each")

needs_chromium = pytest.mark.skipif(
    not chromium.find(), reason="no chromium on PATH: apt-get install -y chromium"
)
GONE = "00000000deadbeef"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with runs/a: three candidates dropped and two kept, and by hand one that a person
    rejected, one that goes back to the seed, one attempt excluded, and a study that distils."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "recreate.toml").write_text('without = ["guidance", "evidence"]\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RECREATE_HOME", str(folder / "home"))
        model = write_script(folder / "script.jsonl")
        flags = [
            "--domain",
            "tests.words:Words",
            "--model",
            model,
            "--optimizer",
            "tests.words:Planned",
        ]
        flags += ["--gate.false_keep", "0"]  # each candidate by itself: what the page shows is more
        flags += ["--rounds", "6", "--batch", "2", "--train", "12"]
        assert cli(["build", *flags, "--sandbox", "none", "--out", "runs/a", "--json"]) == 0
        run = Run(folder / "runs" / "a")
        (folder / "built.html").write_bytes((run.folder / page.FILE).read_bytes())
        (folder / "again.html").write_bytes(page.write(run).read_bytes())
        by_hand(run)
        assert cli(["show", "a", "--html"]) == 0
    return folder


def by_hand(run: Run) -> None:
    revisions = run.revisions()
    first, last = revisions[0], revisions[-1]
    rejected = last.model_copy(
        update={
            "id": "feedfeedfeedfeed",
            "kept": False,
            "review": "rejected: it says too little",
            "round": 6,
            "edits": (
                last.edits[0].model_copy(update={"evidence": (Evidence(experience=GONE, step=2),)}),
            ),
        }
    )
    back = first.model_copy(update={"id": "beefbeefbeefbeef", "round": 7})
    journal = Log(run.folder / "journal.jsonl")
    for revision in (rejected, back):
        journal.append({"kind": "revision", "revision": revision.model_dump(mode="json")})
    journal.append(
        {
            "kind": "aside",
            "attempt": "a" * 16,
            "task": "words:validation:1",
            "repeat": 0,
            "phase": "validation",
            "fault": "the sandbox <could> not be opened",
        }
    )
    journal.close()
    folder = run.folder / "studies" / "d15711"
    folder.mkdir()
    study = Study(
        id="d15711",
        kind="distil",
        summary="One update of two ideas.",
        rejected=(("the second idea", "it was tried"),),
    )
    (folder / "study.json").write_text(json.dumps(study.model_dump(mode="json")), "utf-8")


@pytest.fixture(scope="module")
def html(built: Path) -> str:
    return (built / "runs" / "a" / "report.html").read_text("utf-8")


class Tree(HTMLParser):
    """Tags with their attributes, and the text outside style and script."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag if tag in ("style", "script") else self._in

    def handle_endtag(self, tag: str) -> None:
        self._in = "" if tag == self._in else self._in

    def handle_data(self, data: str) -> None:
        if not self._in:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, key: str) -> list[str]:
        return [attributes[key] or "" for _, attributes in self.tags if key in attributes]


@pytest.fixture(scope="module")
def tree(html: str) -> Tree:
    return Tree(html)


@pytest.mark.slow
def test_a_page_of_anybody_is_one_file(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """tests/examples/page.py is all there is of it; nothing in it is trusted, and nothing is
    fetched."""
    monkeypatch.chdir(built)
    assert cli(["show", "a", "--page", "tests.examples.page:cost", "--json"]) == 0
    file = Path(json.loads(capsys.readouterr().out)["html"])
    assert file == built / "runs" / "a" / "cost.html"
    text = file.read_text("utf-8")
    tree = Tree(text)
    assert "<title>Cost per task of a</title>" in text
    assert "script-src 'none'" in text
    assert "style-src 'sha256-" in text
    tasks = {record["task"] for record in Run(built / "runs" / "a").records("experience")}
    assert tree.text.count("words:") == len(tasks) > 10
    assert cli(["show", "a", "--page", "costs"]) == 2
    assert "no page is called 'costs'" in capsys.readouterr().err


# --- what it shows ---


def test_every_section_is_there_and_reads_without_a_script(tree: Tree) -> None:
    ids = tree.all("id")
    for section in (
        "outcome",
        "curve",
        "lineage",
        "flips",
        "revisions",
        "studies",
        "cost",
        "traces",
        "aside",
    ):
        assert section in ids
    assert len(ids) == len(set(ids))
    for said in (
        "An agent for words",
        "The new agent is better than the seed: 7 candidates judged, 2 kept.",
        "this score flatters the result",
        "guidance, evidence",
        "rejected by review: it says too little",
        "undecided, -0.050 [-0.200, +0.100]: the interval of 20 tasks holds 0",
        "Round 6 : nothing to judge: the optimizer proposed no edit",
        "the sandbox <could> not be opened",
        "One update of two ideas.",
        "said I look. </script>",
        "the second idea",
        "0.950 [0.804, 0.989]",
        "validation traces are left out on purpose",
    ):
        assert said in tree.text, said


@pytest.mark.slow
def test_a_citation_leads_to_the_step_and_the_step_back_to_the_edit(
    built: Path, tree: Tree
) -> None:
    ids = set(tree.all("id"))
    links = [a["href"] or "" for tag, a in tree.tags if tag == "a"]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    revision = Run(built / "runs" / "a").revisions()[1]
    for cited in revision.edits[0].evidence:
        assert f"#e-{cited.experience}-{cited.step}" in links
    assert "#r-2-1" in links
    assert f"{GONE} step 2 (not in this run)" in tree.text


def test_no_validation_trace_is_shown(built: Path, html: str) -> None:
    records = list(Run(built / "runs" / "a").records("experience"))
    shown = set(re.findall(r'<details class="trace" id="e-([0-9a-f]+)"', html))
    assert shown <= {r["attempt"] for r in records if r["split"] == "train"}
    assert shown
    assert not any(r["attempt"] in html for r in records if r["split"] == "validation")


def test_tasks_are_sorted_by_what_changed_and_won_and_lost_are_counted(tree: Tree) -> None:
    assert "16 won, 1 lost, 3 the same" in tree.text
    text = tree.text[tree.text.index("Tasks before and after") :]
    assert text.index("▲ won") < text.index("▼ lost") < text.index("same with every version")


def test_studies_are_left_out_when_there_are_none(built: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(built / "runs" / "a", copy)
    shutil.rmtree(copy / "studies")
    found = Tree(page.page(Run(copy), RunFacts(Run(copy)).built))
    assert "studies" not in found.all("id")
    assert "Studies" not in found.text


def test_the_page_from_the_folder_is_the_page_of_the_build(built: Path) -> None:
    assert (built / "again.html").read_text("utf-8") == (built / "built.html").read_text("utf-8")
    ended = RunFacts(Run(built / "runs" / "a")).built
    assert (ended.status, ended.verdict.verdict) == ("done", "better")
    assert ended.scaffold.digest == [r.id for r in ended.revisions if r.kept][-1]


def test_show_html_writes_the_page_anew_and_prints_its_path(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(built)
    file = built / "runs" / "a" / "report.html"
    file.unlink()
    assert cli(["show", "a", "--html"]) == 0
    assert capsys.readouterr().out == "runs/a/report.html\n"
    assert file.exists()
    assert cli(["show", "last", "--html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "run": str(file.parent),
        "html": str(file),
    }
    (built / "runs" / "bench").mkdir()
    shutil.copy(built / "runs" / "a" / "settings.toml", built / "runs" / "bench")
    assert cli(["show", "bench", "--html"]) == 2
    assert "not a build" in capsys.readouterr().err
    shutil.rmtree(built / "runs" / "bench")
    assert cli(["show", "seed", "--html"]) == 2


def test_a_build_without_any_candidate_has_a_page(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_script(workspace / "script.jsonl")
    flags = [
        "--domain",
        "tests.words:Words",
        "--model",
        model,
        "--validation",
        "5",
        "--rounds",
        "0",
    ]
    assert cli(["build", *flags, "--sandbox", "none", "--out", "runs/a"]) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .endswith("runs/a/report.md, to look at: runs/a/report.html")
    )
    text = Tree((workspace / "runs" / "a" / "report.html").read_text("utf-8")).text
    assert "No candidate was judged, so the agent is the seed." in text
    assert "No train attempt has ended in this run." in text


# --- nothing is trusted ---


def test_texts_of_models_cannot_break_out(html: str, tree: Tree) -> None:
    assert html.count("<script>") == html.count("</script>") == 1
    assert not [
        tag for tag, _ in tree.tags if tag in ("img", "iframe", "object", "link", "base", "form")
    ]
    assert ESCAPE in tree.text
    assert "<b>" not in "".join(re.findall(r"<pre>.*?</pre>", html, re.DOTALL))


def test_what_would_move_a_cursor_or_turn_the_writing_is_visible(html: str, tree: Tree) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", html)
    assert r"\x1b[31mred\x1b[0m \x07 \u202eright to left\u202c" in tree.text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb", "a\nb"),
        ("a\rb", r"a\x0db"),
        ("\ud800", r"\ud800"),
        ("\x9b", r"\x9b"),
    ],
)
def test_control_characters_become_marks(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_the_page_asks_for_nothing_and_its_policy_lets_nothing_in(html: str, tree: Tree) -> None:
    assert not [
        v for key in ("src", "action", "srcset", "data", "poster", "style") for v in tree.all(key)
    ]
    assert not re.search(
        r"url\(|@import|https?://(?!\S*</code>)",
        re.sub(r"<pre>.*?</pre>", "", html, flags=re.DOTALL),
    )
    (policy,) = (
        a["content"] or ""
        for tag, a in tree.tags
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert html.index("Content-Security-Policy") < html.index("<style>")
    assert not [key for _, a in tree.tags for key in a if key.startswith("on")]


def test_a_key_in_a_lineage_is_masked(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_API_KEY", "Numbers are asked for")
    run = Run(built / "runs" / "a")
    text = page.page(run, RunFacts(run).built)
    assert "Numbers are asked for" not in text
    assert "[redacted:DEMO_API_KEY]" in text


# --- bounded ---


def test_long_texts_are_cut_in_the_middle() -> None:
    found = cut("start\n" + "x" * 5000 + "\nend", 900)
    assert found.head.startswith("start\n")
    assert found.tail.endswith("end")
    assert len(found) <= 900
    assert found.left_out + len(found) == len("start\n" + "x" * 5000 + "\nend")
    many = cut("\n".join(str(n) for n in range(1000)), 100_000, 30)
    assert many.head.count("\n") + many.tail.count("\n") <= 30
    assert cut("short", 900).left_out == 0


def save(
    folder: Path, id: str, steps: int, text: str, passed: bool = False
) -> tuple[str, str, bool]:
    shown = tuple(Step(step=n, reply=text, output=text) for n in range(steps))
    trace = Trace(attempt=id, task=f"t{id}", scaffold="s", model="m", steps=shown)
    experience = Experience(
        id=id,
        domain="d",
        task=f"t{id}",
        group="g",
        split="train",
        prompt="p",
        digest="s",
        trace=trace,
        grade=Grade(score=float(passed), passed=passed, evidence="no"),
    )
    place = folder / "attempts" / id
    place.mkdir(parents=True)
    write_whole(experience, place)
    return (id, f"t{id}", passed)


def test_traces_are_bounded_and_what_is_cited_comes_first(tmp_path: Path) -> None:
    train = [save(tmp_path, f"{n:04x}", 2, "short") for n in range(MOST_TRACES + 3)]
    train.append(save(tmp_path, "c1ed", 300, "y" * 5000, passed=True))
    room = Room()
    found = read_traces(tmp_path, train, {"c1ed": {150: (), 999: ()}}, [], room)
    assert found.shown[0].experience.id == "c1ed"
    assert len(found.shown) == MOST_TRACES
    assert len(found.left_out) == 4
    steps = found.shown[0].steps
    assert [s.index for s in steps if s.index in (0, 149, 150, 151, 299)] == [0, 149, 150, 151, 299]
    assert sum(s.gap for s in steps) + len(steps) == 300
    assert ROOM - room.left < 200_000


def test_what_is_cited_is_shown_when_there_is_no_room(tmp_path: Path) -> None:
    train = [save(tmp_path, "aa", 5, "text"), save(tmp_path, "bb", 5, "text")]
    found = read_traces(tmp_path, train, {"bb": {3: ()}}, [], Room(left=0))
    assert [t.experience.id for t in found.shown] == ["bb"]
    assert [s.index for s in found.shown[0].steps] == [3]
    assert [row[0] for row in found.left_out] == ["aa"]


# --- the charts ---


def version(
    number: int, parent: int | None, fate: str = "kept", mean: float | None = 0.5
) -> Version:
    low, high = (None, None) if mean is None else (mean - 0.1, mean + 0.1)
    return Version(number, f"{number:016x}", parent, fate, "t", "w", {}, mean, low, high)


def test_kept_versions_share_a_lane_and_edges_do_not_cross_other_nodes() -> None:
    shapes: list[tuple[list[tuple[int | None, str]], list[int]]] = [
        (
            [(0, "dropped"), (0, "dropped"), (0, "kept"), (3, "dropped"), (3, "kept")],
            [0, 1, 1, 0, 1, 0],
        ),
        ([(0, "kept"), (1, "kept"), (0, "kept"), (3, "dropped"), (3, "kept")], [0, 0, 0, 1, 2, 1]),
        ([(0, "kept"), (0, "dropped"), (None, "kept")], [0, 0, 1, 0]),
    ]
    for tree, lanes in shapes:
        found = [version(0, None, "seed")] + [
            version(n, p, fate) for n, (p, fate) in enumerate(tree, 1)
        ]
        rows, width = draw_lineage(found)
        assert [row.lane for row in rows] == lanes
        assert width == max(lanes) + 1
        for row in rows:
            assert not any(s.shape == "full" and s.a == row.lane for s in row.segments)
            assert sum(s.shape in ("top", "bend") and s.b == row.lane for s in row.segments) == (
                0 if row.version.parent is None else 1
            )


def test_many_versions_have_room_in_a_tasks_row() -> None:
    found = [version(0, None, "seed")] + [
        version(n, 0, "kept" if n in (3, 9) else "dropped") for n in range(1, 40)
    ]
    assert [v.number for v in choose_tracked(found)] == [0, 3, 9, *range(29, 40)]
    assert [v.number for v in choose_tracked(found[:4])] == [0, 1, 2, 3]


def test_the_curve_joins_what_was_kept_and_holds_every_interval() -> None:
    found = [
        version(0, None, "seed", 0.2),
        version(1, 0, "dropped", None),
        version(2, 0, "dropped", 0.1),
    ]
    drawn = draw_curve([*found, version(3, 0, "kept", 0.9)])
    assert drawn is not None
    assert [p.version.number for p in drawn.points] == [0, 2, 3]
    assert len(drawn.steps) == 1
    assert all(0 <= p.top <= p.y <= p.bottom <= 240 for p in drawn.points)
    assert [label for _, label in drawn.ticks] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert draw_curve([version(0, None, "seed", None)]) is None


def test_a_diff_is_read_line_by_line_whatever_the_lines_say() -> None:
    from recreate.agents.scaffold import Scaffold, diff

    a = Scaffold(name="a", files={"x.md": "-- one\ntwo\n", "gone.md": "old\n"})
    b = Scaffold(
        name="b", files={"x.md": "++ one\ndiff --git is text\ntwo\n", "new.md": "a\u2028b\n"}
    )
    found = {f.path: f for f in read_diff(diff(a, b))}
    assert {f.path: f.how for f in found.values()} == {
        "x.md": "changed",
        "gone.md": "deleted",
        "new.md": "created",
    }
    kinds = [(line.kind, line.text) for line in found["x.md"].lines]
    assert ("del", "-- one") in kinds
    assert ("add", "++ one") in kinds
    assert ("add", "diff --git is text") in kinds
    assert [line.text for line in found["new.md"].lines] == ["a\u2028b"]
    long = Scaffold(name="c", files={"x.md": "\n".join(map(str, range(900)))})
    (bounded,) = (f for f in read_diff(diff(a, long)) if f.path == "x.md")
    assert len(bounded.lines) <= 401
    assert bounded.added == 900


def test_odd_verdicts_and_revisions_are_shown(built: Path) -> None:
    run = Run(built / "runs" / "a")
    ended = RunFacts(run).built
    nothing: dict[str, Any] = dict.fromkeys(("before", "after", "diff", "lo", "hi", "p"))
    unjudged = Verdict(
        **nothing, tasks=0, repeats=0, verdict="not-better", reason="the check failed: <x>"
    )
    odd = Revision(
        id="0" * 16,
        parent="1" * 16,
        round=0,
        edits=(Edit(path="a<b>.md", origin="human"),),
        verdict=unjudged,
        kept=False,
        faults=("cites nothing",),
    )
    from dataclasses import replace

    text = Tree(
        page.page(run, replace(ended, revisions=(odd,), scaffold=ended.seed, verdict=unjudged))
    ).text
    for said in (
        "not measured: the check failed: <x>",
        "a<b>.md",
        "cites nothing",
        "No reason was given.",
        "human",
    ):
        assert said in text
    assert "not in the run's lineage" in text


# --- in a browser ---


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Chromium]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DISPLAY", raising=False)
        found = chromium.Chromium()
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def show(built: Path, browser: chromium.Chromium) -> Callable[..., chromium.Chromium]:
    def show(anchor: str = "", **options: Any) -> chromium.Chromium:
        browser.open((built / "runs" / "a" / "report.html").as_uri() + anchor, **options)
        return browser

    return show


Show = Callable[..., chromium.Chromium]

IN_VIEW = (
    "(e => {const r = e.getBoundingClientRect(); return r.height > 0 && r.top >= -1 && r.top <"
    " innerHeight})"
)


@needs_chromium
@pytest.mark.slow
def test_a_click_on_a_citation_opens_the_step_it_cites(show: Show) -> None:
    tab = show()
    target = tab.js("document.querySelector('.edit a.cite').getAttribute('href').slice(1)")
    assert tab.js(f"document.getElementById('{target}').closest('details').open") is False
    tab.click(".edit a.cite")
    tab.until(f"document.getElementById('{target}').closest('details').open")
    tab.until(f"{IN_VIEW}(document.getElementById('{target}'))")
    assert tab.js("document.activeElement.id") == target
    plain = tab.js(
        f"getComputedStyle(document.querySelector('.step:not(#{target})')).backgroundColor"
    )
    assert tab.js(f"getComputedStyle(document.getElementById('{target}')).backgroundColor") != plain
    tab.click(f"[id='{target}'] a.back")
    tab.until("document.activeElement.id === 'r-1-1'")
    tab.until(f"{IN_VIEW}(document.getElementById('r-1-1'))")


@needs_chromium
def test_an_address_with_a_step_opens_there(built: Path, show: Show) -> None:
    cited = Run(built / "runs" / "a").revisions()[1].edits[0].evidence[0]
    tab = show(f"#e-{cited.experience}-{cited.step}")
    tab.until(f"{IN_VIEW}(document.getElementById('e-{cited.experience}-{cited.step}'))")


@needs_chromium
def test_keys_go_through_revisions_fold_and_tell_themselves(show: Show) -> None:
    tab = show()
    for key, at in (("j", "r-1"), ("j", "r-2"), ("j", "r-3"), ("k", "r-2")):
        tab.key(key)
        assert tab.js("document.activeElement.id") == at
        tab.until(f"{IN_VIEW}(document.getElementById('{at}'))")
    body = "document.querySelector('#r-2 details.body').open"
    was = tab.js(body)
    tab.key("o")
    assert tab.js(body) is not was
    tab.key("?")
    assert tab.js("document.getElementById('keys').open")
    tab.key("j")
    assert tab.js("document.activeElement.closest('dialog') !== null")
    tab.js("document.querySelector('#keys button').click()")
    assert not tab.js("document.getElementById('keys').open")
    tab.js("document.getElementById('filter').focus()")
    tab.key("j")
    assert tab.js("document.getElementById('filter').value") == "j"


@needs_chromium
def test_traces_are_filtered(show: Show) -> None:
    tab = show()
    shown = "[...document.querySelectorAll('details.trace')].filter(t => !t.hidden).length"
    every = tab.js(shown)
    tab.click("#cited")
    cited = tab.js(shown)
    assert 0 < cited < every
    tab.js(
        "(f => {f.value = 'zebra'; f.dispatchEvent(new"
        " Event('input'))})(document.getElementById('filter'))"
    )
    assert tab.js(shown) == 0
    assert tab.js("document.getElementById('matches').textContent") == f"0 of {every}"


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_overflows_is_refused_or_asked_for(
    show: Show, width: int, dark: bool, tmp_path: Path
) -> None:
    tab = show(width=width, dark=dark)
    for folded in (True, False):
        if not folded:
            tab.js("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert tab.js("document.documentElement.scrollWidth") <= width
        wide = (
            "[...document.querySelectorAll('main *')].filter(e => !e.closest('svg, .scroll') && "
            f"e.getBoundingClientRect().right > {width} + 1).map(e => e.outerHTML.slice(0, 90))"
        )
        assert tab.js(wide) == []
    tab.picture(tmp_path / "page.png", height=900)
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert tab.js("document.title").startswith("Build of an agent for words")
    assert [u for u in tab.requests if not u.startswith(("file:", "about:"))] == []
    assert list(tab.complaints) == []


CONTRAST = r"""
(() => {
  const parse = c => {
    const m = c.match(/[\d.]+/g).map(Number);
    return [...m.slice(0, 3), m[3] ?? 1];
  };
  const linear = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.map(linear); return .2126 * r + .7152 * g + .0722 * b; };
  const over = (top, under) => under.map((u, i) => top[i] * top[3] + u * (1 - top[3]));
  const page = parse(getComputedStyle(document.body).backgroundColor).slice(0, 3);
  const ground = e =>
    e ? over(parse(getComputedStyle(e).backgroundColor), ground(e.parentElement)) : page;
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement, style = getComputedStyle(e);
    if (!n.data.trim() || !e.getClientRects().length) continue;
    if (e.closest('script, style, title, dialog:not([open])')) continue;
    const colour = parse(e.closest('svg') ? style.fill : style.color), back = ground(e);
    const [a, b] = [light(over(colour, back)), light(back)].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24;
    if (e.getAttribute('aria-hidden') !== 'true' && (a + .05) / (b + .05) < (large ? 3 : 4.5))
      bad.push([((a + .05) / (b + .05)).toFixed(2), e.className, n.data.trim().slice(0, 40)]);
  }
  return bad;
})()
"""


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_every_text_has_enough_contrast(show: Show, dark: bool) -> None:
    tab = show(dark=dark)
    tab.js("document.querySelectorAll('details').forEach(d => d.open = true)")
    tab.js("document.querySelectorAll('[hidden]').forEach(e => e.hidden = false)")
    assert tab.js(CONTRAST) == []
    ground = tab.js("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(21, 22, 23)") is dark


@needs_chromium
def test_every_mark_of_the_curve_has_its_like_in_the_legend(show: Show) -> None:
    keys = """[...document.querySelectorAll(".legend .key")].map((k) => {
        const {width, height} = k.getBoundingClientRect(), {backgroundColor, borderTopWidth} = \
getComputedStyle(k);
        return [width > 5 && height > 5, backgroundColor + borderTopWidth];
    })"""
    found = show().js(keys)
    assert [seen for seen, _ in found] == [True] * 3
    assert len({look for _, look in found}) == 3


@needs_chromium
def test_without_a_script_the_page_still_links_and_folds(
    built: Path, browser: chromium.Chromium
) -> None:
    """The script is taken out; the policy stays."""
    text = (built / "runs" / "a" / "report.html").read_text("utf-8")
    bare = built / "bare.html"
    bare.write_text(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL), "utf-8")
    browser.open(bare.as_uri())
    assert browser.js("getComputedStyle(document.querySelector('.tools')).display") == "none"
    browser.click(".edit a.cite")
    browser.until(f"{IN_VIEW}(document.querySelector(':target'))")
    assert list(browser.complaints) == []
