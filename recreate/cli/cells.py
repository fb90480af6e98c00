"""What was measured, in lines: for bench, compare and show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recreate.api.shapes import JsonMap
from recreate.api.types import Stratum, Verdict
from recreate.cli.terminal import EXCLUDED, columns

if TYPE_CHECKING:
    from recreate.runs.results import BenchResult


def list_cells(cells: Sequence[BenchResult], differences: Sequence[JsonMap] = ()) -> list[str]:
    """Return one cell as a line; several as a table, with the differences to the baseline and what
    the table has no columns for."""
    if len(cells) == 1:
        return [tell_cell(cells[0])]
    agents = {(cell.scaffold, cell.digest) for cell in cells}
    alike = Counter(name for name, _ in agents)

    def name_agent(name: str, digest: str) -> str:
        """Several agents may have one name: the seed, and what a build made of it."""
        return f"{name} {digest[:6]}" if alike[name] > 1 else name

    hats = sorted({1, max((int(k) for cell in cells for k in cell.pass_hat), default=1)})
    rows = [
        {
            "scaffold": name_agent(cell.scaffold, cell.digest),
            "model": cell.model,
            "domain": cell.domain,
            "split": cell.split,
            "tasks": f"{cell.n} x {cell.repeats}",
            "score": _tell_score(cell),
            **{f"pass^{k}": _figure(cell.pass_hat.get(str(k)), ".3f") for k in hats},
            "USD": f"{cell.usd:.3f}",
            "tokens": f"{cell.tokens:,}",
            "s/call": _figure(cell.latency, ".2f"),
            "ended": ", ".join(f"{count} {name}" for name, count in cell.endings.items()),
        }
        for cell in cells
    ]
    same = [key for key in ("model", "domain", "split") if len({row[key] for row in rows}) == 1]
    keys = [key for key in rows[0] if key not in same]
    named = ", ".join(f"{key} {rows[0][key]}" for key in same)
    compared = [
        tell_difference(
            f"{name_agent(d['scaffold'], d['digest'])} with {d['model']} on {d['domain']}, to"
            f" {name_agent(d['baseline']['scaffold'], d['baseline']['digest'])} with"
            f" {d['baseline']['model']}",
            d,
        )
        for d in differences
    ]
    notes = [
        f"{c.scaffold} ({c.digest}) on {c.split} tasks, {c.date}{_tell_opening(c)}" for c in cells
    ]
    return [
        *([named] if named else []),
        *columns([keys, *([row[key] for key in keys] for row in rows)]),
        *compared,
        *warn_of_many(len(compared)),
        *dict.fromkeys(notes),
    ]


def tell_cell(cell: BenchResult) -> str:
    """Return a cell in a line."""
    if cell.mean is None:
        return f"{cell.scaffold}: every attempt was {EXCLUDED}"
    excluded = f", {cell.set_aside} {EXCLUDED}" if cell.set_aside else ""
    return (
        f"{cell.scaffold} ({cell.digest}) with {cell.model} on {cell.n} {cell.split} tasks of"
        f" {cell.domain} x {cell.repeats}: {_tell_score(cell)}, ${cell.usd:.3f}{excluded},"
        f" {cell.date}{_tell_opening(cell)}"
    )


def tell_difference(who: str, difference: JsonMap) -> str:
    """Return a verdict on one cell beside another in a line, by kinds of tasks where there are
    several."""
    from recreate.viewer.facts import verdict_text

    won = difference.get("won")
    counts = "" if won is None else f"; {won} attempts won, {difference['lost']} lost"
    kinds = ", ".join(str(Stratum.model_validate(each)) for each in difference.get("strata", ()))
    of = f"; of these {kinds}" if kinds else ""
    return f"{who}: {verdict_text(Verdict.model_validate(difference))}{counts}{of}"


def warn_of_many(comparisons: int) -> list[str]:
    """Return what is to be said of several comparisons; [] for one."""
    text = f"these are {comparisons} comparisons, and no correction is made for that"
    return [text] if comparisons > 1 else []


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _tell_score(cell: BenchResult) -> str:
    return "none" if cell.mean is None else f"{cell.mean:.3f} [{cell.lo:.3f}, {cell.hi:.3f}]"


def _tell_opening(cell: BenchResult) -> str:
    """Return how often the test split was opened, and whether this agent was asked the same before;
    '' on another split."""
    if cell.split != "test":
        return ""
    agents = "1 agent was" if cell.test_agents == 1 else f"{cell.test_agents} agents were"
    text = f"; opening {cell.test_openings} of the test split, which {agents} measured on"
    if earlier := ", ".join(map(str, cell.opened_before)):
        text += (
            f"; the same was asked of this agent before, by opening {earlier}: all of them count"
        )
    return text
