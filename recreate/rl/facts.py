"""What is known of a training step before its update: the columns of the curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import torch

from recreate.rl import penalty
from recreate.rl.rollout import Rollout
from recreate.rl.samples import Sample


def facts(groups: Sequence[Sequence[Rollout]], lived: Sequence[Rollout], fresh: Sequence[Sample]) -> dict[str, Any]:
    """Of the step's groups, the attempts of now among them, and their measured rows.

    reward, passed, limit, equal (groups without a range) are means in 0..1; length in tokens an attempt; entropy, kl
    (k3, to the reference) and sampler_gap in nats a token.
    """
    return {
        "reward": _mean([r.reward for r in lived]),
        "passed": _mean([float(r.experience.grade.passed) for r in lived]),
        "length": _mean([r.tokens for r in lived]),
        "limit": _mean([float(r.experience.trace.ending == "limit") for r in lived]),
        "attempts": len(lived),
        "equal": _mean([float(spread(g) <= 1e-6) for g in groups], none=1.0),
        "rows": len(fresh),
        "tokens": sum(int(s.mask.sum()) for s in fresh),
        "entropy": _token_mean(fresh, lambda s: s.entropy),
        "kl": _token_mean(fresh, _k3_to_reference),
        "sampler_gap": _token_mean(fresh, lambda s: (s.old - s.sampled).abs()),
    }


def spread(group: Sequence[Rollout]) -> float:
    """The range of its rewards."""
    rewards = [r.reward for r in group]
    return max(rewards) - min(rewards) if rewards else 0.0


def _mean(values: Sequence[float], none: float = 0.0) -> float:
    return fmean(values) if values else none


def _k3_to_reference(sample: Sample) -> torch.Tensor:
    assert sample.old is not None
    return torch.zeros_like(sample.old) if sample.ref is None else penalty.kl(sample.old, sample.ref, "k3")


def _token_mean(samples: Sequence[Sample], of: Callable[[Any], torch.Tensor]) -> float:
    """The mean over the tokens that the policy chose; of none: 0."""
    values = [of(s)[s.mask] for s in samples]
    joined = torch.cat(values) if values else torch.zeros(0)
    return float(joined.float().mean()) if joined.numel() else 0.0
