"""One vector of each text that stands for an experience or a lesson: what answers by meaning.

They lie in Chroma (engine.py), or where it is not installed in the SQLite file, compared one by
one. A vector is known by a digest of its text, so that an index made anew pays for none twice.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import os
import pickle
import re
import select
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from recreate.api import registry
from recreate.api.errors import Fault, Missing
from recreate.memory.database import meta, set_meta, writing

PATIENCE = 600
"""Seconds after which an answer of Chroma is not waited for any longer."""


class Broken(Exception):
    """The vectors that are stored cannot be used."""


def open_vectors(folder: Path, *, on_disk: bool) -> VectorStore:
    """Return the vectors of an index. Raises Missing where no package that compares them is
    installed."""
    if registry.installed("chromadb") and on_disk:
        return ChromaVectors(folder / "chroma")
    if registry.installed("numpy"):
        return ExactVectors()
    raise registry.missing("chromadb") or Missing("this needs the package chromadb")


def key_of(text: str) -> str:
    """Return what the vector of a text is known by."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def collection_of(embedder: str) -> str:
    """Return the name under which the vectors of an embedder are stored."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", embedder)[:60].strip("-") or "unnamed"
    return f"{plain}.{key_of(embedder)[:12]}"


class ExactVectors:
    """Vectors in the SQLite file, each compared with the question."""

    kind = "exact"

    def __init__(self) -> None:
        self._read: tuple[str, list[str], Any] = ("", [], None)

    def find_known(self, db: sqlite3.Connection, name: str, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that have a vector of an embedder."""
        has = "select 1 from vectors where embedder = ? and key = ?"
        return {key for key in keys if db.execute(has, (name, key)).fetchone()}

    def put_vectors(
        self, db: sqlite3.Connection, name: str, keys: Sequence[str], vectors: Any
    ) -> None:
        """Store vectors."""
        numpy: Any = importlib.import_module("numpy")
        rows = zip(keys, numpy.asarray(vectors, numpy.float32), strict=True)
        with writing(db):
            db.executemany(
                "insert or replace into vectors values (?, ?, ?)",
                [(name, key, row.tobytes()) for key, row in rows],
            )
            set_meta(db, vectors=os.urandom(4).hex())

    @contextlib.contextmanager
    def asking(
        self,
        db: sqlite3.Connection,
        name: str,
        vector: Sequence[float],
        n: int,
        among: Sequence[str] | None = None,
    ) -> Iterator[Callable[[], list[tuple[str, float]]]]:
        """Yield what returns (key, cosine) of the n nearest, nearest first; `among` these keys,
        where given."""
        numpy: Any = importlib.import_module("numpy")
        keys, stored = self._all(db, name, numpy)
        cosines = stored @ numpy.asarray(vector, numpy.float32) if keys else numpy.empty(0)
        if among is not None:
            allowed = set(among)
            cosines[[at for at, key in enumerate(keys) if key not in allowed]] = -numpy.inf
            n = min(n, len(allowed.intersection(keys)))
        nearest = numpy.argsort(-cosines, kind="stable")[:n]
        yield lambda: [(keys[at], float(cosines[at])) for at in nearest]

    def _all(self, db: sqlite3.Connection, name: str, numpy: Any) -> tuple[list[str], Any]:
        token = f"{name} {meta(db, 'vectors')}"
        if self._read[0] != token:
            rows = db.execute(
                "select key, vector from vectors where embedder = ?", (name,)
            ).fetchall()
            stored = numpy.frombuffer(b"".join(row[1] for row in rows), numpy.float32)
            self._read = token, [row[0] for row in rows], stored.reshape(len(rows) or 1, -1)
        return self._read[1:]

    def sizes(self, db: sqlite3.Connection) -> dict[str, int]:
        """Return how many vectors there are of each embedder."""
        return dict(db.execute("select embedder, count(*) from vectors group by 1"))

    def renew(self, db: sqlite3.Connection, keep: Collection[str], name: str = "") -> None:
        """Let no file hold any but these keys' vectors, of all embedders or of one."""
        with writing(db):
            gone = [
                row
                for row in db.execute("select embedder, key from vectors").fetchall()
                if row[1] not in keep or (name and row[0] != name)
            ]
            db.executemany("delete from vectors where embedder = ? and key = ?", gone)
            set_meta(db, vectors=os.urandom(4).hex())

    def discard(self, db: sqlite3.Connection) -> None:
        """Throw all away."""
        db.execute("delete from vectors")


