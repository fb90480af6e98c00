"""What the published methods share: questions to the optimizer's model, each with a number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from recreate.agents.trajectory import tell
from recreate.api.shapes import JsonMap
from recreate.api.types import Experience, Message, Reply
from recreate.optimizers.context import REPLY_TOKENS, OptimizerContext, prompt
from recreate.optimizers.search import ATTEMPT_CHARS
from recreate.plugins.methods import PROMPTS
from recreate.storage.files import write


class Asking:
    """An optimizer that asks its model one question after another."""

    settings: Any

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context
        self.settings = context.settings
        self.asked = 0

    def ask(self, messages: Sequence[Message], schema: JsonMap, **params: Any) -> Reply:
        """Return the model's reply to the next question; params: other than those of a short
        answer."""
        self.asked += 1
        params = params or {"temperature": 0.4, "max_tokens": REPLY_TOKENS}
        return self.context.ask(messages, step=self.asked - 1, json_schema=schema, **params)

    def fill(self, name: str, **values: Any) -> list[Message]:
        """Return the messages of one of this folder's prompts."""
        return prompt(name, folder=PROMPTS, **values)

    def tell(self, experience: Experience) -> str:
        """Return an attempt in about as many characters as a question has room for."""
        return tell(experience, ATTEMPT_CHARS, self.context.without)

    def recorded(self, name: str, none: Any) -> Any:
        """Return what `record` wrote in an earlier round; `none` where it wrote nothing."""
        file = self.context.state / name
        return json.loads(file.read_text()) if file.exists() else none

    def record(self, name: str, value: Any) -> None:
        """Keep a value for the rounds to come."""
        write(self.context.state / name, json.dumps(value))


def one_line(text: object) -> str:
    """Return a text of an answer in one line; '' when it is none."""
    return " ".join(text.split()) if isinstance(text, str) else ""
