"""A foreign agent at one task: attempt_foreign(...) -> Trace, like one of ours.

`action = "command"`: a program that speaks to an OpenAI- or Anthropic-style endpoint. It runs in
the task's sandbox, whose only way out is the gateway; there is no key inside. In the sandbox:

    /work/.recreate/agent      the agent's files, as they stand now         /gateway    the
                               gateway's socket
    /work/.recreate/task.md    the task's words                             127.0.0.1:8484    the
                               same, relayed

Each request is a step: what is new in its messages, the reply, the tools that it calls. What came
of them is what the next request brings. The last step, of the kind `ended`, is what the program
printed, and its exit status.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from recreate.agents.progress import AskAgent, AttemptProgress, FullParams, steps_log
from recreate.agents.retrieval import LessonRetrieval
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import cut_middle
from recreate.agents.workplace import prepare_sandbox
from recreate.api.errors import Interrupted
from recreate.api.ports import Domain, Sandbox, SandboxBackend
from recreate.api.theirs import expect
from recreate.api.types import Call, Ending, Output, Step, Task, Trace
from recreate.plugins.foreign.conversation import Conversation
from recreate.plugins.foreign.gateway import MODEL, SOCKET, Gateway
from recreate.plugins.foreign.in_process import attempt_here
from recreate.plugins.foreign.surroundings import furnished, places
from recreate.storage.redact import redact

FILES = ".recreate/agent"
TASK = ".recreate/task.md"
LAUNCHER = ".recreate/launcher.py"
INSIDE = "/gateway"
PORT = 8484
KEY = "recreate"
"""What stands where clients want a key: the gateway does not look at it."""
PRINTED = 4000
"""Characters of what a command printed that the last step holds."""
_LEFT = "\n[... {} characters left out here ...]\n"

# its list of prices is fetched otherwise, from an address that is not here
ENV = {
    "OPENAI_BASE_URL": "{base_url}/v1",
    "OPENAI_API_BASE": "{base_url}/v1",
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_BASE_URL": "{base_url}",
    "ANTHROPIC_API_BASE": "{base_url}",
    "ANTHROPIC_API_KEY": KEY,
    "LITELLM_LOCAL_MODEL_COST_MAP": ("True"),
    "NO_PROXY": "127.0.0.1,localhost",
    "PYTHONPATH": "{agent}",
    "PYTHONDONTWRITEBYTECODE": "1",
    "RECREATE_PROMPT_FILE": "{prompt_file}",
    "RECREATE_AGENT": "{agent}",
}
"""What every command gets; agent.toml's `env` goes before it."""


@cache
def _launcher() -> bytes:
    return (files("recreate.plugins.foreign") / "launcher.py").read_bytes()


def attempt_foreign(
    scaffold: Scaffold,
    task: Task,
    domain: Domain,
    backend: SandboxBackend,
    ask: AskAgent,
    call: Call,
    *,
    model: str = "",
    folder: Path | None = None,
    on_step: Callable[[Step], None] | None = None,
    offers: LessonRetrieval | None = None,
    full: FullParams = dict,
    stop: threading.Event | None = None,
    **_: Any,
) -> Trace:
    """As `recreate.agents.attempt.attempt`, for an agent that is somebody else's. stop: the run is
    being stopped, which an agent that asks no model would not notice."""
    work = AttemptProgress(
        scaffold, task, domain, backend, ask, call, steps_log(folder), on_step, offers, full=full
    )
    with contextlib.closing(work):
        ending, limit, answer = (_command if work.agent.action == "command" else attempt_here)(
            work, stop
        )
    return work.trace(model, ending, limit, answer)


