"""What is made of a chat completion, and of an endpoint's status and words, without an endpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recreate.api.errors import FILTERED, RecreateError, Refused, Transient
from recreate.api.ports import Price
from recreate.api.types import Message, Reply
from recreate.models import chat
from recreate.models.http import MAX_ANSWER

HELLO: list[Message] = [{"role": "user", "content": "hello you"}]
MEGABYTE = 2**20


def read(message: dict[str, Any] | None = None, **more: Any) -> Reply:
    """A completion read: `usage`, `model` and ids of the prompt are the body's, others the
    choice's."""
    ours = ("usage", "model", "prompt_token_ids")
    body: dict[str, Any] = {name: more.pop(name) for name in ours if name in more}
    said: dict[str, Any] = {"content": "ok", **(message or {})}
    choice: dict[str, Any] = {"message": said, "finish_reason": "stop", **more}
    told: dict[str, Any] = {"choices": [choice], **body}
    return chat.completion(told, HELLO, model="asked", price=Price(), latency=0.5)


@pytest.mark.parametrize(
    ("params", "most"),
    [
        ({}, MAX_ANSWER),
        ({"max_tokens": 10}, 4 * MEGABYTE + 10 * 1024),
        ({"max_tokens": 10, "top_logprobs": 2}, 4 * MEGABYTE + 3 * 10 * 1024),
    ],
)
def test_an_answer_may_have_as_many_bytes_as_its_tokens_can_take(
    params: dict[str, Any], most: int
) -> None:
    assert chat.answer_bytes(params) == most


def test_tools_and_a_schema_are_asked_for_where_there_are_any() -> None:
    tools = [{"type": "function"}]
    assert chat.tool_fields({}) == chat.tool_fields({"tools": [], "tool_choice": "auto"}) == {}
    assert chat.tool_fields({"tools": tools}) == {"tools": tools}
    chosen = chat.tool_fields({"tools": tools, "tool_choice": "none"})
    assert chosen == {"tools": tools, "tool_choice": "none"}
    told = chat.response_format({"title": "What it é-is", "type": "object"})["json_schema"]
    assert (told["name"], told["strict"]) == ("What_it___is", True)
    assert chat.response_format({})["json_schema"]["name"] == "reply"
    assert chat.response_format({"title": "a" * 70})["json_schema"]["name"] == "a" * 64


@pytest.mark.parametrize(
    ("finish", "word"),
    [
        ("stop", "stop"),
        ("function_call", "tool_calls"),
        ("max_tokens", "length"),
        ("content_filter", "filter"),
        ("sensitive", "filter"),
        ({"type": "length"}, "length"),
        (None, "other"),
        ("eos", "other"),
    ],
)
def test_how_a_reply_ended_is_one_word(finish: Any, word: str) -> None:
    assert read(finish_reason=finish).finish == word
    assert read({"refusal": "no"}, finish_reason=finish).finish == "filter"


def test_a_reply_has_its_models_name_and_what_was_told_of_its_tokens() -> None:
    assert read(model="m" * 400).model == "m" * 300
    assert (read(model=None).model, read().latency) == ("asked", 0.5)
    told = read(
        token_ids=[0, 2**31 - 1],
        prompt_token_ids=[7],
        logprobs={"content": [{"logprob": -1}, {"logprob": 0.0}]},
    )
    assert (told.token_ids, told.prompt_ids, told.logprobs) == ((0, 2**31 - 1), (7,), (-1.0, 0.0))
    assert read(logprobs={"content": []}).logprobs is None
    for bad in (
        {"token_ids": [2**31]},
        {"token_ids": [-1]},
        {"prompt_token_ids": [True]},
        {"logprobs": {"content": [{"logprob": float("inf")}]}},
    ):
        with pytest.raises(ValueError, match=r"ids|log-prob"):
            read(**bad)


