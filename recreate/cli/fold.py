"""How a long trace reads in a terminal: a head for each step, what went wrong in red, long texts folded."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

FOLD = 1200
"""Characters of one text that `traces show` prints; --full prints all."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What an agent printed must not move the cursor of whoever reads it."""


def wrong(step: Any) -> str:
    """What went wrong in a step, '' for nothing."""
    if step.kind == "malformed":
        return "the reply could not be read"
    return f"exit status {step.status}" if step.status else ""


def head(text: str, wrong: str = "") -> str:
    """The line above a step."""
    line = f"\n--- {text}"
    return red(f"{line}  ! {wrong}") if wrong else line


def red(text: str) -> str:
    """In red on a terminal."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[31m{text}\033[0m"


def fold(text: str, full: bool, limit: int = FOLD) -> str:
    """Head and tail of a long text, and how much was left out between; control characters are spelled out."""
    text = CONTROL.sub(lambda m: repr(m[0])[1:-1], text.rstrip().replace("\r\n", "\n"))
    if full or len(text) <= limit:
        return text
    head, tail = text[: limit * 2 // 3], text[-limit // 3 :]
    return f"{head}\n[... {len(text) - len(head) - len(tail):,} characters; --full shows them ...]\n{tail}"
