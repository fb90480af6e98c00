"""agent.toml: how an agent acts and what it may use. Read strictly: a misspelt key is a fault, not
a default."""

from __future__ import annotations

import difflib
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from recreate.agents.kinds import is_foreign_action, open_kind
from recreate.api.config import read_toml
from recreate.api.errors import BadInput
from recreate.api.plugins import lacking, names
from recreate.api.registry import find
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import SCHEMA, Record

FOREIGN_TOKENS = 8192
"""Of a reply to a foreign agent, when its agent.toml does not say."""

LEAST_RECALLED = 100
"""Tokens of an answer of memory: in fewer nothing can be told."""


EXTENDED = (
    "\n\nThe %d turns are used up. You are given %d more, and no further ones: see what is still"
    " missing, and hand in."
)


class Strict(Record):
    """What is read of agent.toml: a key that nobody knows is a fault."""

    model_config = ConfigDict(extra="forbid")


class AgentLimits(Strict):
    """What one attempt may use; `command_seconds` and `observation_chars` are per command.

    extension   turns besides `steps`, for a sample that has not handed in by then; it learns of
                them only then (the dynamic limit of Gao and Peng, arXiv 2510.16786)
    """

    steps: int = Field(default=20, ge=1, le=10_000)
    extension: int = Field(default=0, ge=0, le=10_000, exclude_if=not_)
    tokens: int = Field(default=200_000, ge=1)
    usd: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    seconds: float = Field(default=900.0, gt=0, allow_inf_nan=False)
    command_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    observation_chars: int = Field(default=8000, ge=100)

    @property
    def turns(self) -> int:
        """The most turns of one sample."""
        return self.steps + self.extension


def turns_left(steps: int, extension: int, turn: int) -> tuple[int, str]:
    """Return (turns that are left after this one, counted from 0, as an agent is told; what it is
    told of its extension)."""
    if turn + 1 < steps:
        return steps - turn - 1, ""
    given = bool(extension) and turn + 1 == steps
    return steps + extension - turn - 1, EXTENDED % (steps, extension) if given else ""


class AgentModel(Strict):
    """How the model is asked; None leaves the endpoint's own default. stop: texts that end a reply,
    and are no part of it."""

    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int = Field(default=1024, ge=1)
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), max_length=4, exclude_if=not_
    )


class AgentMemory(Strict):
    """What the agent is offered of the workspace's memory: lessons of at most `tokens` in one
    attempt; 0: nothing.

    when     `start` of the task, an `error` it had not just seen, another result of the `tests`, or
             every `step`
    recall   it may ask by itself, in its own words: an answer has at most so many tokens; 0: it may
             not
    """

    tokens: int = Field(default=0, ge=0, le=100_000)
    when: tuple[Literal["start", "error", "tests", "step"], ...] = ("start", "error", "tests")
    recall: int = Field(default=0, le=20_000, exclude_if=not_)

    @field_validator("recall", mode="before")
    @classmethod
    def _tokens(cls, value: Any) -> Any:
        if isinstance(value, bool) or (
            isinstance(value, int) and value != 0 and value < LEAST_RECALLED
        ):
            raise ValueError(
                f"the tokens of one answer, {LEAST_RECALLED} at least: recall = 1000, or 0 for none"
            )
        return value


class AgentExamples(Strict):
    """Of the worked examples in examples/ prompts show the first ones, `tokens` of them together;
    0: none."""

    tokens: int = Field(default=2000, ge=0, le=100_000)


class ServerEntry(Strict):
    """An MCP server. server: the scaffold's tool that it is; or command: a program that the sandbox
    has, and its arguments; or url: one elsewhere, and token: the environment variable that has its
    bearer token, MCP_...: a folder from elsewhere must not send any other key away. No edit of an
    optimizer may name or change the last two.
    """

    server: str = ""
    command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    url: str = Field(default="", pattern=r"^(https?://[^\s]+)?$")
    token: str = Field(default="", pattern=r"^(MCP_[A-Z0-9_]+)?$")

    @model_validator(mode="after")
    def _one_of(self) -> ServerEntry:
        if sum(map(bool, (self.server, self.command, self.url))) != 1 or (
            self.token and not self.url
        ):
            raise ValueError(
                'an MCP server is one of server = "NAME", a tool of this folder, command = [...],'
                ' or url = "https://..."'
            )
        return self


