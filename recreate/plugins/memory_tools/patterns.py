"""What experience taught, and your word on it.

Example: recreate patterns list"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recreate.api.errors import BadInput
from recreate.api.paths import memory as memory_folder
from recreate.api.paths import short, workspace
from recreate.api.shapes import JsonDict
from recreate.cli.options import Json, RunName, open_run
from recreate.cli.terminal import answer, answers, say

if TYPE_CHECKING:
    from recreate.api.types import Lesson
    from recreate.lessons.store import LessonStore

InDomain = Annotated[str, typer.Option("--domain", help="Of one domain; default: wherever it is.")]
Policy = Annotated[
    str, typer.Option("--policy", help="Of another policy: playbook, mistakes, reasoningbank, ...")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="An id as `list` has it, or its beginning.")]


def list_lessons(
    domain: InDomain = "",
    policy: Policy = "recreate",
    every: Annotated[
        bool, typer.Option("--all", help="Also what was merged, forgotten or vetoed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List lessons and patterns with what speaks for them. Files that cannot be read are named.

    Example: recreate patterns list --domain swe
    """
    broken = 0

    def rows() -> Iterator[tuple[JsonDict, str]]:
        from recreate.lessons.draws import speaks_for

        nonlocal broken
        _refuse_unknown(policy)
        general = set[str]()
        for store in _stores(domain, policy):
            lessons = {id: x for id, x in store.read().items() if id not in general}
            general.update(id for id, x in lessons.items() if x.scope == "general")
            for path, why in store.broken.items():
                broken += 1
                say(f"{short(path)}: {why}; it is left out until it is mended")
            for x in sorted(lessons.values(), key=lambda x: (_RANK[x.scope], x.status, x.id)):
                if every or x.status not in ("merged", "forgotten", "vetoed"):
                    place = f"{'general' if x.scope == 'general' else store.domain}/{x.id}"
                    text = f"{x.scope:<8}  {x.status:<11}  {place}{' (frozen)' if x.frozen else ''}"
                    why = f": {said}" if (said := speaks_for(x)) else ""
                    yield lesson_record(x, store), f"{text}\n          {x.title}{why}{tell_held(x)}"

    if not answers(as_json, rows()) and not broken:
        say("no lesson is kept here yet; recreate build --memory recreate learns some")


def show_lesson(
    id: Id, domain: InDomain = "", policy: Policy = "recreate", as_json: Json = False
) -> None:
    """Show one lesson: its words, its evidence, what joined it.

    Example: recreate patterns show read-the-failing-test
    """
    store, x = _one(id, domain, policy)
    lists = {
        "born of": x.cited(x.born_of),
        "supported by": x.cited(x.supports),
        "contradicted by": x.contradicts,
        "groups": x.groups,
        "a pattern in": x.domains,
        "failed in": x.failed_in,
        "joined by": x.merged,
    }
    from recreate.lessons.draws import describe_draws

    joined = f"it joined {x.merged_into}"
    own = f", carried by the agent in {x.carried}" if x.carried else ""
    counted = f", helped {x.helpful}, harmed {x.harmful}" if x.helpful or x.harmful else ""
    answer(
        as_json,
        lesson_record(x, store),
        f"{x.title}\n\n{x.body}\n",
        f"{tell_standing(x)}; {short(store.find(x.id))}{tell_held(x)}",
        *(f"{name}: {', '.join(values)}" for name, values in lists.items() if values),
        *([joined] if x.merged_into else []),
        *(
            f"  re-run of {g.experience} ({g.group}), repeat {g.repeat}: {g.diff:+.2f}"
            for g in x.gains
        ),
        f"offered in {x.offered} attempts{own}{counted}; re-runs aside",
        *filter(None, [describe_draws(x)]),
    )


def freeze(
    id: Id,
    domain: InDomain = "",
    policy: Policy = "recreate",
    undo: Annotated[bool, typer.Option("--undo", help="Let code change it again.")] = False,
    as_json: Json = False,
) -> None:
    """Forbid that code changes a lesson: it stays as it stands, whatever is observed.

    Example: recreate patterns freeze read-the-failing-test
    """
    store, lesson = _one(id, domain, policy)
    _tell(as_json, store.change(lesson.id, frozen=not undo), store)


