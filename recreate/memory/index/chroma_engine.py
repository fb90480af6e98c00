"""The program in which Chroma lives: asked by lines of JSON, for the process that started it and
ends with it.

Chroma's threads do not survive a fork, and damaged files may kill the process they are opened in:
both then happen here. It is started for a few vectors too, so of Chroma only the engine is
imported, which its package brings as `chromadb_rust_bindings` (0.03 s of CPU; all of chromadb takes
1.8 s). A release whose engine is called otherwise is asked through chromadb's own client.
"""

from __future__ import annotations

import array
import base64
import importlib
import json
import os
import sys
from typing import Any

NAME = "memory"
PLACE = ("default_tenant", "default_database")


class ChromaEngine:
    """One folder, by the engine itself."""

    def __init__(self, folder: str) -> None:
        rust: Any = importlib.import_module("chromadb_rust_bindings")
        config = rust.SqliteDBConfig(
            hash_type=rust.MigrationHash.MD5,
            migration_mode=rust.MigrationMode.Apply,
            url=f"{folder}/chroma.sqlite3",
        )
        self.rust = rust.Bindings(
            allow_reset=False, sqlite_db_config=config, persist_path=folder, hnsw_cache_size=16
        )
        space = '{"hnsw": {"space": "cosine"}}'
        self.id = str(self.rust.create_collection(NAME, space, None, None, True, *PLACE).id)

    def count(self) -> int:
        return int(self.rust.count(self.id, *PLACE))

    def upsert(self, ids: list[str], vectors: list[list[float]]) -> None:
        self.rust.upsert(self.id, ids, vectors, None, None, None, *PLACE)

    def query(
        self, vector: list[float], n: int, ids: list[str] | None
    ) -> tuple[list[str], list[float]]:
        got = self.rust.query(self.id, ids, [vector], n, None, None, ["distances"], *PLACE)
        if ids is not None and len(got.ids[0]) < min(n, len(ids)):
            whole = self.rust.get(self.id, ids, None, None, 0, None, ["embeddings"], *PLACE)
            return exact(vector, n, whole.ids, whole.embeddings)
        return got.ids[0], got.distances[0]


class ChromaClient:
    """One folder, by chromadb's client."""

    def __init__(self, folder: str) -> None:
        from recreate.memory.index.chroma import library

        chromadb = library()
        config: Any = importlib.import_module("chromadb.config")
        # Chroma would read a .env of the current folder, which is somebody else's, and CHROMA_*
        # variables.
        settings = config.Settings(
            _env_file=None,
            anonymized_telemetry=False,
            chroma_api_impl="chromadb.api.rust.RustBindingsAPI",
            allow_reset=False,
        )
        self.collection: Any = chromadb.PersistentClient(
            folder, settings=settings
        ).get_or_create_collection(
            NAME, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def count(self) -> int:
        return int(self.collection.count())

    def upsert(self, ids: list[str], vectors: list[list[float]]) -> None:
        self.collection.upsert(ids=ids, embeddings=vectors)

    def query(
        self, vector: list[float], n: int, ids: list[str] | None
    ) -> tuple[list[str], list[float]]:
        got = self.collection.query(
            query_embeddings=[vector], n_results=n, ids=ids, include=["distances"]
        )
        if ids is not None and len(got["ids"][0]) < min(n, len(ids)):
            whole = self.collection.get(ids=ids, include=["embeddings"])
            return exact(vector, n, whole["ids"], whole["embeddings"])
        return got["ids"][0], got["distances"][0]


def exact(
    vector: list[float], n: int, ids: list[str], vectors: Any
) -> tuple[list[str], list[float]]:
    """(ids, cosine distances) of the n nearest of these vectors, measured one by one: Chroma's
    graph, which several threads build, may not lead to each of a few vectors that it is asked
    among."""
    numpy: Any = importlib.import_module("numpy")
    asked, rows = (
        numpy.asarray(vector, numpy.float32),
        numpy.asarray(vectors, numpy.float32).reshape(len(ids), -1),
    )
    size = numpy.linalg.norm(rows, axis=1) * numpy.linalg.norm(asked)
    distances = 1 - rows @ asked / numpy.where(size == 0, 1, size)
    nearest = numpy.argsort(distances, kind="stable")[:n]
    return [ids[at] for at in nearest], distances[nearest].tolist()


def opened(folder: str) -> ChromaEngine | ChromaClient:
    try:
        return ChromaEngine(folder)
    except (ImportError, AttributeError, TypeError):
        return ChromaClient(folder)


def answer(collections: dict[str, ChromaEngine | ChromaClient], asked: dict[str, Any]) -> Any:
    """Do what one line asks for: open, close, put or query a folder."""
    folder, do = asked["folder"], asked["do"]
    if do in ("open", "close"):
        collections.pop(folder, None)
    if do == "close":
        return len(collections)
    if folder not in collections:
        collections[folder] = opened(folder)
    if do == "put":
        collections[folder].upsert(asked["ids"], [floats(vector) for vector in asked["vectors"]])
    if do == "query":
        return collections[folder].query(floats(asked["vector"]), asked["n"], asked["ids"])
    return collections[folder].count()


def floats(packed: str) -> list[float]:
    return array.array("f", base64.b64decode(packed)).tolist()


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    collections: dict[str, ChromaEngine | ChromaClient] = {}
    for line in sys.stdin:
        try:
            reply = {"answer": answer(collections, json.loads(line))}
        except BaseException as e:  # a panic in Chroma's Rust code is no Exception
            reply = {"error": f"{type(e).__name__}: {e}", "missing": isinstance(e, ImportError)}
        out.write(json.dumps(reply) + "\n")
        out.flush()
    os._exit(0)  # Chroma has nothing to finish: what is not on the disk yet is made again


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[1])
    main()
