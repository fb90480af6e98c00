"""What a recording is, and how a run began: what settings ask of it before anything is replayed.

FOLDER/settings.toml       the run's settings, without what is free to change
FOLDER/journal.jsonl.gz    of its journal what a replay needs; a run folder has journal.jsonl
FOLDER/seed/               the agent that a build began with
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.storage.log import unseal

JOURNAL = "journal.jsonl"
PACKED = JOURNAL + ".gz"
SETTINGS = "settings.toml"


@contextmanager
def open_lines(folder: Path) -> Iterator[IO[bytes]]:
    """Open the lines of a run folder or a recording. Raises BadInput (no-cassette, damaged)."""
    packed = folder / PACKED
    try:
        with gzip.open(packed) if packed.exists() else (folder / JOURNAL).open("rb") as file:
            yield file  # type: ignore[misc]
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"{paths.short(folder)} is neither a run nor a recording of one",
            fix="recreate build ... --record DIR makes one; runs lie under runs/",
            code="no-cassette",
        ) from None
    except (EOFError, zlib.error, OSError) as e:
        raise damaged_recording(folder, f"{PACKED} was cut or edited ({e})") from None


def read_start(folder: Path) -> dict[str, Any]:
    """Return how a run began: its first `start`. Raises BadInput (no-cassette, damaged)."""
    with open_lines(folder) as file:
        lines = (unseal(raw) for raw in file)
        start = next((line for line in lines if line and line.get("kind") == "start"), None)
    if start is None:
        raise damaged_recording(folder, "it does not say how the run began")
    return start


def damaged_recording(folder: Path, why: str) -> BadInput:
    return BadInput(
        f"the recording {paths.short(folder)} cannot be trusted: {why}",
        fix=(
            "put it back from a copy (git checkout), or record it again: the same command with"
            " --record"
        ),
        code="damaged",
    )
