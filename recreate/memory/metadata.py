"""What the experience files hold and where: a small SQLite file, derived, thrown away at the first
doubt.

It is brought up to date from the files whenever it is asked: what was appended is read on, anything
else that happened to a file (shorter, rewritten, gone) makes it be built again. Facts found here
choose what to read; what is returned to a caller is read from the files and verified there.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from recreate.agents.trajectory import error_type
from recreate.api.errors import Fault
from recreate.memory.codec import refs
from recreate.storage.files import fault, make
from recreate.storage.log import Line, Log, encode, unix

FORMAT = "3"
T = TypeVar("T")

_TABLES = """
create table meta(key text primary key, value text) without rowid;
create table files(name text primary key, size integer, mtime integer, consumed integer,
    last_offset integer, last_length integer, last_sum text, damaged integer) without rowid;
create table experiences(number integer primary key autoincrement, id text unique, sum text, \
content text, file text,
    at integer, length integer, domain text, task text, "group" text, split text, passed integer, \
score real,
    ending text, digest text, model text, run text, error text, "when" real, repeat integer, steps \
integer);
create table blobs(domain text, sha text, file text);
create index by_place on experiences(file, at);
create index by_group on experiences("group", split);
create index by_task on experiences(task, split);
create table recalled(other text, id text, primary key(other, id)) without rowid;
create table closed(kind text, name text, primary key(kind, name)) without rowid;
"""

FILTERS = (
    "domain",
    "task",
    "group",
    "split",
    "passed",
    "ending",
    "digest",
    "model",
    "run",
    "error",
)
"""Facts of an experience that can be filtered by."""

FACTS = (*FILTERS, "when", "score", "repeat", "steps")
"""The columns that say what an experience is."""

_LEFT: list[object] = []
"""What a forked child has of its parent's."""

_NO_ROOM = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)


def index_of(folder: Path, kind: str) -> Path:
    """Where what is derived of a memory folder lies: of its experiences, or of what waits for a
    grade."""
    return folder / "index" if kind == "experiences" else folder / "index" / kind


