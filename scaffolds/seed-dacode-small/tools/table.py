#!/usr/bin/env python3
"""Prints each table in /work: its name, its columns with their types, and the values of its first three rows."""

import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
import pandas

for path in sorted(Path.cwd().glob("*.csv")):
    try:
        table = pandas.read_csv(path, low_memory=False)
    except ValueError as e:
        print(f"The file {path.name} cannot be read by pandas as it is: {e}")
        continue
    print(f"The file {path.name} has {len(table)} rows and these columns:")
    for column in table.columns[:40]:
        first = [f"{value:.4g}" if isinstance(value, float) else str(value)[:20] for value in table[column].head(3)]
        print(f"- {column!r} ({table[column].dtype}): {', '.join(first)}")
    if len(table.columns) > 40:
        print(f"- and {len(table.columns) - 40} more")
