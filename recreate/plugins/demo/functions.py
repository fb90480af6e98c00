"""Small Python functions that read texts, written in the ways of one code base: the tasks of
`recreate demo`.

A task says what a function is for and shows how it is used. What the code base does with everything
else (spaces, capitals, texts that are of another form) no task says: it is for experience to find.
Nothing is fetched: an answer is one file, and Python itself runs it.
`recreate.plugins.demo.functions:Functions` is its name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

from recreate.api.config import read_json
from recreate.api.paths import shipped
from recreate.api.ports import Sandbox, SandboxBackend
from recreate.api.types import Grade, Split, Task, Trace
from recreate.domains.exploits import text_exploits

FILE = "answer.py"
_RUN = """
import contextlib, io, json, sys
found = []
space = {}
with contextlib.redirect_stdout(io.StringIO()):
    try:
        exec(compile(open("answer.py").read(), "answer.py", "exec"), space)
        wrong = ""
    except BaseException as e:
        wrong = type(e).__name__
    for text in json.loads(sys.argv[1]):
        try:
            found.append(repr(eval(text, space)) if not wrong else wrong)
        except BaseException as e:
            found.append(type(e).__name__)
print(json.dumps(found))
"""
"""Runs calls in the answer and tells their values; they are compared outside, with values that are
never in there."""


class Functions:
    """Functions of a few lines in answer.py, from a text to a value."""

    name = "functions"
    grader = "1"
    description = (
        "Small Python functions that read a text, written into answer.py in the ways of one code"
        " base."
    )

    @cached_property
    def _tasks(self) -> Sequence[Task]:
        file = shipped("benchmarks") / "demo" / "tasks.jsonl"
        rows = [read_json(line) for line in file.read_text("utf-8").splitlines()]
        return [
            Task(
                id=f"functions:{row['split']}:{row['name']}",
                domain=self.name,
                prompt=row["prompt"],
                split=row["split"],
                group=row["name"],
                facts={"checks": row["checks"], "gold": row["gold"]},
            )
            for row in rows
        ]

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [task for task in self._tasks if split in (None, task.split)]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        """An empty sandbox: the prompt says all there is."""
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        """The text of answer.py; '' where there is none."""
        try:
            return sandbox.read(FILE).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        """The part of the calls, most of which no task shows, that give what they should. Passed:
        all of them."""
        if not trace.answer.strip():
            return Grade(score=0.0, passed=False, evidence="There is no answer.py.")
        checks: list[tuple[str, str]] = [(call, wanted) for call, wanted in task.facts["checks"]]
        found = self._values(trace.answer, [call for call, _ in checks], backend)
        told = [
            f"{call} gives {value[:60]}, and {wanted} is wanted"
            for (call, wanted), value in zip(checks, found, strict=True)
            if value != wanted
        ]
        score = 1 - len(told) / len(checks)
        words = "Every call gives what is wanted." if not told else "\n".join(told)
        return Grade(score=round(score, 4), passed=not told, evidence=words)

    def _values(self, answer: str, calls: Sequence[str], backend: SandboxBackend) -> list[str]:
        """What each call gives, in a sandbox of its own; `nothing` where what it printed is not
        their values."""
        sandbox = backend.open()
        try:
            sandbox.write(FILE, answer.encode("utf-8", "replace"))
            output = sandbox.run(["python3", "-I", "-c", _RUN, json.dumps(list(calls))], timeout=10)
        finally:
            sandbox.close()
        try:
            found = read_json(output.text.strip().splitlines()[-1])
        except (ValueError, IndexError):
            found = None
        known = (
            isinstance(found, list)
            and len(found) == len(calls)
            and all(isinstance(v, str) for v in found)
        )
        return found if known else ["nothing"] * len(calls)

    def gold(self, task: Task) -> str:
        """The right function, for `recreate tasks check`."""
        return str(task.facts["gold"])

    def exploits(self, task: Task) -> dict[str, str]:
        """Answers that fit every question, and one that attacks, for `recreate tasks audit`."""
        forged = "import os\nos.write(1, b'[\"0\"]\\n')\nos._exit(0)\n"
        return {**text_exploits(task), "ends its runner": forged}
