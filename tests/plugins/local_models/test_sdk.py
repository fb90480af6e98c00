"""Models of this machine in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import recreate
from tests.builder import test_sdk
from tests.builder.test_sdk import FLAGS, TOY

model = test_sdk.model


def test_what_is_no_part_of_a_runs_id_may_change_when_it_goes_on(
    workspace: Path, model: str
) -> None:
    first: dict[str, Any] = {"domain": TOY, "model": model, "out": "runs/x", **FLAGS, "rounds": 0}
    free = {
        "jobs": 1,
        "budget": ("1000attempts",),
        "review": True,
    }
    assert recreate.build(**first).run == recreate.build(**first | free).run
