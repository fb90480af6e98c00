"""Published functions that no recipe of ours uses: parity compares them with their stored outputs, tests use them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recreate.rl.recipe import PolicyLoss


def sapo(ratio: Tensor, advantages: Tensor, *, positive: float = 1.0, negative: float = 1.05) -> PolicyLoss:
    """-A 4/tau sigmoid(tau (rho - 1)), tau by the sign of A: a soft gate in place of the clip. TRL's `sapo`."""
    tau = torch.where(advantages > 0, positive, negative)
    none = torch.zeros_like(advantages, dtype=torch.bool).expand_as(ratio)
    return PolicyLoss(-torch.sigmoid(tau * (ratio - 1)) * 4 / tau * advantages, none, none)


def vespo(
    log_change: Tensor,
    advantages: Tensor,
    log_prob: Tensor,
    mask: Tensor,
    *,
    k: tuple[float, float] = (2.0, 3.0),
    rate: tuple[float, float] = (3.0, 2.0),
) -> PolicyLoss:
    """-sg[phi(w)] A log pi, phi(w) = e^rate w^k e^(-rate w), w the row's whole ratio. TRL's `vespo`.

    k and rate: (where A >= 0, where A < 0).
    """
    lowest = -18.420680743952367  # ln 1e-8, as published
    log_w = (log_change.clamp(-20, 20) * mask).sum(-1, keepdim=True).clamp(lowest, 20).detach()
    up = advantages >= 0
    power, decay = torch.where(up, k[0], k[1]), torch.where(up, rate[0], rate[1]).clamp(min=1e-4)
    weight = (decay + power * log_w - decay * log_w.exp()).exp().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    none = torch.zeros_like(log_prob, dtype=torch.bool)
    return PolicyLoss(-weight * advantages * log_prob, none, none)


class Cartography(NamedTuple):
    """confidence: mean over epochs; variability: population std over epochs; correctness: share of epochs right."""

    confidence: float
    variability: float
    correctness: float


def cartography(per_epoch: Sequence[float], threshold: float = 0.5) -> Cartography:
    """Of a task's mean reward in each epoch; an epoch is right at `threshold` or more. Swayamdipta et al. 2020."""
    if not per_epoch:
        return Cartography(0.0, 0.0, 0.0)
    return Cartography(
        statistics.fmean(per_epoch),
        statistics.pstdev(per_epoch),
        sum(v >= threshold for v in per_epoch) / len(per_epoch),
    )


def mixture_log_prob(log_probs: Tensor, mix_ids: Tensor, mix: Tensor) -> Tensor:
    """sum_k z_k log pi_k: log-softmax (B,T,V) of the raw logits, mixtures (B,T,K) -> (B,T).

    Raw: without the sampling temperature, as released. The token pass gives the same without (B,T,V).
    """
    return (mix * log_probs.gather(-1, mix_ids)).sum(-1)


def edit_similarity(answer: str, truth: str) -> tuple[bool, float]:
    """(equal, 1 - Levenshtein / the longer length) over characters, ends stripped; two empty texts are equal.

    GAPO, equation 2, and its code_edit_reward.py: the paper's reward is the mean of the two.
    """
    a, b = answer.strip(), truth.strip()
    longest = max(len(a), len(b))
    return a == b, 1.0 - _distance(a, b) / longest if longest else 1.0


def _distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]
