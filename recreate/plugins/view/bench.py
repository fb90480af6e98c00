"""What the page of a bench, or of several runs beside each other, shows: cells, cost beside score,
scores by kind or group and by task, attempts side by side.

Traces are shown of train tasks only, as on every page: nobody should tune an agent on validation or
test by eye.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.types import Experience, Usage, Verdict
from recreate.runs.attempts import how, read_experience
from recreate.runs.gate import interval, judge, pass_hat
from recreate.runs.reader import CellKey, Run
from recreate.viewer.charts import per_task
from recreate.viewer.traces import Room, ShownTrace, show_trace

Rows = Mapping[tuple[str, int], Mapping[str, Any]]
"""(task, repeat) -> the journal's `experience` record"""

MOST_TASKS, MOST_GROUPS, MOST_PAIRS = 1000, 12, 12
"""Tasks in the table, groups with bars, tasks whose attempts stand side by side."""


@dataclass(frozen=True)
class Column:
    """A cell of the table. rows: its scores, by task and repeat; hats: pass^k by k; latency:
    seconds a reply took; tasks, groups: mean score of each task, and of each kind of task, or group
    where all are of one kind; of: task -> its first attempt; cost: of an attempt, in dollars, or in
    tokens where all were free; x: where that is among the others, in per cent."""

    number: int
    run: Run
    agent: str
    key: CellKey
    rows: Rows
    mean: float
    lo: float
    hi: float
    hats: Mapping[int, float]
    attempts: int
    usd: float
    tokens: int
    latency: float | None
    tasks: Mapping[str, float]
    groups: Mapping[str, float]
    of: Mapping[str, str]
    endings: Mapping[str, int]
    cost: float = 0.0
    x: float = 0.0


def facts(run: Run, *beside: Run) -> dict[str, Any]:
    """What the template is filled with. beside: runs whose results are compared with those of
    `run`. Raises BadInput (`no-scores`) when one measured nothing."""
    columns = list[Column]()
    told = list[dict[str, Any]]()
    kinds = {task: kind for each in (run, *beside) for task, kind in each.kinds().items()}
    for each in (run, *beside):
        cells = each.results() if beside else each.cells()
        if not cells:
            raise BadInput(
                f"{each.folder.name} measured nothing yet",
                fix="go on with it, or name another",
                code="no-scores",
            )
        records = list(each.records("agent", "start", "test-opened"))  # once: a journal may be long
        names = {r["scaffold"]: r["name"] for r in records if r["kind"] == "agent"}
        names |= {seed.digest: seed.name} if beside and (seed := each.seed()) is not None else {}
        arms = each.arms()
        for key, rows in cells.items():
            agent = arms.get((key.model, key.agent)) or names.get(key.agent, key.agent[:8])
            columns.append(_column(each, len(columns), agent, key, rows, kinds))
        told += records
    free = not any(c.usd for c in columns)
    columns, ticks = _placed(columns, free)
    tasks = list(dict.fromkeys(task for c in columns for task in c.tasks))
    spread = {t: {c.tasks[t] for c in columns if t in c.tasks} for t in tasks}
    tasks.sort(key=lambda t: (-(max(spread[t]) - min(spread[t])), t))
    groups = Counter(group for c in columns for group in c.groups)
    return {
        "run": run,
        "columns": columns,
        "free": free,
        "dollars": _dollars,
        "ks": sorted({1, max(k for c in columns for k in c.hats)}),
        "ticks": ticks,
        "tasks": tasks[:MOST_TASKS],
        "more_tasks": max(0, len(tasks) - MOST_TASKS),
        "kinds": kinds,
        "groups": (
            [g for g, _ in groups.most_common(MOST_GROUPS)] if 1 < len(groups) < len(tasks) else []
        ),
        "more_groups": max(0, len(groups) - MOST_GROUPS),
        "runs": [run, *beside],
        "differences": list(_differences(columns, run, kinds, alone=not beside)),
        "pairs": _pairs(columns, tasks),
        "one": (
            {
                what: len({getattr(c.key, what) for c in columns}) == 1
                for what in ("model", "domain", "split")
            }
            | {"run": not beside}
        ),
        "settings": run.settings,
        "aside": [row for each in (run, *beside) for row in each.excluded()],
        "spend": run.spend(),
        "start": next((r for r in told if r["kind"] == "start"), {}),
        "opened": {
            (r.get("model"), r["scaffold"]): r
            for r in told
            if r["kind"] == "test-opened" and "agents" in r
        },
    }


