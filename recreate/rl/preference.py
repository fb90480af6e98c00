"""Losses on pairs of answers to one task."""

from __future__ import annotations

import torch
from torch import Tensor

from recreate.rl.groups import Groups


def pairs(rewards: Tensor, groups: Groups, *, margin: float = 0.0) -> Tensor:
    """(P,2) rows: each group's best and worst, where they differ by more than `margin`; the first row of equals."""
    found = []
    for rows in groups.blocks():
        scores = rewards[rows]
        best, worst = scores.argmax(1, keepdim=True), scores.argmin(1, keepdim=True)
        # a NaN is the greatest to argmax: its group makes no pair
        apart = scores.gather(1, best) - scores.gather(1, worst) > margin
        found.append(torch.cat([rows.gather(1, best), rows.gather(1, worst)], 1)[apart.squeeze(1)])
    return torch.cat(found) if found else torch.empty(0, 2, dtype=torch.long)


def simpo(
    log_prob: Tensor, mask: Tensor, chosen: Tensor, rejected: Tensor, *, beta: float = 2.0, margin: float = 1.0
) -> Tensor:
    """-log sigmoid(beta (mean log pi(chosen) - mean log pi(rejected)) - margin), mean over pairs: a scalar.

    log_prob and mask (B,T); chosen and rejected (P,) rows. SimPO, arXiv 2405.14734, equation 6: no reference model,
    lengths divided out. The paper: beta 2.0 to 2.5, margin 0.3 to 1.6. No pairs: 0.
    """
    kept = torch.where(mask.bool(), log_prob, 0.0).sum(-1) / mask.to(log_prob.dtype).sum(-1).clamp(min=1)
    if not len(chosen):
        return kept.sum() * 0
    return -torch.nn.functional.logsigmoid(beta * (kept[chosen] - kept[rejected]) - margin).mean()