class AgentConfig(Strict):
    """agent.toml, parsed.

    action   `bash` (one command a turn), `json` ({"command": ...}), `tools` (functions that are
             called: functions.py), or `tool:NAME`: the reply is given to tools/NAME on its standard
             input; or what begins with the name of another kind of agent (`recreate.agent`):
             `command`, `python:MODULE:NAME`
    shell    with `tools`: `bash` is one of the functions
    mcp      with `tools`: MCP servers by name, whose tools are functions too
    native   with `bash`: where the model takes tools, commands are calls of the tool `bash`,
             several a turn if it likes; elsewhere it is asked for the block. `{{ native }}` tells
             prompts which of the two it is
    before   tools run before the first turn; their output is `{{ before.NAME }}`
    done     a tool run after each action; exit 0 means that the work is handed in
    samples  independent tries at a task; `choose` names the tool whose last line is a number, the
             highest wins
    vote     the tool that prints what a sample came to: of the most that print the same the first
             is handed in
    turns    what stands under each key or table that a strategy of turns is found by
             (`recreate.turns`): branches, lookahead, observe, restore
    protect  patterns of files no edit may touch: see `protects`

    Of a foreign agent:

    command  what a shell runs in the sandbox; `{prompt_file}`, `{agent}` (the folder of these
             files), `{base_url}` and `{model}` stand for what they say
    texts    patterns of the files that may be edited; all others are protected
    env      variables that the command gets besides
    venv     the host's folder of a Python environment, mounted read-only; its programs are first on
             PATH
    mounts   path inside -> folder or file of the host, mounted read-only
    version  of the code that is not in this folder: scores are reused only under the same one
    calls    `own`: it asks no model through the gateway, and that is as it should be
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
    vote: str = Field(default="", exclude_if=not_)
    limits: AgentLimits = AgentLimits()
    model: AgentModel = AgentModel()
    memory: AgentMemory = AgentMemory()
    examples: AgentExamples = AgentExamples()
    protect: tuple[str, ...] = ()
    command: str = Field(default="", exclude_if=not_)
    texts: tuple[str, ...] = Field(default=(), exclude_if=not_)
    env: Mapping[str, str] = Field(default={}, exclude_if=not_)
    venv: str = Field(default="", exclude_if=not_)
    mounts: Mapping[str, str] = Field(default={}, exclude_if=not_)
    version: str = Field(default="", exclude_if=not_)
    calls: Literal["", "own"] = Field(default="", exclude_if=not_)
    turns: JsonMap = Field(default={}, exclude_if=not_)
    shell: bool = Field(default=True, exclude_if=bool)
    mcp: Mapping[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,29}$")], ServerEntry] = (
        Field(default={}, exclude_if=not_)
    )

    @field_validator("action")
    @classmethod
    def _known_action(cls, value: str) -> str:
        if re.fullmatch(r"bash|json|tools|tool:[\w.-]+", value):
            return value
        if (name := value.partition(":")[0]) in names("agent"):
            return value
        if absent := lacking("agent", name):
            raise ValueError(f"{value!r} needs the plug-in {absent}, which is not installed")
        kinds = ", ".join(["bash", "json", "tools", "tool:NAME", *names("agent")])
        raise ValueError(f"{value!r} is none of {kinds}")

    @model_validator(mode="after")
    def _fits(self) -> AgentConfig:
        if wrong := open_kind(self.action).refusal(self) if self.foreign else self._conflict():
            raise ValueError(wrong)
        for key in self.turns:
            if wrong := find("turns", key).refusal(self):
                raise ValueError(wrong)
        return self

    def _conflict(self) -> str:
        """Return which keys of an agent of recreate's own do not go together, '' for none."""
        own = {"native": "bash", "mcp": "tools"}
        for key in ("command", "env", "venv", "mounts", "texts", "calls", *own):
            kind = own.get(key, "")
            if getattr(self, key) and self.action != kind:
                whose = f"action {kind}" if kind else "foreign agents"
                return f"{key} is for {whose}, and this is {'' if kind else 'action '}{self.action}"
        if self.mcp and "mcp" not in names("tool-server"):
            return "mcp: servers need the plug-in mcp, which is not installed"
        if self.vote and self.choose:
            return "`choose` ranks samples one by one, with `vote` they agree: name one of the two"
        if self.memory.recall and self.action.startswith("tool:"):
            return (
                f"memory.recall is for actions bash, json and tools: {self.action} takes the whole"
                " reply"
            )
        return ""

    @property
    def takes_tools(self) -> bool:
        """Whether a model that takes tools is handed some."""
        return self.native or self.action == "tools"

    def protects(self, path: str) -> bool:
        """Whether no edit may touch (make, change, delete) the file. A pattern that names a folder
        means all in it; of a foreign agent everything is protected but for its `texts`."""
        return _matches(path, self.protect) or (self.foreign and not self.declares(path))

    def declares(self, path: str) -> bool:
        """Whether a file of a foreign agent is one of its `texts`."""
        return path not in ("agent.toml", "README.md") and _matches(path, self.texts)

    @property
    def foreign(self) -> bool:
        """Whether the agent is a program of somebody else's, of which only the texts are ours to
        edit."""
        return is_foreign_action(self.action)

    @property
    def reply_tokens(self) -> int:
        """The most tokens of one reply. A foreign agent, which asks for as many as it likes, has
        more where agent.toml says nothing."""
        said = "max_tokens" in self.model.model_fields_set
        return self.model.max_tokens if said or not self.foreign else FOREIGN_TOKENS

    @property
    def uses(self) -> dict[str, str]:
        """The tools named here: key (`action`, `before`, `done`, `choose`, ...) and name, as {name:
        key}."""
        named = {name: "before" for name in self.before}
        named |= {name: key for key in ("done", "choose", "vote") if (name := getattr(self, key))}
        for key, value in self.turns.items():
            named |= dict.fromkeys(getattr(value, "tools", ()), key)
        named |= {entry.server: "mcp" for entry in self.mcp.values() if entry.server}
        if self.action.startswith("tool:"):
            named[self.action.removeprefix("tool:")] = "action"
        return named


