"""A database that is made of a Postgres dump: what the tasks of `sql` over it are, and what is no
dump."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api import registry
from recreate.api.errors import BadInput
from recreate.api.ports import Domain
from recreate.api.types import Task, Trace
from recreate.domains.validate import validate
from recreate.sandboxes import choose

DUMP = """-- the shop's sales; every one of them
CREATE SCHEMA IF NOT EXISTS trade;

CREATE TABLE public.towns (
    town_id SERIAL PRIMARY KEY,
    name character varying(40) DEFAULT ''::character varying NOT NULL, -- NOW() is no name, and \
public.x neither
    rent numeric(8,2)
);
CREATE TABLE trade.sales (
    id bigint DEFAULT '0'::bigint NOT NULL,
    town_id bigint REFERENCES public.towns(town_id),
    sold date, at timestamp NOT NULL DEFAULT NOW(), year int, epoch bigint, month text, told \
varchar(25), open boolean
);
INSERT INTO public.towns (name, rent) VALUES ('Ulm; NOW() - ''a''', 5), ('public.Bern::text', NULL);
INSERT INTO trade.sales VALUES
(1, 1, CURRENT_DATE - INTERVAL '8 days', NOW() - INTERVAL '2 weeks', EXTRACT(YEAR FROM \
CURRENT_DATE) - 2,
 EXTRACT(EPOCH FROM CURRENT_TIMESTAMP - INTERVAL '1 day') * 1000, TO_CHAR(CURRENT_DATE - INTERVAL \
'9 months', 'Month'),
 TO_CHAR(DATE_TRUNC('month', NOW()) + INTERVAL '1 day', '%Y%m%d %H:%i:%s'), true),
(2, 2, DATE_TRUNC('week', CURRENT_DATE) - INTERVAL '8 week' - INTERVAL '1 day',
 CURRENT_TIMESTAMP - INTERVAL '1 day' + INTERVAL '15 min', 2020, NULL, 'May', NULL, false);
"""
ROW = {
    "db_name": "shop",
    "db_type": "sqlite",
    "query": "SELECT name FROM towns ORDER BY 1;",
    "question": "Which towns?",
    "instructions": "By name.",
}
RECENT = {
    **ROW,
    "question": "How many sales in the past 10 days?",
    "instructions": "",
    "query": (
        "SELECT COUNT(*) FROM sales WHERE sold BETWEEN DATE('now', '-10 days') AND CURRENT_DATE"
    ),
}


def _domain(
    folder: Path, rows: Sequence[Mapping[str, Any]], dump: str = DUMP, place: str = "db/shop.sql"
) -> Domain:
    with (folder / "questions.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_text(dump)
    return registry.open_domain("sql", folder, data=str(folder / "questions.csv"))


def _database(domain: Domain, task: Task, folder: Path) -> sqlite3.Connection:
    """The database as it lies in the task's sandbox."""
    sandbox = domain.prepare(task, choose())
    try:
        (folder / "seen.sqlite").write_bytes(sandbox.read("shop.sqlite"))
    finally:
        sandbox.close()
    return sqlite3.connect(folder / "seen.sqlite")


@pytest.mark.parametrize("place", ["db/shop.sql", "db/defog_data/shop/shop.sql"])
def test_questions_over_a_postgres_dump_are_tasks_over_the_sqlite_database_that_it_makes(
    tmp_path: Path, place: str
) -> None:
    domain = _domain(tmp_path, [ROW, RECENT], place=place)
    for task in domain.tasks():
        proof = validate(domain, task, choose())
        assert proof.ok, proof.reason
    base = _database(domain, domain.tasks()[0], tmp_path)
    assert base.execute("SELECT * FROM towns").fetchall() == [
        (1, "Ulm; NOW() - 'a'", 5.0),
        (2, "public.Bern::text", None),
    ]
    # money is no whole number
    assert base.execute("SELECT 1 / rent FROM towns").fetchone() == (0.2,)
    base.execute("INSERT INTO sales (town_id) VALUES (1)")
    assert base.execute("SELECT id FROM sales").fetchall() == [(1,), (2,), (0,)]
    base.close()


