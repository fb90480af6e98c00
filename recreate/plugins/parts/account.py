"""In how many attempts a part was shown, read or run, by their stored steps.

    shown   what it says stands in what the model was sent; of a tool: its name does
    read    its file was opened by a command; of a lesson: memory answered with it
    run     a tool: the model called it, or a hook of agent.toml did

`before` has a step of its own. `done` runs after each action, `choose` and `vote` once a try where
there are several: that they ran follows from the steps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from recreate.agents.config import AgentConfig
from recreate.agents.functions import function_name
from recreate.agents.history import History
from recreate.agents.request import Recorded
from recreate.agents.scaffold import Scaffold
from recreate.agents.trajectory import tools
from recreate.api.errors import BadInput, Fault
from recreate.api.shapes import JsonDict
from recreate.api.types import Experience, Revision, Step
from recreate.plugins.parts.changed import NOTES, ChangedPart, list_changed, plain
from recreate.runs.reader import Run

RECORD = "parts"
"""The kind of journal record that says what became of a revision's parts."""
NEEDED = 3
"""Of a lesson or an example so many pieces, the longest, stand in what was sent where it was
shown."""
_ACTED = ("action", "lookahead", "observe")


def tell_parts(run: Run) -> dict[str, list[JsonDict]]:
    """Return revision -> what became of its parts: as the build wrote it down at its end, else by
    the traces that are there."""
    told = {record["revision"]: list(record["parts"]) for record in run.records(RECORD)}
    missing = [revision for revision in run.revisions() if revision.id not in told]
    return told | dict(account_for(run, missing))


def account_for(
    run: Run, revisions: Sequence[Revision], alone: Mapping[tuple[str, str], JsonDict] | None = None
) -> Iterator[tuple[str, list[JsonDict]]]:
    """Yield (revision, its parts). alone: (revision, path) -> what the tool answers without the
    model."""
    made = dict[str, list[str]]()
    for record in run.records("experience"):
        made.setdefault(record["scaffold"], []).append(record["attempt"])
    known = alone or {}
    for revision in revisions:
        attempts = tuple(made.get(revision.id, ()))
        tallies = count_parts(run.folder, revision.parent, revision.id, attempts)
        yield revision.id, [t.record(known.get((revision.id, t.part.path))) for t in tallies]


@lru_cache(maxsize=256)  # a page of a run that goes on is made again and again
def count_parts(
    folder: Path, parent: str, id: str, attempts: tuple[str, ...]
) -> tuple[PartTally, ...]:
    """Return what became of each part of a revision in these attempts."""
    pair = read_pair(folder, parent, id)
    if pair is None:
        return ()
    run = Run(folder)
    tallies = tuple(PartTally(part, pair[1].agent) for part in list_changed(*pair))
    for attempt in attempts:
        with suppress(BadInput):  # a damaged attempt says nothing
            seen = SeenAttempt.of(run.experience(attempt))
            for tally in tallies:
                tally.take(seen)
    return tallies


def read_pair(folder: Path, parent: str, id: str) -> tuple[Scaffold, Scaffold] | None:
    """Return the parent's files and the revision's; None where the lineage has lost them, and where
    an agent.toml of before cannot be read here."""
    history = History(folder / "scaffold.git")
    with suppress(BadInput, Fault):
        pair = history.read(parent), history.read(id)
        return pair if all(each.agent for each in pair) else None
    return None


@dataclass(frozen=True)
class SeenAttempt:
    """An attempt as it is looked through. sent: all that the model was sent, prompts: of that how
    it began; None where the steps do not say."""

    experience: Experience
    sent: str | None
    prompts: str | None

    @classmethod
    def of(cls, experience: Experience) -> SeenAttempt:
        steps = experience.trace.steps
        recorded = Recorded(steps)
        texts = [*map(_text_of, recorded.messages)]
        begun = [step.step for step in steps if step.step in recorded]
        if not begun:
            return cls(experience, None, None)
        first = recorded[begun[0]]
        names = [
            str(tool.get("function", {}).get("name")) for tool in first.params.get("tools", ())
        ]
        prompts = [*map(_text_of, first.messages), *names]
        return cls(experience, plain("\n".join([*texts, *names])), plain("\n".join(prompts)))

    @property
    def passed(self) -> bool:
        return self.experience.grade.passed

    @property
    def steps(self) -> Sequence[Step]:
        return self.experience.trace.steps


