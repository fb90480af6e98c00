"""A scripted model behind a coding agent: it calls whichever tool runs a shell's command."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply, ToolCall
from recreate.models.pricing import FREE
from recreate.models.scripted import Scripted


class ShellReader:
    """rows answer for the agent; `commands` are run one a turn by the coding agent, whatever its
    tool for that is called; then it says that it is done. asked: messages of each request."""

    price: Price | None = FREE
    native_tools = True

    def __init__(self, rows: Sequence[Mapping[str, Any]], commands: Sequence[str]) -> None:
        self.name = "scripted:shell-reader"
        self.agent = Scripted.of(rows)
        self.commands = commands
        self.asked: list[list[Message]] = []

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if call.role == "agent":
            return self.agent.reply(messages, call, **params)
        self.asked.append(list(messages))
        tokens: dict[str, Any] = {"tokens_in": 100, "tokens_out": 20}
        tool = find_shell(params.get("tools") or [])
        turn = sum(bool(m.get("tool_calls")) for m in messages)
        if tool is None:  # OpenCode asks for a title
            return Reply(text="A title", **tokens)
        if turn >= len(self.commands):
            return Reply(text="All is handed in.", **tokens)
        command = self.commands[turn]
        name, key, several = tool
        value: Any = ["bash", "-lc", command] if several else command
        given = {key: value, "description": "work"} if name.lower() == "bash" else {key: value}
        made = ToolCall(id=f"call_{turn}", name=name, arguments=json.dumps(given))
        return Reply(text="", tool_calls=(made,), finish="tool_calls", **tokens)

    def close(self) -> None:
        pass


def find_shell(tools: Sequence[Mapping[str, Any]]) -> tuple[str, str, bool] | None:
    """Return (name, argument, whether that is a list) of the tool that runs a command."""
    for tool in tools:
        function = tool.get("function", {})
        name = str(function.get("name", ""))
        if not re.search(r"bash|shell|exec", name, re.IGNORECASE):
            continue
        properties = function.get("parameters", {}).get("properties", {})
        for key in ("command", "cmd"):
            if key in properties:
                return name, key, properties[key].get("type") == "array"
    return None
