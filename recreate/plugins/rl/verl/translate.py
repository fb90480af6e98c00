"""A recipe in verl's words: its config, the trainer's differences that follow, and what verl cannot
do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.plugins.rl.recipe import Recipe

VERSION = "0.9.1"
TRAINER = "recreate"
"""Under this name the trainer and the agent loop are registered with verl."""

RECIPE = "VERL_RECREATE_RECIPE"
"""The variable that names the recipe, a shipped one or a file, in every process of verl."""

PLUGIN = "recreate.plugins.rl.verl.plugin"


@dataclass(frozen=True)
class Cluster:
    """What a config names beside the recipe. model: a folder, or a name on the Hub; every node must
    see all of it. micro_batch: rows of full length in one pass of one GPU."""

    folder: Path
    workspace: Path
    model: str
    tasks: int
    validation: bool
    steps: int
    seed: int = 0
    micro_batch: int = 4
    save_every: int = 5


def registered(part: str) -> str:
    """The name under which verl finds an advantage or a policy loss: recreate_gapo for `gapo`."""
    return "recreate_" + re.sub(r"\W", "_", part)


def aggregate_mode(how: Recipe) -> str:
    """verl's loss_agg_mode for the recipe's aggregate; '' where verl has none like it."""
    over = how.part("aggregate")
    return (
        str(over.verl_actor(how.train.max_response).get("loss_agg_mode", ""))
        if over is not None
        else ""
    )


def refuse(how: Recipe) -> None:
    """Raise BadInput (`not-with-verl`) for a recipe that verl 0.9.1 cannot train as it stands."""
    for fault, fix in _faults(how):
        raise BadInput(f"{how.name} with verl: {fault}", fix=fix, code="not-with-verl")


def _faults(how: Recipe) -> Iterator[tuple[str, str]]:
    for part in how.parts.values():
        yield from part.on_verl(how)
    if not aggregate_mode(how):
        yield f"[{how.name_of('aggregate')}] is no aggregate that verl has", "take [token-mean]"


def notes(how: Recipe, place: Cluster) -> list[str]:
    """What will be otherwise than on one machine, in words."""
    train = how.train
    found = []
    prompts, minis = sizes(how, place.tasks)
    if prompts != train.prompts:
        found.append(
            f"{prompts} tasks a step in place of {train.prompts}: there are no more train tasks"
        )
    if minis != train.mini_batches:
        found.append(
            f"{minis} mini-batches a step in place of {train.mini_batches}: verl cuts {prompts}"
            " tasks a step evenly, and by tasks, not by rows; raise [train] prompts for more"
        )
    if train.warmup_steps:
        found.append(
            f"warmup_steps = {train.warmup_steps} counts training steps with verl, not optimiser"
            " steps"
        )
    found += [part.verl_note for part in how.parts.values() if part.verl_note]
    if not place.validation:
        found.append("the domain has no validation tasks: leave trainer.test_freq at -1")
    return found


def sizes(how: Recipe, tasks: int) -> tuple[int, int]:
    """(tasks a step, mini-batches a step): verl's mini-batches hold whole tasks, all as many."""
    prompts = min(how.train.prompts, tasks)
    return prompts, next(
        n for n in range(min(how.train.mini_batches, prompts), 0, -1) if prompts % n == 0
    )


def config(how: Recipe, place: Cluster) -> JsonDict:
    """verl's config for this recipe, over its own ppo_trainer. Raises BadInput where `refuse`
    does."""
    refuse(how)
    train = how.train
    folder = place.folder
    filter_part = how.does("filter")
    environment = {
        "VERL_USE_EXTERNAL_MODULES": PLUGIN,
        RECIPE: str(folder / "recipe" / f"{how.name}.toml"),
        "TENSORBOARD_DIR": str(folder / "tensorboard"),
    }
    return {
        "hydra": {
            "searchpath": ["pkg://verl.trainer.config"],
            "run": {"dir": str(folder / "hydra")},
        },
        "defaults": ["ppo_trainer", "_self_"],
        "algorithm": {
            "adv_estimator": registered(how.name_of("advantage")),
            "use_kl_in_reward": False,
            "filter_groups": {
                "enable": filter_part is not None and filter_part.verl_filter,
                "metric": "reward",
            },
        },
        "data": _data(how, place),
        "actor_rollout_ref": {
            "model": {
                "path": place.model,
                "lora_rank": train.lora_rank,
                "lora_alpha": train.lora_alpha,
                "target_modules": "all-linear",
                "use_remove_padding": False,
                "override_config": {"attn_implementation": "sdpa"},
            },
            "actor": _actor(how, place),
            "rollout": _rollout(how, place),
        },
        "critic": {"enable": False},
        "reward": {"num_workers": 1},
        "trainer": _trainer(how, place),
        "ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": environment}}},
    }


