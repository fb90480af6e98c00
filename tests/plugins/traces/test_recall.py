"""What an agent was told by memory, as the commands show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recreate.cli import run as cli
from tests.plugins.recall import asking

pytestmark = pytest.mark.plugin("recall")
type_ = asking.type_


def test_traces_show_tells_what_was_recalled(
    type_: Callable[..., tuple[int, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    train = type_("run", "seed", "toy:train:3", *asking.DOMAIN, "--out", "runs/one")[1][
        "experience"
    ]
    id = type_("run", "asks", "toy:validation:2", *asking.DOMAIN, "--out", "runs/two")[1][
        "experience"
    ]
    capsys.readouterr()
    assert cli(["traces", "show", id]) == 0
    assert f"recalled: {train}" in capsys.readouterr().out
