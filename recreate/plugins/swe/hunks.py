"""Which part of a change mends what: the change in numbered hunks, and the fewest of them that a
test needs.

A change is path -> (text before, text after), None where the file is not there. Its hunks are the
runs of lines that difflib's SequenceMatcher finds to differ, numbered from 1 in each file; a file
that comes or goes is one hunk.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple, TypeVar

from recreate.api.syntax import parse_python
from recreate.api.types import digest

Item = TypeVar("Item", bound=Hashable)
Change = Mapping[str, tuple[str | None, str | None]]


class NumberedHunk(NamedTuple):
    """Lines [low, high) of the text before become `new`: lines [start, start + len(new)) of the
    text after. From 0."""

    low: int
    high: int
    start: int
    new: tuple[str, ...]


@lru_cache(maxsize=256)
def numbered(before: str | None, after: str | None) -> tuple[NumberedHunk, ...]:
    """The hunks of one file, in order: number 1 is the first. A file that comes or goes (None) is
    one hunk."""
    if before == after:
        return ()
    old, new = lines(before or ""), lines(after or "")
    if before is None or after is None:
        return (NumberedHunk(0, len(old), 0, tuple(new)),)
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    matcher = SequenceMatcher(None, old[same:], new[same:], autojunk=False)
    return tuple(
        NumberedHunk(same + low, same + high, same + start, tuple(new[same + start : same + end]))
        for tag, low, high, start, end in matcher.get_opcodes()
        if tag != "equal"
    )


def lines(text: str) -> list[str]:
    """The lines of a text with their ends; only a newline ends one."""
    *whole, rest = text.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])


def applied(before: str | None, after: str | None, numbers: Iterable[int]) -> str | None:
    """The text before with these of its hunks. Raises KeyError for a number that there is not."""
    hunks = dict(enumerate(numbered(before, after), 1))
    chosen = [hunks[n] for n in sorted(set(numbers))]
    if before is None or after is None:
        return after if chosen else before
    old, parts, at = lines(before), [], 0
    for hunk in chosen:
        parts += [*old[at : hunk.low], *hunk.new]
        at = hunk.high
    return "".join([*parts, *old[at:]])


def silent(before: str | None, after: str | None, hunk: NumberedHunk) -> bool:
    """Whether a hunk of a Python file is only blank lines, comments and docstrings."""
    if before is None or after is None:
        return False
    old, new = (
        range(hunk.low + 1, hunk.high + 1),
        range(hunk.start + 1, hunk.start + len(hunk.new) + 1),
    )
    return _meaningful_lines(before).isdisjoint(old) and _meaningful_lines(after).isdisjoint(new)


@lru_cache(maxsize=256)
def _meaningful_lines(text: str) -> frozenset[int]:
    """The lines, from 1, that say something to Python: not blank, no comment, no docstring that
    could go."""
    found = {
        n
        for n, line in enumerate(lines(text), 1)
        if line.strip() and not line.strip().startswith("#")
    }
    for node in _nodes(text):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body[1:]
        ):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found -= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return frozenset(found)


def fingerprint(change: Change, chosen: Mapping[str, Iterable[int]]) -> str:
    """A digest of what the chosen hunks say. Another difflib that cut the change elsewhere would
    give another one. Raises KeyError for a hunk that there is not."""
    said = []
    for path, numbers in sorted(chosen.items()):
        before, after = change[path]
        hunks = dict(enumerate(numbered(before, after), 1))
        old = lines(before or "")
        said.append(
            [
                path,
                [
                    [n, old[hunks[n].low : hunks[n].high], hunks[n].new]
                    for n in sorted(set(numbers))
                ],
            ]
        )
    return digest(said)


def minimal(
    items: Sequence[Item],
    passes: Callable[[Sequence[Item]], bool],
    ahead: Callable[[Sequence[Sequence[Item]]], object] = lambda _: None,
) -> list[Item]:
    """Some of `items`, in their order, with which `passes` is true and becomes false when any one
    is taken away. `ahead` is told some that may be asked next, for who can answer several at once.

    Delta debugging, `ddmin` of Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
    Input (2002). `passes(items)` has to be true.
    """
    kept, parts = list(items), 2
    while kept:
        size = -(-len(kept) // parts)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        rests = [
            [item for n, c in enumerate(chunks) if n != at for item in c]
            for at in range(len(chunks))
        ]
        smaller = [c for c in chunks if len(c) < len(kept)]
        # With two chunks the rest of one is the other.
        larger = [] if len(chunks) == 2 else rests
        found = next((c for c in _order_questions([*smaller, *larger], ahead) if passes(c)), None)
        if found is not None:
            kept, parts = found, 2 if found in smaller else max(parts - 1, 2)
        elif size == 1:
            return kept
        else:
            parts = min(2 * parts, len(kept))
    return kept


def _order_questions(
    sets: Sequence[list[Item]], ahead: Callable[[Sequence[Sequence[Item]]], object]
) -> Iterator[list[Item]]:
    for at in range(0, len(sets), _AT_ONCE):
        some = sets[at : at + _AT_ONCE]
        ahead(some)
        yield from some


_AT_ONCE = 8


def clusters(needs: Mapping[str, Iterable[Item]]) -> list[tuple[list[str], set[Item]]]:
    """Tests that need common hunks belong together: (tests, all that they need), in the order of
    `needs`."""
    found: list[tuple[list[str], set[Item]]] = []
    for test, needed in needs.items():
        tests, items = [test], set(needed)
        apart = []
        for other in found:
            if items & other[1]:
                tests, items = [*other[0], *tests], items | other[1]
            else:
                apart.append(other)
        found = [*apart, (tests, items)]
    order = {test: n for n, test in enumerate(needs)}
    return sorted(
        ((sorted(t, key=order.__getitem__), i) for t, i in found),
        key=lambda each: order[each[0][0]],
    )


def defined(text: str | None) -> set[str]:
    """The names that a Python text offers to others: functions, classes, parameters, attributes,
    and what modules and classes bind. None, or what is not Python: none."""
    found: set[str] = set()
    for node in _nodes(text):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
        if isinstance(node, ast.ClassDef | ast.Module):
            found |= {node.name} if isinstance(node, ast.ClassDef) else set()
            for statement in node.body:
                targets = (
                    statement.targets
                    if isinstance(statement, ast.Assign)
                    else [getattr(statement, "target", 0)]
                )
                found |= {t.id for t in targets if isinstance(t, ast.Name)}
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    found |= {alias.asname or alias.name for alias in statement.names}
    return found


def used_names(text: str) -> set[str]:
    """The names of others that a Python text uses: attributes, keywords, imports, and names that it
    does not bind."""
    found: set[str] = set()
    bound: set[str] = set()
    for node in _nodes(text):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.alias(name=name):
                found |= set(name.split("."))
            case ast.Name(id=name, ctx=ast.Load()):
                found.add(name)
            case ast.Name(id=name) | ast.arg(arg=name):
                bound.add(name)
    return found - bound


def _nodes(text: str | None) -> list[ast.AST]:
    try:
        return list(ast.walk(parse_python(textwrap.dedent(text or ""))))
    except (SyntaxError, ValueError, RecursionError):
        return []
