"""LangSmith's runs: JSON lines, or an array, of {"id", "trace_id", "parent_run_id", "run_type",
"inputs", ...}.

The runs of a trace are one trajectory: its `llm` runs are the replies, its `tool` runs what came of
them, and the root's `feedback_stats` the grade. Messages are read as OpenAI, LangChain (serialised)
and plain texts write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recreate.api.shapes import JsonMap
from recreate.api.types import Grade, ToolCall, Usage
from recreate.plugins.traces.format import (
    Foreign,
    Unreadable,
    amount,
    count,
    grade,
    list_of,
    object_of,
    without,
)
from recreate.plugins.traces.messages import (
    ChatMessage,
    conversation,
    plain,
    read_message,
    read_messages,
    steps_of,
)

FIRST = ("correctness", "correct", "score", "accuracy", "passed", "resolved", "reward")
"""Feedback that is taken for the grade when there are several kinds; else the first."""

_KINDS = {"human": "user", "ai": "assistant", "aimessagechunk": "assistant", "chat": "user"}
_READ = (
    "id",
    "trace_id",
    "parent_run_id",
    "run_type",
    "inputs",
    "outputs",
    "feedback_stats",
    "error",
    "start_time",
    "end_time",
    "dotted_order",
    "child_run_ids",
    "child_runs",
    "parent_run_ids",
    "app_path",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "total_cost",
    "prompt_cost",
    "completion_cost",
    "reference_example_id",
    "serialized",
    "events",
)


class LangSmith:
    """One record, one run; the runs of a trace may stand anywhere in the file."""

    def reads(self, value: Any) -> bool:
        value = object_of(value)
        return {"id", "run_type", "inputs"} <= value.keys() and (
            "trace_id" in value or "parent_run_id" in value
        )

    def parts(self, value: Any) -> Sequence[str]:
        return (str(value.get("trace_id") or value["id"]),)

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign]:
        runs = sorted((run for v in values for run in _nested(v)), key=_order)
        root = next((r for r in runs if not r.get("parent_run_id")), runs[0])
        asked = [r for r in runs if r.get("run_type") == "llm"]
        messages = conversation(_requests(runs)) if asked else _plain(root, runs)
        system, prompt, steps = steps_of(messages)
        error = str(root.get("error") or "")
        answer = _answer(object_of(root.get("outputs"))) or steps[-1].reply
        asked_for = _texts(object_of(root.get("inputs")))
        usage = sum((s.usage for s in steps), Usage())
        yield Foreign(
            task=str(root.get("reference_example_id") or ""),
            prompt=asked_for if root not in asked and asked_for else prompt or asked_for,
            system=system,
            steps=steps,
            ending="error" if error else "submitted",
            answer="" if error else answer,
            model=next((m for r in asked if (m := _model(r))), ""),
            usage=usage.model_copy(update={"usd": usage.usd or amount(root.get("total_cost"))}),
            fault=error,
            grade=_grade(object_of(root.get("feedback_stats"))),
            rest={
                "trace_id": key,
                **without(root, *_READ),
                "runs": [kept for r in runs if r is not root and (kept := without(r, *_READ))],
            },
        )


def _nested(run: Any) -> Iterator[JsonMap]:
    """A run and the runs inside it, where an export nests them."""
    run = object_of(run)
    yield run
    for child in list_of(run.get("child_runs")):
        yield from _nested(child)


def _order(run: JsonMap) -> tuple[str, str]:
    return str(run.get("start_time") or ""), str(run.get("dotted_order") or "")


def _requests(
    runs: Sequence[JsonMap],
) -> Iterator[tuple[list[ChatMessage], ChatMessage | None]]:
    """What was sent to the model and what it replied, with the tools' results that no later request
    repeats."""
    asked = [r for r in runs if r.get("run_type") == "llm"]
    tools = [r for r in runs if r.get("run_type") == "tool"]
    for run in asked:
        reply = _reply(object_of(run.get("outputs")))
        reply.usage = _usage(run)
        if error := run.get("error"):
            reply.rest["error"] = error
        yield _sent(object_of(run.get("inputs"))), reply
    last = _order(asked[-1])
    late = [_result(t) for t in tools if _order(t) > last]
    if late:
        yield [*_sent(object_of(asked[-1].get("inputs"))), reply, *late], None


def _plain(root: JsonMap, runs: Sequence[JsonMap]) -> list[ChatMessage]:
    """A trace without a model's runs: its tools are the steps, its output the last."""
    found = [ChatMessage("user", _texts(object_of(root.get("inputs"))))]
    for run in runs:
        if run.get("run_type") == "tool" and run is not root:
            arguments = json.dumps(run.get("inputs"), ensure_ascii=False, default=str)
            call = ToolCall(
                id=str(run.get("id")), name=str(run.get("name", "tool")), arguments=arguments
            )
            found += [ChatMessage("assistant", calls=(call,)), _result(run)]
    if root.get("outputs") is None and len(found) == 1:
        raise Unreadable("the trace has neither a model's run, nor a tool's, nor an output")
    return [*found, ChatMessage("assistant", _answer(object_of(root.get("outputs"))))]


