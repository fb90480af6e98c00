"""`--difficulty`: tasks by the pass rates that an agent was measured at, or of a named set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from recreate.api.errors import BadInput
from recreate.api.ports import Domain, Rated
from recreate.api.theirs import all_are, expect
from recreate.api.types import PassRate, Task
from recreate.builder.selection import Rater, pass_rate, rates_of


def _rates(rated: Rated, task: Task) -> Sequence[PassRate]:
    """Raises BadInput where a domain's own are no pass rates."""
    found = rated.pass_rates(task)
    expect(all_are(found, PassRate), rated, "pass_rates", found)
    return found


def choose_by_difficulty(
    domain: Domain, tasks: Sequence[Task], text: str, where: Path, rater: Rater
) -> tuple[list[Task], str]:
    """Return (the tasks in a range of pass rates or in a named set, what is told of it). Raises
    BadInput."""
    rated = rates_of(domain, where)
    asked = text
    if ".." not in text:
        sets = rated.task_sets()
        if text not in sets:
            names = f"; sets: {', '.join(sorted(sets))}" if sets else ""
            raise BadInput(
                f"--difficulty {text!r} is neither a range nor a set of {domain.name}",
                fix=f"--difficulty 0.2..0.8{names}",
                code="bad-difficulty",
            )
        chosen = sets[text]
        if chosen.tasks:
            left = [task for task in tasks if task.id in chosen.tasks]
            return left, f"--difficulty {text} takes {_by_split(left)}"
        rater = Rater(chosen.scaffold, "", chosen.model)
        text = chosen.difficulty
    low, high = _range(text)
    rates = {task.id: pass_rate(_rates(rated, task), rater) for task in tasks}
    known = {id: rate for id, rate in rates.items() if rate is not None}
    if not known:
        raise _unrated(domain, rated, tasks, rater)
    left = [task for task in tasks if task.id in known and low <= known[task.id] <= high]
    return (
        left,
        (
            f"--difficulty {asked} goes by what {rater.scaffold} with {rater.model} passed:"
            f" {_by_split(left)} are at a rate of {low:g}..{high:g}; left out are"
            f" {_without(tasks, known, low, high)}"
        ),
    )


def _range(text: str) -> tuple[float, float]:
    """LO..HI, each from 0 to 1. Raises BadInput."""
    found = re.fullmatch(r"\s*(\d*\.?\d*)\s*\.\.\s*(\d*\.?\d*)\s*", text)
    try:
        low, high = (
            float(end or edge)
            for end, edge in zip(found.groups() if found else (), ("0", "1"), strict=True)
        )
        if not 0 <= low <= high <= 1:
            raise ValueError
    except ValueError:
        raise BadInput(
            f"--difficulty {text!r} is not a range of pass rates",
            fix=(
                "--difficulty 0.2..0.8: the agent passes between a fifth and four fifths of its"
                " attempts"
            ),
            code="bad-difficulty",
        ) from None
    return low, high


def _unrated(domain: Domain, rated: Rated, tasks: Sequence[Task], rater: Rater) -> BadInput:
    there = sorted(
        {f"{r.scaffold} with {r.model}" for task in tasks for r in rated.pass_rates(task)}
    )
    known = f"there are rates of {'; '.join(there)}. " if there else ""
    if sets := sorted(rated.task_sets()):
        known += f"Sets: --difficulty {', '.join(sets)}. "
    return BadInput(
        f"no pass rate of {rater.scaffold} with {rater.model} is known for {domain.name}",
        fix=(
            f"{known}To measure: recreate bench --scaffold {rater.scaffold} --repeats 3 --out RUN,"
            f" then recreate tasks rate {domain.name} --from RUN"
        ),
        code="not-rated",
    )


def _by_split(tasks: Sequence[Task]) -> str:
    counts: Mapping[str, int] = {
        s: sum(t.split == s for t in tasks) for s in ("train", "validation", "test")
    }
    return ", ".join(f"{n} {split}" for split, n in counts.items())


def _without(tasks: Sequence[Task], known: Mapping[str, float], low: float, high: float) -> str:
    """How many tasks are not in the range, and where they are."""
    rates = list(known.values())
    places = {
        "at 0": sum(0 == rate < low for rate in rates),
        "below": sum(0 < rate < low for rate in rates),
    }
    places |= {
        "above": sum(high < rate < 1 for rate in rates),
        "at 1": sum(high < rate == 1 for rate in rates),
    }
    places["never measured"] = len(tasks) - len(known)
    return ", ".join(f"{count} {where}" for where, count in places.items() if count) or "none"
