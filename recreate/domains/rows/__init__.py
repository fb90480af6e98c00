"""Any file of rows as a domain: `--data FILE --score SCORER`, without a class. docs/data.md is its
page.

table.py reads rows, of whatever form (forms.py), definition.py says which column is what and keeps
that as domain.toml, tasks.py makes tasks of them (prompts.py: what is shown), scorers.py scores
answers (numbers.py reads theirs), domain.py is the domain. Every command reads this
file, which loads none of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic import Field

from recreate.api.config import Config
from recreate.api.plugins import names
from recreate.api.shapes import JsonMap

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
HUB = "hf:"


class Columns(Config):
    """Which column is what, '' for none. gold: a right answer, where `answer` is none itself (a
    pattern, a schema, tests); files: a column of path -> text, or of the path of a file or folder
    beside the data; choices: one of answers to choose among, which the prompt then lists."""

    prompt: str = ""
    choices: str = ""
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
    """Return what a domain of this data is called: the stem of the file's name, or the last part of
    a data set's."""
    if data.startswith(HUB):
        stem = re.split(r"[:,]", data.removeprefix(HUB).rstrip("/"))[0].rpartition("/")[2]
    else:
        stem = Path(data).stem
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:100]
    return name or "rows"


def name_domain(data: str) -> str:
    """Return the domain that `--data` without `--domain` means: the one whose plug-in says that
    these are rows of its own, else one of rows, named by the file's stem."""
    if data.startswith(HUB):
        return name_of(data)
    from recreate.api.registry import find  # with all records, which `--help` does without

    path = Path(data).expanduser()
    for brought in names("rows-format"):
        if domain := find("rows-format", brought)(path):
            return str(domain)
    name = name_of(data)
    return f"{name}-rows" if name in names("domain").keys() - {"rows"} | {"index"} else name


def read_first_row(path: Path) -> JsonMap:
    """Return the first row of a file as it stands, without the others; of a Parquet file its
    columns; {} for what cannot be read: reading all rows will say."""
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in (".jsonl", ".json", ".parquet"):
        return {}
    if suffix == ".parquet":
        from recreate.api.registry import need

        parquet = need("pyarrow.parquet")
        try:
            return dict.fromkeys(parquet.read_schema(path).names)
        except Exception:  # whatever is in the file
            return {}
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        first = next((line for line in lines if line.strip()), "").strip()
    if first.startswith("["):
        first = path.read_text("utf-8", errors="replace")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return {}
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, dict) else {}
