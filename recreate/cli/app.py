"""The commands, put together. Each lives beside its kind, and is imported when it is asked for:
reading every flag of every command takes longer than most commands do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from recreate import __version__
from recreate.cli.help import Command, Group, Top

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
    "traces": "What agents did, step by step.\n\nExample: recreate traces list last --failed",
    "studies": "What the optimizer looked at and concluded.\n\nExample: recreate studies list last",
    "tasks": "The tasks of a domain.\n\nExample: recreate tasks list swe",
    "sandbox": (
        "Run a command the way agents' commands are run.\n\nExample: recreate sandbox exec -- id"
    ),
    "scaffold": "Look an agent's folder over.\n\nExample: recreate scaffold check seed",
    "models": "Models that run on this machine.\n\nExample: recreate models list",
    "recipes": "How a model is trained.\n\nExample: recreate recipes list",
    "memory": (
        'Ask what was attempted in this workspace.\n\nExample: recreate memory recall "width of a'
        ' tab"'
    ),
    "patterns": "What experience taught, and your word on it.\n\nExample: recreate patterns list",
}

COMMANDS = {
    "demo": "demo.demo",
    "build": "build.build",
    "resume": "build.resume",
    "plan": "build.plan",
    "run": "build.run",
    "bench": "bench.bench",
    "review": "review.review",
    "keep": "review.keep",
    "revert": "review.revert",
    "log": "show.log",
    "show": "show.show",
    "diff": "show.diff",
    "blame": "show.blame",
    "view": "view.view",
    "init": "workspace.init",
    "doctor": "workspace.doctor",
    "clean": "workspace.clean",
    "list": "workspace.list_",
    "export": "export.export",
    "ci": "ci.ci",
    "compare": "bench.compare",
    "judge": "bench.judge",
    "calibrate": "bench.calibrate",
    "limits": "bench.limits",
    "credit": "knockouts.credit",
    "rebase": "knockouts.rebase",
    "tune": "train.tune",
    "recipes list": "train.list_recipes",
    "recipes show": "train.show_recipe",
    "serve": "train.serve",
    "grade": "tasks.grade",
    "traces list": "traces.list_",
    "traces show": "traces.show",
    "traces search": "traces.search",
    "traces import": "trace_files.import_",
    "traces grade": "trace_files.grade",
    "traces judge": "trace_files.judge",
    "traces export": "trace_files.export",
    "studies list": "show.list_studies",
    "studies show": "show.show_study",
    "tasks list": "tasks.list_",
    "tasks check": "tasks.check",
    "tasks audit": "tasks.audit",
    "tasks agree": "tasks.agree",
    "tasks make": "tasks.make",
    "tasks invent": "tasks.invent",
    "tasks rate": "tasks.rate",
    "sandbox exec": "sandbox.execute",
    "scaffold check": "sandbox.check",
    "models list": "models.list_",
    "models fetch": "models.fetch",
    "memory recall": "memory.recall",
    "memory browse": "view.browse",
    "memory stats": "memory.stats",
    "memory rebuild": "memory.rebuild",
    "memory export": "memory.export",
    "memory import": "memory.import_",
    "memory prune": "memory.prune",
    "memory forget": "memory.forget",
    "memory add": "memory.add",
    "memory serve": "memory_server.serve",
    "patterns list": "memory.list_lessons",
    "patterns show": "memory.show_lesson",
    "patterns freeze": "memory.freeze",
    "patterns veto": "memory.veto",
    "patterns keep": "memory.keep",
    "patterns split": "memory.split",
    "patterns diff": "memory.diff",
}
"""The words of each -> the module in this folder, and the function in it."""


class _Command(Command):
    """A command whose flags are taken in each of their spellings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from recreate.cli.options import (
            as_shown,
        )  # which reads all settings: `recreate --help` does without

        own = args.index("--") if "--" in args else len(args)
        words = as_shown(args[:own], ctx.command_path.split()[1])
        for at, word in enumerate(
            words
        ):  # a flag with a value that may be left out, which click has no more
            if word == "--cache" and (at + 1 == own or words[at + 1].startswith("-")):
                words[at] = "--cache=on"
        parsed: list[str] = super().parse_args(ctx, [*words, *args[own:]])
        return parsed


class _Commands(Mapping[str, Any]):
    """Those of a group by their names, made one by one. words: the group's."""

    def __init__(self, words: str) -> None:
        above = f"{words} " if words else ""
        found = [each.removeprefix(above) for each in COMMANDS if each.startswith(above)]
        self.words = {
            name: above + name for name in dict.fromkeys(each.partition(" ")[0] for each in found)
        }

    def __getitem__(self, name: str) -> Any:
        return _made(self.words[name])

    def __contains__(self, name: object) -> bool:
        return name in self.words

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)


@cache
def _made(words: str) -> Any:
    """The command, or the group of commands, that is called by these words; '' for the whole
    program."""
    if words in COMMANDS:
        module, _, function = COMMANDS[words].partition(".")
        own = typer.Typer(add_completion=False, rich_markup_mode=None)
        settings = (
            {"allow_interspersed_args": False} if words == "sandbox exec" else None
        )  # what follows is its own
        own.command(words.rpartition(" ")[2], cls=_Command, context_settings=settings)(
            getattr(import_module(f"recreate.cli.{module}"), function)
        )
        return typer.main.get_command(own)
    group = app
    if words:
        group = typer.Typer(
            name=words, cls=Group, help=GROUPS[words], no_args_is_help=True, rich_markup_mode=None
        )
        group.callback()(lambda: None)  # it stays a group, also with one command
    made: Any = typer.main.get_group(group)
    made.commands = _Commands(words)
    return made


def program() -> Any:
    """All of it as the one command that is run."""
    return _made("")
