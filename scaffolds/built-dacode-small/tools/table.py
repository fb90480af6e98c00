#!/usr/bin/env python3
"""Prints each table in /work: its name, its columns with their types, and its first three rows."""

import csv
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
import pandas

COLUMNS = 40

for path in sorted(Path.cwd().glob("*.csv")):
    try:
        table = pandas.read_csv(path, low_memory=False)
    except ValueError as e:
        print(f"{path.name} cannot be read by pandas as it is: {e}")
        continue
    columns = [f"{column!r} ({table[column].dtype})" for column in table.columns]
    print(f"{path.name} has {len(table)} rows and the columns {', '.join(columns[:COLUMNS])}", end="")
    print(f" and {len(columns) - COLUMNS} more." if len(columns) > COLUMNS else ".", "Its first rows are:")
    for row in table.head(3).itertuples(index=False):
        cells = [f"{cell:.4g}" if isinstance(cell, float) else str(cell)[:20] for cell in row]
        csv.writer(sys.stdout, lineterminator="\n").writerow(cells[:COLUMNS])
