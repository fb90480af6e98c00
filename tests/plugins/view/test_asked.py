"""Who may ask the viewer's server, what is told of a journal, and what lists show: without a server
or a run."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from recreate.api.errors import BadInput, Fault, RecreateError
from recreate.api.types import Review
from recreate.plugins.view import server, site
from recreate.plugins.view.server import Guard
from recreate.plugins.view.site import Shown
from recreate.storage.log import Log, seal
from recreate.viewer import facts
from recreate.viewer.html import sizes
from tests.pages import ROOT
from tests.plugins.view.test_site import BENCH, write
from tests.plugins.view.test_view import serving
from tests.viewer.test_html import Tree

TOKEN = "secret"
AT = "127.0.0.1:8712"


def wrong(
    method: str = "GET",
    query: str = "",
    cookie: str = f"recreate-view-8712={TOKEN}",
    **headers: str,
) -> str:
    sent = {"host": AT, "cookie": cookie, **{k.replace("_", "-"): v for k, v in headers.items()}}
    raw = [(k.encode(), v.encode()) for k, v in sent.items()]
    scope: dict[str, Any] = {"type": "http", "method": method, "path": "/", "headers": raw}
    host, _, port = sent["host"].rpartition(":")
    where = (host, int(port)) if port.isdecimal() else None
    return Guard(None, TOKEN).wrong(
        Request({**scope, "query_string": query.encode(), "server": where})
    )


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
    assert wrong(host="[::1]:8712") == ""
    for host in ("localhost", "127.0.0.1", "[::1]"):  # a browser leaves 80 out
        assert wrong(host=host, cookie=f"recreate-view-80={TOKEN}") == ""


@pytest.mark.parametrize(
    "host", ["evil.example:8712", "127.0.0.1.evil:80", "127.0.0.1:x", "", "[::2]"]
)
def test_under_another_name_nobody_is_answered(host: str) -> None:
    assert "127.0.0.1 and localhost only" in wrong(host=host, query=f"t={TOKEN}")


@pytest.mark.parametrize("where", ["cross-site", "same-site"])
def test_what_another_page_asks_for_is_refused(where: str) -> None:
    assert "another page" in wrong(sec_fetch_site=where, sec_fetch_mode="cors")
    assert "another page" in wrong(sec_fetch_site=where)


@pytest.mark.parametrize(
    "cookie", ["", "recreate-view-8712=", "recreate-view-8712=other", f"recreate-view-1={TOKEN}"]
)
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
    first = client.get("/runs/a b", params={"t": TOKEN, "q": "x"}, headers={"accept": "text/html"})
    assert (first.status_code, first.headers["location"]) == (303, "/runs/a%20b?q=x")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/").status_code == 200
    assert client.get("/nowhere").status_code == 404
    assert client.get("/static/x/none.css").status_code == 404
    for name, kind in (("view.js", "text/javascript"), ("page.css", "text/css")):
        file = client.get(f"/static/x/{name}")
        assert (file.status_code, file.headers["content-type"].partition(";")[0]) == (200, kind)
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


@pytest.fixture
def decides(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, list[dict[str, str]]]]:
    """Posts a form that the server's page sent: (status, text, the forms that came through). said:
    what comes of it."""
    client.get("/", params={"t": TOKEN})
    monkeypatch.setattr(
        site.Website, "page", lambda self, at, query=None, told="": Shown(f"{at}: {told}")
    )
    form = {
        "secret": hmac.new(TOKEN.encode(), b"form", "sha256").hexdigest(),
        "revision": "",
        "reason": "too",
    }

    def post(said: Any = "", **fields: str) -> tuple[int, str, list[dict[str, str]]]:
        forms: list[dict[str, str]] = []
        monkeypatch.setattr(
            server, "_decided", lambda _, name, form, decide: forms.append(form) or said
        )
        answer = client.post(
            "/review/run", headers={"origin": f"http://{AT}"}, data={**form, **fields}
        )
        return answer.status_code, answer.text, forms

    return post


def test_what_cannot_be_decided_is_said_on_its_page(
    decides: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, text, (form,) = decides(BadInput("not so", fix="but so"))
    assert (status, text) == (400, "/review/run: not so but so")
    # what is empty is there too: a file that was emptied
    assert (form["revision"], form["reason"]) == ("", "too")
    monkeypatch.setattr(site.Website, "page", lambda *_: Shown("gone", 404))
    assert decides(BadInput("not so"))[:2] == (404, "gone")


def test_a_form_that_is_too_long_is_said_to_be(
    decides: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = len("secret=&revision=&reason=too") + 64
    monkeypatch.setattr(server, "LARGEST", fits)
    assert decides()[0] == 303
    monkeypatch.setattr(server, "LARGEST", fits - 1)
    status, text, forms = decides()
    assert (status, forms) == (200, [])
    assert "too long" in text


def test_a_port_in_use_is_said_and_without_a_wish_another_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert f"default {server.PORT}," in (ROOT / "recreate/plugins/view/README.md").read_text()
    with server.listening(0) as taken:
        host, port = taken.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(
            BadInput, match=f"port {port} cannot be used: Address already in use"
        ) as e:
            server.listening(port)
        assert e.value.code == "port-in-use"
        monkeypatch.setattr(server, "PORT", port)
        with server.listening(None) as other:
            assert other.getsockname()[1] != port
    with server.listening(None) as found:
        assert found.getsockname()[1] == port


def test_a_server_tells_the_address_that_it_answers_at(tmp_path: Path) -> None:
    (tmp_path / "recreate.toml").write_text("")
    with serving(tmp_path) as served:
        assert served.url == f"http://{served.place}/?t={served.token}"
        assert served.ask("/")[0] == 200


# --- what is decided


def decided(
    form: Mapping[str, str], decide: bool = True
) -> tuple[Review | None, str | RecreateError]:
    """(what was passed on, what is said), of a candidate `new` with the files a and b, the latter
    empty."""
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
    form = {
        "file:a": "one\r\ntwo\r\n",
        "file:b": "",
        "file:c": "new\r\nline",
        "file:x": "y",
        "c": "no",
    }
    word, _ = decided({"decision": "edit", **form})
    assert word is not None
    # as sent back is unchanged; x is no file
    assert word.files == {"a": "one\r\ntwo\n", "b": "", "c": "new\nline"}
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


@pytest.mark.parametrize(
    "error", [OSError("Argument list too long"), ValueError("embedded null byte"), Fault("down")]
)
def test_what_cannot_be_passed_on_is_said(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offer(name: str) -> Any:
        raise error

    said = server._decided(SimpleNamespace(offer=offer), "run", {}, None)  # type: ignore[arg-type]
    assert isinstance(said, RecreateError)
    assert str(error) in said.message


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
    assert (first["count"], at, first["changes"]) == (
        server.BATCH,
        sum(map(len, lines[: server.BATCH])),
        True,
    )
    rest, end = server._lines(log, at)
    assert (rest["count"], end) == (3, log.path.stat().st_size)
    assert first["lines"] + rest["lines"] == [f"note: text n{n}" for n in range(server.BATCH + 3)]
    assert server._lines(log, end) == ({"count": 0, "lines": [], "changes": False}, end)


def test_replies_alone_change_no_page_and_what_is_damaged_is_passed_over(tmp_path: Path) -> None:
    reply = {
        "kind": "reply",
        "call": "r/a/0",
        "role": "agent",
        **dict.fromkeys(("request", "steady", "params"), "c"),
        "reply": {"text": "a\n b", "tokens_out": 7},
    }
    log = Log(tmp_path / "journal.jsonl")
    log.path.write_bytes(seal(reply) + b"torn\n" + seal(reply))
    told, at = server._lines(log, 0)
    assert (told["count"], told["changes"], at) == (3, False, log.path.stat().st_size)
    assert told["lines"] == ["agent replied (7 tokens): a b"] * 2


@pytest.mark.parametrize(
    ("text", "at"),
    [("12", 12), ("", 0), ("-1", 0), ("1e3", 0), ("9" * 15, 10**15 - 1), ("9" * 16, 0)],
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
            {
                "kind": "revision",
                "revision": {"id": "0123456789", "kept": True, "verdict": {"verdict": "better"}},
            },
            "revision 01234567 kept: better",
        ),
        ({"kind": "proposal", "round": 0, "edits": [1, 2]}, "round 1: 2 edits are proposed"),
        ({"kind": "nothing", "round": 1, "reason": "none"}, "round 2: nothing to judge: none"),
        ({"kind": "memory", "round": 2, "changes": [1]}, "round 3: memory changed 1 lessons"),
        ({"kind": "end", "status": "done"}, "ended: done"),
        (
            {"kind": "other", "a": 1, "b": [2], "schema": 1, "sum": "x", "c": "d" * 61},
            "other: a 1, c " + "d" * 60,
        ),
        ({"kind": "reply", "reply": {"text": "a " * 99}}, "agent replied (0 tokens): " + "a " * 60),
        (
            {"kind": "candidate", "revision": {"id": "0123456789"}},
            "a candidate waits for a person: 01234567",
        ),
        (
            {"kind": "review", "decision": "reject", "reason": "worse"},
            "a person decided: reject worse",
        ),
        (
            {"kind": "update", "step": 3, "reward": 0.5, "kl": 0.1},
            "training step 3: reward 0.5, kl 0.1",
        ),
    ],
)
def test_a_record_is_told_in_a_line(record: dict[str, Any], line: str) -> None:
    assert server._tell_record(record) == line


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
    assert server._file("sizes-3-4.css") == sizes(3, 4)


# --- what is followed


Told = Callable[..., list[tuple[str, str, str]]]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """What is told of a workspace with the run `a`, whose journal has one note, to a browser that
    asks so: (kind, id, data) of each event. between: what is done between two looks, of which there
    is one more."""
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "settings.toml").write_text("")
    note(tmp_path, "n1")
    monkeypatch.setattr(server, "TICK", 0.25)

    def told(
        query: Mapping[str, str], *between: Callable[[], Any], last: str = ""
    ) -> list[tuple[str, str, str]]:
        left = [*between, nothing]
        where = site.Website(tmp_path)

        async def wait(seconds: float) -> None:
            assert seconds == (0.25 if query else 0.75)
            left.pop(0)()

        async def follow() -> list[bytes]:
            return [
                part
                async for part in server._events(
                    where, query, last, lambda: not left, lambda: server._overview(where)
                )
            ]

        monkeypatch.setattr(server.asyncio, "sleep", wait)
        first, *parts = [part.decode() for part in asyncio.run(follow())]
        assert first.startswith("retry: ")
        rows = [dict(line.split(": ", 1) for line in part.strip().split("\n")) for part in parts]
        return [
            (row.get("event", row.get("", "")), row.get("id", ""), row.get("data", ""))
            for row in rows
        ]

    return told


def nothing() -> None:
    pass


def note(where: Path, *texts: str) -> int:
    """Appends notes to the run's journal; the byte behind them."""
    with Log(where / "runs" / "a" / "journal.jsonl") as log:
        log.append(*({"kind": "note", "text": text} for text in texts))
    return log.path.stat().st_size


