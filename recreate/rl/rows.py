"""Experiences as sequences to train on: which tokens the policy chose, and which it was only shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recreate.api.errors import BadInput
from recreate.api.types import Experience, TurnTokens


@dataclass(frozen=True)
class Row:
    """A prompt and what followed, in token ids. mask: true where the policy chose the token (an observation's tokens
    are false). sampled: log-probs as the server told them, 0 under the mask. anchor: the observation that the row's
    first reply answered. turn counts the attempt's replies from 0. mix_ids and mix: the row's latent steps, which
    stand at its start. cut: the attempt ended at a limit."""

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

    A turn whose prompt goes on where the last one ended joins its row, the new part of the prompt masked out; where
    the chat template writes the past anew, a new row begins. each_turn: a row a turn in any case (GiGPO, LEPO).
    Raises BadInput (`another-tokenizer`) for tokens of another tokenizer than the one named.
    """
    rows: list[Row] = []
    before: tuple[int, ...] = ()
    trace = experience.trace
    turns = [s for s in trace.steps if s.sample == trace.chosen and s.kind != "before"]
    for turn, step in enumerate(turns):
        tokens = step.tokens
        if tokens is None or not tokens.reply:
            continue
        if tokenizer and tokens.tokenizer != tokenizer:
            raise BadInput(
                f"experience {experience.id} is in the tokens of another tokenizer than the model's",
                fix="train on what this model, or one with its tokenizer, has done",
                code="another-tokenizer",
            )
        if tokens.past not in (0, len(before)):
            return []  # a turn between was not kept
        last = rows[-1] if rows else None
        prompt = before[: tokens.past] + tokens.prompt
        before = prompt + tokens.reply
        if last is None or each_turn or tokens.mix or last.mix or not tokens.past:
            rows.append(
                Row(
                    attempt=experience.id,
                    task=experience.task,
                    turn=turn,
                    anchor=step.observation,
                    prompt=prompt,
                    cut=trace.limit,
                    **_reply(tokens),
                )
            )
        else:
            rows[-1] = _joined(last, tokens, tokens.prompt)
    return rows


def _reply(tokens: TurnTokens) -> dict[str, tuple]:  # type: ignore[type-arg]
    return {
        "response": tokens.reply,
        "mask": (True,) * len(tokens.reply),
        "sampled": tokens.logprobs,
        "mix_ids": tokens.mix_ids,
        "mix": tokens.mix,
    }


def _joined(row: Row, tokens: TurnTokens, shown: Sequence[int]) -> Row:
    n = len(shown)
    return Row(
        attempt=row.attempt,
        task=row.task,
        turn=row.turn,
        anchor=row.anchor,
        prompt=row.prompt,
        response=(*row.response, *shown, *tokens.reply),
        mask=(*row.mask, *(False,) * n, *(True,) * len(tokens.reply)),
        sampled=(*row.sampled, *(0.0,) * n, *tokens.logprobs),
        cut=row.cut,
    )
