"""SWE-agent's `.traj`: {"trajectory": [{"action", "observation", "response", ...}], "history",
"info"}.

Each step's `query` (before 1.1 `messages`) repeats all that came before and is read for the task
only. The file knows how the agent ended, not whether it was right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recreate.api.shapes import JsonDict
from recreate.api.types import Ending, Step, Usage
from recreate.plugins.traces.format import (
    Foreign,
    Unreadable,
    amount,
    count,
    list_of,
    nothing_handed_in,
    object_of,
    parsed,
    without,
)
from recreate.plugins.traces.messages import ChatMessage, plain, read_message, steps_of

LIMITS = {
    "exit_cost": "usd",
    "exit_context": "context",
    "exit_total_execution_time": "seconds",
    "exit_command_timeout": "seconds",
    "exit_format": "format",
    "exit_forfeit": "forfeit",
}


class SweAgent:
    """One file, one attempt. A demonstration without `trajectory` is read from its `history`."""

    def reads(self, value: Any) -> bool:
        value = object_of(value)
        steps = value.get("trajectory")
        if isinstance(steps, list) and steps:
            return "action" in object_of(steps[0]) and "observation" in object_of(steps[0])
        history = list_of(value.get("history"))
        return bool(history) and all({"role", "agent"} <= object_of(h).keys() for h in history)

    def read(self, values: Sequence[Any], key: str, source: str) -> Iterator[Foreign]:
        for raw in values:
            info = object_of(raw.get("info"))
            config = object_of(parsed(raw.get("replay_config")))
            history = [
                read_message(m)
                for m in list_of(raw.get("history"))
                if not object_of(m).get("is_demo")
            ]
            taken = list_of(raw.get("trajectory"))
            first = object_of(taken[0]) if taken else {}
            asked = [
                read_message(m) for m in list_of(first.get("query") or first.get("messages"))
            ] or history
            system, prompt = _extract_task(asked)
            steps = _steps(taken, prompt) if taken else steps_of(history)[2]
            if not prompt.strip():
                raise Unreadable("the task is neither in `query` nor in `history`")
            answer = str(info.get("submission") or "")
            status = str(info.get("exit_status") or "")
            ending, limit = _read_ending(status)
            stats = object_of(info.get("model_stats"))
            stated = object_of(config.get("env")).get("problem_statement") or config.get(
                "problem_statement"
            )
            name = str(object_of(stated).get("id") or "")
            model = object_of(object_of(config.get("agent")).get("model")).get("name")
            yield Foreign(
                task=name or source,
                names=(source,),
                prompt=prompt,
                system=system,
                steps=steps,
                ending=ending,
                limit=limit,
                answer=answer,
                model=str(model or ""),
                usage=Usage(
                    calls=count(stats.get("api_calls")) or len(steps),
                    tokens_in=count(stats.get("tokens_sent")),
                    tokens_out=count(stats.get("tokens_received")),
                    usd=amount(stats.get("instance_cost")),
                ),
                fault=status if ending == "error" else "",
                grade=(
                    nothing_handed_in(status) if ending == "limit" and not answer.strip() else None
                ),
                rest={
                    **without(raw, "trajectory", "history", "info"),
                    "info": without(info, "submission", "model_stats"),
                },
            )


def _steps(taken: Sequence[Any], prompt: str) -> tuple[Step, ...]:
    steps = list[Step]()
    seen = prompt
    for number, raw in enumerate(taken):
        raw = object_of(raw)
        output = plain(raw.get("observation"))
        foreign = without(
            raw, "action", "observation", "response", "execution_time", "query", "messages"
        )
        if foreign.get("thought") == raw.get("response"):
            foreign.pop("thought")
        more: JsonDict = {"foreign": foreign} if foreign else {}
        steps.append(
            Step(
                step=number,
                observation=seen,
                reply=plain(raw.get("response")) or plain(raw.get("thought")),
                action=str(raw.get("action") or "").strip("\n"),
                output=output,
                seconds=amount(raw.get("execution_time")),
                usage=Usage(calls=1),
                **more,
            )
        )
        seen = output
    return tuple(steps)


def _extract_task(messages: Sequence[ChatMessage]) -> tuple[str, str]:
    """(system, the task) of the messages before the first reply."""
    first = next((n for n, m in enumerate(messages) if m.role == "assistant"), len(messages))
    before = messages[:first]
    return (
        "\n\n".join(m.text for m in before if m.role == "system"),
        "\n".join(m.text for m in before if m.role == "user"),
    )


def _read_ending(status: str) -> tuple[Ending, str]:
    """SWE-agent hands in what there is when it must stop: `submitted (exit_cost)`."""
    for name, limit in LIMITS.items():
        if name in status:
            return "limit", limit
    return (
        ("submitted", "")
        if status in ("", "submitted") or status.startswith("submitted")
        else ("error", "")
    )
