"""Where sources come from: a release on the package index, or a repository on this machine."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.types import digest
from recreate.domains.swe import tree
from recreate.storage import archive, download, packages
from recreate.storage.files import once

Say = Callable[[str], None]


def release(package: str, version: str, sha256: str | None, say: Say = lambda _: None) -> Path:
    """The unpacked sdist of one release, without by-products: a cached folder that nobody writes to.

    Raises BadInput for an unknown package, version or hash, Fault when the index cannot be reached.
    """
    folder = paths.home() / "swe" / "sources"
    if sha256 and (known := folder / f"{package}-{version}-{sha256[:12]}").exists():
        return known
    if not sha256:
        say(f"looking for {package} {version} on the package index")
    else:
        say(f"fetching the sources of {package} {version}, once")
    sdist = packages.package(package, version, "sdist", sha256=sha256)
    found = download.file_sha256(sdist)

    def build(fresh: Path) -> None:
        with tempfile.TemporaryDirectory(dir=fresh.parent) as scratch:
            tree.copy(archive.unpack(sdist, Path(scratch)), fresh)

    return once(folder / f"{package}-{version}-{found[:12]}", build)


def released_sha256(package: str, version: str) -> str:
    """The SHA-256 of the release's sdist, fetched when it is not here yet."""
    return download.file_sha256(packages.package(package, version, "sdist"))


def repository(path: Path, commit: str, wanted: str, say: Say = lambda _: None) -> Path:
    """The sources of a repository as they were when tasks were made of it: `wanted` is their digest.

    Raises BadInput when the folder has changed since and neither git nor the cache has the older state.
    """
    target = paths.home() / "swe" / "sources" / f"repository-{wanted}"
    if target.exists():
        return target
    if not path.is_dir():
        raise BadInput(
            f"the repository {path} of these tasks is not there",
            fix="put it back, or remove its lines from benchmarks/swe/injected.jsonl",
            code="unknown-repository",
        )
    say(f"copying the sources of {path}, once")
    with tempfile.TemporaryDirectory() as scratch:
        snapshot, _, found = _snapshot(path, commit, Path(scratch))
        if found != wanted:
            raise BadInput(
                f"{path} has changed since tasks were made of it",
                fix=f"bring its older state back, or make new tasks: recreate tasks make swe --repo {path}",
                code="changed-repository",
            )
        return once(target, lambda fresh: tree.copy(snapshot, fresh))


def snapshot(path: Path) -> tuple[Path, str, str]:
    """The sources of a repository now: cached folder, commit ('' when there is none or it is not clean), digest."""
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder", fix="name the repository's top folder", code="unknown-repository")
    commit = _clean_commit(path)
    with tempfile.TemporaryDirectory() as scratch:
        taken, commit, found = _snapshot(path, commit, Path(scratch))
        folder = paths.home() / "swe" / "sources" / f"repository-{found}"
        return once(folder, lambda fresh: tree.copy(taken, fresh)), commit, found


def _snapshot(path: Path, commit: str, scratch: Path) -> tuple[Path, str, str]:
    taken = scratch / "tree"
    if commit and _git(path, "cat-file", "-e", f"{commit}^{{commit}}") is not None:
        exported = scratch / "tree.tar"
        if _git(path, "archive", "--format=tar", f"--output={exported}", f"{commit}:./") is not None:
            with tarfile.open(exported) as tar:
                tar.extractall(taken, filter="data")
            return taken, commit, digest(tree.manifest(taken))
    listed = _git(path, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        tree.copy(path, taken)
    else:
        for name in filter(None, listed.split("\0")):
            if (path / name).is_file() and not (path / name).is_symlink() and not tree.skipped(name):
                (taken / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path / name, taken / name)
    taken.mkdir(exist_ok=True)
    return taken, "", digest(tree.manifest(taken))


def _clean_commit(path: Path) -> str:
    status = _git(path, "status", "--porcelain", "--", ".")
    head = _git(path, "rev-parse", "--verify", "HEAD")
    return head.strip() if head and status == "" else ""


def _git(path: Path, *arguments: str) -> str | None:
    """What git says in `path`, or None when it fails or is not installed."""
    if shutil.which("git") is None:
        return None
    done = subprocess.run(
        ["git", "-C", str(path), *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None
