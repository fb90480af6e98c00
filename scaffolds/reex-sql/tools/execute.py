#!/usr/bin/env python3
"""Takes a reply on standard input. Of an <intermediate_sql> it prints the <result>, at most three rows; a <final_sql>
is written into answer.sql. The first of them counts: what follows was said before its result was known."""

import re
import sqlite3
import sys
import time
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
found = re.search(r"<(intermediate_sql|final_sql)>(.*?)(?:</\1>|\Z)", sys.stdin.read(), re.DOTALL)
query = re.sub(r"^\s*```(?:sql|sqlite)?|```\s*$", "", found[2].strip()).strip() if found else ""
if not query:
    print("there is no query in <intermediate_sql> or <final_sql>")
    sys.exit(2)
if found[1] == "final_sql":
    Path("answer.sql").write_text(query + "\n", encoding="utf-8")
(path,) = [path for path in Path.cwd().iterdir() if path.suffix in (".sqlite", ".db")]
database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
end = time.monotonic() + 5
database.set_progress_handler(lambda: time.monotonic() > end, 100_000)
print("<result>")
try:
    rows = database.execute(query)
    print(" | ".join(column[0] for column in rows.description or ()))
    some = rows.fetchmany(4)
    for row in some[:3]:
        print(" | ".join(str(value)[:200] for value in row))
    print("..." if len(some) > 3 else "(no more rows)")
except (sqlite3.Error, sqlite3.Warning) as e:
    print(f"SQLite says: {e}")
print("</result>")
