"""What everything remembered is found by. Derived from the files, and made again at the first
doubt.

    memory/index/text.sqlite          facts and full text of every step, experience and lesson
                                      (text.py)
    memory/index/chroma-XXXXXXXX/     one vector of each experience and lesson (chroma.py)
    memory/index/vectors.sqlite       the vectors that were paid for (embedders/cached.py)
    memory/index/state.json           what there is, with a checksum of each of these files

Words are brought up to date at every question. Vectors follow, made outside the lock: whoever asks
by words never waits for them, and whoever asks by meaning waits as long as he likes and is told how
many are still to be made.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Embedder
from recreate.api.types import SCHEMA
from recreate.memory.documents import Sources
from recreate.memory.embedders.cached import Cached, checked, forget_texts
from recreate.memory.index.chroma import Broken, Chroma, ChromaState, checksum, require
from recreate.memory.index.text import Filter, Match, Text, connected, squeeze, where
from recreate.memory.index.tokenizer import is_code
from recreate.storage.files import fault, locked, make, write
from recreate.storage.log import seal, unseal

FORMAT = 4
T = TypeVar("T")

FUSED = 60
"""The constant of reciprocal rank fusion: Cormack, Clarke and Büttcher, SIGIR 2009."""

CODE = 8
"""So much more do words count than meaning in a question that names things as code does."""

WIDER = 16
"""So many times the wanted number of nearest sources are looked through before all that match are
listed: at 100,000 sources 14 ms, where listing them takes 20 to 600."""

BATCH = 16
"""Texts embedded at once: what an interruption loses, and the end of a process waits for."""

PUT = 256
"""Vectors given to Chroma at once, while it holds few."""

FLUSH = 2048
"""Documents written at once."""

CHECKED = 1 << 28
"""Bytes of text.sqlite up to which its checksum is kept; of a larger one the size and the time are
compared."""

Progress = Callable[[int, int], None]


class Question(NamedTuple):
    """What is asked: the words, how, and of which documents. Without a grain among `wanted`, a
    source answers once."""

    text: str
    how: str = "hybrid"
    wanted: Mapping[str, Sequence[Any]] = {}
    closed: Mapping[str, frozenset[str]] | None = None
    patience: float | None = None


class Recalled(NamedTuple):
    """(document id, score) of the best, best first; behind: sources that could not be found by
    meaning yet, of all. ranks: of what both found, by id the place by words and by vectors, 1 the
    best, 0 for one that it is not among.
    """

    found: list[tuple[str, float]]
    behind: int = 0
    sources: int = 0
    ranks: Mapping[str, tuple[int, int]] = MappingProxyType({})


@dataclass
class Manifest:
    """made: changes when the index is begun anew, or something is taken out for good; version: at
    every write; marks: reader's level -> [stamp, number] of the sources up to which it was brought;
    count: documents; dead: those whose words are still there; total: of the hashes of all sources;
    digest: of all keys and checksums, and the embedder; text: size, ns and CRC-32 of its file.
    """

    made: str = ""
    version: int = 0
    embedder: str = ""
    dimensions: int = 0
    count: int = 0
    dead: int = 0
    total: str = "0"
    digest: str = ""
    marks: dict[str, list[Any]] = field(default_factory=dict)
    text: Sequence[int] = ()
    chroma: ChromaState | None = None
    format: int = FORMAT
    schema: int = SCHEMA

    def save(self, folder: Path) -> None:
        self.version += 1
        self.digest = hashlib.sha256(f"{self.embedder} {self.total}".encode()).hexdigest()[:16]
        write(folder / "state.json", seal(json.dumps(asdict(self), separators=(",", ":"))))


def load_manifest(folder: Path) -> Manifest | None:
    """What is on record; None when there is nothing sound."""
    try:
        record = unseal((folder / "state.json").read_bytes())
        if record is None or record["format"] != FORMAT:
            return None
        known = {f.name for f in fields(Manifest)}
        return Manifest(**{name: value for name, value in record.items() if name in known})
    except (OSError, ValueError, KeyError, TypeError, BadInput):
        return None


class Index:
    """The index under `folder` (memory/index). `embedder` is called when vectors are first needed.

    Every method may be called by several threads and processes. Raises Fault when the disk is full
    or the folder cannot be written.
    """

    def __init__(self, folder: Path, embedder: Callable[[], Embedder]) -> None:
        self.folder = folder
        self.path = folder / "text.sqlite"
        self._embedder = embedder
        self._seen: tuple[int, ...] = ()  # of text.sqlite, when its checksum was compared
        # in how many documents a word stands, of the tables with that total
        self._stands = ("", dict[str, int]())
        self._behind = _Worker()

    @property
    def embedder(self) -> Embedder:
        """Opened when vectors are first needed. Raises Missing without its package."""
        return self._embedder()

    def search(
        self, question: Question, n: int, sources: Sources, progress: Progress | None = None
    ) -> Recalled:
        """The n best documents.

        The score is the cosine (`vectors`), BM25 (`keywords`), or the sum of a weight / (60 + rank)
        over both (`hybrid`). First what is gone or changed is taken out and what is new is put in:
        progress(done, to do).
        """
        return self._again(lambda: self._search(question, n, sources, progress))

    def _search(
        self, question: Question, n: int, sources: Sources, progress: Progress | None
    ) -> Recalled:
        by_words, by_vectors = question.how != "vectors", question.how != "keywords"
        depth = max(100, 2 * n) if question.how == "hybrid" else n
        allowed, each = where(question.wanted, question.closed), "grain" in question.wanted
        with self._alone() as manifest:
            self._sync(manifest, sources, progress)
        if not by_vectors:
            with self._alone() as manifest, connected(self.path) as text:
                text.all, text.stands = manifest.count, self._known(manifest)
                return Recalled(
                    [(m.id, m.score) for m in text.by_words(question.text, allowed, n, each=each)]
                )
        require()
        (vector,) = checked(self.embedder, [question.text], "query")
        found = self._both(question.text, vector, allowed, depth, each=each, whole=True)
        if found is None:
            self._embed(question.patience, progress)
            found = self._both(question.text, vector, allowed, depth, each=each)
        if found is None:
            # Chroma is made anew, of vectors that are known
            self._embed(question.patience, progress)
            found = self._both(question.text, vector, allowed, depth, each=each)
        if found is None:
            raise Broken("it broke twice in one question")
        lexical, near, made, all_ = found
        # Of a source that is near, the best document by words answers.
        best = {m.source: m for m in reversed(lexical)}
        semantic = [(best.get(m.source, m), score) for m, score in near]
        if not by_words:
            return Recalled([(m.id, score) for m, score in semantic][:n], all_ - made, all_)
        words = CODE if is_code(question.text) else 1
        lists = [([m.id for m in lexical], words), ([m.id for m, _ in semantic], 1)]
        fused = fuse(lists)[:n]
        lexically, nearly = (
            {id: n for n, id in reversed([*enumerate(ids, 1)])} for ids, _ in lists
        )
        ranks = {id: (lexically.get(id, 0), nearly.get(id, 0)) for id, _ in fused}
        return Recalled(fused, all_ - made, all_, ranks)

    def _both(
        self,
        question: str,
        vector: Sequence[float],
        allowed: Filter,
        n: int,
        *,
        each: bool,
        whole: bool = False,
    ) -> tuple[list[Match], list[tuple[Match, float]], int, int] | None:
        """What words find, what is near, how many sources have a vector, and how many there are;
        None where Chroma is broken. whole: None too where a vector is missing, or something is to
        be let go of."""
        with (
            self._alone() as manifest,
            connected(self.path) as text,
            ThreadPoolExecutor(1) as beside,
        ):
            made, all_ = text.ready(manifest.chroma["upto"] if manifest.chroma is not None else 0)
            if whole and (made < all_ or self._foreign(manifest) or _mostly_gone(manifest, made)):
                return None
            text.all, text.stands = manifest.count, self._known(manifest)
            # in a process of its own: words meanwhile
            first = beside.submit(self._nearest, manifest, vector, 2 * n)
            lexical = text.by_words(question, allowed, n, each=each)
            try:
                return (
                    lexical,
                    self._near(manifest, text, vector, allowed, n, first.result),
                    made,
                    all_,
                )
            except Broken:
                return None

    def _foreign(self, manifest: Manifest) -> bool:
        """Whether the vectors are another embedder's."""
        return (manifest.embedder, manifest.dimensions) != (
            self.embedder.name,
            self.embedder.dimensions,
        )

    def _known(self, manifest: Manifest) -> dict[str, int]:
        """What is known of the words of the tables as they are, 10,000 words at most."""
        total, stands = self._stands
        if total != manifest.total or len(stands) > 10_000:
            self._stands = (manifest.total, {})
        return self._stands[1]

    def sync(
        self, sources: Sources, progress: Progress | None = None, *, whole: bool = False
    ) -> int:
        """Catch up, vectors too, and return how many documents there are. whole: from nothing but
        known vectors."""

        def words() -> int:
            with self._alone() as manifest:
                if whole:
                    self._discard()
                    manifest = self._open()
                self._sync(manifest, sources, progress)
                if whole:
                    with self._writing(manifest) as text:
                        text.tidy()
                return manifest.count

        count = self._again(words)
        self._embed(None, progress)
        if whole:
            with self._alone(), connected(self.path) as text:
                briefs = [brief for _, brief in text.briefs(0, -1)]
            self._cached().keep(briefs)
        return count

    def purge(self, keys: Collection[str]) -> None:
        """Take sources out for good: no file holds their words any more, nor those of what was
        taken out before. Where that cannot be done all is thrown away but the vectors that were
        paid for, as Chroma is."""
        with self._alone() as manifest:
            try:
                self._chroma(manifest).discard()
                with connected(self.path) as text:
                    gone = text.known(keys)
                    text.remove(gone)
                    purged, manifest.count = text.purge(), text.count()
                if purged:
                    squeeze(self.path)
                    _add(manifest, gone, -1)
                    # who embeds meanwhile begins anew
                    manifest.dead, manifest.made = (0, os.urandom(4).hex())
                    return self._written(manifest)
            except (OSError, sqlite3.Error, Fault):  # a full disk: there is room when it is gone
                pass
            self._discard()

    def discard(self) -> None:
        """Throw away all but the vectors that were paid for."""
        with self._alone():
            self._discard()

    def close(self) -> None:
        """Let go of all files; whoever asks next opens them again."""
        self._behind.stop()
        Chroma(self.folder, lambda _: None).close()

    # under the lock

    @contextmanager
    def _alone(self) -> Iterator[Manifest]:
        make(self.folder, ignored=True)
        with locked(self.folder):
            make(self.folder, ignored=True)
            try:
                yield self._open()
            except OSError as e:
                raise fault(self.folder, e) from e
            except sqlite3.Error as e:
                if getattr(e, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                    raise Fault(
                        f"the disk that holds {self.folder} is full",
                        fix=f"free some space there: df -h {self.folder}",
                        code="disk-full",
                    ) from e
                self._discard()
                raise

    def _again(self, work: Callable[[], T]) -> T:
        """Do some work; once more where the tables turned out to be broken, which are made anew
        then."""
        try:
            try:
                return work()
            except sqlite3.Error:
                return work()
        except sqlite3.Error as e:
            fix = f"rm -r {self.folder} (it is derived from the files beside it)"
            raise Fault(f"the index {self.path} cannot be used: {e}", fix=fix) from e

    def _open(self) -> Manifest:
        """What is on disk, when it can be trusted; else a new one."""
        manifest = load_manifest(self.folder)
        if manifest is None or not self._sound(manifest):
            self._discard()
            manifest = Manifest(made=os.urandom(4).hex())
            with self._writing(manifest):
                pass
        return manifest

    def _sound(self, manifest: Manifest) -> bool:
        """Whether text.sqlite is what was written last."""
        # of a writer that was killed: what it wrote is undone
        if self.path.with_name("text.sqlite-journal").exists():
            with suppress(sqlite3.Error), connected(self.path):
                pass
        try:
            now = self._stamp()
            if not manifest.text or now[0] != manifest.text[0]:
                return False
            if now == self._seen or (not manifest.text[2] and now[1] == manifest.text[1]):
                return True
            if checksum(self.path) != manifest.text[2]:
                return False
        except OSError:
            return False
        self._seen = now
        return True

    def _stamp(self) -> tuple[int, ...]:
        stat = self.path.stat()
        return stat.st_size, stat.st_mtime_ns

    @contextmanager
    def _writing(self, manifest: Manifest) -> Iterator[Text]:
        """The tables, to be written; the manifest is saved after them."""
        with connected(self.path) as text:
            yield text
            manifest.count = text.count()
        self._written(manifest)

    def _written(self, manifest: Manifest) -> None:
        """Put on record what text.sqlite is now."""
        self._seen = self._stamp()
        manifest.text = [*self._seen, checksum(self.path) if self._seen[0] <= CHECKED else 0]
        manifest.save(self.folder)

    def _discard(self) -> None:
        """Forget all but the vectors that were paid for, in vectors.sqlite."""
        Chroma(self.folder, lambda _: None).discard()
        shutil.rmtree(self.folder / "segments", ignore_errors=True)  # of an earlier version
        for name in ("state.json", "text.sqlite", "text.sqlite-journal"):
            (self.folder / name).unlink(missing_ok=True)

    # words

    def _sync(self, manifest: Manifest, sources: Sources, progress: Progress | None) -> None:
        """Take out what is gone or changed, put in what is new."""
        with connected(self.path) as text:
            marks = [
                manifest.marks[level]
                for level, stamp in sources.stamps.items()
                if manifest.marks.get(level, [""])[0] == stamp
            ]
            start = max((number for _, number in marks), default=None)
            held = text.lessons()
            gone = {key: sum_ for key, sum_ in held.items() if sources.lessons.get(key) != sum_}
            if start is None:
                all_ = sources.known()
                gone |= {k: s for k, s in text.sums().items() if k not in held and all_.get(k) != s}
            new = dict(sources.since(start or 0))
            known = text.known(new)
            new = {k: s for k, s in new.items() if known.get(k) != s}
            gone |= {k: known[k] for k in new if k in known}
            new |= {k: s for k, s in sources.lessons.items() if held.get(k) != s}
        if gone:
            with self._writing(manifest) as text:
                manifest.dead += text.remove(gone)
                _add(manifest, gone, -1)
            if manifest.dead > manifest.count:
                self._discard()
                manifest.__dict__.update(asdict(self._open()))
                return self._sync(manifest, sources, progress)
        self._take_in(manifest, list(new.items()), sources, progress)
        mark = [sources.stamps[sources.level], sources.last]
        if manifest.marks.get(sources.level) != mark:
            manifest.marks[sources.level] = mark
            manifest.save(self.folder)
        return None

    def _take_in(
        self,
        manifest: Manifest,
        new: Sequence[tuple[str, str]],
        sources: Sources,
        progress: Progress | None,
    ) -> None:
        done = 0
        while done < len(new):
            with self._writing(manifest) as text:
                written = 0
                while done < len(new) and written < FLUSH:
                    key, sum_ = new[done]
                    if documents := sources.documents(key):
                        text.put(key, sum_, documents)
                        _add(manifest, {key: sum_})
                    written += len(documents)
                    done += 1
            if progress is not None:
                progress(done, len(new))

    # vectors

    def _embed(self, patience: float | None, progress: Progress | None) -> None:
        """Make the vectors that are missing; with patience, for no longer than so many seconds, and
        on behind."""
        require()
        self._adopt()
        if patience is None:
            while self._embed_some(progress, lambda: False):
                pass
        else:
            self._behind.work(lambda ended: self._embed_some(None, ended), patience)

    def _adopt(self) -> None:
        """Let go of the vectors of another embedder, and of a Chroma that holds mostly what is
        gone."""
        with self._alone() as manifest:
            chroma, state = self._chroma(manifest), manifest.chroma
            if self._foreign(manifest):
                manifest.embedder, manifest.dimensions = (
                    self.embedder.name,
                    self.embedder.dimensions,
                )
                chroma.discard()
            elif state is not None:
                with connected(self.path) as text:
                    alive, _ = text.ready(state["upto"])
                if _mostly_gone(manifest, alive):
                    chroma.discard()

    def _embed_some(self, progress: Progress | None, ended: Callable[[], bool]) -> bool:
        """Embed the next few texts; whether there were any. Nothing is locked while the embedder
        works."""
        with self._alone() as manifest, connected(self.path) as text:
            start = manifest.chroma["upto"] if manifest.chroma is not None else 0
            made, all_ = text.ready(start)
            # So many that what a write costs stays a share of what it writes.
            todo = text.briefs(start, max(PUT, made // 16))
        cached = self._cached()
        numbers, vectors = list[int](), list[list[float]]()
        for at in range(0, len(todo), BATCH):
            if ended():
                break
            numbers += [number for number, _ in todo[at : at + BATCH]]
            vectors += cached.embed([brief for _, brief in todo[at : at + BATCH]])
            if progress is not None:
                progress(made + len(numbers), all_)
        if not numbers:
            return False
        with self._alone() as now:
            if now.made != manifest.made:  # what was forgotten meanwhile leaves no vector
                with connected(self.path) as text:
                    there = {brief for _, brief in text.briefs(0, -1)}
                forget_texts(cached.path, [brief for _, brief in todo if brief not in there])
            upto = now.chroma["upto"] if now.chroma is not None else 0
            if (now.made, now.embedder, upto) == (manifest.made, cached.name, start):
                chroma = self._chroma(now)
                try:
                    chroma.put(now.chroma, numbers[-1] + 1, numbers, vectors)
                except Broken:
                    chroma.discard()
                    return start > 0  # all are put into a new one, unless it was new
        return True

    def _cached(self) -> Cached:
        return Cached(self.embedder, self.folder / "vectors.sqlite")

    def _chroma(self, manifest: Manifest) -> Chroma:
        def save(state: ChromaState | None) -> None:
            manifest.chroma = state
            manifest.save(self.folder)

        return Chroma(self.folder, save)

    def _nearest(
        self,
        manifest: Manifest,
        vector: Sequence[float],
        most: int,
        among: Sequence[int] | None = None,
    ) -> list[tuple[int, float]]:
        """(source, cosine) of the nearest sources."""
        state, chroma = manifest.chroma, self._chroma(manifest)
        if state is None or not state["count"]:
            return []
        try:
            return chroma.nearest(state, vector, min(state["count"], most), among)
        except Broken:
            chroma.discard()
            raise

    def _near(
        self,
        manifest: Manifest,
        text: Text,
        vector: Sequence[float],
        allowed: Filter,
        n: int,
        first: Callable[[], list[tuple[int, float]]],
    ) -> list[tuple[Match, float]]:
        """(a document of it, cosine) of the n nearest sources that match; first: the 2n nearest of
        all."""

        def matching(near: list[tuple[int, float]]) -> list[tuple[Match, float]]:
            found = text.among([number for number, _ in near], allowed)
            rows = [(found[number], round(score, 6)) for number, score in near if number in found]
            return sorted(rows, key=lambda row: (-row[1], row[0].key))[:n]

        found, state = matching(first()), manifest.chroma
        if len(found) < n and state is not None and state["count"] > 2 * n:
            near = self._nearest(manifest, vector, WIDER * n)
            found = matching(near)
            # Chroma's graph may lead to fewer than it is asked for
            if len(found) < n and len(near) < state["count"]:
                among = text.matching(allowed, state["upto"])
                found = (
                    matching(self._nearest(manifest, vector, min(n, len(among)), among))
                    if among
                    else []
                )
        return found


class _Worker:
    """One thread that goes on with what somebody did not wait for."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._ending = False
        self._error: Exception | None = None

    def work(self, some: Callable[[Callable[[], bool]], bool], patience: float) -> None:
        """Do some until there is nothing left, for so long before this returns. Raises what it
        raised."""
        if self._thread is None or not self._thread.is_alive():

            def run() -> None:
                try:
                    while not self._ending and some(lambda: self._ending):
                        pass
                except Exception as e:
                    self._error = e

            self._ending = False
            self._thread = threading.Thread(target=run, name="recreate-embed", daemon=True)
            self._thread.start()
            atexit.register(self.stop)
        self._thread.join(patience)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """End after the batch at hand."""
        self._ending = True
        atexit.unregister(self.stop)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None


def fuse(lists: Sequence[tuple[Sequence[str], float]]) -> list[tuple[str, float]]:
    """Reciprocal rank fusion: each list gives what it names weight / (60 + rank), the first rank
    being 1; the weights are brought to a mean of 1."""
    mean = sum(weight for _, weight in lists) / len(lists)
    score: dict[str, float] = {}
    for ranked, weight in lists:
        for rank, id in enumerate(ranked, 1):
            score[id] = score.get(id, 0.0) + weight / mean / (FUSED + rank)
    return sorted(
        ((id, round(s, 6)) for id, s in score.items()), key=lambda pair: (-pair[1], pair[0])
    )


def _mostly_gone(manifest: Manifest, alive: int) -> bool:
    """Whether most of what Chroma holds is of sources that are gone."""
    return manifest.chroma is not None and manifest.chroma["count"] > 2 * alive + BATCH


def _add(manifest: Manifest, sums: Mapping[str, str], sign: int = 1) -> None:
    """Keep the sum over all sources, whatever the order they came in."""
    digests = (
        hashlib.blake2b(f"{k} {s}".encode("utf-8", "replace"), digest_size=16).digest()
        for k, s in sums.items()
    )
    manifest.total = str(
        int(manifest.total) + sign * sum(int.from_bytes(d, "little") for d in digests)
    )
