"""Where things live. Nothing here creates a folder; whoever writes does."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PurePosixPath

from recreate.api.config import read_toml
from recreate.api.errors import BadInput

SHARE = Path(__file__).parents[1] / "_share"
"""Shipped content inside an installed wheel; in a clone the same content lies at the repository's
root."""

DISTRIBUTION = "recreate-agents"
"""What the package index knows us by: `recreate` there is a stranger's."""


def version() -> str:
    """Return the version of this program. It is asked by name, since everything below is imported
    by the package, which says it."""
    return str(vars(sys.modules["recreate"])["__version__"])


def home() -> Path:
    """Weights, caches and environments: RECREATE_HOME, else the user's cache folder."""
    named = os.environ.get("RECREATE_HOME")
    if named:
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "recreate"


def shipped(kind: str) -> Path:
    """Return the shipped `scaffolds`, `memory` or `benchmarks` folder, in a wheel or in a clone."""
    inside = SHARE / kind
    return inside if inside.is_dir() else Path(__file__).parents[2] / kind


def member(root: Path, name: str) -> Path:
    """Return where the member `name` of an archive comes to lie below `root`.

    Raises ValueError when `name` is absolute, climbs by `..`, or leads through or onto a link that
    lies there: the filters of `tarfile` see to the same, which Python has since 3.11.4 only (Debian
    12 has 3.11.2).
    """
    at = root
    parts = PurePosixPath(name).parts
    if PurePosixPath(name).is_absolute() or ".." in parts:
        raise ValueError(f"{name!r} leads outside its folder")
    for part in parts:
        at /= part
        if at.is_symlink():
            raise ValueError(f"{name!r} may lead outside its folder: {part!r} is a link")
    return at


def install(extra: str) -> str:
    """Return the command that brings an extra: from the package index for a wheel, from its folder
    for a clone."""
    if SHARE.is_dir():
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    return f"pip install -e '{short(SHARE.parents[1])}[{extra}]'"


def upgrade() -> str:
    """Return the command that brings a newer version."""
    if SHARE.is_dir():
        return f"pip install --upgrade {DISTRIBUTION}"
    return f"git -C {short(SHARE.parents[1])} pull"


def workspace(start: Path | None = None) -> Path:
    """Return the nearest folder at or above `start` that holds recreate.toml or the three content
    folders.

    A folder without either is its own workspace: nothing is searched for outside it at surprise.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "recreate.toml").is_file() or all(
            (folder / kind).is_dir() for kind in ("scaffolds", "memory", "benchmarks")
        ):
            return folder
    return here


def memory(where: Path, namespace: str | None = None) -> Path:
    """Return the folder of a workspace's memory: `memory`, or `memory/@NAME` of a namespace, such
    as a team's.

    namespace: None is the one that RECREATE_MEMORY__NAMESPACE names, else `[memory] namespace` of
    recreate.toml; '' is none. Raises BadInput for a name that no folder should have.
    """
    name = _namespace(where) if namespace is None else namespace
    if not name:
        return where / "memory"
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,39}", name):
        raise BadInput(
            f"{name[:60]!r} cannot name a namespace of memory",
            fix='small letters, digits, - and _, such as [memory] namespace = "web"',
            code="bad-namespace",
        )
    return where / "memory" / f"@{name}"


def _namespace(where: Path) -> str:
    """Return the namespace that recreate.toml names; '' too where recreate.toml cannot be read:
    whoever reads settings says so."""
    if (named := os.environ.get("RECREATE_MEMORY__NAMESPACE")) is not None:
        return named
    try:
        table = read_toml((where / "recreate.toml").read_text("utf-8")).get("memory")
    except (OSError, ValueError):
        return ""
    found = table.get("namespace", "") if isinstance(table, dict) else ""
    return found if isinstance(found, str) else ""


def short(path: Path) -> str:
    """Return a path as short as it can be said from here."""
    cwd = Path.cwd()
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
