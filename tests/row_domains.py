"""Domains of rows, opened as a command opens them, and answers to their tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recreate.api import registry
from recreate.api.ports import SandboxBackend
from recreate.api.types import Grade, Trace
from recreate.domains.rows.domain import RowDomain


def opened(
    workspace: Path, rows: list[dict[str, Any]], score: str, name: str = "q", **columns: str
) -> RowDomain:
    (workspace / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    part = registry.open_domain(
        name, workspace, str(workspace / f"{name}.jsonl"), score=score, columns=columns
    )
    assert isinstance(part, RowDomain)
    return part


def graded(part: RowDomain, number: int, answer: str, backend: SandboxBackend) -> Grade:
    task = part.tasks()[number]
    return part.grade(
        task, Trace(attempt="a", task=task.id, scaffold="", model="", answer=answer), backend
    )
