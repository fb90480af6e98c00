"""GiGPO: groups within groups, of steps that answered the same observation. arXiv 2505.10978;
verl-agent core_gigpo.

Rows are agent steps (a trajectory's stand in time order), so B counts steps, not attempts.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from recreate.api.errors import BadInput
from recreate.plugins.rl import lazy_torch as torch
from recreate.plugins.rl.parts.advantages import GroupAdvantage, Unscored, normalised
from recreate.plugins.rl.parts.groups import Groups, grouped
from recreate.plugins.rl.recipe import Rows

if TYPE_CHECKING:
    from torch import Tensor


class GiGPO(GroupAdvantage):
    """What `gigpo`, `discounted_returns` (gamma) and `step_groups` (similarity) say of each."""

    rows_per_turn = True
    gamma: float = Field(default=0.95, ge=0, le=1)
    weight: float = Field(default=1.0, ge=0)
    scale: Literal["group", "none"] = "group"
    across_steps: bool = False
    similarity: float = Field(default=0.0, ge=0, lt=1)
    eps: float = Field(default=1e-6, gt=0)

    def __call__(self, rows: Rows) -> Tensor:
        trajectories = rows.trajectories
        if trajectories is None or rows.anchors is None:
            raise BadInput(
                "gigpo needs to know whose step each row is and what it answered",
                fix="train on multi-turn attempts, a row a step; or take the recipe grpo",
                code="no-steps",
            )
        earned = rows.step_rewards
        if earned is None:
            last = torch.zeros(len(rows.rewards), dtype=torch.bool)
            last[len(last) - 1 - Groups(trajectories.index.flip(0), trajectories.size).first()] = (
                True
            )
            earned = torch.where(last.to(rows.rewards.device), rows.rewards, 0.0)
        return gigpo(
            rows.rewards,
            rows.groups,
            trajectories=trajectories,
            returns=discounted_returns(earned, trajectories, self.gamma),
            steps=step_groups(rows.anchors, rows.groups, similarity=self.similarity),
            **self.model_dump(exclude={"gamma", "similarity"}),
        )


def gigpo(
    rewards: Tensor,
    groups: Groups,
    *,
    trajectories: Groups,
    returns: Tensor,
    steps: Groups,
    weight: float = 1.0,
    scale: Literal["group", "none"] = "group",
    across_steps: bool = False,
    eps: float = 1e-6,
    unscored: Unscored = "group",
) -> Tensor:
    """Episode advantage + weight x step advantage, a row each: (B,) -> (B,). Equations 3, 7 and 8.

    rewards (B,) the episode's, on each of its rows; returns (B,) from `discounted_returns`; steps
    from `step_groups`. across_steps=False is Equation 3, statistics over trajectories; True is the
    published code's default, over rows, where long trajectories count more. scale: "group" divides
    by std + eps, "none" does not. A group of one trajectory, or of one step: 0. A reward or return
    that is not finite gives its group 0 (unscored="row": its trajectory).
    """
    rewards = rewards if rewards.is_floating_point() else rewards.float()
    sound = _sound(rewards + returns, groups, trajectories, unscored)
    if sound is not None:
        out = torch.zeros_like(rewards)
        out[sound] = gigpo(
            rewards[sound],
            groups.subset(sound),
            trajectories=trajectories.subset(sound),
            returns=returns[sound],
            steps=steps.subset(sound),
            weight=weight,
            scale=scale,
            across_steps=across_steps,
            eps=eps,
        )
        return out
    episode = episode_advantage(
        rewards, groups, trajectories, scale=scale, across_steps=across_steps, eps=eps
    )
    return (
        episode + weight * normalised(returns, steps, scale=scale, eps=eps).to(episode.dtype)
        if weight
        else episode
    )


def episode_advantage(
    rewards: Tensor,
    groups: Groups,
    trajectories: Groups,
    *,
    scale: Literal["group", "none"] = "group",
    across_steps: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """A^E of Equation 3: the episode's reward beside those of the same prompt, (B,) -> (B,). Finite
    rewards only."""
    if across_steps or not len(rewards):
        return normalised(rewards, groups, scale=scale, eps=eps).to(rewards.dtype)
    episodes = episodes_of(groups, trajectories)
    first = episodes.first()
    own = normalised(rewards.index_select(0, first), groups.subset(first), scale=scale, eps=eps).to(
        rewards.dtype
    )
    each = torch.zeros(episodes.size, dtype=own.dtype, device=own.device)
    return episodes.spread(each.scatter_(0, episodes.index.index_select(0, first), own))


def _sound(
    values: Tensor, groups: Groups, trajectories: Groups, unscored: Unscored
) -> Tensor | None:
    """(B,) bool: rows of groups ("group") or of trajectories ("row") without a NaN or infinity;
    None: all."""
    if math.isfinite(float(values.sum())):
        return None
    finite = values.isfinite()
    if bool(finite.all()):
        return None
    over = episodes_of(groups, trajectories) if unscored == "row" else groups
    return ~over.spread(over.any(~finite))


def episodes_of(groups: Groups, trajectories: Groups) -> Groups:
    """Trajectories by their own ids, or by (prompt, id) where an id is used under two prompts."""
    prompt = torch.zeros(trajectories.size, dtype=torch.long, device=groups.index.device)
    prompt.scatter_(0, trajectories.index, groups.index)
    if torch.equal(trajectories.spread(prompt), groups.index):
        return trajectories
    return grouped(groups.index * trajectories.size + trajectories.index)


def discounted_returns(step_rewards: Tensor, trajectories: Groups, gamma: float = 0.95) -> Tensor:
    """R_t = sum over k >= t of gamma^(k-t) r_k within each trajectory, in row order: (B,) -> (B,).
    Equation 5."""
    running = [0.0] * trajectories.size
    found = [0.0] * len(step_rewards)
    rows = list(zip(step_rewards.double().tolist(), trajectories.index.tolist(), strict=True))
    for i in range(len(rows) - 1, -1, -1):
        reward, trajectory = rows[i]
        running[trajectory] = reward + gamma * running[trajectory]
        found[i] = running[trajectory]
    dtype = step_rewards.dtype if step_rewards.is_floating_point() else torch.float32
    return torch.tensor(found, dtype=dtype, device=step_rewards.device)


def step_groups(anchors: Sequence[Any], groups: Groups, *, similarity: float = 0.0) -> Groups:
    """Steps of one prompt that answered the same observation: B anchors -> groups. Equation 6.

    Equal means equal as JSON values, a list and a tuple alike. similarity in (0, 1): texts are put,
    in row order, to the first group whose first text has a difflib ratio of at least that (order
    counts, as in the published code). Raises BadInput for an observation that is None, or not a
    text under `similarity`.
    """
    prompts = groups.index.tolist()
    if not similarity:
        return grouped([(p, _key(a)) for p, a in zip(prompts, anchors, strict=True)])
    found: dict[int, list[tuple[str, int]]] = {}
    labels = []
    size = 0
    for prompt, anchor in zip(prompts, anchors, strict=True):
        if not isinstance(anchor, str):
            raise BadInput(
                f"gigpo: an observation of type {type(anchor).__name__} cannot be compared by"
                " similarity",
                fix="set similarity = 0 under [gigpo]",
            )
        known = found.setdefault(prompt, [])
        label = next(
            (n for text, n in known if SequenceMatcher(None, anchor, text).ratio() >= similarity),
            -1,
        )
        if label < 0:
            label = size
            size = size + 1
            known.append((anchor, label))
        labels.append(label)
    return Groups(torch.tensor(labels, dtype=torch.long), size)


def _key(anchor: Any) -> Hashable:
    if isinstance(anchor, str | int | float):
        return anchor
    if isinstance(anchor, list | tuple):
        return tuple(_key(a) for a in anchor)
    if isinstance(anchor, dict):
        return tuple(sorted((k, _key(v)) for k, v in anchor.items()))
    raise BadInput(
        f"gigpo: a step's observation is {type(anchor).__name__}",
        fix="an observation is a text, a number, or lists and dicts of those",
    )
