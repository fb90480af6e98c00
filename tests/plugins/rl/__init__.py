from __future__ import annotations

import json
import sys
from collections.abc import Sequence


def tell_lacking(arguments: Sequence[str]) -> int:
    """Say that torch is not installed, as parity.py says what it cannot read; its exit code."""
    message, fix = "torch is not installed", "pip install torch, or the extra rl"
    if "--json" in arguments:
        error = {"code": "missing", "message": message, "fix": fix}
        print(json.dumps({"schema": 1, "error": error}))
    else:
        print(f"{message}: {fix}", file=sys.stderr)
    return 2
