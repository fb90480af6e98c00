"""Hosted models are found by their spelling, before litellm is imported."""

from __future__ import annotations

import sys

import pytest

from recreate.api.errors import Refused
from recreate.api.ports import Model, Preparable, ToolCalling
from recreate.models import open_model
from recreate.models.openai import OpenAI
from recreate.models.pricing import known_price
from recreate.plugins.hosted.litellm import LiteLLM


def test_each_spelling_finds_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x" * 20)
    monkeypatch.setenv("OPENAI_API_KEY", "x" * 20)
    kinds = {
        "litellm:anthropic/claude-sonnet-4-5": LiteLLM,
        "anthropic/claude-sonnet-4-5": LiteLLM,
        "gpt-4o-mini": LiteLLM,
        "openai:http://127.0.0.1:1/v1#m": OpenAI,
    }
    for spec, kind in kinds.items():
        model: Model = open_model(spec, jobs=3, threads=1, timeout=9.0)
        assert type(model) is kind
        assert model.name.removeprefix("litellm:") == spec.removeprefix("litellm:")
        assert isinstance(model, Model)
        model.close()


def test_a_hosted_model_is_found_without_importing_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x" * 20)
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    assert known_price(open_model("gpt-4o-mini")).tokens_out == 0.6
    assert "litellm" not in sys.modules


@pytest.mark.parametrize(
    ("spec", "variable"),
    [
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gpt-4o-mini", "OPENAI_API_KEY"),
        ("litellm:gemini/gemini-2.5-flash", "GEMINI_API_KEY"),
    ],
)
def test_a_missing_key_is_refused_before_anything_is_asked(spec: str, variable: str) -> None:
    with pytest.raises(Refused) as e:
        open_model(spec)
    assert e.value.code == "no-key"
    assert variable in e.value.message


def test_what_a_hosted_model_can_besides_is_said_by_its_ports() -> None:
    model = LiteLLM("openai/x", api_base="http://127.0.0.1:1")
    assert isinstance(model, ToolCalling)
    assert not isinstance(model, Preparable)
