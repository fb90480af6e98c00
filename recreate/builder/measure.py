"""One cell: a scaffold measured on a split, in a run folder of its own; the only door to the test split."""

from __future__ import annotations

import random
from typing import Any

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.types import Split, Usage
from recreate.builder.learning import Learning
from recreate.runs.attempts import Score, attempted, run_attempts
from recreate.runs.gate import interval
from recreate.runs.session import Session
from recreate.storage.files import locked
from recreate.storage.log import Log


def measure(
    session: Session, scaffold: Scaffold, split: Split, most: int = 0, *, each_call: bool = False
) -> dict[str, Any]:
    """One cell: n tasks, repeats, mean with its 90 % interval, cost, and what was set aside.

    An opening of the test split is written down in the workspace and counted, whoever asks: one for a run folder; with
    `each_call` one for each session that lives test attempts, since what is measured may change between them.
    """
    tasks = list(session.domain.tasks(split))
    if not tasks:
        raise BadInput(
            f"domain {session.domain.name} has no {split} tasks", fix="recreate tasks list shows them", code="no-tasks"
        )
    if most and most < len(tasks):
        random.Random(f"{session.settings.seed}/{split}").shuffle(tasks)
        tasks = tasks[:most]
    offers = Learning(session).offers()
    openings = test_openings(session)
    if split == "test" and not (each_call and attempted(session, scaffold, tasks, session.settings.repeats, offers)):
        openings = open_test(session, scaffold, len(tasks), each_call=each_call)
    scores = run_attempts(session, scaffold, tasks, repeats=session.settings.repeats, phase=split, offers=offers)
    held = [s for s in scores if s.score is not None]
    by_task: dict[str, list[float]] = {}
    for score in held:
        assert score.score is not None
        by_task.setdefault(score.task, []).append(score.score)
    mean, lo, hi = interval({(s.task, s.repeat): s.score for s in held}) if held else (None, None, None)
    usage = sum((s.usage for s in held), Usage())
    return {
        "scaffold": scaffold.name,
        "digest": scaffold.digest,
        "model": session.model_name,
        "domain": session.domain.name,
        "split": split,
        "n": len(by_task),
        "repeats": session.settings.repeats,
        "mean": mean,
        "lo": lo,
        "hi": hi,
        "usd": round(usage.usd, 6),
        "tokens": usage.tokens_in + usage.tokens_out,
        "set_aside": len(scores) - len(held),
        "test_openings": openings,
        "scores": [_row(s) for s in scores],
    }


def _row(score: Score) -> dict[str, Any]:
    return {"task": score.task, "repeat": score.repeat, "score": score.score, "experience": score.attempt}


def openings_file(session: Session) -> Log:
    """The workspace's list of test openings."""
    return Log(session.workspace / "runs" / "test_openings.jsonl")


def test_openings(session: Session) -> int:
    """How often the test split of this domain was opened in this workspace."""
    return sum(r.get("domain") == session.domain.name for r in openings_file(session).read())


def open_test(session: Session, scaffold: Scaffold, tasks: int, *, each_call: bool = False) -> int:
    """Write one opening down (once per run folder, or per session of it) and return how many there are."""
    file = openings_file(session)
    opening = {"session": sum(1 for _ in session.journal.records("start"))} if each_call else {}
    known = {"run": str(session.folder), **opening}
    if not any(known.items() <= r.items() for r in file.read()):
        fact = {"domain": session.domain.name, "scaffold": scaffold.digest, "tasks": tasks, **known}
        with locked(file.path.parent), file:
            file.append({"kind": "test-opened", **fact})
        session.journal.add("test-opened", **{k: v for k, v in fact.items() if k != "run"})
    return test_openings(session)
