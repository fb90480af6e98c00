"""The kinds of agents `command` and `python`: how a folder of one is checked, how it attempts a
task, how one is made of an agent that exists already."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from recreate.agents.config import AgentConfig, key_line
from recreate.agents.lint import Problem, compile_problems
from recreate.agents.scaffold import Scaffold
from recreate.api.config import read_json, read_toml
from recreate.api.errors import BadInput
from recreate.api.ports import SandboxBackend
from recreate.api.types import Trace

PLAIN = (".md", ".txt", ".prompt", ".toml", ".json", ".yaml", ".yml", ".csv", "")
"""How the texts of an agent in our own process may end: a model edits them, and what a model writes
is not run here."""
_OURS = ("native", "before", "done", "choose", "vote", "mcp")
MAX_TEXTS = 200_000
"""Characters of all texts of a foreign agent together."""


_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)|\(([^()\n]+):(\d+), in ')


class ForeignAgent:
    """A program of somebody else's, of which only the texts are ours to edit."""

    def refusal(self, agent: AgentConfig) -> str:
        """Return what is wrong with its agent.toml, '' for nothing."""
        keys = [key for key in _OURS if getattr(agent, key)] + [*agent.turns]
        if keys or agent.samples > 1:
            key = keys[0] if keys else "samples"
            return f"{key} is for agents of recreate's own, and this is action {agent.action}"
        if agent.limits.extension:
            return "limits.extension is told to agents of recreate's own; here, raise limits.steps"
        if agent.memory.recall:
            return (
                "memory.recall is for agents of recreate's own; give this one `recreate memory"
                " serve` (MCP)"
            )
        if agent.action != "command":
            if not re.fullmatch(r"python:[\w.]+:[\w.]+", agent.action):
                return f"action: {agent.action!r} is none of command, python:MODULE:NAME"
            others = [key for key in ("command", "env", "venv", "mounts") if getattr(agent, key)]
            return (
                f"{others[0]} is for action command, and this is {agent.action}" if others else ""
            )
        if not agent.command.strip():
            return 'action command needs what is run: command = "..."'
        strange = [name for name in agent.env if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)]
        return f"env: {strange[0]!r} cannot be an environment variable" if strange else ""

    def check(self, scaffold: Scaffold, backend: SandboxBackend | None) -> Iterator[Problem]:
        """Find the faults of its folder."""
        agent = scaffold.agent
        toml = scaffold.files["agent.toml"]
        texts = {path: text for path, text in scaffold.files.items() if agent.declares(path)}
        at = key_line(toml, ("texts",))
        inside = agent.action == "command"
        if agent.texts and not texts:
            message = f"texts matches no file of this folder: {', '.join(agent.texts)}"
            yield Problem(file="agent.toml", line=at, message=message)
        if (size := sum(map(len, texts.values()))) > MAX_TEXTS:
            message = f"the texts have {size} characters, over {MAX_TEXTS}: name fewer"
            yield Problem(file="agent.toml", line=at, message=message)
        for path, text in texts.items():
            if not inside and PurePosixPath(path).suffix not in PLAIN:
                message = (
                    "is code, and code that a model edits runs in no process of ours:"
                    f" {', '.join(filter(None, PLAIN))}"
                )
                yield Problem(file=path, line=1, message=message)
            elif path.endswith(".py"):
                yield from compile_problems(path, text)
            elif path.endswith((".json", ".toml")):
                yield from _parse_problems(path, text)
        if inside and backend is not None and (wrong := _start_problem(agent, backend)):
            key, message = wrong
            yield Problem(file="agent.toml", line=key_line(toml, (key,)), message=message)

    def attempt(self, *given: Any, **how: Any) -> Trace:
        """Let it work on a task."""
        from recreate.plugins.foreign.foreign import attempt_foreign

        return attempt_foreign(*given, **how)

    def failure(self, trace: Trace) -> tuple[str, str]:
        """Return what its program broke by: the kind of what was raised and its place, and the
        words; two '' where it neither broke nor left its model alone."""
        if trace.ending != "error" or trace.limit not in ("exit", "no-calls"):
            return "", ""
        said = trace.steps[-1].output.strip() if trace.steps else ""
        last = said.rpartition("\n")[2].strip()
        cause, words = re.sub(r"\d+", "#", last) or "exit", last or "it printed nothing"
        if places := _PLACE.findall(said):
            file, line = (a or b for a, b in zip(places[-1][:2], places[-1][2:], strict=True))
            cause = f"{last.partition(':')[0]} {file} {line}"
            words = f"{file}, line {line}: {last}"
        if trace.limit == "no-calls":
            return "no-calls", f"it never asked its model; {words}"
        return cause, words

    def make(self, agent: Any, folder: Path, **how: Any) -> Scaffold:
        """Return the scaffold of a command, a function of a desk or an object with `attempt`."""
        from recreate.plugins.foreign.wrap import wrap_agent, wrap_command

        return (wrap_command if isinstance(agent, str) else wrap_agent)(agent, folder, **how)


def _parse_problems(path: str, text: str) -> Iterator[Problem]:
    try:
        read_json(text) if path.endswith(".json") else read_toml(text)
    except ValueError as e:
        at = re.search(r"line (\d+)", str(e))
        message = f"is not {'JSON' if path.endswith('.json') else 'TOML'}: {e}"
        yield Problem(file=path, line=int(at[1]) if at else 1, message=message)


def _start_problem(agent: AgentConfig, backend: SandboxBackend) -> tuple[str, str] | None:
    """Return (key, why) where the sandbox lacks the program that the command begins with, or a
    Python to start it."""
    from recreate.plugins.foreign.surroundings import places

    try:
        mounts, path = places(agent)
    except BadInput as e:
        return "venv", f"{e.message}; {e.fix}"
    try:
        words = [w for w in shlex.split(agent.command) if not re.match(r"\w+=", w)]
        sandbox = backend.open(mounts=mounts)
    except ValueError as e:
        return "command", f"command is no shell's: {e}"
    except BadInput as e:
        return "command", f"{e.message}; {e.fix}"
    program = words[0] if words and re.fullmatch(r"[\w./+-]+", words[0]) else "sh"
    try:
        for name, what in (("python3", "starts the command"), (program, "the command begins with")):
            script = f"PATH={shlex.quote(path)}${{PATH:+:$PATH}}\ncommand -v {shlex.quote(name)}"
            if sandbox.run(script).status:
                return "command", (
                    f"the sandbox has no {name}, which {what}: name its environment with venv, or"
                    " its folder with mounts"
                )
    finally:
        sandbox.close()
    return None
