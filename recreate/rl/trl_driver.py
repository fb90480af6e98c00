"""TRL's GRPOTrainer drives the optimiser over our rollouts. The one file that knows its private side: trl==1.16.0.

What is TRL's: placing the model, the loop, clipping of gradients, the optimiser's step and schedule, callbacks. What
is ours: rollouts (attempts in sandboxes), advantages, the loss (recreate.rl.method), checkpoints (safetensors; those
of transformers hold pickles). Its own dataset, generation and `advantages` would cut rollouts into slices of one size,
which attempts of many turns, filters and replay do not have; so a batch of its dataset is a turn of the crank, no more.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch

from recreate.api.registry import need
from recreate.rl.learner import Learner, MiniBatch
from recreate.rl.recipe import Train

VERSION = "1.16.0"
HOOKS = {
    "_prepare_inputs": "(self, generation_batch)",
    "training_step": "(self, model, inputs, num_items_in_batch)",
}
"""The methods that are replaced, and the parameters they must have: a test compares."""


class Work(Protocol):
    """What is driven: so many optimiser steps of a learner, a mini-batch each; TRL's own files go to `scratch`."""

    learner: Learner
    tokenizer: Any

    @property
    def optimiser_steps(self) -> int: ...

    @property
    def train(self) -> Train: ...

    @property
    def scratch(self) -> Path: ...

    @property
    def seed(self) -> int: ...

    def minis(self) -> Iterator[MiniBatch]: ...


def drive(work: Work) -> None:
    """Take every optimiser step of `work` with TRL's trainer. Raises what the work raises."""
    if not work.optimiser_steps:
        return
    trl, datasets = need("trl"), need("datasets")
    learner, train = work.learner, work.train
    cuda = learner.device.type == "cuda"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say to each other
        arguments = trl.GRPOConfig(
            output_dir=str(work.scratch),
            max_steps=work.optimiser_steps,
            per_device_train_batch_size=2,
            num_generations=2,
            gradient_accumulation_steps=1,
            learning_rate=train.learning_rate,
            max_grad_norm=train.max_grad_norm,
            use_cpu=not cuda,
            bf16=False,
            gradient_checkpointing=cuda,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=work.seed,
            beta=0.0,
            dataloader_pin_memory=False,
        )
        trainer = _trainer(trl.GRPOTrainer)(
            work,
            model=learner.module,
            reward_funcs=_reward,
            args=arguments,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["", ""]}),
            processing_class=work.tokenizer,
            optimizers=(learner.optimizer, learner.schedule),
        )
        # its callback prints to stdout, which is the result's
        trainer.remove_callback(need("transformers.trainer_callback").PrinterCallback)
        trainer.train()
    shutil.rmtree(arguments.output_dir, ignore_errors=True)  # nothing is kept there
    for _ in trainer.minis:  # the last step's end: its curve and checkpoint
        raise AssertionError("a mini-batch was left over")


def _reward(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    raise AssertionError("rewards are the domain's grader's")


def _trainer(parent: Any) -> Any:
    class HookedTrainer(parent):  # type: ignore[misc]
        """GRPOTrainer with our mini-batches and our loss."""

        def __init__(self, work: Work, **parts: Any) -> None:
            super().__init__(**parts)
            self.work = work
            self.minis: Iterator[MiniBatch] = work.minis()

        def _prepare_inputs(self, generation_batch: Any) -> MiniBatch:
            mini = next(self.minis, None)
            if mini is None:  # stopped early
                self.control.should_training_stop = True
                return MiniBatch()
            return mini

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
            mini = self._prepare_inputs(inputs)
            if mini.samples:
                mini.loss, mini.watch = self.work.learner.gradient(
                    mini.samples, self.accelerator.backward, pairs=mini.pairs
                )
            self._step += 1
            return torch.tensor(mini.loss, device=self.args.device)

    return HookedTrainer
