"""export: an agent taken along, for a tool that runs without recreate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short, workspace
from recreate.cli.options import Json
from recreate.cli.terminal import answer


def export(
    scaffold: Annotated[
        str,
        typer.Argument(help="A scaffold's folder or name, a run for its result, or RUN:DIGEST."),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--to", help="skill, agents-md, claude-md, mini-swe-agent, langgraph, inspect."
        ),
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", help="The new folder.")] = None,
    as_json: Json = False,
) -> None:
    """Write an agent for another tool, which runs it without recreate, and say in what it differs
    there.

    Example: recreate export seed --to skill --out shell-work
    """
    from recreate.plugins.export import TARGETS
    from recreate.plugins.export import export as write
    from recreate.runs.reader import find_agent

    if not target:
        raise BadInput("no target is named", fix=f"--to one of: {', '.join(TARGETS)}", code="usage")
    if out is None:
        raise BadInput("no folder is named", fix=f"--out {target}-export", code="usage")
    made = write(find_agent(scaffold, workspace()), target, out)
    lines = [f"{target}: {short(out)} ({', '.join(made.files)})"]
    lines += [f"differs: {text}" for text in made.differences]
    answer(as_json, made.row(), *lines)
