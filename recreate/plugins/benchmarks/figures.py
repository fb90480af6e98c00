"""Runs a program that draws, and tells what the figure that it saves shows: its numbers, its texts,
its colours.

Runs inside a sandbox, by its text, beside the program: what it tells is data, compared elsewhere,
where no program is. What is told of each kind of figure is what DA-Code's post-processing tells
(Huang et al. 2024, arXiv:2410.07331).
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

_MOST = 20_000
"""Numbers of a figure that are told."""


def kind_of(ax: Any) -> str:
    """pie, bar, scatter or line, by what is drawn there; '' for none of them."""
    names = [type(each).__name__ for each in ax.patches]
    if "Wedge" in names:
        return "pie"
    if any(
        name == "Rectangle" and each.get_width() != each.get_height()
        for name, each in _pairs(names, ax.patches)
    ):
        return "bar"
    if _scattered(ax):
        return "scatter"
    return "line" if any(len(line.get_ydata()) > 1 for line in ax.get_lines()) else ""


def _pairs(names: list[str], patches: Any) -> list[tuple[str, Any]]:
    return list(zip(names, patches, strict=True))


def _scattered(ax: Any) -> list[Any]:
    return [
        each
        for each in ax.collections
        if type(each).__name__ == "PathCollection" and len(each.get_offsets())
    ]


def numbers_of(ax: Any, kind: str) -> tuple[list[list[float]], list[Any]]:
    """(the rows of numbers, the colours)."""
    if kind == "pie":
        wedges = [each for each in ax.patches if type(each).__name__ == "Wedge"]
        shares = [abs(each.theta2 - each.theta1) / 360 for each in wedges]
        return [shares], [each.get_facecolor() for each in wedges]
    if kind == "bar":
        return _bars([each for each in ax.patches if type(each).__name__ == "Rectangle"])
    if kind == "scatter":
        points = [
            [float(n) for n in point] for each in _scattered(ax) for point in each.get_offsets()
        ]
        return points, [colour for each in _scattered(ax) for colour in each.get_facecolor()]
    lines = [line for line in ax.get_lines() if len(line.get_ydata()) > 1]
    return [[float(n) for n in line.get_ydata()] for line in lines], [
        line.get_color() for line in lines
    ]


def _bars(bars: list[Any]) -> tuple[list[list[float]], list[Any]]:
    """A row for each series: it ends where the next bar stands before the last one."""
    wide, high = ({each.get_width() for each in bars}, {each.get_height() for each in bars})
    upright = len(high) > len(wide) or (len(high) == len(wide) and len(high) == 1)
    rows: list[list[float]] = []
    last = float("inf")
    for each in bars:
        place, length = (
            (each.get_x(), each.get_height()) if upright else (each.get_y(), each.get_width())
        )
        if not (each.get_width() if upright else each.get_height()):
            continue
        if place < last:
            rows.append([])
        rows[-1].append(float(length))
        last = place
    return rows, [each.get_facecolor() for each in bars]


def told_of(figure: Any) -> dict[str, Any]:
    """What a figure shows, {} for one without axes."""
    to_hex = importlib.import_module("matplotlib.colors").to_hex
    if not figure.axes:
        return {}
    figure.canvas.draw()
    ax = figure.gca()
    kind = kind_of(ax)
    rows, colours = numbers_of(ax, kind) if kind else ([], [])
    if sum(map(len, rows)) > _MOST:
        return {}
    legend = ax.get_legend()
    return {
        "type": kind,
        "data": rows,
        "color": sorted({to_hex(colour) for colour in colours}),
        "figsize": [float(n) for n in figure.get_size_inches()],
        "graph_title": ax.get_title(),
        "legend_title": legend.get_title().get_text() if legend else "",
        "labels": [text.get_text() for text in legend.get_texts()] if legend else [],
        "x_label": ax.get_xlabel(),
        "y_label": ax.get_ylabel(),
        "xtick_labels": [text.get_text() for text in ax.get_xticklabels()],
        "ytick_labels": [text.get_text() for text in ax.get_yticklabels()],
    }


def main() -> None:
    """Told on stdin which program, which image, and in which file to tell of it."""
    asked = json.load(sys.stdin)
    sys.stdin = io.StringIO()
    os.environ["MPLBACKEND"] = "Agg"
    os.environ.setdefault("MPLCONFIGDIR", "/tmp")
    drawn = importlib.import_module("matplotlib.figure").Figure
    found: dict[str, Any] = {}
    saved = drawn.savefig

    def savefig(self: Any, fname: Any, *args: Any, **named: Any) -> Any:
        if isinstance(fname, str | os.PathLike) and Path(fname).name == asked["image"]:
            found["figure"] = told_of(self)
        return saved(self, fname, *args, **named)

    drawn.savefig = savefig
    try:
        code = Path(asked["program"]).read_text("utf-8")
        exec(
            compile(code, asked["program"], "exec"),
            {"__name__": "__main__", "__file__": asked["program"]},
        )
    except BaseException as e:
        if not isinstance(e, SystemExit):
            found["raised"] = f"{type(e).__name__}: {e}"[:300]
    part = Path(asked["result"] + ".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(asked["result"])
    os._exit(0)


if __name__ == "__main__":
    main()
