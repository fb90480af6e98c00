"""What an optimizer is handed to work with: a way to ask its model, a way to search, and what was tried before."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recreate.ports import Hit
from recreate.scaffold import Scaffold, render_text
from recreate.types import Edit, Experience, Message, Revision

PROMPTS = Path(__file__).parent / "prompts"


@dataclass
class Materials:
    """Made by the loop for one proposal.

    ask(step, messages, **params) -> the reply's text. Steps number the calls of this proposal, so that a resumed
    build finds their replies again.
    complain(edits) -> what is wrong with edits (they do not apply, leak, cite what is not there), [] when nothing.
    """

    ask: Callable[..., str]
    recall: Callable[[str, int, Mapping[str, Any]], Sequence[Hit]]
    find: Callable[[str], Experience | None]
    complain: Callable[[Scaffold, Sequence[Edit]], list[str]]
    rejected: Sequence[Revision] = ()
    note: Callable[[str], None] = field(default=lambda text: None)


def prompt(name: str, **variables: Any) -> list[Message]:
    """One of the package's prompts, filled in, as the only message."""
    text = render_text(f"{name}.md", (PROMPTS / f"{name}.md").read_text("utf-8"), variables)
    return [{"role": "user", "content": text}]


def read_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a reply: the whole of it, a fenced block, or the outermost braces; else None."""
    fenced = re.findall(r"```(?:json)?\s*\n(.*?)```", text, re.DOTALL)
    start, end = text.find("{"), text.rfind("}")
    for candidate in (text, *fenced, text[start : end + 1] if 0 <= start < end else ""):
        try:
            found = json.loads(candidate, strict=False)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None
