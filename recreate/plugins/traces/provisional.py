"""Provisional grades: what a model thinks of imported attempts that nobody has graded, so that
recall finds them.

They are marked wherever they are shown, and never taken for grades: the attempts stay outside
memory, where everything that counts, trains, promotes or judges reads (ungraded.py). Recall over
them goes by an index of its own:

    memory/index/waiting/   derived, as memory/index is
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from recreate.agents.trajectory import clip, tell_step
from recreate.api.ports import AskJudge, Embedder
from recreate.api.types import Experience, Lesson, Provisional, Task, digest
from recreate.memory.cut import Item, cut_lines, find_cut
from recreate.memory.documents import Sources
from recreate.memory.metadata import index_of
from recreate.memory.store import ExperienceStore, Scope
from recreate.plugins.traces.ungraded import ProvisionalGrades, Ungraded
from recreate.storage.files import locked

PASS_AT = 0.7
"""The score from which on an attempt has passed, as for answers that a judge grades."""
STEP, ANSWER = 4_000, 12_000
"""Characters of each text of a step, and of what was handed in, that a judge is shown."""

RUBRIC = """The answer is the record of a whole attempt at a task, as another tool kept it: what \
the agent was asked, \
what it did step by step and what came of it, how it ended, and what it handed in. Say how well \
the attempt did what \
the agent was asked.

1: all of it is done, and the record shows it: outputs, tests or replies bear it out.
0.7: it is done as far as the record shows, and nothing in it speaks against that.
0.4: a part is done, or it cannot be told from the record whether it is.
0: it is not done, was given up, or the record shows that it is wrong.

