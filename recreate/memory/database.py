"""The SQLite file that everything remembered is found by: what stands in which file of experience,
its facts, its words.

It is derived, and made again at the first doubt. Several processes read and write it at once; what
one of them was writing when it was killed is undone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from recreate.agents.trajectory import is_file
from recreate.api.errors import Fault
from recreate.storage.files import check_locks, disk, make, mode_in

T = TypeVar("T")

NAME = "memory.sqlite"
FORMAT = 1

CHECKED = 1 << 26
"""Bytes of a file up to which its pages are looked through when it is opened."""

_TABLES = """
begin immediate;
create table if not exists meta(key text primary key, value) without rowid;
create table if not exists files(name text primary key, size integer, mtime integer,
    consumed integer, last_offset integer, last_length integer, last_sum text, damaged integer,
    doubles integer) without rowid;
create table if not exists sources(number integer primary key autoincrement, id text unique,
    content text, file text not null default '', at integer, length integer, sum text,
    domain text default '', task text default '', "group" text default '', split text,
    passed integer, score real, ending text default '', digest text default '',
    model text default '', run text default '', error text default '', "when" real,
    repeat integer, steps integer, worded integer not null default 0, brief text, key text,
    embedded integer not null default 0);
create index if not exists by_place on sources(file, at);
create index if not exists by_group on sources("group", split);
create index if not exists by_task on sources(task, split);
create index if not exists by_key on sources(key);
create index if not exists facts on sources(split, task, "group", passed, "when", domain, ending,
    digest, model, run);
create index if not exists unworded on sources(split, number) where worded = 0;
create index if not exists unembedded on sources(number) where worded = 1 and embedded = 0;
create table if not exists blobs(domain text, sha text, file text);
create table if not exists recalled(other text, id text, primary key(other, id)) without rowid;
create table if not exists closed(kind text, name text, primary key(kind, name)) without rowid;
create table if not exists documents(number integer primary key autoincrement, source integer,
    part integer, grain text, step integer, error text);
create table if not exists named(kind text, name text, document integer, value text,
    primary key(kind, name, document, value)) without rowid;
create index if not exists of_source on documents(source);
create index if not exists of_grain on documents(grain, source);
create index if not exists of_error on documents(error, source);
create index if not exists of_document on named(document);
create virtual table if not exists words
    using fts5(text, content='', tokenize="unicode61 remove_diacritics 0");
create table if not exists vectors(embedder text, key text, vector blob,
    primary key(embedder, key)) without rowid;
create trigger if not exists source_goes after delete on sources begin
    delete from named where document in (select number from documents where source = old.number);
    delete from documents where source = old.number;
    delete from recalled where id = old.id;
    update meta set value = value + old.embedded where key = 'orphans';
end;
insert or ignore into meta values ('made', hex(randomblob(4))), ('emptied', 0), ('orphans', 0);
pragma user_version = 1;
commit;
"""

_NO_ROOM = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)
_LEFT: list[object] = []
"""What a forked child has of its parent's, and must not close."""


