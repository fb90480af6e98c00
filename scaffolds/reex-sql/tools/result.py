#!/usr/bin/env python3
"""Prints the rows of the query in answer.sql, in a fixed order."""

import sqlite3
import sys
import time
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
(path,) = [path for path in Path.cwd().iterdir() if path.suffix in (".sqlite", ".db")]
database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
end = time.monotonic() + 5
database.set_progress_handler(lambda: time.monotonic() > end, 100_000)
rows = database.execute(Path("answer.sql").read_text(encoding="utf-8")).fetchmany(1000)
print("\n".join(sorted(map(repr, rows))) or "no rows")
