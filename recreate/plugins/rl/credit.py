"""Credit assignment: which attempts reach the update, what each of their tokens is worth beside its
group, and what is known of a step before its update: the columns of the curve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import torch

from recreate.api.shapes import JsonDict
from recreate.plugins.rl.method import Method
from recreate.plugins.rl.parts.groups import grouped
from recreate.plugins.rl.parts.losses import kl
from recreate.plugins.rl.recipe import Rows
from recreate.plugins.rl.rollout import Rollout
from recreate.plugins.rl.samples import Row, Sample

Worth = tuple[float, float]
"""An attempt's advantage on a latent step, and on a token."""


def samples(
    method: Method,
    groups: Sequence[Sequence[Rollout]],
    gold: Callable[[str], str] = lambda task: "",
) -> tuple[list[Sample], float]:
    """The rows that reach the update, with their advantages; and which share of the attempts they
    are. gold: a right answer to a task, by its id, for what an attempt earns beside its grade."""
    flat = [r for group in groups for r in group]
    if not flat:
        return [], 0.0
    ids = grouped([r.task for r in flat])
    rewards = torch.tensor([r.reward for r in flat])
    lengths = torch.tensor([r.tokens for r in flat])
    cut = torch.tensor([bool(r.cut) for r in flat])
    earned = method.earned([r.experience for r in flat], gold)
    shaped = method.shaped(rewards if earned is None else rewards + earned, lengths, cut)
    keep = method.keep(Rows(rewards, ids, torch.ones(len(flat), 1, dtype=torch.bool), cut=cut))
    advantage = method.recipe.does("advantage")
    if advantage is not None and advantage.rows_per_turn:
        per_row = _by_step(method, flat, shaped)
    else:
        made = _compare(method, shaped, [r.task for r in flat])
        per_row = [[made[n]] * len(r.rows) for n, r in enumerate(flat)]
    found = []
    for n, r in enumerate(flat):
        if keep[n]:
            found += [
                _sample(row, r, *worth) for row, worth in zip(r.rows, per_row[n], strict=True)
            ]
    return found, float(keep.float().mean())


def compare_again(method: Method, fresh: Sequence[Sample], old: Sequence[Sample]) -> None:
    """Stored and fresh attempts at a task as one group, and the advantages of both taken in it:
    A2R's other reading. Fresh rows that the filter left out are not in it."""
    tasks = {s.task for s in old}
    attempts: dict[tuple[str, str], list[Sample]] = {}
    for s in [*(s for s in fresh if s.task in tasks), *old]:
        attempts.setdefault((s.group, s.attempt), []).append(s)
    flat = list(attempts.values())
    shaped = method.shaped(
        torch.tensor([rows[0].reward for rows in flat]),
        torch.tensor([sum(int(s.mask.sum()) for s in rows) for rows in flat]),
        torch.tensor([rows[0].cut for rows in flat]),
    )
    made = _compare(method, shaped, [rows[0].task for rows in flat])
    for rows, worth in zip(flat, made, strict=True):
        for s in rows:
            s.advantages = _laid(s.mask, len(s.mix), *worth)


def _compare(method: Method, shaped: torch.Tensor, tasks: Sequence[str]) -> list[Worth]:
    """Each attempt's. Statistics are over attempts: one that fell into several rows counts once."""
    rollout = method.recipe.does("rollout")
    steps = 0 if rollout is None else rollout.latent_steps
    mask = torch.ones(len(tasks), steps + 1, dtype=torch.bool)
    made = method.advantages(Rows(shaped, grouped(tasks), mask))
    return [(float(row[0]), float(row[-1])) for row in made]


def _by_step(method: Method, flat: Sequence[Rollout], shaped: torch.Tensor) -> list[list[Worth]]:
    """The advantage of each row, of a method with a row a turn: GiGPO's is its attempt's beside the
    group, and its step's beside others like it."""
    order = [(n, row) for n, r in enumerate(flat) for row in r.rows]
    own = method.row_advantages(
        Rows(
            torch.stack([shaped[n] for n, _ in order]),
            grouped([flat[n].task for n, _ in order]),
            torch.ones(len(order), 1, dtype=torch.bool),
            trajectories=grouped([n for n, _ in order]),
            anchors=[row.anchor for _, row in order],
        )
    )
    found: list[list[Worth]] = [[] for _ in flat]
    for (n, _), a in zip(order, own.tolist(), strict=True):
        found[n].append((a, a))
    return found


