"""What everything remembered is found by. Derived from the files, and made again at the first
doubt.

    memory/index/memory.sqlite    what is in the files, facts and full text (database.py, text.py)
    memory/index/chroma/          one vector of each experience and lesson (vectors.py)

Words are brought up to date at every question. Vectors follow, made outside the lock: whoever asks
by words never waits for them, and whoever asks by meaning waits as long as he likes and is told how
many are still to be made.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from recreate.api.errors import Missing
from recreate.api.ports import Embedder
from recreate.api.shapes import JsonDict
from recreate.memory.database import Database, meta, set_meta, writing
from recreate.memory.documents import Document, Sources
from recreate.memory.embedders import embed_texts
from recreate.memory.index.text import Filter, Match, Text, where
from recreate.memory.index.tokenizer import is_code
from recreate.memory.index.vectors import Broken, VectorStore, collection_of, open_vectors
from recreate.storage.files import locked

T = TypeVar("T")

FUSED = 60
"""The constant of reciprocal rank fusion: Cormack, Clarke and Büttcher, SIGIR 2009."""

CODE = 8
"""So much more do words count than meaning in a question that names things as code does."""

WIDER = 16
"""So many times the wanted number of nearest vectors are looked through before all that match are
listed."""

BATCH = 16
"""Texts embedded at once: what an interruption loses, and the end of a process waits for."""

PUT = 256
"""Vectors stored at once, while there are few."""

FLUSH = 2048
"""Documents written at once."""

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


class Index:
    """The words and vectors of a memory. `embedder` is called when vectors are first needed.

    Every method may be called by several threads and processes. Raises Fault when the disk is full
    or the folder cannot be written.
    """

    def __init__(self, database: Database, embedder: Callable[[], Embedder]) -> None:
        self.database = database
        self.folder = database.path.parent
        self._embedder = embedder
        self._store: VectorStore | None = None
        self._stored_on_disk = False
        self._stands: tuple[tuple[str, int], dict[str, int]] = (("", 0), {})
        self._behind = _Worker()

    @property
    def embedder(self) -> Embedder:
        """Opened when vectors are first needed. Raises Missing without its package."""
        return self._embedder()

    @property
    def _collection(self) -> str:
        return collection_of(f"{self.embedder.name} {self.embedder.dimensions}")

    def search(
        self, question: Question, n: int, sources: Sources, progress: Progress | None = None
    ) -> Recalled:
        """Return the n best documents.

        The score is the cosine (`vectors`), BM25 (`keywords`), or the sum of a weight / (60 + rank)
        over both (`hybrid`). First what is gone or changed is taken out and what is new is put in:
        progress(done, to do).
        """
        allowed = where(question.wanted, question.closed)
        each = "grain" in question.wanted
        if question.how != "keywords":
            self.database.run(lambda db: self._open_store())  # Chroma begins to start
        self._sync(sources, progress)
        if question.how == "keywords":
            lexical = self.database.run(
                lambda db: self._text(db).by_words(question.text, allowed, n, each=each)
            )
            return Recalled([(m.id, m.score) for m in lexical])
        (vector,) = embed_texts(self.embedder, [question.text], "query")
        depth = max(100, 2 * n) if question.how == "hybrid" else n
        search = partial(self._search_both, question.text, vector, allowed, depth, each=each)
        lexical, near = self._embed_and(
            lambda: self.database.run(search), question.patience, progress
        )
        behind, total = self.database.run(_count_behind)
        # Of a source that is near, the best document by words answers.
        best = {m.source: m for m in reversed(lexical)}
        semantic = [(best.get(m.source, m), score) for m, score in near]
        if question.how == "vectors":
            return Recalled([(m.id, score) for m, score in semantic][:n], behind, total)
        words = CODE if is_code(question.text) else 1
        lists = [([m.id for m in lexical], words), ([m.id for m, _ in semantic], 1)]
        fused = fuse(lists)[:n]
        by_words, by_meaning = (
            {id: place for place, id in reversed([*enumerate(ids, 1)])} for ids, _ in lists
        )
        ranks = {id: (by_words.get(id, 0), by_meaning.get(id, 0)) for id, _ in fused}
        return Recalled(fused, behind, total, ranks)

    def sync(self, sources: Sources, progress: Progress | None = None) -> int:
        """Catch up, vectors too, and return how many documents there are."""
        self._sync(sources, progress)
        self._open_store()
        return self._embed_and(lambda: self.database.run(_count_documents), None, progress)

    def rebuild(self, sources: Sources, progress: Progress | None = None) -> None:
        """Catch up with a file that was begun anew: its words in one piece, and no vector of what
        is gone."""
        self._sync(sources, progress)
        self.database.run(lambda db: Text(db).tidy())
        self.sync(sources, progress)

    def purge(self, sources: Sources) -> None:
        """Let no file hold words or vectors of what is gone from the sources."""

        def work(db: sqlite3.Connection) -> None:
            self._take_out(db, sources)
            with writing(db):
                Text(db).purge()
                set_meta(db, made=_token())
            try:
                self._renew(db)
            except Missing:
                shutil.rmtree(self.folder / "chroma", ignore_errors=True)

        self.database.run(work)
        self.database.squeeze()

    def facts(self) -> JsonDict:
        """Return the embedder that made the vectors, the number of documents, and a digest of all
        that is indexed."""

        def work(db: sqlite3.Connection) -> JsonDict:
            name, _, dimensions = meta(db, "embedder").rpartition(" ")
            count = _count_documents(db)
            sums = db.execute("select id, content from sources where worded = 1 order by id")
            whole = hashlib.sha256(f"{name} {sums.fetchall()}".encode()).hexdigest()[:16]
            return {
                "embedder": name,
                "dimensions": int(dimensions or 0),
                "count": count,
                "digest": whole if count else "",
            }

        return self.database.run(work)

    def count_unused_vectors(self) -> dict[str, int]:
        """Return how many vectors there are of each embedder but the one in use, by the names under
        which they are stored."""

        def work(db: sqlite3.Connection) -> dict[str, int]:
            used = collection_of(meta(db, "embedder"))
            with self._lock_vectors() as store:
                return {name: n for name, n in store.sizes(db).items() if name != used and n}

        return self.database.run(work)

    def forget_unused_vectors(self) -> None:
        """Delete the vectors of all embedders but the one in use."""
        self.database.run(lambda db: self._renew(db, collection_of(meta(db, "embedder"))))

    def discard_vectors(self) -> None:
        """Throw all vectors away."""

        def work(db: sqlite3.Connection) -> None:
            with self._lock_vectors() as store:
                store.discard(db)
                _look_again(db)

        self.database.run(work)

    def close(self) -> None:
        """Let go of all files; whoever asks next opens them again."""
        self._behind.stop()

    # words

    def _text(self, db: sqlite3.Connection) -> Text:
        """Return the words, with what is known of how many documents each stands in, of 10,000 at
        most."""
        text = Text(db)
        state = meta(db, "made"), text.last()
        if self._stands[0] != state or len(self._stands[1]) > 10_000:
            self._stands = state, {}
        text.stands = self._stands[1]
        return text

    def _sync(self, sources: Sources, progress: Progress | None) -> None:
        """Take out what is gone or changed, put in what is new."""
        self.database.run(lambda db: self._take_out(db, sources))
        new = self.database.run(lambda db: _find_new(db, sources))
        done = 0
        while done < len(new):
            batch = list[tuple[str, str, Sequence[Document]]]()
            size = 0
            while done + len(batch) < len(new) and size < FLUSH:
                id, sum_ = new[done + len(batch)]
                batch.append((id, sum_, sources.documents(id)))
                size += len(batch[-1][2])
            self.database.run(lambda db, batch=batch: _put_sources(db, batch))  # type: ignore[misc]
            done += len(batch)
            if progress is not None:
                progress(done, len(new))

    def _take_out(self, db: sqlite3.Connection, sources: Sources) -> None:
        text = Text(db)
        stale = meta(db, "stamp") != sources.stamp
        gone = [id for id, sum_ in text.lessons().items() if sources.lessons.get(id) != sum_]
        emptied = meta(db, "emptied") != meta(db, "swept")
        if not (stale or gone or emptied):
            return
        with writing(db):
            text.remove(gone)
            if stale or text.mostly_gone():
                text.reset()
            set_meta(db, stamp=sources.stamp, swept=meta(db, "emptied"))
        if emptied and not _count_documents(db):
            self.database.squeeze()

    # vectors

    def _open_store(self) -> VectorStore:
        """Return where the vectors lie. Raises Missing."""
        on_disk = self.database.on_disk
        if self._store is None or self._stored_on_disk != on_disk:
            self._store = open_vectors(self.folder, on_disk=on_disk)
            self._stored_on_disk = on_disk
        return self._store

    @contextmanager
    def _lock_vectors(self) -> Iterator[VectorStore]:
        """Hold the vectors while no other process reads or writes them."""
        with locked(self.folder) if self.database.on_disk else nullcontext():
            yield self._open_store()

    def _embed_and(
        self, work: Callable[[], T], patience: float | None, progress: Progress | None
    ) -> T:
        """Make the vectors that are missing and do some work with them; once more, with new ones,
        where those that are stored turn out to be broken."""
        try:
            self._embed(patience, progress)
            return work()
        except Broken:
            self.discard_vectors()
            self._embed(patience, progress)
            return work()

    def _embed(self, patience: float | None, progress: Progress | None) -> None:
        """Make the vectors that are missing; with patience, for no longer than so many seconds, and
        on behind."""
        if not self.database.run(self._adopt):
            return
        if patience is None:
            while self._embed_some(progress, lambda: False):
                pass
        else:
            self._behind.work(lambda ended: self._embed_some(None, ended), patience)

    def _adopt(self, db: sqlite3.Connection) -> bool:
        """Take over the vectors that are there, where they are this embedder's and sound; return
        whether some are missing."""
        own = f"{self.embedder.name} {self.embedder.dimensions}"
        state = f"{self._open_store().kind} {own}"
        if meta(db, "state") != state:
            with writing(db):
                _look_again(db)
                set_meta(db, state=state, embedder=own)
        orphans = int(meta(db, "orphans") or 0)
        if not meta(db, "vectors") or (orphans > BATCH and orphans > _count_embedded(db)):
            self._renew(db)
        missing = "select 1 from sources where worded = 1 and embedded = 0 limit 1"
        return db.execute(missing).fetchone() is not None

    def _renew(self, db: sqlite3.Connection, name: str = "") -> None:
        """Read over what is stored, and keep of it what is of some use: of one embedder, or of
        all."""
        keep = {key for (key,) in db.execute("select distinct key from sources where worded = 1")}
        with self._lock_vectors() as store:
            store.renew(db, keep, name)
            _look_again(db)

    def _embed_some(self, progress: Progress | None, ended: Callable[[], bool]) -> bool:
        """Embed the next few texts; return whether there were any. Nothing is locked while the
        embedder works."""
        name = self._collection
        todo, made, total = self.database.run(partial(self._find_texts, name))
        keys = list[str]()
        vectors = list[list[float]]()
        for at in range(0, len(todo), BATCH):
            if ended():
                break
            part = todo[at : at + BATCH]
            keys += [key for key, _ in part]
            vectors += embed_texts(self.embedder, [brief for _, brief in part], "passage")
            if progress is not None:
                progress(min(total, made + len(keys)), total)
        if keys:
            self.database.run(lambda db: self._put_vectors(db, name, keys, vectors))
        return bool(keys) or (not todo and made < total)

    def _find_texts(
        self, name: str, db: sqlite3.Connection
    ) -> tuple[list[tuple[str, str]], int, int]:
        """Return (key, text) of the next that have no vector, how many sources have one, and how
        many there are. Of those that turn out to have one it is noted."""
        behind, total = _count_behind(db)
        # So many that what a write costs stays a share of what it writes.
        most = max(PUT, (total - behind) // 16)
        rows = dict(
            db.execute(
                "select key, brief from sources where worded = 1 and embedded = 0"
                " order by number limit ?",
                (most,),
            )
        )
        with self._lock_vectors() as store:
            known = store.find_known(db, name, list(rows)) if rows else set()
        _note_embedded(db, known)
        behind, total = _count_behind(db)
        return [row for row in rows.items() if row[0] not in known], total - behind, total

    def _put_vectors(
        self, db: sqlite3.Connection, name: str, keys: Sequence[str], vectors: Sequence[Any]
    ) -> None:
        """Store vectors, but of what was forgotten meanwhile."""
        with self._lock_vectors() as store:
            there = {
                key: vector
                for key, vector in zip(keys, vectors, strict=True)
                if db.execute("select 1 from sources where key = ?", (key,)).fetchone()
            }
            if there:
                store.put_vectors(db, name, list(there), list(there.values()))
        _note_embedded(db, there)

    # finding

    def _search_both(
        self,
        words: str,
        vector: Sequence[float],
        allowed: Filter,
        n: int,
        db: sqlite3.Connection,
        *,
        each: bool,
    ) -> tuple[list[Match], list[tuple[Match, float]]]:
        """Return what words find, and (a document of it, cosine) of the nearest that match."""
        name = self._collection
        text = self._text(db)
        if not db.execute(
            "select 1 from sources where embedded = 1 and brief <> '' limit 1"
        ).fetchone():
            return text.by_words(words, allowed, n, each=each), []
        with self._lock_vectors() as store:
            with store.asking(db, name, vector, 2 * n) as answer:
                lexical = text.by_words(words, allowed, n, each=each)
                near = answer()
            found = _match(text, near, allowed, n)
            if len(found) < n and len(near) == 2 * n:
                with store.asking(db, name, vector, WIDER * n) as answer:
                    near = answer()
                found = _match(text, near, allowed, n)
                # Chroma's graph may lead to fewer than it is asked for
                if len(found) < n and (among := text.matching(allowed)):
                    with store.asking(db, name, vector, min(n, len(among)), among) as answer:
                        found = _match(text, answer(), allowed, n)
        return lexical, found


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
                except Exception as e:  # raised again by who waits for it
                    self._error = e

            self._ending = False
            self._thread = threading.Thread(target=run, name="recreate-embed", daemon=True)
            self._thread.start()
            atexit.register(self.stop)
        self._thread.join(patience)
        error = self._error
        self._error = None
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


def _match(
    text: Text, near: Sequence[tuple[str, float]], allowed: Filter, n: int
) -> list[tuple[Match, float]]:
    found = text.among([key for key, _ in near], allowed)
    rows = [(m, round(score, 6)) for key, score in near for m in found.get(key, ())]
    return sorted(rows, key=lambda row: (-row[1], row[0].key))[:n]


def _find_new(db: sqlite3.Connection, sources: Sources) -> list[tuple[str, str]]:
    """Return (key, checksum) of what is not indexed yet."""
    found = list[tuple[str, str]]()
    for split in ("train", "validation", "test"):
        if not sources.sees("", split, "", ""):
            continue
        rows = db.execute(
            'select id, "group", task, content from sources where split = ? and worded = 0'
            " and file <> '' order by number",
            (split,),
        )
        found += [(row[0], row[3]) for row in rows if sources.sees(row[0], split, *row[1:3])]
    held = Text(db).lessons()
    return found + [(id, sum_) for id, sum_ in sources.lessons.items() if id not in held]


def _put_sources(
    db: sqlite3.Connection, batch: Sequence[tuple[str, str, Sequence[Document]]]
) -> None:
    text = Text(db)
    with writing(db):
        held = text.lessons()
        for id, sum_, documents in batch:
            if not id.startswith("lesson:"):
                text.put_documents(id, sum_, documents)
            elif id not in held:
                text.put_lesson(sum_, documents[0])


def _note_embedded(db: sqlite3.Connection, keys: Collection[str]) -> None:
    if keys:
        with writing(db):
            db.executemany(
                "update sources set embedded = 1 where key = ?", [(key,) for key in keys]
            )


def _count_behind(db: sqlite3.Connection) -> tuple[int, int]:
    """Return how many sources have no vector yet, and how many there are; 0, 0 where all have."""
    asked = "select count(*) from sources where worded = 1 and embedded = 0"
    behind = db.execute(asked).fetchone()[0]
    if not behind:
        return 0, 0
    return behind, db.execute("select count(*) from sources where worded = 1").fetchone()[0]


def _look_again(db: sqlite3.Connection) -> None:
    """Let it be asked anew which vectors there are."""
    db.execute("update sources set embedded = (brief = '') where worded = 1")
    set_meta(db, orphans=0, vectors=_token())


def _count_embedded(db: sqlite3.Connection) -> int:
    asked = "select count(*) from sources where worded = 1 and embedded = 1"
    return int(db.execute(asked).fetchone()[0])


def _count_documents(db: sqlite3.Connection) -> int:
    return int(db.execute("select count(*) from documents").fetchone()[0])


def _token() -> str:
    return os.urandom(4).hex()