@pytest.mark.parametrize(
    ("usage", "counts", "sure"),
    [
        (None, (2, 0), "estimated"),
        ({"prompt_tokens": 5, "completion_tokens": 3}, (5, 3), ""),
        ({"prompt_tokens": 0, "completion_tokens": 3}, (2, 3), "estimated"),
        ({"prompt_tokens": 5, "completion_tokens": 0}, (5, 0), "estimated"),
        ({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}, (5, 3), ""),
        ({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 10}, (5, 5), ""),
        ({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 7}, (5, 3), "doubtful"),
        ({"prompt_tokens": 5, "completion_tokens": -1}, (5, 0), "doubtful"),
        ({"prompt_tokens": 5, "completion_tokens": 2.5}, (5, 0), "doubtful"),
        ({"prompt_tokens": 5, "completion_tokens": 3.0}, (5, 3), ""),
        ({"prompt_tokens": 5, "completion_tokens": True}, (5, 0), "doubtful"),
        ({"prompt_tokens": 5, "completion_tokens": 2**53}, (5, 0), "doubtful"),
        ({"prompt_tokens": 5, "completion_tokens": 2**53 - 1}, (5, 2**53 - 1), ""),
        ({"input_tokens": 5, "output_tokens": 3}, (5, 3), ""),
        (
            {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 20,
             "cache_creation_input_tokens": 100},
            (125, 3), "",
        ),
        (
            {"input_tokens": 25, "output_tokens": 3, "cache_read_input_tokens": 20,
             "input_tokens_details": {"cached_tokens": 20}},
            (25, 3), "",
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 3,
             "completion_tokens_details": {"reasoning_tokens": 9}},
            (5, 12), "",
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 9,
             "completion_tokens_details": {"reasoning_tokens": 9}},
            (5, 9), "",
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 13,
             "completion_tokens_details": {"reasoning_tokens": 9}},
            (5, 8), "doubtful",
        ),
        ("many", (2, 0), "doubtful"),
    ],
)  # fmt: skip
def test_tokens_are_counted_as_they_are_told(
    usage: Any, counts: tuple[int, int], sure: str
) -> None:
    found = read(usage=usage)
    assert (found.tokens_in, found.tokens_out) == counts
    assert [name for name in ("estimated", "doubtful") if getattr(found, name)] == [sure] * bool(
        sure
    )
    told = chat.read_spent(usage)
    assert told == (counts if isinstance(usage, dict) and _tells_all(usage, sure) else None)


def _tells_all(usage: dict[str, Any], sure: str) -> bool:
    zero = usage.get("completion_tokens") == 0 and usage["prompt_tokens"]
    return sure == "" or bool(sure == "estimated" and zero)


def test_what_nobody_counts_is_estimated_by_its_characters() -> None:
    calls: Any = [{"function": {"name": "f", "arguments": "{}"}}]
    assert (
        chat.estimate([{"role": "user", "content": "a" * 8}, {"role": "user", "content": "b"}]) == 2
    )
    called = {"role": "assistant", "content": "", "tool_calls": calls}
    assert chat.estimate([called]) == len(json.dumps(calls)) // 4  # type: ignore[list-item]
    assert chat.estimate_reply("a" * 5, chat.tool_calls(calls, 1)) == (5 + 1 + 2) // 4


@pytest.mark.parametrize(
    ("part", "spent"),
    [
        (b'{"usage": {"prompt_tokens": 5, "completion_tokens": 3}', (5, 3)),
        (b' {"usage": {"prompt_tokens": 5, "completion_tokens": 3, "d": {"e": 1}}, "x', (5, 3)),
        (b'{"usage": {"prompt_tokens": 5}', None),
        (b'data: {"usage": {"prompt_tokens": 5, "completion_tokens": 3}}', None),
        (b'{"usage": {"prompt_tokens": 5, "completion_tokens": 3}, "x": "' + b"y" * 5000, None),
        (b'{"usage": {"prompt_tokens": 1, "completion_tokens": 1},'
         b' "usage": {"prompt_tokens": 5, "completion_tokens": 3}}', (5, 3)),
        (b"{}", None),
        (b"", None),
    ],
)  # fmt: skip
def test_what_a_part_of_an_answer_cost_is_read_from_its_end(part: bytes, spent: Any) -> None:
    assert chat.spent_of_part(part) == spent


