"""An agent that is Python of the user's own, in this process: `action = "python:MODULE:NAME"`.

It is handed a desk: the task's words, its texts as they stand now, the task's sandbox, and its
model. Only texts are edited, never code: what a model writes runs in sandboxes alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import site
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recreate.agents.progress import AttemptProgress
from recreate.agents.trajectory import cut_middle
from recreate.agents.workplace import prepare_sandbox
from recreate.api.errors import BadInput, RecreateError
from recreate.api.ports import Agent, Sandbox
from recreate.api.registry import need
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.theirs import expect
from recreate.api.types import Ending, Message, Output, Reply
from recreate.plugins.foreign.conversation import Conversation
from recreate.plugins.foreign.dialects import ChatCompletions
from recreate.plugins.foreign.gateway import MODEL, Denied, Gateway
from recreate.storage.redact import redact

SAID = 4000
"""Characters of what an agent raised that the last step holds."""
_NOT_ITS_OWN = (
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    *site.getsitepackages(),
    str(Path(__file__).parents[2]),
)
"""Where libraries lie, and we."""
_given: JsonDict = {}


def give(action: str, agent: Any) -> str:
    """Keep an agent that no import finds, for as long as this process lives: the action that names
    it."""
    name = action
    n = 2
    while _given.get(name, agent) is not agent:
        name = f"{action}.{n}"
        n = n + 1
    _given[name] = agent
    return name


def find_agent(action: str) -> Callable[[Any], Any]:
    """What attempts a task for an action. Raises BadInput (`no-agent`, `misfit`,
    `not-importable`)."""
    agent: Any = _given.get(action)
    if agent is None:
        _, module, path = action.split(":")
        agent = need(module)
        for part in path.split("."):
            agent = getattr(agent, part, None)
        if agent is None:
            raise BadInput(
                f"{module} has no {path}",
                fix=(
                    "an agent that a script made is there when the script runs: go on with the same"
                    " script"
                ),
                code="no-agent",
            )
    if isinstance(agent, type):
        agent = agent()
    if isinstance(agent, Agent):
        return agent.attempt
    if callable(agent):
        return agent  # type: ignore[no-any-return]
    raise BadInput(
        f"{action.removeprefix('python:')} is no agent: it has no attempt(desk), and cannot be"
        " called",
        fix="def attempt(self, desk): ... returns what it hands in",
        code="misfit",
    )


def wait_for(value: Any) -> Any:
    """What a coroutine gives, in a loop of its own; any other value as it is."""
    if not inspect.isawaitable(value):
        return value

    async def result() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(result())
    with ThreadPoolExecutor(1) as pool:  # this thread has a loop already
        return pool.submit(asyncio.run, result()).result()


class OpenDesk:
    """A `recreate.api.ports.Desk`."""

    def __init__(self, talk: Conversation, sandbox: Sandbox, gateway: Gateway) -> None:
        agent = talk.work.scaffold
        self.prompt = talk.prompt
        self.texts: Mapping[str, str] = {
            p: t for p, t in agent.files.items() if agent.agent.declares(p)
        }
        self.sandbox: Sandbox = _Recorded(sandbox, talk)
        self.model = MODEL
        self._talk = talk
        self._gateway = gateway

    @property
    def base_url(self) -> str:
        if not self._gateway.port:
            self._gateway.on_loopback()
        return f"http://127.0.0.1:{self._gateway.port}/v1"

    @property
    def api_key(self) -> str:
        return self._gateway.key or (self.base_url and self._gateway.key)

    def ask(self, messages: Sequence[Message | JsonMap], **params: Any) -> Reply:
        if isinstance(messages, str) or not all(isinstance(m, Mapping) for m in messages):
            raise BadInput(
                f"no messages: {messages!r}"[:200],
                fix='desk.ask([{"role": "user", "content": "..."}])',
                code="bad-messages",
            )
        asked = ChatCompletions().read({"messages": [dict(m) for m in messages], **params})
        with self._gateway.line:
            return self._talk.turn(asked.messages, asked.params, asked.left_out)


class _Recorded:
    """A sandbox whose commands stand in the trace, and print no keys."""

    def __init__(self, inner: Sandbox, talk: Conversation) -> None:
        self.backend = inner.backend
        self._inner = inner
        self._talk = talk

    def run(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None
    ) -> Output:
        talk = self._talk
        left = max(0.1, talk.work.limits.ends - time.monotonic())
        most = talk.work.agent.limits.command_seconds if timeout is None else timeout
        output = self._inner.run(command, timeout=min(most, left), stdin=stdin)
        output = output.model_copy(update={"text": redact(output.text, acted_on=True)})
        talk.ran(command if isinstance(command, str) else " ".join(command), output)
        return output

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._inner.write(path, data, mode)

    def read(self, path: str) -> bytes:
        return self._inner.read(path)

    def close(self) -> None:
        """The attempt closes it."""


def attempt_here(work: AttemptProgress, stop: threading.Event | None) -> tuple[Ending, str, str]:
    """(ending, limit, what is handed in) of an agent that is Python."""
    attempt = find_agent(work.agent.action)
    talk = Conversation(work, stop=stop)
    said = ""
    answer: Any = None
    with Gateway(talk.answer, lambda: talk.end("flood")) as gateway:
        sandbox = prepare_sandbox(work.domain, work.task, work.backend)
        try:
            began = time.monotonic()
            try:
                answer = wait_for(attempt(OpenDesk(talk, sandbox, gateway)))
            except RecreateError as e:
                if talk.failed is None and not isinstance(e, BadInput):
                    raise
                said = f"{type(e).__name__}: {e.message}"
            except (Exception, SystemExit, asyncio.CancelledError) as e:
                said = _describe_error(e)
            with gateway.line:
                talk.over = talk.over or "ended"
                talk.flush()
            if talk.failed is not None:
                raise talk.failed
            if answer is not None and not isinstance(answer, str):
                said = (
                    f"attempt(desk) gave {type(answer).__name__}: it gives a text, or None for what"
                    " is in the sandbox"
                )
                answer = None
            why = [
                f"[the gateway could not pass on: {text}]" for text in sorted(gateway.refused)[:5]
            ]
            work.note(
                kind="ended",
                action=work.agent.action,
                output=cut_middle(redact("\n".join(filter(None, [*why, said]))), SAID),
                status=int(bool(said)),
                seconds=time.monotonic() - began,
            )
            if answer is None:
                answer = work.domain.collect(work.task, sandbox)
                expect(isinstance(answer, str), work.domain, "collect", answer)
            return *_ending(talk, said), answer
        finally:
            with contextlib.suppress(RecreateError):
                sandbox.close()


def _ending(talk: Conversation, said: str) -> tuple[Ending, str]:
    if talk.over in ("steps", "tokens", "usd", "seconds"):
        return "limit", talk.over
    if talk.over == "flood":
        return "error", "flood"
    if talk.refused and (said or not talk.turns):
        return talk.refused
    if said:
        return "error", "exit"
    return ("submitted", "") if talk.turns else ("error", "no-calls")


def _describe_error(error: BaseException) -> str:
    """What was raised, and the innermost line of the agent's own that it came from; where there is
    none, of what it called."""
    if isinstance(error, Denied):
        return error.message
    every = traceback.extract_tb(error.__traceback__)
    frames = [f for f in every if not f.filename.startswith(_NOT_ITS_OWN)] or every
    at = f" ({frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {error}{at}"
