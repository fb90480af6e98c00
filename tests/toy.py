"""A toy domain: every answer must end with an exclamation mark, which no task says; only experience
shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Grade, Split, Task, Trace

SIZES: dict[Split, int] = {"train": 8, "validation": 8, "test": 6}


class Toy:
    """Write the word to answer.txt. tests.toy:Toy"""

    name = "toy"

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"toy:{s}:{n}",
                domain="toy",
                prompt=f"Write the word number {n} of the {s} list to the file answer.txt.",
                split=s,
                group=f"{s}-{n}",
                facts={"word": f"w{n}!"},
            )
            for s, size in SIZES.items()
            if split in (None, s)
            for n in range(size)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        try:
            return sandbox.read("answer.txt").decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        right = trace.answer == task.facts["word"]
        return Grade(
            score=float(right),
            passed=right,
            evidence=(
                "right" if right else f"AssertionError: {trace.answer!r} does not end as it must"
            ),
        )

    def gold(self, task: Task) -> str:
        return str(task.facts["word"])


LESSON = "End every answer with an exclamation mark."


def script(*, learns: bool = True, delay_ms: int = 0) -> list[dict[str, Any]]:
    """A scripted model that does as the lesson says once it reads it, and an optimizer that finds
    the lesson."""
    rows: list[dict[str, Any]] = []
    for split, size in SIZES.items():
        for n in range(size):
            for text, word in ((LESSON, f"w{n}!"), (None, f"w{n}")):
                rows.append(
                    {
                        "role": "agent",
                        "task": f"toy:{split}:{n}",
                        "step": 0,
                        "text": f"```bash\nprintf %s '{word}' > answer.txt\n```",
                        **({"contains": text} if text else {}),
                    }
                )
    rows.append({"role": "agent", "text": "```bash\nsubmit\n```"})
    edit = {
        "file": "new lesson",
        "line": 0,
        "title": "How answers end",
        "text": LESSON if learns else "Think twice.",
        "reason": "The grader wants a mark at the end.",
        "experience": "$1",
        "step": 0,
    }
    study = json.dumps({"why": "the mark is missing", "cause": "knowledge", "edits": [edit]})
    rows.append({"role": "optimizer", "find": r"experience ([0-9a-f]{16}): FAILED", "text": study})
    return [{**row, "delay_ms": delay_ms} if delay_ms else row for row in rows]


def write_script(path: Path, **options: Any) -> str:
    """The script as a file; returns the model's name."""
    path.write_text("".join(json.dumps(row) + "\n" for row in script(**options)), "utf-8")
    return f"scripted:{path}"
