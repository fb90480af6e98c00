"""A memory of a million tiny experiences (--size N): adding, indexing, recall, lists, forgetting;
disk and memory."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from recreate.api.types import Experience, Grade, Step, Trace
from recreate.memory.store import ExperienceStore
from recreate.plugins.memory_tools.forget import forget
from recreate.plugins.view.memory import Browsed
from tests.lab.perf.growth import highest
from tests.lab.perf.table import Row

WORDS = ["parse", "date", "table", "join", "count", "sort", "split", "merge", "read", "write"]
WORDS += ["open", "close", "test", "build", "graph", "token"]


def tiny(n: int) -> Experience:
    """The n-th experience, of some fifty characters."""
    id = f"{n * 2654435761 % 2**40:010x}"
    said = f"{WORDS[n % 16]} {WORDS[n // 16 % 16]} w{n % 5003}"
    return Experience(
        id=id,
        domain="tiny",
        task=f"tiny:made:{n % 100_000}",
        group=f"group-{n % 1000}",
        split="validation" if n % 1000 == 7 else "train",
        prompt=f"{said} of q{n}",
        digest="s",
        run="run",
        trace=Trace(
            attempt=id,
            task=f"tiny:made:{n % 100_000}",
            scaffold="s",
            model="m",
            steps=(Step(step=0, action=f"do {said}", output="ok", status=0),),
            answer=f"a{n}",
        ),
        grade=Grade(score=float(n % 2), passed=bool(n % 2), evidence=""),
    )


def measure(size: int = 1_000_000) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="recreate-perf-") as folder:
        memory = ExperienceStore(Path(folder), "hashed")

        def row(case: str, work: Callable[[], object]) -> Row:
            begun = time.process_time()
            work()
            spent = time.process_time() - begun
            print(f"{case}: resident at most {highest() / 1e9:.2f} GB", file=sys.stderr, flush=True)
            return Row("tiny", f"{case}, of {size:,}", "CPU s", spent, None, None, None, None, "")

        def ask(words: str) -> Callable[[], object]:
            return lambda: memory.recall(words, reader="human", how="keywords")

        yield row("added", lambda: [memory.add(list(map(tiny, some))) for some in batches(size)])
        yield row("first question, which indexes their words", ask("q7"))
        yield row("a rare word", ask("q77"))
        yield row("a word of one in eight", ask("sort"))
        yield row("one more, and found", lambda: (memory.add([tiny(size)]), ask(f"q{size}")()))
        yield row("listed", lambda: sum(1 for _ in memory.facts()))
        browsed = Browsed(Path(folder))
        yield row("the page of the memory", lambda: browsed.ask("", {}).rows[:50])
        yield row("forget one, what would go", lambda: forget(memory, [tiny(5).id], dry=True))
        yield row("forget one", lambda: forget(memory, [tiny(5).id]))
        yield row("the first question after it", ask("q77"))
        for kind in ("index", "tiny"):
            bytes_ = sum(
                file.stat().st_size for file in (memory.folder / kind).rglob("*") if file.is_file()
            )
            yield Row("tiny", f"{kind} on the disk", "MB", bytes_ / 1e6, None, None, None, None, "")
        memory.close()


def batches(size: int) -> Iterator[range]:
    for first in range(0, size, 1000):
        yield range(first, min(size, first + 1000))
