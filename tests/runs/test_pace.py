"""A model that is busy is asked less at once, or less often, and more again as it answers."""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recreate.api.errors import Fault, Interrupted, Transient
from recreate.api.types import Call, Reply
from recreate.models.pricing import FREE
from recreate.runs.budget import Budget, Ledger
from recreate.runs.calls import Calls
from recreate.runs.journal import Journal
from recreate.runs.pace import Limiter, Pace, Turn
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
    return Calls(
        "run", journal, Ledger(Log(folder / "ledger.jsonl"), Budget()), backoff=0.01, **options
    )


def _ask(calls: Calls, model: Any, number: int) -> Reply:
    call = Call(
        run="run", attempt=f"{number:016x}", step=0, role="agent", phase="train", task="t", repeat=0
    )
    return calls.ask(model, FREE, ASKED, call)


def test_a_narrow_endpoint_gets_no_more_than_it_takes_and_no_call_is_given_up(
    tmp_path: Path,
) -> None:
    model, told = Narrow(4), list[str]()
    calls = _calls(tmp_path, retries=1, told=told.append)
    with ThreadPoolExecutor(32) as pool:
        replies = list(pool.map(lambda n: _ask(calls, model, n), range(300)))
    assert [r.text for r in replies] == ["yes"] * 300
    # some 2,100 without a limit: 32 at once, of which 28 are refused for every 4 answers
    assert model.refused < 600
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


def test_a_call_that_is_refused_while_a_rate_lets_others_through_is_not_given_up(
    tmp_path: Path,
) -> None:
    class Now(threading.Event):
        # while the first call waits another one is answered
        def wait(self, timeout: float | None = None) -> bool:
            assert _ask(calls, model, 1 + model.refused).text == "yes"
            return False

    class Sparse(Narrow):
        def reply(self, messages: Any, call: Call, **params: Any) -> Reply:
            self.refused += (turned := call.attempt == f"{0:016x}" and self.refused < 5)
            if turned:
                raise Transient("429", code="http-429", unspent=True)
            return Reply(text="yes", model=self.name)

    model, calls = Sparse(1), _calls(tmp_path, retries=1)
    calls.stop = Now()
    assert _ask(calls, model, 0).text == "yes"
    assert model.refused == 5


def test_what_got_through_of_a_burst_is_what_is_asked_at_once_from_then_on() -> None:
    pace, stop = Pace(), threading.Event()
    turns = [pace.turn(stop) for _ in range(8)]
    for n, each in enumerate(turns):
        each.__enter__().refused = Transient("429", code="http-429") if n >= 3 else None
    for each in reversed(turns):
        each.__exit__(None, None, None)
    assert pace.limiter.room == 3


def test_a_fault_that_is_not_of_being_busy_lowers_nothing() -> None:
    pace, stop = Pace(), threading.Event()
    with pace.turn(stop) as turn:
        turn.refused = Transient("reset", code="reset")
    assert pace.limiter.room == pace.limiter.rate == float("inf")
    assert pace.answered == 0


class Endpoint:
    """Takes `at_once` calls at once and `rate` a second, and from `change` on other numbers;
    without a clock."""

    def __init__(
        self,
        at_once: float = 1e9,
        rate: float = 1e9,
        *,
        change: float = 1e9,
        then_at_once: float = 1e9,
        then_rate: float = 1e9,
    ) -> None:
        self.at_once, self.rate, self.change = at_once, rate, change
        self.then = then_at_once, then_rate
        self.busy, self.recent = 0, deque[float]()

    def takes(self, now: float) -> bool:
        if now >= self.change:
            self.at_once, self.rate = self.then
        while self.recent and self.recent[0] <= now - 1:
            self.recent.popleft()
        fits = self.busy < self.at_once and len(self.recent) < self.rate
        if fits:
            self.busy += 1
            self.recent.append(now)
        return fits


