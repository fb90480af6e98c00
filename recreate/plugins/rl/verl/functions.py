"""The recipe of this process, and our advantages and policy losses as verl's registries call them:
`recreate_gapo` by adv_estimator, `recreate_clip` by actor.policy_loss.loss_mode.

Ratio, clip, token weight and aggregate are the recipe's, through `Method.loss`, with verl's counts
of the whole batch: verl averages gradients over processes, so what a process divides by is the
batch's count / dp_size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.plugins.rl import recipe
from recreate.plugins.rl.method import Method
from recreate.plugins.rl.parts.groups import Groups, grouped, spread
from recreate.plugins.rl.recipe import Recipe, Rows, Tokens
from recreate.plugins.rl.verl.translate import RECIPE, aggregate_mode, refuse, registered

Estimate = Callable[..., tuple[Tensor, Tensor]]


def chosen() -> Recipe:
    """Raises BadInput when no recipe is named, or one that verl cannot train."""
    named = os.environ.get(RECIPE, "")
    if not named:
        raise BadInput(
            f"{RECIPE} is not set, so it is not known which recipe verl trains with",
            fix=(
                f"set {RECIPE} to a recipe's name or file in every process: run.sh of a run folder"
                " does"
            ),
            code="no-recipe",
        )
    return _read(named)


def method() -> Method:
    """The recipe's parts, without the penalty: verl adds that to the loss itself, by its own
    config."""
    how = chosen()
    return Method(
        how.model_copy(
            update={"parts": {k: v for k, v in how.parts.items() if "penalty" not in v.slots}}
        )
    )


@lru_cache(maxsize=8)
def _read(named: str) -> Recipe:
    how = recipe.load(named)
    refuse(how)
    return how


def expect(slot: str, part: str) -> None:
    """Raises BadInput (`another-part`) unless it is this part that fills the slot of the recipe."""
    how = chosen()
    if how.name_of(slot) != part:
        raise BadInput(
            f"verl asks for {part}, and in the slot {slot!r} of the recipe {how.name} stands"
            f" {how.name_of(slot)}",
            fix=f"take {registered(how.name_of(slot))} in verl's config, or another recipe",
            code="another-part",
        )


# advantages


@dataclass
class AttemptRows:
    """What verl does not hand to an advantage: whose row each of B rows is, its place among that
    attempt's rows, the observation that it answered. keep (B,): left behind by the estimate, which
    rows reach the update.
    """

    of: Sequence[Hashable]
    turn: Sequence[int]
    anchors: Sequence[Any]
    keep: Tensor | None = None


_KNOWN: ContextVar[AttemptRows | None] = ContextVar("attempts", default=None)


@contextmanager
def attempt_rows(attempts: AttemptRows) -> Iterator[AttemptRows]:
    """Within it, an attempt that fell into several rows counts once. Without, every row is an
    attempt."""
    token = _KNOWN.set(attempts)
    try:
        yield attempts
    finally:
        _KNOWN.reset(token)


def estimator(part: str) -> Estimate:
    """The function that verl registers for an advantage part."""

    def estimate(
        token_level_rewards: Tensor,
        response_mask: Tensor,
        config: Any = None,
        index: Any = None,
        **other: Any,
    ) -> tuple[Tensor, Tensor]:
        """(B,T) rewards and mask, B group ids -> (advantages, returns), the same (B,T); 0 outside
        the mask.

        The recipe's reward part comes first, and rows that its filter leaves out get 0. Raises
        BadInput for a recipe whose advantage is another part.
        """
        expect("advantage", part)
        if index is None:
            raise BadInput(
                "verl gave no group ids",
                fix="the data needs a `uid` for each prompt",
                code="no-groups",
            )
        with torch.no_grad():
            made = _estimate(token_level_rewards, response_mask.bool(), list(index))
        return made, made

    return estimate


def _estimate(rewards: Tensor, mask: Tensor, index: list[Hashable]) -> Tensor:
    does = method()
    own = rewards.sum(-1)
    attempts = _KNOWN.get() or AttemptRows(of=range(len(own)), turn=[0] * len(own), anchors=[])
    # a row's number, by attempt and turn: GiGPO needs time order, which verl's balancing of
    # processes does not keep
    first: dict[Hashable, int] = {}
    for name in attempts.of:
        first.setdefault(name, len(first))
    order = sorted(range(len(own)), key=lambda n: (first[attempts.of[n]], attempts.turn[n]))
    whose = torch.tensor([first[attempts.of[n]] for n in order], dtype=torch.long)
    rows = torch.tensor(order, dtype=torch.long)
    heads = Groups(whose, len(first)).first()
    r = own[rows[heads]]  # every row of an attempt carries its reward
    groups = grouped([index[order[int(n)]] for n in heads])
    lengths = Groups(whose, len(first)).total(mask[rows].sum(-1))
    shaped = does.shaped(r, lengths)
    keep = does.keep(Rows(r, groups, torch.ones(len(r), 1, dtype=torch.bool)))
    part = does.recipe.does("advantage")
    if part is not None and part.rows_per_turn:
        if len(attempts.anchors) != len(own):
            raise BadInput(
                f"{does.recipe.name_of('advantage')} needs to know whose step each row is, which"
                " verl's own trainers do not tell",
                fix=(
                    "set trainer.v1.trainer_mode=recreate and take our agent loop: the config of a"
                    " run folder does"
                ),
                code="no-steps",
            )
        made = does.row_advantages(
            Rows(
                shaped[whose],
                grouped([index[n] for n in order]),
                torch.ones(len(own), 1, dtype=torch.bool),
                trajectories=Groups(whose, len(first)),
                anchors=[attempts.anchors[n] for n in order],
            )
        )
    else:
        made = does.row_advantages(Rows(shaped, groups, torch.ones(len(r), 1, dtype=torch.bool)))[
            whose
        ]
    made = torch.where(keep[whose], made, 0.0)
    out = torch.empty_like(made)
    kept = torch.empty_like(keep[whose])
    out[rows], kept[rows] = made, keep[whose]
    attempts.keep = kept
    return spread(out, mask)


# policy losses

_ENTROPY: ContextVar[Tensor | None] = ContextVar("entropy", default=None)
_WATCHED = {"clip": "pg_clipfrac", "clip_dual": "pg_clipfrac_lower", "step_kl": "ppo_kl"}


@contextmanager
def entropy(values: Tensor) -> Iterator[None]:
    """Within it the losses know the old policy's entropies (B,T), for STEER."""
    token = _ENTROPY.set(values)
    try:
        yield
    finally:
        _ENTROPY.reset(token)


