"""Experiences as other tools read them: chat JSON lines, OpenTelemetry GenAI spans, SWE-bench
predictions, our lines.

Chats and spans hold what was sent, as the steps have it; of imported attempts, and of those of
earlier versions, what their texts tell of it. Of several samples only the one that was handed in is
written. Nothing here has a clock: spans begin at 0 and are as long as the steps were.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from recreate.agents.request import Recorded
from recreate.agents.trajectory import summary_of_tests, swebench_prediction
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import UNASKED, Experience, Grade, Step, digest
from recreate.plugins.traces.format import parsed

FORMATS = ("openai", "otel", "jsonl", "predictions")


CORRECTED = 3
"""Steps within which what failed is put right, or it is a way that was given up."""
ALIKE = 0.5
"""From how alike two actions are, 0 to 1, the second is the first one mended."""


def exported(e: Experience, form: str, *, purified: bool = False) -> list[JsonDict]:
    """The lines of an experience in an export. form: one of FORMATS; `openai` has one for each
    conversation. purified: of `openai`, without the failures that the agent put right itself
    (`purify`)."""
    match form:
        case "openai":
            return [{**line, **_marked(e)} for line in ([pure_chat(e)] if purified else chats(e))]
        case "otel":
            return [spans(e)]
        case "predictions":
            return [swebench_prediction(e)]
        case _:
            return [e.model_dump(mode="json")]


def _marked(e: Experience) -> JsonDict:
    """Of a chat of an attempt that nobody graded, what says so: under names that no import takes
    for an outcome."""
    said = e.provisional
    if e.grade.graded or said is None:
        return {}
    return {
        "metadata": {
            "provisional": said.mark,
            "provisional_passed": said.passed,
            "provisional_score": said.score,
        }
    }


def chats(e: Experience) -> list[JsonDict]:
    """The conversations as fine-tuning takes them, each its last request and the reply to it: an
    agent that begins anew, or asks beside, has several. `tools` where it was offered some."""
    recorded, steps = _requests(e)
    if recorded is None:
        return [{"messages": messages(e)}]
    by_number = {step.step: step for step in steps}
    found = []
    for number in recorded.last():
        if number in by_number:
            request = recorded[number]
            tools = {"tools": request.params["tools"]} if request.params.get("tools") else {}
            found.append(
                {"messages": [*request.messages, _build_reply(by_number[number])], **tools}
            )
    return found


def messages(e: Experience) -> list[JsonDict]:
    """The conversation as a chat endpoint takes it: the last request of what was handed in, and its
    reply."""
    recorded, steps = _requests(e)
    if recorded is not None:
        return [*map(dict, recorded[steps[-1].step].messages), _build_reply(steps[-1])]
    found: list[JsonDict] = []
    system = e.foreign.get("system")
    if system:
        found.append({"role": "system", "content": system})
    before: Step | None = None
    for step in steps:
        found += [*_list_seen(step, before), _build_reply(step)]
        before = step
    return found


def purify(steps: Sequence[Step]) -> list[Step]:
    """The steps as if each failure that was put right at once had not been: CLEANER's rollback
    (arXiv:2601.15141), on an attempt that was made.

    A step failed when its reply could not be read, or its command ended with another status than 0
    and no count of tests: a test that fails tells something. It was put right by the next one that
    succeeded, of CORRECTED at most, with nothing but failures between, whose action is alike (any,
    where the reply could not be read). That one's action and result take its place. The first one's
    words stay where they hold its action, around the mended one: the second's speak of a failure
    that nobody sees. What was not put right stays.
    """
    found = list[Step]()
    at = 0
    while at < len(steps):
        last = _corrected(steps, at)
        found.append(_mend_step(steps[at], steps[last]) if last > at else steps[at])
        at = last + 1
    return found


def _corrected(steps: Sequence[Step], at: int) -> int:
    """Where the step's correction is; its own place, where there is none, or nothing to correct."""
    wrong = steps[at]
    for later in range(at, min(at + CORRECTED, len(steps) - 1)):
        if not _failed(steps[later]):
            return at
        then = steps[later + 1]
        if (
            then.kind == "action"
            and not _failed(then)
            and (wrong.kind == "malformed" or _alike(wrong, then))
        ):
            return later + 1
    return at


def _failed(step: Step) -> bool:
    return step.kind == "malformed" or (bool(step.status) and not summary_of_tests(step.output))


def _alike(one: Step, other: Step) -> bool:
    """Whether the other is the first put right: one that is the very same and succeeds shows that
    the world failed."""
    return (
        one.action != other.action
        and SequenceMatcher(None, one.action, other.action, autojunk=False).ratio() >= ALIKE
    )


def _mend_step(wrong: Step, right: Step) -> Step:
    """The right step where the wrong one stood."""
    holds = (
        wrong.kind == "action"
        and wrong.action
        and wrong.action in wrong.reply
        and not _calls(wrong)
    )
    reply = wrong.reply.replace(wrong.action, right.action) if holds else right.reply
    return right.model_copy(update={"observation": wrong.observation, "reply": reply})


