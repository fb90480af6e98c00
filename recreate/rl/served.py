"""Rollouts by a server: the model under training answers through vLLM, its adapter loaded anew after each update."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recreate.errors import BadInput, Transient
from recreate.models.openai import OpenAI
from recreate.models.price import FREE
from recreate.models.serve import Engine, Launch, Server, plan
from recreate.models.transformers import Transformers
from recreate.ports import Price
from recreate.types import Call, Message, Reply

ADAPTER = "policy"


class Served:
    """Answers as `base` would, from a server of its own that `update` keeps at the newest adapter. Many requests at
    once. A server that died is started again by the next call; the attempt that lost it is begun anew."""

    price: Price | None = FREE
    native_tools = False

    def __init__(
        self, base: Transformers, folder: Path, engine: Engine, say: Callable[[str], None] = lambda text: None
    ) -> None:
        self.base, self.folder, self.say = base, folder, say
        self.name = base.name
        self._engine = engine
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._client: OpenAI | None = None

    def update(self, module: Any) -> None:
        """Answer with this module's adapter from now on. Raises BadInput for a module without one."""
        if not hasattr(module, "disable_adapter"):
            raise BadInput(
                "a server takes adapters only, and this recipe trains all weights",
                fix="set [train] lora_rank above 0, or take --rollouts here",
                code="no-adapter",
            )
        new = self.folder.with_name(f".{self.folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        module.save_pretrained(new)
        self.base.load()[1].save_pretrained(new)
        shutil.rmtree(self.folder, ignore_errors=True)
        new.rename(self.folder)
        with self._lock:
            if self._server is None or not self._server.alive():
                self._start()
            else:
                self._server.load(ADAPTER, self.folder)

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer, with the tokens that the server drew. Raises Transient (`server-died`) when it is gone."""
        with self._lock:
            if self._server is None:
                self._start()
            server, client = self._server, self._client
        assert server is not None
        assert client is not None
        override = dict(self.base.override)
        client.extra = {"top_k": override.pop("top_k", 0) or -1}
        asked = {**params, **override, "logprobs": True, "return_token_ids": True}
        try:
            reply = client.reply(messages, call, **asked)
        except Transient as e:
            if server.alive():
                raise
            with self._lock:
                if self._server is server:
                    self._end()
            raise Transient(
                f"the {server.launch.engine} server ended in mid-rollout",
                fix="it is started again; if it goes on, is there enough memory for it?",
                code="server-died",
            ) from e
        return reply.model_copy(update={"tokenizer_digest": self.base.tokenizer_digest, "model": self.name})

    def close(self) -> None:
        with self._lock:
            self._end()

    @property
    def pid(self) -> int:
        """The server's process, 0 while there is none."""
        return self._server.pid if self._server else 0

    def _start(self) -> None:
        self._end()
        self.say(f"starting a server for rollouts ({self._engine})")
        launch: Launch = plan(self.base.source, engine=self._engine, share=0.4)
        server = Server(launch)
        try:
            server.wait()
            server.load(ADAPTER, self.folder)
        except BaseException:
            server.stop()
            raise
        self._server, self._client = server, OpenAI(f"{server.url}#{ADAPTER}", price=FREE, key_env="")

    def _end(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._server is not None:
            self._server.stop()
        self._server = self._client = None
