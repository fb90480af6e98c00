"""A session is what was opened: nobody changes it, another model makes another session."""

from __future__ import annotations

from pathlib import Path

from recreate.runs import settings


def test_settings_are_read_back_as_they_were_written(workspace: Path) -> None:
    odd = 'a "quoted" \\ path,\n\ttwo lines, \x7f, größer \U0001f600'
    loaded = settings.load(
        workspace, {"model": odd, "budget": ["5usd", "2Mtokens"], "gate.alpha": 0.05}, {}
    )
    assert settings.Settings.model_validate(settings.dump(loaded)) == loaded
