"""What a reply becomes on its way through the one door to models."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.errors import FILTERED, OUTAGE, REFUSED_REQUEST, Fault, Refused, Transient
from recreate.api.types import Call, Reply, ToolCall
from recreate.models.openai import OpenAI
from recreate.models.pricing import FREE
from recreate.runs.budget import Budget, Ledger
from recreate.runs.calls import Calls, _duration, masked, tokens_bound
from recreate.runs.journal import Journal
from recreate.runs.pace import Pace, Turn
from recreate.storage.log import Log
from tests.stub import Stub

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


# --- what a refusal ends


class Answering:
    """A model that does what `acts` says of a call: raises what it gives, or answers."""

    name, price, override = "answering", FREE, {}

    def __init__(self, acts: Callable[[Call], Exception | None]) -> None:
        self.acts, self.asked = acts, list[str]()

    def reply(self, messages: object, call: Call, **params: object) -> Reply:
        self.asked.append(call.id)
        if error := self.acts(call):
            raise error
        return Reply(text="ok", tokens_in=1, tokens_out=1)

    def close(self) -> None: ...


def open_calls(folder: Path, **options: Any) -> Calls:
    journal = Journal(folder)
    journal.open()
    ledger = Ledger(Log(folder / "ledger.jsonl"), Budget())
    return Calls("r", journal, ledger, **{"backoff": 0, "retries": 1, **options})


def ask(calls: Calls, model: Any, attempt: str, role: str = "agent", step: int = 0) -> Reply:
    call = Call(run="r", attempt=attempt, step=step, role=role)
    return calls.ask(model, FREE, [{"role": "user", "content": "hello"}], call)


def odd(call: Call) -> Exception | None:
    refused = Refused("the endpoint answered 400: blue", code="http-400", fix="?")
    return refused if call.attempt.startswith("odd") else None


def test_the_very_first_request_that_is_refused_ends_the_run_and_costs_nothing(
    tmp_path: Path,
) -> None:
    calls = open_calls(tmp_path)
    with pytest.raises(Refused, match="blue"):
        ask(calls, Answering(odd), "odd")
    assert calls.ledger.spent.calls == 0


@pytest.mark.parametrize("role", ["agent", "optimizer"])
def test_a_request_that_is_refused_after_others_were_answered_ends_no_run(
    tmp_path: Path, role: str
) -> None:
    calls, model = open_calls(tmp_path), Answering(odd)
    ask(calls, model, "plain", role)
    with pytest.raises(Fault) as e:
        ask(calls, model, "odd", role)
    assert (e.value.code, e.value.unspent) == (REFUSED_REQUEST, True)
    assert len(model.asked) == 2, "it is not asked again"
    assert calls.ledger.spent.calls == 1


def test_nor_does_it_in_a_run_that_goes_on(tmp_path: Path) -> None:
    calls = open_calls(tmp_path)
    ask(calls, Answering(odd), "plain")
    calls.journal.close()
    calls.ledger.close()
    with pytest.raises(Fault) as e:
        ask(open_calls(tmp_path), Answering(odd), "odd")
    assert e.value.code == REFUSED_REQUEST


def test_a_first_request_that_is_refused_while_others_are_under_way_waits_for_their_end(
    tmp_path: Path,
) -> None:
    refused, calls = threading.Event(), open_calls(tmp_path)

    def acts(call: Call) -> Exception | None:
        if call.attempt == "plain":
            under_way.set()
            assert refused.wait(30)
            return None
        assert under_way.wait(30)
        refused.set()
        return odd(call)

    under_way, model = threading.Event(), Answering(acts)
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(ask, calls, model, "plain")
        with pytest.raises(Fault) as e:
            pool.submit(ask, calls, model, "odd").result(30)
        assert plain.result(30).text == "ok"
    assert e.value.code == REFUSED_REQUEST


@pytest.mark.parametrize("code", ["context-length", FILTERED])
def test_what_a_prompt_is_refused_for_is_the_agents_own_and_ends_no_study_of_the_optimizers(
    tmp_path: Path, code: str
) -> None:
    calls = open_calls(tmp_path)
    model = Answering(lambda call: Refused("no", code=code) if "odd" in call.attempt else None)
    ask(calls, model, "plain")
    for role, kind in (("agent", Refused), ("optimizer", Fault)):
        with pytest.raises(kind) as e:
            ask(calls, model, f"odd-{role}", role)
        assert e.value.code == code


def test_a_key_that_is_refused_ends_the_run_whenever_that_is(tmp_path: Path) -> None:
    calls = open_calls(tmp_path)
    model = Answering(lambda call: Refused("no", code="refused-key") if call.step else None)
    ask(calls, model, "plain")
    with pytest.raises(Refused):
        ask(calls, model, "plain", step=1)


# --- how long is waited


def busy(after: float) -> Transient:
    return Transient("429", code="http-429", after=after, unspent=True)


def test_a_wait_of_hours_is_told_with_its_time_and_ends_the_run_resumably(tmp_path: Path) -> None:
    calls, model = open_calls(tmp_path), Answering(lambda call: busy(25920))
    with pytest.raises(Fault, match=r"asks to wait 7 h 12 min, until \d\d:\d\d") as e:
        ask(calls, model, "a")
    assert (e.value.code, len(model.asked)) == (OUTAGE, 1)
    assert "recreate resume RUN, or the same command with --out RUN" in e.value.fix
    assert calls.ledger.spent.calls == 0


def test_a_wait_of_minutes_is_told_once_and_waited_for(tmp_path: Path) -> None:
    told: list[str] = []
    waits: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return False

    calls = open_calls(tmp_path, told=told.append, retries=3)
    calls.stop = Stop()
    model = Answering(lambda call: busy(300) if len(model.asked) < 3 else None)
    calls._paces[id(model)] = model, Unhurried()
    assert ask(calls, model, "a").text == "ok"
    assert waits == [300, 300]
    assert len({*told}) == len(told)
    assert all(re.search(r"asks to wait 5 min, until \d\d:\d\d", text) for text in told)


class Unhurried(Pace):
    """Lets each call begin at once."""

    @contextmanager
    def turn(self, stop: threading.Event) -> Iterator[Turn]:
        self.limiter._not_before = -math.inf
        with super().turn(stop) as turn:
            yield turn


def test_ten_minutes_are_waited_for_and_no_more(tmp_path: Path) -> None:
    calls, model = open_calls(tmp_path), Answering(lambda call: None)
    assert calls._wait_asked_for(model, busy(600), 600) == 600
    with pytest.raises(Fault):
        calls._wait_asked_for(model, busy(601), 601)


@pytest.mark.parametrize(("more", "reserved"), [(0, 0), (50, 50), (2**17, 2**17), (2**17 + 1, 0)])
def test_what_was_billed_beyond_what_was_asked_for_is_reserved_from_then_on(
    tmp_path: Path, more: int, reserved: int
) -> None:
    messages = [{"role": "user", "content": "hello"}]
    bound = tokens_bound(messages)
    told: list[str] = []

    class Billing(Answering):
        def reply(self, messages: object, call: Call, **params: object) -> Reply:
            return Reply(text="ok", tokens_in=bound, tokens_out=100 + more * (not call.step))

    calls, model = open_calls(tmp_path, told=told.append), Billing(lambda call: None)
    for step in range(3):
        call = Call(run="r", attempt="a", step=step, role="agent")
        calls.ask(model, FREE, messages, call, max_tokens=100)
    lines = [x for x in Log(tmp_path / "ledger.jsonl").read() if x["kind"] == "reserve"]
    assert [x["tokens"] - bound - 100 for x in lines] == [0, reserved, reserved]
    assert len(told) == bool(reserved)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(61, "2 min"), (300, "5 min"), (3600, "1 h 0 min"), (25920, "7 h 12 min")],
)
def test_a_duration_is_told_in_hours_and_minutes(seconds: float, words: str) -> None:
    assert _duration(seconds) == words


def test_what_a_model_finds_out_about_its_endpoint_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    with Stub(fault=lambda body: (400, "seed is not supported") if "seed" in body else None) as s:
        model, calls = OpenAI(f"{s.url}#m"), open_calls(tmp_path, told=told.append)
        for attempt in "ab":
            call = Call(run="r", attempt=attempt, step=0, role="agent")
            calls.ask(model, FREE, [{"role": "user", "content": "hello"}], call, seed=1)
        model.close()
    assert told == [f"{model.name} does not take seed, left out from now on"]


def test_keys_in_what_a_model_thought_are_masked() -> None:
    assert masked(Reply(text="so", reasoning=f"it is {KEY}"), {}).reasoning == "it is [redacted]"
