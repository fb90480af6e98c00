"""Scorers that run something: a person's function, tests, queries; what is wrong with them is no
agent's fault."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from recreate.api import registry
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import SandboxBackend
from recreate.api.types import Grade, Trace
from recreate.domains.rows.domain import PROGRAMS, RowDomain
from recreate.domains.rows.programs import changes_of
from recreate.domains.rows.tasks import tests_of as forms_of
from recreate.sandboxes import choose

KEY = "sk-proj-" + "a1B2" * 12
SCORERS = f"""
import json

def right(answer, row):
    print(json.dumps({{"value": 0.0}}) * 3)
    return answer.strip() == row["answer"]

def words(answer, row):
    return {{"score": 0.5, "passed": True, "evidence": "half of it"}}

def large(answer, row):
    return 1.7

def not_a_number(answer, row):
    return float("nan")

def nothing(answer, row):
    pass

def raises(answer, row):
    if answer != "fine":
        raise KeyError("{KEY}")
    return 1

def hangs(answer, row):
    while True:
        pass

def floods(answer, row):
    while True:
        print("x" * 100000)

def dies(answer, row):
    import os
    os._exit(0)

def looks(answer, row):
    import os, socket
    assert not [name for name in os.environ if "KEY" in name]
    try:
        socket.create_connection(("1.1.1.1", 53), timeout=2)
    except OSError:
        return 1
    return 0