def veto(
    id: Id,
    domain: InDomain = "",
    policy: Policy = "recreate",
    undo: Annotated[
        bool, typer.Option("--undo", help="Take the veto back: it is again what it was.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Forbid a lesson: it is never offered nor promoted, and not learned again. Agents that carry
    it keep it.

    Example: recreate patterns veto always-rewrite-the-file
    """
    store, lesson = _one(id, domain, policy)
    _tell(as_json, store.veto(lesson.id, undo=undo), store)


def keep(id: Id, domain: InDomain = "", policy: Policy = "recreate", as_json: Json = False) -> None:
    """Let a lesson be used that is held, since it seemed to game its grader, or that others wrote:
    you read it, and it is honest. veto ends it.

    Example: recreate patterns keep read-the-failing-test
    """
    store, lesson = _one(id, domain, policy)
    _tell(as_json, store.keep(lesson.id), store)


def diff(run: RunName = "last", as_json: Json = False) -> None:
    """Say what a build's memory learned: each change with its reason, and how the words changed.

    Example: recreate patterns diff last
    """
    found = open_run(run)

    def rows() -> Iterator[tuple[JsonDict, str]]:
        from difflib import unified_diff

        from recreate.agents.lesson import headed
        from recreate.api.types import Lesson

        for record in found.records("memory"):
            before, after = (
                {x["id"]: Lesson.model_validate(x) for x in record[key]}
                for key in ("before", "after")
            )
            why: dict[str, list[str]] = {}
            for change in record["changes"]:
                why.setdefault(change["lesson"], []).append(
                    f"{change['kind']}: {change.get('why', '')}".rstrip(": ")
                )
            for id, lesson in after.items():
                old = headed(before[id]).splitlines(keepends=True) if id in before else []
                words = "".join(
                    unified_diff(
                        old, headed(lesson).splitlines(keepends=True), f"a/{id}", f"b/{id}"
                    )
                )
                number = record["round"] + 1
                reasons = why.get(id, [])
                text = (
                    f"round {number}: {id}\n" + "".join(f"  {line}\n" for line in reasons) + words
                )
                yield {"round": number, "lesson": id, "changes": reasons, "diff": words}, text

    answers(
        as_json,
        rows(),
        f"{short(found.folder)} learned nothing; recreate build --memory recreate does",
    )


_RANK = {"general": 0, "domain": 1, "instance": 2}


def _stores(domain: str, policy: str) -> Iterator[LessonStore]:
    """The store of one domain, or of each that has any."""
    from recreate.lessons.store import CLIMBING, LessonStore

    folder = memory_folder(workspace())
    if domain:
        yield LessonStore(folder, domain, policy)
        return
    kinds = ("lessons", "patterns") if policy in CLIMBING else (policy,)
    names = {
        p.parent.name for kind in kinds for p in folder.glob(f"*/{kind}") if any(p.glob("*.md"))
    }
    if not names and any((folder / "general").glob("*.md")):
        names = {"general"}
    for name in sorted(names):
        yield LessonStore(folder, name, policy)


def _refuse_unknown(policy: str) -> None:
    """Raises BadInput for a policy that is not there and of which no lesson is."""
    from recreate.api import plugins
    from recreate.cli.options import unknown

    kept = {p.parent.name for p in memory_folder(workspace()).glob("[!@]*/*/*.md")} - {
        "lessons",
        "patterns",
    }
    known = sorted({*plugins.names("policy"), *kept})
    if policy not in known and ":" not in policy:
        raise unknown(f"no policy is called {policy!r}", policy, known, "unknown-policy")


def _one(id: str, domain: str, policy: str) -> tuple[LessonStore, Lesson]:
    """Return the one lesson that a word means: an id, or DOMAIN/ID as it is listed. Raises
    BadInput, also for a file that cannot be read."""
    from recreate.agents.lesson import lesson_at

    place, _, id = id.rpartition("/")
    if place and place != "general":
        domain = domain or place
    _refuse_unknown(policy)
    errors: list[BadInput] = []
    found: dict[Path, LessonStore] = {}
    for store in _stores(domain, policy):
        try:
            found.setdefault(store.find(id), store)
        except BadInput as e:
            errors.append(e)
    if len(found) > 1:
        names = ", ".join(sorted(store.domain for store in found.values()))
        raise BadInput(
            f"{id!r} is in several domains: {names}", fix="say which: --domain D", code="no-lesson"
        )
    if not found:
        fix = "recreate build --memory recreate learns some"
        raise next(iter(errors), BadInput("no lesson is kept here yet", fix=fix, code="no-lesson"))
    path, store = next(iter(found.items()))
    try:
        lesson_at(path)
    except BadInput as e:
        raise BadInput(f"{short(path)}: {e.message}", fix=e.fix, code=e.code) from None
    return store, store.read()[path.stem]


def lesson_record(lesson: Lesson, store: LessonStore) -> JsonDict:
    return {
        **lesson.model_dump(mode="json"),
        "trust": lesson.trust,
        "domain": store.domain,
        "path": str(store.path(lesson)),
    }


def tell_standing(lesson: Lesson) -> str:
    marks = (", frozen" * lesson.frozen, f"; {lesson.origin}" if lesson.origin else "")
    return f"{lesson.scope}, {lesson.status}{''.join(marks)}"


def tell_held(lesson: Lesson) -> str:
    """Why a lesson is held, or was until a person let it go on; '' otherwise."""
    if not lesson.held:
        return ""
    told = (
        "held until you decide (recreate patterns keep or veto)"
        if lesson.status == "held"
        else "a person let it go on"
    )
    return f"\n          {told}: {lesson.held}"


def _tell(as_json: bool, lesson: Lesson, store: LessonStore) -> None:
    """Answer with a lesson as it stands now."""
    answer(as_json, lesson_record(lesson, store), f"{lesson.id}: {tell_standing(lesson)}")
