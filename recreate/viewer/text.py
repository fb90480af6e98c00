"""Texts of models, agents and graders, made fit to be shown: control characters visible, long ones
cut, diffs read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recreate.api.types import Edit, Step, Trace
    from recreate.runs.settings import Settings

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufdd0-\ufdef\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What moves a cursor, turns the direction of writing, has no width, or is half a character."""


def visible(text: str) -> str:
    """Return `text` with nothing hidden in it: ESC reads `\\x1b`, a change of the direction of
    writing `\\u202e`.

    Tabs and line ends stay; of `\\r\\n` the line end stays.
    """
    return _HIDDEN.sub(_mark, text.replace("\r\n", "\n"))


def json_text(value: Any) -> str:
    """Return a value as JSON in which nothing is hidden either: what `visible` would spell out is
    escaped as JSON does."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _mark(found: re.Match[str]) -> str:
    code = ord(found[0])
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def signed(value: float) -> str:
    """Return a difference with its sign; what is not 0 does not read as 0."""
    text = f"{value:+.3f}"
    return text if float(text) or not value else f"{value:+.1g}"


def proposer(settings: Settings) -> str:
    """Return who proposes edits, and by which model where that is another than the agent's."""
    other = settings.models.optimizer
    return (
        f"{settings.optimizer} with {other}"
        if other and other != settings.model
        else str(settings.optimizer)
    )


def reasons(edits: Iterable[Edit]) -> Iterator[tuple[Edit, str]]:
    """Yield of edits of one file that were made for one reason and from the same evidence the
    first, and what it says: the file, how many they are, why."""
    alike: dict[tuple[Any, ...], list[Edit]] = {}
    for edit in edits:
        alike.setdefault(
            (edit.path, edit.reason or edit.new[:80], edit.origin, edit.evidence), []
        ).append(edit)
    for first, *more in alike.values():
        many = f" ({1 + len(more)} edits)" if more else ""
        yield first, f"{first.path}{many}: {first.reason or 'no reason given'}"


def wrong(step: Step) -> str:
    """Return what went wrong in a step, '' for nothing."""
    if step.kind == "malformed":
        return "the reply was cut off at max_tokens" if step.cut else "the reply could not be read"
    return f"exit status {step.status}" if step.status else ""


def tell_near_reply(step: Step) -> str:
    """Say that a step's reply had been made for another question; '' where it was made for this
    one."""
    if step.near is None:
        return ""
    return (
        f"the reply to a near question ({step.near.similarity:.3f}): {step.near.task}, call"
        f" {step.near.call}"
    )


def cut_off(trace: Trace) -> str:
    """Return how many replies of an attempt were cut off, and what gives them more room; '' where
    none was."""
    cut = sum(step.cut for step in trace.steps)
    if not cut:
        return ""
    many = (
        f"{cut} of {trace.usage.calls} replies were" if trace.usage.calls > 1 else "the reply was"
    )
    return f"{many} cut off at max_tokens: --agent.max_tokens N lets a reply have more"


@dataclass(frozen=True)
class Cut:
    """A text of bounded size: its head, how many characters were left out, its tail."""

    head: str
    left_out: int = 0
    tail: str = ""

    def __bool__(self) -> bool:
        return bool(self.head)

    def __len__(self) -> int:
        return len(self.head) + len(self.tail)


def cut(text: str, limit: int, rows: int = 40) -> Cut:
    """Return at most `limit` characters and `rows` lines of a text, two thirds from its head,
    broken at line ends near by."""
    text = text.rstrip()
    if len(text) <= limit and text.count("\n") < rows:
        return Cut(text)
    head = _rows(text[: limit * 2 // 3], rows * 2 // 3)
    tail = _rows(text[max(len(head), len(text) - limit // 3) :][::-1], rows // 3)[::-1]
    return Cut(head, len(text) - len(head) - len(tail), tail)


def _rows(text: str, most: int) -> str:
    """Return the beginning of a text: at most so many lines, and no broken one when its end is
    near."""
    lines = text.split("\n")
    if len(lines) > most:
        return "\n".join(lines[:most])
    return text if len(lines) == 1 or len(lines[-1]) > 120 else "\n".join(lines[:-1])


@dataclass(frozen=True)
class DiffLine:
    """One line of a diff. kind: add | del | same | at (where the next lines are) | note | gap
    (lines left out)."""

    kind: str
    text: str


@dataclass(frozen=True)
class FileDiff:
    """What changed in one file. how: created | deleted | changed."""

    path: str
    how: str
    added: int
    removed: int
    lines: Sequence[DiffLine]


_KINDS = {"+": "add", "-": "del", " ": "same", "\\": "note"}
_AT = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)")


def read_diff(text: str, most: int = 400) -> list[FileDiff]:
    """Return a unified diff in git's form (`scaffold.diff`), file by file; at most `most` lines of
    each."""
    found = []
    for part in re.split(r"^diff --git ", text, flags=re.MULTILINE)[1:]:
        rows = part.removesuffix("\n").split("\n")
        first = next((i for i, row in enumerate(rows) if row.startswith("@@")), len(rows))
        path = rows[0].rpartition(" b/")[2]
        how = next(
            (h for h in ("new", "deleted") for row in rows[1:first] if row.startswith(f"{h} file")),
            "",
        )
        lines = [_line(row) for row in rows[first:]]
        if lines and lines[0].kind == "at" and how:
            lines = lines[1:]
        found.append(
            FileDiff(
                path=path,
                how={"new": "created", "deleted": "deleted", "": "changed"}[how],
                added=sum(line.kind == "add" for line in lines),
                removed=sum(line.kind == "del" for line in lines),
                lines=_bounded(lines, most),
            )
        )
    return found


def _line(row: str) -> DiffLine:
    if at := _AT.match(row):
        return DiffLine("at", f"line {at[1]}")
    return DiffLine(_KINDS.get(row[:1], "same"), row[1:])


def _bounded(lines: Sequence[DiffLine], most: int) -> Sequence[DiffLine]:
    if len(lines) <= most:
        return lines
    head, tail = lines[: most * 2 // 3], lines[len(lines) - most // 3 :]
    return [*head, DiffLine("gap", f"{len(lines) - len(head) - len(tail):,} lines left out"), *tail]
