"""A unified diff as text: made from two versions of a tree, read, and applied. No git, no files, no
links.

A tree is a mapping of path -> text, a missing path a missing file. Lines end with "\\n" only, so
that a file's "\\r" stays part of its lines.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from recreate.api.syntax import parse_python

_HUNK = re.compile(r"^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPES = {
    "t": "\t",
    "n": "\n",
    "r": "\r",
    '"': '"',
    "\\": "\\",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
}

LONGEST = 500
"""Bytes that a path may have: the kernel takes 255 for each of its names."""
_LARGEST = 16_000_000
"""Characters that a diff may have."""
_FINE = 25_000_000
"""Two versions of a file with more pairs of lines than that are not compared line by line, between
the first and the last that differ."""
_CONTEXT = 3


class BadPatch(Exception):
    """The text is not a diff, or does not fit the tree. Its message is shown to whoever handed it
    in."""


@dataclass
class Hunk:
    """Lines `old` at line `start` (1-based) become `new`."""

    start: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


@dataclass
class FileChange:
    """What a diff does to one file. `old` is None when it creates the file, `new` None when it
    deletes it."""

    old: str | None
    new: str | None
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def paths(self) -> set[str]:
        return {p for p in (self.old, self.new) if p is not None}


def make(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The unified diff that turns `before` into `after`; '' when they are equal."""
    return "".join(_file(p, before.get(p), after.get(p)) for p in sorted({*before, *after}))


def _file(path: str, old: str | None, new: str | None) -> str:
    if old == new:
        return ""
    head = f"diff --git {_quoted('a/' + path, '')} {_quoted('b/' + path, '')}\n"
    if old is None:
        head += "new file mode 100644\n"
    elif new is None:
        head += "deleted file mode 100644\n"
    body = ""
    for line in _compared(_lines(old or ""), _lines(new or "")):
        body += line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
    if not body:
        return head  # an empty file came or went
    source = "/dev/null" if old is None else _quoted("a/" + path)
    target = "/dev/null" if new is None else _quoted("b/" + path)
    return f"{head}--- {source}\n+++ {target}\n{body}"


def _lines(text: str) -> list[str]:
    return [line + "\n" for line in text.split("\n")[:-1]] + (
        [tail] if (tail := text.split("\n")[-1]) else []
    )


