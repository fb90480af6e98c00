"""What is done to a reward before groups are compared."""

from __future__ import annotations

import torch
from torch import Tensor

from recreate.api.errors import BadInput


def overlong(rewards: Tensor, lengths: Tensor, *, max_length: int, buffer: int, factor: float = 1.0) -> Tensor:
    """rewards less a penalty that grows over the last `buffer` tokens before max_length: (B,), (B,) -> (B,).

    reward + min(-(length - (max_length - buffer)) / buffer * factor, 0). DAPO, arXiv 2503.14476, equation 13, and
    verl's reward manager. The paper: max_length 20480, buffer 4096. With buffer = max_length every row is penalised,
    as in GAPO's run_dapo.py; a recipe refuses that.
    """
    if buffer <= 0:
        raise BadInput(f"overlong: a buffer of {buffer} tokens", fix="give a buffer above 0, or leave [overlong] out")
    over = -(lengths.double() - (max_length - buffer)) / buffer * factor
    return (rewards.double() + torch.clamp(over, max=0.0)).to(rewards.dtype)


def clipped_reward(rewards: Tensor, *, low: float, high: float) -> Tensor:
    """Rewards held within [low, high]; NaN stays NaN, so that it is still seen."""
    return rewards.clamp(low, high)


def edit_similarity(answer: str, truth: str) -> tuple[bool, float]:
    """(equal, 1 - Levenshtein / the longer length) over characters, ends stripped; two empty texts are equal.

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
