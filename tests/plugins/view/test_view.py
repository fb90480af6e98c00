"""`recreate view`: what its pages show, who may ask, what is followed, and that it works in a
browser."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import pytest

from recreate.agents.lesson import headed
from recreate.api.errors import BadInput
from recreate.api.types import Draw, Gain, Lesson, Review, Revision
from recreate.cli import run as cli
from recreate.plugins.view import server
from recreate.plugins.view.live import LiveRun
from recreate.plugins.view.site import Website
from recreate.runs.reader import Run
from recreate.runs.results import read_results
from recreate.storage.log import Log, seal
from recreate.viewer import html, markdown
from recreate.viewer.facts import RunFacts
from tests import chromium
from tests.viewer.test_html import CONTRAST, Tree
from tests.words import ESCAPE, HIDDEN, write_script

needs_chromium = pytest.mark.skipif(
    not chromium.find(), reason="no chromium on PATH: apt-get install -y chromium"
)
FLAGS = ["--domain", "tests.words:Words", "--sandbox", "none", "--json"]
BUILD = [
    "--optimizer",
    "tests.words:Planned",
    "--rounds",
    "2",
    "--batch",
    "2",
    "--train",
    "4",
    "--scaffold",
    "seed",
]
BUILD += ["--gate.false_keep", "0"]  # each candidate by itself: what the pages show is more


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a build that waits for a person, a bench, a training told by its journal,
    and lessons. Names, reasons, outputs and lessons try to break out of a page."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "recreate.toml").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RECREATE_HOME", str(folder / "home"))
        model = ["--model", write_script(folder / "script.jsonl")]
        assert cli(["build", *FLAGS, *model, *BUILD, "--review", "--out", "runs/waits"]) == 0
        assert (
            cli(
                [
                    "bench",
                    *FLAGS,
                    *model,
                    "--scaffold",
                    "seed",
                    "--split",
                    "train",
                    "--out",
                    "runs/bench",
                ]
            )
            == 0
        )
    tune = folder / "runs" / "tune"
    tune.mkdir()
    shutil.copy(folder / "runs" / "waits" / "settings.toml", tune)
    with Log(tune / "journal.jsonl") as journal:
        journal.append(
            {
                "kind": "tune",
                "name": ESCAPE,
                "recipe": "grpo",
                "scaffold": "s",
                "seed": 0,
                "base": "b",
            }
        )
        journal.append(
            *({"kind": "update", "step": n, "reward": n / 20, "kl": 0.01 * n} for n in range(20))
        )
        journal.append({"kind": "note", "text": ESCAPE + HIDDEN}, {"kind": "end", "status": "done"})
    lesson = Lesson(
        id="read-first",
        title=ESCAPE,
        body=f"{ESCAPE}\n{HIDDEN}",
        scope="domain",
        status="active",
        supports=("a", "b"),
        gains=tuple(Gain(experience=f"e{n}", group=f"g{n}", diff=0.5) for n in range(4)),
        offered=3,
    )
    (folder / "memory" / "words" / "patterns").mkdir(parents=True)
    (folder / "memory" / "words" / "patterns" / "read-first.md").write_text(headed(lesson), "utf-8")
    (folder / "memory" / "words" / "patterns" / "broken.md").write_text("+++\nno header\n")
    held = lesson.model_copy(update={"status": "held", "held": f"{ESCAPE} rm -f {'tests/' * 60}"})
    (folder / "memory" / "words" / "patterns" / "held.md").write_text(headed(held), "utf-8")
    run = Run(folder / "runs" / "waits")
    id = next(r["attempt"] for r in run.records("experience") if r["split"] == "train")
    drawn = [
        Draw(experience=f"e{n}", task="t", group="g", score=n % 2, shown=n % 2, propensity=0.5)
        for n in range(9)
    ]
    tried = lesson.model_copy(
        update={"status": "candidate", "born_of": (id,), "draws": tuple(drawn[:2])}
    )
    proven = tried.model_copy(
        update={"status": "active", "draws": tuple(drawn), "merged": ("other",)}
    )
    other = lesson.model_copy(
        update={
            "id": "other",
            "title": "Another",
            "status": "held",
            "held": ESCAPE * 3,
            "draws": (),
        }
    )
    rounds = [
        (("born", "read-first"), (tried,)),
        (("promoted", "read-first"), (proven,)),
        (("held", "other"), (other,)),
    ]
    with Log(run.folder / "journal.jsonl") as journal:
        for number, ((kind, whose), after) in enumerate(rounds):
            change = {"kind": kind, "lesson": whose, "why": f"{ESCAPE} {kind}"}
            told = {
                "changes": [change],
                "before": [],
                "after": [x.model_dump(mode="json") for x in after],
            }
            journal.append({"kind": "memory", "round": number, "policy": "randomised", **told})
    return folder


@pytest.mark.slow
def test_one_agent_with_the_weights_of_two_models_is_measured_twice(
    made: Path, tmp_path: Path
) -> None:
    shutil.copytree(made / "runs" / "bench", tmp_path / "runs" / "arms")
    (tmp_path / "recreate.toml").write_text("")
    run = Run(tmp_path / "runs" / "arms")
    (before,) = read_results(run, tmp_path)
    rows = [{k: v for k, v in r.items() if k != "sum"} for r in run.records("experience")]
    with Log(run.folder / "journal.jsonl") as journal:
        journal.append(*({**r, "model": "m@tuned", "score": 1.0, "passed": True} for r in rows))
        for model, arm in ((before.model, "seed"), ("m@tuned", "weights")):
            journal.append(
                {
                    "kind": "arm",
                    "arm": arm,
                    "model": model,
                    "digest": before.digest,
                    "mean": 0.0,
                    "n": 1,
                }
            )
    assert [(c.model, c.mean) for c in read_results(run, tmp_path)] == [
        (before.model, before.mean),
        ("m@tuned", 1.0),
    ]
    assert re.findall(r'scope="col">(\w+) <span', Website(tmp_path).page("/runs/arms").text) == [
        "seed",
        "weights",
    ]


def test_the_page_of_a_build_says_what_became_of_each_lesson_as_its_report_does(made: Path) -> None:
    def section(page: str) -> str:
        found = re.search(r'<section aria-labelledby="lessons">.*?</section>', page, re.S)
        return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", found[0])) if found else ""

    site = Website(made)
    page = site.page("/runs/waits").text
    told = section(page)
    assert "read-first domain, active" in told
    assert "round 2: promoted" in told
    assert "Another other domain, held" in told
    assert "round 3: held" in told
    assert (
        "shown by lot to 4 of 9 attempts that called for it, 1.00 with it, 0.00 without it" in told
    )
    assert "0 questions and 0 re-runs: $0.0000 and 0 tokens, $0.0000 for each of 2 lessons" in told
    assert told == section(html.page(Run(made / "runs" / "waits")))
    born = Run(made / "runs" / "waits").records("memory").__next__()["after"][0]["born_of"][0]
    assert f'href="/runs/waits/attempts/{born}"><code>{born[:8]}</code>' in page
    assert '<a href="#lessons">Lessons' in page


def test_the_report_says_of_which_builds_a_lessons_draws_are_and_what_was_a_pattern_before(
    made: Path, tmp_path: Path
) -> None:
    shutil.copytree(made / "runs" / "waits", tmp_path / "waits")
    run = Run(tmp_path / "waits")
    ids = [r["attempt"] for r in run.records("experience") if r["split"] == "train"][:2]
    old = [
        Draw(experience=f"e{n}", task="t", group="g", score=1, shown=True, propensity=0.5)
        for n in range(3)
    ]
    new = [
        Draw(experience=id, task="t", group="g", score=n, shown=n, propensity=0.5)
        for n, id in enumerate(ids)
    ]
    before = Lesson(
        id="there", title="T", body="b", scope="general", status="active", draws=tuple(old)
    )
    after = before.model_copy(update={"draws": (*old, *new)})
    with Log(run.folder / "journal.jsonl") as journal:
        for number, was in ((3, before), (4, after)):
            told = {
                "before": [was.model_dump(mode="json")],
                "after": [after.model_dump(mode="json")],
            }
            journal.append(
                {"kind": "memory", "round": number, "policy": "randomised", "changes": [], **told}
            )
    run = Run(run.folder)
    report = markdown.report(RunFacts(run))
    here = "shown by lot to 1 of 2 attempts that called for it, 1.00 with it, 0.00 without it"
    assert report.count(f"  - there: {here}\n") == report.count("  - there: ") == 1
    assert (
        f"- there, all rounds: in this build {here}; over all builds shown by lot to 4 of 5"
        in report
    )
    assert "for each of 1 new pattern, 1 was one before" in report
    live = LiveRun(run.folder)
    live.refresh()
    assert [x.shown for x in RunFacts(live).lessons] == [x.shown for x in RunFacts(run).lessons]
    (run.folder / "journal.jsonl").write_text(
        "".join(
            line
            for line in (run.folder / "journal.jsonl").read_text().splitlines(True)
            if '"promoted"' not in line
        )
    )
    run = Run(run.folder)
    cost = RunFacts(run).lessons_cost
    assert cost.endswith("for each of 3 lessons, none a new pattern, 1 was one before"), cost


def test_a_run_that_is_followed_keeps_of_each_lesson_what_it_is_now(made: Path) -> None:
    live = LiveRun(made / "runs" / "waits")
    live.refresh()
    assert [(r["round"], [x["id"] for x in r["after"]]) for r in live.records("memory")] == [
        (0, []),
        (1, ["read-first"]),
        (2, ["other"]),
    ]


@dataclass
class Served:
    """A server in a thread of this process. decided: what a person said, in place of who would act
    on it."""

    url: str = ""
    stop: Callable[[], None] = lambda: None
    decided: list[tuple[str, Review]] = field(default_factory=list)

    @property
    def place(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def token(self) -> str:
        return self.url.rpartition("=")[2]

    def ask(
        self, path: str, method: str = "GET", body: Any = None, **headers: str | None
    ) -> tuple[int, str, Any]:
        """(status, text, headers) as a page of ours asks; a header that is None is left out."""
        port = self.place.rpartition(":")[2]
        sent: dict[str, str | None] = {
            "Host": self.place,
            "Cookie": f"recreate-view-{port}={self.token}",
        }
        if method == "POST":
            sent |= {
                "Origin": f"http://{self.place}",
                "Content-Type": "application/x-www-form-urlencoded",
            }
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        link = http.client.HTTPConnection(self.place, timeout=60)
        link.putrequest(method, path, skip_host=True)
        data = urlencode(body).encode() if body else b""
        for name, value in {**sent, "Content-Length": str(len(data))}.items():
            if value is not None:
                link.putheader(name, value)
        link.endheaders(data)
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        return answer.status, text, answer.headers

    def stream(self, path: str, **headers: str) -> tuple[http.client.HTTPConnection, Any]:
        """(a connection, what is streamed on it)."""
        link = http.client.HTTPConnection(self.place, timeout=60)
        port = self.place.rpartition(":")[2]
        link.request(
            "GET", path, headers={"Cookie": f"recreate-view-{port}={self.token}", **headers}
        )
        return link, link.getresponse()


@contextmanager
def serving(where: Path, decide: server.Decide | None = None) -> Iterator[Served]:
    served, ready = Served(), threading.Event()

    def answers(url: str) -> None:
        served.url = url
        ready.set()

    def remember(live: LiveRun, revision: Revision, word: Review) -> str:
        if word.reason == "no good":
            raise BadInput("that cannot be used", fix="say another")
        if word.reason == "does not open":
            raise OSError("Argument list too long")
        served.decided.append((revision.id, word))
        return "it goes on"

    @contextmanager
    def ends(stop: Callable[[], None]) -> Iterator[None]:
        served.stop = stop
        yield

    site = Website(where)
    thread = threading.Thread(
        target=server.serve, args=(site, 0, answers, decide or remember, ends)
    )
    thread.start()
    assert ready.wait(60)
    try:
        site.read_ahead().join(60)
        yield served
    finally:
        served.stop()
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def served(made: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        with serving(made) as found:
            yield found


def pages(served: Served) -> dict[str, str]:
    """Every page that links lead to from the list of runs, by address."""
    found: dict[str, str] = {}
    left = ["/", "/search?q=notes", "/search?outcome=failed"]
    while left:
        address = left.pop()
        if address in found:
            continue
        status, text, _ = served.ask(address)
        assert status == 200, (address, text[-400:])
        found[address] = text
        for link in Tree(text).all("href"):
            link = link.partition("#")[0]
            if (
                link.startswith("/")
                and not link.startswith("/static")
                and link.count("/compare/") + len(found) < 400
            ):
                left.append(link)
    return found


# --- what it shows ---


@pytest.mark.slow
def test_every_link_leads_to_a_page_and_no_text_of_a_model_is_markup(served: Served) -> None:
    found = pages(served)
    kinds = (
        "/runs/waits",
        "/runs/bench",
        "/runs/tune",
        "/lessons/words/patterns/read-first",
        "/review/waits",
    )
    assert set(kinds) <= set(found)
    assert any("/messages" in address for address in found)
    assert any("/compare/" in address for address in found)
    assert any("/studies/" in address for address in found)
    for address, text in found.items():
        tree = Tree(text)
        assert [tag for tag, _ in tree.tags if tag in ("img", "iframe", "object", "base")] == [], (
            address
        )
        assert [a for tag, a in tree.tags if tag == "script" and "src" not in a] == [], address
        assert not [
            key for _, a in tree.tags for key in a if key.startswith("on") or key == "style"
        ], address
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text), address
        ids = tree.all("id")
        assert len(ids) == len(set(ids)), address
        for label in [a for tag, a in tree.tags if tag in ("select", "textarea")]:
            assert label.get("name"), address


def test_runs_of_every_kind_are_listed_with_status_score_and_spend(served: Served) -> None:
    text = Tree(served.ask("/")[1]).text
    for said in (
        "build waits for you review",
        "bench done",
        "tune done",
        "seed 0.200 [0.093, 0.378]",
    ):
        assert said in text, said
    assert "reward, step 20 0.950" in text
    assert "waits" not in Tree(served.ask("/?kind=bench")[1]).text
    assert "No run is like that." in Tree(served.ask("/?q=zebra")[1]).text


def test_an_edits_evidence_is_one_click_from_its_step_and_the_step_from_the_edit(
    served: Served, made: Path
) -> None:
    revision = Run(made / "runs" / "waits").revisions()[0]
    cited = revision.edits[0].evidence[0]
    run = Tree(served.ask("/runs/waits")[1])
    address = f"/runs/waits/attempts/{cited.experience}"
    assert f"{address}#step-{cited.step}" in run.all("href")
    trace = Tree(served.ask(address)[1])
    assert f"step-{cited.step}" in trace.all("id")
    assert "/runs/waits#r-1-1" in trace.all("href")
    assert "r-1-1" in run.all("id")


def test_a_trajectory_shows_what_was_sent_whole(served: Served, made: Path) -> None:
    id = Run(made / "runs" / "waits").revisions()[0].edits[0].evidence[0].experience
    text = Tree(served.ask(f"/runs/waits/attempts/{id}")[1]).text
    assert " ".join(map(str, range(1, 901))) in text
    said = Tree(served.ask(f"/runs/waits/attempts/{id}/messages")[1]).text
    agent = Run(made / "runs" / "waits").seed()
    assert agent is not None
    system = agent.render("system", task={"prompt": "x"}, native=False, before={})
    assert " ".join(system.split())[:120] in said
    assert said.index("system") < said.index("user") < said.index("assistant")


def test_a_bench_is_a_matrix_and_a_training_a_curve(served: Served) -> None:
    bench = Tree(served.ask("/runs/bench")[1])
    assert bench.text.count("words:train:") == 12
    assert "12 tasks, 12 attempts" in bench.text
    tune = served.ask("/runs/tune")[1]
    assert tune.count("<polyline") == 2
    assert "Over 20 training steps" in tune


def test_attempts_are_filtered_sorted_and_paged(served: Served) -> None:
    failed = Tree(
        served.ask("/runs/waits/attempts?outcome=failed&split=validation&q=validation:1")[1]
    ).text
    assert "passed words" not in failed
    assert "words:train" not in failed
    assert "No attempt is like that." in served.ask("/runs/waits/attempts?q=zebra")[1]
    assert served.ask("/runs/waits/attempts?page=99999999999")[0] == 200
    assert served.ask("/runs/waits/attempts?page=-1&sort=nothing")[0] == 200


def test_words_are_found_in_all_runs_and_marked(served: Served) -> None:
    text = served.ask("/search?" + urlencode({"q": "notes", "grain": "step"}))[1]
    assert "<mark>notes</mark>" in text
    assert "/experiences/" in text
    lesson = served.ask("/search?" + urlencode({"q": "broken", "grain": "lesson"}))[1]
    assert "/lessons/words/patterns/read-first" in lesson
    wrong = served.ask("/search?" + urlencode({"q": "notes", "grain": "nonsense"}))[1]
    assert "there is no grain" in wrong
    assert "2 attempts" not in served.ask("/search?task=none")[1]


def test_a_lesson_has_its_standing_what_speaks_for_it_and_a_broken_one_its_fault(
    served: Served,
) -> None:
    rows = Tree(served.ask("/lessons")[1]).text
    assert "4 re-runs with and without it: +0.50" in rows
    assert "its header has no closing" in rows
    text = Tree(served.ask("/lessons/words/patterns/read-first")[1]).text
    assert "active" in text
    assert "80 % bounds" in text


# --- who may ask ---


def test_without_the_token_nothing_is_shown(served: Served) -> None:
    for path in ("/", "/runs/waits", "/events", "/static/x/page.css", "/nothing"):
        status, text, _ = served.ask(path, Cookie=None)
        assert (status, "workspace" in text) == (403, False), path
        assert "recreate view" in text
    assert served.ask("/", Cookie="recreate-view=guess")[0] == 403
    assert served.ask("/?t=guess", Cookie=None)[0] == 403
    assert served.ask("/?t=%ff", Cookie=None)[0] == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(served: Served) -> None:
    status, _, headers = served.ask(
        f"/runs/waits?told=x&t={served.token}", Cookie=None, Accept="text/html"
    )
    assert (status, headers["Location"]) == (303, "/runs/waits?told=x")
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    away = served.ask(f"//example.com/?t={served.token}", Cookie=None, Accept="text/html")
    assert away[2]["Location"].startswith("//") is False


def test_a_program_that_keeps_no_cookies_is_shown_the_page_of_the_address_that_was_printed(
    served: Served,
) -> None:
    status, text, _ = served.ask(f"/?t={served.token}", Cookie=None)
    assert (status, "workspace" in text, served.token in text) == (200, True, False)


@pytest.mark.parametrize(
    "host", ["example.com", "127.0.0.1.example.com:80", "evil:8712", "", "localhost:x", "[::2]:1"]
)
def test_a_strangers_name_that_points_here_is_refused(served: Served, host: str) -> None:
    assert served.ask("/", Host=host)[0] == 403
    assert served.ask(f"/?t={served.token}", Host=host)[0] == 403


def form(served: Served, address: str = "/review/waits", **fields: str) -> dict[str, str]:
    """The fields of the first form of the review's page, with others put in."""
    text = served.ask(address)[1]
    found = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text))
    return {**found, "decision": "accept", **fields}


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"Origin": "http://example.com"}, {}),
        ({"Origin": None}, {}),
        ({"Origin": "null"}, {}),
        ({"Origin": "http://127.0.0.1:1"}, {}),
        ({"Sec_Fetch_Site": "cross-site"}, {}),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "navigate"}, {}),
        ({"Cookie": None}, {}),
        ({}, {"secret": "guess"}),
        ({}, {"secret": ""}),
    ],
)
def test_a_strangers_page_cannot_decide(
    served: Served, headers: dict[str, Any], fields: dict[str, str]
) -> None:
    before = len(served.decided)
    assert served.ask("/review/waits", "POST", form(served, **fields), **headers)[0] == 403
    assert len(served.decided) == before


