"""keep and revert: another revision becomes the agent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.cli.options import Json
from recreate.cli.terminal import emit, say, show
from recreate.runs.agents import find_agent, named_run

if TYPE_CHECKING:
    from recreate.builder.publish import Kept


def add(app: typer.Typer) -> None:
    """Put the commands on the app."""
    app.command("keep")(publish)
    app.command("revert")(revert)


def publish(
    revision: Annotated[str, typer.Argument(metavar="RUN:REVISION", help="A revision; a RUN alone: its last kept.")],
    name: Annotated[str, typer.Option("--as", help="The folder under scaffolds/; default: the run's domain.")] = "",
    as_json: Json = False,
) -> None:
    """Make a revision of a run, kept or dropped, the agent in scaffolds/.

    Example: recreate keep last:3f2a
    """
    from recreate.builder.publish import publish as put
    from recreate.runs.reader import Run

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
        raise BadInput(f"{here(folder)} is not a build", fix="give a run that build made", code="not-a-build")
    agent = find_agent(f"{folder}:{digest}" if colon else str(folder), where)
    name = name or str(next(iter(run.records("start")), {}).get("domain", run.settings.domain))
    _tell(put(agent, folder, _target(name, where)), as_json)


def revert(
    name: Annotated[str, typer.Argument(help="The folder under scaffolds/; default: the workspace's domain.")] = "",
    as_json: Json = False,
) -> None:
    """Put the revision before the present one back in scaffolds/NAME.

    Example: recreate revert swe
    """
    from recreate.agents.history import History
    from recreate.builder.publish import before, standing
    from recreate.builder.publish import publish as put
    from recreate.runs.reader import runs

    where = workspace()
    target = _target(name or _domain(where), where)
    digest = standing(target)
    if not digest:
        there = sorted(p.parent.name for p in (where / "scaffolds").glob("*/agent.toml"))
        raise BadInput(
            f"there is no scaffold at {here(target)}",
            fix=f"there are: {', '.join(there)}" if there else "recreate build makes one",
            code="no-scaffold",
        )
    folder, parent = before(digest, runs(where))
    _tell(put(History(folder / "scaffold.git").read(parent), folder, target), as_json)


def _domain(where: Path) -> str:
    from recreate.runs import settings
    from recreate.runs.session import open_domain

    chosen = settings.load(where)
    return str(open_domain(chosen, where).name) if ":" in chosen.domain else chosen.domain


def _target(name: str, where: Path) -> Path:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise BadInput(f"{name!r} cannot be a folder under scaffolds/", fix="give a plain name", code="bad-name")
    return where / "scaffolds" / name


def _tell(kept: Kept, as_json: bool) -> None:
    if as_json:
        emit(
            {
                "run": str(kept.run),
                "scaffold": {"path": str(kept.path), "digest": kept.digest},
                "before": kept.before or None,
            }
        )
    else:
        was = f" (it was {kept.before})" if kept.before not in ("", kept.digest) else ""
        show(f"{here(kept.path)} is now {kept.digest}{was}")
    say_back(kept)


def say_back(kept: Kept) -> None:
    """How what stood there comes back, if anything else did."""
    run = kept.run.name if kept.run.parent.name == "runs" else str(kept.run)
    if kept.saved:
        say(f"what stood in {here(kept.path)} was in no history of {run}; it is now, as human/{kept.before}")
    if kept.before not in ("", kept.digest):
        say(f"recreate keep {run}:{kept.before} --as {kept.path.name} puts it back")
