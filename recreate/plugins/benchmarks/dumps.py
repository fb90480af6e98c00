"""A Postgres dump of CREATE TABLE and INSERT as a SQLite database, the same on every day: what a
dump reckons from the current date is reckoned from NOW."""

from __future__ import annotations

import re
import sqlite3
from calendar import month_name
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

NOW = "2025-01-15 12:00:00"
"""When a database is made, and its questions are asked. Every month has this day, so that SQLite
and Postgres agree on what is so many months before it."""
_TEXT = r"""'(?:[^']|'')*'|"[^"]*"|--[^\n]*|/\*.*?\*/"""
_CURRENT = r"\b(?:CURRENT_DATE\b|CURRENT_TIMESTAMP\b|NOW\(\))"
_MOMENT = (
    rf"(?:DATE_TRUNC\(\s*'(?P<unit>\w+)'\s*,\s*(?P<of>{_CURRENT})\s*\)|(?P<now>{_CURRENT}))"
    r"(?P<steps>(?:\s*[+-]\s*INTERVAL\s*'[^']*')*)"
)
_PART = (
    r"EXTRACT\(\s*(?P<part>\w+)\s+FROM\s+'(?P<at>[^']*)'\s*\)"
    r"|TO_CHAR\(\s*'(?P<of>[^']*)'\s*,\s*'(?P<form>[^']*)'\s*\)"
)
_STARTS = {
    "day": ["start of day"],
    "week": ["start of day", "weekday 0", "-6 days"],
    "month": ["start of month"],
    "year": ["start of year"],
}
_CAST = (
    r"::\s*(?:character varying|double precision|timestamp with(?:out)? time zone|\w+)(?:\s*\([\d,"
    r" ]*\))?"
)
_DENIED = {
    sqlite3.SQLITE_ATTACH,
    sqlite3.SQLITE_PRAGMA,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
"""What is no table and no row: other files, and functions, which may give another value every
day."""


def find_dump(place: Path) -> Path | None:
    """The dump that NAME.sqlite is made of where there is no such file: NAME.sql in its folder, or
    defog_data/NAME/NAME.sql, as github.com/defog-ai/defog-data has it."""
    if place.suffix != ".sqlite" or place.exists():
        return None
    name = f"{place.stem}.sql"
    likely = (place.with_name(name), place.parent / "defog_data" / place.stem / name)
    return next((dump for dump in likely if dump.is_file()), None)


def made_of(dump: Path) -> tuple[bytes, bytes]:
    """(the statements in SQLite's words, the database that they make: its bytes depend on SQLite's
    version). Raises ValueError that names the line, OSError."""
    return _made_of(dump.name, dump.read_text("utf-8"))


@lru_cache(maxsize=64)
def _made_of(name: str, dump: str) -> tuple[bytes, bytes]:
    schemas = ["public", *re.findall(r"\bCREATE SCHEMA (?:IF NOT EXISTS )?(\w+)", dump, re.I)]
    base = sqlite3.connect(":memory:")
    line, made = 1, list[str]()
    try:
        base.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action in _DENIED else sqlite3.SQLITE_OK
        )
        for begins, statement in _statements(dump):
            line = begins
            made.append(_translated(statement, schemas))
            base.execute(made[-1])
        if not made:
            raise ValueError("it has no statement")
        base.commit()
        base.set_authorizer(None)
        return "\0".join(made).encode(), base.serialize()
    except (ValueError, sqlite3.Error, sqlite3.Warning) as e:
        raise ValueError(
            f"names a database whose dump {name} cannot be read: line {line}: {e}"
        ) from None
    finally:
        base.close()


def as_of_now(query: str) -> str:
    """A query of SQLite with the date written out wherever it asks for the current one."""
    written = {
        "'now'": f"'{NOW}'",
        "current_date": f"'{NOW[:10]}'",
        "current_timestamp": f"'{NOW}'",
    }
    asked = r"'now'|\bCURRENT_(?:DATE|TIMESTAMP)\b"
    return re.sub(
        f"{asked}|{_TEXT}", lambda m: written.get(m[0].lower(), m[0]), query, flags=re.I | re.S
    )


def _statements(dump: str) -> Iterator[tuple[int, str]]:
    """(the line that it begins in, the statement) for each that SQLite knows."""
    for match in re.finditer(f"(?:{_TEXT}|[^;])+", dump, re.S):
        text = re.sub(r"\A(?:\s|--[^\n]*|/\*.*?\*/)+", "", match[0], flags=re.S)
        if text and not re.match(r"CREATE SCHEMA\b", text, re.I):
            yield dump.count("\n", 0, match.end() - len(text)) + 1, text


def _translated(statement: str, schemas: list[str]) -> str:
    text = _outside(_MOMENT, _moment, statement)
    text = _outside(_PART, _part, text)
    text = _outside(rf"{_CAST}|\b(?:{'|'.join(schemas)})\.", lambda _: "", text)
    if re.match(r"CREATE TABLE\b", text, re.I):
        text = _outside(r"\b(?:NUMERIC|DECIMAL)\b(?:\s*\([\d, ]*\))?", lambda _: "REAL", text)
        text = _outside(r"\b(?:BIG|SMALL)?SERIAL\b", lambda _: "INTEGER", text)
    return text


def _outside(pattern: str, put: Callable[[re.Match[str]], str], text: str) -> str:
    """The text with what `put` gives for each match that begins in no literal, quoted name or
    comment."""
    return re.sub(
        f"(?P<kept>{_TEXT})|{pattern}",
        lambda m: m[0] if m["kept"] else put(m),
        text,
        flags=re.I | re.S,
    )


def _moment(match: re.Match[str]) -> str:
    """A date reckoned from the current one, as a literal; with the time of day unless it is
    CURRENT_DATE's."""
    unit = (match["unit"] or "").lower()
    if unit and unit not in _STARTS:
        raise ValueError(f"{match[0]} is not read")
    steps = [
        sign + step
        for sign, step in re.findall(r"([+-])\s*INTERVAL\s*'([^']*)'", match["steps"], re.I)
    ]
    steps = [re.sub(r"(\d+) weeks?$", lambda m: f"{7 * int(m[1])} days", step) for step in steps]
    steps = [re.sub(r" min(s?)$", r" minute\1", step) for step in steps]
    form = "date" if (match["of"] or match["now"]).upper() == "CURRENT_DATE" else "datetime"
    asked = [NOW, *_STARTS.get(unit, ()), *steps]
    base = sqlite3.connect(":memory:")
    try:
        (made,) = base.execute(f"SELECT {form}({', '.join('?' * len(asked))})", asked).fetchone()
    finally:
        base.close()
    if made is None:
        raise ValueError(f"{match[0]} is not read")
    return f"'{made}'"


def _part(match: re.Match[str]) -> str:
    """EXTRACT and TO_CHAR of a date that is a literal by now."""
    at = datetime.fromisoformat(match["at"] or match["of"])
    parts = {
        "year": at.year,
        "month": at.month,
        "day": at.day,
        "epoch": int(at.replace(tzinfo=UTC).timestamp()),
    }
    forms = {"Month": month_name[at.month], "%Y%m%d %H:%i:%s": at.strftime("%Y%m%d %H:%M:%S")}
    made = parts.get(match["part"].lower()) if match["part"] else forms.get(match["form"])
    if made is None:
        raise ValueError(f"{match[0]} is not read")
    return str(made) if match["part"] else f"'{made}'"
