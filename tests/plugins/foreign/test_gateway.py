"""The gateway speaks the APIs of foreign agents, as their own clients read them."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from recreate.api.types import Reply, ToolCall
from recreate.plugins.foreign.dialects import Asked
from recreate.plugins.foreign.gateway import BAD_REQUESTS, Denied, Gateway

if TYPE_CHECKING:
    import openai  # a second of CPU, which only who runs these tests pays

LOOK = ToolCall(id="call_1", name="look", arguments='{"at": "x"}')
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look.",
        "parameters": {"type": "object", "properties": {}},
    },
}


class Desk:
    """Answers with what it is given, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.reply = Reply(text="hello", tokens_in=7, tokens_out=2)
        self.denied: Denied | None = None
        self.flooded = threading.Event()

    def __call__(self, asked: Asked) -> tuple[Reply, str]:
        self.asked.append(asked)
        if self.denied:
            raise self.denied
        return self.reply, f"a-{len(self.asked) - 1}"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def gateway(desk: Desk) -> Iterator[Gateway]:
    with Gateway(desk, desk.flooded.set) as gateway:
        gateway.on_loopback()
        yield gateway


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key=gateway.key
    ) as client:
        yield client


def post(gateway: Gateway, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, data, {"x-api-key": gateway.key, **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, (
        json.loads(text) if answer.getheader("Content-Type") == "application/json" else text
    )


@pytest.mark.slow
def test_openai_s_client_reads_a_text_and_what_it_took(client: openai.OpenAI, desk: Desk) -> None:
    messages: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    made = client.chat.completions.create(
        model="gpt-9", messages=messages, temperature=0.5, max_completion_tokens=50
    )
    assert made.choices[0].message.content == "hello"
    assert (made.choices[0].finish_reason, made.model) == ("stop", "gpt-9")
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (7, 2)
    (asked,) = desk.asked
    assert asked.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert asked.params == {"temperature": 0.5, "max_tokens": 50}


def test_tools_go_both_ways(client: openai.OpenAI, desk: Desk) -> None:
    desk.reply = Reply(text="", tool_calls=(LOOK,), finish="tool_calls")
    first: Any = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "text", "text": "there"}],
        }
    ]
    made = client.chat.completions.create(
        model="m", messages=first, tools=[TOOL], tool_choice="auto"
    )
    (choice,) = made.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    called: Any = choice.message.tool_calls[0]
    assert (called.id, called.function.name, called.function.arguments) == (
        "call_1",
        "look",
        '{"at": "x"}',
    )
    back: Any = [
        *first,
        choice.message.model_dump(),
        {"role": "tool", "tool_call_id": "call_1", "content": "a wall"},
    ]
    client.chat.completions.create(model="m", messages=back, tools=[TOOL])
    assert desk.asked[0].params == {"tools": [TOOL], "tool_choice": "auto"}
    user, assistant, tool = desk.asked[1].messages
    assert user["content"] == "look\nthere"
    assert assistant["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "x"}'}
    assert tool == {"role": "tool", "content": "a wall", "tool_call_id": "call_1"}


def test_a_stream_says_the_same_as_the_whole(client: openai.OpenAI, desk: Desk) -> None:
    desk.reply = Reply(
        text="so:", tool_calls=(LOOK,), finish="tool_calls", tokens_in=7, tokens_out=2
    )
    messages: Any = [{"role": "user", "content": "look"}]
    with client.chat.completions.stream(model="m", messages=messages, tools=[TOOL]) as stream:
        made = stream.get_final_completion()
    assert made.choices[0].message.content == "so:"
    called: Any = made.choices[0].message.tool_calls
    assert (called[0].function.name, called[0].function.arguments) == ("look", '{"at": "x"}')
    parts = list(
        client.chat.completions.create(
            model="m", messages=messages, stream=True, stream_options={"include_usage": True}
        )
    )
    assert parts[-1].usage is not None
    assert parts[-1].usage.total_tokens == 9


@pytest.mark.slow
def test_openai_s_responses_are_spoken_too(client: openai.OpenAI, desk: Desk) -> None:
    desk.reply = Reply(
        text="so:", tool_calls=(LOOK,), finish="tool_calls", tokens_in=7, tokens_out=2
    )
    tools: Any = [{"type": "function", "name": "look", "parameters": {}, "strict": False}]
    made = client.responses.create(model="m", instructions="Be brief.", input="look", tools=tools)
    assert made.output_text == "so:"
    called: Any = made.output[1]
    assert (called.type, called.call_id, called.name, called.arguments) == (
        "function_call",
        "call_1",
        "look",
        LOOK.arguments,
    )
    back: Any = [
        {"role": "user", "content": "look"},
        *[item.model_dump() for item in made.output],
        {"type": "function_call_output", "call_id": "call_1", "output": "a wall"},
    ]
    with client.responses.stream(model="m", input=back, tools=tools) as stream:
        final = stream.get_final_response()
    assert final.output_text == "so:"
    assert desk.asked[0].messages[0] == {"role": "system", "content": "Be brief."}
    _, assistant, tool = desk.asked[1].messages
    assert (assistant["content"], assistant["tool_calls"][0]["id"]) == ("so:", "call_1")
    assert tool == {"role": "tool", "content": "a wall", "tool_call_id": "call_1"}


ANTHROPIC: Any = {
    "model": "claude",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "tools": [
        {
            "name": "look",
            "description": "Look.",
            "input_schema": {"type": "object", "properties": {}},
        }
    ],
    "tool_choice": {"type": "any"},
    "thinking": {"type": "enabled", "budget_tokens": 50},
    "messages": [
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "so:"},
                {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1",
                    "content": [{"type": "text", "text": "a wall"}],
                },
                {"type": "text", "text": "go on"},
            ],
        },
    ],
}


