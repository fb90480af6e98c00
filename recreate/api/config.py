"""What settings are written in. It stands alone: every command reads it, and `--help` must not wait
for the records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA = 1
"""The version of every stored format; docs/format.md says what changed between two."""

Split = Literal["train", "validation", "test"]


class Config(BaseModel):
    """Settings of one part: frozen, and a name that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PluginSettings(Config):
    """The settings that a plug-in brings: one table, named by its entry point of the group
    `recreate.settings`.

    `near_cache = "recreate.plugins.near_cache.settings:NearSettings"` makes its field `near`
    `[near_cache] near` and `--near_cache.near`. A field's description is the help of its flag.

    short     shorter names of flags -> the field: {"cache-near": "near"} is `--cache-near`
    taken_by  which commands have its flags: `build` (build, plan, bench and the like), `attempt`
              (whatever attempts tasks)
    panel     the heading under which help shows them
    free      fields that may change when a run goes on, such as a place on this machine
    variables  RECREATE_... variables of the environment that the plug-in reads and that are no
              settings
    """

    short: ClassVar[Mapping[str, str]] = {}
    taken_by: ClassVar[frozenset[str]] = frozenset()
    panel: ClassVar[str] = ""
    free: ClassVar[frozenset[str]] = frozenset()
    variables: ClassVar[frozenset[str]] = frozenset()

    def check(self, settings: Any) -> None:
        """Raise BadInput for what cannot be, given all Settings, before any part is opened."""

    @property
    def brings_agent(self) -> bool:
        """Whether these settings name an agent in place of a scaffold."""
        return False

    def agent(self) -> Any:
        """Return the Scaffold of that agent, None where there is none. Raises BadInput for one that
        cannot be read."""
        return None


MAX_DEPTH = 64
"""Tables within tables that a file may have."""


def write_toml(table: Mapping[str, Any]) -> str:
    """Return a table as a TOML text."""
    import tomli_w

    return tomli_w.dumps(table)


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it in one line: texts, numbers and lists as in JSON."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        pairs = (f"{toml_value(str(key))} = {toml_value(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_toml(text: str) -> dict[str, Any]:
    """Return a TOML text as a table. Raises ValueError for what cannot be read, whatever is wrong
    with it."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if too_deep(table):
        raise ValueError(f"it is nested too deeply: more than {MAX_DEPTH} levels")
    return table


def too_deep(value: Any) -> bool:
    """Whether tables and lists lie more than MAX_DEPTH within each other."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [each for value in level for each in _inside(value)]
    return bool(level)


def read_json(text: str | bytes) -> Any:
    """Return a JSON text's value. Raises ValueError for what cannot be read, whatever is wrong with
    it."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
