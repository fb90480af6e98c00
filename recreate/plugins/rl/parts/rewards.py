"""What is done to rewards before groups are compared, and which rows reach the update. `cut` (B,)
bool, everywhere: attempts that were cut off, by their tokens, their context, the clock, their price
or in mid-reply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from recreate.api.errors import BadInput
from recreate.plugins.rl import lazy_torch as torch
from recreate.plugins.rl.recipe import ONE_MACHINE, Recipe, RecipePart, Rows

if TYPE_CHECKING:
    from torch import Tensor

    from recreate.plugins.rl.parts.groups import Groups


class ClipReward(RecipePart):
    """Rewards held within [low, high]; NaN stays NaN, so that it is still seen."""

    slots = ("reward",)
    low: float = -1.0
    high: float = 1.0

    def __call__(self, rewards: Tensor, lengths: Tensor, cut: Tensor) -> Tensor:
        return rewards.clamp(self.low, self.high)


class Overlong(RecipePart):
    """max_length and buffer in tokens; factor is the penalty at max_length, and of an attempt that
    was cut off."""

    slots = ("reward",)
    verl_note = (
        "an answer loses by its length alone: verl does not tell which attempts were cut off"
    )
    max_length: int = Field(gt=0)
    buffer: int = Field(gt=0)
    factor: float = Field(default=1.0, ge=0)

    @model_validator(mode="after")
    def _leaves_room(self) -> Overlong:
        if self.buffer >= self.max_length:
            raise ValueError(
                f"buffer must be below max_length {self.max_length}, or every answer is penalised"
            )
        return self

    def faults(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        if self.max_length > recipe.train.max_response:
            yield (
                (
                    f"[overlong] max_length {self.max_length} is above [train] max_response"
                    f" {recipe.train.max_response}"
                ),
                "no answer can be that long: set both to the same",
            )

    def __call__(self, rewards: Tensor, lengths: Tensor, cut: Tensor) -> Tensor:
        at_least = torch.where(cut, lengths.clamp(min=self.max_length), lengths)
        return overlong(
            rewards, at_least, max_length=self.max_length, buffer=self.buffer, factor=self.factor
        )


class MaskTruncated(RecipePart):
    """Attempts that were cut off reach no update; in their group's statistics they stay. DAPO's
    overlong filtering (arXiv 2503.14476, section 3.4), TRL's mask_truncated_completions."""

    slots = ("truncation",)

    def __call__(self, cut: Tensor) -> Tensor:
        return ~cut

    def on_verl(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        yield (
            "[mask-truncated] needs to know which attempts were cut off, which verl does not tell",
            ONE_MACHINE,
        )


class DynamicSampling(RecipePart):
    """tolerance: the least range of rewards that counts as varied. max_batches: 0 generates without
    end."""

    slots = ("filter",)
    verl_filter = True
    verl_note = "verl's own filter: it goes on without end, and drops groups whose std is exactly 0"
    tolerance: float = Field(default=1e-6, ge=0)
    max_batches: int = Field(default=10, ge=0)

    @property
    def batches(self) -> int:
        return self.max_batches

    def __call__(self, rows: Rows, scored: Tensor) -> Tensor:
        return scored & dynamic_sampling(rows.rewards, rows.groups, tolerance=self.tolerance)

    def more(self, groups: Sequence[Sequence[float]], prompts: int, batches: int) -> bool:
        varied = sum(bool(g) and max(g) - min(g) > self.tolerance for g in groups)
        return varied < prompts and (not self.max_batches or batches < self.max_batches)


class Successes(RecipePart):
    """Rows whose reward is at least `threshold`; NaN is none. What supervised training is made
    of."""

    slots = ("filter",)
    threshold: float = 1.0

    def __call__(self, rows: Rows, scored: Tensor) -> Tensor:
        return rows.rewards >= self.threshold

    def on_verl(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        if not recipe.name_of("aggregate").startswith("token"):
            yield (
                "[successes] takes rows out, and verl divides a mean over rows by all of them",
                "take [token-mean] under it",
            )


def overlong(
    rewards: Tensor, lengths: Tensor, *, max_length: int, buffer: int, factor: float = 1.0
) -> Tensor:
    """rewards less a penalty that grows over the last `buffer` tokens before max_length: (B,), (B,)
    -> (B,).

    reward + min(-(length - (max_length - buffer)) / buffer * factor, 0), and no less than reward -
    factor: several turns can be longer than one answer. DAPO, arXiv 2503.14476, equation 13, and
    verl's reward manager. The paper: max_length 20480, buffer 4096. With buffer = max_length every
    row is penalised, as in GAPO's run_dapo.py; a recipe refuses that.
    """
    if buffer <= 0:
        raise BadInput(
            f"overlong: a buffer of {buffer} tokens",
            fix="give a buffer above 0, or leave [overlong] out",
        )
    over = -(lengths.double() - (max_length - buffer)) / buffer * factor
    return (rewards.double() + over.clamp(-factor, 0.0)).to(rewards.dtype)


def dynamic_sampling(metric: Tensor, groups: Groups, *, tolerance: float = 1e-6) -> Tensor:
    """(B,) bool: rows of groups whose metric varies. DAPO, arXiv 2503.14476, equation 11; verl's
    dapo recipe.

    metric: (B,) the unshaped score. A group is kept when its range exceeds `tolerance`, or when it
    has one row (it cannot vary); dropped when a value is NaN.
    """
    size = (groups.size,)
    top = torch.full(size, -torch.inf, dtype=metric.dtype, device=metric.device)
    low = torch.full(size, torch.inf, dtype=metric.dtype, device=metric.device)
    top.scatter_reduce_(0, groups.index, metric, "amax")
    low.scatter_reduce_(0, groups.index, metric, "amin")
    varies = (top - low > tolerance) | (groups.count == 1)
    return (varies & ~groups.any(~metric.isfinite()))[groups.index]
