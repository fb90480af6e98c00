"""The stored replies of an attempt through other files of its agent: no model is asked.

What the model answered, it answered to what it was sent. So the replies are played for as long as
the changed agent sends what was sent then; where it would send anything else, the play stops.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from recreate.agents.request import Recorded
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import clip
from recreate.api.shapes import JsonMap
from recreate.api.types import Call, Experience, Message, Reply, Step, ToolCall
from recreate.storage.redact import redacted

COMPARED = ("tools", "json_schema", "stop", "temperature", "top_p", "max_tokens")
"""What a call asks for that its answer depends on; seeds are of the task, not of the agent."""
SHOWN = 400
"""Characters of what a prompt has otherwise that are shown."""

Play = Callable[[Scaffold, Experience, Any], Experience]


class Regraded(NamedTuple):
    """What became of an attempt. score: None where the play stopped; step: at which step of the
    attempt; why: in words."""

    score: float | None
    passed: bool = False
    step: int = -1
    why: str = ""
    evidence: str = ""


class OtherPrompt(Exception):
    """The changed agent would send something else than the stored reply answers."""

    def __init__(self, step: int, why: str) -> None:
        super().__init__(why)
        self.step = step
        self.why = why


class StoredReplies:
    """Answers an attempt's questions as its model did; raises OtherPrompt at the first that is
    another."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.recorded = Recorded(steps)
        self.steps = [step for step in steps if step.step in self.recorded]
        self.last = steps[-1].step if steps else 0
        self.asked = 0

    def __call__(self, messages: list[Message], call: Call, **params: Any) -> Reply:
        if self.asked == len(self.steps):
            raise OtherPrompt(self.last + 1, "it goes on where the stored attempt had ended")
        step = self.steps[self.asked]
        self.asked += 1
        sent = self.recorded[step.step]
        if why := tell_difference(sent.messages, redacted(messages)):
            raise OtherPrompt(step.step, why)
        if other := [key for key in COMPARED if not _same(params, sent.params, key)]:
            raise OtherPrompt(step.step, f"it is asked with other {', '.join(other)}")
        return reply_of(step)


def regrade(play: Play, child: Scaffold, experience: Experience) -> Regraded:
    """Play an attempt's stored replies through another agent, and grade what comes of it.

    Exact for an agent and a domain whose commands print the same each time: what they print other
    than then is another prompt. Raises BadInput where the task is gone, Fault.
    """
    replies = StoredReplies(experience.trace.steps)
    if not replies.steps:
        return Regraded(None, step=0, why="what its model was sent is not stored")
    try:
        made = play(child, experience, replies)
    except OtherPrompt as other:
        return Regraded(None, step=other.step, why=other.why)
    if made.trace.limit == "seconds":
        return Regraded(None, step=replies.last, why="there was no time for all of it")
    return Regraded(made.grade.score, made.grade.passed, evidence=made.grade.evidence)


def reply_of(step: Step) -> Reply:
    """Return the reply that a step acted on."""
    calls = tuple(
        ToolCall(id=c["id"], name=c["name"], arguments=c["arguments"])
        for c in step.foreign.get("tool_calls", ())
    )
    used = step.usage
    return Reply(
        text=step.reply,
        reasoning=step.reasoning,
        tool_calls=calls,
        finish="length" if step.cut else "tool_calls" if calls else "stop",
        tokens_in=used.tokens_in,
        tokens_out=used.tokens_out,
        usd=used.usd,
    )


def tell_difference(before: Sequence[Message], now: Sequence[Message]) -> str:
    """Return where one request is another than a stored one; '' where it is the same."""
    for number, (old, new) in enumerate(zip(before, now, strict=False)):
        if json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True):
            lines = difflib.unified_diff(_lines(old), _lines(new), n=0, lineterm="")
            changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
            shown = clip("\n".join(changed), SHOWN)
            return f"message {number} ({new.get('role', '')}) has\n{shown}"
    if len(before) != len(now):
        return f"it has {len(now)} messages, and had {len(before)}"
    return ""


def _lines(message: Mapping[str, Any]) -> list[str]:
    text = message.get("content") or ""
    return [*str(text).split("\n"), *map(json.dumps, message.get("tool_calls", ()))]


def _same(now: JsonMap, before: JsonMap, key: str) -> bool:
    if key not in now:
        return True  # what the model is asked with besides is the run's, and is the same
    return json.dumps(redacted(now[key]), sort_keys=True, default=list) == json.dumps(
        before.get(key), sort_keys=True, default=list
    )
