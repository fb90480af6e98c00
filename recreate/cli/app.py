"""The commands, put together. Each lives beside its kind, and is imported when it is asked for:
reading every flag of every command takes longer than most commands do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from typing import Annotated, Any

import typer

from recreate import __version__
from recreate.api.shapes import JsonMap
from recreate.cli.help import HELP_ALL, Command, Group, Top

app = typer.Typer(
    name="recreate",
    cls=Top,
    help="Creates LLM agents for a domain from experience.\n\nExample: recreate build --domain swe",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"recreate {__version__}")
        raise typer.Exit


@app.callback()
def recreate(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Creates LLM agents for a domain from experience."""


GROUPS = {
    "tasks": "The tasks of a domain.\n\nExample: recreate tasks list swe",
    "sandbox": (
        "Run a command the way agents' commands are run.\n\nExample: recreate sandbox exec -- id"
    ),
    "scaffold": "Look an agent's folder over.\n\nExample: recreate scaffold check seed",
}

COMMANDS = {
    "build": "build.build",
    "resume": "build.resume",
    "plan": "build.plan",
    "run": "build.run",
    "log": "show.log",
    "show": "show.show",
    "diff": "show.diff",
    "init": "workspace.init",
    "doctor": "doctor.doctor",
    "clean": "doctor.clean",
    "list": "workspace.list_",
    "plugins": "plugins.list_plugins",
    "grade": "tasks.grade",
    "tasks list": "tasks.list_",
    "tasks check": "tasks.check",
    "sandbox exec": "sandbox.execute",
    "scaffold check": "sandbox.check",
}
"""The words of each of the core's commands -> the module in this folder, and the function in it.
A plug-in's are entry points of the group `recreate.command`, where a dot stands for the space."""


@cache
def targets() -> Mapping[str, str]:
    """Return the words of each command there is -> its `module:function`."""
    from recreate.api.plugins import names

    core = {words: f"recreate.cli.{to.replace('.', ':')}" for words, to in COMMANDS.items()}
    return {name.replace(".", " "): to for name, to in names("command").items()} | core


def _load(words: str) -> Any:
    """Return the function behind a command. Raises BadInput for a plug-in that fails to load."""
    if words in COMMANDS:
        module, _, function = COMMANDS[words].partition(".")
        return getattr(import_module(f"recreate.cli.{module}"), function)
    from recreate.api.registry import find

    return find("command", words.replace(" ", "."))


class _Command(Command):
    """A command whose flags are taken in each of their spellings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # which reads all settings: `recreate --help` does without
        from recreate.cli.options import as_shown

        end = args.index("--") if "--" in args else len(args)
        words = as_shown(args[:end], ctx.command_path.split()[1])
        for at, word in enumerate(words):
            if word == HELP_ALL:
                ctx.meta[HELP_ALL], words[at] = True, "--help"
            # a flag with a value that may be left out, which click has no more
            elif word == "--cache" and (at + 1 == end or words[at + 1].startswith("-")):
                words[at] = "--cache=on"
        parsed: list[str] = super().parse_args(ctx, [*words, *args[end:]])
        return parsed


class _Commands(JsonMap):
    """Those of a group by their names, made one by one. words: the group's."""

    def __init__(self, words: str) -> None:
        self.above = f"{words} " if words else ""

    @cached_property
    def _names(self) -> Mapping[str, None]:
        """The names, which are all read only where somebody wants all of them."""
        return self._in(targets())

    def _in(self, commands: Iterable[str]) -> dict[str, None]:
        below = (each.removeprefix(self.above) for each in commands if each.startswith(self.above))
        return dict.fromkeys(each.partition(" ")[0] for each in below)

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return _make_command(self.above + name)

    def __contains__(self, name: object) -> bool:
        return name in self._in(COMMANDS) or name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def _make_command(words: str) -> Any:
    """Return the command, or the group of commands, that is called by these words; '' for the whole
    program."""
    if words in COMMANDS or words in targets():
        own = typer.Typer(add_completion=False, rich_markup_mode=None)
        # what follows is its own
        settings = {"allow_interspersed_args": False} if words == "sandbox exec" else None
        own.command(words.rpartition(" ")[2], cls=_Command, context_settings=settings)(_load(words))
        return typer.main.get_command(own)
    group = app
    if words:
        group = typer.Typer(
            name=words,
            cls=Group,
            help=_group_help(words),
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        group.callback()(lambda: None)  # it stays a group, also with one command
    made: Any = typer.main.get_group(group)
    made.commands = _Commands(words)
    return made


def _group_help(words: str) -> str:
    """Return what a group of commands says of itself; a plug-in's is its module's docstring."""
    if words in GROUPS:
        return GROUPS[words]
    first = next(target for name, target in targets().items() if name.startswith(f"{words} "))
    try:
        return import_module(first.partition(":")[0]).__doc__ or ""
    except Exception as e:  # each of its commands says which plug-in that is
        return f"It cannot be loaded: {e}"


def program() -> Any:
    """Return all of it as the one command that is run."""
    return _make_command("")
