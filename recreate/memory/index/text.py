"""The words and facts of everything remembered, in SQLite: full text (FTS5) over steps as long as
they are.

A document is a step, an experience's own words, or a lesson; a source is the experience or lesson
it belongs to. The words' table keeps no text, so what is deleted stays in it, as numbers that no
document has any more, until most of it is such and all is made again. A connection is opened for
each use: nothing is kept that could be inherited, forgotten or grow.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from recreate.agents.trajectory import is_file
from recreate.memory.documents import Document
from recreate.memory.index.tokenizer import phrases, spread

POSTINGS = 60_000
"""Places of words that one question looks at; the rarest words go first."""

COMMON = 1000
"""Documents. A word that stands in more, and in more than half of all, is not looked up beside a
rarer one: its weight in BM25 as FTS5 has it is 0 (idf, cut off there), and it makes every document
a candidate."""

PURGED = 2000
"""Documents whose words are taken out at once; where more are gone, all is made anew."""

_FACTS = ("domain", "task", "group", "split", "ending", "digest", "model", "run")

_TABLES = """
create table sources(number integer primary key autoincrement, key text unique, sum text, brief \
text, passed integer,
    "when" real, domain text, task text, "group" text, split text, ending text, digest text, model \
text, run text);
create table documents(number integer primary key autoincrement, source integer, part integer, \
grain text,
    step integer, error text);
create table named(kind text, name text, value text, document integer,
    primary key(kind, name, document, value)) without rowid;
