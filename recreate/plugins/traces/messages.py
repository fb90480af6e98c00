"""A conversation as steps: every reply of the model is one, with what it saw before and what came
of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recreate.api.shapes import JsonDict
from recreate.api.types import Step, ToolCall, Usage
from recreate.plugins.traces.format import Unreadable, list_of, object_of, parsed

_SHELLS = {
    "bash",
    "sh",
    "shell",
    "terminal",
    "execute_bash",
    "run_bash",
    "run_shell",
    "run_command",
    "execute_command",
    "bash_session",
    "local_shell",
}
_COMMANDS = ("command", "cmd", "script")


@dataclass
class ChatMessage:
    """One message. Of a model: calls, action (what was done, when not the calls), status and output
    of that, usage.

    role: system | user | assistant | tool. answers: the call that a tool's message is the result
    of. rest: fields that have no place here.
    """

    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    action: str = ""
    output: str | None = None
    status: int | None = None
    malformed: bool = False
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    rest: JsonDict = field(default_factory=dict)

    def same(self, other: ChatMessage) -> bool:
        """Whether it is the same message, sent again in a later request."""
        mine, theirs = ([(c.name, parsed(c.arguments)) for c in s.calls] for s in (self, other))
        return (self.role, self.text.strip(), mine) == (other.role, other.text.strip(), theirs)


def plain(content: Any) -> str:
    """The text of a message's content: itself, or that of its parts; a part that is no text is
    named in brackets."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list | tuple):
        return json.dumps(content, ensure_ascii=False, default=str)
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        part = object_of(part)
        found = next(
            (
                part[k]
                for k in ("text", "content", "reasoning", "thinking")
                if isinstance(part.get(k), str)
            ),
            None,
        )
        texts.append(found if found is not None else f"[{part.get('type', 'something')}]")
    return "\n".join(texts)


