"""GAPO: the centre of the densest interval in place of the mean. arXiv 2510.21830;
TsingZ0/verl-GAPO@58f42b55."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from recreate.api.errors import BadInput
from recreate.plugins.rl import lazy_torch as torch
from recreate.plugins.rl.parts.advantages import GroupAdvantage, Scale, Unscored, normalised, scored
from recreate.plugins.rl.parts.groups import Groups, sorted_columns
from recreate.plugins.rl.recipe import Recipe, Rows

if TYPE_CHECKING:
    from torch import Tensor

Center = Literal["median", "mean"]
Deviation = Literal["deviation", "std", "none"]


class GAPO(GroupAdvantage):
    """What `gapo` says of each."""

    fraction: float = Field(default=0.5, gt=0, le=1)
    center: Center = "median"
    scale: Deviation = "deviation"
    eps: float = Field(default=1e-6, gt=0)
    pair: Literal["interval", "grpo"] = "interval"

    def faults(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        rollout = recipe.part("rollout")
        if rollout is not None and rollout.latent_steps and not rollout.centred:
            yield (
                (
                    "[gapo]'s advantages do not sum to 0 in a group, which on [lepo]'s latent steps"
                    " flattens the policy"
                ),
                "set centre = true under [lepo], or take [grpo]",
            )

    def warnings(self, recipe: Recipe, pass_fail: bool) -> Iterator[str]:
        n = recipe.train.group_size
        if pass_fail and n > 1:
            half, tenth = (idle_on_pass_fail(n, self.fraction, p) for p in (0.5, 0.1))
            yield (
                f"rewards are 0 and 1 only: in groups of {n} the greater part is [gapo]'s centre"
                f" and gets no gradient, {half:.0%} of the rows where half of the attempts pass,"
                f" {tenth:.0%} where a tenth does; [grpo] has one for each row of a group that"
                " varies"
            )

    def __call__(self, rows: Rows) -> Tensor:
        return gapo(rows.rewards, rows.groups, **self.model_dump())


def gapo(
    rewards: Tensor,
    groups: Groups,
    *,
    fraction: float = 0.5,
    center: Center = "median",
    scale: Deviation = "deviation",
    eps: float = 1e-6,
    pair: Literal["interval", "grpo"] = "interval",
    unscored: Unscored = "group",
) -> Tensor:
    """(r - Q) / (D + eps): (B,) -> (B,). Equations 3 to 5 of the paper.

    Q is the median (or mean) of the narrowest interval that holds ceil(n * fraction) of the group's
    n rewards; of equally narrow ones, the lowest. D = sqrt(sum (r - Q)^2 / (n - 1)) over the whole
    group ("deviation"), the sample std ("std", the paper's ablation, not in its code), or 1 with
    eps 0 ("none"). Rewards are compared in float64 as they stand in their own dtype, so 0.1 .. 0.8
    in float32 are not evenly spaced.

    fraction = 1 with the mean is GRPO, and is computed by it. Groups of one: 0. Of two, where the
    published code raises: Q is the smaller reward, so the advantages are 0 and 1; pair="grpo" takes
    GRPO's. NaN: 0 for the group. Raises BadInput unless 0 < fraction <= 1.
    """
    if not 0 < fraction <= 1:
        raise BadInput(
            f"gapo: fraction is {fraction:g}",
            fix="give a share of the group in (0, 1]; the paper takes 0.5",
        )
    plain: Scale = "none" if scale == "none" else "group"
    if fraction == 1 and center == "mean":
        return scored(
            lambda r, g: normalised(r, g, scale=plain, eps=eps), rewards, groups, unscored
        )

    def core(r: Tensor, g: Groups) -> Tensor:
        if not len(r):
            return r.double()
        out = torch.empty(len(r), dtype=torch.float64, device=r.device)
        wide = r.double()
        for rows in g.blocks():
            n = rows.shape[1]
            whole = rows.numel() == len(r) and bool((rows.view(-1)[1:] > rows.view(-1)[:-1]).all())
            x = wide.view(-1, n) if whole else wide[rows]
            if n == 1:
                value = torch.zeros_like(x)
            elif n == 2 and pair == "grpo":
                value = normalised(x.reshape(-1), _pairs(len(x), r), scale=plain, eps=eps).view(
                    -1, 2
                )
            else:
                value = deviations(x, centres(x, covered(n, fraction), center), scale, eps)
            if whole:
                return value.reshape(-1)
            out[rows] = value
        return out

    return scored(core, rewards, groups, unscored)


def idle_on_pass_fail(n: int, fraction: float, chance: float) -> float:
    """The share of rows with an advantage of 0 in groups of n whose rewards are 1 with that chance
    and else 0."""
    k = covered(n, fraction)

    def idle(ones: int) -> int:
        # the interval holds k equal rewards, of zeros where there are so many: its median is one of
        # them
        return n - ones if n - ones >= k else ones

    return (
        sum(math.comb(n, m) * chance**m * (1 - chance) ** (n - m) * idle(m) for m in range(n + 1))
        / n
    )


def covered(n: int, fraction: float) -> int:
    """How many of n rewards the interval holds: ceil(n * fraction), at least 1."""
    return min(n, max(1, math.ceil(n * fraction - 1e-9)))


def centres(x: Tensor, k: int, center: Center) -> Tensor:
    """The centre of the narrowest k neighbours of each group: (groups, n), without NaN ->
    (groups,)."""
    columns = sorted_columns(x)
    least = torch.full_like(columns[0], math.inf)
    found = _of(columns[:k], center)
    for s in range(len(columns) - k + 1):
        width = columns[s + k - 1] - columns[s]
        closer = width < least
        least = torch.where(closer, width, least)
        if s:
            found = torch.where(closer, _of(columns[s : s + k], center), found)
    return found


def deviations(x: Tensor, centre: Tensor, scale: Deviation, eps: float) -> Tensor:
    """Advantages of groups of one size, (groups, n) and (groups,) float64 -> (groups, n)."""
    away = x - centre.unsqueeze(1)
    if scale == "none":
        return away
    off = away if scale == "deviation" else x - x[:, :1] - (x - x[:, :1]).mean(dim=1, keepdim=True)
    return away / ((off.square().sum(dim=1) / (x.shape[1] - 1)).sqrt() + eps).unsqueeze(1)


def _of(held: list[Tensor], center: Center) -> Tensor:
    k = len(held)
    if center == "mean":
        return torch.stack(held).sum(0) / k
    return held[k // 2] if k % 2 else (held[k // 2 - 1] + held[k // 2]) / 2


def _pairs(n: int, like: Tensor) -> Groups:
    return Groups(torch.arange(n, device=like.device).repeat_interleave(2), n)
