"""Every experience, in files that only grow, and found again by meaning, by word and by fact.

    memory/DOMAIN/experiences/RUN.jsonl   what was attempted: the only thing here that cannot be
                                          made again
    memory/DOMAIN/blobs/                  its texts that are too large for a line
    memory/DOMAIN/lessons/NAME.md         what was learned
    memory/held_out.jsonl                 what an optimizer or an agent must never be shown
    memory/forgotten.jsonl                what must not come back (forget.py)
    memory/index/                         derived: the catalogue, the vectors

An optimizer and a working agent see the train split and nothing of a held-out group, whatever it
was recorded as. That is asked of the index and then asked again of each experience found, as it
stands in its file.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import ValidationError

from recreate.agents.guards.untrusted import mark_text, mark_untrusted
from recreate.agents.lesson import lesson_text, read_lesson
from recreate.api import paths
from recreate.api.errors import BadInput, Missing
from recreate.api.ports import Embedder, Hit
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Experience, Lesson, Task, digest
from recreate.memory import documents
from recreate.memory.codec import Blobs, file_of, masked, sealed, what_happened
from recreate.memory.documents import Document, Sources, experience_hit, occurrences, scan
from recreate.memory.embedders import default_embedder, embed_texts, open_embedder
from recreate.memory.filters import LATER, allows, matches, parse
from recreate.memory.held_out import (
    Attempted,
    Held,
    HeldOut,
    Spoken,
    edition,
    make_task,
    read_attempt,
)
from recreate.memory.metadata import Metadata, index_of
from recreate.storage.files import disk, fault, locked, make, make_private, shut_out
from recreate.storage.log import Log

if TYPE_CHECKING:
    from recreate.memory.index import Index, Question, Recalled

READERS = ("optimizer", "agent", "human")
HOWS = ("hybrid", "keywords", "vectors")
MOST_TRAIN = 1000
"""Train experiences that are read for the wording that a domain's tasks have in common."""

log = logging.getLogger("recreate")


class Scope(NamedTuple):
    """What a reader may see. `groups` and `tasks` are closed to it, and `told`, attempts that
    recalled one of them. working: it is a working agent, or one that asks over MCP: told no lesson
    that was found not to help, or that speaks of what is held out."""

    train_only: bool
    groups: frozenset[str]
    tasks: frozenset[str]
    told: frozenset[str] = frozenset()
    working: bool = False

    def sees(self, id: str, split: str, group: str, task: str) -> bool:
        closed = group in self.groups or not self.tasks.isdisjoint((task, id)) or id in self.told
        return not self.train_only or (split == "train" and not closed)


class _Spoken(NamedTuple):
    """Of which lessons it is known whether they speak of what is held out, by a digest of each.
    tasks: those of the attempts that tell it, by the attempt; of_what: a digest of all that tells
    it; stamp: while that stays, so does the rest."""

    stamp: Any
    of_what: str
    tasks: Mapping[str, Task]
    verdicts: dict[str, bool]


