"""What published code does and no recipe of ours: functions that we do not have, and decisions that
differ from ours.

A group of one keeps its raw reward (verl), NaN spreads over its group (verl) or infinities count
(TRL), masked values are read, and counts are others. All else is our own arithmetic: parity
compares it with stored outputs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recreate.plugins.rl.parts import advantages, gapo, gigpo, losses
from recreate.plugins.rl.parts.advantages import Scale, Unscored, normalised
from recreate.plugins.rl.parts.groups import Groups
from recreate.plugins.rl.recipe import PolicyLoss


def sapo(
    ratio: Tensor, advantages: Tensor, *, positive: float = 1.0, negative: float = 1.05
) -> PolicyLoss:
    """-A 4/tau sigmoid(tau (rho - 1)), tau by the sign of A: a soft gate in place of the clip.
    TRL's `sapo`."""
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
    """-sg[phi(w)] A log pi, phi(w) = e^rate w^k e^(-rate w), w the row's whole ratio. TRL's
    `vespo`.

    k and rate: (where A >= 0, where A < 0).
    """
    lowest = -18.420680743952367  # ln 1e-8, as published
    log_w = (log_change.clamp(-20, 20) * mask).sum(-1, keepdim=True).clamp(lowest, 20).detach()
    up = advantages >= 0
    power, decay = torch.where(up, k[0], k[1]), torch.where(up, rate[0], rate[1]).clamp(min=1e-4)
    weight = (
        (decay + power * log_w - decay * log_w.exp())
        .exp()
        .nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    )
    none = torch.zeros_like(log_prob, dtype=torch.bool)
    return PolicyLoss(-weight * advantages * log_prob, none, none)


class Cartography(NamedTuple):
    """confidence: mean over epochs; variability: population std over epochs; correctness: share of
    epochs right."""

    confidence: float
    variability: float
    correctness: float


def cartography(per_epoch: Sequence[float], threshold: float = 0.5) -> Cartography:
    """Of a task's mean reward in each epoch; an epoch is right at `threshold` or more. Swayamdipta
    et al. 2020."""
    if not per_epoch:
        return Cartography(0.0, 0.0, 0.0)
    return Cartography(
        statistics.fmean(per_epoch),
        statistics.pstdev(per_epoch),
        sum(v >= threshold for v in per_epoch) / len(per_epoch),
    )


def mixture_log_prob(log_probs: Tensor, mix_ids: Tensor, mix: Tensor) -> Tensor:
    """sum_k z_k log pi_k: log-softmax (B,T,V) of the raw logits, mixtures (B,T,K) -> (B,T).

    Raw: without the sampling temperature, as released. The token pass gives the same without
    (B,T,V).
    """
    return (mix * log_probs.gather(-1, mix_ids)).sum(-1)


def edit_similarity(answer: str, truth: str) -> tuple[bool, float]:
    """(equal, 1 - Levenshtein / the longer length) over characters, ends stripped; two empty texts
    are equal.

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


# ---- advantages: verl's, with `unscored` "row" TRL's


def raw(
    r: Tensor, groups: Groups, scale: Scale, eps: float, members: Tensor | None = None
) -> Tensor:
    """`normalised`, but that a group of one keeps its reward."""
    out = normalised(r, groups, scale=scale, eps=eps, members=members)
    n = groups.count if members is None else groups.total(members.double())
    wide = r.double()
    return torch.where(groups.spread(n == 1), wide / (1 + eps) if scale == "group" else wide, out)


def without_nan(core: Callable[[Tensor, Groups], Tensor], r: Tensor, groups: Groups) -> Tensor:
    """TRL's: rows without a NaN; infinities count."""
    keep, out = ~r.isnan(), torch.zeros_like(r)
    out[keep] = core(r[keep], groups.subset(keep)).to(r.dtype)
    return out.nan_to_num(nan=0.0)


def grpo(
    r: Tensor,
    groups: Groups,
    *,
    scale: Scale = "group",
    eps: float = 1e-6,
    unscored: Unscored = "group",
) -> Tensor:
    if unscored == "row":
        return without_nan(lambda r, g: normalised(r, g, scale=scale, eps=eps), r, groups)
    return raw(r, groups, scale, eps).to(r.dtype)


def rloo(
    r: Tensor, groups: Groups, *, normalise: bool = False, unscored: Unscored = "group"
) -> Tensor:
    if unscored == "row":
        return without_nan(lambda r, g: advantages.leave_one_out(r, g, normalise), r, groups)
    return torch.where(
        groups.spread(groups.count) == 1, r.double(), advantages.leave_one_out(r, groups)
    ).to(r.dtype)


class Interval(NamedTuple):
    """The narrowest `k` neighbours of a sorted group: their mean and their median."""

    mean: float
    median: float


