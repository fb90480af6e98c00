"""Published optimizers, a file each: GEPA, ACE, ADAS, OPRO, ATLAS, Yunjue, SAGE; and best-of-n."""

from __future__ import annotations

from pathlib import Path

PROMPTS = Path(__file__).parent / "prompts"
