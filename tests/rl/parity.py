"""Run `tests/plugins/rl/parity.py` by the path that outside checks are written against."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

try:
    from tests.plugins.rl.parity import main
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    from tests.plugins.rl import tell_lacking

    sys.exit(tell_lacking(sys.argv[1:]))
sys.exit(main(sys.argv[1:]))
