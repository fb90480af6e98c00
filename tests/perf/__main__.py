"""Run `tests.lab.perf` by the name that outside checks are written against."""

from __future__ import annotations

import sys

from tests.lab.perf.__main__ import main

sys.exit(main())
