"""`openai:URL#MODEL` against a stub endpoint: what is sent, what comes back, and every way it can
go wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from recreate.api.errors import BadInput, RecreateError, Refused, Transient
from recreate.api.ports import Model, Price
from recreate.api.types import Call, Message, Reply
from recreate.models import open_model
from recreate.models.openai import OpenAI
from tests.stub import Stub, calling, completion

CALL = Call(run="run", attempt="attempt", step=7)
HELLO: list[Message] = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
KEY = "sk-verysecret-0123456789"


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub("four words and more") as stub:
        yield stub


def ask(stub: Stub, messages: list[Message] = HELLO, /, **params: Any) -> Reply:
    model = OpenAI(f"{stub.url}#stub")
    try:
        return model.reply(messages, CALL, **params)
    finally:
        model.close()


def fails(stub: Stub, kind: type[RecreateError], /, **params: Any) -> Any:
    with pytest.raises(kind) as e:
        ask(stub, **params)
    return e.value


def test_a_reply_has_text_tokens_finish_and_latency(stub: Stub) -> None:
    reply = ask(stub)
    assert reply.text == "four words and more"
    assert (reply.tokens_in, reply.tokens_out, reply.finish) == (10, 5, "stop")
    assert reply.latency > 0


def test_every_request_carries_the_call_and_its_parameters(stub: Stub) -> None:
    ask(stub, temperature=0.5, top_p=0.9, max_tokens=12, seed=3, stop=["x"], not_known=1)
    assert stub.calls == ["run/attempt/7"]
    sent = stub.bodies[0]
    assert sent == {
        "messages": HELLO,
        "model": "stub",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 12,
        "seed": 3,
        "stop": ["x"],
    }


def test_text_of_any_kind_arrives_as_it_was(stub: Stub) -> None:
    text = 'quote " backslash \\ newline \n tab \t ü 漢 🎈 \x00'
    ask(stub, [{"role": "user", "content": text}, {"role": "user", "content": "broken \udc80"}])
    assert stub.bodies[0]["messages"][0]["content"] == text
    assert stub.bodies[0]["messages"][1]["content"] == "broken ?"


def test_a_growing_transcript_is_sent_whole_each_time(stub: Stub) -> None:
    model = OpenAI(f"{stub.url}#stub")
    messages: list[Message] = []
    for i in range(5):
        messages.append({"role": "user", "content": f"turn {i}"})
        messages.append({"role": "assistant" if i % 2 else "user", "content": "same"})
        model.reply(messages, CALL)
        assert stub.bodies[-1]["messages"] == messages
    model.close()


def test_one_connection_is_kept_for_many_calls(stub: Stub) -> None:
    model = OpenAI(f"{stub.url}#stub")
    for _ in range(5):
        model.reply(HELLO, CALL)
    model.close()
    model.close()
    assert (stub.count, stub.connections) == (5, 1)


def test_a_connection_the_server_closed_meanwhile_is_no_fault(stub: Stub) -> None:
    model = OpenAI(f"{stub.url}#stub")
    for _ in range(3):
        assert model.reply(HELLO, CALL).text
        stub.drop()
    model.close()
    assert (stub.count, stub.connections) == (3, 3)


def test_64_threads_share_one_model() -> None:
    with Stub(lambda body: body["messages"][0]["content"], delay=0.02) as stub:
        model = OpenAI(f"{stub.url}#stub")
        wrong: list[str] = []

        def work(n: int) -> None:
            for i in range(3):
                text = f"{n}-{i}"
                reply = model.reply([{"role": "user", "content": text}], CALL)
                if reply.text != text:
                    wrong.append(reply.text)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        model.close()
        assert wrong == []
        assert stub.count == 192
        assert stub.connections <= 64


def test_the_price_is_the_one_given_or_the_tables_or_unknown(stub: Stub) -> None:
    model = open_model(f"openai:{stub.url}#stub", price=Price(tokens_in=1e6, tokens_out=2e6))
    assert model.reply(HELLO, CALL).usd == 10 * 1 + 5 * 2
    model.close()
    assert OpenAI(f"{stub.url}#stub").price is None
    listed = OpenAI(f"{stub.url}#gpt-4o-mini").price
    assert listed is not None
    assert (listed.tokens_in, listed.tokens_out) == (0.15, 0.6)


@pytest.mark.parametrize("usage", [{}, {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}])
def test_missing_token_counts_are_estimated_and_said_to_be(usage: dict[str, Any]) -> None:
    body = {"choices": [{"message": {"content": "x" * 40}, "finish_reason": "length"}], **usage}
    with Stub(body) as stub:
        reply = ask(stub, [{"role": "user", "content": "y" * 80}])
    assert (reply.tokens_in, reply.tokens_out, reply.finish) == (20, 10, "length")
    assert reply.estimated


def test_logprobs_and_token_ids_are_kept_when_returned() -> None:
    body = completion("ab")
    body["choices"][0] |= {
        "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1}]},
        "token_ids": [3, 4],
    }
    with Stub(body) as stub:
        reply = ask(stub, logprobs=True)
        assert stub.bodies[0]["logprobs"] is True
    assert reply.logprobs == (-0.5, -1.0)
    assert reply.token_ids == (3, 4)


@pytest.mark.parametrize(
    ("message", "text", "finish"),
    [
        ({"content": None, "tool_calls": []}, "", "tool_calls"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab", "stop"),
        ({"content": "a"}, "a", "content_filter"),
    ],
)
def test_unusual_answers_are_read(message: dict[str, Any], text: str, finish: str) -> None:
    with Stub({"choices": [{"message": message, "finish_reason": finish}]}) as stub:
        reply = ask(stub)
    assert reply.text == text
    assert reply.finish == (finish if finish != "content_filter" else "filter")


# --- tools
# ------------------------------------------------------------------------------------------------

TOOLS = [
    {"type": "function", "function": {"name": "look", "description": "see", "parameters": SCHEMA}}
]


def test_tools_are_sent_on_and_all_calls_of_an_answer_come_back() -> None:
    with Stub(calling(("look", {"a": "é"}), ("look", {}))) as stub:
        reply = ask(stub, tools=TOOLS, tool_choice="required")
        assert (stub.bodies[0]["tools"], stub.bodies[0]["tool_choice"]) == (TOOLS, "required")
        ask(stub, tools=[], tool_choice="auto")
        assert not {"tools", "tool_choice"} & set(stub.bodies[1])
    assert reply.text == ""
    assert reply.finish == "tool_calls"
    assert [(c.id, c.name, json.loads(c.arguments)) for c in reply.tool_calls] == [
        ("id-0", "look", {"a": "é"}),
        ("id-1", "look", {}),
    ]


def test_tool_calls_without_ids_or_with_arguments_as_an_object_are_mended() -> None:
    calls = [
        {"function": {"name": "a", "arguments": {"x": [1]}}},
        {"id": "", "function": {"name": "b"}},
    ]
    with Stub({"choices": [{"message": {"tool_calls": calls}}]}) as stub:
        first, later = ask(stub), ask(stub, HELLO * 3)
    assert [(c.name, c.arguments) for c in first.tool_calls] == [("a", '{"x": [1]}'), ("b", "{}")]
    ids = [c.id for c in first.tool_calls + later.tool_calls]
    assert len(set(ids)) == 4
    assert all(len(i) == 9 and i.isalnum() for i in ids)
    assert first.tokens_out == (1 + 10 + 1 + 2) // 4


@pytest.mark.parametrize("calls", [[{}], ["look"], [{"function": {"name": None}}], {"a": 1}, 7])
def test_a_tool_call_that_is_none_is_a_malformed_reply(calls: Any) -> None:
    with Stub({"choices": [{"message": {"content": "", "tool_calls": calls}}]}) as stub:
        assert fails(stub, Transient).code == "malformed-reply"


def test_a_growing_transcript_with_tool_calls_is_sent_as_it_stands(stub: Stub) -> None:
    model = OpenAI(f"{stub.url}#stub")
    messages: list[Any] = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "look"},
    ]
    model.reply(messages, CALL)
    for n in range(4):
        call = {
            "id": f"{n}",
            "type": "function",
            "function": {"name": "look", "arguments": '{"a": "é\\n"}'},
        }
        said = ({"content": None}, {"content": ""}, {}, {"content": "so"})[n]
        messages.append({"role": "assistant", **said, "tool_calls": [call]})
        messages.append({"role": "tool", "content": "seen é", "tool_call_id": f"{n}"})
        model.reply(messages, CALL)
        assert stub.bodies[-1]["messages"] == [{"content": None, **m} for m in messages]
    messages[-2]["tool_calls"][0]["function"]["arguments"] = '"changed \udc80"'
    model.reply(messages, CALL, tools=[{"function": {"description": "broken \udc80"}}])
    assert (
        stub.bodies[-1]["messages"][-2]["tool_calls"][0]["function"]["arguments"] == '"changed ?"'
    )
    alone: list[Any] = [{"role": "assistant", "tool_calls": messages[2]["tool_calls"]}]
    model.reply(alone, CALL)
    assert stub.bodies[-1]["messages"] == [{"content": None, **alone[0]}]
    model.close()


@pytest.mark.parametrize(
    "fault",
    [
        (
            400,
            (
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to'
                " be set"
            ),
        ),
        (500, "tools param requires --jinja flag"),
        (400, "registry.ollama.ai/library/stub:latest does not support tools"),
        (404, "No endpoints found that support tool use."),
        (
            422,
            json.dumps(
                {"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted"}]}
            ),
        ),
        (501, "function calling is not implemented"),
    ],
)
def test_an_endpoint_that_knows_no_tools_gives_way_to_json(fault: tuple[int, str]) -> None:
    with Stub(fault=lambda body: fault if "tools" in body else None) as stub:
        model = OpenAI(f"{stub.url}#stub")
        assert model.native_tools
        with pytest.raises(Refused) as e:
            model.reply(HELLO, CALL, tools=TOOLS)
        assert e.value.code == "no-tools"
        assert "--study.tools json" in e.value.fix
        assert not model.native_tools
        assert model.reply(HELLO, CALL).text == "ok"
        model.close()


@pytest.mark.parametrize(
    ("fault", "code", "params"),
    [
        ((500, "overloaded"), "http-500", {"tools": TOOLS}),
        ((503, "no worker for tools is up"), "http-503", {"tools": TOOLS}),
        (
            (400, "maximum context length: 8500 in the messages, 500 in the functions"),
            "context-length",
            {"tools": TOOLS},
        ),
        ((404, "no model is called the-tools-model"), "unknown-model", {"tools": TOOLS}),
        ((400, "tools are odd"), "http-400", {}),
    ],
)
def test_other_errors_are_not_blamed_on_the_tools(
    fault: tuple[int, str], code: str, params: dict[str, Any]
) -> None:
    with Stub(faults=[fault]) as stub:
        model = OpenAI(f"{stub.url}#the-tools-model")
        with pytest.raises(RecreateError) as e:
            model.reply(HELLO, CALL, **params)
        model.close()
    assert e.value.code == code
    assert model.native_tools


# --- schemas and parameters an endpoint does not take
# ------------------------------------------------------


def test_a_schema_is_asked_for_strictly(stub: Stub) -> None:
    ask(stub, json_schema=SCHEMA)
    wanted = {"name": "reply", "schema": SCHEMA, "strict": True}
    assert stub.bodies[0]["response_format"] == {"type": "json_schema", "json_schema": wanted}


def test_an_endpoint_without_schemas_is_asked_once_and_then_never_again() -> None:
    def fault(body: dict[str, Any]) -> Any:
        return (400, "response_format is not supported") if "response_format" in body else None

    with Stub(fault=fault) as stub:
        model = OpenAI(f"{stub.url}#stub")
        for _ in range(3):
            assert model.reply(HELLO, CALL, json_schema=SCHEMA).text == "ok"
        model.close()
        assert ["response_format" in b for b in stub.bodies] == [True, False, False, False]


def test_one_schema_that_is_refused_does_not_cost_the_others() -> None:
    def fault(body: dict[str, Any]) -> Any:
        return (
            (400, "no rule for 'oneOf'")
            if "oneOf" in json.dumps(body.get("response_format"))
            else None
        )

    with Stub(fault=fault) as stub:
        model = OpenAI(f"{stub.url}#stub")
        model.reply(HELLO, CALL, json_schema={"oneOf": [SCHEMA]})
        model.reply(HELLO, CALL, json_schema=SCHEMA)
        model.reply(HELLO, CALL, json_schema={"oneOf": [SCHEMA]})
        model.close()
        assert ["response_format" in b for b in stub.bodies] == [True, False, True, False]


def test_a_parameter_the_endpoint_does_not_know_is_left_out() -> None:
    def fault(body: dict[str, Any]) -> Any:
        for name in ("max_tokens", "temperature"):
            if name in body:
                return 400, json.dumps(
                    {"error": {"message": f"Unsupported parameter: {name}", "param": name}}
                )
        return None

    with Stub(fault=fault) as stub:
        model = OpenAI(f"{stub.url}#stub")
        for _ in range(2):
            model.reply(HELLO, CALL, temperature=0.3, max_tokens=9)
        model.close()
        assert stub.count == 4
        assert stub.bodies[-1] == {"messages": HELLO, "model": "stub", "max_completion_tokens": 9}


# --- faults
# -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
def test_statuses_that_pass_are_transient(status: int) -> None:
    with Stub(faults=[status]) as stub:
        assert fails(stub, Transient).code == f"http-{status}"
        assert stub.count == 1


def test_the_servers_wish_to_wait_is_passed_on() -> None:
    with Stub(
        faults=[(429, "slow down", {"Retry-After": "7"}), 503, (429, "", {"Retry-After": "soon"})]
    ) as stub:
        assert fails(stub, Transient).after == 7
        assert fails(stub, Transient).after is None
        assert fails(stub, Transient).after is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_its_variable_and_never_its_value(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Stub(faults=[(status, f"Incorrect API key provided: {KEY}")]) as stub:
        error = fails(stub, Refused)
        assert stub.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "OPENAI_API_KEY" in error.fix
    assert KEY not in str(error.record())
    assert "Incorrect API key" in error.message


def test_a_missing_key_is_said_to_be_missing() -> None:
    with Stub(faults=[401]) as stub:
        error = fails(stub, Refused)
        assert "authorization" not in stub.headers[0]
    assert "OPENAI_API_KEY is not set" in error.message


def test_the_key_of_the_published_code_is_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_API_KEY", KEY)
    with Stub() as stub:
        ask(stub)
        assert stub.headers[0]["authorization"] == f"Bearer {KEY}"
        monkeypatch.setenv("OPENAI_API_KEY", "sk-the-other-one-0123456789")
        monkeypatch.setenv("LLM_API_BASE", stub.url)
        ask(stub)
        assert stub.headers[1]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [400, 429, 500])
def test_no_error_repeats_the_key(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Stub(faults=[(status, f"you sent {KEY}")]) as stub:
        assert KEY not in str(fails(stub, RecreateError).record())


def test_an_unknown_model_lists_the_ones_there_are() -> None:
    with Stub(faults=[(404, "no such model")], models=["alpha", "beta"]) as stub:
        error = fails(stub, Refused)
    assert error.code == "unknown-model"
    assert "alpha, beta" in error.fix


def test_a_refused_request_is_told_in_the_servers_words() -> None:
    words = "This model's maximum context length is 8192 tokens"
    with Stub(faults=[(400, "temperature must be positive"), (400, words)]) as stub:
        assert "temperature must be positive" in fails(stub, Refused).message
        assert fails(stub, Refused, json_schema=SCHEMA).code == "context-length"
        assert stub.count == 2


@pytest.mark.parametrize(
    ("fault", "code"), [("reset", "reset"), ("cut", "reset"), ("garbage", "malformed-reply")]
)
def test_broken_answers_are_transient(fault: str, code: str) -> None:
    with Stub(faults=[fault]) as stub:
        assert fails(stub, Transient).code == code


def test_an_answer_without_choices_is_transient() -> None:
    with Stub({"id": "x", "choices": None}) as stub:
        error = fails(stub, Transient)
    assert error.code == "malformed-reply"
    assert "choices" in error.message


def test_a_server_that_does_not_answer_times_out() -> None:
    with Stub(faults=["hang"]) as stub:
        assert fails(stub, Transient, timeout=0.1).code == "timeout"


def test_a_server_that_is_down_is_asked_about() -> None:
    with Stub() as gone:
        pass
    error = fails(gone, Transient)
    assert error.code == "connection-refused"
    assert gone.url in error.fix
    assert "running" in error.fix


def test_a_model_works_again_after_a_fault() -> None:
    with Stub(faults=["reset", "cut", 503, None]) as stub:
        model: Model = OpenAI(f"{stub.url}#stub")
        for _ in range(3):
            with pytest.raises(Transient):
                model.reply(HELLO, CALL)
        assert model.reply(HELLO, CALL).text == "ok"
        model.close()


@pytest.mark.parametrize(
    "where", ["", "http://h/v1", "h:80#m", "ftp://h#m", "http://h:x/v1#m", "http://h/v1?a=b#m"]
)
def test_a_spelling_without_endpoint_and_model_is_bad_input(where: str) -> None:
    with pytest.raises(BadInput) as e:
        OpenAI(where)
    assert e.value.code == "bad-model"


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadInput) as e:
        OpenAI("http://me:hunter2secret@127.0.0.1/v1#m")
    assert "hunter2secret" not in str(e.value.record())


@pytest.mark.parametrize(
    ("words", "room"),
    [
        (
            (
                "This model's maximum context length is 8192 tokens and your request has 34 input"
                " tokens"
            ),
            8158,
        ),
        (
            (
                "maximum context length is 8192 tokens. However, you requested 16500 tokens (116 in"
                " the messages"
            ),
            8076,
        ),
        (
            "max_tokens is too large: 16384. This model supports at most 4096 completion tokens",
            4096,
        ),
    ],
)
def test_where_a_reply_of_that_length_has_no_room_a_shorter_one_is_asked_for(
    words: str, room: int
) -> None:
    with Stub(faults=[(400, words)]) as stub:
        ask(stub, max_tokens=16384)
        assert [body["max_tokens"] for body in stub.bodies] == [16384, room]


def test_a_prompt_that_leaves_next_to_no_room_is_too_long() -> None:
    words = (
        "This model's maximum context length is 8192 tokens and your request has 8100 input tokens"
    )
    with Stub(faults=[(400, words)]) as stub:
        assert fails(stub, Refused, max_tokens=1024).code == "context-length"
