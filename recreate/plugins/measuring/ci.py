"""ci: a branch's agents measured against those of main, for a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from recreate.api.errors import BadInput, CheckFailed
from recreate.api.shapes import JsonMap
from recreate.cli.options import RUN, SELECT, Json, split_of, with_settings
from recreate.cli.runner import folder_of
from recreate.cli.terminal import answer, say
from recreate.plugins.bench.opening import open_measuring
from recreate.runs.settings import Settings

FLAGS = (*RUN, "repeats", "seed", "gate.alpha", "models.retries", *SELECT)
WORDS = {
    "select.tasks": (
        "At most so many tasks, 0 for all; or which: ids, comma-separated, or @FILE; repeatable."
    ),
    "repeats": "Attempts per task.",
    "out": "The run folder; default: runs/ci-DOMAIN-DATE.",
}


@with_settings(*FLAGS, words=WORDS)
def ci(
    settings: Settings,
    where: Path,
    typed: JsonMap,
    suite: Annotated[
        Path | None,
        typer.Argument(
            metavar="SUITE.toml", help="Settings, split and tasks, as bench reads them."
        ),
    ] = None,
    scaffold: Annotated[
        list[str] | None,
        typer.Option("--scaffold", help="A scaffold's folder in this working tree; repeatable."),
    ] = None,
    base: Annotated[
        str, typer.Option("--base", help="The branch or commit that it is measured against.")
    ] = "main",
    split: Annotated[
        str, typer.Option("--split", help="train, validation (default) or test.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Measure scaffolds of this working tree against those of main; a Markdown table. Exits 4 on a
    regression.

    A regression: the gate says not-better, and the interval of the difference is below 0. What did
    not change is not measured, and scores that runs/ holds are not paid again.

    Example: recreate ci suite.toml --base main --budget 2usd
    """
    from recreate.builder.measure import count_openings
    from recreate.plugins.measuring.baseline import commit_of, compared, markdown, pair_of, top_of

    settings, wanted, most = _settings(settings, where, typed, suite, split)
    named = (
        scaffold
        or [name for name in (settings.scaffold, settings.domain) if _is_there(name, where)][:1]
    )
    if not named:
        raise BadInput("no scaffold is named", fix="--scaffold scaffolds/NAME", code="usage")
    commit = commit_of(base, top_of(where))
    pairs = [pair_of(name, where, commit) for name in dict.fromkeys(named)]
    changed = [pair for pair in pairs if pair.has_changed]
    still = [pair for pair in pairs if not pair.has_changed]
    judged = []
    record = {"run": "", "base": {"ref": base, "commit": commit}, "test_openings": 0}
    if changed:
        folder = folder_of(settings, where, f"ci-{settings.domain}")
        with open_measuring(settings, where, folder) as session:
            judged = [
                compared(session, pair, split_of(wanted, needed=True), most) for pair in changed
            ]
            record |= {"run": str(folder), "test_openings": count_openings(session)}
    cells = [
        {"side": side, "path": row.pair.path, **cell.row()}
        for row in judged
        for side, cell in _sides(row)
    ]
    regressions = [row.row() for row in judged if row.regression]
    record |= {
        "cells": cells,
        "differences": [row.row() for row in judged],
        "unchanged": [pair.path for pair in still if pair.base is not None],
        "new": [pair.path for pair in still if pair.base is None],
        "regressions": regressions,
    }
    answer(as_json, record, markdown(base, commit, judged, still))
    if not changed:
        say(f"nothing to measure: no scaffold of {base} changed, so nothing was spent")
    return CheckFailed.exit_code if regressions else 0


def _settings(
    settings: Settings, where: Path, typed: JsonMap, suite: Path | None, split: str
) -> tuple[Settings, str, int]:
    """(settings, split, tasks at most): flags win over the suite."""
    from recreate.plugins.bench.commands import count_tasks
    from recreate.plugins.bench.suite import read_table

    settings, count = count_tasks(settings)
    wanted = split or "validation"
    most = count or 0
    if suite is not None:
        flags = typed if count is None else {a: v for a, v in typed.items() if a != "select.tasks"}
        table = read_table(suite)
        settings = table.load(where, flags)
        wanted = split or table.own.get("split") or "validation"
        most = (table.own.get("tasks") or 0) if count is None else count
    split_of(wanted)
    return settings, wanted, most


def _is_there(name: str, where: Path) -> bool:
    return bool(name) and any(
        (place / "agent.toml").is_file() for place in (Path(name), where / "scaffolds" / name)
    )


def _sides(row: Any) -> list[tuple[str, Any]]:
    return [("base", row.base), ("head", row.head)]
