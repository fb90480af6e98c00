"""Imported attempts that nobody has graded yet: kept, shown and searched, but no part of memory.
And the grades that come later: from the domain's grader, from a file of outcomes, or from a person.

    memory/DOMAIN/waiting/RUN.jsonl          a sealed line each, as in memory
    memory/DOMAIN/provisional/grades.jsonl   what a model thinks of them (provisional.py): the last
                                             line of an id counts

Whatever counts, contrasts or learns reads memory, where every experience has a grade. So what has
none stays out, and cannot be taken for a failure. Graded, it moves into memory under the same id;
its line here is then passed over.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from recreate.api.config import read_json
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Domain, Embedder, SandboxBackend
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Experience, Grade, Lesson, Provisional, Task, digest
from recreate.memory.codec import file_of
from recreate.memory.documents import Sources
from recreate.memory.metadata import index_of
from recreate.memory.store import ExperienceStore, Scope
from recreate.plugins.traces.cut import Item, cut_lines, find_cut
from recreate.plugins.traces.format import grade as grade_of
from recreate.plugins.traces.format import list_of, object_of
from recreate.storage.files import disk, locked, make, write
from recreate.storage.log import Log, seal

NOT_YET = Grade(score=0.0, passed=False, graded=False, evidence="nobody has graded this yet")


class ProvisionalGrades:
    """What judges said of ungraded attempts, by the attempt's id; beside the attempts, which stay
    as they came."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: tuple[list[tuple[Path, int, int]], dict[str, Provisional]] = [], {}

    def read(self) -> Mapping[str, Provisional]:
        """By id, the newest of each. Read again where a file has changed."""
        files = sorted(self.folder.glob("*/provisional/grades.jsonl"))
        stamps = [(path, (stat := path.stat()).st_size, stat.st_mtime_ns) for path in files]
        if stamps != self._read[0]:
            found = dict[str, Provisional]()
            for record in (record for path in files for record in Log(path).read()):
                try:
                    found[str(record["id"])] = Provisional.model_validate(record["provisional"])
                except (KeyError, ValidationError):
                    continue
            self._read = stamps, found
        return self._read[1]

    def add(self, e: Experience, provisional: Provisional) -> None:
        """Append one; on the disk when this returns. Raises Fault."""
        path = self._file(e.domain)
        make(path.parent, ignored=True)
        with locked(path.parent), Log(path, durable=True, fix="") as log:
            log.append({"id": e.id, "provisional": provisional.model_dump(mode="json")})

    def forget(self, ids: Collection[str]) -> None:
        """Take those of these attempts out of the files. Raises Fault."""
        for path in sorted(self.folder.glob("*/provisional/grades.jsonl")):
            with locked(path.parent), disk(path.parent):
                lines = list(Log(path).read())
                kept = [record for record in lines if record.get("id") not in ids]
                if len(kept) < len(lines):
                    write(path, b"".join(map(seal, kept)))

    def _file(self, domain: str) -> Path:
        return file_of(self.folder, domain, "grades", "provisional")


