"""What the experience files hold and where, and the facts of each attempt.

It is brought up to date from the files whenever it is asked: what was appended is read on, and a
file to which anything else happened (shorter, rewritten, gone) is read again. Facts found here
choose what to read; what is returned to a caller is read from the files and verified there.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from recreate.agents.trajectory import error_type
from recreate.api.shapes import JsonDict, JsonMap
from recreate.memory.codec import refs
from recreate.memory.database import Database, meta, set_meta, writing
from recreate.storage.files import fault
from recreate.storage.log import Line, Log, encode, unix

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

_COLUMNS = (
    *("id", "content", "file", "at", "length", "sum", "domain", "task", "group", "split"),
    *("passed", "score", "ending", "digest", "model", "run", "error", "when", "repeat", "steps"),
)
_QUOTED = '"{}"'.format
_LISTED = "(select value from json_each(?))"
_MOVED = "?"
"""The file of a row while its own is read again."""

_TAKE = f"""
insert into sources({", ".join(map(_QUOTED, _COLUMNS))})
    values ({", ".join("?" * len(_COLUMNS))})
    on conflict(id) do update set file = excluded.file, at = excluded.at,
        length = excluded.length, sum = excluded.sum, "when" = excluded."when"
    where sources.file = '{_MOVED}' and sources.content = excluded.content
"""

_NOTES = """
create table if not exists said(id text primary key, edition text, split text, said text)
"""
_NOTES_GO = """
create trigger if not exists said_goes after delete on sources begin
    delete from said where id = old.id;
end
"""
_NOTE = """
insert or replace into said(edition, split, said, id)
    select ?, ?, ?, id from sources where id = ?