def test_the_policy_lets_nothing_in_from_elsewhere(served: Served) -> None:
    for path in ("/", "/runs/waits", "/nope"):
        headers = served.ask(path)[2]
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/runs/..",
        "/runs/%2e%2e/attempts",
        "/runs/waits/attempts/..%2f..%2fseed",
        "/lessons/../../recreate.toml",
        "/lessons/%2e%2e/x",
        "/runs/waits/studies/..",
        "/static/x/html.py",
        "/static/x/..%2fhtml.py",
    ],
)
def test_no_address_leads_out_of_the_workspace(served: Served, path: str) -> None:
    status, text, _ = served.ask(path)
    assert status == 404
    assert "import" not in text


# --- a person's word ---


def test_a_candidate_is_accepted_rejected_and_edited_in_the_browser(served: Served) -> None:
    status, _, headers = served.ask("/review/waits", "POST", form(served))
    assert (status, headers["Location"]) == (303, "/runs/waits?told=it+goes+on")
    served.ask("/review/waits", "POST", form(served, decision="reject", reason=" too long "))
    changed = {"file:memory/how-answers-end.md": "# New\r\n\r\nText.\r\n"}
    served.ask("/review/waits", "POST", form(served, decision="edit", **changed))
    accepted, rejected, edited = (word for _, word in served.decided[-3:])
    assert accepted.decision == "accept"
    assert rejected.reason == "too long"
    assert edited.files is not None
    assert edited.files["memory/how-answers-end.md"] == "# New\n\nText.\n"
    assert "agent.toml" in edited.files


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"decision": "reject"}, "a rejection needs a reason"),
        ({"decision": "reject", "reason": "no good"}, "that cannot be used say another"),
        ({"revision": "0" * 16}, "another candidate waits by now"),
        ({"decision": "x"}, "no decision was given"),
        ({"decision": "reject", "reason": "does not open"}, "this cannot be passed on"),
        ({"decision": "x"} | {f"field-{n}": "" for n in range(6000)}, "no decision was given"),
    ],
)
def test_what_cannot_be_decided_is_said_on_the_page(
    served: Served, fields: dict[str, str], said: str
) -> None:
    status, text, _ = served.ask("/review/waits", "POST", form(served, **fields))
    assert status == 400
    assert said in Tree(text).text