What the agent says of its own success counts for nothing without an output that bears it out."""


class UngradedStore(ExperienceStore):
    """The attempts of a memory that wait for a grade, found as those of memory are; each has its
    provisional grade, where it has one. A reader sees of them what it would see of memory. To be
    read: `Ungraded` adds to them.
    """

    kind: ClassVar[str] = "waiting"

    def __init__(self, memory: ExperienceStore) -> None:
        super().__init__(
            memory.root, None, memory.progress, memory.note, memory.patience, memory.namespace
        )
        self.memory = memory
        self.provisional = ProvisionalGrades(self.folder)
        self._warned = True  # of a missing package memory itself has told

    @property
    def embedder(self) -> Embedder:
        """That of memory. Raises Missing when its package is not installed."""
        return self.memory.embedder

    def lessons(self) -> dict[str, tuple[str, Lesson]]:
        """None: what nobody graded teaches nothing."""
        return {}

    def has_any(self) -> bool:
        """Return whether anything was ever imported without a grade."""
        return any(self.folder.glob("*/waiting/*.jsonl"))

    def waiting(self, domain: str = "") -> Iterator[Experience]:
        """Return all that still wait, of one domain or of all."""
        return Ungraded(self.memory).experiences(domain)

    def ids(self) -> set[str]:
        """Return the ids of all, graded since or not."""
        return Ungraded(self.memory).ids()

    def forget(self, ids: Collection[str], *, dry: bool) -> list[Item]:
        """Delete those of these that wait, with what judges said of them, unless `dry`; return what
        goes. What was derived is thrown away: the next question makes it anew."""
        files = sorted(self.folder.glob("*/waiting/*.jsonl"))
        cuts = [cut for path in files if (cut := find_cut(path, frozenset(ids)))]
        if dry:
            return [cut_lines(self, cut, dry=True) for cut in cuts]
        self.memory.held_out.add(held for cut in cuts for held in cut.held)
        with locked(self.folder):
            items = [cut_lines(self, cut, dry=False) for cut in cuts]
        self.provisional.forget(ids)
        self.close()
        shutil.rmtree(index_of(self.folder, self.kind), ignore_errors=True)
        return items

    def waiting_ids(self, domain: str = "") -> list[str]:
        """Return the ids of all that wait, of one domain or of all."""
        ids = [row["id"] for row in self.facts({"domain": domain} if domain else {})]
        settled = self._find_graded(ids)
        return [id for id in ids if id not in settled]

    def provisionally(self, wanted: Mapping[str, Any], reader: str) -> Iterator[Experience]:
        """Those with a provisional grade, one in memory at a time. wanted: filters, `passed` by
        that grade."""
        filters = {name: value for name, value in wanted.items() if name != "passed"}
        for row in self.facts(filters, reader):
            e = self.get(row["id"], reader) if row["id"] in self.provisional.read() else None
            if (
                e is not None
                and e.provisional
                and wanted.get("passed", e.provisional.passed) == e.provisional.passed
            ):
                yield e

    def count_unjudged(
        self, filters: Mapping[str, Any] | None = None, reader: str = "optimizer"
    ) -> int:
        """How many have no provisional grade either, of those that the reader may see."""
        judged = self.provisional.read()
        rows = [row["id"] for row in self.facts(filters, reader) if row["id"] not in judged]
        return len(rows) - len(self._find_graded(rows))

    def _find_graded(self, ids: Iterable[str]) -> set[str]:
        """Those of them that were graded since."""
        self.memory.metadata.refresh()
        return self.memory.metadata.knows(list(ids))

    def _scope(self, reader: str) -> Scope:
        own = super()._scope(reader)
        self.memory.metadata.refresh()
        other = self.memory._scope(reader)
        return Scope(
            own.train_only,
            own.groups | other.groups,
            own.tasks | other.tasks,
            own.told | other.told,
        )

    def _get(self, id: str, scope: Scope, *, whole: bool = False) -> Experience | None:
        found = super()._get(id, scope, whole=whole)
        if found is None or self._find_graded([id]):
            return None
        said = self.provisional.read().get(id)
        return found if said is None else found.model_copy(update={"provisional": said})

    def _sources(self, scope: Scope, lessons: Mapping[str, tuple[str, Lesson]]) -> Sources:
        """Return all that wait, each with its provisional grade: after one more of these all are
        indexed anew."""
        judged = sorted(self.provisional.read().items())
        return super()._sources(scope, lessons)._replace(stamp=digest(judged))


def judge_attempt(
    e: Experience, rubric: str, ask: AskJudge, model: str, pass_at: float = PASS_AT
) -> Provisional:
    """What a judge says of an attempt, asked as `--score judge:` asks (plugins/judge): all
    that the attempt's record says, the task included, is fenced as data. Raises Fault,
    `unsound-task`, when it gives no verdict.
    """
    from recreate.plugins.judge import judge

    about = Task(
        id=e.task,
        domain=e.domain,
        prompt="It stands in the record of the attempt.",
        split=e.split,
        group=e.group,
    )
    trace = e.trace.model_copy(update={"attempt": digest([e.id, rubric]), "answer": record_of(e)})
    found = judge.ask_judge(about, trace, rubric, ask)
    return Provisional(
        score=found.score, passed=found.score >= pass_at, evidence=found.why, model=model
    )


def record_of(e: Experience) -> str:
    """An attempt as a judge reads it: what was asked, said, done and handed in."""
    system = str(e.foreign.get("system", ""))
    parts = [f"The agent's instructions:\n{clip(system, STEP)}"] if system.strip() else []
    parts.append(f"It was asked:\n{clip(e.prompt, ANSWER)}")
    before = e.prompt
    for step in e.trace.steps:
        if (saw := step.observation.strip()) and saw not in (before.strip(), e.prompt.strip()):
            parts.append(f"It was told:\n{clip(saw, STEP)}")
        parts.append(tell_step(step, STEP))
        before = step.output
    parts.append(f"It ended: {e.trace.ending} {e.trace.limit or e.trace.fault}".rstrip())
    return "\n\n".join([*parts, f"It handed in:\n{clip(e.trace.answer, ANSWER) or '(nothing)'}"])
