"""Any file of rows as a domain: `--data FILE --score SCORER`, without a class. docs/data.md is its
page.

table.py reads rows, definition.py says which column is what and keeps that as domain.toml, tasks.py
makes tasks of them, scorers.py scores answers, domain.py is the domain. Every command reads this
file, which loads none of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic import Field

from recreate.api.config import Config

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
HUB = "hf:"
PUBLISHED = ("code", "math", "sql", "ds1000", "dacode")
"""Domains whose rows are known by their fields: recipes.py."""


class Columns(Config):
    """Which column is what, '' for none. gold: a right answer, where `answer` is none itself (a
    pattern, a schema, tests); files: a column of path -> text, or of the path of a file or folder
    beside the data."""

    prompt: str = ""
    answer: str = ""
    id: str = ""
    group: str = ""
    split: str = ""
    files: str = ""
    gold: str = ""


class NamedColumns(Config):
    """The same as settings, but for `prompt`, which has a setting that other domains read too."""

    answer: str = Field(default="")
    id: str = Field(default="")
    group: str = Field(default="")
    split: str = Field(default="")
    files: str = Field(default="")
    gold: str = Field(default="")


def name_of(data: str) -> str:
    """What a domain of this data is called: the stem of the file's name, or the last part of a data
    set's."""
    if data.startswith(HUB):
        stem = re.split(r"[:,]", data.removeprefix(HUB).rstrip("/"))[0].rpartition("/")[2]
    else:
        stem = Path(data).stem
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:100]
    return name or "rows"


def meant_by(data: str) -> str:
    """The domain that `--data` without `--domain` means: `swe` for what that one reads (recipes,
    rows of SWE-bench by their fields, a data set's plain name), a published one for rows that its
    recipes know, else one of rows, named by the file's stem."""
    path = Path(data).expanduser()
    if data.startswith(HUB):
        return name_of(data)
    if path.is_dir() or path.suffix.lower() not in SUFFIXES or _is_swe(path):
        return "swe"
    name = name_of(data)
    taken = ("swe", "apiworld", "appworld", "index", *PUBLISHED)
    return _published(path) or (f"{name}-rows" if name in taken else name)


def _is_swe(path: Path) -> bool:
    from recreate.plugins.swe.rows import FIELDS, is_row

    if not path.is_file() or path.suffix.lower() in (".csv", ".tsv"):
        return False
    if path.suffix.lower() == ".parquet":
        return {*_parquet_columns(path)} >= FIELDS
    with path.open(encoding="utf-8", errors="replace") as lines:
        first = next((line for line in lines if line.strip()), "").strip()
    if first.startswith("["):
        first = path.read_text("utf-8", errors="replace")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return '"instance_id"' in first[:10_000]
    value = value[0] if isinstance(value, list) and value else value
    return isinstance(value, dict) and (
        is_row(value) or "instance_id" in value or value.keys() >= {"schema", "kind"}
    )


def _published(path: Path) -> str:
    """The domain of the first row of a file of JSON lines, '' where no recipe is sure of it."""
    from recreate.plugins.benchmarks import recipes
    from recreate.plugins.benchmarks.apiworld.sources import is_tool_row

    if path.suffix.lower() != ".jsonl" or not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as lines:
        first = next((line for line in lines if line.strip()), "")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    if is_tool_row(value):
        return "apiworld"
    found = recipes.of(value)
    return found.domain if found else ""


def _parquet_columns(path: Path) -> list[str]:
    """The columns of a Parquet file, without its rows; none for what cannot be read: reading its
    rows will tell."""
    from recreate.api.registry import need

    parquet = need("pyarrow.parquet")
    try:
        return list(parquet.read_schema(path).names)
    except Exception:  # whatever is in the file
        return []
