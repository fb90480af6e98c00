"""Chat JSON lines as fine-tuning takes them: {"messages": [...]}, with or without tool calls.

The format has no place for an outcome. When a line carries one beside the messages (`score`,
`reward`, `passed`, `resolved`, `success`, `correct`), it is the grade.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recreate.api.shapes import JsonMap
from recreate.plugins.traces.format import Foreign, Unreadable, grade, list_of, object_of, without
from recreate.plugins.traces.messages import read_messages, steps_of

OUTCOMES = ("score", "reward", "passed", "resolved", "success", "correct")
TASKS = ("task", "task_id", "instance_id")


class OpenAIChat:
    """One record, one conversation."""

    def reads(self, value: Any) -> bool:
        messages = object_of(value).get("messages")
        return isinstance(messages, list) and all("role" in object_of(m) for m in messages)

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign]:
        yield from map(read_chat, values)


def read_chat(raw: JsonMap) -> Foreign:
    """Return the trajectory of a chat. `system` beside the messages is Anthropic's, `response` that
    of a log. Raises Unreadable."""
    said = list_of(object_of(raw.get("response")).get("choices"))[:1]
    replied = [m for choice in said if (m := object_of(choice).get("message"))]
    told = [{"role": "system", "content": raw["system"]}] if raw.get("system") else []
    every = [*told, *list_of(raw["messages"]), *replied]
    system, prompt, steps = steps_of([x for m in every for x in read_messages(m)])
    if not prompt.strip() and not system.strip():
        raise Unreadable("nothing is asked before the model's first reply")
    about = {**object_of(raw.get("metadata")), **raw}
    outcome = next((k for k in OUTCOMES if about.get(k) is not None), "")
    evidence = raw.get("evidence") or f"the file says {outcome}: {about.get(outcome)}"
    names = [str(about[k]) for k in TASKS if isinstance(about.get(k), str | int)]
    return Foreign(
        task=names[0] if names else "",
        prompt=prompt or system,
        system=system,
        steps=steps,
        answer=steps[-1].reply,
        model=str(about.get("model") or ""),
        grade=grade(about[outcome], str(evidence)) if outcome else None,
        rest=without(raw, "messages", "system", "evidence"),
    )
