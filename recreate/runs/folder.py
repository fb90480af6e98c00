"""The folder of a run: where it is, what tells it from others, and how it is taken."""

from __future__ import annotations

import os
import time
from pathlib import Path

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonMap
from recreate.api.types import digest
from recreate.runs.journal import Journal
from recreate.runs.settings import Settings, flat, settings_text
from recreate.storage import files
from recreate.storage.log import now
from recreate.storage.redact import redacted

OPENED = frozenset(
    {"settings.toml", "journal.jsonl", "ledger.jsonl", "lock", "seed", "bench.toml", "scaffold.git"}
)
"""What a run folder holds before anything happens in it."""


def run_id(settings: Settings) -> str:
    """Return a run's id, derived from what was asked for, not from the clock: the same settings
    give the same id."""
    return digest(settings.identity(), 12)


def run_folder(workspace: Path, settings: Settings) -> Path:
    """Return --out, else runs/<domain>-<when>; a second run within the same second gets a
    number."""
    if settings.out:
        return _check_place(settings.out, workspace)
    name = f"{settings.domain.replace(':', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (name, *(f"{name}-{n}" for n in range(2, 10_000)))
    return next(folder for n in names if not (folder := workspace / "runs" / n).exists())


def _check_place(out: str, workspace: Path) -> Path:
    """Return the folder that --out names. Raises BadInput (`bad-out`) when no run could be kept
    there."""

    def bad(why: str) -> BadInput:
        shown = out if len(out) <= 80 else out[:77] + "..."
        return BadInput(
            f"{shown!r} cannot be a run folder: {why}",
            fix="give a plain path: --out runs/mine",
            code="bad-out",
        )

    if not out.strip() or not out.isprintable():
        raise bad("its name is empty, or has characters that cannot be seen")
    try:
        folder = Path(out).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as e:
        raise bad(str(e)) from None
    if len(os.fsencode(folder)) > 3500 or any(
        len(os.fsencode(part)) > 255 for part in folder.parts
    ):
        raise bad("its name is too long for a disk")
    if workspace.resolve().is_relative_to(folder):
        raise bad("the workspace itself lies there")
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if there.exists() and not there.is_dir():
        raise bad(f"{paths.short(there)} is a file")
    if there.exists() and not os.access(there, os.W_OK | os.X_OK):
        raise bad(f"{paths.short(there)} cannot be written")
    return folder


def check_free(folder: Path, resume: bool) -> None:
    """Raise BadInput for a folder that holds a run already, unless that goes on."""
    if (folder / "settings.toml").exists() and not resume:
        raise BadInput(
            f"{folder} already holds a run",
            fix=f"recreate resume {paths.short(folder)}, or give another folder with --out",
            code="run-exists",
        )


def check_keys(settings: Settings) -> None:
    """Raise BadInput for a key among the settings: they are written into settings.toml."""
    for address, value in flat(settings.model_dump(exclude={"out"})).items():
        if redacted(value) is not value:
            raise BadInput(
                f"{address} holds what looks like a key: it would be written into settings.toml",
                fix="leave it out, and put it into the environment, where the part reads it",
                code="key-in-setting",
            )


def take(journal: Journal, settings: Settings, facts: JsonMap) -> None:
    """Make the folder a run's, or go on with the one that began there: from now on it can be
    resumed. facts: what the journal's first line tells of the beginning."""
    folder = journal.folder
    with files.disk(folder):
        try:
            if folder.parent.name == "runs":  # with all that earlier versions left open there
                files.make_private(folder.parent)
            files.make_private(folder, journal.log.path.name)
        # /proc, /dev and the like
        except (FileNotFoundError, NotADirectoryError, FileExistsError) as e:
            raise BadInput(
                f"{folder} cannot be made: {e.strerror}", fix="give another --out", code="bad-out"
            ) from None
    journal.open()
    journal.check_beginning(domain=facts["domain"], model=facts["model"])
    journal.add("start", **facts, at=now())
    files.write(folder / "settings.toml", settings_text(settings), fix=files.RESUME)
