#!/usr/bin/env python3
"""Takes a reply with a query, in a ```sql block or bare, on standard input, mends what SQLite says of it and writes it
into answer.sql; says what is wrong with it where it cannot be mended."""

import difflib
import re
import sqlite3
import sys
import time
from pathlib import Path

MENDS = 8
NAME = r'"?([A-Za-z_]\w*)"?'
WORDS = "on|where|join|inner|left|right|cross|full|group|order|limit|using|having|union|natural|except|intersect|set|as"
TABLE = re.compile(rf"\b(?:from|join)\s+{NAME}(?:\s+(?:as\s+)?(?!(?:{WORDS})\b){NAME})?", re.IGNORECASE)
FORMATS = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "dow": "%w"}
STARTS = {"year": "%Y-01-01", "month": "%Y-%m-01", "day": "%Y-%m-%d"}
OTHERS = [  # what models write as in other databases, and SQLite's way
    (r"\bilike\b", "LIKE"),
    (r"::\s*\w+(?:\(\d+(?:,\s*\d+)?\))?", ""),
    (r"\bextract\(\s*epoch\s+from\s+([^()]+)\)", r"strftime('%s', \1)"),
    (r"\bextract\(\s*(year|month|day|hour|dow)\s+from\s+([^()]+)\)",
     lambda m: f"CAST(strftime('{FORMATS[m[1].lower()]}', {m[2]}) AS INTEGER)"),
    (r"\b(year|month|day)\(\s*([\w.\"]+)\s*\)",
     lambda m: f"CAST(strftime('{FORMATS[m[1].lower()]}', {m[2]}) AS INTEGER)"),
    (r"\bdate_trunc\(\s*'(year|month|day)'\s*,\s*([^()]+)\)",
     lambda m: f"strftime('{STARTS[m[1].lower()]}', {m[2]})"),
    (r"('[^']*'|\b[\w.]+(?:\([^()]*\))?)\s*([-+])\s*interval\s*'?(\d+)\s*(day|month|year|week)s?'?",
     lambda m: f"date({m[1]}, '{m[2]}{int(m[3]) * (7 if m[4].lower() == 'week' else 1)} "
               f"{'day' if m[4].lower() == 'week' else m[4].lower()}s')"),
    (r"\bconcat\(([^()]+)\)", lambda m: "(" + " || ".join(part.strip() for part in m[1].split(",")) + ")"),
]  # fmt: skip


def opened() -> sqlite3.Connection:
    (path,) = [path for path in Path.cwd().iterdir() if path.suffix in (".sqlite", ".db")]
    return sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)


def columns(database: sqlite3.Connection) -> dict[str, list[str]]:
    """table -> its columns"""
    tables = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND sql > ''").fetchall()
    return {t: [row[1] for row in database.execute(f'PRAGMA table_info("{t}")')] for (t,) in tables}


def tried(database: sqlite3.Connection, query: str) -> tuple[list[tuple], str]:
    """(its first rows, what SQLite says against it)"""
    end = time.monotonic() + 5
    database.set_progress_handler(lambda: time.monotonic() > end, 100_000)
    try:
        return database.execute(query).fetchmany(3), ""
    except (sqlite3.Error, sqlite3.Warning) as e:
        return [], str(e)


def likeness(column: str, table: str, key: str) -> float:
    """How much a column is called as a table's key is, 0 to 1."""
    names = (key, f"{table.rstrip('s')}_id")
    return max(difflib.SequenceMatcher(None, column.lower(), name.lower()).ratio() for name in names)


def links(database: sqlite3.Connection, known: dict[str, list[str]], a: str, b: str) -> list[tuple[float, str, str]]:
    """(how likely, a column of a, one of b) that name the same thing, the likeliest first: above 1 where it is the key
    of one, by its name and by what the other holds, else a name that both have, such as a city's."""

    def held(table: str, column: str) -> set:
        return {value for (value,) in database.execute(f'SELECT DISTINCT "{column}" FROM "{table}"')} - {None}

    found = []
    keys = {table: names[0] for table, names in known.items() if names[0].lower().endswith("id")}
    for table, other in ((b, a), (a, b)):
        for column in known[other][1:] if table in keys else ():
            alike = likeness(column, table, keys[table])
            most = max(likeness(column, *each) for each in keys.items())
            close = column.lower().endswith("id") and alike == most > 0.6
            if close and held(other, column) <= held(table, keys[table]):
                found.append((1 + alike, *((column, keys[table]) if table == b else (keys[table], column))))
    for x in {*known[a]} & {*known[b]}:
        if re.search(r"(?<!first)(?<!last)_(?:name|code|id)$", x) and held(a, x) & held(b, x):
            found.append((len(held(b, x)) / 1e6, x, x))
    return sorted(found, reverse=True)


