"""What verl loads: VERL_USE_EXTERNAL_MODULES=recreate.rl.verl.plugin, or the entry point `recreate` of the group
`verl.plugins`. Importing it registers our advantages, losses, agent loop and trainer, under names of our own.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from recreate.api.errors import BadInput, Missing
from recreate.rl.recipe import PARTS
from recreate.rl.verl.translate import RECIPE, TRAINER, VERSION

ADVANTAGES = tuple(name for name, part in PARTS.items() if "advantage" in part.slots and name != "simpo")
SURROGATES = tuple(name for name, part in PARTS.items() if "surrogate" in part.slots and name != "simpo")


def register() -> None:
    """Put all that is ours into verl's registries. Twice does no harm. Raises Missing without verl."""
    core = _need("verl.trainer.ppo.core_algos")
    from recreate.rl.verl.advantage import estimator
    from recreate.rl.verl.loss import policy_loss, with_entropy

    for name in ADVANTAGES:
        own = f"recreate_{name.replace('-', '_')}"
        if own not in core.ADV_ESTIMATOR_REGISTRY:
            core.register_adv_est(own)(estimator(name))
    for name in SURROGATES:
        core.register_policy_loss(f"recreate_{name.replace('-', '_')}")(policy_loss(name))
    if os.environ.get(RECIPE):
        from recreate.rl.verl.chosen import chosen

        # STEER needs what verl does not hand to a loss. Its workers take ppo_loss by name when they are imported, which
        # is after this, since this is a part of `import verl`
        losses = _need("verl.workers.utils.losses")
        if chosen().part("token weight") is not None and not hasattr(losses.ppo_loss, "of_verl"):
            told: Any = with_entropy(losses.ppo_loss)
            told.of_verl = losses.ppo_loss
            losses.ppo_loss = told
    loops = _need("verl.experimental.agent_loop.agent_loop")
    loops._agent_loop_registry.setdefault(TRAINER, {"_target_": "recreate.rl.verl.agent_loop.AttemptLoop"})
    _need("transfer_queue")
    _need("recreate.rl.verl.sync_trainer")  # registers itself


def _need(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as e:
        absent = (e.name or module).partition(".")[0]
        if absent == "recreate":
            raise
        raise Missing(
            f"the module {absent} is not installed, which training with verl needs",
            fix=f"verl has an environment of its own: uv pip install 'verl[vllm]=={VERSION}', as run.sh does",
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
