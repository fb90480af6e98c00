"""bench: agents measured on a split, and the table of what was made of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short as here
from recreate.api.types import Split
from recreate.cli.options import BUILD, RUN, Json, with_settings
from recreate.cli.runner import opened
from recreate.cli.terminal import emit, say, show
from recreate.runs.settings import Settings

FLAGS = tuple(dict.fromkeys(f for f in (*RUN, *BUILD) if f not in ("scaffold", "review", "from_experience")))

MAKES = (
    "models.optimizer", "models.optimizer_price", "optimizer", "without", "best_of", "study.steps", "study.tokens",
    "study.usd", "study.rehearsals", "study.tools", "rounds", "train", "validation", "batch", "gate.alpha",
)  # fmt: skip
"""Flags of making an agent: they say nothing where agents are only measured."""


def add(app: typer.Typer) -> None:
    """Put the command on the app."""
    app.command("bench")(bench)


@with_settings(*FLAGS)
def bench(
    settings: Settings,
    where: Path,
    given: Mapping[str, Any],
    suite: Annotated[
        Path | None, typer.Argument(metavar="SUITE.toml", help="Arms to make and compare: docs/arms.md.")
    ] = None,
    scaffold: Annotated[
        list[str] | None, typer.Option("--scaffold", help="A scaffold's folder or name; repeatable without arms.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, validation (default) or test.")] = "",
    tasks: Annotated[int | None, typer.Option("--tasks", min=0, help="At most so many tasks; 0: all.")] = None,
    arms: Annotated[
        str, typer.Option("--arms", help="seed,scaffold,weights,both: make these under --budget, and compare.")
    ] = "",
    recipe: Annotated[str, typer.Option("--recipe", help="With --arms: how weights are tuned.")] = "",
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="With --arms: training steps at most. [default: 50]")
    ] = None,
    build_share: Annotated[
        float | None,
        typer.Option(
            "--build-share", help="With --arms: the part of the budget that `both` builds with. [default: 0.5]"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure scaffolds on a split. `--split test` opens the test tasks, which is written down and counted.

    With --arms, or a suite: first make what is compared, each under the budget, and measure it in one table.

    Example: recreate bench --scaffold seed --scaffold swe --domain swe --split test

    Example: recreate bench --arms seed,scaffold,weights,both --recipe grpo --domain swe --model ./SmolLM2-135M
    --budget 200attempts
    """
    how = {"recipe": recipe or None, "steps": steps, "build_share": build_share}
    how = {key: value for key, value in how.items() if value is not None}
    if how and (suite is not None or not arms):
        flag = "--" + next(iter(how)).replace("_", "-")
        fix = "write it into the suite's arms" if suite is not None else "--arms seed,weights"
        raise BadInput(f"{flag} goes with --arms, and without a suite", fix=fix, code="usage")
    if suite is not None or arms:
        if scaffold and len(scaffold) > 1:
            raise BadInput("all arms begin with one scaffold", fix="name one --scaffold", code="usage")
        flags = {**given, **({"scaffold": scaffold[0]} if scaffold else {})}
        _arms(where, flags, suite, arms, how, split, tasks, as_json)
        return
    if not scaffold:
        raise BadInput("nothing to measure is named", fix="--scaffold NAME, --arms or a SUITE.toml", code="usage")
    if idle := [address for address in given if address in MAKES]:
        raise BadInput(
            f"--{idle[0]} is for making agents, and here they are only measured",
            fix="leave it out, or --arms scaffold --budget 200attempts",
            code="usage",
        )
    from recreate.builder.measure import measure
    from recreate.builder.sdk import find_scaffold
    from recreate.runs.session import run_folder

    split = split or "validation"
    if split not in ("train", "validation", "test"):
        raise BadInput(f"there is no split {split!r}", fix="--split train, validation or test", code="bad-split")
    named = run_folder(
        where, settings if settings.out else settings.model_copy(update={"domain": f"bench-{settings.domain}"})
    )
    agents = [find_scaffold(name, where) for name in scaffold]
    go_on = f"the same command with --out {here(named)}"
    with opened(settings, where, named, resume=(named / "settings.toml").exists(), go_on=go_on) as session:
        cells = []
        wanted: Split = split  # type: ignore[assignment]
        for agent in agents:
            cells.append(measure(session, agent, wanted, tasks or 0))
    if as_json:
        emit({"run": str(named), "cells": cells, "test_openings": cells[-1]["test_openings"]})
        return
    for cell in cells:
        show(
            f"{cell['scaffold']} ({cell['digest']}) with {cell['model']} on {cell['n']} {split} tasks x "
            f"{cell['repeats']}: {cell['mean']:.3f} [{cell['lo']:.3f}, {cell['hi']:.3f}], ${cell['usd']:.3f}"
            + (f", {cell['set_aside']} set aside" if cell["set_aside"] else "")
            if cell["mean"] is not None
            else f"{cell['scaffold']}: every attempt was set aside"
        )
    show(f"scores: {here(named)}; this domain's test split was opened {cells[-1]['test_openings']} times here")


def _arms(
    where: Path,
    flags: Mapping[str, Any],
    file: Path | None,
    names: str,
    how: Mapping[str, Any],
    split: str,
    tasks: int | None,
    as_json: bool,
) -> None:
    from recreate.rl import suite as suites
    from recreate.rl.comparison import compare
    from recreate.runs import settings as settings_
    from recreate.runs.session import run_folder

    chosen = [name for name in names.replace(",", " ").split() if name]
    if file is not None:
        if (file / "suite.toml").is_file():  # a table that was begun
            flags = {"out": str(file), **flags}
            file = file / "suite.toml"
        suite = suites.read(file, where, flags, split, tasks)
        suite = suites.chosen(suite, chosen) if chosen else suite
    else:
        told = suites.of_names(chosen, how)
        suite = suites.of(settings_.load(where, flags), split or "validation", tasks, told)
    settings = suite.settings
    folder = run_folder(
        where, settings if settings.out else settings.model_copy(update={"domain": f"bench-{settings.domain}"})
    )
    say(f"run folder {here(folder)}; the same with --out {here(folder)} goes on where it stopped")
    table = compare(suite, where, folder, opened)
    if as_json:
        openings = table.rows[-1]["test_openings"]
        emit({"run": str(table.run), "budget": suite.budget.caps, "cells": table.rows, "test_openings": openings})
        return
    show(table.text.partition("\n\n")[2])
    show(f"report: {here(table.run / 'report.md')}")
