"""`recreate.wrap`: an agent that exists already, made what build, run and bench take as a
scaffold."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.agents.lint import problems
from recreate.agents.scaffold import Scaffold
from recreate.api.config import write_toml
from recreate.api.errors import BadInput
from recreate.api.ports import Agent, Desk
from recreate.api.shapes import JsonDict
from recreate.api.types import digest
from recreate.plugins.foreign.given import from_command, read_files
from recreate.plugins.foreign.in_process import give


def wrap_command(
    agent: str,
    folder: Path,
    *,
    texts: Sequence[str] | Mapping[str, str] = (),
    files: Sequence[str] = (),
    venv: str = "",
    name: str = "",
    limits: Mapping[str, float] | None = None,
    version: str = "",
) -> Scaffold:
    """Return the scaffold of a command."""
    if isinstance(texts, Mapping) and texts:
        raise BadInput(
            "the texts of a command are files", fix="texts=['prompts/*.md']", code="usage"
        )
    made = from_command(agent, folder, texts=_patterns(texts), files=files, venv=venv)
    made = made.limited(limits or {})
    return made.model_copy(update={"name": name}) if name else made


def wrap_agent(
    agent: Agent | Callable[[Desk], str | None],
    folder: Path,
    *,
    texts: Sequence[str] | Mapping[str, str],
    files: Sequence[str],
    venv: str,
    name: str,
    limits: Mapping[str, float],
    version: str,
) -> Scaffold:
    """Return the scaffold of a function of a desk, or of an object with `attempt`."""
    given = dict(texts) if isinstance(texts, Mapping) else {}
    if strange := [path for path, text in given.items() if not isinstance(text, str)]:
        raise BadInput(
            f"the text {strange[0]} is {given[strange[0]]!r}",
            fix="{path: text}",
            code="bad-scaffold",
        )
    if files or venv:
        raise BadInput(
            "files and venv are of an agent that is a command", fix="leave them out", code="usage"
        )
    _fit(agent)
    about: JsonDict = {
        "action": _action(agent),
        "texts": _patterns(texts),
        "version": version or _version(agent),
        "limits": {key: value for key, value in limits.items() if key != "max_tokens"},
        "model": {"max_tokens": limits["max_tokens"]},
    }
    found = given or read_files(folder, _patterns(texts))
    called = (
        name
        or re.sub(r"[^\w.-]+", "-", _agent_name(agent).rpartition(".")[2]).strip("-.")
        or "agent"
    )
    scaffold = Scaffold(name=called, files={"agent.toml": write_toml(about), **found})
    if wrong := sorted(problems(scaffold), key=lambda p: not p.startswith("agent.toml")):
        raise BadInput(
            f"{called}/{wrong[0]}",
            fix="wrap(agent, texts=[...]) names the files that may be edited, as patterns",
            code="bad-scaffold",
        )
    return scaffold


def _patterns(texts: Sequence[str] | Mapping[str, str]) -> list[str]:
    return [texts] if isinstance(texts, str) else [*texts]


def _fit(agent: Any) -> None:
    if (
        not isinstance(agent, type)
        and callable(getattr(agent, "get_graph", None))
        and hasattr(agent, "invoke")
    ):
        raise BadInput(
            "a compiled graph holds a model of its own, or none: nobody would see what it asks",
            fix=(
                "wrap(graph_agent(make)), where make(model, desk) compiles the graph with the model"
                " that it is given"
            ),
            code="misfit",
        )
    work = agent.attempt if hasattr(agent, "attempt") else agent
    if not callable(work):
        raise BadInput(
            f"{type(agent).__name__} is no agent: it has no attempt(desk), and cannot be called",
            fix="def attempt(self, desk): ... returns what it hands in",
            code="misfit",
        )
    if inspect.iscoroutinefunction(work):
        raise BadInput(
            "the agent is async; recreate calls it from threads",
            fix="def attempt(desk): return asyncio.run(my_agent(desk))",
            code="misfit",
        )
    try:
        if isinstance(agent, type):
            inspect.signature(agent).bind()
            inspect.signature(work).bind("self", "desk")
        else:
            inspect.signature(work).bind("desk")
    except TypeError as e:
        if isinstance(agent, type):
            raise BadInput(
                f"{agent.__name__} is a class that cannot be made without arguments, or has no"
                f" attempt(desk): {e}",
                fix=f"wrap({agent.__name__}(...))",
                code="misfit",
            ) from None
        raise BadInput(
            f"the agent cannot be called with a desk: {e}",
            fix="def my_agent(desk): ...",
            code="misfit",
        ) from None
    except ValueError:
        pass  # written in C: it says nothing of itself


def _agent_name(agent: Any) -> str:
    kind = agent if isinstance(agent, type) or inspect.isroutine(agent) else type(agent)
    return str(getattr(kind, "__qualname__", "agent"))


def _action(agent: Any) -> str:
    """`python:MODULE:NAME`, found by import where it can be, else kept for as long as this process
    lives."""
    kind = agent if isinstance(agent, type) or inspect.isroutine(agent) else type(agent)
    module = re.sub(r"[^\w.]", "_", str(kind.__module__))
    name = re.sub(r"[^\w.]+", "_", _agent_name(agent)).strip(".")
    return give(f"python:{module}:{name}", agent)


def _version(agent: Any) -> str:
    """Of the source of the module that an agent is in; '' where there is none."""
    kind = agent if isinstance(agent, type) or inspect.isroutine(agent) else type(agent)
    about = getattr(agent, "source", None)  # what an adapter was made of
    kind = about if about is not None else kind
    try:
        return digest(inspect.getsource(inspect.getmodule(kind) or kind))
    except (OSError, TypeError):
        return ""
