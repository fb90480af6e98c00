"""The lessons and patterns of a domain, as Markdown files that a person reads, edits, freezes and
vetoes.

    memory/DOMAIN/lessons/ID.md     what single experiences taught                  (scope instance)
    memory/DOMAIN/patterns/ID.md    what proved itself on several groups of tasks   (scope domain)
    memory/general/ID.md            what proved itself in a second domain as well   (scope general)
    memory/DOMAIN/POLICY/ID.md      the same of a policy other than `recreate` and `randomised`,
                                    which keeps to itself

The files are the source: nothing else says what a lesson is worth. They are read before each use
and written under the folder's lock, file by file, each in one step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from recreate.agents.lesson import headed, lesson_at, lesson_id
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.api.types import Lesson, Trust
from recreate.lessons.gaming import advice_of, hold
from recreate.lessons.promotion import free, joined, key
from recreate.storage.files import fault, locked, write
from recreate.storage.redact import redacted

OURS = "recreate"
CLIMBING = (OURS, "randomised")
"""The policies whose lessons climb, on one ladder; the files of the others lie in folders of their
own."""

_SETS = ("born_of", "supports", "contradicts", "groups", "domains", "failed_in", "merged")
_COUNTS = (
    "offered",
    "carried",
    "helpful",
    "harmful",
    "seen",
    "rounds",
    "tested",
    "falls",
    "checked",
)
_WORDS = ("title", "body", "trust", "status", "before_veto", "frozen")


class LessonStore:
    """What one policy keeps of one domain, and the general patterns. `folder` is the workspace's
    memory folder.

    `broken` says, after reading, which files a person must mend: path -> what is wrong. They are
    left as they are.
    """

    def __init__(self, folder: Path, domain: str, policy: str = OURS) -> None:
        self.folder = folder
        self.domain = domain
        self.policy = policy
        self.broken: dict[Path, str] = {}

    def read(self) -> dict[str, Lesson]:
        """Return id -> lesson: the domain's own, and the general patterns."""
        self.broken = {}
        found: dict[str, Lesson] = {}
        at: dict[str, Path] = {}
        for path in self._files():
            lesson = self._lesson(path)
            if lesson is not None:
                if other := at.get(lesson.id):
                    used = path.relative_to(self.folder)
                    self.broken[other] = (
                        f"{used} has the same id and counts in its place; take one of the two away"
                    )
                found[lesson.id], at[lesson.id] = lesson, path
        return found

    def elsewhere(self) -> list[Lesson]:
        """Return the active patterns of other domains, with the domain they are from, in the order
        of their names."""
        found = []
        for path in sorted(self.folder.glob("*/patterns/*.md")) if self.policy in CLIMBING else []:
            domain = path.parent.parent.name
            lesson = self._lesson(path) if domain != self.domain else None
            if lesson is not None and lesson.status == "active":
                found.append(lesson.model_copy(update={"domains": lesson.domains or (domain,)}))
        return found

    def write(self, before: Mapping[str, Lesson], after: Mapping[str, Lesson]) -> list[Path]:
        """Put what `after` changed against `before` on disk, and return the files written.

        A file that changed since `before` was read keeps a person's words and standing, and gets
        the counts of both; so does one that a person froze or vetoed, whoever writes. One that
        somebody took away meanwhile stays away. Nothing is deleted: a lesson that climbs moves to
        the folder of its scope. Raises Fault on a full disk.
        """
        changed = {id: lesson for id, lesson in after.items() if before.get(id) != lesson}
        if not changed:
            return []
        written = []
        with locked(self.folder):
            there = {path.stem: path for path in self._files()}
            for id, lesson in changed.items():
                old = there.get(id)
                now = self._lesson(old) if old is not None else None
                if now is None and (old is not None or id in before):
                    continue  # a person broke it, and mends it, or took it away meanwhile
                target = self.path(lesson)
                if now is not None and (
                    now != before.get(id) or now.frozen or now.status == "vetoed"
                ):
                    lesson = united(before.get(id), now, lesson)
                    target = self.path(lesson)
                write(target, headed(lesson))
                written.append(target)
                if old is not None and old != target:
                    old.unlink(missing_ok=True)
        return written

    def add(self, title: str, body: str, *, active: bool = False, trust: Trust = "hand") -> Lesson:
        """Add a lesson by hand, or of another agent: on trial, or in use at once as a pattern of
        the domain; held where its words tell to game a grader or order what no task asks for. The
        same again changes nothing.

        Raises BadInput for an empty one, and for a domain that cannot name a folder.
        """
        title = redacted(" ".join(title.split()))
        body = redacted(body.strip())
        if not title or not body:
            raise BadInput(
                "a lesson has a title and a text",
                fix="say what to do, in a few sentences",
                code="no-text",
            )
        # of memory's own files
        taken = self.domain in ("index", "general") or self.domain.endswith(".jsonl")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.domain) or taken:
            raise BadInput(
                f"{self.domain!r} cannot be a domain: it names a folder",
                fix="such as swe",
                code="usage",
            )
        lesson = Lesson(id=lesson_id(title, body), title=title, body=body, trust=trust)
        if active:
            lesson = lesson.model_copy(update={"status": "active", "scope": "domain"})
        lesson = hold(lesson, why) if (why := advice_of(lesson)) else lesson
        known = self.read()
        if lesson.id not in known:
            self.write(known, {**known, lesson.id: lesson})
        return known.get(lesson.id, lesson)

    def change(self, id: str, **fields: Any) -> Lesson:
        """Write a person's word on one lesson (`frozen=True`, `status="vetoed"`, ...), written at
        once."""
        with locked(self.folder):
            path = self.find(id)
            lesson = lesson_at(path)
            changed = lesson.model_copy(update=fields)
            write(path, headed(changed))
        return changed

    def join(self, id: str, member: str) -> Lesson:
        """Merge a lesson into another that says the same, by a person's word. Raises BadInput."""
        before = self.read()
        for each in (id, member):
            if each not in before or not free(before[each]) or id == member:
                raise BadInput(
                    f"{each} cannot be merged: it is not there, the same, frozen, vetoed, held or"
                    " merged already",
                    fix="recreate patterns list --all shows how each stands",
                    code="no-lesson",
                )
        after = {**before, **joined(before, id, member)}
        self.write(before, after)
        return after[id]

    def veto(self, id: str, *, undo: bool = False) -> Lesson:
        """Write a person's veto on a lesson, or its end: then it has the status again that it had.
        Raises BadInput."""
        with locked(self.folder):
            path = self.find(id)
            lesson = lesson_at(path)
            if undo and lesson.status != "vetoed":
                raise BadInput(
                    f"{path.stem} is not vetoed: it is {lesson.status}",
                    fix="leave --undo out to veto it",
                )
            if lesson.status != "vetoed":
                lesson = lesson.model_copy(
                    update={"status": "vetoed", "before_veto": lesson.status}
                )
            elif undo:
                lesson = lesson.model_copy(
                    update={"status": lesson.before_veto or "candidate", "before_veto": ""}
                )
            write(path, headed(lesson))
        return lesson

    def keep(self, id: str) -> Lesson:
        """Write a person's word that a lesson which is, or would be, held is honest, or that one of
        others may be used: it is again what it was, not held for these words again, and as trusted
        as what he wrote himself. Raises BadInput."""
        with locked(self.folder):
            path = self.find(id)
            lesson = lesson_at(path)
            if lesson.status == "held":
                stood = (
                    lesson.before_veto if lesson.before_veto not in ("", "held") else "candidate"
                )
                lesson = lesson.model_copy(update={"status": stood, "before_veto": ""})
            elif (why := advice_of(lesson)) or not lesson.trusted:
                lesson = lesson.model_copy(update={"held": why})
            else:
                said = f"{path.stem} is not held: it is {lesson.status}"
                raise BadInput(said, fix="recreate patterns list shows what is", code="no-lesson")
            if not lesson.trusted:
                lesson = lesson.model_copy(update={"trust": "hand"})
            write(path, headed(lesson))
        return lesson

    @staticmethod
    def every(folder: Path) -> Iterator[LessonStore]:
        """Yield the store of each domain and policy that has a lesson under this memory folder."""
        found = {
            (path.parent.parent.name, path.parent.name) for path in folder.glob("[!@]*/*/*.md")
        }
        found |= {("general", "patterns")} if any(folder.glob("general/*.md")) else set()
        kept = {
            (domain, OURS if kind in ("lessons", "patterns") else kind) for domain, kind in found
        }
        yield from (LessonStore(folder, domain, policy) for domain, policy in sorted(kept))

    def has(self, id: str) -> bool:
        """Whether some lesson's id begins so."""
        return any(path.stem.startswith(id) for path in self._files())

    def find(self, id: str) -> Path:
        """Return the file of a lesson by its id or a unique beginning. Raises BadInput that lists
        near ones."""
        files = {path.stem: path for path in self._files()}
        if id in files:
            return files[id]
        near = [name for name in files if id and name.startswith(id)]
        if len(near) != 1:
            known = sorted(near or files, key=lambda name: _in_use_first(files[name]))
            raise BadInput(
                f"{len(near) or 'no'} lessons of {self.domain} begin with {id!r}",
                fix=(
                    f"one of: {', '.join(known[:8])}"
                    if known
                    else "recreate patterns list shows what there is"
                ),
                code="no-lesson",
            )
        return files[near[0]]

    def path(self, lesson: Lesson) -> Path:
        """Return where a lesson lies: what its scope says. A pattern that stands in other domains
        only lies with them."""
        if self.policy not in CLIMBING:
            return self.folder / self.domain / self.policy / f"{lesson.id}.md"
        if lesson.scope == "general":
            return self.folder / "general" / f"{lesson.id}.md"
        if lesson.scope != "domain":
            return self.folder / self.domain / "lessons" / f"{lesson.id}.md"
        domain = (
            self.domain if self.domain in (lesson.domains or [self.domain]) else lesson.domains[0]
        )
        return self.folder / domain / "patterns" / f"{lesson.id}.md"

    def _files(self) -> Iterator[Path]:
        """Yield the files of lessons, in an order in which the higher scope of a lesson that was
        just moving comes last."""
        own = self.folder / self.domain
        folders = [own / "lessons", own / "patterns", self.folder / "general"]
        for folder in folders if self.policy in CLIMBING else [own / self.policy]:
            yield from sorted(folder.glob("*.md"))

    def _lesson(self, path: Path) -> Lesson | None:
        try:
            lesson = lesson_at(path)
        except FileNotFoundError:
            return None
        except BadInput as e:
            self.broken[path] = e.message
            return None
        except OSError as e:
            raise fault(path.parent, e) from e
        scope = {"patterns": "domain", "general": "general"}.get(path.parent.name)
        return (
            lesson.model_copy(update={"scope": scope})
            if scope and lesson.scope != scope
            else lesson
        )


