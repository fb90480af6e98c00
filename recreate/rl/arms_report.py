"""report.md of a table of arms: for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api.paths import short
from recreate.rl.suite import Suite


def tell(suite: Suite, rows: Sequence[Mapping[str, Any]]) -> str:
    """report.md: the table, what came of each arm, and what the numbers are."""
    first = rows[0]
    settings = suite.settings
    lines = [
        f"# Arms on {first['domain']}",
        "",
        f"{first['n']} {suite.split} tasks x {suite.settings.repeats}, model {first['model']}, seed agent "
        f"{first['scaffold']} ({first['digest']}). Budget of making each arm: {suite.budget}. Measuring is not in it.",
        "",
        "| arm | score | difference to the seed | making it took | measuring it took |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        made = row["made"]
        took = _amount(made["spent"]) if any(made["spent"].values()) else "nothing"
        took += "; stopped by the budget" if made["stopped"] else ""
        took += f"; **over the budget: {', '.join(made['over'])}**" if made["over"] else ""
        score = (
            f"{row['mean']:.3f} [{row['lo']:.3f}, {row['hi']:.3f}]"
            if row["mean"] is not None
            else "every attempt was set aside"
        )
        score += f", {row['set_aside']} set aside" if row["set_aside"] and row["mean"] is not None else ""
        cells = [row["arm"], score, _difference(row["diff"]), took, _amount(row["measured"])]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for row in rows:
        for kind in ("build", "tune"):
            if stage := row["made"].get(kind):
                at = f" (`{short(Path(stage['run']))}`)" if stage["run"] else ""
                earlier = ", made before" if row["made"]["before"] else ""
                lines.append(f"- {row['arm']}, {kind}{earlier}: {stage['status']}, {stage['told']}{at}.")
    for row in rows:
        if beyond := row.get("beyond"):
            lines.append(
                f"- {row['arm']} beside {beyond['arm']}, the better of the arms that are only built or only tuned: "
                f"{_difference(beyond)}. Which one is better was seen on the same attempts, which favours that one."
            )
    for row in rows:
        if row["diff"] and row["diff"]["reason"]:
            lines.append(f"- {row['arm']}: {row['diff']['reason']}.")
    level = f"{1 - settings.gate.alpha:.0%}".replace("%", " %")
    lines += [
        "",
        f"Scores have 90 % intervals over tasks; differences are paired over tasks and repeats, with {level} "
        "intervals of the gate. No correction is made for the number of arms.",
    ]
    if suite.split == "validation":
        lines.append(
            "Validation tasks also decided what the builds kept, so the built arms are flattered: `--split test`."
        )
    if suite.split == "train":
        lines.append("These are the tasks that all arms were made on.")
    lines.append(f"Openings of this domain's test split in this workspace: {rows[-1]['test_openings']}.")
    return "\n".join(lines) + "\n"


def _amount(spent: Mapping[str, float]) -> str:
    minutes = f", {spent['minutes']:.1f} min" if "minutes" in spent else ""
    return f"{spent['attempts']:.0f} attempts, {spent['tokens']:,.0f} tokens, ${spent['usd']:.3f}{minutes}"


def _difference(diff: Mapping[str, Any] | None) -> str:
    if diff is None:
        return ""
    if diff["diff"] is None:
        return f"{diff['verdict']}: {diff['reason']}"
    return f"{diff['diff']:+.3f} [{diff['lo']:+.3f}, {diff['hi']:+.3f}] {diff['verdict']}"
