"""A lesson on disk: one Markdown file. An agent carries the short form; the workspace keeps what
speaks for it.

In a scaffold                                       In memory/, with a header in TOML and the
re-runs at the end

    # Read the failing test first                       +++
                                                        scope = "domain"
    It says what is expected; the traceback             status = "active"
    only says where it went wrong.                      supports = ["3f2a...", "91bc...", "04de..."]
                                                        +++
    born_of: 3f2a..., 91bc...                           # Read the failing test first

                                                        It says what is expected; ...

                                                        <!-- evidence
                                                        gains = [...]
                                                        -->
"""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from recreate.api.config import read_toml, toml_value
from recreate.api.errors import BadInput
from recreate.api.types import ORIGINS, SCHEMA, Lesson, Trust, digest

_FACTS = ("born_of", "scope", "supports", "contradicts", "trust")
_FENCE = "+++"
_REST = "<!-- evidence"
"""Opens a comment, which no reader of Markdown shows, with what only code reads: it is long."""
_ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "steps": ("steps that show it: experience, step", ("experience", "step")),
    "gains": (
        (
            "re-runs with and without it: experience, group, what it changed in the score, repeat,"
            " task, test"
        ),
        ("experience", "group", "diff", "repeat", "task", "round"),
    ),
    "trials": (
        "attempts in which it was offered: experience, score, test",
        ("experience", "score", "round"),
    ),
    "draws": (
        (
            "attempts in which it was drawn whether to offer it: experience, task, group, score,"
            " offered, with which probability, attempts before, how often it was quarantined before"
        ),
        ("experience", "task", "group", "score", "shown", "propensity", "at", "falls"),
    ),
    "signs": (
        "of these, attempts that showed signs of gaming: experience, step, what",
        ("experience", "step", "what"),
    ),
}


def lesson_at(path: Path) -> Lesson:
    """Return the lesson in a file of memory/. Raises BadInput (`broken-lesson`) for what is none,
    OSError."""
    return read_lesson(path.stem, lesson_text(path))


def lesson_text(path: Path) -> str:
    """Return the file as it stands. A link is not followed: what it leads to may be no lesson and
    nobody's to show.

    Raises BadInput (`broken-lesson`) for a link, a folder, a pipe, an empty file and what is not
    UTF-8, OSError.
    """
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode):
        raise _broken(
            "it is a link, which is not followed" if stat.S_ISLNK(mode) else "it is no file"
        )
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise _broken("it is not UTF-8") from None
    if not text.strip("\ufeff\x00 \t\r\n"):
        raise _broken("it is empty")
    return text


def read_lesson(name: str, text: str) -> Lesson:
    """Return the lesson in a file, in either form; its id is the file's name without `.md`.

    Raises BadInput (`broken-lesson`) for a header that is not what it must be; without a header
    nothing can be wrong.
    """
    text = text.replace("\r\n", "\n").lstrip("\ufeff")
    if text.startswith(_FENCE + "\n"):
        return _headed(name, text)
    lines = text.strip("\n").split("\n")
    title = name.replace("-", " ")
    if lines and lines[0].startswith("# "):
        title = lines[0][2:].strip()
        lines = lines[1:]
    cut = len(lines)
    while cut and lines[cut - 1].partition(":")[0] in _FACTS and ":" in lines[cut - 1]:
        cut -= 1
    if cut and lines[cut - 1].strip():
        cut = len(lines)  # the last paragraph is prose that happens to end so
    facts = {key: value.strip() for key, _, value in (line.partition(":") for line in lines[cut:])}
    ids = {k: tuple(filter(None, (i.strip() for i in facts.get(k, "").split(",")))) for k in _FACTS}
    scope = facts.get("scope", "instance")
    trust = facts.get("trust", "own")
    return Lesson(
        id=name,
        title=title,
        body="\n".join(lines[:cut]).strip("\n"),
        scope="domain" if scope == "domain" else "general" if scope == "general" else "instance",
        born_of=ids["born_of"],
        supports=ids["supports"],
        contradicts=ids["contradicts"],
        trust=next((known for known in ORIGINS if known == trust), "own"),
    )


