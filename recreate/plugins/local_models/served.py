"""A model behind an inference server of its own: `local:NAME`, `local:/FILE.gguf` and
`vllm:FOLDER_OR_HUB_NAME`.

The server is started by the first call, asked through `recreate.models.openai`, shared by all
models of this process that want the same one, and stopped with the last of them or, in whatever
way, with this process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recreate.api.errors import Fault, Transient
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply
from recreate.models.openai import OpenAI
from recreate.models.pricing import FREE
from recreate.plugins.local_models import catalog
from recreate.plugins.local_models.server import (
    DRAFT,
    MOST_SLOTS,
    Engine,
    Launch,
    ServeConfig,
    Server,
    cores,
    plan,
)
from recreate.plugins.local_models.settings import LocalModels
from recreate.storage.download import Progress

TIMEOUT_SECONDS = 1800.0
"""For one reply: a small machine is slow, and with many callers a request first waits in the
server."""

DYING_SECONDS = 5.0
"""A server that was killed closes its connections before its tree has ended."""

Say = Callable[[str], None]


class ServedModel:
    """What `plan(what, config)` says is served, under the name `name`."""

    price: Price | None = FREE
    native_tools = (
        False  # a server may offer them; what it makes of them depends on model and flags
    )

    def __init__(
        self, name: str, what: str, config: ServeConfig, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        self.name = name
        self.config = config
        self.timeout = timeout
        self._what = what
        self._running: tuple[Server, OpenAI] | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def server(self) -> Server | None:
        """The one that answers now; None before the first call and after the last."""
        return self._running[0] if self._running else None

    def prepare(self, progress: Progress | None = None, say: Say | None = None) -> None:
        """Fetch the weights where needed and start the server: `reply` does it too, but shows no
        progress."""
        self._up(progress, say)

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer; see `recreate.api.ports.Model`. A server that died is started anew by the
        next call."""
        try:
            server, client = self._up()
        except Fault as e:
            e.unspent = True
            raise
        params.setdefault("timeout", self.timeout)
        if self.config.draft:  # llama.cpp says 0 of every token that was proposed
            params = {
                name: value
                for name, value in params.items()
                if name not in ("logprobs", "top_logprobs")
            }
        try:
            return client.reply(messages, call, **params).model_copy(update={"model": self.name})
        except Transient as e:
            if server.alive(DYING_SECONDS):
                raise
            text = (
                f"the {server.launch.engine} server of {self.name} ended with status"
                f" {server.status()}"
            )
            text += server.last_words()
            with self._lock:
                if self.server is server:
                    self._end()
            raise Transient(
                text,
                fix=(
                    "the next call starts it again; if it goes on, is there enough memory for the"
                    " model?"
                ),
                code="server-died",
            ) from e

    def close(self) -> None:
        """Let go of the server: the last model that asks it stops it."""
        with self._lock:
            self._closed = True
            self._end()

    def _up(
        self, progress: Progress | None = None, say: Say | None = None
    ) -> tuple[Server, OpenAI]:
        with self._lock:
            if self._closed:
                raise Fault(f"{self.name} was closed", fix="open it again", code="closed")
            if self._running is None:
                self._running = self._start(progress, say)
            return self._running

    def _start(
        self, progress: Progress | None = None, say: Say | None = None
    ) -> tuple[Server, OpenAI]:
        server = _share(self._what, self.config, progress, say)
        return server, OpenAI(
            f"{server.url}#{server.launch.name}", price=FREE, key_env="", key=server.key
        )

    def _end(self) -> None:
        if self._running is not None:
            server, client = self._running
            self._running = None
            client.close()
            _release(server)


class Local(ServedModel):
    """A .gguf file, or a model of the catalogue, by llama.cpp. jobs: how many callers there will
    be; threads: 0 for all cores; context: tokens per request; parallel: requests served at once
    (default: as many as `jobs`, up to MOST_SLOTS)."""

    def __init__(
        self,
        what: str | Path,
        *,
        jobs: int = 1,
        threads: int = 0,
        context: int | None = None,
        parallel: int | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        file, tokens, entry = catalog.locate(str(what))
        config = ServeConfig(
            engine="xllamacpp",
            context=context or tokens,
            threads=max(1, threads or cores()),
            parallel=max(1, parallel or min(jobs, MOST_SLOTS)),
            draft=DRAFT,
        )
        super().__init__(f"local:{what}", f"local:{entry or file}", config, timeout)


class VLLM(ServedModel):
    """A model, a run of tune or one of its checkpoints, by vLLM: no dependency, but in this
    environment or in the one that `--vllm-python` or RECREATE_VLLM_PYTHON names. context: tokens of
    a prompt and its reply, 0 for the model's.
    """

    engine: Engine = "vllm"

    def __init__(
        self,
        what: str,
        *,
        timeout: float = TIMEOUT_SECONDS,
        local_models: LocalModels | None = None,
        context: int | None = None,
    ) -> None:
        python = local_models.vllm_python if local_models else ""
        config = ServeConfig(engine=self.engine, vllm_python=python, context=context or 0)
        super().__init__(f"vllm:{what}", what, config, timeout)
        plan(what, config)  # what is wrong with it is said before anything is spent

    def prepare(self, progress: Progress | None = None, say: Say | None = None) -> None:
        """Start the server: `reply` does it too."""
        if say is not None:
            say(f"starting {self.engine} for {self.name}; this may take minutes")
        super().prepare(progress, say)


def started(launch: Launch) -> Server:
    """A server that answers. Raises Fault (`server-died`, `server-slow`), and leaves nothing behind
    then."""
    server = Server(launch)
    try:
        server.wait()
    except BaseException:
        server.stop()
        raise
    return server


_servers: dict[tuple[str, ServeConfig], Server] = {}
_lock = threading.Lock()


def _share(what: str, config: ServeConfig, progress: Progress | None, say: Say | None) -> Server:
    """One more user of the server that runs, or a new one."""
    with _lock:
        server = _servers.get((what, config))
        if server is not None and server.alive():
            server.users += 1
        else:
            server = _servers[what, config] = started(plan(what, config, say, progress))
        return server


def _release(server: Server) -> None:
    with _lock:
        server.users -= 1
        if server.users > 0:
            return
        for key in [key for key, other in _servers.items() if other is server]:
            del _servers[key]
    server.stop()
