"""What a recipe asks that cannot be had: refused before anything is spent. No torch is needed to ask."""

from __future__ import annotations

from recreate.api.errors import BadInput
from recreate.rl.recipe import A2R, LEPO, GiGPO, Recipe


def refuse(how: Recipe, rollouts: str) -> None:
    """rollouts: here, vllm or transformers. Raises BadInput: `recipe-does-not-fit`, `not-yet`, `no-mixtures` or
    `no-adapter`."""
    replay, rollout = how.part("replay"), how.part("rollout")
    if isinstance(replay, A2R) and replay.advantages == "again" and isinstance(how.part("advantage"), GiGPO):
        raise BadInput(
            '[gigpo] compares the steps of one moment, which [a2r] advantages = "again" would mix with older ones',
            fix='set advantages = "frozen" under [a2r]',
            code="recipe-does-not-fit",
        )
    if isinstance(rollout, LEPO) and rollout.steps and rollout.noise == "soft":
        raise BadInput(
            '[lepo] noise = "soft" puts noise on the embeddings, which are not kept for training',
            fix='take noise = "gumbel", "gaussian" or "dirichlet"',
            code="not-yet",
        )
    if rollouts == "here":
        return
    if rollout is not None:
        raise BadInput(
            f"{how.name} draws mixtures of tokens, which no server hands out",
            fix="take --rollouts here",
            code="no-mixtures",
        )
    if how.train.lora_rank == 0:
        raise BadInput(
            "a server takes adapters only, and this recipe trains all weights",
            fix="set [train] lora_rank above 0, or take --rollouts here",
            code="no-adapter",
        )
