"""The server of `recreate view`: a Website on loopback, changes as server-sent events, a person's
decisions.

Whoever asks must say one of our names in Host (else a stranger's name that points here, DNS
rebinding, would do), and know the token: from the address that was printed, then from a cookie that
only this server's pages send. What changes something must come from a page of ours besides: Origin,
Sec-Fetch-Site and a secret in the form. Nothing is fetched from elsewhere and no text of a model
can become a script: the policy allows this server's own files alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import re
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from recreate.api.errors import BadInput, RecreateError
from recreate.api.loopback import find_foreign_change, find_stranger
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Review, Revision
from recreate.plugins.view.live import LiveRun
from recreate.plugins.view.site import HERE, Linked, Shown, Website
from recreate.runs.journal import FIELDS
from recreate.storage.log import Log, fits
from recreate.storage.redact import redact
from recreate.viewer.html import environment, read_text, sizes
from recreate.viewer.text import visible

PORT = 8712
"""Where it answers unless something else does."""
TOKEN = "t"
"""What the token is called in an address: one that says `token` would be masked where it is
printed."""
LOOPBACK = "127.0.0.1"
TICK = 0.2
"""Seconds between two looks at the files of what is followed."""
BATCH = 500
"""Records that one event tells at most."""
TOLD = 300
"""Characters of a record, and of what is said above a page."""
QUIET = 15.0
"""Seconds after which a silent stream says that it is there, and so hears that the browser is
gone."""
LARGEST = 4_000_000
"""Bytes of a form."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
FILES = ("page.css", "view.js")
SIZES = "sizes-{}-{}.css"

Decide = Callable[[LiveRun, Revision, Review], str]
"""Passes a person's word on a candidate on; says what was begun. Raises BadInput for what cannot be
used."""


Act = Callable[[Mapping[str, str]], tuple[str, str] | RecreateError]
"""What is done with a form: (the page to go to, what was done), or why nothing was."""

Signals = Callable[[Callable[[], None]], contextlib.AbstractContextManager[None]]


class Guard:
    """Who may ask, and with what. Answers those who may not; an ASGI application around another."""

    def __init__(self, app: Any, token: str) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        answer: Response | None = None
        if wrong := self.wrong(request):
            answer = PlainTextResponse(wrong + "\n", 403)
        elif TOKEN in request.query_params:
            send = self.with_cookie(request, send)
            # a browser: an address may be sent to somebody
            if "text/html" in request.headers.get("accept", ""):
                kept = urlencode(
                    [(k, v) for k, v in request.query_params.multi_items() if k != TOKEN]
                )
                answer = RedirectResponse(
                    "/"
                    + quote(request.scope["path"].lstrip("/"), safe="/~:")
                    + ("?" + kept if kept else ""),
                    303,
                )
        if answer is not None:
            answer.headers.update(
                {
                    **HEADERS,
                    "Cache-Control": "no-store",
                    "Content-Security-Policy": "default-src 'none'",
                }
            )
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def wrong(self, request: Request) -> str:
        """Why this is refused, '' when it is not."""
        if stranger := find_stranger(request.headers.get):
            return stranger
        told = request.query_params.get(TOKEN) or request.cookies.get(self.cookie(request), "")
        if not hmac.compare_digest(told.encode(), self.token.encode()):
            return (
                "open the address that `recreate view` printed: it has the token which this page"
                " needs"
            )
        if request.method in ("GET", "HEAD"):
            return ""
        if request.query_params.get(TOKEN):
            return "what changes something goes by the page's own form"
        ours = request.headers.get("origin") and request.headers.get("sec-fetch-site") != "none"
        if not ours or find_foreign_change(request.headers.get):
            return "only a page of this server may change something"
        return ""

    def with_cookie(self, request: Request, send: Any) -> Any:
        """What is sent, with the token in a cookie, by which the pages that it leads to are asked
        for."""

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                kept = Response()
                kept.set_cookie(
                    self.cookie(request), self.token, httponly=True, samesite="strict", path="/"
                )
                MutableHeaders(scope=message).append("set-cookie", kept.headers["set-cookie"])
            await send(message)

        return sending

    @staticmethod
    def cookie(request: Request) -> str:
        """Cookies know no ports: another `recreate view` has one of its own."""
        return f"recreate-view-{request.url.port or 80}"


