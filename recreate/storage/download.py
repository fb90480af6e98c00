"""One file by its address: downloads that resume. Nothing has its final name before its hash is right."""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit, urlunsplit

from recreate.api.errors import BadInput, Fault, RecreateError, Refused, Transient
from recreate.storage.files import exclusive, home_disk

Progress = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in all or None when the server does not say)."""

RETRIES = 3
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
BACKOFF_SECONDS = 0.5
"""The wait before the first retry; it doubles. Tests set it to 0."""

_BLOCK = 1 << 18


def download(
    url: str,
    path: Path,
    *,
    sha256: str,
    size: int | None = None,
    progress: Progress | None = None,
    headers: Mapping[str, str] | None = None,
    connect: float | None = None,
    retries: int | None = None,
) -> Path:
    """Fetch `url` to `path` and return `path`.

    Bytes go to `path.part` first; a later call goes on where an earlier one was cut. `size` in bytes, when
    known, is for `progress` only: the hash decides. `connect` is seconds to wait for a connection.

    Raises BadInput (wrong-sha256; the file is deleted), Refused (the server will not serve it), Transient
    (cut or unreachable: the same command resumes) and Fault (disk-full).
    """
    sha256 = sha256.lower()
    if path.exists() and file_sha256(path) == sha256:
        return path
    part = path.with_name(path.name + ".part")
    with home_disk(part, "; what was fetched is kept"), exclusive(part) as out:
        if path.exists() and file_sha256(path) == sha256:  # another process fetched it while we waited
            part.unlink(missing_ok=True)
            return path
        resumed = out.seek(0, os.SEEK_END) > 0
        wait = CONNECT_SECONDS if connect is None else connect
        tries = RETRIES if retries is None else retries
        try:
            _fill(url, out, size, progress, headers or {}, wait, tries)
        except RecreateError:
            if out.seek(0, os.SEEK_END) == 0:
                part.unlink(missing_ok=True)
            raise
        found = file_sha256(part)
        if found != sha256 and resumed:  # the older bytes may be of another file: start over, once
            out.truncate(0)
            _fill(url, out, size, progress, headers or {}, wait, tries)
            found = file_sha256(part)
        if found != sha256:
            part.unlink(missing_ok=True)
            raise _wrong(shown(url), sha256, found)
        part.replace(path)
    return path


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def shown(url: str) -> str:
    """`url` without user, password and query, fit for a message."""
    try:
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
    except ValueError:
        return "<not an address>"


def _fill(
    url: str,
    out: IO[bytes],
    size: int | None,
    progress: Progress | None,
    headers: Mapping[str, str],
    connect: float,
    retries: int,
) -> None:
    failures, furthest = 0, out.seek(0, os.SEEK_END)
    while True:
        try:
            _stream(url, out, size, progress, headers, connect)
            return
        except Transient as e:
            here = out.seek(0, os.SEEK_END)
            # A cut that came later than any before is progress: only standing still uses up the retries.
            failures = 1 if here > furthest else failures + 1
            furthest = max(here, furthest)
            if failures > retries:
                raise Transient(
                    f"{e.message} ({here} bytes are kept)" if here else e.message,
                    fix="run the same command again: it resumes where the download was cut" if here else e.fix,
                    code=e.code,
                    after=e.after,
                ) from e
            time.sleep(max(BACKOFF_SECONDS * 2 ** (failures - 1), min(e.after or 0.0, 30.0)))


def _stream(
    url: str,
    out: IO[bytes],
    size: int | None,
    progress: Progress | None,
    headers: Mapping[str, str],
    connect: float,
) -> None:
    """One connection's worth of bytes, appended to `out`. Returns only when the server's last byte is there."""
    have = out.seek(0, os.SEEK_END)
    address, login = split_login(url)
    if urlsplit(address).scheme not in ("http", "https"):
        raise BadInput(f"{shown(url)} is not an http or https address", fix="give one that is", code="bad-address")
    request = urllib.request.Request(address, headers={"User-Agent": "recreate"})
    for name, value in ({"Authorization": login} if login else dict(headers)).items():
        request.add_unredirected_header(name, value)  # a key is for the host it was given to, not for a redirect's
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.build_opener(_Http, _Https).open(request, timeout=connect)
    except urllib.error.HTTPError as e:
        with e:
            if e.code == 416 and have:
                total = _total(e.headers.get("Content-Range", ""))
                if total == have:
                    return
                out.truncate(0)
                raise Transient("the server cannot resume; starting over", code="cut-download") from None
            raise _status(url, e) from None
    except (OSError, http.client.HTTPException) as e:
        raise _unreached(url, e) from None
    except ValueError as e:
        raise BadInput(f"not an address that can be fetched: {shown(url)}", fix=str(e)) from None
    with answer:
        if have and answer.status != 206:  # no ranges here: from the beginning
            out.truncate(0)
            have = 0
        total = _total(answer.headers.get("Content-Range", "")) if have else None
        if total is None and answer.headers.get("Content-Length", "").isdigit():
            total = have + int(answer.headers["Content-Length"])
        expected, total = total, total if total is not None else size
        done = have
        while True:
            try:
                block = answer.read1(_BLOCK)
            except (OSError, http.client.HTTPException) as e:
                raise _unreached(url, e) from None
            if not block:
                break
            out.write(block)
            done += len(block)
            if progress:
                progress(done, total)
        out.flush()
        if expected is not None and done < expected:
            raise Transient(
                f"the download of {shown(url)} was cut after {done} of {expected} bytes", code="cut-download"
            )


def _total(content_range: str) -> int | None:
    last = content_range.rpartition("/")[2].strip()
    return int(last) if last.isdigit() else None


def _status(url: str, e: urllib.error.HTTPError) -> Fault | Refused:
    text = f"{shown(url)} answered {e.code} {e.reason}"
    if e.code in (408, 425, 429) or e.code >= 500:
        after = e.headers.get("Retry-After", "")
        return Transient(
            text, fix="try again later", code=f"http-{e.code}", after=float(after) if after.isdigit() else None
        )
    return Refused(text, fix="check the address, and what it takes to be let in", code=f"http-{e.code}")


def _unreached(url: str, e: BaseException) -> Transient:
    why = getattr(e, "reason", None) or e
    return Transient(
        f"cannot fetch {shown(url)}: {why or type(e).__name__}",
        fix="is the network up? behind a proxy set HTTPS_PROXY, with an own certificate SSL_CERT_FILE",
        code="unreachable",
    )


def _wrong(what: str, sha256: str, found: str) -> BadInput:
    return BadInput(
        f"{what} has sha256 {found}, not {sha256}; it was deleted",
        fix="fetch it again; if the hash is the same, the source was changed: take another source, "
        "or check with its publisher and correct the sha256 you gave",
        code="wrong-sha256",
    )


class _HttpConnection(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_SECONDS)  # an unreachable host fails soon, a slow one gets its time


class _HttpsConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpConnection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpsConnection, req)


def split_login(url: str) -> tuple[str, str]:
    """`url` without its user and password, and the Authorization header they make."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    name, _, word = user.partition(":")
    pair = f"{unquote(name)}:{unquote(word)}".encode()
    return urlunsplit(parts._replace(netloc=host)), "Basic " + base64.b64encode(pair).decode()
