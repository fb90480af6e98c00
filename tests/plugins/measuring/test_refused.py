"""calibrate, where it cannot begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_bad_input import refused
from tests.cli.test_bad_values import fetched as fetched


@pytest.mark.parametrize("more", ["--validation 2", "--repeats 1"])
def test_what_no_model_is_asked_about_is_refused_before_one_is_fetched(
    more: str, fetched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(fetched.rglob("*"))
    refused(capsys, *f"calibrate --scaffold seed {more}".split())
    assert sorted(fetched.rglob("*")) == before


def test_a_model_that_cannot_be_fetched_stops_it(
    fetched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "calibrate", "--scaffold", "seed", code=1)["code"] == "fetched"
    assert not (fetched / "runs" / "test_openings.jsonl").exists()


@pytest.mark.parametrize(
    ("old", "new"), [("credit", "ablate"), ("rebase", "transfer"), ("limits", "turn-limit")]
)
def test_a_command_is_taken_by_its_old_name_too_which_is_not_shown(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from recreate.cli import run

    capsys.readouterr()
    assert run([old, "--help"]) == 0
    assert f"Example: recreate {new} " in capsys.readouterr().out
    assert run(["--help"]) == 0
    assert old not in capsys.readouterr().out.split()
