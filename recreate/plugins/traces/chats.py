"""Formats that are a chat in other words: each a test, and a pure function that says a record as
`openai.read_chat` reads it.

    responses    OpenAI's Responses API: {"input": [items], "output": [items]}
    sharegpt     {"conversations": [{"from": "human", "value": ...}]}
    verifiers    {"prompt": [messages], "completion": [messages], "reward": 1.0}, also TRL's
    promptfoo    what `promptfoo eval --output results.json` writes
    codex        a session of Codex: a line an item of the Responses API
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recreate.api.shapes import JsonDict, JsonMap
from recreate.plugins.traces.format import Bad, Unreadable, list_of, object_of, parsed, without
from recreate.plugins.traces.openai import read_chat


class OtherChat(ABC):
    """A format whose records hold chats."""

    @abstractmethod
    def chats(self, value: Any) -> Iterator[JsonDict]:
        """Say the chats of a record as lines of OpenAI's."""

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Any]:
        for value in values:
            for many, raw in enumerate(self.chats(value), 1):
                try:
                    yield read_chat(raw)
                except Unreadable as e:
                    yield Bad(f"chat {many}", raw.get("error") or str(e))


# ------------------------------------------------------------------------------------------------
# the Responses API

_IGNORED = ("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "item_reference")
_ABOUT_A_CALL = ("type", "id", "call_id", "status", "name", "output", "outputs", "results")


class ResponsesLog(OtherChat):
    def reads(self, value: Any) -> bool:
        value = object_of(value)
        given = [*list_of(value.get("input")), *_output_items(value)]
        return bool(given) and all({"role", "type"} & object_of(x).keys() for x in given)

    def chats(self, value: Any) -> Iterator[JsonDict]:
        asked = value.get("input")
        items = [{"role": "user", "content": asked}] if isinstance(asked, str) else list_of(asked)
        about = {"model": object_of(value.get("response")).get("model"), **value}
        yield {
            **without(about, "input", "output", "response"),
            "system": value.get("instructions"),
            "messages": item_messages([*items, *_output_items(value)]),
        }


def _output_items(value: JsonMap) -> Sequence[Any]:
    return list_of(value.get("output")) or list_of(object_of(value.get("response")).get("output"))


def item_messages(items: Sequence[Any]) -> list[JsonDict]:
    """Say items as messages: what a model thought, said and called without an answer between is one
    of its messages. Raises Unreadable."""
    found: list[JsonDict] = []
    for item in map(object_of, items):
        kind = str(item.get("type") or "message")
        if kind == "reasoning":
            texts = [*list_of(item.get("summary")), *list_of(item.get("content"))]
            _own(found)["content"] += [p for p in texts if object_of(p).get("text")]
        elif kind == "message" and item.get("role") == "assistant":
            _own(found)["content"] += _parts(item.get("content"))
        elif kind == "message":
            found.append(without(item, "type"))
        elif kind.endswith("_call"):
            call = {
                "id": item.get("call_id") or item.get("id"),
                "name": item.get("name") or kind.removesuffix("_call"),
                "arguments": _arguments(item),
            }
            _own(found)["tool_calls"].append(call)
            if (
                own := item.get("output") or item.get("outputs") or item.get("results")
            ) is not None:
                found.append(_answer(call["id"], own))
        elif kind.endswith("_call_output"):
            found.append(_answer(item.get("call_id"), item.get("output")))
        elif kind not in _IGNORED:
            raise Unreadable(f"an item of the type {kind} is not read")
    return found


def _own(found: list[JsonDict]) -> JsonDict:
    """The model's message that is being said."""
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": [], "tool_calls": []})
    return found[-1]


def _parts(content: Any) -> list[Any]:
    return (
        [{"type": "text", "text": content}] if isinstance(content, str) else list(list_of(content))
    )


def _arguments(item: JsonMap) -> Any:
    for key in ("arguments", "input", "action"):
        if item.get(key) is not None:
            return item[key]
    return without(item, *_ABOUT_A_CALL)


def _answer(id: Any, output: Any) -> JsonDict:
    texts_only = isinstance(output, str) or all("text" in object_of(p) for p in list_of(output))
    told = output if texts_only and not isinstance(output, Mapping) else json.dumps(output)
    return {"role": "tool", "tool_call_id": id, "content": told}


class Codex:
    """Each line of a session's file belongs to the one session that the file is of."""

    kinds = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")

    def reads(self, value: Any) -> bool:
        value = object_of(value)
        return value.get("type") in self.kinds and isinstance(value.get("payload"), Mapping)

    def parts(self, value: Any) -> Sequence[str]:
        return ("session",)

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Any]:
        said = [(v["type"], v["payload"]) for v in values]
        meta: JsonMap = next((p for kind, p in said if kind == "session_meta"), {})
        turn: JsonMap = next((p for kind, p in said if kind == "turn_context"), {})
        yield read_chat(
            {
                **without(meta, "instructions"),
                "model": turn.get("model"),
                "system": meta.get("instructions"),
                "messages": item_messages([p for kind, p in said if kind == "response_item"]),
            }
        )


