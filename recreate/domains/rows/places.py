"""Files that a row names or holds: which paths can be, and what lies there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

MOST_FILES, MOST_BYTES = 2000, 50_000_000
"""What the files of one row may be."""


def check_paths(value: Any) -> dict[str, str]:
    """Return path -> text, seen to stay within a folder. Raises ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError("is no object of path -> text")
    if (
        len(value) > MOST_FILES
        or sum(len(v) for v in value.values() if isinstance(v, str)) > MOST_BYTES
    ):
        raise ValueError(f"has more than {MOST_FILES} files, or {MOST_BYTES / 1e6:.0f} MB")
    for path, text in value.items():
        if not isinstance(text, str):
            raise ValueError(f"has a file {str(path)[:80]!r} that is no text")
        refuse_path(str(path))
    return {str(path): text for path, text in value.items()}


def refuse_path(path: str) -> None:
    if not is_possible(path):
        raise ValueError(f"has a path that cannot be: {path[:80]!r}")


def is_possible(path: str) -> bool:
    """Whether a path stays within a folder, and is one that any disk takes and a person can
    read."""
    parts = PurePosixPath(path).parts
    if (
        not parts
        or path.startswith("/")
        or ".." in parts
        or parts[0] == ".recreate"
        or not path.isprintable()
    ):
        return False
    return len(path.encode()) <= 1000 and all(len(part.encode()) <= 200 for part in parts)


def read_files(place: Path) -> list[tuple[str, bytes]]:
    """Return the plain files of a file or folder: (path in it, bytes), links left out. Raises
    ValueError."""
    try:
        if place.is_file():
            return [(place.name, place.read_bytes())]
        if not place.is_dir():
            raise ValueError(f"names {place.name[:80]!r}, which is not beside the data")
        found, total = list[tuple[str, bytes]](), 0
        for path in sorted(place.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            total += path.stat().st_size
            if len(found) >= MOST_FILES or total > MOST_BYTES:
                raise ValueError(
                    f"names a folder of more than {MOST_FILES} files, or {MOST_BYTES / 1e6:.0f} MB"
                )
            found.append((path.relative_to(place).as_posix(), path.read_bytes()))
    except OSError as e:
        raise ValueError(f"cannot be read: {e.strerror}") from None
    return found
