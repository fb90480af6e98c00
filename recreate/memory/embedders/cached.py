"""Vectors that were paid for once: a file beside the index, so that building the index again costs
no embedding."""

from __future__ import annotations

import hashlib
import math
import sqlite3
import struct
import zlib
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from recreate.api.errors import BadInput
from recreate.api.ports import Embedder
from recreate.api.theirs import expect


class Cached:
    """Any embedder, remembered by its name and the text.

    Each vector carries a checksum and a bad one is made again; a broken file is started anew.
    Raises BadInput when the embedder does not return one finite vector of `dimensions` numbers for
    each text.
    """

    def __init__(self, embedder: Embedder, path: Path) -> None:
        self.embedder = embedder
        self.path = path
        self.name = embedder.name
        self.dimensions = embedder.dimensions

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        """Unit vectors as lists of `dimensions` floats, one for each text."""
        keys = [_key(self.name, kind, text) for text in texts]
        known = self._read(keys)
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if new:
            made = dict(zip(new, checked(self.embedder, list(new.values()), kind), strict=True))
            self._write(made)
            known |= made
        return [known[key] for key in keys]

    def keep(self, texts: Iterable[str]) -> None:
        """Delete this embedder's vectors of all other passages, and give the room back."""
        with suppress(sqlite3.Error), _Open(self.path) as db:
            db.execute("create temp table kept(key blob primary key) without rowid")
            db.executemany(
                "insert or ignore into kept values (?)",
                ((_key(self.name, "passage", t),) for t in texts),
            )
            gone = "delete from vectors where embedder = ? and key not in (select key from kept)"
            if db.execute(gone, (self.name,)).rowcount:
                db.commit()
                db.execute("vacuum")

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, list[float]]:
        found: dict[bytes, list[float]] = {}
        try:
            with _Open(self.path) as db:
                old = []
                for start in range(0, len(keys), 500):
                    part = keys[start : start + 500]
                    marks = ",".join("?" * len(part))
                    for key, crc, blob, embedder in db.execute(
                        f"select key, crc, vector, embedder from vectors where key in ({marks})",
                        part,
                    ):
                        if (
                            zlib.crc32(blob, zlib.crc32(key)) == crc
                            and len(blob) == 4 * self.dimensions
                        ):
                            found[key] = list(struct.unpack(f"<{self.dimensions}f", blob))
                            if not embedder:
                                old.append((self.name, key))
                db.executemany("update vectors set embedder = ? where key = ?", old)
        except sqlite3.Error:
            self.path.unlink(missing_ok=True)
            return {}
        return found

    def _write(self, made: dict[bytes, list[float]]) -> None:
        rows = []
        for key, vector in made.items():
            blob = struct.pack(f"<{self.dimensions}f", *vector)
            rows.append((key, zlib.crc32(blob, zlib.crc32(key)), blob, self.name))
        try:
            with _Open(self.path) as db:
                db.executemany("insert or replace into vectors values (?, ?, ?, ?)", rows)
        except sqlite3.Error:
            # A full disk is met, and told, by the index itself; without the file only time is lost.
            self.path.unlink(missing_ok=True)


def paid(path: Path) -> dict[str, tuple[int, int]]:
    """How many vectors of each embedder the file holds, and their bytes; `` for those of before it
    said whose."""
    if not path.exists():
        return {}
    try:
        with _Open(path) as db:
            rows = db.execute(
                "select embedder, count(*), sum(length(key) + length(vector)) from vectors group"
                " by 1"
            )
            return {name: (n, size) for name, n, size in rows}
    except sqlite3.Error:
        return {}


def forget(path: Path, embedders: Collection[str]) -> None:
    """Delete the vectors of some embedders and give the room back. The caller holds the folder's
    lock."""
    marks = ",".join("?" * len(embedders))
    with _Open(path) as db:
        db.execute(f"delete from vectors where embedder in ({marks})", list(embedders))
        db.commit()
        db.execute("vacuum")


def forget_texts(path: Path, texts: Collection[str]) -> None:
    """Delete every embedder's vectors of some passages, and what the file still holds of deleted
    ones."""
    if not path.exists():
        return
    try:
        with _Open(path) as db:
            names = [name for (name,) in db.execute("select distinct embedder from vectors")]
            keys = [(_key(name, "passage", text),) for name in names for text in texts]
            if db.executemany("delete from vectors where key = ?", keys).rowcount:
                db.commit()
                db.execute("vacuum")
    except sqlite3.Error:
        path.unlink(missing_ok=True)  # broken: without the file only time is lost


def checked(embedder: Embedder, texts: Sequence[str], kind: str) -> list[list[float]]:
    """What the embedder makes of the texts. Raises BadInput when it is not what the port
    promises."""
    vectors = embedder.embed(texts, kind)
    rows = isinstance(vectors, Sequence) or hasattr(vectors, "__array__")
    expect(rows and all(hasattr(v, "__len__") for v in vectors), embedder, "embed", vectors)
    wrong = ""
    if len(vectors) != len(texts):
        wrong = f"{len(vectors)} vectors for {len(texts)} texts"
    for vector in vectors:
        if len(vector) != embedder.dimensions:
            wrong = f"a vector of {len(vector)} numbers, and says it makes {embedder.dimensions}"
        elif not all(map(math.isfinite, vector)):
            wrong = "a vector with a number that is not finite"
    if wrong:
        raise BadInput(
            f"the embedder {embedder.name} returned {wrong}",
            fix="mend the embedder, or choose another: recreate list embedder",
            code="embedder",
        )
    return vectors


class _Open:
    """The SQLite file, committed and closed at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> sqlite3.Connection:
        self.db = sqlite3.connect(self.path, timeout=60)
        try:
            self.db.execute("pragma synchronous = off")
            self.db.execute(
                "create table if not exists vectors(key blob primary key, crc integer, vector blob,"
                " embedder text not null default '') without rowid"
            )
            # before it said who made them
            if len(self.db.execute("pragma table_info(vectors)").fetchall()) == 3:
                self.db.execute("alter table vectors add column embedder text not null default ''")
        except sqlite3.Error:
            self.db.close()
            raise
        return self.db

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.db.commit()
        finally:
            self.db.close()


def _key(name: str, kind: str, text: str) -> bytes:
    return hashlib.sha256(f"{name}\0{kind}\0{text}".encode("utf-8", "replace")).digest()[:16]
