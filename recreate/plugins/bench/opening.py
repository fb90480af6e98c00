"""The session of a command that measures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from recreate.api.paths import short as here
from recreate.cli.runner import open_with_screen
from recreate.runs.settings import Settings

if TYPE_CHECKING:
    from recreate.runs.session import Session


@contextmanager
def open_measuring(
    settings: Settings, where: Path, folder: Path, command: str = ""
) -> Iterator[Session]:
    """Open a session as `open_with_screen` does, for a command that goes on when it is given the
    same folder again."""
    again = (folder / "settings.toml").exists()
    go_on = f"the same command with --out {here(folder)}"
    with open_with_screen(
        settings, where, folder, resume=again, command=command, go_on=go_on
    ) as session:
        yield session