class Metadata:
    """`memory/index/catalogue.sqlite`; in this process alone while there is nothing to list or no
    place to write.

    `folder` is the memory folder. kind: the folder of each domain that is listed, `experiences` or
    `waiting`. Safe for several threads and processes. On a full disk it goes on in memory.
    """

    def __init__(self, folder: Path, kind: str = "experiences") -> None:
        self.folder = folder
        self.kind = kind
        self.path = index_of(folder, kind) / "catalogue.sqlite"
        self._lock = threading.RLock()
        self._inode: int | None = None
        self._process = os.getpid()
        self._in_memory = False
        self._db: sqlite3.Connection | None = None
        self._closer: weakref.finalize[..., Metadata] | None = None

    # what is in the files

    def files(self) -> dict[str, os.stat_result]:
        """The experience files, by their path relative to the memory folder."""
        found: dict[str, os.stat_result] = {}
        try:
            for domain in sorted(os.listdir(self.folder)):  # noqa: PTH208 - asked at every question
                with (
                    suppress(FileNotFoundError, NotADirectoryError),
                    os.scandir(self.folder / domain / self.kind) as entries,
                ):
                    for entry in sorted(entries, key=lambda entry: entry.name):
                        # a link that leads nowhere: others come after it
                        with suppress(FileNotFoundError):
                            if entry.name.endswith(".jsonl") and entry.is_file():
                                found[f"{domain}/{self.kind}/{entry.name}"] = entry.stat()
        except FileNotFoundError:
            return {}
        except OSError as e:
            raise fault(self.folder, e) from e
        return found

    def refresh(self) -> None:
        """Take in what changed in the files since the last time, whoever changed it."""
        self._with(self._catch_up)

    def edition(self) -> tuple[str, int]:
        """(a string, a number): while the string stays, experiences are only added, each with a
        higher number than those before; the number is the highest. Call refresh first."""

        def work(db: sqlite3.Connection) -> tuple[str, int]:
            last = db.execute("select coalesce(max(number), 0) from experiences").fetchone()[0]
            return f"{_meta(db, 'made')}:{_meta(db, 'emptied')}", last

        return self._with(work)

    def since(self, number: int, train_only: bool) -> list[tuple[str, str, str, str]]:
        """(id, content, group, task) of the experiences with a higher number, oldest first."""
        clause = "and split = 'train'" if train_only else ""
        sql = (
            f'select id, content, "group", task from experiences where number > ? {clause} order by'
            " number"
        )
        return self._with(lambda db: db.execute(sql, (number,)).fetchall())

    def closed(self) -> tuple[frozenset[str], frozenset[str]]:
        """The groups and the tasks of which some experience is recorded as validation or test."""
        rows = self._with(lambda db: db.execute("select kind, name from closed").fetchall())
        groups, tasks = ({name for kind, name in rows if kind == k} for k in ("group", "task"))
        return frozenset(groups), frozenset(tasks)

    def told_of(self, groups: Collection[str], tasks: Collection[str]) -> frozenset[str]:
        """The experiences whose agents recalled one of these groups or tasks, or one that had."""

        def among(db: sqlite3.Connection, sql: str, names: Collection[str]) -> set[str]:
            all_ = list(names)
            parts = [all_[at : at + 500] for at in range(0, len(all_), 500)]
            rows = (db.execute(f"{sql} in ({','.join('?' * len(part))})", part) for part in parts)
            return {row[0] for each in rows for row in each}

        def work(db: sqlite3.Connection) -> frozenset[str]:
            if not db.execute("select 1 from recalled limit 1").fetchone():
                return frozenset()
            sql = "select id from experiences where split = 'train' and"
            new, found = (
                among(db, f'{sql} "group"', groups) | among(db, f"{sql} task", tasks),
                set[str](),
            )
            while new := among(db, "select id from recalled where other", new) - found:
                found |= new
            return frozenset(found)

        return self._with(work)

    def when(self, id: str) -> float | None:
        """When an experience was recorded, in unix seconds; None when nobody knows."""
        row = self._with(
            lambda db: db.execute('select "when" from experiences where id = ?', (id,)).fetchone()
        )
        return row[0] if row else None

    def rebuild(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Throw the catalogue away and read every file again. progress(bytes done, bytes in
        all)."""
        with self._lock:
            self._drop()
            self._with(lambda db: self._catch_up(db, progress))

    def cut(
        self,
        name: str,
        before: os.stat_result,
        gone: Sequence[tuple[int, int]],
        texts: Sequence[tuple[str, str]],
    ) -> None:
        """Follow a cut, so that nothing is read again: lines (offset, length) went out of a file,
        which was read as it was `before`, with what they named of large texts (domain, SHA-256); no
        other line has their ids. A file that was not read so is left to the next `refresh`."""

        def work(db: sqlite3.Connection) -> None:
            with _writing(db):
                asked = "select size, mtime, consumed, damaged from files where name = ?"
                row = db.execute(asked, (name,)).fetchone()
                if row is None or row[:2] != (before.st_size, before.st_mtime_ns):
                    return
                here = "from experiences where file = ?"
                shift, ends = 0, [*(at for at, _ in gone[1:]), before.st_size]
                for (at, length), end in zip(gone, ends, strict=True):
                    shift += length
                    db.execute(
                        f"delete from recalled where id in (select id {here} and at = ?)",
                        (name, at),
                    )
                    db.execute(f"delete {here} and at = ?", (name, at))
                    moved = (
                        "update experiences set at = at - ? where file = ? and at > ? and at < ?"
                    )
                    db.execute(moved, (shift, name, at, end))
                left, rows = Counter(texts), list[tuple[int]]()
                if texts:
                    for number, *of in db.execute(
                        "select rowid, domain, sha from blobs where file = ?", (name,)
                    ):
                        if left[text := tuple(of)] > 0:
                            left[text] -= 1
                            rows.append((number,))
                db.executemany("delete from blobs where rowid = ?", rows)
                db.execute("delete from files where name = ?", (name,))
                if (self.folder / name).exists():
                    stat = (self.folder / name).stat()
                    last = db.execute(
                        f"select at, length, sum {here} order by at desc limit 1", (name,)
                    ).fetchone()
                    values = (
                        name,
                        stat.st_size,
                        stat.st_mtime_ns,
                        row[2] - shift,
                        *(last or (0, 0, "")),
                        row[3],
                    )
                    db.execute("insert into files values (?,?,?,?,?,?,?,?)", values)

        self._with(work)

    def squeeze(self) -> None:
        """Let the file hold nothing of what was deleted from it."""
        with self._lock:
            try:
                self._connect().execute("vacuum")
                if not self._in_memory:
                    return
            except sqlite3.Error:
                pass
            self._drop()  # no room: it is derived

    def find(self, id: str) -> Line | None:
        """The line of an experience, read from its file and verified; None when there is none."""
        for _ in range(2):
            row = self._with(
                lambda db: db.execute(
                    "select file, at, sum from experiences where id = ?", (id,)
                ).fetchone()
            )
            if row is None:
                return None
            line = Log(self.folder / row[0]).at(row[1])
            if (
                line is not None
                and line.record is not None
                and line.sum == row[2]
                and _id(line.record) == id
            ):
                return line
            # the file changed under the same size and time, or the catalogue is wrong
            self.rebuild()
        return None

    def beginning(self, start: str) -> list[str]:
        """The ids that begin so."""
        start = start.encode("utf-8", "replace").decode()
        sql = "select id from experiences where id >= ? and id <= ? || char(1114111)"
        return [row[0] for row in self._with(lambda db: db.execute(sql, (start, start)).fetchall())]

    def told(self, ids: Collection[str]) -> list[str]:
        """The experiences whose agents were told of one of these, in the order of the files."""
        sql = (
            "select e.id from experiences e where e.id in (select id from recalled where other in "
        )
        sql += "(select value from json_each(?))) order by e.file, e.at"
        asked = (json.dumps(list(ids)),)
        return [row[0] for row in self._with(lambda db: db.execute(sql, asked).fetchall())]

    def knows(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are recorded."""
        found: set[str] = set()
        for start in range(0, len(ids), 500):
            part = list(ids[start : start + 500])
            marks = ",".join("?" * len(part))
            rows = self._with(
                lambda db, m=marks, p=part: db.execute(  # type: ignore[misc]
                    f"select id from experiences where id in ({m})", p
                ).fetchall()
            )
            found.update(row[0] for row in rows)
        return found

    def rows(self, where: Mapping[str, Sequence[Any]] | None = None) -> Iterator[dict[str, Any]]:
        """id, checksum and facts of the experiences that match, in the order of the files;
        streamed.

        `where` maps a name in FILTERS (or `id`) to the values it may have, `since` and `until` to
        unix seconds.
        """
        clause, values = _where(where or {})
        columns = ", ".join(f'"{c}"' for c in ("id", "sum", *FACTS, "file", "at"))
        file, at = "", -1
        sql = (
            f"select {columns} from experiences where (file, at) > (?, ?) {clause} order by file,"
            " at limit 1000"
        )
        while True:
            batch = self._with(partial(_fetch_all, sql=sql, values=[file, at, *values]))
            for row in batch:
                fact = dict(zip(("id", "sum", *FACTS, "file", "at"), row, strict=True))
                fact["passed"] = bool(fact["passed"])
                file, at = fact.pop("file"), fact.pop("at")
                yield fact
            if len(batch) < 1000:
                return

    def sums(self) -> dict[str, str]:
        """id -> checksum of what each experience says, whenever it was recorded."""
        return dict(
            self._with(lambda db: db.execute("select id, content from experiences").fetchall())
        )

    def blobs(self) -> set[tuple[str, str]]:
        """(domain, SHA-256) of every large text that a line names."""
        return set(
            self._with(lambda db: db.execute("select distinct domain, sha from blobs").fetchall())
        )

    def counts(self) -> dict[str, Any]:
        """experiences, steps, damaged lines, and experiences by domain and split."""

        def count(db: sqlite3.Connection) -> dict[str, Any]:
            by: dict[str, dict[str, int]] = {}
            for domain, split, n in db.execute(
                "select domain, split, count(*) from experiences group by 1, 2 order by 1, 2"
            ):
                by.setdefault(domain, {})[split] = n
            n, steps = db.execute(
                "select count(*), coalesce(sum(steps), 0) from experiences"
            ).fetchone()
            damaged = db.execute("select coalesce(sum(damaged), 0) from files").fetchone()[0]
            return {"experiences": n, "steps": steps, "damaged_lines": damaged, "domains": by}

        return self._with(count)

    def close(self) -> None:
        with self._lock:
            if self._closer is not None:
                self._closer()
            self._db, self._closer, self._inode = None, None, None

    # keeping up

    def _catch_up(
        self, db: sqlite3.Connection, progress: Callable[[int, int], None] | None = None
    ) -> None:
        if self._unchanged(db):
            return
        with _writing(db):
            files = self.files()
            known = {row[0]: row[1:] for row in db.execute("select * from files")}
            if not all(self._grew(name, known[name], files) for name in known):
                for table in ("experiences", "files", "closed", "blobs", "recalled"):
                    db.execute(f"delete from {table}")
                db.execute("update meta set value = value + 1 where key = 'emptied'")
                known = {}
            done, total = 0, sum(s.st_size for s in files.values())
            for name, stat in files.items():
                seen = known.get(name)
                if seen is None or seen[:2] != (stat.st_size, stat.st_mtime_ns):
                    self._read_on(db, name, stat, seen)
                done += stat.st_size
                if progress is not None:
                    progress(done, total)

    def _unchanged(self, db: sqlite3.Connection) -> bool:
        known = {row[0]: row[1:] for row in db.execute("select name, size, mtime from files")}
        return known == {name: (s.st_size, s.st_mtime_ns) for name, s in self.files().items()}

    def _grew(self, name: str, seen: Sequence[Any], files: Mapping[str, os.stat_result]) -> bool:
        """Whether a file is what it was, or that and more at its end."""
        size, mtime, consumed, last_offset, last_length, last_sum, _ = seen
        stat = files.get(name)
        if stat is None or stat.st_size < consumed:
            return False
        if (stat.st_size, stat.st_mtime_ns) == (size, mtime):
            return True
        if stat.st_size == size:
            return False
        if not last_length:
            return True
        line = Log(self.folder / name).at(last_offset)
        return line is not None and line.sum == last_sum

    def _read_on(
        self, db: sqlite3.Connection, name: str, stat: os.stat_result, seen: Sequence[Any] | None
    ) -> None:
        consumed, last, damaged = (seen[2], seen[3:6], seen[6]) if seen else (0, (0, 0, ""), 0)
        for line in Log(self.folder / name).lines(consumed):
            consumed, last = line.offset + line.length, (line.offset, line.length, line.sum)
            row = None if line.record is None else _row(line, name)
            if row is None:
                damaged += 1
                continue
            marks = ",".join("?" * len(row))
            db.execute(f"insert or ignore into experiences values (null, {marks})", row)
            task, group, split = row[7:10]
            if split != "train":
                closed = [("task", task), ("group", group)][: 2 if group else 1]
                db.executemany("insert or ignore into closed values (?, ?)", closed)
            large = {(row[6], ref.sha256, name) for ref in refs(line.record or {})}
            db.executemany("insert into blobs values (?, ?, ?)", sorted(large))
            told = [(other, row[0]) for other in _recalled(line)]
            db.executemany("insert or ignore into recalled values (?, ?)", told)
        db.execute(
            "insert or replace into files values (?,?,?,?,?,?,?,?)",
            (name, stat.st_size, stat.st_mtime_ns, consumed, *last, damaged),
        )

    # the SQLite file

    def _with(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work on the database; when it is broken, once more on a new one."""
        with self._lock:
            for last in (False, False, True):
                try:
                    return work(self._connect())
                except sqlite3.Error as e:
                    code = getattr(e, "sqlite_errorcode", 0) & 0xFF
                    if code in _NO_ROOM and not self._in_memory:
                        self._in_memory = (
                            True  # reading goes on; who appends will meet the full disk and say so
                        )
                        self.close()
                        continue
                    if last or code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                        raise Fault(
                            f"the catalogue {self.path} cannot be used: {e}",
                            fix=(
                                f"rm -r {self.path.parent} (it is derived from the files beside it)"
                            ),
                        ) from e
                    self._drop()
            raise AssertionError("unreachable")

    def _connect(self) -> sqlite3.Connection:
        try:
            inode = self.path.stat().st_ino
        except OSError:
            inode = None
        # forked: SQLite's connections are not to be used, nor closed, by a child
        if self._process != os.getpid():
            _LEFT.append((self._db, self._closer and self._closer.detach()))
            self._db, self._closer, self._inode, self._process = None, None, None, os.getpid()
        if self._db is not None and self._in_memory:
            return self._db
        if (
            self._db is not None
            and self._inode == inode
            and (inode is not None or not self._storable())
        ):
            return self._db
        self.close()
        if self._storable():
            try:
                make(self.path.parent, ignored=True)
            except Fault:
                self._in_memory = True
                return self._connect()
            db = sqlite3.connect(
                self.path, timeout=600, isolation_level=None, check_same_thread=False
            )
        else:
            db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db, self._closer = db, weakref.finalize(self, db.close)
        # Derived: after a power cut it is checked and, if need be, made again.
        db.execute("pragma synchronous = off")
        db.execute("begin immediate")
        if not db.execute("select 1 from sqlite_master").fetchone():
            for statement in _TABLES.split(";"):
                db.execute(statement)
            db.execute(
                "insert into meta values ('format', ?), ('emptied', '0'), ('made', ?)",
                (FORMAT, os.urandom(4).hex()),
            )
        db.execute("commit")
        if (
            _meta(db, "format") != FORMAT
            or db.execute("pragma quick_check(1)").fetchone()[0] != "ok"
        ):
            raise sqlite3.DatabaseError("not this format, or corrupt")
        self._inode = self.path.stat().st_ino if self._storable() else None
        return db

    def _storable(self) -> bool:
        """Whether there is something to list and a place to keep the list."""
        if self._in_memory:
            return False
        if self.path.exists():
            return os.access(self.path, os.W_OK)
        return os.access(self.folder, os.W_OK) and bool(self.files())

    def _drop(self) -> None:
        with self._lock:
            self.close()
            for suffix in ("", "-journal", "-wal", "-shm"):
                try:
                    self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
                except OSError as e:
                    raise fault(self.path.parent, e) from e


@contextmanager
def _writing(db: sqlite3.Connection) -> Iterator[None]:
    """All that is written, or nothing."""
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise


def _meta(db: sqlite3.Connection, key: str) -> str:
    row = db.execute("select value from meta where key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def _id(record: Mapping[str, Any]) -> Any:
    experience = record.get("experience")
    return experience.get("id") if isinstance(experience, dict) else None


def _recalled(line: Line) -> set[str]:
    """The attempts that its agent was told of."""
    try:
        steps = (line.record or {})["experience"]["trace"].get("steps", ())
        return {
            id for step in steps for id in step.get("recalled", ()) if not id.startswith("lesson:")
        }
    except (KeyError, TypeError, AttributeError):
        return set()


def _row(line: Line, file: str) -> tuple[Any, ...] | None:
    """The catalogue's row of a line, or None when it is no experience."""
    try:
        e = (line.record or {})["experience"]
        trace, grade = e["trace"], e["grade"]
        error = error_type(grade.get("evidence") or "")
        recorded = (line.record or {}).get("when")
        row = (
            e["id"],
            line.sum,
            (
                line.sum
                if recorded is None
                else f"{zlib.crc32(encode(e).encode('utf-8', 'surrogatepass')):08x}"
            ),
            file,
            line.offset,
            line.length,
            e["domain"],
            e["task"],
            e["group"],
            e["split"],
            int(bool(grade["passed"])),
            float(grade["score"]),
            trace.get("ending", ""),
            e["digest"],
            trace["model"],
            e.get("run", ""),
            error,
            unix(e.get("when", recorded)),
            int(trace.get("repeat", 0)),
            len(trace.get("steps", ())),
        )
        "".join(text for text in row if isinstance(text, str)).encode()
        return row
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _where(where: Mapping[str, Sequence[Any]]) -> tuple[str, list[Any]]:
    clause, values = "", list[Any]()
    for name, allowed in where.items():
        if name in ("since", "until"):
            clause += f' and "when" {">=" if name == "since" else "<"} ?'
            values += allowed
            continue
        clause += f' and "{name}" in ({",".join("?" * len(allowed))})'
        values += allowed
    return clause, values


def _fetch_all(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    return db.execute(sql, values).fetchall()
