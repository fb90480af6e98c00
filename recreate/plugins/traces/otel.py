"""OpenTelemetry GenAI spans in OTLP JSON: {"resourceSpans": [...]}, and {"resourceLogs": [...]} for
events.

The spans of a trace that say `gen_ai.*` are one trajectory. Messages are read from the attributes
`gen_ai.input.messages` and `gen_ai.output.messages` (of spans, of their events, of log records),
and as earlier versions of the conventions wrote them: an event a message, or
`gen_ai.prompt.N.content`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Grade, ToolCall, Usage
from recreate.plugins.traces.format import (
    Foreign,
    Unreadable,
    amount,
    count,
    grade,
    list_of,
    object_of,
    parsed,
)
from recreate.plugins.traces.messages import (
    ChatMessage,
    conversation,
    plain,
    read_message,
    steps_of,
    tool_call,
)

ASKS = ("chat", "text_completion", "generate_content")
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message$")
_NUMBERED = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(role|content)$")
_EVALUATION = "gen_ai.evaluation.result"
_MESSAGES = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions")
_READ = re.compile(
    r"gen_ai\.(input\.messages|output\.messages|system_instructions|usage\.(input|output|prompt|"
    r"completion)_tokens"
    r"|tool\.call\.(arguments|result|id)|tool\.name|request\.model|response\.model|operation\.name"
    r"|(prompt|completion)\.\d+\..*)$"
)


class OTel:
    """One record is what an exporter sends at once; the spans of a trace may stand anywhere in the
    file."""

    def reads(self, value: Any) -> bool:
        return any(re.match(r"resource_?(spans|logs|metrics)$", k, re.I) for k in object_of(value))

    def parts(self, value: Any) -> Sequence[str]:
        return list(dict.fromkeys(trace for trace, span in _spans(value) if _ours(span)))

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign]:
        if not key:  # what an exporter sent holds no span of a model
            return
        spans = dict[str, JsonDict]()
        late = list[JsonDict]()
        for value in values:
            for trace, span in _spans(value):
                if trace != key:
                    continue
                if "log" in span:
                    late.append(span)
                else:
                    spans[span["id"]] = span
        for log in late:  # an event recorded apart belongs to its span
            span = spans.setdefault(log["id"], {**log, "events": [], "attributes": {}})
            span["events"].append(log["log"])
        yield _trajectory(sorted(spans.values(), key=lambda s: (s["start"], s["end"] or 0)), key)


def _trajectory(spans: Sequence[JsonDict], trace: str) -> Foreign:
    for span in spans:
        _gathered(span)
    asked = [s for s in spans if s["kind"] in ASKS or (s["kind"] == "" and s["output"])]
    tools = [s for s in spans if s["kind"] == "execute_tool"]
    root = next((s for s in spans if not s["parent"]), spans[0])
    top = next(
        (s for s in spans if s["kind"] in ("invoke_agent", "invoke_workflow", "create_agent")), root
    )
    if not asked and (top["input"] or top["output"]):
        asked = [top]
    if not any(s["input"] or s["output"] for s in asked):
        raise Unreadable(
            "its spans hold no messages: was the recording of message content switched on?"
        )
    system, prompt, steps = steps_of(conversation(_requests(asked, tools)))
    failed = root["failed"] or top["failed"]
    first = asked[0]["attributes"]
    asked_for = "\n".join(s.text for s in top["input"] if s.role == "user")
    usage = sum((s.usage for s in steps), Usage())
    return Foreign(
        prompt=asked_for or prompt,
        system=system,
        steps=steps,
        ending="error" if failed else "submitted",
        answer="" if failed else "\n".join(s.text for s in top["output"]) or steps[-1].reply,
        model=str(first.get("gen_ai.response.model") or first.get("gen_ai.request.model") or ""),
        usage=usage.model_copy(
            update={"seconds": max(0.0, (top["end"] or 0) - top["start"]) / 1e9}
        ),
        fault=failed,
        grade=_grade(e for s in spans for e in s["events"]),
        rest={
            "trace_id": trace,
            "resource": root.get("resource", {}),
            "spans": [r for s in spans if (r := _rest(s))],
        },
    )


def _requests(
    asked: Sequence[JsonDict], tools: Sequence[JsonDict]
) -> Iterator[tuple[Sequence[ChatMessage], ChatMessage | None]]:
    """Each request with its reply; a tool's result that no later request repeats comes after the
    last."""
    sent = list[ChatMessage]()
    reply = None
    by_call = {t["attributes"].get("gen_ai.tool.call.id") or t["id"]: t for t in tools}
    for span in asked:
        sent = [*span["system"], *span["input"]]
        for message in sent:
            if message.role == "tool" and message.answers in by_call:
                _timed(message, by_call[message.answers])
        reply = span["output"][-1] if span["output"] else ChatMessage("assistant")
        attributes = span["attributes"]
        reply.usage = Usage(
            calls=1,
            tokens_in=count(
                attributes.get(
                    "gen_ai.usage.input_tokens", attributes.get("gen_ai.usage.prompt_tokens")
                )
            ),
            tokens_out=count(
                attributes.get(
                    "gen_ai.usage.output_tokens", attributes.get("gen_ai.usage.completion_tokens")
                )
            ),
            seconds=max(0.0, ((span["end"] or 0) - span["start"]) / 1e9),
        )
        yield sent, reply
    late = [t for t in tools if t["start"] >= asked[-1]["start"] and t is not asked[-1]]
    if late and reply is not None:
        if not reply.calls:
            reply.calls = tuple(_read_call(t) for t in late)
        results = [
            _timed(ChatMessage("tool", plain(t["attributes"].get("gen_ai.tool.call.result"))), t)
            for t in late
        ]
        yield [*sent, reply, *results], None


def _timed(message: ChatMessage, tool: JsonDict) -> ChatMessage:
    message.seconds = max(0.0, ((tool["end"] or 0) - tool["start"]) / 1e9)
    if tool["failed"]:
        message.status = 1
        message.text = message.text or tool["failed"]
    return message


def _read_call(tool: JsonDict) -> ToolCall:
    about = tool["attributes"]
    known = {key: about.get(f"gen_ai.tool.call.{key}") for key in ("id", "arguments")}
    return tool_call({"name": about.get("gen_ai.tool.name", tool["name"]), **known})


# ------------------------------------------------------------------------------------------------
# messages


def _gathered(span: JsonDict) -> None:
    """Put a span's messages together, wherever they were written."""
    sources = [span["attributes"], *(e["attributes"] for e in span["events"])]
    span["kind"] = str(span["attributes"].get("gen_ai.operation.name") or "")
    for name, field in zip(("input", "output", "system"), _MESSAGES, strict=True):
        raw = next((s[field] for s in sources if s.get(field)), None)
        span[name] = [_message(m, name) for m in list_of(parsed(raw))]
    if span["system"]:
        span["system"] = [ChatMessage("system", "\n".join(s.text for s in span["system"]))]
    if not span["input"] and not span["output"]:
        _of_events(span)
    if not span["input"] and not span["output"]:
        _of_numbers(span)


