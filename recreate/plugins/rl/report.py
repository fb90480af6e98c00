"""report.md of a run of tune: the curve, what was noticed, what replay found ambiguous."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from recreate.agents.scaffold import Scaffold
from recreate.api.paths import short
from recreate.api.shapes import JsonDict, JsonMap
from recreate.plugins.rl.recipe import Recipe
from recreate.viewer.charts import draw_series
from recreate.viewer.html import fill

HERE = Path(__file__).parent
COLUMNS = {
    "reward": "mean reward",
    "kl": "KL to the reference (k3, nats a token)",
    "entropy": "entropy (nats a token)",
    "clip": "share of tokens clipped",
    "length": "tokens an attempt",
}


def write_report(
    file: Path,
    how: Recipe,
    model: str,
    scaffold: Scaffold,
    domain: str,
    curve: Sequence[JsonMap],
    notes: Sequence[str],
    chances: Mapping[str, float],
    saved: Path | None,
) -> None:
    """Write it anew, and curve.svg beside it."""
    ambiguous = [(p, task) for task, p in chances.items() if p > 0]
    ambiguous.sort(key=lambda each: (-each[0], each[1]))
    ended = Counter[str]()
    for row in curve:
        ended.update(row.get("limits", {}))
    values: JsonDict = {
        "how": how,
        "model": model,
        "scaffold": scaffold,
        "domain": domain,
        "curve": curve,
        "series": [draw_series(COLUMNS[key], [float(r[key]) for r in curve]) for key in COLUMNS]
        if curve
        else [],
        "columns": list(COLUMNS),
        "ended": ended.most_common(),
        "notes": notes,
        "ambiguous": ambiguous[:20],
        "saved": short(saved) if saved else "",
    }
    if curve:
        file.with_name("curve.svg").write_text(fill("curve", HERE, **values), "utf-8")
    file.write_text(fill("tune", HERE, **values), "utf-8")
