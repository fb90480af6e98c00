"""The loss of a token from its ratio and its advantage: what is clipped, and where the gradient goes.

All are of degree 1 in the advantage, so a weight on the loss is a weight on the advantage (arXiv 2509.04419's
stabilisation mask, and what lets STEER and A2R weigh tokens and rows).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Surrogate(NamedTuple):
    """loss (B,T), to be minimised, and where it was clipped: at the range's high or low end, or by the dual clip."""

    loss: Tensor
    clipped: Tensor
    dual: Tensor


def clip(
    ratio: Tensor,
    advantages: Tensor,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
    cap: float | None = None,
) -> Surrogate:
    """max(-rho A, -clip(rho, 1 - low, 1 + high) A): (B,T) -> (B,T). PPO, arXiv 1707.06347; high > low is DAPO's.

    dual: where A < 0, at most -dual A (arXiv 1912.09729; verl's clip_ratio_c). cap: the unclipped ratio is at most
    this (TRL's delta).
    """
    free = -advantages * (ratio if cap is None else ratio.clamp(max=cap))
    held = -advantages * ratio.clamp(1 - low, 1 + high)
    loss = torch.maximum(free, held)
    clipped = held > free
    if dual is None:
        return Surrogate(loss, clipped, torch.zeros_like(clipped))
    bound = -advantages * dual
    negative = advantages < 0
    return Surrogate(torch.where(negative, torch.minimum(bound, loss), loss), clipped, (loss > bound) & negative)


def cispo(
    ratio: Tensor, advantages: Tensor, log_prob: Tensor, *, lowest: float = 0.0, highest: float = 1.28
) -> Surrogate:
    """-sg[clip(rho, lowest, highest)] A log pi: every token keeps a gradient. MiniMax-M1, arXiv 2506.13585, (4)."""
    held = ratio.clamp(lowest, highest)
    clipped = held != ratio
    return Surrogate(-held.detach() * advantages * log_prob, clipped, torch.zeros_like(clipped))


def sapo(ratio: Tensor, advantages: Tensor, *, positive: float = 1.0, negative: float = 1.05) -> Surrogate:
    """-A 4/tau sigmoid(tau (rho - 1)), tau by the sign of A: a soft gate in place of the clip. TRL's `sapo`."""
    tau = torch.where(advantages > 0, positive, negative)
    none = torch.zeros_like(advantages, dtype=torch.bool).expand_as(ratio)
    return Surrogate(-torch.sigmoid(tau * (ratio - 1)) * 4 / tau * advantages, none, none)


def vespo(
    log_change: Tensor,
    advantages: Tensor,
    log_prob: Tensor,
    mask: Tensor,
    *,
    k: tuple[float, float] = (2.0, 3.0),
    rate: tuple[float, float] = (3.0, 2.0),
) -> Surrogate:
    """-sg[phi(w)] A log pi, phi(w) = e^rate w^k e^(-rate w), w the row's whole ratio. TRL's `vespo`.

    k and rate: (where A >= 0, where A < 0).
    """
    lowest = -18.420680743952367  # ln 1e-8, as published
    log_w = (log_change.clamp(-20, 20) * mask).sum(-1, keepdim=True).clamp(lowest, 20).detach()
    up = advantages >= 0
    power, decay = torch.where(up, k[0], k[1]), torch.where(up, rate[0], rate[1]).clamp(min=1e-4)
    weight = (decay + power * log_w - decay * log_w.exp()).exp().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    none = torch.zeros_like(log_prob, dtype=torch.bool)
    return Surrogate(-weight * advantages * log_prob, none, none)


def log_likelihood(advantages: Tensor, log_prob: Tensor) -> Surrogate:
    """-A log pi, no ratio and no clip: REINFORCE; with A = 1, supervised training. arXiv 2509.04419, table 1."""
    none = torch.zeros_like(log_prob, dtype=torch.bool)
    return Surrogate(-advantages * log_prob, none, none)
