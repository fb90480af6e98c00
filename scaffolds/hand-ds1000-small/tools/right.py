#!/usr/bin/env python3
"""Exit 0 when answer.py gave what the question shows, or ran where the question shows no result."""

import json
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
found = Path(".recreate/run.json")
run = json.loads(found.read_text(encoding="utf-8")) if found.is_file() else {"rank": -1, "best": 3}
sys.exit(0 if run["rank"] >= run["best"] else 1)
