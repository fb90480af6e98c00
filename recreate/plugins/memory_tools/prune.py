"""What of a workspace's memory can go, and its going. Nothing that cannot be made again goes
without being named.

vectors      of embedders that are not in use: made again, at a price in time, when they are
drafts       of large texts, left by a writer that was killed
blobs        large texts that no line names any more: only with `blobs`
experiences  of a run, or in files last written before a day: only with `runs` or `before`, with
             their large texts; or those named (`oldest`, forget.py)
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from recreate.memory.codec import named_in, refs
from recreate.memory.embedders.cached import forget, paid
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


class _Cut(NamedTuple):
    """What of one file goes: the ids and bytes; gone: the places (offset, length) of the lines, in
    order; texts: what each names of large texts (domain, SHA-256); stat: of the file before. whole:
    nothing of it stays.
    """

    path: Path
    held: list[Held]
    ids: list[str]
    size: int
    damaged: int
    gone: list[tuple[int, int]]
    texts: list[tuple[str, str]]
    stat: os.stat_result
    whole: bool

    def kept(self) -> Iterator[tuple[int, int]]:
        """(begin, end) of what stays."""
        begin = 0
        for offset, length in [] if self.whole else [*self.gone, (self.stat.st_size, 0)]:
            if begin < offset:
                yield begin, offset
            begin = offset + length


def prune(
    memory: ExperienceStore,
    *,
    runs: Collection[str] = (),
    before: date | None = None,
    ids: Collection[str] = (),
    blobs: bool = False,
    dry: bool = False,
    follow: bool = False,
) -> list[Item]:
    """Delete what can go and was asked for, unless `dry`; returns all that could go.

    runs: run ids, as `traces list` shows them; before: what was recorded before that day, UTC; ids:
    of experiences. follow: all that goes is named by id, the catalogue follows, and nothing is read
    again for it; the index does not learn of it and is to be told (`ExperienceStore.purge`). Groups
    of validation and test stay held out. Raises Fault when a file cannot be read or deleted.
    """
    if not memory.folder.is_dir():
        return []
    if not dry and (cuts := _cuts(memory, runs, before, ids)):
        # a file that was copied in held its groups out by being there
        memory.held_out.add(held for cut in cuts for held in cut.held)
        memory.close_told()
    with locked(memory.folder):
        items = [*_vectors(memory, dry=dry), *_drafts(memory, dry=dry)]
        if follow:
            memory.metadata.refresh()  # what it follows is what is there now
        cuts = _cuts(memory, runs, before, ids)
        there = list(memory.blobs.all())
        named, freed = _named(memory, cuts) if there else (set(), set())
        items += _blobs(there, named, freed, asked=blobs, dry=dry)
        items += [_experiences(memory, cut, dry=dry, follow=follow) for cut in cuts]
    return items


def cited(
    memory: ExperienceStore,
    runs: Collection[str] = (),
    before: date | None = None,
    ids: Collection[str] = (),
) -> list[str]:
    """The lessons that cite an experience which would go."""
    if not memory.folder.is_dir():
        return []
    going = {id for cut in _cuts(memory, runs, before, ids) for id in cut.ids}
    return [
        key
        for key, (_, lesson) in memory.lessons().items()
        if going & {*lesson.born_of, *lesson.supports, *lesson.contradicts}
    ]


def oldest(memory: ExperienceStore, most: int) -> tuple[list[str], int]:
    """(the experiences to delete, the oldest first, so that lines and large texts take at most so
    many bytes; how many are left then). Those that a lesson cites stay, and so more may be left;
    what does not say when it was recorded is the oldest."""
    cited = {
        id for _, x in memory.lessons().values() for id in (*x.born_of, *x.supports, *x.contradicts)
    }
    sizes = {sha: path.stat().st_size for _, sha, path in memory.blobs.all()}
    lines, named = list[tuple[float, int, str, int, set[str]]](), Counter[str]()
    for path in _files(memory):
        with disk(path.parent), path.open("rb") as file:
            for line in Log(path).lines():
                e: dict[str, Any] = (line.record or {}).get("experience") or {}
                file.seek(line.offset)
                texts = named_in(file.read(line.length)) & sizes.keys()
                named.update(texts)
                when = _recorded(line.record or {}, path.stat().st_mtime)
                lines.append((when or 0.0, len(lines), str(e.get("id", "")), line.length, texts))
    total, going = sum(length for *_, length, _ in lines) + sum(sizes.values()), list[str]()
    for _, _, id, length, texts in sorted(lines):
        if total <= most:
            break
        if id and id not in cited:
            going.append(id)
            named.subtract(texts)
            total -= length + sum(sizes[sha] for sha in texts if not named[sha])
    return going, total


def _vectors(memory: ExperienceStore, *, dry: bool) -> list[Item]:
    path = memory.folder / "index" / "vectors.sqlite"
    if not path.exists():
        return []
    used = memory.embedder_in_use()
    with locked(path.parent):
        others = {name: sizes for name, sizes in paid(path).items() if used and name != used}
        if others and not dry:
            forget(path, others)
    return [
        Item("vectors", name or "of an earlier version", count, size, "", True)
        for name, (count, size) in sorted(others.items())
    ]


def _drafts(memory: ExperienceStore, *, dry: bool) -> list[Item]:
    found = memory.blobs.drafts()  # under the lock nobody is writing one
    size = sum(path.stat().st_size for path in found)
    if not dry:
        for path in found:
            _unlink(path)
    return (
        [Item("drafts", "of writers that were killed", len(found), size, "", True)] if found else []
    )


def _blobs(
    there: Iterable[tuple[str, str, Path]],
    named: set[str],
    freed: set[str],
    *,
    asked: bool,
    dry: bool,
) -> list[Item]:
    """Large texts that nothing names: those that only experiences that go now named, and the
    rest."""
    found: dict[bool, list[tuple[Path, int]]] = {True: [], False: []}
    for _, sha, path in there:
        if sha not in named:
            found[sha in freed].append((path, path.stat().st_size))
    items = []
    for with_experience, paths in found.items():
        if not paths:
            continue
        going = asked or with_experience
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
                _unlink(path)
                if not any(path.parent.iterdir()):
                    path.parent.rmdir()
    return items


def _experiences(memory: ExperienceStore, cut: _Cut, *, dry: bool, follow: bool) -> Item:
    name = cut.path.relative_to(memory.folder).as_posix()
    if not dry:
        with disk(cut.path.parent):
            if not any(cut.kept()):
                cut.path.unlink()
            else:
                with cut.path.open("rb") as old, replacing(cut.path, durable=True) as new:
                    for begin, end in cut.kept():
                        for block in _blocks(old, begin, end):
                            new.write(block)
        if follow:
            memory.metadata.cut(name, cut.stat, cut.gone, cut.texts)
    return Item("experiences", name, len(cut.ids), cut.size, "", True, cut.damaged)


def _cuts(
    memory: ExperienceStore, runs: Collection[str], before: date | None, ids: Collection[str] = ()
) -> list[_Cut]:
    if not runs and before is None and not ids:
        return []
    # also what was graded since
    waiting = sorted(memory.folder.glob("*/waiting/*.jsonl")) if ids else []
    found = (
        _cut(path, frozenset(runs), before, frozenset(ids)) for path in [*_files(memory), *waiting]
    )
    return [cut for cut in found if cut is not None]


def _cut(
    path: Path, runs: frozenset[str], before: date | None, named: frozenset[str]
) -> _Cut | None:
    """What of a file goes; None for nothing. Lines that do not say when they were written, or say a
    moment that is still to come, are as old as the file."""
    day = (
        datetime(before.year, before.month, before.day, tzinfo=UTC).timestamp()
        if before is not None
        else 0.0
    )
    stat = path.stat()
    held, ids, gone, size, damaged, stays = (
        list[Held](),
        list[str](),
        list[tuple[int, int]](),
        0,
        0,
        0,
    )
    texts = list[tuple[str, str]]()
    all_ = runs or before is not None or len(named) > FEW
    for line in Log(path).lines() if all_ else Log(path).having(_written(named)):
        record = line.record or {}
        e: dict[str, Any] | None = record.get("experience")
        if not isinstance(e, dict):
            damaged += 1
            continue
        when = _recorded(record, stat.st_mtime)
        if (
            e.get("run") in runs
            or e.get("id") in named
            or (stat.st_mtime if when is None else when) < day
        ):
            ids.append(str(e.get("id", "")))
            held.append(Held(*(str(e.get(k, "")) for k in ("group", "task", "split", "domain"))))
            size += line.length
            gone.append((line.offset, line.length))
            texts += {(str(e.get("domain", "")), ref.sha256) for ref in refs(record)}
        else:
            stays += 1
    if not stays and stat.st_mtime < day:  # nothing younger is in it, what cannot be read included
        return _Cut(path, held, ids, stat.st_size, damaged, gone, texts, stat, True)
    return _Cut(path, held, ids, size, 0, gone, texts, stat, False) if ids else None


def _written(ids: Iterable[str]) -> set[bytes]:
    """What ids look like in a line."""
    return {
        text[1:-1].encode("utf-8", "surrogatepass")
        for id in ids
        for text in (encode(id), json.dumps(id))
    }


def _recorded(record: Mapping[str, Any], written: float) -> float | None:
    """When a line says that it was recorded; None when it does not say. A moment that is still to
    come is not believed, since the clock was wrong then or is now: such a line is as old as its
    file, written last at `written`.
    """
    when = unix((record.get("experience") or {}).get("when", record.get("when")))
    return written if when is not None and when > time.time() else when


def _named(memory: ExperienceStore, cuts: Collection[_Cut]) -> tuple[set[str], set[str]]:
    """(what lines that stay name, damaged and torn ones too; what only lines that go name)."""
    of = {cut.path: cut for cut in cuts}
    named: set[str] = set()
    freed: set[str] = set()
    for path in _files(memory):
        cut = of.get(path)
        with disk(path.parent), path.open("rb") as file:
            kept = cut.kept() if cut is not None else [(0, os.fstat(file.fileno()).st_size)]
            named.update(
                *(named_in(block) for begin, end in kept for block in _blocks(file, begin, end))
            )
            for at, length in cut.gone if cut is not None else ():
                file.seek(at)
                freed |= named_in(file.read(length))
    return named, freed - named


def _blocks(file: BinaryIO, begin: int, end: int) -> Iterator[bytes]:
    """What stands between two beginnings of lines, whole lines at once."""
    file.seek(begin)
    while begin < end and (block := file.read(min(BLOCK, end - begin))):
        if begin + len(block) < end:
            block += file.readline()
        yield block
        begin += len(block)


def _files(memory: ExperienceStore) -> list[Path]:
    return [memory.folder / name for name in memory.metadata.files()]


def _unlink(path: Path) -> None:
    with disk(path.parent):
        path.unlink(missing_ok=True)
