"""tasks list, check and grade, on the toy domain and on domains that are wrong."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recreate.api.types import Grade, Task, Trace, canary
from recreate.cli import run
from recreate.domains.validate import pair_golds
from tests.toy import Toy

TOY = "tests.toy:Toy"
Ask = Callable[..., tuple[int, list[dict[str, Any]]]]


class Unsound(Toy):
    """Its gold is wrong on train:1, and anything passes on train:2."""

    def gold(self, task: Task) -> str:
        return "wrong" if task.id == "toy:train:1" else super().gold(task)

    def grade(self, task: Task, trace: Trace, backend: Any) -> Grade:
        if task.id == "toy:train:2":
            return Grade(score=1.0, passed=True)
        return super().grade(task, trace, backend)


class Lenient(Toy):
    """The gold of any test task passes any other."""

    def grade(self, task: Task, trace: Trace, backend: Any) -> Grade:
        right = trace.answer in [self.gold(t) for t in self.tasks("test")]
        return Grade(score=1.0, passed=True) if right else super().grade(task, trace, backend)


class Breaking(Toy):
    """The gold of train:1 breaks what passes untouched."""

    def compared(self, task: Task, backend: Any) -> tuple[Grade, list[str]]:
        return Grade(score=0.0, passed=False), (
            [f"test_{n}" for n in range(7)] if task.id == "toy:train:1" else []
        )


class Interrupting(Toy):
    """Ctrl-C comes at the third task that is graded; `graded` has all of them. Before that train:0
    is wrong."""

    grader = "toy-1"
    graded: ClassVar[list[str]] = []
    turns: ClassVar[Iterator[int]] = itertools.count(1)

    def gold(self, task: Task) -> str:
        self.graded.append(task.id)
        turn = next(self.turns)
        if turn == 3:
            raise KeyboardInterrupt
        return "wrong" if task.id == "toy:train:0" and turn < 3 else super().gold(task)


class Goldless:
    """Cannot say what is right."""

    name = "goldless"
    tasks, prepare, collect, grade = Toy.tasks, Toy.prepare, Toy.collect, Toy.grade


class FromFile(Toy):
    """Its tasks are lines of a file."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def tasks(self, split: Any = None) -> list[Task]:
        kept = self.data.read_text().split()
        return [t for t in super().tasks(split) if t.id in kept]


