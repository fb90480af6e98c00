"""review, keep, revert: deciding on what waits for a person, and making another revision the
agent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.cli.build import go_on
from recreate.cli.options import Json, RunName, open_run
from recreate.cli.runner import say_back
from recreate.cli.terminal import answer, say

if TYPE_CHECKING:
    from recreate.api.types import Review
    from recreate.builder.publish import Kept


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
    from recreate.cli.reviewer import decided, describe, how, lay, read
    from recreate.viewer.markdown import revision_record

    where, found = workspace(), open_run(run)
    folder, revision = found.folder, found.waiting()
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
    parent, child = history.read(revision.parent), history.read(revision.id)
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


def keep(
    revision: Annotated[
        str, typer.Argument(metavar="RUN:REVISION", help="A revision; a RUN alone: its last kept.")
    ],
    name: Annotated[
        str,
        typer.Option(
            "--as",
            help="The folder under scaffolds/; default: the build's --name, else its domain.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Make a revision of a run, kept or dropped, the agent in scaffolds/.

    Example: recreate keep last:3f2a
    """
    from recreate.builder.publish import publish, target_of
    from recreate.runs.reader import Run, find_agent, named_run

    where = workspace()
    text, colon, digest = revision.rpartition(":")
    folder = named_run(text if colon else revision, where)
    if folder is None:
        raise BadInput(
            f"{text or revision!r} is not a run",
            fix="give RUN:REVISION; recreate log RUN lists the revisions of a run",
            code="no-run",
        )
    run = Run(folder)
    if run.seed() is None:
        raise BadInput(
            f"{here(folder)} is not a build", fix="give a run that build made", code="not-a-build"
        )
    agent = find_agent(f"{folder}:{digest}" if colon else str(folder), where)
    name = (
        name
        or run.settings.name
        or str(next(iter(run.records("start")), {}).get("domain", run.settings.domain))
    )
    _show_kept(publish(agent, folder, target_of(name, where)), as_json)


def revert(
    name: Annotated[
        str, typer.Argument(help="The folder under scaffolds/; default: the workspace's domain.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Put the revision before the present one back in scaffolds/NAME.

    Example: recreate revert swe
    """
    from recreate.agents.history import History
    from recreate.builder.publish import before, publish, standing, target_of
    from recreate.runs.reader import runs

    where = workspace()
    target = target_of(name or _domain(where), where)
    digest = standing(target)
    if not digest:
        there = sorted(p.parent.name for p in (where / "scaffolds").glob("*/agent.toml"))
        raise BadInput(
            f"there is no scaffold at {here(target)}",
            fix=f"there are: {', '.join(there)}" if there else "recreate build makes one",
            code="no-scaffold",
        )
    folder, parent = before(digest, runs(where))
    _show_kept(publish(History(folder / "scaffold.git").read(parent), folder, target), as_json)


def _domain(where: Path) -> str:
    from recreate.runs import settings
    from recreate.runs.opening import open_domain

    chosen = settings.load(where)
    return chosen.name or (
        str(open_domain(chosen, where).name) if ":" in chosen.domain else chosen.domain
    )


def _show_kept(kept: Kept, as_json: bool) -> None:
    scaffold = {"path": str(kept.path), "digest": kept.digest}
    was = f" (it was {kept.before})" if kept.before not in ("", kept.digest) else ""
    record = {"run": str(kept.run), "scaffold": scaffold, "before": kept.before or None}
    answer(as_json, record, f"{here(kept.path)} is now {kept.digest}{was}")
    say_back(kept)
