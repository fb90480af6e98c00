"""recreate.bench measures what the command does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recreate
from recreate.agents import scaffold as scaffolds
from recreate.api.paths import shipped
from recreate.cli import run as cli
from tests.builder.test_sdk import TOY
from tests.toy import LESSON, Toy, write_script


@pytest.fixture
def model(workspace: Path) -> str:
    """The name of the scripted model that learns the toy domain's lesson."""
    return write_script(workspace / "s.jsonl")


def test_run_and_bench_are_the_commands(
    workspace: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["run", "seed", "toy:train:1", "--domain", TOY, "--model", model, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    experience = recreate.run("seed", Toy().tasks("train")[1], Toy(), model=model)
    assert (experience.id, experience.grade.score) == (told["experience"], told["score"])
    assert "does not end as it must" in experience.grade.evidence
    flags = ["--scaffold", "seed", "--domain", TOY, "--model", model, "--split", "test", "--json"]
    assert cli(["bench", *flags]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    taught = recreate.Scaffold(
        name="taught",
        files={**_seed().files, "memory/marks.md": f"# How answers end\n\n{LESSON}\n"},
    )
    cells = recreate.bench(["seed", taught], Toy(), split="test", model=model)
    of_its_run = {"test_openings", "opened_before", "command"}
    assert cells[0].model_dump(exclude={*of_its_run, "schema_"}) == {
        k: tuple(v) if k == "scores" else v for k, v in cell.items() if k not in of_its_run
    }
    assert (cells[0].command, cells[0].opened_before) == (
        "",
        (1,),
    ), "a script's own domain is no command's"
    assert [c.mean for c in cells] == [0.0, 1.0]
    assert [c.test_openings for c in cells] == [2, 3]
    with pytest.raises(recreate.BadInput, match="toy:tran:1") as e:
        recreate.run("seed", "toy:tran:1", Toy(), model=model)
    assert "toy:train:1" in e.value.fix


def _seed() -> recreate.Scaffold:
    return scaffolds.load(shipped("scaffolds") / "seed")
