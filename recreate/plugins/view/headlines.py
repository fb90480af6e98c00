"""The scores by which the list of runs tells one from another."""

from __future__ import annotations

from typing import NamedTuple

from recreate.runs.gate import interval
from recreate.viewer.facts import RunFacts, read_figure


class Headline(NamedTuple):
    """A score of a run with its interval."""

    name: str
    mean: float | None
    lo: float | None
    hi: float | None


def score_run(facts: RunFacts) -> list[Headline]:
    """Return the scores that stand for the run, the most important first."""
    alpha = facts.settings.gate.alpha
    if facts.updates:
        reward = read_figure(facts.updates[-1].get("reward"))
        return [Headline(f"reward, step {len(facts.updates)}", reward, None, None)]
    if facts.kind == "build":
        result = facts.run.result
        seed = facts.run.began_from
        named = [("after", result), ("seed", seed)] if result != seed else [("seed", seed)]
        scored = [(name, facts.scores[id]) for name, id in named if facts.scores.get(id)]
        return [Headline(name, *interval(held, alpha=alpha)) for name, held in scored]
    arms = {(r["model"], r["digest"]): r["arm"] for r in facts.run.records("arm")}
    names = {r["scaffold"]: r["name"] for r in facts.run.records("agent")}
    lines = list[Headline]()
    for key, rows in list(facts.run.cells().items())[:6]:
        name = arms.get((key.model, key.agent)) or names.get(key.agent, key.agent[:8])
        held = {place: row["score"] for place, row in rows.items()}
        lines.append(Headline(f"{name}, {key.split}", *interval(held, alpha=alpha)))
    return lines
