"""Which documents answer a question best: by words (BM25), by vectors (cosine), and both lists as one. Pure functions
over segments; `masks` and `rows` say by segment which of its rows may answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from recreate.memory.index.segments import Array, Segment, hashed
from recreate.memory.index.tokenizer import words

FUSED = 60
"""The constant of reciprocal rank fusion: Cormack, Clarke and Büttcher, SIGIR 2009."""

POSTINGS = 250_000
"""Places of words that one question looks at; the rarest words go first."""

Hit = tuple[str, float]
"""A document's id and its score, the higher the better."""


def by_words(parts: Mapping[str, Segment], masks: Mapping[str, Array], text: str, n: int) -> list[Hit]:
    """The n rows that match with the highest BM25."""
    asked = hashed(dict.fromkeys(words(text, asked=True)))
    if not len(asked) or not parts:
        return []
    stands = np.sum([part.frequency(asked) for part in parts.values()], axis=0)
    docs = sum(part.docs for part in parts.values())
    order = np.argsort(stands, kind="stable")
    order = order[stands[order] > 0]
    # What stands in very many documents tells them apart little, and is dear to look up.
    order = order[: max(1, int(np.searchsorted(np.cumsum(stands[order]), POSTINGS)))]
    worth = np.log1p((docs - stands + 0.5) / (stands + 0.5))
    found = []
    for name, part in parts.items():
        score = part.weigh(asked[order], worth[order]) * masks[name]
        rows = np.flatnonzero(score)
        score = score[rows]
        if len(rows) > 4 * n:
            best = score >= np.partition(score, len(score) - n)[len(score) - n] - 1e-5
            rows, score = rows[best], score[best]
        found.append((part, rows, score))
    return _best(found, n)


def by_vectors(
    parts: Mapping[str, Segment], stored: Mapping[str, Array], rows: Mapping[str, Array], query: Array, n: int
) -> list[Hit]:
    """The n of these rows (ascending) with the highest cosine. stored: float32 (docs, dimensions) by segment."""
    found = []
    for name, own in rows.items():
        vectors = stored[name] if len(own) == len(stored[name]) else np.take(stored[name], own, axis=0, mode="clip")
        # Not `@`: the threads of a BLAS wait for each other, and on a busy machine that took ten times as long.
        found.append((parts[name], own, np.einsum("ij,j->i", vectors, query)))
    return _best(found, n)


def fuse(lists: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Reciprocal rank fusion: each list gives what it names 1 / (60 + rank), the first rank being 1."""
    score: dict[str, float] = {}
    for ranked in lists:
        for rank, (id, _) in enumerate(ranked, 1):
            score[id] = score.get(id, 0.0) + 1 / (FUSED + rank)
    return sorted(((id, round(s, 6)) for id, s in score.items()), key=lambda pair: (-pair[1], pair[0]))


def _best(found: Sequence[tuple[Segment, Array, Array]], n: int) -> list[Hit]:
    """(id, score) of the n highest scores over segments; scores to 6 digits, since the last bits depend on the order
    in which a processor adds."""
    parts = [part for part, rows, _ in found if len(rows)]
    if not parts:
        return []
    rows = np.concatenate([rows for _, rows, _ in found])
    scores = np.round(np.concatenate([scores for _, _, scores in found]).astype(np.float64), 6)
    owner = np.repeat(np.arange(len(parts)), [len(rows) for _, rows, _ in found if len(rows)])
    top = np.arange(len(scores))
    if len(scores) > n:
        least = np.partition(scores, len(scores) - n)[len(scores) - n]
        top = np.flatnonzero(scores >= least)[: 4 * n]  # ties go by id, within reason
    best = [(parts[owner[at]].id(rows[at]), float(scores[at])) for at in top]
    return sorted(best, key=lambda pair: (-pair[1], pair[0]))[:n]
