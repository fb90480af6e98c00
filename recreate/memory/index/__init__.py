"""What everything remembered is found by: what is asked of an index, and what is on record of the one on disk.

With numpy the index is kept (kept.py); without it the words are read again by each process (scan.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from recreate.api.errors import BadInput
from recreate.api.types import SCHEMA
from recreate.storage.files import write
from recreate.storage.log import seal, unseal

FORMAT = 2


@dataclass
class SegmentRecord:
    """A segment on record. words, vectors: bytes, ns and CRC-32 of its file; vectors None: not embedded yet.

    keys: how many experiences and lessons; dead: the numbers of those that are gone from the files.
    """

    name: str
    docs: int
    keys: int
    words: tuple[int, int, int]
    vectors: tuple[int, int, int] | None = None
    dead: list[int] = field(default_factory=list)


@dataclass
class Manifest:
    """made: changes when the index is begun anew; version: at every write; next: the number of the next document.

    marks: reader's level -> [stamp, number] of the sources up to which the index was brought.
    count: documents that are not dead; digest: of all keys and checksums in it, and the embedder.
    """

    made: str = ""
    version: int = 0
    embedder: str = ""
    dimensions: int = 0
    next: int = 0
    count: int = 0
    digest: str = ""
    marks: dict[str, list[Any]] = field(default_factory=dict)
    segments: list[SegmentRecord] = field(default_factory=list)
    chroma: Any = None
    format: int = FORMAT
    schema: int = SCHEMA

    def save(self, folder: Path) -> None:
        self.version += 1
        write(folder / "state.json", seal(json.dumps(asdict(self), separators=(",", ":"))))


def load_manifest(folder: Path) -> Manifest | None:
    """What is on record; None when there is nothing sound."""
    try:
        record = unseal((folder / "state.json").read_bytes())
        if record is None or record["format"] != FORMAT:
            return None
        known = {f.name for f in fields(Manifest)}
        manifest = Manifest(**{name: value for name, value in record.items() if name in known})
        manifest.segments = [SegmentRecord(**part) for part in record["segments"]]
    except (OSError, ValueError, KeyError, TypeError, BadInput):
        return None
    return manifest


class Question(NamedTuple):
    """What is asked: the words, how, and of which documents (see Segment.matching)."""

    text: str
    how: str = "hybrid"
    wanted: Mapping[str, Sequence[Any]] = {}
    closed: Mapping[str, frozenset[str]] | None = None
