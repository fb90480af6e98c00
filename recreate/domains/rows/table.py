"""A file of rows: JSON, CSV, TSV (forms.py), Parquet, or a data set that the package `datasets`
loads.

Each row keeps where it stands. What is no row is collected, so that all of it is told at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.registry import need
from recreate.api.shapes import JsonDict, JsonMap
from recreate.domains.rows import HUB, SUFFIXES
from recreate.domains.rows.forms import (
    SPLIT,
    BadRow,
    NotRows,
    decode,
    read_csv,
    read_json,
    refuse_archive,
)

_SET = re.compile(r"^([^,:]+)(?:,([\w.-]+))?(?::([\w.-]+))?$")
_SHOWN = 12
"""Places that are named of rows with the same fault."""


class DataRow(NamedTuple):
    """One row. number: its line (rows of a table in lines), else its place counted from 1; file:
    `FILE line`, what the number counts, in a table whose rows are of several files."""

    number: int
    values: JsonMap
    file: str = ""

    @property
    def at(self) -> tuple[str, int]:
        """What no other row of its table has."""
        return self.file, self.number


class DataTable(NamedTuple):
    """The rows of `source`. place: what a number counts, `line` or `row`; columns in the order of
    their appearance; notes: what is to be said of how it was read."""

    source: str
    place: str
    rows: Sequence[DataRow]
    columns: Sequence[str]
    faults: Sequence[BadRow] = ()
    notes: Sequence[str] = ()

    def has(self, column: str) -> bool:
        """Return whether a row has the column, which may be nested: see `cell`."""
        return column in self.columns or any(
            cell(row.values, column) is not None for row in self.rows
        )

    @property
    def nested(self) -> list[str]:
        """Return the columns, and in place of each that holds an object those within it."""
        found: dict[str, None] = {}
        for column in self.columns:
            objects = (_object(row.values.get(column)) for row in self.rows)
            first = next(filter(None, objects), {})
            found.update(dict.fromkeys([f"{column}.{name}" for name in first] or [column]))
        return list(found)


def read(data: str) -> DataTable:
    """Return the rows of a file, or of `hf:NAME`. Raises BadInput when it cannot be read as a
    whole, Missing without the package that reads it; what is wrong with single rows is in
    `faults`."""
    if data.startswith(HUB):
        return _table(data, "row", enumerate(_from_datasets(data.removeprefix(HUB)), 1))
    path = Path(data).expanduser()
    if not path.is_file():
        raise BadInput(
            f"there is no file {data}" if not path.is_dir() else f"{data} is a folder",
            fix="name a .jsonl, .json, .csv, .tsv or .parquet file, or a data set as hf:OWNER/NAME",
            code="no-tasks-file",
        )
    kind = path.suffix.lower()
    if kind == ".parquet":
        return _table(data, "row", enumerate(_from_parquet(path), 1))
    try:
        if kind not in SUFFIXES:
            with path.open("rb") as file:
                refuse_archive(file.read(8))
            why = f"{kind or 'a file without a suffix'} is no form of rows"
            raise NotRows(why, f"one of {', '.join(SUFFIXES)}")
        text = decode(path.read_bytes(), path.name)
        if kind in (".csv", ".tsv"):
            found = read_csv(text, "\t" if kind == ".tsv" else ",")
        else:
            found = read_json(text, kind == ".json")
    except NotRows as e:
        _refuse(data, str(e), e.fix)
    except OSError as e:
        _refuse(data, e.strerror or str(e), "is it yours to read?")
    return _table(data, found.place, found.values)._replace(notes=found.notes)


def cell(values: JsonMap, column: str) -> Any:
    """Return what a row has in a column; `a.b` is b of the object in a (also of one written as
    JSON text), `a.0` the first of the list in it. None where there is nothing."""
    if column in values:
        return values[column]
    found: Any = values
    for part in column.split("."):
        if isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            found = _object(found).get(part)
    return found


def _object(value: Any) -> JsonMap:
    """Return the object that a cell is, or has as JSON text; {} for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def of_rows(rows: Sequence[JsonMap], source: str = "rows") -> DataTable:
    """Rows that are objects of Python already, such as a list of dicts."""
    return _table(source, "row", enumerate(rows, 1))


