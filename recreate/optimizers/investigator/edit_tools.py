"""How an optimizer edits its private copy: one tool for each kind of change, checked when it is
made.

An edit that does not apply, breaks the agent, leaks a task or cites what was not read is answered
with why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from recreate.agents.lesson import lesson_file, read_lesson
from recreate.api.shapes import JsonMap
from recreate.api.types import Edit, Evidence, Origin
from recreate.optimizers.investigator.conversation import Tool, Wrong, number, text
from recreate.optimizers.investigator.draft import Draft, lesson_of

Cite = Callable[[JsonMap], tuple[Evidence, ...]]
"""The evidence that an edit's arguments name. Raises Wrong."""
PATHS = (
    "system.md, workflow.md, observation.md, format.md, agent.toml, tools/NAME.py or memory/NAME.md"
)


class Writer:
    """`citing` are the arguments that name evidence, and `cite` reads them."""

    def __init__(
        self,
        draft: Draft,
        cite: Cite,
        citing: Mapping[str, JsonMap],
        optional: Sequence[str],
        origin: Origin = "experience",
    ) -> None:
        self.draft = draft
        self.origin = origin
        self.cite = cite
        self.citing = citing
        self.optional = tuple(optional)

    def tools(self) -> list[Tool]:
        """Return the tools edit, write, lesson, delete and undo."""

        def change(name: str, help: str, run: Callable[..., str], /, **parameters: JsonMap) -> Tool:
            about = {"reason": text("why this helps on other tasks, in a sentence"), **self.citing}
            return Tool(name, "edit", help, run, {**parameters, **about}, self.optional)

        agent = self.draft.current.agent
        paths = f"a file that matches {', '.join(agent.texts)}" if agent.foreign else PATHS
        found = [
            change(
                "edit",
                "Replace text in a file, or add to it. `old` is replaced by `new` and must be in"
                " the file exactly once, to the letter; an empty `old` adds `new` at the end.",
                self.edit,
                path=text(paths),
                old=text("what is replaced"),
                new=text("what replaces it"),
            ),
            change(
                "write",
                "Write a whole file, a new one or one in place of what is there: one call where"
                " many `edit`s would be needed. A tool is an executable script in one file, whose"
                " docstring is the help that the agent sees; `--help` must end at once, where there"
                " is only the standard library: import what else the agent's environment has when"
                " it is used. `.recreate/attempt.json` tells it the task's words (`prompt`) and"
                " which sample this is. The agent only uses what its prompt or agent.toml tells"
                " it of.",
                self.write,
                path=text(paths),
                text=text(
                    "all of the file; a tool is Python where its name ends in .py, else begin"
                    " with #!"
                ),
            ),
            change(
                "lesson",
                "Add a lesson to the agent's memory, or change one: a title and a few sentences,"
                " true for any task.",
                self.lesson,
                title=text("a short title"),
                text=text("the advice"),
                replaces=text("the name of the lesson that this one takes the place of"),
            ),
            change(
                "delete",
                (
                    "Delete a file that does not help."
                    if agent.foreign
                    else "Delete a tool or a lesson that does not help."
                ),
                self.delete,
                path=text(paths if agent.foreign else "tools/NAME.py or memory/NAME.md"),
            ),
            Tool(
                "undo",
                "edit",
                "Take back one of your edits.",
                self.undo,
                {"edit": number("its number, from 1")},
            ),
        ]
        return [tool for tool in found if tool.name != "lesson"] if agent.foreign else found

    def edit(self, path: str, old: str, new: str, reason: str, **citing: Any) -> str:
        exists = path in self.draft.current.files
        if exists and not old and not new.startswith("\n"):
            text = self.draft.current.files[path]
            new = new if text.endswith("\n") or not text else "\n" + new
        if not new.endswith("\n") and not old:
            new += "\n"
        return self._add(
            Edit(path=path, old=old, new=new, reason=reason, evidence=self.cite(citing))
        )

    def write(self, path: str, text: str, reason: str, **citing: Any) -> str:
        if not text.strip():
            raise Wrong(
                "there is no text: give all of the file; `delete` removes a tool or a lesson"
            )
        old = self.draft.current.files.get(path, "")
        whole = text.strip("\n") + "\n"
        made = self._add(
            Edit(path=path, old=old, new=whole, reason=reason, evidence=self.cite(citing))
        )
        tool = path.startswith("tools/")
        return (
            f"{made} Try it with `try_tool`, and see that the agent is told of it."
            if tool
            else made
        )

    def lesson(self, title: str, text: str, reason: str, replaces: str = "", **citing: Any) -> str:
        evidence = self.cite(citing)
        born_of = list(dict.fromkeys(e.experience for e in evidence))
        if not replaces:
            path, whole = lesson_file(title, text, sorted(born_of))
            return self._add(Edit(path=path, new=whole, reason=reason, evidence=evidence))
        there = lesson_of(self.draft.current, replaces)
        if there is None:
            names = ", ".join(x.id for x in self.draft.current.lessons) or "none"
            raise Wrong(f"there is no lesson {replaces!r}; there are: {names}")
        old = self.draft.current.files[there]
        before = read_lesson(PurePosixPath(there).stem, old).born_of
        _, whole = lesson_file(title, text, sorted({*before, *born_of}))
        return self._add(Edit(path=there, old=old, new=whole, reason=reason, evidence=evidence))

    def delete(self, path: str, reason: str, **citing: Any) -> str:
        if not (path.startswith(("tools/", "memory/")) or self.draft.current.agent.declares(path)):
            raise Wrong("only tools and lessons can be deleted: replace the text of other files")
        old = self.draft.current.files.get(path)
        if old is None:
            raise Wrong(
                f"there is no file {path!r}; there are:"
                f" {', '.join(sorted(self.draft.current.files))}"
            )
        return self._add(
            Edit(path=path, old=old, new="", reason=reason, evidence=self.cite(citing))
        )

    def undo(self, edit: int) -> str:
        if edit not in self.draft.numbers:
            count = len(self.draft.edits)
            names = ", ".join(map(str, self.draft.numbers))
            raise Wrong(
                f"you have {count} edits: "
                + (f"name one of {names}" if count else "none to take back")
            )
        if faults := self.draft.undo(edit):
            raise Wrong("; ".join(faults))
        return f"taken back; {len(self.draft.edits)} edits are left"

    def _add(self, edit: Edit) -> str:
        edit = edit.model_copy(update={"origin": self.origin})
        if edit.new.count("\b") > edit.old.count("\b"):
            at = edit.new.rindex("\b")
            raise Wrong(
                f"not made: {edit.path} would hold a backspace, in"
                f" {edit.new[max(0, at - 20) : at + 20]!r}: JSON reads \\b so. Write \\\\b for the"
                " two characters of a pattern"
            )
        # which number it has in a list of its own says nothing here
        if faults := self.draft.add(edit):
            raise Wrong(
                "not made: "
                + "; ".join(f.replace(f"edit 1 ({edit.path})", edit.path) for f in faults)
            )
        return f"edit {self.draft.numbers[-1]} is made: {edit.path}."