class Ungraded(ExperienceStore):
    """The attempts of a memory that wait for a grade, found as those of memory are; each has its
    provisional grade, where it has one. A reader sees of them what it would see of memory.
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

    def add(self, experiences: Sequence[Experience], when: Mapping[str, str] | None = None) -> None:
        """Append these but for forgotten ones; that they are new is the caller's to see. Their
        texts are masked already."""
        by_file: dict[Path, list[Experience]] = {}
        gone = self.forgotten.read()
        for e in (e for e in experiences if e.id not in gone):
            by_file.setdefault(file_of(self.folder, e.domain, e.run, self.kind), []).append(e)
        for path, new in by_file.items():
            make(path.parent, ignored=True)
            with locked(path.parent), Log(path, fix="") as log:
                log.append(*({"experience": e.model_dump(mode="json")} for e in new))

    def waiting(self, domain: str = "") -> Iterator[Experience]:
        """Return all that still wait, of one domain or of all."""
        return self.experiences(domain or None)

    def ids(self) -> set[str]:
        """Return the ids of all, graded since or not."""
        self.metadata.refresh()
        return set(self.metadata.sums())

    def settle(self, e: Experience, grade: Grade) -> None:
        """Add an attempt to memory under its id, with its grade in place of what a judge
        thought."""
        graded = {"grade": grade, "provisional": None, "checked": True}
        self.memory.add([e.model_copy(update=graded)])

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

    def provisionally(self, wanted: JsonMap, reader: str) -> Iterator[Experience]:
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

    def count_unjudged(self, filters: JsonMap | None = None, reader: str = "optimizer") -> int:
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


def by_domain(
    waiting: Sequence[Experience], domain: Domain, backend: SandboxBackend
) -> Iterator[tuple[Experience, Grade | None, str]]:
    """(experience, its grade, '' or why there is none): what was handed in, graded as an agent's
    would be."""
    tasks: dict[str, Task] = {t.id: t for t in domain.tasks()}
    for e in waiting:
        task = tasks.get(e.task)
        if task is None:
            yield e, None, f"{domain.name} has no task {e.task}"
        elif e.trace.fault:
            yield e, None, f"it was ended by a fault, not by the agent: {e.trace.fault}"
        else:
            try:
                yield e, domain.grade(task, e.trace, backend), ""
            except Fault as fault:
                yield e, None, fault.message


def outcomes(path: Path) -> JsonDict:
    """task -> score, of a file: SWE-bench's report (`resolved_ids`, `unresolved_ids`), {task:
    score}, or lines of {"task" or "instance_id", "score" or "resolved"}. Raises BadInput.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(
            f"{path} cannot be read: {e}", fix="name a JSON file", code="no-file"
        ) from None
    try:
        raw: Any = read_json(text)
    except ValueError:
        try:
            raw = [read_json(line) for line in text.splitlines() if line.strip()]
        except ValueError as e:
            raise BadInput(
                f"{path} is neither JSON nor JSON lines: {e}",
                fix='{"task": "ID", "score": 1} a line, or {"resolved_ids": [...]}',
            ) from None
    if isinstance(raw, Mapping):
        known = {str(i): True for i in list_of(raw.get("resolved_ids"))}
        known |= {
            str(i): False
            for key in ("unresolved_ids", "empty_patch_ids")
            for i in list_of(raw.get(key))
        }
        return known or {
            str(k): v.get("resolved") if isinstance(v, Mapping) else v for k, v in raw.items()
        }
    found = {}
    for row in map(object_of, list_of(raw)):
        name = next((row[k] for k in ("task", "instance_id", "id") if row.get(k) is not None), None)
        score = next(
            (row[k] for k in ("score", "resolved", "passed") if row.get(k) is not None), None
        )
        if name is not None and score is not None:
            found[str(name)] = score
    return found


def by_outcomes(
    waiting: Sequence[Experience], known: JsonMap, file: str
) -> Iterator[tuple[Experience, Grade | None, str]]:
    """The same, by the task's id here or its name where it came from.

    What the file says stands in the experience's `foreign`, under `outcome`, and not in the grade's
    evidence: there it would be among the words and in the vector of each experience, the same in
    all.
    """
    for e in waiting:
        foreign = str(e.foreign.get("task", ""))
        names = [n for n in (e.task, foreign, e.task.rpartition(":")[2]) if n in known]
        if not names:
            yield e, None, f"{file} does not say how {e.task} ended"
            continue
        found = grade_of(known[names[0]], "")
        said = f"{file} says of {names[0]}: {known[names[0]]}"
        e = e.model_copy(update={"foreign": {**e.foreign, "outcome": said}})
        yield (
            e,
            found,
            "" if found else f"{file} says {known[names[0]]!r}, which is no score in 0..1",
        )
