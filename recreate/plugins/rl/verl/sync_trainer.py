"""verl's synchronous trainer with what its registries cannot do. The one file that knows the
private side of its v1 trainer: trainer.v1.trainer_mode=recreate.

What is added: an attempt that fell into several rows counts once; GiGPO's steps; rows that a filter
leaves out leave the counts too; A2R's replay. All else (rollouts, processes, checkpoints of
weights) is verl's.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.debug.metrics import calculate_debug_metrics
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from recreate.api.errors import BadInput
from recreate.api.registry import need
from recreate.api.shapes import JsonDict
from recreate.plugins.rl.samples import Sample, from_store, to_store
from recreate.plugins.rl.verl.functions import AttemptRows, attempt_rows, chosen, method
from recreate.plugins.rl.verl.translate import TRAINER

HOOKS = {
    "_balance_batch": "(self, batch, metrics, logging_prefix, keep_minibatch)",
    "_compute_old_log_prob": "(self, batch, metrics)",
    "_compute_advantage": "(self, batch, metrics)",
    "_save_checkpoint": "(self)",
    "_load_checkpoint": "(self)",
}
"""The methods that are extended, and the parameters they must have: a test compares."""


@register_trainer(TRAINER)
class Trainer(PPOTrainerSync):  # type: ignore[misc]
    """One training step of verl's, with our replay before its log-probs and our attempts in its
    advantages."""

    def __init__(self, config: Any) -> None:
        seed = int(config.trainer.v1.get(TRAINER, {}).get("seed", 0))
        # what it is; verl asks by this name how rows may be stale
        config.trainer.v1.trainer_mode = "sync"
        self.how = chosen()
        correction = config.algorithm.get("rollout_correction") or {}
        replays = self.how.does("replay") is not None
        weighs = self.how.does("token weight") is not None
        if correction.get("bypass_mode", False) and (replays or weighs):
            raise BadInput(
                "[steer] and [a2r] need the trainer's own log-probs, which bypass_mode leaves out",
                fix="set algorithm.rollout_correction.bypass_mode=False",
                code="not-with-verl",
            )
        if correction.get("rollout_is") and replays:
            raise BadInput(
                "[a2r] and rollout_is both weigh rows",
                fix="set algorithm.rollout_correction.rollout_is=null",
                code="not-with-verl",
            )
        self.replay = method().replay(seed)
        self.again: dict[str, Sample] = {}
        """Replayed rows of the step under way, by their key."""
        super().__init__(config)

    # what verl's step goes through, in its order

    def _balance_batch(
        self,
        batch: Any,
        metrics: Any,
        logging_prefix: str = "global_seqlen",
        keep_minibatch: bool = False,
    ) -> Any:
        self.again = {}
        if self.replay is not None:
            batch = self._replayed(batch)
            metrics["a2r/replayed"] = len(self.again)
        return super()._balance_batch(batch, metrics, logging_prefix, keep_minibatch)

    def _compute_old_log_prob(self, batch: Any, metrics: Any) -> Any:
        """verl's pass; then a replayed row gets back the log-probs of the policy that acted, and
        its weight."""
        batch = super()._compute_old_log_prob(batch, metrics)
        if not self.again:
            return batch
        assert self.replay is not None
        keys = [key for key in batch.keys if key in self.again]
        now = _rows(keys, batch, "old_log_probs")
        for key in keys:
            s = self.again[key]
            assert s.old is not None
            s.weight = float(
                self.replay.weight(
                    now[key].unsqueeze(0), s.old.unsqueeze(0), s.mask.unsqueeze(0)
                ).reshape(-1)[0]
            )
        _put_columns(keys, batch, old_log_probs=[self.again[key].old for key in keys])
        metrics["a2r/row_weight"] = float(np.mean([s.weight for s in self.again.values()]))
        # how far servers and trainer are apart: a replayed row was sampled from an older policy,
        # and says nothing of it
        fresh = [key for key in batch.keys if key not in self.again]
        names = ["responses", "response_mask", "rollout_log_probs", "old_log_probs"]
        found = tq.kv_batch_get(keys=fresh, partition_id=batch.partition_id, select_fields=names)
        metrics.update(calculate_debug_metrics(DataProto(batch=found.to_padded_tensor())))
        return batch

    def _compute_advantage(self, batch: Any, metrics: Any) -> Any:
        keys = list(batch.keys)
        anchors: list[Any] = []
        if self.how.rows_per_turn:
            anchors = [extra.get("anchor") for extra in _plain(keys, batch, "extra_fields")]
        names = [key.rsplit("_", 2) for key in keys]
        with attempt_rows(
            AttemptRows([(u, s) for u, s, _ in names], [int(n) for *_, n in names], anchors)
        ) as attempts:
            made = super()._compute_advantage(batch, metrics)
        rows = self.how.does("filter")
        if rows is not None and not rows.verl_filter:
            assert attempts.keep is not None
            self._leave_out(
                [key for key, kept in zip(keys, attempts.keep.tolist(), strict=True) if not kept],
                batch,
            )
        return made if self.replay is None else self._remember(batch, metrics)

    def _save_checkpoint(self) -> None:
        # first: verl's last act is to name this step as the one to resume from
        if self.replay is not None:
            place = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
            place.mkdir(parents=True, exist_ok=True)
            state, tensors = self.replay.state()
            need("safetensors.torch").save_file(tensors, place / "replay.safetensors")
            (place / "replay.json").write_text(json.dumps(state), "utf-8")
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.replay is None or not self.global_steps:
            return
        place = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        if self.config.trainer.resume_mode == "resume_path":
            place = Path(self.config.trainer.resume_from_path)
        if not (place / "replay.json").is_file():
            raise BadInput(
                f"{place} holds no replay, so this was not a run with [a2r]",
                fix="go on with the recipe it was begun with",
                code="bad-checkpoint",
            )
        tensors = need("safetensors.torch").load_file(place / "replay.safetensors")
        self.replay.restore(json.loads((place / "replay.json").read_text("utf-8")), tensors)

    # replay

    @property
    def epoch(self) -> int:
        return int(max(0, self.global_steps - 1) // max(1, self.steps_per_epoch))

    def _replayed(self, batch: Any) -> Any:
        """The batch with stored rows beside the fresh ones, marked as padding so that verl's
        metrics pass them over."""
        assert self.replay is not None
        tasks = len({key.rsplit("_", 2)[0] for key in batch.keys})
        drawn = self.replay.draw(tasks, self.epoch, self.global_steps)
        if not drawn:
            return batch
        like = tq.kv_batch_get(keys=[batch.keys[0]], partition_id=batch.partition_id)[0]
        tag = batch.tags[0]
        keys = []
        fields = []
        tags = []
        for group, rollouts in enumerate(drawn):
            # never the uid of fresh rows: their group must not change
            uid = f"again{self.global_steps}-{group}"
            for n, sample in enumerate(from_store(rollouts)):
                keys.append(f"{uid}_{n}_0")
                self.again[keys[-1]] = sample
                fields.append(_fields(like, sample, uid, n))
                lengths = {"prompt_len": len(sample.prompt), "response_len": len(sample.response)}
                tags.append(
                    {**tag, **lengths, "seq_len": sum(lengths.values()), "is_padding": True}
                )
        tq.kv_batch_put(
            keys=keys,
            partition_id=batch.partition_id,
            fields=list_of_dict_to_tensordict(fields),
            tags=tags,
        )
        return KVBatchMeta(
            keys=[*batch.keys, *keys],
            tags=[*batch.tags, *tags],
            partition_id=batch.partition_id,
            fields=batch.fields,
            extra_info=batch.extra_info,
        )

    def _remember(self, batch: Any, metrics: Any) -> Any:
        """Frozen advantages and weights for replayed rows; fresh groups into the history and the
        store.

        Returns the batch as the actor must get it: a column that its meta does not name is not
        fetched.
        """
        assert self.replay is not None
        keys = list(batch.keys)
        columns = (
            "prompts",
            "responses",
            "response_mask",
            "old_log_probs",
            "advantages",
            "rm_scores",
        )
        rows = {name: _rows(keys, batch, name) for name in columns}
        tasks = dict(zip(keys, _plain(keys, batch, "task"), strict=True))
        weights = []
        for key in keys:
            s = self.again.get(key)
            if s is not None:
                rows["advantages"][key] = s.advantages
            weights.append(torch.full_like(rows["advantages"][key], 1.0 if s is None else s.weight))
        # verl multiplies a row's loss by these, whatever the loss
        made = _put_columns(
            keys,
            batch,
            advantages=[rows["advantages"][key] for key in keys],
            rollout_is_weights=weights,
        )
        fresh: dict[str, dict[tuple[str, str], list[str]]] = {}
        for key, tag in zip(keys, batch.tags, strict=True):
            if not tag.get("is_padding", False):
                uid, session, _ = key.rsplit("_", 2)
                fresh.setdefault(str(tasks[key]), {}).setdefault((uid, session), []).append(key)
        for task, attempts in fresh.items():
            scored = [float(rows["rm_scores"][of[0]].sum()) for of in attempts.values()]
            self.replay.record(task, scored, self.epoch)
            self.replay.store(
                to_store(
                    [
                        Sample(
                            task=task,
                            group=task,
                            prompt=rows["prompts"][key],
                            response=rows["responses"][key],
                            mask=rows["response_mask"][key].bool(),
                            advantages=rows["advantages"][key],
                            reward=score,
                            old=rows["old_log_probs"][key],
                        )
                        for score, of in zip(scored, attempts.values(), strict=True)
                        for key in of
                    ],
                    task,
                    self.epoch,
                )
            )
        metrics["a2r/tasks"] = len(self.replay.stored)
        return made

    def _leave_out(self, keys: list[str], batch: Any) -> None:
        """Rows without a token: verl counts tokens by loss_mask, and reads response_mask."""
        if keys:
            nothing = [torch.zeros_like(m) for m in _rows(keys, batch, "response_mask").values()]
            _put_columns(keys, batch, response_mask=nothing, loss_mask=nothing)


def _rows(keys: list[str], batch: Any, name: str) -> dict[str, Tensor]:
    """A column of the batch, (T,) by key, on the CPU."""
    found = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=[name])[name]
    return {key: row.detach().cpu() for key, row in zip(keys, found.unbind(), strict=True)}


def _plain(keys: list[str], batch: Any, name: str) -> list[Any]:
    """A column that holds no tensors."""
    found = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=[name])[name]
    return [
        getattr(value, "data", value)
        for value in (found.tolist() if hasattr(found, "tolist") else found)
    ]


def _put_columns(keys: list[str], batch: Any, **columns: Any) -> Any:
    from tensordict import TensorDict

    nested = {
        name: torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        for name, rows in columns.items()
    }
    return tq.kv_batch_put(
        keys=keys, partition_id=batch.partition_id, fields=TensorDict(nested, batch_size=len(keys))
    )


def _fields(like: Any, sample: Sample, uid: str, session: int) -> JsonDict:
    """A stored row as verl keeps fresh ones; `like` is one of those, for the fields that nobody
    reads."""
    fields = {
        name: value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
        # iterating a TensorDict gives rows
        for name, value in ((name, like[name]) for name in like.keys())  # noqa: SIM118
    }
    ids = torch.cat([sample.prompt, sample.response])
    mask = sample.mask.long()
    reward = torch.zeros(len(sample.response))
    reward[-1] = sample.reward
    assert sample.old is not None
    return fields | {
        "prompts": sample.prompt,
        "responses": sample.response,
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
        "response_mask": mask,
        "loss_mask": mask,
        "rm_scores": reward,
        "rollout_log_probs": sample.old,
        "uid": uid,
        "session_id": session,
        "task": sample.task,
    }
