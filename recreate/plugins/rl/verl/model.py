"""The model under training, answered by verl's rollout servers: tokens in, tokens out."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from recreate.api.errors import BadInput, RecreateError, Transient
from recreate.api.ports import Price
from recreate.api.shapes import JsonDict
from recreate.api.types import Call, Message, Reply
from recreate.models.pricing import FREE
from recreate.plugins.local_models.transformers import encode, room, tokenizer_digest

Generate = Callable[..., Coroutine[Any, Any, Any]]
"""verl's `LLMServerClient.generate(request_id, prompt_ids=, sampling_params=)` -> TokenOutput."""


class Rolled:
    """One attempt's model. `reply` is called from the attempt's thread; the servers are asked on
    verl's event loop.

    name: the model as it stands, the step included. context: tokens of prompt and reply together.
    longest: of one reply. steps: which versions of the weights answered, as verl counts them.
    """

    price: Price | None = FREE
    native_tools = False

    def __init__(
        self,
        name: str,
        tokenizer: Any,
        generate: Generate,
        loop: asyncio.AbstractEventLoop,
        *,
        sampling: JsonDict,
        context: int,
        longest: int,
        request: str,
        template: JsonDict | None = None,
    ) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.generate = generate
        self.loop = loop
        self.sampling = sampling
        self.context = context
        self.longest = longest
        self.request = request
        self.template = template or {}
        self.steps: list[int] = []
        self.digest = tokenizer_digest(tokenizer)
        self._ends = {e for e in (tokenizer.eos_token_id,) if e is not None}

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        """One answer, sampled as the recipe says, whatever the scaffold asks for. Raises BadInput
        (`context-length`, `no-tokens`), Transient for what the servers raise; a call that is wrong
        by itself raises what it raises.
        """
        begun = time.perf_counter()
        with _TOKENIZER:
            prompt = encode(self.tokenizer, messages, "the model", self.template)
        most = min(self.longest, room(self.context, len(prompt), self.name, fix=_SHORTER))
        asked = {**self.sampling, "max_tokens": most, "logprobs": True}
        try:
            out = asyncio.run_coroutine_threadsafe(
                self.generate(self.request, prompt_ids=list(prompt), sampling_params=asked),
                self.loop,
            ).result()
        except (TypeError, AttributeError, AssertionError, RecreateError):
            raise  # a mistake in a program is not mended by another try
        except Exception as e:  # whatever else Ray and the engine raise
            raise Transient(
                f"verl's rollout servers gave no answer: {type(e).__name__}: {e}"[:500],
                fix=_LOGS,
                code="server-died",
            ) from e
        ids = [int(i) for i in out.token_ids]
        if out.stop_reason == "aborted" or not ids:
            raise Transient(
                "verl's rollout servers broke an answer off", fix=_LOGS, code="server-died"
            )
        if out.log_probs is None or len(out.log_probs) != len(ids):
            raise BadInput(
                "verl's rollout servers tell no log-probs",
                fix="set actor_rollout_ref.rollout.calculate_log_probs=True",
                code="no-tokens",
            )
        version = out.extra_fields.get("global_steps")
        self.steps += [int(v) for v in (version,) if v is not None]
        with _TOKENIZER:
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return Reply(
            text=text,
            model=self.name,
            finish="length" if len(ids) >= most and ids[-1] not in self._ends else "stop",
            tokens_in=len(prompt),
            tokens_out=len(ids),
            latency=time.perf_counter() - begun,
            token_ids=tuple(ids),
            logprobs=tuple(float(p) for p in out.log_probs),
            tokenizer_digest=self.digest,
            prompt_ids=tuple(prompt),
        )

    def close(self) -> None:
        """Nothing is held."""


_TOKENIZER = threading.Lock()
"""A tokenizer of transformers sets its padding and truncation while it works: one thread at a
time."""
_SHORTER = "give the agent fewer steps or shorter observations, or raise [train] max_prompt"
_LOGS = "`ray logs` shows what the servers said; run.sh goes on from the last checkpoint"
