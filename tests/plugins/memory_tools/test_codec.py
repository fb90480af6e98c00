"""What the commands say of damaged texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from tests.memory.test_codec import _gone, blobs, long


def test_stats_on_the_command_line_tells_of_lost_texts(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ExperienceStore(workspace).add([long("a")])
    assert cli(["memory", "stats"]) == 0
    assert "1 large texts, " in capsys.readouterr().out
    _gone(blobs(workspace)[0])
    assert cli(["memory", "stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["blobs"] == {
        "count": 0,
        "bytes": 0,
        "missing": 1,
        "damaged": 0,
        "unreferenced": 0,
    }
    assert cli(["memory", "stats"]) == 0
    assert "1 large texts are missing: a note stands in their place" in capsys.readouterr().out
