"""Where a build puts its agent: `--name`, and never over one that it did not come from without
saying so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.cli import run as cli
from tests.toy import LESSON, Toy, write_script

BUILD = ["build", "--domain", "tests.toy:Toy", "--memory.embedder", "hashed", "--sandbox", "none"]
BUILD += ["--train", "2", "--validation", "5"]


@pytest.fixture
def mine(workspace: Path) -> str:
    """scaffolds/toy as a person wrote it: its digest."""
    seed = scaffolds.load(shipped("scaffolds") / "seed")
    files = {**seed.files, "system.md": seed.files["system.md"] + "\nIt is mine.\n"}
    scaffolds.save(seed.model_copy(update={"files": files}), workspace / "scaffolds/toy")
    return scaffolds.load(workspace / "scaffolds/toy").digest


def built(
    workspace: Path, capsys: pytest.CaptureFixture[str], *flags: str
) -> tuple[dict[str, Any], str]:
    model = write_script(workspace / "s.jsonl")
    capsys.readouterr()
    assert cli([*BUILD, "--model", model, "--json", *flags]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


@pytest.mark.plugin("review")
def test_a_build_says_first_and_last_when_it_takes_the_place_of_what_it_did_not_begin_from(
    workspace: Path, capsys: pytest.CaptureFixture[str], mine: str
) -> None:
    record, said = built(workspace, capsys, "--scaffold", "seed", "--out", "runs/a")
    assert record["claim"] == "likely"
    assert scaffolds.load(workspace / "scaffolds/toy").digest == record["scaffold"]["digest"]
    assert record["replaced"] == mine
    assert said.index(f"scaffolds/toy holds {mine}, and this build begins from seed") < said.index(
        "validation 1/5"
    )
    assert "--name NAME puts it beside instead" in said
    assert "scaffolds/toy held an agent that this build did not begin from" in said
    assert f"recreate keep a:{mine} --as toy puts it back" in said
    assert cli(["keep", f"a:{mine}", "--as", "toy"]) == 0
    assert scaffolds.load(workspace / "scaffolds/toy").digest == mine


def test_what_it_began_from_gives_way_without_a_word(
    workspace: Path, capsys: pytest.CaptureFixture[str], mine: str
) -> None:
    record, said = built(workspace, capsys, "--out", "runs/a")
    assert record["claim"] == "likely"
    assert "replaced" not in record
    assert "did not begin from" not in said
    assert "puts it beside instead" not in said


@pytest.mark.plugin("review")
def test_name_gives_it_a_folder_that_the_next_build_goes_on_from(
    workspace: Path, capsys: pytest.CaptureFixture[str], mine: str
) -> None:
    record, said = built(
        workspace, capsys, "--scaffold", "seed", "--out", "runs/a", "--name", "other"
    )
    assert record["scaffold"]["path"] == str(workspace / "scaffolds/other")
    assert "replaced" not in record
    assert "puts it beside" not in said
    assert LESSON in "".join(scaffolds.load(workspace / "scaffolds/other").files.values())
    assert scaffolds.load(workspace / "scaffolds/toy").digest == mine
    again, _ = built(workspace, capsys, "--out", "runs/b", "--name", "other")
    assert again["validation"]["before"] == 1.0
    assert cli(["keep", "runs/a"]) == 0
    assert scaffolds.load(workspace / "scaffolds/toy").digest == mine


def test_what_the_limits_of_a_build_changed_still_comes_from_there(
    workspace: Path, capsys: pytest.CaptureFixture[str], mine: str
) -> None:
    record, _ = built(workspace, capsys, "--limits.steps", "3", "--out", "runs/a")
    assert record["claim"] == "likely"
    assert "replaced" not in record
    assert scaffolds.load(workspace / "scaffolds/toy").digest == record["scaffold"]["digest"]


def test_a_name_that_is_no_folder_is_refused_before_anything_is_spent(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("../mine", "a/b", "."):
        model = write_script(workspace / "s.jsonl")
        assert cli([*BUILD, "--model", model, "--json", "--out", "runs/a", "--name", name]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "bad-setting"
    assert not (workspace / "runs").exists()


@pytest.mark.slow
def test_a_library_build_says_it_too(workspace: Path, mine: str) -> None:
    how: dict[str, Any] = {
        "memory__embedder": "hashed",
        "sandbox": "none",
        "train": 2,
        "validation": 5,
    }
    model = write_script(workspace / "s.jsonl")
    made = recreate.build(Toy(), model=model, scaffold="seed", out="runs/a", **how)
    assert made.record["replaced"] == mine
    named = recreate.build(Toy(), model=model, scaffold="seed", out="runs/b", name="other", **how)
    assert named.path == workspace / "scaffolds/other"
    assert "replaced" not in named.record
    assert named.kept is not None
