"""A file of rows as what it says, whichever program wrote it: its encoding, its JSON, its CSV.

What is no row is yielded as a `BadRow` in its place. `NotRows` is raised for a file that cannot
be read as a whole.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from recreate.api.config import Split
from recreate.api.shapes import JsonMap

SPLIT = "split"
"""The column in which rows carry the split that their data set has them in, where it has no such
column itself."""
SPLITS: Mapping[str, Split] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
"""How a split may be called."""
HOLDERS = frozenset(
    [
        "data",
        "rows",
        "examples",
        "instances",
        "items",
        "records",
        "samples",
        "questions",
        "problems",
        "tasks",
    ]
)
"""What the list of rows may be called in an object that holds them."""
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OTHER = {
    b"PK\x03\x04": ("it is a ZIP archive, as .xlsx files are", "save it as CSV UTF-8, or unzip it"),
    b"\x1f\x8b": ("it is compressed", "gunzip it"),
    b"PAR1": ("it is a Parquet file", "name it FILE.parquet"),
}
_DECIMAL = re.compile(r"[-+]?(\d+|\d{1,3}(\.\d{3})+)(,(?P<part>\d+))?")


class BadRow(NamedTuple):
    """What is wrong with one row; number and file as the row's."""

    number: int
    reason: str
    file: str = ""


class NotRows(ValueError):
    """Why a file cannot be read, and what to do."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


class Values(NamedTuple):
    """What a file holds: (number, value) each, what a number counts, and what is to be said."""

    place: str
    values: Sequence[tuple[int, Any]]
    notes: Sequence[str] = ()


# --- encodings
# ----------------------------------------------------------------------------------------


def refuse_archive(data: bytes) -> None:
    """Raise NotRows for what is no text by its first bytes."""
    for magic, (why, fix) in _OTHER.items():
        if data.startswith(magic):
            raise NotRows(why, fix)


def decode(data: bytes, name: str) -> str:
    """Return the text of a file: UTF-8, or UTF-16 and UTF-32 by their first bytes. Raises
    NotRows with advice that changes no byte of the file."""
    refuse_archive(data)
    encoding = next((each for mark, each in _MARKS if data.startswith(mark)), "utf-8-sig")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as e:
        if encoding != "utf-8-sig":
            why = f"it begins as {encoding.upper()} and is none at byte {e.start}"
            raise NotRows(why, "save it anew as UTF-8") from None
        raise _advise(data, e.start, name) from None
    if "\0" in text[:1000] and encoding == "utf-8-sig":
        order = "le" if data.index(b"\0") % 2 else "be"
        fix = f"iconv -f utf-16{order} -t utf-8 {name} > utf8-{name}"
        raise NotRows("it has zero bytes, as UTF-16 without its mark has", fix)
    return text


def _advise(data: bytes, at: int, name: str) -> NotRows:
    """Return what to do with bytes that are no UTF-8 from `at` on. The line is shown as it would
    read, since no program can tell one such encoding from another."""
    line = data.count(b"\n", 0, at) + 1
    begins = data.rfind(b"\n", 0, at) + 1
    loose = data.decode("utf-8", "replace")
    broken = loose.count("\ufffd")
    if sum(each > "\x7f" for each in loose) > 2 * broken:
        why = f"line {line} is not UTF-8 at byte {at}, and most of the file is"
        return NotRows(why, f"mend line {line}; to convert the file would damage the others")
    why = f"it is not UTF-8 at byte {at}, in line {line}"
    try:
        data.decode("cp1252")
        shown = data[begins : begins + 80].partition(b"\n")[0].decode("cp1252").strip()
    except UnicodeDecodeError:
        fix = f"in which encoding was it saved? iconv -f ENCODING -t utf-8 {name} > utf8-{name}"
        return NotRows(why, fix)
    why += f"; as cp1252, which Excel and Windows write, that line is {shown!r}"
    fix = f"where that reads right: iconv -f cp1252 -t utf-8 {name} > utf8-{name}; else name"
    return NotRows(why, f"{fix} the encoding that it was saved in")


# --- JSON
# ---------------------------------------------------------------------------------------------


def read_json(text: str, one_object: bool) -> Values:
    """Return the rows of JSON: an object a line, a list, objects over several lines, or one object
    that holds the rows. one_object: whether the file's name says that it is one value. Raises
    NotRows."""
    lines = list(_read_lines(text))
    bad = [value for _, value in lines if isinstance(value, BadRow)]
    if not bad and len(lines) != 1:
        return Values("line", lines)
    values = lines if not bad else []
    if bad:
        first = text.strip().partition("\n")[0].rstrip()
        by_line = first.endswith("}") or any(isinstance(value, Mapping) for _, value in lines)
        try:
            values = list(_read_stream(text))
        except ValueError as e:
            if first[0] != "[" and (by_line or len(lines) == 1):
                return Values("line", lines)
            raise NotRows(f"it is not JSON: {e}", "mend it; a row is an object") from None
    if len(values) != 1:
        return Values("line", values)
    value = values[0][1]
    if isinstance(value, list):
        return Values("row", list(enumerate(value, 1)))
    rows, held = _find_rows(value, one_object) if isinstance(value, Mapping) else ([], "")
    if not held:
        return Values("line", values)
    return Values("row", list(enumerate(rows, 1)), [f"its rows are those of {held}"])


def _find_rows(value: JsonMap, one_object: bool) -> tuple[Sequence[Any], str]:
    """Return (the rows that an object holds, where they stand in it); '' where it is a row."""
    lists = {name: each for name, each in value.items() if _are(each, Mapping)}
    if lists and lists.keys() == value.keys() and lists.keys() <= SPLITS.keys():
        rows = [{SPLIT: name, **row} for name, each in lists.items() for row in each]
        return rows, ", ".join(lists)
    if len(named := [name for name in lists if name.lower() in HOLDERS]) == 1:
        return lists[named[0]], named[0]
    columns = value.get("columns")
    data = value.get("data")
    if isinstance(columns, list) and isinstance(data, list) and _are(data, list):  # pandas' "split"
        return [dict(zip(map(str, columns), each, strict=False)) for each in data], "data"
    each = list(value.values())
    if not one_object or len(each) < 2:
        return [], ""
    if _are(each, Mapping) and each[0] and all(one.keys() == each[0].keys() for one in each):
        return [{name: one[key] for name, one in value.items()} for key in each[0]], "its columns"
    if _are(each, list) and not lists and len({len(one) for one in each}) == 1:
        rows = [dict(zip(value, row, strict=True)) for row in zip(*each, strict=True)]
        return rows, "its columns"
    return [], ""


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(v, kind) for v in values)


def _nothing(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_nothing)


def _read_stream(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the values that stand one after another, each with the line that it begins in."""
    at = 0
    line = 1
    while rest := re.compile(r"\S").search(text, at):
        line += text.count("\n", at, rest.start())
        try:
            value, end = _DECODER.raw_decode(text, rest.start())
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        yield line, value
        line += text.count("\n", rest.start(), end)
        at = end


