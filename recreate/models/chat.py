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

from recreate.api.errors import FILTERED, Fault, Refused, Transient
from recreate.api.ports import Price
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Message, Reply, ToolCall
from recreate.models.http import MAX_ANSWER
from recreate.models.refusals import REFUSES, is_of_content, is_of_money, read_error, too_long
from recreate.storage.log import decode
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

_FINISHES = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "filter": "filter",
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
}
_FILTERS = ("content_filter", "refusal", "safety", "sensitive")
_OUTAGES = ("error", "abort", "insufficient_system_resource", "network_error")
"""How a reply ends that the endpoint broke off."""
_COUNTS = ("tokens_in", "tokens_out", "tokens_cached", "tokens_cache_written")
_TURNED_AWAY = (408, 409, 425, 429, 501, 503, 529)
"""Said of a request that nobody worked on. Behind a 500, 502 or 504 a model may have written its
answer."""
_NO_TOOLS = (400, 404, 422, 500, 501)
_ABOUT_TOOLS = re.compile(
    r"\btools?\b|\btool[_-](?:calls?|choice|use)|\bfunctions\b|\bfunction[ _-]?call|jinja"
)


def content(message: Message) -> str:
    """Return a message's text; '' for an assistant's that only calls tools."""
    return message.get("content") or ""


def tool_fields(params: JsonMap) -> JsonDict:
    """Return the fields of a request's body for `tools`, where there are any."""
    tools = {"tools": list(params["tools"])} if params.get("tools") else {}
    chosen = tools and params.get("tool_choice") is not None
    return tools | ({"tool_choice": params["tool_choice"]} if chosen else {})


def response_format(schema: JsonMap) -> JsonDict:
    """Return the field of that name which asks for JSON of a schema."""
    name = "".join(
        c if c.isalnum() and c.isascii() else "_" for c in str(schema.get("title") or "reply")
    )[:64]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}


def answer_bytes(params: JsonMap) -> int:
    """Return the most bytes that an answer to these parameters may have: a token with its log-probs
    takes some hundreds."""
    tokens = params.get("max_tokens")
    told = params.get("top_logprobs") or 0
    return MAX_ANSWER if tokens is None else 4 * 2**20 + int(tokens) * 1024 * (1 + int(told))


def completion(
    body: JsonMap,
    messages: Sequence[Message],
    *,
    model: str,
    price: Price | None,
    latency: float,
    tools: bool = False,
) -> Reply:
    """Return the reply in a chat completion. model: for one that names none; latency in seconds;
    tools: there were some to call, so that a call in the text is one.

    A token count that it leaves out, or gives as 0 of something, is estimated (len/4), and the
    reply then carries `estimated=True`; of one that no endpoint can mean (negative, no number, a
    sum that contradicts its total) the reply says `doubtful=True`. Raises one of NO_COMPLETION, and
    what `failure` makes of an outage that came with status 200.
    """
    _refuse_outage(body, model)
    choice = body["choices"][0]
    message = choice["message"]
    text, reasoning = _words_of(message)
    called = message.get("tool_calls") or (
        [{"function": message["function_call"]}] if message.get("function_call") else ()
    )
    calls = tool_calls(called, len(messages))
    if tools and not calls:
        text, found = calls_in_text(text)
        calls = tool_calls(found, len(messages))
    counts, doubtful = _counts(body.get("usage"))
    # 0, of an answer: as where nothing is told
    if (text or calls) and not counts.get("tokens_out"):
        counts.pop("tokens_out", None)
    more: JsonDict = {"doubtful": True} if doubtful else {}
    if not doubtful and not ("tokens_in" in counts and "tokens_out" in counts):
        more["estimated"] = True
    counts.setdefault("tokens_out", estimate_reply(text + reasoning, calls))
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
    finish = "filter" if message.get("refusal") else _finish(choice)
    return Reply(
        text=text,
        reasoning=reasoning,
        tool_calls=calls,
        model=str(body.get("model") or model)[:300],
        finish="filter" if finish in _FILTERS else _FINISHES.get(finish, "other"),
        usd=price.usd(**counts) if price else 0.0,
        latency=latency,
        **more,
    )


def _finish(choice: JsonMap) -> str:
    """Return how a reply ended, in the endpoint's word."""
    finish = choice.get("finish_reason")
    return str(finish.get("type") if isinstance(finish, Mapping) else finish)


