"""Whatever words an endpoint refuses a request in, what it means is done."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from recreate.api.errors import Refused, Transient
from recreate.api.types import Call, Message, Reply
from recreate.models import chat
from recreate.models.openai import OpenAI
from recreate.models.refusals import Concessions, read_error, reply_room, too_long
from tests.stub import Stub

CALL = Call(run="run", attempt="attempt", step=7)
HELLO: list[Message] = [{"role": "user", "content": "hello"}]


def ask(stub: Stub, messages: list[Message] = HELLO, /, **params: Any) -> Reply:
    model = OpenAI(f"{stub.url}#stub")
    try:
        return model.reply(messages, CALL, **params)
    finally:
        model.close()


def error(message: str, status: int = 400, **fields: Any) -> tuple[int, str]:
    return status, json.dumps({"error": {"message": message, **fields}})


TOO_LONG = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 8227"
    " tokens. Please reduce the length of the messages.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 213462 tokens > 200000 maximum",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Unable to submit request because the input token count is 40000 but model only supports up to"
    " 32768.",
    "Input is too long for requested model.",
    "Malformed input request: expected maxLength: 200000, actual: 250000",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 6000",
    "Please reduce the length of the messages or completion.",
    "Current length is 9000 while limit is 8192. Please reduce the length of the messages.",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum"
    " context length",
    "The prompt is too long: 40000, model maximum context length: 32767",
    "`inputs` must have less than 4095 tokens. Given: 5000",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "request (33056 tokens) exceeds the available context size (32768 tokens), try increasing it",
    "Requested tokens (5000) exceed context window of 2048",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "Trying to keep the first 9000 tokens when context the overflows.",
    "Range of input length should be [1, 30720]",
    "Invalid request: Your request exceeded model token limit: 8192",
    "Prompt exceeds max length",
    "invalid params, context window exceeds limit (2013)",
    "The decoder prompt (length 40000) is longer than the maximum model length of 32768.",
    "The input (33012 tokens) is longer than the model's context length (32768 tokens).",
    "The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)",
    "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "prompt token count of 130000 exceeds the limit of 128000",
    "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model",
    "the input length exceeds the context length",
    "Invalid 'messages[1].content': string too long. Expected one with maximum length 10485760",
    "<html><head><title>413 Request Entity Too Large</title></head></html>",
    "Prompt tokens (9000) exceeds context size (8192)",
]


@pytest.mark.parametrize("words", TOO_LONG)
def test_a_prompt_that_is_too_long_is_that_in_any_providers_words(words: str) -> None:
    with Stub(fault=lambda body: error(words)) as stub:
        with pytest.raises(Refused) as e:
            ask(stub, max_tokens=1024)
        assert e.value.code == "context-length"


@pytest.mark.parametrize(
    "shape",
    [
        (400, json.dumps([{"error": {"code": 400, "message": TOO_LONG[3]}}])),
        (400, json.dumps({"message": TOO_LONG[5]})),
        (400, json.dumps({"object": "error", "message": TOO_LONG[10], "code": "3051"})),
        (400, json.dumps({"detail": TOO_LONG[2]})),
        (413, json.dumps({"error": TOO_LONG[1]})),
        error("Bad request", code="context_length_exceeded"),
        error("request rejected", type="exceed_context_size_error"),
        error("Provider returned error", metadata={"raw": TOO_LONG[0], "provider_name": "P"}),
        error(
            "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested"
            " 9000, please reduce your message size and try again.",
            413,
            code="rate_limit_exceeded",
        ),
    ],
)
def test_it_is_found_wherever_the_error_says_it(shape: tuple[int, str]) -> None:
    with Stub(fault=lambda body: shape) as stub:
        with pytest.raises(Refused) as e:
            ask(stub, max_tokens=1024)
        assert (e.value.code, stub.count) == ("context-length", 1)


@pytest.mark.parametrize(
    "words",
    [
        "Invalid value for 'temperature'",
        "Your credit balance is too low to access the API. Please go to Plans & Billing.",
        "This request exceeds your organization's spend limit",
        "messages: roles must alternate",
        "Invalid JSON schema: a tool's name has odd characters",
        "Input should be less than or equal to 2",
        "an image is missing",
    ],
)
def test_other_refusals_are_not_taken_for_it(words: str) -> None:
    assert not too_long(words)


WINDOW = "This model's maximum context length is {} tokens"


@pytest.mark.parametrize(
    ("words", "asked", "room"),
    [
        # exactly, where prompt and window are told
        (WINDOW.format(4096) + ". However, you requested 4118 tokens (3118 in the messages, 1000"
         " in the completion). Please reduce the length", 1000, 978),
        (WINDOW.format(4097) + ", however you requested 4130 tokens (130 in your prompt; 4000 for"
         " the completion). Please reduce your prompt; or completion length.", 4000, 3967),
        (WINDOW.format(65536) + " and your request has 57879 input tokens (8192 > 65536 - 57879)."
         " 'max_tokens' is too large", 8192, 7657),
        ("Requested token count exceeds the model's maximum context length of 32768 tokens. You"
         " requested a total of 36384 tokens: 20000 tokens from the input messages and 16384"
         " tokens for the completion.", 16384, 12768),
        ("input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000, decrease"
         " input length or `max_tokens` and try again", 21333, 10000),
        ("`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 2000 `inputs` tokens and 3000"
         " `max_new_tokens`", 3000, 2097),
        ("This endpoint's maximum context length is 131072 tokens. However, you requested about"
         " 140000 tokens (100000 of text input, 20000 of tool input, 20000 in the output).",
         20000, 11072),
        ("Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000,"
         " please reduce your message size", 4096, 1096),
        # a bound on replies
        ("max_tokens is too large: 16384. This model supports at most 4096 completion tokens",
         16384, 4096),
        ("max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
         100000, 8192),
        ("`max_tokens` must be less than or equal to `8192`, the maximum value", 9000, 8192),
        ("max_tokens=16384 cannot be greater than max_model_len=max_total_tokens=8192.",
         16384, 8192),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 9000, 8192),
        ("Range of max_tokens should be [1, 2000]", 9000, 2000),
        ("The maximum tokens you requested exceeds the model limit of 4096. Try again with a"
         " maximum tokens value that is lower than 4096.", 4096, 2048),
        # half, where counting ended before the prompt did
        (WINDOW.format(20000) + ". However, you requested 16384 output tokens and your prompt"
         " contains at least 3617 input tokens, for a total of at least 20001.", 16384, 8192),
        (WINDOW.format(16384) + ". However, you requested 16384 output tokens and your prompt"
         " contains 3600 characters (more than 0 characters, which is the upper bound for 0 input"
         " tokens).", 16384, 8192),
        ("Please reduce the length of the messages or completion.", 300, 256),
        (WINDOW.format(256) + ". However, you requested 1024 output tokens.", 1024, 512),
        (WINDOW.format(800) + ". However, you requested 1000 tokens.", 1000, 500),
        # exactly as many as a reply may at least have
        (WINDOW.format(8192) + " and your request has 7936 input tokens", 1024, 256),
        (WINDOW.format(8192) + " and your request has 7937 input tokens", 1024, 0),
        # nothing, where less does not help
        (WINDOW.format(8192) + ". However, your messages resulted in 8227 tokens.", 1024, 0),
        (WINDOW.format(8192) + " and your request has 8100 input tokens", 1024, 0),
        (WINDOW.format(8192) + ". However, you requested 1024 output tokens and your prompt"
         " contains at least 8192 input tokens", 1024, 0),
        (WINDOW.format(8192) + ". However, you requested 1024 output tokens and your prompt"
         " contains at least 7936 input tokens", 1024, 512),
        ("Please reduce the length of the messages or completion.", 256, 0),
        ("Please reduce the length of the messages or completion.", 0, 0),
        ("max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
         None, 0),
        ("prompt is too long: 213462 tokens > 200000 maximum", 16384, 0),
        ("Unsupported parameter: 'max_tokens' is not supported with this model.", 16384, 0),
    ],
)  # fmt: skip
def test_as_many_tokens_are_asked_for_as_a_refusal_leaves_room_for(
    words: str, asked: int | None, room: int
) -> None:
    assert reply_room(words, asked) == room


def counting_to_the_window(window: int, prompt: int) -> Any:
    """vLLM as it is today: it counts a prompt no further than the window less what is asked."""

    def fault(body: dict[str, Any]) -> tuple[int, str] | None:
        asked = body["max_tokens"]
        if asked > window:
            return error(f"max_tokens={asked} cannot be greater than max_model_len={window}.")
        if asked == window:
            words = f"{prompt * 4} characters (the upper bound for 0 input tokens)"
        elif asked + prompt > window:
            words = f"at least {window - asked + 1} input tokens"
        else:
            return None
        return error(
            f"This model's maximum context length is {window} tokens. However, you requested"
            f" {asked} output tokens and your prompt contains {words}. Please reduce the length of"
            " the input prompt or the number of requested output tokens.",
            param="input_tokens",
        )

    return fault


@pytest.mark.parametrize("window", [2048, 8192, 16384, 20000, 32768, 131072])
@pytest.mark.parametrize("filled", [0.05, 0.3, 0.5, 0.7, 0.86])
@pytest.mark.parametrize("asked", [1000, 4096, 16384])
def test_a_reply_is_had_while_the_window_has_room_for_one(
    window: int, filled: float, asked: int
) -> None:
    with Stub(fault=counting_to_the_window(window, int(window * filled))) as stub:
        assert ask(stub, max_tokens=asked).text == "ok"
        assert stub.count <= 9
        given = stub.bodies[-1]["max_tokens"]
        room = window - int(window * filled)
        assert given == asked or given >= min(asked, room) // 2


def test_a_prompt_that_fills_the_window_ends_in_few_requests() -> None:
    with Stub(fault=counting_to_the_window(32768, 32700)) as stub:
        with pytest.raises(Refused) as e:
            ask(stub, max_tokens=16384)
        assert (e.value.code, stub.count <= 8) == ("context-length", True)


def pydantic(*names: str) -> tuple[int, str]:
    return 422, json.dumps(
        {
            "detail": [
                {"type": "extra_forbidden", "loc": ["body", n], "msg": "Extra inputs are not"}
                for n in names
            ]
        }
    )


NO = "Unsupported parameter: '{0}' is not supported with this model."
REFUSALS: dict[str, Any] = {
    "param": lambda n: error(f"{n}: no", param=n),
    "param is None as a text": lambda n: error(NO.format(n), param="None", type="None"),
    "a gateway's own wrapping": lambda n: (
        400,
        json.dumps({"status": "failure", "message": "openai error: " + NO.format(n)}),
    ),
    "another is named as what it wants": lambda n: error(NO.format(n) + " Use 'top_q' or 'stop'."),
    "loc": pydantic,
    "a list as the message": lambda n: (
        422,
        json.dumps({"object": "Error", "message": json.loads(pydantic(n)[1])["detail"]}),
    ),
    "loc in words": lambda n: (
        422,
        json.dumps({"detail": f"body -> {n}\n  Extra inputs are not permitted"}),
    ),
    "google": lambda n: (400, json.dumps([error(f'Unknown name "{n}": Cannot find field.')[1]])),
    "argument": lambda n: error(f"Unrecognized request argument supplied: {n}"),
    "text alone": lambda n: (400, f"{n} is not supported by this model"),
    "behind a gateway": lambda n: error(
        "Provider returned error", metadata={"raw": json.dumps({"message": NO.format(n)})}
    ),
    "deprecated": lambda n: error(f"`{n}` is deprecated for this model."),
}


@pytest.mark.parametrize("shape", REFUSALS)
@pytest.mark.parametrize("name", ["max_tokens", "temperature", "top_p", "seed", "stop"])
def test_a_parameter_that_is_refused_is_left_out_from_then_on_and_told_once(
    shape: str, name: str
) -> None:
    params: dict[str, Any] = {
        "max_tokens": 1000,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
        "stop": ["x"],
    }
    told: list[str] = []
    with Stub(fault=lambda body: REFUSALS[shape](name) if name in body else None) as stub:
        model = OpenAI(f"{stub.url}#stub")
        model.told = told.append
        for _ in range(2):
            assert model.reply(HELLO, CALL, **params).text == "ok"
        model.close()
        left = dict(params)
        del left[name]
        if name == "max_tokens":
            left["max_completion_tokens"] = 1000
        assert [
            {k: v for k, v in b.items() if k not in ("messages", "model")} for b in stub.bodies
        ] == [
            params,
            left,
            left,
        ]
        assert told == [f"openai:{stub.url}#stub does not take {name}, left out from now on"]


def test_all_that_a_refusal_names_at_once_is_left_out_at_once() -> None:
    def strict(body: dict[str, Any]) -> Any:
        bad = [name for name in ("seed", "top_p", "stop") if name in body]
        return pydantic(*bad) if bad else None

    with Stub(fault=strict) as stub:
        ask(stub, seed=1, top_p=0.5, stop=["x"], max_tokens=9)
        assert stub.count == 2


def test_requests_at_once_each_leave_out_what_is_refused() -> None:
    """Both were sent before either was refused."""
    with Stub(fault=lambda body: pydantic("seed") if "seed" in body else None, delay=0.02) as stub:
        model = OpenAI(f"{stub.url}#stub")
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda n: model.reply(HELLO, CALL, seed=n), range(8)))
        model.close()
    assert [r.text for r in replies] == ["ok"] * 8


def test_a_value_out_of_range_is_refused_and_its_parameter_stays() -> None:
    """It is one agent's: the others' temperature must not go with it."""
    words = "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, got 3."
    with Stub(faults=[error(words, param="temperature")]) as stub:
        model = OpenAI(f"{stub.url}#stub")
        with pytest.raises(Refused):
            model.reply(HELLO, CALL, temperature=3.0)
        model.reply(HELLO, CALL, temperature=0.5)
        assert stub.bodies[-1]["temperature"] == 0.5
        model.close()


def test_a_refusal_that_goes_on_ends_whatever_it_names() -> None:
    with Stub(fault=lambda body: error(NO.format("seed"), param="seed")) as stub:
        with pytest.raises(Refused) as e:
            ask(stub, seed=1, max_tokens=9)
        assert stub.count == 2
        assert "--models.drop" in e.value.fix


def test_what_a_user_drops_is_never_sent() -> None:
    with Stub() as stub:
        model = OpenAI(f"{stub.url}#stub", drop=("seed", "max_tokens"))
        model.reply(HELLO, CALL, seed=1, max_tokens=9, temperature=0.5)
        model.close()
        assert stub.bodies[0] == {
            "messages": HELLO,
            "model": "stub",
            "temperature": 0.5,
            "max_completion_tokens": 9,
        }


@pytest.mark.parametrize("said", ["", " \n"])
@pytest.mark.parametrize(
    "words",
    [
        "text content blocks must be non-empty",
        "messages: text content blocks must contain non-whitespace text",
        "messages.1.content.0.text: field must not be empty; it cannot be empty",
    ],
)
def test_a_text_that_is_empty_beside_tool_calls_is_null_where_that_is_refused(
    words: str, said: str
) -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages: list[Message] = [
        *HELLO,
        {"role": "assistant", "content": said, "tool_calls": calls},
        {"role": "tool", "content": "", "tool_call_id": "a"},
    ]

    def strict(body: dict[str, Any]) -> Any:
        texts = [m["content"] for m in body["messages"] if m["role"] == "assistant"]
        return error(words) if any(t is not None and not t.strip() for t in texts) else None

    with Stub(fault=strict) as stub:
        model = OpenAI(f"{stub.url}#stub")
        for _ in range(2):
            model.reply(messages, CALL)
        model.close()
        assert [b["messages"][1]["content"] for b in stub.bodies] == [said, None, None]


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (400, "Your credit balance is too low to access the API.", "no-credit"),
        (429, "insufficient_quota: You exceeded your current quota", "no-credit"),
        (402, "This request requires more credits, or fewer max_tokens.", "no-credit"),
        (400, "The prompt triggered the content management policy.", "content-filter"),
        (403, "Your input was flagged: it requires moderation", "content-filter"),
        (400, "Access denied: data_inspection_failed, inappropriate content", "content-filter"),
        (400, "messages: roles must alternate", "http-400"),
        (403, "forbidden", "refused-key"),
    ],
)
def test_a_refusal_says_whose_it_is(status: int, words: str, code: str) -> None:
    with Stub(fault=lambda body: error(words, status)) as stub:
        with pytest.raises(Refused) as e:
            ask(stub, max_tokens=900)
        assert e.value.code == code


@pytest.mark.parametrize(
    ("words", "headers", "seconds"),
    [
        ("Please try again in 7h12m.", {}, 25920),
        ("Rate limit reached. Please try again in 1m30.5s.", {}, 90.5),
        ("Please retry in 34.07s.", {}, 34.07),
        ("Please try again in 340ms.", {}, 0.34),
        ("try again in 20 seconds", {}, 20),
        (
            json.dumps([{"error": {"message": "quota", "details": [{"retryDelay": "12s"}]}}])[1:-1],
            {},
            12,
        ),
        ("slow down", {"retry-after-ms": "250"}, 0.25),
        ("Please try again in 7h12m.", {"Retry-After": "5"}, 5),
        ("Please try again later.", {}, None),
    ],
)
def test_how_long_an_endpoint_wants_one_to_wait_is_read_from_its_words_too(
    words: str, headers: dict[str, str], seconds: float | None
) -> None:
    with Stub(faults=[(429, words, headers)]) as stub:
        with pytest.raises(Transient) as e:
            ask(stub)
        assert e.value.after == seconds


@pytest.mark.parametrize(
    "body", [None, 3, "x", [], [[]], {}, {"error": None}, {"error": []}, [None]]
)
def test_an_error_of_any_shape_is_read(body: Any) -> None:
    assert read_error(body).words
    assert chat.failure("x", 400, read_error(body).text).code == "http-400"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "a", "detail": "b", "msg": "c"}}, "a"),
        ({"detail": "b", "msg": "c"}, "b"),
        ({"message": "", "msg": "c"}, "c"),
        ({"error": {"status": 3}}, "{'status': 3}"),
        ([{"error": {"message": "first"}}, {"error": {"message": "second"}}], "first"),
        ("x" * 20_000, "x" * 10_000),
        ({"message": "x" * 20_000}, "x" * 10_000),
        ({"message": "a", "metadata": {"raw": "b"}}, "a: b"),
        ({"message": "a", "metadata": {"raw": 3}}, "a"),
        ({"message": "a", "metadata": {"raw": "x" * 20_000}}, "a: " + "x" * 9_997),
    ],
)
def test_an_endpoints_words_are_the_most_telling_that_it_has(body: Any, words: str) -> None:
    assert read_error(body).words == words


def test_what_an_error_says_beside_its_words_tells_what_it_means() -> None:
    said = read_error({"message": "A", "code": "B", "type": "C", "status": "D", "details": ["E"]})
    assert said.text == "a b c d ['e']"
    said = read_error(
        {"param": "stop", "detail": [{"loc": ["body", "seed", 0]}, "x", {"loc": None}, {}]}
    )
    assert said.fields == {"stop", "body", "seed"}
    assert read_error({"param": None, "detail": "x"}).fields == frozenset()


def test_only_a_blank_text_beside_tool_calls_is_null_where_that_is_refused() -> None:
    calls: Any = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    sent: list[Message] = [
        {"role": "user", "content": " "},
        {"role": "assistant", "content": "I ask.", "tool_calls": calls},
        {"role": "assistant", "content": " \n", "tool_calls": calls},
        {"role": "assistant", "content": " ", "tool_calls": []},
    ]
    found = Concessions(lambda told: None)
    assert found.messages(sent) == sent
    assert found.learn(read_error("content must be non-empty"), [], sent)
    assert [m["content"] for m in found.messages(sent)] == [" ", "I ask.", None, " "]
    assert sent[2]["content"] == " \n"
    never_blank = Concessions(lambda told: None)
    assert not never_blank.learn(read_error("content must be non-empty"), [], sent[:2])
