"""The parts of an agent: what was written into it beyond its seed, cut into pieces that can be
switched off one by one.

    lesson, example, tool   a file of memory/, examples/ or tools/ that the seed does not have; off,
                   it is not there
    rule           an item of a list, or a section, in a text that the seed has; off, its lines are
                   not there
    edit           lines that took the place of others, or took them out; off, the others are back
    file           a file of code or settings that was changed; off, it is the seed's

Who wrote a part is known from the histories of the builds that led to the agent (`blame`). What the
check of a scaffold does not let go alone, such as a tool and the line that names it, goes together.
So do edits that lie over each other: their text is one piece by now.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import PurePosixPath
from typing import Literal

from recreate.agents.config import read_agent
from recreate.agents.lint import problems
from recreate.agents.scaffold import UNCOUNTED, Scaffold
from recreate.api.types import Edit
from recreate.builder.review import change
from recreate.plugins.measuring.blame import AgentVersion, LineWriter, trace_lines

Kind = Literal["lesson", "example", "tool", "rule", "edit", "file"]

_ITEM = re.compile(r"( *)([-*+]|\d+[.)])\s")
_HEADING = re.compile(r"(#{1,6})\s")
_FOLDERS: Mapping[str, Kind] = {"memory": "lesson", "examples": "example", "tools": "tool"}
_TEXTS = (".md", ".txt", ".j2", "")


@dataclass(frozen=True)
class AgentPart:
    """path: its file, with the lines that it has there where it is not the whole. says: how it
    begins. edits: whose it is, '' for what nobody wrote down. adds: it takes nothing of the seed's
    away, so that taking it out is a pruning.
    """

    path: str
    kind: Kind
    says: str
    edits: tuple[LineWriter, ...] = ()
    adds: bool = True
    also: tuple[str, ...] = ()
    """Paths of what is switched together with it."""


@dataclass(frozen=True)
class _Piece:
    """Lines of a file. part: on or off with that one; frame: there while any of these is on; else
    always there."""

    lines: tuple[str, ...]
    off: tuple[str, ...] = ()
    part: int | None = None
    frame: tuple[int, ...] = ()


@dataclass(frozen=True)
class AgentParts:
    """An agent and what it was made from, part by part. fixed: what cannot be switched off, and
    why.

    files: the pieces of each file that has parts; a file that is whole one part is one piece.
    """

    agent: Scaffold
    base: Scaffold
    parts: tuple[AgentPart, ...]
    files: Mapping[str, tuple[_Piece, ...]] = field(default_factory=dict)
    gone: Mapping[str, int] = field(default_factory=dict)
    """Files that are not there while their part is off."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Files of the seed that are not there while their part is on."""
    fixed: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.parts)

    def without(self, on: Sequence[bool]) -> Scaffold:
        """The agent with some of its parts on, in their order."""
        return self._builder(tuple(on))

    @cached_property
    def _builder(self) -> Callable[[tuple[bool, ...]], Scaffold]:
        made: dict[tuple[bool, ...], Scaffold] = {}

        def build_once(on: tuple[bool, ...]) -> Scaffold:
            if on not in made:
                made[on] = self.agent if all(on) else self._build(on)
            return made[on]

        return build_once

    def _build(self, on: tuple[bool, ...]) -> Scaffold:
        files = dict(self.agent.files)
        for path, pieces in self.files.items():
            files[path] = "".join(line for piece in pieces for line in _lines_of(piece, on))
        for path, part in self.gone.items():
            if not on[part]:
                del files[path]
        for path, part in self.missing.items():
            if not on[part]:
                files[path] = self.base.files[path]
        return Scaffold(name=self.agent.name, files=files)

    def edits(self, off: Sequence[int], reasons: Mapping[int, str]) -> list[Edit]:
        """What takes these parts out of the agent, a file's one edit. reasons: part -> why. What
        puts back text of the seed is no pruning, and has the origin `search`."""
        made = self.without([n not in off for n in range(len(self))])
        found = []
        for path in sorted({*self.agent.files, *made.files}):
            old = self.agent.files.get(path)
            new = made.files.get(path)
            if old == new:
                continue
            whose = [
                n
                for n in off
                if path in (_file(self.parts[n].path), *map(_file, self.parts[n].also))
            ]
            why = "; ".join(reasons[n] for n in whose)
            adds = all(self.parts[n].adds for n in whose)
            edit = Edit(path=path, old=old or "") if new is None else change(path, old, new)
            found.append(
                edit.model_copy(update={"origin": "prune" if adds else "search", "reason": why})
            )
        return found


