"""The scorers `tests` and `tests-together`: which files a row's tests and answer are, and what is
made of what they tell. Sandboxes are stood in for here; test_row_tests.py has real ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api.errors import BadInput
from recreate.api.types import Output, Trace
from recreate.domains.rows.domain import RowDomain
from recreate.domains.rows.scorers import RowTask, Scored, find_scorer
from recreate.plugins.withheld import apart, looks, row_tests
from recreate.plugins.withheld.row_tests import changes_of, collect_changes, read_tests
from tests.row_domains import opened

ADD = "def add(a, b):\n    return a + b\n"
TEST = "from solution import add\n\ndef test_it():\n    assert add(1, 2) == 3\n"


class Disk:
    """A sandbox that holds files and answers commands with what it was told to."""

    def __init__(self, *outputs: Output, files: Mapping[str, bytes] = {}) -> None:
        self.outputs = list(outputs)
        self.files = dict(files)
        self.ran: list[tuple[Any, bytes]] = []
        self.closed = 0

    def run(self, command: Any, *, timeout: float = 0.0, stdin: bytes = b"") -> Output:
        self.ran.append((command, stdin))
        return self.outputs.pop(0)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.files[path] = data

    def read(self, path: str) -> bytes:
        return self.files[path]

    def close(self) -> None:
        self.closed += 1


class Opens:
    """Opens these sandboxes, one after the other; shown: what each was given of this machine."""

    def __init__(self, *disks: Disk, walls: bool = True) -> None:
        self.disks = list(disks)
        self.walls = walls
        self.shown: list[Mapping[str, Path] | None] = []
        self.texts: list[dict[str, bytes]] = []

    def __call__(self, limits: Any, shown: Mapping[str, Path] | None = None) -> Any:
        if shown and not self.walls:
            raise BadInput("no walls", fix="bwrap")
        self.shown.append(shown)
        self.texts.append({place: path.read_bytes() for place, path in (shown or {}).items()})
        return self.disks.pop(0)


def row(workspace: Path, score: str = "tests", **cells: Any) -> tuple[RowDomain, RowTask]:
    part = opened(workspace, [{"prompt": "Do it.", **cells}], score)
    (task,) = part.tasks()
    return part, RowTask(task, part.definition, workspace)


def score(case: RowTask, answer: Any, opens: Opens, scorer: str = "tests") -> Scored:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    trace = Trace(attempt="a", task=case.task.id, scaffold="", model="", answer=text)
    return find_scorer(scorer).score(case, trace, opens)


# what a cell of tests, and an answer, are


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("grep -q x y", "command"),
        (" grep -q x y\n", "command"),
        ("#!/bin/sh\ntrue\n", "command"),
        ("#! /usr/bin/env bash\ntrue\n", "command"),
        ("#!/bin/shame\ntrue\n", "files"),
        ("# !/bin/sh\ntrue\n", "files"),
        (TEST, "files"),
        ({"test_a.py": ""}, "files"),
        ('{"test_a.py": ""}', "files"),
        ([{"stdout": "x", "args": ["a"], "stdin": "b"}], "cases"),
        (' [{"stdout": "x"}]', "cases"),
    ],
)
def test_tests_are_a_line_files_or_cases(cell: Any, kind: str) -> None:
    assert read_tests(cell)[0] == kind


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ([], "no case"),
        (["x"], 'a text "stdout"'),
        ([{"stdout": 3}], 'a text "stdout"'),
        ([{"stdout": "x", "args": "a"}], "no list of texts"),
        ([{"stdout": "x", "args": ["a", 3]}], "no list of texts"),
        ([{"stdout": "x", "stdin": 3}], "no list of texts"),
        ("[", "neither a command"),
        (None, "no text"),
        ("", "no text"),
        (" \n", "no text"),
    ],
)
def test_what_are_no_tests_is_said(cell: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_tests(cell)


@pytest.mark.parametrize(
    ("answer", "files"),
    [
        ("x = 1\n", {"solution.py": "x = 1\n"}),
        ('{"a.py": "x", "b.py": null}', {"a.py": "x", "b.py": None}),
        (' {"a.py": ""}', {"a.py": ""}),
        ('{"a.py": 3}', {"solution.py": '{"a.py": 3}'}),
        ('{"a.py"', {"solution.py": '{"a.py"'}),
        ('["a.py"]', {"solution.py": '["a.py"]'}),
        ("{}", {}),
    ],
)
def test_an_answer_is_changed_files_or_one_files_text(
    answer: str, files: dict[str, str | None]
) -> None:
    assert changes_of(answer, "solution.py") == files


def test_an_answer_that_leaves_its_folder_scores_nothing(workspace: Path) -> None:
    _, case = row(workspace, tests="true", solution=ADD)
    scored = score(case, {"../x": "y"}, Opens())
    assert scored.score == 0.0
    assert scored.why.startswith("The answer ")


@pytest.mark.parametrize(("answer", "nothing"), [("", True), (" {} ", True), ("x", False)])
def test_an_answer_without_a_file_is_said_to_be_none(
    workspace: Path, answer: str, nothing: bool
) -> None:
    _, case = row(workspace, tests="true", solution=ADD)
    said = find_scorer("tests").explain_nothing(case.definition, answer)
    assert bool(said) is nothing


def test_what_differs_is_collected_up_to_so_many_files_of_such_a_size() -> None:
    def collect(files: Mapping[str, bytes], before: Mapping[str, bytes], *more: str) -> Any:
        listed = "\0".join([*files, *more]) + "\0"
        answer = collect_changes(Disk(Output(text=listed, status=0), files=files), before)  # type: ignore[arg-type]
        return json.loads(answer) if answer else None

    assert collect({"a": b"x"}, {"a": b"x"}) is None
    assert collect({"a": b"y", "b": b"\xff"}, {"a": b"x", "b": b""}) == {"a": "y"}
    assert collect({}, {"a": b"x", "large": b"x" * 1_000_001}) == {"a": None}
    assert collect({"a": b"x" * 1_000_000, "b": b"x" * 1_000_001}, {}) == {"a": "x" * 1_000_000}
    assert len(collect({f"f{n}": b"x" for n in range(300)}, {})) == 200
    assert collect({"\x01": b"x", "../a": b"x", "b": b"x"}, {}) == {"b": "x"}


# tests apart from the answer


def test_the_side_of_the_tests_is_told_which_modules_are_whose(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = {"test_it.py": TEST, "checks/__init__.py": "", "checks/a_test.py": TEST, "t.json": "{}"}
    _, case = row(
        workspace,
        tests=tests,
        solution=ADD,
        entry_point="add",
        files={"app/__init__.py": "", "app/sums.py": "", "not-a-name.py": "", "readme.md": ""},
    )
    told: list[Any] = []

    def run(program: str, *given: Any) -> Any:
        told.extend(given)
        return {"passed": 3, "failed": [f"t{n}: wrong" for n in range(11)], "count": 14}, ""

    monkeypatch.setattr(apart, "run", run)
    own, other = Disk(), Disk()
    scored = score(case, {"solution.py": "x", "more/new.py": "y"}, Opens(own, other))
    asked = told[2]
    assert asked["files"] == ["checks/a_test.py", "test_it.py"]
    assert asked["own"] == ["checks", "checks.a_test", "test_it"]
    assert asked["modules"] == ["app", "app.sums", "solution"]
    assert asked["more"] == ["more.new", "solution"]
    assert asked["binds"]["test_it.py"] == looks.find_names(TEST)
    assert (asked["solution"], asked["entry"]) == ("solution", "add")
    assert told[:2] == [own, other]
    assert sorted(own.files) == sorted(tests)
    assert sorted(other.files) == ["more/new.py", "solution.py"]
    assert (own.closed, other.closed) == (1, 1)
    assert scored.score == 3 / 14
    assert scored.why.splitlines() == ["3 of 14 tests pass.", *(f"t{n}: wrong" for n in range(10))]


@pytest.mark.parametrize(
    ("found", "why", "said"),
    [
        ({}, "took longer than 3 s", "took longer than 3 s"),
        ({"passed": 0, "failed": [], "count": 0}, "", "there is none"),
    ],
)
def test_tests_that_are_not_run_to_their_end_score_nothing(
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: dict[str, Any],
    why: str,
    said: str,
) -> None:
    _, case = row(workspace, tests=TEST, solution="x = 2\n")
    monkeypatch.setattr(apart, "run", lambda *_: (found, why))
    scored = score(case, "x = 1\n", Opens(Disk(), Disk()))
    assert scored == Scored(0.0, f"The tests could not be run to their end: {said}.")


@pytest.mark.parametrize(
    ("answer", "beside", "advised"),
    [(ADD, 1.0, True), (ADD, 0.5, False), ("x = 1\n", 1.0, False)],
)
def test_a_right_answer_that_fails_apart_alone_is_advised(
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    beside: float,
    advised: bool,
) -> None:
    _, case = row(workspace, tests=TEST, solution=ADD)
    monkeypatch.setattr(apart, "run", lambda *_: ({"passed": 0, "failed": ["x"], "count": 1}, ""))
    told = {"passed": 1, "failed": [], "count": 1} if beside == 1.0 else {"count": 0}
    monkeypatch.setattr(row_tests, "run_program", lambda *_: (told, Output(text="", status=0)))
    scored = score(case, answer, Opens(Disk(), Disk()))
    assert ("tests-together" in scored.why) is advised
    assert (scored.score, "0 of 1 tests pass" in scored.why) == (0.0, True)


# tests in one process with the answer


@pytest.mark.parametrize(
    ("found", "part", "said"),
    [
        ({"passed": 1, "failed": ["t: x"], "count": 2}, 0.5, "1 of 2 tests pass.\nt: x"),
        ({"passed": 2, "failed": [], "count": 2}, 1.0, "2 of 2 tests pass."),
        ({"passed": 0, "count": 1}, 0.0, "0 of 1 tests pass."),
        ({"passed": 3, "failed": [], "count": 2}, 0.0, "What the tests told cannot be."),
        ({"passed": -1, "failed": [], "count": 2}, 0.0, "What the tests told cannot be."),
        ({"passed": "1", "failed": [], "count": 1}, 0.0, "What the tests told cannot be."),
        ({"passed": 0, "failed": [], "count": 0}, 0.0, "told nothing"),
        ({"passed": 1, "failed": [], "count": "1"}, 0.0, "told nothing"),
        ([1], 0.0, "told nothing"),
        (None, 0.0, "told nothing"),
    ],
)
def test_what_tests_tell_that_cannot_be_scores_nothing(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, found: Any, part: float, said: str
) -> None:
    tests = {"test_b.py": TEST, "a.py": "", "t.json": "{}"}
    _, case = row(workspace, "tests-together", tests=tests, solution=ADD, entry_point="add")
    asked: list[Any] = []

    def run(*given: Any) -> Any:
        asked.extend(given)
        return found, Output(text="", status=0)

    monkeypatch.setattr(row_tests, "run_program", run)
    scored = score(case, ADD, Opens(), "tests-together")
    assert scored.score == part
    assert said in scored.why
    assert asked[3] == {"files": ["a.py", "test_b.py"], "solution": "solution.py", "entry": "add"}
    assert asked[4:] == [tests, {"solution.py": ADD}]
    assert asked[2][:2] == ["python3", "-B"]


# cases


def run_cases(case: RowTask, *outputs: Output) -> tuple[Scored, Disk]:
    disk = Disk(*outputs)
    return score(case, "print(1)\n", Opens(disk)), disk


def test_cases_are_compared_line_by_line(workspace: Path) -> None:
    cases = [{"stdout": "1\n2", "args": ["a"], "stdin": "b"}, *({"stdout": "1"} for _ in range(7))]
    _, case = row(workspace, tests=cases, solution="print(1)\n")
    outputs = [
        Output(text="1 \n2\n\n", status=0),
        Output(text="1\n", status=1),
        Output(text="1\n", status=124, timed_out=True),
        *(Output(text=" 1\n", status=0) for _ in range(5)),
    ]
    scored, disk = run_cases(case, *outputs)
    assert scored.score == 1 / 8
    told = scored.why.splitlines()
    assert (told[0], len(told)) == ("1 of 8 cases are right.", 6)
    assert told[1].startswith("case 2: the program ended with the status 1")
    assert told[2].startswith("case 3: the program took longer than")
    assert told[3] == "case 4: the program prints something else"
    assert disk.ran[0] == (["python3", "solution.py", "a"], b"b")
    assert disk.ran[1] == (["python3", "solution.py"], b"")
    assert (disk.files, disk.closed) == ({"solution.py": b"print(1)\n"}, 1)


@pytest.mark.parametrize(
    ("program", "words"),
    [("run.sh", ["bash", "run.sh"]), ("run", ["./run"]), ("run.py", ["python3", "run.py"])],
)
def test_a_program_is_started_by_what_its_name_ends_with(
    workspace: Path, program: str, words: Sequence[str]
) -> None:
    rows: dict[str, Any] = {"tests": [{"stdout": "1"}], "solution": "x"}
    part, _ = row(workspace, **rows)
    file = part.folder / "domain.toml"
    file.write_text(file.read_text().replace('"solution.py"', f'"{program}"'))
    again = opened(workspace, [{"prompt": "Do it.", **rows}], "")
    case = RowTask(again.tasks()[0], again.definition, workspace)
    assert case.definition.scorer.answer_file == program
    scored, disk = run_cases(case, Output(text="1\n", status=0))
    assert (scored.score, scored.why.strip()) == (1.0, "1 of 1 cases are right.")
    assert disk.ran[0][0] == words


# a line for bash


@pytest.mark.parametrize(("status", "part"), [(0, 1.0), (1, 0.0), (124, 0.0)])
def test_a_line_passes_by_its_status(workspace: Path, status: int, part: float) -> None:
    _, case = row(workspace, tests="grep -q x y", solution={"y": "x"})
    disk = Disk(Output(text="-" * 3000 + "end", status=status))
    scored = score(case, {"y": "z"}, Opens(disk))
    assert scored.score == part
    status_line, said = scored.why.split("\n")
    assert status_line == f"The tests end with the status {status}."
    assert said == "-" * 1997 + "end"
    assert (disk.ran, disk.files, disk.closed) == ([("grep -q x y", b"")], {"y": b"z"}, 1)


OF_TESTS = {
    "bash check.sh": {"check.sh"},
    "bash ./check.sh": {"check.sh"},
    "bash other/check.sh": set(),
    "bash check.sh-old": set(),
    "bash ./*.sh": {"check.sh", "tests/a.sh", "tests/deep/b.sh"},
    "for each in tests/?.sh; do bash $each; done": {"tests/a.sh", "tests/deep/b.sh"},
    "bash tests/deep/b*": {"tests/deep/b.sh"},
    "bash deep/b*": set(),
    "python3 -m tests.a": {"tests/a.sh", "tests/deep/b.sh"},
    "bash pre-check.sh": set(),
    "sh run.sh": {"run.sh", "inner/verify.py"},
    "python3 inner/verify.py": {"inner/verify.py"},
    "bash tests/*": {"tests/a.sh", "tests/deep/b.sh"},
    "ls tests": {"tests/a.sh", "tests/deep/b.sh"},
    "ls tests/": {"tests/a.sh", "tests/deep/b.sh"},
    "ls tests/deep": {"tests/deep/b.sh"},
    "ls inner": set(),
    "make": {"Makefile"},
    "cmake": set(),
    "pytest": {"conftest.py"},
    "npm run": {"package.json"},
    "true": set(),
}
"""A line -> the row's files that are the tests'."""


@pytest.mark.parametrize("line", OF_TESTS)
def test_files_that_a_line_goes_by_are_the_tests(workspace: Path, line: str) -> None:
    files = {
        "check.sh": "1",
        "run.sh": "python3 inner/verify.py",
        "inner/verify.py": "3",
        "tests/a.sh": "4",
        "tests/deep/b.sh": "5",
        "Makefile": "6",
        "conftest.py": "7",
        "package.json": "8",
        "solution.py": "9",
    }
    _, case = row(workspace, tests=line, solution=ADD, files=files)
    opens = Opens(Disk(Output(text="", status=0)))
    disk = opens.disks[0]
    changed = {path: "forged" for path in files}
    scored = score(case, changed, opens)
    assert {place.removeprefix("/work/") for place in opens.texts[0]} == OF_TESTS[line]
    assert all(
        text.decode() == files[place.removeprefix("/work/")]
        for place, text in opens.texts[0].items()
    )
    assert set(disk.files) == files.keys() - OF_TESTS[line]
    told = ", ".join(sorted(OF_TESTS[line]))
    assert ("is not used" in scored.why) is bool(OF_TESTS[line])
    assert f"handed in as {told} is" in scored.why or not told


def test_without_walls_a_line_runs_all_the_same(workspace: Path) -> None:
    _, case = row(workspace, tests="sh check.sh", solution=ADD, files={"check.sh": "x"})
    disk = Disk(Output(text="", status=0))
    assert score(case, {"check.sh": "y", "solution.py": ADD}, Opens(disk, walls=False)).score == 1.0
    assert disk.files == {"solution.py": ADD.encode()}


@pytest.mark.parametrize(
    ("path", "used"),
    [
        ("json.py", False),
        ("json/decoder.py", False),
        ("pytest.py", False),
        ("pytest/__init__.py", False),
        ("conftest.py", False),
        ("inner/conftest.py", False),
        ("Makefile", True),
        ("inner/json.py", True),
        ("jsons.py", True),
        ("other.txt", True),
    ],
)
def test_what_stands_in_for_pythons_own_is_not_used(workspace: Path, path: str, used: bool) -> None:
    _, case = row(workspace, tests="pytest -q", solution=ADD)
    disk = Disk(Output(text="", status=0))
    scored = score(case, {"solution.py": ADD, path: "x"}, Opens(disk))
    assert (path in disk.files) is used
    assert ("is not used" in scored.why) is not used


def test_what_a_right_answer_changes_is_no_file_of_the_tests(workspace: Path) -> None:
    right = {"check.sh": "x", "json.py": "y"}
    _, case = row(workspace, tests="sh check.sh", solution=right, files={"check.sh": "w"})
    disk = Disk(Output(text="", status=0))
    score(case, right, Opens(disk))
    assert disk.files == {"check.sh": b"x", "json.py": b"y"}


def test_without_a_right_answer_a_file_is_the_tests_by_its_name_alone(workspace: Path) -> None:
    files = {"a_test.sh": "1", "plain.sh": "2"}
    _, case = row(workspace, tests="sh a_test.sh; sh plain.sh", files=files)
    disk = Disk(Output(text="", status=0))
    score(case, {"a_test.sh": "x", "plain.sh": "x"}, Opens(disk))
    assert disk.files == {"plain.sh": b"x"}


# what the audit tries


def tried(workspace: Path, **cells: Any) -> dict[str, str]:
    part, case = row(workspace, **cells)
    return part.exploits(case.task)


def file_of(answer: str) -> set[str]:
    return set(json.loads(answer))


@pytest.mark.parametrize(
    ("cells", "file"),
    [
        ({"tests": TEST, "solution": ADD}, "solution.py"),
        ({"tests": TEST, "solution": {"app.py": ADD}, "files": {"app.py": ""}}, "app.py"),
        ({"tests": {"test_a.py": TEST}, "files": {"test_a.py": "", "app.py": ""}}, "app.py"),
        ({"tests": TEST, "solution": {"app.js": "x"}, "files": {"app.js": ""}}, "solution.py"),
        ({"tests": TEST, "solution": {"z.py": "x", "solution.py": ADD}}, "solution.py"),
    ],
)
def test_what_is_tried_is_in_the_file_that_is_to_be_written(
    workspace: Path, cells: dict[str, Any], file: str
) -> None:
    found = tried(workspace, **cells)
    assert file_of(found["ends at once"]) == {file}
    assert file_of(found["equal-to-anything"]) >= {file}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("def add(a, b):\n    return 0\n", True),
        ("def sub(a, b):\n    return 0\n", False),
        ("def add(a, b:\n", False),
        ("", False),
    ],
)
def test_what_is_tried_leaves_a_wrong_function_as_it_was(
    workspace: Path, given: str, kept: bool
) -> None:
    files = {"solution.py": given} if given else {}
    found = tried(workspace, tests=TEST, solution=ADD, entry_point="add", files=files)
    text = json.loads(found["ends at once"])["solution.py"]
    assert text.startswith(given if kept else "def add(*args, **named):\n    return None\n")
    assert text.endswith(row_tests.PROGRAMS["ends at once"])


def test_what_is_tried_at_a_line_goes_by_the_rows_files_that_are_not_to_be_changed(
    workspace: Path,
) -> None:
    files = {"check.sh": "x", "solution.py": ""}
    found = tried(workspace, tests="sh check.sh", solution=ADD, files=files)
    assert "check.sh is nothing" in found
    assert "solution.py is nothing" not in found
    found = tried(workspace, tests=TEST, solution=ADD, files=files)
    assert "check.sh is nothing" not in found
