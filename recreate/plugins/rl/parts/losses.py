"""The loss of a token from its ratio and its advantage, what keeps the policy near its reference,
and one number from all tokens; and a loss on pairs of answers.

Policy losses are of degree 1 in the advantage, so a weight on the loss is a weight on the advantage
(arXiv 2509.04419's stabilisation mask, and what lets STEER and A2R weigh tokens and rows). No
masked value is read, so a NaN there reaches neither the loss nor a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from recreate.api.shapes import JsonDict
from recreate.plugins.rl import lazy_torch as torch
from recreate.plugins.rl.parts.groups import Groups
from recreate.plugins.rl.recipe import ONE_MACHINE, Loss, PolicyLoss, Recipe, RecipePart, Tokens

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["k1", "k2", "k3", "abs"]
Mode = Literal["token-mean", "token-sum", "sequence-mean", "sequence-sum", "constant"]
Count: TypeAlias = "float | Tensor | None"


class TokenRatio(RecipePart):
    slots = ("ratio",)
    limit: float = Field(default=20.0, gt=0)

    def __call__(self, log_prob: Tensor, old_log_prob: Tensor, mask: Tensor) -> Tensor:
        return token_ratio(log_prob, old_log_prob, mask, limit=self.limit)


class SequenceRatio(RecipePart):
    slots = ("ratio",)
    limit: float = Field(default=10.0, gt=0)

    def __call__(self, log_prob: Tensor, old_log_prob: Tensor, mask: Tensor) -> Tensor:
        return sequence_ratio(log_prob, old_log_prob, mask, limit=self.limit)


class Clip(RecipePart):
    """dual 0: no dual clip."""

    slots = ("policy loss",)
    low: float = Field(default=0.2, ge=0, le=1)
    high: float = Field(default=0.2, ge=0)
    dual: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _above_one(self) -> Clip:
        if 0 < self.dual <= 1:
            raise ValueError("dual must be above 1, or 0 for none")
        return self

    def __call__(self, ratio: Tensor, advantages: Tensor, log_prob: Tensor) -> PolicyLoss:
        return clip(ratio, advantages, low=self.low, high=self.high, dual=self.dual or None)


class CISPO(RecipePart):
    slots = ("policy loss",)
    lowest: float = Field(default=0.0, ge=0)
    highest: float = Field(default=1.28, gt=0)

    def __call__(self, ratio: Tensor, advantages: Tensor, log_prob: Tensor) -> PolicyLoss:
        return cispo(ratio, advantages, log_prob, lowest=self.lowest, highest=self.highest)


class LogLikelihood(RecipePart):
    slots = ("policy loss", "ratio")

    def __call__(self, ratio: None, advantages: Tensor, log_prob: Tensor) -> PolicyLoss:
        return log_likelihood(advantages, log_prob)


class SimPO(RecipePart):
    """apart: how far the rewards of a pair have to differ."""

    slots = ("policy loss", "advantage", "ratio", "token weight", "aggregate")
    in_pairs = True
    beta: float = Field(default=2.0, gt=0)
    margin: float = 1.0
    apart: float = Field(default=0.0, ge=0)

    def pairs(self, rewards: Tensor, groups: Groups) -> Tensor:
        return pairs(rewards, groups, margin=self.apart)

    def on_verl(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        yield "[simpo] compares two answers, and verl hands a loss single rows", ONE_MACHINE

    def __call__(self, tokens: Tokens) -> Loss:
        rows = (
            tokens.log_prob.new_zeros(0, 2, dtype=torch.long)
            if tokens.pairs is None
            else tokens.pairs
        )
        value = simpo(
            tokens.log_prob, tokens.mask, rows[:, 0], rows[:, 1], beta=self.beta, margin=self.margin
        )
        return Loss(value, {"pairs": torch.tensor(float(len(rows)))})


class KL(RecipePart):
    slots = ("penalty",)
    weight: float = Field(default=0.04, ge=0)
    kind: Kind = "k3"
    straight: bool = False

    @property
    def active(self) -> bool:
        return self.weight > 0

    def verl_actor(self, max_response: int) -> JsonDict:
        kind = {"k1": "kl", "k2": "mse", "k3": "low_var_kl", "abs": "abs"}[self.kind]
        return {
            "use_kl_loss": self.active,
            "kl_loss_coef": self.weight,
            "kl_loss_type": kind + ("+" if self.straight else ""),
        }

    def __call__(self, log_prob: Tensor, ref_log_prob: Tensor) -> tuple[Tensor, Tensor]:
        away = kl(log_prob, ref_log_prob, self.kind, straight=self.straight)
        return self.weight * away, away


class Aggregate(RecipePart):
    """One of the modes of `aggregate`."""

    slots = ("aggregate",)
    mode: ClassVar[Mode]
    verl_mode: ClassVar[str]

    def fixed_length(self, max_response: int) -> int | None:
        return None

    def verl_actor(self, max_response: int) -> JsonDict:
        return {
            "loss_agg_mode": self.verl_mode,
            "loss_scale_factor": self.fixed_length(max_response),
        }

    def __call__(
        self,
        loss: Tensor,
        mask: Tensor,
        *,
        tokens: Count = None,
        rows: Count = None,
        max_response: int,
    ) -> Tensor:
        return aggregate(
            loss, mask, self.mode, tokens=tokens, rows=rows, length=self.fixed_length(max_response)
        )


class TokenMean(Aggregate):
    mode = "token-mean"
    verl_mode = "token-mean"


class TokenSum(Aggregate):
    mode = "token-sum"
    verl_mode = "token-sum"


class SequenceMean(Aggregate):
    mode = "sequence-mean"
    verl_mode = "seq-mean-token-mean"


class SequenceSum(Aggregate):
    mode = "sequence-sum"
    verl_mode = "seq-mean-token-sum"


class ConstantLength(Aggregate):
    """length in tokens: the same at every step; 0 is the trainer's max_response."""

    mode = "constant"
    verl_mode = "seq-mean-token-sum-norm"
    length: int = Field(default=0, ge=0)

    def fixed_length(self, max_response: int) -> int:
        return self.length or max_response


