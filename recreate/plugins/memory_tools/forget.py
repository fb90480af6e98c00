"""Forgetting: experiences and lessons, out of everything under memory/ that holds their words.

    memory/forgotten.jsonl   a sealed line each: {"id": ...} of an experience that must not come
                             back, or a digest of the name of a lesson that no import brings back

An experience goes with its large texts, its vectors, and the lessons that only it and others
forgotten speak for; of other lessons it is taken out of the evidence. A lesson that is forgotten by
name takes along those that had joined it: they say the same. A database goes on holding what was
deleted from it, so the catalogue and the words are written anew without it, and Chroma's folder is
thrown away. The registry is written first: from then on nobody is shown the experience and nobody
adds it again (a run that goes on would), whenever the process is killed. Forgetting it once more
finishes the work.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from recreate.agents.lesson import headed, lesson_at
from recreate.api.errors import BadInput
from recreate.api.paths import short
from recreate.api.types import Lesson
from recreate.memory.forget import CITING, CITING_ROWS, lesson_files, lesson_mark, surviving
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.cut import Item, cut_experiences
from recreate.plugins.traces.waiting import open_waiting
from recreate.storage.files import disk, locked, write
from recreate.storage.log import BLOCK

SHOWN = 20
"""Attempts that are told one by one."""


@dataclass
class Forgetting:
    """What goes, or went. experiences: their ids; items: their lines and large texts; lessons: the
    files that are deleted, joined: those among them that go since they had joined one that was
    named; changed: lessons that lose evidence, or stand for themselves again, since what they had
    joined goes; same: lessons that stay and have the words of one that goes; elsewhere: what
    outside of memory/ still has them; recalled: attempts that stay whose agents were told of
    them."""

    experiences: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    lessons: list[Path] = field(default_factory=list)
    joined: list[Path] = field(default_factory=list)
    changed: list[Path] = field(default_factory=list)
    same: list[Path] = field(default_factory=list)
    elsewhere: list[Path] = field(default_factory=list)
    recalled: list[str] = field(default_factory=list)

    def describe(self, *, dry: bool) -> Iterator[str]:
        """In words, a line each; dry: nothing of it happened yet."""
        gone = "would be deleted" if dry else "deleted"
        for id in self.experiences[:SHOWN]:
            yield f"{gone}: the attempt {id}, its texts and its vector"
        if more := len(self.experiences[SHOWN:]):
            yield f"{gone}: {more:,} attempts more; --json names each"
        for item in self.items:
            if item.kind == "blobs" and item.going:
                yield f"{gone}: {item.count} large texts of it alone, {item.bytes:,} bytes"
        for path in self.lessons:
            yield (
                f"{gone}: the lesson {short(path)}{', which had joined it' * (path in self.joined)}"
            )
        for path in self.changed:
            yield (
                f"{'would lose' if dry else 'lost'} evidence, or what it had joined: the lesson"
                f" {short(path)}"
            )
        for path in self.same:
            yield (
                f"has the same words, and stays: the lesson {short(path)}; recreate memory forget"
                f" {path.stem}"
            )
        for path in self.elsewhere:
            yield f"still has it: {short(path)}"
        for id in self.recalled:
            yield (
                f"may still have words of it: the attempt {id}, whose agent recalled it; recreate"
                f" memory forget {id}"
            )
        if self.experiences:
            yield (
                "nobody knows here what was exported, recorded (--record), or committed with git:"
                " look there yourself"
            )


def forget(
    memory: ExperienceStore,
    experiences: Collection[str],
    lessons: Collection[Path] = (),
    *,
    dry: bool = False,
) -> Forgetting:
    """Take experiences (whole ids), and the files of lessons, out of memory; with `dry` only say
    what would go.

    Groups of validation and test stay held out. Raises Fault when a file cannot be read or written:
    what went is gone, and forgetting the same again finishes it.
    """
    gone = frozenset(experiences)
    lessons = [twin for path in lessons for twin in _twins(memory.folder, path)]
    rows = list(memory.facts({"experience": sorted(gone)})) if gone else []
    known = {row["id"]: row["group"] for row in rows}
    shown = (
        {row["id"] for row in memory.facts({"experience": sorted(gone)}, "optimizer")}
        if gone
        else set()
    )
    closed = {row["id"]: row["group"] or row["task"] for row in rows if row["id"] not in shown}
    joined = _joined(memory.folder, lessons)
    lessons = [*lessons, *joined]
    found = Forgetting(experiences=sorted(gone), joined=joined)
    found.elsewhere = list(_elsewhere(memory.folder.parent, gone, lessons))
    found.lessons, changes = _derived(memory, gone, known, closed, lessons)
    found.same = list(_same_words(memory.folder, found.lessons))
    found.changed = list(changes)
    found.recalled = [id for id in memory.metadata.recallers(gone) if id not in gone]
    if dry:
        found.items = _cut_everywhere(memory, gone, dry=True)
        return found
    memory.forgotten.add([*gone, *(lesson_mark(_domain_of(path), path.stem) for path in lessons)])
    found.items = _cut_everywhere(memory, gone, dry=False)
    with locked(memory.folder), disk(memory.folder):
        for path, lesson in changes.items():
            write(path, headed(lesson))
        # what was named goes last: killed before, it can be named again
        for path in reversed(found.lessons):
            path.unlink(missing_ok=True)
    memory.purge()
    return found


def _cut_everywhere(memory: ExperienceStore, gone: Collection[str], *, dry: bool) -> list[Item]:
    """Delete experiences of memory and of what plug-ins keep beside it, unless `dry`; return what
    goes."""
    if not gone:
        return []
    items = cut_experiences(memory, gone, dry=dry)
    return items + [item for kept in open_waiting(memory) for item in kept.forget(gone, dry=dry)]


def _derived(
    memory: ExperienceStore,
    gone: frozenset[str],
    groups: dict[str, str],
    closed: dict[str, str],
    named: Collection[Path],
) -> tuple[list[Path], dict[Path, Lesson]]:
    """(the lessons that go, those that lose evidence as they are then). closed: of what is held out
    its group, which such a lesson keeps: its words stay, and so they stay hidden."""
    deleted = list(named)
    changed = dict[Path, Lesson]()
    for path, lesson in lesson_files(memory.folder):
        cited = {id for name in CITING for id in getattr(lesson, name)}
        cited |= {row.experience for name in CITING_ROWS for row in getattr(lesson, name)}
        if path in deleted or not cited & gone:
            continue
        left = surviving(lesson, gone)
        if left is None:
            deleted.append(path)
            continue
        stays = {"experience": sorted(left.supports)}
        staying = {row["group"] for row in memory.facts(stays)} if left.supports else set()
        hiding = {closed[id] for id in cited & closed.keys()}
        lost = {group for id, group in groups.items() if id in lesson.supports} - staying - hiding
        kept = dict.fromkeys((*(g for g in lesson.groups if g not in lost), *sorted(hiding)))
        changed[path] = left.model_copy(update={"groups": tuple(kept)})
    for path, lesson in lesson_files(memory.folder):
        if path in deleted:
            continue
        ends = {each.stem for each in deleted if _one_ladder(each, path)}
        update: dict[str, object] = {}
        if lesson.status == "merged" and lesson.merged_into in ends:
            update = {"status": "candidate", "merged_into": ""}
        if ends & {*lesson.merged}:
            update["merged"] = tuple(id for id in lesson.merged if id not in ends)
        if update:
            changed[path] = changed.get(path, lesson).model_copy(update=update)
    return deleted, changed


def _joined(folder: Path, named: Collection[Path]) -> list[Path]:
    """The lessons that had joined one of these, or one that had: word for word, by a model's word
    or by a person's."""
    merged = [
        (path, x.merged_into)
        for path, x in lesson_files(folder)
        if x.status == "merged" and x.merged_into
    ]
    found = list(named)
    for target in found:
        found += [
            path
            for path, into in merged
            if into == target.stem and path not in found and _one_ladder(path, target)
        ]
    return found[len(named) :]


