#!/usr/bin/env python3
"""Exit 0 when the file is Python and the examples of the task hold for it, as tools/write has found; else says what is amiss."""

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
    done = json.loads(Path("/tmp/.attempt/state.json").read_text()).get("done")
except (OSError, ValueError):
    done = True
if not done:
    print("an example of the task does not hold yet")
    sys.exit(1)
