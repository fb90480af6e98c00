"""`recreate.wrap`: an agent that exists already, made what build, run and bench take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from recreate.agents.kinds import open_kind
from recreate.agents.scaffold import Scaffold
from recreate.api.ports import Agent, Desk
from recreate.api.shapes import JsonDict


def wrap(
    agent: str | Agent | Callable[[Desk], str | None],
    texts: Sequence[str] | Mapping[str, str] = (),
    *,
    name: str = "",
    folder: str | Path = ".",
    files: Sequence[str] = (),
    venv: str = "",
    steps: int = 100,
    tokens: int = 2_000_000,
    usd: float = 3.0,
    seconds: float = 1800.0,
    max_tokens: int = 8192,
    version: str = "",
) -> Scaffold:
    """Return a scaffold of an agent that exists already.

    agent    a command, which runs in the sandbox (`python3 agent.py {prompt_file}`); or a function
             of a Desk, or an object with `attempt(desk)`, which runs in this process
    texts    what may be edited: patterns of files below `folder`, or {path: text}; without any it
             is only measured
    files    of a command: patterns of the files that it needs besides; venv: its Python environment
    steps    requests that it may make at a task; tokens, usd, seconds: of one attempt; max_tokens:
             of one reply
    version  of its code: scores are reused only under the same one; "": made of the source of the
             module it is in

    Raises BadInput: `no-files` for a pattern that matches nothing, `misfit` for what is no agent,
    `bad-scaffold` for a text that cannot be one (code, of an agent in this process: what a model
    edits runs in sandboxes alone).
    """
    limits = {"steps": steps, "tokens": tokens, "usd": usd, "seconds": seconds}
    how: JsonDict = {"texts": texts, "files": files, "venv": venv, "version": version}
    how |= {"name": name, "limits": {**limits, "max_tokens": max_tokens}}
    kind = open_kind("command" if isinstance(agent, str) else "python")
    scaffold: Scaffold = kind.make(agent, Path(folder).expanduser().resolve(), **how)
    return scaffold
