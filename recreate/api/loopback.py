"""Who may ask a server of ours on loopback: programs of this machine, and pages that it served.

A page of any website can have a browser send here: a form, a text that a script posts without being
allowed to read the answer, or, where its own name is made to point at 127.0.0.1, a whole request.
The browser says so: in Host by which name it was sent, in Origin and Sec-Fetch-Site for whom.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from recreate.api.paths import home

NAMES = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?", re.IGNORECASE)


def find_stranger(header: Callable[[str], str | None]) -> str:
    """Return why a request comes from somebody else's page; '' for one that does not. header: gives
    what a header says, by its name."""
    host = header("host") or ""
    if not NAMES.fullmatch(host):
        return "this server answers to 127.0.0.1 and localhost only"
    site = header("sec-fetch-site") or ""
    if site in ("cross-site", "same-site") and header("sec-fetch-mode") != "navigate":
        return "another page may not ask this server"
    return ""


def find_foreign_change(header: Callable[[str], str | None]) -> str:
    """Return why a request may change nothing here, or cost nothing; '' for one that may."""
    host, origin = header("host") or "", header("origin") or ""
    own = origin.lower() in ("", f"http://{host.lower()}")
    if not own or header("sec-fetch-site") not in (None, "", "same-origin", "none"):
        return "only a program, or a page of this server, may change something"
    return find_stranger(header)


def key_file(port: int) -> Path:
    """Return where the key that a server of ours takes on a port stands while it runs, after the
    process that runs it."""
    return home() / "servers" / str(port)


def served_key(host: str, port: int | None) -> str:
    """Return the key that a server of ours takes there; '' where none runs."""
    with suppress(OSError, ValueError):
        if port and NAMES.fullmatch(host):
            pid, key = key_file(port).read_text("ascii").split()
            os.kill(int(pid), 0)
            return key
    return ""
