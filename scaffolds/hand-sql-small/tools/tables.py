#!/usr/bin/env python3
"""Prints the tables of each database in /work, and examples of what their columns of text hold."""

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
        tables = database.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view') AND sql > ''")
        for name, made in tables.fetchall():
            print(made)
            for _, column, kind, *_ in database.execute(f'PRAGMA table_info("{name}")').fetchall():
                if "text" in kind.lower() or "char" in kind.lower():
                    some = database.execute(f'SELECT DISTINCT "{column}" FROM "{name}" WHERE "{column}" > \'\' LIMIT 3')
                    if found := [value[:40] for (value,) in some]:
                        print(f"-- {column}: {', '.join(map(repr, found))}")
