"""Three builds and a bench of seconds that touch all that a long one does.

PAIRED      every round the agent learns one mark more; candidates are judged by the paired test of
            all tasks
SEQUENTIAL  the rule `each` on 20 tasks: a candidate that helps on some is dropped, one that helps
            on all is kept, and the next, which may spend the kept one's error too, does harm
SEARCH      the rule `search` on the same: what is ahead goes on, and is looked at up to three times
SUITE       a bench of two scaffolds, one of which knows every mark, with two repeats
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from recreate.api.ports import Price, Sandbox, SandboxBackend
from recreate.api.types import Call, Grade, Message, Output, Reply, Split, Task, Trace
from recreate.models.scripted import Scripted
from recreate.runs.budget import Budget

MARKS = "!?."
PAID = "paid.txt"
"""In the current folder: a line for each reply that the model gave."""

_write = os.write
"""As it was before anybody counted."""


class Build(NamedTuple):
    """cap: just the attempts that it takes at two jobs, and about the tokens that it is thought to
    take at most. command: what goes on by itself when it is given again, or `build`, which `resume`
    goes on with.
    """

    flags: list[str]
    cap: Budget
    command: str = "build"


_FLAGS = [
    "--sandbox",
    "tests.lab.crash.toy:InMemory",
    "--optimizer",
    "reflect",
    "--memory.embedder",
    "hashed",
    "--scaffold",
    "seed",
    "--rounds",
    "3",
    "--train",
    "3",
    "--json",
]
PAIRED = Build(
    [
        "--domain",
        "tests.lab.crash.toy:Marks",
        "--model",
        "tests.lab.crash.toy:Paid",
        "--memory.policy",
        "recreate",
        "--validation",
        "5",
        "--gate.false_keep",
        "0",
        *_FLAGS,
    ],
    Budget(attempts=23, tokens=900_000),
)
_MORE = [
    "--domain",
    "tests.lab.crash.toy:MoreMarks",
    "--model",
    "tests.lab.crash.toy:PaidMore",
    "--validation",
    "20",
    *_FLAGS,
]
SEQUENTIAL = Build([*_MORE, "--gate.keep", "each"], Budget(attempts=71, tokens=2_000_000))
SEARCH = Build([*_MORE, "--gate.keep", "search"], Budget(attempts=150, tokens=4_000_000))
SUITE = Build(
    [
        "--domain",
        "tests.lab.crash.toy:Marks",
        "--model",
        "tests.lab.crash.toy:Paid",
        "--sandbox",
        "tests.lab.crash.toy:InMemory",
        "--memory.embedder",
        "hashed",
        "--scaffold",
        "marks",
        "--scaffold",
        "taught",
        "--repeats",
        "2",
        "--split",
        "test",
        "--format",
        "jsonl,csv,predictions",
        "--json",
    ],
    Budget(attempts=20, tokens=900_000),
    "bench",
)


class Marks:
    """Write the word with its marks to answer.txt."""

    name = "marks"
    sizes: ClassVar[dict[Split, int]] = {"train": 3, "validation": 5, "test": 5}

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        return [
            Task(
                id=f"marks:{s}:{n}",
                domain="marks",
                prompt=f"Write the word number {n} of the {s} list to answer.txt.",
                split=s,
                group=f"{s}-{n}",
                facts={"word": f"w{n}"},
            )
            for s, size in self.sizes.items()
            if split in (None, s)
            for n in range(size)
        ]

    def prepare(self, task: Task, backend: SandboxBackend) -> Sandbox:
        return backend.open()

    def collect(self, task: Task, sandbox: Sandbox) -> str:
        return sandbox.read("answer.txt").decode()

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        word, right = task.facts["word"], sum(mark in trace.answer for mark in MARKS)
        passed = right == len(MARKS) and trace.answer.startswith(word)
        return Grade(
            score=right / len(MARKS),
            passed=passed,
            evidence="right" if passed else "a mark is missing",
        )


class MoreMarks(Marks):
    sizes: ClassVar[dict[Split, int]] = {"train": 9, "validation": 20, "test": 1}


class InMemory:
    """A sandbox of one command, `printf %s TEXT > FILE`: nothing of it is on the disk."""

    name = "memory"

    def probe(self) -> str:
        return ""

    def open(self, **_: Any) -> Sandbox:
        return _Folder()


class _Folder:
    backend = "memory"

    def __init__(self) -> None:
        self.files = {"answer.txt": b""}

    def run(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: bytes | None = None
    ) -> Output:
        found = re.search(r"printf %s '(.*)' > (\S+)", str(command))
        if found:
            self.files[found[2]] = found[1].encode()
        return Output(text="", status=0 if found else 127)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.files[path] = data

    def read(self, path: str) -> bytes:
        return self.files[path]

    def close(self) -> None:
        pass


class Paid:
    """Answers as the lessons in its prompt say, and notes each reply in the file `paid.txt` of the
    current folder."""

    name = "tests.lab.crash.toy:Paid"
    price = Price(tokens_in=1.0, tokens_out=1.0)

    def __init__(self, **_: Any) -> None:
        self.model = Scripted.of(self.script())
        self.paid = Path(PAID).resolve()

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        from tests.lab.crash.boundaries import at_boundary

        reply = self.model.reply(messages, call, **params)
        at_boundary("before the model is asked")
        line = {"call": call.id, "role": call.role, "tokens": reply.tokens_in + reply.tokens_out}
        handle = os.open(self.paid, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        _write(handle, json.dumps(line).encode() + b"\n")
        os.close(handle)
        at_boundary("after the model answered")
        return reply

    def script(self) -> list[dict[str, Any]]:
        return script()

    def close(self) -> None:
        pass


class PaidMore(Paid):
    def script(self) -> list[dict[str, Any]]:
        return script_of_trials()


def lesson(mark: int) -> str:
    return f"Every answer carries mark number {mark}."


def script() -> list[dict[str, Any]]:
    """What an agent says that knows so many lessons, an optimizer that finds the next, and a policy
    that learns."""
    rows = [
        _written(split, n, known, lesson(known - 1) if known else "")
        for split, size in Marks.sizes.items()
        for n in range(size)
        for known in (3, 2, 1, 0)
    ]
    rows.append(SUBMIT)
    learned = {
        "happened": "a mark was missing",
        "title": "Marks",
        "body": "Look at the marks of $1.",
        "when": "always",
    }
    rows.append(
        {
            "role": "optimizer",
            "contains": "happened",
            "find": r"word number (\d+)",
            "text": json.dumps(learned),
        }
    )
    rows += [_learned(lesson(known), lesson(known - 1) if known else "") for known in (2, 1, 0)]
    return rows


SOME, ALL, HARM = "Some words carry a mark.", "Words carry two marks.", "Some words carry fewer."
"""What SEQUENTIAL is taught, in this order."""


def script_of_trials() -> list[dict[str, Any]]:
    """What an agent says that was taught these, and an optimizer that proposes the next once the
    last is in sight."""
    rows = [
        _written(split, n, known, taught)
        for split, size in MoreMarks.sizes.items()
        for n in range(size)
        for taught, known in ((HARM, 2 - (n % 4 == 0)), (ALL, 2), (SOME, int(n % 4 == 0)), ("", 0))
    ]
    return [*rows, SUBMIT, _learned(HARM, ALL), _learned(ALL, SOME), _learned(SOME)]


SUBMIT = {"role": "agent", "text": "```bash\nsubmit\n```"}


def _written(split: str, n: int, known: int, taught: str) -> dict[str, Any]:
    """The answer, with so many marks, of an agent that was taught this."""
    text = f"```bash\nprintf %s 'w{n}{MARKS[:known]}' > answer.txt\n```"
    row = {"role": "agent", "task": f"marks:{split}:{n}", "step": 0, "text": text}
    return {**row, **({"contains": taught} if taught else {})}


def _learned(text: str, seen: str = "") -> dict[str, Any]:
    """The proposal of a lesson by an optimizer that saw the other one."""
    edit = {"file": "new lesson", "line": 0, "title": text[:20], "text": text, "reason": text[:20]}
    study = {"why": "w", "cause": "knowledge", "edits": [{**edit, "experience": "$1", "step": 0}]}
    row = {
        "role": "optimizer",
        "find": r"experience ([0-9a-f]{16}): FAILED",
        "text": json.dumps(study),
    }
    return {**row, **({"contains": seen} if seen else {})}
