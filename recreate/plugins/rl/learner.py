"""The model under training: its passes over samples, the gradient of a mini-batch, the
optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recreate.api.errors import Fault
from recreate.api.registry import need
from recreate.api.shapes import JsonDict
from recreate.plugins.rl.logprobs import TokenPass, plain_pass, token_pass
from recreate.plugins.rl.method import Method
from recreate.plugins.rl.parts.lepo import mixture_embeds
from recreate.plugins.rl.recipe import Tokens
from recreate.plugins.rl.samples import Padded, Sample, column, padded

SKIPPED = 10
"""So many updates in a row that were no numbers end the run."""


class ForwardPass(NamedTuple):
    """Of one pass over padded samples, (B,T); mixture: sum_k z_k log pi_k where a latent step is,
    else None."""

    tokens: TokenPass
    mixture: Tensor | None


@dataclass
class MiniBatch:
    """One optimiser step: its samples (none: no update), SimPO's pairs among them, and afterwards
    its loss. skipped: it was not made, since its loss or gradient is no number."""

    samples: Sequence[Sample] = ()
    pairs: Sequence[tuple[int, int]] = ()
    loss: float = 0.0
    skipped: bool = False
    watch: dict[str, float] = field(default_factory=dict)


class Learner:
    """micro_batch: sequences in one pass; halved, for good, when the memory does not hold them:
    say(text) tells it.

    module: a causal LM of transformers, or PEFT's wrapper of one: the reference is then the model
    without its adapter. reference: a frozen copy for a module without an adapter.
    """

    def __init__(
        self,
        module: Any,
        method: Method,
        *,
        micro_batch: int = 4,
        pad: int = 0,
        reference: Any = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.module = module
        self.method = method
        self.pad = pad
        self.reference = reference
        self.say = say
        self.micro_batch = max(1, micro_batch)
        self.temperature = method.recipe.train.temperature
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        train = method.recipe.train
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=train.rate, weight_decay=train.weight_decay, foreach=False
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda n: min(1.0, (n + 1) / (train.warmup_steps + 1))
        )
        cuda = self.device.type == "cuda"
        self.accelerator = need("accelerate").Accelerator(cpu=not cuda, mixed_precision="no")
        if cuda:
            if hasattr(module, "disable_adapter"):
                module.enable_input_require_grads()
            module.gradient_checkpointing_enable()
        self._chunked: bool | None = None
        self._skipped = 0

    @property
    def device(self) -> torch.device:
        found: torch.device = self.module.device
        return found

    # passes

    def see(self, batch: Padded, module: Any = None) -> ForwardPass:
        """Log-probs, entropy and square of a batch's response tokens, with gradient where it is
        on."""
        module = self.module if module is None else module
        inputs: JsonDict = {
            "attention_mask": batch.attention,
            "position_ids": batch.positions,
            "use_cache": False,
        }
        if batch.latent is None or batch.mix is None or batch.mix_ids is None:
            inputs["input_ids"] = batch.ids
        else:
            table = module.get_input_embeddings()
            embeds = table(batch.ids).detach().clone()
            made = mixture_embeds(
                table.weight, batch.mix_ids[batch.latent], batch.mix[batch.latent]
            )
            embeds[:, batch.width :][batch.latent] = made.to(embeds.dtype)
            inputs["inputs_embeds"] = embeds
        if self._chunked is None:
            self._chunked = self._same(module, inputs, batch)
        at = slice(batch.width - 1, -1)
        if self._chunked:
            hidden = self._hidden(module, inputs)[:, at]
            head = module.get_output_embeddings()
            weight = head.weight
            bias = getattr(head, "bias", None)
            seen = token_pass(
                hidden, weight, batch.response, bias=bias, temperature=self.temperature
            )
            mixture = None
            if batch.latent is not None:
                # as published: without the sampling temperature
                mixture = token_pass(
                    hidden, weight, batch.mix_ids, bias=bias, mix=batch.mix
                ).log_prob
            return ForwardPass(seen, mixture)
        logits = module(**inputs).logits[:, at]
        mixture = (
            plain_pass(logits, batch.mix_ids, mix=batch.mix).log_prob
            if batch.latent is not None
            else None
        )
        return ForwardPass(
            plain_pass(logits, batch.response, temperature=self.temperature), mixture
        )

    def measure(self, samples: Sequence[Sample], *, keep_old: bool = False) -> None:
        """Fill in `old`, `entropy`, `square` and `ref` from a pass without gradient.

        keep_old: replayed samples keep theirs, and what the policy says now goes to `sampled`.
        """
        self.module.eval()
        while True:
            try:
                return self._measure(samples, keep_old)
            except torch.OutOfMemoryError:
                self._smaller()

    def _measure(self, samples: Sequence[Sample], keep_old: bool) -> None:
        with torch.no_grad():
            for part in self._parts(samples):
                batch = padded(part, self.device, self.pad)
                seen = self.see(batch).tokens
                ref = self._refer(batch)
                for n, s in enumerate(part):
                    t = len(s.response)
                    s.entropy = seen.entropy[n, :t].cpu()
                    s.square = seen.square[n, :t].cpu()
                    if not keep_old:
                        s.old = seen.log_prob[n, :t].cpu()
                    s.ref = None if ref is None else ref[n, :t].cpu()
                    s.sampled = seen.log_prob[n, :t].cpu() if keep_old else s.sampled

    def _refer(self, batch: Padded) -> Tensor | None:
        if self.reference is not None:
            return self.see(batch, self.reference).tokens.log_prob
        if not hasattr(self.module, "disable_adapter"):
            return None
        with self.module.disable_adapter():
            return self.see(batch).tokens.log_prob

    # gradient

    def update(self, batch: MiniBatch) -> None:
        """One optimiser step, which fills in the mini-batch's `loss` and `watch`. Without samples
        only the schedule moves; so it does where loss or gradient is no number, which is said.
        Raises Fault (`loss-not-finite`) when that was so SKIPPED times in a row. The parameters are
        then as they were."""
        norm = 0.0
        if batch.samples:
            batch.loss, batch.watch = self.gradient(batch.samples, pairs=batch.pairs)
            norm = float(
                self.accelerator.clip_grad_norm_(
                    self.parameters, self.method.recipe.train.max_grad_norm
                )
            )
        if math.isfinite(batch.loss) and math.isfinite(norm):
            self.optimizer.step()
            self._skipped = 0 if batch.samples else self._skipped
        else:
            batch.skipped = True
            self._skip(batch.loss, norm)
        self.schedule.step()
        self.forget()

    def _skip(self, loss: float, norm: float) -> None:
        self._skipped += 1
        what = (
            f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
        )
        if self._skipped >= SKIPPED:
            self.forget()
            raise Fault(
                f"{what}, for the {SKIPPED}th time in a row: no update was made from any of them",
                fix=(
                    "lower [train] learning_rate (--set train.lr=...); the checkpoint before it is"
                    " whole"
                ),
                code="loss-not-finite",
            )
        self.say(f"{what}, so this update is skipped")

    def gradient(
        self, samples: Sequence[Sample], *, pairs: Sequence[tuple[int, int]] = ()
    ) -> tuple[float, dict[str, float]]:
        """Add a mini-batch's gradient to the parameters: (its loss, what to watch).

        Where the memory runs out the mini-batch is begun anew with smaller micro-batches: the
        gradient is the same but for rounding, since each is divided by the whole's counts.
        """
        self.module.train()
        while True:
            try:
                return self._gradient(samples, pairs)
            except torch.OutOfMemoryError:
                self.forget()
                self._smaller()

    def forget(self) -> None:
        """Drop the gradient."""
        for p in self.parameters:
            p.grad = None

    def _smaller(self) -> None:
        if self.micro_batch == 1:
            raise Fault(
                "the memory does not hold one sequence and its gradient",
                fix="lower [train] max_prompt and max_response, or take a smaller model",
                code="memory",
            ) from None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.micro_batch //= 2
        self.say(f"the memory is full: going on with micro-batches of {self.micro_batch}")

    def _gradient(
        self, samples: Sequence[Sample], pairs: Sequence[tuple[int, int]]
    ) -> tuple[float, dict[str, float]]:
        total = 0.0
        watch = dict[str, float]()
        all_tokens = float(sum(int(s.mask.sum()) for s in samples))
        rows = float(sum(bool(s.mask.any()) for s in samples))
        extent = self._extent(samples)
        for part, mates in self._micro_batches(samples, pairs):
            batch = padded(part, self.device, self.pad)
            seen = self.see(batch)
            tokens = replace(
                self._tokens(part, batch, seen, extent), tokens=all_tokens, rows=rows, pairs=mates
            )
            loss = self.method.loss(tokens)
            value = loss.value
            if mates is not None:
                value = value * (len(mates) / max(1, len(pairs)))
            self.accelerator.backward(value)
            total += float(value.detach())
            share = float(batch.mask.sum()) / max(1.0, all_tokens)
            for name, x in loss.watch.items():
                watch[name] = watch.get(name, 0.0) + float(x) * share
        return total, watch

    def _micro_batches(
        self, samples: Sequence[Sample], pairs: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[Sequence[Sample], Tensor | None]]:
        if not pairs:
            for part in self._parts(samples):
                yield part, None
            return
        most = max(1, self.micro_batch // 2)
        for at in range(0, len(pairs), most):
            some = pairs[at : at + most]
            flat = [samples[i] for pair in some for i in pair]
            yield flat, torch.arange(len(flat), device=self.device).view(-1, 2)

    def _parts(self, samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
        for at in range(0, len(samples), self.micro_batch):
            yield samples[at : at + self.micro_batch]

    def _extent(self, samples: Sequence[Sample]) -> Any:
        """What token weights are relative to where that is wider than a micro-batch (STEER's
        scope)."""
        part = self.method.recipe.does("token weight")
        if part is None or not part.wide:
            return None
        found = []
        with torch.no_grad():
            for some in self._parts(samples):
                batch = padded(some, self.device, self.pad)
                found.append(self.method.extent(self._tokens(some, batch, self.see(batch), None)))
        return self.method.joined(found)

    def _tokens(
        self, part: Sequence[Sample], batch: Padded, seen: ForwardPass, extent: Any
    ) -> Tokens:
        d = self.device
        weights = torch.tensor([s.weight for s in part], device=d)
        return Tokens(
            log_prob=seen.tokens.log_prob,
            advantages=column(part, "advantages", d),
            mask=batch.mask,
            old_log_prob=column(part, "old", d),
            ref_log_prob=column(part, "ref", d) if part[0].ref is not None else None,
            entropy=column(part, "entropy", d),
            square=column(part, "square", d),
            importance_weight=weights if any(s.replayed for s in part) else None,
            latent=batch.latent,
            mixture=seen.mixture,
            extent=extent,
        )

    # the two ways to a log-prob

    @staticmethod
    def _hidden(module: Any, inputs: JsonDict) -> Tensor:
        base = module.get_base_model() if hasattr(module, "get_base_model") else module
        out: Tensor = base.base_model(**inputs).last_hidden_state
        return out

    def _same(self, module: Any, inputs: JsonDict, batch: Padded) -> bool:
        """Whether the LM head is a plain product: some models scale or cap their logits, and need
        the plain pass."""
        with torch.no_grad():
            some = {k: v[:1] if isinstance(v, Tensor) else v for k, v in inputs.items()}
            try:
                hidden = self._hidden(module, some)[0, -1:]
                head = module.get_output_embeddings()
                ours = torch.nn.functional.linear(
                    hidden, head.weight, getattr(head, "bias", None)
                ).float()
            except (AttributeError, TypeError):
                return False
            theirs = module(**some).logits[0, -1:].float()
            same = ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2)
        return bool(same)