def pure_chat(e: Experience) -> JsonDict:
    """The conversation of what was handed in, as its purified steps tell it."""
    recorded, steps = _requests(e)
    found: list[JsonDict] = []
    tools: JsonDict = {}
    if recorded is not None and steps:
        request = recorded[steps[0].step]
        found = [dict(m) for m in request.messages if m["role"] == "system"]
        tools = {"tools": request.params["tools"]} if request.params.get("tools") else {}
    elif system := e.foreign.get("system"):
        found.append({"role": "system", "content": system})
    before: Step | None = None
    for step in purify(steps):
        found += [*_list_seen(step, before), _build_reply(step)]
        before = step
    return {"messages": found, **tools}


def _build_reply(step: Step) -> JsonDict:
    calls = [
        {
            "id": c["id"],
            "type": "function",
            "function": {"name": c["name"], "arguments": c["arguments"]},
        }
        for c in _calls(step)
    ]
    return {"role": "assistant", "content": step.reply, **({"tool_calls": calls} if calls else {})}


def spans(e: Experience) -> JsonDict:
    """One OTLP JSON document: an `invoke_agent` span, a `chat` span a step, `execute_tool` for what
    was done."""
    line = _Timeline(digest(["trace", e.id], 32), digest(["span", e.id]))
    for step, question in _questions(e):
        chat = f"chat {e.trace.model}".strip()
        line.add(
            digest(["chat", e.id, step.step]),
            chat,
            step.usage.seconds,
            _chat(e.trace.model, step, question),
        )
        if step.action:
            did = _tool(step)
            failed = f"exit status {step.status}" if step.status else ""
            name = f"execute_tool {did['gen_ai.tool.name']}"
            line.add(digest(["tool", e.id, step.step]), name, step.seconds, did, failed)
    whole = _span(
        line.trace, line.root, "", f"invoke_agent {e.domain}", 0, line.now, _agent(e), e.trace.fault
    )
    if e.grade.graded:
        told = {"name": "gen_ai.evaluation.result", "attributes": _attributes(_evaluation(e.grade))}
        whole["events"] = [{"timeUnixNano": str(line.now), **told}]
    scope = {"scope": {"name": "recreate"}, "spans": [*line.spans, whole]}
    resource = {"attributes": _attributes({"service.name": "recreate"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


@dataclass
class _Timeline:
    """The spans below one, each from where the last one ended; in nanoseconds, from 0 to `now`."""

    trace: str
    root: str
    now: int = 0
    spans: list[JsonDict] = field(default_factory=list)

    def add(
        self, id: str, name: str, seconds: float, attributes: JsonMap, failed: str = ""
    ) -> None:
        start = self.now
        self.now = self.now + max(1, round(seconds * 1e9))
        self.spans.append(
            _span(self.trace, id, self.root, name, start, self.now, attributes, failed)
        )


class _Question(NamedTuple):
    """What a model was asked in a step: its messages but for the system's, as the conventions write
    them."""

    system: str
    history: list[JsonDict]
    params: JsonMap


def _questions(e: Experience) -> Iterator[tuple[Step, _Question]]:
    """Each step in which a model was asked, with what it was asked: as it was sent, else as its
    texts tell of it."""
    recorded, steps = _requests(e)
    history: list[JsonDict] = []
    before: Step | None = None
    for step in steps:
        if recorded is not None:
            sent, params = recorded[step.step]
            told = sent[1:] if sent and sent[0]["role"] == "system" else sent
            system = sent[0]["content"] if told is not sent else ""
            yield step, _Question(system, [_parts(dict(m)) for m in told], params)
        else:
            history += map(_parts, _list_seen(step, before))
            yield step, _Question(e.foreign.get("system") or "", list(history), {})
            history.append({"role": "assistant", "parts": _reply(step)})
            before = step


def _chat(model: str, step: Step, question: _Question) -> JsonDict:
    """The attributes of a `chat` span."""
    asked = {name: v for k, name in _PARAMS.items() if (v := question.params.get(k)) is not None}
    reply = {
        "role": "assistant",
        "parts": _reply(step),
        "finish_reason": "tool_call" if _calls(step) else "stop",
    }
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "recreate",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": step.usage.tokens_in,
        "gen_ai.usage.output_tokens": step.usage.tokens_out,
        "gen_ai.input.messages": _json(question.history),
        "gen_ai.output.messages": _json([reply]),
        **{name: v if isinstance(v, int | float) else _json(v) for name, v in asked.items()},
    }
    if question.system:
        chat["gen_ai.system_instructions"] = _json([{"type": "text", "content": question.system}])
    return chat


def _tool(step: Step) -> JsonDict:
    """The attributes of an `execute_tool` span."""
    call = next(iter(_calls(step)), None)
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call["name"] if call else "action",
        "gen_ai.tool.call.arguments": (
            call["arguments"] if call else json.dumps({"command": step.action})
        ),
        "gen_ai.tool.call.result": step.output,
        **({"gen_ai.tool.call.id": call["id"]} if call else {}),
        **({"process.exit.code": step.status} if step.status is not None else {}),
    }


def _agent(e: Experience) -> JsonDict:
    """The attributes of the `invoke_agent` span."""
    about: JsonDict = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": e.domain,
        "gen_ai.agent.version": e.digest,
        "gen_ai.request.model": e.trace.model,
        "gen_ai.input.messages": _text("user", e.prompt),
        "gen_ai.output.messages": _text("assistant", e.trace.answer),
        "recreate.experience": e.id,
        "recreate.task": e.task,
        "recreate.split": e.split,
        "recreate.ending": f"{e.trace.ending} {e.trace.limit}".strip(),
    }
    if not e.grade.graded and (said := e.provisional):
        about |= {"recreate.provisional": said.mark, "recreate.provisional.score": said.score}
        about |= {
            "recreate.provisional.passed": said.passed,
            "recreate.provisional.explanation": said.evidence,
        }
    return about


