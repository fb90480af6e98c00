"""The words and facts of everything remembered, in SQLite: full text (FTS5) over steps as long as
they are.

A document is a step, an experience's own words, or a lesson; a source is the experience or lesson
it belongs to. The words' table keeps no text, so what is deleted stays in it, as numbers that no
document has any more, until most of it is such and all is made again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from recreate.memory.documents import Document
from recreate.memory.index.tokenizer import phrases, spread
from recreate.memory.index.vectors import key_of

POSTINGS = 60_000
"""Places of words that one question looks at; the rarest words go first."""

COMMON = 1000
"""Documents. A word that stands in more, and in more than half of all, is not looked up beside a
rarer one: its weight in BM25 as FTS5 has it is 0 (idf, cut off there), and it makes every document
a candidate."""

PURGED = 2000
"""Documents whose words are taken out at once; where more are gone, all is made anew."""


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

    def build_condition(self, *terms: Term) -> tuple[str, list[Any]]:
        """Return these and the terms over sources, as SQL and its values."""
        every = [*self.source, *terms]
        return " and ".join(t.sql for t in every), [value for t in every for value in t.values]


class Text:
    """The tables, by a connection that is open.

    stands: in how many documents a word stands, as far as it was asked and up to one more than
    POSTINGS; of these tables as they are.
    """

    def __init__(self, db: sqlite3.Connection, stands: dict[str, int] | None = None) -> None:
        self.db = db
        self.stands = {} if stands is None else stands

    def last(self) -> int:
        """Return the number of the newest document."""
        return int(self.db.execute("select coalesce(max(number), 0) from documents").fetchone()[0])

    def lessons(self) -> dict[str, str]:
        """Return key -> checksum of the lessons that are indexed."""
        asked = "select id, content from sources where id >= 'lesson:' and id < 'lesson;'"
        return dict(self.db.execute(asked))

    def put_lesson(self, sum_: str, document: Document) -> None:
        """Take a lesson in."""
        self.db.execute(
            "insert into sources(id, content, domain, split) values (?, ?, ?, ?)",
            (document.key, sum_, document.facts["domain"], document.facts["split"]),
        )
        self.put_documents(document.key, sum_, [document])

    def put_documents(self, id: str, sum_: str, documents: Sequence[Document]) -> None:
        """Take in the documents of a source that is listed, its own words last; nothing where
        another process did, or it is another by now."""
        brief = ""
        passed = None
        if documents:
            brief = _bound(documents[-1].brief)
            passed = documents[-1].facts.get("passed")
        row = self.db.execute(
            "update sources set worded = 1, brief = ?, key = ?, embedded = ?, passed = ?"
            " where id = ? and content = ? and worded = 0 returning number",
            (brief, key_of(brief), int(not brief), passed, id, sum_),
        ).fetchone()
        if row is None:
            return
        for d in documents:
            part = -1 if d.id == d.key else int(d.id.rpartition("/")[2])
            error = _bound(str(d.facts.get("error", "")))
            number = self.db.execute(
                "insert into documents values (null, ?, ?, ?, ?, ?)",
                (row[0], part, d.facts["grain"], d.facts.get("step"), error),
            ).lastrowid
            self.db.execute(
                "insert into words(rowid, text) values (?, ?)", (number, spread(_bound(d.text)))
            )
            lists = {("tool", tool, tool) for tool in d.tools}
            lists |= {("file", file.rpartition("/")[2], file) for file in d.files}
            rows = [
                (kind, _bound(name), number, _bound(value)) for kind, name, value in sorted(lists)
            ]
            self.db.executemany("insert or ignore into named values (?, ?, ?, ?)", rows)

    def remove(self, ids: Collection[str]) -> None:
        """Take sources out."""
        listed = "(select value from json_each(?))"
        self.db.execute(f"delete from sources where id in {listed}", (json.dumps([*ids]),))

    def reset(self) -> None:
        """Throw all words away; what stays is read again at the next question."""
        for sql in (
            *("delete from documents", "delete from named"),
            "insert into words(words) values ('delete-all')",
            "delete from sources where file = ''",
            "update sources set worded = 0, brief = null",
        ):
            self.db.execute(sql)

    def mostly_gone(self) -> bool:
        """Return whether most documents whose words are there are gone."""
        there, alive = self.db.execute(
            "select (select count(*) from words_docsize), (select count(*) from documents)"
        ).fetchone()
        return bool(there > 2 * alive)

    def purge(self) -> None:
        """Take the words of documents that are gone out of the words' table. FTS5 deletes what it
        is told the words of: they are read from the table itself; of very many all is thrown
        away."""
        dead = "select id from words_docsize where id not in (select number from documents)"
        words = {number: list[tuple[int, bytes]]() for (number,) in self.db.execute(dead)}
        if len(words) > PURGED:
            return self.reset()
        self.db.execute("drop table if exists temp.places")
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
        if self.db.execute(f"select 1 {places} limit 1", asked).fetchone():
            self.reset()
        return None

    def tidy(self) -> None:
        """Write the words' table anew in one piece."""
        self.db.execute("insert into words(words) values ('optimize')")

    # finding

    def by_words(self, question: str, where: Filter, n: int, *, each: bool) -> list[Match]:
        """Return the n documents with the highest BM25; of each source the best one only, unless
        `each` counts."""
        asked = " OR ".join(f'"{phrase}"' for phrase in self._rare(phrases(question)))
        if not asked:
            return []
        best = ("w.rank", "") if each else ("min(w.rank)", "group by s.number")
        terms, values = where.build_condition(*where.document)
        rows = self.db.execute(
            f"select s.number, s.id, d.part, {best[0]} as score from words w cross join documents"
            " d on d.number = w.rowid cross join sources s on s.number = d.source where w.words"
            f" match ? and {terms} {best[1]} order by score, s.id, d.part limit ?",
            [asked, *values, n],
        )
        return [Match(source, key, part, round(-score, 6)) for source, key, part, score in rows]

    def among(self, keys: Sequence[str], where: Filter) -> dict[str, list[Match]]:
        """Return of the sources with these vectors those of which some document matches: the one of
        their own words, else the last."""
        terms, values = where.build_condition(*where.document)
        rows = self.db.execute(
            "select s.key, s.number, s.id, min(d.part), max(d.part) from sources s cross join"
            " documents d on d.source = s.number where s.key in (select value from json_each(?))"
            f" and {terms} group by s.number",
            [json.dumps(list(keys)), *values],
        )
        found: dict[str, list[Match]] = {}
        for key, source, id, first, last in rows:
            found.setdefault(key, []).append(Match(source, id, -1 if first < 0 else last, 0.0))
        return found

    def matching(self, where: Filter) -> list[str]:
        """Return the vectors of the sources of which some document matches."""
        embedded = Term("s.embedded = 1")
        if not where.document:  # each has a document
            terms, values = where.build_condition(embedded)
            asked = f"select distinct s.key from sources s where {terms}"
        else:
            rarest = max(
                where.document, key=lambda term: (bool(term.first), "'file'" in term.first)
            )
            begun = rarest._replace(sql=rarest.first or rarest.sql)
            rest = [term for term in where.document if term is not rarest]
            terms, values = where.build_condition(begun, *rest, embedded)
            asked = (
                "select distinct s.key from documents d cross join sources s on s.number ="
                f" d.source where {terms}"
            )
        return sorted(key for (key,) in self.db.execute(asked, values))

    def _count_documents(self, word: str, most: int) -> int:
        """Count the documents in which a word stands. SQLite goes through them one by one: no
        further than to `most`."""
        asked = "select count(*) from (select 1 from words where words match ? limit ?)"
        return int(self.db.execute(asked, (f'"{word}"', most)).fetchone()[0])

    def _rare(self, asked: Sequence[str]) -> list[str]:
        """Return the phrases that are looked up: what stands in very many documents tells them
        apart little, and is dear."""
        stands = self.stands
        words = dict.fromkeys(word for phrase in asked for word in phrase.split())
        for word in words:
            if word not in stands:
                stands[word] = self._count_documents(word, POSTINGS + 1)
        # the rarest of them is looked up all the same
        if all(stands[word] > POSTINGS for word in words):
            stands.update(
                (word, self._count_documents(word, -1))
                for word in words
                if stands[word] == POSTINGS + 1
            )
        rarest = sorted(
            (min(stands[word] for word in phrase.split()), at) for at, phrase in enumerate(asked)
        )
        kept = list[int]()
        places = 0
        common = max(COMMON, self.last() // 2)
        for count, at in rarest:
            places += count
            if count and (not kept or (places <= POSTINGS and count <= common)):
                kept.append(at)
        return [asked[at] for at in sorted(kept)]


def where(
    wanted: Mapping[str, Sequence[Any]], closed: Mapping[str, frozenset[str]] | None
) -> Filter:
    """Return what filters ask, and what a reader may see: `closed` are groups and tasks that may
    not be seen by one who sees the train split only; None: of one who sees all."""
    source = [Term("1")]
    document = list[Term]()

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
            tests = []
            values = list[str]()
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
            source.append(Term(f"s.id {listed}", among(given)))
        elif name in ("grain", "step", "error"):
            document.append(Term(f'd."{name}" {listed}', among(given)))
        else:
            source.append(
                Term(
                    f's."{name}" {listed}', among(int(v) if name == "passed" else v for v in given)
                )
            )
    return Filter(source, document)


def _bound(text: str) -> str:
    """Return a text that SQLite takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
