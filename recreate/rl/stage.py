"""One run of build or tune that made a part of an arm, and what it says when it is read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.paths import short
from recreate.runs.budget import Budget
from recreate.runs.reader import Run
from recreate.viewer import markdown

NOTHING: Mapping[str, float] = {"attempts": 0, "tokens": 0, "usd": 0.0, "minutes": 0.0}


@dataclass(frozen=True)
class Stage:
    """One run that made a part of an arm. run: None when nothing was left of the budget to begin it with.

    status: done | budget | stopped (tune: a watched number crossed its bound) | unfinished. told: what came of it.
    """

    kind: Literal["build", "tune"]
    run: Path | None
    status: str
    told: str
    spent: Mapping[str, float]
    scaffold: str = ""
    """The digest it ended with (build), or that was tuned."""
    checkpoint: Path | None = None

    def record(self) -> dict[str, Any]:
        """As `--json` prints it."""
        found: dict[str, Any] = {"run": str(self.run) if self.run else None, "status": self.status, "told": self.told}
        found |= {"scaffold": self.scaffold, **({"checkpoint": str(self.checkpoint)} if self.checkpoint else {})}
        return {**found, "spent": dict(self.spent)}


def ended(folder: Path, budget: Budget) -> bool:
    """Whether a run has come to an end that this budget does not move."""
    if not (folder / "settings.toml").is_file():
        return False
    run = Run(folder)
    end = run.end()
    return end is not None and (end["status"] != "budget" or run.settings.budget == budget.texts())


def built(folder: Path) -> tuple[Scaffold, Stage]:
    run = Run(folder)
    made = markdown.ended(run)
    kept = sum(r.kept for r in made.revisions)
    told = f"{kept} of {len(made.revisions)} candidates kept"
    told += "" if kept else ": it is the seed"
    scaffold = made.scaffold.model_copy(update={"name": made.seed.name})
    return scaffold, Stage("build", folder, made.status, told, _spent(run), scaffold.digest)


def tuned(folder: Path, steps: int = 0) -> Stage:
    run = Run(folder)
    begun, end = next(run.records("tune"), None), run.end()
    if begun is None:
        raise BadInput(
            f"{short(folder)} is no run of build or tune", fix="recreate show RUN tells what a run is", code="no-run"
        )
    found = sorted(p for p in (folder / "checkpoints").glob("step-*") if (p / "state.json").is_file())
    if not found:
        raise BadInput(
            f"{short(folder)} has no checkpoint yet", fix=f"go on with it: --out {short(folder)}", code="no-checkpoint"
        )
    step = int(found[-1].name.removeprefix("step-"))
    return Stage(
        kind="tune",
        run=folder,
        status=str(end["status"]) if end else "unfinished",
        told=f"{begun['name']}, {step} {f'of {steps} ' if steps else ''}steps" + ("" if step else ": it is the base"),
        spent=_spent(run),
        scaffold=begun["scaffold"],
        checkpoint=found[-1] if step else None,
    )


def _spent(run: Run) -> dict[str, float]:
    spend = run.spend()
    tokens = spend.total.tokens_in + spend.total.tokens_out
    return {
        "attempts": spend.attempts,
        "tokens": tokens,
        "usd": round(spend.total.usd, 6),
        "minutes": round(spend.minutes, 4),
    }
