"""Keys are masked before anything is written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.storage.redact import redact, redact_fields

SHAPES = [
    "sk-proj-abcdEFGH0123456789_-xyz",
    "sk-ant-api03-abcdefghijklmnop",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2_" * 8,
    "glpat-" + "a1B2" * 5,
    "AKIA" + "ABCD1234" * 2,
    "AIza" + "a1B2-" * 7,
    "hf_" + "a1B2" * 8,
    "xoxb-" + "123456789012-abc",
    "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIE" * 20 + "\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("key", SHAPES)
def test_the_common_shapes_of_keys_are_masked_wherever_they_stand(key: str) -> None:
    for text in (key, f"export K={key}\n", f'{{"k":"{key}"}}', f"({key})", f"{key}, {key}"):
        assert key not in redact(text)
        assert "[redacted]" in redact(text)
    assert json.loads(redact(json.dumps({"k": key, "after": "kept"})))["after"] == "kept"


def test_a_bearer_header_keeps_its_name() -> None:
    assert redact("Authorization: Bearer abc.def-ghi_jkl=") == "Authorization: Bearer [redacted]"


@pytest.mark.parametrize(
    "text",
    ["", "task-abcdefghijklmnopqrstuvwx", "sk-learn", "the bearer of news", "AKIA", "desk-abcdefghijklmnopqrstu"],
)
def test_ordinary_texts_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "GH_TOKEN", "DB_PASSWORD", "CLIENT_SECRET", "my_key", "AWS_CREDENTIALS"]
)
def test_values_of_variables_named_like_keys_are_masked_with_their_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert redact("a correct horse battery") == "a correct horse battery"
    monkeypatch.setenv(name, "correct horse")
    assert redact("a correct horse battery") == f"a [redacted:{name}] battery"
    monkeypatch.setenv(name, "another one")  # changed while the process runs
    assert redact("a correct horse, another one") == f"a correct horse, [redacted:{name}]"
    monkeypatch.delenv(name)
    assert redact("another one") == "another one"


def test_short_values_and_other_variables_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "dev")
    monkeypatch.setenv("MONKEY_ISLAND", "a long enough value")
    assert redact("dev has a long enough value") == "dev has a long enough value"


def test_a_value_that_holds_another_is_masked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_KEY", "12345678")
    monkeypatch.setenv("LONG_KEY", "12345678-and-more")
    assert redact("12345678-and-more 12345678") == "[redacted:LONG_KEY] [redacted:SHORT_KEY]"


@given(st.text(min_size=8))
def test_a_value_never_survives_plain_or_as_json(value: str) -> None:
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value) or value in "[redacted:SOME_TOKEN]":
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_TOKEN", value)
        assert value not in redact(f"<{value}>")
        for ascii_only in (True, False):
            line = redact(json.dumps({"k": f"<{value}>"}, ensure_ascii=ascii_only))
            assert value not in json.loads(line)["k"]
            for inner_ascii in (True, False):  # a tool call's arguments are JSON within JSON
                arguments = json.dumps({"k": f"<{value}>"}, ensure_ascii=inner_ascii)
                line = redact(json.dumps({"arguments": arguments}, ensure_ascii=ascii_only))
                assert value not in json.loads(json.loads(line)["arguments"])["k"]


def test_fields_are_redacted_at_any_depth_but_for_those_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "validation")
    record = {"split": "validation", "steps": [{"output": "validation", "n": 1}], "none": None}
    assert redact_fields(record, keep=("split",)) == {
        "split": "validation",
        "steps": [{"output": "[redacted:SOME_KEY]", "n": 1}],
        "none": None,
    }