def words(events: list[tuple[str, str, str]]) -> list[str]:
    return [
        text.removeprefix("note: text ")
        for kind, _, data in events
        if kind == "journal"
        for text in json.loads(data)["lines"]
    ]


def test_a_run_is_followed_from_where_the_browser_stands(told: Told, tmp_path: Path) -> None:
    begun = (tmp_path / "runs" / "a" / "journal.jsonl").stat().st_size
    ((kind, at, data),) = told({"run": "a"}, lambda: note(tmp_path, "n2"), nothing)
    assert (kind, int(at)) == (
        "journal",
        (tmp_path / "runs" / "a" / "journal.jsonl").stat().st_size,
    )
    assert json.loads(data) == {"count": 1, "lines": ["note: text n2"], "changes": True}
    assert words(told({"run": "a", "at": "0"}, nothing)) == ["n1", "n2"]
    assert words(told({"run": "a", "at": "0"}, last=str(begun))) == ["n2"]
    assert told({"run": "a", "at": at}, nothing) == []


def test_a_journal_that_begins_later_is_followed_from_its_beginning(
    told: Told, tmp_path: Path
) -> None:
    (tmp_path / "runs" / "a" / "journal.jsonl").unlink()
    assert words(told({"run": "a"}, lambda: note(tmp_path, "n1", "n2"))) == ["n1", "n2"]