def parts_of(
    agent: Scaffold, base: Scaffold, lineage: Sequence[AgentVersion] = (), *, whole: bool = False
) -> AgentParts:
    """What an agent has beyond `base`. lineage: its versions, the newest first. whole: an edit is
    one part, however many rules it wrote."""
    draft = _Draft(agent, base, lineage)
    for path in sorted({*agent.files, *base.files} - set(UNCOUNTED)):
        draft.take(path)
    groups = [{n} for n in range(len(draft.parts))]
    if whole:
        groups = _joined(groups, lambda a, b: _same_edit(draft.parts[a], draft.parts[b]))
    made = draft.grouped(groups)
    fixed = list[tuple[str, str]]()
    groups, why = _switchable(made, groups)
    for part, reason in sorted(why.items()):
        fixed.append((made.parts[part].path, reason))
    return draft.grouped(groups, tuple(fixed))


class _Draft:
    """Parts as they are found, file by file."""

    def __init__(self, agent: Scaffold, base: Scaffold, lineage: Sequence[AgentVersion]) -> None:
        self.agent = agent
        self.base = base
        self.lineage = lineage
        self.parts: list[AgentPart] = []
        self.files: dict[str, tuple[_Piece, ...]] = {}
        self.gone: dict[str, int] = {}
        self.missing: dict[str, int] = {}

    def take(self, path: str) -> None:
        old = self.base.files.get(path)
        new = self.agent.files.get(path)
        if old == new or (path == "agent.toml" and _same_config(old or "", new or "")):
            return
        writers = trace_lines(self.lineage, path) if self.lineage and new is not None else []
        who = (
            [writer for _, writer in writers]
            if len(writers) == len((new or "").splitlines())
            else []
        )
        if new is None:
            self.missing[path] = self.add(
                AgentPart(f"{path} (taken out)", "edit", _begin(old or ""), adds=False)
            )
        elif old is None:
            kind = _FOLDERS.get(path.partition("/")[0], "file")
            self.gone[path] = self.add(AgentPart(path, kind, _begin(new), _several(who)))
        elif PurePosixPath(path).suffix not in _TEXTS or path.partition("/")[0] in _FOLDERS:
            part = self.add(AgentPart(path, "file", _begin(new), _several(who), adds=False))
            self.files[path] = (_Piece(tuple(_lines(new)), tuple(_lines(old)), part),)
        else:
            self.files[path] = tuple(self.pieces(path, old, new, who))

    def pieces(self, path: str, old: str, new: str, who: Sequence[LineWriter]) -> Iterator[_Piece]:
        before = _lines(old)
        after = _lines(new)
        matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
        for tag, at, end, start, stop in matcher.get_opcodes():
            lines = tuple(after[start:stop])
            theirs = tuple(before[at:end])
            if tag == "equal":
                yield _Piece(lines)
            elif tag == "insert":
                yield from self.rules(path, start, lines, who[start:stop])
            else:
                where = _place(path, start, stop) if lines else f"{path}:{start + 1} (taken out)"
                says = _begin("".join(lines or theirs))
                yield _Piece(
                    lines,
                    theirs,
                    self.add(AgentPart(where, "edit", says, _several(who[start:stop]), adds=False)),
                )

    def rules(
        self, path: str, start: int, lines: tuple[str, ...], who: Sequence[LineWriter]
    ) -> Iterator[_Piece]:
        """Inserted lines, cut into sections and items; a heading stays as long as anything under it
        does."""
        chunks = _chunks(lines, who)
        first = len(self.parts)
        numbers = []
        count = 0
        for _, _, under in chunks:
            numbers.append(None if under else first + count)
            count += not under
        for (at, end, under), number in zip(chunks, numbers, strict=True):
            held = lines[at:end]
            if number is None:
                yield _Piece(held, frame=tuple(n for i in under if (n := numbers[i]) is not None))
                continue
            place = _place(path, start + at, start + end)
            self.add(AgentPart(place, "rule", _begin("".join(held)), _several(who[at:end])))
            yield _Piece(held, part=number)

    def add(self, part: AgentPart) -> int:
        self.parts.append(part)
        return len(self.parts) - 1

    def grouped(
        self, groups: Sequence[set[int]], fixed: tuple[tuple[str, str], ...] = ()
    ) -> AgentParts:
        """Parts with those of a group as one; what is in none is always on."""
        place = {part: at for at, group in enumerate(groups) for part in group}

        def piece(p: _Piece) -> _Piece:
            if p.part is not None:
                at = place.get(p.part)
                return _Piece(p.lines) if at is None else _Piece(p.lines, p.off, at)
            if any(n not in place for n in p.frame):
                return _Piece(p.lines)
            return _Piece(p.lines, frame=tuple(place[n] for n in p.frame))

        return AgentParts(
            self.agent,
            self.base,
            tuple(_united([self.parts[n] for n in sorted(group)]) for group in groups),
            {path: tuple(map(piece, pieces)) for path, pieces in self.files.items()},
            {path: place[n] for path, n in self.gone.items() if n in place},
            {path: place[n] for path, n in self.missing.items() if n in place},
            fixed,
        )