def test_anthropic_s_messages_are_read_and_answered(gateway: Gateway, desk: Desk) -> None:
    desk.reply = Reply(
        text="so:", tool_calls=(LOOK,), finish="tool_calls", tokens_in=7, tokens_out=2
    )
    status, made = post(gateway, "/v1/messages", ANTHROPIC)
    assert (status, made["stop_reason"], made["role"], made["model"]) == (
        200,
        "tool_use",
        "assistant",
        "claude",
    )
    assert made["content"] == [
        {"type": "text", "text": "so:"},
        {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "x"}},
    ]
    assert (made["usage"]["input_tokens"], made["usage"]["output_tokens"]) == (7, 2)
    (asked,) = desk.asked
    assert [m["role"] for m in asked.messages] == ["system", "user", "assistant", "tool", "user"]
    assert asked.messages[2]["tool_calls"][0]["function"] == {
        "name": "look",
        "arguments": '{"at": "x"}',
    }
    assert asked.messages[3] == {"role": "tool", "content": "a wall", "tool_call_id": "call_1"}
    assert asked.params["tools"] == [TOOL]
    assert (asked.params["tool_choice"], asked.params["max_tokens"]) == ("required", 100)
    assert asked.left_out == {"thinking"}


def test_anthropic_s_stream_says_the_same(gateway: Gateway, desk: Desk) -> None:
    desk.reply = Reply(
        text="so:", tool_calls=(LOOK,), finish="tool_calls", tokens_in=7, tokens_out=2
    )
    _, text = post(gateway, "/v1/messages?beta=true", {**ANTHROPIC, "stream": True})
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in events] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_stop"] * 2,
        "message_delta",
        "message_stop",
    ]
    assert events[2]["delta"] == {"type": "text_delta", "text": "so:"}
    assert events[5]["delta"] == {"type": "input_json_delta", "partial_json": '{"at": "x"}'}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["recreate"]
    assert client.models.retrieve("gpt-9").id == "gpt-9"


def test_a_limit_is_told_in_the_words_of_each_api_and_not_tried_again(
    client: openai.OpenAI, gateway: Gateway, desk: Desk
) -> None:
    import openai

    desk.denied = Denied("the attempt is over", 429)
    with pytest.raises(openai.BadRequestError):  # in this process nobody is to try again and again
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    gateway.key = ""
    with pytest.raises(openai.RateLimitError, match="the attempt is over"):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert len(desk.asked) == 2
    status, made = post(gateway, "/v1/messages", ANTHROPIC)
    assert (status, made["type"], made["error"]["type"]) == (429, "error", "rate_limit_error")