def test_a_journal_that_was_replaced_is_told_anew_and_a_long_one_in_pieces(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BATCH", 2)
    note(tmp_path, "n2", "n3", "n4")
    pieces = told({"run": "a", "at": "0"})
    assert [json.loads(data)["count"] for _, _, data in pieces] == [2, 2]
    assert words(told({"run": "a", "at": "0"}, last=pieces[0][1])) == ["n3", "n4"]
    again = told({"run": "a", "at": "99999"}, nothing)
    assert words(again) == ["n1", "n2", "n3", "n4"]
    assert [kind for kind, *_ in again].count("changed") == 1


def test_a_line_that_is_still_being_written_is_told_when_it_is_whole(
    told: Told, tmp_path: Path
) -> None:
    whole = seal({"kind": "note", "text": "n2"})
    file = tmp_path / "runs" / "a" / "journal.jsonl"

    def write(part: bytes) -> None:
        with file.open("ab") as out:
            out.write(part)

    assert words(
        told({"run": "a"}, lambda: write(whole[:9]), lambda: write(whole[9:]), nothing)
    ) == ["n2"]


def test_what_is_gone_or_broken_is_said_once_and_the_stream_ends(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise Fault("it broke", fix="mend it")

    assert [(kind, "b is not there" in data) for kind, _, data in told({"run": "b"}, nothing)] == [
        ("gone", True)
    ]
    assert [kind for kind, *_ in told({"run": "a", "attempt": "../a"}, nothing)] == ["gone"]
    with monkeypatch.context() as patch:
        patch.setattr(server, "_lines", broken)
        assert told({"run": "a", "at": "0"}, nothing) == [
            ("gone", "", '{"text": "it broke. mend it"}')
        ]
    moved = told({"run": "a"}, (tmp_path / "runs" / "a" / "settings.toml").unlink, nothing)
    assert [kind for kind, *_ in moved] == ["gone"]


def test_of_an_attempt_it_is_told_that_a_step_or_its_end_was_written(
    told: Told, tmp_path: Path
) -> None:
    folder = tmp_path / "runs" / "a" / "attempts" / "x1"
    folder.mkdir(parents=True)
    written = [
        lambda name=name: (folder / name).write_text("x")
        for name in ("steps.jsonl", "experience.json")
    ]
    asked = {"run": "a", "attempt": "x1"}
    assert (
        told(asked, nothing, written[0], nothing, written[1], nothing)
        == [("changed", "", "{}")] * 2
    )


def test_of_all_runs_it_is_told_that_one_changed(told: Told, tmp_path: Path) -> None:
    ledger = tmp_path / "runs" / "a" / "ledger.jsonl"
    changes = (lambda: note(tmp_path, "n2"), lambda: ledger.write_text("x"))
    assert (
        told({}, nothing, changes[0], nothing, changes[1], nothing) == [("changed", "", "{}")] * 2
    )


def test_what_the_list_of_runs_shows_changes_with_what_was_read_and_what_could_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "settings.toml").write_text("= no toml")
    where = site.Website(tmp_path)
    looks = [server._overview(where)]
    where.read_all()
    looks.append(server._overview(where))
    where.indexing = 0, 0
    looks.append(server._overview(where))
    (tmp_path / "runs" / "a" / "settings.toml").write_text("")
    where.read_all()
    looks.append(server._overview(where))
    assert len(set(looks)) == 4
    assert [look[-1] for look in looks] == [True, False, True, True]


def test_a_silent_stream_says_now_and_then_that_it_is_there(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "QUIET", 0.5)
    here = ("still here", "", "")
    assert told({"run": "a"}, nothing, nothing, nothing) == [here, here]
    for query in ({"run": "a"}, {}):  # what was told says so too
        after = told(query, lambda: note(tmp_path, "n"), nothing, nothing)
        assert [kind for kind, *_ in after] == ["journal" if query else "changed", "still here"]
        assert told(query) == []


# --- exported


def test_an_export_is_files_that_link_to_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "runs" / "a bench", BENCH)
    monkeypatch.setattr(site, "ROWS", 5)
    target = tmp_path / "pages"
    count = server.export(tmp_path, target)
    files = {file.relative_to(target).as_posix(): file for file in target.rglob("*.html")}
    assert len(files) == count
    assert {
        "index.html",
        "runs/a bench.html",
        "runs/a bench/attempts.html",
        "runs/a bench/attempts-page-2.html",
        "lessons.html",
        "review.html",
    } <= set(files)
    assert "search.html" not in files
    assert "runs/a bench/attempts-page-1.html" not in files
    for name, file in files.items():
        text = file.read_text("utf-8")
        tree = Tree(text)
        for link in tree.all("href") + tree.all("src"):
            path = unquote(link.partition("#")[0])
            assert not path or path == "data:," or (file.parent / path).resolve().is_file(), (
                name,
                link,
            )
        assert "/events" not in text
    for name in server.FILES:
        assert (target / name).read_text("utf-8") == server._file(name)


