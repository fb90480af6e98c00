"""A namespace is a memory of its own in a workspace: what one team lives through and learns,
another is not told."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.cli import run as cli
from recreate.runs.session import open_session
from recreate.runs.settings import load_run
from tests.toy import write_script


def build(workspace: Path, out: str) -> None:
    flags = [
        "--domain",
        "tests.toy:Toy",
        "--model",
        write_script(workspace / "s.jsonl"),
        "--scaffold",
        "seed",
    ]
    few = ["--train", "2", "--validation", "5", "--sandbox", "none", "--memory.embedder", "hashed"]
    assert (
        cli(["build", *flags, *few, "--out", f"runs/{out}", "--optimizer", "reflect", "--json"])
        == 0
    )


def test_a_run_goes_on_in_the_memory_that_it_began_in(workspace: Path) -> None:
    (workspace / "recreate.toml").write_text('[memory]\nnamespace = "web"\n')
    build(workspace, "a")
    (workspace / "recreate.toml").write_text("")
    folder = workspace / "runs/a"
    session = open_session(load_run(folder), workspace, folder, resume=True)
    try:
        assert session.memory.folder == workspace / "memory/@web"
    finally:
        session.close()


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "Web", "@web", " ", "x" * 41])
def test_a_name_that_no_folder_should_have_is_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(BadInput, match="cannot name a namespace"):
        paths.memory(workspace, name)
    monkeypatch.setenv("RECREATE_MEMORY__NAMESPACE", name)
    assert cli(["plan", "--domain", "tests.toy:Toy"]) == 2
    assert "namespace" in capsys.readouterr().err
