"""Which lessons an attempt is shown, and when: a policy over lessons that stand still while
attempts run; and what an agent asks memory by itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from recreate.agents.trajectory import error_type, summary_of_tests
from recreate.api.types import Lesson, digest


class Retriever(Protocol):
    """`MemoryPolicy.offer`, or anything like it."""

    def __call__(self, query: str, budget: int, /) -> Sequence[Lesson]: ...


RECALL = "recall"
"""The command, or tool, by which an agent asks memory."""


class MemoryAnswer(NamedTuple):
    """What memory answers to an agent. found: the ids of the experiences that are told of, and
    `lesson:DOMAIN/NAME` of lessons."""

    text: str
    found: tuple[str, ...] = ()

    @property
    def lessons(self) -> list[str]:
        return [id.rpartition("/")[2] for id in self.found if id.startswith("lesson:")]


class Recaller(Protocol):
    """What an agent asks: its words, and the address of the call (`Call.id`) whose reply has
    them."""

    def __call__(self, query: str, call: str, /) -> MemoryAnswer: ...


def recall_query(command: str) -> str:
    """Return what a shell's command asks memory; '' for one that does not, or does anything
    besides."""
    found = re.fullmatch(rf"{RECALL}[ \t]+(\S[^\n]*)", command.strip())
    if found is None:
        return ""
    words = shlex.shlex(found[1], posix=True, punctuation_chars=";<>|&")
    words.whitespace_split = True
    words.commenters = ""
    try:
        split = list(words)
    except ValueError:  # a quote that is not closed is an apostrophe
        return "" if re.search(r"[;<>|&]", found[1]) else found[1].strip()
    return (
        "" if any(word and not word.strip(";<>|&") for word in split) else " ".join(split).strip()
    )


@dataclass(frozen=True)
class LessonRetrieval:
    """`offer` answers from `lessons` alone, so that `digest`, a part of every attempt's key, says
    all about it.

    forced: offered to an agent that did not ask for it as well (re-runs with and without a lesson).
    propensities: lessons of which an attempt that calls for them is shown each with this
    probability; others always. unproven: those that stand in other domains only, which is said with
    them.
    """

    offer: Retriever
    lessons: Mapping[str, Lesson]
    digest: str
    forced: bool = False
    propensities: Mapping[str, float] = field(default_factory=dict)
    unproven: Collection[str] = ()

    def support(self, lesson: Lesson) -> str:
        """Return what speaks for a lesson, as an agent is told it."""
        where = f"proven in {' and '.join(lesson.domains) or 'other domains'}, not yet here"
        return "; ".join(filter(None, [where * (lesson.id in self.unproven), support(lesson)]))


def frozen(
    policy: str,
    offer: Retriever,
    lessons: Mapping[str, Lesson],
    propensities: Mapping[str, float] | None = None,
    unproven: Collection[str] = (),
) -> LessonRetrieval:
    """Return a policy's offers from a snapshot. The same policy, lessons, propensities and marks
    give the same digest, '' without any lesson."""
    shown = [
        (id, x.title, x.body, x.scope, x.status, support(x)) for id, x in sorted(lessons.items())
    ]
    more = [each for each in (sorted((propensities or {}).items()), sorted(unproven)) if each]
    key = digest([policy, shown, *more]) if shown else ""
    return LessonRetrieval(offer, lessons, key, propensities=propensities or {}, unproven=unproven)


def draw_lesson(attempt: str, lesson: str, propensity: float) -> bool:
    """Whether an attempt that calls for a lesson is shown it: the same for the same attempt's key,
    whenever it is asked; independent of other lessons and other attempts."""
    return int(digest([attempt, "offer", lesson], 13), 16) < propensity * 16**13


def exactly(lessons: Sequence[Lesson]) -> LessonRetrieval:
    """Offers of just these lessons, to any agent, when it begins; nobody is told that they are
    being tested."""
    plain = [Lesson(id=x.id, title=x.title, body=x.body) for x in lessons]
    key = digest(["exactly", [(x.id, x.title, x.body) for x in plain]]) if plain else ""
    return LessonRetrieval(lambda query, budget: plain, {x.id: x for x in plain}, key, forced=True)


def support(lesson: Lesson) -> str:
    """Return what speaks for a lesson, in a few words: whose it is, and counts, not praise; '' of
    our own when nothing was counted."""
    parts = [lesson.origin] if lesson.origin else []
    groups = len(lesson.groups)
    if groups:
        parts.append(f"seen in {groups} group{'s' * (groups > 1)} of tasks")
    if lesson.gains:
        mean = sum(g.diff for g in lesson.gains) / len(lesson.gains)
        parts.append(f"{len(lesson.gains)} re-runs with and without it: {mean:+.2f}")
    if lesson.helpful or lesson.harmful:
        parts.append(f"helped {lesson.helpful} times, harmed {lesson.harmful}")
    return "; ".join(parts)


@dataclass(frozen=True)
class LastSeen:
    """The exception an agent met last, and what tests said last ('' for none): memory is asked when
    one changes."""

    error: str = ""
    tests: str = ""

    def after(self, text: str) -> tuple[LastSeen, str]:
        """Return (what was seen last after a result, why memory is asked: `error`, `tests`, or ''
        when it is not)."""
        error = error_type(text)
        tests = summary_of_tests(text)
        then = LastSeen(error or self.error, tests or self.tests)
        if error and error != self.error:
            return then, "error"
        return then, "tests" if tests and tests != self.tests else ""
