#!/usr/bin/env python3
"""Prints what is in /work: short texts whole, the tables of databases, the beginning of anything longer."""

import sqlite3
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
for path in sorted(Path.cwd().iterdir()):
    if path.name.startswith(".") or not path.is_file():
        continue
    print(f"# {path.name}")
    if path.suffix in (".sqlite", ".db"):
        with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
            for (made,) in database.execute("SELECT sql FROM sqlite_master WHERE sql > ''"):
                print(made)
        continue
    with path.open("rb") as file:
        start = file.read(3001)
    if b"\0" not in start:
        print(start[:3000].decode("utf-8", "replace") + ("\n[...]" if len(start) > 3000 else ""))
