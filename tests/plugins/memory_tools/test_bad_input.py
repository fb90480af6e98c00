"""What cannot be asked of the memory's commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.cli import run as cli
from recreate.memory.store import ExperienceStore
from tests.memory.test_recall import fill


@pytest.mark.parametrize(
    ("embedder", "says", "fix"),
    [
        ("nosuch", "no embedder is called 'nosuch'", "there are: "),
        ("no_such_module:Class", "no module is called 'no_such_module'", "PYTHONPATH"),
        pytest.param(
            "sentence:all-MiniLM-L6-v2",
            "sentence_transformers, which is not installed",
            "[embeddings]",
            marks=pytest.mark.plugin("embedders"),
        ),
    ],
)
def test_an_embedder_that_is_missing_is_told_in_one_line_and_nothing_is_lost(
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    embedder: str,
    says: str,
    fix: str,
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    fill(ExperienceStore(workspace, "hashed"))
    ExperienceStore(workspace, "hashed").recall("leap days")
    (workspace / "recreate.toml").write_text(f'[memory]\nembedder = "{embedder}"\n')
    assert cli(["memory", "recall", "leap days", "--how", "vectors", "--json"]) == 2
    out = capsys.readouterr()
    error = json.loads(out.out)["error"]
    assert says in error["message"]
    assert fix in error["fix"]
    assert "Traceback" not in out.err
    (workspace / "recreate.toml").write_text('[memory]\nembedder = "hashed"\n')
    assert cli(["memory", "recall", "leap days"]) == 0
    assert ExperienceStore(workspace).stats()["index"]["count"] == 8
