"""The rows a measurement makes, and how two sides are compared fairly."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One figure. ours and baseline in `unit`; lo and hi are the range of the ratio over the pairs.

    goal    `<=`, `>=` or `==` a number, of the ratio, or of `ours` when there is no ratio to hold
            to (goal_of); '' for a figure that has none
    """

    name: str
    case: str
    unit: str
    ours: float
    baseline: float | None
    ratio: float | None
    lo: float | None
    hi: float | None
    goal: str
    goal_of: str = "ratio"

    @property
    def met(self) -> bool:
        if not self.goal:
            return True
        sign, number = self.goal[:2], float(self.goal[2:])
        value = self.ratio if self.goal_of == "ratio" else self.ours
        return (
            value is not None
            and {"<=": value <= number, ">=": value >= number, "==": value == number}[sign]
        )

    def record(self) -> dict[str, Any]:
        wanted = f"{self.goal_of} {self.goal}" if self.goal else ""
        number = float(self.goal[2:]) if self.goal else None
        return {**self._asdict(), "goal": number, "goal_of": wanted, "pass": bool(self.met)}

    def __str__(self) -> str:
        beside = f" beside {_short(self.baseline)}" if self.baseline is not None else ""
        ratio = (
            f", ratio {self.ratio:.2f} ({self.lo:.2f} to {self.hi:.2f})"
            if self.ratio is not None
            else ""
        )
        mark = ("ok  " if self.met else "MISS") if self.goal else "    "
        unit = f" {self.unit}" if self.unit else ""
        goal = f"; goal: {self.goal_of} {self.goal}" if self.goal else ""
        return f"{mark} {self.name} {self.case}: {_short(self.ours)}{beside}{unit}{ratio}{goal}"


def paired(
    name: str,
    case: str,
    unit: str,
    ours: Callable[[], float],
    baseline: Callable[[], float],
    *,
    pairs: int,
    goal: str,
    goal_of: str = "ratio",
) -> Row:
    """Measure the two in turns, after one round of each that does not count; who begins
    alternates."""
    ours()
    baseline()
    left: list[float] = []
    right: list[float] = []
    for n in range(pairs):
        for side in (0, 1) if n % 2 else (1, 0):
            (right if side else left).append((baseline if side else ours)())
    ratios = sorted(a / b for a, b in zip(left, right, strict=True))
    return Row(
        name,
        case,
        unit,
        statistics.median(left),
        statistics.median(right),
        statistics.median(ratios),
        ratios[0],
        ratios[-1],
        goal,
        goal_of,
    )


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