def _refuse_outage(body: JsonMap, model: str) -> None:
    """Raise for an answer with status 200 that says that there is none."""
    choices = body.get("choices")
    choice: JsonMap = choices[0] if choices else {}
    error = choice.get("error") or (None if choices else body.get("error"))
    if not error and _finish(choice) not in _OUTAGES:
        return
    code = str(error.get("code") if isinstance(error, Mapping) else "")
    status = int(code) if re.fullmatch("[45][0-9][0-9]", code) else 502
    words = read_error({"error": error or f"it ended with {_finish(choice)}"}).words
    text = f"{model} answered 200, and then no answer: {short(words)}"
    raised = failure(text, status, words)
    if isinstance(raised, Fault):
        raised.spent = read_spent(body.get("usage"))
    raise raised


def read_spent(usage: Any) -> tuple[int, int] | None:
    """Return the tokens in and out that were billed, where an endpoint tells both of them."""
    counts, doubtful = _counts(usage)
    told = {"tokens_in", "tokens_out"} <= counts.keys() and not doubtful
    return (counts["tokens_in"], counts["tokens_out"]) if told else None


_USAGE = re.compile(rb'"usage":\s*(\{(?:[^{}]|\{[^{}]*\})*\})')


def spent_of_part(part: bytes) -> tuple[int, int] | None:
    """Return the same of an answer that was cut off, or is no completion. One that is streamed told
    what it cost until then, and no more."""
    found = _USAGE.findall(part[-4096:]) if part[:64].lstrip().startswith(b"{") else []
    try:
        return read_spent(decode(found[-1].decode())) if found else None
    except ValueError:
        return None


def _words_of(message: JsonMap) -> tuple[str, str]:
    """Return (what a message says, what was thought before it); of a refusal its words."""
    content = message.get("content") or ""
    if isinstance(content, list):  # some gateways answer in parts
        parts = [{"text": part} if isinstance(part, str) else part for part in content]
        thought = "".join(_thinking_of(part.get("thinking")) for part in parts)
        texts = [part.get("text") or part.get("refusal") or "" for part in parts]
        # a block of code begins a line
        content = "".join("\n" * (each[:3] == "```") + each for each in texts).lstrip("\n")
    else:
        thought = ""
    told = message.get("reasoning_content") or message.get("reasoning") or thought
    return content or message.get("refusal") or "", told if isinstance(told, str) else ""


def _thinking_of(part: Any) -> str:
    if isinstance(part, list):
        return "".join(_thinking_of(each.get("text")) for each in part)
    return part if isinstance(part, str) else ""


def _counts(usage: Any) -> tuple[dict[str, int], bool]:
    """Return (a Reply's token counts, those that are told; whether something told there cannot
    be).

    All that is billed is counted: thinking that only the total has, and a prompt of which what was
    cached is told apart.
    """
    if not usage:
        return {}, False
    if not isinstance(usage, Mapping):
        return {}, True

    def detail(side: str, name: str) -> Any:
        details = usage.get(f"{side}_tokens_details")
        return details.get(name) if isinstance(details, Mapping) else None

    cached = usage.get("cache_read_input_tokens")
    written = usage.get("cache_creation_input_tokens")
    told = {
        "tokens_in": usage.get("prompt_tokens") or None,  # 0 is what some say who do not count
        "tokens_out": usage.get("completion_tokens"),
        "tokens_cached": (
            detail("prompt", "cached_tokens") or detail("input", "cached_tokens") or cached or None
        ),
        "tokens_cache_written": written or detail("prompt", "cache_creation_tokens") or None,
        "input": usage.get("input_tokens") or None,
        "output": usage.get("output_tokens"),
        "thought": (
            detail("completion", "reasoning_tokens") or detail("output", "reasoning_tokens") or None
        ),
        "total": usage.get("total_tokens") or None,
    }
    given = {name: value for name, value in told.items() if value is not None}
    counts = {name: count for name, value in given.items() if (count := _count(value)) is not None}
    doubtful = len(counts) < len(given)
    if "tokens_in" not in counts and (count := counts.get("input")) is not None:
        apart = 0 if detail("input", "cached_tokens") else (_count(cached) or 0)
        counts["tokens_in"] = count + apart + (_count(written) or 0)
    if "tokens_out" not in counts and (count := counts.get("output")) is not None:
        counts["tokens_out"] = count
    doubtful = _count_thinking(counts) or doubtful
    return {name: counts[name] for name in _COUNTS if name in counts}, doubtful


def _count_thinking(counts: dict[str, int]) -> bool:
    """Add to the tokens of a reply those that are billed and told elsewhere; return whether the
    counts contradict each other."""
    if "tokens_out" not in counts:
        return False
    thought = counts.get("thought", 0)
    total = counts.get("total")
    if total is None or "tokens_in" not in counts:
        # thinking that is more than the reply is no part of it
        counts["tokens_out"] += thought if thought > counts["tokens_out"] else 0
        return False
    rest = total - counts["tokens_in"]
    contradicts = rest < counts["tokens_out"] or rest < thought
    counts["tokens_out"] = max(counts["tokens_out"], rest)
    return contradicts


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value) if value == int(value) else None


