"""Spellings of the models of this machine, and the one that is used when nobody names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.api.errors import BadInput
from recreate.models import default_model, open_model
from recreate.plugins.local_models.served import Local


def test_a_name_of_the_catalogue_is_a_local_model() -> None:
    model = open_model("local:qwen2.5-coder-1.5b", jobs=3, threads=1, timeout=9.0)
    assert type(model) is Local
    assert model.name == "local:qwen2.5-coder-1.5b"
    model.close()


def test_a_name_of_the_catalogue_without_its_kind_is_hinted_at() -> None:
    with pytest.raises(BadInput, match="no model is called") as e:
        open_model("qwen2.5-coder-1.5b")
    assert "did you mean local:qwen2.5-coder-1.5b" in e.value.fix


def test_vllm_says_what_to_do_where_it_is_not_installed() -> None:
    with pytest.raises(BadInput, match="vLLM is not installed") as e:
        open_model("vllm:some/model")
    assert "pip install vllm" in e.value.fix


def test_a_model_file_must_be_there_and_be_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        open_model(f"local:{tmp_path}/none.gguf")
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    with pytest.raises(BadInput, match="not a GGUF file"):
        open_model(f"local:{tmp_path}/x.gguf")
    with pytest.raises(BadInput) as e:
        open_model("local:nope")
    assert e.value.code == "unknown-model"
    assert "qwen2.5-coder-1.5b" in e.value.fix


def test_without_a_key_the_catalogues_model_is_used_and_a_hosted_one_explained() -> None:
    spec, told = default_model()
    assert spec == "local:qwen2.5-coder-1.5b"
    assert "1.1 GB" in told
    assert "export ANTHROPIC_API_KEY" in told


def test_a_key_is_mentioned_but_not_spent_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "x" * 20)
    spec, told = default_model()
    assert spec == "local:qwen2.5-coder-1.5b"
    assert "--model litellm:gemini/" in told
    assert "GEMINI_API_KEY is found" in told
    assert "x" * 20 not in told
