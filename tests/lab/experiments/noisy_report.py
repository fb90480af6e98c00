"""The comparison over seeds as tables and one figure: means with 95 % intervals (Student's t over
seeds)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from recreate.runs.gate import student_quantile

Run = Mapping[str, Any]
COLOURS = ("#2a6fb0", "#c8553d", "#3a8f5c", "#8a5fb5")
POINTS = 12
"""Points of a curve: each is the mean of an equal part of the steps."""


def write(folder: Path, runs: Sequence[Run]) -> None:
    """report.md and curves.svg in the folder; the report is printed too. Only seeds that every
    method has count."""
    methods = list(dict.fromkeys(r["method"] for r in runs))
    by = {m: {r["seed"]: r for r in runs if r["method"] == m} for m in methods}
    seeds = sorted(set.intersection(*(set(of) for of in by.values()))) if by else []
    if len(seeds) < 2:
        print("fewer than two seeds have run with every method: no report yet")
        return
    chosen = {m: [by[m][s] for s in seeds] for m in methods}
    first = [{tuple(r["graded"][:1]) for r in (by[m][s] for m in methods)} for s in seeds]
    one = runs[0]
    lines = [
        (
            f"{len(seeds)} seeds, {one['steps']} steps, learning rate {one['rate']:g},"
            f" {one['flaky']:.0%} of the grades made up. The first step's mean reward is the same"
            f" for all methods in {sum(len(f) == 1 for f in first)} of {len(seeds)} seeds."
        ),
        "",
        (
            "| method | true reward, last quarter | beside grpo | area under the curve | beside"
            " grpo | unseen tasks, at the end | beside grpo | entropy at the end | clipped | s a"
            " run |"
        ),
        "|---" * 10 + "|",
    ]
    base = chosen.get("grpo", chosen[methods[0]])
    for m in methods:
        cells = []
        for of in (_late, _area, _unseen):
            cells.append(_mean([of(r) for r in chosen[m]]))
            same = chosen[m] is base
            cells.append(
                "-"
                if same
                else _mean([of(a) - of(b) for a, b in zip(chosen[m], base, strict=True)], "+")
            )
        cells.append(_mean([fmean(r["entropy"][-8:]) for r in chosen[m]]))
        cells.append(f"{fmean(fmean(r['clip']) for r in chosen[m]):.4f}")
        cells.append(f"{fmean(r['seconds'] for r in chosen[m]):.0f}")
        lines.append(f"| {m} | " + " | ".join(cells) + " |")
    for key, words in (("reward", "True reward"), ("entropy", "Entropy (nats a token)")):
        curves = {m: [_points(r[key]) for r in chosen[m]] for m in methods}
        lines += ["", f"| {words}, by part of the run | " + " | ".join(methods) + " |"]
        lines.append("|---" * (len(methods) + 1) + "|")
        width = one["steps"] / POINTS
        for n in range(POINTS):
            cells = [_mean([c[n] for c in curves[m]]) for m in methods]
            lines.append(
                f"| steps {round(n * width)}-{round((n + 1) * width) - 1} | "
                + " | ".join(cells)
                + " |"
            )
    text = "\n".join(lines) + "\n"
    (folder / "report.md").write_text(text, "utf-8")
    (folder / "curves.svg").write_text(figure(chosen), "utf-8")
    print(text)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """(mean, half the width of its 95 % interval)."""
    return fmean(values), student_quantile(len(values), 0.05) * stdev(values) / math.sqrt(
        len(values)
    )


def figure(chosen: Mapping[str, Sequence[Run]], width: int = 640, height: int = 190) -> str:
    """Two panels, reward and entropy over the steps: a line a method, its interval as a band."""
    inner, out = width - 60, []
    for panel, (key, words) in enumerate(
        {"reward": "true reward", "entropy": "entropy, nats a token"}.items()
    ):
        curves = {
            m: [interval(column) for column in zip(*(_points(r[key]) for r in runs), strict=True)]
            for m, runs in chosen.items()
        }
        low = min(mean - half for c in curves.values() for mean, half in c)
        high = max(mean + half for c in curves.values() for mean, half in c)
        top = panel * (height + 50) + 24

        def at(n: int, value: float, top: int = top, low: float = low, high: float = high) -> str:
            return (
                f"{n * inner / (POINTS - 1):.1f},"
                f"{top + height - (value - low) / (high - low) * height:.1f}"
            )

        out.append(f'<text x="0" y="{top - 9}">{words}</text>')
        out.append(f'<path d="M0 {top + height}H{inner}" stroke="currentColor" opacity=".3"/>')
        out.append(f'<text x="{inner + 6}" y="{top + 8}">{high:.3f}</text>')
        out.append(f'<text x="{inner + 6}" y="{top + height}">{low:.3f}</text>')
        for colour, (_, c) in zip(COLOURS, curves.items(), strict=False):
            upper = [at(n, mean + half) for n, (mean, half) in enumerate(c)]
            lower = [at(n, mean - half) for n, (mean, half) in enumerate(c)]
            out.append(
                f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{colour}" opacity=".12"/>'
            )
            middle = " ".join(at(n, mean) for n, (mean, _) in enumerate(c))
            out.append(
                f'<polyline points="{middle}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
            )
    below = 2 * (height + 50) + 14
    for n, (m, colour) in enumerate(zip(chosen, COLOURS, strict=False)):
        out.append(f'<text x="{n * 150}" y="{below}" fill="{colour}">— {m}</text>')
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"'
    size = f'viewBox="0 0 {width} {below + 10}" width="{width}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(out)}</svg>\n'


def _late(run: Run) -> float:
    return fmean(run["reward"][-len(run["reward"]) // 4 :])


def _area(run: Run) -> float:
    return fmean(run["reward"])


def _unseen(run: Run) -> float:
    return float(run["held_out"][-1])


def _points(values: Sequence[float]) -> list[float]:
    n = len(values)
    return [fmean(values[i * n // POINTS : (i + 1) * n // POINTS]) for i in range(POINTS)]


def _mean(values: Sequence[float], sign: str = "") -> str:
    mean, half = interval(values)
    return f"{mean:{sign}.3f} ± {half:.3f}"
