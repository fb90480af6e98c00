"""A command's session with its screen: how it is opened, and how it stops cleanly."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from recreate.api.config import SCHEMA
from recreate.api.errors import Fault, Interrupted, OutOfBudget
from recreate.api.paths import short as here
from recreate.cli.screen import Screen
from recreate.cli.terminal import Progress, printable, say
from recreate.runs.settings import Settings
from recreate.storage import files
from recreate.viewer.text import json_text

if TYPE_CHECKING:
    from recreate.api.ports import Model
    from recreate.builder.publish import Kept
    from recreate.runs.opening import Parts
    from recreate.runs.session import Session


def stopped_by_budget(go_on: str, cap: str = "--budget") -> None:
    """Say it, and exit with its code. go_on: what to type to go on; cap: the flag that is to be
    larger then."""
    say(f"stopped by the budget; {go_on} {cap} MORE goes on")
    raise typer.Exit(OutOfBudget.exit_code)


def say_back(kept: Kept) -> None:
    """Say how what stood there comes back, if anything else did."""
    run = kept.run.name if kept.run.parent.name == "runs" else str(kept.run)
    if kept.saved:
        say(
            f"what stood in {here(kept.path)} was in no history of {run}; it is now, as"
            f" human/{kept.before}"
        )
    if kept.before not in ("", kept.digest):
        say(f"recreate keep {run}:{kept.before} --as {kept.path.name} puts it back")


@contextmanager
def open_with_screen(
    settings: Settings,
    where: Path,
    folder: Path,
    *,
    resume: bool = False,
    parts: Parts | None = None,
    command: str = "",
    go_on: str = "",
    scaffold: str = "",
) -> Iterator[Session]:
    """Open a session with its screen; Ctrl-C and SIGTERM stop it cleanly, a second Ctrl-C at once.

    command: what was asked for; go_on: what to type to go on; default: `recreate resume` of the
    folder. scaffold: what must be there, besides what the settings name.
    """
    from recreate.builder.sdk import check_scaffold, stopping
    from recreate.runs.session import open_session

    check_scaffold(folder, where, scaffold or settings.scaffold)
    screen = Screen(settings.jobs, settings.rounds)
    go_on = go_on or f"recreate resume {here(folder)}"
    fresh = not folder.exists()
    with _disk(go_on):
        session = open_session(
            settings,
            where,
            folder,
            say=screen,
            resume=resume,
            parts=parts,
            command=command,
            ready=partial(prepare_model, screen=screen),
        )
    screen.ledger = session.ledger
    with _disk(go_on), session.closing(fresh), screen:
        try:
            with stopping(session, go_on, (signal.SIGINT, signal.SIGTERM), screen.line, _end):
                yield session
        except OutOfBudget as e:
            raise OutOfBudget(e.message, fix=f"{go_on} --budget MORE goes on") from None


@contextmanager
def _disk(go_on: str) -> Iterator[None]:
    """Say of what the disk refused how this very command goes on."""
    try:
        yield
    except Fault as e:
        if not files.of_disk(e):
            raise
        free = "free some disk space" if e.fix == files.RESUME else e.fix
        raise Fault(
            e.message, fix=f"{free}, then {go_on}: what ended is not paid again", code=e.code
        ) from None


def _end(go_on: str) -> NoReturn:
    """End this process as a kill would, which every run survives: a thread that waits for a call
    ends with no other.

    Written past the screen, whose locks whoever was interrupted may hold.
    """
    stopped = Interrupted(
        "at once; what ended is on disk, the calls in flight are made again", fix=printable(go_on)
    )
    shown = "\033[?25h\n" if sys.stderr.isatty() else ""  # the panel hides the cursor
    os.write(2, f"{shown}stopped: {stopped.message}\n  fix: {stopped.fix}\n".encode())
    if "--json" in sys.argv:
        os.write(1, f"{json_text({'schema': SCHEMA, **stopped.record()})}\n".encode())
    os._exit(Interrupted.exit_code)


def folder_of(settings: Settings, where: Path, name: str) -> Path:
    """Return the run folder that --out names, else one under runs/ that is called NAME-DATE."""
    from recreate.runs.folder import run_folder

    return run_folder(
        where, settings if settings.out else settings.model_copy(update={"domain": name})
    )


def prepare_model(model: Model, screen: Screen | None = None) -> None:
    """Fetch and start a model as a library user's is, with progress on the screen."""
    from recreate.api.ports import Preparable
    from recreate.builder import sdk

    if isinstance(model, Preparable):
        with screen.aside() if screen else nullcontext(), Progress(model.name) as progress:
            sdk.prepare_model(model, progress, say)