def test_dates_that_a_dump_reckons_from_today_and_questions_about_today_are_of_one_day_for_ever(
    tmp_path: Path,
) -> None:
    domain = _domain(tmp_path, [RECENT])
    (task,) = domain.tasks()
    assert "Now is 2025-01-15 12:00:00" in task.prompt
    base = _database(domain, task, tmp_path)
    assert base.execute(
        "SELECT sold, at, year, epoch, month, told, open FROM sales"
    ).fetchall() == [
        ("2025-01-07", "2025-01-01 12:00:00", 2023, 1736856000000, "April", "20250102 00:00:00", 1),
        ("2024-11-17", "2025-01-14 12:15:00", 2020, None, "May", None, 0),
    ]
    (query,) = task.facts["answer"]
    assert base.execute(query).fetchall() == [(1,)]
    base.close()
    trace = Trace(
        attempt="t",
        task=task.id,
        scaffold="",
        model="",
        answer="SELECT COUNT(*) FROM sales WHERE sold >= DATE('2025-01-15', '-10 days')",
    )
    assert domain.grade(task, trace, choose()).passed


def test_a_question_that_is_not_about_today_is_asked_as_it_is(tmp_path: Path) -> None:
    query = "SELECT name FROM towns WHERE name <> 'it is now CURRENT_DATE' ORDER BY 1"
    (task,) = _domain(tmp_path, [{**ROW, "query": query}]).tasks()
    assert task.facts["answer"] == [query]
    assert "2025" not in task.prompt


def test_another_row_in_a_dump_makes_another_task_and_the_same_dump_the_same(
    tmp_path: Path,
) -> None:
    digests = []
    for dump in (DUMP, DUMP, DUMP.replace("2020", "2021")):
        (task,) = _domain(tmp_path, [ROW], dump).tasks()
        digests.append(task.digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_database_that_lies_there_goes_before_its_dump(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    with sqlite3.connect(tmp_path / "db" / "shop.sqlite") as base:
        base.execute("CREATE TABLE towns (name TEXT)")
    base.close()
    domain = _domain(tmp_path, [ROW])
    base = _database(domain, domain.tasks()[0], tmp_path)
    assert base.execute("SELECT * FROM towns").fetchall() == []
    base.close()


def test_questions_without_an_id_are_told_apart_by_what_they_ask(tmp_path: Path) -> None:
    one, other = _domain(tmp_path, [ROW, {**ROW, "question": "Which other towns?"}]).tasks()
    assert one.id != other.id
    same, *_ = _domain(tmp_path, [{**ROW, "question": "A new one?"}, ROW]).tasks()[1:]
    assert same.id == one.id


@pytest.mark.parametrize(
    ("dump", "said"),
    [
        ("", "dump shop.sql cannot be read: line 1: it has no statement"),
        (
            DUMP.replace("'May', NULL, false", "'May', NULL"),
            "line 15: all VALUES must have the same number of terms",
        ),
        (
            DUMP.replace("'8 days'", "'8 moons'"),
            "line 15: CURRENT_DATE - INTERVAL '8 moons' is not read",
        ),
        (DUMP.replace("'Month'", "'Mon'"), "line 15: TO_CHAR('2024-04-15', 'Mon') is not read"),
        (
            "CREATE TABLE a (b int);\nINSERT INTO a VALUES (random());",
            "line 2: not authorized to use function: random",
        ),
        ("CREATE TABLE a (b int);\nATTACH 'other.db' AS c;", "line 2: not authorized"),
        (
            "CREATE TABLE a (b int);\n\nCOPY a FROM stdin;\n1\n\\.\n",
            'line 3: near "COPY": syntax error',
        ),
    ],
)
def test_a_dump_that_cannot_be_read_says_where(tmp_path: Path, dump: str, said: str) -> None:
    with pytest.raises(BadInput) as e:
        _domain(tmp_path, [ROW], dump).tasks()
    assert said in e.value.message
    assert "no database" not in e.value.message
    assert not list(tmp_path.rglob("*.db"))


def test_without_database_and_dump_and_of_another_dialect_rows_say_what_is_missing(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        BadInput, match=r"'shop.sqlite', which is not beside the data, nor is a dump shop.sql"
    ):
        _domain(tmp_path, [ROW], place="elsewhere/shop.sql").tasks()
    with pytest.raises(BadInput, match="line 2: it has a query for mysql, not for SQLite"):
        _domain(tmp_path, [{**ROW, "db_type": "mysql"}]).tasks()
