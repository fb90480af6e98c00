"""How models of this machine are named."""

from __future__ import annotations

import pytest

from recreate.models import default_model


def test_the_variables_of_the_published_code_name_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENT_MODEL", "openai/my-model")
    assert default_model()[0] == "openai/my-model"
    monkeypatch.setenv("LLM_API_BASE", "http://127.0.0.1:9/v1/")
    assert default_model()[0] == "openai:http://127.0.0.1:9/v1#my-model"
    monkeypatch.setenv("RECREATE_MODEL", "local:smollm2-135m")
    assert default_model()[0] == "local:smollm2-135m"
