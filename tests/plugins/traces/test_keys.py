"""Keys in what is imported or added are masked."""

from __future__ import annotations

import json
from pathlib import Path

from recreate.api.types import Experience, Grade, Step, Trace
from recreate.memory.store import ExperienceStore
from recreate.plugins.traces.importer import ImportConfig, import_traces
from tests.builder.test_keys import KEYS, leaked


def test_what_is_imported_or_added_is_masked(workspace: Path) -> None:
    said = [
        {"role": "user", "content": f"use {KEYS['imported']}"},
        {"role": "assistant", "content": "I did"},
    ]
    file = workspace.parent / "traces.jsonl"
    file.write_text(
        json.dumps({"messages": said, "score": 1.0})
        + "\n"
        + json.dumps({"messages": [*said, *said]})
        + "\n"
    )
    memory = ExperienceStore(workspace, "hashed")
    report = import_traces([file], memory, ImportConfig(domain="toy"))
    assert (report.added, report.waiting) == (1, 1)
    step = Step(step=0, reply=KEYS["added"], foreign={"raw": [KEYS["added"]]})
    trace = Trace(attempt="x1", task="toy:train:1", scaffold="s", model="m", steps=(step,))
    memory.add(
        [
            Experience(
                id="x1",
                domain="toy",
                task="toy:train:1",
                group="g",
                split="train",
                prompt="p",
                digest="d",
                trace=trace,
                grade=Grade(score=1, passed=True, evidence=KEYS["added"] + "x" * 70_000),
            )
        ]
    )
    memory.recall("use", 3)
    memory.close()
    assert leaked(workspace) == []
    assert memory.get("x1") is not None
