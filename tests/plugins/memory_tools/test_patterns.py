"""What is typed of lessons is what is listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.cli import run as cli
from recreate.lessons.store import LessonStore


def test_a_lesson_is_shown_by_the_name_that_the_list_prints(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for domain in ("toy", "other"):
        LessonStore(workspace / "memory", domain).add("Mark", "Both want it.")
    assert cli(["patterns", "list"]) == 0
    printed = [word for word in capsys.readouterr().out.split() if word.startswith("toy/")]
    assert cli(["patterns", "show", *printed]) == 0
    assert "Both want it." in capsys.readouterr().out
    assert cli(["patterns", "freeze", printed[0].replace("toy/", "other/")]) == 0
    assert cli(["patterns", "show", printed[0].replace("toy/", "nowhere/")]) == 2
