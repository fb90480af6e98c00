"""One file by its address: downloads that resume, and archives unpacked safely.

Nothing has its final name before its hash is right, and nothing of an archive lands outside its
folder.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import shutil
import ssl
import stat
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from recreate.api import paths
from recreate.api.errors import BadInput, Fault, RecreateError, Refused, Transient
from recreate.storage.files import exclusive, home_disk, is_full

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
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def shown(url: str) -> str:
    """`url` without user, password and query, fit for a message."""
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
    failures, furthest = 0, out.seek(0, os.SEEK_END)
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
    """One connection's worth of bytes, appended to `out`. Returns only when the server's last byte
    is there."""
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
                done, stated = 0, ""
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


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a .tar.gz or .zip sdist below `into`; returns its single top folder, `into`/NAME.

    A member that is absolute, climbs out by `..`, is a device, or is a link that leads out is
    refused, and nothing is left behind. An older folder of the same name is replaced, so the result
    is always the archive's. Raises BadInput (bad-archive) and Fault (disk-full).
    """
    with home_disk(into):
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=into) as scratch:
            fresh = Path(scratch)
            try:
                if zipfile.is_zipfile(archive):
                    _unzip(archive, fresh)
                else:
                    with tarfile.open(archive, "r:*") as tar:
                        untar(tar, fresh)
            except (
                tarfile.TarError,
                zipfile.BadZipFile,
                EOFError,
                ValueError,
                NotImplementedError,
            ) as e:
                raise _bad(archive, str(e)) from None
            except OSError as e:
                if is_full(e) or isinstance(e, FileNotFoundError):
                    raise
                raise _bad(archive, str(e)) from None  # a broken gzip stream is an OSError
            tops = sorted(fresh.iterdir())
            if len(tops) != 1 or tops[0].is_symlink() or not tops[0].is_dir():
                names = ", ".join(t.name for t in tops[:5])
                raise _bad(archive, f"it should hold one folder, and holds {names or 'nothing'}")
            target = into / tops[0].name
            if target.is_symlink() or target.is_file():
                target.unlink()
            elif target.exists():
                shutil.rmtree(target)
            tops[0].rename(target)
            return target


def untar(tar: tarfile.TarFile, into: Path, links: bool = True) -> None:
    """Unpack what is a file, a folder or, with `links`, a link, as ours and by modes of ours.

    The same on every Python: `extractall(filter="data")` came with 3.11.4, and stands behind these
    checks where it is there. Raises ValueError and tarfile.TarError for a member that leads outside
    `into` or is a device.
    """
    tar.extraction_filter = getattr(tarfile, "data_filter", lambda ours, _: ours)
    for member in tar:
        if member.issym() or member.islnk():
            if not links:
                continue
            _stays(into, member)
        elif not member.isreg() and not member.isdir():
            raise ValueError(f"{member.name!r} is a device")
        paths.member(into, member.name)
        ours = copy.copy(member)
        ours.uid, ours.gid, ours.uname, ours.gname = os.geteuid(), os.getegid(), "", ""
        ours.mode = (
            0o755
            if member.isdir()
            else member.mode & (0o755 if member.mode & 0o100 else 0o644) | 0o600
        )
        tar.extract(ours, into)


def _stays(into: Path, link: tarfile.TarInfo) -> None:
    """Raises ValueError unless a link leads to what lies in `into`: whatever links it passes do
    too."""
    if link.islnk():
        paths.member(into, link.linkname)
        return
    steps = PurePosixPath(link.linkname).parts
    up = next((n for n, step in enumerate(steps) if step != ".."), len(steps))
    depth = len(PurePosixPath(link.name).parts) - 1
    if PurePosixPath(link.linkname).is_absolute() or up > depth or ".." in steps[up:]:
        raise ValueError(f"the link {link.name!r} leads outside its folder")


def _unzip(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as z:
        for member in z.infolist():
            target = paths.member(into, member.filename)
            if re.match(r"[A-Za-z]:|.*[\\\0]", member.filename):
                raise ValueError(f"{member.filename!r} leads out of the archive")
            mode = member.external_attr >> 16
            if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError(f"{member.filename!r} is a link or a device")
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with z.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 18)
            target.chmod(0o755 if mode & 0o100 else 0o644)


def _bad(archive: Path, why: str) -> BadInput:
    return BadInput(
        f"{archive.name} was not unpacked: {why}", fix="is it the right file?", code="bad-archive"
    )
