"""mini-swe-agent's `.traj.json`: {"info", "messages", "trajectory_format": "mini-swe-agent-1..."}.

A message's `extra` holds what was run and what came of it; in files of version 1 the command is in
the text only. The file knows how the agent ended, not whether it was right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from recreate.api.shapes import JsonMap
from recreate.api.types import Ending, Usage
from recreate.plugins.traces.format import (
    Foreign,
    amount,
    count,
    list_of,
    nothing_handed_in,
    object_of,
    without,
)
from recreate.plugins.traces.messages import ChatMessage, read_message, steps_of

_LANGUAGES = ("bash", "sh", "mswea_bash_command")
_RETURNED = re.compile(r"<returncode>(-?\d{1,9})</returncode>")
_TASK = re.compile(r"\{\{\s*task\s*\}\}")
LIMITS = {"LimitsExceeded": "steps", "TimeExceeded": "seconds", "RepeatedFormatError": "format"}


class MiniSweAgent:
    """One file, one attempt."""

    def reads(self, value: Any) -> bool:
        value = object_of(value)
        mini = str(value.get("trajectory_format", "")).startswith("mini-swe-agent")
        return (mini or "mini_version" in object_of(value.get("info"))) and isinstance(
            value.get("messages"), list
        )

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign]:
        for raw in values:
            info = object_of(raw.get("info"))
            config = object_of(info.get("config"))
            stats = object_of(info.get("model_stats"))
            status = str(info.get("exit_status") or "")
            answer = str(info.get("submission") or "")
            system, prompt, steps = steps_of(_messages(raw["messages"], answer))
            ending, limit = _read_ending(status)
            usage = sum((s.usage for s in steps), Usage())
            name = str(raw.get("instance_id") or "")
            yield Foreign(
                task=name,
                names=(source.removesuffix(".traj"),) if not name else (),
                prompt=_extract_task(prompt, object_of(config.get("agent"))),
                system=system,
                steps=steps,
                ending=ending,
                limit=limit,
                answer=answer,
                model=str(object_of(config.get("model")).get("model_name") or ""),
                usage=usage.model_copy(
                    update={
                        "calls": count(stats.get("api_calls")) or len(steps),
                        "usd": amount(stats.get("instance_cost")),
                    }
                ),
                fault=status if ending == "error" else "",
                grade=(
                    nothing_handed_in(status) if ending == "limit" and not answer.strip() else None
                ),
                rest={
                    **without(raw, "messages", "info", "instance_id"),
                    "info": without(info, "model_stats", "submission"),
                },
            )


def _messages(raw: Any, answer: str) -> list[ChatMessage]:
    found: list[ChatMessage] = []
    for each in list_of(raw):
        extra = object_of(object_of(each).get("extra"))
        if object_of(each).get("role") == "exit" or object_of(each).get("object") == "response":
            if message := _response(each):
                found.append(message)
            continue
        # OpenAI's newer endpoint has no roles for these
        if object_of(each).get("type") == "function_call_output":
            each = {
                "role": "tool",
                "content": each.get("output"),
                "tool_call_id": each.get("call_id"),
                "extra": extra,
            }
        message = read_message(each)
        message.rest.pop("extra", None)
        message.rest |= without(extra, "actions", "returncode", "raw_output", "cost", "timestamp")
        if message.role == "assistant":
            _acted(message, extra)
        elif found:
            # the reply stands here alone
            if "model_response" in extra and found[-1].role != "assistant":
                found.append(ChatMessage("assistant", str(extra["model_response"])))
            _answered(
                message, extra, next((s for s in reversed(found) if s.role == "assistant"), None)
            )
        found.append(message)
    if found and found[-1].role == "user" and answer and found[-1].text == answer:
        found.pop()  # version 1 says the submission once more
    return found


def _response(raw: JsonMap) -> ChatMessage | None:
    """A reply of OpenAI's newer endpoint; None for the message that says how it ended."""
    if raw.get("object") != "response":
        return None
    items = [object_of(i) for i in list_of(raw.get("output"))]
    texts = [
        p.get("text", "")
        for i in items
        if i.get("type") == "message"
        for p in map(object_of, list_of(i.get("content")))
    ]
    calls = [i for i in items if i.get("type") == "function_call"]
    message = read_message({"role": "assistant", "content": "\n".join(texts), "tool_calls": calls})
    _acted(message, object_of(raw.get("extra")))
    return message


def _acted(message: ChatMessage, extra: JsonMap) -> None:
    commands = [str(object_of(a).get("command", "")) for a in list_of(extra.get("actions"))]
    if not commands and not message.calls:
        blocks = (block.partition("\n") for block in message.text.split("```")[1:-1:2])
        commands = [
            body.removesuffix("\n")
            for language, _, body in blocks
            if language.rstrip() in _LANGUAGES
        ]
    message.action = "\n".join(commands)
    used = object_of(object_of(extra.get("response")).get("usage"))
    message.usage = Usage(
        calls=1,
        tokens_in=count(used.get("prompt_tokens")),
        tokens_out=count(used.get("completion_tokens")),
        usd=amount(extra.get("cost")),
    )


def _answered(message: ChatMessage, extra: JsonMap, actor: ChatMessage | None) -> None:
    """What an environment's message says of the command before it."""
    if actor is None:
        return
    silent = message.role == "user" and not actor.action and not actor.calls
    if extra.get("interrupt_type") == "FormatError" or silent:
        actor.malformed = True
        actor.output = message.text
        return
    returned = _RETURNED.search(message.text)
    shown, printed, _ = message.text.partition("<output>")[2].partition("</output>")
    status = extra.get("returncode")
    if not isinstance(status, int):
        status = int(returned[1]) if returned else None
    output = extra.get("raw_output")
    if not isinstance(output, str):
        output = shown.removeprefix("\n").removesuffix("\n") if printed else message.text
    if error := extra.get("exception_info"):
        output = f"{output}\n{error}".lstrip()
    if message.role == "tool":
        message.status = status
        message.output = output
    elif actor.action:
        actor.status = status
        actor.output = output


def _extract_task(prompt: str, agent: JsonMap) -> str:
    """The task itself, without the template around it, where that can be told."""
    parts = _TASK.split(str(agent.get("instance_template") or ""))
    if len(parts) != 2:
        return prompt
    before = parts[0].rpartition("}")[2][-200:].lstrip("\n")
    after = parts[1].partition("{")[0][:200].rstrip("\n")
    start = prompt.find(before)
    end = prompt.rfind(after) if after.strip() else len(prompt)
    asked = prompt[start + len(before) : end].strip() if start >= 0 and end > start else ""
    return asked or prompt


def _read_ending(status: str) -> tuple[Ending, str]:
    if status in ("Submitted", ""):
        return ("submitted", "") if status else ("error", "")
    return ("limit", LIMITS[status]) if status in LIMITS else ("error", "")