def tool_calls(found: Iterable[JsonMap], turn: int) -> tuple[ToolCall, ...]:
    """Return the calls in an answer to a transcript of `turn` messages.

    Arguments that came as an object become JSON text; a name loses the namespace that some models
    write before it. A call without an id gets one that no other
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
                name=function["name"].removeprefix("functions."),
                arguments=(
                    arguments
                    if isinstance(arguments, str)
                    else json.dumps(arguments, ensure_ascii=False)
                ),
            )
        )
    return tuple(calls)


# each takes what it looks through once: a hostile reply has millions of characters
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)|\[TOOL_CALLS\]\s*(\[.*\])", re.S)
_FUNCTION = re.compile(r"<function=([^>\s]+)>")


def calls_in_text(text: str) -> tuple[str, list[JsonDict]]:
    """Return (the rest of a reply, the tool calls that its endpoint left in its words, as templates
    of models write them); where one cannot be read, all of it and none."""
    begin = text.rfind("</think>") + 1
    matches = list(_CALL.finditer(text, begin))
    found = [call for match in matches for call in _read_calls(match[1] or match[2] or "")]
    if not matches or not all(found):
        return text, []
    return (text[: matches[0].start()] + text[matches[-1].end() :]).strip(), found


def _read_calls(words: str) -> list[JsonDict]:
    """Return the calls in one place, `{}` for what is none."""
    words = words.strip()
    if function := _FUNCTION.match(words):
        parts = [part.partition("</parameter>")[0] for part in words.split("<parameter=")[1:]]
        arguments = {
            name: value.strip("\n") for name, _, value in (p.partition(">") for p in parts)
        }
        return [{"function": {"name": function[1], "arguments": arguments}}]
    try:
        read = decode(words, strict=False)
    except ValueError:
        return [{}]
    return [
        {"function": {"name": name, "arguments": each.get("arguments", each.get("parameters"))}}
        if isinstance(each, Mapping) and isinstance(name := each.get("name"), str)
        else {}
        for each in (read if isinstance(read, list) else [read])
    ]


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


def failure(text: str, status: int, words: str, after: float | None = None) -> Transient | Refused:
    """Return what to raise for an error status that has no other meaning: it may pass, or the
    prompt is too long, or a filter turned it down, or the account is empty, or none of these."""
    empty = "insufficient_quota" in words
    if (status in (408, 409, 425, 429) and not empty) or status >= 500:
        unspent = not worked_on(status)
        after = wish_to_wait(words) if after is None else after
        return Transient(
            text, fix="try again later", code=f"http-{status}", after=after, unspent=unspent
        )
    fix = "the endpoint will not serve this request as it is"
    code = f"http-{status}"
    if status in (*REFUSES, 402, 403, 429):
        fix += "; --models.drop NAME leaves a parameter out of it"
        if is_of_money(words):
            fix = "put money into that account, or name another model"
            code = "no-credit"
        elif is_of_content(words):
            fix = "the provider's filter turned it down: say it in other words"
            code = FILTERED
        elif too_long(words):
            fix = "shorten the prompt, or use a model (or start the server) with a larger context"
            code = "context-length"
    return Refused(text, fix=fix, code=code)


_WISH = re.compile(
    r"(?:(?:try again|retry) (?:in|after) |retrydelay[\"':\s]+)(?=\d)"
    r"(?:(\d+) ?d)?(?:(\d+) ?h)?(?:(\d+) ?m(?!s))?(?:(\d+(?:\.\d+)?) ?(ms|s))?"
)


def wish_to_wait(words: str) -> float | None:
    """Return the seconds after which an endpoint's words say that it may be asked again; None where
    they do not."""
    if not (found := _WISH.search(words.lower())):
        return None
    days, hours, minutes, seconds, unit = found.groups("0")
    whole = int(days) * 86400 + int(hours) * 3600 + int(minutes) * 60
    return whole + float(seconds) * (0.001 if unit == "ms" else 1) or None


def worked_on(status: int) -> bool:
    """Whether a model may have worked on a request that was answered with this status."""
    return status < 300 or (status >= 500 and status not in _TURNED_AWAY)


def retry_after(header: str, in_ms: str = "") -> float | None:
    """Retry-After in seconds: it is given in seconds or as a date, or by a header of its own in
    milliseconds."""
    if in_ms.replace(".", "", 1).isdecimal():
        return float(in_ms) / 1000
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
