"""A memory policy's question to a model: filled in, asked once, read leniently."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from recreate.agents.question import filled, read_object
from recreate.api.types import Message, digest
from recreate.lessons.context import PolicyContext

PROMPTS = Path(__file__).parent / "prompts"
TOKENS = 900


class Questions:
    """Asks; `malformed` counts the answers that could not be read. The address of a question is what it asks."""

    def __init__(self, materials: PolicyContext) -> None:
        self.materials = materials
        self.malformed = 0

    def ask(self, name: str, schema: Mapping[str, Any], **variables: Any) -> dict[str, Any] | None:
        """The object that a model answered to the prompt `name`; None when there was none. Lets asking's raises out."""
        messages: list[Message] = [{"role": "user", "content": filled(PROMPTS, name, variables)}]
        thread = digest(["policy", name, messages])
        reply = self.materials.ask(
            messages, step=0, thread=thread, json_schema=schema, temperature=0.0, max_tokens=TOKENS
        )
        found = read_object(reply.text)
        if found is None or any(isinstance(said, str) and echoes(said, _instructions(name)) for said in found.values()):
            self.malformed += 1
            return None
        return found

    def tell(self) -> None:
        """Note how many answers were skipped since the last time."""
        if self.malformed:
            self.materials.note(
                f"{self.malformed} answers of the model were skipped: unreadable, or the question again"
            )
        self.malformed = 0


def echoes(said: str, instructions: str) -> bool:
    """Whether a text is mostly the question's own words: half of its runs of four words or more.

    A 1.5B model asked never to name a function taught its agents never to name functions.
    """
    runs = _runs(said)
    return len(runs) >= 2 and 2 * len(runs & _runs(instructions)) >= len(runs)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[n : n + 4]) for n in range(len(words) - 3)}


@lru_cache
def _instructions(name: str) -> str:
    return (PROMPTS / f"{name}.md").read_text("utf-8")


def object_of(**properties: Any) -> dict[str, Any]:
    """A JSON schema: an object of exactly these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text(found: Mapping[str, Any] | None, key: str, most: int) -> str:
    """A text of an answer in at most so many characters; '' when it is none."""
    value = (found or {}).get(key)
    return value.strip()[:most] if isinstance(value, str) else ""