def united(before: Lesson | None, now: Lesson, after: Lesson) -> Lesson:
    """Return a lesson that two wrote at once: `now` is on disk, `after` is ours, `before` what ours
    was made from.

    Evidence is the union of both, without what either took out (a domain in which it failed, an
    attempt that was forgotten). The words and a word like `vetoed` or `frozen` are those on disk
    when somebody changed them there, else ours.
    """

    def changed_by_others(field: str) -> bool:
        return before is not None and getattr(now, field) != getattr(before, field)

    def both(name: str, key: Callable[[Any], Any]) -> tuple[Any, ...]:
        old, there, ours = (
            {key(x): x for x in getattr(each, name)} if each else {}
            for each in (before, now, after)
        )
        gone = (old.keys() - there.keys()) | (old.keys() - ours.keys())
        return tuple(x for at, x in {**there, **ours}.items() if at not in gone)

    fields: JsonDict = {name: both(name, str) for name in _SETS}
    fields |= {name: max(getattr(now, name), getattr(after, name)) for name in _COUNTS}
    fields |= {
        "gains": both("gains", key),
        "steps": both("steps", lambda at: (at.experience, at.step)),
    }
    fields |= {
        name: both(name, lambda row: row.experience) for name in ("trials", "draws", "signs")
    }
    for name in (*_WORDS, "held", "merged_into"):
        fields[name] = getattr(now if changed_by_others(name) else after, name)
    fields["scope"] = after.scope
    if now.frozen or now.status == "vetoed":
        fields |= {name: getattr(now, name) for name in (*_WORDS, "scope")}
    return now.model_copy(update=fields)


def _in_use_first(path: Path) -> int:
    """Return where a lesson comes in a list of few of many: a person looks for one that counts."""
    try:
        status = lesson_at(path).status
    except (OSError, BadInput):
        return 3
    return {"active": 0, "held": 1, "candidate": 1, "quarantined": 1}.get(status, 2)
