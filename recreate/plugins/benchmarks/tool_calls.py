"""The calls of a domain's own tools that an attempt made, as its trace recorded them: what such a
domain grades."""

from __future__ import annotations

import json
from typing import Any

from recreate.api.shapes import JsonDict
from recreate.api.types import Step, Trace


def recorded(trace: Trace, server: str) -> list[list[Any]]:
    """[name, arguments] of the server's tools that were called in the sample that was handed in, in
    their order.

    A step's `action` has what was done, one after the other; which of the calls that a reply asks
    for it was is seen by it, so that what was refused (arguments that do not fit) is not done here
    either."""
    found: list[list[Any]] = []
    for step in trace.path():
        if step.kind != "action":
            continue
        left = step.action
        for name, arguments in _read_calls(step):
            line = f"{name} {arguments}"
            if name == "bash":
                line = str(_object(arguments).get("command", "")).strip()
            if not line or not left.startswith(line):
                continue
            left = left[len(line) :].removeprefix("\n")
            own = name.removeprefix(f"{server}__")
            if own != name:
                found.append([own, _object(arguments or "{}")])
    return found


def _read_calls(step: Step) -> list[tuple[str, str]]:
    """(name, arguments as JSON) of what a reply calls: in the endpoint's own way, or as one JSON
    object."""
    if called := step.foreign.get("tool_calls"):
        return [(str(each["name"]), str(each["arguments"])) for each in called]
    said = _object(step.reply[step.reply.find("{") : step.reply.rfind("}") + 1])
    arguments = said.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return [(str(said.get("tool")), text)]


def _object(text: str) -> JsonDict:
    """Read as the attempt reads it: a line's end may stand in a text."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def handed_in(answer: str) -> list[list[Any]]:
    """The calls of an answer {"calls": [[name, arguments], ...]}, [] where it is none."""
    calls = _object(answer).get("calls")
    good = isinstance(calls, list) and all(
        isinstance(call, list)
        and len(call) == 2
        and isinstance(call[0], str)
        and isinstance(call[1], dict)
        for call in calls
    )
    return calls if good and isinstance(calls, list) else []
