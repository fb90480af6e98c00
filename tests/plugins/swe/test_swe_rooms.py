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


def is_free(how: int) -> bool:
    """Whether another process would get the one room that there is."""
    (door,) = Path("home", "swe", "rooms").glob("*.door")
    with door.with_suffix("").open("rb") as file:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_suites_run_side_by_side_and_keep_an_exam_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECREATE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with rooms.enter("calm/sums", alone=False), rooms.enter("calm/words", alone=False):
        assert is_free(fcntl.LOCK_SH)
        assert not is_free(fcntl.LOCK_EX)
    with rooms.enter("calm/words", alone=True):
        assert not is_free(fcntl.LOCK_SH)
    assert is_free(fcntl.LOCK_EX)
    with pytest.raises(KeyError), rooms.enter("calm", alone=True):
        raise KeyError
    assert is_free(fcntl.LOCK_EX)


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
    def tell(group: str, *, alone: bool) -> Iterator[None]:
        if alone and threading.current_thread().name == "second":
            asks.set()
        with enter(group, alone=alone):
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
