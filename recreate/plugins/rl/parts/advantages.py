"""Advantages of outcome rewards within groups: GRPO, Dr.GRPO, RLOO, and a constant for supervised
losses.

Each takes `rewards` (B,) and the groups, and returns (B,) in the rewards' dtype; statistics are
float64 over the differences to one member of the group, so equal rewards give exactly 0.

`unscored` says what a NaN or infinite reward does: "group" (ours) gives its whole group 0, so no
update is made from wrong data; "row" leaves that row out of the group's statistics and gives it 0
(TRL's reading of None). A group of one gets 0. Where published code decides otherwise,
tests/plugins/rl/published.py has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from recreate.plugins.rl import lazy_torch as torch
from recreate.plugins.rl.parts.groups import Groups
from recreate.plugins.rl.recipe import RecipePart, Rows

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
        return grpo(
            rows.rewards, rows.groups, scale=self.scale, eps=self.eps, unscored=self.unscored
        )


class DrGRPO(GroupAdvantage):
    def __call__(self, rows: Rows) -> Tensor:
        return dr_grpo(rows.rewards, rows.groups, unscored=self.unscored)


class RLOO(GroupAdvantage):
    normalise: bool = False

    def __call__(self, rows: Rows) -> Tensor:
        return rloo(rows.rewards, rows.groups, normalise=self.normalise, unscored=self.unscored)


class Constant(RecipePart):
    """The same for every row: what makes a supervised loss of the policy loss. arXiv 2509.04419,
    table 1, row SFT."""

    slots = ("advantage",)
    value: float = 1.0

    def __call__(self, rows: Rows) -> Tensor:
        r = rows.rewards
        return torch.full_like(
            r, self.value, dtype=r.dtype if r.is_floating_point() else torch.float32
        )


def grpo(
    rewards: Tensor,
    groups: Groups,
    *,
    scale: Scale = "group",
    eps: float = 1e-6,
    unscored: Unscored = "group",
) -> Tensor:
    """(r - mean) / (std + eps), std with n-1, of the group or of the whole batch. GRPO, arXiv
    2402.03300, 4.1.2.

    eps: verl 1e-6 (ours), TRL 1e-4.
    """
    return scored(lambda r, g: normalised(r, g, scale=scale, eps=eps), rewards, groups, unscored)


def dr_grpo(rewards: Tensor, groups: Groups, *, unscored: Unscored = "group") -> Tensor:
    """r - mean. Dr.GRPO, arXiv 2503.20783, section 3.2."""
    return grpo(rewards, groups, scale="none", unscored=unscored)


def rloo(
    rewards: Tensor, groups: Groups, *, normalise: bool = False, unscored: Unscored = "group"
) -> Tensor:
    """r less the mean of the others. RLOO, arXiv 2402.14740, equation 7.

    normalise: TRL's option, to mean 0 and std 1 over the whole batch (eps 1e-4), groups of one left
    out.
    """
    return scored(lambda r, g: leave_one_out(r, g, normalise), rewards, groups, unscored)


def leave_one_out(rewards: Tensor, groups: Groups, normalise: bool = False) -> Tensor:
    """n/(n-1) (r - mean): (B,) -> (B,) float64. Of a group of one: 0."""
    out = normalised(rewards, groups, scale="none") * groups.spread(
        groups.count / (groups.count - 1).clamp(min=1)
    )
    if not normalise:
        return out
    some = groups.spread(groups.count) > 1
    one = Groups(torch.zeros_like(groups.index), 1)
    return torch.where(some, normalised(out, one, eps=1e-4, members=some), 0.0)


def normalised(
    values: Tensor,
    groups: Groups,
    *,
    scale: Scale = "group",
    eps: float = 1e-6,
    members: Tensor | None = None,
) -> Tensor:
    """values less their group's mean, over the group's (or batch's) std + eps: (B,) -> (B,)
    float64.

    members: (B,) bool, the rows that the statistics are of; all by default.
    """
    if not len(values):
        return values.double()
    values = values.double()
    index = groups.index
    weight = None if members is None else members.double()
    n = groups.count if weight is None else groups.total(weight)
    # differences to one member: equal values then differ by exactly 0, whatever their size
    anchor = torch.zeros(groups.size, dtype=values.dtype, device=values.device)
    if members is None:
        anchor.scatter_(0, index, values)
    else:
        anchor.scatter_(0, index[members], values[members])
    anchor = torch.where(anchor.isfinite(), anchor, 0.0)
    shifted = values - groups.spread(anchor)
    mean = groups.total(
        shifted if weight is None else torch.where(members, shifted, 0.0)
    ) / n.clamp(min=1)
    # in place: a fresh 800 kB costs more than the arithmetic
    centred = shifted.sub_(groups.spread(mean))
    if scale == "none":
        return centred
    if scale == "group":
        square = centred.square() if weight is None else torch.where(members, centred.square(), 0.0)
        return centred.div_(
            groups.spread((groups.total(square) / (n - 1).clamp(min=1)).sqrt() + eps)
        )
    counted = values if members is None else values[members]
    std = (counted - counted[0]).std() if len(counted) > 1 else torch.zeros((), dtype=values.dtype)
    return centred / (std + eps)


def scored(
    core: Callable[[Tensor, Groups], Tensor], rewards: Tensor, groups: Groups, unscored: Unscored
) -> Tensor:
    """`core` of the rows with a reward, 0 for the others. Whole-number rewards count as float32."""
    rewards = rewards if rewards.is_floating_point() else rewards.float()
    finite = None if math.isfinite(float(rewards.sum())) else rewards.isfinite()
    if finite is None or bool(finite.all()):
        return core(rewards, groups).to(rewards.dtype)
    keep = finite if unscored == "row" else ~groups.any(~finite)[groups.index]
    out = torch.zeros_like(rewards)
    out[keep] = core(rewards[keep], groups.subset(keep)).to(rewards.dtype)
    return out
