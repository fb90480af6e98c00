"""A lesson on disk: one Markdown file with a title, a few sentences, and where it came from.

# Read the failing test first

It says what is expected; the traceback only says where it went wrong.

born_of: 3f2a..., 91bc...
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from recreate.types import Lesson, digest

_FACTS = ("born_of", "scope", "supports", "contradicts")


def read_lesson(name: str, text: str) -> Lesson:
    """A lesson file: `# Title`, the body, and a last paragraph of `born_of: id, id` (and scope, supports, ...)."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    title = name.replace("-", " ")
    if lines and lines[0].startswith("# "):
        title, lines = lines[0][2:].strip(), lines[1:]
    cut = len(lines)
    while cut and lines[cut - 1].partition(":")[0] in _FACTS and ":" in lines[cut - 1]:
        cut -= 1
    if cut and lines[cut - 1].strip():
        cut = len(lines)  # the last paragraph is prose that happens to end so
    facts = {key: value.strip() for key, _, value in (line.partition(":") for line in lines[cut:])}
    ids = {k: tuple(filter(None, (i.strip() for i in facts.get(k, "").split(",")))) for k in _FACTS}
    scope = facts.get("scope", "instance")
    return Lesson(
        id=name,
        title=title,
        body="\n".join(lines[:cut]).strip("\n"),
        scope="domain" if scope == "domain" else "general" if scope == "general" else "instance",
        born_of=ids["born_of"],
        supports=ids["supports"],
        contradicts=ids["contradicts"],
    )


def lesson_file(title: str, body: str, born_of: Sequence[str] = ()) -> tuple[str, str]:
    """(path, text) of a new lesson; the path is the title in plain letters and six digits of the content."""
    title = " ".join(title.split()) or "untitled"
    body = re.sub(r"\r\n?", "\n", body).strip("\n")
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].strip("-") or "lesson"
    text = f"# {title}\n\n{body}\n\nborn_of: {', '.join(born_of)}".rstrip() + "\n"
    return f"memory/{slug}-{digest([title, body], 6)}.md", text
