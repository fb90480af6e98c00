"""patterns list, show, freeze, veto, split, diff: what experience taught, and a person's word on it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import short, workspace
from recreate.cli.options import Json
from recreate.cli.terminal import emit, say, show

if TYPE_CHECKING:
    from recreate.api.types import Lesson
    from recreate.lessons.store import LessonStore

app = typer.Typer(help="What experience taught, and your word on it.", no_args_is_help=True, rich_markup_mode=None)

Domain = Annotated[str, typer.Option("--domain", help="Of one domain; default: wherever it is.")]
Policy = Annotated[str, typer.Option("--policy", help="Of another policy: playbook, mistakes, ...")]
Id = Annotated[str, typer.Argument(metavar="ID", help="A lesson's id, or the beginning of it.")]


@app.command("list")
def patterns_list(
    domain: Domain = "",
    policy: Policy = "recreate",
    every: Annotated[bool, typer.Option("--all", help="Also what was merged, forgotten or vetoed.")] = False,
    as_json: Json = False,
) -> None:
    """List lessons and patterns with what speaks for them. Files that cannot be read are named.

    Example: recreate patterns list --domain swe
    """
    from recreate.agents.retrieval import support

    told, broken, general = 0, 0, set[str]()
    for shelf in _shelves(domain, policy):
        lessons = {id: x for id, x in shelf.read().items() if id not in general}
        general.update(id for id, x in lessons.items() if x.scope == "general")
        for path, why in shelf.broken.items():
            broken += 1
            say(f"{short(path)}: {why}; it is left out until it is mended")
        for lesson in sorted(lessons.values(), key=lambda x: (_RANK[x.scope], x.status, x.id)):
            if not every and lesson.status in ("merged", "forgotten", "vetoed"):
                continue
            told += 1
            if as_json:
                emit(_record(lesson, shelf))
                continue
            where = "general" if lesson.scope == "general" else shelf.domain
            mark = " (frozen)" if lesson.frozen else ""
            show(f"{lesson.scope:<8}  {lesson.status:<11}  {where}/{lesson.id}{mark}")
            show(f"          {lesson.title}{': ' if support(lesson) else ''}{support(lesson)}")
    if not told and not broken:
        say("no lesson is kept here yet; recreate build --memory recreate learns some")


@app.command("show")
def patterns_show(id: Id, domain: Domain = "", policy: Policy = "recreate", as_json: Json = False) -> None:
    """Show one lesson: its words, its evidence, what joined it.

    Example: recreate patterns show read-the-failing-test
    """
    shelf, lesson = _one(id, domain, policy)
    if as_json:
        emit(_record(lesson, shelf))
        return
    show(f"{lesson.title}\n\n{lesson.body}\n")
    show(f"{lesson.scope}, {lesson.status}{', frozen' if lesson.frozen else ''}; {short(shelf.find(lesson.id))}")
    for name, values in (
        ("born of", lesson.born_of),
        ("supported by", lesson.supports),
        ("contradicted by", lesson.contradicts),
        ("groups", lesson.groups),
        ("a pattern in", lesson.domains),
        ("joined by", lesson.merged),
    ):
        if values:
            show(f"{name}: {', '.join(values)}")
    if lesson.merged_into:
        show(f"it joined {lesson.merged_into}; recreate patterns split {lesson.merged_into} {lesson.id} parts them")
    for gain in lesson.gains:
        show(f"  re-run of {gain.experience} ({gain.group}), repeat {gain.repeat}: {gain.diff:+.2f}")
    counted = f", helped {lesson.helpful}, harmed {lesson.harmful}" if lesson.helpful or lesson.harmful else ""
    show(f"offered in {lesson.offered} attempts{counted}")


@app.command("freeze")
def patterns_freeze(
    id: Id,
    domain: Domain = "",
    policy: Policy = "recreate",
    undo: Annotated[bool, typer.Option("--undo", help="Let code change it again.")] = False,
    as_json: Json = False,
) -> None:
    """Forbid that code changes a lesson: it stays as it stands, whatever is observed.

    Example: recreate patterns freeze read-the-failing-test
    """
    shelf, lesson = _one(id, domain, policy)
    _said(shelf, shelf.change(lesson.id, frozen=not undo), as_json)


@app.command("veto")
def patterns_veto(
    id: Id,
    domain: Domain = "",
    policy: Policy = "recreate",
    undo: Annotated[bool, typer.Option("--undo", help="Take the veto back: it is a candidate again.")] = False,
    as_json: Json = False,
) -> None:
    """Forbid a lesson: it is never offered nor promoted, and not learned again. Agents that carry it keep it.

    Example: recreate patterns veto always-rewrite-the-file
    """
    shelf, lesson = _one(id, domain, policy)
    _said(shelf, shelf.change(lesson.id, status="candidate" if undo else "vetoed"), as_json)


@app.command("split")
def patterns_split(
    id: Id,
    member: Annotated[str, typer.Argument(metavar="MEMBER", help="The id of the lesson that joined it.")],
    domain: Domain = "",
    as_json: Json = False,
) -> None:
    """Undo a merge: the lesson that joined another stands for itself again, with its own evidence.

    Example: recreate patterns split read-the-failing-test run-the-test-first
    """
    from recreate.lessons.promotion import split

    shelf, lesson = _one(id, domain, "recreate")
    before = shelf.read()
    parted = split(before, lesson.id, member)
    if member not in parted:
        raise BadInput(
            f"{member!r} has not joined {lesson.id}",
            fix=f"recreate patterns show {lesson.id} lists what has",
            code="no-lesson",
        )
    shelf.write(before, {**before, **parted})
    _said(shelf, parted[member], as_json)


@app.command("diff")
def patterns_diff(
    run: Annotated[str, typer.Argument(help="A run folder, its name, or `last`.")] = "last", as_json: Json = False
) -> None:
    """Say what a build's memory learned: each change with its reason, and how the words changed.

    Example: recreate patterns diff last
    """
    from recreate.agents.lesson import headed
    from recreate.api.types import Lesson
    from recreate.runs.reader import Run, find_run

    seen, told = Run(find_run(run, workspace())), 0
    for record in seen.records("memory"):
        before, after = ({x["id"]: Lesson.model_validate(x) for x in record[key]} for key in ("before", "after"))
        why: dict[str, list[str]] = {}
        for change in record["changes"]:
            why.setdefault(change["lesson"], []).append(f"{change['kind']}: {change['why']}".rstrip(": "))
        for id, lesson in after.items():
            told += 1
            old = headed(before[id]).splitlines(keepends=True) if id in before else []
            words = "".join(difflib.unified_diff(old, headed(lesson).splitlines(keepends=True), f"a/{id}", f"b/{id}"))
            if as_json:
                emit({"round": record["round"] + 1, "lesson": id, "changes": why.get(id, []), "diff": words})
                continue
            show(f"round {record['round'] + 1}: {id}\n" + "".join(f"  {line}\n" for line in why.get(id, [])) + words)
    if not told:
        say(f"{short(seen.folder)} learned nothing; recreate build --memory recreate does")


_RANK = {"general": 0, "domain": 1, "instance": 2}


def _shelves(domain: str, policy: str) -> Iterator[LessonStore]:
    """The shelf of one domain, or of each that has any."""
    from recreate.lessons.store import OURS, LessonStore

    folder = workspace() / "memory"
    if domain:
        yield LessonStore(folder, domain, policy)
        return
    kinds = ("lessons", "patterns") if policy == OURS else (policy,)
    names = {p.parent.name for kind in kinds for p in folder.glob(f"*/{kind}") if any(p.glob("*.md"))}
    if not names and any((folder / "general").glob("*.md")):
        names = {"general"}
    for name in sorted(names):
        yield LessonStore(folder, name, policy)


def _one(id: str, domain: str, policy: str) -> tuple[LessonStore, Lesson]:
    """The one lesson that a word means. Raises BadInput, also for a file that cannot be read."""
    from recreate.agents.lesson import read_lesson

    errors: list[BadInput] = []
    found: dict[Path, LessonStore] = {}
    for shelf in _shelves(domain, policy):
        try:
            found.setdefault(shelf.find(id), shelf)
        except BadInput as e:
            errors.append(e)
    if len(found) != 1:
        if len(found) > 1:
            names = ", ".join(sorted(shelf.domain for shelf in found.values()))
            raise BadInput(f"{id!r} is in several domains: {names}", fix="say which: --domain D", code="no-lesson")
        raise (
            errors[0]
            if errors
            else BadInput(
                "no lesson is kept here yet", fix="recreate build --memory recreate learns some", code="no-lesson"
            )
        )
    path, shelf = next(iter(found.items()))
    try:
        read_lesson(path.stem, path.read_text("utf-8"))
    except BadInput as e:
        raise BadInput(f"{short(path)}: {e.message}", fix=e.fix, code=e.code) from None
    return shelf, shelf.read()[path.stem]


def _record(lesson: Lesson, shelf: LessonStore) -> dict[str, Any]:
    return {**lesson.model_dump(mode="json"), "domain": shelf.domain, "path": str(shelf.path(lesson))}


def _said(shelf: LessonStore, lesson: Lesson, as_json: bool) -> None:
    if as_json:
        emit(_record(lesson, shelf))
        return
    show(f"{lesson.id}: {lesson.scope}, {lesson.status}{', frozen' if lesson.frozen else ''}")
