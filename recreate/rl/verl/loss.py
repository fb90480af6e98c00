"""Our policy losses, as verl's registry calls them: `recreate_clip`, ... Select with actor.policy_loss.loss_mode.

Ratio, clip, token weight and aggregate are the recipe's, through `Method.loss`, with verl's counts of the whole batch:
verl averages gradients over processes, so what a process divides by is the batch's count / dp_size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor

from recreate.api.errors import BadInput
from recreate.rl import recipe
from recreate.rl.method import Tokens
from recreate.rl.verl.chosen import expect, method
from recreate.rl.verl.translate import AGGREGATES

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


def policy_loss(part: str) -> Callable[..., tuple[Tensor, dict[str, Any]]]:
    """The function that verl registers for a surrogate part."""

    def loss(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """(B,T) each -> (a scalar with its gradient, what to watch). rollout_is_weights (B,T) multiply the loss.

        Raises BadInput for a recipe with another surrogate or aggregate than verl's config, and for STEER without
        entropies.
        """
        expect("surrogate", part)
        does = method()
        over = AGGREGATES[does.recipe.name_of("aggregate")]
        if loss_agg_mode != over:
            raise BadInput(
                f"actor.loss_agg_mode is {loss_agg_mode}, and the recipe {does.recipe.name} aggregates by {over}",
                fix=f"set actor_rollout_ref.actor.loss_agg_mode={over}: the penalty and the entropy follow it",
                code="another-part",
            )
        counts = dict(getattr(config, "global_batch_info", None) or {})
        processes = counts.get("dp_size") or 1
        tokens, rows = counts.get("batch_num_tokens"), counts.get("global_batch_size")
        if processes > 1 and (tokens if over.startswith("token-mean") else rows or over == "token-sum") is None:
            raise BadInput(
                "verl told no counts of the whole batch, and there are several processes",
                fix="set trainer.v1.trainer_mode=recreate, or train in one process: trainer.nnodes=1 "
                "trainer.n_gpus_per_node=1",
                code="no-counts",
            )
        held = _ENTROPY.get()
        if held is None and isinstance(does.recipe.part("token weight"), recipe.STEER):
            raise BadInput(
                "steer needs the old policy's entropies, which verl does not hand to a loss",
                fix="load recreate.rl.verl.plugin by VERL_USE_EXTERNAL_MODULES, before verl's workers are imported",
                code="no-entropy",
            )
        made = does.loss(
            Tokens(
                log_prob=log_prob,
                advantages=advantages,
                mask=response_mask.bool(),
                old_log_prob=old_log_prob,
                entropy=held,
                row_weight=rollout_is_weights,
                tokens=None if tokens is None else tokens / processes,
                rows=None if rows is None else rows / processes,
            )
        )
        value = made.value * processes if over == "token-sum" else made.value
        watch = {f"actor/{_WATCHED.get(name, name)}": float(v) for name, v in made.watch.items()}
        return value, watch

    return loss


def with_entropy(ppo_loss: Callable[..., Any]) -> Callable[..., Any]:
    """verl's ppo_loss, with the old policy's entropies (which its v1 trainer keeps beside old_log_probs) in reach."""

    def told(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        if "entropy" not in data:
            raise BadInput(
                "steer needs the entropy of the old policy's pass, and the batch holds none",
                fix="leave algorithm.rollout_correction.bypass_mode at False, with verl's v1 trainer",
                code="no-entropy",
            )
        padded = data.select("entropy", "response_mask").to_padded_tensor()
        with entropy(padded["entropy"]):
            return ppo_loss(config, model_output, data, dp_group)

    return told
