"""Which parts and commands there are: the core's, and those that entry points name.

A plug-in is a package that declares entry points: `recreate.plugins` names its folder,
`recreate.<kind>` its parts and `recreate.command` its commands. recreate's own plug-ins under
recreate/plugins/ are found exactly as a stranger's package is. Nothing is imported here: what a
name means is text until somebody opens it (`registry.find`).
"""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recreate.api.config import PluginSettings

BUILT_IN: dict[str, dict[str, str]] = {
    "model": {
        "scripted": "recreate.models.scripted:Scripted",
        "openai": "recreate.models.openai:OpenAI",
        "litellm": "recreate.models.litellm:LiteLLM",
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
        "f1": "recreate.domains.rows.scorers:F1",
        "regex": "recreate.domains.rows.scorers:Regex",
        "json-schema": "recreate.domains.rows.scorers:JsonSchema",
        "file": "recreate.domains.rows.programs:FileScorer",
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


def _group(kind: str) -> str:
    """The entry points of a kind: `recreate.domain`, `recreate.recipe_part`."""
    return f"recreate.{kind.replace('-', '_')}"


def brought(kind: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a kind that installed packages declare, recreate's own plug-ins
    among them.

    They are read once for each `sys.path`: a reading opens a file of every package there is, and a
    build asks hundreds of times.
    """
    return _read_entry_points(_group(kind), tuple(sys.path))


@lru_cache(maxsize=64)
def _read_entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(point for point in entry_points(group=group) if _is_present(point.module))


@cache
def _is_present(module: str) -> bool:
    """Whether the folder of a plug-in of ours is there; of a stranger's its package says so."""
    if not module.startswith(PLUGINS):
        return True
    return find_spec(".".join(module.split(".")[:3])) is not None


def lacking(kind: str, name: str) -> str:
    """Return the plug-in of recreate's own that brings a part, where its folder is not there; ''
    else."""
    for point in entry_points(group=_group(kind), name=name):
        if point.module.startswith(PLUGINS) and not _is_present(point.module):
            return point.module.split(".")[2]
    return ""


PLUGINS = "recreate.plugins."
"""How the modules of recreate's own plug-ins begin."""


def brought_by(kind: str, name: str) -> str:
    """Return the installed package that brings a part, with its version; '' for recreate itself."""
    for point in brought(kind):
        if point.name == name and name not in BUILT_IN.get(kind, {}) and point.dist is not None:
            ours = point.module.startswith(PLUGINS)
            return "" if ours else f"{point.dist.name} {point.dist.version}"
    return ""


def is_ours(kind: str, name: str) -> bool:
    """Whether recreate itself brings the part, in the core or as a plug-in."""
    return names(kind).get(name, "").startswith("recreate.")


def names(kind: str) -> dict[str, str]:
    """Return all parts of a kind that can be named here: name -> `module:attribute`.

    Of two that share a name the core's is meant, then recreate's own plug-in's; `find` refuses a
    name that two other packages bring.
    """
    found: dict[str, str] = {}
    for point in sorted(brought(kind), key=lambda point: not point.module.startswith(PLUGINS)):
        found.setdefault(point.name, point.value)
    return dict(sorted((found | BUILT_IN.get(kind, {})).items()))


@lru_cache(maxsize=8)
def _load_tables(declared: tuple[tuple[str, str], ...]) -> dict[str, type[PluginSettings] | str]:
    tables: dict[str, type[PluginSettings] | str] = {}
    for name, target in declared:
        module, _, attribute = target.partition(":")
        try:
            tables[name] = getattr(import_module(module), attribute)
        except Exception as e:
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


def clashes(kind: str) -> dict[str, list[str]]:
    """Return the names that several packages give to parts of one kind, with what each means."""
    meant: dict[str, list[str]] = {name: [value] for name, value in BUILT_IN.get(kind, {}).items()}
    for point in brought(kind):
        if point.value not in meant.setdefault(point.name, []):
            meant[point.name].append(point.value)
    return {name: values for name, values in meant.items() if len(values) > 1}