def with_trust(text: str, trust: Trust) -> str:
    """Return the file of a lesson that an agent carries with whose word it is at its end, in place
    of what it said of that."""
    plain = re.sub(r"^trust: .*(?:\n|$)", "", text, flags=re.MULTILINE).rstrip("\n")
    listed = plain.rpartition("\n")[2].partition(":")[0] in _FACTS
    return f"{plain}{'' if listed else chr(10)}\ntrust: {trust}\n"


def lesson_file(title: str, body: str, born_of: Sequence[str] = ()) -> tuple[str, str]:
    """Return (path, text) of a new lesson; the path is the title in plain letters and six digits of
    the content."""
    title = " ".join(title.split()) or "untitled"
    body = re.sub(r"\r\n?", "\n", body).strip("\n")
    text = f"# {title}\n\n{body}\n\nborn_of: {', '.join(born_of)}".rstrip() + "\n"
    return f"memory/{lesson_id(title, body)}.md", text


def lesson_id(title: str, body: str) -> str:
    """Return the title in plain letters and six digits of the content: the same lesson, the same
    id."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].strip("-") or "lesson"
    return f"{slug}-{digest([title, body], 6)}"


def headed(lesson: Lesson) -> str:
    """Return the lesson with its header, as it stands in memory/. `read_lesson` reads the same
    lesson back."""
    facts = lesson.model_dump(
        mode="json", by_alias=True, exclude={"id", "title", "body", *_ROWS, "schema_"}
    )
    first = {key: facts.pop(key) for key in ("scope", "status")}
    lines = [
        f"{key} = {toml_value(value)}"
        for key, value in (first | facts).items()
        if key in first or value
    ]
    rest = []
    for name, (comment, fields) in _ROWS.items():
        rows = [[getattr(row, field) for field in fields] for row in getattr(lesson, name)]
        if rows:
            rest += [
                f"# {comment}",
                f"{name} = [",
                *(f"    {toml_value(row)}," for row in rows),
                "]",
            ]
    if rest or _REST in lesson.body:  # the last one counts: words that look like evidence are none
        rest = [_REST, *(line.replace("--", "-\\u002d") for line in rest), "-->", ""]
    title = " ".join(lesson.title.split()) or "untitled"
    body = lesson.body.strip("\n")
    return "\n".join([_FENCE, *lines, _FENCE, f"# {title}", "", body, "", *rest])


@lru_cache(1024)  # a round reads each lesson of a memory several times, and few have changed
def _headed(name: str, text: str) -> Lesson:
    parts = re.fullmatch(r"\+\+\+\n(.*?)^\+\+\+[ \t]*(?:\n(.*))?", text, re.DOTALL | re.MULTILINE)
    if parts is None:
        raise _broken("its header has no closing `+++` line")
    header = parts[1]
    rest = parts[2] or ""
    before, mark, evidence = rest.rpartition(f"\n{_REST}\n")
    if mark:
        rest = before
        evidence = evidence.rpartition("-->")[0]
    try:
        facts = read_toml(header)
        facts |= read_toml(evidence) if mark else {}
    except ValueError as e:
        raise _broken(f"its header or its evidence is not TOML: {e}") from None
    lines = rest.strip("\n").split("\n")
    title = name.replace("-", " ")
    if lines[0].startswith("# "):
        title = lines[0][2:].strip()
        lines = lines[1:]
    if facts.get("schema", SCHEMA) != SCHEMA:
        raise _broken(f"it has schema {facts['schema']}; this recreate reads {SCHEMA}")
    try:
        for key, (_, fields) in _ROWS.items():
            facts[key] = tuple(dict(zip(fields, row, strict=True)) for row in facts.get(key, ()))
        facts |= {"id": name, "title": title, "body": "\n".join(lines).strip("\n")}
        return Lesson.model_validate(facts)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        raise _broken(
            f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}, got {first['input']!r}"
        ) from None
    except (TypeError, ValueError):
        known = "; ".join(
            f"{key} are lists of [{', '.join(fields)}]" for key, (_, fields) in _ROWS.items()
        )
        raise _broken(known) from None


def _broken(why: str) -> BadInput:
    return BadInput(
        why,
        fix="mend that line, or take the file away: what it stood on is in the experiences",
        code="broken-lesson",
    )
