"""A whole build on the toy domain with a scripted model: 8 train and 8 validation tasks, 2 rounds,
20 ms a reply.

Each is done in a process of its own that has imported everything before; the clock starts after
that.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.lab.perf.table import Row

GOAL = "<=5"
TIMES = 3
DELAY_MS = 20


def measure() -> list[Row]:
    done = [_child() for _ in range(TIMES)]
    waits = [d["calls"] * DELAY_MS / 1000 / d["jobs"] for d in done]
    seconds = [d["seconds"] for d in done]
    ratios = sorted(s / w for s, w in zip(seconds, waits, strict=True))
    case = f"8 tasks x 2 rounds, {done[0]['calls']} calls, {done[0]['sandbox']}"
    middle = statistics.median
    return [
        Row(
            "toy-build",
            case,
            "s",
            middle(seconds),
            middle(waits),
            middle(ratios),
            ratios[0],
            ratios[-1],
            GOAL,
            "ours",
        ),
    ]


def _child() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="recreate-perf-") as name:
        environ = {**os.environ, "RECREATE_HOME": str(Path(name) / "home")}
        command = [sys.executable, "-m", "tests.lab.perf.toy_build", name]
        text = subprocess.run(
            command, env=environ, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def main(folder: Path) -> None:
    import langgraph.checkpoint.sqlite
    import langgraph.graph  # noqa: F401

    with suppress(ImportError):
        import chromadb  # noqa: F401
    from recreate.agents import scaffold
    from recreate.api.paths import shipped
    from recreate.builder.loop import build
    from recreate.optimizers import reflect  # noqa: F401
    from recreate.runs.session import open_session
    from recreate.runs.settings import load
    from tests.toy import write_script

    model = write_script(folder / "script.jsonl", delay_ms=DELAY_MS)
    flags = {"domain": "tests.toy:Toy", "model": model, "rounds": 2, "train": 8, "validation": 8}
    begun, cpu = time.perf_counter(), time.process_time()
    settings = load(folder, flags, environ={})
    session = open_session(settings, folder, folder / "runs" / "toy")
    built = build(session, scaffold.load(shipped("scaffolds") / "seed"))
    session.close()
    facts = {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
        "calls": session.ledger.spent.calls,
        "jobs": settings.jobs,
        "sandbox": session.backend.name,
        "kept": sum(r.kept for r in built.revisions),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
