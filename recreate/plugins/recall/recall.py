"""What the working agents of a run recall by themselves: train experience, as memory held it when
the first of them began.

What may be told is fixed once, in the journal (`recallable`) and a file of the run folder: the
experiences and lessons that there were. Its digest is a part of the key of each attempt of an agent
that may recall, so that none is read back as one that could have been told something else. Each
answer is journalled (`recalled`): an attempt that goes on after a kill, or is replayed, is told the
same.

An agent is never told of its own task, nor of one of the same group, nor of an attempt that was
itself told of one: so an attempt at a train task sees no more than one at a task that is held out.
And nothing that is held out, as of now.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from recreate.agents.retrieval import MemoryAnswer, Recaller
from recreate.agents.trajectory import cut_middle
from recreate.api.errors import BadInput, Differs, Missing
from recreate.api.paths import short
from recreate.api.ports import Hit
from recreate.api.shapes import JsonMap
from recreate.api.types import Experience, Lesson, Step, Task, digest
from recreate.runs.journal import Journal
from recreate.runs.replay import Replay
from recreate.storage import files
from recreate.storage.redact import redact

READER = "agent"
EACH = 250
"""Tokens for each attempt that an answer tells of, about; MOST of them at most."""
MOST = 5
FURTHEST = 2048
"""So many hits are looked at, at most, for those that may be told."""
CHARS = 4
"""Of a token, about: what an answer takes must not depend on a model's tokenizer."""

_NOTHING_YET = (
    "nothing was attempted in this domain, at tasks that may be learned from, before this run"
    " began: there is nothing to recall"
)
_NO_MATCH = (
    "none of the {} earlier attempts matches that, or all that do are of this very task or its"
    " group"
)
_CUT = " [...] "
_LOCK = threading.Lock()


class KnownExperience(Protocol):
    """Of the workspace's memory, what is asked here: `ExperienceStore`."""

    def get(self, id: str, reader: str = "human") -> Experience | None: ...
    def facts(self, filters: JsonMap | None = None, reader: str = "human") -> Any: ...
    def lessons(self) -> dict[str, tuple[str, Lesson]]: ...


class Recallable(NamedTuple):
    """What may be told in a run: ids of experiences; lessons as memory names them, each with its
    checksum. digest: of that and of what looks it up."""

    experiences: frozenset[str]
    lessons: Mapping[str, str]
    digest: str


