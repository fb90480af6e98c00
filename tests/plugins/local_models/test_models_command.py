"""models list and fetch, and what list and plan say of a local model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recreate.plugins.local_models import catalog
from tests.cli.test_bad_input import refused
from tests.cli.test_named_parts import states
from tests.cli.test_spending import speedup
from tests.cli.test_workspace import Ask
from tests.cli.test_workspace import ask as ask


def own_catalogue(folder: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> Path:
    """A catalogue with one model more, `tiny`, whose source is a file beside it."""
    import hashlib

    toml = folder / "models.toml"
    toml.write_text(
        f'[models.tiny]\nfile = "tiny.gguf"\nlicense = "MIT"\nsize = {len(data)}\ncontext = 512\n'
        f'sha256 = "{hashlib.sha256(data).hexdigest()}"\nsources = []\n'
    )
    monkeypatch.setenv("RECREATE_MODEL_CATALOG", str(toml))
    return catalog.entry("tiny").path


def test_models_are_listed_and_one_that_is_here_needs_no_fetching(
    ask: Ask, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own_catalogue(workspace, monkeypatch, b"GGUF weights")
    rows = {row["name"]: row for row in ask("models", "list")[1]}
    assert [name for name, row in rows.items() if row["default"]] == [catalog.default_name()]
    assert rows["tiny"]["state"] == "absent"
    assert (rows["tiny"]["size"], rows["tiny"]["license"], rows["tiny"]["context"]) == (
        12,
        "MIT",
        512,
    )
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF weights")
    assert {r["name"]: r for r in ask("models", "list")[1]}["tiny"]["state"] == "partial"
    code, (row,) = ask("models", "fetch", "tiny")
    assert (code, row["state"], row["path"]) == (0, "present", str(path))
    assert {r["name"]: r for r in ask("models", "list")[1]}["tiny"]["state"] == "present"


def test_a_model_that_cannot_be_fetched_or_is_unknown_says_what_to_type(
    ask: Ask, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_catalogue(workspace, monkeypatch, b"GGUF weights")
    code, (error,) = ask("models", "fetch", "tiny")
    assert (code, error["error"]["code"]) == (2, "no-source")
    code, (error,) = ask("models", "fetch", "tinny")
    assert (code, error["error"]["code"]) == (2, "unknown-model")
    assert "'tiny'" in error["error"]["fix"]


def test_jobs_share_the_cores_of_a_local_model(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert speedup(capsys, "local:smollm2-135m") == pytest.approx(1.0, rel=0.5)


def test_an_unknown_local_model_names_the_ones_there_are(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, "plan", "--domain", "tests.toy:Toy", "--model", "local:qwen9")
    assert "qwen2.5-coder-1.5b" in error["message"] + error["fix"]


def test_list_says_ready_only_of_what_can_start(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("vllm", "torch", "xllamacpp"):
        monkeypatch.setitem(sys.modules, module, None)
    found = states(capsys)
    assert found["vllm"] == "needs vllm"
    assert found["transformers"] == "needs the extra rl"
    assert found["local"] == "needs the extra local"


def test_doctor_says_what_fetches_the_weights_of_the_default_model(
    ask: Ask, workspace: Path
) -> None:
    checks = {check["name"]: check for check in ask("doctor")[1][0]["checks"]}
    assert "recreate models fetch" in checks["default model"]["fix"]
