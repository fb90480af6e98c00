"""review: deciding on the candidate that waits for a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.cli.build import go_on, how
from recreate.cli.options import Json, RunName, open_run
from recreate.cli.terminal import answer, say

if TYPE_CHECKING:
    from recreate.api.types import Review


def review(
    run: RunName = "last",
    accept: Annotated[
        bool, typer.Option("--accept", help="Keep it, and go on with the build.")
    ] = False,
    reject: Annotated[
        str | None, typer.Option("--reject", help="Drop it; the optimizer reads why.")
    ] = None,
    edit: Annotated[
        bool, typer.Option("--edit", help="Lay its files in RUN/review; again: judge them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the candidate that waits for you: diff, evidence, verdict. With a flag: decide, and go
    on with the build.

    Example: recreate review last --reject "it says the same as the line above"
    """
    from recreate.agents.history import History
    from recreate.agents.scaffold import diff
    from recreate.api.types import Review
    from recreate.plugins.review.terminal import decided, describe, lay, read
    from recreate.viewer.markdown import revision_record

    where = workspace()
    found = open_run(run)
    folder = found.folder
    revision = found.waiting()
    if accept + (reject is not None) + edit > 1:
        raise BadInput(
            "more than one decision was given", fix="give one of --accept, --edit, --reject WHY"
        )
    if revision is None:
        nothing = f"nothing waits for a review in {here(folder)}"
        if accept or edit or reject is not None:
            raise BadInput(
                nothing,
                fix=(
                    f"recreate resume {here(folder)} goes on; recreate log {here(folder)} shows"
                    " what was decided"
                ),
                code="nothing-waits",
            )
        answer(as_json, {"run": str(folder), "waiting": False}, nothing)
        return
    history = History(folder / "scaffold.git")
    parent = history.read(revision.parent)
    child = history.read(revision.id)
    decision: Review | None = None
    if accept:
        decision = Review(decision="accept")
    elif reject is not None:
        if not reject.strip():
            raise BadInput(
                "a rejection needs a reason",
                fix='--reject "WHY": the optimizer reads it',
                code="no-reason",
            )
        decision = Review(decision="reject", reason=reject.strip())
    elif edit and not lay(folder, child):
        decision = read(folder, child)
    if decision is not None:
        go_on(folder, where, as_json, decided(revision.id, decision))
        return
    record = {"run": str(folder), "waiting": True}
    place = folder / "review"
    if edit:
        text = f"the candidate's files lie in {here(place)}; edit them, then the same command again"
        answer(as_json, {**record, "review": str(place)}, text)
    elif as_json:
        answer(True, {**record, **revision_record(revision), "diff": diff(parent, child)})
    else:
        answer(False, {}, describe(revision, parent, child, folder, where, sys.stdout))
        say(f"\n{how(folder)}")
