"""What a recording is, and how a run began: what settings ask of it before anything is replayed.

FOLDER/settings.toml       the run's settings, without what is free to change
FOLDER/journal.jsonl.gz    of its journal what a replay needs; a run folder has journal.jsonl.
                           Of the optimizer that is what it proposed, of all others each reply
FOLDER/seed/               the agent that a build began with
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.storage.log import unseal

JOURNAL = "journal.jsonl"
PACKED = JOURNAL + ".gz"
SETTINGS = "settings.toml"


MOST_BYTES = 4 * 2**30
"""Of a recording, unpacked: a packed file of a few bytes can unpack to what no memory holds."""
MOST_LINE = 2**28
"""Bytes of one line."""


def read_raw_lines(folder: Path) -> Iterator[bytes]:
    """Yield the lines of a run folder or a recording, the last one perhaps cut. Raises BadInput
    (no-cassette, damaged)."""
    left = MOST_BYTES
    with _open_lines(folder) as file:
        while raw := file.readline(MOST_LINE):
            left -= len(raw)
            if left < 0 or len(raw) == MOST_LINE:
                raise damaged_recording(folder, "it unpacks to more than any run writes")
            yield raw


@contextmanager
def _open_lines(folder: Path) -> Iterator[IO[bytes]]:
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


def read_start(folder: Path) -> JsonDict:
    """Return how a run began: its first `start`. Raises BadInput (no-cassette, damaged)."""
    lines = (unseal(raw) for raw in read_raw_lines(folder))
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
