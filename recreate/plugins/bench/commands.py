"""bench, compare, judge: agents measured on a split; runs, or two files of scores, side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from recreate.api.errors import BadInput, CheckFailed, OutOfBudget
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.registry import absent
from recreate.api.shapes import JsonMap
from recreate.cli.cells import list_cells, tell_cell, tell_difference, warn_of_many
from recreate.cli.options import BUILD, RUN, TAPES, Json, one_of, with_settings
from recreate.cli.runner import folder_of, stopped_by_budget
from recreate.cli.terminal import answer, say
from recreate.cli.variants import with_variants
from recreate.plugins.bench.opening import open_measuring
from recreate.runs.settings import Settings

if TYPE_CHECKING:
    from recreate.agents.scaffold import Scaffold
    from recreate.plugins.bench.suite import Suite
    from recreate.runs.session import Session

TASKS = {
    "select.tasks": (
        "At most so many tasks, 0 for all; or which: ids, patterns (*swe*), 0:20 of each split, or"
        " @FILE; repeatable."
    )
}
MEASURED = {
    "repeats": "Attempts per task.",
    "out": "The run folder; default: runs/bench-DOMAIN-DATE.",
}
FLAGS = tuple(
    dict.fromkeys(
        f
        for f in (*RUN, *BUILD, *TAPES)
        if f not in ("scaffold", "name", "fresh", "review", "from_experience")
    )
)
SEVERAL = {
    "model": (
        "The agent's model; repeatable: litellm:PROVIDER/NAME, openai:URL#MODEL, local:NAME,"
        " scripted:FILE."
    ),
    "domain": (
        "Where the tasks come from; repeatable: a name, a folder of benchmarks/, or module:Class."
    ),
}

MAKES = (
    "models.optimizer",
    "models.optimizer_price",
    "optimizer",
    "without",
    "study.steps",
    "study.tokens",
    "study.usd",
    "study.rehearsals",
    "study.tools",
    "rounds",
    "train",
    "validation",
    "batch",
    "gate.alpha",
    "gate.false_keep",
)
"""Flags of making an agent: they say nothing where agents are only measured."""

Baseline = Annotated[
    str,
    typer.Option(
        "--baseline",
        help=(
            "The scaffold or model that the others are compared with; default: the first of"
            " several."
        ),
    ),
]


@with_settings(*FLAGS, words={**TASKS, **SEVERAL, **MEASURED}, several=tuple(SEVERAL))
@with_variants("bench")
def bench(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    several: Mapping[str, tuple[str, ...]],
    suite: Annotated[
        Path | None,
        typer.Argument(
            metavar="SUITE.toml",
            help="A file of what to measure: scaffold = [...], model = [...], domain = [...].",
        ),
    ] = None,
    scaffold: Annotated[
        list[str] | None,
        typer.Option("--scaffold", help="A scaffold's folder or name; repeatable without arms."),
    ] = None,
    split: Annotated[
        str, typer.Option("--split", help="train, validation (default) or test.")
    ] = "",
    baseline: Baseline = "",
    cell_budget: Annotated[
        list[str] | None,
        typer.Option("--cell-budget", help="A cap of each cell, besides --budget; repeatable."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Attempt anew what a run in runs/ holds already.")
    ] = False,
    formats: Annotated[
        str,
        typer.Option(
            "--format", help="Files in the run folder: jsonl,csv,predictions. [default: jsonl,csv]"
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Measure scaffolds with models on domains. `--split test` opens the test tasks, which is
    written down and counted.

    What any run in runs/ measured under the same key is not paid again.

    Example: recreate bench --scaffold seed --scaffold swe --domain swe --split test
    """
    from recreate.plugins.bench.suite import Format, make_suite, read_suite, read_table

    settings, count = count_tasks(settings)
    typed, suite = suite_of(suite, typed)
    if count is not None:
        typed = {address: value for address, value in typed.items() if address != "select.tasks"}
    _refuse_in_measuring(typed)
    axes = {**several, "scaffold": tuple(scaffold or ())}
    chosen = {axis: tuple(names) for axis, names in axes.items() if names}
    own = {
        "split": split,
        "tasks": count,
        "baseline": baseline,
        "cell_budget": tuple(cell_budget or ()),
    }
    kinds = get_args(Format)
    own["format"] = tuple(
        one_of("format", name, kinds) for name in formats.replace(",", " ").split()
    )
    if suite is not None:
        if read_table(suite).arms:
            raise absent("variant", "bench.arms", f"{here(suite)} has arms, which are made first")
        found = read_suite(suite, where, typed, chosen, **own)
    else:
        if not chosen.get("scaffold") and settings.agent_table is not None:
            chosen["scaffold"] = ("",)
        settings = settings.model_copy(update={"scaffold": ""})
        found = make_suite(
            settings, chosen, **{k: v for k, v in own.items() if v not in ("", (), None)}
        )
    _measure(found, where, fresh, as_json)


