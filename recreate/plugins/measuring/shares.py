"""Intervals of shares."""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson(hits: int, of: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Wilson's interval of a share, at level 1 - alpha."""
    z, rate = NormalDist().inv_cdf(1 - alpha / 2), hits / of
    middle, half = (
        rate + z * z / (2 * of),
        z * math.sqrt(rate * (1 - rate) / of + z * z / (4 * of * of)),
    )
    return max(0.0, (middle - half) / (1 + z * z / of)), min(
        1.0, (middle + half) / (1 + z * z / of)
    )
