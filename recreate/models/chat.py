"""What chat endpoints share: what is asked for, how a completion is read, and what their words say
of an error."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recreate.api.errors import Refused, Transient
from recreate.api.ports import Price
from recreate.api.types import Message, Reply, ToolCall
from recreate.models.http import MAX_ANSWER
from recreate.storage.redact import redact

NO_COMPLETION = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What `completion` raises for what is no chat completion."""

_FINISHES = ("stop", "length", "tool_calls")
_TURNED_AWAY = (408, 409, 425, 429, 501, 503, 529)
"""Said of a request that nobody worked on. Behind a 500, 502 or 504 a model may have written its
answer."""
_TOO_LONG = re.compile(
    r"context[ _]length|context size|context window|maximum context|prompt is too long"
)
_CONTEXT = re.compile(r"maximum context length is (\d+)")
_PROMPT = re.compile(
    r"(\d+) (?:input tokens|in the messages|tokens in the messages|in your prompt)"
)
_MOST_OUT = re.compile(r"supports at most (\d+) completion|max_tokens: \d+ > (\d+)")
LEAST_REPLY = 256
"""Where a prompt leaves less room than this for a reply, it is too long."""
_NO_TOOLS = (400, 404, 422, 500, 501)
_ABOUT_TOOLS = re.compile(
    r"\btools?\b|\btool[_-](?:calls?|choice|use)|\bfunctions\b|\bfunction[ _-]?call|jinja"
)


def content(message: Message) -> str:
    """Return a message's text; '' for an assistant's that only calls tools."""
    return message.get("content") or ""


def request_fields(params: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a request's body for those of these parameters that are given, and for
    `tools`."""
    body = {name: params[name] for name in names if params.get(name) is not None}
    if params.get("tools"):
        body["tools"] = list(params["tools"])
        if params.get("tool_choice") is not None:
            body["tool_choice"] = params["tool_choice"]
    return body


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field of that name which asks for JSON of a schema."""
    name = "".join(
        c if c.isalnum() and c.isascii() else "_" for c in str(schema.get("title") or "reply")
    )[:64]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}


def answer_bytes(params: Mapping[str, Any]) -> int:
    """Return the most bytes that an answer to these parameters may have: a token with its log-probs
    takes some hundreds."""
    tokens, told = params.get("max_tokens"), params.get("top_logprobs") or 0
    return MAX_ANSWER if tokens is None else 4 * 2**20 + int(tokens) * 1024 * (1 + int(told))


def completion(
    body: Mapping[str, Any],
    messages: Sequence[Message],
    *,
    model: str,
    price: Price | None,
    latency: float,
) -> Reply:
    """Return the reply in a chat completion. model: for one that names none; latency in seconds.

    A token count that it leaves out, or gives as 0 of something, is estimated (len/4), and the
    reply then carries `estimated=True`; of one that no endpoint can mean (negative, no number) the
    reply says `doubtful=True`. Raises one of NO_COMPLETION.
    """
    choice = body["choices"][0]
    message = choice["message"]
    text = message.get("content") or ""
    if isinstance(text, list):  # some gateways answer in parts
        text = "".join(p.get("text", "") for p in text)
    calls = tool_calls(message.get("tool_calls") or (), len(messages))
    counts, doubtful = _counts(body.get("usage"))
    # 0, of an answer: as where nothing is told
    if (text or calls) and not counts.get("tokens_out"):
        counts.pop("tokens_out", None)
    more: dict[str, Any] = {"doubtful": True} if doubtful else {}
    if not doubtful and not ("tokens_in" in counts and "tokens_out" in counts):
        more["estimated"] = True
    counts.setdefault("tokens_out", estimate_reply(text, calls))
    if "tokens_in" not in counts:  # all of a long transcript is looked at
        counts["tokens_in"] = estimate(messages)
    more |= counts
    if choice.get("logprobs") and choice["logprobs"].get("content"):
        more["logprobs"] = tuple(float(t["logprob"]) for t in choice["logprobs"]["content"])
        if not all(map(math.isfinite, more["logprobs"])):
            raise ValueError("a log-prob is not a number")
    for name, ids in (
        ("token_ids", choice.get("token_ids")),
        ("prompt_ids", body.get("prompt_token_ids")),
    ):
        if ids:
            more[name] = tuple(ids)
            if not all(type(i) is int and 0 <= i < 2**31 for i in ids):
                raise ValueError(f"{name} are not ids")
    finish = choice.get("finish_reason")
    return Reply(
        text=text,
        tool_calls=calls,
        model=str(body.get("model") or model)[:300],
        finish=finish if finish in _FINISHES else "other",
        usd=price.usd(**counts) if price else 0.0,
        latency=latency,
        **more,
    )


