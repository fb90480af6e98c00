"""Bytes from elsewhere: downloads that resume, packages of the user's index, archives unpacked safely.

Nothing that is fetched is executed or imported, and nothing is given its final name before its hash is right.
"""

from __future__ import annotations

import base64
import configparser
import contextlib
import errno
import fcntl
import hashlib
import http.client
import os
import re
import shutil
import stat
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from recreate import paths
from recreate.errors import BadInput, Fault, RecreateError, Refused, Transient
from recreate.plug import need

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

Progress = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in all or None when the server does not say)."""

Kind = Literal["sdist", "wheel"]

RETRIES = 3
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
BACKOFF_SECONDS = 0.5
"""The wait before the first retry; it doubles. Tests set it to 0."""

_BLOCK = 1 << 18
_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")


# --- one file by its address ------------------------------------------------------------------------------


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
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with disk(part), exclusive(part) as out:
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
    address, login = _login(url)
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


@contextlib.contextmanager
def exclusive(part: Path) -> Iterator[IO[bytes]]:
    """`part` opened for appending, by one process at a time: two builds may want the same weights at once."""
    while True:
        with part.open("ab") as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            try:
                same = os.fstat(out.fileno()).st_ino == part.stat().st_ino
            except FileNotFoundError:
                same = False
            if same:  # else the holder of the lock gave the file its final name meanwhile
                yield out
                return


@contextlib.contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk met while writing `path` into an error that says what to do."""
    try:
        yield
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Fault(
                f"the disk is full: cannot write {path.name} in {path.parent}",
                fix="free some space, or set RECREATE_HOME to a folder on another disk; what was fetched is kept",
                code="disk-full",
            ) from None
        if e.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise BadInput(
                f"cannot write {path}: {e.strerror}",
                fix="set RECREATE_HOME to a folder you can write",
                code="not-writable",
            ) from None
        raise


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


def _login(url: str) -> tuple[str, str]:
    """`url` without its user and password, and the Authorization header they make."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    name, _, word = user.partition(":")
    pair = f"{unquote(name)}:{unquote(word)}".encode()
    return urlunsplit(parts._replace(netloc=host)), "Basic " + base64.b64encode(pair).decode()


# --- one package of the index -----------------------------------------------------------------------------


def index_url() -> str | None:
    """The package index the user configured (PIP_INDEX_URL, uv's variables, pip's files), or None."""
    for variable in _INDEX_VARIABLES:
        if os.environ.get(variable, "").strip():
            return os.environ[variable].strip()
    user = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    files = [
        os.environ.get("PIP_CONFIG_FILE", ""),
        f"{sys.prefix}/pip.conf",
        f"{user}/pip/pip.conf",
        "~/.pip/pip.conf",
        "/etc/pip.conf",
    ]
    for name in files:
        settings = configparser.RawConfigParser()
        try:
            read = name and settings.read(Path(name).expanduser(), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself will complain about it better than we can
        for section in ("download", "install", "global") if read else ():
            for key in ("index-url", "index_url"):
                if settings.get(section, key, fallback="").strip():
                    return settings.get(section, key).strip()
    return None


def package(
    name: str,
    version: str,
    kind: Kind,
    *,
    sha256: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """The file of one release from the package index, kept in home()/packages; nothing in it is executed.

    Its hash is `sha256` when given, else the one the index states; a file fetched before is checked and
    returned without asking the index. Raises BadInput (unknown-package, wrong-sha256) and Fault.
    """
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version

    name = canonicalize_name(name)
    try:
        wanted = Version(version)
    except InvalidVersion:
        raise BadInput(
            f"{version!r} is not a version of {name}", fix="name one like 1.2.3", code="unknown-package"
        ) from None
    folder = package_folder(name, version)
    for kept in sorted(folder.glob("*/*")):  # the folder's name is the hash the file must have
        if _kind(kept.name) == kind and (sha256 or kept.parent.name).lower() == kept.parent.name:
            if file_sha256(kept) == kept.parent.name:
                return kept
            kept.unlink()
    link, login = _link(name, str(wanted), kind, sha256)
    hash_ = (sha256 or link.digests.get("sha256") or "").lower()
    if not hash_:
        raise BadInput(
            f"the index states no sha256 for {link.filename}", fix="give the sha256 it must have", code="no-sha256"
        )
    headers = {"Authorization": login} if login else {}
    return download(
        link.url, folder / hash_ / link.filename, sha256=hash_, size=link.size, progress=progress, headers=headers
    )


def package_folder(name: str, version: str) -> Path:
    """Where `package` keeps a release: its files lie one folder below, in folders named by their sha256."""
    from packaging.utils import canonicalize_name, canonicalize_version

    return paths.home() / "packages" / canonicalize_name(name) / canonicalize_version(version)


def _kind(filename: str) -> str:
    if filename.endswith(".whl"):
        return "wheel"
    return "sdist" if filename.endswith((".tar.gz", ".zip", ".tgz", ".tar.bz2")) else ""


def _link(name: str, version: str, kind: Kind, sha256: str | None) -> tuple[DistributionPackage, str]:
    """The index's link to the file that fits, and the Authorization header it takes ('' for none)."""
    from packaging.version import Version

    page, endpoint = _project(name)
    of_version = [p for p in page.packages if p.version and _same(p.version, version)]
    fitting = [p for p in of_version if p.package_type == kind]
    if not fitting:
        have = sorted({v for p in page.packages if (v := p.version) and _same(v, v)}, key=Version)
        raise BadInput(
            f"{name} {version} has no {kind} on the package index"
            if of_version
            else f"{name} has no version {version} on the package index",
            fix=f"it has {', '.join(sorted({str(p.package_type) for p in of_version}))}"
            if of_version
            else f"there are: {', '.join(have[-8:]) or 'none'}",
            code="unknown-package",
        )
    if sha256:
        stated = [p for p in fitting if p.digests.get("sha256", sha256).lower() == sha256.lower()]
        if not stated:
            offered = ", ".join(f"{p.filename} {p.digests['sha256']}" for p in fitting)
            raise BadInput(
                f"no {kind} of {name} {version} on the index has sha256 {sha256}",
                fix=f"the index states: {offered}",
                code="wrong-sha256",
            )
        fitting = stated
    best = min(fitting, key=lambda p: (_rank(p), p.filename))
    address, login = _login(endpoint)
    near = urlsplit(address).netloc == urlsplit(best.url).netloc
    return best, login if near else ""


