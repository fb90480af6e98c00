"""What a revision changed, part by part: a tool, a lesson, an example, a hook of agent.toml, a
text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from recreate.agents.config import AgentConfig, read_agent
from recreate.agents.lesson import read_lesson
from recreate.agents.scaffold import UNCOUNTED, Scaffold

Kind = Literal["tool", "hook", "lesson", "example", "text", "settings", "file"]

NOTES = ("lesson", "example")
"""Kinds that are shown whole, or not at all."""
SHORTEST = 8
"""Characters of a piece of text that is looked for: a shorter one stands anywhere."""
MOST = 40
"""Pieces of one part that are looked for, the longest first."""
_LOGIC = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|\n", re.DOTALL)
_WORDS = {"new": "new", "changed": "changed", "gone": "taken out"}


@dataclass(frozen=True)
class ChangedPart:
    """A part that a revision has and its parent has not as it is.

    name      of a tool or a lesson, without folder and suffix; of a hook the tool
    change    new | changed | gone
    role      of a hook, and of a tool that has one: the key of agent.toml that names it
    pieces    what it says that its parent did not, in literal pieces
    """

    path: str
    kind: Kind
    name: str
    change: Literal["new", "changed", "gone"]
    role: str = ""
    pieces: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What it is called where it is told of."""
        if self.kind == "hook":
            return f"`{self.role} = {self.name}` ({_WORDS[self.change]} hook)"
        return f"`{self.path}` ({_WORDS[self.change]} {self.kind})"


def list_changed(before: Scaffold, after: Scaffold) -> list[ChangedPart]:
    """Return what a revision changed, in the order of its files. A tool's schema goes with it."""
    found = dict[tuple[str, str], ChangedPart]()
    tools = {**before.tools, **after.tools}
    for path in sorted({*before.files, *after.files} - {*UNCOUNTED}):
        if before.files.get(path) == after.files.get(path):
            continue
        if path == "agent.toml" and not after.foreign:
            parts = list(_list_settings(before, after))
        else:
            parts = [_part_of(path, before, after, tools)]
        for part in parts:
            found.setdefault((part.path, part.role if part.kind == "hook" else ""), part)
    return list(found.values())


def _part_of(path: str, before: Scaffold, after: Scaffold, tools: dict[str, str]) -> ChangedPart:
    """Return the part that a changed file is."""
    place = PurePosixPath(path)
    folder = place.parts[0] if len(place.parts) > 1 else ""
    kind: Kind = "file"
    name = place.stem
    if folder == "tools" and name in tools and not after.foreign:
        path = after.tools.get(name) or tools[name]
        kind = "tool"
    elif folder in ("memory", "examples"):
        kind = "lesson" if folder == "memory" else "example"
    elif place.suffix in (".md", ".txt", ".j2") or after.agent.declares(path):
        kind = "text"
    old = before.files.get(path)
    new = after.files.get(path)
    change: Literal["new", "changed", "gone"] = (
        "gone" if new is None else "new" if old is None else "changed"
    )
    role = after.agent.uses.get(name, "") if kind == "tool" else ""
    texts = [_words_of(name, text or "") if kind in NOTES else text or "" for text in (new, old)]
    return ChangedPart(path, kind, name, change, role, cut_pieces(*texts))


def _words_of(name: str, text: str) -> str:
    """Return a lesson's or an example's title and body, without its header."""
    lesson = read_lesson(name, text)
    return f"{lesson.title}\n{lesson.body}"


def _list_settings(before: Scaffold, after: Scaffold) -> Iterator[ChangedPart]:
    """Yield the hooks that agent.toml names anew or no more, and what else of it is new."""
    configs = [read_agent(each.files.get("agent.toml", ""))[0] for each in (before, after)]
    if configs[0] is None or configs[1] is None:
        return
    uses = [{(role, name) for name, role in config.uses.items()} for config in configs if config]
    for change, hooks in (("new", uses[1] - uses[0]), ("gone", uses[0] - uses[1])):
        for role, name in sorted(hooks):
            # mypy knows no literals of a tuple
            word: Literal["new", "gone"] = "new" if change == "new" else "gone"
            yield ChangedPart("agent.toml", "hook", name, word, role)
    if _rest(configs[0]) != _rest(configs[1]):
        yield ChangedPart("agent.toml", "settings", "agent", "changed")


def _rest(agent: AgentConfig) -> dict[str, object]:
    """Return what agent.toml says besides hooks and who made it."""
    hooks = {"before", "done", "choose", "vote", "action", "parent", "domain", "description"}
    return agent.model_dump(exclude=hooks)


def cut_pieces(text: str, before: str = "") -> tuple[str, ...]:
    """Return the literal pieces of a text that a model may have been shown, the longest first:
    lines without a template's logic. before: what stood there already."""
    old = plain(before)
    pieces = (plain(piece) for piece in _LOGIC.split(text))
    new = dict.fromkeys(p for p in pieces if len(p) >= SHORTEST and p not in old)
    return tuple(sorted(new, key=len, reverse=True)[:MOST])


def plain(text: str) -> str:
    """Return a text with each run of white space as one space."""
    return " ".join(text.split())
