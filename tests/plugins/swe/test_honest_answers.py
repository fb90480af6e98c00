"""Right answers that are written in another way than the package does: withheld values compare by
equality."""

import ast
import tomllib
from pathlib import Path

import pytest

from recreate.api.types import Task, Trace
from recreate.plugins.swe import Swe, patch
from recreate.plugins.swe.case import case_of
from recreate.sandboxes import choose

ANSWERS = {
    name: answer["function"]
    for name, answer in tomllib.loads(
        (Path(__file__).parent / "honest_answers.toml").read_text()
    ).items()
}


@pytest.mark.live
@pytest.mark.parametrize("name", ANSWERS)
def test_a_right_answer_that_is_written_differently_passes(name: str) -> None:
    domain = Swe()
    task = next(t for t in domain.tasks() if t.facts["kind"] == "injected" and _name(t) == name)
    bug = task.facts["bug"]
    buggy = (case_of(task, print).graded() / bug["file"]).read_text()
    function = next(
        node
        for node in ast.walk(ast.parse(buggy))
        if isinstance(node, ast.FunctionDef) and node.name == bug["function"].split(".")[-1]
    )
    lines = buggy.split("\n")
    mended = [
        *lines[: function.lineno - 1],
        *ANSWERS[name].strip().split("\n"),
        *lines[function.end_lineno :],
    ]
    answer = patch.make({bug["file"]: buggy}, {bug["file"]: "\n".join(mended)})
    grade = domain.grade(
        task, Trace(attempt="a", task=task.id, scaffold="", model="", answer=answer), choose()
    )
    assert grade.passed, grade.evidence


def _name(task: Task) -> str:
    bug = task.facts["bug"]
    return f"{Path(bug['file']).stem}.{bug['function']}"
