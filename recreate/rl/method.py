"""A recipe's parts, put together: what a trainer calls, in the order of the slots.

    method = Method(load("gapo+steer+a2r"))
    keep = method.keep(rows)                 which rows reach the update          (DAPO; supervised)
    advantages = method.advantages(rows)     (B,T)                                (GRPO, GAPO, GiGPO, ...)
    loss = method.loss(tokens)               a scalar and what to watch           (clip, STEER, LEPO, KL, ...)

A trainer that only hands over advantages (TRL's own loss) multiplies `method.token_weight(tokens)` and the replay's
row weights into them: the surrogates are of degree 1 in the advantage. Everything is a pure function of its records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recreate.api.errors import BadInput
from recreate.rl import advantage, group_filter, latent, penalty, preference, ratio, recipe, shaping, steer, surrogate
from recreate.rl.aggregate import Mode, aggregate
from recreate.rl.gapo import gapo
from recreate.rl.gigpo import discounted_returns, gigpo, step_groups
from recreate.rl.groups import Groups
from recreate.rl.recipe import Recipe
from recreate.rl.replay import AmbiguityReplay

_MODES: dict[str, Mode] = {
    "token-mean": "token-mean",
    "token-sum": "token-sum",
    "sequence-mean": "sequence-mean",
    "sequence-sum": "sequence-sum",
    "constant-length": "constant",
}


@dataclass(frozen=True)
class Rows:
    """What is known of B rows before an update. rewards (B,), groups, mask (B,T): the tokens the policy chose.

    trajectories, anchors and step_rewards (B,) are GiGPO's: whose step a row is (rows in time order), the observation
    it answered, and what the step earned; without step_rewards the episode's reward falls on its last step.
    """

    rewards: Tensor
    groups: Groups
    mask: Tensor
    trajectories: Groups | None = None
    anchors: Sequence[Any] | None = None
    step_rewards: Tensor | None = None


@dataclass(frozen=True)
class Tokens:
    """One micro-batch, (B,T) each. log_prob carries the gradient; old_log_prob None: this is the policy that acted.

    entropy (of the old pass) and square (of the token pass) are for STEER, ref_log_prob for the penalty, row_weight
    (B,) or (B,T) for replayed rows, mixture (B,T) for latent ones: sum_k z_k log pi_k where `latent` is set. extent:
    what STEER's weights are relative to when its scope is wider than this call. tokens and rows: the counts to divide
    by when this is a part of a batch. pairs (P,2): SimPO's rows, of this micro-batch.
    """

    log_prob: Tensor
    advantages: Tensor
    mask: Tensor
    old_log_prob: Tensor | None = None
    ref_log_prob: Tensor | None = None
    entropy: Tensor | None = None
    square: Tensor | None = None
    row_weight: Tensor | None = None
    latent: Tensor | None = None
    mixture: Tensor | None = None
    extent: steer.Extent | None = None
    tokens: float | Tensor | None = None
    rows: float | Tensor | None = None
    pairs: Tensor | None = None


class Loss(NamedTuple):
    """value: a scalar to minimise. watch: detached scalars by name (means over tokens unless the name says other)."""

    value: Tensor
    watch: dict[str, Tensor]


class Method:
    """The parts of a recipe as functions over tensors."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def shaped(self, rewards: Tensor, lengths: Tensor) -> Tensor:
        """(B,) rewards and response lengths -> (B,) rewards. The filter and the replay see the unshaped ones."""
        part = self.recipe.part("reward")
        if isinstance(part, recipe.Overlong):
            return shaping.overlong(
                rewards, lengths, max_length=part.max_length, buffer=part.buffer, factor=part.factor
            )
        if isinstance(part, recipe.ClipReward):
            return shaping.clipped_reward(rewards, low=part.low, high=part.high)
        return rewards

    def keep(self, rows: Rows) -> Tensor:
        """(B,) bool: which rows reach the update, by their unshaped rewards. Rows of a group with a NaN never do
        (with unscored = "row": the row itself)."""
        part = self.recipe.part("filter")
        row = getattr(self.recipe.part("advantage"), "unscored", "group") == "row"
        scored = rows.rewards.isfinite() if row else ~advantage.unscored_groups(rows.rewards, rows.groups)
        if isinstance(part, recipe.DynamicSampling):
            return scored & group_filter.dynamic_sampling(rows.rewards, rows.groups, tolerance=part.tolerance)
        if isinstance(part, recipe.Successes):
            return group_filter.successes(rows.rewards, threshold=part.threshold)
        return scored

    def advantages(self, rows: Rows) -> Tensor:
        """(B,T): 0 outside the mask, and for every group whose rewards are equal or not all finite.

        Of shaped rewards. With [lepo] centre, latent steps have their group's mean taken off.
        """
        own = self.row_advantages(rows)
        out = advantage.spread(own, rows.mask)
        part = self.recipe.part("rollout")
        if isinstance(part, recipe.LEPO) and part.centre and part.steps:
            groups = rows.groups
            mean = groups.spread(groups.total(own) / groups.count.clamp(min=1)).to(own.dtype)
            steps = latent.latent_mask(rows.mask, part.steps)
            out = torch.where(steps, latent.centred(own, mean).unsqueeze(-1), out)
        return out

    def row_advantages(self, rows: Rows) -> Tensor:
        """(B,), before they are laid over tokens."""
        part = self.recipe.part("advantage")
        r, g = rows.rewards, rows.groups
        if isinstance(part, recipe.GRPO):
            return advantage.grpo(r, g, scale=part.scale, eps=part.eps, unscored=part.unscored)
        if isinstance(part, recipe.DrGRPO):
            return advantage.dr_grpo(r, g, unscored=part.unscored)
        if isinstance(part, recipe.RLOO):
            return advantage.rloo(r, g, normalise=part.normalise, unscored=part.unscored)
        if isinstance(part, recipe.GAPO):
            return gapo(
                r,
                g,
                fraction=part.fraction,
                center=part.center,
                scale=part.scale,
                eps=part.eps,
                pair=part.pair,
                unscored=part.unscored,
            )
        if isinstance(part, recipe.Constant):
            return advantage.constant(r, g, value=part.value)
        if isinstance(part, recipe.GiGPO):
            return self._gigpo(part, rows)
        return torch.zeros_like(r)  # pairs have no advantage

    def _gigpo(self, part: recipe.GiGPO, rows: Rows) -> Tensor:
        if rows.trajectories is None or rows.anchors is None:
            raise BadInput(
                "gigpo needs to know whose step each row is and what it answered",
                fix="train on multi-turn attempts, a row a step; or take the recipe grpo",
                code="no-steps",
            )
        earned = rows.step_rewards
        if earned is None:
            last = torch.zeros(len(rows.rewards), dtype=torch.bool)
            last[len(last) - 1 - Groups(rows.trajectories.index.flip(0), rows.trajectories.size).first()] = True
            earned = torch.where(last.to(rows.rewards.device), rows.rewards, 0.0)
        return gigpo(
            rows.rewards,
            rows.groups,
            trajectories=rows.trajectories,
            returns=discounted_returns(earned, rows.trajectories, part.gamma),
            steps=step_groups(rows.anchors, rows.groups, similarity=part.similarity),
            weight=part.weight,
            scale=part.scale,
            across_steps=part.across_steps,
            eps=part.eps,
            unscored=part.unscored,
        )

    def replay(self, seed: int = 0) -> AmbiguityReplay | None:
        """The replay that the recipe asks for, empty; None when it asks for none."""
        part = self.recipe.part("replay")
        if not isinstance(part, recipe.A2R):
            return None
        knobs = part.model_dump(exclude={"rollouts", "advantages"})
        return AmbiguityReplay(**knobs, seed=seed)

    def omega(self, tokens: Tokens) -> Tensor | None:
        """STEER's entropy change (B,T), for `steer.extent` over several micro-batches; None without STEER."""
        part = self.recipe.part("token weight")
        if not isinstance(part, recipe.STEER):
            return None
        if tokens.entropy is None:
            raise BadInput("steer needs the entropy of the old policy's pass", fix="ask the token pass for it")
        old = tokens.log_prob.detach() if tokens.old_log_prob is None else tokens.old_log_prob
        clipped = None
        if part.form != "released":
            with torch.no_grad():
                clipped = self._surrogate(tokens, old).clipped
        return steer.entropy_change(
            tokens.advantages,
            tokens.entropy,
            tokens.log_prob.detach(),
            old,
            form=part.form,
            square=tokens.square,
            clipped=clipped,
        )

    def token_weight(self, tokens: Tokens) -> Tensor | None:
        """(B,T) weights of the loss, or of the advantages; 1 on latent steps; None when every token counts alike."""
        part = self.recipe.part("token weight")
        omega = self.omega(tokens)
        if omega is None or not isinstance(part, recipe.STEER):
            return None
        discrete = tokens.mask if tokens.latent is None else tokens.mask.bool() & ~tokens.latent
        weight = steer.steer(
            omega,
            discrete,
            mapping=part.mapping,
            least=part.least,
            most=part.most,
            signed=part.signed,
            floor=part.floor,
            within=tokens.extent,
        )
        return weight if tokens.latent is None else torch.where(tokens.latent & tokens.mask.bool(), 1.0, weight)

    def loss(self, tokens: Tokens) -> Loss:
        """The loss of one micro-batch, with its gradient, and what to watch. Nothing unmasked: 0."""
        part = self.recipe.part("surrogate")
        valid = tokens.mask.bool()
        if isinstance(part, recipe.SimPO):
            chosen = tokens.log_prob.new_zeros(0, 2, dtype=torch.long) if tokens.pairs is None else tokens.pairs
            value = preference.simpo(
                tokens.log_prob, tokens.mask, chosen[:, 0], chosen[:, 1], beta=part.beta, margin=part.margin
            )
            return Loss(value, {"pairs": torch.tensor(float(len(chosen)))})
        old = tokens.log_prob.detach() if tokens.old_log_prob is None else tokens.old_log_prob
        made = self._surrogate(tokens, old)
        each = made.loss
        change = ratio.log_change(tokens.log_prob.detach(), old, tokens.mask)
        watch = {
            "clip": _mean(made.clipped, valid),
            "clip_dual": _mean(made.dual, valid),
            "step_kl": _mean(-change, valid),
        }
        if tokens.latent is not None and tokens.mixture is not None:
            each = torch.where(tokens.latent, latent.latent_loss(tokens.mixture, tokens.advantages), each)
        weight = self.token_weight(tokens)
        if weight is not None:
            each = each * weight
            watch["token_weight"] = _mean(weight, valid)
            watch["token_weight_min"] = torch.where(valid, weight, torch.inf).amin() if weight.numel() else weight.sum()
        if tokens.row_weight is not None:
            each = each * (tokens.row_weight if tokens.row_weight.dim() == 2 else tokens.row_weight.unsqueeze(-1))
            watch["row_weight"] = tokens.row_weight.mean()
        away = self.recipe.part("penalty")
        if isinstance(away, recipe.KL) and away.weight:
            if tokens.ref_log_prob is None:
                raise BadInput(
                    "the penalty needs the reference's log-probs", fix="give ref_log_prob, or leave [kl] out"
                )
            current = torch.where(valid, tokens.log_prob, 0.0)
            far = penalty.kl(current, torch.where(valid, tokens.ref_log_prob, 0.0), away.kind, straight=away.straight)
            each = each + away.weight * far
            watch["kl"] = _mean(far.detach(), valid)
        if tokens.entropy is not None:
            watch["entropy"] = _mean(tokens.entropy, valid)
        over = self.recipe.part("aggregate")
        fixed = over.length if isinstance(over, recipe.ConstantLength) else 0
        value = aggregate(
            each,
            tokens.mask,
            _MODES[self.recipe.name_of("aggregate")],
            tokens=tokens.tokens,
            rows=tokens.rows,
            length=fixed or self.recipe.train.max_response,
        )
        return Loss(value, watch)

    def _surrogate(self, tokens: Tokens, old: Tensor) -> surrogate.Surrogate:
        valid = tokens.mask.bool()
        advantages = torch.where(valid, tokens.advantages, 0.0)
        taken = torch.where(valid, tokens.log_prob, 0.0)
        part, by = self.recipe.part("surrogate"), self.recipe.part("ratio")
        if isinstance(part, recipe.LogLikelihood):
            return surrogate.log_likelihood(advantages, taken)
        if isinstance(by, recipe.SequenceRatio):
            rho = ratio.sequence_ratio(tokens.log_prob, old, tokens.mask, limit=by.limit)
        else:
            limit = by.limit if isinstance(by, recipe.TokenRatio) else 20.0
            rho = ratio.token_ratio(tokens.log_prob, old, tokens.mask, limit=limit)
        if isinstance(part, recipe.CISPO):
            return surrogate.cispo(rho, advantages, taken, lowest=part.lowest, highest=part.highest)
        known = part if isinstance(part, recipe.Clip) else recipe.Clip()
        return surrogate.clip(rho, advantages, low=known.low, high=known.high, dual=known.dual or None)


def _mean(values: Tensor, valid: Tensor) -> Tensor:
    """Over valid tokens; of none: 0."""
    return torch.where(valid, values.detach().float(), 0.0).sum() / valid.sum().clamp(min=1)