def token_ratio(
    log_prob: Tensor, old_log_prob: Tensor, mask: Tensor, *, limit: float | None = 20.0
) -> Tensor:
    """exp(clamp(l - l_old, +-limit)): (B,T) -> (B,T). GRPO, arXiv 2402.03300; limit is verl's, None
    is TRL."""
    change = log_change(log_prob, old_log_prob, mask)
    return (change if limit is None else change.clamp(-limit, limit)).exp()


def sequence_ratio(
    log_prob: Tensor,
    old_log_prob: Tensor,
    mask: Tensor,
    *,
    limit: float | None = 10.0,
    straight: bool = True,
) -> Tensor:
    """exp of the row's mean log change, on each of its tokens: (B,T) -> (B,T). GSPO, arXiv
    2507.18071, equation 7.

    straight: each token carries the gradient of its own log-prob (equation 14, GSPO-token, and
    verl); otherwise the mean's gradient (TRL). Under one clip and one aggregate the two give the
    same gradient. A row without tokens counts as one token long.
    """
    change = log_change(log_prob, old_log_prob, mask)
    mean = (change * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    if straight:
        own = torch.where(mask.bool(), log_prob, 0.0)
        mean = own - own.detach() + mean.detach()
    else:
        mean = mean.expand_as(log_prob)
    return (mean if limit is None else mean.clamp(max=limit)).exp()


def log_change(log_prob: Tensor, old_log_prob: Tensor, mask: Tensor) -> Tensor:
    """l - l_old, 0 outside the mask: (B,T)."""
    return torch.where(mask.bool(), log_prob - old_log_prob, 0.0)


def clip(
    ratio: Tensor,
    advantages: Tensor,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
    cap: float | None = None,
) -> PolicyLoss:
    """max(-rho A, -clip(rho, 1 - low, 1 + high) A): (B,T) -> (B,T). PPO, arXiv 1707.06347; high >
    low is DAPO's.

    dual: where A < 0, at most -dual A (arXiv 1912.09729; verl's clip_ratio_c). cap: the unclipped
    ratio is at most this (TRL's delta).
    """
    free = -advantages * (ratio if cap is None else ratio.clamp(max=cap))
    held = -advantages * ratio.clamp(1 - low, 1 + high)
    loss = torch.maximum(free, held)
    clipped = held > free
    if dual is None:
        return PolicyLoss(loss, clipped, torch.zeros_like(clipped))
    bound = -advantages * dual
    negative = advantages < 0
    return PolicyLoss(
        torch.where(negative, torch.minimum(bound, loss), loss), clipped, (loss > bound) & negative
    )


def cispo(
    ratio: Tensor,
    advantages: Tensor,
    log_prob: Tensor,
    *,
    lowest: float = 0.0,
    highest: float = 1.28,
) -> PolicyLoss:
    """-sg[clip(rho, lowest, highest)] A log pi: every token keeps a gradient. MiniMax-M1, arXiv
    2506.13585, (4)."""
    held = ratio.clamp(lowest, highest)
    clipped = held != ratio
    return PolicyLoss(-held.detach() * advantages * log_prob, clipped, torch.zeros_like(clipped))


def log_likelihood(advantages: Tensor, log_prob: Tensor) -> PolicyLoss:
    """-A log pi, no ratio and no clip: REINFORCE; with A = 1, supervised training. arXiv
    2509.04419, table 1."""
    none = torch.zeros_like(log_prob, dtype=torch.bool)
    return PolicyLoss(-advantages * log_prob, none, none)


def kl(
    log_prob: Tensor,
    ref_log_prob: Tensor,
    kind: Kind = "k3",
    *,
    straight: bool = False,
    clamp: bool = True,
) -> Tensor:
    """An estimate of KL(pi || ref) from the sampled token: (B,T) -> (B,T).
    joschu.net/blog/kl-approx.html.

    k1 = l - ref, k2 = k1^2 / 2, k3 = e^-k1 + k1 - 1, abs = |k1|. clamp: verl's bounds on k3
    (exponent +-20, value 10). straight: the value of `kind` with the gradient of k2, which is the
    KL's own in expectation (verl's "k3+").
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


def pairs(rewards: Tensor, groups: Groups, *, margin: float = 0.0) -> Tensor:
    """(P,2) rows: each group's best and worst, where they differ by more than `margin`; the first
    row of equals."""
    found = []
    for rows in groups.blocks():
        scores = rewards[rows]
        best = scores.argmax(1, keepdim=True)
        worst = scores.argmin(1, keepdim=True)
        # a NaN is the greatest to argmax: its group makes no pair
        apart = scores.gather(1, best) - scores.gather(1, worst) > margin
        found.append(torch.cat([rows.gather(1, best), rows.gather(1, worst)], 1)[apart.squeeze(1)])
    return torch.cat(found) if found else torch.empty(0, 2, dtype=torch.long)


def simpo(
    log_prob: Tensor,
    mask: Tensor,
    chosen: Tensor,
    rejected: Tensor,
    *,
    beta: float = 2.0,
    margin: float = 1.0,
) -> Tensor:
    """-log sigmoid(beta (mean log pi(chosen) - mean log pi(rejected)) - margin), mean over pairs: a
    scalar.

    log_prob and mask (B,T); chosen and rejected (P,) rows. SimPO, arXiv 2405.14734, equation 6: no
    reference model, lengths divided out. The paper: beta 2.0 to 2.5, margin 0.3 to 1.6. No pairs:
    0.
    """
    kept = torch.where(mask.bool(), log_prob, 0.0).sum(-1) / mask.to(log_prob.dtype).sum(-1).clamp(
        min=1
    )
    if not len(chosen):
        return kept.sum() * 0
    return -torch.nn.functional.logsigmoid(beta * (kept[chosen] - kept[rejected]) - margin).mean()


def aggregate(
    loss: Tensor,
    mask: Tensor,
    mode: Mode = "token-mean",
    *,
    tokens: Count = None,
    rows: Count = None,
    length: int | None = None,
) -> Tensor:
    """The mean loss over (B,T): a scalar.

    token-mean     sum over tokens / tokens                                   DAPO, TRL bnpo and
                   dapo
    token-sum      sum over tokens
    sequence-mean  mean over rows of each row's mean                          GRPO's 1/G sum 1/|o|
    sequence-sum   mean over rows of each row's sum                           TRL luspo
    constant       the same / `length` (T unless given)                       Dr.GRPO, arXiv
                   2503.20783

    tokens and rows are the counts to divide by, of the whole batch when it comes in pieces or from
    several processes (divided by the number of processes where those average gradients); by default
    what the mask holds, rows without a token left out. Nothing unmasked: 0, with a gradient of 0.
    Masked losses are never read.
    """
    weight = mask.to(loss.dtype)
    kept = torch.where(mask.bool(), loss, 0.0) * weight
    if mode == "token-sum":
        return kept.sum()
    if mode == "token-mean":
        return kept.sum() / at_least_one(weight.sum() if tokens is None else tokens)
    own = weight.sum(-1)
    per_row = kept.sum(-1)
    if mode == "sequence-mean":
        per_row = per_row / own.clamp(min=1)
    mean = per_row.sum() / at_least_one((own > 0).to(loss.dtype).sum() if rows is None else rows)
    return mean / (length or loss.shape[-1]) if mode == "constant" else mean


def at_least_one(count: float | Tensor) -> float | Tensor:
    # a count that is a share of the whole batch may be below 1; only nothing at all is mended
    if isinstance(count, torch.Tensor):
        return torch.where(count > 0, count, torch.ones_like(count))
    return count if count > 0 else 1.0
