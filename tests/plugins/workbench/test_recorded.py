"""What sessions in a folder proposed is replayed without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.optimizers.context import OptimizerContext
from recreate.runs.reader import Run
from tests.investigator import Investigator
from tests.plugins.workbench.test_session import EDIT, shell, write_causes
from tests.studied import Acts
from tests.toy import script


@pytest.mark.slow
def test_a_session_is_replayed_with_its_rehearsals_and_its_causes(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acts(first: str) -> Acts:
        yield shell(f"{EDIT}; rehearse 01 02 --repeats 2")
        yield shell(write_causes() + "finish")

    toy: dict[str, Any] = {"train": 2, "validation": 5, "rounds": 1, "memory__embedder": "hashed"}
    toy |= {"model": Investigator(script(), acts), "optimizer": "workbench", "price": "1,2"}
    made = recreate.build("tests.toy:Toy", record="tape", out="runs/a", **toy)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("an optimizer was asked")

    monkeypatch.setattr(OptimizerContext, "__init__", refuse)
    again = recreate.build("tests.toy:Toy", replay="tape", out="runs/b")
    assert again.revisions == made.revisions
    assert (again.scaffold.digest, made.revisions[0].kept) == (made.scaffold.digest, True)
    roles = [
        {r: u["calls"] for r, u in m.record["spend"]["by_role"].items()} for m in (made, again)
    ]
    assert roles[0] == roles[1]
    runs = [Run(m.run) for m in (made, again)]
    rehearsed = [[r for r in run.records("experience") if r["phase"] == "rehearse"] for run in runs]
    assert [len(each) for each in rehearsed] == [4, 4]
    assert [[s.summary for s in run.studies()] for run in runs][1] == [
        s.summary for s in runs[0].studies()
    ]