def _matches(path: str, patterns: Sequence[str]) -> bool:
    for pattern in patterns:
        plain = posixpath.normpath(pattern.strip()).lstrip("/")
        if any(
            fnmatchcase(path, p)
            for p in (plain, plain.removeprefix("**/"), plain.replace("/**/", "/"), f"{plain}/*")
        ):
            return True
    return False


@lru_cache(maxsize=256)
def is_foreign(text: str) -> bool:
    """Whether an agent.toml is a foreign agent's, whatever else is wrong with it."""
    try:
        action = read_toml(text).get("action", "")
    except ValueError:
        return False
    return isinstance(action, str) and is_foreign_action(action)


def with_limits(text: str, limits: Mapping[str, float]) -> str:
    """Return agent.toml with other limits; `max_tokens` is the model's. A 0 leaves what is there.

    Raises BadInput (`bad-agent`) where they are not written one a line under [limits] and [model].
    """
    wanted = {key: value for key, value in limits.items() if value}
    for key, value in wanted.items():
        text = _with_key(text, "model" if key == "max_tokens" else "limits", key, json.dumps(value))
    agent, faults = read_agent(text)
    if agent is not None and any(
        getattr(agent.model if key == "max_tokens" else agent.limits, key) != value
        for key, value in wanted.items()
    ):
        faults = [
            (
                1,
                (
                    f"its limits are not written one a line: {', '.join(wanted)} cannot be changed"
                    " by a flag"
                ),
            )
        ]
    if faults:
        raise BadInput(
            f"agent.toml:{faults[0][0]}: {faults[0][1]}", fix="correct that line", code="bad-agent"
        )
    return text