def refuse(table: DataTable, faults: Sequence[BadRow]) -> None:
    """Raise BadInput that tells all bad rows at once, by what is wrong and where; nothing without
    one."""
    if not faults:
        return
    by_reason: dict[tuple[str, str], list[int]] = {}
    for fault in sorted(faults, key=lambda fault: (fault.file, fault.number, fault.reason)):
        by_reason.setdefault((fault.reason, fault.file or table.place), []).append(fault.number)
    places = list(by_reason.items())[:_SHOWN]
    told = [f"{_places(what, numbers)}: {reason}" for (reason, what), numbers in places]
    more = (
        f"; and {len(by_reason) - _SHOWN} other reasons"
        if by_reason.keys() - list(by_reason)[:_SHOWN]
        else ""
    )
    bad = {(fault.file, fault.number) for fault in faults}
    rows = (
        f"rows read as {table.source}"
        if any(file for file, _ in bad)
        else f"rows of {shorten_source(table)}"
    )
    raise BadInput(
        f"{len(bad)} of {len({*(row.at for row in table.rows), *bad})} {rows} cannot be tasks."
        f" {'; '.join(told)}{more}",
        fix="mend these rows, or take them out",
        code="bad-rows",
    )


def shorten_source(table: DataTable) -> str:
    """Return where the rows come from, in short."""
    return table.source if table.source.startswith(HUB) else paths.short(Path(table.source))


def _places(what: str, numbers: Sequence[int]) -> str:
    numbers = list(dict.fromkeys(numbers))
    some = ", ".join(map(str, numbers[:_SHOWN]))
    more = f" and {len(numbers) - _SHOWN} more" if numbers[_SHOWN:] else ""
    return f"{what}{'s' * (len(numbers) > 1)} {some}{more}"


def _table(source: str, place: str, values: Iterable[tuple[int, Any]]) -> DataTable:
    rows: list[DataRow] = []
    faults: list[BadRow] = []
    columns: dict[str, None] = {}
    for number, value in values:
        if isinstance(value, BadRow):
            faults.append(value)
        elif not isinstance(value, Mapping) or not value:
            faults.append(BadRow(number, f"it is {_kind(value)}, not an object with columns"))
        else:
            row = {str(name): each for name, each in value.items()}
            columns.update(dict.fromkeys(row))
            rows.append(DataRow(number, row))
    if not rows and not faults:
        _refuse(
            source,
            "it has no rows",
            "a row is a JSON object a line, or a line of CSV below its header",
        )
    return DataTable(source, place, rows, list(columns), faults)


def _kind(value: Any) -> str:
    names = {
        dict: "an empty object",
        list: "a list",
        str: "a text",
        bool: "a truth value",
        type(None): "null",
    }
    return next((name for kind, name in names.items() if isinstance(value, kind)), "a number")


def _refuse(source: str, why: str, fix: str) -> NoReturn:
    raise BadInput(f"{source} cannot be read: {why}", fix=fix, code="bad-rows")


# --- Parquet, and the hub
# ---------------------------------------------------------------------------------


def _from_parquet(path: Path) -> Iterator[Any]:
    parquet = need("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from map(_plain, batch.to_pylist())
    except Exception as e:  # whatever its reader raises for what is no Parquet
        _refuse(
            str(path),
            f"{type(e).__name__}: {str(e).partition(chr(10))[0][:200]}",
            "is it a Parquet file?",
        )


def _from_datasets(name: str) -> Iterator[Any]:
    """Yield the rows of a data set: OWNER/NAME[,CONFIG][:SPLIT] of the hub, or a local folder of
    one."""
    datasets = need("datasets")
    match = _SET.match(name)
    if match is None:
        _refuse(
            HUB + name,
            "that is no data set's name",
            "hf:OWNER/NAME, hf:OWNER/NAME,CONFIG or hf:OWNER/NAME:SPLIT",
        )
    which = match[1]
    config = match[2]
    split = match[3]
    try:
        folder = Path(which).expanduser()
        if (folder / "dataset_dict.json").is_file() or (folder / "dataset_info.json").is_file():
            found = datasets.load_from_disk(str(folder))
            found = found[split] if split else found
        else:
            found = datasets.load_dataset(
                str(folder) if folder.is_dir() else which, config, split=split
            )
    except Exception as e:  # whatever its many back ends raise
        raise BadInput(
            f"{HUB}{name} cannot be loaded: {type(e).__name__}:"
            f" {str(e).partition(chr(10))[0][:300]}",
            fix="is the name right, and the hub reachable? a file needs neither: --data ROWS.jsonl",
            code="no-tasks-file",
        ) from None
    parts = found.items() if isinstance(found, dict) else [("", found)]
    for part, rows in parts:
        for value in rows:
            row = _plain(value)
            yield {SPLIT: str(part), **row} if part else row


def _plain(value: JsonMap) -> JsonDict:
    """Return a row as JSON has it; what JSON has not (a date, a picture) as its text."""
    row: JsonDict = json.loads(json.dumps(value, default=str))
    return row
