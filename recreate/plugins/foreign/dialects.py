"""Chat APIs as foreign agents speak them: a request's body read into our messages, a reply told in
their form.

    POST /v1/chat/completions    OpenAI chat completions, streamed or whole
    POST /v1/messages            Anthropic messages, streamed or whole
    POST /v1/responses           OpenAI responses, streamed or whole

Text, tool calls and their results pass both ways. What `Model.reply` does not know is left out and
named (`Asked.left_out`); what would change the question if it were (an image, several choices) is
refused.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Message, Reply, ToolCall
from recreate.storage.log import decode


@dataclass
class Asked:
    """One request: our messages and parameters (as for `Model.reply`), what was left out of it,
    whether it is to be streamed, and the name that it calls the model by."""

    messages: list[Message]
    params: JsonDict
    model: str
    stream: bool = False
    usage: bool = False
    left_out: set[str] = field(default_factory=set)


class BadRequest(BadInput):
    """A request that is none, or asks for what cannot be passed on."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            fix="OpenAI's chat completions or responses, or Anthropic's messages",
            code="bad-request",
        )


class Dialect(ABC):
    """One API. `error` is the body of an answer that is none; `type` and `code` are the API's words
    for it."""

    path: str

    @abstractmethod
    def read(self, body: JsonMap) -> Asked:
        """Raises BadRequest."""

    @abstractmethod
    def complete(self, reply: Reply, asked: Asked, id: str) -> JsonDict:
        """The answer as one object."""

    @abstractmethod
    def events(self, reply: Reply, asked: Asked, id: str) -> Iterator[str]:
        """The answer as server-sent events."""

    @abstractmethod
    def error(self, status: int, message: str, code: str) -> JsonDict:
        """An error as this API tells it."""


def _sse(data: JsonMap, event: str = "") -> str:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n"


# ------------------------------------------------------------------------------------------------
# what all share

_TEXTS = ("text", "input_text", "output_text", "refusal")
_NUMBERS = ("temperature", "top_p", "seed")


def _common(body: JsonMap, known: Sequence[str]) -> tuple[JsonDict, set[str]]:
    """(the parameters that all dialects spell alike, the names of those that nobody takes)."""
    params: JsonDict = {}
    for name in _NUMBERS:
        value = body.get(name)
        if value is None:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise BadRequest(f"{name} must be a number, got {value!r}")
        params[name] = int(value) if name == "seed" else value
    stop = body.get("stop", body.get("stop_sequences"))
    if stop:
        texts = [stop] if isinstance(stop, str) else stop
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise BadRequest("stop must be a text or a list of texts")
        params["stop"] = texts[:4]
    left = {
        name
        for name, value in body.items()
        if value is not None and name not in (*known, *_NUMBERS)
    }
    return params, left


def _most(body: JsonMap, *names: str) -> dict[str, int]:
    value = next((body[name] for name in names if body.get(name) is not None), None)
    if value is None:
        return {}
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequest(f"{names[0]} must be a whole number from 1 on, got {value!r}")
    return {"max_tokens": value}


def _list(body: JsonMap, name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list) or not value:
        raise BadRequest(f"{name} must be a list that is not empty")
    return value


