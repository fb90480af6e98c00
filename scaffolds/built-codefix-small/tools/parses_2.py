#!/usr/bin/env python3
"""Exit 0 when tools/write has found its answer and each Python file of /work can be read as Python."""

import ast
import json
import sys
from pathlib import Path

if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
for path in Path.cwd().glob("*.py"):
    try:
        ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as e:
        print(f"{path.name} is no Python: {e}")
        sys.exit(1)
try:
    done = json.loads(Path(".first.json").read_text(encoding="utf-8"))["done"]
except (OSError, ValueError, KeyError):
    done = False
if not done:
    print("not yet")
    sys.exit(1)
