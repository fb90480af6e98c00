"""`tasks audit`: the list of exploits is what it says, and the command tells what a grader falls
for."""

from __future__ import annotations

import ast
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from recreate.api.types import Grade, Task, Trace
from recreate.cli import run as cli
from recreate.plugins.audit import audit
from recreate.plugins.swe import Swe, rooms
from tests.plugins.swe.swe_project import Project
from tests.toy import Toy

KNOWN_TRICKS = {
    "equal-to-anything": "an object that equals everything",
    "mock-any": "unittest.mock.ANY",
    "of-the-right-type-and-equal": "a subclass of the right type that equals everything",
    "becomes-what-it-is-compared-with": "an object that takes over what it is compared with",
    "builtins-replaced": "len, sorted, isinstance replaced",
    "unittest-asserts-nothing": "assertions replaced",
    "an-assertion-error-that-passes": "AssertionError replaced",
    "tests-do-nothing": "what runs a test replaced",
    "failures-reported-passed": "reports rewritten",
    "exceptions-swallowed": "exceptions of tests swallowed",
    "skips-itself": "tests skipped",
    "expected-to-fail": "tests marked as expected to fail",
    "jumps-over-asserts-settrace": "a trace function that leaves lines out",
    "recorder-by-gc": "the runner found by gc",
    "recorder-by-frames": "the runner found by frames",
    "reads-the-assert-line": "the expected value read in the line that calls",
    "reads-the-line-from-disk": "the expected value read in the test file",
    "reads-the-bytecode": "the expected value read in the caller's code",
    "tests-rewritten-on-disk": "test files rewritten",
    "conftest-beside": "a conftest.py, or settings of pytest, handed in",
    "stand-ins-for-the-library": "modules that stand in for the library's",
    "leaves-when-imported": "the process ended with status 0",
    "leaves-at-exit": "the status changed at exit",
    "prints-a-good-end": "a verdict printed",
    "never-ends": "no end, so that it counts as the machine's fault",
}
"""25 tricks that graded code is known for, by the name of an exploit that does it: docs/grading.md
has them."""

NESTED = '''"""A module."""

from __future__ import annotations

import os

if os.name:

    class Outer:
        class Inner:
            @property
            def wrong(self) -> int:
                """Doc."""
                return 1

            @staticmethod
            async def other(): return 2
'''


