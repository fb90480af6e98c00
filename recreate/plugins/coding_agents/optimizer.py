"""The optimizer `cli:NAME` or `cli:COMMAND`: a coding agent of somebody else's in the folder of
the plug-in workbench.

Its requests to a model go through the gateway, which holds the key and is its only way out: each is
a call of the run, reserved under the budget. With a seat (`seat = true`) it asks its provider
itself: then nothing is booked, its provider's hosts alone are reached, and its cost is told in
turns and minutes.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from recreate.api.config import Config
from recreate.api.errors import BadInput, Fault
from recreate.api.shapes import JsonDict
from recreate.api.types import Reply, Usage
from recreate.optimizers.context import OptimizerContext
from recreate.plugins.coding_agents.known import KNOWN, CodingAgent
from recreate.plugins.coding_agents.programs import find_program, inside, mounts_of, program_of
from recreate.plugins.coding_agents.seat import SeatGateway, deny
from recreate.plugins.foreign.dialects import Asked
from recreate.plugins.foreign.foreign import ENV
from recreate.plugins.foreign.gateway import MODEL, SOCKET, Denied, Gateway
from recreate.plugins.workbench.optimizer import Workbench
from recreate.plugins.workbench.session import FolderWorker, Workroom
from recreate.storage.redact import redact

GATEWAY = "/gateway"
PORT = 8484
PRINTED = 4000
KEPT_APART = ("OPENAI", "ANTHROPIC")
"""Variables of ENV that name the gateway as an endpoint: an agent with a seat has its own."""


class CodingAgentSettings(Config):
    """Of a coding agent as the optimizer.

    minutes   how long a session may take
    seat      it asks its provider by a login of its own, and not through the gateway
    hosts     hosts that it reaches then, besides those of its provider; by name, port 443
    login     the folder of the host that has its login, mounted read-only
    """

    minutes: float = Field(default=60, gt=0, le=1440)
    seat: bool = False
    hosts: tuple[str, ...] = ()
    login: str = ""


class CodingAgentOptimizer(Workbench):
    """Made by `named`: agent is what is run."""

    Config: ClassVar = CodingAgentSettings
    name: ClassVar[str] = ""
    agent: ClassVar[CodingAgent] = CodingAgent("", "")

    def __init__(self, context: OptimizerContext) -> None:
        super().__init__(context)
        self.settings: CodingAgentSettings = context.settings or CodingAgentSettings()
        self.program = find_program(self.name, self.agent.command)

    @classmethod
    def named(cls, text: str) -> type[CodingAgentOptimizer]:
        """Return the optimizer of a known coding agent, or of a command. Raises BadInput, and
        Missing where it is not installed."""
        if not text.strip():
            raise BadInput(
                "cli: names no coding agent",
                fix=f"cli:{', cli:'.join(KNOWN)} or 'cli:COMMAND {{prompt_file}}'",
                code="unknown-optimizer",
            )
        agent = KNOWN.get(text) or CodingAgent(text, "")
        find_program(text, agent.command)
        return type("CodingAgentOptimizer", (cls,), {"name": text, "agent": agent})

    @property
    def mounts(self) -> dict[str, Path]:
        """What its sandbox sees besides: its program, files that its command names, its login."""
        mounts, self.path = mounts_of(self.program)
        words = map(Path, shlex.split(self.agent.command)[1:])
        mounts |= {str(word): word for word in words if word.is_absolute() and word.is_file()}
        if self.settings.seat and (login := self.settings.login):
            there = Path(login).expanduser()
            if not there.is_dir():
                raise BadInput(f"login: {login} is no folder", fix="name the folder of its login")
            mounts[f"/work/.home/{self.agent.login or there.name}"] = there
        return mounts

    @property
    def worker(self) -> FolderWorker:
        """Who works in the folder."""
        return self.run

    def run(self, room: Workroom) -> tuple[str, str]:
        """Let the coding agent work in a folder. Returns how it ended, and by what."""
        talk = GatewayTalk(room)
        hosts = (*self.agent.hosts, *self.settings.hosts)
        seat = self.settings.seat
        gateway = SeatGateway(deny, hosts) if seat else Gateway(talk.answer, talk.flood)
        began = time.monotonic()
        with gateway:
            talk.halt = gateway.stop
            listens = gateway.on_socket()
            sandbox = room.open({GATEWAY: listens, **self.mounts})
            try:
                output = self._start(room, sandbox, listens)
            finally:
                with gateway.line:
                    talk.over = talk.over or "ended"
        if room.desk.failed is not None:
            raise room.desk.failed
        if talk.failed is not None:
            raise talk.failed
        room.note(self.agent.command, redact(output.text)[-PRINTED:], output.status)
        minutes = round((time.monotonic() - began) / 60, 1)
        used = talk.usage if talk.usage.calls else Usage(seconds=time.monotonic() - began)
        actions = {"request": talk.usage.calls} if talk.usage.calls else {}
        room.study = room.study.model_copy(update={"usage": used, "actions": actions})
        if room.desk.result:
            return "finished", ""
        if talk.over in ("steps", "tokens", "usd"):
            return "limit", talk.over
        if output.timed_out:
            return "limit", f"minutes ({minutes:g})"
        return "prose", self._explain(output.status, output.text)

    def _explain(self, status: int, printed: str) -> str:
        last = " ".join(redact(printed).split())[-300:]
        return f"its command ended with status {status} and never called finish: {last}"

    def _start(self, room: Workroom, sandbox: Any, listens: Path) -> Any:
        walls = sandbox.backend != "none"
        launcher = (files("recreate.plugins.foreign") / "launcher.py").read_bytes()
        sandbox.write(".launcher.py", launcher)
        for path, text in self.agent.files.items():
            sandbox.write(f".home/{path}", text.encode())
        env = {**ENV, **self.agent.env, "HOME": "{home}"}
        if self.settings.seat:
            env = {k: v for k, v in env.items() if not k.startswith(KEPT_APART)}
            env |= {"HTTPS_PROXY": "{base_url}", "https_proxy": "{base_url}"}
        command = self.agent.command.replace(
            program_of(self.agent.command), shlex.quote(str(inside(self.program))), 1
        )
        told: JsonDict = {
            "socket": f"{GATEWAY if walls else listens}/{SOCKET}",
            "port": PORT if walls else 0,
            "command": command.replace("{model}", MODEL),
            "env": {k: v for k, v in env.items() if "{agent}" not in v},
            "path": os.pathsep.join([room.bin, *self.path]),
            "files": {"prompt_file": "TASK.md", "home": ".home"},
        }
        # the launcher fills in places in the command and the environment; files of HOME are filled
        # in here, by the address that it listens at
        fill = f"sed -i 's#{{base_url}}#http://127.0.0.1:{PORT}#; s#{{model}}#{MODEL}#g'"
        if self.agent.files:
            sandbox.run(f"cd .home && {fill} {' '.join(self.agent.files)}")
        launched = ["python3", "-I", "-S", ".launcher.py", json.dumps(told)]
        return room.run(sandbox, launched, self.settings.minutes * 60)


class GatewayTalk:
    """The model calls of a session, each at its address in the run's journal, within
    `--study.steps`, `.tokens` and `.usd`."""

    def __init__(self, room: Workroom) -> None:
        self.room = room
        self.usage = Usage()
        self.over = ""
        self.failed: BaseException | None = None
        self.halt: Callable[[], None] = lambda: None

    def answer(self, asked: Asked) -> tuple[Reply, str]:
        """Return the reply to a request, and what its id is made of. Raises Denied."""
        limits, usage = self.room.context.limits, self.usage
        if self.room.desk.result:  # nothing that it says now counts, and nothing is paid for it
            return Reply(text="It is handed in, and the session is over."), "over"
        if not self.over:
            reached = {
                "steps": usage.calls >= limits.steps,
                "tokens": usage.tokens_in + usage.tokens_out >= limits.tokens,
                "usd": usage.usd >= limits.usd,
            }
            self.over = next((name for name, is_so in reached.items() if is_so), "")
        if self.over:
            self.halt()
            raise Denied(f"the session is over: {self.over}", 429)
        thread, step = self.room.study.id, usage.calls
        try:
            reply = self.room.context.ask(asked.messages, step=step, thread=thread, **asked.params)
        except (BadInput, Fault) as e:
            if e.code in ("context-length", "refused-request", "filtered"):
                raise Denied(e.message, 400, e.code) from None
            self._fail(e)
        except BaseException as e:  # it is raised again when the command has ended
            self._fail(e)
        self.usage = usage + Usage.of(reply)
        return reply, f"{thread}-{step}"

    def flood(self) -> None:
        """End a session whose agent sent what cannot be passed on, again and again."""
        self.over = self.over or "flood"
        self.halt()

    def _fail(self, error: BaseException) -> Any:
        self.failed = error
        self.over = "stopped"
        self.halt()
        raise Denied("the run was stopped", 503, "stopped") from None