def policy_loss(part: str) -> Callable[..., tuple[Tensor, JsonDict]]:
    """The function that verl registers for a policy loss part."""

    def loss(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, JsonDict]:
        """(B,T) each -> (a scalar with its gradient, what to watch). rollout_is_weights (B,T)
        multiply the loss.

        Raises BadInput for a recipe with another policy loss or aggregate than verl's config, and
        for STEER without entropies.
        """
        expect("policy loss", part)
        does = method()
        over = aggregate_mode(does.recipe)
        if loss_agg_mode != over:
            raise BadInput(
                f"actor.loss_agg_mode is {loss_agg_mode}, and the recipe {does.recipe.name}"
                f" aggregates by {over}",
                fix=(
                    f"set actor_rollout_ref.actor.loss_agg_mode={over}: the penalty and the entropy"
                    " follow it"
                ),
                code="another-part",
            )
        counts = dict(getattr(config, "global_batch_info", None) or {})
        processes = counts.get("dp_size") or 1
        tokens = counts.get("batch_num_tokens")
        rows = counts.get("global_batch_size")
        if (
            processes > 1
            and (tokens if over.startswith("token-mean") else rows or over == "token-sum") is None
        ):
            raise BadInput(
                "verl told no counts of the whole batch, and there are several processes",
                fix=(
                    "set trainer.v1.trainer_mode=recreate, or train in one process:"
                    " trainer.nnodes=1 trainer.n_gpus_per_node=1"
                ),
                code="no-counts",
            )
        held = _ENTROPY.get()
        if held is None and does.recipe.does("token weight") is not None:
            raise BadInput(
                "steer needs the old policy's entropies, which verl does not hand to a loss",
                fix=(
                    "load recreate.plugins.rl.verl.plugin by VERL_USE_EXTERNAL_MODULES,"
                    " before verl's workers are imported"
                ),
                code="no-entropy",
            )
        made = does.loss(
            Tokens(
                log_prob=log_prob,
                advantages=advantages,
                mask=response_mask.bool(),
                old_log_prob=old_log_prob,
                entropy=held,
                importance_weight=rollout_is_weights,
                tokens=None if tokens is None else tokens / processes,
                rows=None if rows is None else rows / processes,
            )
        )
        value = made.value * processes if over == "token-sum" else made.value
        watch = {f"actor/{_WATCHED.get(name, name)}": float(v) for name, v in made.watch.items()}
        return value, watch

    return loss


def with_entropy(ppo_loss: Callable[..., Any]) -> Callable[..., Any]:
    """verl's ppo_loss, with the old policy's entropies (which its v1 trainer keeps beside
    old_log_probs) in reach."""

    def wrapped(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        if "entropy" not in data:
            raise BadInput(
                "steer needs the entropy of the old policy's pass, and the batch holds none",
                fix=(
                    "leave algorithm.rollout_correction.bypass_mode at False, with verl's v1"
                    " trainer"
                ),
                code="no-entropy",
            )
        padded = data.select("entropy", "response_mask").to_padded_tensor()
        with entropy(padded["entropy"]):
            return ppo_loss(config, model_output, data, dp_group)

    return wrapped
