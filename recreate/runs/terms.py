"""How a candidate is judged: what stands in the journal before its first attempt, and its share of
what a build may err."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from recreate.api.types import Record
from recreate.runs.settings import Gate

POWER = 0.80
"""How often the gate keeps the gain that `detectable` names."""

EXTRA = 0.2
"""The part of the build's error that is left for candidates beyond one a round: a population's, and
people's edits."""

SPREAD = 0.5
"""The part of the variance of a yes-or-no score that lies between tasks, where nobody measured it
(`calibrate`)."""


def spread_of(within: float, between: float) -> float:
    """Return that part, of variances that were measured; kept off the ends, which few tasks cannot
    prove."""
    return min(0.95, max(0.05, between / (within + between))) if within + between > 0 else SPREAD


def share(gate: Gate, rounds: int, *, of: int = 1, extra: int = 0) -> float:
    """Return what a candidate may spend of the build's `gate.false_keep`: all together spend no
    more, however many come.

    of: how many candidates its round has, in how many rounds (`decidable`); extra: of one beyond
    those, such as a person's edit, its number from 1. Where candidates are kept as cheaper too,
    that is a second way to be wrong, and takes half.
    """
    part = EXTRA / (extra * (extra + 1)) if extra else (1 - EXTRA) / max(1, rounds) / of
    return gate.false_keep * part / (2 if gate.cheaper else 1)


class Terms(Record):
    """How a candidate is judged, in the journal before its first attempt: see `trial`.

    round: of the build, from 0; of: how many candidates the round has, 0 for a person's edit;
    order: of the tasks' ids; strata: task -> what it is counted with, where there are several;
    stretch: after how many attempts it is looked at; rule, confirm: see `settings.Gate`.
    """

    candidate: str
    parent: str
    round: int
    of: int
    alpha: float = Field(gt=0, lt=1)
    gain: float = Field(gt=0, le=1)
    repeats: int = Field(ge=1, le=1000)
    order: tuple[str, ...]
    strata: Mapping[str, str] = {}
    stretch: int = Field(default=0, ge=0)
    rule: Literal["search", "each"] = "each"
    confirm: int = 0
