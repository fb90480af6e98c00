"""One package of the index the user has: found, fetched, cached. Nothing of it is executed or
imported."""

from __future__ import annotations

import configparser
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.registry import need
from recreate.storage import download as fetch
from recreate.storage.download import Progress, download, file_sha256, shown

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

Kind = Literal["sdist", "wheel"]

_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")


def index_url() -> str | None:
    """Return the package index the user configured (PIP_INDEX_URL, uv's variables, pip's files), or
    None."""
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
    """Return the file of one release from the package index, kept in home()/packages; nothing in it
    is executed.

    Its hash is `sha256` when given, else the one the index states; a file fetched before is checked
    and returned without asking the index. Raises BadInput (unknown-package, wrong-sha256) and
    Fault.
    """
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version

    name = canonicalize_name(name)
    try:
        wanted = Version(version)
    except InvalidVersion:
        raise BadInput(
            f"{version!r} is not a version of {name}",
            fix="name one like 1.2.3",
            code="unknown-package",
        ) from None
    folder = package_folder(name, version)
    for kept in sorted(folder.glob("*/*")):  # the folder's name is the hash the file must have
        if _kind(kept.name) == kind and (sha256 or kept.parent.name).lower() == kept.parent.name:
            if file_sha256(kept) == kept.parent.name:
                return kept
            kept.unlink()
    link, url = _link(name, str(wanted), kind, sha256)
    if link.is_yanked:  # which installers take too, when it is named
        why = f": {link.yanked_reason}" if link.yanked_reason else ""
        print(f"{name} {version} was withdrawn by its makers (yanked){why}", file=sys.stderr)
    hash_ = (sha256 or link.digests.get("sha256") or "").lower()
    if not hash_:
        raise BadInput(
            f"the index states no sha256 for {link.filename}",
            fix="give the sha256 it must have",
            code="no-sha256",
        )
    return download(
        url, folder / hash_ / link.filename, sha256=hash_, size=link.size, progress=progress
    )


def package_folder(name: str, version: str) -> Path:
    """Return where `package` keeps a release: its files lie one folder below, in folders named by
    their sha256."""
    from packaging.utils import canonicalize_name, canonicalize_version

    return paths.home() / "packages" / canonicalize_name(name) / canonicalize_version(version)


def _kind(filename: str) -> str:
    if filename.endswith(".whl"):
        return "wheel"
    return "sdist" if filename.endswith((".tar.gz", ".zip", ".tgz", ".tar.bz2")) else ""


def _link(
    name: str, version: str, kind: Kind, sha256: str | None
) -> tuple[DistributionPackage, str]:
    """Return the index's link to the file that fits, and its address with the login that the
    index's own address has."""
    from packaging.version import Version

    page, endpoint = read_project(name)
    of_version = [p for p in page.packages if p.version and is_same(p.version, version)]
    fitting = [p for p in of_version if p.package_type == kind]
    if not fitting:
        have = sorted({v for p in page.packages if (v := p.version) and is_same(v, v)}, key=Version)
        raise BadInput(
            (
                f"{name} {version} has no {kind} on the package index"
                if of_version
                else f"{name} has no version {version} on the package index"
            ),
            fix=(
                f"it has {', '.join(sorted({str(p.package_type) for p in of_version}))}"
                if of_version
                else f"there are: {', '.join(have[-8:]) or 'none'}"
            ),
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
    link = urlsplit(best.url)
    index = urlsplit(endpoint).netloc
    near = link.netloc == index.rpartition("@")[2]
    return best, urlunsplit(link._replace(netloc=index)) if near else best.url


def _rank(link: DistributionPackage) -> int:
    """Return 0 for the file to prefer: .tar.gz; a wheel for any machine, else one for this
    machine."""
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


def is_same(one: str, other: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return False


def read_project(name: str) -> tuple[Any, str]:
    """Return the index's page of one project, and the index's address."""
    pypi_simple = need("pypi_simple")
    requests = need("requests")
    configured = index_url()
    endpoint: str = configured or pypi_simple.PYPI_SIMPLE_ENDPOINT
    session = requests.Session()
    certificates = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
    if certificates:
        session.verify = certificates  # requests reads REQUESTS_CA_BUNDLE by itself, but not these
    with pypi_simple.PyPISimple(endpoint, session=session) as index:
        for wait in [fetch.BACKOFF_SECONDS * 2**i for i in range(fetch.RETRIES)] + [None]:
            try:
                return (
                    index.get_project_page(
                        name, timeout=(fetch.CONNECT_SECONDS, fetch.READ_SECONDS)
                    ),
                    endpoint,
                )
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
                        fix=(
                            f"is the network up? set {_INDEX_VARIABLES[0]} to an index you reach, "
                            "HTTPS_PROXY behind a proxy, SSL_CERT_FILE with an own certificate"
                        ),
                        code="index-unreachable",
                    ) from None
                time.sleep(wait)
            except (
                pypi_simple.UnsupportedContentTypeError,
                pypi_simple.UnsupportedRepoVersionError,
            ) as e:
                raise Fault(
                    f"{shown(endpoint)} does not answer like a package index: {type(e).__name__}",
                    fix=(
                        f"set {_INDEX_VARIABLES[0]} to the address of a simple index (it ends in"
                        " /simple/)"
                    ),
                    code="index-unreachable",
                ) from None
    raise AssertionError("unreachable")


def _reason(e: Exception) -> str:
    """Return the innermost reason of a requests error, in a few words: it never repeats the
    address."""
    seen: list[str] = []
    at: BaseException | None = e
    while at is not None:
        seen.append(type(at).__name__)
        args = at.args[0] if at.args else None
        reason = getattr(args, "reason", None)
        at = (
            reason
            if isinstance(reason, BaseException)
            else (args if isinstance(args, BaseException) else None)
        )
    return seen[-1]
