"""What of a workspace's memory can go, and its going. Nothing that cannot be made again goes
without being named.

vectors      of embedders that are not in use: made again, at a price in time, when they are
drafts       of large texts, left by a writer that was killed
blobs        large texts that no line names any more: only with `blobs`
experiences  of a run, or in files last written before a day: only with `runs` or `before`, with
             their large texts; or those named (`oldest`, forget.py)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import date

from recreate.api.shapes import JsonDict
from recreate.memory.codec import named_in
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.cut import (
    Item,
    cut_blobs,
    cut_lines,
    experience_files,
    find_cuts,
    hold_out,
    recorded_at,
    unlink,
)
from recreate.storage.files import disk, locked
from recreate.storage.log import Log


def prune(
    memory: ExperienceStore,
    *,
    runs: Collection[str] = (),
    before: date | None = None,
    ids: Collection[str] = (),
    blobs: bool = False,
    dry: bool = False,
) -> list[Item]:
    """Delete what can go and was asked for, unless `dry`; return all that could go.

    runs: run ids, as `traces list` shows them; before: what was recorded before that day, UTC; ids:
    of experiences. Groups of validation and test stay held out. Raises Fault when a file cannot be
    read or deleted.
    """
    if not memory.folder.is_dir():
        return []
    if not dry:
        hold_out(memory, find_cuts(memory, runs, before, ids))
    vectors = _vectors(memory, dry=dry)
    with locked(memory.folder):
        items = _drafts(memory, dry=dry)
        cuts = find_cuts(memory, runs, before, ids)
        items += cut_blobs(memory, cuts, unnamed=blobs, dry=dry)
        return vectors + items + [cut_lines(memory, cut, dry=dry) for cut in cuts]


def cited(
    memory: ExperienceStore,
    runs: Collection[str] = (),
    before: date | None = None,
    ids: Collection[str] = (),
) -> list[str]:
    """The lessons that cite an experience which would go."""
    if not memory.folder.is_dir():
        return []
    going = {id for cut in find_cuts(memory, runs, before, ids) for id in cut.ids}
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
    lines = list[tuple[float, int, str, int, set[str]]]()
    named = Counter[str]()
    for path in experience_files(memory):
        with disk(path.parent), path.open("rb") as file:
            for line in Log(path).lines():
                e: JsonDict = (line.record or {}).get("experience") or {}
                file.seek(line.offset)
                texts = named_in(file.read(line.length)) & sizes.keys()
                named.update(texts)
                when = recorded_at(line.record or {}, path.stat().st_mtime)
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
    if not memory.embedder_in_use():
        return []
    others = memory.index.count_unused_vectors()
    if others and not dry:
        memory.index.forget_unused_vectors()
    found = []
    for stored, count in sorted(others.items()):
        name, _, dimensions = stored.partition(".")[0].rpartition("-")
        found.append(Item("vectors", name, count, 4 * int(dimensions) * count, "", True))
    return found


def _drafts(memory: ExperienceStore, *, dry: bool) -> list[Item]:
    found = memory.blobs.drafts()  # under the lock nobody is writing one
    size = sum(path.stat().st_size for path in found)
    if not dry:
        for path in found:
            unlink(path)
    return (
        [Item("drafts", "of writers that were killed", len(found), size, "", True)] if found else []
    )
