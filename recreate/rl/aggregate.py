"""One number from the losses of all tokens."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from recreate.api.errors import BadInput

Mode = Literal["token-mean", "token-sum", "sequence-mean", "sequence-sum", "constant"]
Compat = Literal["", "verl", "verl-0.4", "trl"]


def aggregate(
    loss: Tensor,
    mask: Tensor,
    mode: Mode = "token-mean",
    *,
    tokens: float | Tensor | None = None,
    rows: float | Tensor | None = None,
    length: int | None = None,
    compat: Compat | bool = "",
) -> Tensor:
    """The mean loss over (B,T): a scalar.

    token-mean     sum over tokens / tokens                                   DAPO, TRL bnpo and dapo
    token-sum      sum over tokens
    sequence-mean  mean over rows of each row's mean                          GRPO's 1/G sum 1/|o|
    sequence-sum   mean over rows of each row's sum                           TRL luspo
    constant       the same / `length` (T unless given)                       Dr.GRPO, arXiv 2503.20783

    tokens and rows are the counts to divide by, of the whole batch when it comes in pieces or from several processes
    (divided by the number of processes where those average gradients); by default what the mask holds, rows without a
    token left out. Nothing unmasked: 0, with a gradient of 0. Masked losses are never read.

    compat: True or "verl" is 0.9.1 (NaN when nothing is unmasked), "verl-0.4" the fork of STEER (1e-8 added to the
    token count, empty rows counted, `constant` not divided by rows), "trl" divides by at least 1 and counts all rows.
    """
    form = "verl" if compat is True else compat or ""
    weight = mask.to(loss.dtype)
    if form == "verl-0.4":
        return _verl_04(loss * weight, weight, mode, length)
    # published code multiplies, so a NaN under the mask comes through; verl's token sums do not
    reads = bool(form) and not (form == "verl" and mode.startswith("token"))
    kept = loss * weight if reads else torch.where(mask.bool(), loss, 0.0) * weight
    if mode in ("token-mean", "token-sum"):
        if mode == "token-sum":
            return kept.sum()
        count = weight.sum() if tokens is None else tokens
        return kept.sum() / (count if form == "verl" else _at_least_one(count))
    per_row = kept.sum(-1)
    own = weight.sum(-1)
    if mode == "sequence-mean":
        per_row = per_row / (own + 1e-8 if form == "verl" else own.clamp(min=1))
    elif mode not in ("sequence-sum", "constant"):
        raise BadInput(
            f"no aggregate is called {mode!r}", fix="token-mean, token-sum, sequence-mean, sequence-sum, constant"
        )
    if form == "verl":
        per_row = torch.where(own > 0, per_row, 0.0)
    if rows is None:
        rows = loss.shape[0] if form == "trl" else (own > 0).to(loss.dtype).sum()
    mean = per_row.sum() / (rows if form == "verl" else _at_least_one(rows))
    return mean / (length or loss.shape[-1]) if mode == "constant" else mean


def _verl_04(kept: Tensor, weight: Tensor, mode: Mode, length: int | None) -> Tensor:
    if mode == "token-mean":
        return kept.sum() / (weight.sum() + 1e-8)
    if mode == "sequence-sum":
        return kept.sum(-1).mean()
    if mode == "sequence-mean":
        return (kept.sum(-1) / weight.sum(-1)).mean()
    if mode == "constant":
        return kept.sum() / (length or kept.shape[-1])
    raise BadInput(f"verl 0.4 has no aggregate {mode!r}", fix="take another mode, or leave compat out")


def _at_least_one(count: float | Tensor) -> float | Tensor:
    # a count that is a share of the whole batch may be below 1; only nothing at all is mended
    if isinstance(count, Tensor):
        return torch.where(count > 0, count, torch.ones_like(count))
    return count if count > 0 else 1.0
