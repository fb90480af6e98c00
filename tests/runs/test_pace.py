"""A model that is busy is asked less at once, and more again as it answers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.errors import Fault, Interrupted, Transient
from recreate.api.types import Call, Reply
from recreate.models.pricing import FREE
from recreate.runs.budget import Budget, Ledger
from recreate.runs.calls import Calls
from recreate.runs.journal import Journal
from recreate.runs.pace import Pace, faster, slower
from recreate.storage.log import Log

ASKED = [{"role": "user", "content": "hello"}]


class Narrow:
    """Answers so many calls at once and turns the others away."""

    name, price, override = "narrow", FREE, {}

    def __init__(self, wide: int, *, after: float | None = None) -> None:
        self.wide, self.after = wide, after
        self.lock, self.now, self.most, self.refused = threading.Lock(), 0, 0, 0

    def reply(self, messages: Any, call: Call, **params: Any) -> Reply:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            fits = self.now <= self.wide
            self.refused += not fits
        try:
            time.sleep(0.005)
            if not fits:
                raise Transient("429", code="http-429", after=self.after, unspent=True)
            return Reply(text="yes", model=self.name)
        finally:
            with self.lock:
                self.now -= 1

    def close(self) -> None: ...


def _calls(folder: Path, **options: Any) -> Calls:
    journal = Journal(folder)
    journal.open()
    return Calls("run", journal, Ledger(Log(folder / "ledger.jsonl"), Budget()), backoff=0.01, **options)


def _ask(calls: Calls, model: Any, number: int) -> Reply:
    call = Call(run="run", attempt=f"{number:016x}", step=0, role="agent", phase="train", task="t", repeat=0)
    return calls.ask(model, FREE, ASKED, call)


def test_a_narrow_endpoint_gets_no_more_than_it_takes_and_no_call_is_given_up(tmp_path: Path) -> None:
    model, told = Narrow(4), list[str]()
    calls = _calls(tmp_path, retries=1, told=told.append)
    with ThreadPoolExecutor(32) as pool:
        replies = list(pool.map(lambda n: _ask(calls, model, n), range(300)))
    assert [r.text for r in replies] == ["yes"] * 300
    assert model.refused < 600  # some 2,100 without a limit: 32 at once, of which 28 are refused for every 4 answers
    assert told
    assert all("narrow is busy" in text for text in told)
    assert len(told) == len({*told}), "each limit is told once, and not for each refusal"


def test_a_model_that_answers_nobody_ends_the_call_after_its_retries(tmp_path: Path) -> None:
    model = Narrow(0)
    with pytest.raises(Fault, match="tried 3 times") as error:
        _ask(_calls(tmp_path, retries=2), model, 0)
    assert error.value.code == "http-429"
    assert model.refused == 3


def test_a_refusal_while_another_call_is_under_way_is_no_failed_try(tmp_path: Path) -> None:
    refused = threading.Event()

    class OneAtOnce(Narrow):
        def reply(self, messages: Any, call: Call, **params: Any) -> Reply:
            if call.attempt == f"{0:016x}":  # not answered before the other was turned away
                under_way.set()
                assert refused.wait(30)
                return Reply(text="first", model=self.name)
            if not refused.is_set():
                refused.set()
                raise Transient("429", code="http-429", unspent=True)
            return Reply(text="second", model=self.name)

    under_way, model, calls = threading.Event(), OneAtOnce(1), _calls(tmp_path, retries=0)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(_ask, calls, model, 0)
        assert under_way.wait(30)
        assert (_ask(calls, model, 1).text, first.result().text) == ("second", "first")


def test_what_a_model_asks_for_holds_back_every_call_to_it() -> None:
    pace, stop = Pace(), threading.Event()
    with pace.turn(stop) as turn:
        turn.refused = Transient("429", code="http-429", after=30.0)
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(Interrupted), pace.turn(stop):
        raise AssertionError("nobody may ask now")


def test_calls_of_one_burst_lower_the_limit_once() -> None:
    pace, stop = Pace(), threading.Event()
    turns = [pace.turn(stop) for _ in range(8)]
    for each in turns:
        each.__enter__().refused = Transient("429", code="http-429")
    for each in turns:
        each.__exit__(None, None, None)
    assert pace.limit == 4


def test_a_fault_that_is_not_of_being_busy_lowers_nothing() -> None:
    pace, stop = Pace(), threading.Event()
    with pace.turn(stop) as turn:
        turn.refused = Transient("reset", code="reset")
    assert pace.limit == float("inf")
    assert pace.answered == 0


@given(st.floats(1, 256), st.integers(1, 2000))
def test_the_limit_grows_by_about_one_for_as_many_answers_as_it_lets_through(limit: float, answers: int) -> None:
    found = limit
    for _ in range(answers):
        assert faster(found) > found
        found = faster(found)
    assert found**2 - limit**2 == pytest.approx(2 * answers, rel=1.1)  # d(limit)/dn = 1/limit
    assert 1 <= slower(found) < found or found < 2