def _message(raw: Any, field: str) -> ChatMessage:
    """A message of the conventions: {"role", "parts": [{"type": "text" | "tool_call" |
    "tool_call_response", ...}]}."""
    if field == "system":
        return ChatMessage("system", plain(raw))
    raw = object_of(raw)
    if "parts" not in raw:
        return read_message({"role": "assistant" if field == "output" else "user", **raw})
    calls = list[ToolCall]()
    texts = list[str]()
    answers = ""
    rest: JsonDict = {}
    for part in map(object_of, list_of(raw["parts"])):
        match part.get("type"):
            case "tool_call":
                calls.append(tool_call(part))
            case "tool_call_response":
                answers = str(part.get("id") or "")
                texts.append(plain(part.get("response", part.get("result"))))
            case "text":
                texts.append(plain(part.get("content")))
            case "reasoning":
                rest["reasoning"] = part.get("content")
            case _:
                texts.append(f"[{part.get('type')}]")
                rest.setdefault("parts", []).append(part)
    if raw.get("finish_reason"):
        rest["finish_reason"] = raw["finish_reason"]
    role = str(raw.get("role") or ("assistant" if field == "output" else "user"))
    return ChatMessage(
        "tool" if answers else role, "\n".join(texts), tuple(calls), answers, rest=rest
    )


