"""How near texts are: vectors made once a text, and what a query has in common with lessons."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import mul

from recreate.agents.guards.untrusted import mark_text
from recreate.api.types import Lesson

Embed = Callable[[Sequence[str], str], Sequence[Sequence[float]]]

CHARS = 1000
"""What an embedder is handed of a text."""
KEPT = 5000
"""Vectors kept in memory: some 60 MB of 384 numbers each."""
TOGETHER = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""
_WORD = re.compile(r"[^\W_]{3,}")


def tokens(text: str) -> int:
    """About how many tokens a text takes: four characters each."""
    return (len(text) + 3) // 4


def text_of(lesson: Lesson) -> str:
    """Return a lesson as it is compared and counted: title and body."""
    return f"{lesson.title}\n{lesson.body}"


def tell_lesson(lesson: Lesson) -> str:
    """A lesson as a model is asked about it: one of others says so."""
    return mark_text(lesson.trust, text_of(lesson))


@lru_cache(maxsize=KEPT)
def words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text))


class Similarity:
    """Cosines of lessons and queries. Safe to use from several threads; an embedder is asked by one
    at a time."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._lock = threading.Lock()
        self._known: dict[str, Sequence[float]] = {}

    def vectors(self, texts: Sequence[str], kind: str = "passage") -> list[Sequence[float]]:
        """Unit vectors of the texts (their first CHARS); passages are kept, since lessons are
        compared again."""
        cut = [text[:CHARS] for text in texts]
        with self._lock:
            if kind != "passage":
                return list(self._embed(cut, kind))
            new = list(dict.fromkeys(t for t in cut if t not in self._known))
            if new:
                if len(self._known) > KEPT:
                    self._known.clear()
                    new = list(dict.fromkeys(cut))
                self._known.update(zip(new, self._embed(new, kind), strict=True))
            return [self._known[t] for t in cut]

    def cosines(self, text: str, lessons: Sequence[Lesson], kind: str = "passage") -> list[float]:
        """Return the cosine of a text to each lesson."""
        if not lessons:
            return []
        (asked,) = self.vectors([text], kind)
        return [dot(asked, v) for v in self.vectors([text_of(lesson) for lesson in lessons])]

    def nearest(
        self, lesson: Lesson, others: Sequence[Lesson], least: float, k: int
    ) -> list[Lesson]:
        """Return at most k of the others whose cosine to the lesson is at least `least`, nearest
        first."""
        found = [
            (cosine, other)
            for cosine, other in zip(self.cosines(text_of(lesson), others), others, strict=True)
            if cosine >= least and other.id != lesson.id
        ]
        return [other for _, other in sorted(found, key=lambda item: (-item[0], item[1].id))[:k]]

    def ranked(
        self, query: str, lessons: Sequence[Lesson], among: Sequence[Lesson] = ()
    ) -> list[Lesson]:
        """Return the lessons that a query calls for, best first: by vectors and by shared words,
        fused by rank.

        One is left out when it stands out in neither way: its cosine is not above what lessons
        (`among`, all that are kept) have to this query on average, and it shares no word with it
        that few lessons have. Up to three lessons are told apart by nothing, so they stay.
        """
        if not lessons:
            return []
        kept = list({lesson.id: lesson for lesson in (*among, *lessons)}.values())
        cosine = dict(zip([x.id for x in kept], self.cosines(query, kept, "query"), strict=True))
        common = Counter(word for lesson in kept for word in words(text_of(lesson)))
        asked = words(query)
        shared = {
            x.id: sum(
                1 / common[word]
                for word in words(text_of(x)) & asked
                if 3 * common[word] <= len(kept)
            )
            for x in lessons
        }
        mean = sum(cosine.values()) / len(cosine)
        spread = (sum((c - mean) ** 2 for c in cosine.values()) / len(cosine)) ** 0.5
        called = [
            x
            for x in lessons
            if len(kept) <= 3 or cosine[x.id] > mean + spread / 2 or shared[x.id] > 0
        ]
        by_vector = sorted(called, key=lambda x: (-cosine[x.id], x.id))
        by_words = sorted(
            (x for x in called if shared[x.id] > 0), key=lambda x: (-shared[x.id], x.id)
        )
        score: Counter[str] = Counter()
        for order in (by_vector, by_words):
            for rank, lesson in enumerate(order):
                score[lesson.id] += 1 / (TOGETHER + rank)  # type: ignore[assignment]
        return sorted(called, key=lambda x: (-score[x.id], x.id))


def fitting(lessons: Sequence[Lesson], budget: int) -> list[Lesson]:
    """Return the lessons, in their order, that fit a budget of tokens; one that is too long is
    passed over."""
    kept = []
    left = budget
    for lesson in lessons:
        # tokens(text_of(lesson)), without making the text
        cost = (len(lesson.title) + 1 + len(lesson.body) + 3) // 4
        if cost <= left:
            kept.append(lesson)
            left -= cost
    return kept


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the cosine of two unit vectors."""
    return float(sum(map(mul, a, b)))