# ------------------------------------------------------------------------------------------------
# ShareGPT

_SPEAKERS = {
    "system": "system",
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bot", "model", "function_call"), "assistant"),
    **dict.fromkeys(("tool_call",), "assistant"),
    **dict.fromkeys(("observation", "tool", "function", "tool_response"), "tool"),
}


class ShareGpt(OtherChat):
    def reads(self, value: Any) -> bool:
        turns = list_of(object_of(value).get("conversations"))
        return bool(turns) and all({"from", "value"} <= object_of(t).keys() for t in turns)

    def chats(self, value: Any) -> Iterator[JsonDict]:
        messages = [self._message(str(t["from"]), t["value"]) for t in value["conversations"]]
        yield {**without(value, "conversations"), "messages": messages}

    def _message(self, speaker: str, said: Any) -> JsonDict:
        role = _SPEAKERS.get(speaker.lower())
        if role is None:
            raise Unreadable(f"who is {speaker!r}? Known are {', '.join(_SPEAKERS)}")
        if not speaker.lower().endswith("_call"):
            return {"role": role, "content": said}
        calls = parsed(said)
        calls = calls if isinstance(calls, list) else [calls]
        named = [
            c if object_of(c).get("name") else {"name": speaker, "arguments": c} for c in calls
        ]
        return {"role": role, "content": "", "tool_calls": named}


# ------------------------------------------------------------------------------------------------
# verifiers


class Verifiers(OtherChat):
    """What a row says of the right answer (`answer`, `info`) is not read: it is what was asked
    for."""

    def reads(self, value: Any) -> bool:
        value = object_of(value)
        return all(
            isinstance(value.get(k), str) or _are_messages(value.get(k))
            for k in ("prompt", "completion")
        )

    def chats(self, value: Any) -> Iterator[JsonDict]:
        messages = [
            *_messages(value["prompt"], "user"),
            *_messages(value["completion"], "assistant"),
        ]
        number = value.get("example_id", value.get("id"))
        named = [str(x) for x in (value.get("task"), number) if x not in (None, "", "default")]
        about = without(value, "prompt", "completion", "answer", "info", "task")
        yield {**about, "task": "-".join(named) if len(named) > 1 else "", "messages": messages}


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all("role" in object_of(m) for m in value)


def _messages(value: Any, role: str) -> list[Any]:
    return [{"role": role, "content": value}] if isinstance(value, str) else list(value)


# ------------------------------------------------------------------------------------------------
# promptfoo


class Promptfoo(OtherChat):
    def reads(self, value: Any) -> bool:
        return all({"prompt", "success"} <= object_of(r).keys() for r in _results(value)) and bool(
            _results(value)
        )

    def chats(self, value: Any) -> Iterator[JsonDict]:
        for result in map(object_of, _results(value)):
            raw = parsed(object_of(result["prompt"]).get("raw"))
            response = object_of(result.get("response"))
            test = object_of(result.get("testCase"))
            error = str(result.get("error") or response.get("error") or "")
            said = response.get("output")
            messages = list(raw) if _are_messages(raw) else _messages(_text(raw), "user")
            messages += [] if said is None else [_promptfoo_reply(said)]
            score = result.get("score")
            success = bool(result["success"])
            yield {
                "task": str(test.get("description") or result.get("testIdx", "")),
                "model": object_of(result.get("provider")).get("id"),
                "score": score if (score == 1) == success else success,
                "success": success,
                "evidence": object_of(result.get("gradingResult")).get("reason"),
                "error": error if said is None else "",
                "messages": messages,
            }


def _results(value: Any) -> Sequence[Any]:
    found = object_of(value).get("results")
    return list_of(object_of(found).get("results")) or list_of(found)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _promptfoo_reply(said: Any) -> JsonDict:
    calls = [c for c in list_of(said) if object_of(c).get("function")]
    if calls and len(calls) == len(list_of(said)):
        return {"role": "assistant", "content": "", "tool_calls": calls}
    return {"role": "assistant", "content": _text(said)}
