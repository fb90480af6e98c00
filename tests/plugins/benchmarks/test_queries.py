"""The scorer `sql`: a query is right when its rows are, and no query ends more than itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import SandboxBackend
from recreate.domains.rows.domain import RowDomain
from recreate.domains.validate import validate
from recreate.sandboxes import choose
from tests.row_domains import graded, opened


@pytest.fixture(scope="module")
def backend() -> SandboxBackend:
    return choose()


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


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT item FROM sales WHERE price > 100", "gives no rows"),
        ("SELECT item, price / 1e8 FROM sales WHERE price < 2", "gives 1.5e-08"),
        ("SELECT count(*) FROM sales WHERE price > 100", ""),
        ("SELECT price / 1e5 FROM sales", ""),
    ],
)
def test_a_check_says_of_a_query_that_nothing_would_answer_too(
    workspace: Path, backend: SandboxBackend, query: str, why: str
) -> None:
    rows = [{"question": "?", "sql": query, "files": {"shop.sql": SHOP}}]
    part = opened(workspace, rows, "sql")
    proof = validate(part, part.tasks()[0], backend)
    assert proof.ok == (not why)
    assert why in proof.reason


def test_a_query_is_told_nothing_of_how_its_database_was_made(
    workspace: Path, backend: SandboxBackend
) -> None:
    row = {"question": "How many?", "sql": "SELECT count(*) FROM sales", "files": {"a.sql": SHOP}}
    part = opened(workspace, [row], "sql")
    for query in ("changes()", "total_changes()", "last_insert_rowid()"):
        assert not graded(part, 0, f"SELECT {query}", backend).passed
    assert graded(part, 0, "SELECT count(*) FROM sales", backend).passed


def test_a_query_is_attacked_in_a_hundred_and_twenty_ways(
    workspace: Path, backend: SandboxBackend
) -> None:
    part = shop(workspace)
    (task, *_) = part.tasks()
    assert len(part.exploits(task)) >= 120


@pytest.mark.audit
def test_no_exploit_of_a_query_passes(workspace: Path, backend: SandboxBackend) -> None:
    part = shop(workspace)
    file = workspace / "benchmarks" / "q" / "domain.toml"
    file.write_text(file.read_text().replace("seconds = 30.0", "seconds = 5.0"))
    for number, task in enumerate(shop(workspace).tasks()):
        for name, query in part.exploits(task).items():
            assert not graded(part, number, query, backend).passed, name
