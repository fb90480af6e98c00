"""Attempts in memory that are read by the commands of traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.api.types import Step
from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from recreate.sandboxes.none import NoSandbox
from tests.memory.test_store import experience


@pytest.mark.plugin("memory_tools")
def test_what_a_program_printed_in_bytes_is_kept_found_and_shown(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with NoSandbox().open() as sandbox:
        printed = sandbox.run(
            r"printf 'begin \000\001\377\376\300\200 \355\240\200 needle\r\n\033[31mred'", 10
        ).text
    surrogates = "lone \ud800 and \udcff " + bytes(range(256)).decode("utf-8", "surrogateescape")
    steps = tuple(
        Step(step=n, action="run", output=text) for n, text in enumerate((printed, surrogates))
    )
    memory = ExperienceStore(workspace)
    memory.add([experience("binary", steps=steps, prompt="\0\x07" + surrogates)])
    again = ExperienceStore(workspace)
    assert again.get("binary") == experience("binary", steps=steps, prompt="\0\x07" + surrogates)
    assert [h.id for h in again.search("needle")] == ["binary/0"]
    assert {h.experience for h in again.recall("needle", 3)} == {"binary"}
    for command in (
        ["traces", "show", "binary"],
        ["memory", "recall", "needle"],
        ["traces", "search", "needle"],
    ):
        assert cli(command) == 0
        assert "needle" in capsys.readouterr().out
        assert cli([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[0])["schema"] == 1