def named(query: str, known: dict[str, list[str]]) -> dict[str, str]:
    """name in the query -> table, of the tables that the query reads"""
    spelt = {table.lower(): table for table in known}
    tables = [(m[2] or m[1], spelt.get(m[1].lower(), "")) for m in TABLE.finditer(query)]
    return {name: table for name, table in tables if table}


def joined(database: sqlite3.Connection, query: str, known: dict[str, list[str]], wanted: str) -> str:
    """The query with the table `wanted` joined to one that it reads already; '' where nothing links them."""
    for name, table in named(query, known).items():
        for _, x, y in links(database, known, table, wanted):
            first = TABLE.search(query)
            rest = re.search(r"\b(?:where|group\s+by|order\s+by|having|limit|union|except|intersect)\b|\)|;|$",
                             query[first.end() :], re.IGNORECASE)  # fmt: skip
            at = first.end() + rest.start()
            return f"{query[:at].rstrip()} JOIN {wanted} ON {wanted}.{y} = {name}.{x} {query[at:]}"
    return ""


def mended(database: sqlite3.Connection, query: str, wrong: str, known: dict[str, list[str]]) -> str:
    """The query with the cause of what SQLite says taken away, where it is a common one; else ''."""
    if found := re.match(r"no such table: (?:\w+\.)?(\w+)", wrong):
        near = difflib.get_close_matches(found[1].lower(), known, 1, 0.5)
        return re.sub(rf"\b{found[1]}\b", near[0], query) if near else ""
    read = named(query, known)
    if found := re.match(r"ambiguous column name: (\w+)", wrong):
        owner = next((name for name, table in read.items() if found[1] in known[table]), "")
        return re.sub(rf"(?<![\w.'\"]){found[1]}\b(?!\s*\()", f"{owner}.{found[1]}", query) if owner else ""
    found = re.match(r"no such column: (?:(\w+)\.)?(\w+)", wrong)
    if not found:
        return ""
    alias, column = found[1], found[2]
    here = re.compile(rf"\b{alias}\.\"?{column}\b\"?" if alias else rf"(?<![\w.']){column}\b(?!\s*\()")
    for name, table in read.items():
        if name != alias and column in known[table]:
            return here.sub(f"{name}.{column}", query)
    if alias in known and alias not in read and (wider := joined(database, query, known, alias)):
        return wider
    for table in known:
        if column in known[table] and table not in read.values() and (wider := joined(database, query, known, table)):
            return here.sub(f"{table}.{column}", wider)
    tables = [(alias, read[alias])] if alias in read else list(read.items())
    spelt = {each: f"{name}.{each}" for name, table in tables for each in known[table]}
    near = difflib.get_close_matches(column, spelt, 1, 0.5)
    return here.sub(spelt[near[0]], query) if near else ""


def in_any_case(query: str) -> str:
    """The query with texts compared whatever their case."""
    return re.sub(rf"({NAME}(?:\.{NAME})?)\s*=\s*('[^']*')", lambda m: f"LOWER({m[1]}) = LOWER({m[4]})", query)


def main() -> int:
    reply = sys.stdin.read()
    blocks = re.findall(r"```(?:sql|sqlite)?[ \t]*\n(.*?)(?:\n```|\Z)", reply, re.DOTALL | re.IGNORECASE)
    bare = re.search(r"^\s*(?:SELECT|WITH)\b.*", reply, re.DOTALL | re.IGNORECASE | re.MULTILINE)
    query = (blocks[-1] if blocks else bare[0] if bare else "").strip().partition(";")[0]
    if not query:
        print("there is no query in the reply")
        return 2
    for other, ours in OTHERS:
        query = re.sub(other, ours, query, flags=re.IGNORECASE)
    database = opened()
    known = columns(database)
    rows, wrong = tried(database, query)
    seen = {query}
    for _ in range(MENDS):
        better = mended(database, query, wrong, known) if wrong else ""
        if not better or better in seen:
            break
        seen.add(query := better)
        rows, wrong = tried(database, query)
    if not wrong and not any(any(value for value in row) for row in rows):
        wider = in_any_case(query)
        rows, _ = tried(database, wider)
        query = wider if any(any(value for value in row) for row in rows) else query
    Path("answer.sql").write_text(query + "\n", encoding="utf-8")
    print(f"SQLite says: {wrong}" if wrong else "answer.sql is written")
    return 0


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit(0)
    sys.exit(main())