def read_message(raw: Any) -> ChatMessage:
    """A chat message as OpenAI's endpoints take it. Raises Unreadable."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("role"), str):
        raise Unreadable("a message has no role")
    role = raw["role"]
    content = raw.get("content")
    rest = {
        k: v
        for k, v in raw.items()
        if k not in ("role", "content", "tool_calls", "tool_call_id") and v is not None
    }
    if not isinstance(content, str | None):
        texts_only = all(object_of(p).keys() <= {"type", "text"} for p in list_of(content))
        if not texts_only or isinstance(content, Mapping):
            rest["content"] = content
    calls = [tool_call(c) for c in list_of(raw.get("tool_calls"))]
    blocks = [(part, _call_of(part)) for part in list_of(content)]
    if any(call for _, call in blocks):
        calls += [tool_call(call) for _, call in blocks if call]
        content = [part for part, call in blocks if not call]
    if function := object_of(raw.get("function_call")):  # before tools were called tools
        calls.append(tool_call({"id": "", "function": function}))
        rest.pop("function_call", None)
    known = {
        "developer": "system",
        "function": "tool",
        "human": "user",
        "ai": "assistant",
        "model": "assistant",
    }
    return ChatMessage(
        role=known.get(str(role), str(role)),
        text=plain(content),
        calls=tuple(calls),
        answers=str(raw.get("tool_call_id") or ""),
        rest=rest,
    )


def read_messages(raw: Any) -> list[ChatMessage]:
    """A message, and apart from it the results of tools that stand among its content blocks, as
    Anthropic, Bedrock, Gemini and Vercel's SDK write them. Raises Unreadable, also for a block of a
    tool that is none of these: what the agent did would be lost."""
    content = object_of(raw).get("content")
    blocks = [(part, _result(part)) for part in list_of(content)]
    if unknown := [k for p, r in blocks if (k := _tool_kind(p)) and not r and not _call_of(p)]:
        raise Unreadable(f"a part of the type {unknown[0]} is not read")
    results = [r for _, r in blocks if r]
    if not results:
        return [read_message(raw)]
    own = read_message({**raw, "content": [part for part, result in blocks if not result]})
    kept = [own] if own.text or own.calls else []
    return [*kept, *results] if own.role == "assistant" else [*results, *kept]


def _tool_kind(part: Any) -> str:
    """The name of the kind of a block that is about a tool; '' for any other."""
    part = object_of(part)
    kind = str(part.get("type") or next((k for k in part if k in _TOOL_KEYS), ""))
    return kind if re.search("tool|function", kind, re.IGNORECASE) else ""


def _call_of(part: Any) -> JsonDict | None:
    """The call that a content block is; None for another."""
    kind = _tool_kind(part).replace("-", "_")
    if kind in ("toolUse", "functionCall"):
        part = object_of(part[kind])
    elif kind not in ("tool_call", "function_call") and not kind.endswith("tool_use"):
        return None
    keys = (("id", _IDS), ("name", ("name", "toolName")), ("arguments", _GIVEN))
    return {to: next((part[k] for k in names if part.get(k) is not None), "") for to, names in keys}


def _result(part: Any) -> ChatMessage | None:
    """The message of a tool that a content block is; None for another."""
    kind = _tool_kind(part).replace("-", "_")
    if kind in ("toolResult", "functionResponse"):
        part = object_of(part[kind])
    elif not kind.endswith("tool_result") and kind != "function_response":
        return None
    said = next((part[k] for k in ("content", "result", "output", "response") if k in part), "")
    id = str(next((part[k] for k in _IDS if part.get(k)), ""))
    failed = part.get("is_error") or part.get("isError") or part.get("status") == "error"
    return ChatMessage("tool", _answer_of(said), answers=id, status=1 if failed else None)


def _answer_of(said: Any) -> str:
    """What a tool answered, in words: its texts, and JSON as it is."""
    if isinstance(said, str):
        return said
    parts = said if isinstance(said, list) else [said]
    spoken = [p for p in parts if isinstance(p, str) or {"text", "type"} & object_of(p).keys()]
    if len(spoken) == len(parts):
        return plain(parts)
    return "\n".join(json.dumps(p, ensure_ascii=False, default=str) for p in parts)


_TOOL_KEYS = ("toolUse", "toolResult", "functionCall", "functionResponse")
_IDS = ("tool_use_id", "toolUseId", "toolCallId", "call_id", "id", "name")
_GIVEN = ("input", "args", "arguments")


def tool_call(raw: Any) -> ToolCall:
    """A tool call, in OpenAI's spelling ({"function": {"name", "arguments"}}) or flat ({"name",
    "arguments"})."""
    raw = object_of(raw)
    function = object_of(raw.get("function")) or raw
    name = function.get("name") or raw.get("function") or ""
    arguments: Any = next(
        (function[k] for k in ("arguments", "args", "input") if function.get(k) is not None), {}
    )
    text = (
        arguments
        if isinstance(arguments, str)
        else json.dumps(arguments, ensure_ascii=False, default=str)
    )
    return ToolCall(
        id=str(raw.get("id") or raw.get("call_id") or ""), name=str(name), arguments=text or "{}"
    )


def spelled(call: ToolCall) -> str:
    """A call as an action: a shell's command alone, else the tool's name and its arguments as
    JSON."""
    arguments = parsed(call.arguments)
    if call.name.lower() in _SHELLS and isinstance(arguments, dict):
        for key in _COMMANDS:
            if isinstance(arguments.get(key), str):
                return str(arguments[key])
    return f"{call.name} {call.arguments}"


def conversation(
    requests: Iterable[tuple[Sequence[ChatMessage], ChatMessage | None]],
) -> list[ChatMessage]:
    """One conversation of several requests (messages sent, reply): what was sent again is there
    once."""
    merged: list[ChatMessage] = []
    for sent, reply in requests:
        past = [s for s in merged if s.role != "system"]
        now = [s for s in sent if s.role != "system"]
        again = 0
        while again < min(len(past), len(now)) and past[again].same(now[again]):
            again += 1
        if again < len(past):
            again = 0  # another conversation, of another agent perhaps: all of it is new
        merged += [s for s in sent if s.role == "system" and not any(s.same(t) for t in merged)]
        merged += now[again:]
        if reply is not None:
            merged.append(reply)
    return merged


def steps_of(messages: Sequence[ChatMessage]) -> tuple[str, str, tuple[Step, ...]]:
    """(system, prompt, steps) of a conversation. Raises Unreadable when no model says anything in
    it.

    The prompt is what was said before the model's first reply. What a tool answered is the output
    of the step that called it, and with all else that was said since the observation of the next
    one.
    """
    system = "\n\n".join(m.text for m in messages if m.role == "system")
    rest = [m for m in messages if m.role != "system"]
    replies = [n for n, m in enumerate(rest) if m.role == "assistant"]
    if not replies:
        raise Unreadable("no message of a model is in it")
    steps: list[Step] = []
    for number, at in enumerate(replies):
        before = rest[(replies[number - 1] + 1 if number else 0) : at]
        after = rest[at + 1 : replies[number + 1] if number + 1 < len(replies) else len(rest)]
        steps.append(_step(number, before, rest[at], after))
    return system, "\n".join(m.text for m in rest[: replies[0]]), tuple(steps)


def _step(
    number: int, before: Sequence[ChatMessage], message: ChatMessage, after: Sequence[ChatMessage]
) -> Step:
    foreign: JsonDict = dict(message.rest)
    if message.calls:
        foreign["tool_calls"] = [
            c.model_dump(mode="json", exclude={"schema_"}, by_alias=False) for c in message.calls
        ]
    if number == 0 and (asked := [m.rest for m in before if m.rest]):
        foreign["asked"] = asked
    if shown := [m.rest for m in after if m.rest]:
        foreign["answers"] = shown
    order = {call.id: n for n, call in enumerate(message.calls) if call.id}
    answers = [m for m in after if m.role == "tool"]
    answers.sort(key=lambda m: order.get(m.answers, len(order)))  # as they were called
    if any(m.answers for m in answers):
        several = len(answers) > 1  # one answer is the output itself
        foreign["answered"] = [
            {"id": m.answers, **({"text": m.text} if several else {})} for m in answers
        ]
    statuses = [m.status for m in [message, *answers] if m.status is not None]
    return Step(
        step=number,
        kind="malformed" if message.malformed else "action",
        observation="\n".join(m.text for m in before),
        reply=message.text,
        action=message.action or "\n".join(spelled(c) for c in message.calls),
        output="\n".join(_output(m) for m in answers) if message.output is None else message.output,
        status=next((s for s in statuses if s), statuses[0] if statuses else None),
        seconds=message.seconds + sum(m.seconds for m in answers),
        usage=message.usage,
        foreign=foreign,
    )


def _output(answer: ChatMessage) -> str:
    return answer.text if answer.output is None else answer.output
