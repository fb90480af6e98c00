"""Ask what was attempted in this workspace.

Example: recreate memory recall "width of a tab\""""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput, Interrupted
from recreate.api.paths import memory as memory_folder
from recreate.api.paths import short, workspace
from recreate.api.shapes import JsonDict
from recreate.api.types import ORIGINS
from recreate.cli.options import Json
from recreate.cli.terminal import answer, emit, painted, printable, say, show
from recreate.plugins.memory_tools.patterns import lesson_record, tell_held, tell_standing
from recreate.storage.redact import redact

if TYPE_CHECKING:
    from recreate.api.ports import Hit
    from recreate.memory.store import ExperienceStore

PATIENCE = 1.0
"""Seconds for which a person's question waits for vectors that are not made yet."""


def recall(
    query: Annotated[
        list[str], typer.Argument(metavar="QUERY...", help="What to look for, in words.")
    ],
    k: Annotated[int, typer.Option("-k", help="How many.", min=1, max=100_000)] = 8,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="KEY=VALUE", help="Only those; repeatable."),
    ] = None,
    reader: Annotated[
        str,
        typer.Option(
            "--as",
            help=(
                "optimizer and agent see train experiences only, human all; agent no quarantined"
                " lesson."
            ),
        ),
    ] = "optimizer",
    how: Annotated[str, typer.Option("--how", help="hybrid, keywords or vectors.")] = "hybrid",
    ungraded: Annotated[
        bool,
        typer.Option(
            "--ungraded", help="Also imported attempts that neither anybody nor a judge has graded."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Recall by words and meaning: experiences, single steps, lessons. A judge's provisional grade
    is marked as such.

    Example: recreate memory recall "unicode width of a tab" -k 5 --where outcome=failed --where
    since=2026-11-01
    """
    from recreate.plugins.traces import waiting

    words = " ".join(query)
    store = open_store(searching=True)
    store.patience = PATIENCE
    filters = _filters(where or [])
    hits = waiting.recall(store, words, k, filters, reader, how, ungraded=ungraded)
    hidden = 0 if ungraded else waiting.count_hidden(store, filters, reader)
    if reader == "human":
        say(
            "as human: validation and test are among what is searched; no optimizer or agent ever"
            " sees them"
        )
    if as_json:
        found = [
            {
                **hit.model_dump(mode="json"),
                "trust": hit.facts.get("trust", "own"),
                "match": match_of(store, hit, words),
            }
            for hit in hits
        ]
        emit({"query": words, "as": reader, "how": how, "hits": found, "ungraded_hidden": hidden})
        return
    for hit in hits:
        at = hit.id if hit.step is None else f"{hit.experience} step {hit.step}"
        show(
            f"{hit.score:.4f}  {hit.grain:<10}  {hit.split:<10}  {at} "
            f" {hit.facts.get('task', '')}{_graded(hit)}"
            + (f"({standing_of(hit)})" if hit.grain == "lesson" else ""),
            f"        {_lit(match_of(store, hit, words), words)}",
        )
    if not hits:
        say(_nothing(store, filters, reader))
    if hidden:
        say(
            f"not looked through: {hidden} imported attempts that nobody graded; --ungraded looks"
            " there too; recreate traces judge or recreate traces grade grades them"
        )


def _graded(hit: Hit) -> str:
    """How a hit that nobody graded is marked, with what a judge says, and one that is not our own;
    '' for all others."""
    mark = hit.facts.get("grade", "")
    passed = hit.facts.get("passed")
    outcome = (
        "" if passed is None else f"{'passed' if passed else 'failed'} {hit.facts['score']:.2f}, "
    )
    if not mark and hit.grain != "lesson":
        return f"  ({origin})" if (origin := ORIGINS[hit.facts.get("trust", "own")]) else ""
    return f"  ({outcome}{mark})" if mark else ""


def standing_of(hit: Hit) -> str:
    """How a lesson that was found stands, and whose it is."""
    origin = ORIGINS[hit.facts.get("trust", "own")]
    return "; ".join(filter(None, (standing(hit.facts["scope"], hit.facts["status"]), origin)))


def standing(scope: str, status: str) -> str:
    """How a lesson stands, in words for who has not read what the two mean."""
    if status == "active":
        return {"general": "general pattern", "domain": "pattern"}.get(scope, "lesson in use")
    return {
        "candidate": "candidate: on trial, not proven",
        "quarantined": "quarantined: it stopped helping",
    }.get(status, status)


def _nothing(store: ExperienceStore, filters: dict[str, list[Any]], reader: str) -> str:
    """Return why nothing was found: there is nothing, or nothing that matches."""
    if next(store.facts(None, reader), None) is None and not store.lessons():
        made = "recreate build makes experiences, recreate traces import PATH brings other tools'"
        return f"nothing is remembered here yet, or nothing that this reader may see: {made}"
    under = f" under {', '.join(filters)}" if filters else ""
    return f"nothing that this reader may see matches{under}; --how hybrid finds by meaning too"


def match_of(store: ExperienceStore, hit: Hit, words: str) -> str:
    """The surroundings of the words in what was found; its beginning, where it was found by its
    meaning alone."""
    from recreate.agents.guards.untrusted import mark_text
    from recreate.plugins.traces.attempts import around, place
    from recreate.plugins.traces.waiting import find_experience

    found = find_experience(store, hit.experience) if hit.experience else None
    text = hit.text if found is None else place(found, hit.step, steps=True)
    shown = around(text, words) or around(hit.text, "")
    return mark_text(hit.facts.get("trust", "own"), shown)


def _lit(text: str, words: str) -> str:
    """A text in which the words of the question that stand in it are underlined on a terminal. What
    is secret is masked before: a colour in the middle would hide it from who looks for it."""
    from recreate.memory.index.tokenizer import marked

    parts = marked(redact(text), words)
    return "".join(painted(part, "1;4", sys.stdout) if stands else part for part, stands in parts)


def stats(as_json: Json = False) -> None:
    """Count what is remembered, by domain and split, and say what the index holds.

    Example: recreate memory stats
    """
    _stats(open_store().stats(), as_json)


def rebuild(as_json: Json = False) -> None:
    """Make the index again from the files of experience.

    Example: recreate memory rebuild
    """
    _stats(open_store(searching=True).rebuild(counter("reading")), as_json)


def forget(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Of attempts or lessons, or the beginning of one; or a whole import or run: its"
            " name, or the file that was imported.",
        ),
    ],
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    as_json: Json = False,
) -> None:
    """Delete attempts or lessons for good: texts, vectors, the lessons that only they speak for or
    that joined them. `import-openai`, as `traces list --json` has it in `run`, and `chats.jsonl`,
    as `traces show` says where an attempt is from, stand for all attempts of it.

    A forgotten attempt does not come back, whatever run goes on or is imported again. What still
    has it outside of memory (files of runs, agents that carry a lesson of it), and attempts whose
    agents recalled it, are named, and are yours to delete.

    Example: recreate memory forget 3f2a91bc --dry-run
    """
    from recreate.plugins.memory_tools import forget as forgetting

    memory = open_store()
    asked = [each for id in ids for each in _forgettable(memory, id)]
    experiences = [found for found in asked if isinstance(found, str)]
    lessons = [found for found in asked if isinstance(found, Path)]
    ask = not (dry or yes or as_json) and sys.stdin.isatty()
    found = forgetting.forget(memory, experiences, lessons, dry=dry or ask)
    if ask:
        show(*found.describe(dry=True))
        if not typer.confirm("delete them?", err=True):
            raise Interrupted("nothing was deleted")
        found = forgetting.forget(memory, experiences, lessons)
    named = ("lessons", "joined", "changed", "same", "elsewhere")
    places = {name: [str(path) for path in getattr(found, name)] for name in named}
    record = {
        "dry_run": dry,
        "experiences": found.experiences,
        "items": [asdict(i) for i in found.items],
        **places,
    }
    record["recalled"] = found.recalled
    answer(as_json, record, *found.describe(dry=dry))


def _forgettable(memory: ExperienceStore, id: str) -> Sequence[str | Path]:
    """The whole id of an experience, or the file of a lesson, or all ids of an import or a run.
    Raises BadInput for none, or several."""
    from recreate.lessons.store import LessonStore
    from recreate.plugins.traces.waiting import open_waiting

    memory.metadata.refresh()
    beside = [kept.ids() for kept in open_waiting(memory)]
    known = (
        {*memory.metadata.beginning(id), *memory.forgotten.read()}.union(*beside)
        if id
        else set[str]()
    )
    found = {id} & known or {one for one in known if one.startswith(id)}
    files = (
        {store.find(id) for store in LessonStore.every(memory.folder) if store.has(id)}
        if id
        else set()
    )
    if id and not found and not files and (several := _attempts_of(memory, id)):
        return several
    if len(found) + len(files) != 1:
        near = [*sorted(found), *sorted(path.stem for path in files)]
        raise BadInput(
            f"{len(near) or 'no'} attempts and lessons begin with {id!r}",
            fix=(
                f"one of {', '.join(near[:5])}"
                if near
                else "recreate traces list, recreate patterns list show them"
            ),
            code="no-attempt",
        )
    return [*found, *files]


def _attempts_of(memory: ExperienceStore, name: str) -> list[str]:
    """The attempts of a run or an import, or those that were imported from a file, graded or
    not."""
    from recreate.plugins.traces.waiting import open_waiting

    found = list[str]()
    for store in chain([memory], open_waiting(memory)):
        store.metadata.refresh()
        for row in store.metadata.rows():
            of_file = row["run"].startswith("import-") and (e := store.get(row["id"])) is not None
            if row["run"] == name or (of_file and e and e.foreign.get("file") == Path(name).name):
                found.append(row["id"])
    return found


def open_store(*, searching: bool = False) -> ExperienceStore:
    """The workspace's memory; to search, with the embedder of its settings: another would make all
    vectors anew."""
    from recreate.memory.store import ExperienceStore
    from recreate.runs import settings

    root = workspace()
    if not searching:
        return ExperienceStore(root)
    return ExperienceStore(
        root, settings.load(root).memory.embedder or None, counter("indexing"), say
    )


def counter(what: str) -> Callable[[int, int], None] | None:
    """Return what tells how far something is, on a line of stderr that overwrites itself; None
    where nobody watches."""
    if not sys.stderr.isatty():
        return None

    def tell(done: int, total: int) -> None:
        sys.stderr.write(f"\r{printable(what)} {done:,}/{total:,}" + "\n" * (done >= total))
        sys.stderr.flush()

    return tell


def _stats(found: JsonDict, as_json: bool) -> None:
    held = found["held_out"]
    index = found["index"]
    blobs = found["blobs"]
    words = index["embedder"] or "by words alone"
    made = f"{index['count']} documents, {words}, digest {index['digest']}"
    lines = [
        f"{found['experiences']} experiences with {found['steps']} steps,"
        f" {found['lessons']} lessons",
        *(
            f"  {d}: {', '.join(f'{n} {split}' for split, n in of.items())}"
            for d, of in found["domains"].items()
        ),
        f"held out from optimizers and agents: {held['groups']} groups, {held['tasks']} tasks",
        f"index: {made if index['digest'] else 'none yet; the first recall makes it'}",
    ]
    notes = {
        f"large texts, {blobs['bytes']:,} bytes, {blobs['unreferenced']} that no line names": (
            blobs["count"]
        ),
        "large texts are missing: a note stands in their place": blobs["missing"],
        "large texts are damaged: a note stands in their place": blobs["damaged"],
        "damaged lines were passed over": found["damaged_lines"],
    }
    lines += [f"{count} {what}" for what, count in notes.items() if count]
    answer(as_json, found, *lines)


def _filters(pairs: list[str]) -> dict[str, list[Any]]:
    """KEY=VALUE pairs; the same key twice means either value."""
    found: dict[str, list[Any]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInput(
                f"--where {pair!r} is not KEY=VALUE", fix="such as --where domain=swe", code="usage"
            )
        found.setdefault(key, []).append(value)
    return found


def add(
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What to do, in a few words.")],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help="The lesson, in a few sentences; - reads it from stdin."
        ),
    ],
    domain: Annotated[
        str, typer.Option("--domain", help="The domain whose tasks it is for.")
    ] = "swe",
    active: Annotated[
        bool,
        typer.Option("--active", help="Use it at once, as a pattern; else builds test it first."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Add a lesson by hand. A build offers none that names what belongs to a task, and recall shows
    no agent one that speaks of a held-out task.

    Example: recreate memory add "Read the failing test first" "It says what is expected." --domain
    swe
    """
    from recreate.lessons.store import LessonStore

    store = LessonStore(memory_folder(workspace()), domain)
    lesson = store.add(title, sys.stdin.read() if text == "-" else text, active=active)
    answer(
        as_json,
        lesson_record(lesson, store),
        f"{lesson.id}: {tell_standing(lesson)}   {short(store.path(lesson))}{tell_held(lesson)}",
    )
