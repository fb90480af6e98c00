"""What the model of an agent with `action = "tools"` may call: functions with a JSON schema each.

    bash, submit        as ever; `bash` where agent.toml does not say `shell = false`
    a scaffold's tool   tools/NAME.py with tools/NAME.json, the JSON schema of its arguments, gets
    them as one JSON
                        object on standard input; one without such a file gets `args`, a list of
                        words
    SERVER__TOOL        a tool of an MCP server that agent.toml or the domain names

A model that calls tools is handed them so; another is told of them, and replies {"tool",
"arguments"} as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recreate.agents.config import AgentConfig
from recreate.agents.retrieval import RECALL
from recreate.agents.scaffold import Scaffold
from recreate.agents.template import object_of
from recreate.api.ports import OfferedTool
from recreate.api.shapes import JsonDict, JsonMap
from recreate.storage.log import decode

SUBMIT = "submit"
OWN_FUNCTIONS = ("bash", SUBMIT)
WORDS = object_of(
    args={"type": "array", "items": {"type": "string"}, "description": "Words of the command line."}
)
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


@dataclass(frozen=True)
class Function:
    """One function. tool: the scaffold's tool that it is, '' for none; server: the MCP server whose
    tool it is. words: it takes words of a command line, and not a JSON object."""

    name: str
    description: str
    parameters: JsonMap
    tool: str = ""
    server: str = ""
    words: bool = False

    @property
    def native(self) -> JsonDict:
        """As endpoints take it."""
        told = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": told}


_BASH = Function(
    "bash",
    "Run a command in a fresh shell in /work. Returns what it prints, and its exit status.",
    object_of(
        command={"type": "string", "description": "What bash is to run; several lines are fine."}
    ),
)
_SUBMIT = Function(
    SUBMIT, "Hand the work in when it is done. Call it alone: it ends the task.", object_of()
)
_RECALL = Function(
    RECALL,
    "Ask what is remembered of earlier attempts at other tasks: what was tried, and whether it"
    " passed. Say in your own words what you want to know, with the names and errors that you see."
    " Nothing is changed by it.",
    object_of(query={"type": "string", "description": "What to look for."}),
)
NATIVE_TOOLS = (_BASH.native, _SUBMIT.native)
RECALL_TOOL = _RECALL.native


def shell_functions(agent: AgentConfig) -> list[Function]:
    """Return `bash`, `submit` and `recall`, those that the agent has."""
    return [
        *([_BASH] if agent.shell else []),
        _SUBMIT,
        *([_RECALL] if agent.memory.recall > 0 else []),
    ]


def own_functions(scaffold: Scaffold) -> list[Function]:
    """Return the functions that a scaffold's own tools are; not those that agent.toml gives another
    part, nor servers."""
    found = []
    for name, path in scaffold.tools.items():
        if name in scaffold.agent.uses:
            continue
        schema = scaffold.files.get(f"tools/{name}.json")
        parameters = WORDS if schema is None else read_schema(schema)[0] or WORDS
        words = scaffold.help(name) or path
        found.append(
            Function(function_name(name), words, parameters, tool=name, words=schema is None)
        )
    return found


def server_functions(server: str, tools: Iterable[OfferedTool]) -> list[Function]:
    """Return the functions that a server's tools are."""
    return [
        Function(function_name(f"{server}__{t.name}"), t.description, t.parameters, t.name, server)
        for t in tools
    ]


def function_name(name: str) -> str:
    """Return a name as endpoints take it: at most 64 letters, digits, `_` and `-`."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def read_schema(text: str) -> tuple[JsonDict | None, str]:
    """Return (the JSON schema of a tool's arguments, '') or (None, what is wrong with it)."""
    try:
        schema = decode(text)
    except ValueError as e:
        return None, f"is not JSON: {e}"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None, 'is the JSON schema of the arguments: an object with "type": "object"'
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(
        isinstance(p, dict) for p in properties.values()
    ):
        return None, '"properties" are {NAME: SCHEMA}'
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(
        isinstance(r, str) and r in properties for r in required
    ):
        return None, '"required" are names of "properties"'
    return schema, ""


def read_arguments(function: Function, text: str) -> tuple[JsonDict, str]:
    """Return (the arguments of a call, '') or ({}, what is wrong with them): the top level is held
    against the schema, the rest is the tool's to judge."""
    try:
        given = decode(text or "{}", strict=False)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        return {}, f"the arguments of {function.name} must be one JSON object"
    properties = function.parameters.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = function.parameters.get("required")
    wanted = [
        name for name in (required if isinstance(required, list) else ()) if isinstance(name, str)
    ]
    if lacking := [name for name in wanted if name not in given]:
        return {}, f"{function.name} needs {', '.join(lacking)}"
    if function.parameters.get("additionalProperties") is False and (
        strange := sorted(given.keys() - properties)
    ):
        there = ", ".join(properties) or "none"
        return {}, f"{function.name} has no argument {', '.join(strange)}; there are: {there}"
    for name, value in given.items():
        about = properties.get(name)
        kind = about.get("type") if isinstance(about, dict) else None
        type_ = _TYPES.get(kind) if isinstance(kind, str) else None
        if type_ and (
            not isinstance(value, type_) or (isinstance(value, bool) and kind != "boolean")
        ):
            return {}, f"{name} of {function.name} must be of type {kind}"
    if function.words and not all(isinstance(word, str) for word in given["args"]):
        return {}, f"args of {function.name} must be texts"
    return given, ""


def describe_functions(functions: Iterable[Function]) -> str:
    """Return what a model that calls no tools is told of them."""
    lines = [
        f"- {f.name}: {f.description}\n  arguments: {json.dumps(f.parameters)}" for f in functions
    ]
    return (
        "You act by calling one tool a reply. Reply with one JSON object and nothing else:"
        ' {"thought": TEXT, "tool": NAME, "arguments": OBJECT}. The tools:\n\n' + "\n".join(lines)
    )


def call_schema(functions: Iterable[str]) -> JsonDict:
    """Return what a reply is held to that names a function as JSON."""
    tool = {"type": "string", "enum": list(functions)}
    named = {"thought": {"type": "string"}, "tool": tool, "arguments": {"type": "object"}}
    return {"type": "object", "properties": named, "required": list(named)}


def read_call(text: str) -> tuple[str, str, str]:
    """Return (tool, its arguments as JSON, '') of a reply in JSON, or ('', '', what is wrong with
    it)."""
    start = text.find("{")
    end = text.rfind("}")
    try:
        said = decode(text[start : end + 1], strict=False) if 0 <= start < end else None
    except ValueError:
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("tool"), str):
        return "", "", 'the reply must be one JSON object with "tool" and "arguments"'
    arguments = said.get("arguments", {})
    return (
        said["tool"],
        arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
        "",
    )
