"""The vectors of everything remembered, in Chroma. Derived from the files, and made again at the first doubt.

Chroma is not asked whether it is sound, because it does not know: a process that has its folder open answers
from stale memory after another has written, and a garbled HNSW file kills the process or is taken as it is. So
`state.json` records a checksum of each of Chroma's files after every write; the files are compared before Chroma
opens them, one lock is held around every use, and a version number tells other processes to open them again.
Nothing but vectors and facts to filter by is in Chroma; texts are read from the experience files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from recreate.embedders.cached import Cached, checked
from recreate.errors import Fault
from recreate.plug import need
from recreate.ports import Embedder
from recreate.store import fault, locked, make

FORMAT = 1
BATCH = 64
"""Documents embedded and stored at once: what an interruption loses."""

Progress = Callable[[int, int], None]
T = TypeVar("T")


class Document(NamedTuple):
    """Something that can be found. `key` is the experience or lesson it belongs to; `brief` is what is embedded.

    `facts` are str, int, float or bool.
    """

    id: str
    key: str
    brief: str
    facts: Mapping[str, str | int | float | bool]


class Sources(NamedTuple):
    """What the index is made from.

    stamp      changes whenever one of the others would; the same stamp twice is not compared again
    known      key -> checksum of all that there is
    wanted     the keys of what must be in the index now
    documents  the documents of a key
    """

    stamp: str
    known: Callable[[], Mapping[str, str]]
    wanted: Callable[[], Iterable[str]]
    documents: Callable[[str], Sequence[Document]]


class _Opened:
    """A Chroma collection that this process has open, and what is in it."""

    def __init__(self, client: Any, collection: Any, folder: str, version: int) -> None:
        self.client = client
        self.collection = collection
        self.folder = folder
        self.version = version
        self.have: dict[str, str] = {}  # key -> checksum of its source
        self.stamps: set[str] = set()  # of sources that it was brought up to date with


# One client a folder and process: Chroma shares one system between clients of a path, so that a second one would
# go on being stale when the first is opened again.
_OPEN: dict[Path, _Opened] = {}
_THREADS = threading.RLock()


class _Broken(Exception):
    """The stored index cannot be trusted."""


class Index:
    """The vectors under `folder` (memory/index), made by one embedder.

    Every method may be called by several threads and processes; one at a time gets in. Raises Missing without
    chromadb, Fault when the disk is full or the folder cannot be written.
    """

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        self.folder = folder
        self.embedder = embedder
        self._cached = Cached(embedder, folder / "vectors.sqlite")

    def search(
        self,
        query: str,
        n: int,
        where: Mapping[str, Any] | None,
        sources: Sources,
        progress: Progress | None = None,
    ) -> list[tuple[str, float]]:
        """(document id, cosine) of the n nearest documents that match `where`, nearest first.

        First catches up: what is in the index and is not known under the same checksum is taken out; what is
        wanted and not in the index is put in. progress(sources done, sources to do).
        """

        def work() -> list[tuple[str, float]]:
            opened = self._sync(sources, progress)
            return self._nearest(opened, checked(self.embedder, [query], "query")[0], n, where)

        return self._trusted(work)

    def sync(self, sources: Sources, progress: Progress | None = None, *, anew: bool = False) -> int:
        """Catch up, and return how many documents there are. With `anew` start from nothing but known vectors."""

        def work() -> int:
            if anew:
                self._discard()
            return self._count(self._sync(sources, progress))

        return self._trusted(work)

    def state(self) -> dict[str, Any]:
        """What state.json says: embedder, dimensions, count, digest; {} when there is no sound one."""
        try:
            state = json.loads((self.folder / "state.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    # under the lock

    def _trusted(self, work: Callable[[], T]) -> T:
        """Do some work alone; when the stored index turns out broken, once more on a new one."""
        with self._alone():
            for last in (False, True):
                try:
                    return work()
                except _Broken as e:
                    if last:
                        raise Fault(
                            f"the index in {self.folder} cannot be made: {e}",
                            fix=f"rm -r {self.folder} (it is derived), then recreate memory rebuild",
                        ) from e
                    self._discard()
        raise AssertionError("unreachable")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        need("chromadb")
        with _THREADS:
            make(self.folder, ignored=True)
            with locked(self.folder):
                make(self.folder, ignored=True)
                try:
                    yield
                except OSError as e:
                    raise fault(self.folder, e) from e

    def _sync(self, sources: Sources, progress: Progress | None) -> _Opened:
        opened = self._open()
        if sources.stamp in opened.stamps:
            return opened
        known, have = sources.known(), opened.have
        gone = [key for key, sum_ in have.items() if known.get(key) != sum_]
        missing = [key for key in sources.wanted() if key in known and have.get(key) != known[key]]
        if not gone and not missing:
            opened.stamps.add(sources.stamp)
            return opened
        opened.stamps.clear()
        self._mark(opened, writing=True)
        for start in range(0, len(gone), BATCH):
            part = gone[start : start + BATCH]
            self._ask(opened.collection.delete, where={"key": {"$in": part}})
            for key in part:
                del opened.have[key]
        batch: list[tuple[Document, str]] = []
        for done, key in enumerate(missing, 1):
            batch += [(document, known[key]) for document in sources.documents(key)]
            if len(batch) >= BATCH or done == len(missing):
                self._put(opened, batch)
                batch = []
                if progress is not None:
                    progress(done, len(missing))
        self._mark(opened, writing=False)
        opened.stamps.add(sources.stamp)
        return opened

    def _put(self, opened: _Opened, batch: Sequence[tuple[Document, str]]) -> None:
        for start in range(0, len(batch), BATCH):
            part = batch[start : start + BATCH]
            self._ask(
                opened.collection.upsert,
                ids=[d.id for d, _ in part],
                embeddings=self._cached.embed([d.brief for d, _ in part]),
                metadatas=[{**d.facts, "key": d.key, "sum": sum_} for d, sum_ in part],
            )
        opened.have.update({d.key: sum_ for d, sum_ in batch})

    def _nearest(
        self, opened: _Opened, vector: list[float], n: int, where: Mapping[str, Any] | None
    ) -> list[tuple[str, float]]:
        if not opened.have:
            return []
        got = self._ask(
            opened.collection.query, query_embeddings=[vector], n_results=n, where=where, include=["distances"]
        )
        found = [(id, 1.0 - d) for id, d in zip(got["ids"][0], got["distances"][0], strict=True)]
        if len(found) < n:
            # Among many alike vectors the graph of HNSW can leave the few that match a filter out of reach (seen:
            # none of 2 found beside 400), so a short answer is not believed: all that match are compared.
            all_ = self._ask(opened.collection.get, where=where, include=["embeddings"])
            if len(all_["ids"]) > len(found):
                found = [(id, float(c)) for id, c in zip(all_["ids"], all_["embeddings"] @ vector, strict=True)]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:n]

    def _count(self, opened: _Opened) -> int:
        return int(self._ask(opened.collection.count))

    def _open(self) -> _Opened:
        """The collection as it is on disk, or a new one where there is none to trust."""
        state = self.state()
        opened = _OPEN.get(self.folder)
        try:
            if not self._sound(state, thorough=opened is None or opened.folder != state.get("folder")):
                raise _Broken("the files are not what was written last")
            if opened is not None and (opened.folder, opened.version) == (state["folder"], state["version"]):
                return opened
            return self._load(state)
        except _Broken:
            self._discard()
            return self._new()

    def _sound(self, state: Mapping[str, Any], *, thorough: bool) -> bool:
        """Whether state.json fits this embedder and Chroma's files fit state.json."""
        try:
            if (
                state["format"] != FORMAT
                or state["embedder"] != self.embedder.name
                or state["dimensions"] != self.embedder.dimensions
                or state["writing"]
            ):
                return False
            folder = self.folder / state["folder"]
            if set(state["files"]) != {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}:
                return False
            for name, (size, mtime, sha) in state["files"].items():
                stat = (folder / name).stat()
                if stat.st_size != size:
                    return False
                if (thorough or stat.st_mtime_ns != mtime) and _sha(folder / name) != sha:
                    return False
        except (KeyError, TypeError, ValueError, FileNotFoundError):
            return False
        return True

    def _load(self, state: Mapping[str, Any]) -> _Opened:
        self._close()
        opened = self._client(str(state["folder"]), int(state["version"]))
        if self._count(opened) != state["count"]:
            raise _Broken("it holds another number of documents than were written")
        got = self._ask(opened.collection.get, where={"grain": {"$ne": "step"}}, include=["metadatas"])
        opened.have.update({m["key"]: m["sum"] for m in got["metadatas"]})
        self._mark(opened, writing=False, version=opened.version)  # opening touches Chroma's files
        return opened

    def _new(self) -> _Opened:
        self._close()
        name = f"chroma-{os.urandom(4).hex()}"  # never a path this process had open
        make(self.folder / name)
        opened = self._client(name, 0)
        self._mark(opened, writing=False)
        return opened

    def _client(self, name: str, version: int) -> _Opened:
        chromadb: Any = need("chromadb")
        config: Any = need("chromadb.config")

        def connect() -> _Opened:
            # Chroma would read a .env of the current folder, which is somebody else's, and CHROMA_* variables.
            settings = config.Settings(
                _env_file=None,
                anonymized_telemetry=False,
                chroma_api_impl="chromadb.api.rust.RustBindingsAPI",
                allow_reset=False,
            )
            client = chromadb.PersistentClient(str(self.folder / name), settings=settings)
            collection = client.get_or_create_collection(
                "memory", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
            )
            return _Opened(client, collection, name, version)

        opened: _Opened = self._ask(connect)
        _OPEN[self.folder] = opened
        return opened

    def _mark(self, opened: _Opened, *, writing: bool, version: int | None = None) -> None:
        """Put on record what Chroma's files are now; while `writing` they are on record as unsound."""
        opened.version = opened.version + (not writing) if version is None else version
        folder = self.folder / opened.folder
        files = {}
        if not writing:
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                stat = path.stat()
                files[path.relative_to(folder).as_posix()] = (stat.st_size, stat.st_mtime_ns, _sha(path))
        state = {
            "format": FORMAT,
            "embedder": self.embedder.name,
            "dimensions": self.embedder.dimensions,
            "folder": opened.folder,
            "version": opened.version,
            "writing": writing,
            "count": 0 if writing else self._count(opened),
            "digest": "" if writing else _digest(opened.have, self.embedder.name),
            "files": files,
        }
        draft = self.folder / f"state.json.{os.getpid()}"
        draft.write_text(json.dumps(state, indent=1), "utf-8")
        draft.replace(self.folder / "state.json")

    def _ask(self, method: Callable[..., Any], **arguments: Any) -> Any:
        """Call Chroma; whatever it dies of means that its files are not to be trusted."""
        errors: Any = need("chromadb.errors")
        try:
            return method(**arguments)
        except errors.ChromaError as e:
            if "disk is full" in str(e):
                raise Fault(
                    f"the disk that holds {self.folder} is full",
                    fix=f"free some space there: df -h {self.folder}",
                    code="disk-full",
                ) from e
            raise _Broken(str(e)) from e
        except BaseException as e:
            # A panic in Chroma's Rust code is no Exception, and its class has no importable name.
            if type(e).__name__ == "PanicException":
                raise _Broken(str(e)) from e
            raise

    def close(self) -> None:
        """Let go of Chroma's files; whoever asks next opens them again."""
        with _THREADS:
            self._close()

    def _close(self) -> None:
        opened = _OPEN.pop(self.folder, None)
        if opened is not None:
            opened.client.close()

    def _discard(self) -> None:
        """Forget Chroma's files; the vectors that were paid for stay in vectors.sqlite."""
        self._close()
        (self.folder / "state.json").unlink(missing_ok=True)
        for old in self.folder.glob("chroma-*"):
            shutil.rmtree(old, ignore_errors=True)


def _sha(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(have: Mapping[str, str], embedder: str) -> str:
    """What the index holds, as 16 hex digits: the same sources and embedder give the same."""
    sha = hashlib.sha256(embedder.encode())
    for key in sorted(have):
        sha.update(f"\n{key} {have[key]}".encode())
    return sha.hexdigest()[:16]
