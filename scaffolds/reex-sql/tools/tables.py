#!/usr/bin/env python3
"""Prints the tables of each database in /work: columns, types, keys."""

import sqlite3
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
for path in sorted(Path.cwd().iterdir()):
    if path.suffix not in (".sqlite", ".db"):
        continue
    print(f"# The tables of {path.name}")
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        for (made,) in database.execute("SELECT sql FROM sqlite_master WHERE type IN ('table', 'view') AND sql > ''"):
            print(made)
