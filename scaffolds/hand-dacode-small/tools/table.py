#!/usr/bin/env python3
"""Prints the table in /work: its name, its columns, what kind of values they hold, how many are missing, and three of
the values."""

import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
import pandas

for path in sorted(Path.cwd().glob("*.csv")):
    table = pandas.read_csv(path, low_memory=False)
    print(f"# The table {path.name}: {len(table)} rows")
    for column in table.columns[:40]:
        values = table[column]
        kind = "numbers"
        if values.dtype == object:
            given = values.dropna().astype(str)
            plain = pandas.to_numeric(given.str.replace(r"[,$%]", "", regex=True), errors="coerce").notna()
            kind = "numbers as text" if len(given) and plain.mean() > 0.8 else "text"
        missing = f", {values.isna().sum()} missing" if values.isna().any() else ""
        some = [f"{v:.4g}" if isinstance(v, float) else str(v)[:20] for v in values.dropna().unique()[:3]]
        print(f"- {column!r} ({kind}{missing}): {', '.join(some)}")
    if len(table.columns) > 40:
        print(f"- and {len(table.columns) - 40} more")
