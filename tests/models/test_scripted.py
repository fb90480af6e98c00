"""The scripted model: lines answer calls in order, and faults come as told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import BadInput, Transient
from recreate.api.ports import Model
from recreate.api.types import Call, Message
from recreate.models import open_model
from recreate.models.scripted import Scripted

HELLO: list[Message] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hello world"},
]


def call(**fields: Any) -> Call:
    return Call(run="r", attempt="a", **{"step": 0, **fields})


def test_the_first_matching_line_answers_not_the_most_specific() -> None:
    model = Scripted.of(
        [{"role": "agent", "text": "general"}, {"role": "agent", "step": 0, "text": "special"}]
    )
    assert model.reply(HELLO, call()).text == "general"


@pytest.mark.parametrize(
    ("key", "value", "other"),
    [
        ("role", "optimizer", "agent"),
        ("task", "t", "u"),
        ("repeat", 1, 0),
        ("step", 3, 4),
        ("sample", 2, 0),
    ],
)
def test_each_match_field_must_agree(key: str, value: Any, other: Any) -> None:
    model = Scripted.of([{key: value, "text": "yes"}, {"text": "no"}])
    assert model.reply(HELLO, call(**{key: value})).text == "yes"
    assert model.reply(HELLO, call(**{key: other})).text == "no"


def test_contains_and_lacks_look_at_all_messages() -> None:
    model = Scripted.of(
        [
            {"contains": "hello", "lacks": "brief", "text": "1"},
            {"contains": "brief", "lacks": "missing", "text": "2"},
        ]
    )
    assert model.reply(HELLO, call()).text == "2"
    assert model.reply(HELLO[1:], call()).text == "1"


def test_tokens_are_counted_the_same_each_time_and_cost_nothing() -> None:
    model: Model = Scripted.of(
        [{"step": 1, "text": "x", "tokens_in": 7, "tokens_out": 8}, {"text": "y" * 40}]
    )
    first = model.reply(HELLO, call())
    assert (first.tokens_in, first.tokens_out, first.usd, first.latency) == (4, 10, 0.0, 0.0)
    assert model.reply(HELLO, call()) == first
    assert model.reply(HELLO, call(step=1)).tokens_out == 8
    assert model.price is not None
    assert model.price.usd(10**6, 10**6) == 0


def test_a_script_with_tool_calls_is_a_model_that_calls_tools() -> None:
    calls = [
        {"name": "open", "arguments": {"id": "$1", "in": [["$1"], 3]}},
        {"name": "stop"},
        {"name": "odd", "arguments": "{$1"},
    ]
    model = Scripted.of(
        [
            {"step": 0, "find": "id=(.*)", "text": "opening $1", "tool_calls": calls},
            {"text": "done"},
        ]
    )
    assert model.native_tools
    assert not Scripted.of([{"text": "x"}]).native_tools
    reply = model.reply([{"role": "user", "content": 'id=a"b'}], call())
    assert (reply.text, reply.finish) == ('opening a"b', "tool_calls")
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [
        ("open", '{"id": "a\\"b", "in": [["a\\"b"], 3]}'),
        ("stop", "{}"),
        ("odd", '{a"b'),
    ]
    assert len({c.id for c in reply.tool_calls}) == 3
    assert (
        model.reply(HELLO, call(step=1)).tool_calls,
        model.reply(HELLO, call(step=1)).finish,
    ) == ((), "stop")


def test_messages_without_content_match_as_empty_ones() -> None:
    asked = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[Any] = [
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "assistant", "tool_calls": [asked]},
        {"role": "tool", "content": "id=7", "tool_call_id": "1"},
    ]
    model = Scripted.of(
        [{"lacks": "id=", "text": ""}, {"contains": "id=", "find": "id=(.)", "text": "$1"}]
    )
    reply = model.reply(messages, call())
    assert reply.text == "7"
    assert reply.tokens_in > 1


def test_a_call_that_no_line_answers_is_named() -> None:
    model = Scripted.of([{"role": "optimizer", "text": ""}])
    with pytest.raises(BadInput) as e:
        model.reply(HELLO, call(task="toy:1", step=5))
    assert e.value.code == "script-has-no-line"
    assert "r/a/5" in e.value.message
    assert "toy:1" in e.value.message


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("timeout", "timeout"),
        ("503", "http-503"),
        (429, "http-429"),
        ("refused", "connection-refused"),
        ("reset", "reset"),
    ],
)
def test_a_fault_is_raised_always_or_as_often_as_told(fault: Any, code: str) -> None:
    always = Scripted.of([{"fault": fault}])
    twice = Scripted.of([{"fault": fault, "fault_times": 2, "text": "back"}])
    for model in (always, always, always, twice, twice):
        with pytest.raises(Transient) as e:
            model.reply(HELLO, call())
        assert e.value.code == code
    assert twice.reply(HELLO, call()).text == "back"


def test_a_file_is_read_by_its_spelling(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text('{"text": "line sep \u2028 kept", "finish": "length"}\n\n', encoding="utf-8")
    model = open_model(f"scripted:{file}", jobs=4)
    reply = model.reply(HELLO, call())
    assert (reply.text, reply.finish) == ("line sep \u2028 kept", "length")
    model.close()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{broken", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"text": 3}', "wrong type"),
        ('{"text": "x", "step": "0"}', "wrong type"),
        ('{"text": "x", "stepp": 0}', "'stepp' is not known"),
        ('{"fault": "melted"}', "no fault is called 'melted'"),
        ('{"role": "agent"}', "neither `text` nor `tool_calls` nor `fault`"),
        ('{"tool_calls": {}}', "wrong type"),
        ('{"tool_calls": [{"arguments": {}}]}', "a tool call is"),
        ('{"tool_calls": [{"name": "a", "arguments": [1]}]}', "a tool call is"),
        ('{"tool_calls": [{"name": "a", "args": {}}]}', "a tool call is"),
        ('{"fault": "503", "fault_times": 1}', "answers afterwards"),
        ('{"text": "$1", "find": "(unclosed"}', "`find` is no pattern: missing \\)"),
        ('{"text": "$1", "find": "[0-9]+"}', "`find` has no group"),
        ('{"text": "x", "delay_ms": -5}', "'delay_ms' is no time"),
    ],
)
def test_a_broken_line_is_named_by_its_number(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text('{"text": "fine"}\n\n' + line + "\n")
    with pytest.raises(BadInput, match=said) as e:
        Scripted(file)
    assert "s.jsonl line 3" in e.value.message


def test_a_group_that_takes_no_part_in_the_match_is_empty() -> None:
    model = Scripted.of([{"text": "<$1>", "find": "x(y)?"}])
    assert model.reply([{"role": "user", "content": "x"}], call()).text == "<>"


def test_a_missing_script_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as e:
        open_model(f"scripted:{tmp_path}/none.jsonl")
    assert e.value.code == "no-script"
