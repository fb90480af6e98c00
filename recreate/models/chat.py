"""What chat endpoints share beyond plain text: tool calls, estimates of tokens, and words that refuse tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recreate.api.errors import Refused
from recreate.api.types import Message, ToolCall

_TOO_LONG = re.compile(r"context[ _]length|context size|context window|maximum context|prompt is too long")
_NO_TOOLS = (400, 404, 422, 500, 501)
_ABOUT_TOOLS = re.compile(r"\btools?\b|\btool[_-](?:calls?|choice|use)|\bfunctions\b|\bfunction[ _-]?call|jinja")


def content(message: Message) -> str:
    """A message's text; '' for an assistant's that only calls tools."""
    return message.get("content") or ""


def tool_calls(found: Iterable[Mapping[str, Any]], turn: int) -> tuple[ToolCall, ...]:
    """The calls in an answer to a transcript of `turn` messages.

    Arguments that came as an object become JSON text. A call without an id gets one that no other of its transcript
    has, of nine letters and digits, since some models' templates take no other.

    Raises KeyError, TypeError, ValueError or AttributeError for what is not a tool call.
    """
    calls = []
    for position, call in enumerate(found):
        function = call["function"]
        arguments = function.get("arguments") or {}
        calls.append(
            ToolCall(
                id=call.get("id") or f"call{turn:03}{position:02}",
                name=function["name"],
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
            )
        )
    return tuple(calls)


def estimate(messages: Sequence[Message]) -> int:
    """About how many tokens a prompt has when nobody says: a quarter of its characters."""
    length = sum(len(content(m)) for m in messages)
    return (length + sum(len(json.dumps(m["tool_calls"])) for m in messages if m.get("tool_calls"))) // 4


def estimate_reply(text: str, calls: Iterable[ToolCall] = ()) -> int:
    """The same for an answer."""
    return (len(text) + sum(len(c.name) + len(c.arguments) for c in calls)) // 4


def too_long(words: str) -> bool:
    """Whether an endpoint's words say that the prompt does not fit."""
    return bool(_TOO_LONG.search(words.lower()))


def refuses_tools(status: int, words: str, model: str) -> bool:
    """Whether an answer to a request with tools says that it is the tools that cannot be served."""
    if status not in _NO_TOOLS or too_long(words):  # "... 8500 in the messages, 500 in the functions"
        return False
    return bool(_ABOUT_TOOLS.search(words.lower().replace(model.lower(), "")))


def no_tools(who: str, words: str) -> Refused:
    """What to raise then."""
    return Refused(
        f"{who} takes no tools: {words}", fix="have them called as JSON: --study.tools json", code="no-tools"
    )