def suite_of(suite: Path | None, typed: JsonMap) -> tuple[JsonMap, Path | None]:
    """Return what was typed, and the suite's file; a folder is a table that was begun there."""
    if suite is not None:
        from recreate.plugins.bench.suite import FILE

        if (suite / FILE).is_file():
            return {"out": str(suite), **typed}, suite / FILE
    return typed, suite


def _refuse_in_measuring(typed: JsonMap) -> None:
    """What is of making agents alone."""
    if idle := [address for address in typed if address in MAKES]:
        raise BadInput(
            f"--{idle[0]} is for making agents, and here they are only measured",
            fix="leave it out, or --arms scaffold --budget 200attempts",
            code="usage",
        )


def _measure(found: Suite, where: Path, fresh: bool, as_json: bool) -> None:
    """Measure a batch in its run folder, say what came of it, and end as it ended."""
    from recreate.builder.sdk import starting
    from recreate.plugins.bench import batch
    from recreate.plugins.bench.suite import FILE
    from recreate.runs.budget import near_record
    from recreate.storage import files

    settings = found.settings
    for name in filter(None, found.scaffolds):
        starting(settings, where, name)
    if len(found.models) * len(found.domains) > 1 and (settings.record or settings.replay):
        fix = "record each by itself: one --model and one --domain"
        raise BadInput("a recording is of one model and one domain", fix=fix, code="usage")
    folder = folder_of(
        settings, where, f"bench-{'-'.join(name.rpartition(':')[2] for name in found.domains)}"[:80]
    )
    if settings.select.difficulty:  # goes by the pass rates of the first
        settings = settings.model_copy(update={"scaffold": found.scaffolds[0]})
    with open_measuring(settings, where, folder) as session:
        files.write(folder / FILE, found.dump())

        def agent(name: str, own: Session) -> Scaffold:
            return starting(own.settings, where, name, own.domain.name, own.model_name)

        made = batch.measure_all(session, found, agent, fresh=fresh)
    files_made = batch.write(made, found.format)
    lines = list_cells(made.cells, made.differences)
    written = (
        f"{here(folder)}:"
        f" {', '.join(dict.fromkeys(file.relative_to(folder).parts[0] for file in files_made))}"
    )
    if (near := session.ledger.near)[0]:
        lines.append(f"{near[0]} calls had the reply to a near question, {near[1]} tokens saved")
    answer(
        as_json,
        made.record() | ({"near": near_record(near)} if near[0] else {}),
        *lines,
        f"scores: {written if files_made else here(folder)}; the test split was opened"
        f" {made.openings} times here",
        *dict.fromkeys(f"again: {cell.command}" for cell in made.cells if cell.command),
    )
    for text in made.stopped:
        say(f"not whole: {text}")
    if isinstance(made.error, OutOfBudget):
        from recreate.runs.budget import CELL_BUDGET

        own = made.error.code == CELL_BUDGET
        stopped_by_budget(f"recreate bench {here(folder)}", "--cell-budget" if own else "--budget")
    if made.error is not None:
        say(f"fix: {made.error.fix or 'mend that'}, then: recreate bench {here(folder)}")
        raise typer.Exit(made.error.exit_code)


def count_tasks(settings: Settings) -> tuple[Settings, int | None]:
    """(the settings, how many tasks at most) where --tasks says a number and not which; None where
    it does not. Raises BadInput for one below 0."""
    match settings.select.tasks:
        case (text,) if re.fullmatch(r"-\d+", text):
            raise BadInput(
                f"--tasks {text} is no number of tasks",
                fix="--tasks 20, or 0 for all",
                code="usage",
            )
        case (text,) if text.isdecimal():
            rest = settings.select.model_copy(update={"tasks": ()})
            return settings.model_copy(update={"select": rest}), int(text)
    return settings, None


