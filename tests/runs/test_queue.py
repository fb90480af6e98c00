"""Which attempt is begun next, what an error ends, and when attempts that end alike stop a run."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import recreate
from recreate.api.errors import (
    IMAGE,
    OUTAGE,
    UNSOUND,
    BadInput,
    Fault,
    Interrupted,
    OutOfBudget,
    Refused,
)
from recreate.api.ports import SandboxBackend
from recreate.api.types import Experience, Grade, Task, Trace
from recreate.models.scripted import Scripted
from recreate.runs import attempts
from recreate.runs.attempts import Score, Work, how, read_experience, stretch_of
from recreate.runs.budget import CELL_BUDGET
from recreate.runs.reader import Run
from tests.toy import Toy, script

CELL_OUT = OutOfBudget("the cell's cap is reached", fix="", code=CELL_BUDGET)


def work(task: str, model: str = "m", cell: str = "") -> Work:
    session: Any = SimpleNamespace(model_name=model)
    told: Any = SimpleNamespace(id=task)
    return Work(session, cast(Any, None), told, 0, cell=cell)


def take_all(queue: attempts._Queue) -> list[str]:
    taken = []
    while (each := queue.take()) is not None:
        taken.append(each.task.id)
    return taken


def test_attempts_of_one_model_are_begun_in_their_order() -> None:
    queue = attempts._Queue([work("a"), work("b"), work("c")])
    assert not queue.several
    assert take_all(queue) == ["a", "b", "c"]


def test_the_model_with_the_fewest_in_flight_is_next() -> None:
    queue = attempts._Queue(
        [*(work(f"a{n}", "a") for n in range(4)), work("b0", "b"), work("b1", "b")]
    )
    assert queue.several
    first = [cast(Work, queue.take()).task.id for _ in range(3)]
    assert first == ["a0", "b0", "a1"]
    queue.release(work("a0", "a"), None)
    queue.release(work("a1", "a"), None)
    assert [cast(Work, queue.take()).task.id for _ in range(3)] == ["a2", "a3", "b1"]
    assert queue.take() is None


def test_a_cells_own_cap_ends_that_cell_alone() -> None:
    queue = attempts._Queue([work("a", cell="x"), work("b", cell="y"), work("c", cell="x")])
    begun = queue.take()
    assert begun is not None
    queue.release(begun, CELL_OUT)
    later = OutOfBudget("another", fix="", code=CELL_BUDGET)
    queue.release(begun, later)
    assert take_all(queue) == ["b"]
    assert (queue.ended_alone, queue.failed) == (CELL_OUT, None)


@pytest.mark.parametrize(
    ("error", "alone"),
    [
        (Refused("no", fix=""), True),
        (Fault("away", fix="", code=OUTAGE), True),
        (Fault("the disk is full", fix="", code="disk"), False),
        (OutOfBudget("spent", fix=""), False),
        (Interrupted("stopped"), False),
        (BadInput("mended", fix=""), False),
    ],
)
@pytest.mark.parametrize("models", ["ab", "aa"])
def test_a_model_that_is_out_ends_its_attempts_and_no_others(
    error: Exception, alone: bool, models: str
) -> None:
    first, second = models[0], models[1]
    queue = attempts._Queue([work("a0", first), work("b0", second), work("a1", first)])
    begun = queue.take()
    assert begun is not None
    queue.release(begun, error)
    queue.release(begun, OutOfBudget("and later", fix=""))
    if alone and models == "ab":
        assert (queue.ended_alone, type(queue.failed)) == (error, OutOfBudget)
        queue.failed = None
        assert take_all(queue) == ["b0"]
    else:
        assert (queue.ended_alone, queue.failed) == (None, error)
        assert queue.take() is None


@pytest.mark.parametrize(
    ("jobs", "first", "repeats", "stretch"),
    [(2, {}, 1, 4), (2, {}, 3, 3), (4, {}, 3, 6), (2, {}, 10, 10), (8, {"jobs": 1}, 1, 2)],
)
def test_attempts_are_looked_at_after_whole_tasks(
    jobs: int, first: dict[str, int], repeats: int, stretch: int
) -> None:
    session: Any = SimpleNamespace(
        journal=SimpleNamespace(first=first), settings=SimpleNamespace(jobs=jobs)
    )
    assert stretch_of(session, repeats) == stretch


def made_by(monkeypatch: pytest.MonkeyPatch, **how: Any) -> tuple[list[list[str]], list[str]]:
    """Return which attempts were made together, and whose scores came back."""
    together: list[list[str]] = []
    written: list[str] = []

    def run_work(
        session: Any,
        work: list[Work],
        scores: dict[Any, Score],
        outages: dict[str, attempts._Outage] | None = None,
    ) -> None:
        together.append([f"{each.task.id}{each.repeat}" for each in work])
        if outages is not None:
            held = outages.setdefault("m", attempts._Outage()).beginning
            write: Any = partial(written.append, work[0].task.id)
            held.take("a cause", write, lambda: None)
        scores |= {each.place: Score("a", each.task.id, each.repeat, 1.0) for each in work}

    monkeypatch.setattr(attempts, "run_work", run_work)
    session: Any = SimpleNamespace(
        say=lambda *_: None,
        journal=SimpleNamespace(first={}),
        settings=SimpleNamespace(jobs=1),
    )
    scaffold: Any = SimpleNamespace(digest="d")
    tasks: list[Any] = [SimpleNamespace(id=name) for name in "abcde"]
    scores = attempts.run_attempts(session, scaffold, tasks, **how)
    assert written == ([each[0][0] for each in together] if "until" in how else [])
    return together, [f"{score.task}{score.repeat}" for score in scores]


@pytest.mark.parametrize(
    ("how", "together"),
    [
        ({}, ["a0 b0 c0 d0 e0"]),
        ({"repeats": 2, "first": {"b": 3}}, ["a0 a1 b3 b4 c0 c1 d0 d1 e0 e1"]),
        ({"until": lambda scores: False}, ["a0 b0", "c0 d0", "e0"]),
        ({"until": lambda scores: len(scores) > 2}, ["a0 b0", "c0 d0"]),
        ({"until": lambda scores: True, "stretch": 3}, ["a0 b0 c0"]),
        ({"until": lambda scores: False, "stretch": 5}, ["a0 b0 c0 d0 e0"]),
    ],
)
def test_attempts_are_made_in_stretches_until_enough_is_seen(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], together: list[str]
) -> None:
    made, scores = made_by(monkeypatch, **how)
    assert [" ".join(each) for each in made] == together
    assert scores == " ".join(together).split()


@pytest.mark.parametrize(
    ("passed", "ending", "limit", "word"),
    [
        (True, "submitted", "", "passed"),
        (True, "limit", "steps", "passed"),
        (False, "submitted", "", "failed"),
        (False, "limit", "steps", "limit steps"),
        (False, "error", "", "error"),
    ],
)
def test_how_an_attempt_ended_is_a_word(passed: bool, ending: str, limit: str, word: str) -> None:
    assert how(passed, ending, limit) == word
    score = Score("a", "t", 0, 1.0 if passed else 0.0, passed, ending, limit)
    assert score.how == word
    aside = Score("a", "t", 0, None, ending="error")
    assert (aside.how, aside.passed, aside.reused) == ("excluded", False, False)


# what stops a run


def excluded(outage: attempts._Outage, fix: str = "") -> None:
    score = Score("a", "t", 0, None, ending="error")
    outage.excluded(Fault("no sandbox", fix=fix), score, "the model")


def test_attempts_excluded_one_after_the_other_are_an_outage() -> None:
    first = attempts._Outage()
    for _ in range(2):
        excluded(first)
    with pytest.raises(Fault, match="3 attempts in a row"):
        excluded(first)
    outage = attempts._Outage()
    for _ in range(2):
        excluded(outage)
    outage.reset()
    for _ in range(2):
        excluded(outage)
    with pytest.raises(Fault, match="3 attempts in a row with the model") as caught:
        excluded(outage, "install it")
    assert (caught.value.code, caught.value.fix) == (OUTAGE, "install it")
    assert "no sandbox" in caught.value.message
    assert vars(caught.value)["score"].score is None
    with pytest.raises(Fault) as again:
        excluded(outage)
    assert "resume" in again.value.fix


class Beginning:
    """What becomes of the first attempts of a program."""

    def __init__(self) -> None:
        self.beginning = attempts._Beginning()
        self.done: list[str] = []

    def end(self, name: str, cause: str) -> None:
        """An attempt ended by a cause, '' for none."""

        def write() -> Experience:
            self.done.append(f"write {name}")
            return cast(Experience, name)

        for each in self.beginning.take(cause, write, lambda: self.done.append(f"note {name}")):
            each()

    def stop(self) -> bool:
        notes = self.beginning.stop()
        for note in notes:
            note()
        return bool(notes)


def test_attempts_that_begin_by_breaking_alike_are_noted_and_stop_a_run() -> None:
    run = Beginning()
    for name, stopped in (("a", False), ("b", False), ("c", True)):
        run.end(name, "no such module")
        assert run.stop() is stopped
    assert run.done == ["note a", "note b", "note c"]
    run.beginning.release()
    assert run.done == ["note a", "note b", "note c"]


@pytest.mark.parametrize("other", ["", "another cause"])
def test_attempts_that_end_otherwise_are_written_with_those_that_were_held(other: str) -> None:
    run = Beginning()
    run.end("a", "no such module")
    run.end("b", "no such module")
    assert run.done == []
    run.end("c", other)
    assert run.done == ["write a", "write b", "write c"]
    for name in "def":
        run.end(name, "no such module")
        assert not run.stop()
    assert run.done[3:] == ["write d", "write e", "write f"]


def test_too_few_to_say_anything_are_written_in_the_end() -> None:
    run = Beginning()
    run.end("a", "no such module")
    run.end("b", "no such module")
    run.beginning.release()
    run.beginning.release()
    assert run.done == ["write a", "write b"]


# faults of ours


class Breaking(Toy):
    """Cannot grade some tasks: each time it fails by the next of these faults, then it grades."""

    def __init__(self, faults: dict[str, list[Exception]]) -> None:
        self.faults = {task: list(each) for task, each in faults.items()}
        self.asked: list[str] = []

    def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
        self.asked.append(task.id)
        if left := self.faults.get(task.id):
            raise left.pop(0)
        return super().grade(task, trace, backend)


def bench(domain: Toy, **settings: Any) -> dict[tuple[str, int], float]:
    """Return the score of each attempt that was graded, by task and repeat."""
    how: dict[str, Any] = {"memory.embedder": "hashed", "jobs": 1, **settings}
    (result,) = recreate.bench(
        "seed",
        domain,
        split="train",
        model=Scripted.of(script()),
        out="runs/b",
        **how,
    )
    scores = {(s["task"], s["repeat"]): s["score"] for s in result.scores}
    return {place: score for place, score in scores.items() if score is not None}


def faults(code: str, count: int) -> list[Exception]:
    return [Fault(f"it broke {n}", fix="mend it", code=code) for n in range(count)]


@pytest.mark.usefixtures("workspace")
def test_an_attempt_that_a_fault_of_ours_ended_is_started_again_twice() -> None:
    domain = Breaking({"toy:train:1": faults("x", 2), "toy:train:4": faults("x", 3)})
    scores = bench(domain)
    assert [domain.asked.count(f"toy:train:{n}") for n in (0, 1, 4)] == [1, 3, 3]
    assert set(scores) == {(f"toy:train:{n}", 0) for n in range(8) if n != 4}
    run = Run(Path("runs/b"))
    assert [(r["task"], r["fault"]) for r in run.excluded()] == [("toy:train:4", "it broke 2")]
    assert len(list(run.records("experience"))) == 7


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("code", [UNSOUND, IMAGE])
def test_a_fault_of_the_tasks_own_is_not_tried_again_and_is_no_outage(code: str) -> None:
    domain = Breaking({f"toy:train:{n}": faults(code, 1) for n in range(4)})
    scores = bench(domain)
    assert domain.asked == [f"toy:train:{n}" for n in range(8)]
    assert set(scores) == {(f"toy:train:{n}", 0) for n in range(4, 8)}


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("code", ["disk", OUTAGE])
def test_a_full_disk_or_an_outage_ends_a_run_at_once(code: str) -> None:
    domain = Breaking({"toy:train:1": faults(code, 1)})
    with pytest.raises(Fault, match="it broke 0"):
        bench(domain)
    assert domain.asked == ["toy:train:0", "toy:train:1"]
    assert len(bench(domain)) == 8
    assert domain.asked.count("toy:train:0") == 1


@pytest.mark.usefixtures("workspace")
def test_three_exclusions_in_a_row_stop_a_run_and_fewer_do_not() -> None:
    broken = {f"toy:train:{n}": faults("x", 3) for n in (0, 1, 3, 4, 5)}
    domain = Breaking(broken)
    with pytest.raises(Fault, match="3 attempts in a row") as caught:
        bench(domain)
    assert caught.value.fix == "mend it"
    assert domain.asked[-1] == "toy:train:5"
    assert {r["task"] for r in Run(Path("runs/b")).excluded()} == set(broken)


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_a_score_that_is_none_is_the_domains_fault(score: float) -> None:
    class Odd(Toy):
        def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
            return Grade.model_construct(score=score, passed=False, evidence="")

    with pytest.raises(BadInput, match="toy:train:0"):
        bench(Odd())


@pytest.mark.usefixtures("workspace")
def test_a_score_from_0_to_1_is_kept() -> None:
    class Graded(Toy):
        def grade(self, task: Task, trace: Trace, backend: SandboxBackend) -> Grade:
            score = int(task.id[-1]) / 7
            return Grade(score=score, passed=score == 1, evidence="")

    assert list(bench(Graded()).values()) == [n / 7 for n in range(8)]


@pytest.mark.usefixtures("workspace")
def test_each_repeat_of_a_task_is_an_attempt() -> None:
    scores = bench(Breaking({}), repeats=2)
    assert (set(scores.values()), len(scores)) == ({0.0}, 16)


@pytest.mark.usefixtures("workspace")
def test_a_run_that_goes_on_reads_its_attempts_back() -> None:
    first, second = Breaking({}), Breaking({})
    before = bench(first)
    assert bench(second) == before
    assert (len(first.asked), second.asked) == (8, [])


@pytest.mark.usefixtures("workspace")
def test_an_attempt_that_its_folder_lost_comes_back_from_memory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = bench(Breaking({}))
    lost, damaged = sorted(Path("runs/b/attempts").iterdir())[:2]
    whole = read_experience(lost)
    shutil.rmtree(lost)
    (damaged / "experience.json").write_text("{}")
    domain = Breaking({})
    assert bench(domain) == before
    assert domain.asked == []
    assert read_experience(lost) == whole
    assert read_experience(damaged) is not None


def test_a_folder_without_an_end_is_no_attempt(tmp_path: Path) -> None:
    assert read_experience(tmp_path) is None


# what is read of a run for an attempt


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ({}, "a cause"),
        ({"foreign": False}, ""),
        ({"cell": "x"}, ""),
        ({"replay": object()}, ""),
        ({"records": [{}]}, ""),
    ],
)
def test_only_the_first_that_a_program_does_in_a_run_of_its_own_is_held_back(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], cause: str
) -> None:
    kind = SimpleNamespace(failure=lambda trace: ("a cause", "words"))
    monkeypatch.setattr(attempts, "open_kind", lambda action: kind)
    session: Any = SimpleNamespace(
        replay=told.get("replay"),
        journal=SimpleNamespace(records=lambda name: iter(told.get("records", []))),
    )
    agent = SimpleNamespace(foreign=told.get("foreign", True), action="command")
    scaffold: Any = SimpleNamespace(agent=agent)
    begun = Work(session, scaffold, cast(Any, None), 0, cell=told.get("cell", ""))
    found = attempts._failure_of(begun, cast(Any, SimpleNamespace(trace=None)))
    assert found == ((cause, "words") if cause else ("", ""))


@pytest.mark.parametrize(
    ("forced", "propensities", "tells"),
    [(False, {}, True), (True, {}, False), (False, {"a": 0.5}, False)],
)
def test_an_agent_is_told_lessons_but_where_it_is_tried_what_one_is_worth(
    forced: bool, propensities: dict[str, float], tells: bool
) -> None:
    told: Any = SimpleNamespace(forced=forced, propensities=propensities)
    assert attempts._tells_lessons(told) is tells
    assert attempts._tells_lessons(None)


def test_attempts_that_a_budget_has_not_counted_yet_are_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def key(session: Any, scaffold: Any, task: str, repeat: int, offers: Any) -> tuple[str, None]:
        return f"{task}{repeat}", None

    monkeypatch.setattr(attempts, "_key_or_fault", key)
    session: Any = SimpleNamespace(
        ledger=SimpleNamespace(has_begun={"a0", "b0", "b1"}.__contains__)
    )
    tasks: Any = ["a", "b", "c"]
    assert attempts.count_new(session, cast(Any, None), tasks, range(2)) == 3
    assert attempts.count_new(session, cast(Any, None), tasks) == 1


@pytest.mark.parametrize(
    "error", [None, Fault("away", fix="", code="x"), BadInput("not there", fix="", code="y")]
)
def test_what_servers_list_is_asked_once_in_a_run(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    asked: list[str] = []
    native = {"name": "look"}

    def ask(scaffold: Any, task: Any, domain: Any, backend: Any) -> dict[str, Any]:
        asked.append(task.id)
        if error is not None:
            raise error
        own = SimpleNamespace(server="a", native=dict(native))
        return {"look": own, "other": SimpleNamespace(server="b", native={"name": "x"})}

    monkeypatch.setattr(attempts, "try_servers", ask)
    entry = SimpleNamespace(server="server.py", model_dump=lambda: {"server": "server.py"})
    agent = SimpleNamespace(action="tools", mcp={"a": entry})
    scaffold: Any = SimpleNamespace(agent=agent, tools={"server.py": "text"})
    session: Any = SimpleNamespace(domain=Toy(), backend=None, listed={})
    first, second = Toy().tasks("train")[:2]
    told = attempts._listed_tools(session, scaffold, first)
    assert told == attempts._listed_tools(session, scaffold, second)
    assert (asked, bool(told)) == ([first.id], True)
    assert error is None or told == vars(error)["code"]
    native["name"] = "search"
    session.listed.clear()
    assert (attempts._listed_tools(session, scaffold, first) == told) is (error is not None)
    for less in ({"mcp": {}, "action": "tools"}, {"mcp": {"a": entry}, "action": "bash"}):
        scaffold.agent = SimpleNamespace(**less)
        assert attempts._listed_tools(session, scaffold, first) == ""
