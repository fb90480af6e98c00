"""Spellings of models, their prices, and the model used when nobody names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.api.errors import BadInput
from recreate.api.ports import Preparable, Price, ToolCalling
from recreate.models import default_model, open_model
from recreate.models.openai import OpenAI
from recreate.models.pricing import known_price, parse_price, price_of
from recreate.runs.settings import load


def test_a_strangers_model_is_found_by_module_and_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "class Theirs:\n    name = 'theirs'\n    price = None\n    def reply(self, messages, call,"
        " **params): ...\n"
    )
    (tmp_path / "theirs_here.py").write_text(text + "    def close(self): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    model = open_model("theirs_here:Theirs", price=Price(tokens_in=1, tokens_out=2), jobs=3)
    assert model.name == "theirs"
    assert model.price == Price(tokens_in=1, tokens_out=2)


@pytest.mark.parametrize("spec", ["", "foo"])
def test_an_unknown_model_says_how_models_are_spelled(spec: str) -> None:
    with pytest.raises(BadInput) as e:
        open_model(spec)
    assert e.value.code == "unknown-model"
    assert "openai:URL#MODEL" in e.value.fix


# --- prices
# -----------------------------------------------------------------------------------------------


def test_prices_come_from_the_table_by_any_spelling() -> None:
    for spec in (
        "gpt-4o-mini",
        "openai/gpt-4o-mini",
        "litellm:openai/gpt-4o-mini",
        "openai:http://h/v1#gpt-4o-mini",
    ):
        price = price_of(spec)
        assert price is not None
        assert (price.tokens_in, price.tokens_out) == (0.15, 0.6)
    assert price_of("anthropic/gpt-4o-mini") is None
    assert (
        price_of("local:anything")
        == price_of("scripted:x.jsonl")
        == Price(tokens_in=0, tokens_out=0)
    )


def test_an_unknown_price_is_bad_input_that_names_the_flag() -> None:
    model = open_model("openai:http://127.0.0.1:1/v1#my-own-model")
    with pytest.raises(BadInput) as e:
        known_price(model)
    assert e.value.code == "unknown-price"
    assert "--price IN,OUT" in e.value.fix
    assert "--price 0,0" in e.value.fix
    with pytest.raises(BadInput) as e:
        known_price(model, flag="--models.optimizer_price")
    assert "--models.optimizer_price IN,OUT" in e.value.fix
    free = Price(tokens_in=0, tokens_out=0)
    assert known_price(open_model("openai:http://127.0.0.1:1/v1#my-own-model", price=free)) == free


def test_a_price_is_two_numbers() -> None:
    assert parse_price("0.25, 2") == Price(tokens_in=0.25, tokens_out=2)
    for text in ("", "1", "1,2,3", "a,b", "-1,2", "nan,1", "inf,1"):
        with pytest.raises(BadInput) as e:
            parse_price(text)
        assert e.value.code == "bad-price"


# --- nobody names a model
# -----------------------------------------------------------------------------------


def test_without_a_catalogue_somebody_must_name_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recreate.models.catalogs", list)
    with pytest.raises(BadInput, match="plug-in local_models") as e:
        default_model()
    assert "export ANTHROPIC_API_KEY" in e.value.fix


@pytest.mark.plugin("hosted")
def test_the_endpoint_of_the_published_code_is_that_of_its_model_in_every_command(
    tmp_path: Path,
) -> None:
    base = {"LLM_API_BASE": "http://127.0.0.1:9/v1/"}
    for named, model in (
        ("openai/my-model", "openai:http://127.0.0.1:9/v1#my-model"),
        ("litellm:openai/my-model", "litellm:openai/my-model"),
        ("tests.toy:Model", "tests.toy:Model"),
    ):
        assert load(tmp_path, environ={"RECREATE_MODEL": named, **base}).model == model
        assert load(tmp_path, environ={"RECREATE_MODEL": named}).model == named
    assert (
        load(tmp_path, {"model": "openai/x"}, {"RECREATE_MODEL": "openai/y", **base}).model
        == "openai/x"
    )


def test_what_a_model_can_besides_is_said_by_its_ports() -> None:
    model = OpenAI("http://127.0.0.1:1/v1#m")
    assert isinstance(model, ToolCalling)
    assert not isinstance(model, Preparable)
