"""A working agent is offered lessons when it asks for that, and what it was offered is on
record."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recreate.agents import scaffold as scaffolds
from recreate.agents.attempt import attempt, attempt_key
from recreate.agents.lint import check
from recreate.agents.retrieval import LastSeen, LessonRetrieval, exactly, frozen, support
from recreate.agents.scaffold import Scaffold
from recreate.api.paths import shipped
from recreate.api.types import Call, Gain, Lesson, Message, Reply, Task, Trace
from recreate.models.scripted import Scripted
from recreate.runs.attempts import read_steps
from recreate.sandboxes import choose
from tests.agents.test_attempt import agent, bash
from tests.toy import Toy

TASK = Task(
    id="toy:train:1",
    domain="toy",
    prompt="Write it.",
    split="train",
    group="g",
    facts={"word": "yes"},
)
MARK = Lesson(
    id="mark", title="How answers end", body="With a mark.", status="active", groups=("a", "b", "c")
)
KEYS = Lesson(id="keys", title="A KeyError", body="Look at the keys first.", status="active")
TESTS = Lesson(id="tests", title="A failing test", body="Read it first.", status="active")
ASKS = "[memory]\ntokens = 200\n"


class Held:
    """Offers by a word of the situation; remembers what it was asked."""

    def __init__(self, **lessons: Lesson) -> None:
        self.lessons, self.asked, self.lock = lessons, list[tuple[str, int]](), threading.Lock()

    def offer(self, situation: str, budget: int) -> list[Lesson]:
        with self.lock:
            self.asked.append((situation, budget))
        return [lesson for word, lesson in self.lessons.items() if word in situation]

    @property
    def offers(self) -> LessonRetrieval:
        return frozen("test", self.offer, {x.id: x for x in self.lessons.values()})


def go(
    scaffold: Scaffold,
    rows: list[dict[str, Any]],
    offers: LessonRetrieval,
    folder: Path | None = None,
) -> Trace:
    model = Scripted.of(rows)

    def ask(messages: list[Message], call: Call, **params: Any) -> Reply:
        return model.reply(messages, call, **params)

    call = Call(run="r", attempt="a", step=0, task=TASK.id)
    return attempt(scaffold, TASK, Toy(), choose(), ask, call, folder=folder, offers=offers)


def test_an_agent_that_asks_for_memory_is_offered_lessons_with_their_support_at_the_start(
    tmp_path: Path,
) -> None:
    held = Held(**{"Write it": MARK})
    trace = go(
        agent(ASKS),
        [bash("submit", contains="How answers end: With a mark. (seen in 3 groups")],
        held.offers,
    )
    assert trace.ending == "submitted"
    assert trace.steps[0].offered == ("mark",)
    assert held.asked == [("Write it.", 200)]


def test_one_that_does_not_ask_is_offered_nothing() -> None:
    held = Held(**{"Write it": MARK})
    trace = go(agent(), [bash("submit", lacks="How answers end")], held.offers)
    assert trace.steps[0].offered == ()
    assert held.asked == []


def test_when_an_error_or_a_test_result_turns_up_memory_is_asked_again(tmp_path: Path) -> None:
    held = Held(KeyError=KEYS, **{"1 failed": TESTS})
    rows = [
        bash("echo \"KeyError: 'x'\"", step=0),
        bash("echo \"KeyError: 'x' again\"", step=1, contains="Look at the keys"),
        bash("echo '1 failed, 2 passed in 3.2s'", step=2),
        bash("submit", step=3, contains="Read it first."),
    ]
    trace = go(agent(ASKS), rows, held.offers, tmp_path)
    assert [s.offered for s in trace.steps] == [(), ("keys",), (), ("tests",)]
    assert list(read_steps(tmp_path)) == list(trace.steps)
    assert len(held.asked) == 3, "the same error again is no new situation"


def test_the_offer_stays_within_the_attempts_budget_and_repeats_nothing() -> None:
    long = Lesson(id="long", title="Long", body="x" * 400, status="active")
    held = Held(**{"Write it": MARK, "KeyError": MARK, "Error": long})
    rows = [bash("echo KeyError", step=0), bash("echo OSError", step=1), bash("submit", step=2)]
    trace = go(agent("[memory]\ntokens = 100\n"), rows, held.offers)
    assert [s.offered for s in trace.steps] == [("mark",), (), ()]
    budgets = [budget for _, budget in held.asked]
    assert budgets[0] == 100
    assert 0 < budgets[1] < 100


def test_each_sample_begins_with_nothing_told() -> None:
    held = Held(**{"Write it": MARK})
    trace = go(agent("samples = 2\n" + ASKS), [bash("submit")], held.offers)
    assert [(s.sample, s.offered) for s in trace.steps] == [(0, ("mark",)), (1, ("mark",))]


def test_the_agent_chooses_when_it_is_offered_something() -> None:
    held = Held(**{"Write it": MARK, "KeyError": KEYS})
    toml = '[memory]\ntokens = 200\nwhen = ["error"]\n'
    trace = go(agent(toml), [bash("echo KeyError", step=0), bash("submit", step=1)], held.offers)
    assert [s.offered for s in trace.steps] == [(), ("keys",)]


def test_an_agent_may_be_offered_something_after_every_step() -> None:
    held = Held(KeyError=KEYS, **{"a line": MARK})
    rows = [
        bash("echo a line", step=0),
        bash("echo KeyError", step=1, contains="How answers end"),
        bash("submit"),
    ]
    trace = go(agent('[memory]\ntokens = 200\nwhen = ["step"]\n'), rows, held.offers)
    assert [s.offered for s in trace.steps] == [(), ("mark",), ("keys",)]
    assert len(held.asked) == 2, "not at the start"


def test_offer_md_says_how_lessons_are_shown_and_check_knows_it() -> None:
    text = "HINTS ({{ why }}):{% for x in offered %} {{ x.title }} [{{ x.scope }}]{% endfor %}"
    scaffold = agent(ASKS, offer_md=text)
    assert check(scaffold) == []
    trace = go(
        scaffold,
        [bash("submit", contains="HINTS (start): How answers end [instance]")],
        Held(Write=MARK).offers,
    )
    assert trace.ending == "submitted"
    wrong = check(agent(ASKS, offer_md="{{ offers }}"))
    assert "'offers' is undefined" in wrong[0].message


def test_a_lesson_that_the_agent_carries_itself_is_not_offered_twice() -> None:
    own = agent(ASKS, memory__mark_md="# How answers end\n\nWith a mark.\n")
    trace = go(own, [bash("submit")], Held(**{"Write it": MARK}).offers)
    assert trace.steps[0].offered == ()


def test_a_rerun_offers_exactly_the_lesson_it_tests_to_any_agent() -> None:
    trace = go(agent(), [bash("submit", contains="With a mark.", lacks="seen in")], exactly([MARK]))
    assert trace.steps[0].offered == ("mark",)
    assert go(agent(), [bash("submit", lacks="From memory")], exactly([])).steps[0].offered == ()


def test_the_memory_an_attempt_was_offered_is_part_of_its_key() -> None:
    seed = scaffolds.load(shipped("scaffolds") / "seed")

    def key(offers: LessonRetrieval) -> str:
        return attempt_key(seed, TASK, model="m", sandbox="s", memory=offers.digest)

    plain, with_mark, both = Held().offers, Held(a=MARK).offers, Held(b=KEYS, a=MARK).offers
    assert len({key(plain), key(with_mark), key(both), key(exactly([MARK]))}) == 4
    assert key(Held(a=MARK, b=KEYS).offers) == key(both), "in whatever order"
    other = MARK.model_copy(update={"body": "With two."})
    assert key(Held(a=other).offers) != key(with_mark)
    assert plain.digest == exactly([]).digest == ""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Traceback ...\nValueError: x", "error"),
        ("KeyError: 'x'", ""),
        ("===== 1 failed, 2 passed in 0.12s =====", "tests"),
        ("===== 1 failed, 2 passed in 9.99s =====\n", "tests"),
        ("FAILED (failures=1)", "tests"),
        ("a line of text", ""),
        ("", ""),
    ],
)
def test_a_situation_changes_with_a_new_error_or_another_test_result(said: str, why: str) -> None:
    _, found = LastSeen(error="KeyError", tests="3 passed").after(said)
    assert found == why


@settings(max_examples=40)
@given(st.text(max_size=300))
def test_the_same_result_twice_is_one_situation(text: str) -> None:
    then, _ = LastSeen().after(text)
    assert then.after(text) == (then, "")


def test_support_is_counts_and_says_nothing_when_nothing_was_counted() -> None:
    assert support(KEYS) == ""
    gains = (Gain(experience="e", group="g", diff=1.0), Gain(experience="f", group="h", diff=0.0))
    assert (
        support(MARK.model_copy(update={"gains": gains}))
        == "seen in 3 groups of tasks; 2 re-runs with and without it: +0.50"
    )
