#!/usr/bin/env python3
"""Exit 0 when an answer was written."""

import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
sys.exit(0 if Path(".recreate/answered").is_file() else 1)
