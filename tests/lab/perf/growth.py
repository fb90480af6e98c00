"""What stays in memory of an attempt that has ended: resident memory after 200 and after 2,000 of
them."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import tempfile
from pathlib import Path

from recreate.runs.attempts import run_attempts
from tests.lab.perf.still import agent, run_session
from tests.lab.perf.table import Row

FIRST, ALL = 200, 2000
GOAL = "<=2048"


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="recreate-perf-") as name:
        script = Path(name) / "script.jsonl"
        script.write_text('{"role": "agent", "text": "```bash\\nsubmit\\n```"}\n')
        with run_session(f"scripted:{script}", jobs=2) as session:
            tasks = session.domain.tasks()[:ALL]
            scaffold = agent(2)
            kept = run_attempts(session, scaffold, tasks[:FIRST])
            before, peak = resident(), highest()
            kept += run_attempts(session, scaffold, tasks[FIRST:])
            after, top = resident(), highest()
            assert len(kept) == ALL
    rows = ((f"resident, {FIRST} to {ALL} attempts", after - before), ("its highest", top - peak))
    return [
        Row(
            "memory",
            case,
            "bytes an attempt",
            grown / (ALL - FIRST),
            None,
            None,
            None,
            None,
            GOAL,
            "ours",
        )
        for case, grown in rows
    ]


def resident() -> int:
    """Bytes of this process in memory, after what is free was given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def highest() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
