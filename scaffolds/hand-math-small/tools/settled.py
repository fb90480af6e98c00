#!/usr/bin/env python3
"""Exit 0 when two answers agree, or three were given."""

import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
votes = Path("votes.txt")
given = votes.read_text(encoding="utf-8").splitlines() if votes.is_file() else []
sys.exit(0 if len(given) >= 3 or len(set(given)) < len(given) else 1)
