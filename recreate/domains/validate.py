"""Whether a task is sound: its gold passes, and handing in nothing fails. For any domain that knows its gold."""

from __future__ import annotations

import time

from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Domain, GradesUntouched, SandboxBackend, Validatable
from recreate.api.types import Grade, Record, Split, Task, Trace


class Proof(Record):
    """What was found. gold and untouched are the scores (None when it could not be graded); seconds in all."""

    task: str
    group: str
    split: Split
    digest: str
    gold: float | None
    untouched: float | None
    ok: bool
    reason: str
    seconds: float


def validate(domain: Domain, task: Task, backend: SandboxBackend) -> Proof:
    """Grade the task's gold and an empty answer. A task that cannot be graded here is not ok, and says why."""
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
    reason = ""
    try:
        gold = domain.grade(task, _trace(task, domain.gold(task)), backend)
        empty = domain.grade(task, _trace(task, ""), backend)
        untouched = domain.untouched(task, backend) if isinstance(domain, GradesUntouched) else empty
    except (Fault, BadInput) as e:
        reason = e.message
    if not reason and gold is not None and not gold.passed:
        reason = "gold fails: " + gold.evidence[:600]
    elif not reason and untouched is not None and untouched.score > 0:
        reason = "what should fail passes before anything is mended: " + untouched.evidence[:600]
    elif not reason and empty is not None and empty.passed:
        reason = "handing in nothing passes"
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
    )


def _trace(task: Task, answer: str) -> Trace:
    return Trace(attempt="prove", task=task.id, scaffold="", model="", answer=answer)
