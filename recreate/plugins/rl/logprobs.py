"""Log-prob, entropy and what STEER needs of each token, from hidden states, without the (B,T,V)
logits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_BYTES = 128 * 2**20
"""What one chunk of float32 logits may hold."""


class TokenPass(NamedTuple):
    """Of N tokens, float32 (float64 where the hidden states are). entropy in nats, of the whole
    distribution.

    log_prob  sum_k z_k log p_k: of the taken token, or of a mixture
    square    sum_b p_b^2 (ln p_b + H), for STEER's full form; without gradient
    """

    log_prob: Tensor
    entropy: Tensor
    square: Tensor


def token_pass(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    mix: Tensor | None = None,
    temperature: float = 1.0,
    chunk: int = 0,
) -> TokenPass:
    """hidden (..., d), the LM head's weight (V,d) and bias (V,), targets (...) or with `mix`
    (...,K) -> each (...).

    Logits are made for `chunk` tokens at a time (0: CHUNK_BYTES worth) and made again in the
    backward pass, so the peak is O(chunk x V) in place of O(B x T x V), for one more matrix
    product. Gradients of log_prob and entropy reach hidden, weight and bias. Products are in the
    inputs' dtype, the softmax in float32.
    """
    shape = hidden.shape[:-1]
    flat = hidden.reshape(-1, hidden.shape[-1])
    ids = targets.reshape(-1, 1) if mix is None else targets.reshape(-1, targets.shape[-1])
    z = None if mix is None else mix.reshape(-1, mix.shape[-1])
    size = chunk or max(1, CHUNK_BYTES // (4 * weight.shape[0]))
    log_prob, entropy, square = _Pass.apply(flat, weight, bias, ids, z, 1.0 / temperature, size)
    return TokenPass(log_prob.view(shape), entropy.view(shape), square.view(shape))


def plain_pass(
    logits: Tensor, targets: Tensor, *, mix: Tensor | None = None, temperature: float = 1.0
) -> TokenPass:
    """The same from whole logits (...,V): what the chunked pass is tested against, and enough for
    small models."""
    logp = (
        (logits.float() if logits.dtype.itemsize < 4 else logits).div(temperature).log_softmax(-1)
    )
    p = logp.exp()
    ids = targets.unsqueeze(-1) if mix is None else targets
    taken = logp.gather(-1, ids)
    log_prob = taken.squeeze(-1) if mix is None else (mix * taken).sum(-1)
    entropy = -(p * torch.where(p > 0, logp, 0.0)).sum(-1)
    with torch.no_grad():
        square = (p.square() * (torch.where(p > 0, logp, 0.0) + entropy.unsqueeze(-1))).sum(-1)
    return TokenPass(log_prob, entropy, square)


class _Pass(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        ids: Tensor,
        mix: Tensor | None,
        scale: float,
        size: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        log_prob, entropy, square = (hidden.new_empty(len(hidden), dtype=wide) for _ in range(3))
        for at in _chunks(len(hidden), size):
            logp = _log_probs(hidden[at], weight, bias, scale)
            log_prob[at], entropy[at], square[at] = _statistics(
                logp, ids[at], None if mix is None else mix[at]
            )
        ctx.save_for_backward(hidden, weight, bias, ids, mix)
        ctx.scale, ctx.size = scale, size
        ctx.mark_non_differentiable(square)
        return log_prob, entropy, square

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, ids, mix = ctx.saved_tensors
        by_log_prob, by_entropy = grads[0], grads[1]
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
        to_hidden = torch.empty_like(hidden) if needs_hidden else None
        to_weight = torch.zeros_like(weight, dtype=wide) if needs_weight else None
        to_bias = torch.zeros_like(bias, dtype=wide) if needs_bias and bias is not None else None
        for at in _chunks(len(hidden), ctx.size):
            logp = _log_probs(hidden[at], weight, bias, ctx.scale)
            p = logp.exp()
            a, e = by_log_prob[at].unsqueeze(1), by_entropy[at].unsqueeze(1)
            z = torch.ones_like(ids[at], dtype=p.dtype) if mix is None else mix[at].to(p.dtype)
            finite = torch.where(p > 0, logp, 0.0)
            entropy = -(p * finite).sum(-1, keepdim=True)
            # d log_prob = z - p sum z, d entropy = -p (ln p + H)
            step = p * -(a * z.sum(-1, keepdim=True) + e * (finite + entropy))
            step.scatter_add_(1, ids[at], a * z)
            step *= ctx.scale
            step = step.to(hidden.dtype)
            if to_hidden is not None:
                to_hidden[at] = step @ weight
            if to_weight is not None:
                to_weight += (step.t() @ hidden[at]).to(wide)
            if to_bias is not None:
                to_bias += step.sum(0).to(wide)
        return (
            to_hidden,
            None if to_weight is None else to_weight.to(weight.dtype),
            None if to_bias is None else to_bias.to(bias.dtype),
            None,
            None,
            None,
            None,
        )


def _chunks(n: int, size: int) -> list[slice]:
    return [slice(i, i + size) for i in range(0, n, size)]


def _log_probs(hidden: Tensor, weight: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return (logits.float() if logits.dtype.itemsize < 4 else logits).mul_(scale).log_softmax(-1)


def _statistics(logp: Tensor, ids: Tensor, mix: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    p = logp.exp()
    taken = logp.gather(1, ids)
    log_prob = taken.squeeze(1) if mix is None else (mix.to(logp.dtype) * taken).sum(1)
    surprise = p * torch.where(p > 0, logp, 0.0)
    entropy = -surprise.sum(1)
    return log_prob, entropy, (p * surprise).sum(1) + entropy * p.square().sum(1)