def test_what_a_run_of_somebody_else_says_leads_no_page_out_of_the_export(tmp_path: Path) -> None:
    out = "../../../../outside"
    records = [{**r, "attempt": out} if r["kind"] == "experience" else r for r in BENCH]
    write(tmp_path / "here" / "runs" / "bench", records)
    target = tmp_path / "here" / "deep" / "pages"
    server.export(tmp_path / "here", target)
    assert {file.relative_to(tmp_path).parts[:3] for file in tmp_path.rglob("*.html")} == {
        ("here", "deep", "pages")
    }


def test_an_export_takes_the_place_of_none_but_another_export(tmp_path: Path) -> None:
    for name in ("empty", "mine", "earlier"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    (tmp_path / "earlier" / "view.js").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("empty", "earlier", "new/below"):
        assert (
            server.export(tmp_path, tmp_path / name)
            == len(list((tmp_path / name).rglob("*.html")))
            > 1
        )
    for name in ("mine", "file"):
        with pytest.raises(BadInput) as e:
            server.export(tmp_path, tmp_path / name)
        assert e.value.code == "not-empty"
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["letter.txt"]


# --- lists


def test_a_list_is_cut_into_pages_whose_addresses_keep_what_was_asked() -> None:
    rows = list(range(site.ROWS * 2 + 1))
    query = {"q": "a b", "split": "", "t": "token", "page": "2"}
    found = site._paged(rows, query, "/x")
    assert (found["rows"], found["count"], found["page"], found["pages"]) == (
        rows[100:200],
        201,
        2,
        3,
    )
    assert (found["earlier"], found["later"]) == ("/x?q=a+b&page=1", "/x?q=a+b&page=3")
    first, last = site._paged(rows, {}, "/x"), site._paged(rows, {"page": "99"}, "/x")
    assert (first["earlier"], first["later"]) == ("", "/x?page=2")
    assert (last["rows"], last["page"], last["later"]) == ([200], 3, "")
    empty = site._paged([], {"page": "0"}, "/x")
    assert (empty["page"], empty["pages"], empty["earlier"], empty["later"]) == (1, 1, "", "")


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3), ("0", 1), ("77", 5), ("-2", 1), ("x", 1), ("9" * 9, 1), ("9" * 8, 5)],
)
def test_a_pages_number_is_one_of_those_there_are(text: str, number: int) -> None:
    assert site._number(text, 1, 5) == number


def test_a_hit_shows_the_words_in_their_surroundings() -> None:
    hit = SimpleNamespace(text="x " * 100 + "Alpha  and\nalphabet and (beta)" + " y" * 300)
    found = site._hit(hit, "alpha (beta)")
    assert [text for text, is_word in found["parts"] if is_word] == ["Alpha", "beta"]
    text = "".join(text for text, _ in found["parts"])
    assert (len(text), found["before"], found["after"]) == (420, True, True)
    assert text.startswith("x " * 60 + "Alpha and alphabet and (beta) y")
    # space at the end is no more text
    whole = site._hit(SimpleNamespace(text="a" * 420 + "  "), "a")
    assert (whole["before"], whole["after"]) == (False, False)
    short = site._hit(SimpleNamespace(text="nothing of it"), "alpha")
    assert short["parts"] == [("nothing of it", False)]
    assert (short["before"], short["after"]) == (False, False)


@pytest.mark.parametrize(
    ("value", "figure"),
    [(1, 1.0), (0.5, 0.5), (True, None), ("1", None), (float("nan"), None), (1e300, None)],
)
def test_only_a_number_that_can_be_drawn_is_a_figure(value: Any, figure: float | None) -> None:
    assert facts.read_figure(value) == figure
