"""While a suite runs, which holds expected values, no exam of its package does."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recreate.plugins.swe import domain, patch, rooms
from tests.plugins.swe.swe_project import SUMS, Project


def is_empty(kind: str) -> bool:
    """Whether nobody is in the one room that there is."""
    (file,) = Path("home", "swe", "rooms").glob(f"*.{kind}")
    with file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize(("kind", "other"), [("suite", "exam"), ("exam", "suite")])
def test_those_of_a_kind_run_side_by_side_and_keep_the_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, other: Any
) -> None:
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    entered: list[str] = []

    def enter_too() -> None:
        with rooms.enter("calm/words", other):
            entered.append(other)

    thread = threading.Thread(target=enter_too)
    with rooms.enter("calm/sums", kind), rooms.enter("calm/words", kind):
        assert not is_empty(kind)
        assert is_empty(other)
        thread.start()
        thread.join(0.05)
        assert entered == []
    thread.join()
    assert entered == [other]
    with pytest.raises(KeyError), rooms.enter("calm", kind):
        raise KeyError
    assert is_empty(kind)
    assert is_empty(other)


@pytest.mark.slow
def test_an_exam_waits_until_the_suite_of_another_grading_is_over(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = SUMS.replace("value > high", "value < high")
    answers = [
        patch.make({"calm/sums.py": wrong}, {"calm/sums.py": wrong + f"\n# {n}\n"})
        for n in range(2)
    ]
    project.grade(answers[0])  # what is found out once
    said: list[str] = []
    asks, runs = threading.Event(), threading.Event()
    enter, run = rooms.enter, domain.Swe._run

    @contextmanager
    def tell(group: str, kind: Any) -> Iterator[None]:
        if kind == "exam" and threading.current_thread().name == "second":
            asks.set()
        with enter(group, kind):
            yield

    def ran(
        self: Any, backend: Any, case: Any, files: Any, timeout: float, tests: Any = None
    ) -> Any:
        who = f"{threading.current_thread().name} {'suite' if tests is None else 'exam'}"
        said.append(who)
        if who == "first suite":
            runs.set()
            asks.wait(10)
        found = run(self, backend, case, files, timeout, tests)
        said.append(f"{who} ends")
        return found

    monkeypatch.setattr(rooms, "enter", tell)
    monkeypatch.setattr(domain.Swe, "_run", ran)

    def second() -> None:
        runs.wait(60)
        project.grade(answers[1])

    goals: dict[str, Callable[[], object]] = {
        "first": lambda: project.grade(answers[0]),
        "second": second,
    }
    threads = [threading.Thread(target=goal, name=name) for name, goal in goals.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said.index("first suite ends") < said.index("second exam")
    assert {who for who in said if who.endswith("ends")} == {
        f"{who} {what} ends" for who in goals for what in ("exam", "suite")
    }