def _of_events(span: JsonDict) -> None:
    """As the conventions were before: an event a message."""
    for event in span["events"]:
        found = _EVENT.match(event["name"])
        body = event["attributes"]
        if found:
            message = read_message({"role": found[1], **_body(body)})
            span["system" if message.role == "system" else "input"].append(message)
        elif event["name"] == "gen_ai.choice":
            chosen = object_of(parsed(body.get("message"))) or _body(body)
            span["output"].append(read_message({"role": "assistant", **chosen}))


def _body(attributes: JsonMap) -> JsonDict:
    found: JsonDict = {}
    for key, into in (
        ("content", "content"),
        ("tool_calls", "tool_calls"),
        ("id", "tool_call_id"),
        ("role", "role"),
    ):
        if (value := attributes.get(key, attributes.get(f"gen_ai.{key}"))) is not None:
            found[into] = parsed(value) if key == "tool_calls" else value
    return found


def _of_numbers(span: JsonDict) -> None:
    """As some instrumentations still write them: `gen_ai.prompt.0.content`."""
    numbered: dict[tuple[str, int], JsonDict] = {}
    for key, value in span["attributes"].items():
        if found := _NUMBERED.match(key):
            numbered.setdefault((found[1], int(found[2])), {})[found[3]] = value
    for (kind, _), raw in sorted(
        numbered.items(), key=lambda item: (item[0][0] == "completion", item[0][1])
    ):
        message = read_message({"role": "assistant" if kind == "completion" else "user", **raw})
        span[
            "output" if kind == "completion" else "system" if message.role == "system" else "input"
        ].append(message)


def _grade(events: Iterable[JsonMap]) -> Grade | None:
    """By the first evaluation with a score in 0..1 or a label that says pass or fail; all are the
    evidence."""
    found = None
    texts = list[str]()
    for event in events:
        if event["name"] != _EVALUATION:
            continue
        about = event["attributes"]
        value = about.get("gen_ai.evaluation.score.value")
        label = about.get("gen_ai.evaluation.score.label")
        words = [
            f"{about.get('gen_ai.evaluation.name', 'evaluation')}:"
            f" {value if value is not None else label}"
        ]
        texts.append(
            "\n".join(
                [*words, *([str(e)] if (e := about.get("gen_ai.evaluation.explanation")) else [])]
            )
        )
        found = found or grade(value, "") or grade(label, "")
    return found.model_copy(update={"evidence": "\n".join(texts)}) if found else None


# ------------------------------------------------------------------------------------------------
# spans


def _spans(value: Any) -> Iterator[tuple[str, JsonDict]]:
    """(trace id, span) of an OTLP document, of log records too; attributes are plain values."""
    snakes = object_of(value).keys() & {"resource_spans", "resource_logs"}
    yield from _list_spans(_in_camels(value) if snakes else value)