def _data(how: Recipe, place: Cluster) -> JsonDict:
    return {
        "train_files": str(place.folder / "train.jsonl"),
        "val_files": str(
            place.folder / ("validation.jsonl" if place.validation else "train.jsonl")
        ),
        "train_batch_size": sizes(how, place.tasks)[0],
        "max_prompt_length": how.train.max_prompt,
        "max_response_length": how.train.max_response,
        "filter_overlong_prompts": False,
        "shuffle": True,
        "seed": place.seed,
        "dataloader_num_workers": 0,
    }


def _actor(how: Recipe, place: Cluster) -> JsonDict:
    train = how.train
    prompts, minis = sizes(how, place.tasks)
    actor: JsonDict = {
        "ppo_mini_batch_size": prompts // minis,
        # by tokens: a fixed number of rows would have to divide every process's share, whatever a
        # filter left of it
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": place.micro_batch * (train.max_prompt + train.max_response),
        "ppo_epochs": train.updates,
        "shuffle": True,
        "data_loader_seed": place.seed,
        "grad_clip": train.max_grad_norm,
        "policy_loss": {"loss_mode": registered(how.name_of("policy loss"))},
        "entropy_coeff": 0,
        "use_kl_loss": False,
        "optim": {
            "lr": train.rate,
            "weight_decay": train.weight_decay,
            "lr_warmup_steps": train.warmup_steps,
        },
    }
    for part in (how.part("penalty"), how.part("aggregate")):
        actor |= {} if part is None else part.verl_actor(train.max_response)
    return actor


def _rollout(how: Recipe, place: Cluster) -> JsonDict:
    train = how.train
    return {
        "name": "vllm",
        "n": train.group_size,
        "temperature": train.temperature,
        "top_p": train.top_p,
        "top_k": train.top_k or -1,
        "prompt_length": train.max_prompt,
        "response_length": train.max_response,
        "max_model_len": train.max_prompt + train.max_response,
        "tensor_model_parallel_size": 1,
        "calculate_log_probs": True,
        "val_kwargs": {"temperature": train.temperature, "top_p": train.top_p, "do_sample": True},
        "agent": {
            "default_agent_loop": TRAINER,
            "agent_loop_config_path": str(place.folder / "agent.yaml"),
        },
        **({"load_format": "safetensors"} if train.lora_rank else {}),
    }


def _trainer(how: Recipe, place: Cluster) -> JsonDict:
    steps_an_epoch = max(1, place.tasks // sizes(how, place.tasks)[0])
    return {
        "project_name": "recreate",
        "experiment_name": place.folder.name,
        "logger": ["console", "tensorboard"],
        "default_local_dir": str(place.folder / "checkpoints"),
        "total_training_steps": place.steps,
        "total_epochs": max(1, math.ceil(place.steps / steps_an_epoch)),
        "save_freq": place.save_every,
        "test_freq": -1,
        "val_before_train": False,
        "v1": {"trainer_mode": TRAINER, TRAINER: {"seed": place.seed}},
    }


def agent_loop(place: Cluster) -> list[JsonDict]:
    """The file that tells verl's rollout workers which agent loop is ours, and where the run is."""
    return [
        {
            "name": TRAINER,
            "_target_": "recreate.plugins.rl.verl.agent_loop.AttemptLoop",
            "folder": str(place.folder),
            "workspace": str(place.workspace),
        }
    ]