def interval(values: list[float], k: int) -> Interval:
    """As GAPO's search finds it, NaN and k = 0 included: Python's order of NaN is part of what was
    published."""
    if k == 0:
        return Interval(values[0], values[0])
    if not any(math.isnan(v) for v in values):
        x = torch.tensor([values], dtype=torch.float64)
        return Interval(
            float(gapo.centres(x, k, "mean")[0]), float(gapo.centres(x, k, "median")[0])
        )
    ordered = sorted(values)
    best, least = 0, math.inf
    for s in range(len(ordered) - k + 1):
        if ordered[s + k - 1] - ordered[s] < least:
            best, least = s, ordered[s + k - 1] - ordered[s]
    held = ordered[best : best + k]
    middle = (held[(k - 1) // 2] + held[k // 2]) / 2 if k % 2 == 0 else held[k // 2]
    return Interval(sum(held) / k, middle)


def covered(n: int, fraction: float) -> int:
    """By way of a percentage: 0.07 of 100 is 8."""
    return math.ceil(n * (fraction * 100) / 100)


def gapo_advantages(
    r: Tensor,
    groups: Groups,
    *,
    fraction: float,
    center: gapo.Center,
    scale: gapo.Deviation,
    eps: float,
) -> Tensor:
    if fraction == 1 and center == "mean":
        return raw(r, groups, "none" if scale == "none" else "group", eps).to(r.dtype)
    out = torch.empty(len(r), dtype=torch.float64)
    for rows in groups.blocks():
        x, k = r.double()[rows], covered(rows.shape[1], fraction)
        if x.shape[1] == 1:
            out[rows] = x if scale == "none" else x / (1 + eps)
            continue
        found = [interval(row.tolist(), k) for row in x]
        q = torch.tensor(
            [i.median if center == "median" else i.mean for i in found], dtype=torch.float64
        )
        out[rows] = gapo.deviations(x, q, scale, eps)
    return out.to(r.dtype)


def gigpo_episodes(
    r: Tensor,
    groups: Groups,
    trajectories: Groups,
    *,
    scale: Literal["group", "none"],
    across_steps: bool,
    eps: float,
) -> Tensor:
    """Statistics of the first rows, of which each row's own reward is normalised."""
    if across_steps or not len(r):
        return raw(r, groups, scale, eps).to(r.dtype)
    members = torch.zeros(len(r), dtype=torch.bool)
    members[gigpo.episodes_of(groups, trajectories).first()] = True
    return raw(r, groups, scale, eps, members).to(r.dtype)


# ---- losses


def sequence_ratio(
    log_prob: Tensor,
    old: Tensor,
    mask: Tensor,
    *,
    limit: float | None = 10.0,
    straight: bool = True,
) -> Tensor:
    """Ours, but that masked values are read."""
    mean = ((log_prob - old) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    mean = log_prob - log_prob.detach() + mean.detach() if straight else mean.expand_as(log_prob)
    return (mean if limit is None else mean.clamp(max=limit)).exp()


def token_ratio(log_prob: Tensor, old: Tensor, *, limit: float | None = 20.0) -> Tensor:
    """Ours, without a mask."""
    return losses.token_ratio(log_prob, old, torch.ones_like(log_prob), limit=limit)


def aggregate(
    loss: Tensor,
    mask: Tensor,
    mode: losses.Mode = "token-mean",
    *,
    code: Literal["verl", "verl-0.4", "trl"],
    tokens: Any = None,
    rows: Any = None,
    length: int | None = None,
) -> Tensor:
    """verl 0.9.1: NaN when nothing is unmasked. verl 0.4, the fork of STEER: 1e-8 added to the
    token count, empty rows counted, `constant` not divided by rows. TRL 1.16.0 counts all rows. A
    NaN under the mask comes through, but for verl's token sums."""
    weight = mask.to(loss.dtype)
    reads = code != "verl" or not mode.startswith("token")
    kept = loss * weight if reads else torch.where(mask.bool(), loss, 0.0) * weight
    own, per_row = weight.sum(-1), kept.sum(-1)
    if code == "verl-0.4":
        modes = {
            "token-mean": kept.sum() / (weight.sum() + 1e-8),
            "sequence-sum": per_row.mean(),
            "sequence-mean": (per_row / own).mean(),
            "constant": kept.sum() / (length or kept.shape[-1]),
        }
        return modes[mode]
    at_least = (lambda n: n) if code == "verl" else losses.at_least_one
    if mode == "token-sum":
        return kept.sum()
    if mode == "token-mean":
        return kept.sum() / at_least(weight.sum() if tokens is None else tokens)
    if mode == "sequence-mean":
        per_row = per_row / (own + 1e-8 if code == "verl" else own.clamp(min=1))
    if code == "verl":
        per_row = torch.where(own > 0, per_row, 0.0)
    if rows is None:
        rows = len(loss) if code == "trl" else (own > 0).to(loss.dtype).sum()
    mean: Tensor = per_row.sum() / at_least(rows)
    return mean / (length or loss.shape[-1]) if mode == "constant" else mean


def dynamic_sampling(metric: Tensor, groups: Groups) -> Tensor:
    """By numpy's population std in float64, above 0: 0.1 + 0.2 beside 0.3 is kept, and so may be
    equal values."""
    kept = torch.zeros(groups.size, dtype=torch.bool)
    values, index = metric.double().numpy(), groups.index.numpy()
    for g in range(groups.size):
        own = values[index == g]
        kept[g] = len(own) == 1 or (len(own) > 1 and float(np.std(own)) > 0)
    return kept[groups.index]