def flat(content: Any, where: str) -> str:
    """A message's text, its parts joined. Raises BadRequest for a part that is no text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise BadRequest(f"the content of {where} is neither a text nor a list of parts")
    texts = []
    for part in content:
        kind = (
            "text"
            if isinstance(part, str)
            else part.get("type")
            if isinstance(part, Mapping)
            else None
        )
        if kind not in _TEXTS:
            raise BadRequest(
                f"{where} holds a part of type {kind!r}: only text is passed on, no images, sound"
                " or files"
            )
        text = part if isinstance(part, str) else part.get("text", part.get("refusal"))
        texts.append(text if isinstance(text, str) else "")
    return "\n".join(texts)


def _tool(name: Any, description: Any, parameters: Any) -> JsonDict:
    if not isinstance(name, str) or not name:
        raise BadRequest("a tool has no name")
    about: JsonDict = {"name": name}
    if isinstance(description, str):
        about["description"] = description
    about["parameters"] = (
        parameters if isinstance(parameters, Mapping) else {"type": "object", "properties": {}}
    )
    return {"type": "function", "function": about}


def _call(id: Any, name: Any, arguments: Any) -> JsonDict:
    text = (
        arguments
        if isinstance(arguments, str)
        else json.dumps({} if arguments is None else arguments)
    )
    return {
        "id": str(id or ""),
        "type": "function",
        "function": {"name": str(name or ""), "arguments": text},
    }


def _object(value: Any, what: str) -> JsonMap:
    if not isinstance(value, Mapping):
        raise BadRequest(f"{what} is no JSON object")
    return value


def arguments_of(call: ToolCall) -> JsonDict:
    """The arguments of a call as an object; what is none stands in it as `arguments`, to the
    letter."""
    try:
        found = decode(call.arguments or "{}", strict=False)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"arguments": call.arguments}


# ------------------------------------------------------------------------------------------------
# OpenAI chat


class ChatCompletions(Dialect):
    """OpenAI's chat completions, which most libraries speak."""

    path = "/v1/chat/completions"

    def read(self, body: JsonMap) -> Asked:
        if body.get("n") not in (None, 1):
            raise BadRequest("n must be 1: one answer is given to a request")
        if body.get("functions"):
            raise BadRequest(
                "functions are an old spelling that is not passed on: send them as tools"
            )
        known = (
            "model",
            "messages",
            "tools",
            "tool_choice",
            "max_tokens",
            "max_completion_tokens",
            "stop",
            "stream",
        )
        params, left = _common(
            body, (*known, "stream_options", "response_format", "n", "user", "metadata", "store")
        )
        params |= _most(body, "max_completion_tokens", "max_tokens")
        if body.get("tools"):
            params["tools"] = [_chat_tool(tool) for tool in _list(body, "tools")]
            if (choice := body.get("tool_choice")) is not None:
                params["tool_choice"] = choice
        form = body.get("response_format") or {}
        if isinstance(form, Mapping) and form.get("type") == "json_schema":
            params["json_schema"] = _object(
                _object(form.get("json_schema"), "json_schema").get("schema"), "schema"
            )
        elif isinstance(form, Mapping) and form.get("type") not in (None, "text"):
            left.add("response_format")
        options = body.get("stream_options")
        return Asked(
            messages=[_chat_message(m, n) for n, m in enumerate(_list(body, "messages"))],
            params=params,
            model=str(body.get("model") or ""),
            stream=body.get("stream") is True,
            usage=isinstance(options, Mapping) and options.get("include_usage") is True,
            left_out=left,
        )

    def complete(self, reply: Reply, asked: Asked, id: str) -> JsonDict:
        message: JsonDict = {
            "role": "assistant",
            "content": reply.text or None if reply.tool_calls else reply.text,
        }
        if reply.tool_calls:
            message["tool_calls"] = [
                _call(call.id, call.name, call.arguments) for call in reply.tool_calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": _chat_finish(reply),
            "logprobs": None,
        }
        return {
            **_chat(asked, id, "chat.completion"),
            "choices": [choice],
            "usage": _chat_usage(reply),
        }

    def events(self, reply: Reply, asked: Asked, id: str) -> Iterator[str]:
        head = _chat(asked, id, "chat.completion.chunk")

        def chunk(delta: JsonMap, finish: str | None = None) -> str:
            return _sse(
                {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            )

        yield chunk(
            {"role": "assistant", "content": reply.text or None if reply.tool_calls else reply.text}
        )
        for n, call in enumerate(reply.tool_calls):
            yield chunk({"tool_calls": [{"index": n, **_call(call.id, call.name, call.arguments)}]})
        yield chunk({}, _chat_finish(reply))
        if asked.usage:
            yield _sse({**head, "choices": [], "usage": _chat_usage(reply)})
        yield "data: [DONE]\n\n"

    def error(self, status: int, message: str, code: str) -> JsonDict:
        kind = (
            "rate_limit_error"
            if status == 429
            else "invalid_request_error"
            if status < 500
            else "server_error"
        )
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _chat_message(message: Any, n: int) -> Message:
    message = _object(message, f"message {n}")
    role = message.get("role")
    role = "system" if role == "developer" else role
    if role not in ("system", "user", "assistant", "tool"):
        raise BadRequest(
            f"message {n} is of the role {role!r}: there are system, user, assistant and tool"
        )
    found = Message(role=role, content=flat(message.get("content"), f"message {n}"))
    if role == "assistant" and message.get("tool_calls"):
        calls = [_object(call, f"a tool call of message {n}") for call in message["tool_calls"]]
        functions = [
            (call.get("id"), _object(call.get("function"), "a tool call's function"))
            for call in calls
        ]
        found["tool_calls"] = [_call(id, f.get("name"), f.get("arguments")) for id, f in functions]
    if role == "tool":
        found["tool_call_id"] = str(message.get("tool_call_id") or "")
    return found


def _chat_tool(tool: Any) -> JsonDict:
    tool = _object(tool, "a tool")
    if tool.get("type") != "function":
        raise BadRequest(
            f"a tool of type {tool.get('type')!r} is not passed on: only functions are"
        )
    about = _object(tool.get("function"), "a tool's function")
    return _tool(about.get("name"), about.get("description"), about.get("parameters"))


def _chat(asked: Asked, id: str, kind: str) -> JsonDict:
    return {
        "id": f"chatcmpl-{id}",
        "object": kind,
        "created": 0,
        "model": asked.model or "recreate",
    }


def _chat_finish(reply: Reply) -> str:
    return "tool_calls" if reply.tool_calls else "length" if reply.finish == "length" else "stop"


def _chat_usage(reply: Reply) -> JsonDict:
    return {
        "prompt_tokens": reply.tokens_in,
        "completion_tokens": reply.tokens_out,
        "total_tokens": reply.tokens_in + reply.tokens_out,
        "prompt_tokens_details": {"cached_tokens": reply.tokens_cached},
    }


# ------------------------------------------------------------------------------------------------
# Anthropic


class AnthropicMessages(Dialect):
    """Anthropic's messages."""

    path = "/v1/messages"

    def read(self, body: JsonMap) -> Asked:
        known = (
            "model",
            "messages",
            "system",
            "tools",
            "tool_choice",
            "max_tokens",
            "stop_sequences",
            "stream",
        )
        params, left = _common(body, (*known, "metadata"))
        params |= _most(body, "max_tokens")
        if body.get("tools"):
            params["tools"] = [_anthropic_tool(tool) for tool in _list(body, "tools")]
            if choice := body.get("tool_choice"):
                params["tool_choice"] = _anthropic_choice(_object(choice, "tool_choice"))
        messages: list[Message] = []
        if system := flat(body.get("system"), "system"):
            messages.append({"role": "system", "content": system})
        for n, message in enumerate(_list(body, "messages")):
            messages += _anthropic_message(_object(message, f"message {n}"), n, left)
        return Asked(
            messages,
            params,
            str(body.get("model") or ""),
            body.get("stream") is True,
            left_out=left,
        )

    def complete(self, reply: Reply, asked: Asked, id: str) -> JsonDict:
        content: list[JsonDict] = []
        if reply.text or not reply.tool_calls:
            content.append({"type": "text", "text": reply.text})
        for call in reply.tool_calls:
            content.append(
                {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of(call)}
            )
        return {
            **_anthropic(reply, asked, id),
            "content": content,
            "stop_reason": _anthropic_stop(reply),
        }

    def events(self, reply: Reply, asked: Asked, id: str) -> Iterator[str]:
        whole = self.complete(reply, asked, id)
        start = {
            **whole,
            "content": [],
            "stop_reason": None,
            "usage": {**whole["usage"], "output_tokens": 0},
        }
        yield _sse({"type": "message_start", "message": start}, "message_start")
        for n, block in enumerate(whole["content"]):
            empty: JsonDict = {"type": "text", "text": ""}
            if block["type"] == "text":
                delta = {"type": "text_delta", "text": block["text"]}
            else:
                empty = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield _sse(
                {"type": "content_block_start", "index": n, "content_block": empty},
                "content_block_start",
            )
            yield _sse(
                {"type": "content_block_delta", "index": n, "delta": delta}, "content_block_delta"
            )
            yield _sse({"type": "content_block_stop", "index": n}, "content_block_stop")
        ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        usage = {"output_tokens": reply.tokens_out}
        yield _sse({"type": "message_delta", "delta": ended, "usage": usage}, "message_delta")
        yield _sse({"type": "message_stop"}, "message_stop")

    def error(self, status: int, message: str, code: str) -> JsonDict:
        kind = (
            "rate_limit_error"
            if status == 429
            else "invalid_request_error"
            if status < 500
            else "api_error"
        )
        return {"type": "error", "error": {"type": kind, "message": message}}


_PASSED_OVER = ("thinking", "redacted_thinking")
"""Blocks of an assistant's message that only its own endpoint can read."""


def _anthropic_message(message: JsonMap, n: int, left: set[str]) -> Iterator[Message]:
    role = message.get("role")
    content = message.get("content")
    if role not in ("user", "assistant", "system"):  # Claude Code sends reminders as the last
        raise BadRequest(f"message {n} is of the role {role!r}: there are user and assistant")
    if not isinstance(content, list):
        yield {"role": role, "content": flat(content, f"message {n}")}
        return
    texts: list[Any] = []
    calls: list[JsonDict] = []
    for block in content:
        block = _object(block, f"a block of message {n}")
        match block.get("type"):
            case "tool_use" if role == "assistant":
                calls.append(_call(block.get("id"), block.get("name"), block.get("input")))
            case "tool_result" if role == "user":
                text = flat(block.get("content"), f"a result in message {n}")
                yield {
                    "role": "tool",
                    "content": text,
                    "tool_call_id": str(block.get("tool_use_id") or ""),
                }
            case kind if kind in _PASSED_OVER:
                left.add(str(kind))
            case _:
                texts.append(block)
    if role == "assistant":
        said = Message(role=role, content=flat(texts, f"message {n}"))
        if calls:
            said["tool_calls"] = calls
        yield said
    elif texts:
        yield {"role": role, "content": flat(texts, f"message {n}")}


def _anthropic_tool(tool: Any) -> JsonDict:
    tool = _object(tool, "a tool")
    if tool.get("type") not in (None, "custom"):
        raise BadRequest(
            f"a tool of type {tool.get('type')!r} is not passed on: only tools of the agent's"
            " own are"
        )
    return _tool(tool.get("name"), tool.get("description"), tool.get("input_schema"))


def _anthropic_choice(choice: JsonMap) -> Any:
    if choice.get("type") == "tool":
        return {"type": "function", "function": {"name": str(choice.get("name") or "")}}
    return {"any": "required", "none": "none"}.get(str(choice.get("type")), "auto")


def _anthropic(reply: Reply, asked: Asked, id: str) -> JsonDict:
    usage = {
        "input_tokens": reply.tokens_in - reply.tokens_cached - reply.tokens_cache_written,
        "output_tokens": reply.tokens_out,
        "cache_read_input_tokens": reply.tokens_cached,
        "cache_creation_input_tokens": reply.tokens_cache_written,
    }
    head = {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": asked.model or "recreate",
    }
    return {**head, "stop_sequence": None, "usage": usage}


def _anthropic_stop(reply: Reply) -> str:
    return (
        "tool_use" if reply.tool_calls else "max_tokens" if reply.finish == "length" else "end_turn"
    )


# ------------------------------------------------------------------------------------------------
# OpenAI responses


class Responses(Dialect):
    """OpenAI's responses. Nothing is kept between requests: each must bring its whole input."""

    path = "/v1/responses"

    def read(self, body: JsonMap) -> Asked:
        if body.get("previous_response_id") or body.get("conversation"):
            raise BadRequest("no response is kept here: send the whole input with each request")
        known = (
            "model",
            "input",
            "instructions",
            "tools",
            "tool_choice",
            "max_output_tokens",
            "stream",
            "text",
        )
        params, left = _common(
            body, (*known, "store", "user", "metadata", "previous_response_id", "conversation")
        )
        params |= _most(body, "max_output_tokens")
        if body.get("tools"):
            tools = [_object(tool, "a tool") for tool in _list(body, "tools")]
            # Codex offers its provider's own beside functions, and does without them
            left |= {f"tool {t.get('type')}" for t in tools if t.get("type") != "function"}
            params["tools"] = [_responses_tool(t) for t in tools if t.get("type") == "function"]
            choice = body.get("tool_choice")
            if isinstance(choice, Mapping):
                choice = {"type": "function", "function": {"name": str(choice.get("name") or "")}}
            params |= {"tool_choice": choice} if choice is not None else {}
        form = (
            (body.get("text") or {}).get("format")
            if isinstance(body.get("text"), Mapping)
            else None
        )
        if isinstance(form, Mapping) and form.get("type") == "json_schema":
            params["json_schema"] = _object(form.get("schema"), "schema")
        messages: list[Message] = []
        if instructions := flat(body.get("instructions"), "instructions"):
            messages.append({"role": "system", "content": instructions})
        given = body.get("input")
        if isinstance(given, str):
            messages.append({"role": "user", "content": given})
        else:
            for n, item in enumerate(_list(body, "input")):
                _responses_item(_object(item, f"item {n}"), n, messages, left)
        return Asked(
            messages,
            params,
            str(body.get("model") or ""),
            body.get("stream") is True,
            left_out=left,
        )

    def complete(self, reply: Reply, asked: Asked, id: str) -> JsonDict:
        short = reply.finish == "length"
        return {
            **_response(asked, id, "incomplete" if short else "completed"),
            "output": _responses_output(reply, id),
            "incomplete_details": {"reason": "max_output_tokens"} if short else None,
            "usage": {
                "input_tokens": reply.tokens_in,
                "input_tokens_details": {"cached_tokens": reply.tokens_cached},
                "output_tokens": reply.tokens_out,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": reply.tokens_in + reply.tokens_out,
            },
        }

    def events(self, reply: Reply, asked: Asked, id: str) -> Iterator[str]:
        count = iter(range(1 << 30))

        def event(kind: str, **more: Any) -> str:
            return _sse({"type": kind, "sequence_number": next(count), **more}, kind)

        yield event(
            "response.created", response={**_response(asked, id, "in_progress"), "output": []}
        )
        for n, item in enumerate(_responses_output(reply, id)):
            at = {"item_id": item["id"], "output_index": n}
            if item["type"] == "message":
                part = item["content"][0]
                text = part["text"]
                empty = {**part, "text": ""}
                yield event(
                    "response.output_item.added", output_index=n, item={**item, "content": []}
                )
                yield event("response.content_part.added", **at, content_index=0, part=empty)
                yield event(
                    "response.output_text.delta", **at, content_index=0, delta=text, logprobs=[]
                )
                yield event(
                    "response.output_text.done", **at, content_index=0, text=text, logprobs=[]
                )
                yield event(
                    "response.content_part.done", **at, content_index=0, part=item["content"][0]
                )
            else:
                yield event(
                    "response.output_item.added", output_index=n, item={**item, "arguments": ""}
                )
                yield event("response.function_call_arguments.delta", **at, delta=item["arguments"])
                yield event(
                    "response.function_call_arguments.done", **at, arguments=item["arguments"]
                )
            yield event("response.output_item.done", output_index=n, item=item)
        whole = self.complete(reply, asked, id)
        yield event(f"response.{whole['status']}", response=whole)

    def error(self, status: int, message: str, code: str) -> JsonDict:
        return ChatCompletions().error(status, message, code)


def _responses_item(item: JsonMap, n: int, messages: list[Message], left: set[str]) -> None:
    kind = item.get("type") or "message"
    if kind == "message":
        messages.append(
            _chat_message({"role": item.get("role"), "content": item.get("content")}, n)
        )
    elif kind == "function_call":
        call = _call(item.get("call_id"), item.get("name"), item.get("arguments"))
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        text = flat(item.get("output"), f"item {n}")
        messages.append(
            {"role": "tool", "content": text, "tool_call_id": str(item.get("call_id") or "")}
        )
    elif kind == "reasoning":
        left.add("reasoning")
    else:
        raise BadRequest(
            f"item {n} of the input is of type {kind!r}: messages and function calls are passed on"
        )


def _responses_tool(tool: JsonMap) -> JsonDict:
    return _tool(tool.get("name"), tool.get("description"), tool.get("parameters"))


def _response(asked: Asked, id: str, status: str) -> JsonDict:
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": 0,
        "model": asked.model or "recreate",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": asked.params.get("temperature"),
        "tool_choice": "auto",
        "tools": [],
        "top_p": asked.params.get("top_p"),
    }


def _responses_output(reply: Reply, id: str) -> list[JsonDict]:
    output: list[JsonDict] = []
    if reply.text or not reply.tool_calls:
        part = {"type": "output_text", "text": reply.text, "annotations": []}
        said = {
            "type": "message",
            "id": f"msg_{id}",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        output.append(said)
    for n, call in enumerate(reply.tool_calls):
        about = {
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        output.append({"type": "function_call", "id": f"fc_{id}_{n}", **about})
    return output


DIALECTS: dict[str, Dialect] = {
    each.path: each for each in (ChatCompletions(), AnthropicMessages(), Responses())
}
"""By path. A client may leave /v1 out, since some base addresses hold it and some do not."""
