"""`litellm:` through the stub endpoint. Few tests, because litellm's import takes seconds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recreate.api import paths
from recreate.api.errors import Missing, RecreateError, Refused, Transient
from recreate.api.ports import Price
from recreate.api.types import Call, Message
from recreate.plugins.hosted import litellm
from recreate.plugins.hosted.litellm import LiteLLM
from tests.stub import Stub, calling, completion

CALL = Call(run="run", attempt="attempt", step=7)
HELLO: list[Message] = [{"role": "user", "content": "hello"}]
KEY = "sk-verysecret-0123456789"
SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.filterwarnings("ignore")  # litellm's own deprecations
def test_a_hosted_model_answers_and_its_errors_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    faults = [
        None,
        503,
        (429, "slow down", {"Retry-After": "7"}),
        (401, f"bad key {KEY}"),
        (404, "no such model"),
    ]
    faults += [
        (400, "This model's maximum context length is 5 tokens"),
        (400, "odd request"),
        "hang",
    ]  # type: ignore[list-item]
    with Stub("four words and more", faults=faults) as stub:
        model = LiteLLM(
            "openai/gpt-4o-mini", api_base=stub.url, price=Price(tokens_in=1e6, tokens_out=1e6)
        )
        reply = model.reply(HELLO, CALL, temperature=0.5, max_tokens=9, json_schema=SCHEMA)
        assert (reply.text, reply.tokens_in, reply.tokens_out, reply.usd) == (
            "four words and more",
            10,
            5,
            15,
        )
        assert stub.calls == ["run/attempt/7"]
        sent = stub.bodies[0]
        assert (sent["temperature"], sent["max_tokens"]) == (0.5, 9)
        assert sent["response_format"]["type"] == "json_schema"
        with pytest.raises(Transient, match="503"):
            model.reply(HELLO, CALL)
        with pytest.raises(Transient) as slow:
            model.reply(HELLO, CALL)
        assert (slow.value.code, slow.value.after) == ("http-429", 7)
        with pytest.raises(Refused) as key:
            model.reply(HELLO, CALL)
        assert "OPENAI_API_KEY" in key.value.fix
        assert KEY not in str(key.value.record())
        for code in ("unknown-model", "context-length", "http-400"):
            with pytest.raises(Refused) as refused:
                model.reply(HELLO, CALL)
            assert refused.value.code == code
        with pytest.raises(Transient) as late:
            model.reply(HELLO, CALL, timeout=0.2)
        assert late.value.code == "timeout"
        assert stub.count == 8  # nothing was retried behind our back
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(Refused) as none:
        LiteLLM("cohere/command-r").reply(HELLO, CALL)  # a provider our own list does not have
    assert "COHERE_API_KEY" in none.value.message


@pytest.mark.filterwarnings("ignore")
def test_no_more_is_asked_of_a_reply_than_the_model_can_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Stub("four words and more") as stub:
        LiteLLM("openai/gpt-4", api_base=stub.url, price=Price()).reply(
            HELLO, CALL, max_tokens=16384
        )
        assert stub.bodies[0]["max_tokens"] == 4096


TOOLS = [
    {"type": "function", "function": {"name": "look", "description": "see", "parameters": SCHEMA}}
]


@pytest.mark.filterwarnings("ignore")
def test_without_the_package_that_tools_need_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """litellm below 1.110 imports mcp as soon as tools are passed; which one is installed is no
    matter here."""

    def lacks(**sent: Any) -> None:
        raise ModuleNotFoundError("No module named 'mcp'", name="mcp")

    monkeypatch.setattr(litellm._litellm(), "completion", lacks)
    with pytest.raises(Missing) as error:
        LiteLLM("openai/gpt-4o-mini", api_base="http://127.0.0.1:1").reply(HELLO, CALL, tools=TOOLS)
    assert error.value.fix == paths.install("hosted")


@pytest.mark.filterwarnings("ignore")
def test_a_hosted_model_calls_tools(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Stub(calling(("look", {"a": "é"}), ("look", {}))) as stub:
        model = LiteLLM("openai/gpt-4o-mini", api_base=stub.url)
        reply = model.reply(HELLO, CALL, tools=TOOLS, tool_choice="auto")
        assert (reply.text, reply.finish) == ("", "tool_calls")
        called = [(c.id, c.name, json.loads(c.arguments)) for c in reply.tool_calls]
        assert called == [("id-0", "look", {"a": "é"}), ("id-1", "look", {})]
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in reply.tool_calls
        ]
        results = [
            {"role": "tool", "content": "seen", "tool_call_id": c.id} for c in reply.tool_calls
        ]
        messages: list[Any] = [*HELLO, {"role": "assistant", "tool_calls": calls}, *results]
        model.reply(messages, CALL, tools=TOOLS)
        assert stub.bodies[-1]["tools"] == TOOLS
        assert stub.bodies[-1]["messages"] == messages
        assert model.native_tools
        assert not LiteLLM("openai/some-model-of-ours", api_base=stub.url).native_tools
        assert not LiteLLM("no-such-provider/x", api_base=stub.url).native_tools
    for status, words, code in (
        (400, "this model does not support tools", "no-tools"),
        (500, "tools param requires --jinja flag", "no-tools"),
        (503, "no worker for tools is up", "http-503"),
        (400, "maximum context length is 8192 tokens, 500 in the functions", "context-length"),
        (400, "temperature is odd", "http-400"),
    ):
        with Stub(faults=[(status, words)]) as stub:
            model = LiteLLM("openai/gpt-4o-mini", api_base=stub.url)
            with pytest.raises(RecreateError) as refused:
                model.reply(HELLO, CALL, tools=TOOLS)
            assert refused.value.code == code
            assert model.native_tools is (code != "no-tools")
    with pytest.raises(Refused) as dropped:  # litellm would leave the tools out and say nothing
        LiteLLM("petals/x", api_base="http://127.0.0.1:1").reply(HELLO, CALL, tools=TOOLS)
    assert "--study.tools json" in dropped.value.fix
    assert capfd.readouterr().out == ""


@pytest.mark.filterwarnings("ignore")
def test_what_is_asked_again_is_marked_for_the_cache_and_priced_as_what_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    usage = {
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_read_input_tokens": 4000,
        "cache_creation_input_tokens": 500,
    }
    answer = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-5",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "content": [{"type": "text", "text": "hello"}],
        "usage": usage,
    }
    system: Message = {"role": "system", "content": "Be short."}
    talk: list[Message] = [
        system,
        *HELLO,
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "more"},
    ]
    with Stub(lambda body: answer) as stub:
        model = LiteLLM("anthropic/claude-opus-4-5", api_base=stub.url)
        reply = model.reply(talk, CALL, max_tokens=50)
        model.reply([system, *HELLO], CALL, max_tokens=50)
        LiteLLM("anthropic/claude-opus-4-5", api_base=stub.url, price=Price(tokens_in=1.0)).reply(
            talk, CALL
        )
    assert (reply.text, reply.tokens_in, reply.tokens_cached, reply.tokens_cache_written) == (
        "hello",
        4600,
        4000,
        500,
    )
    assert reply.usd == pytest.approx((100 * 5 + 4000 * 0.5 + 500 * 6.25 + 10 * 25) / 1e6)

    def marked(body: Any) -> list[str]:
        parts = [*body["system"], *(part for m in body["messages"] for part in m["content"])]
        return [
            part["text"] for part in parts if isinstance(part, dict) and "cache_control" in part
        ]

    # a conversation is marked at its end too; where the price of a mark is not known, nothing is
    assert [marked(body) for body in stub.bodies] == [["Be short.", "more"], ["Be short."], []]


@pytest.mark.filterwarnings("ignore")
def test_a_hosted_models_refusals_are_given_way_to() -> None:
    window = "maximum context length is 8192 tokens and your request has 4000 input tokens"
    calls = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    talk: list[Any] = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "seen", "tool_call_id": "a"},
    ]

    def fault(body: dict[str, Any]) -> Any:
        if body.get("max_tokens", 0) > 4192:
            return 400, window
        if "seed" in body:
            return 400, "Unsupported parameter: 'seed' is not supported with this model."
        empty = any(m.get("content") == "" for m in body["messages"])
        return (400, "text content blocks must be non-empty") if empty else None

    told: list[str] = []
    with Stub(fault=fault) as stub:
        model = LiteLLM("openai/gpt-4o-mini", api_base=stub.url)
        model.told = told.append
        model.reply(talk, CALL, max_tokens=8000, seed=3, temperature=0.5, tools=TOOLS)
        assert [(b.get("max_tokens"), "seed" in b) for b in stub.bodies] == [
            (8000, True),
            (4192, True),
            (4192, False),
            (4192, False),
        ]
        assert not stub.bodies[-1]["messages"][1].get("content")
        model.reply(talk, CALL, max_tokens=900, seed=3)
        assert (stub.count, stub.bodies[-1]["max_tokens"]) == (5, 900)
    assert told == ["litellm:openai/gpt-4o-mini does not take seed, left out from now on"]
    with Stub(fault=lambda body: (400, "blue") if "seed" in body else None) as stub:
        model = LiteLLM("openai/gpt-4o-mini", api_base=stub.url, drop=("seed",))
        assert model.reply(HELLO, CALL, seed=3).text == "ok"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("message", "read"),
    [
        ({"content": None, "refusal": "I will not."}, ("I will not.", "")),
        ({"content": "so", "reasoning_content": "hm"}, ("so", "hm")),
    ],
)
def test_what_a_hosted_model_refuses_or_thinks_is_kept(message: Any, read: tuple[str, str]) -> None:
    body = completion("x")
    body["choices"][0]["message"] = {"role": "assistant", **message}
    with Stub(body) as stub:
        reply = LiteLLM("openai/gpt-4o-mini", api_base=stub.url).reply(HELLO, CALL)
    assert (reply.text, reply.reasoning) == read


@pytest.mark.filterwarnings("ignore")
def test_all_that_a_hosted_model_bills_is_counted() -> None:
    told = {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 5059}
    with Stub(completion("x") | {"usage": told}) as stub:
        reply = LiteLLM("openai/gpt-4o-mini", api_base=stub.url).reply(HELLO, CALL)
    assert (reply.tokens_in, reply.tokens_out, reply.doubtful) == (50, 5009, False)
