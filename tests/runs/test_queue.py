"""Which attempt is begun next, what an error ends, and when attempts that end alike stop a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from recreate.api.errors import OUTAGE, BadInput, Fault, Interrupted, OutOfBudget, Refused
from recreate.api.types import Experience
from recreate.runs import attempts
from recreate.runs.attempts import Score, Work, how, stretch_of
from recreate.runs.budget import CELL_BUDGET

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
    assert Score("a", "t", 0, None, ending="error").how == "excluded"


# what stops a run


def excluded(outage: attempts._Outage, fix: str = "") -> None:
    score = Score("a", "t", 0, None, ending="error")
    outage.excluded(Fault("no sandbox", fix=fix), score, "the model")


def test_attempts_excluded_one_after_the_other_are_an_outage() -> None:
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
