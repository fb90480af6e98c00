"""agent.toml: how an agent acts and what it may use. Read strictly: a misspelt key is a fault, not a default."""

from __future__ import annotations

import difflib
import json
import posixpath
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from recreate.api.config import read_toml
from recreate.api.errors import BadInput
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
    """How the model is asked; None leaves the endpoint's own default. stop: texts that end a reply, and are no part of
    it."""

    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int = Field(default=1024, ge=1)
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(default=(), max_length=4, exclude_if=not_)


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
    native   with `bash`: where the model takes tools, commands are calls of the tool `bash`, several a turn if it
             likes; elsewhere it is asked for the block. `{{ native }}` tells prompts which of the two it is
    before   tools run before the first turn; their output is `{{ before.NAME }}`
    done     a tool run after each action; exit 0 means that the work is handed in
    samples  independent tries at a task; `choose` names the tool whose last line is a number, the highest wins
    protect  patterns of files no edit may touch: see `protects`
    """

    parent: str = ""
    domain: str = ""
    description: str = ""
    action: str = "bash"
    native: bool = False
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

    @model_validator(mode="after")
    def _callable(self) -> Agent:
        if self.native and self.action != "bash":
            raise ValueError(f"native is for action bash, and this is {self.action}")
        return self

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


def with_limits(text: str, limits: Mapping[str, float]) -> str:
    """agent.toml with other limits; `max_tokens` is the model's. A 0 leaves what is there.

    Raises BadInput (`bad-agent`) where they are not written one a line under [limits] and [model].
    """
    wanted = {key: value for key, value in limits.items() if value}
    for key, value in wanted.items():
        text = _with_key(text, "model" if key == "max_tokens" else "limits", key, json.dumps(value))
    agent, faults = read_agent(text)
    if agent is not None and any(
        getattr(agent.model if key == "max_tokens" else agent.limits, key) != value for key, value in wanted.items()
    ):
        faults = [(1, f"its limits are not written one a line: {', '.join(wanted)} cannot be changed by a flag")]
    if faults:
        raise BadInput(f"agent.toml:{faults[0][0]}: {faults[0][1]}", fix="correct that line", code="bad-agent")
    return text


def _with_key(text: str, table: str, key: str, value: str) -> str:
    lines, inside, at = text.split("\n"), False, -1
    for number, line in enumerate(lines):
        if head := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            inside = head[1] == table
            at = number if inside else at
        elif inside and re.match(rf"\s*{key}\s*=", line):
            lines[number] = f"{key} = {value}"
            return "\n".join(lines)
    if at < 0:
        return text.rstrip("\n") + f"\n\n[{table}]\n{key} = {value}\n"
    lines.insert(at + 1, f"{key} = {value}")
    return "\n".join(lines)


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
