"""What is left of lessons when experiences that they cite are forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from recreate.agents.lesson import lesson_at
from recreate.api.errors import BadInput
from recreate.api.types import Lesson, digest
from recreate.storage.files import fault

CITING = ("born_of", "supports", "contradicts")
"""The fields of a lesson that are ids of experiences."""
CITING_ROWS = ("steps", "gains", "trials", "draws", "signs")
"""Those whose rows each name one."""


def surviving(lesson: Lesson, gone: frozenset[str]) -> Lesson | None:
    """Return a lesson with the evidence that does not come from what is forgotten; None when
    nothing else speaks for it."""
    basis = {*lesson.born_of, *lesson.supports}
    if basis and basis <= gone:
        return None
    ids = {name: tuple(id for id in getattr(lesson, name) if id not in gone) for name in CITING}
    rows = {
        name: tuple(r for r in getattr(lesson, name) if r.experience not in gone)
        for name in CITING_ROWS
    }
    return lesson.model_copy(update=ids | rows)


def lesson_mark(domain: str, id: str) -> str:
    """Return what the registry has of a lesson that was forgotten by name: its name tells its
    title."""
    return digest(["lesson", domain, id])


def lesson_files(folder: Path, broken: list[str] | None = None) -> Iterator[tuple[Path, Lesson]]:
    """Yield the lessons of all domains and policies; one that a person broke is passed over, and
    named in `broken`."""
    for path in sorted([*folder.glob("general/*.md"), *folder.glob("[!@]*/*/*.md")]):
        try:
            yield path, lesson_at(path)
        except FileNotFoundError:
            continue
        except OSError as e:
            raise fault(path.parent, e) from e
        except BadInput:
            if broken is not None:
                broken.append(path.relative_to(folder).as_posix())
