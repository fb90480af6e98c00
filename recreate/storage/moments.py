"""Moments as they are recorded and asked for: ISO 8601, or unix seconds; without a zone they are UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any


def now() -> str:
    """This second, such as 2026-11-21T19:12:21Z."""
    return told(time.time())


def told(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix(given: Any) -> float | None:
    """Whole unix seconds of a moment (a day is its beginning); None for what is none."""
    if isinstance(given, bool) or given is None:
        return None
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        try:
            moment = datetime.fromisoformat(str(given).strip())
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return float(seconds // 1) if abs(seconds) < 1e11 else None  # nan and milliseconds are no moment