def _list_spans(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in list_of(object_of(value).get("resourceSpans")):
        for scope in list_of(object_of(resource).get("scopeSpans")):
            for raw in list_of(object_of(scope).get("spans")):
                raw = object_of(raw)
                status = object_of(raw.get("status"))
                failed = status.get("code") in (2, "STATUS_CODE_ERROR")
                yield (
                    str(raw.get("traceId", "")),
                    {
                        "id": str(raw.get("spanId", "")),
                        "parent": str(raw.get("parentSpanId") or ""),
                        "name": str(raw.get("name", "")),
                        "start": amount(raw.get("startTimeUnixNano")),
                        "end": amount(raw.get("endTimeUnixNano")),
                        "failed": (
                            (str(status.get("message") or "") or "the span says error")
                            if failed
                            else ""
                        ),
                        "attributes": _of_openinference(_attributes(raw.get("attributes"))),
                        "resource": _attributes(
                            object_of(object_of(resource).get("resource")).get("attributes")
                        ),
                        "events": [
                            {
                                "name": str(object_of(e).get("name", "")),
                                "attributes": _attributes(object_of(e).get("attributes")),
                            }
                            for e in list_of(raw.get("events"))
                        ],
                    },
                )
    for resource in list_of(object_of(value).get("resourceLogs")):
        for scope in list_of(object_of(resource).get("scopeLogs")):
            for raw in map(object_of, list_of(object_of(scope).get("logRecords"))):
                attributes = _attributes(raw.get("attributes"))
                name = str(raw.get("eventName") or attributes.get("event.name") or "")
                body = _value(object_of(raw.get("body")))
                log = {
                    "name": name,
                    "attributes": {**(body if isinstance(body, dict) else {}), **attributes},
                }
                start = amount(raw.get("timeUnixNano") or raw.get("observedTimeUnixNano"))
                yield (
                    str(raw.get("traceId", "")),
                    {
                        "id": str(raw.get("spanId", "")),
                        "parent": "",
                        "name": name,
                        "start": start,
                        "end": start,
                        "failed": "",
                        "attributes": {},
                        "events": [],
                        "log": log,
                    },
                )


def _in_camels(value: Any) -> Any:
    """An OTLP document whose keys are written with underscores, as protobuf prints them."""
    if isinstance(value, list):
        return [_in_camels(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {re.sub("_(.)", lambda m: m[1].upper(), k): _in_camels(v) for k, v in value.items()}


_LLM = re.compile(r"llm\.(input|output)_messages\.(\d+)\.message\.(.+)$")
_TOOL = re.compile(r"tool_calls\.(\d+)\.tool_call\.(?:function\.)?(id|name|arguments)$")
_OPENINFERENCE = {"LLM": "chat", "TOOL": "execute_tool", "AGENT": "invoke_agent"}
_SAME = {
    "llm.model_name": "gen_ai.request.model",
    "llm.token_count.prompt": "gen_ai.usage.input_tokens",
    "llm.token_count.completion": "gen_ai.usage.output_tokens",
    "tool.name": "gen_ai.tool.name",
    "tool_call.id": "gen_ai.tool.call.id",
}


def _of_openinference(attributes: JsonDict) -> JsonDict:
    """The attributes of a span, OpenInference's said as those of the conventions as well."""
    kind = _OPENINFERENCE.get(str(attributes.get("openinference.span.kind", "")).upper())
    if kind is None:
        return attributes
    said: JsonDict = {_SAME[k]: v for k, v in attributes.items() if k in _SAME}
    messages: dict[str, dict[int, JsonDict]] = {"input": {}, "output": {}}
    for key, value in attributes.items():
        if found := _LLM.match(key):
            message = messages[found[1]].setdefault(int(found[2]), {})
            if call := _TOOL.match(found[3]):
                calls = message.setdefault("tool_calls", {})
                calls.setdefault(int(call[1]), {})[call[2]] = value
            else:
                message[found[3]] = value
    for name, numbered in messages.items():
        ordered = [m for _, m in sorted(numbered.items())]
        for message in ordered:
            if calls := message.get("tool_calls"):
                message["tool_calls"] = [c for _, c in sorted(calls.items())]
        said |= {f"gen_ai.{name}.messages": ordered} if ordered else {}
    if kind == "execute_tool":
        given = attributes.get("input.value")
        got = attributes.get("output.value")
        said |= {"gen_ai.tool.call.arguments": given, "gen_ai.tool.call.result": got}
    return {**attributes, "gen_ai.operation.name": kind, **said}


def _ours(span: JsonMap) -> bool:
    names = [
        *span["attributes"],
        *(e["name"] for e in span["events"]),
        *([span["log"]["name"]] if "log" in span else []),
    ]
    return any(str(n).startswith("gen_ai.") for n in names)


def _attributes(raw: Any) -> JsonDict:
    return {
        str(a.get("key")): _value(object_of(a.get("value"))) for a in map(object_of, list_of(raw))
    }


def _value(raw: JsonMap) -> Any:
    for kind, value in raw.items():
        match kind:
            case "stringValue" | "boolValue" | "doubleValue" | "bytesValue":
                return value
            case "intValue":
                return int(value) if str(value).lstrip("-").isdigit() else value
            case "arrayValue":
                return [_value(object_of(v)) for v in list_of(object_of(value).get("values"))]
            case "kvlistValue":
                return _attributes(object_of(value).get("values"))
    return None


def _rest(span: JsonMap) -> JsonDict:
    kept = {k: v for k, v in span["attributes"].items() if not _READ.match(k)}
    return {"name": span["name"], **kept} if kept else {}
