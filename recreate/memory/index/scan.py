"""The words of everything remembered, without numpy and without a file: each process reads the documents again.

It ranks by the same BM25 over the same words as the index on disk (ranking.py). Filters are the caller's.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from recreate.api import registry
from recreate.api.errors import Missing
from recreate.memory.documents import Sources
from recreate.memory.index import Question
from recreate.memory.index.tokenizer import K1, LENGTH, B, words

_Counted = tuple[str, Mapping[str, int]]
"""A document's id, and how often each word stands in it."""


class Scan:
    """`Index` for an install without numpy: by words alone. Safe for several threads."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[str, list[_Counted]]] = {}
        self._alone = threading.Lock()

    @property
    def embedder(self) -> Any:
        """Raises Missing: vectors need numpy."""
        raise _missing()

    def search(
        self, question: Question, n: int, sources: Sources, progress: Callable[[int, int], None] | None = None
    ) -> list[tuple[str, float]]:
        """(document id, BM25) of the n best documents, best first. Raises Missing for any other way than `keywords`."""
        if question.how != "keywords":
            raise _missing()
        documents = self._documents(sources, progress)
        asked = list(dict.fromkeys(words(question.text, asked=True)))
        stands = {word: sum(word in counts for _, counts in documents) for word in asked}
        worth = {w: math.log1p((len(documents) - s + 0.5) / (s + 0.5)) for w, s in stands.items() if s}
        scored = ((id, round(_bm25(counts, worth), 6)) for id, counts in documents)
        return heapq.nsmallest(n, (found for found in scored if found[1]), key=lambda found: (-found[1], found[0]))

    def sync(self, sources: Sources, progress: Callable[[int, int], None] | None = None, *, whole: bool = False) -> int:
        """Read what is new, and return how many documents there are. Raises Missing where an index on disk is asked
        for (whole)."""
        if whole:
            raise _missing()
        return len(self._documents(sources, progress))

    def close(self) -> None:
        """Let go of what was read."""
        self._read.clear()

    def _documents(self, sources: Sources, progress: Callable[[int, int], None] | None) -> list[_Counted]:
        """Those that the reader may see; what was read for another reader stays."""
        wanted = {**dict(sources.since(0)), **sources.lessons}
        with self._alone:
            new = [key for key, sum_ in wanted.items() if self._read.get(key, ("",))[0] != sum_]
            for done, key in enumerate(new, 1):
                self._read[key] = wanted[key], [(d.id, Counter(words(d.text))) for d in sources.documents(key)]
                if progress is not None:
                    progress(done, len(new))
            return [counted for key in wanted for counted in self._read[key][1]]


def _missing() -> Missing:
    return registry.missing("numpy") or Missing("this needs the package numpy")


def _bm25(counts: Mapping[str, int], worth: Mapping[str, float]) -> float:
    score, length = 0.0, 0
    for word, idf in worth.items():
        if count := counts.get(word, 0):
            length = length or sum(counts.values())
            score += idf * count * (K1 + 1) / (count + K1 * (1 - B + B * length / LENGTH))
    return score
