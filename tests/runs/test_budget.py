"""The cap is never crossed, whoever asks, however many at once."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.agents.trajectory import tell
from recreate.api.errors import BadInput, Fault, OutOfBudget
from recreate.api.ports import Price
from recreate.api.types import (
    Call,
    Experience,
    Grade,
    Message,
    Reply,
    Split,
    ToolCall,
    Trace,
    Usage,
    canary,
)
from recreate.models.replies import Answerer, ModelQuestion
from recreate.models.scripted import Scripted
from recreate.optimizers.investigator.read_tools import outcome
from recreate.runs import budget, settings
from recreate.runs.budget import Budget, Ledger, Spend, unwritten
from recreate.runs.calls import Calls, tokens_bound
from recreate.runs.journal import Journal
from recreate.runs.reader import Run
from recreate.runs.replay import Replay
from recreate.runs.settings import settings_text
from recreate.storage.log import Log


def call(step: int, role: str = "agent") -> Call:
    return Call(run="r", attempt="a", step=step, role=role)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("5usd", "usd", 5.0),
        ("$0.5usd", "usd", 0.5),
        ("30min", "minutes", 30.0),
        ("200attempts", "attempts", 200),
        ("2Mtokens", "tokens", 2_000_000),
        ("1.5ktokens", "tokens", 1500),
        ("1attempt", "attempts", 1),
        ("1000000Gtokens", "tokens", 10**15),
    ],
)
def test_budgets_are_written_as_a_number_and_a_unit(text: str, name: str, value: float) -> None:
    assert getattr(Budget.parse([text]), name) == value


@pytest.mark.parametrize("text", ["5", "usd", "-3usd", "0usd", "5 euros", "", "1e9tokens"])
def test_a_budget_that_cannot_be_read_says_how_to_write_one(text: str) -> None:
    with pytest.raises(BadInput) as e:
        Budget.parse([text])
    assert "5usd" in e.value.fix or "above 0" in e.value.fix


def test_of_several_caps_of_a_kind_the_smallest_holds_and_all_of_them_are_told() -> None:
    for texts in (
        ["5usd", "3usd", "30min", "9attempts", "2Mtokens"],
        ["3usd", "5usd", "2Gtokens", "2Mtokens"],
    ):
        assert (Budget.parse(texts).usd, Budget.parse(texts).tokens) == (3, 2_000_000)
    assert (
        str(Budget.parse(["5usd", "30min", "9attempts", "2Mtokens"]))
        == "$5 or 30 min or 9 attempts or 2,000,000 tokens"
    )
    assert str(Budget()) == "no cap"


def test_a_cap_that_nothing_can_reach_is_refused() -> None:
    with pytest.raises(BadInput, match="no cap"):
        Budget.parse(["1000000000000001tokens"])


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 400)), max_size=30),
    st.integers(100, 2000),
)
@pytest.mark.slow
def test_spent_plus_reserved_never_passes_the_cap(calls: list[tuple[int, int]], cap: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Log(Path(folder) / "l.jsonl"), Budget(tokens=cap))
        for step, (bound, used) in enumerate(calls):
            try:
                ledger.reserve(call(step), bound, 0.0)
            except OutOfBudget:
                continue
            ledger.settle(call(step), Usage(calls=1, tokens_in=min(used, bound)))
            assert ledger.spent.tokens_in <= cap
        ledger.close()


def test_many_threads_and_roles_stay_under_one_cap(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.open()
    ledger = Ledger(Log(tmp_path / "ledger.jsonl"), Budget(usd=0.01))
    calls = Calls("r", journal, ledger, backoff=0)
    price = Price(tokens_in=1.0, tokens_out=10.0)
    model = Scripted.of([{"text": "x" * 400, "delay_ms": 1}])
    stopped = []

    def work(n: int) -> None:
        try:
            for step in range(100):
                calls.ask(
                    model,
                    price,
                    [{"role": "user", "content": "hello " * 20}],
                    Call(run="r", attempt=f"a{n}", step=step, role=f"role{n % 3}"),
                    max_tokens=100,
                )
        except OutOfBudget:
            stopped.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert stopped == sorted(stopped) or len(stopped) == 8
    assert 0.005 < ledger.spent.usd <= 0.01
    assert sum(u.usd for u in ledger.by_role.values()) == pytest.approx(ledger.spent.usd)


def test_a_model_that_answers_at_more_length_than_it_was_asked_for_is_reserved_for(
    tmp_path: Path,
) -> None:
    """A recipe's max_response goes before the scaffold's max_tokens, in the bound too."""

    class Long(Scripted):
        name = "long"

        override: ClassVar = {"max_tokens": 500}

        def reply(self, messages: Any, call: Call, **params: Any) -> Reply:
            return Reply(text="x", model="m", tokens_in=5, tokens_out=params["max_tokens"])

    ledger = Ledger(Log(tmp_path / "ledger.jsonl"), Budget(tokens=300))
    journal = Journal(tmp_path)
    journal.open()
    with pytest.raises(OutOfBudget):
        Calls("r", journal, ledger).ask(
            Long.__new__(Long), Price(), [Message(role="user", content="a")], call(0), max_tokens=8
        )
    assert ledger.spent.tokens_out == 0
    journal.close()
    ledger.close()


def test_tokens_of_prompts_and_of_replies_are_under_one_cap(tmp_path: Path) -> None:
    ledger = Ledger(Log(tmp_path / "l.jsonl"), Budget(tokens=100))
    ledger.reserve(call(0), 100, 0.0)
    ledger.settle(call(0), Usage(calls=1, tokens_in=30, tokens_out=40))
    with pytest.raises(OutOfBudget, match="70 tokens spent, up to 31 more needed"):
        ledger.reserve(call(1), 31, 0.0)
    ledger.reserve(call(1), 30, 0.0)
    ledger.close()


def test_a_call_waits_for_those_in_flight_when_they_may_leave_enough(tmp_path: Path) -> None:
    for caps, bound in ((Budget(usd=1.0), (1, 0.6)), (Budget(tokens=100), (60, 0.0))):
        ledger = Ledger(Log(tmp_path / f"{caps}.jsonl".replace(" ", "-")), caps)
        ledger.reserve(call(0), *bound)
        waiting = threading.Thread(target=ledger.reserve, args=(call(1), *bound), daemon=True)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        ledger.drop(call(0), unspent=True)
        waiting.join(30)
        assert not waiting.is_alive()
        ledger.close()


def test_a_ledger_that_is_stopped_while_it_reads_leaves_the_file_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Ledger(Log(tmp_path / "l.jsonl"), Budget()) for _ in range(2))
    one.begin("a")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Spend, "take_all", stopped)
        with pytest.raises(KeyboardInterrupt):
            other.begin("b")
    with (tmp_path / "l.jsonl").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    other.begin("a")
    assert other.attempts == 1


def test_sessions_are_counted_from_1_and_a_closed_one_writes_no_more(tmp_path: Path) -> None:
    for session in (1, 2):
        ledger = Ledger(Log(tmp_path / "l.jsonl"), Budget())
        assert ledger.session == session
        ledger.close()
        size = (tmp_path / "l.jsonl").stat().st_size
        ledger.close()
        ledger.note_time()
        assert (tmp_path / "l.jsonl").stat().st_size == size
    assert [line["session"] for line in Log(tmp_path / "l.jsonl").read()] == [1, 1, 2, 2]
    assert Spend().sessions == 0


def test_a_reservation_lost_in_a_kill_stays_charged(tmp_path: Path) -> None:
    ledger = Ledger(Log(tmp_path / "l.jsonl"), Budget(usd=1.0))
    ledger.reserve(call(0), 100, 0.6)
    again = Ledger(Log(tmp_path / "l.jsonl"), Budget(usd=1.0))
    assert again.spent.usd == 0.6
    with pytest.raises(OutOfBudget):
        again.reserve(call(1), 100, 0.5)


def test_a_report_shows_the_figures_under_which_the_cap_is_held(workspace: Path) -> None:
    folder = workspace / "runs" / "killed"
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(settings_text(settings.load(workspace, {}, {})))
    file = Log(folder / "ledger.jsonl")
    ledger = Ledger(file, Budget())
    ledger.reserve(call(0), 100, 0.6)
    ledger.settle(call(0), Usage(calls=1, tokens_in=10, usd=0.25))
    ledger.reserve(call(1), 100, 0.5)  # and the process was killed
    for paid in (0.25 + 0.5, 0.25 + 0.5 + 0.125):
        ledger = Ledger(file, Budget())
        seen = Run(folder).spend()
        assert (seen.total, seen.by_role, seen.attempts) == (
            ledger.spent,
            ledger.by_role,
            ledger.attempts,
        )
        assert seen.record()["usd"] == pytest.approx(paid)
        assert seen.by_role["lost in flight"] == Usage(calls=1, tokens_in=100, usd=0.5)
        # a resumed run asks again: what was lost may have been paid all the same
        ledger.reserve(call(1), 100, 0.5)
        ledger.settle(call(1), Usage(calls=1, tokens_in=5, usd=0.125))


def test_a_run_that_is_read_while_it_goes_on_tells_what_it_spent_by_now(workspace: Path) -> None:
    folder = workspace / "runs" / "live"
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(settings_text(settings.load(workspace, {}, {})))
    seen = Run(folder)
    assert seen.spend().total == Usage()
    ledger = Ledger(Log(folder / "ledger.jsonl"), Budget())
    for calls in (1, 2):
        ledger.reserve(call(calls), 100, 0.5)
        ledger.settle(call(calls), Usage(calls=1, usd=0.25))
        assert (seen.spend().total.calls, seen.spend().usd) == (calls, 0.25 * calls)


def killed(ledger: Ledger) -> None:
    """As a kill leaves it: nothing more is written."""
    ledger._closed.set()


def test_what_each_killed_session_had_in_flight_stays_charged_when_the_call_is_paid_later(
    tmp_path: Path,
) -> None:
    for session in range(6):
        ledger = Ledger(Log(tmp_path / "l.jsonl"), Budget(usd=1.0))
        if session < 5:
            ledger.reserve(call(0), 100, 0.15)
            killed(ledger)
    assert ledger.spent.usd == pytest.approx(0.75)
    ledger.reserve(call(0), 100, 0.15)
    ledger.settle(call(0), Usage(calls=1, tokens_in=10, usd=0.05))
    for spent in (ledger.spent, Ledger(Log(tmp_path / "l.jsonl"), Budget()).spent):
        assert (spent.usd, spent.calls, spent.tokens_in) == (pytest.approx(0.8), 6, 510)
    with pytest.raises(OutOfBudget):
        ledger.reserve(call(1), 100, 0.25)


def test_a_call_that_is_reserved_again_without_a_word_of_the_first_time_is_charged_for_both(
    tmp_path: Path,
) -> None:
    ledger = Ledger(Log(tmp_path / "l.jsonl"), Budget())
    for _ in range(2):
        ledger.reserve(call(0), 100, 0.25)
    ledger.settle(call(0), Usage(calls=1, tokens_in=10, usd=0.125))
    for spent in (ledger.spent, Spend.of(Log(tmp_path / "l.jsonl").read()).total):
        assert (spent.usd, spent.tokens_in, spent.calls) == (0.375, 110, 2)


def test_two_processes_hold_one_cap_and_what_one_settles_is_free_for_the_other(
    tmp_path: Path,
) -> None:
    one, two = (Ledger(Log(tmp_path / "l.jsonl"), Budget(tokens=1000)) for _ in range(2))
    one.reserve(call(0), 800, 0.0)
    with pytest.raises(OutOfBudget):  # it cannot know whether the other is alive
        two.reserve(call(1), 300, 0.0)
    one.settle(call(0), Usage(calls=1, tokens_in=100))
    two.reserve(call(1), 300, 0.0)
    two.drop(call(1), unspent=False)
    one.reserve(call(0), 600, 0.0)
    one.drop(call(0), unspent=True)
    for ledger in (one, two):
        ledger.begin("a")  # each looks at what the other wrote
        assert (ledger.spent.tokens_in, ledger.spent.calls, ledger.attempts) == (400, 2, 1)
        lost = Usage(calls=1, tokens_in=300)
        assert ledger.by_role == {"agent": Usage(calls=1, tokens_in=100), "lost in flight": lost}


def test_the_minutes_of_killed_sessions_count_towards_the_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: now[0])
    path = tmp_path / "l.jsonl"
    first = Ledger(Log(path), Budget(minutes=10))
    now[0] += 4 * 60
    first.note_time()  # as it does every few seconds
    now[0] += 2
    killed(first)
    second = Ledger(Log(path), Budget(minutes=10))
    now[0] += 3 * 60
    second.begin("a")
    with second.unclocked():
        now[0] += 60 * 60
        assert second.minutes == pytest.approx(7)
    assert (second.minutes, Spend.of(Log(path).read()).minutes) == (
        pytest.approx(7),
        pytest.approx(7),
    )
    second.close()
    third = Ledger(Log(path), Budget(minutes=10))
    assert third.minutes == pytest.approx(7)
    now[0] += 3 * 60 + 1
    for late in (lambda: third.begin("b"), lambda: third.reserve(call(0), 1, 0.0)):
        with pytest.raises(OutOfBudget, match="10 minutes"):
            late()


def test_a_session_notes_its_time_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "NOTE_SECONDS", 0.01)
    ledger = Ledger(Log(tmp_path / "l.jsonl"), Budget())
    for _ in range(1000):
        if any(line["kind"] == "clock" for line in Log(tmp_path / "l.jsonl").read()):
            break
        threading.Event().wait(0.01)
    else:
        raise AssertionError("nothing was noted")
    ledger.close()


class Telling:
    """A model whose answers say of themselves what they like."""

    name, price = "telling", None

    def __init__(self, **said: Any) -> None:
        self.said = said

    def reply(self, messages: object, call: Call, **params: object) -> Reply:
        return Reply(**{"text": "ok", "tokens_in": 5, "tokens_out": 5, **self.said})

    def close(self) -> None: ...


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "said",
    [
        {"tokens_in": -5},
        {"tokens_out": -(10**9)},
        {"tokens_in": 10**9, "tokens_out": 10**300},
        {"doubtful": True},
        {"usd": NAN, "doubtful": True},
    ],
)
def test_counts_that_cannot_be_are_charged_within_what_was_reserved_and_counted(
    desk: Calls, said: dict[str, Any], tmp_path: Path
) -> None:
    message: list[Message] = [{"role": "user", "content": "x"}]
    bound = tokens_bound(message)
    desk.ask(Telling(**said), Price(tokens_in=1.0, tokens_out=2.0), message, call(0), max_tokens=10)
    spent = desk.ledger.spent
    assert 0 < spent.tokens_in <= bound
    assert 0 < spent.tokens_out <= 10
    assert spent.tokens_in + spent.tokens_out >= min(bound, 10)
    assert spent.usd == pytest.approx((spent.tokens_in + 2 * spent.tokens_out) / 1e6)
    assert Spend.of(Log(tmp_path / "ledger.jsonl").read()).record()["doubtful"] == 1


def test_a_replay_counts_for_a_reply_with_odd_counts_what_was_charged_then(
    desk: Calls, tmp_path: Path
) -> None:
    message: list[Message] = [{"role": "user", "content": "x" * 300}]
    price = Price(tokens_in=1.0, tokens_out=2.0)
    who = {"agent": Answerer(name="telling", price=price).model_dump()}
    desk.journal.add("start", run="r", models=who)
    paid = desk.ask(Telling(tokens_in=7, tokens_out=10**6), price, message, call(0), max_tokens=10)
    (tmp_path / "again").mkdir()
    journal = Journal(tmp_path / "again")
    journal.open()
    later = Calls("r", journal, Ledger(Log(tmp_path / "again" / "ledger.jsonl"), Budget()))
    model = Replay(tmp_path).open_models()[0]
    again = later.ask(model, price, message, call(0), max_tokens=10)
    assert (paid.tokens_in, paid.tokens_out, paid.doubtful) == (7, 10, True)
    assert again == paid
    assert later.ledger.spent == desk.ledger.spent


def test_dollars_that_a_free_model_tells_are_numbers_from_0(desk: Calls) -> None:
    for step, usd in enumerate((NAN, INF, -3.0, 0.5)):
        desk.ask(Telling(usd=usd), Price(), [{"role": "user", "content": "x"}], call(step))
    assert desk.ledger.spent.usd == 0.5


def test_a_reply_longer_than_its_tokens_is_cut_before_it_is_sent_again(desk: Calls) -> None:
    many = tuple(ToolCall(id=str(n), name="look") for n in range(10_000))
    reply = desk.ask(
        Telling(text="[" * 5_000_000, tool_calls=many), Price(), [], call(0), max_tokens=100
    )
    assert (len(reply.text), len(reply.tool_calls), reply.doubtful) == (10_100, 64, True)


def test_tokens_that_were_cached_have_their_own_price_and_a_place_in_the_ledger(
    desk: Calls, tmp_path: Path
) -> None:
    price = Price(tokens_in=5.0, tokens_out=25.0, cached=0.5, cache_written=6.25)
    model = Telling(tokens_in=100, tokens_out=10, tokens_cached=60, tokens_cache_written=30)
    message: list[Message] = [{"role": "user", "content": "x" * 100}]
    desk.ask(model, price, message, call(0), max_tokens=10)
    assert desk.ledger.spent.usd == pytest.approx((10 * 5 + 60 * 0.5 + 30 * 6.25 + 10 * 25) / 1e6)
    usage = Spend.of(Log(tmp_path / "ledger.jsonl").read()).total
    assert (usage.tokens_cached, usage.tokens_cache_written) == (60, 30)
    reserved = next(
        line for line in Log(tmp_path / "ledger.jsonl").read() if line["kind"] == "reserve"
    )
    # all might be put by
    assert reserved["usd"] == pytest.approx((tokens_bound(message) * 6.25 + 10 * 25) / 1e6)


def test_attempts_are_counted_once_over_resumes(tmp_path: Path) -> None:
    ledger = Ledger(Log(tmp_path / "l.jsonl"), Budget(attempts=2))
    ledger.begin("a")
    ledger.begin("a")
    again = Ledger(Log(tmp_path / "l.jsonl"), Budget(attempts=2))
    again.begin("a")
    again.begin("b")
    with pytest.raises(OutOfBudget):
        again.begin("c")


def test_what_is_started_fits_into_the_attempts_that_are_left(tmp_path: Path) -> None:
    ledger = Ledger(Log(tmp_path / "l.jsonl"), Budget(attempts=3))
    ledger.begin("a")
    ledger.afford(2)
    with pytest.raises(OutOfBudget, match="2 attempts are left; judging this candidate takes 3"):
        ledger.afford(3)
    Ledger(Log(tmp_path / "l.jsonl"), Budget()).afford(1000)


def test_a_process_that_forgets_its_ledger_ends(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from recreate.storage.log import Log\n"
    code += (
        "from recreate.runs.budget import Budget, Ledger\nkept = Ledger(Log(Path(sys.argv[1])),"
        " Budget())\n"
    )
    code += "kept.begin('a')\n"
    subprocess.run([sys.executable, "-c", code, tmp_path / "l.jsonl"], check=True, timeout=60)
    assert Ledger(Log(tmp_path / "l.jsonl"), Budget()).has_begun("a")


def test_a_report_tells_millionths_of_a_dollar(tmp_path: Path) -> None:
    ledger = Ledger(Log(tmp_path / "l.jsonl"), Budget())
    ledger.reserve(call(0), 100, 1.0)
    ledger.settle(call(0), Usage(calls=1, tokens_in=7, tokens_out=5, usd=0.0001234))
    ledger.close()
    report = Spend.of(Log(tmp_path / "l.jsonl").read()).record()
    row = {"usd": 0.000123, "tokens_in": 7, "tokens_out": 5, "calls": 1}
    assert {k: report[k] for k in row} == report["by_role"]["agent"] == row
    assert (list(report["by_role"]), report["doubtful"]) == (["agent"], 0)


def test_a_reply_that_the_ledger_lacks_is_put_back_into_the_session_that_reserved_it() -> None:
    reserves = [
        {"kind": "reserve", "call": name, "usd": 0.0, "tokens": 9} for name in ("old", "numbered")
    ]
    reserves[1]["session"] = 3
    reply = Reply(text="x", model="m", tokens_in=5, tokens_out=2).model_dump(mode="json")
    journal = [
        {"kind": "reply", "call": name, "reply": reply} for name in ("old", "numbered", "unknown")
    ]
    lines = unwritten(reserves, journal)
    assert [(line["call"], line["session"], line["usage"]["tokens_in"]) for line in lines] == [
        ("old", 0, 5),
        ("numbered", 3, 5),
        ("unknown", 0, 5),
    ]
    assert unwritten([*reserves, *lines], journal) == []
    assert unwritten([], [{"kind": "reply", "call": "none", "reply": {"tokens_in": "many"}}]) == []
    seen = [
        {"kind": kind, "attempt": name}
        for kind, name in (("experience", "a"), ("aside", "b"), ("aside", "b"))
    ]
    begun = [{"kind": "attempt", "session": 0, "attempt": name} for name in "ab"]
    assert unwritten([], seen) == begun
    assert unwritten(begun[:1], [*seen, {"kind": "other", "attempt": "c"}]) == begun[1:]


@given(st.text())
def test_the_bound_on_prompt_tokens_counts_every_byte(text: str) -> None:
    assert tokens_bound([{"role": "user", "content": text}]) >= len(
        text.encode("utf-8", "surrogatepass")
    )


@given(st.text(), st.text(), st.text(), st.sampled_from([None, "", "text é"]))
def test_the_bound_counts_tool_calls_and_tools_as_json(
    name: str, arguments: str, about: str, said: str | None
) -> None:
    function = {"name": name, "arguments": json.dumps({"x": arguments}, ensure_ascii=False)}
    messages: list[Any] = [
        {
            "role": "assistant",
            "content": said,
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": about, "tool_call_id": "1"},
    ]
    tools = [
        {
            "type": "function",
            "function": {"name": name, "description": about, "parameters": {"type": "object"}},
        }
    ]
    called = {"name": name, "arguments": {"x": arguments}}
    shown = [json.dumps(value, ensure_ascii=False) for value in (called, tools)]
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in (*shown, said or "", about))
    assert tokens_bound(messages, tools) >= size
    assert tokens_bound([{"role": "assistant", "tool_calls": []}]) > 0  # type: ignore[typeddict-item]


def test_a_request_is_another_when_any_message_or_its_tools_are() -> None:
    def check(
        first: str = "a",
        last: str = "b",
        id: str = "2",
        arguments: str = "{}",
        tools: Any = None,
        system: str = "s",
        task: str = "go",
    ) -> str:
        calls = [
            {"id": str(n), "type": "function", "function": {"name": "f", "arguments": arguments}}
            for n in (1, 2)
        ]
        messages: list[Message] = [
            {"role": "system", "content": system},
            {"role": "user", "content": task},
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "content": first, "tool_call_id": "1"},
            {"role": "tool", "content": last, "tool_call_id": id},
        ]
        params = {"tools": tools} if tools else {}
        return ModelQuestion("m", messages, params, call(0)).digest

    changes: list[dict[str, Any]] = [
        {"first": "x"},
        {"last": "x"},
        {"id": "3"},
        {"arguments": '{"a": 1}'},
        {"tools": [{"type": "function"}]},
        {"system": "x"},
        {"task": "x"},
    ]
    assert check() == check()
    assert len({check(), *(check(**change) for change in changes)}) == 8


def test_a_reply_to_another_system_message_is_asked_for_anew(desk: Calls) -> None:
    """A study that goes on after its prompt was changed does not mix the old one with the new."""
    model = Flaky(0)
    for system in ("you study", "you study", "you study well"):
        messages: list[Message] = [
            {"role": "system", "content": system},
            {"role": "user", "content": "attempt 3"},
        ]
        desk.ask(model, Price(), messages, call(0), seed=1)
    assert model.asked == 2


class Flaky:
    """Fails so many times, then answers."""

    name, price = "flaky", None

    def __init__(self, times: int, unspent: bool = False) -> None:
        self.left, self.asked, self.unspent = times, 0, unspent

    def reply(self, messages: object, call: Call, **params: object) -> Reply:
        from recreate.api.errors import Transient

        self.asked += 1
        if self.left:
            self.left -= 1
            raise Transient("the server is busy", after=0.0, unspent=self.unspent)
        return Reply(text="ok", tokens_in=1, tokens_out=1)

    def close(self) -> None: ...


@pytest.fixture
def desk(tmp_path: Path) -> Calls:
    journal = Journal(tmp_path)
    journal.open()
    return Calls("r", journal, Ledger(Log(tmp_path / "ledger.jsonl"), Budget()), backoff=0)


LISTED = "-rw-r--r-- 1 agent agent 404 Nov 27 {} attempt.json\n1 failed, 3 passed in {}s"


def test_a_reply_is_not_paid_again_where_what_a_command_prints_only_wavers(desk: Calls) -> None:
    """An attempt or study that was killed runs its commands again: times differ then, and no reply
    may get lost."""
    model, said = (
        Flaky(0),
        [LISTED.format("07:36", "0.31"), LISTED.format("09:31", "12.02"), "9 failed", "8 failed"],
    )
    for printed in said[:2]:
        desk.ask(
            model,
            Price(),
            [{"role": "tool", "content": printed, "tool_call_id": "1"}],
            call(0),
            seed=1,
        )
    assert model.asked == 1
    desk.journal.close()
    again = Journal(desk.journal.folder)
    again.open()
    desk = Calls("r", again, desk.ledger, backoff=0)
    desk.ask(
        model, Price(), [{"role": "tool", "content": said[1], "tool_call_id": "1"}], call(0), seed=1
    )
    assert model.asked == 1
    for n, printed in enumerate([*said[2:], said[1]], 2):
        desk.ask(
            model,
            Price(),
            [{"role": "tool", "content": printed, "tool_call_id": "1"}],
            call(0),
            seed=1,
        )
        assert model.asked == n, "what is another request is asked"
    desk.ask(
        model, Price(), [{"role": "tool", "content": said[1], "tool_call_id": "2"}], call(0), seed=1
    )
    assert model.asked == 5


def test_a_transient_fault_is_tried_again_and_says_so_in_the_reply(desk: Calls) -> None:
    model = Flaky(3)
    reply = desk.ask(model, Price(), [{"role": "user", "content": "x"}], call(0))
    assert (reply.text, reply.retries, model.asked) == ("ok", 3, 4)


@pytest.mark.parametrize("unspent", [True, False])
def test_after_the_last_try_it_is_a_fault_and_what_may_have_been_worked_on_is_charged(
    desk: Calls, unspent: bool
) -> None:
    model = Flaky(99, unspent)
    with pytest.raises(Fault, match="tried 4 times"):
        desk.ask(
            model, Price(tokens_in=1), [{"role": "user", "content": "x"}], call(0), max_tokens=10
        )
    bound = tokens_bound([{"role": "user", "content": "x"}])
    spent = desk.ledger.spent
    assert (spent.calls, spent.tokens_in) == ((0, 0) if unspent else (4, 4 * (bound + 10)))
    assert spent.usd == pytest.approx(0.0 if unspent else 4 * bound / 1e6)


def test_what_was_made_of_a_held_out_tasks_attempt_is_sent_to_no_model(desk: Calls) -> None:
    model, told = (
        Flaky(0),
        {split: tell(attempted(split)) for split in ("train", "validation", "test")},
    )
    desk.ask(model, Price(), [Message(role="user", content=told["train"])], call(0))
    for split in ("validation", "test"):
        with pytest.raises(Fault, match=canary(f"t:{split}")) as caught:
            desk.ask(
                model,
                Price(),
                [{"role": "user", "content": "Look."}, {"role": "tool", "content": told[split]}],
                call(1),
            )
        assert caught.value.code == "held-out-leak"
        assert canary(f"t:{split}") in outcome(attempted(split))
    assert model.asked == 1
    assert desk.ledger.spent.calls == 1


def attempted(split: Split) -> Experience:
    trace = Trace(
        attempt="e" * 16,
        task=f"t:{split}",
        scaffold="s" * 16,
        model="m",
        steps=(),
        ending="submitted",
    )
    grade = Grade(score=0.0, passed=False, evidence="wrong")
    return Experience(
        id="e" * 16,
        domain="t",
        task=f"t:{split}",
        group=split,
        split=split,
        prompt="Do it.",
        digest="s",
        trace=trace,
        grade=grade,
    )


def test_a_reply_in_the_journal_is_never_asked_for_again(desk: Calls, tmp_path: Path) -> None:
    model = Flaky(0)
    message = [{"role": "user", "content": "x"}]
    desk.ask(model, Price(), message, call(0), seed=1)  # type: ignore[arg-type]
    desk.journal.close()
    journal = Journal(tmp_path)
    journal.open()
    again = Calls("r", journal, desk.ledger, backoff=0)
    assert again.ask(model, Price(), message, call(0), seed=1).text == "ok"  # type: ignore[arg-type]
    assert model.asked == 1
    again.ask(model, Price(), [{"role": "user", "content": "changed"}], call(0), seed=1)
    assert model.asked == 2


def test_tool_calls_survive_the_journal(desk: Calls, tmp_path: Path) -> None:
    model = Scripted.of(
        [{"tool_calls": [{"name": "look", "arguments": {"at": "é"}}, {"name": "stop"}]}]
    )
    message: list[Message] = [{"role": "user", "content": "x"}]
    tools = [{"type": "function", "function": {"name": "look"}}]
    first = desk.ask(model, Price(), message, call(0), tools=tools)
    desk.journal.close()
    journal = Journal(tmp_path)
    journal.open()
    again = Calls("r", journal, desk.ledger, backoff=0).ask(
        Scripted.of([]), Price(), message, call(0), tools=tools
    )
    assert again == first
    assert [c.name for c in again.tool_calls] == ["look", "stop"]


@pytest.mark.slow
def test_many_faults_of_an_endpoint_lose_no_attempt_and_spoil_no_grade() -> None:
    """The whole of it: `python -m tests.lab.faults`."""
    from tests.lab import faults

    result = faults.trial(15, 120, seed=3, timeout=0.3)
    assert result["faults"] > 60
    assert (result["lost"], result["wrong"], result["attempts"]) == (0, 0, 15)
    assert result["worked"] <= result["charged"]
    assert result["longest_call_s"] < 20  # without a deadline it is a minute


@pytest.mark.slow
def test_one_cap_holds_over_four_processes_that_are_killed() -> None:
    """The whole of it: `python -m tests.lab.cap`."""
    command = [sys.executable, "-m", "tests.lab.cap", "--kills", "3"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    result = json.loads(ended.stdout)
    assert (result["kills"], result["over_cap"], result["free_of_charge"], result["failed"]) == (
        3,
        0,
        0,
        0,
    )
    assert 0 < result["worked"] <= result["charged"]


def test_what_is_put_back_of_a_lost_ledger_is_counted_once(desk: Calls, tmp_path: Path) -> None:
    desk.ask(Telling(), Price(tokens_in=1.0), [{"role": "user", "content": "x"}], call(0))
    (tmp_path / "ledger.jsonl").unlink()
    ledger = Ledger(Log(tmp_path / "ledger.jsonl"), Budget())
    assert ledger.put_back(desk.journal.records("reply", "experience", "aside")) == (1, 0)
    assert ledger.put_back([{"kind": "aside", "attempt": "a"}]) == (0, 1)
    assert ledger.put_back([]) == (0, 0)
    ledger.begin("b")  # reads what others wrote since
    spent = Spend.of(Log(tmp_path / "ledger.jsonl").read()).total
    assert (ledger.spent, spent.calls) == (spent, 1)


def test_nothing_spent_is_no_token_and_no_money() -> None:
    assert (Spend().tokens, Spend().usd, Spend.of([]).tokens) == (0, 0.0, 0)


def test_what_is_paid_after_a_replay_is_told_beside_what_its_recording_cost(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    paid = Usage(calls=1, tokens_in=3, tokens_out=1, usd=0.25)
    for step, replayed in enumerate((True, False)):
        ledger = Ledger(Log(file), Budget(usd=1), replayed=replayed)
        ledger.reserve(call(step), 4, 0.25)
        ledger.settle(call(step), paid)
        ledger.reserve(call(9), 4, 0.125)
        ledger.drop(call(9), unspent=False)
        ledger.close()
    spend = Spend.of(Log(file).read())
    assert (spend.usd, spend.total.usd) == (0.75, 0.375)
    assert {role: usage.usd for role, usage in spend.by_role.items()} == {
        "agent": 0.25,
        "lost in flight": 0.125,
    }
    assert (spend.record()["usd"], spend.record()["replayed"]) == (0.375, {"usd": 0.375})
    assert spend.unpaid == (
        " $0.1250 of it is held for 2 calls lost in flight: the most that may be billed."
        " Replayed: $0.3750 of it was paid when it was recorded, $0.3750 now."
    )
    with pytest.raises(OutOfBudget):
        Ledger(Log(file), Budget(usd=1)).reserve(call(3), 4, 0.375)