def _switchable(
    made: AgentParts, groups: Sequence[set[int]]
) -> tuple[list[set[int]], dict[int, str]]:
    """(groups that the check lets go, each by itself; what it does not, and why)."""

    def wrong(off: set[int]) -> list[str]:
        return problems(made.without([n not in off for n in range(len(made))]))

    alone = {n: found for n in range(len(made)) if (found := wrong({n}))}
    bound = list[tuple[int, int]]()
    fixed = dict[int, str]()
    for part, found in alone.items():
        other = next((n for n in range(len(made)) if n != part and not wrong({part, n})), None)
        if other is None:
            fixed[part] = found[0]
        else:
            bound.append((part, other))
    left = [group for n, group in enumerate(groups) if n not in fixed]
    kept = [n for n in range(len(groups)) if n not in fixed]
    at = {n: place for place, n in enumerate(kept)}
    pairs = {(at[a], at[b]) for a, b in bound if a in at and b in at}
    joined = _joined(
        [{n} for n in range(len(left))], lambda a, b: (a, b) in pairs or (b, a) in pairs
    )
    return [set().union(*(left[n] for n in group)) for group in joined], fixed


def _joined(groups: Sequence[set[int]], together: Callable[[int, int], bool]) -> list[set[int]]:
    """Groups of one each, united where two belong together, in the order of their first."""
    whose = {n: group for group in groups for n in group}
    for a, b in combinations(sorted(whose), 2):
        if whose[a] is not whose[b] and together(a, b):
            whose[a] |= whose[b]
            for n in whose[b]:
                whose[n] = whose[a]
    return [group for n, group in sorted(whose.items()) if min(group) == n]


def _united(parts: Sequence[AgentPart]) -> AgentPart:
    first, *more = parts
    if not more:
        return first
    edits = tuple(dict.fromkeys(writer for part in parts for writer in part.edits))
    return AgentPart(
        first.path,
        first.kind,
        first.says,
        edits,
        all(p.adds for p in parts),
        tuple(p.path for p in more),
    )


