"""A scaffold measured on a split, in a run folder of its own; the only door to the test split."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.types import Record, Split, Usage
from recreate.builder.learning import Learning
from recreate.runs.attempts import attempted, run_attempts
from recreate.runs.gate import interval
from recreate.runs.session import Session
from recreate.storage.files import locked
from recreate.storage.log import Log


class BenchResult(Record):
    """One scaffold on one split. mean with its 90 % interval [lo, hi] over `n` tasks; None when nothing was graded.

    set_aside: attempts that an infrastructure failure excluded; scores: task, repeat, score, experience of each.
    """

    scaffold: str
    digest: str
    model: str
    domain: str
    split: str
    n: int
    repeats: int
    mean: float | None
    lo: float | None
    hi: float | None
    usd: float
    tokens: int
    set_aside: int
    test_openings: int
    scores: tuple[Mapping[str, Any], ...]

    def row(self) -> dict[str, Any]:
        """The object that `--json` prints as a cell of the table."""
        return self.model_dump(mode="json", exclude={"schema_"})


def measure(
    session: Session, scaffold: Scaffold, split: Split, most: int = 0, *, each_call: bool = False
) -> BenchResult:
    """`scaffold` on `most` tasks of a split, 0 for all.

    An opening of the test split is written down in the workspace and counted, whoever asks: one for a run folder; with
    `each_call` one for each session that makes test attempts, since what is measured may change between them.
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
    held = {(s.task, s.repeat): s for s in scores if s.score is not None}
    mean, lo, hi = interval({place: s.score for place, s in held.items()}) if held else (None, None, None)
    usage = sum((s.usage for s in held.values()), Usage())
    return BenchResult(
        scaffold=scaffold.name,
        digest=scaffold.digest,
        model=session.model_name,
        domain=session.domain.name,
        split=split,
        n=len({task for task, _ in held}),
        repeats=session.settings.repeats,
        mean=mean,
        lo=lo,
        hi=hi,
        usd=round(usage.usd, 6),
        tokens=usage.tokens_in + usage.tokens_out,
        set_aside=len(scores) - len(held),
        test_openings=openings,
        scores=tuple({"task": s.task, "repeat": s.repeat, "score": s.score, "experience": s.attempt} for s in scores),
    )


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
