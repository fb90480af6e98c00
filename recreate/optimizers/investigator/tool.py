"""A tool of an optimizer: a name, a help text, arguments, and what it does.

    kind  inspect   looks at what happened              edit    changes the private copy of the scaffold
          try       runs something new                  decide  takes, rejects, ends

A tool answers with text, also when it is asked for the impossible: `Wrong` is what it says then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from recreate.agents.trajectory import clip

Kind = Literal["inspect", "try", "edit", "decide"]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "array": (list,),
    "object": (dict,),
    "boolean": (bool,),
}


class Wrong(Exception):
    """What cannot be done, in words for the model that asked for it."""


@dataclass(frozen=True)
class Tool:
    """`parameters`: name -> JSON schema of one argument; those not in `optional` must be given.

    run(**arguments) -> text. Raises Wrong.
    """

    name: str
    kind: Kind
    help: str
    run: Callable[..., str]
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    optional: Sequence[str] = ()

    def schema(self) -> dict[str, Any]:
        """The arguments as a JSON schema."""
        return {
            "type": "object",
            "properties": {name: dict(schema) for name, schema in self.parameters.items()},
            "required": [name for name in self.parameters if name not in self.optional],
            "additionalProperties": False,
        }

    def native(self) -> dict[str, Any]:
        """The tool as OpenAI-style endpoints take it."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.help, "parameters": self.schema()},
        }

    def told(self) -> str:
        """The tool as one line of a prompt, for models without native calls."""
        said = []
        for name, schema in self.parameters.items():
            kind = schema.get("enum") or schema["type"]
            kind = "|".join(kind) if isinstance(kind, list) else kind
            optional = ", optional" if name in self.optional else ""
            said.append(f'"{name}" ({kind}{optional}): {schema.get("description", "")}'.rstrip(" :"))
        return f"- {self.name}: {self.help}" + (" Arguments: " + "; ".join(said) if said else " No arguments.")

    def call(self, arguments: Mapping[str, Any]) -> str:
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
                    raise Wrong(f"{self.name} needs the argument {name}")
                continue
            if not isinstance(value, _TYPES[schema["type"]]) or (schema["type"] == "integer" and value is True):
                raise Wrong(f"{name} must be of type {schema['type']}, not {clip(json.dumps(value), 80)}")
            if "enum" in schema and value not in schema["enum"]:
                raise Wrong(f"{name} must be one of {', '.join(schema['enum'])}, not {clip(str(value), 80)!r}")
            given[name] = value
        return self.run(**given)


def action_schema(tools: Iterable[Tool]) -> dict[str, Any]:
    """What a reply without native tool calls is held to."""
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


def text(description: str) -> dict[str, Any]:
    """The schema of a text argument."""
    return {**TEXT, "description": description}


def number(description: str) -> dict[str, Any]:
    """The schema of a whole number, 0 or more."""
    return {**NUMBER, "description": description}


def numbers(description: str) -> dict[str, Any]:
    """The schema of a list of whole numbers."""
    return {"type": "array", "items": NUMBER, "description": description}


def one_of(*values: str, description: str = "") -> dict[str, Any]:
    """The schema of a choice."""
    return {"type": "string", "enum": list(values), "description": description}
