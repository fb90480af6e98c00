"""What the index says of itself: memory/index/state.json, one sealed line that is replaced as a whole."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

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


def load(folder: Path) -> Manifest | None:
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