def _evaluation(grade: Grade) -> JsonDict:
    return {
        "gen_ai.evaluation.name": "grade",
        "gen_ai.evaluation.score.value": grade.score,
        "gen_ai.evaluation.score.label": "pass" if grade.passed else "fail",
        "gen_ai.evaluation.explanation": grade.evidence,
    }


_PARAMS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
    "tools": "gen_ai.tool.definitions",
}


def _parts(message: JsonMap) -> JsonDict:
    """A chat message as the conventions write it."""
    text = message.get("content")
    if message["role"] == "tool":
        part = {
            "type": "tool_call_response",
            "id": message.get("tool_call_id", ""),
            "response": text,
        }
        return {"role": "tool", "parts": [part]}
    parts: list[JsonDict] = []
    if isinstance(text, str):
        parts = [{"type": "text", "content": text}] if text or "tool_calls" not in message else []
    elif isinstance(text, list):
        parts = [
            p if p.get("type") != "text" else {"type": "text", "content": p.get("text", "")}
            for p in text
        ]
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        arguments = parsed(function.get("arguments", "{}"))
        parts.append(
            {
                "type": "tool_call",
                "id": call.get("id"),
                "name": function.get("name"),
                "arguments": arguments,
            }
        )
    return {"role": message["role"], "parts": parts}


def _reply(step: Step) -> list[JsonDict]:
    """A step's reply as the conventions write it."""
    said: list[JsonDict] = [{"type": "text", "content": step.reply}] if step.reply else []
    return said + [
        {"type": "tool_call", "id": c["id"], "name": c["name"], "arguments": parsed(c["arguments"])}
        for c in _calls(step)
    ]


def _requests(e: Experience) -> tuple[Recorded | None, list[Step]]:
    """(the requests as they were sent, None where the steps do not have them all; the steps in
    which a model was asked, of the sample that was handed in)."""
    steps = [s for s in e.trace.path() if s.kind not in UNASKED]
    sent = [s for s in steps if s.sent is not None]
    recorded = Recorded(e.trace.steps) if sent else None
    if recorded is None or not all(s.step in recorded for s in sent):
        return None, steps
    return recorded, sent


def _list_seen(step: Step, before: Step | None) -> list[JsonDict]:
    """What the model was sent before a step: the answers of its tools, and the rest as a user's
    message."""
    seen = step.observation
    found: list[JsonDict] = []
    for answer in (
        before.foreign.get("answered", ()) if before is not None and _calls(before) else ()
    ):
        text = answer.get("text", before.output if before is not None else "")
        found.append({"role": "tool", "tool_call_id": answer["id"], "content": text})
        seen = seen.replace(text, "", 1) if text else seen
        if before is not None and len(before.foreign.get("answered", ())) == 1:
            found[-1]["content"], seen = step.observation, ""
    if seen.strip() or not found:
        found.append({"role": "user", "content": seen})
    return found


def _calls(step: Step) -> list[JsonDict]:
    return list(step.foreign.get("tool_calls", ()))


def _text(role: str, text: str) -> str:
    return _json([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _span(
    trace: str,
    id: str,
    parent: str,
    name: str,
    start: int,
    end: int,
    attributes: JsonMap,
    failed: str = "",
) -> JsonDict:
    return {
        "traceId": trace,
        "spanId": id,
        **({"parentSpanId": parent} if parent else {}),
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": _attributes(attributes),
        "status": {"code": 2, "message": failed} if failed else {},
    }


def _attributes(values: JsonMap) -> list[JsonDict]:
    def typed(value: Any) -> JsonDict:
        if isinstance(value, bool):
            return {"boolValue": value}
        if isinstance(value, int):
            return {"intValue": str(value)}
        return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}

    return [{"key": key, "value": typed(value)} for key, value in values.items()]