class Database:
    """`memory/index/memory.sqlite`; in this process alone while `worth_keeping` says that there is
    nothing to keep, or where there is no place to write. Safe for several threads and processes."""

    def __init__(self, folder: Path, worth_keeping: Callable[[], bool]) -> None:
        self.path = folder / NAME
        self.worth_keeping = worth_keeping
        self.in_memory = False
        self._lock = threading.RLock()
        self._inode: int | None = None
        self._process = os.getpid()
        self._db: sqlite3.Connection | None = None
        self._closer: weakref.finalize[..., Database] | None = None

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what some work makes of the open file; where the file is broken it is begun anew
        and the work done once more. On a full disk it goes on in memory: who appends will meet the
        full disk and say so."""
        with self._lock:
            for last in (False, False, True):
                try:
                    return work(self._connect())
                except sqlite3.Error as e:
                    code = getattr(e, "sqlite_errorcode", 0) & 0xFF
                    if code in _NO_ROOM and not self.in_memory:
                        self.in_memory = True
                        self.close()
                        continue
                    busy = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                    if last or busy:
                        raise Fault(
                            f"the index {self.path} cannot be used: {e}",
                            fix=f"another process holds it: fuser -v {self.path} shows which"
                            if busy
                            else "recreate memory rebuild makes it anew of the files beside it",
                        ) from e
                    self.drop()
            raise AssertionError("unreachable")

    def close(self) -> None:
        """Let go of the file; whoever asks next opens it again."""
        with self._lock:
            if self._closer is not None:
                self._closer()
            self._db = None
            self._closer = None
            self._inode = None

    def drop(self) -> None:
        """Delete the file: the next question makes it again."""
        with self._lock:
            self.close()
            with disk(self.path.parent):
                for suffix in ("", "-journal"):
                    self.path.with_name(NAME + suffix).unlink(missing_ok=True)

    @property
    def on_disk(self) -> bool:
        """Whether the file that was opened last is one on the disk."""
        return self._inode is not None

    def squeeze(self) -> None:
        """Let the file hold nothing of what was deleted from it."""
        self.run(lambda db: db.execute("vacuum"))

    def _connect(self) -> sqlite3.Connection:
        try:
            inode = self.path.stat().st_ino
        except OSError:
            inode = None
        # forked: SQLite's connections are not to be used, nor closed, by a child
        if self._process != os.getpid():
            _LEFT.append((self._db, self._closer and self._closer.detach()))
            self._db = None
            self._closer = None
            self._inode = None
            self._process = os.getpid()
        if self._db is not None and (
            self.in_memory or (self._inode == inode and (inode is not None or not self._storable()))
        ):
            return self._db
        self.close()
        if self._storable():
            try:
                make(self.path.parent, ignored=True)
            except Fault:
                self.in_memory = True
                return self._connect()
            if inode is None:
                _clear(self.path.parent)
            check_locks(self.path.parent)
            with contextlib.suppress(OSError):  # sqlite3 says what is wrong with the place
                self.path.touch(mode_in(self.path.parent))
            db = sqlite3.connect(
                self.path, timeout=600, isolation_level=None, check_same_thread=False
            )
        else:
            db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db, self._closer = db, weakref.finalize(self, db.close)
        db.create_function(
            "is_file", 2, lambda asked, there: is_file(asked, there), deterministic=True
        )
        # Derived: after a power cut it is checked and, if need be, made again.
        db.execute("pragma synchronous = off")
        db.execute("pragma cache_size = -16000")
        if not db.execute("select 1 from sqlite_master").fetchone():
            db.executescript(_TABLES)
        if db.execute("pragma user_version").fetchone()[0] != FORMAT:
            raise sqlite3.DatabaseError("it is of another format")
        if (inode is not None and self.path.stat().st_size <= CHECKED) and db.execute(
            "pragma quick_check(1)"
        ).fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("it is damaged")
        self._inode = self.path.stat().st_ino if self._storable() else None
        return db

    def _storable(self) -> bool:
        """Return whether there is something to keep and a place to keep it."""
        if self.in_memory:
            return False
        if self.path.exists():
            return os.access(self.path, os.W_OK)
        parent = self.path.parent
        while not parent.exists():
            parent = parent.parent
        return os.access(parent, os.W_OK) and self.worth_keeping()


@contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """Write all that the block writes, or nothing; inside another such block, as a part of it."""
    if db.in_transaction:
        yield
        return
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise


def meta(db: sqlite3.Connection, key: str) -> str:
    """Return a fact of the file itself; '' for one that nobody wrote."""
    row = db.execute("select value from meta where key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def set_meta(db: sqlite3.Connection, **values: str | int) -> None:
    """Write facts of the file itself."""
    db.executemany("insert or replace into meta values (?, ?)", list(values.items()))


def _clear(folder: Path) -> None:
    """Delete what an index of another format left in its folder; vectors stay."""
    for old in folder.iterdir():
        if old.name.startswith("chroma-"):
            shutil.rmtree(old, ignore_errors=True)
        elif old.suffix in (".sqlite", ".json") and old.name != NAME:
            with suppress(OSError):
                old.unlink()
