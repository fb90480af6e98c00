"""What a reply becomes on its way through the one door to models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.types import Reply, ToolCall
from recreate.runs.calls import masked

KEY = "sk-proj-7Qb2Xw9Lk4Tz8Vn3Mc6Rd1Yf5Hs"


def of_tool(properties: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "look", "parameters": {"type": "object", "properties": properties}}
    return {"tools": [{"type": "function", "function": function}]}


TEXT = {"type": "string"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "a property called name": {"name": TEXT},
    "a property called enum": {"enum": TEXT},
    "a property called const": {"const": {"type": "array", "items": TEXT}},
    "a property called name that may be two things": {"name": [TEXT, {"type": "null"}]},
    "choices of any type": {"a": {"enum": ["x", 1, None, {"b": ["c"]}, ["d"]]}},
    "no choices": {"a": {"enum": None, "name": 3, "const": True}},
    "a schema in a schema": {"name": {"properties": {"name": {"anyOf": [TEXT, {"enum": ["y"]}]}}}},
}


@pytest.mark.parametrize("shape", SCHEMAS)
def test_a_key_in_a_reply_is_masked_whatever_the_properties_of_its_tools_are_called(
    shape: str,
) -> None:
    call = ToolCall(id="1", name="look", arguments=json.dumps({"name": KEY}))
    reply = masked(Reply(text=f"it is {KEY}", tool_calls=(call,)), of_tool(SCHEMAS[shape]))
    assert reply.text == "it is [redacted]"
    assert json.loads(reply.tool_calls[0].arguments) == {"name": "[redacted]"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda x: (
        st.lists(x, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "enum", "const", "type", "properties", "a"]), x, max_size=3
        )
    ),
    max_leaves=8,
)


@given(json_values, json_values)
def test_a_key_in_a_reply_is_masked_whatever_is_asked_for(tools: Any, schema: Any) -> None:
    params = {"tools": tools, "json_schema": schema}
    assert masked(Reply(text=f"it is {KEY}"), params).text == "it is [redacted]"


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"enum": ["hunter22secret"]}},
        {"hunter22secret": TEXT},
        {"a": {"const": "hunter22secret"}},
    ],
)
def test_a_password_that_is_a_word_of_what_was_asked_stays(
    properties: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter22secret")
    reply = masked(Reply(text=f"hunter22secret and {KEY}"), of_tool(properties))
    assert reply.text == "hunter22secret and [redacted]"
