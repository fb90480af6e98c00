"""The vectors of everything remembered, in Chroma: the graph that answers broad questions over many documents.

Chroma is not asked whether it is sound, because it does not know: a process that has its folder open answers
from stale memory after another has written, and a garbled HNSW file kills the process or is taken as it is. So
`state` records a checksum of each of Chroma's files after every write; the files are compared before Chroma opens
them, and a version number tells other processes to open them again. Documents are known to it by their numbers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from recreate.api import registry
from recreate.api.errors import BadInput, Fault, Missing
from recreate.api.registry import need
from recreate.storage.files import make

BATCH = 1024
"""Documents given to Chroma at once."""

NAME = "memory"


class ChromaState(TypedDict):
    """What is on record of Chroma's folder. upto: it holds the documents numbered below; files: size, ns, SHA-256."""

    folder: str
    version: int
    upto: int
    count: int
    writing: bool
    files: dict[str, tuple[int, int, str]]


class Broken(Exception):
    """Chroma, or what it stored, cannot be trusted."""


def installed() -> bool:
    return registry.installed("chromadb")


def _library() -> Any:
    """chromadb, whatever the environment says.

    While it is imported it reads a `.env` of the current folder and variables as common as ALLOW_RESET, which may be
    another program's: where it cannot read them it is imported without. Not always without: a program that uses us
    may use Chroma too, by its own `.env`.
    """
    try:
        return need("chromadb")
    except Missing:
        raise
    except BadInput:
        settings: Any = need("pydantic_settings")
        theirs = settings.BaseSettings

    def init(self: Any, **given: Any) -> None:
        theirs.__init__(self, **{**given, "_env_file": None})

    def sources(_: Any, __: Any, /, *, init_settings: Any, **_others: Any) -> tuple[Any]:
        return (init_settings,)

    for name in [name for name in sys.modules if name.partition(".")[0] == "chromadb"]:
        del sys.modules[name]  # half imported, by the class of before
    told = {"__module__": __name__, "__init__": init, "settings_customise_sources": classmethod(sources)}
    settings.BaseSettings = type("BaseSettings", (theirs,), told)
    try:
        return need("chromadb")
    finally:
        settings.BaseSettings = theirs


class Chroma:
    """One collection under `folder` (memory/index). The caller holds the lock; `save` puts the state on record."""

    def __init__(self, folder: Path, save: Callable[[ChromaState | None], None]) -> None:
        self.folder = folder
        self.save = save
        self._client: Any = None
        self._collection: Any = None
        self._opened = ("", -1)

    def sound(self, state: ChromaState, *, thorough: bool) -> bool:
        """Whether Chroma's files are what was written last; by size and time, and by checksum where those differ."""
        if state["writing"]:
            return False
        try:
            found = dict(_files(self.folder / state["folder"]))
            if set(found) != set(state["files"]):
                return False
            for name, (size, mtime, sha) in state["files"].items():
                if found[name].st_size != size:
                    return False
                path = self.folder / state["folder"] / name
                if (thorough or found[name].st_mtime_ns != mtime) and _sha(path) != sha:
                    return False
        except (KeyError, TypeError, ValueError, OSError):
            return False
        return True

    def nearest(self, state: ChromaState, vector: Sequence[float], n: int) -> list[int]:
        """The numbers of about n documents near to a vector. Raises Broken."""
        state = self._open(state)
        got = self._ask(self._collection.query, query_embeddings=[vector], n_results=n, include=[])
        return [int(id) for id in got["ids"][0]]

    def put(
        self,
        state: ChromaState | None,
        first: int,
        upto: int,
        ids: Sequence[int],
        vectors: Any,
    ) -> ChromaState:
        """Take documents in: vectors float32 (n, dimensions). Raises Broken, Fault when the disk is full."""
        state = self._new(upto=first) if state is None else self._open(state)
        self.save({**state, "writing": True, "files": {}})
        for start in range(0, len(ids), BATCH):
            part = slice(start, start + BATCH)
            self._ask(self._collection.upsert, ids=[str(n) for n in ids[part]], embeddings=vectors[part])
        return self._mark({**state, "upto": upto, "count": state["count"] + len(ids), "version": state["version"] + 1})

    def discard(self) -> None:
        """Forget Chroma's files."""
        self.close()
        self.save(None)
        for old in self.folder.glob("chroma-*"):
            shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._collection = None
        self._opened = ("", -1)

    def _open(self, state: ChromaState) -> ChromaState:
        known = self._opened == (state["folder"], state["version"])
        if not self.sound(state, thorough=not known):
            raise Broken("its files are not what was written last")
        if known:
            return state
        self.close()
        self._connect(state["folder"])
        if self._ask(self._collection.count) != state["count"]:
            raise Broken("it holds another number of documents than were written")
        return self._mark(state)  # opening touches Chroma's files

    def _new(self, upto: int) -> ChromaState:
        self.discard()
        name = f"chroma-{os.urandom(4).hex()}"  # never a path this process had open
        make(self.folder / name)
        self._connect(name)
        return {"folder": name, "version": 0, "upto": upto, "count": 0, "writing": True, "files": {}}

    def _connect(self, name: str) -> None:
        chromadb = _library()
        config: Any = need("chromadb.config")

        def connect() -> None:
            # Chroma would read a .env of the current folder, which is somebody else's, and CHROMA_* variables.
            settings = config.Settings(
                _env_file=None,
                anonymized_telemetry=False,
                chroma_api_impl="chromadb.api.rust.RustBindingsAPI",
                allow_reset=False,
            )
            self._client = chromadb.PersistentClient(str(self.folder / name), settings=settings)
            self._collection = self._client.get_or_create_collection(
                NAME, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
            )

        self._ask(connect)

    def _mark(self, state: ChromaState) -> ChromaState:
        """Put on record what Chroma's files are now."""
        folder = self.folder / state["folder"]
        found = sorted(_files(folder), key=lambda each: each[0])
        files = {name: (stat.st_size, stat.st_mtime_ns, _sha(folder / name)) for name, stat in found}
        state = {**state, "writing": False, "files": files}
        self._opened = (state["folder"], state["version"])
        self.save(state)
        return state

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
            raise Broken(str(e)) from e
        except BaseException as e:
            # A panic in Chroma's Rust code is no Exception, and its class has no importable name.
            if type(e).__name__ == "PanicException":
                raise Broken(str(e)) from e
            raise


def _files(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """The files in a folder and below, by their path in it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(folder / entry.name, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name, entry.stat()


def _sha(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
