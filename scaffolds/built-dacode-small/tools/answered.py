#!/usr/bin/env python3
"""Exit 0 when answer.txt holds something."""

import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
answer = Path("answer.txt")
sys.exit(0 if answer.is_file() and answer.read_text(encoding="utf-8").strip() else 1)
