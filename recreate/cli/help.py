"""What `--help` shows: flags in groups, summaries whole, and of all commands the five to begin with
first.

Plain text, as typer writes it without rich: rich's import would be a third of what `recreate
--help` takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand, TyperGroup

BEGIN = {
    "demo": "Watch an agent being created: a minute, no key, nothing to pay.",
    "init": "Make a workspace. Overwrites nothing.",
    "doctor": "Say what works here, and what to type for what does not.",
    "build": "Create an agent for a domain from experience.",
    "view": "Look at all of it in a browser, while it runs.",
}
"""The commands to begin with, in the order in which a newcomer types them, each in one line."""

MORE: Mapping[str, tuple[str, ...]] = {
    "build more": ("plan", "resume", "review", "keep", "revert", "export"),
    "look": ("show", "log", "diff", "blame", "traces", "studies", "memory", "patterns"),
    "measure": (
        "run",
        "bench",
        "compare",
        "judge",
        "calibrate",
        "turn-limit",
        "ablate",
        "transfer",
        "ci",
        "tasks",
        "grade",
    ),
    "train": ("tune", "recipes", "serve"),
    "set up": ("list", "plugins", "models", "scaffold", "sandbox", "clean"),
}
"""The others, by what they are for; what is in none of these stands at the end."""


HELP_ALL = "--help-all"
MANY = 16
"""A command with more settings than that shows those of NEEDED alone."""
NEEDED = (
    "domain",
    "data",
    "model",
    "models.optimizer",
    "optimizer",
    "budget",
    "rounds",
    "train",
    "validation",
    "out",
)

ALIASES = {"credit": "ablate", "rebase": "transfer", "limits": "turn-limit"}
"""Names that commands had before: taken, and not shown."""


def panel_of(address: str) -> str:
    """Return the group of a setting's flag; '' for what has no place in one."""
    return _PANELS.get(address) or _PANELS.get(address.partition(".")[0] + ".*", "")


GROUPS: Mapping[str, tuple[str, ...]] = {
    "Tasks": ("domain", "data", "repos", "prompt", "score", "columns.*", "select.*"),
    "Agent": ("scaffold", "name", "fresh", "limits.*"),
    "Models": (
        "model",
        "models.optimizer",
        "price",
        "models.optimizer_price",
        "models.*",
    ),
    "Optimizer": (
        "optimizer",
        "optimizer_settings",
        "without",
        "review",
        "from_experience",
        "study.*",
    ),
    "Memory": ("memory.*",),
    "How much": (
        "budget",
        "rounds",
        "train",
        "validation",
        "repeats",
        "batch",
        "choose",
        "jobs",
        "seed",
    ),
    "Gate": ("gate.*",),
    "Where": ("out", "sandbox", "record", "record_replies_only", "replay", "cache"),
}
"""Group of flags -> the addresses in it; `x.*` is the rest of a table."""

_PANELS = {address: title for title, addresses in GROUPS.items() for address in addresses}


class Command(TyperCommand):
    """A command whose flags are shown in their groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _options(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands, each with its whole summary. A name in capitals stands for any word."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names, and what follows it: with that word, where
        the command stands for any."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            refuse_absent(" ".join([*ctx.command_path.split()[1:], args[0]]))
            if other := next((name for name in self.commands if name.isupper()), ""):
                return other, self.commands[other], args
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.commands]  # typer's own makes each of them

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, _summary_of(self.commands, name)) for name in self.list_commands(ctx)]
            )
        _options(self, ctx, formatter)


class Top(Group):
    """All of recreate, on one screen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names, also by the name that it had before."""
        return super().resolve_command(ctx, [ALIASES.get(args[0], args[0]), *args[1:]])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Begin with"):
            formatter.write_dl(list(BEGIN.items()))
        known = {name for names in MORE.values() for name in names} | set(BEGIN)
        rest = tuple(name for name in self.list_commands(ctx) if name not in known)
        rows = [*MORE.items(), *([("more", rest)] if rest else [])]
        with formatter.section("Then, each with --help of its own"):
            formatter.write_dl(
                [
                    (title, ", ".join(n for n in names if n in self.commands))
                    for title, names in rows
                ]
            )
        _options(self, ctx, formatter)


def refuse_absent(words: str) -> None:
    """Raise BadInput for a command, or a group of them, of a plug-in that is not there."""
    from recreate.api.plugins import declared
    from recreate.api.registry import absent

    for point in declared():
        named = point.name.replace(".", " ")
        if point.kind == "command" and not point.present and f"{named} ".startswith(f"{words} "):
            raise absent("command", point.name, f"there is no command {words!r} here")


def _summary_of(commands: Mapping[str, Any], name: str) -> str:
    """Return what a command does, or why the plug-in that brings it cannot be loaded."""
    from recreate.api.errors import RecreateError

    try:
        return summary(commands[name])
    except RecreateError as e:
        return e.message


def summary(command: Any) -> str:
    """Return what a command does: the first sentences of its help, whole, up to the first empty
    line."""
    first: str = (command.help or "").replace("\f", "").partition("\n\n")[0]
    return " ".join(first.split())


def _options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write a command's arguments, its own flags, then those of the settings: group by group, or of
    many the ones that people need."""
    shown = [(p, p.get_help_record(ctx)) for p in command.get_params(ctx)]
    params = [(param, record) for param, record in shown if record is not None]
    settings = [param for param, _ in params if getattr(param, "rich_help_panel", None)]
    short = len(settings) > MANY and not ctx.meta.get(HELP_ALL)
    rows: dict[str, list[tuple[str, str]]] = {}
    for param, record in params:
        if param.param_type_name == "argument":
            rows.setdefault("Arguments", []).append(record)
        elif not short or param not in settings:
            rows.setdefault(param.rich_help_panel or "Options", []).append(record)
        elif param.name.replace("__", ".") in NEEDED:
            rows.setdefault("Settings", []).append(record)
    order = [title for title in ("Arguments", "Settings", *GROUPS) if title in rows]
    for title in [*order, *(title for title in rows if title not in order)]:
        with formatter.section(title):
            formatter.write_dl(rows[title])
    if short:
        rest = len(settings) - len(rows.get("Settings", ()))
        formatter.write_paragraph()
        formatter.write_text(f"{HELP_ALL} shows {rest} settings more, by what they are about.")
