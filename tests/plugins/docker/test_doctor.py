"""What doctor says of an engine."""

from __future__ import annotations

import json

import pytest

from recreate import sandboxes
from recreate.api import registry
from recreate.cli import run


def test_doctor_says_once_what_to_do_about_an_engine_that_is_not_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = registry.open("sandbox", "docker").start
    monkeypatch.setattr(sandboxes, "survey", lambda: [("docker", f"docker ps: no daemon; {start}")])
    run(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    (docker,) = [c for c in checks if c["name"] == "sandbox.docker"]
    assert (docker["detail"], docker["fix"]) == ("docker ps: no daemon", start)
