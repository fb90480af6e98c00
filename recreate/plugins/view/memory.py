"""What the page of the memory asks and changes: recall as an optimizer sees it, a timeline,
lessons, forgetting.

What is held out is in none of it. What a person changes goes by the doors of the command line:
LessonStore and forget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import overload

from recreate.agents.lesson import headed, lesson_text, read_lesson
from recreate.api.errors import BadInput
from recreate.api.paths import memory as memory_folder
from recreate.api.ports import Hit
from recreate.api.shapes import JsonDict
from recreate.api.types import Lesson, digest
from recreate.lessons.promotion import free
from recreate.lessons.store import LessonStore
from recreate.memory.store import ExperienceStore
from recreate.plugins.memory_tools.forget import Forgetting, forget
from recreate.plugins.traces.ungraded import Ungraded
from recreate.plugins.traces.waiting import count_hidden, recall
from recreate.runs import settings
from recreate.storage.files import locked, write
from recreate.storage.log import iso
from recreate.storage.redact import redacted

READER = "optimizer"
HITS = 25
PATIENCE = 0.5
"""Seconds that a page waits for vectors that are not made yet."""
BARS = 60
"""Bars of the timeline at most."""
STEPS = (1, 7, 28, 91, 364)
"""Days that a bar may stand for."""


@dataclass
class Found:
    """hits: of words; rows: without words, the attempts that the filters leave, the newest first;
    hidden: held-out attempts that they leave too; days: the timeline; unknown: attempts that do not
    say when; notes: what recall said.
    """

    hits: list[Hit] = field(default_factory=list)
    rows: Sequence[JsonDict] = ()
    hidden: int = 0
    days: list[JsonDict] = field(default_factory=list)
    unknown: int = 0
    notes: list[str] = field(default_factory=list)


class Newest(Sequence[JsonDict]):
    """Attempts in a given order; what is known of them is read as far as it is asked for."""

    def __init__(self, store: ExperienceStore, ids: Sequence[str]) -> None:
        self.store = store
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> JsonDict: ...
    @overload
    def __getitem__(self, at: slice) -> list[JsonDict]: ...
    def __getitem__(self, at: int | slice) -> JsonDict | list[JsonDict]:
        if isinstance(at, int):
            return self[at : at + 1 or None][0]
        ids = self.ids[at]
        rows = (
            {row["id"]: row for row in self.store.facts({"experience": list(ids)}, READER)}
            if ids
            else {}
        )
        some = (rows[id] for id in ids if id in rows)
        return [{**row, "day": iso(row["when"])[:10] if row["when"] else ""} for row in some]


class Browsed:
    """The memory of a workspace, for a person who looks through it."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self._store: ExperienceStore | None = None
        self._notes: list[str] = []

    @property
    def store(self) -> ExperienceStore:
        """With the embedder of the workspace's settings: another would make all vectors anew.
        Raises BadInput."""
        if self._store is None:
            embedder = settings.load(self.where).memory.embedder or None
            self._store = ExperienceStore(
                self.where, embedder, note=self._notes.append, patience=PATIENCE
            )
        return self._store

    def ask(self, words: str, filters: Mapping[str, str]) -> Found:
        """What the page shows. filters: domain, outcome, grain, since, until. Raises BadInput."""
        store = self.store
        found = Found()
        self._notes.clear()
        if words:
            found.hits = recall(store, words, HITS, filters, READER)
            if filters.keys() & {"since", "until"} and filters.get("grain", "lesson") == "lesson":
                undated = {k: v for k, v in filters.items() if k not in ("since", "until")} | {
                    "grain": "lesson"
                }
                taught = [
                    h
                    for h in store.recall(words, HITS, undated, READER)
                    if self._taught(store, h, filters)
                ]
                found.hits = sorted([*found.hits, *taught], key=lambda hit: -hit.score)[:HITS]
        elif filters.get("grain") == "lesson":
            found.hits = self._lessons(store, filters)
        # no more of each: there may be a million
        ids = list[str]()
        attempts = list[tuple[float | None, bool]]()
        for row, seen in store.list_facts(filters, READER):
            if seen:
                ids.append(row["id"])
                attempts.append((row["when"], row["passed"]))
            else:
                found.hidden += 1
        found.days, found.unknown = timeline(attempts)
        if not words and filters.get("grain") != "lesson":
            newest = sorted(range(len(ids)), key=lambda n: attempts[n][0] or 0.0, reverse=True)
            found.rows = Newest(store, [ids[n] for n in newest])
        if unseen := count_hidden(store, filters, READER):
            many = (
                "attempt that nobody graded is"
                if unseen == 1
                else "attempts that nobody graded are"
            )
            found.notes.append(f"{unseen} imported {many} not among these.")
        found.notes += self._notes
        return found

    def _lessons(self, store: ExperienceStore, filters: Mapping[str, str]) -> list[Hit]:
        wanted = filters.get("domain", "")
        seen = {key: store.lesson(key, READER) for key in store.lessons()}
        hits = [
            Hit(
                id=key,
                grain="lesson",
                score=0.0,
                split="train",
                text=f"{lesson.title}\n{lesson.body}",
                facts={"born_of": lesson.born_of, "supports": lesson.supports},
            )
            for key, lesson in seen.items()
            if lesson is not None and (not wanted or key.startswith(f"lesson:{wanted}/"))
        ]
        return [hit for hit in hits if self._taught(store, hit, filters)]

    @staticmethod
    def _taught(store: ExperienceStore, hit: Hit, filters: Mapping[str, str]) -> bool:
        """Whether a lesson is of these days: it has none of its own, but those of the attempts that
        it speaks of."""
        dates = {name: filters[name] for name in ("since", "until") if name in filters}
        ids = [*hit.facts["born_of"], *hit.facts["supports"]]
        return not dates or (
            bool(ids) and any(True for _ in store.facts({"experience": ids, **dates}, READER))
        )

    # what a person changes

    def mergeable(self, path: str) -> dict[str, str]:
        """id -> title of the lessons that may join the one at a path in memory/; {} where a policy
        knows no merging."""
        store, id = lessons_at(memory_folder(self.where), path)
        lessons = store.read() if store.policy == "recreate" else {}
        if id not in lessons or not free(lessons[id]):
            return {}
        return {other: x.title for other, x in lessons.items() if other != id and free(x)}

    def change(self, path: str, form: Mapping[str, str]) -> str:
        """Edit a lesson or merge another into it; says what was done. Raises BadInput."""
        store, id = lessons_at(memory_folder(self.where), path)
        match form.get("decision"):
            case "edit":
                lesson = reword(
                    store, id, form.get("title", ""), form.get("body", ""), form.get("seen", "")
                )
                return f"{lesson.title}: these are its words now"
            case "merge" if form.get("member") in self.mergeable(path):
                store.join(id, form["member"])
                return f"{form['member']} has joined it"
            case _:
                raise BadInput(
                    "no change was given",
                    fix="edit its words, or name the lesson that joins",
                    code="usage",
                )

    def plan(self, kind: str, id: str) -> Forgetting:
        """What would go with an attempt (`experiences`, its id) or a lesson (`lessons`, its path).
        Raises BadInput."""
        return self._forget(kind, id, dry=True)

    def forget(self, kind: str, id: str, seen: str) -> str:
        """Forget it; seen: the mark of the plan that the person saw. Raises BadInput when it is
        another by now."""
        if mark(self.plan(kind, id)) != seen:
            raise BadInput(
                "what depends on it changed meanwhile", fix="look at it again first", code="stale"
            )
        return "; ".join([*self._forget(kind, id, dry=False).describe(dry=False)][:8])

    def _forget(self, kind: str, id: str, *, dry: bool) -> Forgetting:
        store = self.store
        if kind == "lessons":
            lessons, name = lessons_at(store.folder, id)
            return forget(store, [], [lessons.find(name)], dry=dry)
        store.metadata.refresh()
        if not store.metadata.knows([id]) and id not in Ungraded(store).ids():
            raise BadInput(
                f"memory has no attempt {id}", fix="search finds what there is", code="no-attempt"
            )
        return forget(store, [id], dry=dry)