class ChromaVectors:
    """Vectors in Chroma, in a folder of its own. The caller holds the index folder's lock.

    The fact `vectors` of the SQLite file changes whenever somebody writes here, and is empty while
    somebody does: what was written halfway is read over before it is used.
    """

    kind = "chroma"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        PROCESS.start()

    def find_known(self, db: sqlite3.Connection, name: str, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that have a vector of an embedder."""
        return set(PROCESS.ask("find_known", str(self.folder), meta(db, "vectors"), name, [*keys]))

    def put_vectors(
        self, db: sqlite3.Connection, name: str, keys: Sequence[str], vectors: Any
    ) -> None:
        """Store vectors."""
        with self._writing(db) as (token, then):
            PROCESS.ask("put_vectors", str(self.folder), token, then, name, [*keys], [*vectors])

    @contextlib.contextmanager
    def asking(
        self,
        db: sqlite3.Connection,
        name: str,
        vector: Sequence[float],
        n: int,
        among: Sequence[str] | None = None,
    ) -> Iterator[Callable[[], list[tuple[str, float]]]]:
        """Yield what returns (key, cosine) of the n nearest, nearest first; `among` these keys,
        where given."""
        folder = str(self.folder)
        token = meta(db, "vectors")
        with PROCESS.asking("query", folder, token, name, [*vector], n, among) as answer:
            yield lambda: list(zip(*answer(), strict=True))

    def sizes(self, db: sqlite3.Connection) -> dict[str, int]:
        """Return how many vectors there are of each embedder."""
        if not self.folder.is_dir():
            return {}
        found: dict[str, int] = PROCESS.ask("sizes", str(self.folder), meta(db, "vectors"))
        return found

    def renew(self, db: sqlite3.Connection, keep: Collection[str], name: str = "") -> None:
        """Let no file hold any but these keys' vectors, of all embedders or of one."""
        if self.folder.is_dir():
            with self._writing(db):
                try:
                    PROCESS.ask("renew", str(self.folder), set(keep), name)
                except Broken:
                    self.discard(db)

    def discard(self, db: sqlite3.Connection) -> None:
        """Throw all away."""
        PROCESS.end()
        for folder in (self.folder, self.folder.with_name("chroma.new")):
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self, db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
        token = meta(db, "vectors")
        then = os.urandom(4).hex()
        set_meta(db, vectors="")
        yield token, then
        set_meta(db, vectors=then)


VectorStore = ChromaVectors | ExactVectors


class _Process:
    """The engine of this process: started when it is first asked, and again after it died; a forked
    child leaves its parent's alone and has its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.running: subprocess.Popen[bytes] | None = None
        os.register_at_fork(after_in_child=self._forget)

    def start(self) -> subprocess.Popen[bytes]:
        """Return the running engine. No program's settings reach it: Chroma would read those of a
        `.env` in its folder, and variables as common as ALLOW_RESET."""
        with self.lock:
            if self.running is None or self.running.poll() is not None:
                self.end()
                engine = str(Path(__file__).with_name("engine.py"))
                self.running = subprocess.Popen(
                    [sys.executable, engine, *sys.path],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={name: os.environ[name] for name in _PASSED if name in os.environ},
                    start_new_session=True,  # Ctrl-C is for us: it would leave half a write
                )
            return self.running

    def ask(self, *request: Any) -> Any:
        """Return what the engine answers. Raises Broken, Fault when the disk is full."""
        with self.asking(*request) as answer:
            return answer()

    @contextlib.contextmanager
    def asking(self, *request: Any) -> Iterator[Callable[[], Any]]:
        """Ask, and yield what reads the answer: until then other work may be done."""
        with self.lock:
            running = self.start()
            reply = list[Any]()
            assert running.stdin is not None
            assert running.stdout is not None
            stdout = running.stdout

            def answer() -> Any:
                waiting = select.poll()
                waiting.register(stdout, select.POLLIN)
                if not waiting.poll(PATIENCE * 1000):
                    raise OSError(f"it did not answer for {PATIENCE} s")
                reply[:] = pickle.load(stdout)
                if reply[0]:
                    raise _refusal(reply[0])
                return reply[1]

            try:
                pickle.dump(request, running.stdin)
                running.stdin.flush()
                yield answer
            except (OSError, EOFError, pickle.UnpicklingError) as e:
                raise Broken(f"its process died: {e}") from e
            finally:
                if not reply:  # an answer that nobody read would be taken for the next one's
                    self.end()

    def end(self) -> None:
        """Kill the engine: what is not on the disk yet is made again."""
        with self.lock:
            running = self.running
            self.running = None
            if running is not None:
                running.kill()
                running.communicate()

    def _forget(self) -> None:
        self.lock = threading.RLock()  # another thread may have held it
        running = self.running
        self.running = None
        if running is not None:
            for pipe in (running.stdin, running.stdout):
                assert pipe is not None
                os.close(pipe.fileno())
                _LEFT.append(pipe)
            running.returncode = 0  # not our child: nobody waits for it
            _LEFT.append(running)


_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "COVERAGE_PROCESS_START")
_LEFT: list[object] = []
"""What a forked child has of its parent's and must not close again."""

PROCESS = _Process()
atexit.register(PROCESS.end)


def _refusal(text: str) -> Exception:
    if "disk is full" in text or "No space left" in text:
        return Fault("the disk that holds memory's vectors is full", fix="df -h", code="disk-full")
    return Broken(text)
