"""Answers of every shape that providers give: the same reply is read, and all that is billed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recreate.api.errors import RecreateError, Transient
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply
from recreate.models.chat import calls_in_text
from recreate.models.openai import OpenAI
from tests.stub import Stub, saying

CALL = Call(run="run", attempt="attempt", step=7)
HELLO: list[Message] = [{"role": "user", "content": "hello"}]
BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
USAGE = {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59}


def body(message: Any, finish: Any = "stop", usage: Any = USAGE, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": message}
    return {"id": "x", "model": "m", "choices": [choice], "usage": usage, **more}


def read(answer: Any, **params: Any) -> Reply:
    with Stub(answer) as stub:
        model = OpenAI(f"{stub.url}#stub", price=Price(tokens_in=1, tokens_out=1))
        try:
            return model.reply(HELLO, CALL, max_tokens=16384, **params)
        finally:
            model.close()


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
GO = "```bash\nls\n```"


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        (GO, GO, ""),
        (["a ", "b"], "a b", ""),
        (["hello ", {"type": "text", "text": GO}], f"hello \n{GO}", ""),
        ([{"type": "text", "text": GO}], GO, ""),
        ([THINKING, {"type": "text", "text": "so"}], "so", "hm"),
        (
            [{"type": "thinking", "thinking": "hm"}, {"type": "output_text", "text": "so"}],
            "so",
            "hm",
        ),
        ([{"type": "refusal", "refusal": "no"}], "no", ""),
        ([{"type": "text", "text": None}, {"type": "image"}], "", ""),
        ([], "", ""),
    ],
)
def test_content_is_read_in_parts_of_any_kind(content: Any, text: str, reasoning: str) -> None:
    reply = read(body({"role": "assistant", "content": content}))
    assert (reply.text, reply.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("message", "finish", "text", "kept"),
    [
        ({"content": None, "refusal": "I can't help."}, "stop", "I can't help.", "filter"),
        ({"content": ""}, "content_filter", "", "filter"),
        ({"content": "half"}, "sensitive", "half", "filter"),
        ({"content": "half"}, "model_length", "half", "length"),
        ({"content": "all", "refusal": None}, "eos", "all", "other"),
        ({"content": "all"}, None, "all", "other"),
    ],
)
def test_how_a_reply_ended_is_kept_and_a_refusals_words(
    message: Any, finish: Any, text: str, kept: str
) -> None:
    reply = read(body(message, finish))
    assert (reply.text, reply.finish) == (text, kept)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_what_was_thought_is_kept_apart_from_what_was_said(name: str) -> None:
    reply = read(body({"content": "so", name: "hm"}))
    assert (reply.text, reply.reasoning) == ("so", "hm")


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (USAGE, (50, 9)),
        ({**USAGE, "total_tokens": 5059}, (50, 5009)),
        (
            {
                **USAGE,
                "total_tokens": 5059,
                "completion_tokens_details": {"reasoning_tokens": 5000},
            },
            (50, 5009),
        ),
        (
            {
                "prompt_tokens": 50,
                "completion_tokens": 5009,
                "total_tokens": 5059,
                "completion_tokens_details": {"reasoning_tokens": 5000},
            },
            (50, 5009),
        ),
        (
            {
                "prompt_tokens": 50,
                "completion_tokens": 9,
                "completion_tokens_details": {"reasoning_tokens": 5000},
            },
            (50, 5009),
        ),
        ({"input_tokens": 5000, "output_tokens": 700}, (5000, 700)),
        (
            {
                "input_tokens": 900,
                "output_tokens": 700,
                "total_tokens": 1600,
                "input_tokens_details": {"cached_tokens": 400},
                "output_tokens_details": {"reasoning_tokens": 600},
            },
            (900, 700),
        ),
        (
            {
                "input_tokens": 10,
                "output_tokens": 7,
                "cache_read_input_tokens": 300,
                "cache_creation_input_tokens": 20,
            },
            (330, 7),
        ),
        ({**USAGE, "total_tokens": 0}, (50, 9)),
        ({**USAGE, "total_tokens": None}, (50, 9)),
    ],
)
def test_all_tokens_that_are_billed_are_counted(usage: Any, counts: tuple[int, int]) -> None:
    reply = read(body({"content": "so"}, usage=usage))
    assert (reply.tokens_in, reply.tokens_out) == counts
    assert (reply.doubtful, reply.estimated) == (False, False)
    assert reply.usd == pytest.approx(sum(counts) / 1e6)


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (None, (1, 10)),
        ({}, (1, 10)),
        ({"prompt_tokens": 50}, (50, 10)),
        ({"completion_tokens": 9}, (1, 9)),
        ({"total_tokens": 59}, (1, 10)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, (1, 10)),
    ],
)
def test_what_is_not_told_is_guessed_and_said_to_be(usage: Any, counts: tuple[int, int]) -> None:
    reply = read(body({"content": "so, " * 10}, usage=usage))
    assert (reply.tokens_in, reply.tokens_out) == counts
    assert (reply.doubtful, reply.estimated) == (False, True)


@pytest.mark.parametrize(
    ("details", "cached", "written"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 20}}, 20, 0),
        ({"prompt_tokens_details": {"cache_creation_tokens": 7, "cached_tokens": 20}}, 20, 7),
        ({"cache_read_input_tokens": 20, "cache_creation_input_tokens": 7}, 20, 7),
        ({"input_tokens_details": {"cached_tokens": 20}}, 20, 0),
        ({"prompt_tokens_details": None}, 0, 0),
    ],
)
def test_what_of_a_prompt_was_cached_is_told_apart(details: Any, cached: int, written: int) -> None:
    reply = read(body({"content": "so"}, usage={**USAGE, **details}))
    assert (reply.tokens_in, reply.tokens_cached, reply.tokens_cache_written) == (
        50,
        cached,
        written,
    )


@pytest.mark.parametrize(
    "usage",
    [
        {**USAGE, "total_tokens": 40},
        {**USAGE, "total_tokens": 58},
        {**USAGE, "completion_tokens_details": {"reasoning_tokens": 5000}},
        {**USAGE, "total_tokens": -1},
        {**USAGE, "total_tokens": "many"},
        {"input_tokens": -5, "output_tokens": 700},
    ],
)
def test_sums_that_contradict_each_other_are_doubted(usage: Any) -> None:
    assert read(body({"content": "so"}, usage=usage)).doubtful


OUTAGES: dict[str, tuple[Any, str]] = {
    "an error in the choice": (
        {
            "choices": [
                {
                    "error": {"code": 502, "message": "Upstream idle timeout"},
                    "finish_reason": "error",
                    "message": {"role": "assistant", "content": ""},
                }
            ]
        },
        "http-502",
    ),
    "it ended with an error": (body({"content": "half"}, "error"), "http-502"),
    "it was aborted": (body({"content": ""}, {"type": "abort"}), "http-502"),
    "no resources": (body({"content": "x"}, "insufficient_system_resource"), "http-502"),
    "an error in place of choices": (
        {"error": {"message": "Provider returned error", "code": 429}},
        "http-429",
    ),
    "an error in words": ({"error": "overloaded"}, "http-502"),
    "its code in words": ({"error": {"message": "busy", "code": "503"}}, "http-503"),
    "a code that is none": ({"error": {"message": "busy", "code": "server_error"}}, "http-502"),
    "a stream that nobody asked for": ({"chunks": []}, "malformed-reply"),
    "a completion of the old kind": (
        {"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}], "usage": {}},
        "malformed-reply",
    ),
    "no choices": ({"choices": None, "usage": None}, "malformed-reply"),
    "an empty list": ({"choices": []}, "malformed-reply"),
}


@pytest.mark.parametrize("shape", OUTAGES)
def test_an_outage_that_comes_with_status_200_is_one(shape: str) -> None:
    answer, code = OUTAGES[shape]
    with pytest.raises(Transient) as e:
        read(answer)
    assert e.value.code == code


def test_what_an_outage_tells_of_its_cost_is_kept() -> None:
    with pytest.raises(Transient) as e:
        read(body({"content": "half"}, "error", usage=USAGE))
    assert e.value.spent == (50, 9)


def test_an_error_behind_status_200_that_will_not_pass_is_refused() -> None:
    with pytest.raises(RecreateError) as e:
        read({"error": {"message": "not enough credits", "code": 402}})
    assert e.value.code == "no-credit"


def text_call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            {"content": None, "function_call": {"name": "bash", "arguments": '{"command": "ls"}'}},
            "",
        ),
        ({"content": text_call("bash", '{"command": "ls"}')}, ""),
        ({"content": "I look.\n" + text_call("bash", '{"command": "ls"}')}, "I look."),
        ({"content": '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}'}, ""),
        (
            {"content": '<tool_call>{"name": "bash", "parameters": {"command": "ls"}}</tool_call>'},
            "",
        ),
        (
            {
                "content": (
                    "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n"
                    "</function>\n</tool_call>"
                )
            },
            "",
        ),
        ({"content": '[TOOL_CALLS] [{"name": "bash", "arguments": {"command": "ls"}}]'}, ""),
        (
            {
                "content": "<think>not <tool_call>{}</tool_call></think>"
                + text_call("bash", '{"command": "ls"}')
            },
            "<think>not <tool_call>{}</tool_call></think>",
        ),
    ],
)
def test_a_tool_call_that_is_left_in_the_text_or_of_the_old_form_is_read(
    message: Any, text: str
) -> None:
    reply = read(body({"role": "assistant", **message}), tools=[BASH])
    assert reply.text == text
    assert [(c.name, c.arguments.replace(" ", "")) for c in reply.tool_calls] == [
        ("bash", '{"command":"ls"}')
    ]
    assert reply.tool_calls[0].id


@pytest.mark.parametrize(
    "text",
    [
        "no call at all",
        "<tool_call>not JSON</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        "<tool_call>3</tool_call>",
        text_call("bash", "{}") + "<tool_call>{cut",
        "<think>" + text_call("bash", "{}") + "</think>so",
        "<tool_call>" * 50,
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert calls_in_text(text) == (text, [])
    assert read(body({"content": text}), tools=[BASH]).text == text


@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call>" + " " * 999 + "x",
        "<tool_call><function=f><parameter=a>",
        "[TOOL_CALLS] [",
        "{",
    ],
)
def test_a_hostile_reply_is_looked_through_in_no_time(piece: str) -> None:
    calls_in_text(piece * (3_000_000 // len(piece)))
    calls_in_text("<tool_call>" + piece * (3_000_000 // len(piece)) + "</tool_call>")


def test_without_tools_a_text_stays_as_it_is() -> None:
    text = text_call("bash", '{"command": "ls"}')
    assert read(body({"content": text})).text == text


def test_several_calls_in_the_text_come_in_order_with_ids_of_their_own() -> None:
    text = text_call("bash", "{}") + text_call("submit", "{}")
    reply = read(body({"content": text}), tools=[BASH])
    assert [c.name for c in reply.tool_calls] == ["bash", "submit"]
    assert len({c.id for c in reply.tool_calls}) == 2


@pytest.mark.parametrize(
    "raw",
    [
        'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n',
        "\n\n  : PROCESSING\n\n{}",
        "<!DOCTYPE html><html><title>Sign in</title></html>",
        "",
    ],
)
def test_what_is_no_answer_at_all_is_asked_again(raw: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(raw)}\r\n\r\n"
    with saying((head + raw).encode()) as (port, _):
        model = OpenAI(f"http://127.0.0.1:{port}/v1#m")
        with pytest.raises(Transient) as e:
            model.reply(HELLO, CALL)
        model.close()
    assert e.value.code == "malformed-reply"


def test_white_space_and_a_mark_of_the_byte_order_before_an_answer_are_passed_over() -> None:
    for before in ("\ufeff", "    \n\n"):
        raw = (before + json.dumps(body({"content": "so"}))).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(raw)
        with saying(head + raw) as (port, _):
            model = OpenAI(f"http://127.0.0.1:{port}/v1#m")
            assert model.reply(HELLO, CALL).text == "so"
            model.close()


def test_a_namespace_before_a_tools_name_is_taken_off() -> None:
    call = {"id": "a", "function": {"name": "functions.bash", "arguments": {"command": "ls"}}}
    reply = read(body({"content": None, "tool_calls": [call]}), tools=[BASH])
    assert (reply.tool_calls[0].name, reply.tool_calls[0].arguments) == (
        "bash",
        '{"command": "ls"}',
    )