def _text_of(message: Any) -> str:
    """Return the texts of a message."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    return content if isinstance(content, str) else ""


@dataclass
class Count:
    """Attempts of which something holds, and how many of them passed."""

    attempts: int = 0
    passed: int = 0

    def take(self, passed: bool) -> None:
        self.attempts += 1
        self.passed += passed

    def record(self) -> JsonDict:
        failed = self.attempts - self.passed
        return {"attempts": self.attempts, "passed": self.passed, "failed": failed}

    def tell(self, word: str, of: int) -> str:
        if not self.attempts:
            return f"{word} in none"
        how = f" ({self.passed} passed, {self.attempts - self.passed} failed)"
        return f"{word} in {'all ' * (self.attempts == of)}{self.attempts}{how}"


@dataclass
class PartTally:
    """What became of one part, over the attempts that are taken."""

    part: ChangedPart
    agent: AgentConfig
    made: Count = field(default_factory=Count)
    unknown: int = 0
    """Attempts whose steps do not say what the model was sent."""
    shown: Count = field(default_factory=Count)
    read: Count = field(default_factory=Count)
    ran: Count = field(default_factory=Count)
    callers: Counter[str] = field(default_factory=Counter)

    def take(self, attempt: SeenAttempt) -> None:
        """Take an attempt into account."""
        part = self.part
        self.made.take(attempt.passed)
        if attempt.sent is None:
            self.unknown += 1
        elif is_shown(part, attempt):
            self.shown.take(attempt.passed)
        if part.kind == "tool" and any(opens(part.name, step) for step in attempt.steps):
            self.read.take(attempt.passed)
        if part.kind == "lesson" and any(recalls(part.name, step) for step in attempt.steps):
            self.read.take(attempt.passed)
        if by := self.callers_in(attempt):
            self.ran.take(attempt.passed)
            self.callers.update(by)

    def callers_in(self, attempt: SeenAttempt) -> set[str]:
        """Return who ran it: `model`, and the keys of agent.toml that name it."""
        name = self.part.name
        if self.part.kind not in ("tool", "hook"):
            return set()
        found = set[str]()
        if self.part.kind == "tool" and any(calls(name, step) for step in attempt.steps):
            found.add("model")
        role = self.part.role
        ran = {
            "before": any(s.kind == "before" and s.action == name for s in attempt.steps),
            "done": any(s.kind == "action" and s.status is not None for s in attempt.steps),
            "action": any(s.kind == "action" and s.action for s in attempt.steps),
        }
        ran |= dict.fromkeys(("choose", "vote"), any(step.sample for step in attempt.steps))
        if self.part.change != "gone" and ran.get(role):
            found.add(role)
        return found

    def record(self, alone: JsonDict | None) -> JsonDict:
        """Return what became of it; `text` says it in a line, `remark` what a reader of the agent
        has to know."""
        part = self.part
        made: JsonDict = {"path": part.path, "kind": part.kind, "change": part.change}
        made |= {"name": part.name, "role": part.role} if part.role else {"name": part.name}
        made["attempts"] = self.made.record()
        if part.change != "gone":
            if part.kind not in ("hook", "settings") and self.unknown < self.made.attempts:
                made["shown"] = self.shown.record()
            if part.kind in ("tool", "lesson"):
                made["read"] = self.read.record()
            if part.kind in ("tool", "hook"):
                made["run"] = {**self.ran.record(), "by": dict(sorted(self.callers.items()))}
        made["text"] = self.tell()
        if alone is not None:
            made["alone"] = alone
            made["text"] += f"; {alone['text']}"
            made["remark"] = f"`{part.path}` {alone['text']}" if alone.get("of") else ""
        return made

    def tell(self) -> str:
        """Return it in a line."""
        part = self.part
        of = self.made.attempts
        if not of:
            return f"{part.title}: no attempt was made with it"
        attempts = f"{of} attempt{'s' * (of != 1)} ({self.made.passed} passed)"
        if part.change == "gone":
            return f"{part.title}: {attempts} without it"
        if part.kind == "settings":
            return f"{part.title}: in force in {attempts}"
        told = list[str]()
        if part.kind in ("tool", "hook"):
            by = ", ".join(f"by {_CALLERS.get(k, f'`{k}`')} {n}" for k, n in self.callers.items())
            told.append(self.ran.tell("run", of) + f", {by}" * bool(by))
        if part.kind != "hook":
            if self.unknown < of:
                told.append(self.shown.tell("shown", of))
            else:
                told.append("the traces do not say what was shown")
        if self.read.attempts:
            told.append(self.read.tell("read", of))
        return f"{part.title}: {attempts}, {'; '.join(told)}"


_CALLERS = {"model": "the model"}


def is_shown(part: ChangedPart, attempt: SeenAttempt) -> bool:
    """Whether a model was sent what a part says, or the name of a tool."""
    if part.kind == "tool":
        names = {part.name, function_name(part.name)}
        return any(_names(name, attempt.prompts or "") for name in names)
    if any(part.name in step.offered for step in attempt.steps) and part.kind == "lesson":
        return True
    there = [piece in (attempt.sent or "") for piece in part.pieces]
    if part.kind in NOTES:  # a line of an example may stand in a task
        return bool(there) and all(there[:NEEDED])
    return any(there)


def _names(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def calls(name: str, step: Step) -> bool:
    """Whether the model had a tool run in a step, by name, by path, or as a function."""
    if step.kind not in _ACTED:
        return False
    if any(call.get("name") == function_name(name) for call in _calls_of(step)):
        return True
    found = re.escape(name)
    path = rf"(?:python[\d.]*|bash|sh)\s+(?:-\S+\s+)*\S*\bbin/{found}(?![\w.-])"
    return name in tools(step.action) or bool(
        re.search(rf"\$\(\s*{found}(?![\w.-])|\b{path}", step.action)
    )


def _calls_of(step: Step) -> Sequence[Any]:
    found = step.foreign.get("tool_calls", ())
    return [call for call in found if isinstance(call, dict)] if isinstance(found, list) else []


def opens(name: str, step: Step) -> bool:
    """Whether a step names a tool's file and does not run it."""
    named = re.search(rf"\bbin/{re.escape(name)}(?![\w-])", step.action)
    return named is not None and step.kind in _ACTED and not calls(name, step)


def recalls(name: str, step: Step) -> bool:
    """Whether memory answered with a lesson in a step."""
    return any(id.startswith("lesson:") and id.endswith(f"/{name}") for id in step.recalled)