def _same_edit(a: AgentPart, b: AgentPart) -> bool:
    ours = [
        {(w.revision.id, w.edit.reason) for w in p.edits if w.revision and w.edit} for p in (a, b)
    ]
    return bool(ours[0] & ours[1])


def _lines_of(piece: _Piece, on: Sequence[bool]) -> tuple[str, ...]:
    if piece.part is not None:
        return piece.lines if on[piece.part] else piece.off
    return piece.lines if not piece.frame or any(on[n] for n in piece.frame) else ()


def _same_config(old: str, new: str) -> bool:
    """Whether an attempt goes alike under both: who made the agent, and of what, is no part of
    it."""
    sides = [config for config, _ in map(read_agent, (old, new)) if config is not None]
    rest = [side.model_dump(exclude={"parent", "domain", "description"}) for side in sides]
    return len(rest) == 2 and rest[0] == rest[1]


def _several(who: Sequence[LineWriter]) -> tuple[LineWriter, ...]:
    return tuple(dict.fromkeys(writer for writer in who if writer.origin != "seed"))


def _chunks(
    lines: Sequence[str], who: Sequence[LineWriter]
) -> list[tuple[int, int, tuple[int, ...]]]:
    """(from, to, the chunks that it heads) of each piece of inserted lines; () for a piece by
    itself.

    Lines of a template's logic are not taken apart.
    """
    if any("{%" in line for line in lines):
        return [(0, len(lines), ())]
    starts, fenced, least = (
        [0],
        False,
        min((len(m[1]) for line in lines if (m := _ITEM.match(line))), default=0),
    )
    item = False
    for at, line in enumerate(lines):
        blank = not line.strip()
        opens = not fenced and not blank
        if opens and (m := _ITEM.match(line)) and len(m[1]) == least:
            begins = True
            item = True
        elif opens and _HEADING.match(line):
            begins = True
            item = False
        else:
            after = at > 0 and not lines[at - 1].strip()
            begins = opens and item and after and not line.startswith((" ", "\t"))
            item = item and not begins
        if begins or (
            opens and who and at and who[at] is not who[at - 1] and who[at] != who[at - 1]
        ):
            starts.append(at)
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
    starts = sorted(set(starts))
    if len(starts) > 1 and not "".join(lines[: starts[1]]).strip():
        del starts[1]  # blank lines before the first
    ends = [*starts[1:], len(lines)]
    return [
        (at, end, _list_under(lines, starts, ends, n))
        for n, (at, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _list_under(
    lines: Sequence[str], starts: Sequence[int], ends: Sequence[int], n: int
) -> tuple[int, ...]:
    """The chunks that a chunk is the heading, or the first words, of: a heading alone, or a line
    before a list."""
    text = [line for line in lines[starts[n] : ends[n]] if line.strip()]
    heads = [_level(lines, starts[i]) for i in range(len(starts))]
    if heads[n] and len(text) == 1:
        end = next((i for i in range(n + 1, len(starts)) if 0 < heads[i] <= heads[n]), len(starts))
        return tuple(i for i in range(n + 1, end))
    if text and text[-1].rstrip().endswith(":"):
        found = []
        for i in range(n + 1, len(starts)):
            if not _ITEM.match(lines[starts[i]]):
                break
            found.append(i)
        return tuple(found)
    return ()


def _level(lines: Sequence[str], at: int) -> int:
    found = next((m for line in lines[at:] if line.strip() for m in [_HEADING.match(line)]), None)
    return len(found[1]) if found else 0


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _place(path: str, start: int, stop: int) -> str:
    return f"{path}:{start + 1}" + (f"-{stop}" if stop > start + 1 else "")


def _file(place: str) -> str:
    return re.sub(r"(:\d+(-\d+)?)?( \(taken out\))?$", "", place)


def _begin(text: str) -> str:
    """Its first words, without marks of Markdown, in one line."""
    words = " ".join(re.sub(r"^[#>\-*+\s]+", "", text).split())
    return words if len(words) <= 80 else words[:77] + "..."
