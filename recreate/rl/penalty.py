"""How far the policy went from its reference, per token."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Kind = Literal["k1", "k2", "k3", "abs"]


def kl(
    log_prob: Tensor, ref_log_prob: Tensor, kind: Kind = "k3", *, straight: bool = False, clamp: bool = True
) -> Tensor:
    """An estimate of KL(pi || ref) from the sampled token: (B,T) -> (B,T). joschu.net/blog/kl-approx.html.

    k1 = l - ref, k2 = k1^2 / 2, k3 = e^-k1 + k1 - 1, abs = |k1|. clamp: verl's bounds on k3 (exponent +-20, value 10).
    straight: the value of `kind` with the gradient of k2, which is the KL's own in expectation (verl's "k3+").
    """
    away = log_prob - ref_log_prob
    if kind == "k1":
        value = away
    elif kind == "k2":
        value = 0.5 * away.square()
    elif kind == "abs":
        value = away.abs()
    else:
        back = (-away).clamp(-20, 20) if clamp else -away
        value = back.exp() - back - 1
        value = value.clamp(-10, 10) if clamp else value
    if not straight or kind == "k2":
        return value
    square = 0.5 * away.square()
    return square - square.detach() + value.detach()
