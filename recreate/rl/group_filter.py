"""Which rows reach an update."""

from __future__ import annotations

import torch
from torch import Tensor

from recreate.rl.groups import Groups


def dynamic_sampling(metric: Tensor, groups: Groups, *, tolerance: float = 1e-6, compat: bool = False) -> Tensor:
    """(B,) bool: rows of groups whose metric varies. DAPO, arXiv 2503.14476, equation 11; verl's dapo recipe.

    metric: (B,) the unshaped score. A group is kept when its range exceeds `tolerance`, or when it has one row (it
    cannot vary); dropped when a value is NaN. compat: when the population std by numpy in float64 is above 0, so that
    0.1 + 0.2 beside 0.3 is kept, and so may be equal values whose mean is rounded.
    """
    if compat:
        import numpy as np

        kept = torch.zeros(groups.size, dtype=torch.bool)
        values, index = metric.double().numpy(), groups.index.numpy()
        for g in range(groups.size):
            own = values[index == g]
            kept[g] = len(own) == 1 or (len(own) > 1 and float(np.std(own)) > 0)
        return kept[groups.index]
    size = (groups.size,)
    top = torch.full(size, -torch.inf, dtype=metric.dtype, device=metric.device)
    low = torch.full(size, torch.inf, dtype=metric.dtype, device=metric.device)
    top.scatter_reduce_(0, groups.index, metric, "amax")
    low.scatter_reduce_(0, groups.index, metric, "amin")
    varies = (top - low > tolerance) | (groups.count == 1)
    return (varies & ~groups.any(~metric.isfinite()))[groups.index]


def successes(rewards: Tensor, *, threshold: float = 1.0) -> Tensor:
    """(B,) bool: rows whose reward is at least `threshold`; NaN is none. What supervised training is made of."""
    return rewards >= threshold


def enough(kept: Tensor, groups: Groups, prompts: int) -> Tensor:
    """(B,) bool: of the rows kept, those of the first `prompts` groups, by first appearance (DAPO's truncation)."""
    index = groups.index[kept]
    seen = list(dict.fromkeys(index.tolist()))[:prompts]
    chosen = torch.zeros(groups.size, dtype=torch.bool, device=kept.device)
    chosen[torch.tensor(seen, dtype=torch.long, device=kept.device)] = True
    return kept & chosen[groups.index]
