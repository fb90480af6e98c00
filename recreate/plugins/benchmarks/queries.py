"""The scorer `sql`: two queries on one database, by the rows that they give."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api.errors import UNSOUND, Fault
from recreate.api.shapes import JsonMap
from recreate.api.types import Trace
from recreate.domains.rows.places import read_files
from recreate.domains.rows.scorers import Open, RowTask, Scored, Scorer, texts_of
from recreate.domains.rows.settings import Definition
from recreate.plugins.benchmarks import dumps, query_exploits
from recreate.plugins.scorers.programs import describe_ending, run_program
from recreate.storage.redact import redact

_RUN_QUERIES = r"""
import json, os, sqlite3, sys
asked = json.load(sys.stdin)
name = asked["result"]
NOT = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA}
def database():
    if asked["script"]:
        made, base = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
        with open(asked["database"], encoding="utf-8") as file:
            made.executescript(file.read())
        made.commit()
        made.backup(base)  # which knows of no rows that were changed
    else:
        base = sqlite3.connect("file:" + asked["database"] + "?mode=ro&immutable=1", uri=True)
    base.execute("PRAGMA query_only = 1")
    no, yes = sqlite3.SQLITE_DENY, sqlite3.SQLITE_OK
    base.set_authorizer(lambda action, *rest: no if action in NOT else yes)
    return base
def plain(value):
    if isinstance(value, float):
        return round(value, 6) + 0.0 if abs(value) < 1e15 else value
    return float(value) if isinstance(value, int) and abs(value) < 2**53 else repr(value)
lost = []
def rows(query):
    base = database()
    try:
        cursor = base.execute(query)
        if cursor.description is None:
            raise ValueError("it is no query: it gives no rows")
        found = cursor.fetchmany(200001)
        if len(found) > 200000:
            raise ValueError("it gives more than 200,000 rows")
        lost[:] = [v for row in found for v in row if isinstance(v, float) and 0 < abs(v) < 5e-7]
        return [[plain(value) for value in row] for row in found]
    finally:
        base.close()
def tried(query):
    try:
        return rows(query), ""
    except Exception as e:
        return None, type(e).__name__ + ": " + str(e)[:300]
wanted, wrong = tried(asked["expected"])
found = {"bad": wrong, "wanted": len(wanted or ()), "lost": lost[:1]}
if not wrong:
    given, why = tried(asked["answer"])
    key = lambda row: json.dumps(row)
    if why:
        found |= {"same": False, "why": why}
    else:
        same = given == wanted
        if not asked["ordered"]:
            same = sorted(map(key, given)) == sorted(map(key, wanted))
        wide = [len(given[0]) if given else None, len(wanted[0]) if wanted else None]
        found |= {"same": same, "rows": len(given), "wanted": len(wanted), "wide": wide}
with open(name + ".part", "w") as out:
    json.dump(found, out)
os.rename(name + ".part", name)
"""
_ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)


class QueryScorer(Scorer):
    """1 when the answer's query gives the rows that the right one gives; in their order where that
    has ORDER BY."""

    name = "sql"
    settings = ("seconds", "database")
    columns: Mapping[str, Sequence[str]] = {
        "answer": ("sql", "query"),
        "prompt": ("prompt", "question", "problem", "input"),
    }

    def read_answer(self, value: Any) -> Any:
        texts_of(super().read_answer(value))
        return value

    def read_place(self, place: Path) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
        """Return the files of a place; of a database that is not there, what the dump beside it
        makes, told from others by its statements."""
        if dump := dumps.find_dump(place):
            try:
                statements, data = dumps.made_of(dump)
            except OSError as e:
                raise ValueError(f"cannot be read: {e.strerror}") from None
            return [(place.name, data)], [(dump.name, statements)]
        if place.suffix == ".sqlite" and not place.exists():
            nor = f"nor is a dump {place.stem[:80]}.sql"
            raise ValueError(f"names {place.name[:80]!r}, which is not beside the data, {nor}")
        found = read_files(place)
        return found, found

    def check_files(self, definition: Definition, facts: JsonMap) -> str:
        if find_database(definition, facts):
            return ""
        return (
            "it has no database among its files: a .sqlite or .db file, or a .sql script that"
            " makes it"
        )

    def describe_answer(self) -> str:
        return "The answer is one SQL query for SQLite (python3 has the module sqlite3)."

    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        facts = case.task.facts
        file = find_database(case.definition, facts)
        query = _without_fence(trace.answer)
        shown = f"the row's query of {case.task.id}"
        why = "There is no query in the answer."
        for expected in texts_of(case.expected):
            asked = {
                "database": file,
                "script": file.endswith(".sql"),
                "expected": expected,
                "answer": query,
            }
            asked |= {"ordered": _ORDERED.search(expected) is not None}
            found, output = run_program(
                case, open, ["python3", "-I", "-c", _RUN_QUERIES], asked, {}
            )
            if not isinstance(found, dict):
                if output.limit:  # the right query was measured once, by `tasks check`
                    return Scored(0.0, f"The query {describe_ending(output, case)}.")
                raise Fault(
                    f"{shown} could not be run: {describe_ending(output, case)}", code=UNSOUND
                )
            if found.get("bad"):
                raise Fault(
                    f"{shown} fails: {found['bad']}",
                    fix=f"mend the row, or its database {file}",
                    code=UNSOUND,
                )
            if found.get("same") is True:
                return Scored(1.0, "The query gives the right rows.")
            if found.get("why"):
                why = f"The query fails: {redact(str(found['why']))[:300]}"
            elif found.get("rows") != found.get("wanted"):
                why = f"The query gives {found.get('rows')} rows, which is not the right number."
            else:
                why = (
                    "The query gives as many rows as it should, and other values or another order."
                )
        return Scored(0.0, why)

    def doubt(self, case: RowTask, open: Open) -> str:
        file = find_database(case.definition, case.task.facts)
        for expected in texts_of(case.expected):
            asked = {"database": file, "script": file.endswith(".sql"), "ordered": False}
            asked |= {"expected": expected, "answer": expected}
            found, _ = run_program(case, open, ["python3", "-I", "-c", _RUN_QUERIES], asked, {})
            if isinstance(found, dict) and not found.get("bad"):
                if not found.get("wanted"):
                    return "the row's query gives no rows, and so does any that finds nothing"
                if found.get("lost"):
                    return (
                        f"the row's query gives {found['lost'][0]:g}, which is compared as 0: let"
                        " it give a larger unit"
                    )
        return ""

    def exploits(self, case: RowTask) -> dict[str, str]:
        return {**super().exploits(case), **query_exploits.QUERIES}


def find_database(decided: Definition, facts: JsonMap) -> str:
    """Return which of a row's files is its database, '' for none: the one that domain.toml names,
    else the first that is called so."""
    names = [*facts.get("files", ()), *facts.get("place_files", ())]
    if decided.scorer.database:
        return decided.scorer.database
    for ends in ((".sqlite", ".sqlite3", ".db"), (".sql",)):
        for name in names:
            if name.endswith(ends):
                return str(name)
    return ""


def _without_fence(answer: str) -> str:
    """The query itself, where the answer has it in a block of Markdown."""
    match = re.search(r"```(?:sql)?[ \t]*\n(.*?)\n?```", answer, re.DOTALL | re.IGNORECASE)
    return (match[1] if match else answer).strip().rstrip(";").strip()
