"""A conversation in which a model works with tools until it says that it is done, or its limits are
reached.

Tools are called in the endpoint's own way where the model can, else by one JSON object a reply; a
model that could call and writes the object all the same is understood too. Every action is on disk
when it happens.

A tool is a name, a help text, arguments, and what it does; it answers with text, also when it is
asked for the impossible: `Wrong` is what it says then.

    kind  inspect   looks at what happened              edit    changes the private copy of the
          scaffold
          try       runs something new                  decide  takes, rejects, ends
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from recreate.agents.progress import end_of_refusal
from recreate.agents.template import read_object
from recreate.agents.trajectory import clip, cut_middle
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Ask
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Message, Reply, Step, ToolCall, Usage
from recreate.optimizers import StudySettings
from recreate.storage.log import Log, decode

REPLY_TOKENS = 4096
CUT = (
    f"your reply was cut off at {REPLY_TOKENS} tokens: say less, and make a long file in parts,"
    " each of which `edit` with an empty `old` adds at its end"
)
ANSWER_CHARS = 24_000
"""What one tool may answer; longer is cut in the middle and says so."""
HELD = (
    "not done: {} before it in this reply was refused, and this may build on it. What was made"
    " stands; mend the refused call, then send this one again"
)
LEFT_OUT = "\n[... {} characters left out here; ask for less where you can ...]\n"
PROSE = 3
"""So many replies in a row without a tool end the talk."""
WARN = 4
"""Turns left when the model is told that they end."""

Ending = Literal["finished", "limit", "prose"]

Kind = Literal["inspect", "try", "edit", "decide"]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "boolean": (bool,),
}


class Wrong(Exception):
    """What cannot be done, in words for the model that asked for it."""


@dataclass(frozen=True)
class Tool:
    """`parameters`: name -> JSON schema of one argument; one that `run` has a default for, or in
    `also_optional`, may be left out unless it is in `required`.

    run(**arguments) -> text. Raises Wrong.
    """

    name: str
    kind: Kind
    help: str
    run: Callable[..., str]
    parameters: Mapping[str, JsonMap] = field(default_factory=dict)
    also_optional: Collection[str] = ()
    required: Collection[str] = ()

    @cached_property
    def optional(self) -> frozenset[str]:
        """The arguments that may be left out."""
        own = inspect.signature(self.run).parameters.values()
        free = {*self.also_optional, *(p.name for p in own if p.default is not p.empty)}
        return frozenset(free.difference(self.required))

    def schema(self) -> JsonDict:
        """Return the arguments as a JSON schema."""
        return {
            "type": "object",
            "properties": {name: dict(schema) for name, schema in self.parameters.items()},
            "required": [name for name in self.parameters if name not in self.optional],
            "additionalProperties": False,
        }

    def native(self) -> JsonDict:
        """Return the tool as OpenAI-style endpoints take it."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.help, "parameters": self.schema()},
        }

    def describe(self) -> str:
        """Return the tool as one line of a prompt, for models without native calls."""
        arguments = []
        for name, schema in self.parameters.items():
            kind = schema.get("enum") or schema["type"]
            kind = "|".join(kind) if isinstance(kind, list) else kind
            optional = ", optional" if name in self.optional else ""
            arguments.append(
                f'"{name}" ({kind}{optional}): {schema.get("description", "")}'.rstrip(" :")
            )
        listed = " Arguments: " + "; ".join(arguments) if arguments else " No arguments."
        return f"- {self.name}: {self.help}{listed}"

    def call(self, arguments: JsonMap) -> str:
        """Check the arguments and run. Raises Wrong."""
        unknown = sorted(arguments.keys() - self.parameters.keys())
        if unknown:
            there = ", ".join(self.parameters) or "none"
            raise Wrong(f"{self.name} has no argument {', '.join(unknown)}; it has: {there}")
        given = {}
        for name, schema in self.parameters.items():
            value = arguments.get(name)
            if value is None:
                if name not in self.optional:
                    among = f", one of {', '.join(schema['enum'])}" if "enum" in schema else ""
                    about = f": {schema['description']}" if schema.get("description") else ""
                    raise Wrong(f"{self.name} needs the argument {name}{among}{about}")
                continue
            if not isinstance(value, _TYPES[schema["type"]]) or (
                schema["type"] in ("integer", "number") and isinstance(value, bool)
            ):
                raise Wrong(
                    f"{name} must be of type {schema['type']}, not {clip(json.dumps(value), 80)}"
                )
            if "enum" in schema and value not in schema["enum"]:
                raise Wrong(
                    f"{name} must be one of {', '.join(schema['enum'])}, not"
                    f" {clip(str(value), 80)!r}"
                )
            given[name] = value
        return self.run(**given)


