"""Is an imported task one that this workspace knows, and one that nobody may learn from?

A task is known by its id, by the end of its id, or by its text: the prompt of the domain's task
stands in what the imported agent was asked, whatever template is around it; or all that agent was
asked stands in the prompts of one group of tasks alone, from the start of a paragraph on, as a
row's question does before how to hand in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recreate.api.types import Experience, Split, Task
from recreate.memory.held_out import HeldOut

SHINGLE = 6
"""Words in a row by which a prompt is looked up in a longer text; a shorter prompt must be the
whole of it."""


class Known(NamedTuple):
    """What a trajectory belongs to. task: of the domain, None when only the registry knows it."""

    task: Task | None
    split: Split
    why: str


class Overlap:
    """The tasks of a domain, and the workspace's held-out registry."""

    def __init__(self, tasks: Sequence[Task], held: HeldOut) -> None:
        self._names: dict[str, list[Task]] = {}
        self._shingles: dict[tuple[str, ...], list[tuple[Task, tuple[str, ...]]]] = {}
        self._whole: dict[tuple[str, ...], list[Task]] = {}
        self._paragraphs: dict[tuple[str, ...], list[tuple[Task, tuple[str, ...], int]]] = {}
        # what is held out comes first: when two tasks share a text, the closed one decides
        for task in sorted(tasks, key=lambda t: t.split == "train"):
            for name in _names(task):
                self._names.setdefault(name, []).append(task)
            words = _words(task.prompt)
            self._whole.setdefault(words, []).append(task)
            if len(words) >= SHINGLE:
                self._shingles.setdefault(words[:SHINGLE], []).append((task, words))
            for at in _paragraphs(task.prompt):
                self._paragraphs.setdefault(words[at : at + SHINGLE], []).append((task, words, at))
        self.held = held.read()  # raises for a damaged line

    def find(self, names: Sequence[str], texts: Sequence[str]) -> Known | None:
        """Return what a trajectory belongs to, by its task's names and the texts that its agent was
        asked with; None when nobody here has met its task.

        One that names a train task, and was asked what a held-out one asks, belongs to that: what
        it holds counts, not what it is called.
        """
        named = self._find_by_name(names)
        if named is not None and named.split != "train":
            return named
        asked = self._find_by_texts(texts)
        if named is not None or asked is not None:
            return (
                asked if named is None or (asked is not None and asked.split != "train") else named
            )
        for name in names:
            if split := self.held_split(name, name):
                return Known(None, split, f"the task {name} is held out in this workspace")
        return None

    def _find_by_name(self, names: Sequence[str]) -> Known | None:
        for name in names:
            same = self._names.get(name, []) if name else []
            if len({t.id for t in same}) == 1:
                return self._of(same[0], f"its task is {same[0].id}")
        return None

    def _find_by_texts(self, texts: Sequence[str]) -> Known | None:
        known = None
        for text in dict.fromkeys(texts):
            task = self._by_text(text)
            if task is not None:
                known = self._of(task, f"it was asked what {task.id} asks")
                if known.split != "train":
                    break
        return known

    def split_of(self, e: Experience) -> Split:
        """Return the split that an experience belongs to by what is known now; its own when nobody
        says otherwise."""
        first = e.trace.steps[0].observation if e.trace.steps else ""
        known = self.find([e.task], [e.prompt, first])
        if known and known.split != "train":
            return known.split
        return self.held_split(e.task, e.group) or e.split

    def held_split(self, task: str, group: str) -> Split | None:
        """Return the split of a task or group that the registry holds out."""
        return self.held.split(task, group)

    def _of(self, task: Task, why: str) -> Known:
        return Known(task, self.held_split(task.id, task.group) or task.split, why)

    def _by_text(self, text: str) -> Task | None:
        words = _words(text)
        if not words:
            return None
        if found := self._whole.get(words):
            return found[0]
        best: Task | None = None
        for at in range(len(words) - SHINGLE + 1):
            for task, prompt in self._shingles.get(words[at : at + SHINGLE], ()):
                if words[at : at + len(prompt)] == prompt and (
                    best is None or task.split != "train"
                ):
                    best = task
        return best or self._within(words)

    def _within(self, words: tuple[str, ...]) -> Task | None:
        """Return the task whose prompt holds all these words; None where tasks of several groups
        do, as of a preamble."""
        if len(words) < SHINGLE:
            return None
        found = self._paragraphs.get(words[:SHINGLE], ())
        near = [task for task, prompt, at in found if prompt[at : at + len(words)] == words]
        return near[0] if len({t.group for t in near}) == 1 else None


def _names(task: Task) -> Iterator[str]:
    """Yield a task's id, and its end: what the data it was made from calls it. A bare number names
    nothing."""
    yield task.id
    inner = task.id.partition(":")[2]
    for name in dict.fromkeys((inner, inner.rpartition(":")[2])):
        if name and not name.isdigit():
            yield name


def _paragraphs(prompt: str) -> Iterator[int]:
    """Yield at which of the prompt's words each paragraph starts."""
    at = 0
    for part in prompt.split("\n\n"):
        if words := len(part.split()):
            yield at
            at += words


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.casefold().split())
