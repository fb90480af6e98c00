"""view: the workspace as pages in a browser, or as files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.cli.options import Json
from recreate.cli.terminal import answer, say

if TYPE_CHECKING:
    from recreate.api.types import Review, Revision
    from recreate.plugins.view.live import LiveRun

_BEGUN: list[subprocess.Popen[bytes]] = []
"""Processes that go on with a build: remembered, so that those that ended are let go of."""
HEARD = 20.0
"""Seconds that a decision's page waits until it is written down; after that it is told by the run's
page."""


Port = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="On 127.0.0.1; 0: a free one. [default: 8712]"),
]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in a browser.")]


def view(
    port: Port = None,
    browser: Browser = True,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="DIR", help="Write the pages as files instead, and end."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at everything in the workspace in a browser, runs while they run, until Ctrl-C.

    Example: recreate view --no-browser
    """
    from recreate.plugins.view import server

    where = workspace()
    if export is not None:
        count = server.export(where, export)
        index = export / "index.html"
        answer(
            as_json,
            {"path": str(export), "pages": count, "index": str(index)},
            f"{count} pages: {here(index)}",
        )
        return
    _serve(where, port, as_json, browser=browser)


def browse(
    port: Port = None,
    browser: Browser = True,
    as_json: Json = False,
) -> None:
    """Look through the memory in a browser: search, a timeline, lessons to edit, merge and delete,
    until Ctrl-C.

    Example: recreate memory browse
    """
    _serve(workspace(), port, as_json, browser=browser, page="memory")


def _serve(where: Path, port: int | None, as_json: bool, *, browser: bool, page: str = "") -> None:
    from recreate.plugins.view import server
    from recreate.plugins.view.site import Website

    site = Website(where)

    def announce(url: str) -> None:
        url = url.replace("/?", f"/{page}?")
        answer(as_json, {"url": url, "pid": os.getpid()}, url)
        say("Ctrl-C stops it; who has this address sees the workspace and may review")
        site.read_ahead()
        if browser:  # a text browser returns when it is closed, and must be answered until then
            threading.Thread(target=_open, args=(url,), daemon=True).start()

    server.serve(site, port, announce, _decide, _until_ended)


@contextmanager
def _until_ended(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end it."""
    old = {s: signal.signal(s, lambda *_: stop()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _open(url: str) -> None:
    """In the person's browser. What a command is given, everybody on this machine can read, so it
    is given a file."""
    import tempfile
    import webbrowser

    with tempfile.NamedTemporaryFile(
        "w", prefix="recreate-view-", suffix=".html", delete=False
    ) as file:
        file.write(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={url}"><a'
            f' href="{url}">recreate view</a>'
        )
    if not webbrowser.open(Path(file.name).as_uri()):
        say("no browser was found: open the address above")


def _decide(live: LiveRun, revision: Revision, word: Review) -> str:
    """Pass a decision to `recreate review`, which writes it down and goes on with the build in a
    process of its own."""
    from recreate.agents import scaffold as scaffolds
    from recreate.agents.history import History
    from recreate.agents.scaffold import Scaffold
    from recreate.plugins.review.terminal import lay, read

    folder = live.folder
    flags = {"accept": ["--accept"], "reject": ["--reject", word.reason], "edit": ["--edit"]}[
        word.decision
    ]
    if word.decision == "edit":
        # what was sent before may have been no agent at all
        shutil.rmtree(folder / "review", ignore_errors=True)
        child = History(folder / "scaffold.git").read(revision.id)
        lay(folder, child)
        scaffolds.save(Scaffold(name=child.name, files=dict(word.files or {})), folder / "review")
        read(folder, child)  # what is wrong with them is said before anything is begun
    command = [sys.executable, "-m", "recreate", "review", str(folder), *flags]
    said = folder / "review.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=Path.cwd(),
        )
    _BEGUN[:] = [each for each in _BEGUN if each.poll() is None] + [process]
    end = time.monotonic() + HEARD
    while time.monotonic() < end:
        if any(r["revision"] == revision.id for r in _reviews(live)):
            return f"{word.decision}ed: the build goes on as process {process.pid}".replace(
                "eed", "ed"
            )
        if process.poll() not in (None, 0, 3):
            last = said.read_text("utf-8", "replace").strip().splitlines()
            raise BadInput(
                " ".join(last[-3:]) or "recreate review ended without a word", code="review-failed"
            )
        time.sleep(0.1)
    return f"recreate review runs as process {process.pid}; what it says is in {here(said)}"


def _reviews(live: LiveRun) -> Iterator[dict[str, str]]:
    live.refresh()
    return live.records("review")