class ExperienceStore:
    """The memory of a workspace (port `Memory`). `root` holds the folder `memory`.

    embedder: an Embedder, its name (`minilm`, `hashed`, `sentence:FOLDER`, `module:Class`), or None
    for the best one installed; it is only opened when something is recalled. progress(done, to do)
    hears of long indexing, note once of a recall that goes by words because a package is missing.
    patience: how many seconds a recall waits for vectors that are not made yet (they are made on
    behind it, and note hears how many were missing); None: until all are made, so that its answer
    depends on the files alone. namespace: whose memory it is; None: that of the workspace's
    settings (`recreate.api.paths.memory`). Safe for several threads and processes. Adding costs a
    line of a file: the index catches up when asked.
    """

    kind: ClassVar[str] = "experiences"
    """The folder of each domain that holds the lines; `waiting` of what nobody has graded."""

    def __init__(
        self,
        root: Path,
        embedder: Embedder | str | None = None,
        progress: Callable[[int, int], None] | None = None,
        note: Callable[[str], None] = log.warning,
        patience: float | None = None,
        namespace: str | None = None,
    ) -> None:
        self.root = root
        self.namespace = namespace
        self.folder = paths.memory(root, namespace)
        shut_out(self.folder)
        self.metadata = Metadata(self.folder, self.kind)
        self.held_out = HeldOut(self.folder)
        self.forgotten = Forgotten(self.folder)
        self.blobs = Blobs(self.folder)
        self.progress = progress
        self.note = note
        self.patience = patience
        self._embedder = embedder
        self._index: Index | None = None
        self._embedding = threading.Lock()
        self._warned = False
        self._left: dict[Path, tuple[int, int]] = {}
        self._added: set[str] = set()
        self._spoken = _Spoken(None, "", {}, {})

    # the files

    def add(self, experiences: Sequence[Experience], when: Mapping[str, str] | None = None) -> None:
        """Append what is not there yet (by id) and was not forgotten, keys masked; on the disk when
        this returns.

        Groups of validation and test are held out from then on. when: by id, when another memory
        recorded it ('': nobody knows). Raises Fault naming the folder when the disk is full or the
        folder cannot be written, BadInput for a domain that is no name.
        """
        self._append(experiences, when or {})

    def keep(self, experience: Experience) -> Experience:
        """Add an attempt that has just ended, and return it as it is known from now on.

        That is as it was given, but where memory holds another attempt of the same key that went
        otherwise (a model may answer otherwise when it is asked again): then its id is one made of
        the key and of what happened, so that both are kept. Raises as `add` does.
        """
        if not self._append([experience]):
            return experience
        named = self.identify(experience)
        if named.id != experience.id:
            self._append([named])
        return named

    def identify(self, experience: Experience) -> Experience:
        """Return the attempt under the id that `keep` would give it; nothing is added."""
        known = self.get(experience.id)
        if known is None or (here := what_happened(masked(experience))) == what_happened(known):
            return experience
        return experience.model_copy(update={"id": digest([experience.id, here])})

    def _append(
        self, experiences: Sequence[Experience], when: Mapping[str, str] = MappingProxyType({})
    ) -> set[str]:
        """Do what `add` does; return the ids that were recorded before."""
        if not experiences:
            return set()
        with disk(self.folder):
            make_private(self.folder)
        self.held_out.add(Held(e.group, e.task, e.split, e.domain) for e in experiences)
        gone = self.forgotten.read()
        new = [
            (
                e.id,
                file_of(self.folder, e.domain, e.run, self.kind),
                *sealed(masked(e), when.get(e.id)),
            )
            for e in experiences
            if e.id not in gone
        ]
        paths = {path for _, path, _, _ in new}
        for path in paths:
            if not path.exists():
                make(path.parent, ignored=True)
        with locked(self.folder):
            known = self._find_known([id for id, *_ in new], paths)
            before = known & {id for id, *_ in new}
            by_file: dict[Path, list[bytes]] = {}
            for id, path, line, large in new:
                if id not in known:
                    known.add(id)
                    self.blobs.put_texts(path.parent.parent.name, large)
                    by_file.setdefault(path, []).append(line)
            for path, lines in by_file.items():
                with Log(path, fix="") as log:
                    log.append(*lines)
                self._left[path] = _stamp(path)
            self._added.update(id for id, *_ in new)
        return before

    def get(self, id: str, reader: str = "human", *, plain: bool = False) -> Experience | None:
        """Return the experience with this id, whole; None when there is none, or none that the
        reader may see. To an optimizer and an agent the words of one that is not our own are
        marked; plain: to them neither.

        Where a large text is missing or damaged, a note in square brackets stands before what is
        left of it.
        """
        self.metadata.refresh()
        scope = self._scope(reader)
        found = self._get(id, scope, whole=True)
        marks = found is not None and scope.train_only and not found.trusted
        return self._get(id, _EVERYTHING, whole=True) if plain and marks else found

    def experiences(
        self,
        domain: str | None = None,
        split: str | None = None,
        run: str | None = None,
        reader: str = "human",
    ) -> Iterator[Experience]:
        """Yield all that match, in the order in which each run recorded them; streamed, one in
        memory at a time."""
        asked = {"domain": domain, "split": split, "run": run}
        scope = self._scope(reader)
        for row in self.facts({k: v for k, v in asked.items() if v is not None}, reader):
            found = self._get(row["id"], scope, whole=True)
            if found is not None:
                yield found

    def lesson(self, key: str, reader: str = "human") -> Lesson | None:
        """Return the lesson `lesson:DOMAIN/NAME`; None when there is none, or none that the reader
        may see."""
        found = self.lessons().get(key)
        self.metadata.refresh()
        seen = (
            found is not None
            and self._lesson_hit(key, found[1], 0.0, self._scope(reader)) is not None
        )
        return found[1] if found is not None and seen else None

    def open_lessons(
        self, lessons: Mapping[str, Lesson], reader: str = "optimizer"
    ) -> dict[str, Lesson]:
        """Return those of these lessons that a reader may see: none that is as closed as an
        experience it cites."""
        self.metadata.refresh()
        scope = self._scope(reader)
        return {id: lesson for id, lesson in lessons.items() if not self._is_closed(lesson, scope)}

    def facts(self, filters: JsonMap | None = None, reader: str = "human") -> Iterator[JsonDict]:
        """Yield id and facts of the experiences that match (see KEYS), without reading them: for
        lists."""
        return (row for row, seen in self.list_facts(filters, reader) if seen)

    def list_facts(
        self, filters: JsonMap | None = None, reader: str = "human"
    ) -> Iterator[tuple[JsonDict, bool]]:
        """Yield the same of all that match, each with whether the reader may see it."""
        where = parse(filters)
        for key in ("grain", "step"):
            where.pop(key, None)
        if "experience" in where:
            where["id"] = where.pop("experience")
        inside: dict[str, list[Any]] = {
            key: where.pop(key) for key in ("tool", "file") if key in where
        }
        self.metadata.refresh()
        scope = self._scope(reader)
        gone = self.forgotten.read()
        for row in self.metadata.rows(where):
            if row["id"] in gone:
                continue
            seen = scope.sees(row["id"], row["split"], row["group"], row["task"])
            if inside:
                e = self._get(row["id"], _EVERYTHING)
                hit = experience_hit(e, e.id, 0.0) if e is not None else None
                if e is None or hit is None or not matches(inside, hit):
                    continue
                seen = seen and scope.sees(e.id, e.split, e.group, e.task)
            yield row, seen

    def hold_out(self, tasks: Iterable[Task]) -> None:
        """Close the groups of these tasks to optimizers and agents, for good; train tasks are
        ignored. What is closed by experiences that were copied in is registered too."""
        self.metadata.refresh()
        groups, ids = self.metadata.closed_names()
        there = [Held(g, "", "validation", "") for g in groups] + [
            Held("", t, "validation", "") for t in ids
        ]
        self.held_out.add([*(Held(t.group, t.id, t.split, t.domain) for t in tasks), *there])

    def is_closed(self, e: Experience) -> bool:
        """Whether an attempt at a train task is held out by now, or its agent recalled one that
        is."""
        self.metadata.refresh()
        return not self._scope("optimizer").sees(e.id, "train", e.group, e.task)

    def close_told(self) -> None:
        """Register attempts that recalled what is held out, as tasks: what they recalled may be
        deleted next."""
        self.metadata.refresh()
        self.held_out.add(Held("", id, "validation", "") for id in self._scope("optimizer").told)

    def lessons(self) -> dict[str, tuple[str, Lesson]]:
        """Return `lesson:DOMAIN/NAME` -> (checksum, lesson) of the lessons and patterns that stand:
        see lessons/store.py.

        One that a person broke is left out here; `recreate patterns list` says what is wrong with
        it.
        """
        found = dict[str, tuple[str, Lesson]]()
        general = set[str]()
        for pattern in ("*/lessons/*.md", "*/patterns/*.md", "general/*.md"):
            for path in sorted(self.folder.glob(pattern)):
                try:
                    text = lesson_text(path)
                    lesson = read_lesson(path.stem, text)
                except FileNotFoundError:
                    continue
                except OSError as e:
                    raise fault(path.parent, e) from e
                except BadInput:
                    continue
                domain = "general" if path.parent.name == "general" else path.parent.parent.name
                general |= {path.stem} if domain == "general" else set()
                found.pop(f"lesson:{domain}/{path.stem}", None)
                if lesson.status not in ("merged", "forgotten", "vetoed", "held"):
                    found[f"lesson:{domain}/{path.stem}"] = (digest(text), lesson)
        # of two with one id the later counts, the general one last, as LessonStore has it
        kept = {
            key: x
            for key, x in found.items()
            if _domain(key) == "general" or x[1].id not in general
        }
        return kept if general else found

    # finding

    def recall(
        self,
        query: str,
        k: int = 8,
        filters: JsonMap | None = None,
        reader: str = "optimizer",
        how: str = "hybrid",
    ) -> list[Hit]:
        """Return the k experiences and lessons that answer `query` best, best first, each by its
        best document (itself, or one of its steps); where a grain is asked for, the k best
        documents of it.

        how: `keywords` (score: BM25), `vectors` (the cosine), or both fused, `hybrid` (the sum of a
        weight / (60 + rank)). The fact `words` of a hit are those of the question that stand in it,
        `ranks` of a hybrid one its places by words and by vectors (1 the best, 0: not among the
        best of that kind). Where the embedder's package is missing, hybrid finds by words alone and
        `note` is told so. filters: a name of KEYS -> a value or a list of values, e.g. {"domain":
        "swe", "grain": "step"}. Raises BadInput for an unknown filter, reader or way, Missing for
        `vectors` without the packages it needs.
        """
        wanted = parse(filters)
        if k < 1:
            raise BadInput(f"k is {k}: how many to recall is at least 1", fix="-k 8")
        if how not in HOWS:
            raise BadInput(f"there is no way {how!r} to recall", fix=f"one of: {', '.join(HOWS)}")
        from recreate.memory.index import Question

        self.metadata.refresh()
        scope = self._scope(reader)
        lessons = self.lessons()
        closed = {"group": scope.groups, "task": scope.tasks} if scope.train_only else None
        question = Question(query, how, wanted, closed, self.patience)
        read = lru_cache(None)(lambda key: self._get(key, scope))
        asked = k + 8
        while True:
            recalled = self._ranked(question, asked, self._sources(scope, lessons))
            found = (
                self._lesson_hit(id, lessons[id][1], score, scope)
                if id in lessons
                else self._experience_hit(read(id.partition("/")[0]), id, score, scope)
                for id, score in recalled.found
            )
            fit = (hit for hit in found if hit is not None and matches(wanted, hit))
            hits = list(islice(_drop_twins(fit), k))
            if len(hits) == k or len(recalled.found) < asked or asked > 5000:
                break
            asked *= 4
        if recalled.behind:
            self.note(
                f"{recalled.behind} of {recalled.sources} experiences and lessons have no vector"
                " yet and were looked for by words alone; recreate memory rebuild makes them"
            )
        return [self._mark_hit(hit, query, read, recalled.ranks) for hit in hits]

    def _experience_hit(
        self, e: Experience | None, id: str, score: float, scope: Scope
    ) -> Hit | None:
        """Return a hit as its file tells it; None where the reader may not see it."""
        found = experience_hit(e, id, score, self.metadata.when(e.id)) if e is not None else None
        if found is not None and scope.train_only and e is not None and e.canary:
            # no model is asked with it
            return found.model_copy(update={"text": f"{found.text}\n{e.canary}"})
        return found

    def _mark_hit(
        self,
        hit: Hit,
        query: str,
        read: Callable[[str], Experience | None],
        ranks: Mapping[str, tuple[int, int]],
    ) -> Hit:
        """Return a hit with the words of the question that stand in it, and its places."""
        from recreate.memory.index.tokenizer import standing

        e = read(hit.experience) if hit.experience else None
        whole = hit.text if e is None else documents.words_of(e, hit.id)
        facts = {**hit.facts, "words": standing(whole, query)}
        facts |= {"ranks": list(ranks[hit.id])} if hit.id in ranks else {}
        return hit.model_copy(update={"facts": facts})

    def search(
        self,
        text: str,
        filters: JsonMap | None = None,
        reader: str = "human",
        k: int = 50,
    ) -> list[Hit]:
        """Experiences and steps that hold every word of `text` (any case, any script), newest file
        last.

        A plain scan of the files: nothing to install, nothing to keep up to date, no text too long.
        score counts how often the words occur; text is the place where the first one stands.
        Lessons are searched too. An optimizer is told those of a run by their ids: attempts at once
        end in any order, and a replay asks what was asked.
        """
        wanted = parse(filters)
        parts = [w.casefold() for w in text.split()]
        if not parts:
            raise BadInput("nothing to search for", fix="recreate traces search WORDS")
        scope = self._scope(reader)
        hits: list[Hit] = []
        if allows(wanted, "grain", "experience") or allows(wanted, "grain", "step"):
            rows = self.facts({k: v for k, v in wanted.items() if k not in LATER}, reader)
            if reader == "optimizer":
                runs = groupby(rows, key=itemgetter("run"))
                rows = (row for _, of_run in runs for row in sorted(of_run, key=itemgetter("id")))
            for row in rows:
                e = self._get(row["id"], scope, whole=True)
                if e is not None:
                    hits += [h for h in scan(e, parts, row["when"]) if matches(wanted, h)]
                if len(hits) >= k:
                    return hits[:k]
        for key, (_, lesson) in self.lessons().items():
            hit = self._lesson_hit(key, lesson, 0.0, scope)
            count = occurrences(f"{lesson.title}\n{lesson.body}", parts)
            if hit is not None and count and matches(wanted, hit):
                hits.append(hit.model_copy(update={"score": float(count)}))
        return hits[:k]

    # the index

    def embed(self, texts: Sequence[str], kind: str = "passage") -> list[list[float]]:
        """Unit vectors of this memory's embedder; one caller at a time gets in."""
        with self._embedding:
            return embed_texts(self.embedder, texts, kind)

    def count(self, domain: str) -> int:
        """Return how many train experiences of a domain there are."""
        self.metadata.refresh()
        return int(self.metadata.counts()["domains"].get(domain, {}).get("train", 0))

    @property
    def index(self) -> Index:
        """What everything is found by, on disk."""
        if self._index is None:
            from recreate.memory.index import Index

            self._index = Index(self.metadata.database, lambda: self.embedder)
        return self._index

    @property
    def embedder(self) -> Embedder:
        """What makes the vectors. Raises Missing when its package is not installed."""
        if self._embedder is None:
            self._embedder = default_embedder(self.note)
        elif isinstance(self._embedder, str):
            self._embedder = open_embedder(self._embedder)
        return self._embedder

    def catch_up(self, reader: str = "optimizer") -> None:
        """Make what was added findable now, so that the next question does not wait for it."""
        self.metadata.refresh()
        if self.folder.is_dir():
            self.index.sync(self._sources(self._scope(reader), self.lessons()), self.progress)

    def embedder_in_use(self) -> str:
        """Return the name of the embedder that made the index as it is, '' when there is none."""
        return str(self.index.facts()["embedder"])

    def rebuild(self, progress: Callable[[int, int], None] | None = None) -> JsonDict:
        """Make everything derived again from the files, and return stats(). Known vectors are not
        paid twice.

        progress(done, to do): experiences and lessons.
        """
        if self.folder.is_dir():
            self.metadata.rebuild()
            sources = self._sources(self._scope("human"), self.lessons())
            self.index.rebuild(sources, progress or self.progress)
        return self.stats()

    def purge(self) -> None:
        """Let no derived file hold anything of experiences and lessons that are out of the files:
        of what was deleted from a database, the file goes on holding words."""
        self.metadata.refresh()
        if index_of(self.folder, self.kind).is_dir():
            self.index.purge(self._sources(self._scope("human"), self.lessons()))

    def stats(self) -> JsonDict:
        """Counts by grain, domain and split, what is held out, and what the index holds with its
        digest.

        `indexed` are documents in the index now; the rest is embedded at the next recall that may
        see it.
        """
        self.metadata.refresh()
        counts = self.metadata.counts()
        lessons = self.lessons()
        scope = self._scope("optimizer")
        hidden = 0
        if scope.groups or scope.tasks:
            hidden = sum(
                not scope.sees(r["id"], r["split"], r["group"], r["task"])
                for r in self.metadata.rows({"split": ["train"]})
            )
        index = self.index.facts()
        return {
            "experiences": counts["experiences"],
            "steps": counts["steps"],
            "lessons": len(lessons),
            "grains": {
                "experience": counts["experiences"],
                "step": counts["steps"],
                "lesson": len(lessons),
            },
            "splits": dict(sum(map(Counter, counts["domains"].values()), Counter[str]())),
            "domains": counts["domains"],
            "damaged_lines": counts["damaged_lines"],
            "blobs": self._count_blobs(),
            "held_out": {
                "groups": len(scope.groups),
                "tasks": len(scope.tasks),
                "hidden_train": hidden,
            },
            "files_digest": digest(self.metadata.sums()),
            "index": index,
            "digest": index["digest"],
        }

    def close(self) -> None:
        """Let go of all files."""
        self.metadata.close()
        if self._index is not None:
            self._index.close()

    # inside

    def _find_known(self, ids: Sequence[str], paths: Iterable[Path]) -> set[str]:
        """Return those of the ids that are recorded. Reading what this process itself wrote last is
        spared."""
        if len(self._added) > 1000 or any(self._left.get(path) != _stamp(path) for path in paths):
            self._left.clear()
            self._added.clear()
            self.metadata.refresh()
            self._left.update((path, _stamp(path)) for path in paths)
        return self.metadata.knows([id for id in ids if id not in self._added]) | (
            self._added & set(ids)
        )

    def _scope(self, reader: str) -> Scope:
        if reader not in READERS:
            raise BadInput(f"no reader is called {reader!r}", fix=f"one of: {', '.join(READERS)}")
        if reader == "human":
            return Scope(False, frozenset(), frozenset())
        held = self.held_out.read()
        more, others = self.metadata.closed_names()  # recorded elsewhere and copied here
        closed = more.union(held.groups), others.union(held.tasks)
        return Scope(True, *closed, self.metadata.recallers_of(*closed), reader == "agent")

    def _get(self, id: str, scope: Scope, *, whole: bool = False) -> Experience | None:
        """Return it as its line has it; with `whole` its large texts are read as well."""
        line = None if id in self.forgotten.read() else self.metadata.find(id)
        if line is None or line.record is None:
            return None
        try:
            found = Experience.model_validate(
                self.blobs.restore(line.record) if whole else line.record["experience"]
            )
        except (ValidationError, KeyError) as e:
            raise BadInput(
                f"the experience {id} in {self.folder} is not one: {str(e).splitlines()[0]}",
                fix="recreate traces list shows the rest; delete that line if nobody needs it",
            ) from e
        if not scope.sees(id, found.split, found.group, found.task):
            return None
        return mark_untrusted(found) if scope.train_only else found

    def _ranked(self, question: Question, n: int, sources: Sources) -> Recalled:
        try:
            return self.index.search(question, n, sources, self.progress)
        except Missing as e:
            if question.how != "hybrid":
                raise
            if not self._warned:
                self._warned = True
                self.note(f"{e.message}, so recall compares words and not meaning; {e.fix}")
            return self.index.search(question._replace(how="keywords"), n, sources, self.progress)

    def _sources(self, scope: Scope, lessons: Mapping[str, tuple[str, Lesson]]) -> Sources:
        """Return what the index must hold for a reader: nothing is embedded before somebody may see
        it."""

        def of(key: str) -> Sequence[Document]:
            if key in lessons:
                return [documents.lesson_document(lessons[key][1], key, _domain(key))]
            e = self._get(key, _EVERYTHING, whole=True)
            return documents.documents(e, self.metadata.when(key)) if e is not None else []

        return Sources(
            sees=scope.sees,
            lessons={key: sum_ for key, (sum_, _) in lessons.items()},
            documents=of,
        )

    def _lesson_hit(self, key: str, lesson: Lesson, score: float, scope: Scope) -> Hit | None:
        if self._is_closed(lesson, scope) or (
            scope.working and self._is_no_advice(key, lesson, scope)
        ):
            return None
        facts: JsonDict = {
            "domain": _domain(key),
            "scope": lesson.scope,
            "status": lesson.status,
        }
        facts |= {
            name: list(getattr(lesson, name)) for name in ("born_of", "supports", "contradicts")
        }
        facts |= {"trust": lesson.trust} if lesson.trust != "own" else {}
        text = f"{lesson.title}\n{lesson.body}"
        text = mark_text(lesson.trust, text) if scope.train_only else text
        return Hit(id=key, grain="lesson", score=score, split="train", text=text, facts=facts)

    def _is_closed(self, lesson: Lesson, scope: Scope) -> bool:
        """Whether a lesson cites an experience that the reader may not see, also one that was
        deleted since: then by its group."""
        if not scope.train_only:
            return False
        if not (scope.groups | scope.tasks).isdisjoint(lesson.groups):
            return True
        cited = [*lesson.born_of, *lesson.supports, *lesson.contradicts]
        rows = self.metadata.rows({"id": cited}) if cited else ()
        return any(
            not scope.sees(row["id"], row["split"], row["group"], row["task"]) for row in rows
        )

    def _is_no_advice(self, key: str, lesson: Lesson, scope: Scope) -> bool:
        """Whether a lesson stopped helping, or says what belongs to a held-out task, as far as
        memory knows that: its id and group, and of one that was attempted its words and answers."""
        if lesson.status == "quarantined":
            return True
        stamp = self.metadata.edition(), scope.groups, scope.tasks
        if stamp != self._spoken.stamp:
            self._spoken = self._find_spoken(scope)._replace(stamp=stamp)
        _, of_what, tasks, verdicts = self._spoken
        own = _text_of(key, lesson)
        if digest(own) not in verdicts:
            others = (_text_of(id, each) for id, (_, each) in self.lessons().items())
            new = {sum_: each for each in (own, *others) if (sum_ := digest(each)) not in verdicts}
            closed = (Held(g, "", "validation", "") for g in scope.groups)
            spoken = Spoken([*self.held_out.entries(), *closed], self._read_attempts(tasks))
            verdicts |= spoken.find(new)
            self.metadata.keep_verdicts(of_what, verdicts)
        return verdicts[digest(own)]

    def _find_spoken(self, scope: Scope) -> _Spoken:
        """Return what tells here what is held out, and which lessons are known to speak of it."""
        held = dict[str, JsonDict]()
        train = dict[str, JsonDict]()
        right = set[str]()
        rows = self.metadata.rows({"split": ["validation", "test"]})
        for row in chain(rows, islice(self.metadata.rows({"split": ["train"]}), MOST_TRAIN)):
            of = train if scope.sees(row["id"], row["split"], row["group"], row["task"]) else held
            if row["task"] not in of or (row["passed"] and row["task"] not in right):
                right.update([row["task"]] if row["passed"] else [])
                of[row["task"]] = row
        tasks = {
            row["id"]: make_task(
                row["task"], row["domain"], row["group"], "test" if row["task"] in held else "train"
            )
            for row in (*held.values(), *train.values())
        }
        registered = self.held_out.entries()
        of_what = digest([edition(), sorted(scope.groups), registered, [*held], [*tasks]])
        return _Spoken(None, of_what, tasks, self.metadata.verdicts(of_what))

    def _read_attempts(self, tasks: Mapping[str, Task]) -> list[Attempted]:
        """Return what these attempts tell of their tasks, as it was noted when they were read
        first."""
        noted = self.metadata.noted(edition())
        found = list[Attempted]()
        new = dict[tuple[str, str], str]()
        for id, task in tasks.items():
            if (note := noted.get((id, task.split))) is not None:
                answer, _, says = note.partition("\n")
                found.append(Attempted(task, says, json.loads(answer)))
            elif (e := self._get(id, _EVERYTHING)) is not None:
                found.append(read_attempt(e, task))
                new[id, task.split] = f"{json.dumps(found[-1].answer)}\n{found[-1].says}"
        self.metadata.note(edition(), new)
        return found

    def _count_blobs(self) -> dict[str, int]:
        """Return how many large texts there are, and how many that a line names are missing or
        damaged: all are read."""
        there = {(domain, sha): path.stat().st_size for domain, sha, path in self.blobs.all()}
        named = self.metadata.blobs()
        wrong = [self.blobs.wrong(domain, sha) for domain, sha in named]
        return {
            "count": len(there),
            "bytes": sum(there.values()),
            "missing": wrong.count("missing"),
            "damaged": wrong.count("damaged"),
            "unreferenced": len(there.keys() - named),
        }


