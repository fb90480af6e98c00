"""A scaffold measured on a split, in a run folder of its own; who measures one on test is written down here."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.agents.attempt import try_servers
from recreate.agents.retrieval import LessonRetrieval
from recreate.agents.scaffold import Scaffold
from recreate.api.errors import BadInput
from recreate.api.types import Record, Split, Task, Usage, digest
from recreate.builder.learning import Learning
from recreate.builder.selection import tasks_of
from recreate.runs.attempts import key_of, run_attempts
from recreate.runs.gate import interval, judge
from recreate.runs.reader import Run
from recreate.runs.session import Session
from recreate.storage.files import locked
from recreate.storage.log import Log


class BenchResult(Record):
    """One scaffold on one split. mean with its 90 % interval [lo, hi] over `n` tasks; None when nothing was graded.

    set_aside: attempts that an infrastructure failure excluded; scores: task, repeat, score, experience of each.
    test_openings: on the test split the number of this opening, else how many there were.
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


def measure(session: Session, scaffold: Scaffold, split: Split, most: int = 0) -> BenchResult:
    """`scaffold` on `most` tasks of a split, 0 for all. What the workspace holds out as another split is left out.

    On the test split it is an opening, written down and counted.
    """
    tasks = measured_tasks(session, split, most)
    offers = Learning(session).offers()
    repeats = session.settings.repeats
    who = {"name": scaffold.name, "scaffold": scaffold.digest}
    if not any(who.items() <= r.items() for r in session.journal.records("agent")):
        session.journal.add("agent", **who)
    if session.tape is not None:
        session.tape.agent(scaffold.name, scaffold.digest, scaffold.files)
    for task in tasks[:1]:
        try_servers(scaffold, task, session.domain, session.backend)
    openings = opening(session, scaffold, tasks, repeats, offers) if split == "test" else test_openings(session)
    scores = run_attempts(session, scaffold, tasks, repeats=repeats, phase=split, offers=offers)
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
        repeats=repeats,
        mean=mean,
        lo=lo,
        hi=hi,
        usd=round(usage.usd, 6),
        tokens=usage.tokens_in + usage.tokens_out,
        set_aside=len(scores) - len(held),
        test_openings=openings,
        scores=tuple({"task": s.task, "repeat": s.repeat, "score": s.score, "experience": s.attempt} for s in scores),
    )


def measured_tasks(session: Session, split: Split, most: int = 0) -> list[Task]:
    """The tasks that `measure` takes, in their order."""
    tasks = tasks_of(session, split)
    if most and most < len(tasks):
        random.Random(f"{session.settings.seed}/{split}").shuffle(tasks)
        tasks = tasks[:most]
    return tasks


def measured_in(run: Run, workspace: Path) -> list[BenchResult]:
    """What a run measured, read back: of a build its result on validation, else each agent on each split.

    Raises BadInput when there is nothing.
    """
    seed, kept = run.seed(), [r.id for r in run.revisions() if r.kept]
    result = (kept[-1:] or [seed.digest])[0] if seed is not None else ""
    first = next(run.records("start"), {})
    found = {key: rows for key, rows in run.cells().items() if not result or key[1:] == (result, "validation")}
    if not found:
        raise BadInput(f"{run.folder} measured nothing", fix="name a run of bench or of build", code="no-scores")
    excluded = run.excluded()
    cells = []
    for (model, digest_, split), rows in found.items():
        scores = {place: row["score"] for place, row in rows.items()}
        mean, lo, hi = interval(scores)
        usage = sum((_usage(run, row["attempt"]) for row in rows.values()), Usage())
        domain = str(first.get("domain", run.settings.domain))
        cells.append(
            BenchResult(
                scaffold=seed.name if seed is not None and digest_ == seed.digest else digest_,
                digest=digest_,
                model=model,
                domain=domain,
                split=split,
                n=len({task for task, _ in scores}),
                repeats=len({repeat for _, repeat in scores}),
                mean=mean,
                lo=lo,
                hi=hi,
                usd=round(usage.usd, 6),
                tokens=usage.tokens_in + usage.tokens_out,
                set_aside=sum(row["phase"] == split for row in excluded) if not result and len(found) == 1 else 0,
                test_openings=sum(r.get("domain") == domain for r in openings_of(workspace).read()),
                scores=tuple(
                    {"task": task, "repeat": repeat, "score": row["score"], "experience": row["attempt"]}
                    for (task, repeat), row in sorted(rows.items())
                ),
            )
        )
    return cells


def compared(before: Sequence[BenchResult], after: Sequence[BenchResult]) -> list[dict[str, Any]]:
    """The gate's verdict on each agent of `after` against each of `before`, over the tasks of one split that both were
    measured on; a pair without such tasks is left out."""
    verdicts = []
    for a in before:
        for b in after:
            old, new = ({(s["task"], s["repeat"]): s["score"] for s in cell.scores} for cell in (a, b))
            both = old.keys() & new.keys()
            if (a.domain, a.split) != (b.domain, b.split) or not both:
                continue
            verdict = judge({k: old[k] for k in sorted(both)}, {k: new[k] for k in sorted(both)})
            place = {"split": a.split, "before_agent": a.scaffold, "after_agent": b.scaffold}
            verdicts.append({**place, **verdict.model_dump(mode="json", exclude={"schema_"})})
    return verdicts


def _usage(run: Run, attempt: str) -> Usage:
    with contextlib.suppress(BadInput):
        return run.experience(attempt).trace.usage
    return Usage()


def openings_of(workspace: Path) -> Log:
    """A workspace's list of test openings."""
    return Log(workspace / "runs" / "test_openings.jsonl", durable=True)


def openings_file(session: Session) -> Log:
    """The list of the session's workspace."""
    return openings_of(session.workspace)


def test_openings(session: Session) -> int:
    """How often the test split of this domain was opened in this workspace."""
    return len(_openings(session, openings_file(session)))


def _openings(session: Session, file: Log) -> list[Mapping[str, Any]]:
    """Those of this domain, in their order; a damaged line may be one, and counts as such."""
    records = [line.record for line in file.lines()]
    return [r or {} for r in records if r is None or r.get("domain") == session.domain.name]


def opening(
    session: Session, scaffold: Scaffold, tasks: Sequence[Task], repeats: int, offers: LessonRetrieval | None
) -> int:
    """The number of this opening of the domain's test split, written down before anything is attempted.

    One measuring is one opening: these attempts (agent, tasks, model, lessons, grader, repeats) in this run folder.
    Going on with it, or reading it back, is the same one; another agent there, or the same one elsewhere, is the next.
    """
    # Without the images: they are pulled one by one, each when its first attempt begins.
    each = ((task, repeat) for task in tasks for repeat in range(repeats))
    work = sorted(key_of(session, scaffold, task, repeat, offers, image="") for task, repeat in each)
    known = {"run": str(session.folder), "measuring": digest(work)}
    facts = {"domain": session.domain.name, "scaffold": scaffold.digest, "tasks": len(tasks), **known}
    file = openings_file(session)
    with locked(file.path.parent), file:
        before = _openings(session, file)
        number = next((n for n, r in enumerate(before, 1) if known.items() <= r.items()), 0)
        if not number:
            number = len(before) + 1
            file.append({"kind": "test-opened", **facts})
            session.journal.add("test-opened", number=number, **{k: v for k, v in facts.items() if k != "run"})
    return number
