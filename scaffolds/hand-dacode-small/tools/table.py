#!/usr/bin/env python3
"""Prints the table in /work: its name, its columns, what they hold and how many values are missing, and its first
three rows."""

import csv
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
import pandas

COLUMNS = 40


def kind(values: pandas.Series) -> str:
    missing = f", {values.isna().sum()} missing" if values.isna().any() else ""
    if values.dtype != object:
        return f"numbers{missing}"
    given = values.dropna().astype(str)
    plain = pandas.to_numeric(given.str.replace(r"[,$%]", "", regex=True), errors="coerce").notna()
    return f"{'numbers as text' if len(given) and plain.mean() > 0.8 else 'text'}{missing}"


for path in sorted(Path.cwd().glob("*.csv")):
    table = pandas.read_csv(path, low_memory=False)
    columns = [f"{column!r} ({kind(table[column])})" for column in table.columns]
    print(f"{path.name} has {len(table)} rows and the columns {', '.join(columns[:COLUMNS])}", end="")
    print(f" and {len(columns) - COLUMNS} more." if len(columns) > COLUMNS else ".", "Its first rows are:")
    for row in table.head(3).itertuples(index=False):
        cells = [f"{cell:.4g}" if isinstance(cell, float) else str(cell)[:20] for cell in row]
        csv.writer(sys.stdout, lineterminator="\n").writerow(cells[:COLUMNS])
