"""What is charged for calls that brought no answer, and what is said of it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recreate
from recreate.api.errors import Fault, OutOfBudget, Transient
from recreate.api.ports import Price
from recreate.api.types import Call, Message, Reply, Usage
from recreate.cli import run as cli
from recreate.cli.screen import Screen
from recreate.models.openai import OpenAI
from recreate.runs.budget import Budget, Ledger, Spend
from recreate.runs.calls import Calls, tokens_bound
from recreate.runs.journal import Journal
from recreate.runs.reader import Run
from recreate.storage.log import Log
from tests.stub import Stub, completion, saying
from tests.toy import Toy

ASKED: list[Message] = [{"role": "user", "content": "hello " * 200}]
BOUND = tokens_bound(ASKED)
PRICE = Price(tokens_in=1.0, tokens_out=2.0)


def call(step: int) -> Call:
    return Call(run="r", attempt="a", step=step, role="agent")


def open_calls(folder: Path, **options: Any) -> Calls:
    journal = Journal(folder)
    journal.open()
    ledger = Ledger(Log(folder / "ledger.jsonl"), options.pop("budget", Budget()))
    return Calls("r", journal, ledger, **{"backoff": 0, "retries": 3, **options})


def lost(folder: Path) -> tuple[int, int, float]:
    """What the file says, as another process reads it."""
    spend = Spend.of(Log(folder / "ledger.jsonl").read())
    usage = spend.by_role.get("lost in flight", Usage())
    return usage.calls, usage.tokens_in, usage.usd


class Losing:
    """Loses so many calls, then answers. spent: what it told of those."""

    name, price = "losing", None

    def __init__(self, times: int, spent: tuple[int, int] | None = None, **said: Any) -> None:
        self.left, self.spent, self.said = times, spent, said

    def reply(self, messages: Sequence[Message], call: Call, **params: Any) -> Reply:
        if self.left:
            self.left -= 1
            error = Transient("cut", code="reset")
            error.spent = self.spent
            raise error
        return Reply(**{"text": "ok", "tokens_in": 300, "tokens_out": 5, **self.said})

    def close(self) -> None: ...


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_try_is_charged_with_its_prompt_and_the_longest_reply(
    tmp_path: Path, times: int
) -> None:
    """The reply to the same prompt tells how many tokens that has."""
    calls = open_calls(tmp_path)
    calls.ask(Losing(times), PRICE, ASKED, call(0), max_tokens=100)
    assert lost(tmp_path) == (times, times * 400, pytest.approx(times * (300 + 2 * 100) / 1e6))
    assert calls.ledger.spent.usd == pytest.approx((times * 500 + 310) / 1e6)


@pytest.mark.parametrize("said", [{"estimated": True}, {"doubtful": True}, {"tokens_in": 10**6}])
def test_where_the_prompts_tokens_are_not_known_it_stays_charged_as_reserved(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    open_calls(tmp_path).ask(Losing(1, **said), PRICE, ASKED, call(0), max_tokens=100)
    assert lost(tmp_path) == (1, BOUND + 100, pytest.approx((BOUND + 200) / 1e6))


@pytest.mark.parametrize(
    ("spent", "charged"),
    [((20, 7), 27), ((0, 0), 0), ((10**9, 10**9), BOUND + 100)],
)
def test_what_an_endpoint_tells_of_a_lost_try_is_charged_and_never_more_than_was_reserved(
    tmp_path: Path, spent: tuple[int, int], charged: int
) -> None:
    calls = open_calls(tmp_path, retries=0)
    with pytest.raises(Fault):
        calls.ask(Losing(9, spent), PRICE, ASKED, call(0), max_tokens=100)
    assert lost(tmp_path)[1] == charged
    assert calls.ledger.spent.tokens_in == charged


def test_another_process_sees_the_same_while_the_call_is_held_and_after(tmp_path: Path) -> None:
    ours = Ledger(Log(tmp_path / "ledger.jsonl"), Budget())
    theirs = Ledger(Log(tmp_path / "ledger.jsonl"), Budget())
    ours.reserve(call(0), 1000, 0.5)
    theirs.note_time()
    assert theirs.spent.usd == 0.5
    ours.drop(call(0), unspent=False, cost=(0.125, 200))
    ours.reserve(call(0), 1000, 0.5)
    ours.drop(call(0), unspent=False)
    ours.lessen(call(0), 0.25, 600)
    theirs.note_time()
    for ledger in (ours, theirs, Ledger(Log(tmp_path / "ledger.jsonl"), Budget())):
        usage = ledger.by_role["lost in flight"]
        assert (usage.calls, usage.tokens_in, usage.usd) == (2, 600, 0.375)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400), st.booleans()), max_size=12))
def test_no_cap_is_crossed_by_what_is_taken_off(turns: list[tuple[int, int, bool]]) -> None:
    """Whatever a provider billed: each try its prompt, and at most the longest reply."""
    with tempfile.TemporaryDirectory() as folder:
        calls = open_calls(Path(folder), budget=Budget(usd=0.005))
        billed = 0.0
        try:
            for step, (times, tokens, known) in enumerate(turns):
                model = Losing(times, tokens_in=tokens, estimated=not known)
                calls.ask(model, PRICE, ASKED, call(step), max_tokens=100)
                billed += times * (tokens + 200) / 1e6 + (tokens + 10) / 1e6
                assert billed <= calls.ledger.spent.usd + 1e-12
        except OutOfBudget:
            pass
        assert calls.ledger.spent.usd <= 0.005
        calls.journal.close()
        calls.ledger.close()


WHOLE = json.dumps(
    {**completion("x" * 400), "usage": {"prompt_tokens": 20, "completion_tokens": 7}}
)


@pytest.mark.parametrize(
    ("part", "spent"),
    [
        (WHOLE[:-1], (20, 7)),
        (WHOLE[: WHOLE.index("usage") + 30], None),
        (WHOLE[:200], None),
        ("data: " + WHOLE[:-1], None),
        ('{"usage": {"prompt_tokens": -1, "completion_tokens": 1}', None),
        ('{"usage": {1}', None),
        ("", None),
    ],
)
def test_an_answer_that_is_cut_off_behind_its_usage_tells_what_it_cost(
    part: str, spent: tuple[int, int] | None
) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(WHOLE) + 9}\r\n\r\n"
    with saying((head + part).encode()) as (port, _):
        model = OpenAI(f"http://127.0.0.1:{port}/v1#m")
        with pytest.raises(Transient) as e:
            model.reply(ASKED, call(0))
        model.close()
    assert (e.value.unspent, e.value.spent) == (False, spent)


def test_how_much_is_held_for_lost_calls_is_said_wherever_spending_is_told(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = r"of it is held for \d+ calls? lost in flight"
    how: dict[str, Any] = {"models.retries": 1, "memory.embedder": "hashed", "jobs": 1}
    how |= {"price": "1,1", "budget": ("0.05usd",), "split": "train", "out": "runs/b"}
    with Stub(fault=lambda body: "cut") as stub, pytest.raises((OutOfBudget, Fault)):
        recreate.bench("seed", Toy(), model=f"openai:{stub.url}#stub", **how)
    spend = Run(workspace / "runs" / "b").spend()
    assert re.search(held, spend.unpaid), "what report.md says behind its table"
    screen = Screen()
    screen.panel = None
    screen.ledger = Ledger(Log(workspace / "runs" / "b" / "ledger.jsonl"), Budget())
    assert re.search(held, screen.tell_spent())
    screen.ledger.close()
    assert cli(["show", "runs/b"]) == 0
    assert re.search(held, capsys.readouterr().out)


def test_a_budget_that_is_used_up_says_how_much_of_it_lost_calls_hold(tmp_path: Path) -> None:
    calls = open_calls(tmp_path, budget=Budget(usd=0.003), retries=9)
    with pytest.raises(OutOfBudget, match=r"\$0\.00\d+ of it is held for \d calls? lost in flight"):
        calls.ask(Losing(9), PRICE, ASKED, call(0), max_tokens=100)
