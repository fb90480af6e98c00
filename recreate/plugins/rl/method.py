"""A recipe's parts, put together: what a trainer calls, in the order of the slots.

    method = Method(load("gapo+steer+a2r"))
    keep = method.keep(rows)                 which rows reach the update          (DAPO; supervised)
    advantages = method.advantages(rows)     (B,T)                                (GRPO, GAPO,
                                             GiGPO, ...)
    loss = method.loss(tokens)               a scalar and what to watch           (clip, STEER,
                                             LEPO, KL, ...)

A trainer that only hands over advantages multiplies `method.token_weight(tokens)` and the replay's
importance weights into them: policy losses are of degree 1 in the advantage. Everything is a pure
function of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from recreate.api.errors import BadInput
from recreate.api.types import Experience
from recreate.plugins.rl.parts.a2r import AmbiguityReplay
from recreate.plugins.rl.parts.groups import spread
from recreate.plugins.rl.parts.lepo import latent_loss
from recreate.plugins.rl.parts.losses import log_change
from recreate.plugins.rl.recipe import Loss, PolicyLoss, Recipe, Rows, Tokens


class Method:
    """The parts of a recipe as functions over tensors."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def earned(self, attempts: Sequence[Experience], gold: Callable[[str], str]) -> Tensor | None:
        """(B,) what attempts earn beside their grades; None where the recipe gives nothing for it.
        gold: a right answer to a task, by its id. What is reported, filtered and replayed by is the
        grade alone.
        """
        part = self.recipe.does("process")
        return (
            None if part is None else torch.tensor([float(part(e, gold(e.task))) for e in attempts])
        )

    def shaped(self, rewards: Tensor, lengths: Tensor, cut: Tensor | None = None) -> Tensor:
        """(B,) rewards, response lengths and which were cut off (None: none) -> (B,) rewards. The
        filter and the replay see the unshaped ones."""
        part = self.recipe.does("reward")
        none = torch.zeros_like(rewards, dtype=torch.bool)
        return rewards if part is None else part(rewards, lengths, none if cut is None else cut)

    def keep(self, rows: Rows) -> Tensor:
        """(B,) bool: which rows reach the update, by their unshaped rewards. Rows of a group with a
        NaN never do (with unscored = "row": the row itself)."""
        part = self.recipe.does("filter")
        advantage = self.recipe.part("advantage")
        scored = rows.rewards.isfinite()
        if advantage is None or not advantage.scores_rows:
            scored = ~rows.groups.any(~scored)[rows.groups.index]
        kept = scored if part is None else part(rows, scored)
        whole = self.recipe.does("truncation")
        return kept if whole is None or rows.cut is None else kept & whole(rows.cut)

    def advantages(self, rows: Rows) -> Tensor:
        """(B,T): 0 outside the mask, and for every group whose rewards are equal or not all finite.

        Of shaped rewards. With [lepo] centre, latent steps have their group's mean taken off.
        """
        part = self.recipe.does("rollout")
        own = self.row_advantages(rows)
        return spread(own, rows.mask) if part is None else part.lay(own, rows)

    def row_advantages(self, rows: Rows) -> Tensor:
        """(B,), before they are laid over tokens. Pairs have none: 0."""
        part = self.recipe.does("advantage")
        return torch.zeros_like(rows.rewards) if part is None else part(rows)

    def replay(self, seed: int = 0) -> AmbiguityReplay | None:
        """The replay that the recipe asks for, empty; None when it asks for none."""
        part = self.recipe.does("replay")
        return None if part is None else part(seed)

    def extent(self, tokens: Tokens) -> Any:
        """Of one micro-batch, for `joined`; None where token weights need no wider view."""
        part = self.recipe.does("token weight")
        return None if part is None else part.extent(tokens, lambda: self._clipped(tokens))

    def joined(self, extents: Sequence[Any]) -> Any:
        """What `Tokens.extent` is for each micro-batch of a mini-batch."""
        part = self.recipe.does("token weight")
        return part.joined(extents) if part is not None and extents else None

    def token_weight(self, tokens: Tokens) -> Tensor | None:
        """(B,T) weights of the loss, or of the advantages; 1 on latent steps; None when every token
        counts alike."""
        part = self.recipe.does("token weight")
        return None if part is None else part(tokens, lambda: self._clipped(tokens))

    def loss(self, tokens: Tokens) -> Loss:
        """The loss of one micro-batch, with its gradient, and what to watch. Nothing unmasked:
        0."""
        part = self.recipe.does("policy loss")
        if part is not None and part.in_pairs:
            whole: Loss = part(tokens)
            return whole
        valid = tokens.mask.bool()
        each, clipped, dual = self._policy_loss(tokens)
        watch = {
            "clip": _mean(clipped, valid),
            "clip_dual": _mean(dual, valid),
            "step_kl": _mean(
                -log_change(tokens.log_prob.detach(), tokens.acted, tokens.mask), valid
            ),
        }
        if tokens.latent is not None and tokens.mixture is not None:
            each = torch.where(tokens.latent, latent_loss(tokens.mixture, tokens.advantages), each)
        weight = self.token_weight(tokens)
        if weight is not None:
            each = each * weight
            watch["token_weight"] = _mean(weight, valid)
            watch["token_weight_min"] = (
                torch.where(valid, weight, torch.inf).amin() if weight.numel() else weight.sum()
            )
        by_row = tokens.importance_weight
        if by_row is not None:
            each = each * (by_row if by_row.dim() == 2 else by_row.unsqueeze(-1))
            watch["row_weight"] = by_row.mean()
        penalty = self.recipe.does("penalty")
        if penalty is not None:
            if tokens.ref_log_prob is None:
                raise BadInput(
                    "the penalty needs the reference's log-probs",
                    fix="give ref_log_prob, or leave [kl] out",
                )
            current = torch.where(valid, tokens.log_prob, 0.0)
            added, away = penalty(current, torch.where(valid, tokens.ref_log_prob, 0.0))
            each = each + added
            watch["kl"] = _mean(away.detach(), valid)
        if tokens.entropy is not None:
            watch["entropy"] = _mean(tokens.entropy, valid)
        over = self.recipe.does("aggregate")
        length = self.recipe.train.max_response
        assert over is not None
        return Loss(
            over(each, tokens.mask, tokens=tokens.tokens, rows=tokens.rows, max_response=length),
            watch,
        )

    def _policy_loss(self, tokens: Tokens) -> PolicyLoss:
        valid = tokens.mask.bool()
        part = self.recipe.does("policy loss")
        by = self.recipe.does("ratio")
        assert part is not None
        ratio = None if by is None else by(tokens.log_prob, tokens.acted, tokens.mask)
        made: PolicyLoss = part(
            ratio,
            torch.where(valid, tokens.advantages, 0.0),
            torch.where(valid, tokens.log_prob, 0.0),
        )
        return made

    def _clipped(self, tokens: Tokens) -> Tensor:
        with torch.no_grad():
            return self._policy_loss(tokens).clipped


def _mean(values: Tensor, valid: Tensor) -> Tensor:
    """Over valid tokens; of none: 0."""
    return torch.where(valid, values.detach().float(), 0.0).sum() / valid.sum().clamp(min=1)
