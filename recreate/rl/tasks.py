"""Which tasks a model is trained on."""

from __future__ import annotations

from typing import Any

from recreate.api.errors import BadInput
from recreate.api.ports import Domain
from recreate.api.types import Task


def train_tasks(domain: Domain, memory: Any) -> list[Task]:
    """The domain's train tasks but for those of held-out groups, its own validation and test among them.

    memory: the workspace's, which keeps the registry. Raises BadInput (`no-tasks`) when none is left.
    """
    memory.hold_out(domain.tasks())
    _, groups, tasks = memory.held_out.read()
    found = [t for t in domain.tasks("train") if t.group not in groups and t.id not in tasks]
    if not found:
        raise BadInput(
            f"domain {domain.name} has no train tasks",
            fix=f"recreate tasks list {domain.name} shows what there is; recreate tasks make adds some",
            code="no-tasks",
        )
    return found
