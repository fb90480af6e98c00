"""STEER: tokens that would change the entropy most weigh least. arXiv 2510.10150;
zz-haooo/STEER@b31df71."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field, model_validator

from recreate.api.errors import BadInput
from recreate.plugins.rl import lazy_torch as torch
from recreate.plugins.rl.recipe import ONE_MACHINE, Recipe, RecipePart, Tokens

if TYPE_CHECKING:
    from torch import Tensor

Form = Literal["released", "theorem", "full"]
Mapping = Literal["exponential", "linear"]


class Extent(NamedTuple):
    """The least, the greatest and the greatest absolute Omega over valid tokens: scalars; of none:
    inf, -inf, 0.

    What weights are relative to. `over` joins those of micro-batches (scope mini), or of processes
    (scope global: all-reduce `low` by minimum, the others by maximum).
    """

    low: Tensor
    high: Tensor
    peak: Tensor

    @classmethod
    def join(cls, parts: Iterable[Extent]) -> Extent:
        lows, highs, peaks = zip(*parts, strict=True)
        return cls(torch.stack(lows).min(), torch.stack(highs).max(), torch.stack(peaks).max())


class STEER(RecipePart):
    """What `entropy_change` and `steer` say of each. scope: over which tokens weights are relative
    to each other."""

    slots = ("token weight",)
    form: Form = "released"
    mapping: Mapping = "exponential"
    least: float = Field(default=0.7, gt=0, le=1)
    most: float = Field(default=1.0, gt=0)
    signed: bool = False
    floor: float = Field(default=0.02, ge=0)
    scope: Literal["micro", "mini", "global"] = "micro"

    @model_validator(mode="after")
    def _ordered(self) -> STEER:
        if self.most < self.least:
            raise ValueError(f"most {self.most:g} must not be below least {self.least:g}")
        return self

    @property
    def wide(self) -> bool:
        return self.scope != "micro"

    def faults(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        if recipe.does("ratio") is None:
            yield (
                f"[steer] weighs by the ratio, which [{recipe.name_of('ratio')}] has not",
                "leave one of the two out",
            )

    def on_verl(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        if self.wide:
            yield (
                (
                    f'[steer] scope = "{self.scope}" needs a pass over the mini-batch before its'
                    " loss, which verl has not"
                ),
                (
                    'copy the recipe to a file and set scope = "micro" there, the published one;'
                    f" or {ONE_MACHINE}"
                ),
            )
        if self.form == "full":
            yield (
                '[steer] form = "full" needs sums over the vocabulary that verl does not keep',
                ONE_MACHINE,
            )

    def extent(self, tokens: Tokens, clipped: Callable[[], Tensor]) -> Extent:
        return extent(self.omega(tokens, clipped), _discrete(tokens), signed=self.signed)

    def joined(self, extents: Sequence[Extent]) -> Extent:
        return Extent.join(extents)

    def __call__(self, tokens: Tokens, clipped: Callable[[], Tensor]) -> Tensor:
        knobs = self.model_dump(exclude={"form", "scope"})
        weight = steer(
            self.omega(tokens, clipped), _discrete(tokens), within=tokens.extent, **knobs
        )
        return (
            weight
            if tokens.latent is None
            else torch.where(tokens.latent & tokens.mask.bool(), 1.0, weight)
        )

    def omega(self, tokens: Tokens, clipped: Callable[[], Tensor]) -> Tensor:
        """`entropy_change` of a micro-batch, (B,T). Raises BadInput without entropies."""
        if tokens.entropy is None:
            raise BadInput(
                "steer needs the entropy of the old policy's pass", fix="ask the token pass for it"
            )
        return entropy_change(
            tokens.advantages,
            tokens.entropy,
            tokens.log_prob.detach(),
            tokens.acted,
            form=self.form,
            square=tokens.square,
            clipped=None if self.form == "released" else clipped(),
        )


def _discrete(tokens: Tokens) -> Tensor:
    """(B,T) bool: what the mask holds but for latent steps."""
    mask: Tensor = tokens.mask.bool()
    return mask if tokens.latent is None else mask & ~tokens.latent


def entropy_change(
    advantages: Tensor,
    entropy: Tensor,
    log_prob: Tensor,
    old_log_prob: Tensor,
    *,
    form: Form = "released",
    square: Tensor | None = None,
    clipped: Tensor | None = None,
) -> Tensor:
    """Omega (B,T), without gradient: how a step on this token changes the entropy; above 0, it
    rises.

    entropy: of the full distribution, from the pass of the old policy; log-probs of the taken
    token, all from logits of one temperature. With x the token's probability and rho = x / x_old
    (both at least 1e-8):
      released  -(A / x_old) x (1 - x) (ln x + H)             the code: one factor x less than the
                theorem, no clip
      theorem   -rho A x (1 - x) (ln x + H)                   the paper's four factors; 0 where
                `clipped`
      full      -rho A (x (ln x + H) - S)                     all logits move to first order; S =
                                                              `square`, (B,T), is sum_b p_b^2 (ln
                                                              p_b + H) of the token pass; inferred
    What is not finite counts as 0.
    """
    with torch.no_grad():
        x = log_prob.exp().clamp(1e-8, 1.0 - 1e-8)
        old = old_log_prob.exp().clamp(1e-8, 1.0)
        leaning = x.log() + entropy
        if form == "full":
            if square is None:
                raise BadInput(
                    "steer: the full form needs sum p^2 (ln p + H) of each token",
                    fix='give `square` of the token pass, or set form = "released"',
                )
            omega = -(advantages / old) * x * (x * leaning - square)
        else:
            omega = -(advantages / old) * (x * (1 - x) * leaning)
            omega = omega * x if form == "theorem" else omega
        if clipped is not None and form != "released":
            omega = torch.where(clipped, 0.0, omega)
        return torch.where(omega.isfinite(), omega, 0.0)


def extent(omega: Tensor, mask: Tensor, *, signed: bool = False) -> Extent:
    """Over the valid tokens of this call: `micro`, the published scope. Without `signed`, of
    |Omega|."""
    valid = mask.bool()
    u = omega if signed else omega.abs()
    return Extent(
        torch.where(valid, u, torch.inf).amin() if u.numel() else u.new_full((), torch.inf),
        torch.where(valid, u, -torch.inf).amax() if u.numel() else u.new_full((), -torch.inf),
        torch.where(valid, u.abs(), 0.0).amax() if u.numel() else u.new_zeros(()),
    )


def steer(
    omega: Tensor,
    mask: Tensor,
    *,
    mapping: Mapping = "exponential",
    least: float = 0.7,
    most: float = 1.0,
    signed: bool = False,
    floor: float = 0.02,
    within: Extent | None = None,
) -> Tensor:
    """The weight of each token's loss, (B,T), in [least, most] where the mask is set and 0
    elsewhere; no gradient.

    exponential  exp(-k |Omega|), k = -ln(least) / max(peak, floor): at most 1, whatever `most` (as
                 published)
    linear       most at the least |Omega|, least at the greatest; the middle of both when all are
                 equal
    signed       only tokens that lower the entropy lose weight (upstream's later `asymmetric`,
                 known second-hand)
    within       what Omega is relative to; by default this call's own tokens
    `least` = 1 with exponential is no weighting at all. Weights depend on how the batch is cut
    unless `within` spans it. The paper takes least 0.7 (its script 0.8; linear in the script 0.8 to
    1.2).
    """
    with torch.no_grad():
        valid = mask.bool()
        around = within or extent(omega, mask, signed=signed)
        u = omega if signed else omega.abs()
        if mapping == "linear":
            width = around.high - around.low
            share = torch.where(width > 0, (most - least) / width, 0.0)
            weight = least + (u - around.low) * share if signed else most - (u - around.low) * share
            weight = torch.where(width > 0, weight, (least + most) / 2).clamp(least, most)
        else:
            k = -torch.log(omega.new_tensor(least)) / around.peak.clamp(min=floor)
            weight = (
                (k * u).exp().clamp(least, most) if signed else (-k * u).exp().clamp(least, 1.0)
            )
        return torch.where(valid, weight, 0.0)