def _asked(
    endpoint: Endpoint,
    reply_seconds: float,
    until: float,
    *,
    jobs: int = 16,
    after: float | None = None,
    seed: int = 0,
) -> list[tuple[float, bool]]:
    """(when, whether it was answered) of each call that ended, of so many callers who ask on and
    on."""
    limiter, chance, ended = Limiter(), random.Random(seed), list[tuple[float, bool]]()
    waiting, events, number, look, now = (
        jobs,
        list[tuple[float, int, Turn | None, bool]](),
        0,
        0.0,
        0.0,
    )

    def at(when: float, turn: Turn | None = None, fits: bool = False) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (when, number, turn, fits))

    while now < until:
        while waiting and (wait := limiter.wait(now)) == 0:
            waiting -= 1
            turn, fits = limiter.begin(now), endpoint.takes(now)
            turn.refused = None if fits else Transient("429", code="http-429", after=after)
            at(now + (reply_seconds * chance.uniform(0.5, 1.5) if fits else 0.005), turn, fits)
        if waiting and wait < 1e9 and not now < look <= now + wait:
            look = now + wait + 1e-9
            at(look)
        now, _, ending, fits = heapq.heappop(events)
        if ending is None:
            waiting += fits  # who was refused, and has waited since
            continue
        limiter.end(ending, now, answered=fits)
        ended.append((now, fits))
        endpoint.busy -= fits
        waiting += fits
        if not fits:
            at(now + (chance.uniform(0, 2) if after is None else after), fits=True)
    return ended


def _used(
    ended: list[tuple[float, bool]], since: float, until: float, capacity: float
) -> tuple[float, float]:
    """The part of so many calls a second that was answered, and of all calls those that were
    refused."""
    lot = [fits for when, fits in ended if since <= when < until]
    return sum(lot) / capacity / (until - since), 1 - sum(lot) / len(lot)


@pytest.mark.parametrize("after", [None, 1.0])
@pytest.mark.parametrize("at_once", [1, 3, 8])
def test_an_endpoint_that_takes_so_many_at_once_is_used_and_hardly_refuses(
    at_once: int, after: float | None
) -> None:
    used, refused = _used(_asked(Endpoint(at_once), 0.2, 120, after=after), 10, 120, at_once / 0.2)
    assert used >= 0.85
    assert refused <= 0.05


@pytest.mark.parametrize("after", [None, 1.0])
@pytest.mark.parametrize("reply_seconds", [0.05, 0.2])
def test_an_endpoint_that_takes_so_many_a_second_is_used_and_hardly_refuses(
    reply_seconds: float, after: float | None
) -> None:
    used, refused = _used(_asked(Endpoint(rate=10), reply_seconds, 120, after=after), 10, 120, 10)
    assert used >= 0.8
    assert refused <= 0.05


def test_an_endpoint_without_a_limit_is_asked_by_all_at_once() -> None:
    used, refused = _used(_asked(Endpoint(), 0.2, 20, jobs=64), 0, 20, 64 / 0.2)
    assert used >= 0.97
    assert refused == 0


def test_a_limit_that_is_lifted_is_noticed_in_half_a_minute() -> None:
    ended = _asked(Endpoint(3, change=60), 0.2, 100)
    assert _used(ended, 85, 100, 16 / 0.2)[0] >= 0.9
    ended = _asked(Endpoint(rate=10, change=60), 0.2, 110)
    assert _used(ended, 95, 110, 16 / 0.2)[0] >= 0.9


def test_an_endpoint_that_takes_fewer_by_now_is_not_hammered() -> None:
    used, refused = _used(
        _asked(Endpoint(8, change=60, then_at_once=3), 0.2, 180), 60, 180, 3 / 0.2
    )
    assert used >= 0.85
    assert refused <= 0.05
    used, refused = _used(_asked(Endpoint(rate=20, change=60, then_rate=5), 0.2, 180), 60, 180, 5)
    assert used >= 0.8
    assert refused <= 0.08


def test_an_endpoint_that_was_down_is_used_again_within_a_minute() -> None:
    class Down(Endpoint):
        def takes(self, now: float) -> bool:
            return not 20 <= now < 50 and super().takes(now)

    ended = _asked(Down(), 5.0, 140, jobs=64)
    assert _used(ended, 100, 140, 64 / 5.0)[0] >= 0.9
    assert _used(_asked(Down(rate=10), 0.2, 180), 90, 180, 10)[0] >= 0.8


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 15), st.floats(0.02, 2.0), st.integers(0, 999))
def test_whatever_is_taken_at_once_is_used_however_long_replies_take(
    at_once: int, seconds: float, seed: int
) -> None:
    until = 400 * seconds + 60
    used, refused = _used(
        _asked(Endpoint(at_once), seconds, until, seed=seed), until / 4, until, at_once / seconds
    )
    assert used >= 0.85
    assert refused <= 0.08
