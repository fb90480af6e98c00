"""report.md of a run of tune: the curve, what was noticed, what replay found ambiguous."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.agents.scaffold import Scaffold
from recreate.api.paths import short
from recreate.plugins.rl.recipe import Recipe
from recreate.viewer.text import visible

COLUMNS = {
    "reward": "mean reward",
    "kl": "KL to the reference (k3, nats a token)",
    "entropy": "entropy (nats a token)",
    "clip": "share of tokens clipped",
    "length": "tokens an attempt",
}
BARS = "▁▂▃▄▅▆▇█"


def write_report(
    file: Path,
    how: Recipe,
    model: str,
    scaffold: Scaffold,
    domain: str,
    curve: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    chances: Mapping[str, float],
    saved: Path | None,
) -> None:
    """Write it anew, and curve.svg beside it."""
    head = [
        f"# {how.name} on {domain}",
        "",
        f"{how.about} ({how.source})",
        "",
        f"Model {model}, scaffold {scaffold.name} ({scaffold.digest}), {len(curve)} steps, "
        f"{sum(r['attempts'] for r in curve)} attempts at train tasks."
        + (f" Checkpoint: {short(saved)}." if saved else " No checkpoint yet."),
        "",
        "| | first | last | over the run |",
        "|---|---|---|---|",
    ]
    rows = [
        f"| {words} | {curve[0][key]:.4g} | {curve[-1][key]:.4g} |"
        f" {sparkline([r[key] for r in curve])} |"
        for key, words in COLUMNS.items()
        if curve
    ]
    table = [
        "",
        "| step | " + " | ".join(COLUMNS) + " | equal groups | rows | replayed |",
        "|---" * 9 + "|",
    ]
    table += [
        f"| {r['step']} | "
        + " | ".join(f"{r[key]:.4g}" for key in COLUMNS)
        + f" | {r['equal']:.0%} | {r['rows']} | {r['replayed']} |"
        for r in curve
    ]
    ended: Counter[str] = Counter()
    for r in curve:
        ended.update(r.get("limits", {}))
    named = ", ".join(f"{name} {n}" for name, n in ended.most_common())
    table += [
        "",
        f"Attempts that ended at a limit: {named}." if ended else "No attempt ended at a limit.",
    ]
    noticed = ["", "## What was noticed", "", *(f"- {n}" for n in notes)] if notes else []
    most = sorted(((p, t) for t, p in chances.items() if p > 0), key=lambda x: (-x[0], x[1]))[:20]
    ambiguous = [
        "",
        "## Ambiguous tasks",
        "",
        "| task | how likely it is replayed first |",
        "|---|---|",
    ]
    ambiguous += [f"| {task} | {p:.3f} |" for p, task in most]
    if curve:
        file.with_name("curve.svg").write_text(plot(curve), "utf-8")
        rows += ["", "![The same as curves](curve.svg)"]
    text = "\n".join(head + rows + table + noticed + (ambiguous if most else [])) + "\n"
    file.write_text(visible(text), "utf-8")


def plot(curve: Sequence[Mapping[str, Any]], width: int = 640, height: int = 90) -> str:
    """The columns over the steps as one SVG, a band each: its name, its least and its greatest
    value."""
    bands = []
    for n, (key, words) in enumerate(COLUMNS.items()):
        values = [float(r[key]) for r in curve]
        low, high = min(values), max(values)
        top, inner = n * (height + 30) + 22, width - 90
        scale = height / (high - low) if high > low else 0.0
        points = " ".join(
            f"{i * inner / max(1, len(values) - 1):.1f},{top + height - (v - low) * scale:.1f}"
            for i, v in enumerate(values)
        )
        bands.append(
            f'<text x="0" y="{top - 7}">{words}</text>'
            f'<path d="M0 {top + height}H{inner}" stroke="currentColor" opacity=".2"/>'
            f'<polyline points="{points}" fill="none" stroke="#2a6fb0" stroke-width="1.5"/>'
            f'<text x="{inner + 6}" y="{top + 8}">{high:.3g}</text>'
            f'<text x="{inner + 6}" y="{top + height}">{low:.3g}</text>'
        )
    size = f'viewBox="0 0 {width} {len(COLUMNS) * (height + 30)}" width="{width}"'
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(bands)}</svg>\n'


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The values as bars between their least and greatest, each bar the mean of an equal part of
    them."""
    if not values:
        return ""
    n = min(width, len(values))
    parts = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(p) / len(p) for p in parts]
    low, high = min(means), max(means)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((m - low) * scale)] for m in means)
