"""The likelihood ratio between the policy that learns and the one that acted, per token or per row.

`compat=True` leaves what stands under the mask alone, as the published code does; ours reads no masked value, so a NaN
there reaches neither the loss nor a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


def token_ratio(
    log_prob: Tensor, old_log_prob: Tensor, mask: Tensor, *, limit: float | None = 20.0, compat: bool = False
) -> Tensor:
    """exp(clamp(l - l_old, +-limit)): (B,T) -> (B,T). GRPO, arXiv 2402.03300; limit is verl's, None is TRL."""
    change = log_change(log_prob, old_log_prob, mask, compat=compat)
    return (change if limit is None else change.clamp(-limit, limit)).exp()


def sequence_ratio(
    log_prob: Tensor,
    old_log_prob: Tensor,
    mask: Tensor,
    *,
    limit: float | None = 10.0,
    straight: bool = True,
    compat: bool = False,
) -> Tensor:
    """exp of the row's mean log change, on each of its tokens: (B,T) -> (B,T). GSPO, arXiv 2507.18071, equation 7.

    straight: each token carries the gradient of its own log-prob (equation 14, GSPO-token, and verl); otherwise the
    mean's gradient (TRL). Under one clip and one aggregate the two give the same gradient. A row without tokens
    counts as one token long.
    """
    change = log_change(log_prob, old_log_prob, mask, compat=compat)
    mean = (change * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    if straight:
        own = log_prob if compat else torch.where(mask.bool(), log_prob, 0.0)
        mean = own - own.detach() + mean.detach()
    else:
        mean = mean.expand_as(log_prob)
    return (mean if limit is None else mean.clamp(max=limit)).exp()


def log_change(log_prob: Tensor, old_log_prob: Tensor, mask: Tensor, *, compat: bool = False) -> Tensor:
    """l - l_old, 0 outside the mask: (B,T)."""
    change = log_prob - old_log_prob
    return change if compat else torch.where(mask.bool(), change, 0.0)