@pytest.mark.slow
def test_a_word_in_the_browser_goes_on_with_the_build_as_recreate_review_does(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recreate.plugins.view.commands import _BEGUN, _decide

    where = tmp_path / "copy"
    shutil.copytree(made, where)
    monkeypatch.chdir(where)
    site = Website(where)
    live, revision, _, child = site.offer("waits")
    with pytest.raises(BadInput, match=r"agent.toml is missing"):
        _decide(live, revision, Review(decision="edit", files={"system.md": "All that is left."}))
    with pytest.raises(BadInput, match="nothing was edited"):
        _decide(live, revision, Review(decision="edit", files=child.files))
    said = _decide(live, revision, Review(decision="reject", reason="it says the same twice"))
    assert f"process {_BEGUN[-1].pid}" in said
    assert _BEGUN.pop().wait(300) == 0
    record = next(site.run("waits").records("review"))
    assert (record["decision"], record["reason"]) == ("reject", "it says the same twice")
    with pytest.raises(BadInput, match="nothing waits"):
        site.offer("waits")


def test_the_second_of_two_tabs_hears_that_nothing_waits_any_more(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "copy"
    shutil.copytree(made, where)
    monkeypatch.chdir(where)
    both = threading.Barrier(2)

    def slowly(live: LiveRun, revision: Revision, word: Review) -> str:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # together, if both are let in
        with Log(live.folder / "journal.jsonl") as journal:
            (offer,) = list(live.records("candidate"))[-1:]
            journal.append(
                {
                    "kind": "review",
                    "offer": offer["offer"],
                    "decision": "accept",
                    "reason": "",
                    "edited": "",
                }
            )
        return "it goes on"

    with serving(where, slowly) as served:
        sent = form(served)
        with ThreadPoolExecutor(2) as tabs:
            asked = [tabs.submit(served.ask, "/review/waits", "POST", sent) for _ in range(2)]
        assert sorted(each.result()[0] for each in asked) == [303, 409]


def test_a_browser_that_returns_only_when_it_is_closed_is_answered(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import urllib.request
    import webbrowser

    from recreate.plugins.view import commands as view

    heard = threading.Event()

    def browse(url: str) -> bool:
        found = re.search(r'href="(.*?)"', Path(urlsplit(url).path).read_text())
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(
            found[1] if found else ""
        ) as page:
            assert b"workspace" in page.read()
        heard.set()
        return True

    @contextmanager
    def until_heard(stop: Callable[[], None]) -> Iterator[None]:
        threading.Thread(target=lambda: (heard.wait(60), stop())).start()
        yield

    monkeypatch.chdir(made)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr(view, "_until_ended", until_heard)
    assert cli(["view", "--port", "0"]) == 0
    assert heard.is_set()


# --- while it happens ---


def events(answer: Any, most: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(kind, id, data) of a stream until `most` records were told."""
    kind = id = ""
    count = 0
    while count < most:
        line = answer.readline().decode().rstrip("\n")
        name, _, value = line.partition(": ")
        if not line and answer.isclosed():  # it ended
            return
        if name == "event":
            kind, id = value, ""
        elif name == "id":
            id = value
        elif name == "data":
            data = json.loads(value)
            count += data.get("count", 0)
            yield kind, id, data


@pytest.fixture
def running(workspace: Path, made: Path) -> Path:
    """A workspace with a run folder that somebody writes to."""
    folder = workspace / "runs" / "live"
    folder.mkdir(parents=True)
    shutil.copy(made / "runs" / "waits" / "settings.toml", folder)
    with Log(folder / "journal.jsonl") as journal:
        journal.append({"kind": "start", "run": "live", "model": "m", "domain": "words"})
    return folder


def reply(n: int) -> dict[str, Any]:
    record = {"text": f"reply {n} {ESCAPE}", "tokens_out": 7}
    asked = {"call": f"live/a/{n}", "role": "agent", "request": f"{n}", "steady": "", "params": ""}
    return {"kind": "reply", **asked, "reply": record}


@pytest.mark.slow
def test_a_run_that_writes_200_events_a_second_is_followed_without_loss(
    running: Path, workspace: Path
) -> None:
    """Also by a browser that was cut off in between, and beside one that went away without a
    word."""

    def write() -> None:
        with Log(running / "journal.jsonl") as journal:
            for n in range(600):
                journal.append(reply(n))
                time.sleep(0.005)

    with serving(workspace) as served:
        gone, _ = served.stream("/events?run=live")
        link, answer = served.stream("/events?run=live&at=0")
        writer = threading.Thread(target=write)
        writer.start()
        lines = list[str]()
        last = ""
        for _, last, data in events(answer, 200):  # noqa: B007 - the last one is used
            lines += data["lines"]
        gone.close()
        link.close()
        link, answer = served.stream("/events?run=live&at=0", **{"Last-Event-ID": last})
        for _, _, data in events(answer, 601 - len(lines)):
            lines += data["lines"]
        writer.join()
        link.close()
        assert lines == [
            "start: run live, model m, domain words",
            *(f"agent replied (7 tokens): reply {n} {ESCAPE}" for n in range(600)),
        ]


def test_what_a_run_appended_is_on_its_page(running: Path, workspace: Path) -> None:
    with (
        serving(workspace) as served,
        Log(running / "journal.jsonl") as journal,
        Log(running / "ledger.jsonl") as ledger,
    ):
        assert "no attempt has ended" in served.ask("/runs/live")[1]
        usage = {"calls": 1, "tokens_in": 900, "tokens_out": 34, "usd": 0.5}
        ledger.append({"kind": "attempt", "session": 1, "seconds": 1.0, "attempt": "a"})
        call = {"session": 1, "seconds": 2.0, "call": "live/a/0"}
        ledger.append({"kind": "reserve", **call, "tokens": 2000, "usd": 1.0})
        ledger.append({"kind": "settle", **call, "role": "agent", "phase": "train", "usage": usage})
        (running / "attempts" / "a").mkdir(parents=True)
        with Log(running / "attempts" / "a" / "steps.jsonl") as steps:
            steps.append({"step": 0, "observation": "the task", "reply": "I look", "action": "ls"})
        text = Tree(served.ask("/runs/live")[1]).text
        assert "1 calls, 934 tokens, $0.5000" in text
        page = Tree(served.ask("/runs/live/attempts/a")[1]).text
        assert "… running" in page
        assert "I look" in page
        record = {
            "attempt": "a",
            "task": "t",
            "split": "train",
            "repeat": 0,
            "scaffold": "s",
            "score": 1.0,
        }
        journal.append({"kind": "experience", **record, "passed": True, "ending": "submitted"})
        assert "1 train passed" in Tree(served.ask("/runs/live")[1]).text


@pytest.mark.slow
def test_a_browser_that_never_reads_is_waited_for_and_the_others_are_served(
    running: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, read = [0], server._lines

    def counted(log: Log, at: int) -> tuple[dict[str, Any], int]:
        told[0] += 1
        return read(log, at)

    monkeypatch.setattr(server, "_lines", counted)
    batches = 150  # of 500 lines with 300 characters: 23 MB, which no buffer of a kernel holds
    line = seal({"kind": "note", "text": "x" * 400})
    with (running / "journal.jsonl").open("ab") as journal:
        journal.write(line * (batches * server.BATCH))
    with serving(workspace) as served:
        link, answer = served.stream("/events?run=live&at=0")
        before = -1
        while told[0] > before:
            before = told[0]
            time.sleep(2)
        assert 0 < told[0] < batches
        assert served.ask("/runs/live")[0] == 200
        answer.read(1_000_000)
        link.close()


@pytest.mark.slow
def test_two_hundred_pages_are_open_and_each_hears_of_what_is_new(
    running: Path, workspace: Path
) -> None:
    with serving(workspace) as served:
        assert served.ask("/runs/live")[0] == 200
        open_ = [
            served.stream(f"/events?run=live&at={(running / 'journal.jsonl').stat().st_size}")
            for _ in range(150)
        ]
        lists = [served.stream("/events") for _ in range(50)]
        with Log(running / "journal.jsonl") as journal:
            journal.append({"kind": "note", "text": "heard by all"})
        for _, answer in open_:
            ((kind, _, data),) = events(answer, 1)
            assert (kind, data["count"]) == ("journal", 1)
        assert served.ask("/")[0] == 200
        for link, _ in [*open_, *lists]:
            link.close()
        assert served.ask("/runs/live")[0] == 200


def test_a_run_that_is_moved_while_it_is_shown_is_said_to_be_gone(
    running: Path, workspace: Path
) -> None:
    with serving(workspace) as served:
        assert served.ask("/runs/live")[0] == 200
        link, answer = served.stream("/events?run=live")
        time.sleep(0.3)
        running.rename(workspace / "elsewhere")
        found = next(e for e in events(answer, 1 << 30) if e[0] == "gone")
        assert "moved or deleted" in found[2]["text"]
        link.close()
        status, text, _ = served.ask("/runs/live")
        assert status == 404
        assert "moved or deleted" in text
        assert "live" not in Tree(served.ask("/")[1]).text
        shutil.rmtree(workspace / "runs")
        assert "There is no run here yet" in served.ask("/")[1]


def test_a_journal_that_was_cut_or_replaced_is_read_anew(running: Path) -> None:
    live = LiveRun(running)
    live.refresh()
    with Log(running / "journal.jsonl") as journal:
        journal.append({"kind": "note", "text": "one"})
    live.refresh()
    assert [r["text"] for r in live.records("note")] == ["one"]
    (running / "journal.jsonl").unlink()
    with Log(running / "journal.jsonl") as journal:
        journal.append({"kind": "note", "text": "another, longer than what was there before " * 9})
    live.refresh()
    assert [r["text"][:7] for r in live.records("note")] == ["another"]
    assert not list(live.records("start"))


def test_another_run_under_the_same_name_is_shown_with_its_own_settings(
    running: Path, workspace: Path
) -> None:
    site = Website(workspace)
    assert "words" in site.page("/runs/live").text
    settings = (running / "settings.toml").read_text()
    shutil.rmtree(running)
    running.mkdir()
    (running / "settings.toml").write_text(settings.replace("tests.words:Words", "tests.toy:Toy"))
    with Log(running / "journal.jsonl") as journal:
        journal.append({"kind": "start", "run": "another", "model": "m", "domain": "toy"})
    assert site.run("live").settings.domain == "tests.toy:Toy"


@pytest.mark.parametrize("attempt", ["..%2f..%2fsecret", "%00"])
def test_of_what_is_no_attempt_nothing_is_followed(served: Served, attempt: str) -> None:
    link, answer = served.stream(f"/events?run=waits&attempt={attempt}")
    assert [kind for kind, _, _ in events(answer, 1)] == ["gone"]
    link.close()


def test_a_workspace_that_was_moved_is_said_and_does_not_come_back(
    running: Path, workspace: Path
) -> None:
    site = Website(workspace)
    assert site.page("/").status == 200
    site.read_ahead().join()
    moved = workspace.with_name("moved")
    workspace.rename(moved)
    try:
        for address in ("/", "/search"):
            shown = site.page(address, {"q": "word"})
            assert shown.status == 404
            assert "was moved or deleted" in shown.text
        assert not workspace.exists()
    finally:
        moved.rename(workspace)


def test_a_followed_run_tells_what_a_run_read_whole_tells(made: Path) -> None:
    for name in ("waits", "bench"):
        live, whole = LiveRun(made / "runs" / name), Run(made / "runs" / name)
        live.refresh()
        for kind in ("experience", "revision", "candidate", "start"):
            plain = [
                {k: v for k, v in r.items() if k not in ("schema", "sum")}
                for r in whole.records(kind)
            ]
            assert [{k: v for k, v in r.items() if k != "sum"} for r in live.records(kind)] == plain
        assert live.spend().record() == whole.spend().record()
        assert sum(u.calls for u in live.usage.values()) == whole.spend().total.calls
        assert live.status() == whole.status()


def test_a_run_of_a_newer_recreate_and_a_damaged_one_are_said_on_their_pages(
    running: Path, workspace: Path
) -> None:
    text = (running / "journal.jsonl").read_text()
    newer = running.with_name("newer")
    shutil.copytree(running, newer)
    from recreate.storage.log import seal

    (newer / "journal.jsonl").write_bytes(
        text.encode() + seal('{"kind":"start","run":"x","schema":99}')
    )
    damaged = running.with_name("damaged")
    shutil.copytree(running, damaged)
    (damaged / "settings.toml").write_text("= nothing")
    with serving(workspace) as served:
        rows = Tree(served.ask("/")[1]).text
        assert "schema 99" in rows
        assert "cannot be read" in rows
        for name in ("newer", "damaged"):
            status, page, _ = served.ask(f"/runs/{name}")
            assert status == 409
            assert "traceback" not in page.lower()
        assert served.ask("/runs/live")[0] == 200


def test_a_file_that_goes_away_while_a_page_is_made_is_said(
    running: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Website(workspace)

    def gone(self: Run) -> Any:
        raise FileNotFoundError(2, "No such file", "study.json")

    monkeypatch.setattr(Run, "studies", gone)
    shown = site.page("/runs/live")
    assert shown.status == 404
    assert "it changed while it was read" in shown.text


def test_ten_thousand_attempts_are_paged(running: Path, workspace: Path) -> None:
    record = {
        "split": "train",
        "repeat": 0,
        "scaffold": "s",
        "ending": "submitted",
        "kind": "experience",
    }
    rows = [
        {**record, "attempt": f"a{n}", "task": f"t{n}", "score": n % 2, "passed": bool(n % 2)}
        for n in range(10_000)
    ]
    with Log(running / "journal.jsonl") as journal:
        journal.append(*rows)
    site = Website(workspace)
    shown = site.page("/runs/live/attempts", {"page": "100"})
    assert "10,000 attempts" in shown.text
    assert shown.text.count('<tr class="row">') == 100
    assert ">t0</a>" in shown.text
    assert len(site.page("/runs/live").text) < 1_000_000
    assert site.page("/runs/live/attempts", {"q": "t9999"}).text.count('<tr class="row">') == 1


# --- the command, and files ---


def test_a_port_in_use_is_said(
    served: Served, made: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(made)
    port = served.place.rpartition(":")[2]
    assert cli(["view", "--no-browser", "--port", port, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "port-in-use"


@pytest.mark.slow
def test_exported_pages_link_to_each_other_and_ask_for_nothing(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(made)
    target = tmp_path / "pages"
    assert cli(["view", "--export", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pages"] == len(list(target.rglob("*.html"))) > 50
    for file in target.rglob("*.html"):
        tree = Tree(file.read_text("utf-8"))
        for link in tree.all("href") + tree.all("src"):
            path = link.partition("#")[0]
            assert not re.match(r"\w+:(?!,)|/", path) or path == "data:,", (file, link)
            if path and path != "data:,":
                assert (file.parent / path).resolve().is_file(), (file, link)
        assert "<form" not in file.read_text("utf-8")
        (policy,) = (
            a["content"] or ""
            for tag, a in tree.tags
            if a.get("http-equiv") == "Content-Security-Policy"
        )
        assert "unsafe" not in policy
    assert cli(["view", "--export", str(target)]) == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    assert cli(["view", "--export", str(tmp_path / "mine")]) == 2


NAME = "a run, 50% #1 & more?"


def test_a_run_with_any_name_is_exported(running: Path, workspace: Path) -> None:
    running.rename(running.with_name(NAME))
    target = workspace.parent / "pages"
    server.export(workspace, target)
    link, *_ = (
        link
        for link in Tree((target / "index.html").read_text("utf-8")).all("href")
        if "50%25" in link
    )
    assert "Not here" not in (target / unquote(link)).read_text("utf-8")


def test_a_run_with_any_name_is_decided(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    (tmp_path / "copy" / "runs" / "waits").rename(tmp_path / "copy" / "runs" / NAME)
    with serving(tmp_path / "copy") as served:
        address = f"/review/{quote(NAME)}"
        status, text, _ = served.ask(address, "POST", form(served, address, decision="x"))
        assert (status, "no decision was given" in text) == (400, True)
        assert served.ask(address, "POST", form(served, address))[0] == 303


def test_an_export_that_was_stopped_can_be_made_again(
    running: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = workspace.parent / "pages"
    with monkeypatch.context() as patch:
        patch.setattr(Website, "_run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            server.export(workspace, target)
    assert (target / "index.html").is_file()
    assert server.export(workspace, target) > 3


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


def opened(
    browser: chromium.Chromium, served: Served, path: str, **options: Any
) -> chromium.Chromium:
    browser.open(served.url)
    browser.open(f"http://{served.place}{path}", **options)
    return browser


@pytest.mark.slow
@needs_chromium
def test_clicks_lead_from_the_list_to_a_step_and_back(
    served: Served, browser: chromium.Chromium
) -> None:
    tab = opened(browser, served, "/")
    assert "t=" not in tab.js("location.href")
    tab.click("#row-waits a")
    tab.until("document.querySelector('.edit a.cite') && document.readyState === 'complete'")
    tab.click(".edit a.cite")
    tab.until("location.pathname.includes('/attempts/') && document.readyState === 'complete'")
    tab.until("document.activeElement?.id.startsWith('step-')")
    tab.click("li.cited a.back")
    tab.until("location.hash.startsWith('#r-') && document.activeElement?.id.startsWith('r-')")
    assert list(tab.complaints) == []


@pytest.mark.slow
@needs_chromium
def test_keys_go_through_rows_open_and_search(served: Served, browser: chromium.Chromium) -> None:
    tab = opened(browser, served, "/")
    tab.key("j")
    first = tab.js("document.activeElement.textContent")
    tab.key("j")
    assert tab.js("document.activeElement.textContent") != first
    tab.key("k")
    assert tab.js("document.activeElement.textContent") == first
    tab.key("?")
    assert tab.js("document.getElementById('keys').open")
    tab.js("document.querySelector('#keys button').click()")
    tab.key("/")
    assert tab.js("document.activeElement.name") == "q"


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_page_overflows_complains_or_is_hard_to_read(
    served: Served, browser: chromium.Chromium, made: Path, width: int, dark: bool
) -> None:
    id = Run(made / "runs" / "waits").revisions()[0].edits[0].evidence[0].experience
    other = next(p.name for p in (made / "runs" / "waits" / "attempts").iterdir() if p.name != id)
    paths = (
        "/",
        "/runs/waits",
        "/runs/bench",
        "/runs/tune",
        "/runs/waits/attempts",
        f"/runs/waits/attempts/{id}",
        f"/runs/waits/attempts/{id}/messages",
        f"/compare/waits/{id}/waits/{other}",
        "/search?q=notes",
        "/lessons",
        "/lessons/words/patterns/read-first",
        "/lessons/words/patterns/held",
        "/review",
        "/review/waits",
        "/runs/nope",
    )
    for path in paths:
        tab = opened(browser, served, path, width=width, dark=dark)
        tab.js("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert tab.js("document.documentElement.scrollWidth") <= width, path
        assert tab.js(CONTRAST) == [], path
        assert tab.js("document.querySelectorAll('main, h1').length") == 2, path
        nameless = ("[...document.querySelectorAll('input:not([type=hidden]), select, textarea, "
                   "button')].filter(e => !(e.labels?.length || e.ariaLabel || "
                   "e.textContent.trim())).length")  # fmt: skip
        assert tab.js(nameless) == 0, path
        assert "broken" not in tab.js("document.title").replace(ESCAPE, "")
        assert [
            u
            for u in tab.requests
            if not u.startswith((f"http://{served.place}/", "about:", "data:"))
        ] == []
        assert [c for c in tab.complaints if "404" not in c or path != "/runs/nope"] == [], path


@pytest.mark.slow
@needs_chromium
def test_a_page_follows_its_run_and_keeps_folds_and_focus(
    running: Path, workspace: Path, browser: chromium.Chromium
) -> None:
    with serving(workspace) as served, Log(running / "journal.jsonl") as journal:
        tab = opened(browser, served, "/runs/live")
        journal.append(*(reply(n) for n in range(300)))
        tab.until("document.getElementById('counted').textContent === '300'")
        assert tab.js("document.querySelectorAll('#event-list li').length") == 200
        assert tab.js("document.querySelector('#event-list img')") is None
        record = {
            "attempt": "a",
            "task": "t",
            "split": "train",
            "repeat": 0,
            "scaffold": "s",
            "score": 1.0,
        }
        journal.append({"kind": "experience", **record, "passed": True, "ending": "submitted"})
        tab.until("document.getElementById('s-status').textContent.includes('1 train passed')")
        tab = opened(browser, served, "/runs/live/attempts")
        journal.append(
            {"kind": "experience", **record, "attempt": "b", "passed": False, "ending": "submitted"}
        )
        tab.until("document.getElementById('attempts').textContent.includes('2 attempts')")
        assert list(tab.complaints) == []
        shutil.rmtree(running)
        tab.until("document.getElementById('alarm').textContent.includes('moved or deleted')")


@pytest.mark.slow
@needs_chromium
def test_an_exported_page_opens_from_the_disk(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: chromium.Chromium
) -> None:
    monkeypatch.chdir(made)
    server.export(made, tmp_path / "pages")
    browser.open((tmp_path / "pages" / "index.html").as_uri())
    assert browser.js("getComputedStyle(document.querySelector('.brand')).fontFamily").startswith(
        '"Iowan'
    )
    browser.click("#row-waits a")
    browser.until("document.querySelector('.edit a.cite') && document.readyState === 'complete'")
    browser.click(".edit a.cite")
    browser.until("location.pathname.includes('/attempts/')")
    browser.until("document.querySelector('.step:target') !== null")
    assert list(browser.complaints) == []