def _one_ladder(path: Path, other: Path) -> bool:
    """Whether a lesson can have joined the other: one of its domain and policy, or a general
    one."""
    kinds = {
        p.parent.name if p.parent.name not in ("lessons", "patterns", "general") else ""
        for p in (path, other)
    }
    domains = {_domain_of(path), _domain_of(other)}
    return len(kinds) == 1 and (len(domains) == 1 or "general" in domains)


def _same_words(folder: Path, going: Collection[Path]) -> Iterator[Path]:
    """Lessons that stay and have the words of one that goes."""
    every = list(lesson_files(folder))
    words = {(x.title, x.body) for path, x in every if path in going}
    yield from (path for path, x in every if path not in going and (x.title, x.body) in words)


def _twins(folder: Path, path: Path) -> list[Path]:
    """All files of a lesson's id on its ladder: one that was left behind, or put there, would stand
    in its place."""
    if path.parent.name not in ("lessons", "patterns", "general"):
        return [path]
    domain = "[!@]*" if path.parent.name == "general" else path.parent.parent.name
    found = {
        each
        for kind in ("lessons", "patterns")
        for each in folder.glob(f"{domain}/{kind}/{path.name}")
    }
    return sorted({path, *found})


def _domain_of(path: Path) -> str:
    return "general" if path.parent.name == "general" else path.parent.parent.name


def _elsewhere(workspace: Path, gone: frozenset[str], lessons: Collection[Path]) -> Iterator[Path]:
    """Places of the workspace that still hold some of it: attempts in run folders, files of these
    that name one of them (a journal, a report), lessons and examples that agents carry."""
    names = {path.name for path in lessons}
    marks = [id.encode("utf-8", "surrogatepass") for id in sorted(gone)]
    for run in sorted(workspace.glob("runs/*")) if marks else []:
        yield from (path for id in sorted(gone) if (path := run / "attempts" / id).is_dir())
        yield from (
            path
            for path in sorted([*run.glob("*"), *run.glob("memory/*")])
            if _names_one(path, marks)
        )
    carried = (workspace.glob(f"scaffolds/*/{kind}/*.md") for kind in ("memory", "examples"))
    for path in sorted(chain.from_iterable(carried)):
        try:
            lesson = lesson_at(path)
        except (OSError, BadInput):
            continue
        if path.name in names or gone & {*lesson.born_of, *lesson.supports, *lesson.contradicts}:
            yield path


def _names_one(path: Path, marks: Collection[bytes]) -> bool:
    """Whether a file holds one of these. A link is not followed; what cannot be read is passed
    over."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb") as file:
            before = b""
            longest = max(map(len, marks))
            while block := file.read(BLOCK):
                text = before + block
                if any(mark in text for mark in marks):
                    return True
                before = text[-longest:]
    except OSError:
        pass
    return False
