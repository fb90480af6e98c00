"""Who may ask the viewer's server, what is told of a journal, and what lists show: without a server or a run."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from recreate.api.errors import BadInput, RecreateError
from recreate.api.types import Review
from recreate.storage.log import Log, seal
from recreate.viewer import server, site
from recreate.viewer.server import Guard
from tests.viewer.test_view import serving

TOKEN = "secret"
AT = "127.0.0.1:8712"


def wrong(method: str = "GET", query: str = "", cookie: str = f"recreate-view-8712={TOKEN}", **headers: str) -> str:
    sent = {"host": AT, "cookie": cookie, **{k.replace("_", "-"): v for k, v in headers.items()}}
    raw = [(k.encode(), v.encode()) for k, v in sent.items()]
    scope: dict[str, Any] = {"type": "http", "method": method, "path": "/", "headers": raw}
    host, _, port = sent["host"].rpartition(":")
    where = (host, int(port)) if port.isdecimal() else None
    return Guard(None, TOKEN).wrong(Request({**scope, "query_string": query.encode(), "server": where}))


OURS = {"origin": f"http://{AT}", "sec_fetch_site": "same-origin"}


def test_a_page_of_ours_is_answered() -> None:
    assert wrong() == ""
    assert wrong(query=f"t={TOKEN}", cookie="") == ""
    assert wrong("HEAD") == ""
    assert wrong(sec_fetch_site="same-origin") == ""
    assert wrong(sec_fetch_site="cross-site", sec_fetch_mode="navigate") == ""  # a link in a mail
    assert wrong("POST", **OURS) == ""
    assert wrong("POST", origin=f"http://{AT}") == ""  # an old browser tells no site
    assert wrong(host="LOCALHOST:8712") == ""


@pytest.mark.parametrize("host", ["evil.example:8712", "127.0.0.1.evil:80", "127.0.0.1:x", "", "[::2]"])
def test_under_another_name_nobody_is_answered(host: str) -> None:
    assert "127.0.0.1 and localhost only" in wrong(host=host, query=f"t={TOKEN}")


@pytest.mark.parametrize("where", ["cross-site", "same-site"])
def test_what_another_page_asks_for_is_refused(where: str) -> None:
    assert "another page" in wrong(sec_fetch_site=where, sec_fetch_mode="cors")
    assert "another page" in wrong(sec_fetch_site=where)


@pytest.mark.parametrize("cookie", ["", "recreate-view-8712=", "recreate-view-8712=other", f"recreate-view-1={TOKEN}"])
def test_without_the_token_of_this_server_nothing_is_answered(cookie: str) -> None:
    assert "token" in wrong(cookie=cookie)
    assert "token" in wrong(query="t=other")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**OURS, "origin": "http://evil.example"},
        {**OURS, "origin": f"https://{AT}"},
        {**OURS, "sec_fetch_site": "none"},
        {"sec_fetch_site": "same-origin"},
    ],
)
def test_only_a_page_of_this_server_may_change_something(headers: dict[str, str]) -> None:
    assert "only a page of this server" in wrong("POST", **headers)


def test_a_link_with_the_token_changes_nothing() -> None:
    assert "own form" in wrong("POST", f"t={TOKEN}", **OURS)


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """The application over an empty workspace, asked without a token."""
    (tmp_path / "recreate.toml").write_text("")
    app = server.application(site.Website(tmp_path), TOKEN)
    return TestClient(app, base_url=f"http://{AT}", follow_redirects=False)


def test_the_token_becomes_a_cookie_that_pages_are_asked_with(client: TestClient) -> None:
    refused = client.get("/")
    assert (refused.status_code, "token" in refused.text) == (403, True)
    assert refused.headers["cache-control"] == "no-store"
    first = client.get("/runs/a b", params={"t": TOKEN, "q": "x"})
    assert (first.status_code, first.headers["location"]) == (303, "/runs/a%20b?q=x")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/").status_code == 200
    assert client.get("/static/x/none.css").status_code == 404
    assert client.get("/static/x/view.js").headers["content-type"].startswith("text/javascript")
    ours = {"origin": f"http://{AT}"}
    assert client.post("/review/none", headers=ours, data={"secret": "no"}).status_code == 403


def test_what_was_decided_leads_to_the_runs_page_and_what_was_not_says_why(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.get("/", params={"t": TOKEN})
    ours = {"origin": f"http://{AT}"}
    form = {"secret": hmac.new(TOKEN.encode(), b"form", "sha256").hexdigest(), "decision": "accept"}
    assert client.post("/review/none", headers=ours, data=form).status_code == 404
    monkeypatch.setattr(server, "_decided", lambda *_: "it goes on")
    done = client.post("/review/a b", headers=ours, data=form)
    assert (done.status_code, done.headers["location"]) == (303, "/runs/a%20b?told=it+goes+on")


def test_a_server_tells_the_address_that_it_answers_at(tmp_path: Path) -> None:
    (tmp_path / "recreate.toml").write_text("")
    with serving(tmp_path) as served:
        assert served.url == f"http://{served.place}/?t={served.token}"
        assert served.ask("/")[0] == 200


# --- what is decided


def decided(form: Mapping[str, str], decide: bool = True) -> tuple[Review | None, str | RecreateError]:
    """(what was passed on, what is said), of a candidate `new` with the files a and b, the latter empty."""
    taken: list[Review] = []

    def take(live: Any, revision: Any, word: Review) -> str:
        taken.append(word)
        return "begun"

    child = SimpleNamespace(files={"a": "one\r\ntwo\n", "b": "", "c": "old"})
    offer = SimpleNamespace(), SimpleNamespace(id="new"), SimpleNamespace(), child
    where: Any = SimpleNamespace(offer=lambda name: offer)
    said = server._decided(where, "run", {"revision": "new", **form}, take if decide else None)
    return (taken or [None])[0], said


def test_a_decision_is_passed_on_with_what_a_person_changed() -> None:
    assert decided({"decision": "accept"}) == (Review(decision="accept"), "begun")
    word, _ = decided({"decision": "reject", "reason": "  worse "})
    assert word == Review(decision="reject", reason="worse")
    form = {"file:a": "one\r\ntwo\r\n", "file:b": "", "file:c": "new\r\nline", "file:x": "y", "c": "no"}
    word, _ = decided({"decision": "edit", **form})
    assert word is not None
    assert word.files == {"a": "one\r\ntwo\n", "b": "", "c": "new\nline"}  # as sent back is unchanged; x is no file
    word, _ = decided({"decision": "edit", "file:c": ""})
    assert word is not None
    assert word.files == {"a": "one\r\ntwo\n", "b": ""}  # emptied is deleted


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({"decision": "reject", "reason": " "}, "no-reason"),
        ({"decision": "accept", "revision": "old"}, "stale"),
        ({"decision": "maybe"}, "usage"),
        ({}, "usage"),
    ],
)
def test_what_is_no_decision_is_passed_on_to_nobody(form: dict[str, str], code: str) -> None:
    word, said = decided(form)
    assert word is None
    assert isinstance(said, BadInput)
    assert said.code == code


def test_where_it_can_only_be_looked_at_that_is_said() -> None:
    _, said = decided({"decision": "accept"}, decide=False)
    assert isinstance(said, BadInput)
    assert said.code == "read-only"


# --- what is told


def test_a_journal_is_told_in_pieces_without_loss_or_repeat(tmp_path: Path) -> None:
    log = Log(tmp_path / "journal.jsonl")
    lines = [seal({"kind": "note", "text": f"n{n}"}) for n in range(server.BATCH + 3)]
    log.path.write_bytes(b"".join(lines))
    first, at = server._lines(log, 0)
    assert (first["count"], at, first["changes"]) == (server.BATCH, sum(map(len, lines[: server.BATCH])), True)
    rest, end = server._lines(log, at)
    assert (rest["count"], end) == (3, log.path.stat().st_size)
    assert first["lines"] + rest["lines"] == [f"note: text n{n}" for n in range(server.BATCH + 3)]
    assert server._lines(log, end) == ({"count": 0, "lines": [], "changes": False}, end)


def test_replies_alone_change_no_page_and_what_is_damaged_is_passed_over(tmp_path: Path) -> None:
    reply = {
        "kind": "reply",
        "call": "r/a/0",
        "role": "agent",
        "check": "c",
        "reply": {"text": "a\n b", "tokens_out": 7},
    }
    log = Log(tmp_path / "journal.jsonl")
    log.path.write_bytes(seal(reply) + b"torn\n" + seal(reply))
    told, at = server._lines(log, 0)
    assert (told["count"], told["changes"], at) == (3, False, log.path.stat().st_size)
    assert told["lines"] == ["agent replied (7 tokens): a b"] * 2


@pytest.mark.parametrize(
    ("text", "at"), [("12", 12), ("", 0), ("-1", 0), ("1e3", 0), ("9" * 15, 10**15 - 1), ("9" * 16, 0)]
)
def test_where_a_browser_was_cut_off_is_a_number_or_the_beginning(text: str, at: int) -> None:
    assert server._offset(text) == at


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            {"kind": "experience", "split": "train", "task": "t", "ending": "done", "passed": True},
            "train attempt passed: t (done)",
        ),
        ({"kind": "aside", "task": "t", "fault": "down"}, "excluded: t: down"),
        (
            {"kind": "revision", "revision": {"id": "0123456789", "kept": True, "verdict": {"verdict": "better"}}},
            "revision 01234567 kept: better",
        ),
        ({"kind": "proposal", "round": 0, "edits": [1, 2]}, "round 1: 2 edits are proposed"),
        ({"kind": "nothing", "round": 1, "reason": "none"}, "round 2: nothing to judge: none"),
        ({"kind": "memory", "round": 2, "changes": [1]}, "round 3: memory changed 1 lessons"),
        ({"kind": "end", "status": "done"}, "ended: done"),
        ({"kind": "other", "a": 1, "b": [2], "schema": 1, "sum": "x", "c": "d"}, "other: a 1, c d"),
    ],
)  # fmt: skip
def test_a_record_is_told_in_a_line(record: dict[str, Any], line: str) -> None:
    assert server._said(record) == line


def test_a_hundred_open_pages_are_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [100.0], list[int]()
    monkeypatch.setattr(server.time, "monotonic", lambda: now[0])
    shared = server._shared(lambda: (looks.append(1) or len(looks),))
    assert [shared() for _ in range(3)] == [(1,)] * 3
    now[0] += server.TICK + 0.01
    assert shared() == (2,)


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("page.css", True),
        ("view.js", True),
        ("sizes-3-4.css", True),
        ("sizes-3-444444.css", False),
        ("view.html", False),
    ],
)
def test_only_the_files_of_pages_are_served(name: str, there: bool) -> None:
    assert (server._file(name) is not None) == there


# --- lists


def test_a_list_is_cut_into_pages_whose_addresses_keep_what_was_asked() -> None:
    rows = list(range(site.ROWS * 2 + 1))
    query = {"q": "a b", "split": "", "t": "token", "page": "2"}
    found = site._paged(rows, query, "/x")
    assert (found["rows"], found["count"], found["page"], found["pages"]) == (rows[100:200], 201, 2, 3)
    assert (found["earlier"], found["later"]) == ("/x?q=a+b&page=1", "/x?q=a+b&page=3")
    first, last = site._paged(rows, {}, "/x"), site._paged(rows, {"page": "99"}, "/x")
    assert (first["earlier"], first["later"]) == ("", "/x?page=2")
    assert (last["rows"], last["page"], last["later"]) == ([200], 3, "")
    empty = site._paged([], {"page": "0"}, "/x")
    assert (empty["page"], empty["pages"], empty["earlier"], empty["later"]) == (1, 1, "", "")


@pytest.mark.parametrize(
    ("text", "number"), [("3", 3), ("0", 1), ("77", 5), ("-2", 1), ("x", 1), ("9" * 9, 1), ("9" * 8, 5)]
)
def test_a_pages_number_is_one_of_those_there_are(text: str, number: int) -> None:
    assert site._number(text, 1, 5) == number


def test_a_hit_shows_the_words_in_their_surroundings() -> None:
    hit = SimpleNamespace(text="x " * 100 + "Alpha  and\nalphabet and (beta)" + " y" * 300)
    found = site._hit(hit, "alpha (beta)")
    assert [text for text, is_word in found["parts"] if is_word] == ["Alpha", "alpha", "(beta)"]
    whole = "".join(text for text, _ in found["parts"])
    assert (len(whole), found["before"], found["after"]) == (420, True, True)
    assert whole.startswith("x " * 60 + "Alpha and alphabet and (beta) y")
    short = site._hit(SimpleNamespace(text="nothing of it"), "alpha")
    assert short["parts"] == [("nothing of it", False)]
    assert (short["before"], short["after"]) == (False, False)


@pytest.mark.parametrize(
    ("value", "figure"), [(1, 1.0), (0.5, 0.5), (True, None), ("1", None), (float("nan"), None), (1e300, None)]
)
def test_only_a_number_that_can_be_drawn_is_a_figure(value: Any, figure: float | None) -> None:
    assert site._figure(value) == figure
