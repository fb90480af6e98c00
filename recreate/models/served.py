"""`vllm:FOLDER_OR_HUB_NAME`: a model, a run of tune or one of its checkpoints, by a vLLM server of its own.

The server is started by the first call, asked through `recreate.models.openai`, and stopped with this object or, in
whatever way, with this process. vLLM is no dependency: it is in this environment, or in the one that `vllm_python` or
RECREATE_VLLM_PYTHON names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from recreate.api.errors import Fault, Transient
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply
from recreate.models.launch import Engine, ServeConfig, plan
from recreate.models.openai import OpenAI
from recreate.models.pricing import FREE
from recreate.models.server import Server

DYING_SECONDS = 5.0
"""A server that was killed closes its connections before its tree has ended."""


class VLLM:
    """timeout: seconds to wait for one reply. context: tokens of a prompt and its reply, 0 for the model's."""

    price: Price | None = FREE
    native_tools = False  # whether a served model calls tools depends on flags that nobody has set
    engine: Engine = "vllm"

    def __init__(
        self,
        what: str,
        *,
        price: Price | None = None,
        timeout: float = 1800.0,
        vllm_python: str = "",
        context: int | None = None,
    ) -> None:
        self.name = f"vllm:{what}"
        self.timeout = timeout
        self._what = what
        self._wish = ServeConfig(
            engine=self.engine,
            vllm_python=vllm_python,
            context=context or 0,
        )
        plan(what, self._wish)  # what is wrong with it is said before anything is spent
        self._lock = threading.Lock()
        self._running: tuple[Server, OpenAI] | None = None
        self._closed = False

    def prepare(self, progress: Any = None, say: Callable[[str], None] | None = None) -> None:
        """Start the server: `reply` does it too."""
        if say is not None:
            say(f"starting {self.engine} for {self.name}; this may take minutes")
        self._up()

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer; see `recreate.api.ports.Model`. A server that died is started anew by the next call."""
        server, client = self._up()
        params.setdefault("timeout", self.timeout)
        try:
            return client.reply(messages, call, **params).model_copy(update={"model": self.name})
        except Transient as e:
            if server.alive(DYING_SECONDS):
                raise
            said = server.last_words()
            with self._lock:
                if self._running and self._running[0] is server:
                    self._end()
            raise Transient(
                f"the server of {self.name} ended{said}",
                fix="the next call starts it again; if it goes on, is there enough memory for the model?",
                code="server-died",
            ) from e

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._end()

    def _up(self) -> tuple[Server, OpenAI]:
        with self._lock:
            if self._closed:
                raise Fault(f"{self.name} was closed", fix="open it again", code="closed")
            if self._running is None:
                launch = plan(self._what, self._wish)
                server = Server(launch)
                try:
                    server.wait()
                except BaseException:
                    server.stop()
                    raise
                self._running = server, OpenAI(f"{server.url}#{launch.name}", price=FREE, key_env="")
            return self._running

    def _end(self) -> None:
        if self._running is not None:
            server, client = self._running
            self._running = None
            client.close()
            server.stop()
