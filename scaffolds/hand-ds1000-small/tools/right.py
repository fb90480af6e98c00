#!/usr/bin/env python3
"""Says how far answer.py got when it was run, a number: 3 where it gives what the question shows, 2 where it runs, less
else. Exit 0 when no better is to be had: 3, or 2 where the question shows no result."""

import json
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
found = Path(".recreate/run.json")
run = json.loads(found.read_text(encoding="utf-8")) if found.is_file() else {"rank": -1, "best": 3}
print(run["rank"])
sys.exit(0 if run["rank"] >= run["best"] else 1)
