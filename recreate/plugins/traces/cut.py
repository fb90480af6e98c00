"""Taking lines out of the files of experience, with the large texts that no other line names."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from recreate.api.shapes import JsonDict, JsonMap
from recreate.memory.codec import named_in
from recreate.memory.held_out import Held
from recreate.memory.store import ExperienceStore
from recreate.storage.files import disk, locked, replacing
from recreate.storage.log import BLOCK, Log, encode, unix

FEW = 20
"""Ids that are looked for as text; of more, every line is read."""


@dataclass(frozen=True)
class Item:
    """Something that can go. count of what; bytes on the disk; needs: the flag that names it, ''
    when none is needed.

    going: whether it was asked for. damaged: lines in the files that nobody can read and that go
    with them.
    """

    kind: str
    what: str
    count: int
    bytes: int
    needs: str
    going: bool
    damaged: int = 0


class FileCut(NamedTuple):
    """What of one file goes: the ids and bytes; gone: the places (offset, length) of the lines, in
    order; stat: of the file before. whole:
    nothing of it stays.
    """

    path: Path
    held: list[Held]
    ids: list[str]
    size: int
    damaged: int
    gone: list[tuple[int, int]]
    stat: os.stat_result
    whole: bool

    def kept_ranges(self) -> Iterator[tuple[int, int]]:
        """(begin, end) of what stays."""
        begin = 0
        for offset, length in [] if self.whole else [*self.gone, (self.stat.st_size, 0)]:
            if begin < offset:
                yield begin, offset
            begin = offset + length


def cut_experiences(memory: ExperienceStore, ids: Collection[str], *, dry: bool) -> list[Item]:
    """Delete experiences by id, with the large texts that only they name, unless `dry`; return what
    goes.

    Raises Fault when a file cannot be read or
    deleted.
    """
    if not memory.folder.is_dir():
        return []
    if not dry:
        hold_out(memory, find_cuts(memory, ids=ids))
    with locked(memory.folder):
        memory.metadata.refresh()
        cuts = find_cuts(memory, ids=ids)
        items = cut_blobs(memory, cuts, unnamed=False, dry=dry)
        return items + [cut_lines(memory, cut, dry=dry) for cut in cuts]


def hold_out(memory: ExperienceStore, cuts: Sequence[FileCut]) -> None:
    """Register the groups of what goes: a file that was copied in held them out by being there."""
    if cuts:
        memory.held_out.add(held for cut in cuts for held in cut.held)
        memory.close_told()


def cut_blobs(
    memory: ExperienceStore, cuts: Sequence[FileCut], *, unnamed: bool, dry: bool
) -> list[Item]:
    """Delete large texts that only experiences which go now named, and with `unnamed` all that no
    line names; return what there is of both."""
    there = list(memory.blobs.all())
    named, freed = named_by_lines(memory, cuts) if there else (set[str](), set[str]())
    found: dict[bool, list[tuple[Path, int]]] = {True: [], False: []}
    for _, sha, path in there:
        if sha not in named:
            found[sha in freed].append((path, path.stat().st_size))
    items = []
    for with_experience, paths in found.items():
        if not paths:
            continue
        going = unnamed or with_experience
        what = "of the experiences below" if with_experience else "that no line names"
        items.append(
            Item(
                "blobs",
                what,
                len(paths),
                sum(s for _, s in paths),
                "" if with_experience else "--blobs",
                going,
            )
        )
        if going and not dry:
            for path, _ in paths:
                unlink(path)
                if not any(path.parent.iterdir()):
                    path.parent.rmdir()
    return items


def cut_lines(memory: ExperienceStore, cut: FileCut, *, dry: bool) -> Item:
    name = cut.path.relative_to(memory.folder).as_posix()
    if not dry:
        rewrite(cut)
    return Item("experiences", name, len(cut.ids), cut.size, "", True, cut.damaged)


def rewrite(cut: FileCut) -> None:
    """Write a file anew without what goes; delete it where nothing stays."""
    with disk(cut.path.parent):
        if not any(cut.kept_ranges()):
            cut.path.unlink()
            return
        with cut.path.open("rb") as old, replacing(cut.path, durable=True) as new:
            for begin, end in cut.kept_ranges():
                for block in read_blocks(old, begin, end):
                    new.write(block)


def find_cuts(
    memory: ExperienceStore,
    runs: Collection[str] = (),
    before: date | None = None,
    ids: Collection[str] = (),
) -> list[FileCut]:
    """Return what goes of each file: lines of these runs, of before a day, or with these ids."""
    if not runs and before is None and not ids:
        return []
    found = (
        find_cut(path, frozenset(ids), frozenset(runs), before) for path in experience_files(memory)
    )
    return [cut for cut in found if cut is not None]


def find_cut(
    path: Path,
    named: frozenset[str],
    runs: frozenset[str] = frozenset(),
    before: date | None = None,
) -> FileCut | None:
    """Return what of a file goes; None for nothing.

    Lines that do not say when they were written, or say a moment that is still to come, are as old
    as the file.
    """
    day = (
        datetime(before.year, before.month, before.day, tzinfo=UTC).timestamp()
        if before is not None
        else 0.0
    )
    stat = path.stat()
    held = list[Held]()
    ids = list[str]()
    gone = list[tuple[int, int]]()
    size = 0
    damaged = 0
    stays = 0
    all_ = runs or before is not None or len(named) > FEW
    for line in Log(path).lines() if all_ else Log(path).having(encoded_ids(named)):
        record = line.record or {}
        e: JsonDict | None = record.get("experience")
        if not isinstance(e, dict):
            damaged += 1
            continue
        when = recorded_at(record, stat.st_mtime)
        if (
            e.get("run") in runs
            or e.get("id") in named
            or (stat.st_mtime if when is None else when) < day
        ):
            ids.append(str(e.get("id", "")))
            held.append(Held(*(str(e.get(k, "")) for k in ("group", "task", "split", "domain"))))
            size += line.length
            gone.append((line.offset, line.length))
        else:
            stays += 1
    if not stays and stat.st_mtime < day:  # nothing younger is in it, what cannot be read included
        return FileCut(path, held, ids, stat.st_size, damaged, gone, stat, True)
    return FileCut(path, held, ids, size, 0, gone, stat, False) if ids else None


def encoded_ids(ids: Iterable[str]) -> set[bytes]:
    """What ids look like in a line."""
    return {
        text[1:-1].encode("utf-8", "surrogatepass")
        for id in ids
        for text in (encode(id), json.dumps(id))
    }


def recorded_at(record: JsonMap, written: float) -> float | None:
    """When a line says that it was recorded; None when it does not say. A moment that is still to
    come is not believed, since the clock was wrong then or is now: such a line is as old as its
    file, written last at `written`.
    """
    when = unix((record.get("experience") or {}).get("when", record.get("when")))
    return written if when is not None and when > time.time() else when


def named_by_lines(memory: ExperienceStore, cuts: Collection[FileCut]) -> tuple[set[str], set[str]]:
    """(what lines that stay name, damaged and torn ones too; what only lines that go name)."""
    of = {cut.path: cut for cut in cuts}
    named: set[str] = set()
    freed: set[str] = set()
    for path in experience_files(memory):
        cut = of.get(path)
        with disk(path.parent), path.open("rb") as file:
            kept = cut.kept_ranges() if cut is not None else [(0, os.fstat(file.fileno()).st_size)]
            named.update(
                *(named_in(block) for begin, end in kept for block in read_blocks(file, begin, end))
            )
            for at, length in cut.gone if cut is not None else ():
                file.seek(at)
                freed |= named_in(file.read(length))
    return named, freed - named


def read_blocks(file: BinaryIO, begin: int, end: int) -> Iterator[bytes]:
    """What stands between two beginnings of lines, whole lines at once."""
    file.seek(begin)
    while begin < end and (block := file.read(min(BLOCK, end - begin))):
        if begin + len(block) < end:
            block += file.readline()
        yield block
        begin += len(block)


def experience_files(memory: ExperienceStore) -> list[Path]:
    return [memory.folder / name for name in memory.metadata.files()]


def unlink(path: Path) -> None:
    with disk(path.parent):
        path.unlink(missing_ok=True)
