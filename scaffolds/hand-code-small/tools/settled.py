#!/usr/bin/env python3
"""Exit 0 when there are three solutions to choose from."""

import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
sys.exit(0 if len(list(Path(".recreate/tries").glob("*.py"))) >= 3 else 1)
