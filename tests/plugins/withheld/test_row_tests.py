"""The scorer `tests`: every form of hidden tests, and what only pretends to pass them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recreate.api.ports import SandboxBackend
from recreate.domains.rows.domain import RowDomain
from recreate.plugins.withheld.row_tests import PROGRAMS, changes_of
from recreate.plugins.withheld.row_tests import read_tests as forms_of
from recreate.sandboxes import choose
from tests.row_domains import graded, opened


@pytest.fixture(scope="module")
def backend() -> SandboxBackend:
    return choose()


PYTHON = """from solution import add

def test_one():
    assert add(1, 2) == 3

def test_two():
    assert add(0, 0) == 0
"""
ADD = "def add(a, b):\n    return a + b\n"
CASES = [{"stdin": "2\n", "stdout": "4\n"}, {"stdin": "5\n", "stdout": "10"}]


def code(workspace: Path) -> RowDomain:
    rows = [
        {"prompt": "Write add.", "tests": PYTHON, "solution": ADD},
        {"prompt": "Double.", "tests": CASES, "solution": "print(2 * int(input()))\n"},
        {
            "prompt": "Say hello in hello.txt.",
            "tests": "grep -q hello hello.txt",
            "solution": {"hello.txt": "hello"},
        },
        {
            "prompt": "Write neg.",
            "tests": "def check(f):\n    assert f(2) == -2\n",
            "entry_point": "neg",
            "solution": "def neg(x):\n    return -x\n",
        },
    ]
    return opened(workspace, rows, "tests")


def test_every_form_of_tests_passes_its_gold_and_fails_another(
    workspace: Path, backend: SandboxBackend
) -> None:
    part = code(workspace)
    for number, task in enumerate(part.tasks()):
        assert graded(part, number, part.gold(task), backend).score == 1.0, task.prompt
        assert not graded(part, number, "", backend).passed
        assert not graded(part, number, part.gold(part.tasks()[number - 1]), backend).passed


def test_a_part_of_the_tests_is_a_part_of_the_score(
    workspace: Path, backend: SandboxBackend
) -> None:
    part = code(workspace)
    grade = graded(part, 0, "def add(a, b):\n    return 0\n", backend)
    assert (grade.score, grade.passed) == (0.5, False)
    assert "test_one: AssertionError" in grade.evidence
    assert graded(part, 1, "print(4)", backend).score == 0.5


UNRUN = {
    "class TestAdd:\n    def setup_method(self):\n        self.one = 1\n\n    def test_it(self)"
    ":\n        assert add(self.one, 2) == 3\n": (1.0),
    "def test_it(tmp_path):\n    assert add(1, 2) == 3\n": 0.0,
    "async def test_it():\n    assert add(1, 2) == 3\n": 0.0,
    "def test_it():\n    yield add(1, 2) == 3\n": 0.0,
    "def check(f):\n    assert f(1, 2) == 3\n": 1.0,
}
"""Tests as pytest knows them, with what a right answer scores: what is not run here must not pass
for nothing."""


@pytest.mark.parametrize("score", ["tests", "tests-together"])
@pytest.mark.parametrize("tests", UNRUN)
@pytest.mark.slow
def test_a_test_is_run_or_does_not_pass(
    workspace: Path, backend: SandboxBackend, tests: str, score: str
) -> None:
    rows = [
        {"prompt": "Write add.", "tests": f"from solution import add\n\n\n{tests}", "solution": ADD}
    ]
    rows[0] |= {"entry_point": "add"}
    part = opened(workspace, rows, score)
    assert graded(part, 0, ADD, backend).score == UNRUN[tests]
    assert graded(part, 0, "def add(a, b):\n    return 0\n", backend).score == 0.0


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_that_only_pretends_passes_nothing(
    workspace: Path, backend: SandboxBackend, name: str
) -> None:
    part = code(workspace)
    for number in (0, 1):
        assert graded(part, number, PROGRAMS[name], backend).score == 0.0


def test_what_was_changed_is_handed_in(workspace: Path, backend: SandboxBackend) -> None:
    rows = [
        {
            "prompt": "Mend it.",
            "tests": "python3 main.py",
            "files": {"main.py": "1/0\n", "b.txt": "b", "c.txt": "c"},
        }
    ]
    part = opened(workspace, rows, "tests")
    task = part.tasks()[0]
    sandbox = part.prepare(task, backend)
    try:
        assert part.collect(task, sandbox) == ""
        sandbox.run(
            "echo 'print(1)' > main.py; rm b.txt; mkdir d; echo x > d/new; ln -s /etc/passwd link;"
            " echo y > ' odd\n'"
        )
        answer = part.collect(task, sandbox)
    finally:
        sandbox.close()
    found = json.loads(answer)
    assert found == {"main.py": "print(1)\n", "b.txt": None, "d/new": "x\n"}
    assert graded(part, 0, json.dumps(found), backend).passed
    assert not graded(part, 0, '{"main.py": null}', backend).passed
    assert graded(part, 0, '{"../x": "1"}', backend).score == 0.0


def test_hidden_tests_win_over_what_was_handed_in(workspace: Path, backend: SandboxBackend) -> None:
    forged = {
        "test_answer.py": "def test_one(): pass\n",
        "solution.py": "def add(a, b): return 1\n",
    }
    assert graded(code(workspace), 0, json.dumps(forged), backend).score == 0.0
    folder = {"test_answer.py/x": "", "solution.py": ADD}
    assert graded(code(workspace), 0, json.dumps(folder), backend).score == 1.0


def test_tests_that_cannot_be_are_bad_rows() -> None:
    for cell in (
        [],
        [{"stdin": "x"}],
        {"../a.py": ""},
        5,
        " ",
        "{",
        [{"stdout": "x", "args": "a"}],
    ):
        with pytest.raises(ValueError, match=r"^(has|is) "):
            forms_of(cell)
    assert forms_of('[{"stdout": "x"}]')[0] == "cases"
    assert changes_of("{not json", "solution.py") == {"solution.py": "{not json"}
