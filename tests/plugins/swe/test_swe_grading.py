"""What decides a grade: the tests of the release that mends a bug, and a grader that is known by
what it does."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recreate.api.types import Grade, Task, Trace
from recreate.domains.validate import validate
from recreate.plugins.swe import Swe, grader, patch, sources
from recreate.plugins.swe.case import RealCase
from recreate.plugins.swe.exam import Exam
from recreate.plugins.swe.facts import Bug
from tests.plugins.swe.swe_project import FILES, SUMS, TEST_SUMS, Project, write

BUGGY = SUMS.replace("value > high", "value < high")
OLD_TESTS = TEST_SUMS.replace("assert clamp(4, 0, 3) == 3", "assert clamp(2, 0, 3) == 2").replace(
    "[(1, 1), (9, 3)]", "[(1, 1)]"
)
NEW_TEST = (
    "from calm.sums import clamp\n\n\ndef test_higher():\n    assert clamp(40, 0, 30) == 30\n"
)
RELEASES = {
    "1": (
        FILES
        | {
            "calm/sums.py": BUGGY,
            "tests/test_sums.py": OLD_TESTS,
            "tests/test_gone.py": "def test_no(): 1 / 0\n",
        }
    ),
    "2": FILES | {"tests/test_new.py": NEW_TEST, "docs/new.py": "x = 1\n"},
}


@dataclass
class Real:
    """A bug of release 1 that release 2 mends, with other tests in each."""

    project: Project
    case: RealCase
    swe: Swe
    task: Task

    def grade(self, answer: dict[str, str]) -> Grade:
        before = sources.texts(
            self.case.start_folder(),
            [p for p in answer if (self.case.start_folder() / p).is_file()],
        )
        trace = Trace(
            attempt="a",
            task=self.task.id,
            scaffold="s",
            model="m",
            answer=patch.make(before, answer),
        )
        return self.swe.grade(self.task, trace, self.project.backend)


@pytest.fixture
def real(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Real:
    for version, files in RELEASES.items():
        write(tmp_path / version, files)

    def release(package: str, version: str, *_: Any) -> Path:
        return tmp_path / version

    monkeypatch.setattr(sources, "release", release)
    bug = Bug(
        id="calm-2",
        package="calm",
        before="1",
        after="2",
        before_sha256="1" * 64,
        after_sha256="2" * 64,
        split="test",
        group="calm/sums",
        prompt="clamp is wrong above",
        tests=("tests",),
        fail_to_pass=("tests/test_new.py::test_higher", "tests/test_sums.py::test_high_is_high"),
    )
    case = RealCase(bug, lambda _: None)
    return Real(project, case, Swe(env=project.env, say=lambda _: None, patience=1.0), case.task())


def test_a_real_bug_is_judged_by_the_tests_of_the_release_that_mends_it(real: Real) -> None:
    graded, given = (
        sources.texts(folder) for folder in (real.case.graded(), real.case.start_folder())
    )
    assert {p: t for p, t in graded.items() if p.startswith("tests/")} == {
        "tests/test_sums.py": TEST_SUMS,
        "tests/test_words.py": FILES["tests/test_words.py"],
        "tests/test_new.py": NEW_TEST,
    }
    assert graded["calm/sums.py"] == BUGGY
    assert given["tests/test_sums.py"] == OLD_TESTS
    assert "tests/test_new.py" not in given
    assert real.case.gold() == {"calm/sums.py": SUMS}


@pytest.mark.slow
def test_tests_that_an_answer_brings_do_not_stand_in_for_them(real: Real) -> None:
    weaker = {
        "tests/test_sums.py": OLD_TESTS + "\n# the same\n",
        "tests/test_new.py": "def test_higher(): pass\n",
    }
    assert real.grade({"calm/sums.py": SUMS}).passed
    assert real.grade({"calm/sums.py": SUMS, **weaker}).passed
    wrong = real.grade({"calm/sums.py": BUGGY + "\n", **weaker})
    assert wrong.evidence.startswith("FAIL_TO_PASS 0/2")
    assert "tests/test_new.py (a test)" in wrong.evidence


@pytest.mark.slow
def test_what_the_later_tests_ask_is_asked_without_saying_what_is_right(real: Real) -> None:
    asked = real.swe.exam(real.task, real.project.backend)
    assert asked.telling == real.case.fail_to_pass
    assert "assert _seen" in asked.files["tests/test_new.py"]
    assert "== 30" not in asked.files["tests/test_new.py"]
    hard_coded = BUGGY.replace(
        "    if value < low", "    if value == 4:\n        return 3\n    if value < low", 1
    )
    assert not real.grade({"calm/sums.py": hard_coded}).passed


@pytest.mark.slow
def test_a_task_whose_tests_tell_nothing_of_the_bug_does_not_hold(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not real.swe.exam(real.task, real.project.backend).blind
    monkeypatch.setattr(Swe, "exam", lambda *_: Exam(blind=True))
    proof = validate(real.swe, real.task, real.project.backend)
    assert (proof.ok, proof.gold, proof.untouched) == (False, 1.0, 1.0)
    assert "an answer which forges their run would pass" in proof.reason


@pytest.mark.slow
def test_an_attempt_is_known_by_the_grader_that_graded_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:

    before = project.swe.grader
    told: dict[str, str] = {}
    real_text = Path.read_text

    def changed(path: Path, *a: Any, **k: Any) -> str:
        text = real_text(path, *a, **k)
        return text + "\nx = 1\n" if path.name == told.get("name") else text

    monkeypatch.setattr(Path, "read_text", changed)
    for name in (
        "pytest_runner",
        "observer",
        "withheld",
        "exam",
        "test_run",
        "domain",
        "patch",
        "sources",
    ):
        told["name"] = f"{name}.py"
        assert grader.version.__wrapped__() != before, name
    told["name"] = "nothing.py"
    assert grader.version.__wrapped__() == before


def test_layout_comments_and_docstrings_are_no_part_of_the_version() -> None:
    text = Path(grader.__file__).read_text("utf-8")
    assert grader.meaning(text) == grader.meaning(ast.unparse(ast.parse(text)) + "\n# said\n")
    assert grader.meaning('def f():\n    """Said."""\n    return 1\n') == grader.meaning(
        "def f(): return 1\n"
    )
    assert grader.meaning("x = 1\n") != grader.meaning("x = 2\n")
    assert grader.meaning("x = 1\n\ndef compared(): return 2\n") == grader.meaning("x = 1\n")
    assert grader.meaning("x = 1\n\ndef graded(): return 2\n") != grader.meaning("x = 1\n")


def test_no_grade_depends_on_what_is_no_part_of_the_version() -> None:
    here = Path(grader.__file__).parent
    used = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for name in grader._DECIDES
        for node in ast.walk(ast.parse((here / f"{name}.py").read_text("utf-8")))
        if isinstance(node, ast.Attribute | ast.Name)
    }
    assert not used & grader._BESIDE
