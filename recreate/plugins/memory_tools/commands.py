"""memory export, import and prune: a memory as one file, and what it no longer needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from recreate.api.errors import BadInput, Interrupted
from recreate.api.paths import short
from recreate.cli.options import Json
from recreate.cli.terminal import answer, say, say_some, show
from recreate.plugins.memory_tools import prune as pruning
from recreate.plugins.memory_tools.archive import Packed, Unpacked, pack, unpack
from recreate.plugins.memory_tools.memory import open_store
from recreate.plugins.traces.cut import Item


def export(
    file: Annotated[
        Path, typer.Argument(help="The file to write, such as memory.zip; not there yet.")
    ],
    domain: Annotated[str, typer.Option("--domain", help="Of one domain; default: all.")] = "",
    as_json: Json = False,
) -> None:
    """Write the memory, or one domain of it, to one file: attempts, lessons, what is held out and
    what was forgotten.

    Example: recreate memory export memory.zip
    """
    try:
        found = pack(open_store(), file, domain)
    except OSError as e:
        raise BadInput(
            f"{short(file)} cannot be written: {e.strerror}", fix="name another file"
        ) from None
    why = "is left out: it cannot be read, or cites a held-out attempt that is not in the file"
    say_some([f"{name} {why}" for name in found.left_out], "like these")
    if found.damaged:
        say(f"{found.damaged} large texts are missing or damaged: a note stands in their place")
    if found.hidden:
        say(
            f"{found.hidden} are validation and test attempts: hidden where it is taken in, plain"
            " to who opens it"
        )
    told = f"{_count_line(found)} written to {short(file)}, {found.bytes:,} bytes"
    answer(as_json, {"file": str(file), "domain": domain, **asdict(found)}, told)


def import_(
    file: Annotated[Path, typer.Argument(help="A file that memory export wrote.")],
    domain: Annotated[
        str, typer.Option("--domain", help="Of one domain; default: all that it holds.")
    ] = "",
    own: Annotated[
        bool,
        typer.Option("--own", help="It is a copy of this memory: believe what it says of trust."),
    ] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Look it over, and say what would come in.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Merge an exported memory into this one. What is here stays, and what was forgotten here does
    not come back.

    What comes in is marked as foreign, and no build uses its lessons before you let it (recreate
    patterns keep). --own is for a copy of your own: its lessons count here as they did there.

    Example: recreate memory import memory.zip
    """
    found = unpack(open_store(), file, domain, own=own, dry=dry)
    say_some(
        [f"{name} is here with other content, which stays" for name in found.differ], "like these"
    )
    kept = (
        "was forgotten where the file is from, and stays here until recreate memory forget takes"
        " it out"
    )
    say_some([f"{id} {kept}" for id in found.kept], "like these")
    if found.held_out:
        say(f"{found.held_out} entries are new to what is held out")
    gone = f", {found.forgotten} were forgotten here" if found.forgotten else ""
    told = (
        f"{'would take' if dry else 'took'} in {_count_line(found)}; {found.known} were here"
        f" already{gone}"
    )
    answer(as_json, {"file": str(file), "domain": domain, "dry_run": dry, **asdict(found)}, told)


def _count_line(found: Packed | Unpacked) -> str:
    waiting = f" and {found.waiting} that wait for a grade" if found.waiting else ""
    return f"{found.experiences} attempts{waiting}, {found.lessons} lessons"


def prune(
    dry: Annotated[bool, typer.Option("--dry-run", help="Only list what could go.")] = False,
    blobs: Annotated[
        bool, typer.Option("--blobs", help="Delete large texts that no experience names.")
    ] = False,
    run: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="RUN", help="Delete this run's experiences; repeatable."),
    ] = None,
    before: Annotated[
        datetime | None,
        typer.Option(
            "--before",
            formats=["%Y-%m-%d"],
            help="Delete experiences recorded before that day, UTC.",
        ),
    ] = None,
    older: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="90d", help="Delete experiences older than so many days."
        ),
    ] = "",
    most: Annotated[
        str,
        typer.Option(
            "--max-size",
            metavar="2GB",
            help="Delete the oldest that no lesson cites, down to this size.",
        ),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before experiences are deleted.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List what is no longer needed, and delete it.

    Without a flag only what can be made again goes: vectors of embedders that are not in use,
    leftovers of writers that were killed.

    Example: recreate memory prune --older-than 90d --max-size 2GB --dry-run
    """
    memory = open_store()
    runs = run or []
    day = max((d for d in (before.date() if before else None, _day(older)) if d), default=None)
    size = _bytes(most)
    ids, left = pruning.oldest(memory, size) if size is not None else ([], 0)
    ask = bool(runs or day or ids) and not (dry or yes or as_json) and sys.stdin.isatty()
    items = pruning.prune(memory, runs=runs, before=day, ids=ids, blobs=blobs, dry=dry or ask)
    lost = pruning.cited(memory, runs, day, ids) if dry or ask else []
    if ask:
        show(*_item_lines(items, lost, dry=True))
        if not typer.confirm("delete them?", err=True):
            raise Interrupted("nothing was deleted")
        items = pruning.prune(memory, runs=runs, before=day, ids=ids, blobs=blobs)
    if size is not None and not dry and (runs or day):
        left = pruning.oldest(memory, size)[1]
    if size is not None and left > size:
        say(
            f"{left:,} bytes {'would be' if dry else 'are'} left, more than {size:,}: lessons cite"
            " the rest, or it cannot be read; recreate memory forget takes a lesson or a cited"
            " attempt, --blobs texts that no line has"
        )
    freed = sum(item.bytes for item in items if item.going)
    record = {
        "dry_run": dry,
        "bytes": freed,
        "items": [asdict(item) for item in items],
        "cited_by": lost,
    }
    record |= {} if size is None else {"left": left}
    answer(as_json, record, *_item_lines(items, lost, dry=dry))


def _day(age: str) -> date | None:
    """The day so long ago, UTC; None for ''. Raises BadInput."""
    if not age:
        return None
    if (found := re.fullmatch(r"(\d{1,5})([dwy])", age)) is None:
        raise BadInput(
            f"--older-than {age!r} is no age", fix="such as 90d, 12w or 1y", code="usage"
        )
    try:
        return (
            datetime.now(UTC) - timedelta(days=int(found[1]) * {"d": 1, "w": 7, "y": 365}[found[2]])
        ).date()
    except OverflowError:
        return date.min  # before the year 1 nothing was recorded


def _bytes(size: str) -> int | None:
    """2GB, 500MB, 10kB or a number of bytes; None for ''. Raises BadInput."""
    if not size:
        return None
    if (found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", size, re.IGNORECASE)) is None:
        raise BadInput(
            f"--max-size {size!r} is no size", fix="such as 2GB, 500MB or 100000", code="usage"
        )
    return int(float(found[1]) * 1000 ** " KMGT".index(found[2].upper() or " "))


def _item_lines(items: Sequence[Item], lost: Sequence[str], *, dry: bool) -> Iterator[str]:
    for item in items:
        verb = (
            ("would be deleted" if dry else "deleted")
            if item.going
            else f"stays; goes with {item.needs}"
        )
        damaged = f" and {item.damaged} damaged lines" if item.damaged else ""
        yield f"{verb}: {item.count:,} {item.kind} {item.what}{damaged}, {item.bytes:,} bytes"
    freed = sum(item.bytes for item in items if item.going)
    yield (
        f"{freed:,} bytes {'would be' if dry else 'were'} freed"
        if items
        else "there is nothing to prune"
    )
    if lost:
        yield f"lessons that cite what would go: {', '.join(lost)}"