def _with_key(text: str, table: str, key: str, value: str) -> str:
    lines = text.split("\n")
    inside = False
    at = -1
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


def read_agent(text: str) -> tuple[AgentConfig | None, list[tuple[int, str]]]:
    """Return agent.toml and what is wrong with it as (line, message); the agent is None when
    anything is."""
    agent, faults = _read(text)
    return agent, [*faults]


@lru_cache(maxsize=64)
def _read(text: str) -> tuple[AgentConfig | None, list[tuple[int, str]]]:
    """Return the same, read once: most edits of a scaffold leave agent.toml alone, and each is
    checked."""
    try:
        raw = read_toml(text)
    except ValueError as e:
        at = re.search(r"at line (\d+)", str(e))
        return None, [(int(at[1]) if at else max(1, text.count("\n") + 1), f"not TOML: {e}")]
    turns, faults = _read_turns(raw, text)
    raw = {key: value for key, value in raw.items() if key not in names("turns")}
    if "turns" in raw:
        faults.append(_unknown_key(text, ("turns",), AgentConfig))
    schema = raw.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        faults.append(
            (
                key_line(text, ("schema",)),
                f"schema {schema} is newer than this recreate reads ({SCHEMA})",
            )
        )
    try:
        agent = AgentConfig.model_validate({**raw, "turns": turns})
    except ValidationError as e:
        faults += _faults(e, text, (), AgentConfig)
        agent = None
    return (None if faults else agent), sorted(faults)


def _read_turns(raw: JsonMap, text: str) -> tuple[JsonDict, list[tuple[int, str]]]:
    """Return what stands under the keys of strategies, and what is wrong with it."""
    turns: JsonDict = {}
    faults: list[tuple[int, str]] = []
    for key in names("turns"):
        if key not in raw:
            continue
        kind = find("turns", key).Config
        try:
            turns[key] = TypeAdapter(kind).validate_python(raw[key])
        except ValidationError as e:
            faults += _faults(e, text, (key,), kind)
    return turns, faults


_TABLES: dict[str, type[BaseModel]] = {
    "limits": AgentLimits,
    "model": AgentModel,
    "memory": AgentMemory,
    "examples": AgentExamples,
    "mcp": ServerEntry,
}


def _faults(
    error: ValidationError, text: str, under: tuple[str, ...], kind: Any
) -> list[tuple[int, str]]:
    """Return where and what is wrong with what should have been of a kind."""
    faults = []
    for each in error.errors(include_url=False):
        keys = (*under, *(str(k) for k in each["loc"] if isinstance(k, str)))
        if each["type"] == "extra_forbidden":
            table = kind if under or len(keys) == 1 else _TABLES[keys[0]]
            faults.append(_unknown_key(text, keys, table))
        else:
            message = each["msg"].removeprefix("Value error, ")
            faults.append((key_line(text, keys), f"{'.'.join(keys)}: {message}"))
    return faults


def _unknown_key(text: str, keys: tuple[str, ...], kind: type[BaseModel]) -> tuple[int, str]:
    if len(keys) == 1 and (absent := lacking("turns", keys[0])):
        message = f"{keys[0]} needs the plug-in {absent}, which is not installed"
        return key_line(text, keys), message
    known = [f.alias or name for name, f in kind.model_fields.items() if name != "turns"]
    known += names("turns") if kind is AgentConfig else ()
    near = difflib.get_close_matches(keys[-1], known, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
    return key_line(text, keys), f"unknown key {'.'.join(keys)!r}; {hint}"


def key_line(text: str, keys: tuple[str, ...]) -> int:
    """Return the line that sets a key, counted from 1; 1 when it cannot be found."""
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