def application(
    site: Website, token: str, decide: Decide | None = None, stopping: Callable[[], bool] = bool
) -> Starlette:
    """The server's application. decide: who takes a person's word; None: nobody, it can only be
    looked at."""
    edition = hashlib.sha256("".join(read_text(name, HERE) for name in FILES).encode()).hexdigest()[
        :12
    ]
    at = f"static/{edition}/"
    site.links(Linked(at + "page.css", at + "view.js", sizes=at + SIZES))
    site.secret = hmac.new(token.encode(), b"form", "sha256").hexdigest()
    for name in ("document", "components", "view"):  # compiled before the first page is asked for
        environment(HERE).get_template(name)
    answers = Answers(site, decide, stopping)
    routes = [
        Route("/static/{edition}/{name}", answers.static),
        Route("/events", answers.events),
        Route("/review/{name}", answers.review, methods=["POST"]),
        Route("/lessons/{path:path}", answers.remembered, methods=["POST"]),
        Route("/forget/{path:path}", answers.remembered, methods=["POST"]),
        Route("/{path:path}", answers.page),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, token=token)])


class Answers:
    """What is answered to whom the Guard lets through, by route."""

    def __init__(self, site: Website, decide: Decide | None, stopping: Callable[[], bool]) -> None:
        self.site = site
        self.decide = decide
        self.stopping = stopping
        self.overview = _shared(lambda: _overview(site))
        self.deciding = asyncio.Lock()  # the second of two tabs finds that nothing waits any more

    def page(self, request: Request) -> Response:
        query = dict(request.query_params)
        return _document(self.site.page(request.scope["path"], query, query.get("told", "")[:TOLD]))

    def static(self, request: Request) -> Response:
        text = _file(request.path_params["name"])
        if text is None:
            return Response("there is no such file\n", 404, HEADERS, "text/plain")
        kind = "text/javascript" if request.path_params["name"].endswith(".js") else "text/css"
        return Response(text, 200, {**HEADERS, "Cache-Control": "max-age=31536000"}, kind)

    async def events(self, request: Request) -> Response:
        query = dict(request.query_params)
        stream = _events(
            self.site, query, request.headers.get("last-event-id", ""), self.stopping, self.overview
        )
        return StreamingResponse(
            stream, 200, {**HEADERS, "Cache-Control": "no-store"}, "text/event-stream"
        )

    async def review(self, request: Request) -> Response:
        name = request.path_params["name"]

        def act(form: Mapping[str, str]) -> tuple[str, str] | RecreateError:
            said = _decided(self.site, name, form, self.decide)
            return said if isinstance(said, RecreateError) else (f"/runs/{quote(name)}", said)

        return await self._acted(request, f"/review/{name}", act)

    async def remembered(self, request: Request) -> Response:
        path = request.scope["path"]
        return await self._acted(request, path, lambda form: _remembered(self.site, path, form))

    async def _acted(self, request: Request, address: str, act: Act) -> Response:
        """A person's form, acted on one at a time; what came of it, as a page. address: the page
        that has the form."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > LARGEST:
                return _document(
                    self.site.page(
                        address, {}, "That is too long: edit the files themselves instead."
                    )
                )
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not hmac.compare_digest(form.get("secret", "").encode(), self.site.secret.encode()):
            return Response("the form is not of this server's page\n", 403, HEADERS, "text/plain")
        async with self.deciding:
            said = await asyncio.to_thread(act, form)
        if isinstance(said, RecreateError):
            shown = self.site.page(
                address, {}, " ".join(part for part in (said.message, said.fix) if part)
            )
            return _document(Shown(shown.text, 400 if shown.status == 200 else shown.status))
        to, words = said
        return RedirectResponse(f"{to}?{urlencode({'told': words[:TOLD]})}", 303, HEADERS)


def _document(shown: Shown) -> Response:
    headers = {**HEADERS, "Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
    return Response(
        shown.text.encode("utf-8", "backslashreplace"),
        shown.status,
        headers,
        "text/html; charset=utf-8",
    )


def _file(name: str) -> str | None:
    """A file that documents refer to; None when there is none."""
    if count := re.fullmatch(r"sizes-(\d{1,5})-(\d{1,5})\.css", name):
        return sizes(int(count[1]), int(count[2]))
    return read_text(name, HERE) if name in FILES else None


def _decided(
    site: Website, name: str, form: Mapping[str, str], decide: Decide | None
) -> str | RecreateError:
    """What was begun on a person's word, or why nothing was."""
    try:
        live, revision, _, child = site.offer(name)
        if decide is None:
            raise BadInput(
                "here it can only be looked at",
                fix=f"recreate review {name} decides",
                code="read-only",
            )
        if revision.id != form.get("revision"):
            raise BadInput(
                "another candidate waits by now",
                fix="look at it first: this page shows it",
                code="stale",
            )
        match form.get("decision"):
            case "accept":
                word = Review(decision="accept")
            case "reject":
                if not form.get("reason", "").strip():
                    raise BadInput(
                        "a rejection needs a reason", fix="the optimizer reads it", code="no-reason"
                    )
                word = Review(decision="reject", reason=form["reason"].strip())
            case "edit":
                files = dict(child.files)
                for key, text in form.items():
                    path = key.removeprefix("file:")
                    text = text.replace("\r\n", "\n")
                    if key.startswith("file:") and path in files and text != _as_sent(files[path]):
                        files[path] = text
                word = Review(
                    decision="edit",
                    files={p: t for p, t in files.items() if t or not child.files[p]},
                )
            case _:
                raise BadInput("no decision was given", fix="accept, edit or reject", code="usage")
        return decide(live, revision, word)
    except RecreateError as e:
        return e
    # what no command line takes: a reason of 200,000 characters, a NUL
    except (OSError, ValueError) as e:
        return BadInput(
            f"this cannot be passed on: {e}", fix="give shorter words, without control characters"
        )


