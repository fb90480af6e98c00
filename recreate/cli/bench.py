"""bench, compare, judge: agents measured on a split, what was made of one of them; runs, or two files, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from recreate.api.errors import BadInput, CheckFailed
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.cli.options import BUILD, RUN, SELECT, TAPES, Json, one_of, split_of, with_settings
from recreate.cli.runner import folder_of, measured, opened
from recreate.cli.terminal import EXCLUDED, answer, say
from recreate.runs.settings import Settings

TASKS = {"select.tasks": "At most so many tasks, 0 for all; or which: ids, comma-separated, or @FILE; repeatable."}
FLAGS = tuple(
    dict.fromkeys(f for f in (*RUN, *BUILD, *TAPES) if f not in ("scaffold", "name", "review", "from_experience"))
)

MAKES = (
    "models.optimizer", "models.optimizer_price", "optimizer", "without", "best_of", "study.steps", "study.tokens",
    "study.usd", "study.rehearsals", "study.tools", "rounds", "train", "validation", "batch", "gate.alpha",
    "gate.false_keep",
)  # fmt: skip
"""Flags of making an agent: they say nothing where agents are only measured."""


@with_settings(*FLAGS, words=TASKS)
def bench(
    settings: Settings,
    where: Path,
    typed: Mapping[str, Any],
    suite: Annotated[
        Path | None, typer.Argument(metavar="SUITE.toml", help="Arms to make and compare: docs/arms.md.")
    ] = None,
    scaffold: Annotated[
        list[str] | None, typer.Option("--scaffold", help="A scaffold's folder or name; repeatable without arms.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, validation (default) or test.")] = "",
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
    --budget 4000attempts
    """
    settings, count = counted(settings)
    if count is not None:
        typed = {address: value for address, value in typed.items() if address != "select.tasks"}
    how = {"recipe": recipe or None, "steps": steps, "build_share": build_share}
    how = {key: value for key, value in how.items() if value is not None}
    if how and (suite is not None or not arms):
        flag = "--" + next(iter(how)).replace("_", "-")
        fix = "write it into the suite's arms" if suite is not None else "--arms seed,weights"
        raise BadInput(f"{flag} goes with --arms, and without a suite", fix=fix, code="usage")
    if suite is not None or arms:
        if tape := next((name for name in ("record", "replay") if name in typed), ""):
            fix = f"make the agents first, then recreate bench --scaffold NAME ... --{tape} DIR"
            raise BadInput(f"--{tape} is of one build or one measuring, not of several arms", fix=fix, code="usage")
        if scaffold and len(scaffold) > 1:
            raise BadInput("all arms begin with one scaffold", fix="name one --scaffold", code="usage")
        flags = {**typed, **({"scaffold": scaffold[0]} if scaffold else {})}
        _arms(where, flags, suite, arms, how, split, count, as_json)
        return
    if not scaffold and settings.agent.command:
        scaffold = [""]
    if not scaffold:
        raise BadInput(
            "nothing to measure is named", fix="--scaffold NAME, --agent COMMAND, --arms or a SUITE.toml", code="usage"
        )
    if idle := [address for address in typed if address in MAKES]:
        raise BadInput(
            f"--{idle[0]} is for making agents, and here they are only measured",
            fix="leave it out, or --arms scaffold --budget 200attempts",
            code="usage",
        )
    from recreate.builder.measure import measure, test_openings
    from recreate.builder.sdk import starting

    wanted = split_of(split or "validation")
    folder = folder_of(settings, where, f"bench-{settings.domain}")
    agents = [starting(settings, where, name) for name in scaffold]
    if settings.select.difficulty:  # goes by the pass rates of the first
        settings = settings.model_copy(update={"scaffold": scaffold[0]})
    with measured(settings, where, folder) as session:
        cells = [measure(session, agent, wanted, count or 0).row() for agent in agents]
        openings = test_openings(session)
    answer(
        as_json,
        {"run": str(folder), "cells": cells, "test_openings": openings},
        *map(_line, cells),
        f"scores: {here(folder)}; this domain's test split was opened {openings} times here",
    )


@with_settings(
    *RUN, "repeats", "validation", "rounds", "seed", "gate.false_keep", *SELECT,
    words={"rounds": "Candidates of the build, one a round.", "validation": "Validation tasks of the build."},
)  # fmt: skip
def calibrate(
    settings: Settings,
    where: Path,
    typed: Mapping[str, Any],
    scaffold: Annotated[str, typer.Option("--scaffold", help="The agent: a folder or a name.")] = "",
    as_json: Json = False,
) -> None:
    """Run an agent against itself: its noise, and the gains that a build of it could tell from noise.

    What it finds is kept in benchmarks/DOMAIN, and `plan` and `build` go by it. --repeats: 3 unless given.

    Example: recreate calibrate --scaffold seed --domain swe --validation 20
    """
    from recreate.builder.calibration import calibrate as calibrated
    from recreate.builder.sdk import starting

    if "repeats" not in typed:
        settings = settings.model_copy(update={"repeats": 3})
    folder = folder_of(settings, where, f"calibrate-{settings.domain}")
    agent = starting(settings, where, scaffold)
    with measured(settings, where, folder) as session:
        found, cell = calibrated(session, agent)
    noise, wrong = found.noise, found.false_keep
    table = [
        f"  {d.tasks:>4} tasks x {d.repeats}: " + (f"{d.gain:+.2f}" if d.gain < 1 else "none") for d in found.detectable
    ]
    answer(
        as_json,
        {"run": str(folder), "usd": cell.usd, **found.model_dump(mode="json")},
        f"{found.scaffold} with {found.model} on {found.tasks} tasks x {found.repeats}: {found.mean:.3f} "
        f"[{found.lo:.3f}, {found.hi:.3f}]; {noise.flips:.0%} of the tasks are solved at times",
        f"of candidates that change nothing, {wrong.candidates} a build, one is kept in {wrong.rate:.1%} "
        f"[{wrong.lo:.1%}, {wrong.hi:.1%}] of builds",
        "the smallest gain that is kept eight times in ten:",
        *table,
    )


