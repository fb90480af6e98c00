"""recall@5 of the labelled questions, by kind: SQLite's full text and Chroma as they come, and
recall.

    python -m tests.lab.retrieval [--tuned | --unseen] [EMBEDDER]

Run from the root of an earlier version's checkout (with this folder on PYTHONPATH behind it) it
measures that one.
"""

from __future__ import annotations

import argparse
import math
import random
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from recreate.api.types import Experience
from recreate.memory.embedders import open_embedder
from recreate.memory.store import ExperienceStore
from tests.lab.retrieval import experiences
from tests.lab.retrieval.questions import KINDS, Asked, questions

FIRST, DRAWS = 5, 2000
Search = Callable[[str], list[str]]
"""A question's text -> the experiences of the first hits, in their order; one may stand there more
than once."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.retrieval")
    parser.add_argument("embedder", nargs="?", default="minilm")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tuned", dest="unseen", action="store_false", default=None)
    which.add_argument("--unseen", dest="unseen", action="store_true")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N questions")
    args = parser.parse_args()
    spec, attempted = args.embedder, experiences()
    asked = [q for q in questions() if args.unseen in (None, q.unseen)][: args.first]
    counts = "/".join(str(sum(q.kind == kind for q in asked)) for kind in KINDS)
    print(
        f"| {len(asked)} questions ({counts}), {spec} | recall@5 | {' | '.join(KINDS)} |"
        " experiences in 8 hits |"
    )
    print("|---|---|" + "---|" * (len(KINDS) + 1))
    with tempfile.TemporaryDirectory(prefix="recreate-retrieval-") as folder:
        for name, search in _searches(attempted, spec, Path(folder)):
            _row(name, search, asked)


def _row(name: str, search: Search, asked: Sequence[Asked]) -> None:
    each: list[float] = []
    apart: list[int] = []
    for question in asked:
        found = search(question.text)
        each.append(
            len(question.relevant & set(found[:FIRST])) / min(FIRST, len(question.relevant))
        )
        apart.append(len(set(found[:8])))
    kinds = [
        f"{_mean([r for r, q in zip(each, asked, strict=True) if q.kind == k]):.2f}" for k in KINDS
    ]
    chance = random.Random(4)
    means = sorted(statistics.fmean(chance.choices(each, k=len(each))) for _ in range(DRAWS))
    lo, hi = means[DRAWS // 40], means[-DRAWS // 40]
    cells = [
        f"**{statistics.fmean(each):.3f}** ({lo:.2f} to {hi:.2f})",
        *kinds,
        f"{statistics.fmean(apart):.1f}",
    ]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _mean(numbers: Sequence[float]) -> float:
    return statistics.fmean(numbers) if numbers else math.nan


def _searches(
    attempted: Sequence[Experience], spec: str, folder: Path
) -> Iterator[tuple[str, Search]]:
    yield "plain FTS5, steps and experiences", _plain_words(attempted)
    yield "plain Chroma, steps and experiences", _plain_vectors(attempted, spec, folder / "chroma")
    memory = ExperienceStore(folder / "memory", spec)
    memory.add(attempted)
    for how in ("keywords", "vectors", "hybrid"):

        def search(text: str, how: str = how) -> list[str]:
            return [hit.experience for hit in memory.recall(text, 8, reader="human", how=how)]

        yield f"recall, {how}", search
    memory.close()


def _plain_words(attempted: Sequence[Experience]) -> Search:
    db = sqlite3.connect(":memory:")
    db.execute("create virtual table words using fts5(id unindexed, text)")
    db.executemany("insert into words values (?, ?)", _texts(attempted))

    def search(text: str) -> list[str]:
        words = "".join(c if c.isalnum() else " " for c in text).split()
        asked = " OR ".join(f'"{word}"' for word in words)
        rows = db.execute(
            "select id from words where words match ? order by rank limit 8", (asked,)
        )
        return [id for (id,) in rows]

    return search


def _plain_vectors(attempted: Sequence[Experience], spec: str, folder: Path) -> Search:
    import chromadb

    embedder, texts = open_embedder(spec), list(_texts(attempted))
    held = chromadb.PersistentClient(str(folder)).create_collection(
        "plain", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    ids = [f"{n}:{id}" for n, (id, _) in enumerate(texts)]
    held.add(ids=ids, embeddings=embedder.embed([text for _, text in texts]))  # type: ignore[arg-type]

    def search(text: str) -> list[str]:
        found = held.query(
            query_embeddings=embedder.embed([text], "query"), n_results=8, include=[]
        )  # type: ignore[arg-type]
        return [id.partition(":")[2] for id in found["ids"][0]]

    return search


def _texts(attempted: Sequence[Experience]) -> Iterator[tuple[str, str]]:
    """(experience, text) of each step and of what was asked and graded."""
    for e in attempted:
        for s in e.trace.steps:
            yield e.id, f"{s.observation}\n{s.action or s.reply}\n{s.output}".replace("\0", " ")
        yield e.id, f"{e.task}\n{e.prompt}\n{e.grade.evidence}"


if __name__ == "__main__":
    main()