def _column(
    run: Run, number: int, agent: str, key: CellKey, rows: Rows, kinds: Mapping[str, str]
) -> Column:
    scores = {place: row["score"] for place, row in rows.items()}
    mean, lo, hi = interval(scores, alpha=run.settings.gate.alpha)
    usage, endings, groups = Usage(), Counter[str](), dict[str, list[float]]()
    for (task, _), row in rows.items():
        known = _known(run, row["attempt"])
        endings[
            how(bool(row["passed"]), str(row["ending"]), known.trace.limit if known else "")
        ] += 1
        if known is None:
            continue
        usage += known.trace.usage
        groups.setdefault(kinds.get(task, known.group), []).append(row["score"])
    hats = pass_hat({place: bool(row["passed"]) for place, row in rows.items()})
    return Column(
        number=number,
        run=run,
        agent=agent,
        key=key,
        rows=rows,
        mean=mean,
        lo=lo,
        hi=hi,
        hats=hats,
        attempts=len(rows),
        usd=usage.usd,
        tokens=usage.tokens_in + usage.tokens_out,
        latency=usage.seconds / usage.calls if usage.calls else None,
        tasks=per_task(scores),
        groups={group: math.fsum(each) / len(each) for group, each in groups.items()},
        of={task: rows[task, repeat]["attempt"] for task, repeat in sorted(rows, reverse=True)},
        endings=dict(sorted(endings.items())),
    )


def _known(run: Run, attempt: str) -> Experience | None:
    try:
        return read_experience(run.folder / "attempts" / attempt, steps=False)
    except BadInput:  # damaged: the journal has its score
        return None


def _placed(columns: Sequence[Column], free: bool) -> tuple[list[Column], list[tuple[float, str]]]:
    """The columns with their places, and the ticks of what an attempt cost: (x, label)."""
    costs = [(c.tokens if free else c.usd) / c.attempts for c in columns]
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
    """So exact that two cheap attempts can be told apart."""
    return (
        f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}" if usd >= 0.01 or not usd else f"${usd:.6f}"
    )


def _paired(a: Column, b: Column) -> bool:
    return (a.key.domain, a.key.split) == (b.key.domain, b.key.split) and bool(
        a.tasks.keys() & b.tasks.keys()
    )


def _differences(
    columns: Sequence[Column], run: Run, kinds: Mapping[str, str], *, alone: bool
) -> Iterator[tuple[Column, Column, Verdict]]:
    """The gate's verdict on each column beside its baseline, as the table has it, or beside the
    first where no bench named one; of several runs, on those of the others beside each of the
    first's."""
    gate, bases, by_key = run.settings.gate, run.baselines(), {c.key: c for c in columns}
    if not alone:
        pairs = [(a, b) for a in columns if a.run is run for b in columns if b.run is not run]
    elif bases is None:
        pairs = [(columns[0], c) for c in columns[1:]]
    else:
        pairs = [(by_key[bases[c.key]], c) for c in columns if bases.get(c.key) in by_key]
    for a, b in pairs:
        if _paired(a, b):
            before, after = ({place: r["score"] for place, r in c.rows.items()} for c in (a, b))
            if not alone:
                both = sorted(before.keys() & after.keys())
                before, after = {k: before[k] for k in both}, {k: after[k] for k in both}
            if before.keys() & after.keys():
                yield (
                    a,
                    b,
                    judge(before, after, alpha=gate.alpha, seed=run.settings.seed, kinds=kinds),
                )


def _pairs(
    columns: Sequence[Column], tasks: Sequence[str]
) -> list[tuple[str, list[tuple[Column, ShownTrace]]]]:
    """Train tasks, those that differ most first, each with the attempts of the columns that have
    it."""
    room, found = Room(), list[tuple[str, list[tuple[Column, ShownTrace]]]]()
    for task in tasks:
        theirs = [c for c in columns if task in c.of and c.key.split == "train"][:2]
        if len(theirs) < 2 or len(found) >= MOST_PAIRS or room.left <= 0:
            continue
        shown = []
        for column in theirs:
            try:
                experience = read_experience(column.run.folder / "attempts" / column.of[task])
            except BadInput:
                experience = None
            if experience is not None:
                shown.append((column, show_trace(experience, {}, [], room)))
        if len(shown) == 2:
            found.append((task, shown))
    return found