def _result(run: JsonMap) -> ChatMessage:
    error = str(run.get("error") or "")
    return ChatMessage(
        "tool", error or _answer(object_of(run.get("outputs"))), status=1 if error else None
    )


def _sent(inputs: JsonMap) -> list[ChatMessage]:
    messages = list_of(inputs.get("messages"))
    if messages and isinstance(messages[0], list):  # LangChain sends batches; a run is one of them
        messages = messages[0]
    if messages:
        return [x for m in messages for x in _messages(m)]
    prompts = list_of(inputs.get("prompts"))
    return [ChatMessage("user", plain(prompts[0]) if prompts else _texts(inputs))]


def _messages(raw: Any) -> list[ChatMessage]:
    return read_messages(raw) if "role" in object_of(raw) else [_message(raw)]


def _message(raw: Any) -> ChatMessage:
    """A message as OpenAI or LangChain writes it."""
    if isinstance(raw, str):
        return ChatMessage("user", raw)
    if isinstance(raw, list) and len(raw) == 2 and all(isinstance(x, str) for x in raw):
        return read_message({"role": raw[0], "content": raw[1]})
    raw = object_of(raw)
    # serialised: {"lc": 1, "id": [..., "AIMessage"], "kwargs": {...}}
    if isinstance(raw.get("kwargs"), Mapping):
        kind = (
            str((list_of(raw.get("id")) or [""])[-1])
            .removesuffix("Chunk")
            .removesuffix("Message")
            .lower()
        )
        raw = {"type": kind, **raw["kwargs"]}
    if "role" not in raw:
        kind = str(raw.get("type") or "user").lower()
        more = object_of(raw.get("additional_kwargs"))
        raw = {
            **without(raw, "type", "additional_kwargs"),
            "role": _KINDS.get(kind, kind),
            "content": raw.get("content"),
        }
        if not raw.get("tool_calls") and more.get("tool_calls"):
            raw["tool_calls"] = more["tool_calls"]
    return read_message(raw)


def _reply(outputs: JsonMap) -> ChatMessage:
    for choice in list_of(outputs.get("choices")):
        if object_of(choice).get("message"):
            return _message(choice["message"])
    generations = list_of(outputs.get("generations"))
    while generations and isinstance(generations[0], list):
        generations = generations[0]
    if generations:
        first = object_of(generations[0])
        return (
            _message(first["message"])
            if first.get("message")
            else ChatMessage("assistant", plain(first.get("text")))
        )
    inner = outputs.get("message") or outputs.get("output") or outputs
    if isinstance(inner, Mapping) and ("role" in inner or "content" in inner or "kwargs" in inner):
        return _message({"role": "assistant", **inner} if "kwargs" not in inner else inner)
    return ChatMessage("assistant", _answer(outputs))


def _texts(values: JsonMap) -> str:
    """A run's inputs in words: the one text there is, the question of a conversation, or all of it
    as JSON."""
    messages = list_of(values.get("messages"))
    if messages:
        return "\n".join(s.text for s in _sent(values) if s.role == "user")
    texts = [v for v in values.values() if isinstance(v, str)]
    if len(texts) == 1 and len(without(values)) == 1:
        return texts[0]
    return json.dumps(values, ensure_ascii=False, default=str) if values else ""


def _answer(outputs: JsonMap) -> str:
    messages = list_of(outputs.get("messages"))
    return _message(messages[-1]).text if messages else _texts(outputs)


def _usage(run: JsonMap) -> Usage:
    outputs = object_of(run.get("outputs"))
    extra = object_of(object_of(run.get("extra")).get("metadata"))
    used = object_of(
        outputs.get("usage_metadata") or extra.get("usage_metadata") or outputs.get("usage")
    )
    return Usage(
        calls=1,
        tokens_in=count(
            run.get("prompt_tokens") or used.get("input_tokens") or used.get("prompt_tokens")
        ),
        tokens_out=count(
            run.get("completion_tokens")
            or used.get("output_tokens")
            or used.get("completion_tokens")
        ),
        usd=amount(run.get("total_cost")),
    )


def _model(run: JsonMap) -> str:
    extra = object_of(run.get("extra"))
    named = object_of(extra.get("metadata"))
    called = object_of(extra.get("invocation_params"))
    return str(named.get("ls_model_name") or called.get("model") or called.get("model_name") or "")


def _grade(stats: JsonMap) -> Grade | None:
    """By one kind of feedback, of which LangSmith exports the mean; all kinds are the evidence."""
    kinds = {k: object_of(v) for k, v in stats.items() if object_of(v).get("avg") is not None}
    evidence = "\n".join(
        f"feedback {k}: {v['avg']:g} (of {v.get('n', 1)})"
        for k, v in kinds.items()
        if _number(v["avg"])
    )
    for key in [*(k for k in FIRST if k in kinds), *kinds]:
        found = grade(kinds[key]["avg"], evidence)
        if found is not None:
            return found
    return None


def _number(value: Any) -> bool:
    return isinstance(value, int | float)
