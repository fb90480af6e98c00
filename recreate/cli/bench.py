"""bench, compare, judge: agents measured on a split; runs, or two files of scores, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from recreate.api.errors import BadInput, CheckFailed, OutOfBudget
from recreate.api.paths import short as here
from recreate.api.paths import workspace
from recreate.api.registry import absent
from recreate.api.types import Stratum
from recreate.cli.options import BUILD, RUN, TAPES, Json, one_of, with_settings
from recreate.cli.runner import folder_of, open_measuring, stopped_by_budget
from recreate.cli.terminal import EXCLUDED, answer, say
from recreate.cli.variants import with_variants
from recreate.runs.settings import Settings

if TYPE_CHECKING:
    from recreate.agents.scaffold import Scaffold
    from recreate.builder.batch import Batch
    from recreate.runs.results import BenchResult
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
        if f not in ("scaffold", "name", "review", "from_experience")
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
    typed: Mapping[str, Any],
    several: Mapping[str, tuple[str, ...]],
    suite: Annotated[
        Path | None,
        typer.Argument(
            metavar="SUITE.toml",
            help="What to measure (docs/bench.md).",
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
    from recreate.builder import batch

    settings, count = counted(settings)
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
    kinds = get_args(batch.Format)
    own["format"] = tuple(
        one_of("format", name, kinds) for name in formats.replace(",", " ").split()
    )
    if suite is not None:
        if batch.has_arms(suite):
            raise absent("variant", "bench.arms", f"{here(suite)} has arms, which are made first")
        found = batch.read(suite, where, typed, chosen, **own)
    else:
        if not chosen.get("scaffold") and settings.agent_table is not None:
            chosen["scaffold"] = ("",)
        settings = settings.model_copy(update={"scaffold": ""})
        found = batch.of(
            settings, chosen, **{k: v for k, v in own.items() if v not in ("", (), None)}
        )
    _measure(found, where, fresh, as_json)


def suite_of(suite: Path | None, typed: Mapping[str, Any]) -> tuple[Mapping[str, Any], Path | None]:
    """Return what was typed, and the suite's file; a folder is a table that was begun there."""
    if suite is not None:
        for name in ("suite.toml", "bench.toml"):
            if (suite / name).is_file():
                return {"out": str(suite), **typed}, suite / name
    return typed, suite


def _refuse_in_measuring(typed: Mapping[str, Any]) -> None:
    """What is of making agents alone."""
    if idle := [address for address in typed if address in MAKES]:
        raise BadInput(
            f"--{idle[0]} is for making agents, and here they are only measured",
            fix="leave it out, or --arms scaffold --budget 200attempts",
            code="usage",
        )


def _measure(found: Batch, where: Path, fresh: bool, as_json: bool) -> None:
    """Measure a batch in its run folder, say what came of it, and end as it ended."""
    from recreate.builder import batch
    from recreate.builder.sdk import starting
    from recreate.runs.budget import near_record
    from recreate.storage import files

    settings = found.settings
    for name in filter(None, found.scaffolds):
        starting(settings, where, name)
    if len(found.models) * len(found.domains) > 1 and (settings.record or settings.replay):
        fix = "record each by itself: one --model and one --domain"
        raise BadInput("a cassette is of one model and one domain", fix=fix, code="usage")
    folder = folder_of(
        settings, where, f"bench-{'-'.join(name.rpartition(':')[2] for name in found.domains)}"[:80]
    )
    if settings.select.difficulty:  # goes by the pass rates of the first
        settings = settings.model_copy(update={"scaffold": found.scaffolds[0]})
    with open_measuring(settings, where, folder) as session:
        files.write(folder / "bench.toml", found.dump())

        def agent(name: str, own: Session) -> Scaffold:
            return starting(own.settings, where, name, own.domain.name, own.model_name)

        made = batch.measure_all(session, found, agent, fresh=fresh)
    files_made = batch.write(made, found.format)
    alone = len(made.cells) == 1
    lines = (
        [line_of(cell.row()) for cell in made.cells]
        if alone
        else [*table(made.cells, made.differences), *dict.fromkeys(agents(made.cells))]
    )
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