def _rank(link: DistributionPackage) -> int:
    """0 for the file to prefer: .tar.gz; a wheel for any machine, else one for this machine."""
    if link.package_type == "sdist":
        return 0 if link.filename.endswith(".tar.gz") else 1
    if link.filename.endswith("-none-any.whl"):
        return 0
    from packaging.tags import sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        tags = parse_wheel_filename(link.filename)[3]
    except InvalidWheelFilename:
        return 1 << 30
    return next((i for i, tag in enumerate(sys_tags(), 1) if tag in tags), 1 << 20)


def _same(one: str, other: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return False


def _project(name: str) -> tuple[Any, str]:
    """The index's page of one project, and the index's address."""
    pypi_simple = need("pypi_simple")
    requests = need("requests")
    configured = index_url()
    endpoint: str = configured or pypi_simple.PYPI_SIMPLE_ENDPOINT
    session = requests.Session()
    certificates = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
    if certificates:
        session.verify = certificates  # requests reads REQUESTS_CA_BUNDLE by itself, but not these
    with pypi_simple.PyPISimple(endpoint, session=session) as index:
        for wait in [BACKOFF_SECONDS * 2**i for i in range(RETRIES)] + [None]:
            try:
                return index.get_project_page(name, timeout=(CONNECT_SECONDS, READ_SECONDS)), endpoint
            except pypi_simple.NoSuchProjectError:
                raise BadInput(
                    f"no package is called {name!r} on the package index",
                    fix="check the spelling"
                    + (f"; the index asked is {shown(configured)}" if configured else "")
                    + f"; another index: set {_INDEX_VARIABLES[0]}",
                    code="unknown-package",
                ) from None
            except requests.RequestException as e:
                status = e.response.status_code if e.response is not None else None
                for_good = status is not None and status < 500 and status not in (408, 425, 429)
                if wait is None or for_good or isinstance(e, ValueError):
                    why = f"it answered {status}" if status else _reason(e)
                    raise Fault(
                        f"the package index {shown(endpoint)} cannot be read: {why}",
                        fix=f"is the network up? set {_INDEX_VARIABLES[0]} to an index you reach, "
                        "HTTPS_PROXY behind a proxy, SSL_CERT_FILE with an own certificate",
                        code="index-unreachable",
                    ) from None
                time.sleep(wait)
            except (pypi_simple.UnsupportedContentTypeError, pypi_simple.UnsupportedRepoVersionError) as e:
                raise Fault(
                    f"{shown(endpoint)} does not answer like a package index: {type(e).__name__}",
                    fix=f"set {_INDEX_VARIABLES[0]} to the address of a simple index (it ends in /simple/)",
                    code="index-unreachable",
                ) from None
    raise AssertionError("unreachable")


def _reason(e: Exception) -> str:
    """The innermost reason of a requests error, in a few words: it never repeats the address."""
    seen: list[str] = []
    at: BaseException | None = e
    while at is not None:
        seen.append(type(at).__name__)
        args = at.args[0] if at.args else None
        reason = getattr(args, "reason", None)
        at = reason if isinstance(reason, BaseException) else (args if isinstance(args, BaseException) else None)
    return seen[-1]


# --- archives ---------------------------------------------------------------------------------------------


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a .tar.gz or .zip sdist below `into`; returns its single top folder, `into`/NAME.

    A member that is absolute, climbs out by `..`, is a device, or is a link that leads out is refused, and
    nothing is left behind. An older folder of the same name is replaced, so the result is always the archive's.
    Raises BadInput (bad-archive) and Fault (disk-full).
    """
    with disk(into):
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=into) as scratch:
            fresh = Path(scratch)
            try:
                if zipfile.is_zipfile(archive):
                    _unzip(archive, fresh)
                else:
                    with tarfile.open(archive, "r:*") as tar:
                        tar.extractall(fresh, filter="data")
            except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as e:
                raise _bad(archive, str(e)) from None
            except OSError as e:
                if e.errno in (errno.ENOSPC, errno.EDQUOT) or isinstance(e, FileNotFoundError):
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


def _unzip(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as z:
        for member in z.infolist():
            name = PurePosixPath(member.filename)
            if name.is_absolute() or ".." in name.parts or re.match(r"[A-Za-z]:|.*[\\\0]", member.filename):
                raise ValueError(f"{member.filename!r} leads out of the archive")
            mode = member.external_attr >> 16
            if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError(f"{member.filename!r} is a link or a device")
            target = into / name
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with z.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out, _BLOCK)
            target.chmod(0o755 if mode & 0o100 else 0o644)


def _bad(archive: Path, why: str) -> BadInput:
    return BadInput(f"{archive.name} was not unpacked: {why}", fix="is it the right file?", code="bad-archive")
