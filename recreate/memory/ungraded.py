"""Imported attempts that nobody has graded yet: kept, shown and searched, but no part of memory.

    memory/DOMAIN/waiting/RUN.jsonl   a sealed line each, as in memory

Whatever counts, contrasts or learns reads memory, where every experience has a grade. So what has none stays out, and
cannot be taken for a failure. Graded, it moves into memory under the same id; its line here is then passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from recreate.api.types import Experience, Grade
from recreate.memory.codec import file_of
from recreate.memory.store import ExperienceStore
from recreate.storage.files import locked, make
from recreate.storage.log import Log

NOT_YET = Grade(score=0.0, passed=False, graded=False, evidence="nobody has graded this yet")


class Ungraded:
    """The ungraded attempts of a workspace."""

    def __init__(self, memory: ExperienceStore) -> None:
        self.memory = memory
        self.folder = memory.folder

    def add(self, experiences: Sequence[Experience]) -> None:
        """Append these; that they are new is the caller's to see. Their texts are masked already."""
        by_file: dict[Path, list[Experience]] = {}
        for e in experiences:
            by_file.setdefault(file_of(self.folder, e.domain, e.run, "waiting"), []).append(e)
        for path, new in by_file.items():
            make(path.parent, ignored=True)
            with locked(path.parent), Log(path, mask=False, fix="") as log:
                log.append(*({"experience": e.model_dump(mode="json")} for e in new))

    def ids(self, domain: str = "*") -> set[str]:
        """The ids recorded here, graded since or not."""
        return {e.id for e in self._all(domain)}

    def experiences(self, domain: str = "") -> Iterator[Experience]:
        """Those that still wait, one in memory at a time, each once."""
        seen: set[str] = set()
        self.memory.metadata.refresh()
        for e in self._all(domain or "*"):
            if e.id not in seen and not self.memory.metadata.knows([e.id]):
                seen.add(e.id)
                yield e

    def get(self, id: str) -> Experience | None:
        """By id or unique beginning of one."""
        found = [e for e in self.experiences() if id and e.id.startswith(id)]
        return found[0] if len(found) == 1 else None

    def _all(self, domain: str) -> Iterator[Experience]:
        for path in sorted(self.folder.glob(f"{domain}/waiting/*.jsonl")):
            for record in Log(path).read():
                try:
                    yield Experience.model_validate(record["experience"])
                except (KeyError, ValidationError):
                    continue
