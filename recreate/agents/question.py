"""A question to a model: one of the package's prompt texts, filled in, and the JSON object in the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recreate.agents.template import render_text


def filled(folder: Path, name: str, variables: Mapping[str, Any]) -> str:
    """The text of `folder/name.md` with its variables filled in."""
    return render_text(f"{name}.md", (folder / f"{name}.md").read_text("utf-8"), variables)


def read_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a reply: the whole of it, a fenced block, or the outermost braces; else None."""
    fenced = re.findall(r"```(?:json)?\s*\n(.*?)```", text, re.DOTALL)
    start, end = text.find("{"), text.rfind("}")
    for candidate in (text, *fenced, text[start : end + 1] if 0 <= start < end else ""):
        try:
            found = json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None
