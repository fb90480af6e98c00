"""The pages of a bench, and of a training: cells, cost beside score, scores by kind or group and by
task, attempts side by side; curves over the steps.

Traces are shown of train tasks only, as on every page: nobody should tune an agent on validation or
test by eye.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recreate.api.errors import BadInput
from recreate.runs.attempts import read_experience
from recreate.runs.reader import Run
from recreate.runs.results import BenchResult, judge_pairs, pair_cells
from recreate.viewer.charts import draw_curves
from recreate.viewer.facts import RunFacts
from recreate.viewer.html import read_text, render, shares
from recreate.viewer.traces import Room, ShownTrace, show_trace

HERE = Path(__file__).parent
MOST_TASKS = 1000
MOST_GROUPS = 12
MOST_PAIRS = 12
"""Tasks in the table, groups with bars, tasks whose attempts stand side by side."""


@dataclass(frozen=True)
class Column:
    """A cell of the table. tasks, groups: mean score of each task, and of each kind of task, or
    group where all are of one kind; of: task -> its first attempt; cost: of an attempt, in dollars,
    or in tokens where all were free; x: where that is among the others, in per cent."""

    number: int
    result: BenchResult
    tasks: Mapping[str, float]
    of: Mapping[str, str]
    groups: Mapping[str, float]
    cost: float = 0.0
    x: float = 0.0

    @property
    def attempts(self) -> int:
        """How many were graded."""
        return len(self.result.scores) - self.result.set_aside


def page(run: Run) -> str:
    """Return the page of a bench. Raises BadInput (`no-scores`) when it measured nothing."""
    facts = RunFacts(run)
    kinds = run.kinds()
    columns = list_columns(run, facts.cells, kinds)
    if not columns:
        raise BadInput(
            f"{run.folder.name} measured nothing yet",
            fix="go on with it, or name another",
            code="no-scores",
        )
    free = not any(c.result.usd for c in columns)
    columns, ticks = _place(columns, free)
    tasks = sort_tasks(columns)
    groups = Counter(group for c in columns for group in c.groups)
    by_result = {c.result.key: c for c in columns}
    judged = judge_pairs(pair_cells(run, facts.cells), run.settings, kinds)
    values = {
        "facts": facts,
        "run": run,
        "columns": columns,
        "free": free,
        "dollars": _dollars,
        "ks": sorted({"1", max((k for c in columns for k in c.result.pass_hat), key=int)}, key=int),
        "ticks": ticks,
        "tasks": tasks[:MOST_TASKS],
        "more_tasks": max(0, len(tasks) - MOST_TASKS),
        "kinds": kinds,
        "groups": (
            [g for g, _ in groups.most_common(MOST_GROUPS)] if 1 < len(groups) < len(tasks) else []
        ),
        "more_groups": max(0, len(groups) - MOST_GROUPS),
        "differences": [
            (by_result[each.before.key], by_result[each.after.key], each.verdict)
            for each in judged
            if each.verdict.tasks
        ],
        "pairs": _pair_attempts(run, columns, tasks),
        "one": {
            what: len({getattr(c.result, what) for c in columns}) == 1
            for what in ("model", "domain", "split")
        },
        "aside": facts.excluded,
        "spend": facts.spend,
        "shares": shares(facts.spend),
    }
    style = read_text("page.css")
    script = read_text("bench.js", HERE)
    return render("bench", HERE, style=style, script=script, **values)


def training_page(run: Run) -> str:
    """Return the page of a training: its curves."""
    facts = RunFacts(run)
    return render(
        "tune",
        HERE,
        style=read_text("page.css"),
        script="",
        run=run,
        facts=facts,
        tune=facts.tuning,
        updates=len(facts.updates),
        series=draw_curves(facts.updates),
    )


def list_columns(
    run: Run, cells: Iterable[BenchResult], kinds: Mapping[str, str] | None = None
) -> list[Column]:
    """Return the columns of what was graded, in their order. kinds: task -> its kind; None: no
    groups are read."""
    columns = list[Column]()
    for result in cells:
        graded = [s for s in result.scores if s["score"] is not None]
        groups = dict[str, list[float]]()
        for s in graded if kinds is not None else ():
            name = (kinds or {}).get(s["task"]) or _group_of(run, s["experience"])
            if name is not None:
                groups.setdefault(name, []).append(s["score"])
        first = {s["task"]: s["experience"] for s in reversed(graded)}
        means = {name: math.fsum(each) / len(each) for name, each in groups.items()}
        if graded:
            columns.append(Column(len(columns), result, result.by_task, first, means))
    return columns


def _group_of(run: Run, attempt: str) -> str | None:
    try:
        known = read_experience(run.folder / "attempts" / attempt, steps=False)
    except BadInput:  # damaged: the journal has its score
        return None
    return None if known is None else known.group


def sort_tasks(columns: Sequence[Column]) -> list[str]:
    """Return the tasks, those in which the columns differ most first."""
    tasks = dict.fromkeys(task for c in columns for task in c.tasks)
    held = {t: [c.tasks[t] for c in columns if t in c.tasks] for t in tasks}
    return sorted(tasks, key=lambda t: (min(held[t]) - max(held[t]), t))


def _place(columns: Sequence[Column], free: bool) -> tuple[list[Column], list[tuple[float, str]]]:
    """Return the columns with their places, and the ticks of what an attempt cost: (x, label)."""
    costs = [(c.result.tokens if free else c.result.usd) / c.attempts for c in columns]
    most = max(costs) or 1.0
    ticks = [
        (round(5 + 90 * part, 1), f"{most * part:,.0f}" if free else _dollars(most * part))
        for part in (0.0, 0.5, 1.0)
    ]
    return [
        replace(c, cost=cost, x=round(5 + 90 * cost / most, 2))
        for c, cost in zip(columns, costs, strict=True)
    ], ticks


def _dollars(usd: float) -> str:
    """Return dollars so exact that two cheap attempts can be told apart."""
    if usd >= 1:
        return f"${usd:,.2f}"
    return f"${usd:.4f}" if usd >= 0.01 or not usd else f"${usd:.6f}"


def _pair_attempts(
    run: Run, columns: Sequence[Column], tasks: Sequence[str]
) -> list[tuple[str, list[tuple[Column, ShownTrace]]]]:
    """Return train tasks, those that differ most first, each with the attempts of the columns that
    have it."""
    room = Room()
    pairs = list[tuple[str, list[tuple[Column, ShownTrace]]]]()
    for task in tasks:
        theirs = [c for c in columns if task in c.of and c.result.split == "train"][:2]
        if len(theirs) < 2 or len(pairs) >= MOST_PAIRS or room.left <= 0:
            continue
        shown = []
        for column in theirs:
            try:
                experience = read_experience(run.folder / "attempts" / column.of[task])
            except BadInput:
                experience = None
            if experience is not None:
                shown.append((column, show_trace(experience, {}, [], room)))
        if len(shown) == 2:
            pairs.append((task, shown))
    return pairs