"""


@pytest.fixture(scope="module")
def backend() -> SandboxBackend:
    return choose()


def opened(
    workspace: Path, rows: list[dict[str, Any]], score: str, name: str = "q", **columns: str
) -> RowDomain:
    (workspace / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    part = registry.open_domain(
        name, workspace, str(workspace / f"{name}.jsonl"), score=score, columns=columns
    )
    assert isinstance(part, RowDomain)
    return part


def graded(part: RowDomain, number: int, answer: str, backend: SandboxBackend) -> Grade:
    task = part.tasks()[number]
    return part.grade(
        task, Trace(attempt="a", task=task.id, scaffold="", model="", answer=answer), backend
    )


def mine(workspace: Path, function: str, seconds: float = 30.0) -> RowDomain:
    (workspace / "score.py").write_text(SCORERS)
    rows = [{"question": f"{n}?", "answer": f"word {n}"} for n in range(3)]
    part = opened(workspace, rows, f"{workspace / 'score.py'}:{function}", function)
    if seconds != 30.0:
        assert part.tasks()
        file = workspace / "benchmarks" / function / "domain.toml"
        file.write_text(file.read_text().replace("seconds = 30.0", f"seconds = {seconds}"))
        part = opened(workspace, rows, "", function)
    return part


def test_a_function_of_ones_own_scores_in_a_sandbox(
    workspace: Path, backend: SandboxBackend
) -> None:
    part = mine(workspace, "right")
    assert graded(part, 1, "word 1", backend) == Grade(
        score=1.0, passed=True, evidence="right gives 1."
    )
    assert graded(part, 1, "word 2", backend).score == 0.0
    assert graded(mine(workspace, "words"), 0, "x", backend) == Grade(
        score=0.5, passed=True, evidence="half of it"
    )
    assert graded(mine(workspace, "looks"), 0, "x", backend).score == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("large", "score.py:11 gave 1.7 (float), which is no score"),
        ("not_a_number", "gave nan (float)"),
        ("nothing", "gave None (NoneType)"),
        ("raises", "score.py:22 raised KeyError"),
        ("hangs", "longer than 1 s"),
        ("floods", "longer than 1 s"),
        ("dies", "ended with the status 0 and told nothing"),
        ("absent", "no function absent"),
    ],
)
def test_a_scorer_that_gives_no_score_is_named_and_no_answer_is_wrong(
    workspace: Path, backend: SandboxBackend, function: str, said: str
) -> None:
    part = mine(workspace, function, 1.0)
    with pytest.raises(Fault) as caught:
        graded(part, 0, "x", backend)
    assert caught.value.code == UNSOUND
    assert said in caught.value.message
    assert KEY not in caught.value.message
    assert f"mend {function} in score.py: it must return a number from 0 to 1" in caught.value.fix
    with pytest.raises(BadInput) as broken:  # before the first attempt is paid for
        part.prepare(part.tasks()[0], backend)
    assert broken.value.code == "bad-scorer"


def test_a_scorer_that_fails_on_one_answer_lets_attempts_begin(
    workspace: Path, backend: SandboxBackend
) -> None:
    (workspace / "score.py").write_text(
        "def odd(answer, row):\n    return 1 / (row['n'] - 1) >= 0\n"
    )
    rows = [{"question": f"{n}?", "answer": "x", "n": n} for n in (1, 2, 3)]
    part = opened(workspace, rows, f"{workspace / 'score.py'}:odd")
    part.prepare(part.tasks()[0], backend).close()
    with pytest.raises(Fault, match=r"score.py:2 raised ZeroDivisionError"):
        graded(part, 0, "x", backend)
    assert graded(part, 1, "x", backend).passed


def test_another_text_of_the_scorer_is_another_grader(workspace: Path) -> None:
    before = mine(workspace, "right").grader
    (workspace / "score.py").write_text(SCORERS.replace("strip()", "lower()"))
    rows = [{"question": f"{n}?", "answer": f"word {n}"} for n in range(3)]
    assert opened(workspace, rows, "", "right").grader != before


# --- sql
# ------------------------------------------------------------------------------------------------

SHOP = (
    "CREATE TABLE sales(item TEXT, price REAL);\nINSERT INTO sales VALUES ('pen', 1.5), ('cup', 4),"
    " ('mug', 4);\n"
)


def shop(workspace: Path) -> RowDomain:
    files = {"shop.sql": SHOP}
    rows = [
        {"question": "How much in all?", "sql": "SELECT sum(price) FROM sales", "files": files},
        {
            "question": "Cheapest first?",
            "sql": "SELECT item FROM sales ORDER BY price, item",
            "files": files,
        },
        {"question": "Which are there?", "sql": "SELECT item FROM sales", "files": files},
    ]
    return opened(workspace, rows, "sql")


@pytest.mark.parametrize(
    ("number", "query", "score"),
    [
        (0, "SELECT 9.5", 1.0),
        (0, "select total(price) from sales;", 1.0),
        (0, "SELECT count(*) FROM sales", 0.0),
        (1, "SELECT item FROM sales ORDER BY price, item", 1.0),
        (1, "SELECT item FROM sales ORDER BY item", 0.0),
        (2, "SELECT item FROM sales ORDER BY item DESC", 1.0),
        (2, "```sql\nSELECT item FROM sales\n```", 1.0),
        (2, "SELECT DISTINCT price FROM sales", 0.0),
        (0, "nonsense", 0.0),
        (0, "DROP TABLE sales", 0.0),
        (0, "ATTACH 'shop.sql' AS x", 0.0),
        (0, "SELECT 1; SELECT 9.5", 0.0),
        (0, "SELECT load_extension('x')", 0.0),
        (0, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n", 0.0),
    ],
)
def test_a_query_is_right_when_its_rows_are(
    workspace: Path, backend: SandboxBackend, number: int, query: str, score: float
) -> None:
    assert graded(shop(workspace), number, query, backend).score == score


@pytest.mark.slow
def test_a_query_that_never_ends_is_the_agents_own(
    workspace: Path, backend: SandboxBackend
) -> None:
    shop(workspace).tasks()
    file = workspace / "benchmarks" / "q" / "domain.toml"
    file.write_text(file.read_text().replace("seconds = 30.0", "seconds = 2.0"))
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"
    grade = graded(shop(workspace), 0, endless, backend)
    assert (grade.score, "took longer than 2 s" in grade.evidence) == (0.0, True)


def test_a_row_whose_own_query_fails_is_the_rows_fault(
    workspace: Path, backend: SandboxBackend
) -> None:
    rows = [{"question": "?", "sql": "SELECT x FROM nowhere", "files": {"a.sql": SHOP}}]
    with pytest.raises(Fault, match="no such table: nowhere") as caught:
        graded(opened(workspace, rows, "sql"), 0, "SELECT 1", backend)
    assert caught.value.code == UNSOUND
    with pytest.raises(BadInput, match="it has no database among its files"):
        opened(
            workspace, [{"question": "?", "sql": "SELECT 1", "files": {"a.txt": ""}}], "sql", "r"
        ).tasks()


# --- tests
# --------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("tests", UNRUN)
@pytest.mark.slow
def test_a_test_is_run_or_does_not_pass(
    workspace: Path, backend: SandboxBackend, tests: str, apart: bool
) -> None:
    rows = [
        {"prompt": "Write add.", "tests": f"from solution import add\n\n\n{tests}", "solution": ADD}
    ]
    rows[0] |= {"entry_point": "add"}
    opened(workspace, rows, "tests").tasks()
    file = workspace / "benchmarks" / "q" / "domain.toml"
    file.write_text(
        file.read_text().replace("seconds = 30.0", f"seconds = 30.0\napart = {str(apart).lower()}")
    )
    part = opened(workspace, rows, "")
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


@pytest.mark.slow
@pytest.mark.usefixtures("crowded")
def test_on_a_busy_machine_a_right_answer_is_not_ended_for_what_it_waited(
    workspace: Path, backend: SandboxBackend
) -> None:
    rows = [
        {
            "prompt": "Write add.",
            "tests": "from solution import add\n\ndef test_it():\n    assert add(1, 2) == 3\n",
        }
    ]
    opened(workspace, rows, "tests").tasks()
    file = workspace / "benchmarks" / "q" / "domain.toml"
    file.write_text(file.read_text().replace("seconds = 30.0", "seconds = 2.0\napart = true"))
    part = opened(workspace, rows, "")
    work = "import time\nwhile time.process_time() < 0.4: pass\n"
    for _ in range(3):
        began = time.monotonic()
        grade = graded(part, 0, work + ADD, backend)
        assert (grade.passed, grade.evidence) == (True, "1 of 1 tests pass.")
        if time.monotonic() - began > 2:  # else others left it the core
            break
    assert (
        "took longer than 2 s"
        in graded(part, 0, "import time\ntime.sleep(60)\n" + ADD, backend).evidence
    )