create index facts on sources(split, task, "group", passed, "when", domain, ending, digest, model, \
run);
create index of_source on documents(source);
create index of_grain on documents(grain, source);
create index of_error on documents(error, source);
create index of_document on named(document);
create virtual table words using fts5(text, content='', tokenize="unicode61 remove_diacritics 0")
"""


class Match(NamedTuple):
    """A document that was found: its source, its number in it (-1: the source's own words),
    BM25."""

    source: int
    key: str
    part: int
    score: float

    @property
    def id(self) -> str:
        return self.key if self.part < 0 else f"{self.key}/{self.part}"


class Term(NamedTuple):
    """A condition in SQL and the values in it; first: the same in a form with which SQLite goes
    through the documents that it names, instead of asking it of each."""

    sql: str
    values: Sequence[Any] = ()
    first: str = ""


class Filter(NamedTuple):
    """What of all there is may answer: terms over sources s, and such that ask documents d."""

    source: Sequence[Term]
    document: Sequence[Term]

    def over(self, *terms: Term) -> tuple[str, list[Any]]:
        """These and the terms over sources, as SQL and its values."""
        every = [*self.source, *terms]
        return " and ".join(t.sql for t in every), [value for t in every for value in t.values]


class Text:
    """The tables, by a connection that is open. The caller holds the folder's lock.

    all: documents; stands: in how many of them a word stands, as far as it was asked and up to one
    more than POSTINGS. Both of these tables as they are, to be set before words are asked for.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.all, self.stands = 0, dict[str, int]()

    # what is in it

    def count(self) -> int:
        return int(self.db.execute("select count(*) from documents").fetchone()[0])

    def sums(self) -> dict[str, str]:
        """key -> checksum of every source."""
        return dict(self.db.execute("select key, sum from sources"))

    def lessons(self) -> dict[str, str]:
        """The same of lessons."""
        return dict(
            self.db.execute(
                "select key, sum from sources where key >= 'lesson:' and key < 'lesson;'"
            )
        )

    def known(self, keys: Iterable[str]) -> dict[str, str]:
        """The same of some."""
        asked = json.dumps(list(keys))
        return dict(
            self.db.execute(
                "select key, sum from sources where key in (select value from json_each(?))",
                (asked,),
            )
        )

    def last(self) -> int:
        """The number of the newest source."""
        return int(self.db.execute("select coalesce(max(number), 0) from sources").fetchone()[0])

    def briefs(self, start: int, most: int) -> list[tuple[int, str]]:
        """(number, what is embedded) of the sources numbered `start` and up."""
        asked = "select number, brief from sources where number >= ? order by number limit ?"
        return self.db.execute(asked, (start, most)).fetchall()

    def ready(self, upto: int) -> tuple[int, int]:
        """How many sources are numbered below, and how many there are."""
        asked = (
            "select n - (select count(*) from sources where number >= ?), n from (select count(*) n"
            " from sources)"
        )
        return self.db.execute(asked, (upto,)).fetchone()  # type: ignore[no-any-return]

    # writing

    def put(self, key: str, sum_: str, documents: Sequence[Document]) -> None:
        """Take a source in. Its last document is the one of its own words."""
        whole = documents[-1]
        facts = [_bound(str(whole.facts.get(name, ""))) for name in _FACTS]
        passed = int(whole.facts["passed"]) if "passed" in whole.facts else None
        row = [key, sum_, _bound(whole.brief), passed, whole.when, *facts]
        asked = f"insert into sources values (null, {','.join('?' * len(row))})"
        source = self.db.execute(asked, row).lastrowid
        for d in documents:
            part = -1 if d.id == d.key else int(d.id.rpartition("/")[2])
            number = self.db.execute(
                "insert into documents values (null, ?, ?, ?, ?, ?)",
                (
                    source,
                    part,
                    d.facts["grain"],
                    d.facts.get("step"),
                    _bound(str(d.facts.get("error", ""))),
                ),
            ).lastrowid
            self.db.execute(
                "insert into words(rowid, text) values (?, ?)", (number, spread(_bound(d.text)))
            )
            lists = {("tool", tool, tool) for tool in d.tools}
            lists |= {("file", file.rpartition("/")[2], file) for file in d.files}
            rows = [
                (kind, _bound(name), _bound(value), number) for kind, name, value in sorted(lists)
            ]
            self.db.executemany("insert or ignore into named values (?, ?, ?, ?)", rows)

    def remove(self, keys: Iterable[str]) -> int:
        """Take sources out; how many documents that were."""
        asked = json.dumps(list(keys))
        numbers = "select number from sources where key in (select value from json_each(?))"
        documents = f"select number from documents where source in ({numbers})"
        self.db.execute(f"delete from named where document in ({documents})", (asked,))
        gone = self.db.execute(
            f"delete from documents where source in ({numbers})", (asked,)
        ).rowcount
        self.db.execute(
            "delete from sources where key in (select value from json_each(?))", (asked,)
        )
        return gone

    def purge(self) -> bool:
        """Take the words of documents that are gone out of the words' table, and say whether that
        was done. FTS5 deletes what it is told the words of: they are read from the table itself."""
        dead = "select id from words_docsize where id not in (select number from documents)"
        words = {number: list[tuple[int, bytes]]() for (number,) in self.db.execute(dead)}
        if not words or len(words) > PURGED:
            return not words
        self.db.execute("create virtual table temp.places using fts5vocab(main, words, instance)")
        places = "from temp.places where doc in (select value from json_each(?))"
        asked = (json.dumps(list(words)),)
        for number, at, word in self.db.execute(
            f"select doc, offset, cast(term as blob) {places}", asked
        ):
            words[number].append((at, word))
        delete = "insert into words(words, rowid, text) values ('delete', ?, cast(? as text))"
        for number, each in words.items():
            self.db.execute(delete, (number, b" ".join(word for _, word in sorted(each))))
        self.tidy()
        return not self.db.execute(f"select 1 {places} limit 1", asked).fetchone()

    def tidy(self) -> None:
        """Write the words' table anew in one piece."""
        self.db.execute("insert into words(words) values ('optimize')")

    # finding

    def by_words(self, question: str, where: Filter, n: int, *, each: bool) -> list[Match]:
        """The n documents with the highest BM25; of each source the best one only, unless `each`
        counts."""
        asked = " OR ".join(f'"{phrase}"' for phrase in self._rare(phrases(question)))
        if not asked:
            return []
        best = ("w.rank", "") if each else ("min(w.rank)", "group by s.number")
        terms, values = where.over(*where.document)
        rows = self.db.execute(
            f"select s.number, s.key, d.part, {best[0]} as score from words w cross join documents"
            " d on d.number = w.rowid cross join sources s on s.number = d.source where w.words"
            f" match ? and {terms} {best[1]} order by score, s.key, d.part limit ?",
            [asked, *values, n],
        )
        return [Match(source, key, part, round(-score, 6)) for source, key, part, score in rows]

    def among(self, numbers: Sequence[int], where: Filter) -> dict[int, Match]:
        """Of these sources, those of which some document matches: the one of their own words, else
        the last."""
        terms, values = where.over(*where.document)
        rows = self.db.execute(
            "select s.number, s.key, min(d.part), max(d.part) from sources s cross join documents"
            " d on d.source = s.number where s.number in (select value from json_each(?)) and"
            f" {terms} group by s.number",
            [json.dumps(list(numbers)), *values],
        )
        return {
            source: Match(source, key, -1 if first < 0 else last, 0.0)
            for source, key, first, last in rows
        }

    def matching(self, where: Filter, upto: int) -> list[int]:
        """The sources numbered below of which some document matches."""
        if not where.document:  # each has a document
            terms, values = where.over()
            asked = f"select s.number from sources s where s.number < ? and {terms}"
        else:
            rarest = max(
                where.document, key=lambda term: (bool(term.first), "'file'" in term.first)
            )
            begun = rarest._replace(sql=rarest.first or rarest.sql)
            terms, values = where.over(
                begun, *(term for term in where.document if term is not rarest)
            )
            asked = (
                "select distinct d.source from documents d cross join sources s on s.number ="
                " d.source where "
            )
            asked += f"d.source < ? and {terms}"
        return sorted(number for (number,) in self.db.execute(asked, [upto, *values]))

    def _counted(self, word: str, most: int) -> int:
        """In how many documents a word stands. SQLite goes through them one by one: no further than
        to `most`."""
        asked = "select count(*) from (select 1 from words where words match ? limit ?)"
        return int(self.db.execute(asked, (f'"{word}"', most)).fetchone()[0])

    def _rare(self, asked: Sequence[str]) -> list[str]:
        """The phrases that are looked up: what stands in very many documents tells them apart
        little, and is dear."""
        stands, words = (
            self.stands,
            dict.fromkeys(word for phrase in asked for word in phrase.split()),
        )
        for word in words:
            if word not in stands:
                stands[word] = self._counted(word, POSTINGS + 1)
        # the rarest of them is looked up all the same
        if all(stands[word] > POSTINGS for word in words):
            stands.update(
                (word, self._counted(word, -1)) for word in words if stands[word] == POSTINGS + 1
            )
        rarest = sorted(
            (min(stands[word] for word in phrase.split()), at) for at, phrase in enumerate(asked)
        )
        kept, places, common = list[int](), 0, max(COMMON, self.all // 2)
        for count, at in rarest:
            places += count
            if count and (not kept or (places <= POSTINGS and count <= common)):
                kept.append(at)
        return [asked[at] for at in sorted(kept)]


def where(
    wanted: Mapping[str, Sequence[Any]], closed: Mapping[str, frozenset[str]] | None
) -> Filter:
    """What filters ask, and what a reader may see: `closed` are groups and tasks that may not be
    seen by one who sees the train split only; None: of one who sees all."""
    source, document = [Term("1")], list[Term]()

    def among(given: Iterable[Any]) -> tuple[str]:
        return (json.dumps([_bound(v) if isinstance(v, str) else v for v in given if v != ""]),)

    listed = "in (select value from json_each(?))"
    if closed is not None:
        source.append(Term("s.split = 'train'"))
        source += [
            Term(f's."{name}" not {listed}', among(sorted(held))) for name, held in closed.items()
        ]
    for name, given in wanted.items():
        if name in ("since", "until"):
            source.append(Term(f's."when" {">=" if name == "since" else "<"} ?', [*given]))
        elif name in ("tool", "file"):
            tests, values = [], list[str]()
            for value in map(str, given):
                tests.append("name = ?" if name == "tool" else "name = ? and is_file(?, value)")
                values += (
                    [_bound(value)]
                    if name == "tool"
                    else [_bound(value.rpartition("/")[2]), _bound(value)]
                )
            of = f"kind = '{name}' and ({' or '.join(tests)})"
            each = f"exists (select 1 from named where document = d.number and {of})"
            document.append(
                Term(each, values, f"d.number in (select document from named where {of})")
            )
        elif name == "experience":
            document.append(Term("d.grain <> 'lesson'"))
            source.append(Term(f"s.key {listed}", among(given)))
        elif name in ("grain", "step", "error"):
            document.append(Term(f'd."{name}" {listed}', among(given)))
        else:
            source.append(
                Term(
                    f's."{name}" {listed}', among(int(v) if name == "passed" else v for v in given)
                )
            )
    return Filter(source, document)


@contextmanager
def connected(path: Path) -> Iterator[Text]:
    """The tables of a file, which is made when it is not there; all that is written is there at the
    end, or nothing. Raises sqlite3.Error."""
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    try:
        db.create_function(
            "is_file", 2, lambda asked, there: is_file(asked, there), deterministic=True
        )
        db.execute("pragma synchronous = off")  # derived: what a power cut costs is made again
        db.execute("pragma cache_size = -32000")
        db.execute("begin")
        if not db.execute("select 1 from sqlite_master").fetchone():
            for statement in _TABLES.split(";"):
                db.execute(statement)
        yield Text(db)
        db.execute("commit")
    finally:
        db.close()  # what is not committed is undone


def squeeze(path: Path) -> None:
    """Let the file hold nothing of what was deleted from it. Raises sqlite3.Error."""
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
        db.execute("pragma synchronous = off")
        db.execute("vacuum")


def _bound(text: str) -> str:
    """A text that SQLite takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
