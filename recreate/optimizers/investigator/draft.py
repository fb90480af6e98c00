"""A private copy of a scaffold under edit: every edit is checked when it is made, and can be taken
back.

`merge` puts an edit that was made of the same parent beside those that are already here: where it
does not apply any more, the lines of both are kept (`git merge-file --union`), so that what was
learnt in parallel survives.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import tempfile
from pathlib import Path, PurePosixPath

from recreate.agents import scaffold as scaffolds
from recreate.agents.callers import uncalled
from recreate.agents.lesson import read_lesson
from recreate.agents.scaffold import BadEdit, Scaffold
from recreate.api.types import Edit
from recreate.optimizers.context import OptimizerContext


class Draft:
    """Starts as `parent`; `edits` made in order give `current`. None of it is seen by anybody
    else."""

    def __init__(self, parent: Scaffold, context: OptimizerContext) -> None:
        self.parent = parent
        self.current = parent
        self.edits: list[Edit] = []
        self.numbers: list[int] = []
        """What each edit is called, from 1: none takes the number of one that was taken back."""
        self.context = context
        self._made = 0

    def add(self, edit: Edit) -> list[str]:
        """Make an edit; [] or why it was not made."""
        faults = self.context.validate(self.current, [edit])
        if faults:
            return faults
        child = scaffolds.apply(self.current, [edit])
        tool = edit.path.startswith("tools/") and edit.path in child.files
        # the parent's tools start: it was checked
        if tool and (broken := self.context.smoke_test(child)):
            return broken
        self.current = child
        self.edits.append(edit)
        self._made += 1
        self.numbers.append(self._made)
        return []

    def undo(self, number: int) -> list[str]:
        """Take the edit of a number back; [] or why the later ones cannot stand without it."""
        at = self.numbers.index(number)
        left = self.edits[:at] + self.edits[at + 1 :]
        try:
            self.current = scaffolds.apply(self.parent, left)
        except BadEdit as e:
            return [f"a later edit builds on it: {e.message}; take that one back first"]
        self.edits = left
        del self.numbers[at]
        return []

    def join(self, number: int, other: Edit) -> None:
        """Let the edit of a number stand for another one that says the same: it cites what both
        cite."""
        at = self.numbers.index(number)
        edit = self.edits[at]
        evidence = tuple(dict.fromkeys(edit.evidence + other.evidence))
        new = edit.new
        if edit.path.startswith("memory/") and (
            found := re.search(r"^born_of: .*$", new, re.MULTILINE)
        ):
            new = new.replace(
                found[0], "born_of: " + ", ".join(sorted({e.experience for e in evidence}))
            )
        self.edits[at] = edit.model_copy(update={"evidence": evidence, "new": new})
        self.current = scaffolds.apply(self.parent, self.edits)

    def merge(self, edit: Edit, based_on: Scaffold) -> list[str]:
        """Make an edit of a copy that stood at `based_on`; [] or why nothing of it could be
        kept."""
        same = self.current.files.get(edit.path) == based_on.files.get(edit.path)
        if same:
            return self.add(edit)
        try:
            wanted = scaffolds.apply(based_on, [edit]).files.get(edit.path)
        except BadEdit as e:
            return [e.message]
        here = self.current.files.get(edit.path)
        if here == wanted:
            return []
        if here is None or wanted is None:
            return [f"{edit.path}: one edit deletes it, another changes it"]
        if edit.old and here.count(edit.old) == 1:
            return self.add(edit)
        both = union(based_on.files.get(edit.path, ""), here, wanted)
        faults = self.add(edit.model_copy(update={"old": here, "new": both}))
        if faults and edit.path in self.current.tools.values():
            return self._put_beside(edit, wanted)
        return faults

    def _put_beside(self, edit: Edit, wanted: str) -> list[str]:
        """Make the second of two versions of a tool a tool of its own, where the agent is told of
        it; where only its name is called there is one tool, and it is the first. [] or why not."""
        second = edit.model_copy(
            update={"path": self._free_name(edit.path), "old": "", "new": wanted}
        )
        named = PurePosixPath(edit.path).stem in self.current.agent.uses
        if named or second.path in uncalled(scaffolds.apply(self.current, [second])):
            return [
                f"{edit.path}: another edit rewrote it, and the two cannot be joined; nothing would"
                " call a second tool beside it, so the first is the one in use"
            ]
        return self.add(second)

    def _free_name(self, path: str) -> str:
        stem = PurePosixPath(path)
        count = 2
        while (name := f"tools/{stem.stem}_{count}{stem.suffix}") in self.current.files:
            count += 1
        return name


def union(base: str, ours: str, theirs: str) -> str:
    """Both changes of `base`, line by line; where they touch the same lines, the lines of both,
    ours first."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
            path = Path(folder) / name
            path.write_bytes(text.encode("utf-8"))
            names.append(str(path))
        made = subprocess.run(
            ["git", "merge-file", "-p", "--union", *names], capture_output=True, check=False
        )
    return made.stdout.decode("utf-8")


def tell_edit(edit: Edit) -> str:
    """Return an edit as a reader sees it: what goes, what comes, why, and what it cites."""
    cited = ", ".join(f"{c.experience} step {c.step}" for c in edit.evidence) or "nothing"
    lines = difflib.unified_diff(edit.old.splitlines(), edit.new.splitlines(), n=3, lineterm="")
    changed = "\n".join(line for line in lines if not line.startswith(("---", "+++")))
    return f"{edit.path}\n{changed}\nreason: {edit.reason}\ncites: {cited}"


def lesson_of(scaffold: Scaffold, name: str) -> str | None:
    """Return the path of a lesson by its file name, its id or its title; None when there is
    none."""
    for path, text in scaffold.files.items():
        if path.startswith("memory/"):
            lesson = read_lesson(PurePosixPath(path).stem, text)
            if name in (path, PurePosixPath(path).name, lesson.id, lesson.title):
                return path
    return None
