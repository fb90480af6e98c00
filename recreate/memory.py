"""Everything lived through, on files that only grow, and found again by meaning, by word and by fact.

    memory/DOMAIN/experiences/RUN.jsonl   what was lived: the only thing here that cannot be made again
    memory/DOMAIN/blobs/                  its texts that are too large for a line
    memory/DOMAIN/lessons/NAME.md         what was learned
    memory/held_out.jsonl                 what an optimizer or an agent must never be shown
    memory/index/                         derived: the catalogue, the vectors

An optimizer and a working agent see the train split and nothing of a held-out group, whatever it was recorded
as. That is asked of the index and then asked again of each experience found, as it stands in its file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from recreate import documents
from recreate.blobs import Blobs, is_large, take_out
from recreate.catalogue import Catalogue
from recreate.embedders import default_embedder, named
from recreate.errors import BadInput
from recreate.filters import allows, matches, parse
from recreate.held_out import Held, HeldOut
from recreate.hits import experience_hit, occurrences, scan
from recreate.index import Document, Index, Sources
from recreate.journal import encode
from recreate.lesson import read_lesson
from recreate.ports import Embedder, Hit
from recreate.redact import redact, redact_fields
from recreate.store import append, fault, locked, make, seal, seal_text
from recreate.types import SCHEMA, Experience, Lesson, Task, digest

READERS = ("optimizer", "agent", "human")
IDENTITY = ("id", "schema", "domain", "task", "group", "split", "digest", "run")
"""What redaction leaves alone: a masked id would be another experience."""

log = logging.getLogger("recreate")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class _Scope(NamedTuple):
    """What a reader may see. `groups` and `tasks` are closed to it; None: nothing is."""

    train_only: bool
    groups: frozenset[str]
    tasks: frozenset[str]

    def sees(self, split: str, group: str, task: str) -> bool:
        return not self.train_only or (split == "train" and group not in self.groups and task not in self.tasks)


class Workspace:
    """The memory of a workspace (port `Memory`). `root` holds the folder `memory`.

    embedder: an Embedder, its name (`minilm`, `hashed`, `sentence:FOLDER`, `module:Class`), or None for the best
    one installed; it is only opened when something is recalled. progress(done, to do) hears of long indexing.
    Safe for several threads and processes. Adding costs a line of a file: the index catches up when asked.
    """

    def __init__(
        self,
        root: Path,
        embedder: Embedder | str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.folder = root / "memory"
        self.catalogue = Catalogue(self.folder)
        self.held_out = HeldOut(self.folder)
        self.blobs = Blobs(self.folder)
        self.progress = progress
        self._embedder = embedder
        self._index: Index | None = None
        self._left: dict[Path, tuple[int, int]] = {}
        self._added: set[str] = set()

    # the files

    def add(self, experiences: Sequence[Experience]) -> None:
        """Append what is not there yet (by id), keys masked; on the disk when this returns.

        Groups of validation and test are held out from then on. Raises Fault naming the folder when the disk is
        full or the folder cannot be written, BadInput for a domain that is no name.
        """
        if not experiences:
            return
        self.held_out.add(Held(e.group, e.task, e.split, e.domain) for e in experiences)
        new = [(e.id, self._experiences(e.domain) / _file(e.run), *_sealed(e)) for e in experiences]
        paths = {path for _, path, _, _ in new}
        for path in paths:
            if not path.exists():
                make(path.parent, ignored=True)
        with locked(self.folder):
            known = self._known([id for id, *_ in new], paths)
            by_file: dict[Path, list[bytes]] = {}
            for id, path, sealed, large in new:
                if id not in known:
                    known.add(id)
                    self.blobs.put(path.parent.parent.name, large)
                    by_file.setdefault(path, []).append(sealed)
            for path, lines in by_file.items():
                append(path, lines)
                self._left[path] = _stamp(path)
            self._added.update(id for id, *_ in new)

    def get(self, id: str, reader: str = "human") -> Experience | None:
        """The experience with this id, whole; None when there is none, or none that the reader may see.

        Where a large text is missing or damaged, a note in square brackets stands before what is left of it.
        """
        self.catalogue.refresh()
        return self._get(id, self._scope(reader), whole=True)

    def experiences(
        self, domain: str | None = None, split: str | None = None, run: str | None = None, reader: str = "human"
    ) -> Iterator[Experience]:
        """All that match, in the order in which each run recorded them; streamed, one in memory at a time."""
        asked = {"domain": domain, "split": split, "run": run}
        scope = self._scope(reader)
        for row in self.facts({k: v for k, v in asked.items() if v is not None}, reader):
            found = self._get(row["id"], scope, whole=True)
            if found is not None:
                yield found

    def facts(self, filters: Mapping[str, Any] | None = None, reader: str = "human") -> Iterator[dict[str, Any]]:
        """id and facts of the experiences that match (see KEYS), without reading them: for lists."""
        where = parse(filters)
        for key in ("grain", "step"):
            where.pop(key, None)
        if "experience" in where:
            where["id"] = where.pop("experience")
        self.catalogue.refresh()
        scope = self._scope(reader)
        for row in self.catalogue.rows(where):
            if scope.sees(row["split"], row["group"], row["task"]):
                yield row

    def hold_out(self, tasks: Iterable[Task]) -> None:
        """Close the groups of these tasks to optimizers and agents, for good; train tasks are ignored."""
        self.held_out.add(Held(t.group, t.id, t.split, t.domain) for t in tasks)

    def lessons(self) -> dict[str, tuple[str, Lesson]]:
        """`lesson:DOMAIN/NAME` -> (checksum, lesson) of memory/*/lessons/*.md."""
        found = {}
        for path in sorted(self.folder.glob("*/lessons/*.md")):
            try:
                text = path.read_text("utf-8", errors="replace")
            except OSError as e:
                raise fault(path.parent, e) from e
            key = f"lesson:{path.parent.parent.name}/{path.stem}"
            found[key] = (digest(text), read_lesson(path.stem, text))
        return found

    # finding

    def recall(
        self, query: str, k: int = 8, filters: Mapping[str, Any] | None = None, reader: str = "optimizer"
    ) -> list[Hit]:
        """The k documents nearest in meaning to `query`, nearest first; score is the cosine.

        filters: a name of KEYS -> a value or a list of values, e.g. {"domain": "swe", "grain": "step"}. Raises
        Missing without the extra `memory`, BadInput for an unknown filter or reader.
        """
        wanted = parse(filters)
        if k < 1:
            raise BadInput(f"k is {k}: how many to recall is at least 1", fix="-k 8")
        self.catalogue.refresh()
        scope, sources = self._scope(reader), self._sources(reader)
        lessons = self.lessons()
        where = self._where(wanted, scope)
        read: dict[str, Experience | None] = {}
        asked = k + 8
        while True:
            found = self.index.search(query, asked, where, sources, self.progress)
            hits = []
            for id, score in found:
                hit = self._hit(id, score, scope, wanted, lessons, read)
                if hit is not None:
                    hits.append(hit)
                if len(hits) == k:
                    return hits
            if len(found) < asked or asked > 5000:
                return hits
            asked *= 4

    def search(
        self, text: str, filters: Mapping[str, Any] | None = None, reader: str = "human", k: int = 50
    ) -> list[Hit]:
        """Experiences and steps that hold every word of `text` (any case, any script), newest file last.

        A plain scan of the files: nothing to install, nothing to keep up to date, no text too long. score counts
        how often the words occur; text is the place where the first one stands. Lessons are searched too.
        """
        wanted = parse(filters)
        words = [w.casefold() for w in text.split()]
        if not words:
            raise BadInput("nothing to search for", fix="recreate traces search WORDS")
        scope = self._scope(reader)
        hits: list[Hit] = []
        if allows(wanted, "grain", "experience") or allows(wanted, "grain", "step"):
            rows = self.facts({k: v for k, v in wanted.items() if k not in ("grain", "step", "error")}, reader)
            for row in rows:
                e = self._get(row["id"], scope, whole=True)
                if e is not None:
                    hits += [h for h in scan(e, words) if matches(wanted, h)]
                if len(hits) >= k:
                    return hits[:k]
        for key, (_, lesson) in self.lessons().items():
            hit = self._lesson_hit(key, lesson, 0.0, scope)
            count = occurrences(f"{lesson.title}\n{lesson.body}", words)
            if hit is not None and count and matches(wanted, hit):
                hits.append(hit.model_copy(update={"score": float(count)}))
        return hits[:k]

    # the index

    @property
    def index(self) -> Index:
        if self._index is None:
            if self._embedder is None:
                self._embedder = default_embedder()
            elif isinstance(self._embedder, str):
                self._embedder = named(self._embedder)
            self._index = Index(self.folder / "index", self._embedder)
        return self._index

    def embedder_in_use(self) -> str:
        """The name of the embedder that made the index as it is, '' when there is none."""
        return str(Index(self.folder / "index", _Nobody()).state().get("embedder", ""))

    def rebuild(self, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Make everything derived again from the files, and return stats(). Known vectors are not paid twice.

        progress(done, to do): experiences and lessons. Without the extra `memory` only the catalogue is made.
        """
        from importlib.util import find_spec

        if self.folder.is_dir():
            self.catalogue.rebuild()
            if find_spec("chromadb") is not None:
                self.index.sync(self._sources("human"), progress or self.progress, anew=True)
        return self.stats()

    def stats(self) -> dict[str, Any]:
        """Counts by grain, domain and split, what is held out, and what the index holds with its digest.

        `indexed` are documents in the index now; the rest is embedded at the next recall that may see it.
        """
        self.catalogue.refresh()
        counts = self.catalogue.counts()
        lessons = self.lessons()
        scope = self._scope("optimizer")
        hidden = 0
        if scope.groups or scope.tasks:
            hidden = sum(
                not scope.sees(r["split"], r["group"], r["task"]) for r in self.catalogue.rows({"split": ["train"]})
            )
        state = Index(self.folder / "index", _Nobody()).state()
        return {
            "experiences": counts["experiences"],
            "steps": counts["steps"],
            "lessons": len(lessons),
            "grains": {"experience": counts["experiences"], "step": counts["steps"], "lesson": len(lessons)},
            "splits": _total(counts["domains"]),
            "domains": counts["domains"],
            "damaged_lines": counts["damaged_lines"],
            "blobs": self._count_blobs(),
            "held_out": {"groups": len(scope.groups), "tasks": len(scope.tasks), "hidden_train": hidden},
            "files_digest": digest(self.catalogue.sums()),
            "index": {k: state.get(k) for k in ("embedder", "dimensions", "count", "digest")},
            "digest": state.get("digest") or "",
        }

    def close(self) -> None:
        """Let go of all files."""
        self.catalogue.close()
        if self._index is not None:
            self._index.close()

    # inside

    def _known(self, ids: Sequence[str], paths: Iterable[Path]) -> set[str]:
        """Those of the ids that are recorded. Reading what this process itself wrote last is spared."""
        if len(self._added) > 1000 or any(self._left.get(path) != _stamp(path) for path in paths):
            self._left.clear()
            self._added.clear()
            self.catalogue.refresh()
            self._left.update((path, _stamp(path)) for path in paths)
        return self.catalogue.knows([id for id in ids if id not in self._added]) | (self._added & set(ids))

    def _scope(self, reader: str) -> _Scope:
        if reader not in READERS:
            raise BadInput(f"no reader is called {reader!r}", fix=f"one of: {', '.join(READERS)}")
        if reader == "human":
            return _Scope(False, frozenset(), frozenset())
        _, groups, tasks = self.held_out.read()
        kept = {"split": ["validation", "test"]}  # recorded elsewhere and copied here
        groups |= self.catalogue.distinct("group", kept) - {""}
        return _Scope(True, groups, tasks | self.catalogue.distinct("task", kept))

    def _get(self, id: str, scope: _Scope, *, whole: bool = False) -> Experience | None:
        """As its line has it; with `whole` its large texts are read as well."""
        line = self.catalogue.find(id)
        if line is None or line.record is None:
            return None
        try:
            found = Experience.model_validate(self.blobs.restore(line.record) if whole else line.record["experience"])
        except (ValidationError, KeyError) as e:
            raise BadInput(
                f"the experience {id} in {self.folder} is not one: {str(e).splitlines()[0]}",
                fix="recreate traces list shows the rest; delete that line if nobody needs it",
            ) from e
        return found if scope.sees(found.split, found.group, found.task) else None

    def _sources(self, reader: str) -> Sources:
        """What the index must hold for a reader: nothing is embedded before somebody may see it."""
        scope = self._scope(reader)
        lessons = self.lessons()
        sums = {key: sum_ for key, (sum_, _) in lessons.items()}
        stamp = digest([self.catalogue.edition(), reader, self.held_out.read()[0], sums])

        def wanted() -> Iterable[str]:
            if not scope.train_only:
                return [*self.catalogue.sums(), *lessons]
            rows = self.catalogue.rows({"split": ["train"]})
            return [*(r["id"] for r in rows if scope.sees(r["split"], r["group"], r["task"])), *lessons]

        def of(key: str) -> Sequence[Document]:
            if key in lessons:
                return [documents.lesson_document(lessons[key][1], key, _domain(key))]
            e = self._get(key, scope)
            return documents.documents(e) if e is not None else []

        return Sources(stamp, lambda: {**self.catalogue.sums(), **sums}, wanted, of)

    def _where(self, wanted: Mapping[str, Sequence[Any]], scope: _Scope) -> dict[str, Any] | None:
        """The same filters and the same scope, in Chroma's words."""
        clauses: list[dict[str, Any]] = []
        for key, values in wanted.items():
            clauses.append({"key" if key == "experience" else key: {"$in": list(values)}})
        if scope.train_only:
            clauses.append({"split": "train"})
            train = {"split": ["train"]}
            # Only those that somebody recorded as train as well: the list is short and mostly empty.
            for key, closed in (("group", scope.groups), ("task", scope.tasks)):
                both = sorted(closed & self.catalogue.distinct(key, train)) if closed else []
                if both:
                    clauses.append({key: {"$nin": both}})
        return None if not clauses else clauses[0] if len(clauses) == 1 else {"$and": clauses}

    def _hit(
        self,
        id: str,
        score: float,
        scope: _Scope,
        wanted: Mapping[str, Sequence[Any]],
        lessons: Mapping[str, tuple[str, Lesson]],
        read: dict[str, Experience | None],
    ) -> Hit | None:
        """The hit as its file tells it; None when the reader may not see it, or it does not match after all."""
        if id in lessons:
            hit = self._lesson_hit(id, lessons[id][1], score, scope)
        else:
            key = id.partition("/")[0]
            if key not in read:
                read[key] = self._get(key, scope)
            e = read[key]
            hit = experience_hit(e, id, score) if e is not None else None
        return hit if hit is not None and matches(wanted, hit) else None

    def _lesson_hit(self, key: str, lesson: Lesson, score: float, scope: _Scope) -> Hit | None:
        """A lesson that cites an experience which the reader may not see is as closed as that experience."""
        cited = [*lesson.born_of, *lesson.supports, *lesson.contradicts]
        if scope.train_only and cited:
            for row in self.catalogue.rows({"id": cited}):
                if not scope.sees(row["split"], row["group"], row["task"]):
                    return None
        facts = {"domain": _domain(key), "scope": lesson.scope, "born_of": list(lesson.born_of)}
        text = f"{lesson.title}\n{lesson.body}"
        return Hit(id=key, grain="lesson", score=score, split="train", text=text, facts=facts)

    def _count_blobs(self) -> dict[str, int]:
        """How many large texts there are, and how many that a line names are missing or damaged: all are read."""
        there = {(domain, sha): path.stat().st_size for domain, sha, path in self.blobs.all()}
        named = self.catalogue.blobs()
        wrong = [self.blobs.sound(domain, sha) for domain, sha in named]
        return {
            "count": len(there),
            "bytes": sum(there.values()),
            "missing": wrong.count("missing"),
            "damaged": wrong.count("damaged"),
            "unreferenced": len(there.keys() - named),
        }

    def _experiences(self, domain: str) -> Path:
        """The folder of a domain's experiences."""
        if not _NAME.fullmatch(domain) or domain == "index":
            raise BadInput(
                f"{domain!r} cannot be a domain: it names a folder",
                fix="letters, digits, `.`, `_` and `-`, and not `index`",
            )
        return self.folder / domain / "experiences"


class _Nobody:
    """An embedder that is never asked: enough to read what the index says of itself."""

    name = ""
    dimensions = 0

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        raise AssertionError("stats embeds nothing")


def _stamp(path: Path) -> tuple[int, int]:
    """What changes whenever somebody writes the file."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def _file(run: str) -> str:
    """One file a run, so that builds side by side do not wait for each other's disk and a run can be deleted."""
    return f"{run}.jsonl" if _NAME.fullmatch(run) else f"run-{digest(run)}.jsonl" if run else "no-run.jsonl"


def _sealed(e: Experience) -> tuple[bytes, dict[str, bytes]]:
    """The line to be written, keys masked, and the texts that are too large for it by SHA-256."""
    if any(map(is_large, _texts(e))):
        record, refs, large = take_out(e.model_dump(mode="json"), IDENTITY)
        return seal({"experience": _masked(record), "blobs": [ref._asdict() for ref in refs]}), large
    text = encode({"experience": e, "schema": SCHEMA})
    if redact(text) == text:
        return seal_text(text), {}
    record = e.model_dump(mode="json")
    return seal({"experience": _masked(record)}), {}


def _masked(record: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = redact_fields(record, keep=IDENTITY)
    for name in ("attempt", "task", "scaffold", "model", "ending"):
        plain["trace"][name] = record["trace"][name]
    return plain


def _texts(e: Experience) -> Iterator[str]:
    """Every text of an experience that may be large."""
    stack: list[Any] = [e]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, BaseModel):
            stack += [*vars(value).values(), *(value.model_extra or {}).values()]
        elif isinstance(value, Mapping):
            stack += value.values()
        elif isinstance(value, list | tuple):
            stack += value


def _domain(key: str) -> str:
    return key.removeprefix("lesson:").rpartition("/")[0]


def _total(domains: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for splits in domains.values():
        for split, n in splits.items():
            total[split] = total.get(split, 0) + n
    return total
