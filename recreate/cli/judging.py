"""judge: the gate by itself, on two files of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recreate.cli.options import Json
from recreate.cli.terminal import emit, show


def add(app: typer.Typer) -> None:
    """Put the command on the app."""
    app.command("judge")(judge)


def judge(
    before: Annotated[Path, typer.Argument(metavar="A.jsonl", help="Scores before the change.")],
    after: Annotated[Path, typer.Argument(metavar="B.jsonl", help="Scores after it, on the same tasks.")],
    alpha: Annotated[float, typer.Option("--alpha", help="1 - the interval's level.")] = 0.10,
    seed: Annotated[int, typer.Option("--seed", help="Of the random sign flips, where they are not counted.")] = 0,
    as_json: Json = False,
) -> None:
    """Say whether B is better than A. Lines are {"task": "t1", "repeat": 0, "score": 0.5}; null: set aside.

    Example: recreate judge before.jsonl after.jsonl
    """
    from recreate.runs.gate import judge_files

    verdict = judge_files(before, after, alpha=alpha, seed=seed)
    if as_json:
        emit(verdict.model_dump(mode="json"))
        return
    show(
        f"{verdict.verdict}: {verdict.before:.3f} -> {verdict.after:.3f}, difference {verdict.diff:+.3f} "
        f"[{verdict.lo:+.3f}, {verdict.hi:+.3f}], p = {verdict.p:.3f}, {verdict.tasks} tasks x {verdict.repeats}"
        + (f"; {verdict.reason}" if verdict.reason else "")
        + (f"; {verdict.dropped} pairs dropped" if verdict.dropped else "")
    )
