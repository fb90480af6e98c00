"""Whatever an endpoint does, a call ends at its deadline, in bounded memory, and as a fault of the
model."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from recreate.api.errors import RecreateError, Transient
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply
from recreate.models import http
from recreate.models.openai import OpenAI
from tests.lab.faults import FREE, ODD, OK, PAID, SLOW, Behaviour, answering
from tests.stub import Stub

PRICE = Price(tokens_in=1, tokens_out=1)
HELLO: list[Message] = [{"role": "user", "content": "hello"}]
Make = Callable[[str], Any]
DEADLINE = 0.4
LATE = 15.0
"""Seconds: no machine is so busy, and what has no deadline takes a minute."""


def ask(make: Make, url: str, timeout: float = DEADLINE, **params: Any) -> Reply:
    model = make(url)
    begun = time.monotonic()
    try:
        reply: Reply = model.reply(
            HELLO, Call(run="r", attempt="a", step=0), timeout=timeout, max_tokens=100, **params
        )
        return reply
    finally:
        assert time.monotonic() - begun < LATE
        model.close()


def own(url: str) -> OpenAI:
    return OpenAI(f"{url}#m", price=PRICE)


@pytest.mark.parametrize("fault", [*PAID, *FREE])
def test_a_fault_of_an_endpoint_ends_the_call_in_time_and_says_whether_it_may_be_paid(
    fault: str,
) -> None:
    with answering(fault) as endpoint, pytest.raises(Transient) as e:
        ask(own, endpoint.url)
    # one that hung up before it read the question cannot be told from one that hung up later
    assert e.value.unspent == (fault in FREE and not fault.startswith("hung up"))
    if fault in SLOW:
        assert e.value.code in ("timeout", "too-large")


@pytest.mark.parametrize("usage", ODD)
def test_token_counts_that_cannot_be_are_doubted_and_the_answer_is_kept(usage: str) -> None:
    with answering(usage) as endpoint:
        reply = ask(own, endpoint.url)
    assert reply.text == "hello"
    assert reply.doubtful or reply.tokens_in == 10**9


def test_an_endpoint_that_nobody_listens_at_costs_nothing() -> None:
    with pytest.raises(Transient) as e:
        ask(own, "http://127.0.0.1:9/v1")
    assert e.value.unspent


def endless(first: bytes, again: bytes) -> tuple[Behaviour, list[int]]:
    sent = [0]

    def answer(wire: Any, body: bytes) -> None:
        wire.sendall(first)
        while sent[0] < 40 * http.MAX_ANSWER:
            wire.sendall(again)
            sent[0] += len(again)

    return answer, sent


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"4000\r\n" + b" " * 0x4000 + b"\r\n"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1;%s\r\nx\r\n" % (b"a" * 4000)),
        (OK + b"Connection: close\r\n\r\n", b" " * 0x4000),
        (OK, b"X: %s\r\n" % (b"y" * 4000)),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        (b"HTTP/1.1 ", b"2" * 4000),
    ],
)
def test_no_more_is_read_than_an_answer_may_have(
    first: bytes, again: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, sent = endless(first, again)
    monkeypatch.setitem(PAID, "endless", answer)
    with answering("endless") as endpoint:
        with pytest.raises(Transient) as e:
            own(endpoint.url).reply(
                HELLO, Call(run="r", attempt="a", step=0), timeout=60, max_tokens=100
            )
        assert e.value.code in ("too-large", "reset")
        assert sent[0] < 2 * http.MAX_ANSWER  # what the sockets' buffers hold is sent besides


def test_a_question_that_nobody_reads_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(Transient) as e:
            ask(
                own,
                f"http://127.0.0.1:{listener.getsockname()[1]}/v1",
                stop=["x" * 20_000_000],
            )
        assert e.value.code == "timeout"
        # a busy machine may take longer than the deadline to write the question down, which then
        # costs nothing
        assert not (e.value.unspent and came(listener))


def test_a_deadline_that_passed_while_the_question_was_written_is_a_timeout_that_cost_nothing() -> (
    None
):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(Transient) as e:
            ask(own, f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=1e-9)
        assert (e.value.code, e.value.unspent) == ("timeout", True)
        assert not came(listener)


def came(listener: socket.socket) -> bool:
    """Whether a byte of a question reached a listener that accepts nobody."""
    listener.settimeout(0.0)
    try:
        with listener.accept()[0] as wire:
            wire.settimeout(5.0)
            return bool(wire.recv(1))
    except BlockingIOError:
        return False


def test_giving_way_to_an_endpoint_takes_no_further_deadlines() -> None:
    refused = [
        (400, json.dumps({"error": {"message": "no", "param": name}}))
        for name in ("seed", "stop", "top_p")
    ]
    with Stub(faults=refused, delay=0.25) as stub, pytest.raises(Transient) as e:
        ask(own, stub.url, seed=1, stop=["x"], top_p=0.5)
    assert e.value.code == "timeout"
    assert stub.count <= 2


def test_a_redirect_is_not_followed() -> None:
    with Stub("elsewhere") as other:
        moved = (302, "", {"Location": f"{other.url}/chat/completions"})
        with Stub(fault=lambda body: moved) as stub, pytest.raises(RecreateError):
            ask(own, stub.url)
        assert other.count == 0


def test_a_connection_that_is_closed_as_it_is_asked_is_not_asked_again_behind_the_budget() -> None:
    """The endpoint may have worked on the question: only the caller may ask again, and pay for
    it."""
    with Stub(faults=[None, "reset", None]) as stub:
        model = own(stub.url)
        assert model.reply(HELLO, Call(run="r", attempt="a", step=0)).text == "ok"
        with pytest.raises(Transient) as e:
            model.reply(HELLO, Call(run="r", attempt="a", step=1))
        assert not e.value.unspent
        assert stub.calls == ["r/a/0", "r/a/1"]
        model.close()
