"""Stands in for verl's rollout servers where no accelerator is: the tiny model by transformers, in
a Ray actor.

Its module does not import verl: a process that is made for it would then load verl's plugins in the
middle of this one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import torch


class Server:
    """A rollout server: the tiny model, with the weights that the trainer sent last."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.end = AutoTokenizer.from_pretrained(folder).eos_token_id
        self.step, self.updates = None, 0

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        ids, told = list(prompt_ids), []
        with torch.no_grad():
            for _ in range(sampling_params["max_tokens"]):
                logits = self.module(input_ids=torch.tensor([ids])).logits[0, -1]
                logp = (logits / sampling_params["temperature"]).log_softmax(-1)
                taken = int(torch.multinomial(logp.exp(), 1))
                ids.append(taken)
                told.append(float(logp[taken]))
                if taken == self.end:
                    break
                await asyncio.sleep(0)
        from verl.workers.rollout.replica import TokenOutput

        made = ids[len(prompt_ids) :]
        extra = {"global_steps": self.step}
        return TokenOutput(
            token_ids=made, log_probs=told, stop_reason="completed", extra_fields=extra
        )

    async def load(self, weights: dict[str, torch.Tensor], step: int | None) -> None:
        self.module.load_state_dict(weights, strict=False)
        self.step, self.updates = step, self.updates + 1

    async def wake_up(self, **_: Any) -> None: ...
    async def sleep(self, **_: Any) -> None: ...
    async def clear_kv_cache(self) -> None: ...