@dataclass(frozen=True)
class Recollection:
    """Memory, as the agents of a run at the tasks of a domain may ask it. Thread-safe.

    search   (words, k, filters) -> hits that a working agent may see, best first
    leaks    why a lesson may not be shown, as it names a task; [] where it may
    found_by what looks things up, as far as an answer depends on it: the embedder's setting,
    another's memory
    """

    memory: KnownExperience
    journal: Journal
    folder: Path
    domain: str
    search: Callable[[str, int, JsonMap], Sequence[Hit]]
    leaks: Callable[[Lesson], Sequence[str]]
    replay: Replay | None = None
    found_by: Sequence[str] = ()

    def state(self) -> Recallable:
        """Return what may be told in this run; fixed by the first who asks. Raises BadInput
        (damaged)."""
        with _LOCK:
            mine = (r for r in self.journal.records("recallable") if r["domain"] == self.domain)
            record = next(mine, None)
            if self.replay is not None:
                return Recallable(frozenset(), {}, self.replay.recallable.get(self.domain, ""))
            return self._fix() if record is None else self._read(record["file"], record["digest"])

    def _fix(self) -> Recallable:
        where = {"domain": self.domain, "split": "train"}
        ids = sorted(row["id"] for row in self.memory.facts(where, READER))
        lessons = {
            key: checksum
            for key, (checksum, lesson) in sorted(self.memory.lessons().items())
            if key.startswith((f"lesson:{self.domain}/", "lesson:general/"))
            and lesson.status == "active"
            and lesson.trusted
            and not self.leaks(lesson)
        }
        text = json.dumps({"experiences": ids, "lessons": lessons})
        name, key = digest(text), digest([text, *self.found_by])
        files.write(self.folder / "memory" / f"{name}.json", text, fix=files.RESUME)
        self.journal.add("recallable", domain=self.domain, file=f"{name}.json", digest=key)
        return Recallable(frozenset(ids), lessons, key)

    def _read(self, name: str, key: str) -> Recallable:
        file = self.folder / "memory" / name
        try:
            text = file.read_text("utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            text = ""
        if f"{digest(text)}.json" != name:
            raise BadInput(
                f"{short(file)} is not as it was written: what the agents of this run may recall is"
                " not known",
                fix=(
                    "put it back from a copy, or begin again with another --out; what was attempted"
                    " is in memory"
                ),
                code="damaged",
            )
        found = json.loads(text)
        return Recallable(frozenset(found["experiences"]), found["lessons"], key)

    def asked_by(self, task: Task, tokens: int, *, lessons: bool, state: Recallable) -> Recaller:
        """Return what an agent at a task asks. tokens: of one answer; lessons: whether they are
        told too."""

        def recall(query: str, call: str) -> MemoryAnswer:
            known = self.journal.recalled(call, query)
            if known is None:
                if self.replay is not None:
                    known = _recorded(self.replay, query, call)
                else:
                    known = self._answer(query, task, tokens, lessons, state)
                self.journal.keep_recalled(call, query, known)
            return known

        return recall

    def _answer(
        self, query: str, task: Task, tokens: int, lessons: bool, state: Recallable
    ) -> MemoryAnswer:
        if not state.experiences and not (lessons and state.lessons):
            return MemoryAnswer(_NOTHING_YET)
        most = max(1, min(MOST, tokens // EACH))
        try:
            found = self._nearest(
                query, task, most, state if lessons else state._replace(lessons={})
            )
        except Missing as e:
            return MemoryAnswer(f"memory cannot be searched here: {e.message}")
        if not found:
            return MemoryAnswer(_NO_MATCH.format(len(state.experiences)))
        head = (
            f"The nearest of {len(state.experiences)} earlier attempts at other tasks; some failed."
        )
        left = CHARS * tokens - len(head)
        parts = list[str]()
        for n, (_, told) in enumerate(found):
            parts.append(f"\n\n{n + 1}. {told(left // (len(found) - n) - 8)}")
            left -= len(parts[-1])
        return MemoryAnswer(
            redact(head + "".join(parts))[: CHARS * tokens], tuple(id for id, _ in found)
        )

    def _nearest(
        self, query: str, task: Task, most: int, state: Recallable
    ) -> list[tuple[str, Callable[[int], str]]]:
        """Return (id, what tells it in so many characters) of what is nearest: of a task one
        attempt that passed and one that failed at most."""
        asked = 8 * most
        where = {"domain": [self.domain, "general"]}
        while True:
            hits = self.search(query, asked, where)
            found: dict[Any, tuple[str, Callable[[int], str]]] = {}
            for hit in hits:
                if hit.grain == "lesson":
                    if (
                        hit.id in state.lessons
                        and self.memory.lessons().get(hit.id, ("",))[0] == state.lessons[hit.id]
                    ):
                        found[hit.id] = hit.id, _told_lesson(hit)
                    continue
                e = (
                    self.memory.get(hit.experience, READER)
                    if hit.experience in state.experiences
                    else None
                )
                if e is not None and not self._own(e, task, set()):
                    found.setdefault((e.task, e.grade.passed), (e.id, _told_attempt(e, hit)))
            if len(found) >= most or len(hits) < asked or asked >= FURTHEST:
                return list(found.values())[:most]
            asked *= 4

    def _own(self, e: Experience, task: Task, seen: set[str]) -> bool:
        """Whether an attempt is at the task or one of its group, or was told of such a one; also of
        one that may not be seen any more."""
        seen.add(e.id)
        if e.task == task.id or e.group == task.group:
            return True
        told = {
            id for step in e.trace.steps for id in step.recalled if not id.startswith("lesson:")
        }
        each = ((id, self.memory.get(id, READER)) for id in sorted(told - seen))
        return any(other is None or self._own(other, task, seen) for _, other in each)


def _recorded(replay: Replay, query: str, call: str) -> MemoryAnswer:
    told = replay.recalled.get((call, query))
    if told is None:
        raise Differs(
            f"the replay asks memory at {call} what was not asked when it was recorded:"
            f" {query[:200]!r}",
            fix=(
                "put back what changed since (scaffold, tasks, tools or this program), or"
                " record again: --record"
            ),
            call=call,
            expected=None,
            got=query,
        )
    return MemoryAnswer(*told)


def _told_lesson(hit: Hit) -> Callable[[int], str]:
    def tell(chars: int) -> str:
        return cut_middle(f"a lesson: {hit.text.strip()}", max(0, chars), _CUT)

    return tell


def _told_attempt(e: Experience, hit: Hit) -> Callable[[int], str]:
    step = _deed(e, hit.step)
    parts = [("it was asked", e.prompt)]
    if step is not None:
        parts += [("it did", step.action or step.reply), ("and got", step.output)]
    parts += [("it handed in", e.trace.answer), ("the grader said", e.grade.evidence)]
    parts = [(name, text.strip()) for name, text in parts if text.strip()]

    def tell(chars: int) -> str:
        lines = [
            f"another task, {'passed' if e.grade.passed else 'failed'} (score {e.grade.score:g})"
        ]
        left = chars - len(lines[0])
        for n, (name, text) in enumerate(parts):
            share = left // (len(parts) - n) - len(name) - 3
            if share > len(_CUT):
                lines.append(f"{name}: {cut_middle(text, share, _CUT)}")
                left -= len(lines[-1]) + 1
        return "\n".join(lines)

    return tell


def _deed(e: Experience, number: int | None) -> Step | None:
    """Return the step that answers, else the last in which something was done; not one that asked
    memory itself."""
    done = [
        s
        for s in e.trace.steps
        if s.kind == "action" and s.action and s.status is not None and not s.recalled
    ]
    done = [s for s in done if not s.restored] or done
    return next((s for s in done if s.step == number), done[-1] if done else None)