def reword(store: LessonStore, id: str, title: str, body: str, seen: str) -> Lesson:
    """Give a lesson other words of a person's; its evidence stays. seen: the `digest` of the
    file that he saw.

    Raises BadInput when somebody wrote it meanwhile, and for an empty one.
    """
    title = redacted(" ".join(title.split()))
    body = redacted("\n".join(body.splitlines()).strip())
    if not title or not body:
        raise BadInput(
            "a lesson has a title and a text",
            fix="say what to do, in a few sentences",
            code="no-text",
        )
    with locked(store.folder):
        path = store.find(id)
        text = lesson_text(path)
        if digest(text) != seen:
            raise BadInput(
                "somebody changed this lesson meanwhile",
                fix="look at it again first",
                code="stale",
            )
        lesson = read_lesson(path.stem, text).model_copy(update={"title": title, "body": body})
        write(path, headed(lesson))
    return lesson


def mark(plan: Forgetting) -> str:
    """The same for the same plan."""
    return digest([*plan.describe(dry=True)])


def lessons_at(folder: Path, path: str) -> tuple[LessonStore, str]:
    """The store of a lesson by its path in memory/ without .md, and its id. Raises BadInput."""
    match path.split("/"):
        case ["general", id]:
            store = LessonStore(folder, "general")
        case [domain, "lessons" | "patterns", id]:
            store = LessonStore(folder, domain)
        case [domain, policy, id]:
            store = LessonStore(folder, domain, policy)
        case _:
            raise BadInput(
                f"there is no lesson {path}",
                fix="the list of lessons has what there is",
                code="no-lesson",
            )
    if (
        ".." in path.split("/")
        or store.find(id).relative_to(folder).with_suffix("").as_posix() != path
    ):
        raise BadInput(
            f"there is no lesson {path}",
            fix="the list of lessons has what there is",
            code="no-lesson",
        )
    return store, id


def timeline(attempts: Sequence[tuple[float | None, bool]]) -> tuple[list[JsonDict], int]:
    """(bars of days, weeks or more: {first, after, step, passed, failed, most}, how many do not say
    when). after: the day after it; step: in days; most: attempts of the highest."""
    dated = Counter(
        (datetime.fromtimestamp(when, UTC).date(), passed) for when, passed in attempts if when
    )
    if not dated:
        return [], len(attempts)
    begin = min(day for day, _ in dated)
    end = max(day for day, _ in dated)
    step = next(
        (n for n in STEPS if (end - begin).days // n < BARS), (end - begin).days // BARS + 1
    )
    bars: list[JsonDict] = [_bar(begin, n, step) for n in range((end - begin).days // step + 1)]
    for (day, passed), count in dated.items():
        bars[(day - begin).days // step]["passed" if passed else "failed"] += count
    most = max(bar["passed"] + bar["failed"] for bar in bars)
    return [{**bar, "most": most} for bar in bars], len(attempts) - dated.total()


def _bar(begin: date, n: int, step: int) -> JsonDict:
    first = begin + timedelta(days=n * step)
    after = first + timedelta(days=step)
    return {
        "first": first.isoformat(),
        "after": after.isoformat(),
        "step": step,
        "passed": 0,
        "failed": 0,
    }
