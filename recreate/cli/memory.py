"""memory recall, stats, rebuild, prune: asking the workspace's memory by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recreate.api.errors import BadInput, Interrupted
from recreate.api.paths import workspace
from recreate.cli.options import Json
from recreate.cli.terminal import emit, say, show

if TYPE_CHECKING:
    from recreate.memory.prune import Item

app = typer.Typer(help="Ask the workspace's memory.", no_args_is_help=True, rich_markup_mode=None)


@app.command("recall")
def recall(
    query: Annotated[list[str], typer.Argument(metavar="QUERY...", help="What to look for, in words.")],
    k: Annotated[int, typer.Option("-k", help="How many.", min=1)] = 8,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="KEY=VALUE", help="Only those; repeatable.")
    ] = None,
    reader: Annotated[
        str, typer.Option("--as", help="optimizer and agent see train experiences only, human all.")
    ] = "optimizer",
    how: Annotated[str, typer.Option("--how", help="hybrid, keywords or vectors.")] = "hybrid",
    as_json: Json = False,
) -> None:
    """Recall by words and meaning: experiences, single steps, lessons.

    Example: recreate memory recall "unicode width of a tab" -k 5 --where outcome=failed --where since=2026-11-01
    """
    from recreate.memory.store import ExperienceStore

    words = " ".join(query)
    root = workspace()
    memory = ExperienceStore(root, _embedder(root), _progress("indexing"))
    hits = memory.recall(words, k, _filters(where or []), reader, how)
    if reader == "human":
        say("as human: validation and test are among what is searched; no optimizer or agent ever sees them")
    if as_json:
        emit({"query": words, "as": reader, "how": how, "hits": [hit.model_dump(mode="json") for hit in hits]})
        return
    for hit in hits:
        at = hit.id if hit.step is None else f"{hit.experience} step {hit.step}"
        show(f"{hit.score:.4f}  {hit.grain:<10}  {hit.split:<10}  {at}  {hit.facts.get('task', '')}")
        show(f"        {' '.join(hit.text.split())[:160]}")
    if not hits:
        say("nothing is remembered that this reader may see")


@app.command("stats")
def stats(as_json: Json = False) -> None:
    """Count what is remembered, by domain and split, and say what the index holds.

    Example: recreate memory stats
    """
    from recreate.memory.store import ExperienceStore

    _stats(ExperienceStore(workspace()).stats(), as_json)


@app.command("rebuild")
def rebuild(as_json: Json = False) -> None:
    """Make the index again from the files of experience.

    Example: recreate memory rebuild
    """
    from recreate.memory.store import ExperienceStore

    root = workspace()
    _stats(ExperienceStore(root, _embedder(root)).rebuild(_progress("reading")), as_json)


@app.command("prune")
def prune(
    dry: Annotated[bool, typer.Option("--dry-run", help="Only list what could go.")] = False,
    blobs: Annotated[bool, typer.Option("--blobs", help="Delete large texts that no experience names.")] = False,
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="RUN", help="Delete this run's experiences; repeatable.")
    ] = None,
    before: Annotated[
        datetime | None,
        typer.Option("--before", formats=["%Y-%m-%d"], help="Delete experiences recorded before that day, UTC."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before experiences are deleted.")] = False,
    as_json: Json = False,
) -> None:
    """List what is no longer needed, and delete it.

    Without a flag only what can be made again goes: vectors of embedders that are not in use, leftovers of writers
    that were killed.

    Example: recreate memory prune --dry-run
    """
    from recreate.memory import prune as pruning
    from recreate.memory.store import ExperienceStore

    memory = ExperienceStore(workspace())
    runs, day = run or [], before.date() if before else None
    ask = bool(runs or day) and not (dry or yes or as_json) and sys.stdin.isatty()
    items = pruning.prune(memory, runs=runs, before=day, blobs=blobs, dry=dry or ask)
    lost = pruning.cited(memory, runs, day) if dry or ask else []
    if ask:
        _items(items, lost, dry=True)
        if not typer.confirm("delete them?", err=True):
            raise Interrupted("nothing was deleted")
        items = pruning.prune(memory, runs=runs, before=day, blobs=blobs)
    freed = sum(item.bytes for item in items if item.going)
    if as_json:
        emit({"dry_run": dry, "bytes": freed, "items": [asdict(item) for item in items], "cited_by": lost})
        return
    _items(items, lost, dry=dry)


def _items(items: Sequence[Item], lost: Sequence[str], *, dry: bool) -> None:
    for item in items:
        verb = ("would go" if dry else "gone") if item.going else f"stays; goes with {item.needs}"
        damaged = f" and {item.damaged} damaged lines" if item.damaged else ""
        show(f"{verb}: {item.count:,} {item.kind} {item.what}{damaged}, {item.bytes:,} bytes")
    freed = sum(item.bytes for item in items if item.going)
    show(f"{freed:,} bytes {'would be' if dry else 'were'} freed" if items else "there is nothing to prune")
    if lost:
        show(f"lessons that cite what would go: {', '.join(lost)}")


def _embedder(root: Path) -> str | None:
    """The embedder that this workspace's settings name: another one would make all vectors anew."""
    from recreate.runs import settings

    return settings.load(root).memory.embedder or None


def _stats(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(found)
        return
    show(f"{found['experiences']} experiences with {found['steps']} steps, {found['lessons']} lessons")
    for domain, splits in found["domains"].items():
        show(f"  {domain}: {', '.join(f'{n} {split}' for split, n in splits.items())}")
    held = found["held_out"]
    show(f"held out from optimizers and agents: {held['groups']} groups, {held['tasks']} tasks")
    index = found["index"]
    show(
        f"index: {index['count']} documents, {index['embedder']}, digest {index['digest']}"
        if index["digest"]
        else "index: none yet; the first recall makes it"
    )
    blobs = found["blobs"]
    if blobs["count"]:
        show(f"large texts: {blobs['count']}, {blobs['bytes']:,} bytes, {blobs['unreferenced']} that no line names")
    for wrong in ("missing", "damaged"):
        if blobs[wrong]:
            show(f"{blobs[wrong]} large texts are {wrong}: a note stands in their place")
    if found["damaged_lines"]:
        show(f"{found['damaged_lines']} damaged lines were passed over")


def _filters(pairs: list[str]) -> dict[str, list[Any]]:
    """KEY=VALUE pairs; the same key twice means either value."""
    found: dict[str, list[Any]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInput(f"--where {pair!r} is not KEY=VALUE", fix="such as --where domain=swe", code="usage")
        found.setdefault(key, []).append(value)
    return found


def _progress(what: str) -> Callable[[int, int], None] | None:
    """A counter on stderr that overwrites itself; None where nobody watches."""
    if not sys.stderr.isatty():
        return None

    def tell(done: int, total: int) -> None:
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r{what} {done:,}/{total:,}{end}")
        sys.stderr.flush()

    return tell