def _drop_twins(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Return hits without lessons whose words and standing another has, such as a pattern and its
    general twin."""
    seen = set[tuple[str, str]]()
    for hit in hits:
        words = (hit.text, hit.facts["status"]) if hit.grain == "lesson" else (hit.id, "")
        if words not in seen:
            seen.add(words)
            yield hit


class Forgotten:
    """The registry of experiences that must not come back. It only grows; a line that cannot be
    read is passed over."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "forgotten.jsonl"
        self._log = Log(self.path, durable=True, fix="")
        self._read: tuple[tuple[int, int], frozenset[str]] = ((0, 0), frozenset())

    def read(self) -> frozenset[str]:
        """Return their ids."""
        stamp = _stamp(self.path)
        if stamp != self._read[0]:
            self._read = stamp, frozenset(str(record.get("id", "")) for record in self._log.read())
        return self._read[1]

    def add(self, ids: Iterable[str]) -> None:
        """Register what is not yet; on the disk when this returns."""
        with locked(self.path.parent):
            if new := sorted(set(ids) - self.read()):
                with self._log as log:
                    log.append(*({"id": id} for id in new))


_EVERYTHING = Scope(False, frozenset(), frozenset())


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes whenever somebody writes the file."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def _text_of(key: str, lesson: Lesson) -> tuple[str, str]:
    """Return what a lesson says, and of which domain."""
    return f"{lesson.title}\n{lesson.body}", _domain(key)


def _domain(key: str) -> str:
    return key.removeprefix("lesson:").rpartition("/")[0]