def table(cells: Sequence[BenchResult], differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """The cells as lines of a table, those of a domain together; then the differences to the
    baseline."""
    most = max((int(k) for cell in cells for k in cell.pass_hat), default=1)
    hats = [f"pass^{k}" for k in sorted({1, most})]
    head = [
        "scaffold",
        "model",
        "domain",
        "split",
        "tasks",
        "score",
        *hats,
        "USD",
        "tokens",
        "s/call",
        "ended",
    ]
    rows, agents = [head], {(cell.scaffold, cell.digest) for cell in cells}

    def called(scaffold: str, digest: str) -> str:
        """Several agents may have one name: the seed, and what a build made of it."""
        return (
            f"{scaffold} {digest[:6]}"
            if [name for name, _ in agents].count(scaffold) > 1
            else scaffold
        )

    for cell in cells:
        score = "none" if cell.mean is None else f"{cell.mean:.3f} [{cell.lo:.3f}, {cell.hi:.3f}]"
        hats = [
            f"{cell.pass_hat[str(k)]:.3f}" if str(k) in cell.pass_hat else "-"
            for k in sorted({1, most})
        ]
        ended = ", ".join(f"{count} {name}" for name, count in cell.endings.items())
        latency = "-" if cell.latency is None else f"{cell.latency:.2f}"
        rows.append(
            [
                called(cell.scaffold, cell.digest),
                cell.model,
                cell.domain,
                cell.split,
                f"{cell.n} x {cell.repeats}",
                score,
                *hats,
                f"{cell.usd:.3f}",
                f"{cell.tokens:,}",
                latency,
                ended,
            ]
        )
    same = [c for c in (1, 2, 3) if len({row[c] for row in rows[1:]}) == 1]
    said = ", ".join(f"{rows[0][c]} {rows[1][c]}" for c in same)
    rows = [[text for c, text in enumerate(row) if c not in same] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for d in differences:
        of, to = (
            f"{called(side['scaffold'], side['digest'])} with {side['model']}"
            for side in (d, d["baseline"])
        )
        who = f"{of} on {d['domain']}, to {to}"
        if d["diff"] is None:
            lines.append(f"{who}: {d['verdict']}: {d['reason']}")
            continue
        p = f", p = {d['p']:.3f}" if d["p"] is not None else ""
        held = (
            f"{d['diff']:+.3f} [{d['lo']:+.3f}, {d['hi']:+.3f}]{p}, {d['won']} attempts won,"
            f" {d['lost']} lost"
        )
        lines.append(
            f"{who}: {d['verdict']}, {held}"
            + (f"; {d['reason']}" if d["reason"] else "")
            + _by_kind(d)
        )
    if len(differences) > 1:
        lines.append(
            f"these are {len(differences)} comparisons, and no correction is made for that"
        )
    return [*([said] if said else []), *lines]


def _by_kind(verdict: Mapping[str, Any]) -> str:
    """`; of these HumanEval +0.10 on 38, ...`, '' where all tasks are of one kind."""
    kinds = [str(Stratum.model_validate(each)) for each in verdict.get("strata", ())]
    return f"; of these {', '.join(kinds)}" if kinds else ""


def _of_one(verdict: Mapping[str, Any]) -> str:
    """What is said where both sides are one agent with one model, whatever its names; '' else."""
    same = all(
        verdict[f"before_{what}"] == verdict[f"after_{what}"] for what in ("digest", "model")
    )
    return (
        f"; both are one agent ({verdict['after_digest']}): a difference is chance" if same else ""
    )


def agents(cells: Sequence[BenchResult]) -> Iterator[str]:
    """What a table has no columns for: the agents' digests, the split, the day, and how often it
    was opened."""
    for cell in cells:
        yield (
            f"{cell.scaffold} ({cell.digest}) on {cell.split} tasks,"
            f" {cell.date}{opening_text(cell.row())}"
        )


def counted(settings: Settings) -> tuple[Settings, int | None]:
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


def line_of(cell: Mapping[str, Any], *, several: bool = False) -> str:
    """A cell in a line. several: of several domains, so that its own is said."""
    if cell["mean"] is None:
        return f"{cell['scaffold']}: every attempt was {EXCLUDED}"
    excluded = f", {cell['set_aside']} {EXCLUDED}" if cell["set_aside"] else ""
    of = f" of {cell['domain']}" if several else ""
    return (
        f"{cell['scaffold']} ({cell['digest']}) with {cell['model']} on {cell['n']} {cell['split']}"
        f" tasks{of} x {cell['repeats']}: {cell['mean']:.3f} [{cell['lo']:.3f}, {cell['hi']:.3f}],"
        f" ${cell['usd']:.3f}{excluded}, {cell['date']}{opening_text(cell)}"
    )


def opening_text(cell: Mapping[str, Any]) -> str:
    """How often the test split was opened, and whether this agent was asked the same before; '' on
    another split."""
    if cell["split"] != "test":
        return ""
    agents = "1 agent was" if cell["test_agents"] == 1 else f"{cell['test_agents']} agents were"
    text = f"; opening {cell['test_openings']} of the test split, which {agents} measured on"
    earlier = ", ".join(map(str, cell["opened_before"]))
    return (
        text
        + f"; the same was asked of this agent before, by opening {earlier}: all of them count"
        * bool(earlier)
    )


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
    from recreate.runs.gate import judge_files

    if fail_unless:
        one_of("fail-unless", fail_unless, get_args(Decision))
    verdict = judge_files(before, after, alpha=alpha, seed=seed)
    answer(
        as_json,
        verdict.model_dump(mode="json"),
        f"{verdict.verdict}: {verdict.before:.3f} -> {verdict.after:.3f}, difference"
        f" {verdict.diff:+.3f} [{verdict.lo:+.3f}, {verdict.hi:+.3f}], p = {verdict.p:.3f},"
        f" {verdict.tasks} tasks x {verdict.repeats}"
        + (f"; {verdict.reason}" if verdict.reason else "")
        + (f"; {verdict.dropped} pairs dropped" if verdict.dropped else ""),
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
    from recreate.runs.reader import Run, find_run
    from recreate.runs.results import judge_runs, read_results

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
    models, domains = ({getattr(cell, what) for cell in cells} for what in ("model", "domain"))

    def who(verdict: Mapping[str, Any], side: str) -> str:
        return str(verdict[f"{side}_agent"]) + f" with {verdict[f'{side}_model']}" * (
            len(models) > 1
        )

    lines = [
        f"{who(v, 'before')} -> {who(v, 'after')} on {v['split']}"
        + f" of {v['domain']}" * (len(domains) > 1)
        + f": {v['verdict']}, difference {v['diff']:+.3f} "
        f"[{v['lo']:+.3f}, {v['hi']:+.3f}], p = {v['p']:.3f}, {v['tasks']} tasks x {v['repeats']}"
        + _by_kind(v)
        + _of_one(v)
        for v in verdicts
        if v["diff"] is not None and v["p"] is not None
    ]
    if len(lines) > 1:
        lines.append(f"these are {len(lines)} comparisons, and no correction is made for that")
    lines = lines or [
        "no task was scored in both: their means are of different tasks, and say nothing of each"
        " other"
    ]
    if runs[0].folder.samefile(runs[1].folder):
        lines.insert(
            0,
            f"both are one run, {here(runs[0].folder)}: an agent is beside its very own attempts"
            " there",
        )
    again = dict.fromkeys(f"again: {cell.command}" for cell in cells if cell.command)
    each = (line_of(cell.row(), several=len(domains) > 1) for cell in cells)
    answer(as_json, record, *each, *lines, *again)