@pytest.fixture
def ask(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command with --json: exit code and the objects it printed."""

    def ask(*words: str) -> tuple[int, list[dict[str, Any]]]:
        code = run([*words, "--json"])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return ask


def test_tasks_are_listed_with_split_group_and_digest(ask: Ask) -> None:
    code, rows = ask("tasks", "list", TOY, "--split", "test")
    assert code == 0
    assert [r["task"] for r in rows] == [f"toy:test:{n}" for n in range(6)]
    assert rows[0] == {
        "schema": 1,
        "task": "toy:test:0",
        "group": "test-0",
        "split": "test",
        "digest": Toy().tasks("test")[0].digest,
        "canary": canary("toy:test:0"),
        "gold": None,
        "untouched": None,
        "ok": None,
        "reason": None,
        "seconds": None,
        "prompt": Toy().tasks("test")[0].prompt,
        "rates": [],
    }


def test_what_only_the_grader_knows_is_not_listed(ask: Ask) -> None:
    assert "w0!" not in json.dumps(ask("tasks", "list", TOY))


def test_sound_tasks_hold(ask: Ask) -> None:
    code, rows = ask("tasks", "check", TOY, "--jobs", "2")
    assert code == 0
    assert sorted(r["task"] for r in rows) == sorted(t.id for t in Toy().tasks())
    assert all(
        (r["gold"], r["untouched"], r["ok"], r["reason"]) == (1.0, 0.0, True, "") for r in rows
    )


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(Interrupting, "graded", [])
    monkeypatch.setattr(Interrupting, "turns", itertools.count(1))
    return Interrupting.graded


INTERRUPTED = [
    "tasks",
    "check",
    "tests.cli.test_tasks:Interrupting",
    "--split",
    "train",
    "--shuffled",
    "0",
]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_after_ctrl_c_the_same_check_goes_on(
    ask: Ask, jobs: str, graded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*INTERRUPTED, "--jobs", jobs]) == 130
    assert "the same command goes on with the others" in capsys.readouterr().err
    first = graded[:]
    graded.clear()
    code, rows = ask(*INTERRUPTED, "--jobs", jobs)
    assert (code, {r["ok"] for r in rows}) == (0, {True})
    assert sorted(r["task"] for r in rows) == [f"toy:train:{n}" for n in range(8)]
    assert set(first) - set(graded)  # what held
    assert set(first) & set(graded)  # what was not finished
    assert jobs == "2" or "toy:train:0" in graded  # what did not hold
    graded.clear()
    assert ask(*INTERRUPTED, "--jobs", jobs)[0] == 0
    assert len(graded) == 8  # the check was over, and this is another


def test_what_held_before_ctrl_c_is_checked_again_where_that_is_asked_for(
    ask: Ask, graded: list[str]
) -> None:
    assert ask(*INTERRUPTED)[0] == 130
    graded.clear()
    assert ask(*INTERRUPTED, "--again")[0] == 0
    assert len(graded) == 8


def test_an_unsound_task_is_said_to_be_and_exits_4(
    ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows = ask("tasks", "check", "tests.cli.test_tasks:Unsound", "--split", "train")
    wrong = {r["task"]: r["reason"] for r in rows if not r["ok"]}
    assert code == 4
    assert len(rows) == 8
    assert set(wrong) == {"toy:train:1", "toy:train:2"}
    assert "gold" in wrong["toy:train:1"]
    assert run(["tasks", "check", "tests.cli.test_tasks:Unsound", "--task", "toy:train:3"]) == 0
    assert run(["tasks", "check", "tests.cli.test_tasks:Unsound", "--task", "toy:train:1"]) == 4
    out, err = capsys.readouterr()
    assert "WRONG  toy:train:1" in out
    assert "0 of 1 tasks hold" in err


def test_a_task_that_the_gold_of_another_passes_is_unsound(ask: Ask) -> None:
    code, rows = ask("tasks", "check", "tests.cli.test_tasks:Lenient", "--split", "test")
    assert code == 4
    assert all(
        r["other"] not in ("", r["task"]) and f"gold of {r['other']} passes it" in r["reason"]
        for r in rows
    )
    code, rows = ask(
        "tasks", "check", "tests.cli.test_tasks:Lenient", "--split", "test", "--shuffled", "2"
    )
    assert (code, len([r for r in rows if r["other"]]), len([r for r in rows if r["ok"]])) == (
        4,
        2,
        4,
    )
    assert (
        ask("tasks", "check", "tests.cli.test_tasks:Lenient", "--split", "test", "--shuffled", "0")[
            0
        ]
        == 0
    )


def test_another_ones_gold_is_of_the_same_source_where_there_is_one() -> None:
    def made(*ids: str) -> list[Task]:
        return [Task(id=id, domain="d", prompt="p", split="train", group=id) for id in ids]

    pairs = pair_golds(made("d:a:1", "d:b:1", "d:a:2", "d:c:1", "d:a:3"), 5)
    assert {id: other.id for id, other in pairs.items()} == {
        "d:a:1": "d:a:2",
        "d:a:2": "d:a:1",
        "d:a:3": "d:a:2",
        "d:b:1": "d:c:1",
        "d:c:1": "d:a:1",
    }
    assert pair_golds(made("d:a:1"), 5) == {}
    assert len(pair_golds(made(*(f"d:a:{n}" for n in range(25))), 10)) == 10


def test_checking_needs_a_domain_that_knows_what_is_right(ask: Ask) -> None:
    code, (error,) = ask("tasks", "check", "tests.cli.test_tasks:Goldless")
    assert (code, error["error"]["code"]) == (2, "not-provable")


def test_a_gold_that_breaks_tests_fails_the_check_in_a_sentence(
    ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tasks", "check", "tests.cli.test_tasks:Breaking", "--split", "train"]
    code, rows = ask(*command)
    assert (code, [r["task"] for r in rows if not r["ok"]]) == (4, ["toy:train:1"])
    assert run(command) == 4
    told = capsys.readouterr()
    assert (
        "the gold breaks what passes untouched: test_0, test_1, test_2, test_3, test_4 and 2 more"
        in told.out
    )
    assert "1  the gold breaks what passes untouched\n" in told.err


def test_tasks_of_another_file_are_checked(ask: Ask, workspace: Path) -> None:
    (workspace / "mine.txt").write_text("toy:train:5\ntoy:test:1\n")
    code, rows = ask(
        "tasks", "check", "tests.cli.test_tasks:FromFile", "--data", "mine.txt", "--jobs", "1"
    )
    assert (code, [r["task"] for r in rows]) == (0, ["toy:train:5", "toy:test:1"])
    (workspace / "mine.txt").write_text("")
    code, (error,) = ask("tasks", "check", "tests.cli.test_tasks:FromFile", "--data", "mine.txt")
    assert (code, error["error"]["code"]) == (2, "no-tasks")
    for wrong in (["--data", "gone.txt"], ["--repos", "."]):
        assert ask("tasks", "check", "tests.cli.test_tasks:FromFile", *wrong)[0] == 2
    assert ask("tasks", "check", TOY, "--data", "mine.txt")[0] == 2


# --- grade ---


def test_an_answer_is_graded_without_a_model(ask: Ask, workspace: Path) -> None:
    assert ask("grade", TOY, "toy:train:3", "--answer", "w3!") == (
        0,
        [{"schema": 1, "task": "toy:train:3", "score": 1.0, "passed": True, "evidence": "right"}],
    )
    code, (row,) = ask("grade", TOY, "toy:train:3", "--answer", "w3")
    assert (code, row["score"], row["passed"]) == (0, 0.0, False)
    assert "'w3' does not end as it must" in row["evidence"]
    (workspace / "answer.diff").write_text("w3!")
    assert ask("grade", TOY, "toy:train:3", "--patch", "answer.diff")[1][0]["passed"]
    assert ask("grade", TOY, "toy:train:3", "--answer", "")[1][0]["passed"] is False


def test_a_folder_is_graded_as_if_an_agent_had_left_it(ask: Ask, workspace: Path) -> None:
    folder = workspace / "solution"
    folder.mkdir()
    (folder / "answer.txt").write_text("w3!")
    assert ask("grade", TOY, "toy:train:3", "--dir", "solution")[1][0]["passed"]


def test_a_folders_links_are_never_followed(
    ask: Ask, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "answer.txt").write_text("w3!")
    folder = workspace / "solution"
    folder.mkdir()
    (folder / "answer.txt").symlink_to(tmp_path / "outside" / "answer.txt")
    os.mkfifo(folder / "pipe")
    (folder / "sub").symlink_to(tmp_path / "outside")
    code, (row,) = ask("grade", TOY, "toy:train:3", "--dir", "solution")
    assert (code, row["passed"]) == (0, False)
    assert run(["grade", TOY, "toy:train:3", "--dir", "solution"]) == 0
    assert "answer.txt" in capsys.readouterr().err


def test_whatever_lies_in_a_folder_is_graded(
    ask: Ask, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workspace / "solution"
    (folder / "answer.txt" / "below").mkdir(parents=True)
    deep = folder
    for _ in range(300):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "x").write_text("x")
    with (folder / "huge").open("wb") as huge:
        huge.truncate(30_000_000)
    code, (row,) = ask("grade", TOY, "toy:train:3", "--dir", "solution")
    assert (code, row["score"]) == (0, 0.0)
    assert run(["grade", TOY, "toy:train:3", "--dir", "solution"]) == 0
    assert "passed over, it has 30,000,000 bytes" in capsys.readouterr().err


def test_a_folder_put_over_the_tasks_replaces_what_is_no_file_there(tmp_path: Path) -> None:
    from recreate.cli.tasks import _replace
    from recreate.sandboxes import choose

    sandbox = choose().open()
    try:
        sandbox.run("mkdir -p a/b; echo x > file; ln -s /etc link")
        for path in ("a", "file/below/it", "link/passwd"):
            _replace(sandbox, path, b"mine", 0o644)
            assert sandbox.read(path) == b"mine"
    finally:
        sandbox.close()


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--answer", "x", "--patch", "f"],
        ["--patch", "gone"],
        ["--dir", "gone"],
        ["--patch", "bytes"],
    ],
    ids=str,
)
def test_one_answer_that_can_be_read_is_needed(ask: Ask, workspace: Path, flags: list[str]) -> None:
    (workspace / "bytes").write_bytes(b"\xff\xfe")
    code, (error,) = ask("grade", TOY, "toy:train:3", *flags)
    assert code == 2
    assert error["error"]["fix"]


class Nothing(Toy):
    """Its methods return what a port does not promise."""

    def tasks(self, split: Any = None) -> Any:
        return None


class Five(Toy):
    def tasks(self, split: Any = None) -> Any:
        return 5


class Words(Toy):
    def tasks(self, split: Any = None) -> Any:
        return ["a task"]


class NoGold(Toy):
    def gold(self, task: Task) -> Any:
        return None


class OneGrade(Toy):
    def grade(self, task: Task, trace: Trace, backend: Any) -> Any:
        return 1


class NoExploits(Toy):
    def exploits(self, task: Task) -> Any:
        return None


@pytest.mark.parametrize(
    ("command", "part", "said"),
    [
        ("list", "Nothing", "Nothing.tasks returned None"),
        ("check", "Nothing", "Nothing.tasks returned None"),
        ("list", "Five", "Five.tasks returned int 5"),
        ("check", "Words", "holds str, not Task"),
        ("check", "NoGold", "NoGold.gold returned None"),
        ("check", "OneGrade", "OneGrade.grade returned int 1"),
        pytest.param(
            "audit",
            "NoExploits",
            "NoExploits.exploits returned None",
            marks=pytest.mark.plugin("audit"),
        ),
    ],
)
def test_what_a_domains_method_returns_wrongly_is_its_authors_to_mend(
    workspace: Path, capsys: pytest.CaptureFixture[str], command: str, part: str, said: str
) -> None:
    assert run(["tasks", command, f"tests.cli.test_tasks:{part}", "--json"]) == 2
    error = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    assert said in error["message"]
    assert "docs/ports/domain.md" in error["fix"]
