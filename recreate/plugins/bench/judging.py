"""The gate's verdict on two files of scores, and on what two runs measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.api.types import Verdict
from recreate.runs.gate import MIN_TASKS, judge
from recreate.runs.results import BenchResult
from recreate.runs.settings import Settings


def judge_runs(
    before: Sequence[BenchResult],
    after: Sequence[BenchResult],
    settings: Settings,
    kinds: Mapping[str, str],
) -> list[JsonDict]:
    """Return the gate's verdict on each agent of `after` against each of `before`, over the tasks
    of one split that both were measured on."""
    verdicts = []
    for a, b in product(before, after):
        both = sorted(a.by_place.keys() & b.by_place.keys())
        old, new = ({key: side.by_place[key] for key in both} for side in (a, b))
        verdict = judge(old, new, alpha=settings.gate.alpha, seed=settings.seed, kinds=kinds)
        place = {"split": a.split, "domain": a.domain}
        if place != {"split": b.split, "domain": b.domain} or not verdict.tasks:
            continue
        for side, cell in (("before", a), ("after", b)):
            place |= {f"{side}_agent": cell.scaffold, f"{side}_digest": cell.digest}
            place |= {f"{side}_model": cell.model}
        verdicts.append({**place, **verdict.model_dump(mode="json", exclude={"schema_"})})
    return verdicts


def judge_files(
    before: Path | str, after: Path | str, *, alpha: float = 0.10, seed: int = 0
) -> Verdict:
    """`recreate judge A.jsonl B.jsonl`. Raises BadInput for a bad file, and for fewer than 5 paired
    tasks."""
    verdict = judge(read_scores(before), read_scores(after), alpha=alpha, seed=seed)
    if verdict.tasks < MIN_TASKS:
        raise BadInput(
            f"{before} and {after} share {verdict.tasks} scored tasks, at least {MIN_TASKS} are"
            " needed",
            fix="score both sides on the same tasks and repeats, more of them",
            code="too-few-tasks",
        )
    return verdict


def read_scores(path: Path | str) -> dict[tuple[str, int], float | None]:
    """A file of lines {"task": ..., "repeat": 0, "score": 0.5}; score null: excluded.

    Raises BadInput naming file and line.
    """
    form = 'a line is {"task": "t1", "repeat": 0, "score": 0.5}'
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeError) as e:
        said = getattr(e, "strerror", None) or "is not UTF-8 text"
        raise BadInput(
            f"{path}: {said}", fix="name a file of JSON lines", code="bad-scores"
        ) from None
    scores: dict[tuple[str, int], float | None] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            key, score = _row(json.loads(line))
            if key in scores:
                raise ValueError(f"task {key[0]!r}, repeat {key[1]} was there before")
        except (ValueError, RecursionError) as e:
            raise BadInput(f"{path}:{number}: {e}", fix=form, code="bad-scores") from None
        scores[key] = score
    if not scores:
        raise BadInput(f"{path} holds no scores", fix=form, code="bad-scores")
    return scores


def _row(row: Any) -> tuple[tuple[str, int], float | None]:
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    if missing := [key for key in ("task", "repeat", "score") if key not in row]:
        raise ValueError(f"no {missing[0]!r}")
    task = row["task"]
    repeat = row["repeat"]
    score = row["score"]
    if not isinstance(task, str) or not task:
        raise ValueError("'task' must be a name")
    if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 0:
        raise ValueError("'repeat' must be a whole number from 0")
    if score is None:
        return (task, repeat), None
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < 1e9:
        raise ValueError("'score' must be a number or null")
    return (task, repeat), float(score)
