"""The commands, put together. Each lives beside its kind; nothing heavy is imported here."""

from __future__ import annotations

from typing import Annotated

import typer

from recreate import __version__
from recreate.cli import (
    bench,
    build,
    judging,
    keep,
    memory,
    models,
    patterns,
    review,
    sandbox,
    show,
    studies,
    tasks,
    trace_files,
    traces,
    train,
    workspace,
)

app = typer.Typer(
    name="recreate",
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
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Creates LLM agents for a domain from experience."""


for part in (build, bench, review, keep, show, workspace, judging, train):
    part.add(app)
trace_files.add(traces.app)
app.add_typer(traces.app, name="traces")
app.add_typer(studies.app, name="studies")
app.add_typer(tasks.app, name="tasks")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(sandbox.scaffold, name="scaffold")
app.add_typer(models.app, name="models")
app.add_typer(memory.app, name="memory")
app.add_typer(patterns.app, name="patterns")
tasks.add(app)
