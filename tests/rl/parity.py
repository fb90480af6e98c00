"""Run `tests/plugins/rl/parity.py` by the path that outside checks are written against."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.plugins.rl.parity import main

sys.exit(main(sys.argv[1:]))
