"""Our advantages, as verl's registry calls them: `recreate_grpo`, `recreate_gapo`, ... Select with adv_estimator."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recreate.api.errors import BadInput
from recreate.rl import advantage, recipe
from recreate.rl.groups import Groups, grouped
from recreate.rl.method import Rows
from recreate.rl.verl.chosen import expect, method

Estimate = Callable[..., tuple[Tensor, Tensor]]


@dataclass
class AttemptRows:
    """What verl does not hand to an advantage: whose row each of B rows is, its place among that attempt's rows, the
    observation that it answered. keep (B,): left behind by the estimate, which rows reach the update."""

    of: Sequence[Hashable]
    turn: Sequence[int]
    anchors: Sequence[Any]
    keep: Tensor | None = None


_KNOWN: ContextVar[AttemptRows | None] = ContextVar("attempts", default=None)


@contextmanager
def known(attempts: AttemptRows) -> Iterator[AttemptRows]:
    """Within it, an attempt that fell into several rows counts once. Without, every row is an attempt."""
    token = _KNOWN.set(attempts)
    try:
        yield attempts
    finally:
        _KNOWN.reset(token)


def estimator(part: str) -> Estimate:
    """The function that verl registers for an advantage part."""

    def estimate(
        token_level_rewards: Tensor, response_mask: Tensor, config: Any = None, index: Any = None, **other: Any
    ) -> tuple[Tensor, Tensor]:
        """(B,T) rewards and mask, B group ids -> (advantages, returns), the same (B,T); 0 outside the mask.

        The recipe's reward part comes first, and rows that its filter leaves out get 0. Raises BadInput for a recipe
        whose advantage is another part.
        """
        expect("advantage", part)
        if index is None:
            raise BadInput("verl gave no group ids", fix="the data needs a `uid` for each prompt", code="no-groups")
        with torch.no_grad():
            made = _estimate(token_level_rewards, response_mask.bool(), list(index))
        return made, made

    return estimate


def _estimate(rewards: Tensor, mask: Tensor, index: list[Hashable]) -> Tensor:
    does, own = method(), rewards.sum(-1)
    attempts = _KNOWN.get() or AttemptRows(of=range(len(own)), turn=[0] * len(own), anchors=[])
    # a row's number, by attempt and turn: GiGPO needs time order, which verl's balancing of processes does not keep
    first: dict[Hashable, int] = {}
    for name in attempts.of:
        first.setdefault(name, len(first))
    order = sorted(range(len(own)), key=lambda n: (first[attempts.of[n]], attempts.turn[n]))
    whose = torch.tensor([first[attempts.of[n]] for n in order], dtype=torch.long)
    rows = torch.tensor(order, dtype=torch.long)
    heads = Groups(whose, len(first)).first()
    r = own[rows[heads]]  # every row of an attempt carries its reward
    groups = grouped([index[order[int(n)]] for n in heads])
    lengths = Groups(whose, len(first)).total(mask[rows].sum(-1))
    shaped = does.shaped(r, lengths)
    keep = does.keep(Rows(r, groups, torch.ones(len(r), 1, dtype=torch.bool)))
    if isinstance(does.recipe.part("advantage"), recipe.GiGPO):
        if len(attempts.anchors) != len(own):
            raise BadInput(
                "gigpo needs to know whose step each row is, which verl's own trainers do not tell",
                fix="set trainer.v1.trainer_mode=recreate and take our agent loop: the config of a run folder does",
                code="no-steps",
            )
        made = does.row_advantages(
            Rows(
                shaped[whose],
                grouped([index[n] for n in order]),
                torch.ones(len(own), 1, dtype=torch.bool),
                trajectories=Groups(whose, len(first)),
                anchors=[attempts.anchors[n] for n in order],
            )
        )
    else:
        made = does.row_advantages(Rows(shaped, groups, torch.ones(len(r), 1, dtype=torch.bool)))[whose]
    made = torch.where(keep[whose], made, 0.0)
    out, kept = torch.empty_like(made), torch.empty_like(keep[whose])
    out[rows], kept[rows] = made, keep[whose]
    attempts.keep = kept
    return advantage.spread(out, mask)