"""


def index_of(folder: Path, kind: str) -> Path:
    """Return where what is derived of a memory folder lies: of its experiences, or of what waits
    for a grade."""
    return folder / "index" if kind == "experiences" else folder / "index" / kind


class Metadata:
    """The facts of all attempts of a memory folder. kind: the folder of each domain that is listed,
    `experiences` or `waiting`. Safe for several threads and processes."""

    def __init__(self, folder: Path, kind: str = "experiences") -> None:
        self.folder = folder
        self.kind = kind
        self.database = Database(index_of(folder, kind), lambda: bool(self.files()))

    # what is in the files

    def files(self) -> dict[str, os.stat_result]:
        """Return the experience files, by their path relative to the memory folder."""
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
        self.database.run(self._catch_up)

    def edition(self) -> tuple[str, int]:
        """Return (a string, a number): while the string stays, experiences are only added, each
        with a higher number than those before; the number is the highest. Call refresh first."""

        def work(db: sqlite3.Connection) -> tuple[str, int]:
            last = db.execute("select coalesce(max(number), 0) from sources").fetchone()[0]
            return f"{meta(db, 'made')}:{meta(db, 'emptied')}", last

        return self.database.run(work)

    def closed_names(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the groups and the tasks of which some experience is recorded as validation or
        test."""
        rows = self._ask("select kind, name from closed")
        groups = frozenset(name for kind, name in rows if kind == "group")
        return groups, frozenset(name for kind, name in rows if kind == "task")

    def recallers_of(self, groups: Collection[str], tasks: Collection[str]) -> frozenset[str]:
        """Return the experiences whose agents recalled one of these groups or tasks, or one that
        had."""

        def among(column: str, names: Collection[str]) -> set[str]:
            rows = self._ask(
                f"select id from sources where split = 'train' and {column} in {_LISTED}", names
            )
            return {id for (id,) in rows}

        if not self._ask("select 1 from recalled limit 1"):
            return frozenset()
        new = among('"group"', groups) | among("task", tasks)
        found = set[str]()
        while new := set(self.recallers(new)) - found:
            found |= new
        return frozenset(found)

    def recallers(self, ids: Collection[str]) -> list[str]:
        """Return the experiences whose agents recalled one of these, in the order of the files."""
        rows = self._ask(
            "select id from sources where id in (select id from recalled where other in"
            f" {_LISTED}) order by file, at",
            ids,
        )
        return [id for (id,) in rows]

    def when(self, id: str) -> float | None:
        """Return when an experience was recorded, in unix seconds; None when nobody knows."""
        rows = self._ask('select "when" from sources where id = ?', id)
        return rows[0][0] if rows else None

    def rebuild(self) -> None:
        """Throw the file away and read every file again."""
        self.database.drop()
        self.refresh()

    def find(self, id: str) -> Line | None:
        """Return the line of an experience, read from its file and verified; None when there is
        none."""
        for _ in range(2):
            rows = self._ask("select file, at, sum from sources where id = ? and file <> ''", id)
            if not rows:
                return None
            file, at, sum_ = rows[0]
            line = Log(self.folder / file).at(at)
            if (
                line is not None
                and line.record is not None
                and line.sum == sum_
                and _id(line.record) == id
            ):
                return line
            # the file changed under the same size and time, or what is known of it is wrong
            self.rebuild()
        return None

    def beginning(self, start: str) -> list[str]:
        """Return the ids that begin so."""
        start = start.encode("utf-8", "replace").decode()
        rows = self._ask(
            "select id from sources where id >= ?1 and id <= ?1 || char(1114111) and file <> ''",
            start,
        )
        return [id for (id,) in rows]

    def knows(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that are recorded."""
        rows = self._ask(f"select id from sources where id in {_LISTED} and file <> ''", ids)
        return {id for (id,) in rows}

    def rows(self, where: Mapping[str, Sequence[Any]] | None = None) -> Iterator[JsonDict]:
        """Return id, checksum and facts of the experiences that match, in the order of the files;
        streamed.

        `where` maps a name in FILTERS (or `id`) to the values it may have, `since` and `until` to
        unix seconds.
        """
        clause, values = _where(where or {})
        names = ("id", "sum", *FACTS, "file", "at")
        sql = (
            f"select {', '.join(map(_QUOTED, names))} from sources where (file, at) > (?, ?)"
            f" {clause} order by file, at limit 1000"
        )
        file = ""
        at = -1
        while True:
            batch = self._ask(sql, file, at, *values)
            for row in batch:
                fact = dict(zip(names, row, strict=True))
                fact["passed"] = bool(fact["passed"])
                file = fact.pop("file")
                at = fact.pop("at")
                yield fact
            if len(batch) < 1000:
                return

    def noted(self, edition: str) -> dict[tuple[str, str], str]:
        """Return (experience, split) -> what was noted of it by such an edition of the guards."""

        def work(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
            db.execute(_NOTES)
            db.execute(_NOTES_GO)
            sql = "select id, split, said from said where edition = ?"
            return db.execute(sql, [edition]).fetchall()

        return {(id, split): said for id, split, said in self.database.run(work)}

    def note(self, edition: str, said: Mapping[tuple[str, str], str]) -> None:
        """Keep what experiences that are recorded say, in place of what was noted of them."""

        def work(db: sqlite3.Connection) -> None:
            with writing(db):
                db.executemany(
                    _NOTE, [(edition, split, text, id) for (id, split), text in said.items()]
                )

        if said:
            self.database.run(work)

    def verdicts(self, of_what: str) -> dict[str, bool]:
        """Return which lessons speak of what is held out, as far as that was kept."""
        kept = self.database.run(lambda db: meta(db, "spoken"))
        of, _, verdicts = kept.partition(" ")
        return dict(json.loads(verdicts)) if of == of_what else {}

    def keep_verdicts(self, of_what: str, verdicts: Mapping[str, bool]) -> None:
        """Keep that in place of what was kept of something else."""
        kept = f"{of_what} {json.dumps(verdicts)}"
        self.database.run(lambda db: set_meta(db, spoken=kept))

    def sums(self) -> dict[str, str]:
        """Return id -> checksum of what each experience says, whenever it was recorded."""
        return dict(self._ask("select id, content from sources where file <> ''"))

    def blobs(self) -> set[tuple[str, str]]:
        """Return (domain, SHA-256) of every large text that a line names."""
        rows = self._ask("select distinct domain, sha from blobs")
        return {(domain, sha) for domain, sha in rows}

    def counts(self) -> JsonDict:
        """Return how many experiences, steps and damaged lines there are, and experiences by domain
        and split."""
        by: dict[str, dict[str, int]] = {}
        total = steps = 0
        for domain, split, n, of in self._ask(
            "select domain, split, count(*), sum(steps) from sources where file <> ''"
            " group by 1, 2 order by 1, 2"
        ):
            by.setdefault(domain, {})[split] = n
            total = total + n
            steps = steps + of
        damaged = self._ask("select coalesce(sum(damaged), 0) from files")[0][0]
        return {"experiences": total, "steps": steps, "damaged_lines": damaged, "domains": by}

    def close(self) -> None:
        """Let go of the file."""
        self.database.close()

    # keeping up

    def _ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a question; a collection among the values is handed over as JSON."""
        bound = [v if isinstance(v, str | int | float) else json.dumps(list(v)) for v in values]
        return self.database.run(lambda db: db.execute(sql, bound).fetchall())

    def _catch_up(self, db: sqlite3.Connection) -> None:
        files = self.files()
        known = {row[0]: row[1:] for row in db.execute("select * from files")}
        if {n: row[:2] for n, row in known.items()} == {
            n: (s.st_size, s.st_mtime_ns) for n, s in files.items()
        }:
            return
        with writing(db):
            known = {row[0]: row[1:] for row in db.execute("select * from files")}
            changed = {name for name in known if not self._grew(name, known[name], files)}
            # a line that is in two files is listed once: where one of them changed, all are read
            if changed and any(row[7] for row in known.values()):
                changed = set(known)
            for name in changed:
                db.execute("update sources set file = ? where file = ?", (_MOVED, name))
                db.execute("delete from blobs where file = ?", (name,))
                db.execute("delete from files where name = ?", (name,))
                del known[name]
            for name, stat in files.items():
                seen = known.get(name)
                if seen is None or seen[:2] != (stat.st_size, stat.st_mtime_ns):
                    self._read_on(db, name, stat, seen)
            if changed:
                self._delete_moved(db)

    def _delete_moved(self, db: sqlite3.Connection) -> None:
        """Delete what no file has any more, and what was known by it."""
        if db.execute("delete from sources where file = ?", (_MOVED,)).rowcount:
            set_meta(db, emptied=int(meta(db, "emptied")) + 1)
        db.execute("delete from closed")
        held = "from sources where split <> 'train' and file <> ''"
        db.execute(f"insert or ignore into closed select 'task', task {held}")
        named = "and \"group\" <> ''"
        db.execute(f"insert or ignore into closed select 'group', \"group\" {held} {named}")

    def _grew(self, name: str, seen: Sequence[Any], files: Mapping[str, os.stat_result]) -> bool:
        """Return whether a file is what it was, or that and more at its end."""
        size, mtime, consumed, last_offset, last_length, last_sum, *_ = seen
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
        consumed, last, damaged, doubles = (
            (seen[2], seen[3:6], seen[6], seen[7]) if seen else (0, (0, 0, ""), 0, 0)
        )
        for line in Log(self.folder / name).lines(consumed):
            consumed = line.offset + line.length
            last = (line.offset, line.length, line.sum)
            row = None if line.record is None else _row(line, name)
            if row is None:
                damaged += 1
                continue
            id, content, task, group, split = row[0], row[1], *row[7:10]
            db.execute(
                "delete from sources where id = ? and file = ? and content <> ?",
                (id, _MOVED, content),
            )
            if not db.execute(_TAKE, row).rowcount:
                doubles += 1
            if split != "train":
                closed = [("task", task), ("group", group)][: 2 if group else 1]
                db.executemany("insert or ignore into closed values (?, ?)", closed)
            large = {(row[6], ref.sha256, name) for ref in refs(line.record or {})}
            db.executemany("insert into blobs values (?, ?, ?)", sorted(large))
            recalled = [(other, id) for other in _recalled(line)]
            db.executemany("insert or ignore into recalled values (?, ?)", recalled)
        db.execute(
            "insert or replace into files values (?,?,?,?,?,?,?,?,?)",
            (name, stat.st_size, stat.st_mtime_ns, consumed, *last, damaged, doubles),
        )


def _id(record: JsonMap) -> Any:
    experience = record.get("experience")
    return experience.get("id") if isinstance(experience, dict) else None


def _recalled(line: Line) -> set[str]:
    """Return the attempts that its agent was told of."""
    try:
        steps = (line.record or {})["experience"]["trace"].get("steps", ())
        return {
            id for step in steps for id in step.get("recalled", ()) if not id.startswith("lesson:")
        }
    except (KeyError, TypeError, AttributeError):
        return set()


def _row(line: Line, file: str) -> tuple[Any, ...] | None:
    """Return the values of _COLUMNS for a line; None when it is no experience."""
    try:
        e = (line.record or {})["experience"]
        trace = e["trace"]
        grade = e["grade"]
        error = error_type(grade.get("evidence") or "")
        recorded = (line.record or {}).get("when")
        row = (
            e["id"],
            (
                line.sum
                if recorded is None
                else f"{zlib.crc32(encode(e).encode('utf-8', 'surrogatepass')):08x}"
            ),
            file,
            line.offset,
            line.length,
            line.sum,
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
    clause = ""
    values = list[Any]()
    for name, allowed in where.items():
        if name in ("since", "until"):
            clause += f' and "when" {">=" if name == "since" else "<"} ?'
            values += allowed
            continue
        clause += f' and "{name}" in ({",".join("?" * len(allowed))})'
        values += allowed
    return clause, values