def _sample(row: Row, rollout: Rollout, latent: float, taken: float) -> Sample:
    mask = torch.tensor(row.mask)
    steps = len(row.mix)
    sample = Sample(
        task=row.task,
        group=row.task,
        prompt=torch.tensor(row.prompt),
        response=torch.tensor(row.response),
        mask=mask,
        advantages=_laid(mask, steps, latent, taken),
        reward=rollout.reward,
        attempt=row.attempt,
        sampled=torch.tensor(row.sampled),
        old=torch.tensor(row.sampled) if rollout.past else None,
        replayed=rollout.past,
        cut=bool(row.cut),
    )
    if steps:
        sample.mix_ids = torch.tensor(row.mix_ids)
        sample.mix = torch.tensor(row.mix)
    return sample


def _laid(mask: torch.Tensor, steps: int, latent: float, taken: float) -> torch.Tensor:
    """An attempt's advantage over its row's tokens (T,): `latent` on the first `steps`, 0 outside
    the mask."""
    out = torch.where(mask, taken, 0.0)
    out[:steps] = latent
    return out


def facts(
    groups: Sequence[Sequence[Rollout]], attempted: Sequence[Rollout], fresh: Sequence[Sample]
) -> JsonDict:
    """Of the step's groups, the attempts of now among them, and their measured rows.

    reward, passed, limit, cut (off: see `Row.cut`), equal (zero-variance groups: all rewards the
    same) and idle (rows whose advantage is 0) are means in 0..1; limits: how many attempts ended at
    which; length in tokens an attempt; entropy, kl (k3, to the reference) and sampler_gap (the mean
    |difference| of the trainer's log-probs and the ones of the rollout) in nats a token.
    """
    return {
        "reward": _mean([r.reward for r in attempted]),
        "passed": _mean([float(r.experience.grade.passed) for r in attempted]),
        "length": _mean([r.tokens for r in attempted]),
        "limit": _mean([float(r.experience.trace.ending == "limit") for r in attempted]),
        "limits": dict(
            sorted(
                Counter(
                    r.experience.trace.limit for r in attempted if r.experience.trace.limit
                ).items()
            )
        ),
        "cut": _mean([float(bool(r.cut)) for r in attempted]),
        "attempts": len(attempted),
        "equal": _mean([float(reward_range(g) <= 1e-6) for g in groups], none=1.0),
        "idle": _mean([float(not s.advantages.any()) for s in fresh]),
        "rows": len(fresh),
        "tokens": sum(int(s.mask.sum()) for s in fresh),
        "entropy": _token_mean(fresh, lambda s: s.entropy),
        "kl": _token_mean(fresh, _k3_to_reference),
        "sampler_gap": _token_mean(fresh, _rollout_logprob_diff),
    }


def reward_range(group: Sequence[Rollout]) -> float:
    """The range of its rewards."""
    rewards = [r.reward for r in group]
    return max(rewards) - min(rewards) if rewards else 0.0


def _mean(values: Sequence[float], none: float = 0.0) -> float:
    return fmean(values) if values else none


def _k3_to_reference(sample: Sample) -> torch.Tensor:
    assert sample.old is not None
    return torch.zeros_like(sample.old) if sample.ref is None else kl(sample.old, sample.ref, "k3")


def _rollout_logprob_diff(sample: Sample) -> torch.Tensor:
    assert sample.old is not None
    assert sample.sampled is not None
    return (sample.old - sample.sampled).abs()


def _token_mean(samples: Sequence[Sample], of: Callable[[Any], torch.Tensor]) -> float:
    """The mean over the tokens that the policy chose; of none: 0."""
    values = [of(s)[s.mask] for s in samples]
    joined = torch.cat(values) if values else torch.zeros(0)
    return float(joined.float().mean()) if joined.numel() else 0.0
