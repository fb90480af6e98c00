"""Distilling: one agent turns the ideas of a batch into one update, reading the evidence behind
each.

It takes, merges, generalises, narrows, rejects and deletes. What it neither used nor rejected is
taken as it was: nothing is lost in the merge that was not turned down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from recreate.agents import scaffold as scaffolds
from recreate.agents.scaffold import Scaffold
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Edit, Evidence, Experience, Study
from recreate.optimizers.context import OptimizerContext
from recreate.optimizers.investigator.conversation import Tool, Wrong, text
from recreate.optimizers.investigator.draft import Draft, tell_edit
from recreate.optimizers.investigator.edit_tools import Writer
from recreate.optimizers.investigator.read_tools import PART, Reader, outcome, tell_agent, tell_part
from recreate.optimizers.investigator.run_tools import Environments, Rehearsal
from recreate.optimizers.investigator.study import converse

IDEAS = {
    "type": "array",
    "items": {"type": "string"},
    "description": (
        'the ideas this comes from, e.g. ["1.1", "3.2"]: their evidence becomes its evidence'
    ),
}


class Ideas:
    """The edits of a batch's studies, each with an address `STUDY.EDIT` from 1, and what became of
    it."""

    def __init__(self, parent: Scaffold, studies: Sequence[Study]) -> None:
        self.studies = list(studies)
        self.edits: dict[str, Edit] = {}
        self.based: dict[str, Scaffold] = {}
        self.used: set[str] = set()
        self.rejected: dict[str, str] = {}
        self.sources: list[list[str]] = []
        """For each edit of the draft, in order, the ideas it comes from."""
        for number, study in enumerate(self.studies, 1):
            current = parent
            for part, edit in enumerate(study.edits, 1):
                self.edits[f"{number}.{part}"] = edit
                self.based[f"{number}.{part}"] = current
                current = scaffolds.apply(current, [edit])

    @property
    def undecided(self) -> list[str]:
        """Those about which nothing was decided."""
        return [name for name in self.edits if name not in self.used and name not in self.rejected]

    def find_ideas(self, name: str) -> list[str]:
        """Return the addresses that `1` (a whole study) or `1.2` mean. Raises Wrong."""
        found = [each for each in self.edits if each == name or each.partition(".")[0] == name]
        if not found:
            raise Wrong(f"there is no idea {name!r}; there are: {', '.join(self.edits)}")
        return found

    def evidence(self, names: Sequence[str]) -> tuple[Evidence, ...]:
        """Return the evidence of several ideas together."""
        return tuple(dict.fromkeys(e for name in names for e in self.edits[name].evidence))

    def tell(self, name: str, whole: bool = True) -> str:
        """Return one study's conclusion and its edits, or one edit of it; not `whole`: only which
        files, and why."""
        number = int(name.partition(".")[0])
        study = self.studies[number - 1]
        lines = [
            f"idea {number}: {study.cause or 'an edit'}; experience {study.experience}",
            study.summary,
        ]
        for each in self.find_ideas(name):
            state = "used" if each in self.used else "rejected" if each in self.rejected else "open"
            edit = self.edits[each]
            lines.append(
                f"\n{each} ({state}): {tell_edit(edit)}"
                if whole
                else f"{each} {edit.path}: {edit.reason}"
            )
        return "\n".join(lines)


def merged(context: OptimizerContext, parent: Scaffold, studies: Sequence[Study]) -> list[Edit]:
    """Return all edits of the studies side by side, without a model: what is done when nobody
    distils."""
    ideas = Ideas(parent, studies)
    draft = Draft(parent, context)
    take_left(context, ideas, draft)
    return draft.edits


def take_left(context: OptimizerContext, ideas: Ideas, draft: Draft) -> None:
    """Take what is open as it is; what cannot be kept is said."""
    for name in ideas.undecided:
        if faults := put_idea(ideas, draft, name):
            context.note(f"idea {name} could not be kept beside the others: {'; '.join(faults)}")


def put_idea(ideas: Ideas, draft: Draft, name: str) -> list[str]:
    """Put one idea into the draft as it is: beside what is there, or joined with the same edit. []
    or why not."""
    edit = ideas.edits[name]
    for at, e in enumerate(draft.edits):
        if scaffolds.same_edit(e, edit):
            draft.join(draft.numbers[at], edit)
            ideas.sources[at].append(name)
            break
    else:
        before = len(draft.edits)
        if faults := draft.merge(edit, ideas.based[name]):
            return faults
        ideas.sources += [[name]] * (len(draft.edits) - before)
    ideas.used.add(name)
    ideas.rejected.pop(name, None)
    return []


class Deciding:
    """The tools with which ideas are looked at, taken, turned down or written anew, and the update
    is handed in."""

    def __init__(
        self, context: OptimizerContext, ideas: Ideas, draft: Draft, batch: Sequence[Experience]
    ) -> None:
        self.context = context
        self.ideas = ideas
        self.draft = draft
        self.writer = Writer(draft, self._cite, {"ideas": IDEAS}, ())
        self.result: JsonDict = {}
        """What was handed in; empty until then."""
        self._cited: list[str] = []
        self._warned = False

    def editing(self) -> list[Tool]:
        """Return the tools edit, write, lesson, delete and undo."""
        return [self._noting(tool) for tool in self.writer.tools()]

    def tools(self) -> list[Tool]:
        """Return the tools idea, take, reject and finish."""
        name = {"name": text("an idea's number: 2 for all of study 2, 2.1 for its first edit")}
        why = {"why": text("the reason, which is kept")}
        said = {"summary": text("what the update does, and why so")}
        shown = "One study's conclusion with its edits, or one edit, as a diff."
        return [
            Tool("idea", "inspect", shown, self.idea, {**name, "part": PART}),
            Tool("take", "decide", "Put an idea into the update as it is.", self.take, name),
            Tool("reject", "decide", "Turn an idea down.", self.reject, {**name, **why}),
            Tool(
                "finish",
                "decide",
                "Hand the update in.",
                self.finish,
                said,
            ),
        ]

    def idea(self, name: str, part: int = 1) -> str:
        self.ideas.find_ideas(name)
        return tell_part(self.ideas.tell(name), part, f"idea {name}")

    def take(self, name: str) -> str:
        taken = []
        for each in self.ideas.find_ideas(name):
            if each in self.ideas.used:
                continue
            if faults := put_idea(self.ideas, self.draft, each):
                raise Wrong(
                    f"{each} cannot be taken as it is: {'; '.join(faults)}; write it anew with"
                    " `edit`"
                )
            taken.append(f"{each} is taken")
        return "; ".join(taken) or "it was taken before"

    def reject(self, name: str, why: str) -> str:
        if not why.strip():
            raise Wrong("say in `why` what speaks against it: it is kept beside the idea")
        names = [each for each in self.ideas.find_ideas(name) if each not in self.ideas.used]
        if not names:
            raise Wrong(f"{name} is in use: `undo` its edit first")
        self.ideas.rejected.update(dict.fromkeys(names, why))
        return f"rejected: {', '.join(names)}"

    def finish(self, summary: str) -> str:
        if self.ideas.undecided and not self._warned:
            self._warned = True
            raise Wrong(
                f"nothing was decided on {', '.join(self.ideas.undecided)}: take, merge or reject"
                " them. What is open at the next `finish` is taken as it is."
            )
        take_left(self.context, self.ideas, self.draft)
        self.result.update(
            summary=summary,
            rejected=tuple(self.ideas.rejected.items()),
            edits=tuple(self.draft.edits),
        )
        return "handed in"

    def _cite(self, given: JsonMap) -> tuple[Evidence, ...]:
        names = [
            each for name in given.get("ideas", ()) for each in self.ideas.find_ideas(str(name))
        ]
        if not names:
            raise Wrong(f"name the `ideas` that this comes from, of: {', '.join(self.ideas.edits)}")
        self._cited = names
        return self.ideas.evidence(names)

    def _noting(self, tool: Tool) -> Tool:
        """Return a tool of the writer that notes which ideas its edit has used, or gives them free
        again."""
        ideas = self.ideas

        def run(**arguments: Any) -> str:
            self._cited = []
            numbers = [*self.draft.numbers]
            answer = tool.run(**arguments)
            if tool.name == "undo":
                ideas.used.difference_update(ideas.sources.pop(numbers.index(arguments["edit"])))
                return f"{answer}; open ideas: {', '.join(ideas.undecided) or 'none'}"
            ideas.sources.append(self._cited)
            ideas.used.update(self._cited)
            for each in self._cited:
                ideas.rejected.pop(each, None)
            return answer

        return replace(tool, run=run, also_optional=tool.optional)


def distil(
    context: OptimizerContext,
    parent: Scaffold,
    studies: Sequence[Study],
    batch: Sequence[Experience],
) -> list[Edit]:
    """Return one coherent update of the studies' edits. A distilling that does not finish counts as
    none: all are merged.

    Raises OutOfBudget, Refused, Interrupted.
    """
    blank = Study(id=context.thread("distil"), kind="distil", scaffold=parent.digest)
    ideas = Ideas(parent, studies)
    draft = Draft(parent, context)
    reader = Reader(context, draft, None, batch)
    for edit in ideas.edits.values():
        reader.read |= set(edit.evidence)  # the study that cites it has read it
    deciding = Deciding(context, ideas, draft, batch)
    with Environments(context, reader, draft) as sandboxes:
        rehearsal = Rehearsal(context, reader, draft)
        done = converse(
            context,
            blank,
            draft,
            [
                *reader.tools(),
                *sandboxes.tools(),
                *deciding.editing(),
                *rehearsal.tools(),
                *deciding.tools(),
            ],
            deciding.result,
            agent=tell_agent(parent.agent),
            batch=[outcome(e) for e in batch],
            ideas=[
                ideas.tell(str(n), whole=False)
                for n, study in enumerate(ideas.studies, 1)
                if study.edits
            ],
            unchanged=[
                f"{s.experience}: {s.summary}" for s in ideas.studies if not s.edits and s.summary
            ],
        )
    if done.ending != "finished":
        context.note(
            f"distilling did not finish ({done.ending} {done.why}): all ideas are kept as they were"
        )
        return merged(context, parent, studies)
    for line in tell_rejected([(name, ideas.edits[name].path, why) for name, why in done.rejected]):
        context.note(line)
    return list(done.edits)


def tell_rejected(rejected: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each reason. rejected: (idea, its file, why)."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for name, path, why in rejected:
        reasons.setdefault(why, {}).setdefault(path, []).append(name)
    each = {
        why: "; ".join(f"{', '.join(names)} ({path})" for path, names in of.items())
        for why, of in reasons.items()
    }
    return [f"rejected: {ideas}: {why}" for why, ideas in each.items()]
