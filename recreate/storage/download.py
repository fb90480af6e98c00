"""One file by its address: downloads that resume. Nothing has its final name before its hash is
right."""

from __future__ import annotations

import hashlib
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from recreate.api.errors import BadInput, Fault, RecreateError, Refused, Transient
from recreate.storage.files import exclusive, home_disk

if TYPE_CHECKING:
    import httpx

Progress = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in all or None when the server does not say)."""

RETRIES = 3
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
BACKOFF_SECONDS = 0.5
"""The wait before the first retry; it doubles. Tests set it to 0."""


def download(
    url: str,
    path: Path,
    *,
    sha256: str,
    size: int | None = None,
    progress: Progress | None = None,
    connect: float | None = None,
    retries: int | None = None,
) -> Path:
    """Fetch `url` to `path` and return `path`.

    Bytes go to `path.part` first; a later call goes on where an earlier one was cut. `size` in
    bytes, when known, is for `progress` only: the hash decides. `connect` is seconds to wait for a
    connection. A user and a password in `url` are sent to its host alone, not to one that it
    redirects to.

    Raises BadInput (wrong-sha256; the file is deleted), Refused (the server will not serve it),
    Transient (cut or unreachable: the same command resumes) and Fault (disk-full).
    """
    import httpx

    sha256 = sha256.lower()
    if path.exists() and file_sha256(path) == sha256:
        return path
    if urlsplit(url).scheme not in ("http", "https"):
        raise BadInput(
            f"{shown(url)} is not an http or https address",
            fix="give one that is",
            code="bad-address",
        )
    part = path.with_name(path.name + ".part")
    client = httpx.Client(
        follow_redirects=True,
        verify=ssl.create_default_context(),  # what the system trusts, and SSL_CERT_FILE
        timeout=httpx.Timeout(
            READ_SECONDS, connect=CONNECT_SECONDS if connect is None else connect
        ),
        headers={"User-Agent": "recreate", "Accept-Encoding": "identity"},
    )
    tries = RETRIES if retries is None else retries
    with client, home_disk(part, "; what was fetched is kept"), exclusive(part) as out:
        # another process fetched it while we waited
        if path.exists() and file_sha256(path) == sha256:
            part.unlink(missing_ok=True)
            return path
        resumed = out.seek(0, os.SEEK_END) > 0
        try:
            _fill(client, url, out, size, progress, tries)
        except RecreateError:
            if out.seek(0, os.SEEK_END) == 0:
                part.unlink(missing_ok=True)
            raise
        found = file_sha256(part)
        if found != sha256 and resumed:  # the older bytes may be of another file: start over, once
            out.truncate(0)
            _fill(client, url, out, size, progress, tries)
            found = file_sha256(part)
        if found != sha256:
            part.unlink(missing_ok=True)
            raise BadInput(
                f"{shown(url)} has sha256 {found}, not {sha256}; it was deleted",
                fix=(
                    "fetch it again; if the hash is the same, the source was changed: take another"
                    " source, or check with its publisher and correct the sha256 you gave"
                ),
                code="wrong-sha256",
            )
        part.replace(path)
    return path


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def shown(url: str) -> str:
    """Return `url` without user, password and query, fit for a message."""
    try:
        parts = urlsplit(url)
        return urlunsplit(
            parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
        )
    except ValueError:
        return "<not an address>"


def _fill(
    client: httpx.Client,
    url: str,
    out: IO[bytes],
    size: int | None,
    progress: Progress | None,
    retries: int,
) -> None:
    failures = 0
    furthest = out.seek(0, os.SEEK_END)
    while True:
        try:
            _stream(client, url, out, size, progress)
            return
        except Transient as e:
            here = out.seek(0, os.SEEK_END)
            # A cut that came later than any before is progress: only standing still uses up the
            # retries.
            failures = 1 if here > furthest else failures + 1
            furthest = max(here, furthest)
            if failures > retries:
                raise Transient(
                    f"{e.message} ({here} bytes are kept)" if here else e.message,
                    fix=(
                        "run the same command again: it resumes where the download was cut"
                        if here
                        else e.fix
                    ),
                    code=e.code,
                    after=e.after,
                ) from e
            time.sleep(max(BACKOFF_SECONDS * 2 ** (failures - 1), min(e.after or 0.0, 30.0)))


def _stream(
    client: httpx.Client, url: str, out: IO[bytes], size: int | None, progress: Progress | None
) -> None:
    """Append one connection's worth of bytes to `out`. Returns only when the server's last byte is
    there."""
    import httpx

    done = out.seek(0, os.SEEK_END)
    total: int | None = None
    try:
        with client.stream(
            "GET", url, headers={"Range": f"bytes={done}-"} if done else {}
        ) as answer:
            stated = answer.headers.get("Content-Range", "").rpartition("/")[2].strip()
            if answer.status_code == 416 and done:
                if stated == str(done):
                    return
                out.truncate(0)
                raise Transient("the server cannot resume; starting over", code="cut-download")
            if not answer.is_success:
                raise _status(url, answer)
            if done and answer.status_code != 206:  # no ranges here: from the beginning
                out.truncate(0)
                done = 0
                stated = ""
            length = answer.headers.get("Content-Length", "")
            total = (
                int(stated)
                if stated.isdigit()
                else done + int(length)
                if length.isdigit()
                else None
            )
            for block in answer.iter_raw():
                out.write(block)
                done += len(block)
                if progress:
                    progress(done, size if total is None else total)
            out.flush()
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError) as e:
        raise BadInput(f"not an address that can be fetched: {shown(url)}", fix=str(e)) from None
    except httpx.HTTPError as e:
        out.flush()
        if total is not None and done < total and isinstance(e, httpx.RemoteProtocolError):
            raise Transient(
                f"the download of {shown(url)} was cut after {done} of {total} bytes",
                code="cut-download",
            ) from None
        raise Transient(
            f"cannot fetch {shown(url)}: {e or type(e).__name__}",
            fix=(
                "is the network up? behind a proxy set HTTPS_PROXY, with an own certificate"
                " SSL_CERT_FILE"
            ),
            code="unreachable",
        ) from None


def _status(url: str, answer: httpx.Response) -> Fault | Refused:
    code = answer.status_code
    text = f"{shown(url)} answered {code} {answer.reason_phrase}"
    if code in (408, 425, 429) or code >= 500:
        after = answer.headers.get("Retry-After", "")
        return Transient(
            text,
            fix="try again later",
            code=f"http-{code}",
            after=float(after) if after.isdigit() else None,
        )
    return Refused(
        text, fix="check the address, and what it takes to be let in", code=f"http-{code}"
    )
