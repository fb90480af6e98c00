"""The mutants that no test needs to kill: the rows of mutants.toml beside this file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")


def read_rows() -> list[dict[str, str]]:
    """Return the rows, each with module, was, becomes and why."""
    rows: list[dict[str, str]] = tomllib.loads(FILE.read_text("utf-8")).get("mutant", [])
    return rows


def squeeze(code: str) -> str:
    """Return code without what a formatter may change: white space, brackets and commas."""
    return re.sub(r"[\s(),]", "", code)


def is_excused(rows: list[dict[str, str]], module: str, was: str, becomes: str) -> bool:
    """Say whether a row is of this change, or of a statement with this change in it."""
    old, new = squeeze(was), squeeze(becomes)
    return any(
        squeeze(row["becomes"]) == whole[: at.start()] + new + whole[at.end() :]
        for row in rows
        if row["module"] == module
        for whole in [squeeze(row["was"])]
        for at in re.finditer(re.escape(old), whole)
    )
