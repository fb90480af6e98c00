"""Experiences as rows of tokens to train on, rows with what an update needs of them, and those
padded to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from recreate.api.errors import BadInput
from recreate.api.types import UNASKED, Experience
from recreate.plugins.rl import lazy_torch as torch
from recreate.plugins.rl.parts.a2r import Rollouts

if TYPE_CHECKING:
    from torch import Tensor

NOTHING = -1
"""Stands in stored rollouts where a shorter row has no token."""


@dataclass(frozen=True)
class Row:
    """A prompt and what followed, in token ids. mask: true where the policy chose the token (an
    observation's tokens are false). sampled: log-probs as the server gave them, 0 under the mask.
    anchor: the observation that the row's first reply answered. turn counts the attempt's replies
    from 0. mix_ids and mix: the row's latent steps, which stand at its start.

    cut: what cut the attempt off: `tokens`, `usd`, `seconds` or `context` of its limits, or
    `reply`, when its last reply reached the most tokens. '' for one that ended by itself, or whose
    turns were used up: its last was whole.
    """

    attempt: str
    task: str
    turn: int
    anchor: str
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    mask: tuple[bool, ...]
    sampled: tuple[float, ...]
    mix_ids: tuple[tuple[int, ...], ...] = ()
    mix: tuple[tuple[float, ...], ...] = ()
    cut: str = ""

    @property
    def tokens(self) -> int:
        """How many tokens the policy chose."""
        return sum(self.mask)


def rows_of(experience: Experience, *, tokenizer: str = "", each_turn: bool = False) -> list[Row]:
    """The sample that was handed in, as rows, in time order; [] when its model told no tokens.

    A turn whose prompt goes on where the last one ended joins its row, the new part of the prompt
    masked out; where the chat template writes the past anew, a new row begins. each_turn: a row a
    turn in any case (GiGPO, LEPO). Raises BadInput (`another-tokenizer`) for tokens of another
    tokenizer than the one named.
    """
    rows: list[Row] = []
    before: tuple[int, ...] = ()
    trace = experience.trace
    turns = [s for s in trace.path() if s.kind not in UNASKED]
    cut = trace.limit if trace.limit != "steps" else ""
    if not cut and turns and turns[-1].tokens is not None and turns[-1].tokens.cut:
        cut = "reply"
    for turn, step in enumerate(turns):
        tokens = step.tokens
        if tokens is None or not tokens.reply:
            continue
        if tokenizer and tokens.tokenizer != tokenizer:
            raise BadInput(
                f"experience {experience.id} is in the tokens of another tokenizer than the"
                " model's",
                fix="train on what this model, or one with its tokenizer, has done",
                code="another-tokenizer",
            )
        if tokens.past not in (0, len(before)):
            return []  # a turn between was not kept
        last = rows[-1] if rows else None
        prompt = before[: tokens.past] + tokens.prompt
        before = prompt + tokens.reply
        chosen = (True,) * len(tokens.reply)
        if last is None or each_turn or tokens.mix or last.mix or not tokens.past:
            rows.append(
                Row(
                    attempt=experience.id,
                    task=experience.task,
                    turn=turn,
                    anchor=step.observation,
                    prompt=prompt,
                    response=tokens.reply,
                    mask=chosen,
                    sampled=tokens.logprobs,
                    mix_ids=tokens.mix_ids,
                    mix=tokens.mix,
                    cut=cut,
                )
            )
        else:
            shown = tokens.prompt
            rows[-1] = replace(
                last,
                response=(*last.response, *shown, *tokens.reply),
                mask=(*last.mask, *(False,) * len(shown), *chosen),
                sampled=(*last.sampled, *(0.0,) * len(shown), *tokens.logprobs),
            )
    return rows


@dataclass
class Sample:
    """A row of T response tokens under way to an update. Tensors lie on the CPU, (T,) each.

    group: whom it is compared with; a replayed one's is `task@epoch`. old, entropy, square: of the
    policy that acted, by the trainer's own pass; a replayed row's `old` is the one recorded when it
    was fresh. ref: the reference's log-probs. weight: A2R's. cut: its attempt was cut off. mix_ids,
    mix (n,K): the latent steps at its start. sampled: the server's log-probs.
    """

    task: str
    group: str
    prompt: Tensor
    response: Tensor
    mask: Tensor
    advantages: Tensor
    reward: float
    attempt: str = ""
    sampled: Tensor | None = None
    old: Tensor | None = None
    entropy: Tensor | None = None
    square: Tensor | None = None
    ref: Tensor | None = None
    weight: float = 1.0
    replayed: bool = False
    cut: bool = False
    mix_ids: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))
    mix: Tensor = field(default_factory=lambda: torch.zeros(0, 0))

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


class Padded(NamedTuple):
    """B samples: prompts on the left up to column `width`, responses on the right. ids, attention
    (B,P+T); mask (B,T); mix_ids, mix (B,T,K) with zeros where no latent step is, latent (B,T) bool,
    or None without any.
    """

    ids: Tensor
    attention: Tensor
    mask: Tensor
    width: int
    mix_ids: Tensor | None
    mix: Tensor | None
    latent: Tensor | None

    @property
    def response(self) -> Tensor:
        return self.ids[:, self.width :]

    @property
    def positions(self) -> Tensor:
        return (self.attention.cumsum(-1) - 1).clamp(min=0)


def padded(samples: Sequence[Sample], device: torch.device, pad: int = 0) -> Padded:
    """Of at least one sample."""
    p = max(len(s.prompt) for s in samples)
    t = max(len(s.response) for s in samples)
    b = len(samples)
    k = max(s.mix.shape[-1] for s in samples)
    ids = torch.full((b, p + t), pad)
    attention = torch.zeros(b, p + t, dtype=torch.long)
    mask = torch.zeros(b, t, dtype=torch.bool)
    mix_ids = torch.zeros(b, t, k, dtype=torch.long)
    mix = torch.zeros(b, t, k)
    latent = torch.zeros(b, t, dtype=torch.bool)
    for n, s in enumerate(samples):
        at = slice(p - len(s.prompt), p + len(s.response))
        ids[n, at], attention[n, at] = torch.cat([s.prompt, s.response]), 1
        mask[n, : len(s.mask)] = s.mask
        steps = len(s.mix)
        if steps:
            mix_ids[n, :steps, : s.mix.shape[-1]], mix[n, :steps, : s.mix.shape[-1]] = (
                s.mix_ids,
                s.mix,
            )
            latent[n, :steps] = True
    moved = [x.to(device) for x in (mix_ids, mix, latent)] if k else [None, None, None]
    return Padded(ids.to(device), attention.to(device), mask.to(device), p, *moved)


def column(samples: Sequence[Sample], name: str, device: torch.device) -> Tensor:
    """One of the (T,) tensors of each sample, as (B,T) with zeros beyond a row's end."""
    rows = [getattr(s, name) for s in samples]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)


