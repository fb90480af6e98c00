"""Whether a task is sound: its gold passes and breaks nothing; handing in nothing, or another
task's gold, fails.

For any domain that knows its gold."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import (
    Domain,
    SandboxBackend,
    Validatable,
    extras,
)
from recreate.api.theirs import expect
from recreate.api.types import Grade, Record, Split, Task, Trace, digest
from recreate.storage.log import Log


class Proof(Record):
    """What was found. gold and untouched are the scores (None when it could not be graded); seconds
    in all.

    other: the task whose gold was handed in too, '' for none. disk_mb: what is kept for the task
    alone, None when nobody knows.
    """

    task: str
    group: str
    split: Split
    digest: str
    gold: float | None
    untouched: float | None
    ok: bool
    reason: str
    seconds: float
    other: str = ""
    disk_mb: float | None = None


def pair_golds(tasks: Sequence[Task], count: int) -> dict[str, Task]:
    """Return `count` tasks, spread over all, by id: each with the one whose gold it is handed. That
    comes from the same source where there is another, since what is made for other sources rarely
    even applies."""
    sources = {task.id: task.id.rpartition(":")[0] for task in tasks}
    near = sorted(tasks, key=lambda task: sources[task.id])
    pairs = {
        one.id: near[number - 1]
        for number, one in enumerate(near)
        if sources[one.id] == sources[near[number - 1].id]
    }
    for number, one in enumerate(near):
        pairs.setdefault(one.id, near[(number + 1) % len(near)])
    chosen = (
        [task.id for task in tasks][:: max(1, len(tasks) // count)][:count]
        if count and len(tasks) > 1
        else []
    )
    return {id: pairs[id] for id in chosen}


def open_check_log(
    domain: Domain, tasks: Sequence[Task], others: Mapping[str, Task], backend: SandboxBackend
) -> Log:
    """Return where the proofs of a check are written down until it is over: of these very tasks,
    with these others' golds, this grader and kind of sandbox."""
    pairs = [(t.id, t.digest, others[t.id].digest if t.id in others else "") for t in tasks]
    name = digest(
        [domain.name, extras(domain).grader, backend.name, pairs],
        16,
    )
    return Log(
        paths.home() / "checks" / f"{name}.jsonl",
        fix="free some space, or set RECREATE_HOME to another disk",
    )


def read_proofs(domain: Domain, log: Log) -> dict[str, Proof]:
    """Return by task what held when that check was interrupted; what did not hold is worth another
    look. Of a domain that does not name its grader's version nothing: it may be another one by
    now."""
    found = (Proof.model_validate(record) for record in log.read()) if extras(domain).grader else ()
    return {proof.task: proof for proof in found if proof.ok}


def validate(
    domain: Domain, task: Task, backend: SandboxBackend, other: Task | None = None
) -> Proof:
    """Grade the task's gold, an empty answer and the gold of `other`. A task that cannot be graded
    here is not ok, and says why."""
    if not isinstance(domain, Validatable):
        raise BadInput(
            f"the domain {domain.name} cannot show that its tasks are sound",
            fix="give it a method gold(task) that returns a right answer",
            code="not-provable",
        )
    started = time.monotonic()
    gold: Grade | None = None
    untouched: Grade | None = None
    empty: Grade | None = None
    swapped: Grade | None = None
    broken: Sequence[str] = ()
    reason = ""
    disk: float | None = None
    try:
        right = domain.gold(task)
        expect(isinstance(right, str), domain, "gold", right)
        gold = _grade(domain, task, right, backend)
        empty = _grade(domain, task, "", backend)
        untouched, broken = extras(domain).compared(task, backend)
        untouched = empty if untouched is None else untouched
        if other is not None and (foreign := _gold(domain, other)) not in ("", right):
            swapped = _grade(domain, task, foreign, backend)
        size = extras(domain).bytes(task)
        disk = None if size is None else size / 1e6
    except (Fault, BadInput) as e:
        if e.code == "misfit":  # the domain's, whichever task it is
            raise
        reason = e.message
    if not reason and gold is not None and not gold.passed:
        reason = "gold fails: " + gold.evidence[:600]
    elif not reason and untouched is not None and untouched.score > 0:
        reason = "what should fail passes before anything is mended: " + untouched.evidence[:600]
    elif not reason and broken:
        more = f" and {len(broken) - 5} more" if broken[5:] else ""
        reason = f"the gold breaks what passes untouched: {', '.join(broken[:5])}{more}"
    elif not reason and empty is not None and empty.passed:
        reason = "handing in nothing passes"
    elif not reason and other is not None and swapped is not None and swapped.passed:
        reason = f"the gold of {other.id} passes it"
    return Proof(
        task=task.id,
        group=task.group,
        split=task.split,
        digest=task.digest,
        gold=None if gold is None else gold.score,
        untouched=None if untouched is None else untouched.score,
        ok=not reason,
        reason=reason,
        seconds=round(time.monotonic() - started, 2),
        other=other.id if other is not None and swapped is not None else "",
        disk_mb=None if disk is None else round(disk, 3),
    )


def _gold(domain: Validatable, task: Task) -> str:
    """Return the gold of a task, '' where it cannot be had: that is said of the task itself."""
    try:
        return domain.gold(task)
    except (Fault, BadInput):
        return ""


def _grade(domain: Domain, task: Task, answer: str, backend: SandboxBackend) -> Grade:
    trace = Trace(attempt="prove", task=task.id, scaffold="", model="", answer=answer)
    grade = domain.grade(task, trace, backend)
    expect(isinstance(grade, Grade), domain, "grade", grade)
    return grade
