"""An optimizer whose package is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.test_bad_input import refused
from tests.cli.test_named_parts import TOY, states
from tests.toy import write_script


def test_a_method_whose_package_is_missing_is_listed_so_and_refused(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gepa", None)
    found = states(capsys, "optimizers")
    assert (found["gepa"], found["ace"]) == ("needs the extra gepa", "ready")
    model = write_script(workspace / "s.jsonl")
    for name in ("gepa", "recreate.plugins.methods.gepa:Gepa"):
        error = refused(capsys, "plan", *TOY, "--model", model, "--optimizer", name)
        assert (error["code"], "[gepa]" in error["fix"]) == ("missing", True)
