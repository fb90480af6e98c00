"""Advantages of outcome rewards within groups: GRPO, Dr.GRPO, RLOO, and a constant for supervised losses.

Each takes `rewards` (B,) and the groups, and returns (B,) in the rewards' dtype; statistics are float64 over the
differences to one member of the group, so equal rewards give exactly 0.

`unscored` says what a NaN or infinite reward does: "group" (ours) gives its whole group 0, so no update is made from
wrong data; "row" leaves that row out of the group's statistics and gives it 0 (TRL's reading of None).
`compat=True` reproduces verl 0.9.1: a group of one keeps its raw reward, and NaN spreads over its group. With "row" it
reproduces TRL 1.16.0, where an infinite reward counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from recreate.rl import lazy_torch as torch
from recreate.rl.parts.groups import Groups
from recreate.rl.recipe import RecipePart, Rows

if TYPE_CHECKING:
    from torch import Tensor

Scale = Literal["group", "batch", "none"]
Unscored = Literal["group", "row"]


class GroupAdvantage(RecipePart):
    """An advantage that says what a reward does which is not finite."""

    slots = ("advantage",)
    unscored: Unscored = "group"

    @property
    def scores_rows(self) -> bool:
        return self.unscored == "row"


class GRPO(GroupAdvantage):
    scale: Scale = "group"
    eps: float = Field(default=1e-6, gt=0)

    def __call__(self, rows: Rows) -> Tensor:
        return grpo(rows.rewards, rows.groups, scale=self.scale, eps=self.eps, unscored=self.unscored)


class DrGRPO(GroupAdvantage):
    def __call__(self, rows: Rows) -> Tensor:
        return dr_grpo(rows.rewards, rows.groups, unscored=self.unscored)


class RLOO(GroupAdvantage):
    normalise: bool = False

    def __call__(self, rows: Rows) -> Tensor:
        return rloo(rows.rewards, rows.groups, normalise=self.normalise, unscored=self.unscored)


class Constant(RecipePart):
    """The same for every row: what makes a supervised loss of the policy loss. arXiv 2509.04419, table 1, row SFT."""

    slots = ("advantage",)
    value: float = 1.0

    def __call__(self, rows: Rows) -> Tensor:
        r = rows.rewards
        return torch.full_like(r, self.value, dtype=r.dtype if r.is_floating_point() else torch.float32)


def grpo(
    rewards: Tensor,
    groups: Groups,
    *,
    scale: Scale = "group",
    eps: float = 1e-6,
    unscored: Unscored = "group",
    compat: bool = False,
) -> Tensor:
    """(r - mean) / (std + eps), std with n-1, of the group or of the whole batch. GRPO, arXiv 2402.03300, 4.1.2.

    eps: verl 1e-6 (ours), TRL 1e-4. A group of one gets 0 (compat: r / (1 + eps)).
    """
    raw = compat and unscored == "group"
    return scored(lambda r, g: normalised(r, g, scale=scale, eps=eps, compat=raw), rewards, groups, unscored, compat)


def dr_grpo(rewards: Tensor, groups: Groups, *, unscored: Unscored = "group", compat: bool = False) -> Tensor:
    """r - mean. Dr.GRPO, arXiv 2503.20783, section 3.2. A group of one gets 0 (compat: r, as in verl)."""
    return grpo(rewards, groups, scale="none", unscored=unscored, compat=compat)


def rloo(
    rewards: Tensor,
    groups: Groups,
    *,
    normalise: bool = False,
    unscored: Unscored = "group",
    compat: bool = False,
) -> Tensor:
    """r less the mean of the others: n/(n-1) (r - mean). RLOO, arXiv 2402.14740, equation 7.

    A group of one gets 0, as in verl's vectorised form and TRL (compat: r, as in verl's loop). normalise: TRL's
    option, to mean 0 and std 1 over the whole batch (eps 1e-4), groups of one left out.
    """

    def core(r: Tensor, g: Groups) -> Tensor:
        n = g.spread(g.count)
        out = normalised(r, g, scale="none") * g.spread(g.count / (g.count - 1).clamp(min=1))
        if normalise:
            some = n > 1
            one = Groups(torch.zeros_like(g.index), 1)
            out = torch.where(some, normalised(out, one, eps=1e-4, members=some), 0.0)
        return torch.where(n == 1, r, out) if compat and unscored == "group" else out

    return scored(core, rewards, groups, unscored, compat)


def normalised(
    values: Tensor,
    groups: Groups,
    *,
    scale: Scale = "group",
    eps: float = 1e-6,
    members: Tensor | None = None,
    compat: bool = False,
) -> Tensor:
    """values less their group's mean, over the group's (or batch's) std + eps: (B,) -> (B,) float64.

    members: (B,) bool, the rows that the statistics are of; all by default.
    """
    if not len(values):
        return values.double()
    values = values.double()
    index, weight = groups.index, None if members is None else members.double()
    n = groups.count if weight is None else groups.total(weight)
    # differences to one member: equal values then differ by exactly 0, whatever their size
    anchor = torch.zeros(groups.size, dtype=values.dtype, device=values.device)
    if members is None:
        anchor.scatter_(0, index, values)
    else:
        anchor.scatter_(0, index[members], values[members])
    anchor = torch.where(anchor.isfinite(), anchor, 0.0)
    shifted = values - groups.spread(anchor)
    mean = groups.total(shifted if weight is None else torch.where(members, shifted, 0.0)) / n.clamp(min=1)
    centred = shifted.sub_(groups.spread(mean))  # in place: a fresh 800 kB costs more than the arithmetic
    if scale == "none":
        out = centred
    elif scale == "group":
        square = centred.square()
        std = (
            groups.total(square if weight is None else torch.where(members, square, 0.0)) / (n - 1).clamp(min=1)
        ).sqrt()
        out = centred.div_(groups.spread(std + eps))
    else:
        counted = values if members is None else values[members]
        std = (counted - counted[0]).std() if len(counted) > 1 else torch.zeros((), dtype=values.dtype)
        out = centred / (std + eps)
    if compat and scale != "batch":
        out = torch.where(groups.spread(n == 1), values / (1 + eps) if scale == "group" else values, out)
    return out


def scored(
    core: Callable[[Tensor, Groups], Tensor], rewards: Tensor, groups: Groups, unscored: Unscored, compat: bool
) -> Tensor:
    """`core` of the rows with a reward, 0 for the others. Whole-number rewards count as float32."""
    rewards = rewards if rewards.is_floating_point() else rewards.float()
    if compat and unscored == "group":
        return core(rewards, groups).to(rewards.dtype)
    finite = None if math.isfinite(float(rewards.sum())) else ~rewards.isnan() if compat else rewards.isfinite()
    if finite is None or bool(finite.all()):
        out = core(rewards, groups).to(rewards.dtype)
        return out.nan_to_num(nan=0.0) if compat else out
    keep = finite if unscored == "row" else ~groups.any(~finite)[groups.index]
    out = torch.zeros_like(rewards)
    out[keep] = core(rewards[keep], groups.subset(keep)).to(rewards.dtype)
    return out.nan_to_num(nan=0.0) if compat else out