def _compared(old: list[str], new: list[str]) -> list[str]:
    """The hunks that turn `old` into `new`; one of everything when finer ones would take for
    ever."""
    if len(old) * len(new) <= _FINE:
        return list(difflib.unified_diff(old, new))[2:]
    first = next(
        (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    both = min(len(old), len(new)) - first
    last = next((n for n in range(both) if old[-1 - n] != new[-1 - n]), both)
    start, rest = max(0, first - _CONTEXT), max(0, last - _CONTEXT)
    near, other = (lines[start : len(lines) - rest] for lines in (old, new))
    if len(near) * len(other) <= _FINE:
        return [
            _further(line, start)
            for line in list(difflib.unified_diff(near, other, n=_CONTEXT))[2:]
        ]
    head = f"@@ -{min(1, len(old))},{len(old)} +{min(1, len(new))},{len(new)} @@\n"
    return [head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]


def _further(line: str, count: int) -> str:
    """The head of a hunk so many lines further down; any other line as it is."""
    place = re.fullmatch(r"@@ -(\d+)(.*) \+(\d+)(.*) @@\n", line)
    return (
        f"@@ -{int(place[1]) + count}{place[2]} +{int(place[3]) + count}{place[4]} @@\n"
        if place
        else line
    )


def _quoted(path: str, end: str = "\t") -> str:
    """A path as git writes it: with an `end` when it holds a blank, in quotes when it holds
    worse."""
    if not re.search(r'[\x00-\x1f"\\]', path):
        return path + (end if " " in path else "")
    escaped = "".join(
        "\\" + next(k for k, v in _ESCAPES.items() if v == c) if c in _ESCAPES.values() else c
        for c in path
    )
    return f'"{escaped}"'


def read(text: str) -> list[FileChange]:
    """The changes of a unified diff, git's or plain; text around it is skipped. Raises BadPatch."""
    if len(text) > _LARGEST:
        raise BadPatch(f"it has {len(text)} characters, more than {_LARGEST}")
    if not _encodable(text):
        raise BadPatch("it holds halves of characters, which no file can")
    changes: list[FileChange] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("diff --git "):
            at = _git_header(lines, at, changes)
        elif line.startswith("--- ") and at < len(lines) and lines[at].startswith("+++ "):
            old, new = _path(line[4:], "a/"), _path(lines[at][4:], "b/")
            if not changes or changes[-1].hunks or not (changes[-1].paths & ({old, new} - {None})):
                changes.append(FileChange(old, new))
        elif match := _HUNK.match(line):
            if not changes:
                raise BadPatch(f"line {at}: a hunk before any file name")
            hunk, at = _hunk(lines, at, match)
            changes[-1].hunks.append(hunk)
    for change in changes:
        for path in change.paths:
            if unfit := _unfit(path):
                raise BadPatch(f"{path[:200]!r} is {unfit}")
    return [c for c in changes if c.hunks or c.old != c.new]


def _unfit(path: str) -> str:
    """What a path is that cannot be taken; '' for one that can."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or ".git" in parts:
        return "not a path inside the sources"
    if "/".join(parts) != path:  # one file has one name, for whoever asks what kind of file it is
        return "not how that path is written"
    if len(path.encode()) > LONGEST or any(len(part.encode()) > 255 for part in parts):
        return "too long for a path"
    return ""


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _git_header(lines: list[str], at: int, changes: list[FileChange]) -> int:
    """The lines after `diff --git` up to the first `---` or hunk; they alone say a rename or an
    empty file."""
    path = _both(lines[at - 1].removeprefix("diff --git ").rstrip("\r"))
    change = FileChange(path, path) if path else None
    renamed: dict[str, str] = {}
    while at < len(lines) and not lines[at].startswith(("diff --git ", "--- ", "@@ ")):
        line = lines[at]
        if change and line.startswith("new file mode"):
            change.old = None
        elif change and line.startswith("deleted file mode"):
            change.new = None
        elif line.startswith(("rename from ", "rename to ")):
            renamed[line.split()[1]] = _path(line.split(" ", 2)[2], "") or ""
        elif line.startswith(("GIT binary patch", "Binary files ")):
            raise BadPatch("binary files are not taken")
        if re.match(r"(new file mode|new mode) 120000", line):
            raise BadPatch("links are not taken")
        at += 1
    if renamed.keys() == {"from", "to"}:
        change = FileChange(renamed["from"], renamed["to"])
    if change:
        changes.append(change)
    return at


def _both(words: str) -> str | None:
    """The path that a line `diff --git a/PATH b/PATH` names twice; None when the two differ, as in
    a rename."""
    if words.startswith('"'):
        first, _, second = words[1:].partition('" "')
        one, other = _unquoted(first), _unquoted(second.removesuffix('"'))
    else:
        half = len(words) // 2
        one, other = words[:half], words[half + 1 :]
    path = one.removeprefix("a/")
    return path if (one, other) == (f"a/{path}", f"b/{path}") else None


def _path(text: str, prefix: str) -> str | None:
    text = text.split("\t")[0].rstrip("\r")
    if quoted := re.fullmatch(r'"(.*)"', text):
        text = _unquoted(quoted[1])
    text = text.strip()
    if text == "/dev/null":
        return None
    return text[len(prefix) :] if prefix and text.startswith(prefix) else text.removeprefix("./")


def _unquoted(text: str) -> str:
    def unescape(escape: re.Match[bytes]) -> bytes:
        code = escape[1].decode("latin-1")
        return (
            bytes([int(code, 8)]) if len(code) == 3 else _ESCAPES.get(code, code).encode("latin-1")
        )

    data = text.encode("utf-8", "surrogatepass")
    return re.sub(rb"(?s)\\([0-3][0-7]{2}|.)", unescape, data).decode("utf-8", "replace")


def _hunk(lines: list[str], at: int, match: re.Match[str]) -> tuple[Hunk, int]:
    wanted_old, wanted_new = (int(n) if n is not None else 1 for n in (match[2], match[4]))
    hunk, last = Hunk(int(match[1])), ""
    while at < len(lines):
        line = lines[at]
        if line.startswith("\\"):
            for side in (
                (hunk.old,) if last == "-" else (hunk.new,) if last == "+" else (hunk.old, hunk.new)
            ):
                if side:
                    side[-1] = side[-1].removesuffix("\n")
        elif len(hunk.old) >= wanted_old and len(hunk.new) >= wanted_new:
            break
        elif line[:1] in (" ", "") and at < len(lines) - (line == ""):
            hunk.old.append(line[1:] + "\n")
            hunk.new.append(line[1:] + "\n")
        elif line[:1] == "-":
            hunk.old.append(line[1:] + "\n")
        elif line[:1] == "+":
            hunk.new.append(line[1:] + "\n")
        else:
            break
        last = line[:1]
        at += 1
    if len(hunk.old) != wanted_old or len(hunk.new) != wanted_new:
        raise BadPatch(
            f"the hunk {match[0]!r} has {len(hunk.old)} old and {len(hunk.new)} new lines: it is"
            " cut, or miscounted"
        )
    return hunk, at


def apply(changes: Iterable[FileChange], tree: Mapping[str, str]) -> dict[str, str | None]:
    """What the changed files become (None: deleted). Hunks that moved are found; nothing is
    guessed.

    Raises BadPatch when a hunk's old lines are not in the file, or not exactly once away from their
    place.
    """
    result: dict[str, str | None] = {}

    def current(path: str) -> str | None:
        return result[path] if path in result else tree.get(path)

    for change in changes:
        old = change.old
        text = current(old) if old is not None else None
        if old is not None and text is None:
            raise BadPatch(f"{old} is not among the sources")
        if old is None and change.new is not None and current(change.new) and change.hunks:
            raise BadPatch(f"{change.new} exists already")
        lines = _lines(text or "")
        for number, hunk in enumerate(_shifted(change.hunks), 1):
            lines = _replaced(lines, hunk, f"hunk {number} of {change.new or change.old}")
        if old is not None and old != change.new:
            result[old] = None
        if change.new is not None:
            result[change.new] = "".join(lines)
    return result


def undone(changes: Iterable[FileChange]) -> list[FileChange]:
    """The changes that take these back, the last one first."""
    found = []
    for change in changes:
        # `_shifted` counts in the file as it became, and an empty side names the line before it
        hunks = [
            Hunk(h.start + (not h.old) - (not h.new), h.new, h.old) for h in _shifted(change.hunks)
        ]
        found.append(FileChange(change.new, change.old, hunks))
    return found[::-1]


def _shifted(hunks: list[Hunk]) -> Iterator[Hunk]:
    """Each hunk with its start counted in the lines as the hunks before it left them."""
    shift = 0
    for hunk in hunks:
        yield Hunk(hunk.start + shift, hunk.old, hunk.new)
        shift += len(hunk.new) - len(hunk.old)


def _replaced(lines: list[str], hunk: Hunk, what: str) -> list[str]:
    size = len(hunk.old)
    place = hunk.start - 1 if size else hunk.start
    if lines[place : place + size] != hunk.old or place > len(lines) or place < 0:
        place = _find_part(lines, hunk.old, what)
    return lines[:place] + hunk.new + lines[place + size :]


def _find_part(lines: list[str], part: list[str], what: str) -> int:
    """Where the one `part` in `lines` begins. Searched as text: line by line it would be
    quadratic."""
    text, wanted = "\n" + "".join(lines), "\n" + "".join(part)
    first, last = text.find(wanted), text.rfind(wanted)
    if not wanted.endswith("\n"):  # a line without an end is the last
        first = last = len(text) - len(wanted) if text.endswith(wanted) else -1
    if not part or first < 0 or first != last:
        found = "is in the file more than once" if part and first != last else "is not in the file"
        raise BadPatch(f"{what} does not apply: what it replaces {found}")
    return text.count("\n", 0, first)


# --- what a change is about
# --------------------------------------------------------------------------------


def changed_lines(before: str, after: str) -> str:
    """The lines that differ, those that go and those that come."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(line[1:] for line in lines if not line.startswith(("---", "+++", "@@")))


def changed_place(before: Mapping[str, str], after: Mapping[str, str | None]) -> tuple[str, str]:
    """(file, function) of the first function that a change of Python files changes, else the first
    of a file that it changes; ('', '') when there is none. The name has dots for a function in a
    class."""
    found = [
        (path, *_changed_function(before[path], text))
        for path, text in after.items()
        if text and path.endswith(".py") and path in before
    ]
    path, name, _ = min(found, key=lambda each: each[2], default=("", "", 2))
    return path, name


def _changed_function(before: str, after: str) -> tuple[str, int]:
    """(the innermost function of `before` that differs, 0), or (its first, 1) when no function
    does, ('', 2)."""
    old, new = before.split("\n"), after.split("\n")
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    lines = [
        line
        for tag, low, high, _, _ in matcher.get_opcodes()
        if tag != "equal"
        for line in range(low, high + 1)
    ]
    spans = [
        (node.end_lineno or 0, node.lineno, name)
        for name, node in _functions(parse_python(before).body, "")
    ]
    for line in lines:
        inside = [(end - start, name) for end, start, name in spans if start <= line + 1 <= end]
        if inside:
            return min(inside)[1], 0
    return (spans[0][2], 1) if spans else ("", 2)


def _functions(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