def _counts(usage: Any) -> tuple[dict[str, int], bool]:
    """Return (a Reply's token counts, those that are told; whether something told there cannot
    be)."""
    if not usage:
        return {}, False
    if not isinstance(usage, Mapping):
        return {}, True
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    told = {
        "tokens_in": usage.get("prompt_tokens") or None,  # 0 is what some say who do not count
        "tokens_out": usage.get("completion_tokens"),
        "tokens_cached": (
            details.get("cached_tokens") or usage.get("cache_read_input_tokens") or None
        ),
        "tokens_cache_written": (
            usage.get("cache_creation_input_tokens") or details.get("cache_creation_tokens") or None
        ),
    }
    given = {name: value for name, value in told.items() if value is not None}
    counts = {name: count for name, value in given.items() if (count := _count(value)) is not None}
    return counts, len(counts) < len(given)


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value) if value == int(value) else None


def tool_calls(found: Iterable[Mapping[str, Any]], turn: int) -> tuple[ToolCall, ...]:
    """Return the calls in an answer to a transcript of `turn` messages.

    Arguments that came as an object become JSON text. A call without an id gets one that no other
    of its transcript has, of nine letters and digits, since some models' templates take no other.

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
                arguments=(
                    arguments
                    if isinstance(arguments, str)
                    else json.dumps(arguments, ensure_ascii=False)
                ),
            )
        )
    return tuple(calls)


def estimate(messages: Sequence[Message]) -> int:
    """About how many tokens a prompt has when nobody says: a quarter of its characters."""
    length = sum(len(content(m)) for m in messages)
    return (
        length + sum(len(json.dumps(m["tool_calls"])) for m in messages if m.get("tool_calls"))
    ) // 4


def estimate_reply(text: str, calls: Iterable[ToolCall] = ()) -> int:
    """Return the same for an answer."""
    return (len(text) + sum(len(c.name) + len(c.arguments) for c in calls)) // 4


def short(words: str) -> str:
    """Return an endpoint's words in one line of at most 300 characters, keys masked."""
    words = " ".join(redact(words).split())
    return words if len(words) <= 300 else words[:297] + "..."


def too_long(words: str) -> bool:
    """Whether an endpoint's words say that the prompt does not fit."""
    return bool(_TOO_LONG.search(words.lower()))


def reply_room(words: str, asked: int | None) -> int:
    """Return the tokens that a refusal leaves for a reply, fewer than were asked for; 0 where it
    says nothing of that."""
    room = 0
    if found := _MOST_OUT.search(words):
        room = int(found[1] or found[2])
    elif (context := _CONTEXT.search(words)) and (prompt := _PROMPT.search(words)):
        room = int(context[1]) - int(prompt[1])
    return room if LEAST_REPLY <= room < (asked or 0) else 0


def failure(text: str, status: int, words: str, after: float | None = None) -> Transient | Refused:
    """Return what to raise for an error status that has no other meaning: it may pass, the prompt
    is too long, or neither."""
    if status in (408, 409, 425, 429) or status >= 500:
        unspent = not worked_on(status)
        return Transient(
            text, fix="try again later", code=f"http-{status}", after=after, unspent=unspent
        )
    if status in (400, 413, 422) and too_long(words):
        fix = "shorten the prompt, or use a model (or start the server) with a larger context"
        return Refused(text, fix=fix, code="context-length")
    return Refused(
        text, fix="the endpoint will not serve this request as it is", code=f"http-{status}"
    )


def worked_on(status: int) -> bool:
    """Whether a model may have worked on a request that was answered with this status."""
    return status < 300 or (status >= 500 and status not in _TURNED_AWAY)


def retry_after(header: str) -> float | None:
    """Retry-After in seconds: it is given in seconds or as a date."""
    try:
        seconds = float(header)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError, ArithmeticError, IndexError):
        return None


def refuses_tools(status: int, words: str, model: str) -> bool:
    """Whether an answer to a request with tools says that it is the tools that cannot be served."""
    # "... 8500 in the messages, 500 in the functions"
    if status not in _NO_TOOLS or too_long(words):
        return False
    return bool(_ABOUT_TOOLS.search(words.lower().replace(model.lower(), "")))


def no_tools(who: str, words: str) -> Refused:
    """Return what to raise then."""
    return Refused(
        f"{who} takes no tools: {words}",
        fix="have them called as JSON: --study.tools json",
        code="no-tools",
    )