CHAT: Any = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/chat/completions", b"{", "no JSON object"),
        ("/v1/chat/completions", b"[" * 100_000, "no JSON object"),
        ("/v1/chat/completions", b"[]", "no JSON object"),
        ("/v1/chat/completions", {}, "messages must be a list"),
        ("/v1/chat/completions", {**CHAT, "n": 2}, "n must be 1"),
        ("/v1/chat/completions", {**CHAT, "functions": [{}]}, "send them as tools"),
        ("/v1/chat/completions", {**CHAT, "temperature": "hot"}, "temperature must be a number"),
        (
            "/v1/chat/completions",
            b'{"messages": [{"role": "user", "content": ""}], "top_p": NaN}',
            "top_p must be a",
        ),
        ("/v1/chat/completions", {**CHAT, "max_tokens": 0}, "whole number from 1"),
        ("/v1/chat/completions", {**CHAT, "tools": [{"type": "web_search"}]}, "only functions"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "wizard", "content": ""}]},
            "role 'wizard'",
        ),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "no images",
        ),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "no images",
        ),
        (
            "/v1/messages",
            {**ANTHROPIC, "tools": [{"type": "bash_20250124", "name": "bash"}]},
            "bash_20250124",
        ),
        ("/v1/responses", {"input": "x", "previous_response_id": "r"}, "whole input"),
        ("/v1/responses", {"input": [{"type": "computer_call"}]}, "computer_call"),
    ],
)
def test_what_cannot_be_passed_on_is_refused_with_why(
    gateway: Gateway, desk: Desk, path: str, body: Any, said: str
) -> None:
    status, made = post(gateway, path, body)
    assert status == 400
    assert said in made["error"]["message"]
    assert desk.asked == []


def test_a_parameter_that_no_model_here_takes_is_left_out_by_name(
    gateway: Gateway, desk: Desk
) -> None:
    post(
        gateway,
        "/v1/chat/completions",
        {**CHAT, "logit_bias": {"1": 2}, "presence_penalty": 1, "user": "me"},
    )
    assert desk.asked[0].left_out == {"logit_bias", "presence_penalty"}


def test_a_base_address_may_leave_v1_out_and_a_body_may_come_in_chunks(
    gateway: Gateway, desk: Desk
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    parts = (json.dumps(CHAT)[:10].encode(), json.dumps(CHAT)[10:].encode())
    connection.request(
        "POST", "/chat/completions", iter(parts), {"x-api-key": gateway.key}, encode_chunked=True
    )
    assert connection.getresponse().status == 200
    connection.close()
    assert len(desk.asked) == 1


def test_on_loopback_nobody_is_answered_who_does_not_have_its_key(
    gateway: Gateway, desk: Desk
) -> None:
    for headers in (
        {"x-api-key": ""},
        {"x-api-key": "guess"},
        {"x-api-key": "", "authorization": "Bearer guess"},
    ):
        assert post(gateway, "/v1/chat/completions", CHAT, **headers)[0] == 401
    assert desk.asked == []


def test_so_many_useless_requests_are_a_flood(gateway: Gateway, desk: Desk) -> None:
    for _ in range(BAD_REQUESTS - 1):
        post(gateway, "/v1/chat/completions", {})
    assert not desk.flooded.is_set()
    assert post(gateway, "/v1/other", {})[0] == 404
    assert desk.flooded.is_set()


def test_a_request_that_is_too_large_or_has_no_length_is_refused(gateway: Gateway) -> None:
    for length in ("999999999999", "-1", "many"):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
        connection.putrequest("POST", "/v1/chat/completions")
        connection.putheader("Content-Length", length)
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null", "Content-Type": "text/plain"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_a_websites_page_has_nothing_asked(
    gateway: Gateway, desk: Desk, headers: dict[str, str]
) -> None:
    """Where the sandbox is `none`, the agent's way to the gateway is a port of this machine."""
    gateway.key, key = "", gateway.key
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    assert post(gateway, "/v1/chat/completions", asked, **headers)[0] == 403
    assert desk.asked == []
    assert post(gateway, "/v1/chat/completions", asked)[0] == 200
    gateway.key = key
