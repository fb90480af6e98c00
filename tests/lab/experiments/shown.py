"""What an agent's prompts show of a real bug: the task's own words, and a line that the release
which mends it changed.

    recreate bench --scaffold A --scaffold B --domain swe --kind real --split test --tasks 40
    --model MODEL --out runs/x python -m tests.lab.experiments.shown runs/x

A model can mend only what it is shown, so this tells seeds apart where a small model solves
nothing. Read is what was sent, of every attempt of the run; nothing is attempted.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recreate.agents.request import Recorded
from recreate.api.types import Experience, Task
from recreate.plugins.measuring.shares import wilson
from recreate.plugins.swe.domain import Swe
from recreate.runs.attempts import read_experience
from recreate.runs.reader import Run

LEAST = 12
"""A shorter line, such as `else:`, stands in many functions."""


def changed(gold: str) -> list[str]:
    """The lines that a diff takes out or puts something beside, without their indentation."""
    found, before = list[str](), ""
    for line in gold.splitlines():
        if line.startswith(("---", "+++", "@@", "diff ")):
            before = ""
        elif line.startswith("-"):
            found.append(line[1:].strip())
        elif line.startswith("+"):
            found.append(before)
        else:
            before = line[1:].strip()
    return [line for line in dict.fromkeys(found) if len(line) >= LEAST]


def requests(experience: Experience) -> list[str]:
    """The text of each request, in order; the first sample's is the first."""
    recorded, steps = Recorded(experience.trace.steps), experience.trace.steps
    return [
        "\n".join(str(m.get("content")) for m in recorded[s.step].messages)
        for s in steps
        if s.step in recorded
    ]


def told(text: str, task: Task) -> bool:
    """Whether the first words of the task stand in a text."""
    return " ".join(task.prompt.split())[:80] in " ".join(text.split())


def main(folder: Path) -> None:
    domain, run = Swe(), Run(folder)
    tasks = {task.id: task for task in domain.tasks()}
    names = {r["scaffold"]: r["name"] for r in run.records("agent")}
    for key, rows in run.cells().items():
        count = dict.fromkeys(
            ("the task's words", "a changed line, first request", "in any request", "passed"), 0
        )
        attempts = [(r, read_experience(folder / "attempts" / r["attempt"])) for r in rows.values()]
        for row, experience in attempts:
            task, sent = tasks[row["task"]], requests(experience)
            lines = changed(domain.gold(task))
            shown = [any(line in text for line in lines) for text in sent]
            count["the task's words"] += any(told(text, task) for text in sent)
            count["a changed line, first request"] += any(shown[:1])
            count["in any request"] += any(shown)
            count["passed"] += bool(row["passed"])
        print(f"{names[key.agent]} ({key.agent}), {key.model}, {len(attempts)} {key.split} tasks")
        for what, many in count.items():
            low, high = wilson(many, len(attempts))
            print(
                f"  {what:32} {many:3} of {len(attempts)}, {many / len(attempts):.2f} [{low:.2f},"
                f" {high:.2f}]"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
