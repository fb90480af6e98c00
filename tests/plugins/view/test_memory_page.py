"""The page of the memory: what is held out is in none of it, why a hit was found, and lessons
changed by a person."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from recreate.agents.lesson import headed, read_lesson
from recreate.api.errors import BadInput
from recreate.api.types import Draw, Evidence, Lesson, Provisional, Step
from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.ungraded import NOT_YET, ProvisionalGrades, Ungraded
from recreate.plugins.view.memory import lessons_at, timeline
from recreate.plugins.view.site import Website
from tests import chromium
from tests.memory.test_recall import fill
from tests.memory.test_store import experience, many
from tests.plugins.view.test_view import CONTRAST, Served, opened, serving
from tests.plugins.view.test_view import form as fields
from tests.viewer.test_html import Tree

MARKUP = "<script>document.title = 'taken'</script>"
SECRET = "Zq8" + "vX2mKp7Lw4Rt9Yb3Nd6"


@pytest.fixture
def where(workspace: Path) -> Path:
    (workspace / "recreate.toml").write_text('[memory]\nembedder = "hashed"\n')
    memory = ExperienceStore(workspace, "hashed")
    fill(memory)
    memory.add(
        [
            experience("e1", prompt=f"{MARKUP} mend the zeppelin", passed=True),
            experience("e2", prompt="mend the zeppelin again", domain="other"),
            experience("exam", split="test", prompt="the sealed zeppelin"),
            experience("near", prompt="beside the sealed zeppelin", group="module-exam"),
        ],
        {
            "e1": "2026-01-05T10:00:00Z",
            "e2": "2026-02-07T10:00:00Z",
            "exam": "2026-01-06T10:00:00Z",
        },
    )
    lessons = {
        "toy/lessons/one-aaaaaa": Lesson(
            id="one-aaaaaa", title="One", body="First zeppelin.", supports=("e1",)
        ),
        "toy/lessons/two-bbbbbb": Lesson(
            id="two-bbbbbb", title=MARKUP, body="Second.", born_of=("e1",)
        ),
        "toy/patterns/three-cccccc": Lesson(
            id="three-cccccc", title="Three", body="Third.", scope="domain"
        ),
        "toy/lessons/sealed-dddddd": Lesson(
            id="sealed-dddddd", title="Sealed", body="zeppelin is 7", born_of=("exam",)
        ),
        "toy/playbook/four": Lesson(id="four", title="Four", body="Fourth."),
    }
    for path, lesson in lessons.items():
        file = workspace / "memory" / f"{path}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(headed(lesson))
    carried = workspace / "scaffolds" / "mine" / "memory" / "three-cccccc.md"
    carried.parent.mkdir(parents=True)
    carried.write_text("# Three\n\nThird.\n")
    return workspace


@pytest.fixture
def served(where: Path) -> Iterator[Served]:
    with serving(where) as found:
        yield found


def lesson(where: Path, path: str) -> Lesson:
    return read_lesson(Path(path).name, (where / "memory" / f"{path}.md").read_text())


def test_a_hit_says_which_words_it_has_and_its_places_by_words_and_by_meaning(
    served: Served,
) -> None:
    text = served.ask("/memory?q=zeppelin+mend")[1]
    assert "has the words zeppelin, mend; place by words 1, by meaning" in text
    assert "<mark>zeppelin</mark>" in text
    assert "<script>document" not in text
    assert "lesson toy/one-aaaaaa" in text
    assert "near in meaning" in served.ask("/memory?q=dirigible")[1]


def test_what_is_held_out_is_neither_listed_nor_found_nor_counted(served: Served) -> None:
    for query in (
        "",
        "?q=zeppelin+sealed",
        "?grain=lesson",
        "?since=2026-01-06&until=2026-01-07",
        "?grain=step&q=sealed",
    ):
        text = served.ask(f"/memory{query}")[1]
        assert "hand:exam" not in text, query
        assert "hand:near" not in text, query
        assert "sealed-dddddd" not in text, query
    assert "2 held-out attempts are hidden" in served.ask("/memory")[1]


def test_filters_of_domain_outcome_kind_and_date_leave_what_they_say(served: Served) -> None:
    def found(**query: str) -> set[str]:
        return set(re.findall(r"hand:(\w+)</a>", served.ask("/memory?" + urlencode(query))[1]))

    assert found() == {"quotes", "dates", "width", "retry", "e1", "e2"}
    assert found(domain="other") == {"e2"}
    assert found(outcome="passed") == {"dates", "e1"}
    assert found(since="2026-01-01", until="2026-02-01") == {"e1"}
    assert found(q="zeppelin", since="2026-02-01", until="2026-03-01") == {"e2"}
    assert "lesson toy/three-cccccc" in served.ask("/memory?grain=lesson")[1]
    assert "step 3" in served.ask("/memory?q=unterminated&grain=step")[1]
    assert "This cannot be searched" in served.ask("/memory?since=yesterday")[1]
    assert "This cannot be searched" in served.ask("/memory?grain=nonsense&q=x")[1]


def test_a_provisional_grade_is_marked_wherever_a_page_shows_it(where: Path) -> None:
    memory = ExperienceStore(where, "hashed")
    judged, bare = (
        experience(id, prompt="the balloon", grade=NOT_YET) for id in ("judged", "bare")
    )
    Ungraded(memory).add([judged, bare])
    said = Provisional(score=0.9, passed=True, evidence="It flew.", model="a-judge")
    ProvisionalGrades(memory.folder).add(judged, said)
    site = Website(where)
    mark = "provisional, by a-judge"
    page = site.page("/memory", {"q": "balloon"}).text
    assert "1 imported attempt that nobody graded is not among these" in page
    assert f'<span class="chip">{mark}</span>' in page
    assert "/experiences/bare" not in page
    page = site.page("/search", {"q": "balloon"}).text
    assert f'<span class="chip">{mark}</span>' in page
    assert '<span class="chip">ungraded</span>' in page
    page = site.page("/experiences/judged").text
    assert f"({mark})" in page
    assert f'<span class="who">{mark}</span>' in page
    assert "It flew." in page
    page = site.page("/experiences/bare").text
    assert "not graded" in page
    assert 'class="turn grade' not in page
    assert page.count("failed") == 0


def test_a_lesson_is_found_by_the_days_of_the_attempts_that_taught_it(served: Served) -> None:
    january, february = {"since": "2026-01-01", "until": "2026-02-01"}, {"since": "2026-02-01"}
    for query in ({"q": "zeppelin"}, {"q": "zeppelin", "grain": "lesson"}, {"grain": "lesson"}):
        assert (
            "lesson toy/one-aaaaaa" in served.ask("/memory?" + urlencode({**query, **january}))[1]
        ), query
        text = served.ask("/memory?" + urlencode({**query, **february}))[1]
        assert "lesson toy/one-aaaaaa" not in text
        assert "those that an attempt of these days taught" in text


def test_an_attempts_page_says_what_was_drawn_and_taught_as_traces_show_does(where: Path) -> None:
    steps = (
        Step(
            step=0,
            action="ls",
            offered=("three-cccccc", "plain"),
            propensities={"three-cccccc": 0.7, "held-1": 0.25},
        ),
        Step(step=1, action="cat"),
    )
    ExperienceStore(where, "hashed").add([experience("e3", steps=steps)])
    file = where / "memory/toy/lessons/two-bbbbbb.md"
    taught = Lesson(
        id="two-bbbbbb",
        title="Two",
        body="b",
        born_of=("e3",),
        steps=(Evidence(experience="e3", step=1),),
    )
    file.write_text(headed(taught))
    text = Tree(Website(where).page("/experiences/e3").text).text
    first, second = (" ".join(each.split()) for each in text.split("step 1", 1))
    assert "shown lesson three-cccccc , by lot, 0.7" in first
    assert "shown lesson plain" in first
    assert "not shown, by lot: held-1, 0.25" in first
    assert "taught the lesson" not in first
    assert "taught the lesson two-bbbbbb" in second


def test_a_pattern_that_its_draws_alone_made_says_so_in_every_list(
    where: Path, capsys: Any
) -> None:
    drawn = tuple(
        Draw(experience=f"d{n}", task="t", group="g", score=n % 2, shown=n % 2, propensity=0.5)
        for n in range(9)
    )
    found = Lesson(
        id="three-cccccc",
        title="Three",
        body="Third.",
        scope="domain",
        status="active",
        draws=drawn,
        offered=4,
        failed_in=("tau",),
        carried=3,
    )
    (where / "memory/toy/patterns/three-cccccc.md").write_text(headed(found))
    said = "shown by lot to 4 of 9 attempts that called for it, 1.00 with it, 0.00 without it"
    site = Website(where)
    assert said in Tree(site.page("/lessons").text).text
    page = " ".join(Tree(site.page("/lessons/toy/patterns/three-cccccc").text).text.split())
    assert said in page
    assert "offered in 4 attempts, carried by the agent in 3, re-runs aside" in page
    assert "failed in tau" in page
    assert cli(["patterns", "list"]) == 0
    assert said in capsys.readouterr().out
    assert cli(["patterns", "show", "three-cccccc"]) == 0
    assert (
        "offered in 4 attempts, carried by the agent in 3; re-runs aside" in capsys.readouterr().out
    )


def test_the_timeline_has_a_bar_for_each_day_week_or_more_and_leads_to_it() -> None:
    day = 86400.0
    bars, unknown = timeline([(0.0 + 1, True), (day, False), (2 * day, True), (None, True)])
    assert [(b["first"], b["after"], b["passed"], b["failed"]) for b in bars] == [
        ("1970-01-01", "1970-01-02", 1, 0),
        ("1970-01-02", "1970-01-03", 0, 1),
        ("1970-01-03", "1970-01-04", 1, 0),
    ]
    assert unknown == 1
    for days in (59, 60, 400, 3_000, 40_000):
        bars, _ = timeline([(1.0, True), (days * day, False)])
        assert len(bars) <= 60
        assert sum(b["passed"] + b["failed"] for b in bars) == 2
    assert timeline([(None, True)]) == ([], 1)


def test_a_lesson_gets_other_words_and_keeps_what_speaks_for_it(
    served: Served, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_API_KEY", SECRET)
    path = "toy/lessons/one-aaaaaa"
    sent = fields(
        served,
        f"/lessons/{path}",
        decision="edit",
        title="New",
        body=f"Say {MARKUP}\r\nand {SECRET}.",
    )
    status, _, headers = served.ask(f"/lessons/{path}", "POST", sent)
    assert (status, headers["Location"].partition("?")[0]) == (303, f"/lessons/{path}")
    now = lesson(where, path)
    assert (now.title, now.supports) == ("New", ("e1",))
    assert now.body.startswith(f"Say {MARKUP}\nand ")
    assert SECRET not in now.body
    assert MARKUP not in served.ask(f"/lessons/{path}")[1]
    status, text, _ = served.ask(f"/lessons/{path}", "POST", sent)
    assert (status, "somebody changed this lesson meanwhile" in text) == (400, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"title": " "}, "a lesson has a title and a text"),
        ({"body": ""}, "a lesson has a title and a text"),
        ({"decision": "none"}, "no change was given"),
        ({"decision": "merge", "member": "four"}, "no change was given"),
        ({"decision": "merge", "member": "../../x"}, "no change was given"),
    ],
)
def test_what_cannot_stand_in_a_lesson_is_said_and_changes_nothing(
    served: Served, where: Path, given: dict[str, str], said: str
) -> None:
    file = where / "memory" / "toy" / "lessons" / "one-aaaaaa.md"
    before = file.read_bytes()
    sent = fields(
        served,
        "/lessons/toy/lessons/one-aaaaaa",
        **{"decision": "edit", "title": "T", "body": "B", **given},
    )
    status, text, _ = served.ask("/lessons/toy/lessons/one-aaaaaa", "POST", sent)
    assert (status, said in text) == (400, True)
    assert file.read_bytes() == before


def test_a_lesson_joins_another_of_its_ladder_and_can_be_parted_again(
    served: Served, where: Path
) -> None:
    path = "toy/patterns/three-cccccc"
    page = served.ask(f"/lessons/{path}")[1]
    assert 'value="one-aaaaaa"' in page
    assert 'value="four"' not in page
    sent = fields(served, f"/lessons/{path}", decision="merge", member="one-aaaaaa")
    assert served.ask(f"/lessons/{path}", "POST", sent)[0] == 303
    assert lesson(where, "toy/lessons/one-aaaaaa").merged_into == "three-cccccc"
    assert lesson(where, path).supports == ("e1",)


def test_a_lesson_is_deleted_after_what_depends_on_it_was_shown(
    served: Served, where: Path
) -> None:
    path = "toy/patterns/three-cccccc"
    sent = fields(served, f"/lessons/{path}", decision="merge", member="one-aaaaaa")
    assert served.ask(f"/lessons/{path}", "POST", sent)[0] == 303
    text = served.ask(f"/forget/lessons/{path}")[1]
    assert "would be deleted: the lesson" in text
    assert "one-aaaaaa.md, which had joined it" in text
    assert "still has it: scaffolds/mine/memory/three-cccccc.md" in text
    stale = fields(served, f"/forget/lessons/{path}", seen="0" * 16)
    status, text, _ = served.ask(f"/forget/lessons/{path}", "POST", stale)
    assert (status, "what depends on it changed meanwhile" in text) == (400, True)
    assert (where / "memory" / f"{path}.md").exists()
    status, _, headers = served.ask(
        f"/forget/lessons/{path}", "POST", fields(served, f"/forget/lessons/{path}")
    )
    assert (status, headers["Location"].partition("?")[0]) == (303, "/lessons")
    assert not (where / "memory" / f"{path}.md").exists()
    assert not (where / "memory" / "toy/lessons/one-aaaaaa.md").exists()


def test_an_attempt_is_forgotten_from_its_page_with_the_lessons_that_it_alone_taught(
    served: Served, where: Path
) -> None:
    assert "/forget/experiences/e1" in served.ask("/experiences/e1")[1]
    text = served.ask("/forget/experiences/e1")[1]
    assert "one-aaaaaa.md" in text
    assert "two-bbbbbb.md" in text
    assert (
        served.ask("/forget/experiences/e1", "POST", fields(served, "/forget/experiences/e1"))[0]
        == 303
    )
    assert ExperienceStore(where, "hashed").get("e1") is None
    assert not (where / "memory" / "toy" / "lessons" / "one-aaaaaa.md").exists()
    assert "hand:e1<" not in served.ask("/memory?q=zeppelin")[1]
    assert served.ask("/forget/experiences/e1")[0] == 404


@pytest.mark.parametrize(
    ("headers", "given"),
    [
        ({"Origin": "http://example.com"}, {}),
        ({"Origin": None}, {}),
        ({"Sec_Fetch_Site": "cross-site"}, {}),
        ({"Cookie": None}, {}),
        ({}, {"secret": "guess"}),
    ],
)
def test_a_strangers_page_changes_and_deletes_nothing(
    served: Served, where: Path, headers: dict[str, Any], given: dict[str, str]
) -> None:
    before = {p: p.read_bytes() for p in where.glob("memory/toy/**/*.md")}
    for path, more in (
        ("/lessons/toy/lessons/one-aaaaaa", {"decision": "edit", "title": "T", "body": "B"}),
        ("/forget/lessons/toy/lessons/one-aaaaaa", {}),
        ("/forget/experiences/e1", {}),
    ):
        assert (
            served.ask(path, "POST", fields(served, path, **more, **given), **headers)[0] == 403
        ), path
    assert {p: p.read_bytes() for p in where.glob("memory/toy/**/*.md")} == before


@pytest.mark.parametrize(
    "path",
    [
        "lessons/../../recreate",
        "lessons/toy/lessons/%2e%2e%2f%2e%2e%2frecreate",
        "lessons/toy/lessons/one",
        "lessons/toy/../../x",
        "lessons/toy/experiences/run-1",
        "lessons/x",
        "experiences/..",
        "experiences/e",
        "experiences/",
        "runs/x",
    ],
)
def test_no_address_deletes_anything_but_lessons_and_attempts(
    served: Served, where: Path, path: str
) -> None:
    before = {p: p.read_bytes() for p in where.rglob("*") if p.is_file() and "index" not in p.parts}
    secret = fields(served, "/forget/experiences/e1")["secret"]
    status, _, _ = served.ask(f"/forget/{path}", "POST", {"secret": secret, "seen": ""})
    assert status in (400, 404), path
    assert {
        p: p.read_bytes() for p in where.rglob("*") if p.is_file() and "index" not in p.parts
    } == before


def test_pages_as_files_have_no_memory_to_ask_and_nothing_to_change(where: Path) -> None:
    assert cli(["view", "--export", "site"]) == 0
    for page in (where / "site").rglob("*.html"):
        assert "<form" not in page.read_text(), page
        assert "/forget" not in page.read_text(), page
        assert ">Memory<" not in page.read_text(), page


@pytest.mark.skipif(not chromium.find(), reason="no chromium on PATH: apt-get install -y chromium")
@pytest.mark.slow
def test_the_memory_is_searched_and_a_lesson_deleted_in_a_browser(
    served: Served, where: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DISPLAY", raising=False)
        tab = chromium.Chromium()
    try:
        pages = (
            "/memory",
            "/memory?q=zeppelin",
            "/lessons/toy/lessons/one-aaaaaa",
            "/forget/experiences/e1",
        )
        for width, dark in ((360, False), (768, True), (1280, False)):
            for page in pages:
                opened(tab, served, page, width=width, dark=dark)
                tab.js("document.querySelectorAll('details').forEach(d => d.open = true)")
                assert tab.js("document.documentElement.scrollWidth") <= width, page
                assert tab.js(CONTRAST) == [], page
                assert tab.js("document.title") != "taken"
                assert not tab.complaints, page
        opened(tab, served, "/memory")
        tab.js(
            "(i => {i.value = 'zeppelin'; i.form.requestSubmit()})(document.querySelector('main"
            " input[name=q]'))"
        )
        tab.until(
            "location.search.includes('q=zeppelin') && document.querySelector('.hits mark') !=="
            " null"
        )
        opened(tab, served, "/lessons/toy/playbook/four")
        tab.click('a[href*="/forget/"]')
        tab.until(
            "document.querySelector('h1')?.textContent === 'Forget a lesson' && document.readyState"
            " === 'complete'"
        )
        tab.click(".decide button")
        tab.until("location.pathname === '/lessons' && document.querySelector('.told') !== null")
        assert not (where / "memory" / "toy" / "playbook" / "four.md").exists()
        assert not tab.complaints
    finally:
        tab.close()


def test_a_form_reaches_no_file_beside_the_memory(where: Path) -> None:
    (where / "notes").mkdir()
    (where / "notes" / "mine.md").write_text("# Mine\n\nMy words.\n")
    for path in ("../notes/mine", "toy/../general", "toy/lessons/../../../notes/mine"):
        for act in (
            lambda p=path: lessons_at(where / "memory", p),
            lambda p=path: Website(where).browsed.plan("lessons", p),
        ):
            with pytest.raises(BadInput) as e:
                act()
            assert e.value.code == "no-lesson"


@pytest.mark.slow
def test_the_page_of_many_attempts_reads_what_it_shows_and_keeps_little_of_the_others(
    workspace: Path,
) -> None:
    (workspace / "recreate.toml").write_text('[memory]\nembedder = "hashed"\n')
    many(ExperienceStore(workspace, "hashed"), 20_000)
    site = Website(workspace)
    assert "e0" in site.page("/memory", {"page": "200"}).text
    tracemalloc.start()
    try:
        found = site.browsed.ask("", {})
        assert len(found.rows) == 20_000
        assert [row["id"] for row in found.rows[19_998:]] == ["m19997", "m19998"]
        assert tracemalloc.get_traced_memory()[1] / 20_000 < 400, "bytes of each"
    finally:
        tracemalloc.stop()
