"""Which parts and commands there are: the core's, and those that entry points name.

A plug-in is a package that declares entry points: `recreate.plugins` names its folder,
`recreate.<kind>` its parts and `recreate.command` its commands. recreate's own plug-ins under
recreate/plugins/ are found exactly as a stranger's package is. Nothing is imported here: what a
name means is text until somebody opens it (`registry.find`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from recreate.api.config import PluginSettings

BUILT_IN: dict[str, dict[str, str]] = {
    "model": {
        "scripted": "recreate.models.scripted:Scripted",
        "openai": "recreate.models.openai:OpenAI",
    },
    "sandbox": {
        "bwrap": "recreate.sandboxes.bwrap:Bwrap",
        "unshare": "recreate.sandboxes.unshare:Unshare",
        "none": "recreate.sandboxes.none:NoSandbox",
    },
    "domain": {
        "rows": "recreate.domains.rows.domain:RowDomain",
    },
    "scorer": {
        "exact": "recreate.domains.rows.scorers:Exact",
        "numeric": "recreate.domains.rows.scorers:Numeric",
        "contains": "recreate.domains.rows.scorers:Contains",
    },
    "optimizer": {
        "recreate": "recreate.optimizers.investigator:Investigator",
        "reflect": "recreate.optimizers.reflect:Reflect",
    },
    "embedder": {
        "hashed": "recreate.memory.embedders.hashed:Hashed",
    },
    "policy": {
        "recreate": "recreate.lessons.ladder:Ladder",
        "none": "recreate.lessons.context:Nothing",
    },
    "page": {"report": "recreate.viewer.html:page"},
}

OURS = "recreate.plugins."
"""How the modules of recreate's own plug-ins begin."""


class EntryPoint(NamedTuple):
    """What an installed package declares. value: `module:attribute`; package: its name and
    version."""

    kind: str
    name: str
    value: str
    package: str

    @property
    def module(self) -> str:
        return self.value.partition(":")[0]

    @property
    def ours(self) -> bool:
        """Whether a plug-in of recreate's own brings it."""
        return f"{self.module}.".startswith(OURS)

    @property
    def present(self) -> bool:
        """Whether the folder of a plug-in of ours is there; a stranger's is with its package."""
        return not self.ours or _has_folder(self.module.split(".")[2])

    @property
    def plugin(self) -> str:
        """The plug-in that brings it: our folder, else the stranger's package."""
        return self.module.split(".")[2] if self.ours else self.package.partition(" ")[0]


@cache
def _has_folder(plugin: str) -> bool:
    return find_spec(OURS + plugin) is not None


@lru_cache(maxsize=64)
def _read_declared(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of recreate's groups that packages on this path declare.

    importlib.metadata reads the same in 25 ms more, a third of what `recreate --help` takes.
    """
    declared: list[EntryPoint] = []
    seen: set[str] = set()
    for folder in map(Path, path):
        with suppress(OSError):
            for info in sorted(each.name for each in folder.iterdir() if each.suffix in _INFO):
                package, _, version = info.rpartition(".")[0].partition("-")
                if package not in seen:
                    seen.add(package)
                    called = f"{package.replace('_', '-')} {version.partition('-')[0]}"
                    declared += _read_points(folder / info / "entry_points.txt", called)
    return tuple(declared)


_INFO = (".dist-info", ".egg-info")


def _read_points(file: Path, package: str) -> Iterator[EntryPoint]:
    group = ""
    with suppress(OSError, UnicodeDecodeError):
        for line in file.read_text("utf-8").splitlines():
            name, equals, value = (part.strip() for part in line.partition("="))
            if line.startswith("["):
                group = line.strip("[] ")
            elif equals and group.startswith("recreate.") and not line.startswith("#"):
                yield EntryPoint(group.removeprefix("recreate."), name, value, package)


def declared() -> tuple[EntryPoint, ...]:
    """Return all entry points of installed packages, also of plug-ins of ours whose folder is not
    there. They are read once for each `sys.path`."""
    return _read_declared(tuple(sys.path))


def brought(kind: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a kind, without those of plug-ins whose folder is not there."""
    group = kind.replace("-", "_")
    return tuple(point for point in declared() if point.kind == group and point.present)


def lacking(kind: str, name: str) -> str:
    """Return the plug-in of recreate's own that brings a part, where its folder is not there; ''
    else."""
    group = kind.replace("-", "_")
    for point in declared():
        if (point.kind, point.name) == (group, name) and not point.present:
            return point.plugin
    return ""


def bringing(kind: str, name: str) -> EntryPoint | None:
    """Return the entry point that brings what is called so; None for the core's and what nobody
    brings."""
    if name in BUILT_IN.get(kind, {}):
        return None
    points = [point for point in brought(kind) if point.name == name]
    return min(points, key=lambda point: not point.ours, default=None)


def brought_by(kind: str, name: str) -> str:
    """Return the installed package that brings a part, with its version; '' for recreate itself."""
    point = bringing(kind, name)
    return "" if point is None or point.ours else point.package


def is_ours(kind: str, name: str) -> bool:
    """Whether recreate itself brings the part, in the core or as a plug-in."""
    return names(kind).get(name, "").startswith("recreate.")


def names(kind: str) -> dict[str, str]:
    """Return all parts of a kind that can be named here: name -> `module:attribute`.

    Of two that share a name the core's is meant, then recreate's own plug-in's; `find` refuses a
    name that two packages bring.
    """
    meant: dict[str, str] = {}
    for point in sorted(brought(kind), key=lambda point: not point.ours):
        meant.setdefault(point.name, point.value)
    return dict(sorted((meant | BUILT_IN.get(kind, {})).items()))


def clashes(kind: str) -> dict[str, list[str]]:
    """Return the names that several packages give to parts of one kind, with what each means."""
    meant: dict[str, list[str]] = {name: [value] for name, value in BUILT_IN.get(kind, {}).items()}
    for point in brought(kind):
        if point.value not in meant.setdefault(point.name, []):
            meant[point.name].append(point.value)
    return {name: values for name, values in meant.items() if len(values) > 1}


@cache
def read_needs(plugin: str) -> tuple[str, ...]:
    """Return the plug-ins that one of these needs, as `NEEDS` of its folder says. It is
    imported."""
    folders = [point.module for point in brought("plugins") if point.name == plugin]
    return tuple(getattr(import_module(folders[0]), "NEEDS", ())) if folders else ()


@lru_cache(maxsize=8)
def _load_tables(declared: tuple[tuple[str, str], ...]) -> dict[str, type[PluginSettings] | str]:
    tables: dict[str, type[PluginSettings] | str] = {}
    for name, target in declared:
        module, _, attribute = target.partition(":")
        try:
            tables[name] = getattr(import_module(module), attribute)
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # a module may also call sys.exit
            tables[name] = f"{type(e).__name__}: {e}"
    return tables


def settings_tables() -> dict[str, type[PluginSettings]]:
    """Return the tables of settings that plug-ins bring, by name; without those that fail to
    load."""
    loaded = _load_tables(tuple(names("settings").items()))
    return {name: table for name, table in loaded.items() if not isinstance(table, str)}


def why_no_table(name: str) -> str:
    """Return why a table of settings is not there, where some plug-in would bring it; else ''."""
    if plugin := lacking("settings", name):
        return f"[{name}] is of the plug-in {plugin}, which is not installed"
    failed = _load_tables(tuple(names("settings").items())).get(name)
    return f"[{name}] cannot be loaded: {failed}" if isinstance(failed, str) else ""
