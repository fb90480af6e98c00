"""The program in which Chroma lives: asked by pickled tuples on its standard input, for the process
that started it and ends with it.

A forked child would hang in a Chroma that its parent had open, and damaged files may end the
process that reads them: both happen here. A process that has a folder open does not see what
another wrote since, so each request says by a token what it knows of the folder.
"""

import contextlib
import os
import pickle
import shutil
import sys
from typing import Any

KEPT, CHUNK = 4, 1000
"""Folders that are open at once; vectors that are read or written at once."""


class Engine:
    """The folders that are open, by Chroma's own client, each with the token it was opened at."""

    def __init__(self) -> None:
        self.clients: dict[str, tuple[str, Any]] = {}

    def client(self, folder: str, token: str) -> Any:
        """Return the client of a folder, opened anew where somebody else wrote to it."""
        import chromadb
        from chromadb.config import Settings

        if folder in self.clients and (not token or self.clients[folder][0] != token):
            self.close(folder)
        _, client = self.clients.pop(folder, ("", None))
        client = client or chromadb.PersistentClient(folder, Settings(anonymized_telemetry=False))
        self.clients[folder] = token, client
        if len(self.clients) > KEPT:
            self.close(next(iter(self.clients)))
        return client

    def close(self, folder: str) -> None:
        """Let go of a folder's files."""
        if folder in self.clients:
            self.clients.pop(folder)[1].close()

    def collection(self, folder: str, token: str, name: str) -> Any:
        """Return the vectors of one embedder."""
        return self.client(folder, token).get_or_create_collection(
            name, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def find_known(self, folder: str, token: str, name: str, ids: list[str]) -> Any:
        """Return those of the ids that have a vector."""
        return self.collection(folder, token, name).get(ids=ids, include=[])["ids"]

    def put_vectors(
        self, folder: str, token: str, then: str, name: str, ids: Any, vectors: Any
    ) -> None:
        """Take vectors in; from now on the folder's token is `then`."""
        collection = self.collection(folder, token, name)
        for at in range(0, len(ids), CHUNK):
            collection.upsert(ids=ids[at : at + CHUNK], embeddings=vectors[at : at + CHUNK])
        self.clients[folder] = then, self.clients[folder][1]

    def query(
        self, folder: str, token: str, name: str, vector: Any, n: int, ids: list[str] | None
    ) -> tuple[list[str], list[float]]:
        """Return (ids, cosines) of the n nearest, nearest first; `ids`: among these. Those that
        Chroma's graph does not lead to are measured one by one."""
        import numpy

        collection = self.client(folder, token).get_collection(name, embedding_function=None)
        near = collection.query(
            query_embeddings=[vector], n_results=n, ids=ids, include=["distances"]
        )
        if ids is None or len(near["ids"][0]) >= min(n, len(ids)):
            return near["ids"][0], [1 - each for each in near["distances"][0]]
        whole = collection.get(ids=ids, include=["embeddings"])
        cosines = numpy.asarray(whole["embeddings"]).reshape(-1, len(vector)) @ numpy.asarray(
            vector
        )
        nearest = numpy.argsort(-cosines, kind="stable")[:n]
        return [whole["ids"][at] for at in nearest], cosines[nearest].tolist()

    def sizes(self, folder: str, token: str) -> dict[str, int]:
        """Return how many vectors there are of each embedder."""
        return {c.name: c.count() for c in self.client(folder, token).list_collections()}

    def renew(self, folder: str, keep: set[str], only: str) -> None:
        """Write a folder anew with these ids of all embedders, or of one, and nothing else."""
        fresh = f"{folder}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        for name in [name for name in self.sizes(folder, "") if only in ("", name)]:
            old = self.collection(folder, "old", name)
            kept = sorted(keep.intersection(old.get(include=[])["ids"]))
            for at in range(0, len(kept), CHUNK):
                part = old.get(ids=kept[at : at + CHUNK], include=["embeddings"])
                self.put_vectors(fresh, "new", "new", name, part["ids"], part["embeddings"])
        self.close(folder)
        self.close(fresh)
        shutil.rmtree(folder)
        if os.path.isdir(fresh):  # noqa: PTH112
            os.rename(fresh, folder)  # noqa: PTH104


def main() -> None:
    """Answer one request after the other: (name of a method, its arguments)."""
    out, engine = os.fdopen(os.dup(1), "wb"), Engine()
    os.dup2(2, 1)  # what a library prints is no answer
    inherited = os.umask(0)
    with contextlib.suppress(Exception):  # the first request says what is wrong
        import chromadb  # noqa: F401
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)
        try:
            place = os.stat(os.path.dirname(request[1]))  # noqa: PTH116, PTH120
            os.umask(inherited | 0o777 & ~place.st_mode)  # Chroma's files are as private as it
            reply = "", getattr(engine, request[0])(*request[1:])
        except BaseException as e:  # a panic in Chroma's Rust code is no Exception
            reply = f"{type(e).__name__}: {e}", None
        pickle.dump(reply, out)
        out.flush()


if __name__ == "__main__":
    sys.path[:] = sys.argv[1:]
    main()
