"""The sandbox that an agent works in, and what it finds there: its tools, functions and MCP
servers.

Tools lie in the sandbox as /work/.recreate/bin/NAME and are on PATH. None of them sees anything
hidden, because nothing hidden is in the sandbox. What they may know of the attempt lies in
/work/.recreate/attempt.json.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from recreate.agents.action import ALONE, Action
from recreate.agents.config import ServerEntry
from recreate.agents.functions import (
    SUBMIT,
    Function,
    function_name,
    own_functions,
    server_functions,
    shell_functions,
)
from recreate.agents.retrieval import RECALL
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import cut_middle
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import (
    Domain,
    Sandbox,
    SandboxBackend,
    ToolServer,
    extras,
)
from recreate.api.registry import find, open
from recreate.api.shapes import JsonMap
from recreate.api.theirs import expect
from recreate.api.types import Output, Task
from recreate.storage.redact import redact

BIN = ".recreate/bin"  # commands start in the work folder, which without a sandbox is not /work
"""Where a scaffold's tools lie, relative to /work. A domain leaves `.recreate/` out of what is
handed in."""

ABOUT = ".recreate/attempt.json"
"""Read by tools: `prompt`, the task's words, and `sample`, which try of the attempt this is, from
0."""

LEFT_OUT = "\n[... {} characters left out here; print less, or a part at a time ...]\n"
KEPT = ".recreate/output"
"""Where an output lies whole of which a part was left out."""
KEPT_OUT = (
    "\n[... {} characters left out here; the output is kept: see the rest by sed -n '%d,%dp'"
    " /work/%s ...]\n"
)
_OPENED = threading.Lock()
_opened: weakref.WeakValueDictionary[int, Sandbox] = weakref.WeakValueDictionary()
"""Sandboxes that domains gave: each is of one attempt alone."""
_OF_A_SANDBOX = ("run", "write", "read", "close")
_NOT_ALONE = "nothing was recalled: recall WORDS counts when it is the whole command, in one line"


class Workplace:
    """What one agent can do in the sandboxes of one task."""

    def __init__(self, scaffold: Scaffold, task: Task, domain: Domain) -> None:
        self.scaffold = scaffold
        self.task = task
        self.domain = domain
        self.agent = scaffold.agent
        self.functions: dict[str, Function] = {f.name: f for f in shell_functions(self.agent)}
        self.shell = ""
        """Lines that go before a command of the shell's."""
        self.servers: dict[str, ToolServer] = {}

    def open_functions(self, sandbox: Sandbox, *, elsewhere: bool = True) -> None:
        """Find what may be called in this sandbox, and start its MCP servers. Raises BadInput
        (`bad-mcp`) when one does not start.

        elsewhere: servers that are not in the sandbox are asked too.
        """
        self.servers.clear()
        found = [*shell_functions(self.agent), *own_functions(self.scaffold)]
        entries: dict[str, ServerEntry] = {}
        for name, what in extras(self.domain).servers(self.task).items():
            entry = (
                ServerEntry(url=what) if isinstance(what, str) else ServerEntry(command=tuple(what))
            )
            entries[function_name(name)] = entry
        entries |= self.agent.mcp
        for name, entry in entries.items():
            if entry.url and not elsewhere:
                continue
            server: ToolServer = open("tool-server", "mcp", sandbox, name, entry, self.agent.limits)
            self.servers[name] = server
            found += server_functions(name, server.tools)
        self.functions = {}
        for function in found:
            self.functions.setdefault(function.name, function)

    def act(self, sandbox: Sandbox, action: Action, name: str) -> tuple[Output, str]:
        """Return (what came of an action, its text as it is shown). name: of the file that keeps
        what is left out of that."""
        kind = self.agent.action
        limit = self.agent.limits.observation_chars
        if action.function is not None:
            output = self._call(sandbox, action.function, action.arguments)
            return output, self._cut_output(sandbox, output, f"{KEPT}/{name}.txt")
        if kind.startswith("tool:"):
            output = self.run_tool(sandbox, kind.removeprefix("tool:"), action.command)
            return output, cut_middle(output.text, limit, LEFT_OUT, dropped=output.cut)
        line = f'export PATH="$PWD/{BIN}:$PATH"\n'
        if SUBMIT not in self.scaffold.tools:
            line += f"{SUBMIT}() {{ echo '{ALONE}' >&2; return 1; }}\n"
        if self.agent.memory.recall:
            line += f"{RECALL}() {{ echo '{_NOT_ALONE}' >&2; return 1; }}\n"
        output = _run(
            sandbox, line + self.shell + action.command, timeout=self.agent.limits.command_seconds
        )
        return output, self._cut_output(sandbox, output, f"{KEPT}/{name}.txt")

    def _call(self, sandbox: Sandbox, function: Function, arguments: JsonMap) -> Output:
        """Return a call of a tool of the scaffold's or of a server's."""
        if function.server:
            return _masked(self.servers[function.server].call(function.tool, arguments))
        if function.words:
            command = [f"./{BIN}/{function.tool}", *arguments["args"]]
            return _run(sandbox, command, timeout=self.agent.limits.command_seconds)
        return self.run_tool(sandbox, function.tool, json.dumps(arguments, ensure_ascii=False))

    def _cut_output(self, sandbox: Sandbox, output: Output, file: str) -> str:
        """Head and tail of an output, the whole in a file of the sandbox when that is not all."""
        text = output.text
        limit = self.agent.limits.observation_chars
        mark = LEFT_OUT
        if len(text) > limit:
            try:
                sandbox.write(file, text.encode("utf-8", "replace"))
            except (BadInput, Fault):
                # the agent put something else there, or filled its disk: then it sees what it sees
                pass
            else:
                line = text.count("\n", 0, limit // 2) + 1
                mark = KEPT_OUT % (line, line + 100, file)
        return cut_middle(text, limit, mark, dropped=output.cut)

    def run_tool(self, sandbox: Sandbox, name: str, stdin: str = "") -> Output:
        """Return what comes of a tool of the scaffold's."""
        return _run(
            sandbox,
            [f"./{BIN}/{name}"],
            timeout=self.agent.limits.command_seconds,
            stdin=stdin.encode("utf-8", "surrogatepass"),
        )

    def rank(self, sandbox: Sandbox) -> float:
        """Return what the `choose` tool thinks of a sample: the number on its last line, lowest
        when there is none."""
        lines = self.run_tool(sandbox, self.agent.choose).text.strip().splitlines()
        try:
            rank = float(lines[-1])
        except (IndexError, ValueError):
            return float("-inf")
        return rank if math.isfinite(rank) else float("-inf")

    def ballot(self, sandbox: Sandbox) -> str | None:
        """Return what the `vote` tool prints of a sample; None where it has no say: it failed, or
        printed nothing."""
        output = self.run_tool(sandbox, self.agent.vote)
        return None if output.status else output.text.strip() or None


def prepare_sandbox(domain: Domain, task: Task, backend: SandboxBackend) -> Sandbox:
    """Return a sandbox in which the task can be worked on. Raises BadInput where the domain gives
    none."""
    sandbox = domain.prepare(task, backend)
    expect(
        all(callable(getattr(sandbox, each, None)) for each in _OF_A_SANDBOX),
        domain,
        "prepare",
        sandbox,
    )
    with contextlib.suppress(TypeError):  # one that no weak reference can name is taken at its word
        with _OPENED:
            again = _opened.get(id(sandbox)) is sandbox
            _opened[id(sandbox)] = sandbox
        expect(
            not again, domain, "prepare", sandbox, "returned a sandbox that it had returned before"
        )
    return sandbox


def furnish(sandbox: Sandbox, scaffold: Scaffold, prompt: str = "", sample: int = 0) -> None:
    """Put the scaffold's tools where its agent finds them; with a prompt, also what tools may know
    of the attempt."""
    for name, path in scaffold.tools.items():
        sandbox.write(f"{BIN}/{name}", executable(scaffold.files[path]), 0o755)
    if scaffold.tools and prompt:
        tell_attempt(sandbox, prompt, sample)


def tell_attempt(sandbox: Sandbox, prompt: str, sample: int) -> None:
    """Put down what tools may know of the attempt."""
    sandbox.write(ABOUT, json.dumps({"prompt": prompt, "sample": sample}).encode())


def try_servers(
    scaffold: Scaffold, task: Task, domain: Domain, backend: SandboxBackend
) -> Mapping[str, Function]:
    """Start the MCP servers that the scaffold or the domain names, as an attempt at the task would;
    return what may then be called.

    Raises BadInput (`bad-mcp`) when one does not start, (`calls-no-tools`) for an agent that could
    do nothing in this domain, and (`no-lookahead`, `no-observe`, ...) for what needs copies where
    no sandbox can be copied."""
    if scaffold.agent.action != "tools" and extras(domain).tools_only:
        raise BadInput(
            f"tasks of {domain.name} are done by calling tools, and the agent {scaffold.name} calls"
            " none",
            fix='name one with action = "tools" in its agent.toml, such as --scaffold seed-tools',
            code="calls-no-tools",
        )
    if scaffold.agent.turns:
        with contextlib.closing(prepare_sandbox(domain, task, backend)) as sandbox:
            for key in scaffold.agent.turns:
                find("turns", key).try_sandbox(sandbox)
    if scaffold.agent.action != "tools" or not (scaffold.agent.mcp or extras(domain).servers(task)):
        return {}
    with contextlib.closing(prepare_sandbox(domain, task, backend)) as sandbox:
        furnish(sandbox, scaffold, redact(task.prompt, acted_on=True))
        place = Workplace(scaffold, task, domain)
        place.open_functions(sandbox)
        return place.functions


def executable(text: str) -> bytes:
    """Return a tool as it lies in the sandbox: with a first line that says what runs it, and no
    ends of lines as Windows has them, with which the kernel finds no such program."""
    text = text.replace("\r\n", "\n")
    return (text if text.startswith("#!") else "#!/usr/bin/env python3\n" + text).encode("utf-8")


def _run(sandbox: Sandbox, command: str | Sequence[str], **how: Any) -> Output:
    output = sandbox.run(command, **how)
    expect(isinstance(output, Output), sandbox, "run", output)
    return _masked(output)


def _masked(output: Output) -> Output:
    """Return what a command printed as it is seen, told and stored: without keys."""
    text = redact(output.text, acted_on=True)
    return output if text == output.text else output.model_copy(update={"text": text})
