"""What verl loads: VERL_USE_EXTERNAL_MODULES=recreate.plugins.rl.verl.plugin, or the entry point
`recreate` of the group `verl.plugins`. Importing it registers our
advantages, losses, agent loop and trainer, under names of our own.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from recreate.api.errors import BadInput, Missing
from recreate.plugins.rl.recipe import parts_for
from recreate.plugins.rl.verl.translate import RECIPE, TRAINER, VERSION, registered


def register() -> None:
    """Put all that is ours into verl's registries. Twice does no harm. Raises Missing without
    verl."""
    core = _need("verl.trainer.ppo.core_algos")
    from recreate.plugins.rl.verl.functions import chosen, estimator, policy_loss, with_entropy

    named = bool(os.environ.get(RECIPE))
    own = {
        slot: {chosen().name_of(slot)} if named else set() for slot in ("advantage", "policy loss")
    }
    for name in sorted(own["advantage"] | set(parts_for("advantage"))):
        if registered(name) not in core.ADV_ESTIMATOR_REGISTRY:
            core.register_adv_est(registered(name))(estimator(name))
    for name in sorted(own["policy loss"] | set(parts_for("policy loss"))):
        core.register_policy_loss(registered(name))(policy_loss(name))
    if named:
        # STEER needs what verl does not hand to a loss. Its workers take ppo_loss by name when they
        # are imported, which is after this, since this is a part of `import verl`
        losses = _need("verl.workers.utils.losses")
        if chosen().part("token weight") is not None and not hasattr(losses.ppo_loss, "of_verl"):
            wrapped: Any = with_entropy(losses.ppo_loss)
            wrapped.of_verl = losses.ppo_loss
            losses.ppo_loss = wrapped
    loops = _need("verl.experimental.agent_loop.agent_loop")
    loops._agent_loop_registry.setdefault(
        TRAINER, {"_target_": "recreate.plugins.rl.verl.agent_loop.AttemptLoop"}
    )
    _need("transfer_queue")
    _need("recreate.plugins.rl.verl.sync_trainer")  # registers itself


def _need(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as e:
        absent = (e.name or module).partition(".")[0]
        if absent == "recreate":
            raise
        raise Missing(
            f"the module {absent} is not installed, which training with verl needs",
            fix=(
                f"verl has an environment of its own: uv pip install 'verl[vllm]=={VERSION}', as"
                " run.sh does"
            ),
        ) from None


def _check() -> None:
    from importlib.metadata import version

    if find_spec("verl") is not None and (found := version("verl")) != VERSION:
        raise BadInput(
            f"verl is {found}, and this was written against {VERSION}",
            fix=f"uv pip install verl=={VERSION}",
            code="another-verl",
        )


_check()
register()
