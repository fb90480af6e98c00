#!/usr/bin/env python3
"""Takes a reply with a query, in a ```sql block or bare, on standard input and writes it into answer.sql; says what
is wrong with it."""

import re
import subprocess
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
reply = sys.stdin.read()
blocks = re.findall(r"```(?:sql|sqlite)?[ \t]*\n(.*?)(?:\n```|\Z)", reply, re.DOTALL | re.IGNORECASE)
bare = re.search(r"^\s*(?:SELECT|WITH)\b.*", reply, re.DOTALL | re.IGNORECASE | re.MULTILINE)
query = (blocks[-1] if blocks else bare[0] if bare else "").strip()
if not query:
    print("there is no query in the reply")
    sys.exit(2)
Path("answer.sql").write_text(query + "\n", encoding="utf-8")
wrong = subprocess.run(["runs"], capture_output=True, text=True, check=False).stdout.strip()
print(wrong or "answer.sql is written")