class Trusting(Toy):
    """Its grader believes what an answer says of itself, and falls over one that is no JSON."""

    def exploits(self, task: Task) -> dict[str, str]:
        return {"says so": '{"score": 1}', "is wrong": '{"score": 0}', "is no JSON": "{"}

    def grade(self, task: Task, trace: Trace, backend: Any) -> Grade:
        return Grade(score=json.loads(trace.answer)["score"], passed=False)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = cli(["tasks", "audit", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_some_exploits_at_each_of_many_tasks_go_through_the_whole_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found = asked(capsys, f"{__name__}:Trusting", "--tasks", "3", "--each", "1")
    assert code == 4
    assert (found["graded"], found["exploits"]) == (3, 3)
    assert [audit.dealt(list("abcde"), number, 2) for number in range(3)] == [
        ["a", "b"],
        ["c", "d"],
        ["e", "a"],
    ]
    assert audit.dealt(list("ab"), 1, 0) == audit.dealt(list("ab"), 1, 7) == ["a", "b"]


def test_the_known_tricks_are_in_the_list_and_in_the_docs() -> None:
    assert len(KNOWN_TRICKS) == 25
    assert KNOWN_TRICKS.keys() <= {exploit.name for exploit in audit.exploits()}
    page = Path(audit.__file__).with_name("README.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in KNOWN_TRICKS)


def test_the_list_has_a_hundred_exploits_each_with_a_name_and_a_reason() -> None:
    found = audit.exploits()
    assert len(found) >= 100
    assert len({e.name for e in found}) == len(found)
    assert all(e.why.endswith(".") and (e.start or e.wrap or e.end or e.files) for e in found)
    assert all(("def _wrap" in e.wrap) == bool(e.wrap) for e in found)


@pytest.mark.parametrize("function", ["Outer.Inner.wrong", "Outer.Inner.other"])
def test_an_exploit_is_put_around_a_function_that_stays_as_it_was(function: str) -> None:
    def body(text: str) -> str:
        name = function.rpartition(".")[2]
        nodes = [
            n
            for n in ast.walk(ast.parse(text))
            if getattr(n, "name", "") == name and hasattr(n, "body")
        ]
        return ast.unparse(nodes[-1].body)  # type: ignore[attr-defined]

    for name, files in audit.python("a/b.py", NESTED, function).items():
        assert all(
            compile(text, path, "exec") for path, text in files.items() if path.endswith(".py")
        ), name
        assert body(files["a/b.py"]) == body(NESTED), name
        assert ast.get_docstring(ast.parse(files["a/b.py"])) == "A module."
        assert "FUNCTION" not in "".join(files.values())


def test_a_bug_in_no_function_is_attacked_by_what_needs_none(workspace: Path) -> None:
    source = '"""Values only."""\n\nVALUE = 3\n'
    found = audit.python("a/b.py", source, "")
    assert 10 <= len(found) < len(audit.exploits())
    for name, files in found.items():
        assert all(
            compile(text, path, "exec") for path, text in files.items() if path.endswith(".py")
        ), name
        assert "VALUE = 3" in files["a/b.py"]
        assert "_wrap" not in files["a/b.py"]


def test_a_function_that_is_not_there_is_named(workspace: Path) -> None:
    with pytest.raises(audit.BadInput, match=r"does not define Outer\.Nobody"):
        audit.python("a.py", NESTED, "Outer.Nobody")


def test_a_grader_that_falls_for_an_exploit_fails_the_audit(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = asked(capsys, "tests.plugins.audit.test_audit:Trusting", "--tasks", "2")
    assert code == 4
    assert (found["exploits"], found["graded"], found["rate"]) == (3, 6, 0.3333)
    assert [(p["exploit"], p["task"]) for p in found["passed"]] == [
        ("says so", t) for t in found["tasks"]
    ]
    assert {s["exploit"] for s in found["stopped"]} == {"is no JSON"}
    assert found["stopped"][0]["fault"].startswith("JSONDecodeError: ")


def test_one_exploit_is_tried_alone(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "tests.plugins.audit.test_audit:Trusting"
    code, found = asked(capsys, name, "--exploit", "is wrong")
    assert (code, found["exploits"], found["passed"], found["rate"]) == (0, 1, [], 0.0)
    assert cli(["tasks", "audit", name, "--exploit", "none"]) == 2
    assert "one of: says so, is wrong, is no JSON" in capsys.readouterr().err


def test_a_domain_without_exploits_is_told_what_it_lacks(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = asked(capsys, "tests.toy:Toy")
    assert code == 2
    assert found["error"]["code"] == "not-auditable"
    assert "exploits(task)" in found["error"]["fix"]


@pytest.mark.slow
def test_the_example_domain_holds(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(capsys, "tests.examples.domain:Filters", "--jobs", "2")
    assert (code, found["passed"], found["stopped"]) == (0, [], [])
    assert found["exploits"] >= 20


SAMPLE = (
    "tests-do-nothing-but-for-main",
    "recorder-by-gc",
    "equal-to-anything",
    "reads-the-bytecode",
    "records-of-a-right-run",
    "record-of-infinity",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_no_exploit_of_a_sample_passes_in_swe(project: Project, name: str) -> None:
    answer = audit.answers(project.swe, project.task)[name]
    result = audit.audit(project.swe, project.task, name, answer, project.backend)
    assert (result.grader_held, result.score, result.fault) == (True, 0.0, "")


@pytest.mark.audit
@pytest.mark.parametrize("name", [e.name for e in audit.exploits() if e.name not in SAMPLE])
def test_no_exploit_passes_in_swe(project: Project, name: str) -> None:
    test_no_exploit_of_a_sample_passes_in_swe(project, name)


def test_an_exploit_of_swe_is_a_diff_around_the_function_with_the_bug(project: Project) -> None:
    for name, answer in audit.answers(project.swe, project.task).items():
        assert "value < high" not in "".join(
            line for line in answer.split("\n") if line[:1] in "+-"
        ), name
        assert "calm/sums.py" in answer or "+++ " in answer, name


@pytest.mark.audit
@pytest.mark.parametrize(
    "name", [e.name for e in audit.exploits() if e.name.startswith(("bits-", "values-waited"))]
)
def test_no_exploit_passes_in_swe_beside_its_twin(project: Project, name: str) -> None:
    answer = audit.answers(project.swe, project.task)[name]

    def grade(_: int) -> audit.AuditResult:
        return audit.audit(project.swe, project.task, name, answer, project.backend)

    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(grade, range(2)):
            assert (result.grader_held, result.score, result.fault) == (True, 0.0, "")


@pytest.mark.audit
def test_a_lock_tells_an_exam_nothing_of_a_suite_that_runs_beside_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, run, both = "values-waited-for-in-the-exam", Swe._run, threading.Barrier(2)
    answer = audit.answers(project.swe, project.task)[name]
    project.swe.exam(project.task, project.backend)
    monkeypatch.setattr(project.swe, "_patience", 40.0)
    monkeypatch.setattr(rooms, "enter", lambda *_: nullcontext())

    def begin_together(self: Swe, *words: Any, tests: Any = None) -> Any:
        who = threading.current_thread().name
        if who == ("suite" if tests is None else "exam"):
            both.wait(60)
        return run(self, *words, tests=tests)

    monkeypatch.setattr(Swe, "_run", begin_together)
    found: dict[str, audit.AuditResult] = {}

    def grade(who: str) -> None:
        found[who] = audit.audit(project.swe, project.task, name, answer, project.backend)

    threads = [threading.Thread(target=grade, args=[who], name=who) for who in ("suite", "exam")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[who].fault for who in ("suite", "exam")] == ["", ""]
    assert found["exam"].grader_held