def _read_lines(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, _DECODER.decode(line)
            except RecursionError:
                yield number, BadRow(number, "it is not JSON (it is nested too deeply)")
            except ValueError as e:
                said = re.sub(r" .char [0-9]+.", "", str(e).replace("line 1 column", "column"))
                yield number, BadRow(number, f"it is not JSON ({said})")


# --- CSV
# ----------------------------------------------------------------------------------------------


def read_csv(text: str, usual: str) -> Values:
    """Return the rows below a header. The separator is the one that makes columns of the lines,
    `usual` before others. Raises NotRows for a header whose columns cannot be told apart."""
    csv.field_size_limit(100_000_000)
    lines = io.StringIO(text, newline="").readlines()
    said = re.fullmatch(r'"?sep=(.)"?\s*', lines[0]) if lines else None  # Excel's own first line
    if said:
        lines[0] = "\n"
    delimiter = said[1] if said else _find_delimiter(lines, usual)
    records = list(_read_records(lines, delimiter))
    header: list[str] = []
    if records and not isinstance(records[0][1], BadRow):
        header = [cell.strip() for cell in records.pop(0)[1]]
    found: list[tuple[int, Any]] = []
    for number, cells in records:
        if not isinstance(cells, BadRow):
            while len(cells) > len(header) and not cells[-1].strip():
                cells.pop()
            if len(cells) != len(header):
                why = f"it has {len(cells)} cells, and the header {len(header)}"
                cells = BadRow(number, why)
        found.append((number, cells))
    rows = [cells for _, cells in found if not isinstance(cells, BadRow)]
    dropped = dict(_drop_unnamed(header, rows))
    kept = [at for at in range(len(header)) if at not in dropped]
    _refuse_twins(header, kept)
    notes = list(dropped.values())
    if delimiter != usual:
        notes.insert(0, f"its columns are separated by {delimiter!r}")
    for at in kept if delimiter == ";" else ():
        if example := _mend_decimals(rows, at):
            notes.append(f"{header[at]} has decimal commas: {example} is read with a point")
    made = [
        (number, cells if isinstance(cells, BadRow) else {header[at]: cells[at] for at in kept})
        for number, cells in found
    ]
    return Values("line", made, notes)


def _find_delimiter(lines: Sequence[str], usual: str) -> str:
    widths = {
        each: [len(cells) for cells in islice(csv.reader(lines, delimiter=each), 50) if cells]
        for each in dict.fromkeys((usual, ";", "\t", ",", "|"))
    }
    even = [each for each, seen in widths.items() if len(set(seen)) == 1 and seen[0] > 1]
    parted = [each for each, seen in widths.items() if seen and seen[0] > 1]
    if usual in even or not parted:
        return usual
    if usual in parted and not even:
        return usual
    return max(even or parted, key=lambda each: widths[each][0])


def _read_records(lines: list[str], delimiter: str) -> Iterator[tuple[int, Any]]:
    """Yield (the line, the cells) of each record. A quote within a quoted cell that is not doubled,
    as it must be, is read as it was meant."""
    stray = re.compile(rf'(?<=[^{re.escape(delimiter)}"\r\n])"(?=[^{re.escape(delimiter)}"\r\n])')
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = before = 0
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as e:
            end = start + reader.line_num
            mended = [stray.sub('""', line) for line in lines[before:end]]
            if mended == lines[before:end]:
                yield before + 1, BadRow(before + 1, f"it is not CSV ({e})")
                return
            lines[before:end], start = mended, before
            reader = csv.reader(lines[start:], delimiter=delimiter, strict=True)
            continue
        if cells is None:
            return
        number = before + 1
        before = start + reader.line_num
        if cells:
            yield number, cells


def _drop_unnamed(
    header: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterator[tuple[int, str]]:
    """Yield (its place, why) for each column without a name that says nothing. Raises NotRows
    for one that does."""
    for at in (at for at, name in enumerate(header) if not name):
        cells = [row[at].strip() for row in rows]
        if not any(cells):
            yield at, f"column {at + 1} has neither a name nor values, and is left out"
        elif not at and all(map(str.isdecimal, cells)) and len(set(cells)) == len(cells):
            yield at, "column 1 has no name and numbers the rows, and is left out"
        else:
            why = f"column {at + 1} of its header has no name, and holds {cells[0][:40]!r}"
            raise NotRows(why, f"name it in the first line, between {_names_beside(header, at)}")


def _names_beside(header: Sequence[str], at: int) -> str:
    before = header[at - 1] if at else "the line's beginning"
    return f"{before} and {header[at + 1] if header[at + 1 :] else 'its end'}"


def _refuse_twins(header: Sequence[str], kept: Sequence[int]) -> None:
    for name, count in Counter(header[at] for at in kept).items():
        if count > 1:
            twins = " and ".join(str(at + 1) for at in kept if header[at] == name)
            why = f"columns {twins} of its header are both called {name!r}"
            raise NotRows(why, "give every column a name of its own")


def _mend_decimals(rows: Sequence[list[str]], at: int) -> str:
    """Write the numbers of a column with a point, where all are numbers and a comma among them can
    only be a decimal one. Return the first that has one, '' where nothing was to be done."""
    matches = [_DECIMAL.fullmatch(row[at].strip()) for row in rows if row[at].strip()]
    found = [match for match in matches if match is not None]
    parts = [len(match["part"]) for match in found if match["part"]]
    if len(found) < len(matches) or not any(part != 3 for part in parts):
        return ""
    for row in rows:
        if "," in row[at] or row[at].count(".") > 1:
            row[at] = row[at].strip().replace(".", "").replace(",", ".")
    return next(match[0] for match in found if match["part"])