def action_schema(tools: Iterable[Tool]) -> JsonDict:
    """Return what a reply without native tool calls is held to."""
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            "tool": {"type": "string", "enum": [tool.name for tool in tools]},
            "arguments": {"type": "object"},
        },
        "required": ["thought", "tool", "arguments"],
    }


TEXT = {"type": "string"}
NUMBER = {"type": "integer", "minimum": 0}


def text(description: str) -> JsonDict:
    """Return the schema of a text argument."""
    return {**TEXT, "description": description}


def number(description: str) -> JsonDict:
    """Return the schema of a whole number, 0 or more."""
    return {**NUMBER, "description": description}


def numbers(description: str) -> JsonDict:
    """Return the schema of a list of whole numbers."""
    return {"type": "array", "items": NUMBER, "description": description}


def one_of(*values: str, description: str = "") -> JsonDict:
    """Return the schema of a choice."""
    return {"type": "string", "enum": list(values), "description": description}


@dataclass
class Talk:
    """`prompt(native)` makes the first messages; `result` is what a tool fills when it hands the
    work in."""

    ask: Ask
    thread: str
    prompt: Callable[[bool], list[Message]]
    tools: Sequence[Tool]
    limits: StudySettings
    native: bool
    result: JsonMap
    file: Path | None = None
    usage: Usage = field(default_factory=Usage)
    actions: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    """What the edits of this reply were to change that were refused -> which call: what comes after
    one would work on half a change, but for edits of something else."""

    def __post_init__(self) -> None:
        self.by_name = {tool.name: tool for tool in self.tools}
        self.offered = [tool.native() for tool in self.tools]

    @property
    def kinds(self) -> dict[str, int]:
        """How often tools of each kind were called."""
        found: Counter[str] = Counter()
        for name, count in self.actions.items():
            found[self.by_name[name].kind] += count
        return dict(found)

    def run(self) -> tuple[Ending, str]:
        """Return (how it ended, which limit). Raises what asking raises; the actions until then are
        on disk."""
        lines = None
        if self.file is not None:
            self.file.unlink(missing_ok=True)
            lines = Log(self.file)
        try:
            return self._turns(lines)
        finally:
            if lines is not None:
                lines.close()

    def _turns(self, lines: Log | None) -> tuple[Ending, str]:
        messages = self.prompt(self.native)
        prose = 0
        for turn in range(self.limits.steps):
            if reached := self._reached():
                return "limit", reached
            try:
                reply = self._ask(messages, turn)
            except (BadInput, Fault) as e:
                if e.code == "no-tools" and self.native and turn == 0:
                    self.native = False
                    messages = self.prompt(False)
                    reply = self._ask(messages, turn)
                elif turn and (end := end_of_refusal(e, turn)):
                    return "limit", end[1]
                else:
                    raise
            self.usage = self.usage + Usage.of(reply)
            self.refused = {}
            left = self.limits.steps - turn - 1
            last = (
                f"\n[{left} turns are left: hand your work in with `finish` before they end]"
                if left < WARN
                else ""
            )
            if reply.tool_calls:
                prose = 0
                messages.append(_reply_message(reply))
                for number, call in enumerate(reply.tool_calls):
                    answer = self._act(lines, call.name, _arguments(call.arguments), reply, number)
                    messages.append(
                        {"role": "tool", "content": answer + last, "tool_call_id": call.id}
                    )
            else:
                found = read_object(reply.text)
                messages.append({"role": "assistant", "content": reply.text})
                if found is None or not isinstance(found.get("tool"), str):
                    prose += 1
                    answer = self._prose(reply)
                    self._note(
                        lines,
                        Step(step=0, kind="malformed", reply=reply.text, output=answer),
                        reply,
                        0,
                    )
                    if prose == PROSE:
                        return "prose", ""
                else:
                    prose = 0
                    answer = self._act(lines, found["tool"], found.get("arguments", {}), reply, 0)
                messages.append({"role": "user", "content": answer + last})
            if self.result:
                return "finished", ""
        return "limit", "steps"

    def _ask(self, messages: list[Message], turn: int) -> Reply:
        params: JsonDict = {"max_tokens": REPLY_TOKENS}
        if self.native:
            params["tools"] = self.offered
        else:
            params["json_schema"] = action_schema(self.tools)
        return self.ask(messages, step=turn, thread=self.thread, **params)

    def _reached(self) -> str:
        if self.usage.tokens_in + self.usage.tokens_out >= self.limits.tokens:
            return "tokens"
        return "usd" if self.usage.usd >= self.limits.usd else ""

    def _act(self, lines: Log | None, name: str, arguments: Any, reply: Reply, number: int) -> str:
        tool = self.by_name.get(name)
        status = 1
        if tool is None:
            answer = f"there is no tool {clip(name, 60)!r}; there are: {', '.join(self.by_name)}"
        elif held := self._find_refused(tool, arguments):
            answer = HELD.format(held)
        elif not isinstance(arguments, Mapping):
            what = CUT if reply.finish == "length" else "call it again so"
            answer = (
                f"the arguments of {name} must be one JSON object of"
                f" {', '.join(tool.parameters) or 'nothing'}; {what}"
            )
        else:
            self.actions[name] += 1
            try:
                answer = tool.call(arguments)
                status = 0
            except Wrong as e:
                answer = str(e)
        if status and (tool is None or tool.kind == "edit"):
            self.refused.setdefault(
                _name_target(arguments), f"`{clip(name, 60)}` (call {number + 1})"
            )
        answer = cut_middle(answer, ANSWER_CHARS, LEFT_OUT)
        action = f"{name} {json.dumps(arguments, ensure_ascii=False)}"
        self._note(
            lines,
            Step(step=0, reply=reply.text, action=action, output=answer, status=status),
            reply,
            number,
        )
        return answer

    def _find_refused(self, tool: Tool, arguments: Any) -> str:
        """Return the refused call that this one may build on; '' for none."""
        if not self.refused or tool.kind == "inspect":
            return ""
        changed = _name_target(arguments)
        if tool.kind == "edit" and changed and "" not in self.refused:
            return self.refused.get(changed, "")
        return next(iter(self.refused.values()))

    def _prose(self, reply: Reply) -> str:
        cut = f" ({CUT})" if reply.finish == "length" else ""
        if self.native:
            return f"Only tool calls count{cut}: call one, or `finish`."
        return (
            f'Only one JSON object counts{cut}: {{"thought": "...", "tool": "...", "arguments":'
            " {...}}"
        )

    def _note(self, lines: Log | None, step: Step, reply: Reply, number: int) -> None:
        if lines is not None:
            usage = Usage() if number else Usage.of(reply)
            record = step.model_copy(update={"step": self.steps, "usage": usage})
            lines.append(
                record.model_dump(mode="json", exclude_defaults=True) | {"step": self.steps}
            )
        self.steps += 1


def _reply_message(reply: Reply) -> Message:
    calls = [_call(call) for call in reply.tool_calls]
    return {"role": "assistant", "content": reply.text, "tool_calls": calls}


def _call(call: ToolCall) -> JsonDict:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _name_target(arguments: Any) -> str:
    """Return the file or lesson that an edit changes; '' where that cannot be told."""
    given = arguments if isinstance(arguments, Mapping) else {}
    return str(next((given[key] for key in ("path", "replaces", "title") if given.get(key)), ""))


def _arguments(text: str) -> Any:
    """Return the arguments of a native call; None when they are no JSON."""
    try:
        return decode(text or "{}", strict=False)
    except ValueError:
        return None
