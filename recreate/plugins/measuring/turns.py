"""How many turns an agent needs, from attempts that were made: a limit that keeps most of what it
solves for less.

After Gao and Peng, "More with Less" (arXiv 2510.16786): a limit at the 75th percentile of the turns
that an agent takes without one cut costs by 24 to 68 % there and lost few tasks; less again cost a
limit that is extended once, for attempts that are not done by then (`limits.extension` of
agent.toml).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from recreate.api.types import UNASKED, Experience, Record
from recreate.plugins.measuring.shares import wilson

PERCENTILES = (0.25, 0.5, 0.75, 0.9, 1.0)


class Taken(Record):
    """What an attempt took. turns: of its longest sample; tokens: of each turn, all samples
    together, so that the sum is the attempt's."""

    passed: bool
    turns: int
    tokens: tuple[int, ...]


class TurnLimit(Record):
    """A limit on turns, and what it would have done to attempts that were made: `kept` of those
    that passed had ended by then (share, with its 95 % interval), and `tokens` is the part of all
    tokens that these turns took.

    Whether an attempt that is cut had the right answer by then is not known: it counts as lost.
    """

    percentile: float
    steps: int
    ended: int
    kept: float
    lo: float
    hi: float
    tokens: float


def count_turns(experiences: Iterable[Experience]) -> Iterator[Taken]:
    """Of attempts that asked their model at all."""
    for e in experiences:
        tokens = Counter[int]()
        begun: dict[int, int] = {}  # the turns of a sample so far
        at: dict[int, int] = {}  # the turns that its sample had with a step
        for step in e.trace.steps:
            if step.kind not in (*UNASKED, "lookahead"):
                turn = begun.get(step.sample, at.get(-1 if step.after is None else step.after, 0))
                tokens[turn] += step.usage.tokens_in + step.usage.tokens_out
                begun[step.sample] = at[step.step] = turn + 1
        if begun:
            turns = max(begun.values())
            yield Taken(
                passed=e.grade.passed, turns=turns, tokens=tuple(tokens[n] for n in range(turns))
            )


def limits(
    attempts: Sequence[Taken], percentiles: Sequence[float] = PERCENTILES
) -> list[TurnLimit]:
    """One for each percentile of the turns taken, the smallest number that so many attempts needed
    no more than; none where no attempt passed: what a limit would lose is not known then."""
    turns = sorted(a.turns for a in attempts)
    passed = [a.turns for a in attempts if a.passed]
    spent = sum(sum(a.tokens) for a in attempts) or 1
    found = []
    for percentile in percentiles if passed else ():
        steps = turns[max(0, math.ceil(percentile * len(turns)) - 1)]
        kept = sum(t <= steps for t in passed)
        lo, hi = wilson(kept, len(passed))
        found.append(
            TurnLimit(
                percentile=percentile,
                steps=steps,
                ended=sum(t <= steps for t in turns),
                kept=kept / len(passed),
                lo=lo,
                hi=hi,
                tokens=sum(sum(a.tokens[:steps]) for a in attempts) / spent,
            )
        )
    return found
