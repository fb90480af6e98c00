#!/usr/bin/env python3
"""Exit 0 when the query in answer.sql runs."""

import sqlite3
import sys
import time
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
answer = Path("answer.sql")
if not answer.is_file():
    sys.exit(1)
(path,) = [path for path in Path.cwd().iterdir() if path.suffix in (".sqlite", ".db")]
database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
end = time.monotonic() + 5
database.set_progress_handler(lambda: time.monotonic() > end, 100_000)
try:
    database.execute(answer.read_text(encoding="utf-8")).fetchmany(3)
except (sqlite3.Error, sqlite3.Warning):
    sys.exit(1)
