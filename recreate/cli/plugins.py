"""plugins: what is installed besides the core, what each brings, and whether it works."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from recreate.api import plugins, registry
from recreate.api.errors import Missing, RecreateError
from recreate.api.plugins import EntryPoint
from recreate.api.shapes import JsonDict
from recreate.cli.app import COMMANDS
from recreate.cli.options import Json
from recreate.cli.terminal import answers

NO_PARTS = ("plugins", "command", "settings", "variant")


def list_plugins(as_json: Json = False) -> None:
    """List the plug-ins that are installed, recreate's own and others': what each brings, what it
    needs, and whether it works.

    Example: recreate plugins
    """
    rows = ((row, _line(row)) for row in describe_plugins())
    answers(as_json, rows, "no plug-in is installed")


def describe_plugins() -> Iterator[JsonDict]:
    """Yield a row for each plug-in, by name."""
    by_plugin: dict[str, list[EntryPoint]] = {}
    for point in plugins.declared():
        by_plugin.setdefault(point.plugin, []).append(point)
    yield from (_describe(name, by_plugin[name]) for name in sorted(by_plugin))


def _describe(name: str, points: list[EntryPoint]) -> JsonDict:
    """Return one plug-in as a row; everything that it brings is imported."""
    about = ""
    needs = list[str]()
    state = "not installed"
    if points[0].present:
        state = next(_faults(points), "ready")
        folders = [point.module for point in points if point.kind == "plugins"]
        top = folders[0] if folders else points[0].module.partition(".")[0]
        try:
            needs = [*getattr(import_module(top), "NEEDS", ())]
            about = (import_module(top).__doc__ or "").strip().partition("\n")[0]
        except BaseException as e:
            state = state if state != "ready" else f"broken: {e}"
    tables = plugins.settings_tables()
    brings = {
        "parts": [f"{p.kind.replace('_', '-')} {p.name}" for p in points if p.kind not in NO_PARTS],
        "commands": [p.name.replace(".", " ") for p in points if p.kind in ("command", "variant")],
        "settings": [
            f"{p.name}.{field}"
            for p in points
            if p.kind == "settings" and p.name in tables
            for field in tables[p.name].model_fields
        ],
    }
    package = points[0].package
    return {
        "name": name,
        "about": about,
        "package": package,
        "brings": brings,
        "needs": needs,
        "state": state,
    }


def _faults(points: list[EntryPoint]) -> Iterator[str]:
    """Yield what is wrong with what a plug-in brings, in words."""
    for point in points:
        named = point.name.replace(".", " ")
        if values := plugins.clashes(point.kind).get(point.name):
            yield f"clash: {point.kind} {named} is brought by {' and '.join(values)}"
        elif point.kind == "command" and named in COMMANDS:
            yield f"clash: {named} is a command of recreate itself"
        elif point.kind != "plugins":
            try:
                registry.find(point.kind, point.name)
            except Missing as e:
                yield f"needs more: {e.fix}"
            except RecreateError as e:
                yield f"broken: {e.message}"


def _line(row: JsonDict) -> str:
    brings = row["brings"]
    lines = [f"{row['name']:<14}  {row['state']:<7}  {row['about']}".rstrip()]
    for what, named in brings.items():
        if named:
            lines.append(f"{'':<16}{what}: {', '.join(named)}")
    if row["needs"]:
        lines.append(f"{'':<16}needs: {', '.join(row['needs'])}")
    return "\n".join(lines)
