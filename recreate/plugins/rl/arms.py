"""bench --arms and --optimizers, and suites of arms: agents are made first, then measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.shapes import JsonMap
from recreate.cli.runner import folder_of, open_with_screen
from recreate.cli.terminal import answer, say
from recreate.runs import settings as settings_
from recreate.runs.settings import Settings

Arms = Annotated[
    str,
    typer.Option(
        "--arms", help="seed,scaffold,weights,both: make these under --budget, and compare."
    ),
]


Optimizers = Annotated[
    str,
    typer.Option(
        "--optimizers",
        help="recreate,gepa,ace,...: make an agent with each under --budget, and compare.",
    ),
]


Steps = Annotated[
    int | None,
    typer.Option("--steps", min=1, help="With --arms: training steps at most. [default: 50]"),
]


BuildShare = Annotated[
    float | None,
    typer.Option(
        "--build-share",
        help="With --arms: the part of the budget that `both` builds with. [default: 0.5]",
    ),
]


def compare_arms(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    several: Mapping[str, tuple[str, ...]],
    suite: Path | None,
    scaffold: list[str] | None,
    split: str,
    as_json: bool,
    arms: Arms = "",
    optimizers: Optimizers = "",
    recipe: Annotated[
        str, typer.Option("--recipe", help="With --arms: how weights are tuned.")
    ] = "",
    steps: Steps = None,
    build_share: BuildShare = None,
) -> Any:
    """Make what is compared, each arm under the budget, and measure it in one table. Return
    NotImplemented where no arm is asked for."""
    from recreate.plugins.bench.commands import count_tasks, suite_of
    from recreate.plugins.bench.suite import read_table
    from recreate.plugins.rl import suite as suites
    from recreate.plugins.rl.comparison import compare

    count = count_tasks(settings)[1]
    typed, file = suite_of(suite, typed)
    how = {"recipe": recipe or None, "steps": steps, "build_share": build_share}
    how = {key: value for key, value in how.items() if value is not None}
    if optimizers and file is not None:
        fix = 'write arms into it: [arms.gepa] build = true, optimizer = "gepa"'
        raise BadInput("--optimizers goes without a suite", fix=fix, code="usage")
    if how and (file is not None or not arms):
        flag = "--" + next(iter(how)).replace("_", "-")
        fix = "write it into the suite's arms" if file is not None else "--arms seed,weights"
        raise BadInput(f"{flag} goes with --arms, and without a suite", fix=fix, code="usage")
    if not (arms or optimizers or (file is not None and read_table(file).arms)):
        return NotImplemented
    flags = {address: value for address, value in typed.items() if address != "select.tasks"}
    flags |= {"scaffold": scaffold[0]} if scaffold else {}
    _refuse_of_measuring(typed, {**several, "scaffold": tuple(scaffold or ())})
    chosen = [name for name in arms.replace(",", " ").split() if name]
    if file is not None:
        made = suites.read(file, where, flags, split, count)
        made = suites.chosen(made, chosen) if chosen else made
    else:
        wanted = [
            *suites.of_names(chosen, how),
            *suites.of_optimizers(optimizers.replace(",", " ").split()),
        ]
        made = suites.of(settings_.load(where, flags), split or "validation", count, wanted)
    folder = folder_of(made.settings, where, f"bench-{made.settings.domain}")
    say(f"run folder {here(folder)}; the same with --out {here(folder)} goes on where it stopped")
    table = compare(made, where, folder, open_with_screen)
    record = {
        "run": str(table.run),
        "budget": made.budget.caps,
        "cells": table.rows,
        "test_openings": table.openings,
    }
    answer(
        as_json, record, table.text.partition("\n\n")[2], f"report: {here(table.run / 'report.md')}"
    )
    return None


def _refuse_of_measuring(typed: JsonMap, chosen: Mapping[str, tuple[str, ...]]) -> None:
    """Raise BadInput for a flag that is of measuring alone."""
    if tape := next((name for name in ("record", "replay") if name in typed), ""):
        fix = f"make the agents first, then recreate bench --scaffold NAME ... --{tape} DIR"
        raise BadInput(
            f"--{tape} is of one build or one measuring, not of several arms", fix=fix, code="usage"
        )
    for axis, names in chosen.items():
        if len(names) > 1:
            raise BadInput(
                f"all arms begin with one {axis}", fix=f"name one --{axis}", code="usage"
            )
