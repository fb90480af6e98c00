"""What a run of tune goes on from: the weights, the optimiser, the replay, and where it stood.
Safetensors and JSON.

checkpoints/step-000010/
    adapter_model.safetensors, adapter_config.json     the adapter (model.safetensors, config.json
    without LoRA)
    tokenizer.json, ...                                so that the folder can be served as it is
    optimizer.safetensors, replay.safetensors
    state.json                                         step, position, the model's identity, the
    replay's history
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recreate.api.errors import BadInput
from recreate.api.registry import need
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import SCHEMA, digest
from recreate.plugins.rl.learner import Learner
from recreate.plugins.rl.parts.a2r import AmbiguityReplay
from recreate.storage.files import fault

KEPT = 2
"""How many checkpoints of a run stay."""


def identity(module: Any, tokenizer: str) -> str:
    """Which model a checkpoint belongs to: its parameters' names and shapes, its tokenizer, a
    sample of frozen ones."""
    shapes = [[name, list(p.shape)] for name, p in module.named_parameters()]
    table = module.get_input_embeddings().weight
    frozen = (
        []
        if table.requires_grad
        else [f"{v:.4g}" for v in table[:4, :16].float().flatten().tolist()]
    )
    return digest([shapes, tokenizer, frozen])


def save(
    folder: Path,
    learner: Learner,
    tokenizer: Any,
    state: JsonMap,
    replay: AmbiguityReplay | None = None,
) -> Path:
    """Write folder/step-N whole or not at all, and drop all but the newest KEPT. Raises Fault on a
    full disk."""
    save_file = need("safetensors.torch").save_file
    place = folder / f"step-{state['step']:06d}"
    new = folder / f".{place.name}.new"
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        learner.module.save_pretrained(new)
        tokenizer.save_pretrained(new)
        moments = {
            f"{n}.{name}": value.detach().cpu().contiguous()
            for n, of in learner.optimizer.state_dict()["state"].items()
            for name, value in of.items()
        }
        save_file(moments, new / "optimizer.safetensors")
        remembered: JsonDict = {}
        if replay is not None:
            remembered, tensors = replay.state()
            save_file(tensors, new / "replay.safetensors")
        full = {
            **state,
            "schema": SCHEMA,
            "schedule": learner.schedule.last_epoch,
            "replay": remembered,
        }
        (new / "state.json").write_text(json.dumps(full, indent=1), "utf-8")
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
    except OSError as e:
        shutil.rmtree(new, ignore_errors=True)
        raise fault(place, e, fix="free some disk space, then again") from e
    for old in sorted(folder.glob("step-*"))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def latest(folder: Path) -> Path | None:
    """The newest checkpoint of a run, None before the first."""
    found = sorted(p for p in folder.glob("step-*") if (p / "state.json").is_file())
    return found[-1] if found else None


def load(
    place: Path, learner: Learner, model: str, replay: AmbiguityReplay | None = None
) -> JsonDict:
    """Put a checkpoint into a learner: its state. model: `identity` of the learner's.

    Raises BadInput for a checkpoint of another model (`another-model`) or one that cannot be read.
    """
    load_file = need("safetensors.torch").load_file
    try:
        state: JsonDict = json.loads((place / "state.json").read_text("utf-8"))
        if state.get("model") != model:
            raise BadInput(
                f"{place} is a checkpoint of another model",
                fix="go on with the model it was made from, or give another folder with --out",
                code="another-model",
            )
        if (place / "adapter_model.safetensors").is_file():
            peft = need("peft")
            peft.set_peft_model_state_dict(
                learner.module, load_file(place / "adapter_model.safetensors")
            )
        else:
            weights: dict[str, Tensor] = {}
            for file in sorted(place.glob("model*.safetensors")):
                weights |= load_file(file)
            learner.module.load_state_dict(weights, strict=False)  # tied weights are written once
            learner.module.tie_weights()
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in load_file(place / "optimizer.safetensors").items():
            n, _, name = key.partition(".")
            moments.setdefault(int(n), {})[name] = value
        known = learner.optimizer.state_dict()
        learner.optimizer.load_state_dict({"state": moments, "param_groups": known["param_groups"]})
        learner.schedule.last_epoch = int(state["schedule"])
        for group, rate in zip(learner.optimizer.param_groups, _rates(learner), strict=True):
            group["lr"] = rate
        if replay is not None:
            replay.restore(state["replay"], load_file(place / "replay.safetensors"))
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, RuntimeError) as e:
        raise BadInput(
            f"the checkpoint {place} cannot be read: {type(e).__name__}:"
            f" {str(e).partition(chr(10))[0]}",
            fix=f"rm -r {place} goes back to the one before",
            code="bad-checkpoint",
        ) from None
    return state


def _rates(learner: Learner) -> list[float]:
    return [
        base * make(learner.schedule.last_epoch)
        for base, make in zip(learner.schedule.base_lrs, learner.schedule.lr_lambdas, strict=True)
    ]


def seeded(seed: int) -> None:
    """Whatever torch draws next (an adapter's first weights) is the seed's."""
    torch.manual_seed(seed)