def _command(work: AttemptProgress, stop: threading.Event | None) -> tuple[Ending, str, str]:
    """(ending, limit, what is handed in) of an agent that is a command."""
    agent = work.agent
    talk = Conversation(work, stop=stop)
    with Gateway(talk.answer, lambda: talk.end("flood")) as gateway:
        talk.halt = gateway.stop
        listens = gateway.on_socket()
        walls = work.backend.name != "none"
        inside = INSIDE if walls else str(listens)
        mounts, path = places(agent)
        backend = furnished(work.backend, {inside: listens, **mounts}, agent.limits.seconds)
        sandbox = prepare_sandbox(work.domain, work.task, backend)
        try:
            _furnish(sandbox, work, talk.prompt)
            told = {
                "socket": f"{inside}/{SOCKET}",
                "port": PORT if walls else 0,
                "command": agent.command.replace("{model}", MODEL),
                "env": {**ENV, **agent.env},
                "path": path,
                "files": {"prompt_file": TASK, "agent": FILES},
            }
            with _watching(stop, talk):
                output = sandbox.run(
                    ["python3", "-I", "-S", LAUNCHER, json.dumps(told)], timeout=_seconds_left(work)
                )
            # a call may be under way, of an agent that did not wait for it: it is paid, and belongs
            # to the trace
            with gateway.line:
                talk.over = talk.over or "ended"
                talk.flush()
            if talk.failed is not None:
                raise talk.failed
            ending, limit = _ending(talk, output)
            work.note(
                kind="ended",
                action=agent.command,
                output=cut_middle(
                    _explained(output, gateway, talk), PRINTED, _LEFT, dropped=output.cut
                ),
                status=output.status,
                seconds=output.seconds,
            )
            answer = work.domain.collect(work.task, sandbox)
            expect(isinstance(answer, str), work.domain, "collect", answer)
            return ending, limit, answer
        finally:
            sandbox.close()


def _seconds_left(work: AttemptProgress) -> float:
    return max(1.0, work.limits.ends - time.monotonic())


def _furnish(sandbox: Sandbox, work: AttemptProgress, prompt: str) -> None:
    for path, text in work.scaffold.files.items():
        runs = path.endswith((".sh", ".py")) or text.startswith("#!")
        sandbox.write(f"{FILES}/{path}", text.encode("utf-8", "replace"), 0o755 if runs else 0o644)
    sandbox.write(TASK, prompt.encode("utf-8", "replace"))
    sandbox.write(LAUNCHER, _launcher())


class _watching:
    """While a command runs: has the agent stopped when the run is."""

    def __init__(self, stop: threading.Event | None, talk: Conversation) -> None:
        self.stop = stop
        self.talk = talk
        self.done = threading.Event()

    def __enter__(self) -> None:
        if self.stop is not None:
            threading.Thread(
                target=self._watch, args=(self.stop,), daemon=True, name="stopping"
            ).start()

    def __exit__(self, *_: object) -> None:
        self.done.set()

    def _watch(self, stop: threading.Event) -> None:
        while not self.done.wait(0.5):
            if stop.is_set():
                self.talk.failed = self.talk.failed or Interrupted("stopped")
                self.talk.end("stopped")
                return


def _ending(talk: Conversation, output: Output) -> tuple[Ending, str]:
    """How an attempt of a command ended: see recreate/plugins/foreign/README.md."""
    if talk.over in ("steps", "tokens", "usd", "seconds"):
        return "limit", talk.over
    if talk.over == "flood":
        return "error", "flood"
    if output.timed_out:
        return "limit", "seconds"
    if output.limit:
        return "limit", output.limit
    if talk.refused and (output.status or not talk.turns):
        return talk.refused
    if not talk.turns and talk.work.agent.calls != "own":
        return "error", "no-calls"
    if output.status:
        return "error", "exit"
    return "submitted", ""


def _explained(output: Output, gateway: Gateway, talk: Conversation) -> str:
    """What the command printed, and before it what the gateway knows of why it failed."""
    why = [f"[the gateway could not pass on: {text}]" for text in sorted(gateway.refused)[:5]]
    why += [f"[its model refused its last request: {talk.why}]"] * bool(talk.refused)
    if not (talk.turns or why or talk.work.agent.calls == "own"):
        why.append(
            "[it made no request to its model: the sandbox has no network, so it must take the"
            " address of its endpoint from OPENAI_BASE_URL or ANTHROPIC_BASE_URL, or be told"
            " {base_url} in its command]"
        )
    return redact("\n".join([*why, output.text]))
