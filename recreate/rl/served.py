"""Rollouts by a server: the model under training answers through vLLM, its adapter loaded anew after each update."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput, Fault, Transient
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply
from recreate.models.launch import Engine, ServeConfig, adapter_config, plan
from recreate.models.openai import OpenAI
from recreate.models.pricing import FREE
from recreate.models.served import DYING_SECONDS
from recreate.models.server import Server
from recreate.models.transformers import Transformers

TIMEOUT_SECONDS = 1800.0
"""For one reply: with many callers a request first waits in the server."""


class Served:
    """Answers as `base` would, from a server of its own that `update` keeps at the newest adapter. Many requests at
    once. A server that died is started again by the next call, and the calls that lost it are asked again."""

    price: Price | None = FREE
    native_tools = False

    def __init__(
        self,
        base: Transformers,
        folder: Path,
        engine: Engine,
        say: Callable[[str], None] = lambda text: None,
        *,
        vllm_python: str = "",
    ) -> None:
        self.base, self.folder, self.say = base, folder, say
        self.name = base.name
        self._engine, self._python = engine, vllm_python
        self._lock = threading.Lock()
        self._version = 0
        self._running: tuple[Server, OpenAI] | None = None

    @property
    def override(self) -> Mapping[str, Any]:
        return self.base.override

    def update(self, module: Any) -> None:
        """Answer with this module's adapter from now on. No request may be under way. A server that died is started.

        Raises BadInput for a module without one.
        """
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
            if self._running is None or not self._running[0].alive():
                self._start()
                return
            server, old = self._running
            try:
                server.unload(old.model)
                self._running = server, self._load(server)
                old.close()
            except Fault:
                if server.alive(DYING_SECONDS):
                    raise
                self._start()

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer, with the tokens that the server drew. Raises Transient (`server-died`) when it is gone, BadInput
        (`other-tokens`, `no-tokens`) when it reads the messages as other tokens than the trainer, or tells none: a
        fault would set those attempts aside and train on the rest; BadInput (`context-length`)."""
        prompt = self.base.encode(messages)
        asked = {"timeout": TIMEOUT_SECONDS, **params, **self.base.override, "logprobs": True, "return_token_ids": True}
        asked["max_tokens"] = self.base.room(prompt, asked.get("max_tokens"))
        asked.pop("top_k", None)  # in `extra`: no parameter of OpenAI's
        with self._lock:
            if self._running is None:
                self._start()
            assert self._running is not None
            server, client = self._running
        try:
            reply = client.reply(messages, call, **asked)
        except Transient as e:
            if server.alive(DYING_SECONDS):
                raise
            with self._lock:
                if self._running and self._running[0] is server:
                    self._end()
            raise Transient(
                f"the {server.launch.engine} server ended in mid-rollout{server.last_words()}",
                fix="it is started again; if it goes on, is there enough memory for it?",
                code="server-died",
            ) from e
        told = reply.token_ids, reply.logprobs, reply.prompt_ids
        if None in told or len(reply.token_ids or ()) != len(reply.logprobs or ()):
            raise BadInput(
                f"the {server.launch.engine} server does not tell its tokens and their log-probs",
                fix="take vLLM 0.32 or newer, or --rollouts here",
                code="no-tokens",
            )
        if list(reply.prompt_ids or ()) != prompt:
            raise BadInput(
                f"the {server.launch.engine} server reads the messages as other tokens than the trainer",
                fix="are tokenizer and chat template of its transformers the same? else take --rollouts here",
                code="other-tokens",
            )
        return reply.model_copy(update={"tokenizer_digest": self.base.tokenizer_digest, "model": self.name})

    def close(self) -> None:
        with self._lock:
            self._end()

    @property
    def pid(self) -> int:
        """The server's process, 0 while there is none."""
        return self._running[0].pid if self._running else 0

    def _start(self) -> None:
        self._end()
        self.say(f"starting a server for rollouts ({self._engine})")
        module, _ = self.base.load()
        wish = ServeConfig(
            engine=self._engine,
            vllm_python=self._python,
            context=self.base.context,
            share=0.4,  # the trainer is on the same GPU
            dtype=str(module.dtype).removeprefix("torch."),
            rank=int(adapter_config(self.folder).get("r", 0)),
            raw=self.base.override.get("temperature") in (None, 0, 1),
        )
        server = Server(plan(self.base.source, wish))
        try:
            server.wait()
            self._running = server, self._load(server)
        except BaseException:
            server.stop()
            raise

    def _load(self, server: Server) -> OpenAI:
        """A client of the newest adapter, which gets a name of its own."""
        self._version += 1
        name = f"policy-{self._version}"
        server.load(name, self.folder)
        # as `base` draws and says it: top_k 0 is all, and a stop mark is part of the answer
        extra = {"top_k": self.base.override.get("top_k") or -1, "include_stop_str_in_output": True}
        return OpenAI(f"{server.url}#{name}", price=FREE, key_env="", extra=extra)

    def _end(self) -> None:
        if self._running is not None:
            server, client = self._running
            self._running = None
            client.close()
            server.stop()
