"""A domain, an agent and an optimizer for a build in which much happens: what report.html is looked
at with.

Rounds: a lesson that harms, one that helps, three edits at once that help and harm, one that helps,
and a lesson whose texts try to break out of the page. Every attempt takes three steps; the first
one fails and prints what must not reach a reader as it is. tests.words:Words, tests.words:Planned
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recreate.agents.scaffold import Scaffold
from recreate.api.types import Edit, Evidence, Experience, Split, Step, Study, Task, Usage
from recreate.optimizers.context import OptimizerContext
from recreate.storage.log import Log
from tests.toy import Toy

SIZES: dict[Split, int] = {"train": 12, "validation": 20, "test": 5}
ESCAPE = (
    "</script><script>document.title='broken out'</script><img src=x"
    " onerror=\"document.title='broken'\">"
)
HIDDEN = "\x1b[31mred\x1b[0m \x07 \u202eright to left\u202c"

# lesson, file, reason, validation tasks it wins, those it loses
PLAN: list[tuple[str, str, str, range | list[int], range | list[int]]] = [
    ("Think twice.", "memory/think-twice.md", "The answers look hasty.", [4], [0, 1]),
    (
        "End every answer with a mark.",
        "memory/how-answers-end.md",
        "The grader wants a mark.",
        range(4, 14),
        [3],
    ),
    (
        "Look at the notes first.",
        "system.md",
        "The attempts begin without reading anything.",
        [14, 15],
        [5, 6, 7],
    ),
    (
        "Write the number out.",
        "memory/numbers.md",
        "Numbers are asked for as words.",
        range(14, 20),
        [],
    ),
    ("Never mind " + ESCAPE, "memory/never-mind.md", ESCAPE + HIDDEN, [], []),
]
TOOL = '#!/usr/bin/env python3\n"""Show the notes, if there are any."""\n\nprint("no notes")\n'


class Words(Toy):
    """Write the word to answer.txt. tests.words:Words"""

    name = "words"

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"words:{s}:{'a-rather-long-name-of-a-task-' if n == 3 else ''}{n}",
                domain="words",
                prompt=(
                    f"Write the word number {n} of the {s} list to the file answer.txt. <b>{n}</b>"
                    " & more."
                ),
                split=s,
                group=f"{s}-{n}",
                facts={"word": f"w{n}!"},
            )
            for s, size in SIZES.items()
            if split in (None, s)
            for n in range(size)
        ]


class Planned:
    """Proposes what PLAN says, one entry a round, and leaves a study of each experience.
    tests.words:Planned"""

    def __init__(self, context: OptimizerContext) -> None:
        self.context = context

    def propose(self, scaffold: Scaffold, experiences: Sequence[Experience]) -> list[Edit]:
        texts = [*scaffold.files.values(), *(e.new for r in self.context.rejected for e in r.edits)]
        left = [p for p in PLAN if not any(p[0] in t for t in texts)]
        failed = [e for e in experiences if not e.grade.passed]
        if not left or not failed:
            return []
        lesson, path, reason, *_ = left[0]
        cited = (
            Evidence(experience=failed[0].id, step=1),
            Evidence(experience=failed[-1].id, step=0),
        )
        new = f"# {lesson}\n\n{lesson}\n" if path.startswith("memory/") else f"{lesson}\n"
        edits = [Edit(path=path, new=new, reason=reason, evidence=cited)]
        if path == "system.md":
            edits += [
                Edit(
                    path="tools/notes.py",
                    new=TOOL,
                    reason="A tool shows the notes.",
                    evidence=cited[:1],
                ),
                Edit(
                    path="memory/notes.md",
                    new="# Notes\n\nRead them.\n",
                    reason="And a lesson.",
                    evidence=cited[1:],
                ),
            ]
        assert self.context.folder is not None
        for experience in experiences:
            write_study(
                self.context.folder, experience, edits if experience.id == failed[0].id else []
            )
        return edits


def write_study(folder: Path, experience: Experience, edits: Sequence[Edit]) -> Study:
    """A study with three steps, as an optimizer leaves it."""
    study = Study(
        id="5" + experience.id[1:],
        scaffold=experience.digest,
        experience=experience.id,
        task=experience.task,
        passed=experience.grade.passed,
        ending="finished" if edits or experience.grade.passed else "limit",
        why="" if edits else "It used all its steps.",
        cause="knowledge" if edits else "",
        summary=f"The answer lacks its mark. {ESCAPE}",
        edits=tuple(edits),
        actions={"steps": 4, "search": 2, "run": 2, "edit": 1, "finish": 1},
        kinds={"inspect": 6, "try": 2, "edit": 1, "decide": 1},
        usage=Usage(calls=10, tokens_in=12000, tokens_out=900, usd=0.0123),
    )
    place = folder / study.id
    place.mkdir(parents=True, exist_ok=True)
    (place / "study.json").write_text(json.dumps(study.model_dump(mode="json")), "utf-8")
    (place / "steps.jsonl").unlink(missing_ok=True)
    lines = Log(place / "steps.jsonl")
    for n, action in enumerate(("steps 0-2", "run 'cat notes'", "finish")):
        step = Step(
            step=n,
            reply=json.dumps({"thought": f"I look. {ESCAPE}", "tool": "x"}),
            action=action,
            output=HIDDEN,
            status=1 if n == 1 else 0,
        )
        lines.append(step.model_dump(mode="json"))
    lines.close()
    return study


def script() -> list[dict[str, Any]]:
    """The agent's lines: look for notes that are not there, write the word, submit."""
    loud = f"printf '%s\\n' {_quoted(HIDDEN)} {_quoted(ESCAPE)}; seq 1 900; cat notes"
    rows: list[dict[str, Any]] = [
        {"role": "agent", "step": 0, "text": f"First the notes.\n\n```bash\n{loud}\n```"},
        {"role": "agent", "step": 2, "text": "```bash\nsubmit\n```"},
    ]
    for n in range(SIZES["validation"]):
        task = next(t.id for t in Words().tasks("validation") if t.facts["word"] == f"w{n}!")
        for lesson, _, _, wins, loses in reversed(PLAN):
            if n in wins or n in loses:
                rows.append(_write(task, f"w{n}!" if n in wins else f"w{n}", lesson))
        rows.append(_write(task, f"w{n}!" if n < 4 else f"w{n}"))
    return [
        *rows,
        {"role": "agent", "step": 1, "text": "```bash\nprintf %s 'word' > answer.txt\n```"},
    ]


def _write(task: str, word: str, lesson: str = "") -> dict[str, Any]:
    row = {
        "role": "agent",
        "task": task,
        "step": 1,
        "text": f"```bash\nprintf %s '{word}' > answer.txt\n```",
    }
    return {**row, "contains": lesson} if lesson else row


def _quoted(text: str) -> str:
    return "$'" + text.replace("'", "\\'").replace("\x1b", "\\x1b").replace("\x07", "\\x07") + "'"


def write_script(path: Path) -> str:
    """The script as a file; returns the model's name."""
    path.write_text("".join(json.dumps(row) + "\n" for row in script()), "utf-8")
    return f"scripted:{path}"