def judge(
    before: Annotated[Path, typer.Argument(metavar="A.jsonl", help="Scores before the change.")],
    after: Annotated[
        Path, typer.Argument(metavar="B.jsonl", help="Scores after it, on the same tasks.")
    ],
    alpha: Annotated[float, typer.Option("--alpha", help="1 - the interval's level.")] = 0.10,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", help="The random seed of the sign flips, where they are not counted."
        ),
    ] = 0,
    fail_unless: Annotated[
        str,
        typer.Option(
            "--fail-unless", help="better, undecided or not-better: exit 4 on any other verdict."
        ),
    ] = "",
    as_json: Json = False,
) -> int:
    """Say whether B is better than A. Lines are {"task": "t1", "repeat": 0, "score": 0.5}; null: no
    score.

    Example: recreate judge before.jsonl after.jsonl --fail-unless better
    """
    from recreate.api.types import Decision
    from recreate.plugins.bench.judging import judge_files
    from recreate.viewer.facts import verdict_text

    if fail_unless:
        one_of("fail-unless", fail_unless, get_args(Decision))
    verdict = judge_files(before, after, alpha=alpha, seed=seed)
    answer(
        as_json,
        verdict.model_dump(mode="json"),
        verdict_text(verdict) + f"; {verdict.dropped} pairs dropped" * bool(verdict.dropped),
    )
    return CheckFailed.exit_code if fail_unless and verdict.verdict != fail_unless else 0


def compare(
    before: Annotated[
        str, typer.Argument(metavar="RUN", help="A run's folder or name, `last` for the newest.")
    ],
    after: Annotated[str, typer.Argument(metavar="RUN", help="The run that is compared with it.")],
    as_json: Json = False,
) -> None:
    """Put what two runs measured side by side, and judge it where the tasks are the same. Nothing
    is spent.

    Of a build that is its result, on validation; of a bench every agent, on each split.

    Example: recreate compare runs/swe-20261120-183000 last
    """
    from recreate.plugins.bench.judging import judge_runs
    from recreate.runs.reader import Run, find_run
    from recreate.runs.results import read_results

    where = workspace()
    runs = [Run(find_run(name, where)) for name in (before, after)]
    sides = [read_results(run, where) for run in runs]
    cells = [cell for side in sides for cell in side]
    first = runs[0].settings
    kinds = {task: kind for run in runs for task, kind in run.kinds().items()}
    verdicts = judge_runs(sides[0], sides[1], first, kinds)
    openings = max((cell.test_openings for cell in cells), default=0)
    record = {
        "runs": [str(run.folder) for run in runs],
        "cells": [cell.row() for cell in cells],
        "differences": verdicts,
        "test_openings": openings,
    }
    lines = [
        tell_difference(_name_pair(v), v)
        + f"; both are one agent ({v['after_digest']}): a difference is chance" * _is_one_agent(v)
        for v in verdicts
        if v["diff"] is not None and v["p"] is not None
    ]
    lines += warn_of_many(len(lines))
    lines = lines or [
        "no task was scored in both: their means are of different tasks, and say nothing of each"
        " other"
    ]
    if runs[0].folder.samefile(runs[1].folder):
        one = f"both are one run, {here(runs[0].folder)}"
        lines.insert(0, f"{one}: an agent is beside its very own attempts there")
    again = dict.fromkeys(f"again: {cell.command}" for cell in cells if cell.command)
    answer(as_json, record, *map(tell_cell, cells), *lines, *again)


def _name_pair(verdict: JsonMap) -> str:
    sides = [f"{verdict[f'{s}_agent']} with {verdict[f'{s}_model']}" for s in ("before", "after")]
    return f"{' -> '.join(sides)} on {verdict['split']} of {verdict['domain']}"


def _is_one_agent(verdict: JsonMap) -> bool:
    return all(
        verdict[f"before_{what}"] == verdict[f"after_{what}"] for what in ("digest", "model")
    )