def _remembered(
    site: Website, path: str, form: Mapping[str, str]
) -> tuple[str, str] | RecreateError:
    """(where to go, what was done) after a person's word on a lesson, or on what is to be
    forgotten; or why not."""
    kind, _, id = path.removeprefix("/").partition("/")
    try:
        if kind == "lessons":
            return "/lessons/" + quote(id), site.browsed.change(id, form)
        kind, _, id = id.partition("/")
        if kind not in ("lessons", "experiences"):
            raise BadInput(
                f"there is no page at {path}",
                fix="the list of runs leads to all there are",
                code="no-page",
            )
        return "/lessons" if kind == "lessons" else "/memory", site.browsed.forget(
            kind, id, form.get("seen", "")
        )
    except RecreateError as e:
        return e
    except (OSError, ValueError) as e:  # a file that went meanwhile, or is no text
        return BadInput(f"this cannot be done: {e}", fix="load the page again")


def _as_sent(text: str) -> str:
    """A text as it comes back from a form in which nobody changed it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


# ------------------------------------------------------------------------------------------------
# events


async def _events(
    site: Website,
    query: Mapping[str, str],
    last: str,
    stopping: Callable[[], bool],
    overview: Callable[[], tuple[Any, ...]],
) -> AsyncIterator[bytes]:
    """What happens, as server-sent events until the browser goes away: of a run (`run`, from byte
    `at` of its journal, or where the browser says it was cut off), of an attempt's steps
    (`attempt`), or of all runs."""
    name = query.get("run", "")
    attempt = query.get("attempt", "")
    quiet = 0.0
    before = None
    folder = (await asyncio.to_thread(site.names)).get(name) if name else None
    at = _offset(last or query.get("at", "")) if last or "at" in query else -1
    yield b"retry: 1000\n\n"
    while not stopping():
        told: list[bytes] = []
        if not name:
            now = await asyncio.to_thread(overview)
            if before is not None and now != before:
                told = [_event("changed", {})]
            before = now
        else:
            if (
                folder is None
                or _size(folder / "settings.toml") < 0
                or not re.fullmatch(r"\w*", attempt)
            ):
                yield _event(
                    "gone", {"text": f"{name} is not there any more: it was moved or deleted."}
                )
                return
            if attempt:
                steps = (
                    _size(folder / "attempts" / attempt / "steps.jsonl"),
                    _size(folder / "attempts" / attempt / "experience.json"),
                )
                if before is not None and steps != before:
                    told = [_event("changed", {})]
                before = steps
            else:
                log = Log(folder / "journal.jsonl")
                size = _size(log.path)
                at = max(0, size) if at < 0 else at
                if size < at:  # it was replaced
                    at = 0
                    told = [_event("changed", {})]
                while at < size:
                    try:
                        lines, at = await asyncio.to_thread(_lines, log, at)
                    except RecreateError as e:
                        yield _event("gone", {"text": f"{e.message}. {e.fix}"})
                        return
                    if not lines["count"]:
                        break
                    yield _event("journal", lines, at)
                    quiet = 0.0
        for each in told:
            yield each
            quiet = 0.0
        await asyncio.sleep(TICK if name else 3 * TICK)
        quiet += TICK
        if quiet >= QUIET:
            quiet = 0.0
            yield b": still here\n\n"


def _event(kind: str, data: JsonMap, id: int | None = None) -> bytes:
    head = f"event: {kind}\n" + (f"id: {id}\n" if id is not None else "")
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _offset(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else 0


def _lines(log: Log, at: int) -> tuple[JsonDict, int]:
    """Up to BATCH records from a byte on, told in a line each, and the byte behind them. changes:
    whether any of them is more than a reply."""
    told = []
    count = 0
    changes = False
    for line in log.lines(at):
        at = line.offset + line.length
        count += 1
        if line.record is not None and fits(line.record, FIELDS):
            told.append(visible(redact(_tell_record(line.record)))[:TOLD])
            changes = changes or line.record.get("kind") != "reply"
        if count == BATCH:
            break
    return {"count": count, "lines": told, "changes": changes}, at


RECORDS = {
    "reply": "{role} replied ({reply[tokens_out]} tokens): {words}",
    "experience": "{split} attempt {outcome}: {task} ({ending})",
    "aside": "excluded: {task}: {fault}",
    "revision": "revision {revision[id]:.8} {fate}: {revision[verdict][verdict]}",
    "candidate": "a candidate waits for a person: {revision[id]:.8}",
    "review": "a person decided: {decision} {reason}",
    "proposal": "round {number}: {count} edits are proposed",
    "nothing": "round {number}: nothing to judge: {reason}",
    "memory": "round {number}: memory changed {count} lessons",
    "update": "training step {step}: reward {reward}, kl {kl}",
    "end": "ended: {status}",
}
"""Kind of a record -> its line."""


def _tell_record(record: JsonMap) -> str:
    """One journal record, with what its kind must have, in a line."""
    kind = str(record.get("kind"))
    if kind not in RECORDS:
        plain = {k: v for k, v in record.items() if isinstance(v, str | int | float)}
        rest = (
            f"{k} {str(v)[:60]}" for k, v in plain.items() if k not in ("kind", "schema", "sum")
        )
        return f"{kind}: {', '.join(rest)}"
    told: JsonDict = {"role": "agent", **record}
    if kind == "reply":
        reply = {"tokens_out": 0, **record["reply"]}
        words = " ".join(str(reply.get("text", "")).split())
        told |= {"reply": reply, "words": words[:120]}
    if kind in ("proposal", "nothing", "memory"):
        count = len(record.get("edits", record.get("changes", ())))
        told |= {"number": record["round"] + 1, "count": count}
    told["outcome"] = "passed" if record.get("passed") else "failed"
    if kind == "revision":
        told["fate"] = "kept" if record["revision"].get("kept") else "dropped"
    return RECORDS[kind].format_map(defaultdict(lambda: None, told))


def _overview(site: Website) -> tuple[Any, ...]:
    """What differs when any run, or any lesson, is not as it was."""
    runs = [
        (name, _size(folder / "journal.jsonl"), _size(folder / "ledger.jsonl"))
        for name, folder in site.names().items()
    ]
    busy = site.indexing is not None or any(
        name not in site.runs and name not in site.faults for name, *_ in runs
    )
    return (*runs, len(site.runs), len(site.faults), busy)


def _shared(look: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    """The same for whoever asks within a TICK: a hundred open pages are one look at the files."""
    lock = threading.Lock()
    last = (0.0, ())

    def shared() -> tuple[Any, ...]:
        nonlocal last
        with lock:
            if time.monotonic() > last[0]:
                found = look()
                last = time.monotonic() + TICK, found
            return last[1]

    return shared


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


# -------------------------------------------------------------------------------------------------
# where it runs


def listening(port: int | None) -> socket.socket:
    """A socket on loopback; port: which, 0 for any free one, None for PORT or else a free one.
    Raises BadInput."""
    try:
        return socket.create_server((LOOPBACK, PORT if port is None else port))
    except OSError as e:
        if port is None:
            return listening(0)
        raise BadInput(
            f"port {port} cannot be used: {e.strerror}",
            fix="give another with --port, or --port 0 for a free one",
            code="port-in-use",
        ) from None


def serve(
    site: Website,
    port: int | None,
    ready: Callable[[str], None],
    decide: Decide | None = None,
    signals: Signals = lambda stop: contextlib.nullcontext(),
) -> None:
    """Serve the site until it is told to stop. ready is called with its address once it answers;
    signals: a context that calls what it is given when it is time to end. Raises BadInput when the
    port is taken."""
    import uvicorn

    token = secrets.token_hex()
    bound = listening(port)
    url = f"http://{LOOPBACK}:{bound.getsockname()[1]}/?{TOKEN}={token}"

    class Told(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            with signals(self.stop):
                yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(url)

        def stop(self) -> None:
            self.should_exit = True

    app = application(site, token, decide, lambda: server.should_exit)
    config = uvicorn.Config(
        app,
        log_level="error",
        lifespan="off",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=30,
    )
    server = Told(config)
    with bound:
        server.run(sockets=[bound])


def export(where: Path, target: Path) -> int:
    """Write the pages of a workspace as files that link to each other, and return how many. Raises
    BadInput."""
    from recreate.storage.files import write

    if (
        target.exists()
        and (not target.is_dir() or any(target.iterdir()))
        and not (target / "view.js").is_file()
    ):
        raise BadInput(
            f"{target} holds other files",
            fix="name a new folder, or one that was written by --export",
            code="not-empty",
        )
    files: dict[str, str] = {}
    referred = set[str]()
    here = [""]

    def file_of(address: str) -> str:
        """The file of an address, whatever names a run folder brings along: below the target. A
        list's page is part of its name."""
        parts = urlsplit(address)
        path = "/".join(
            part for part in unquote(parts.path).split("/") if part not in ("", ".", "..")
        )
        page = dict(parse_qsl(parts.query)).get("page", "1")
        return (path or "index") + (f"-page-{page}" if page != "1" else "") + ".html"

    def href(address: str) -> str:
        up = "../" * here[0].count("/")
        if (name := address.lstrip("/")) in FILES or name.startswith("sizes-"):
            referred.add(name)
            return up + name
        if address.startswith(("/events", "/search", "/memory", "/forget")):
            return ""
        files.setdefault(file_of(address), address)
        return up + quote(file_of(address))

    site = Website(where, href, static=True)
    allowed = (
        "default-src 'none'; img-src data:; script-src 'self' file:; base-uri 'none'; form-action"
        " 'none'; style-src 'self' file:"
    )
    site.links(Linked("page.css", "view.js", policy=allowed, sizes=SIZES))
    files["index.html"] = "/"
    # first of all: it tells, of one that was stopped, what it is
    write(target / "view.js", _file("view.js") or "")
    done = set[str]()
    while left := [name for name in files if name not in done]:
        for name in left:
            done.add(name)
            here[0] = name
            parts = urlsplit(files[name])
            shown = site.page(unquote(parts.path), dict(parse_qsl(parts.query)))
            write(target / name, shown.text.encode("utf-8", "backslashreplace"))
    for name in referred:
        write(target / name, _file(name) or "")
    return len(done)
