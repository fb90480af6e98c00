"""Agents that recreate's own turns do not carry out. Each kind is a plug-in's, found by the name
that the `action` in agent.toml begins with (`recreate.agent`)."""

from __future__ import annotations

from recreate.api.plugins import lacking, names
from recreate.api.ports import AgentKind
from recreate.api.registry import open

OWN_ACTIONS = ("bash", "json", "tools", "tool")
"""What the actions of recreate's own turns begin with."""


def is_foreign_action(action: str) -> bool:
    """Whether agents of an action are of a kind that a plug-in brings, be it here or not."""
    name = action.partition(":")[0]
    return name not in OWN_ACTIONS and (name in names("agent") or bool(lacking("agent", name)))


def open_kind(action: str) -> AgentKind:
    """Return the kind of agent that an action names. Raises BadInput."""
    kind: AgentKind = open("agent", action.partition(":")[0])
    return kind
