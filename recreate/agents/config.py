"""agent.toml: how an agent acts and what it may use. Read strictly: a misspelt key is a fault, not a default."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator

from recreate.api.config import read_toml
from recreate.api.types import SCHEMA, Record


class AgentLimits(Record):
    """What one attempt may use; `command_seconds` and `observation_chars` are per command."""

    steps: int = Field(default=20, ge=1, le=10_000)
    tokens: int = Field(default=200_000, ge=1)
    usd: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    seconds: float = Field(default=900.0, gt=0, allow_inf_nan=False)
    command_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    observation_chars: int = Field(default=8000, ge=100)


class AgentModel(Record):
    """How the model is asked; None leaves the endpoint's own default."""

    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int = Field(default=1024, ge=1)


class AgentMemory(Record):
    """What the agent is offered of the workspace's memory: lessons of at most `tokens` in one attempt; 0: nothing.

    when   `start` of the task, an `error` it had not just seen, another result of the `tests`
    """

    tokens: int = Field(default=0, ge=0, le=100_000)
    when: tuple[Literal["start", "error", "tests"], ...] = ("start", "error", "tests")


class Agent(Record):
    """agent.toml, parsed.

    action   `bash` (one command a turn), `json` ({"command": ...}), or `tool:NAME`: the reply is given to
             tools/NAME on its standard input
    before   tools run before the first turn; their output is `{{ before.NAME }}`
    done     a tool run after each action; exit 0 means that the work is handed in
    samples  independent tries at a task; `choose` names the tool whose last line is a number, the highest wins
    protect  patterns of files no edit may touch: see `protects`
    """

    parent: str = ""
    domain: str = ""
    description: str = ""
    action: str = "bash"
    before: tuple[str, ...] = ()
    done: str = ""
    samples: int = Field(default=1, ge=1, le=100)
    choose: str = ""
    limits: AgentLimits = AgentLimits()
    model: AgentModel = AgentModel()
    memory: AgentMemory = AgentMemory()
    protect: tuple[str, ...] = ()

    @field_validator("action")
    @classmethod
    def _known(cls, value: str) -> str:
        if value in ("bash", "json") or re.fullmatch(r"tool:[\w.-]+", value):
            return value
        raise ValueError(f"{value!r} is none of bash, json, tool:NAME")

    def protects(self, path: str) -> bool:
        """Whether no edit may touch (make, change, delete) the file. A pattern that names a folder means all in it."""
        for pattern in self.protect:
            plain = posixpath.normpath(pattern.strip()).lstrip("/")
            if any(fnmatchcase(path, p) for p in (plain, plain.removeprefix("**/"), f"{plain}/*")):
                return True
        return False

    @property
    def uses(self) -> dict[str, str]:
        """The tools named here: key (`action`, `before`, `done`, `choose`) and name, as {name: key}."""
        named = {name: "before" for name in self.before}
        named |= {name: key for key, name in (("done", self.done), ("choose", self.choose)) if name}
        if self.action.startswith("tool:"):
            named[self.action.removeprefix("tool:")] = "action"
        return named


def read_agent(text: str) -> tuple[Agent | None, list[tuple[int, str]]]:
    """agent.toml and what is wrong with it as (line, message); the agent is None when anything is."""
    try:
        raw = read_toml(text)
    except ValueError as e:
        at = re.search(r"at line (\d+)", str(e))
        return None, [(int(at[1]) if at else max(1, text.count("\n") + 1), f"not TOML: {e}")]
    faults = _unknown(raw, Agent, text, ())
    schema = raw.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        faults.append((key_line(text, ("schema",)), f"schema {schema} is newer than this recreate reads ({SCHEMA})"))
    try:
        agent = Agent.model_validate(raw)
    except ValidationError as e:
        for error in e.errors(include_url=False):
            keys = tuple(str(k) for k in error["loc"] if isinstance(k, str))
            message = error["msg"].removeprefix("Value error, ")
            faults.append((key_line(text, keys), f"{'.'.join(keys)}: {message}"))
        agent = None
    return (None if faults else agent), sorted(faults)


def _unknown(raw: Mapping[str, Any], kind: type[BaseModel], text: str, under: tuple[str, ...]) -> list[tuple[int, str]]:
    known = [f.alias or name for name, f in kind.model_fields.items()]
    faults = []
    for key, value in raw.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            faults.append((key_line(text, (*under, key)), f"unknown key {'.'.join((*under, key))!r}; {hint}"))
        elif key in _TABLES and not under and isinstance(value, Mapping):
            faults += _unknown(value, _TABLES[key], text, (key,))
    return faults


_TABLES: dict[str, type[BaseModel]] = {"limits": AgentLimits, "model": AgentModel, "memory": AgentMemory}


def key_line(text: str, keys: tuple[str, ...]) -> int:
    """The line that sets a key, counted from 1; 1 when it cannot be found."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if head := re.match(r"\s*\[+\s*([\w.\-\" ]+?)\s*\]+", line):
            table = tuple(part.strip(' "') for part in head[1].split("."))
            if table == keys:
                return number
        elif pair := re.match(r"\s*([\w.\-\"]+)\s*=", line):
            here = (*table, *(part.strip('"') for part in pair[1].split(".")))
            if here == keys:
                return number
    return key_line(text, keys[:-1]) if len(keys) > 1 else 1