@pytest.mark.parametrize(
    ("choice", "status"),
    [
        ({"error": {"message": "away", "code": 429}}, 429),
        ({"error": {"message": "away", "code": "503"}}, 503),
        ({"error": {"message": "away", "code": 5030}}, 502),
        ({"error": {"message": "away", "code": 302}}, 502),
        ({"error": "away"}, 502),
        ({"finish_reason": "abort"}, 502),
    ],
)
def test_an_outage_with_status_200_has_the_status_that_it_names(
    choice: dict[str, Any], status: int
) -> None:
    body = {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}
    with pytest.raises(Transient) as caught:
        chat.completion(body, HELLO, model="m", price=None, latency=0.0)
    assert caught.value.code == f"http-{status}"
    assert caught.value.spent == (5, 3)
    body = {"choices": [{"message": {"content": "first"}}, choice]}
    assert chat.completion(body, HELLO, model="m", price=None, latency=0.0).text == "first"
    with pytest.raises(RecreateError, match="answered 200, and then no answer"):
        chat.completion({"error": "away"}, HELLO, model="m", price=None, latency=0.0)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("please try again in 7h12m", 7 * 3600 + 12 * 60),
        ("Retry after 1d2h3m4.5s", 86400 + 2 * 3600 + 3 * 60 + 4.5),
        ("try again in 250ms", 0.25),
        ("try again in 2m", 120),
        ('"retryDelay": "13s"', 13),
        ("try again in 0s", None),
        ("try again later", None),
        ("", None),
    ],
)
def test_a_wait_is_read_from_words(words: str, seconds: float | None) -> None:
    assert chat.wish_to_wait(words) == seconds


@pytest.mark.parametrize(
    ("header", "ms", "seconds"),
    [
        ("3", "", 3.0),
        ("-3", "", 0.0),
        ("nan", "", None),
        ("inf", "", None),
        ("soon", "", None),
        ("3", "250", 0.25),
        ("3", "250.5", 0.2505),
        ("3", "1.2.3", 3.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", "", 0.0),
    ],
)
def test_a_wait_is_read_from_headers(header: str, ms: str, seconds: float | None) -> None:
    assert chat.retry_after(header, ms) == seconds


@pytest.mark.parametrize(
    ("status", "words", "code", "unspent"),
    [
        (408, "", "http-408", True),
        (425, "", "http-425", True),
        (429, "", "http-429", True),
        (500, "", "http-500", False),
        (502, "", "http-502", False),
        (503, "", "http-503", True),
        (529, "", "http-529", True),
    ],
)
def test_what_may_pass_is_told_with_whether_a_model_worked(
    status: int, words: str, code: str, unspent: bool
) -> None:
    found = chat.failure("x", status, words, 3.0)
    assert isinstance(found, Transient)
    assert (found.code, found.unspent, found.after) == (code, unspent, 3.0)
    assert chat.worked_on(status) is not unspent
    assert chat.worked_on(200)
    assert not chat.worked_on(400)


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (429, "insufficient_quota", "no-credit"),
        (402, "top up your balance", "no-credit"),
        (403, "flagged by our usage policy", FILTERED),
        (400, "maximum context length is 8", "context-length"),
        (401, "maximum context length is 8", "http-401"),
        (400, "blue", "http-400"),
        (499, "", "http-499"),
    ],
)
def test_what_will_not_pass_is_told_with_what_to_do(status: int, words: str, code: str) -> None:
    found = chat.failure("x", status, words)
    assert isinstance(found, Refused)
    assert found.code == code


@pytest.mark.parametrize("length", [299, 300, 301, 1000])
def test_an_endpoints_words_are_one_line(length: int) -> None:
    found = chat.short("a" * length)
    assert found == ("a" * length if length <= 300 else "a" * 297 + "...")
    assert chat.short("a\n  b") == "a b"
