"""The workspace's registry of what must never be learned from: groups and tasks of validation and
test.

memory/held_out.jsonl, a sealed line each: {"group", "task", "split", "domain"}. It only grows: what
was test once is test for good, what was validation may still become test. A line that cannot be
read stops everything that asks, because passing over it could show a test task to an optimizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recreate.api.errors import BadInput
from recreate.api.ports import Domain, extras
from recreate.api.types import Experience, Split, Task, digest
from recreate.storage.files import disk, fault, locked, make_private
from recreate.storage.log import Log

if TYPE_CHECKING:
    from recreate.agents.guards.names import Whole


SHORT = 200
"""Characters of an answer that a lesson may tell as it is."""


class Held(NamedTuple):
    """One entry: what a task or an experience says of itself."""

    group: str
    task: str
    split: str
    domain: str


class Registered(NamedTuple):
    """What the registry says: the strictest split of each group and task. stamp: changes with the
    file."""

    stamp: str = ""
    groups: Mapping[str, Split] = {}
    tasks: Mapping[str, Split] = {}

    def split(self, task: str, group: str) -> Split | None:
        """Return the split that a task is held out as; None when it is not."""
        found = {self.tasks.get(task), self.groups.get(group)}
        return "test" if "test" in found else "validation" if "validation" in found else None


class HeldOut:
    """The registry of one memory folder. Several processes may add to it at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "held_out.jsonl"
        self._log = Log(self.path, durable=True, fix="")
        self._read = Registered()
        self._entries: list[Held] = []

    def add(self, entries: Iterable[Held]) -> None:
        """Register what is not yet; entries of the train split are ignored."""
        entries = [e for e in entries if e.split != "train"]
        if not entries or self._new(entries) == []:
            return
        with disk(self.path.parent):
            make_private(self.path.parent)
        with locked(self.path.parent):
            if new := self._new(entries):
                with self._log as log:
                    log.append(*(e._asdict() for e in new))

    def take(self, other: HeldOut) -> None:
        """Register all that another one holds. Raises BadInput when a line of either is damaged."""
        self.add(other.entries())

    def entries(self) -> list[Held]:
        """Return all that is registered. Raises BadInput when a line is damaged."""
        return self._entries if self.read().stamp else []

    def _new(self, entries: Iterable[Held]) -> list[Held]:
        _, groups, tasks = self.read()

        def news(e: Held) -> bool:
            known = [
                found.get(name) for found, name in ((groups, e.group), (tasks, e.task)) if name
            ]
            return any(split != "test" and split != e.split for split in known)

        return list({(e.group, e.task, e.split): e for e in entries if news(e)}.values())

    def read(self) -> Registered:
        """Return what is registered by now. Raises BadInput when a line is damaged."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return Registered()
        except OSError as e:
            raise fault(self.path.parent, e) from e
        stamp = f"{stat.st_ino}.{stat.st_size}.{stat.st_mtime_ns}"
        if stamp == self._read.stamp:
            return self._read
        groups: dict[str, Split] = {}
        tasks: dict[str, Split] = {}
        entries = list[Held]()
        for line in self._log.lines():
            if line.record is None:
                raise BadInput(
                    f"{self.path}: the line at byte {line.offset} is damaged, so what is held out"
                    " is not known",
                    fix=f"delete that line from {self.path}; the next build writes it again",
                    code="damaged",
                )
            entry = Held(*(str(line.record.get(name, "")) for name in Held._fields))
            entries.append(entry)
            split: Split = "test" if entry.split == "test" else "validation"
            for found, name in ((groups, entry.group), (tasks, entry.task)):
                if name and found.get(name) != "test":
                    found[name] = split
        self._read, self._entries = Registered(stamp, groups, tasks), entries
        return self._read

    def split_of(self, task: Task) -> Split:
        """Return the split that a task belongs to: the strictest that it or its group has here or
        is registered with."""
        held = self.read().split(task.id, task.group)
        return "test" if "test" in (held, task.split) else held or task.split

    def usable(self, domain: Domain, split: Split) -> tuple[list[Task], list[Task]]:
        """Return (the domain's tasks of a split that may be used as such, those that are held out
        as another split), without those for which this machine lacks something."""
        found: tuple[list[Task], list[Task]] = ([], [])
        without = lacking(domain, split)
        for task in domain.tasks(split):
            if task.id not in without:
                found[self.split_of(task) != split].append(task)
        return found

    def refuse_empty(self, domain: Domain, split: Split) -> BadInput:
        """Return the error for a domain of which no task of a split may be used."""
        if closed := len(self.usable(domain, split)[1]):
            return BadInput(
                f"all {closed} {split} tasks of {domain.name} are held out: {self.path} has their"
                " groups as validation or test",
                fix=(
                    "add tasks of other groups (recreate tasks make), or work in another workspace"
                    " (recreate init)"
                ),
                code="held-out",
            )
        if without := lacking(domain, split):
            return BadInput(
                f"none of the {len(without)} {split} tasks of {domain.name} can be attempted here: "
                f"{'; '.join(dict.fromkeys(without.values()))}",
                fix="install what is not here, or take tasks that need nothing of it",
                code="lacking",
            )
        return BadInput(
            f"domain {domain.name} has no {split} tasks",
            fix=(
                f"recreate tasks list {domain.name} shows what there is; recreate tasks make adds"
                " some"
            ),
            code="no-tasks",
        )


class Attempted(NamedTuple):
    """What memory knows of a task that was attempted. says: its prompt and its right answer, as
    agents/guards/leaks.py reads them, as JSON; answer: that, casefolded, where it is short."""

    task: Task
    says: str
    answer: str


class Spoken:
    """What is known here of held-out tasks, to find the lessons that speak of one. attempts: of
    tasks that are held out and of train tasks, by which wording that many tasks share is known.
    """

    def __init__(self, held: Iterable[Held], attempts: Sequence[Attempted]) -> None:
        self._attempts = attempts
        there = {a.task.id for a in attempts}
        named = dict.fromkeys(h for h in held if (h.task or h.group) not in there)
        more = (make_task(h.task or h.group, h.domain, h.group, "test") for h in named)
        self._tasks = [*(a.task for a in attempts), *(task for task in more if task.id)]

    def find(self, lessons: Mapping[str, tuple[str, str]]) -> dict[str, bool]:
        """Return of each lesson (its text and domain, or `general` of all domains) whether it names
        a held-out task, its group or its answer, or quotes it. All are as quick as one.

        Beyond what no lesson may say of a task (agents/guards/leaks.py): the end of its id, and a
        short answer.
        """
        from recreate.agents.guards.leaks import HELD, Scanner, asked_words
        from recreate.agents.guards.names import WORDS, Whole

        asked = asked_words(text for text, _ in lessons.values())
        says = {a.task.id: a.says for a in self._attempts}
        scanner = Scanner(self._tasks, says=says, asked=asked)

        def find_any(names: Iterable[str]) -> Whole:
            return Whole(name for name in names if asked >= {*WORDS.findall(name)})

        domains = {domain for _, domain in lessons.values()}
        ends = {domain: find_any(self._ends(domain)) for domain in domains}
        answers = find_any(self._short_answers())
        return {
            key: any(HELD in why for why in scanner.says(text))
            or any(any(each.find(text.casefold(), r"\w")) for each in (ends[domain], answers))
            for key, (text, domain) in lessons.items()
        }

    def _ends(self, domain: str) -> Iterator[str]:
        """Yield the ends of ids of a domain's held-out tasks, but of plain words and numbers."""
        for task in self._tasks:
            if task.split != "train" and domain in (task.domain, "general"):
                end = task.id.rpartition(":")[2]
                if re.search(r"[A-Za-z]", end) and re.search(r"\d", end):
                    yield end.casefold()

    def _short_answers(self) -> set[str]:
        """Right answers to held-out tasks that are no plain word, and right for no train task."""
        of: dict[bool, set[str]] = {True: set(), False: set()}
        for a in self._attempts:
            of[a.task.split == "train"].add(a.answer)
        return {a for a in of[False] - of[True] if len(a) >= 4 and not a.isalpha()}


def read_attempt(e: Experience, task: Task) -> Attempted:
    """Return what an attempt tells of its task."""
    from recreate.agents.guards.leaks import read_task

    answer = e.trace.answer if e.grade.passed else ""
    short = answer.strip().casefold()
    says = read_task(task.model_copy(update={"prompt": e.prompt}), [answer])
    return Attempted(task, json.dumps(says, default=list), short if len(short) <= SHORT else "")


def edition() -> str:
    """Return what changes with the rules by which a lesson is found to speak of a task."""
    from recreate.agents.guards.leaks import edition_of_guards

    return digest([edition_of_guards(), Path(__file__).read_text("utf-8")])


def make_task(id: str, domain: str, group: str, split: Split) -> Task:
    """Return a task by what a list has of it, unchecked: there may be many."""
    return Task.model_construct(id=id, domain=domain, prompt="", split=split, group=group)


def lacking(domain: Domain, split: Split) -> dict[str, str]:
    """Return task -> what this machine lacks to attempt it, of those tasks of a split for which it
    lacks something."""
    asked = extras(domain)
    return {task.id: why for task in domain.tasks(split) if (why := asked.lacking(task))}