def to_store(samples: Sequence[Sample], task: str, epoch: int) -> Rollouts:
    """A task's fresh samples, measured, as the replay keeps them: short rows filled with
    NOTHING."""

    def wide(name: str, fill: float) -> Tensor:
        rows = [getattr(s, name) for s in samples]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)

    order = {name: n for n, name in enumerate(dict.fromkeys(s.attempt for s in samples))}
    extra = {
        "attempt": torch.tensor([order[s.attempt] for s in samples]),
        "cut": torch.tensor([s.cut for s in samples]),
    }
    if any(len(s.mix) for s in samples):
        k = max(s.mix.shape[-1] for s in samples)
        n = max(len(s.mix) for s in samples)
        extra["mix_ids"] = torch.full((len(samples), n, k), NOTHING)
        extra["mix"] = torch.zeros(len(samples), n, k)
        for row, s in enumerate(samples):
            if len(s.mix):
                extra["mix_ids"][row, : len(s.mix)], extra["mix"][row, : len(s.mix)] = (
                    s.mix_ids,
                    s.mix,
                )
    return Rollouts(
        task=task,
        epoch=epoch,
        prompt_ids=wide("prompt", NOTHING),
        response_ids=wide("response", NOTHING),
        mask=wide("mask", False),
        rewards=torch.tensor([s.reward for s in samples]),
        behaviour=wide("old", 0.0),
        advantages=wide("advantages", 0.0),
        extra=extra,
    )


def from_store(rollouts: Rollouts) -> list[Sample]:
    """What was kept, as samples whose `old` is the log-probs of then."""
    found = []
    for n in range(len(rollouts.rewards)):
        t = int((rollouts.response_ids[n] != NOTHING).sum())
        prompt = rollouts.prompt_ids[n]
        sample = Sample(
            task=rollouts.task,
            group=rollouts.group,
            prompt=prompt[prompt != NOTHING],
            response=rollouts.response_ids[n, :t],
            mask=rollouts.mask[n, :t].bool(),
            advantages=rollouts.advantages[n, :t],
            reward=float(rollouts.rewards[n]),
            attempt=str(int(rollouts.extra["attempt"][n]) if "attempt" in rollouts.extra else n),
            old=rollouts.behaviour[n, :t],
            replayed=True,
            cut=bool(rollouts.extra["cut"][n]) if "cut" in rollouts.extra else False,
        )
        if "mix" in rollouts.extra:
            steps = int((rollouts.extra["mix_ids"][n, :, 0] != NOTHING).sum())
            sample.mix_ids = rollouts.extra["mix_ids"][n, :steps].clamp(min=0)
            sample.mix = rollouts.extra["mix"][n, :steps]
        found.append(sample)
    return found
