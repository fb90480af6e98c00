"""The index that is kept on disk: words, facts and vectors. Derived from the files, and made again, in part or whole,
at the first doubt.

    memory/index/state.json               the manifest: what there is, with a checksum for each file
    memory/index/segments/NAME.words      some documents: their facts and their words (segments.py)
    memory/index/segments/NAME.vectors    the vectors of the same documents, of one embedder
    memory/index/chroma-XXXXXXXX/         the same vectors in Chroma, for broad questions over many (chroma.py)

A segment is written once. What is new makes a small one, and neighbours of a size are joined, so that one more
experience costs the same however many there are. A file is compared with its checksum before it is used and, when
its size or time changes, again; one that differs is dropped and what it held is indexed anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from recreate.api.ports import Embedder
from recreate.memory.documents import Document, Sources
from recreate.memory.embedders.cached import Cached, checked
from recreate.memory.index import Manifest, Question, SegmentRecord, load_manifest, ranking, segments
from recreate.memory.index.chroma import Broken, Chroma, ChromaState, installed
from recreate.memory.index.segments import Array, Segment
from recreate.storage.files import fault, locked, make

BATCH = 64
"""Documents embedded at once: what an interruption loses."""

FLUSH = 4096
"""Documents that make a segment, when there are as many."""

JOINED, LARGEST = 8, 300_000
"""So many neighbours of a size are joined, into at most so many documents."""

EXACT = 16_384
"""Up to so many matching documents are compared one by one; up to so many in all, Chroma holds none."""

ASKED, DEAR = 200, 16
"""Of more, Chroma is asked for as many as hold so many that match, if all match alike; while finding one is worth
comparing so many one by one. docs/memory.md has the measurement."""

FEED = 4096
"""Documents that a question brings to Chroma beyond those it embeds: nobody waits for the whole graph."""

KEPT = 4
"""Indexes that a process keeps open at once: each maps its files, and Chroma holds some 30 MB."""

Progress = Callable[[int, int], None]


class _Opened:
    """The index as this process has it open."""

    def __init__(self, chroma: Chroma) -> None:
        self.manifest = Manifest()
        self.stamp: tuple[int, ...] = ()
        self.parts: dict[str, Segment] = {}
        self.vectors: dict[str, Array] = {}
        self.seen: dict[str, tuple[int, int, int]] = {}  # file -> what was verified
        self.have: dict[str, tuple[str, int, str]] = {}  # key -> segment, its number there, checksum of its source
        self.lessons: set[str] = set()
        self.total = 0  # of the hashes of what is held, whatever the order
        self.chroma = chroma

    def take(self, name: str, part: Segment) -> None:
        self.parts[name] = part
        for n, (key, sum_) in enumerate(zip(part.keys, part.sums, strict=True)):
            if n in part.dead:
                continue
            if key in self.have:
                self.forget(key)
            self.have[key] = name, n, sum_
            self.total += _hash(key, sum_)
            if key.startswith("lesson:"):
                self.lessons.add(key)

    def drop(self, name: str) -> None:
        part = self.parts.pop(name, None)
        self.vectors.pop(name, None)
        for key in part.keys if part is not None else ():
            if self.have.get(key, ("",))[0] == name:
                self.forget(key)

    def forget(self, key: str) -> None:
        self.total -= _hash(key, self.have.pop(key)[2])
        self.lessons.discard(key)


# One a folder and process: Chroma shares one system between clients of a path, so that a second one would go on
# being stale when the first is opened again. In the order of use; who holds _THREADS may close any.
_OPEN: OrderedDict[Path, _Opened] = OrderedDict()
_THREADS = threading.RLock()


class Index:
    """The index under `folder` (memory/index). `embedder` is called when vectors are first needed.

    Every method may be called by several threads and processes; one at a time gets in. Raises Fault when the disk
    is full or the folder cannot be written.
    """

    def __init__(self, folder: Path, embedder: Callable[[], Embedder]) -> None:
        self.folder = folder
        self.segments = folder / "segments"
        self._embedder = embedder

    @property
    def embedder(self) -> Embedder:
        """Opened when vectors are first needed. Raises Missing without its package."""
        return self._embedder()

    def search(
        self, question: Question, n: int, sources: Sources, progress: Progress | None = None
    ) -> list[tuple[str, float]]:
        """(document id, score) of the n best documents, best first.

        The score is the cosine (`vectors`), BM25 (`keywords`), or the sum of 1 / (60 + rank) over both (`hybrid`).
        First catches up: what is in the index and is not known under the same checksum is taken out; what is
        wanted and not in the index is put in. progress(sources done, sources to do).
        """
        by_vectors, by_words = question.how != "keywords", question.how != "vectors"
        depth = n if question.how in ("keywords", "vectors") else max(100, 2 * n)
        vector: Array | None = None
        if by_vectors:
            vector = _unit(checked(self.embedder, [question.text], "query"))[0]
        with self._alone():
            opened = self._open()
            self._sync(opened, sources, by_vectors, progress)
            masks = {name: part.matching(question.wanted, question.closed) for name, part in opened.parts.items()}
            lists = []
            if by_words:
                lists.append(ranking.by_words(opened.parts, masks, question.text, depth))
            if vector is not None:
                lists.append(self._by_vectors(opened, masks, vector, depth))
        return (lists[0] if len(lists) == 1 else ranking.fuse(lists))[:n]

    def sync(self, sources: Sources, progress: Progress | None = None, *, whole: bool = False) -> int:
        """Catch up, and return how many documents there are. whole: from nothing but known vectors, and Chroma too."""
        with self._alone():
            if whole:
                self._discard()
            opened = self._open()
            self._sync(opened, sources, True, progress, whole=whole)
            return opened.manifest.count

    def close(self) -> None:
        """Let go of all files; whoever asks next opens them again."""
        with _THREADS:
            self._close()

    # under the lock

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with _THREADS:
            make(self.folder, ignored=True)
            with locked(self.folder):
                make(self.folder, ignored=True)
                try:
                    yield
                except OSError as e:
                    raise fault(self.folder, e) from e

    def _open(self) -> _Opened:
        """The index as it is on disk, without what cannot be trusted; a new one where there is none."""
        opened = _OPEN.get(self.folder)
        if opened is None:
            opened = _OPEN[self.folder] = _Opened(Chroma(self.folder, self._save_chroma))
        _OPEN.move_to_end(self.folder)
        while len(_OPEN) > KEPT:
            _OPEN.popitem(last=False)[1].chroma.close()
        stamp = self._stamp()
        if stamp == () or stamp != opened.stamp:
            found = load_manifest(self.folder)
            if found is None:
                self._discard()
                opened = _OPEN[self.folder] = _Opened(Chroma(self.folder, self._save_chroma))
                make(self.segments)
                opened.manifest.made = os.urandom(4).hex()
                self._save(opened)
            else:
                if found.made != opened.manifest.made:
                    opened = _OPEN[self.folder] = _Opened(opened.chroma)
                opened.manifest = found
                opened.stamp = stamp
        self._verify(opened)
        return opened

    def _verify(self, opened: _Opened) -> None:
        """Load what is new on record; drop what is no longer there or is not what was written."""
        known = opened.manifest
        names = {part.name for part in known.segments}
        for name in [name for name in opened.parts if name not in names]:
            opened.drop(name)
        broken, unembedded = [], False
        for part in known.segments:
            if not self._is(opened, f"{part.name}.words", part.words):
                broken.append(part)
                continue
            if part.name not in opened.parts:
                try:
                    opened.take(part.name, Segment(self._read(f"{part.name}.words"), part.dead))
                except (ValueError, KeyError):
                    broken.append(part)
                    continue
            elif len(part.dead) != len(opened.parts[part.name].dead):
                held = opened.parts.pop(part.name)
                held.kill(part.dead)
                for n in part.dead:
                    if opened.have.get(held.keys[n], ("",))[0] == part.name:
                        opened.forget(held.keys[n])
                opened.parts[part.name] = held
            if part.vectors is None:
                opened.vectors.pop(part.name, None)
            elif not self._is(opened, f"{part.name}.vectors", part.vectors):
                part.vectors, unembedded = None, True
                opened.vectors.pop(part.name, None)
            elif part.name not in opened.vectors:
                opened.vectors[part.name] = self._read(f"{part.name}.vectors")["vectors"]
        for part in broken:
            known.segments.remove(part)
            known.marks.clear()
            opened.drop(part.name)
        if broken or unembedded:
            self._count(opened)
            self._save(opened)

    def _is(self, opened: _Opened, name: str, written: Sequence[int]) -> bool:
        """Whether a file is what was written; its checksum is compared the first time and when its time changes."""
        path, (size, _, sum_) = f"{self.segments}/{name}", written
        try:
            stat = os.stat(path)  # noqa: PTH116 - asked of every file at every question
            if stat.st_size != size:
                return False
            if opened.seen.get(name) == (size, stat.st_mtime_ns, sum_):
                return True
            if segments.checksum(Path(path)) != sum_:
                return False
        except OSError:
            return False
        opened.seen[name] = size, stat.st_mtime_ns, sum_
        return True

    def _read(self, name: str) -> dict[str, Array]:
        return segments.read_arrays(self.segments / name)

    # keeping up

    def _sync(
        self, opened: _Opened, sources: Sources, embed: bool, progress: Progress | None, *, whole: bool = False
    ) -> None:
        known = opened.manifest
        if embed:
            self._adopt(opened)
        marks = [
            known.marks[level] for level, stamp in sources.stamps.items() if known.marks.get(level, [""])[0] == stamp
        ]
        start = max((number for _, number in marks), default=None)
        gone: list[str] = []
        if start is None:
            all_ = sources.known()
            gone = [k for k, (_, _, s) in opened.have.items() if all_.get(k) != s and k not in opened.lessons]
        gone += [k for k in opened.lessons if sources.lessons.get(k) != opened.have[k][2]]
        if gone:
            self._remove(opened, gone)
        new = [(k, s) for k, s in sources.since(start or 0) if k not in opened.have]
        new += [(k, s) for k, s in sources.lessons.items() if k not in opened.have]
        bare = [part for part in known.segments if part.vectors is None] if embed else []
        report = _Report(progress, len(new) + sum(part.keys for part in bare))
        for part in bare:
            self._embed_part(opened, part, sources, report)
        embedded = self._take_in(opened, new, sources, embed, report)
        known.marks[sources.level] = [sources.stamps[sources.level], sources.last]
        if gone or new or bare:
            self._tidy(opened)
            self._count(opened)
            self._save(opened)
        if embed and installed():
            self._feed(opened, None if whole else embedded + FEED)

    def _adopt(self, opened: _Opened) -> None:
        """Let go of the vectors of another embedder."""
        embedder, known = self.embedder, opened.manifest
        if (known.embedder, known.dimensions) != (embedder.name, embedder.dimensions):
            opened.chroma.discard()
            known.embedder, known.dimensions = embedder.name, embedder.dimensions
            for part in known.segments:
                part.vectors = None
            opened.vectors.clear()
            self._count(opened)
            self._save(opened)
            self._sweep(opened)

    def _remove(self, opened: _Opened, keys: Iterable[str]) -> None:
        by_part: dict[str, list[int]] = {}
        for key in keys:
            name, n, _ = opened.have[key]
            by_part.setdefault(name, []).append(n)
            opened.forget(key)
        for part in opened.manifest.segments:
            if part.name in by_part:
                opened.parts[part.name].kill(by_part[part.name])
                part.dead = sorted(opened.parts[part.name].dead)

    def _take_in(
        self, opened: _Opened, new: Sequence[tuple[str, str]], sources: Sources, embed: bool, report: _Report
    ) -> int:
        """Make segments of new sources; how many documents that were."""
        batch: list[Document] = []
        sums: dict[str, str] = {}
        taken = 0
        for n, (key, sum_) in enumerate(new, 1):
            batch += sources.documents(key)
            sums[key] = sum_
            if batch and (len(batch) >= FLUSH or n == len(new)):
                made = self._vectors([d.brief for d in batch], report, len(sums)) if embed else None
                self._write(opened, segments.build(batch, sums, opened.manifest.next), made)
                opened.manifest.next += len(batch)
                taken += len(batch)
                self._tidy(opened)
                self._save(opened)
                batch, sums = [], {}
                report.all(n)
        return taken

    def _vectors(self, briefs: Sequence[str], report: _Report, keys: int) -> Array:
        """float32 (briefs, dimensions), each of length 1."""
        cached = Cached(self.embedder, self.folder / "vectors.sqlite")
        found = np.empty((len(briefs), cached.dimensions), np.float32)
        for start in range(0, len(briefs), BATCH):
            found[start : start + BATCH] = _unit(cached.embed(briefs[start : start + BATCH]))
            report.some(keys, start + BATCH, len(briefs))
        return found

    def _embed_part(self, opened: _Opened, part: SegmentRecord, sources: Sources, report: _Report) -> None:
        """Make the vectors that a segment lacks, from the sources of its documents."""
        held = opened.parts[part.name]
        briefs = {d.id: d.brief for n, k in enumerate(held.keys) if n not in held.dead for d in sources.documents(k)}
        made = self._vectors([briefs.get(held.id(row), "") for row in range(held.docs)], report, part.keys)
        report.all(report.done + part.keys)
        name = f"{part.name}.vectors"
        part.vectors = opened.seen[name] = segments.write_arrays(self.segments / name, {"vectors": made})
        opened.vectors[part.name] = self._read(name)["vectors"]
        self._count(opened)
        self._save(opened)

    def _write(self, opened: _Opened, columns: dict[str, Array], made: Array | None, at: int | None = None) -> None:
        """Write a segment and put it in its place among the others; the caller saves the manifest."""
        name = f"{int(columns['number'][0]):09d}-{os.urandom(3).hex()}"
        part = SegmentRecord(name, len(columns["key"]), len(columns["keys_at"]) - 1, (0, 0, 0))
        part.words = opened.seen[f"{name}.words"] = segments.write_arrays(self.segments / f"{name}.words", columns)
        if made is not None:
            written = segments.write_arrays(self.segments / f"{name}.vectors", {"vectors": made})
            part.vectors = opened.seen[f"{name}.vectors"] = written
            opened.vectors[name] = self._read(f"{name}.vectors")["vectors"]
        opened.take(name, Segment(self._read(f"{name}.words")))
        opened.manifest.segments.insert(len(opened.manifest.segments) if at is None else at, part)

    def _tidy(self, opened: _Opened) -> None:
        """Join neighbours of a size, and rewrite a segment of which more than half is gone."""
        parts = opened.manifest.segments
        joined = False
        for at in range(len(parts) - 1, -1, -1):
            if len(parts[at].dead) * 2 > parts[at].keys:
                self._join(opened, at, at + 1)
                joined = True
        while True:
            size, count = _size(parts[-1].docs) if parts else 0, 0
            while count < len(parts) and _size(parts[-1 - count].docs) <= size:
                count += 1
            at = len(parts) - count
            embedded = {part.vectors is None for part in parts[at:]}
            if count < JOINED or sum(part.docs for part in parts[at:]) > LARGEST or len(embedded) > 1:
                break
            self._join(opened, at, len(parts))
            joined = True
        if joined:
            self._save(opened)
            self._sweep(opened)

    def _join(self, opened: _Opened, start: int, end: int) -> None:
        old = opened.manifest.segments[start:end]
        held = [opened.parts[part.name] for part in old]
        kept = [np.flatnonzero(part.alive) for part in held]
        made = None
        if all(part.vectors is not None for part in old):
            own = (opened.vectors[part.name] for part in old)
            made = np.concatenate([v if len(rows) == len(v) else v[rows] for v, rows in zip(own, kept, strict=True)])
        if any(len(rows) for rows in kept):
            self._write(opened, segments.join(held), made, end)
        del opened.manifest.segments[start:end]
        for part in old:
            opened.drop(part.name)

    def _count(self, opened: _Opened) -> None:
        """Bring the figures in the manifest up to date."""
        known = opened.manifest
        known.count = sum(int(part.alive.sum()) for part in opened.parts.values())
        known.digest = hashlib.sha256(f"{known.embedder} {opened.total}".encode()).hexdigest()[:16]

    def _save(self, opened: _Opened) -> None:
        opened.manifest.save(self.folder)
        opened.stamp = self._stamp()

    def _stamp(self) -> tuple[int, ...]:
        try:
            stat = (self.folder / "state.json").stat()
        except OSError:
            return ()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def _sweep(self, opened: _Opened) -> None:
        """Delete the files that are not on record."""
        kept = {f"{part.name}.words" for part in opened.manifest.segments}
        kept |= {f"{part.name}.vectors" for part in opened.manifest.segments if part.vectors is not None}
        for path in self.segments.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)
                opened.seen.pop(path.name, None)

    def _discard(self) -> None:
        """Forget all but the vectors that were paid for, in vectors.sqlite."""
        self._close()
        (self.folder / "state.json").unlink(missing_ok=True)
        for old in (self.segments, *self.folder.glob("chroma-*")):
            shutil.rmtree(old, ignore_errors=True)

    def _close(self) -> None:
        opened = _OPEN.pop(self.folder, None)
        if opened is not None:
            opened.chroma.close()

    # Chroma

    def _save_chroma(self, state: ChromaState | None) -> None:
        opened = _OPEN.get(self.folder)
        if opened is not None and opened.manifest.chroma != state:
            opened.manifest.chroma = state
            self._save(opened)

    def _feed(self, opened: _Opened, most: int | None) -> None:
        """Bring Chroma up to date when it is well behind, by at most so many documents."""
        known = opened.manifest
        if known.count <= EXACT:
            if known.chroma is not None:
                opened.chroma.discard()
            return
        if known.chroma is not None and known.chroma["count"] > 2 * known.count + FEED:
            opened.chroma.discard()  # most of it is gone from the files
        state: ChromaState | None = known.chroma
        upto, count = (state["upto"], state["count"]) if state is not None else (0, 0)
        if known.next - upto < (1 if state is None else max(256, count // 64)):
            return
        try:
            while upto < known.next and (most is None or most > 0):
                # So many at most, so that no more than that is held in memory at once.
                step = 50_000 if most is None else min(50_000, most)
                state, upto = self._give(opened, state, upto, step)
                most = None if most is None else most - step
        except Broken:
            opened.chroma.discard()  # made anew at the next question; this one compares all

    def _give(self, opened: _Opened, state: ChromaState | None, upto: int, most: int) -> tuple[ChromaState | None, int]:
        """Put the next documents from number `upto` on into Chroma; (its state, the number it is now up to)."""
        numbers, vectors = [], []
        end, room = opened.manifest.next, most
        for part in opened.manifest.segments:
            held = opened.parts[part.name]
            all_ = held.arrays["number"]
            rows = np.flatnonzero(held.alive & (all_ >= upto))
            if len(rows) > room:
                end = int(all_[rows[room]])
                rows = rows[:room]
            numbers.append(all_[rows])
            vectors.append(opened.vectors[part.name][rows])
            room -= len(rows)
            if end != opened.manifest.next:
                break
        ids = np.concatenate(numbers).tolist()
        if ids:
            state = opened.chroma.put(state, upto, end, ids, np.concatenate(vectors))
        elif state is not None:
            state = {**state, "upto": end}
            self._save_chroma(state)
        return state, end

    # finding

    def _by_vectors(self, opened: _Opened, masks: Mapping[str, Array], query: Array, n: int) -> list[ranking.Hit]:
        rows = {name: np.flatnonzero(mask) for name, mask in masks.items()}
        total = sum(map(len, rows.values()))
        state: ChromaState | None = opened.manifest.chroma
        if total > EXACT and state is not None and installed():
            asked = max(n, ASKED * state["count"] // total)
            if asked * DEAR < total:
                near = self._near(opened, state, rows, query, asked)
                if sum(map(len, near.values())) >= min(n, total):  # fewer: its graph lost the way
                    rows = near
        return ranking.by_vectors(opened.parts, opened.vectors, rows, query, n)

    def _near(
        self, opened: _Opened, state: ChromaState, rows: dict[str, Array], query: Array, n: int
    ) -> dict[str, Array]:
        """Those of the rows that are among the n nearest in Chroma, and those that it does not hold yet; all of them
        when Chroma cannot be trusted, or found fewer than it holds: where thousands of vectors are the same, its graph
        may have no way to the others."""
        try:
            numbers = np.sort(np.array(opened.chroma.nearest(state, query.tolist(), n), np.int64))
        except Broken:
            opened.chroma.discard()
            return rows
        if len(numbers) < min(n, state["count"]):
            return rows
        near = {}
        for name, own in rows.items():
            number = opened.parts[name].arrays["number"]  # ascending
            if len(own) and number[own[-1]] >= state["upto"]:
                near[name] = own[number[own] >= state["upto"]]
            else:
                near[name] = own[:0]
            at = np.searchsorted(number, numbers)
            at = at[(at < len(number)) & (number[np.minimum(at, len(number) - 1)] == numbers)]
            if len(at) and len(own):
                place = np.minimum(np.searchsorted(own, at), len(own) - 1)
                near[name] = np.union1d(at[own[place] == at], near[name])
        return near


class _Report:
    """Progress over all that has to be done."""

    def __init__(self, tell: Progress | None, todo: int) -> None:
        self.tell = tell
        self.todo = todo
        self.done = 0

    def some(self, keys: int, part: int, whole: int) -> None:
        """Of the next `keys` sources, part of the whole work is done."""
        if self.tell is not None and part < whole:
            self.tell(self.done + keys * part // whole, self.todo)

    def all(self, done: int) -> None:
        self.done = done
        if self.tell is not None:
            self.tell(done, self.todo)


def _size(docs: int) -> int:
    """Which of the sizes 64, 512, 4,096, ... is the first above so many documents."""
    size = 0
    while docs >= 64 * 8**size:
        size += 1
    return size


def _unit(given: Sequence[Sequence[float]]) -> Array:
    """float32 (n, dimensions), each of length 1."""
    made = np.array(given, np.float32)
    length = np.linalg.norm(made, axis=1, keepdims=True)
    return made / np.where(length > 0, length, 1)


def _hash(key: str, sum_: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{key} {sum_}".encode(), digest_size=16).digest(), "little")