def counted(settings: Settings) -> tuple[Settings, int | None]:
    """(the settings, how many tasks at most) where --tasks says a number and not which; None where it does not."""
    match settings.select.tasks:
        case (text,) if text.isdecimal():
            rest = settings.select.model_copy(update={"tasks": ()})
            return settings.model_copy(update={"select": rest}), int(text)
    return settings, None


def _line(cell: Mapping[str, Any]) -> str:
    if cell["mean"] is None:
        return f"{cell['scaffold']}: every attempt was {EXCLUDED}"
    excluded = f", {cell['set_aside']} {EXCLUDED}" if cell["set_aside"] else ""
    return (
        f"{cell['scaffold']} ({cell['digest']}) with {cell['model']} on {cell['n']} {cell['split']} tasks x "
        f"{cell['repeats']}: {cell['mean']:.3f} [{cell['lo']:.3f}, {cell['hi']:.3f}], ${cell['usd']:.3f}{excluded}"
        + (f"; opening {cell['test_openings']} of the test split" if cell["split"] == "test" else "")
    )


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

    chosen = [name for name in names.replace(",", " ").split() if name]
    if file is not None:
        if (file / "suite.toml").is_file():  # a table that was begun
            flags = {"out": str(file), **flags}
            file = file / "suite.toml"
        suite = suites.read(file, where, flags, split, tasks)
        suite = suites.chosen(suite, chosen) if chosen else suite
    else:
        arms = suites.of_names(chosen, how)
        suite = suites.of(settings_.load(where, flags), split or "validation", tasks, arms)
    folder = folder_of(suite.settings, where, f"bench-{suite.settings.domain}")
    say(f"run folder {here(folder)}; the same with --out {here(folder)} goes on where it stopped")
    table = compare(suite, where, folder, opened)
    record = {"run": str(table.run), "budget": suite.budget.caps, "cells": table.rows, "test_openings": table.openings}
    answer(as_json, record, table.text.partition("\n\n")[2], f"report: {here(table.run / 'report.md')}")


def judge(
    before: Annotated[Path, typer.Argument(metavar="A.jsonl", help="Scores before the change.")],
    after: Annotated[Path, typer.Argument(metavar="B.jsonl", help="Scores after it, on the same tasks.")],
    alpha: Annotated[float, typer.Option("--alpha", help="1 - the interval's level.")] = 0.10,
    seed: Annotated[
        int, typer.Option("--seed", help="The random seed of the sign flips, where they are not counted.")
    ] = 0,
    fail_unless: Annotated[
        str, typer.Option("--fail-unless", help="better, undecided or not-better: exit 4 on any other verdict.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Say whether B is better than A. Lines are {"task": "t1", "repeat": 0, "score": 0.5}; null: no score.

    Example: recreate judge before.jsonl after.jsonl --fail-unless better
    """
    from recreate.api.types import Decision
    from recreate.runs.gate import judge_files

    if fail_unless:
        one_of("fail-unless", fail_unless, get_args(Decision))
    verdict = judge_files(before, after, alpha=alpha, seed=seed)
    answer(
        as_json,
        verdict.model_dump(mode="json"),
        f"{verdict.verdict}: {verdict.before:.3f} -> {verdict.after:.3f}, difference {verdict.diff:+.3f} "
        f"[{verdict.lo:+.3f}, {verdict.hi:+.3f}], p = {verdict.p:.3f}, {verdict.tasks} tasks x {verdict.repeats}"
        + (f"; {verdict.reason}" if verdict.reason else "")
        + (f"; {verdict.dropped} pairs dropped" if verdict.dropped else ""),
    )
    return CheckFailed.exit_code if fail_unless and verdict.verdict != fail_unless else 0


def compare(
    before: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name, `last` for the newest.")],
    after: Annotated[str, typer.Argument(metavar="RUN", help="The run that is compared with it.")],
    as_json: Json = False,
) -> None:
    """Put what two runs measured side by side, and judge it where the tasks are the same. Nothing is spent.

    Of a build that is its result, on validation; of a bench every agent, on each split.

    Example: recreate compare runs/swe-20261120-183000 last
    """
    from recreate.builder.measure import compared, measured_in
    from recreate.runs.reader import Run, find_run

    where = workspace()
    sides = [measured_in(Run(find_run(name, where)), where) for name in (before, after)]
    cells = [cell for side in sides for cell in side]
    verdicts = compared(*sides)
    openings = max((cell.test_openings for cell in cells), default=0)
    record = {
        "runs": [str(find_run(name, where)) for name in (before, after)],
        "cells": [cell.row() for cell in cells],
        "differences": verdicts,
        "test_openings": openings,
    }
    lines = [
        f"{v['before_agent']} -> {v['after_agent']} on {v['split']}: {v['verdict']}, difference {v['diff']:+.3f} "
        f"[{v['lo']:+.3f}, {v['hi']:+.3f}], p = {v['p']:.3f}, {v['tasks']} tasks x {v['repeats']}"
        for v in verdicts
        if v["diff"] is not None and v["p"] is not None
    ]
    lines = lines or ["no task was scored in both: their means are of different tasks, and say nothing of each other"]
    answer(as_json, record, *(_line(cell.row()) for cell in cells), *lines)
