"""A scripted optimizer that acts by rule: a generator yields the next action and is sent what came of it.

It is made anew from the transcript at every call, so it has no memory of its own: a resumed build finds it the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from recreate.models.price import FREE
from recreate.models.scripted import Scripted
from recreate.ports import Price
from recreate.types import Call, Message, Reply, ToolCall

Action = tuple[str, dict[str, Any]] | str
"""A tool with its arguments, or the whole reply as text."""
Play = Callable[[str], Generator[Action, str, None]]
"""Called with the first message: what is studied or distilled."""


class Investigator:
    """A model: `rows` answer for the agent, `study` and `distil` for the optimizer."""

    price: Price | None = FREE

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        study: Play,
        distil: Play | None = None,
        *,
        native: bool = False,
        before: Callable[[Call], None] = lambda call: None,
    ) -> None:
        self.name = "scripted:investigator"
        self.agent = Scripted.of(rows)
        self.study, self.distil, self.native_tools, self.before = study, distil, native, before
        self.prompts: list[list[Message]] = []
        self.params: list[dict[str, Any]] = []

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if call.role == "agent":
            return self.agent.reply(messages, call, **params)
        self.before(call)
        first = messages[1]["content"]
        if len(messages) == 2:
            self.prompts.append(list(messages))
            self.params.append(params)
        play = self.study if "Make the update." not in first else self.distil
        assert play is not None, "nobody was to distil"
        acts = play(first)
        action = next(acts)
        for message in messages[2:]:
            if message["role"] != "assistant":
                action = acts.send(message["content"])
        tokens = {"tokens_in": sum(len(m["content"]) for m in messages) // 4, "tokens_out": 20}
        if isinstance(action, str):
            return Reply(text=action, **tokens)
        tool, arguments = action
        if self.native_tools:
            made = ToolCall(id=f"call-{len(messages)}", name=tool, arguments=json.dumps(arguments))
            return Reply(text="", tool_calls=(made,), finish="tool_calls", **tokens)
        return Reply(text=json.dumps({"thought": "by rule", "tool": tool, "arguments": arguments}), **tokens)

    def close(self) -> None:
        pass
