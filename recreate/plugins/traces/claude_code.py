"""Sessions of Claude Code, as they lie in ~/.claude/projects: a line a message, with content blocks
as Anthropic's endpoints take them.

A session is a trajectory, and so is each agent that it sent out (`isSidechain`). A reply is spread
over as many lines as it has blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Usage
from recreate.plugins.traces.format import Foreign, count, list_of, object_of
from recreate.plugins.traces.messages import ChatMessage, read_messages, steps_of

SPOKEN = ("user", "assistant")
_TOKENS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class ClaudeCode:
    """One record, one line; what is no message (summaries, snapshots, hooks) says nothing."""

    def reads(self, value: Any) -> bool:
        value = object_of(value)
        return isinstance(value.get("type"), str) and (
            "sessionId" in value or {"summary", "leafUuid"} <= value.keys() or "snapshot" in value
        )

    def parts(self, value: Any) -> Sequence[str]:
        message = object_of(value.get("message"))
        spoken = value["type"] in SPOKEN and message and not value.get("isMeta")
        if not spoken or message.get("model") == "<synthetic>":
            return ()
        apart = value.get("agentId") or "sidechain" if value.get("isSidechain") else ""
        return (f"{value.get('sessionId')} {apart}".strip(),)

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign]:
        if not key:
            return
        lines = [v for v in values if self.parts(v) == (key,)]
        messages = list(_messages(lines))
        system, prompt, steps = steps_of(messages)
        models = (object_of(v["message"]).get("model") for v in lines)
        yield Foreign(
            prompt=prompt,
            system=system,
            steps=steps,
            answer=steps[-1].reply,
            model=next((str(m) for m in models if m), ""),
            usage=sum((s.usage for s in steps), Usage()),
            rest={"session": key, "cwd": lines[0].get("cwd"), "version": lines[0].get("version")},
        )


def _messages(lines: Sequence[JsonMap]) -> Iterator[ChatMessage]:
    """The messages, a reply's blocks put together again."""
    whole: list[JsonDict] = []
    for line in lines:
        raw = {"role": line["type"], **object_of(line["message"])}
        last = whole[-1] if whole else {}
        if raw.get("id") and raw.get("id") == last.get("id"):
            last["content"] = [*list_of(last["content"]), *list_of(raw.get("content"))]
        else:
            whole.append(raw)
    for raw in whole:
        used = object_of(raw.get("usage"))
        plain = {k: raw.get(k) for k in ("role", "content")}
        for message in read_messages(plain):
            if message.role == "assistant":
                message.usage = Usage(
                    calls=1,
                    tokens_in=sum(count(used.get(k)) for k in _TOKENS),
                    tokens_out=count(used.get("output_tokens")),
                )
            yield message
