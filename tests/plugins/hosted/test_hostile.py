"""Whatever an endpoint does, a call through litellm ends at its deadline and as a fault of it."""

from __future__ import annotations

import socket
from functools import cache
from typing import Any

import pytest

from recreate.api.errors import RecreateError, Transient
from recreate.api.types import Call
from recreate.plugins.hosted.litellm import LiteLLM
from tests.lab.faults import FREE, ODD, PAID, answering
from tests.models.test_hostile import HELLO, PRICE, ask, came
from tests.stub import Stub


def hosted(url: str) -> LiteLLM:
    import_litellm()
    return LiteLLM("openai/gpt-4o-mini", api_base=url, price=PRICE)


@cache
def import_litellm() -> None:
    """Make a first call, whose imports take longer than any deadline here."""
    with pytest.raises(Transient):
        LiteLLM("openai/gpt-4o-mini", api_base="http://127.0.0.1:9/v1", price=PRICE).reply(
            HELLO, Call(run="r", attempt="a", step=0), timeout=60.0
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_same_holds_through_litellm() -> None:
    for fault in (*PAID, *FREE):
        with answering(fault) as endpoint, pytest.raises(Transient) as e:
            ask(hosted, endpoint.url)
        assert e.value.unspent == (fault in FREE and not fault.startswith("hung up")), fault
    for usage in ODD:
        with answering(usage) as endpoint:
            told: Any = ""
            try:
                told = ask(hosted, endpoint.url).text
            except Transient as e:  # litellm refuses some of them
                told = e.unspent
            assert told in ("hello", False), usage


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_endpoint_that_nobody_listens_at_costs_nothing() -> None:
    with pytest.raises(Transient) as e:
        ask(hosted, "http://127.0.0.1:9/v1")
    assert e.value.unspent


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_question_that_nobody_reads_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(Transient) as e:
            ask(
                hosted,
                f"http://127.0.0.1:{listener.getsockname()[1]}/v1",
                stop=["x" * 20_000_000],
            )
        assert e.value.code == "timeout"
        # a busy machine may take longer than the deadline to write the question down, which then
        # costs nothing
        assert not (e.value.unspent and came(listener))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_redirect_is_not_followed() -> None:
    with Stub("elsewhere") as other:
        moved = (302, "", {"Location": f"{other.url}/chat/completions"})
        with Stub(fault=lambda body: moved) as stub, pytest.raises(RecreateError):
            ask(hosted, stub.url)
