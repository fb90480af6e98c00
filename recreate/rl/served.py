"""Rollouts by a server: the model under training answers through vLLM, its adapter loaded anew after each update."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput, Fault
from recreate.api.types import Call, Message, Reply
from recreate.models.openai import OpenAI
from recreate.models.pricing import FREE
from recreate.models.served import DYING_SECONDS, ServedModel, started
from recreate.models.server import Engine, ServeConfig, Server, adapter_config, plan
from recreate.models.transformers import Transformers
from recreate.storage.download import Progress


class Served(ServedModel):
    """Answers as `base` would, from a server of its own that `update` keeps at the newest adapter. Many requests at
    once. A server that died is started again by the next call, and the calls that lost it are asked again."""

    def __init__(
        self,
        base: Transformers,
        folder: Path,
        engine: Engine,
        say: Callable[[str], None] = lambda text: None,
        *,
        vllm_python: str = "",
    ) -> None:
        super().__init__(base.name, base.source, ServeConfig(engine=engine, vllm_python=vllm_python))
        self.base, self.folder, self.say = base, folder, say
        self._version = 0

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
            if self._running is not None and self._running[0].alive():
                server, old = self._running
                try:
                    server.unload(old.model)
                    self._running = server, self._load(server)
                    old.close()
                    return
                except Fault:
                    if server.alive(DYING_SECONDS):
                        raise
            self._end()
            self._running = self._start()

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer, with the tokens that the server drew. Raises Transient (`server-died`) when it is gone, BadInput
        (`other-tokens`, `no-tokens`) when it reads the messages as other tokens than the trainer, or tells none: a
        fault would set those attempts aside and train on the rest; BadInput (`context-length`)."""
        prompt = self.base.encode(messages)
        asked = {**params, **self.base.override, "logprobs": True, "return_token_ids": True}
        asked["max_tokens"] = self.base.room(prompt, asked.get("max_tokens"))
        asked.pop("top_k", None)  # in `extra`: no parameter of OpenAI's
        reply = super().reply(messages, call, **asked)
        tokens = reply.token_ids, reply.logprobs, reply.prompt_ids
        if None in tokens or len(reply.token_ids or ()) != len(reply.logprobs or ()):
            raise BadInput(
                f"the {self.config.engine} server does not tell its tokens and their log-probs",
                fix="take vLLM 0.32 or newer, or --rollouts here",
                code="no-tokens",
            )
        if list(reply.prompt_ids or ()) != prompt:
            raise BadInput(
                f"the {self.config.engine} server reads the messages as other tokens than the trainer",
                fix="are tokenizer and chat template of its transformers the same? else take --rollouts here",
                code="other-tokens",
            )
        return reply.model_copy(update={"tokenizer_digest": self.base.tokenizer_digest})

    def _start(
        self, progress: Progress | None = None, say: Callable[[str], None] | None = None
    ) -> tuple[Server, OpenAI]:
        self.say(f"starting a server for rollouts ({self.config.engine})")
        module, _ = self.base.load()
        config = replace(
            self.config,
            context=self.base.context,
            share=0.4,  # the trainer is on the same GPU
            dtype=str(module.dtype).removeprefix("torch."),
            rank=int(adapter_config(self.folder).get("r", 0)),
            raw=self.base.override.get("temperature") in (None, 0, 1),
        )
        server = started(plan(self.base.source, config))
        try:
            return server, self._load(server)
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
