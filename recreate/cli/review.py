"""review: what waits for a person, and deciding on it, at once on a terminal or later by a command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.types import Review
from recreate.cli.options import Json
from recreate.cli.terminal import emit, say, show


def add(app: typer.Typer) -> None:
    """Put the command on the app."""
    app.command("review")(review)


def review(
    run: Annotated[str, typer.Argument(help="A run folder, its name under runs/, or `last`.")] = "last",
    accept: Annotated[bool, typer.Option("--accept", help="Keep it, and go on with the build.")] = False,
    reject: Annotated[str | None, typer.Option("--reject", help="Drop it; the optimizer reads why.")] = None,
    edit: Annotated[bool, typer.Option("--edit", help="Lay its files in RUN/review; again: judge them.")] = False,
    as_json: Json = False,
) -> None:
    """Show the candidate that waits for you: diff, evidence, verdict. With a flag: decide, and go on with the build.

    Example: recreate review last --reject "it says the same as the line above"
    """
    from recreate.agents.history import History
    from recreate.agents.scaffold import diff
    from recreate.cli.reviewer import decided, how, lay, read, told
    from recreate.cli.runner import go_on
    from recreate.runs.reader import Run, find_run
    from recreate.viewer.markdown import revision_record

    where = workspace()
    seen = Run(find_run(run, where))
    folder, revision = seen.folder, seen.waiting()
    if accept + (reject is not None) + edit > 1:
        raise BadInput("more than one decision was given", fix="give one of --accept, --edit, --reject WHY")
    if revision is None:
        if accept or edit or reject is not None:
            raise BadInput(
                f"nothing waits for a review in {here(folder)}",
                fix=f"recreate resume {here(folder)} goes on; recreate log {here(folder)} shows what was decided",
                code="nothing-waits",
            )
        if as_json:
            emit({"run": str(folder), "waiting": False})
        else:
            show(f"nothing waits for a review in {here(folder)}")
        return
    history = History(folder / "scaffold.git")
    parent, child = history.read(revision.parent), history.read(revision.id)
    said: Review | None = None
    if accept:
        said = Review(decision="accept")
    elif reject is not None:
        if not reject.strip():
            raise BadInput("a rejection needs a reason", fix='--reject "WHY": the optimizer reads it', code="no-reason")
        said = Review(decision="reject", reason=reject.strip())
    elif edit and not lay(folder, child):
        said = read(folder, child)
    if said is not None:
        go_on(folder, where, as_json, decided(revision.id, said))
    elif edit:
        if as_json:
            emit({"run": str(folder), "waiting": True, "review": str(folder / "review")})
        else:
            show(f"the candidate's files lie in {here(folder / 'review')}; edit them, then the same command again")
    elif as_json:
        text = diff(parent, child)
        emit({"run": str(folder), **revision_record(revision), "waiting": True, "diff": text})
    else:
        show(told(revision, parent, child, seen.folder, where, sys.stdout.isatty()))
        say(f"\n{how(folder)}")
