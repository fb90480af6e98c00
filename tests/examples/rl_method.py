"""An RL method of one's own, all of it: an advantage that is r less its group's median. A recipe
takes it by

["tests.examples.rl_method:Median"]
scale = 2.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from recreate.plugins.rl.recipe import RecipePart, Rows

if TYPE_CHECKING:
    from torch import Tensor


class Median(RecipePart):
    """scale: what the differences are multiplied by."""

    slots = ("advantage",)
    scale: float = Field(default=1.0, gt=0)

    def __call__(self, rows: Rows) -> Tensor:
        import torch

        out = torch.zeros_like(rows.rewards)
        for members in rows.groups.blocks():  # (groups, n): the rows of groups of one size
            rewards = rows.rewards[members]
            out[members] = self.scale * (rewards - rewards.median(dim=1, keepdim=True).values)
        return torch.where(out.isfinite(), out, 0.0)
