"""keep and revert: making another revision the agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recreate.agents.history import Commit, History
from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.cli.options import Json
from recreate.cli.runner import say_back
from recreate.cli.terminal import answer

if TYPE_CHECKING:
    from recreate.builder.publish import Kept


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

    from recreate.builder.publish import publish, standing, target_of
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
    folder, parent = find_before(digest, runs(where))
    _show_kept(publish(History(folder / "scaffold.git").read(parent), folder, target), as_json)


def find_before(digest: str, folders: list[Path]) -> tuple[Path, str]:
    """Return (the run, the digest of the parent) of a revision, from the first of the run folders
    that has it.

    Raises BadInput when it is the first of its lineage, or in none.
    """
    begun: Path | None = None
    found: list[tuple[bool, Path, str]] = []
    for folder in folders:
        entries = {e.sha: e for e in History(folder / "scaffold.git").log()}
        for entry in entries.values():
            if entry.digest == digest and entry.parent in entries:
                found.append((_by_hand(entry), folder, entries[entry.parent].digest))
            elif entry.digest == digest:
                begun = begun or folder
    # a revision of one run may have been saved as a person's files in a newer one
    for by_hand in (False, True):
        for hand, folder, parent in found:
            if hand == by_hand:
                return folder, parent
    if begun:
        raise BadInput(
            f"{digest} is where {begun.name} began: no run has a revision before it",
            fix=(
                f"recreate keep {begun.name}:REVISION chooses a later one; recreate log"
                f" {begun.name} lists them"
            ),
            code="no-parent",
        )
    raise BadInput(
        f"{digest} is no revision of any run here: it was written by hand",
        fix="recreate keep RUN:REVISION puts another in its place, and saves this one first",
        code="no-revision",
    )


def _by_hand(entry: Commit) -> bool:
    return entry.branch.startswith("human/")


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
