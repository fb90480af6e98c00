"""What other work's optimizers proposed is on a recording, with what they attempted on the way: a
replay needs none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.api import registry
from recreate.api.errors import BadInput
from recreate.optimizers.context import OptimizerContext
from recreate.runs.reader import Run
from tests.plugins.methods.test_rivals import REPLIES, rows


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "opro")) for n in REPLIES]
)
def test_a_replay_needs_no_method_and_attempts_its_candidates_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    script = workspace / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in rows(REPLIES[name])))
    toy: dict[str, Any] = {"train": 4, "validation": 8, "batch": 4, "gate__keep": "each"}
    toy |= {"model": f"scripted:{script}", "memory": "none", "memory__embedder": "hashed"}
    made = recreate.build(
        "tests.toy:Toy", optimizer=name, record="tape", out="runs/a", sandbox="none", **toy
    )
    script.unlink()

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("an optimizer was asked")

    was = registry.find

    def find(kind: str, *named: Any) -> Any:
        if kind == "optimizer":
            raise BadInput("it is gone")
        return was(kind, *named)

    monkeypatch.setattr(OptimizerContext, "__init__", refuse)
    monkeypatch.setattr(registry, "find", find)
    again = recreate.build("tests.toy:Toy", replay="tape", out="runs/b", sandbox="none")
    assert again.scaffold.digest == made.scaffold.digest
    assert again.revisions == made.revisions
    assert again.record["spend"]["by_role"] == made.record["spend"]["by_role"]
    attempts = [[r["attempt"] for r in Run(m.run).records("experience")] for m in (made, again)]
    assert sorted(attempts[0]) == sorted(attempts[1])
