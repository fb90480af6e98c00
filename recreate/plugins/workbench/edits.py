"""What was changed in a folder, as edits: one a file."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from recreate.api.types import Edit


def list_changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the files that were made, changed or deleted, in the order of their names."""
    return sorted(p for p in {*before, *after} if before.get(p) != after.get(p))


def edit_file(path: str, before: str | None, after: str | None) -> Edit:
    """Return the edit that makes one text of another; None: there is no such file."""
    if before is None:
        return Edit(path=path, new=after or "")
    if after is None or not before:
        return Edit(path=path, old=before, new=after or "")
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    first = _count_same(old, new)
    last = min(_count_same(old[::-1], new[::-1]), min(len(old), len(new)) - first)
    while first or last:
        part = "".join(old[first : len(old) - last])
        if part and stands_once(part, before) and (first, last) != (0, len(old)):
            return Edit(path=path, old=part, new="".join(new[first : len(new) - last]))
        first, last = max(0, first - 1), max(0, last - 1)
    return Edit(path=path, old=before, new=after)


def stands_once(part: str, text: str) -> bool:
    """Return whether a text has a part at one place, places that overlap counted."""
    first = text.find(part)
    return first >= 0 and text.find(part, first + 1) < 0


def _count_same(a: list[str], b: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
