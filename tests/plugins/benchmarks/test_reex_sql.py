"""ReEx-SQL's agent: a query is run in the middle of the reasoning, which goes on from its
result."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recreate.api.paths import shipped
from recreate.cli import run as cli

AGENT = shipped("scaffolds") / "reex-sql"
SPELLED = ("Germany", "DE", "germany", "Deutschland", "GER", "D")
"""How the generated databases spell one country: no table's columns tell, a look at the values
does."""


def world(folder: Path) -> None:
    """One database for each spelling, a question to each, and a model that knows all spellings but
    not which it is."""
    (folder / "db").mkdir()
    rows = []
    for n, spelled in enumerate(SPELLED):
        with sqlite3.connect(folder / "db" / f"d{n}.sqlite") as made:
            made.execute("CREATE TABLE clients(name TEXT, country TEXT)")
            clients = [(f"c{i}", spelled if i % 3 else "Italy") for i in range(8 + n)]
            made.executemany("INSERT INTO clients VALUES (?, ?)", clients)
        made.close()
        query = f"SELECT count(*) FROM clients WHERE country = '{spelled}'"
        rows.append(
            {
                "question": f"How many clients are in Germany? ({n})",
                "query": query,
                "db_name": f"d{n}",
            }
        )
    splits = ("train", "validation", "test")
    rows = [
        {**row, "question": f"{row['question']} ({s})", "split": s, "id": f"{s}-{n}"}
        for s in splits
        for n, row in enumerate(rows)
    ]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = "SELECT count(*) FROM clients WHERE country = '{}'"
    reasons = (
        "<think>How is the country spelled?</think><intermediate_sql>SELECT DISTINCT country FROM"
        " clients"
    )
    script: list[dict[str, Any]] = [
        *(
            {
                "role": "agent",
                "contains": f"<result>\ncountry\nItaly\n{spelled}\n",
                "text": (
                    f"<think>As {spelled}.</think><final_sql>{asked.format(spelled)}</final_sql>"
                ),
            }
            for spelled in SPELLED
        ),
        {"role": "agent", "contains": "<intermediate_sql>", "text": reasons},
        {"role": "agent", "text": f"```sql\n{asked.format('Germany')}\n```"},
    ]
    (folder / "script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in script))


@pytest.mark.slow
def test_who_looks_in_the_middle_of_reasoning_answers_what_the_tables_do_not_tell(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world(workspace)
    words = [
        "bench",
        "--domain",
        "sql",
        "--data",
        "q.jsonl",
        "--model",
        "scripted:script.jsonl",
        "--jobs",
        "2",
    ]
    words += [
        "--scaffold",
        "reex-sql",
        "--scaffold",
        "seed-sql-small",
        "--split",
        "validation",
        "--json",
    ]
    assert cli([*words, "--out", "runs/a"]) == 0
    cells = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["cells"]
    means = {cell["scaffold"]: cell["mean"] for cell in cells}
    assert means == {"reex-sql": 1.0, "seed-sql-small": pytest.approx(1 / len(SPELLED))}


@pytest.fixture
def box(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "shop.sqlite") as made:
        made.execute("CREATE TABLE sales(item TEXT)")
        made.executemany("INSERT INTO sales VALUES (?)", [(f"i{n}",) for n in range(5)])
    made.close()
    return tmp_path


def tool(box: Path, name: str, stdin: str = "") -> tuple[int, str]:
    command = [sys.executable, str(AGENT / "tools" / f"{name}.py")]
    done = subprocess.run(
        command, cwd=box, input=stdin, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_an_intermediate_query_gets_its_columns_and_three_rows_and_is_not_handed_in(
    box: Path,
) -> None:
    status, said = tool(
        box, "execute", "<think>?</think><intermediate_sql>SELECT item FROM sales ORDER BY item"
    )
    assert (status, said) == (0, "<result>\nitem\ni0\ni1\ni2\n...\n</result>\n")
    assert tool(box, "runs")[0] == 1


def test_a_query_that_fails_gets_what_sqlite_says_and_is_not_handed_in_before_it_runs(
    box: Path,
) -> None:
    for tag in ("intermediate_sql", "final_sql"):
        status, said = tool(box, "execute", f"<{tag}>SELECT price FROM sales</{tag}>")
        assert (status, said) == (0, "<result>\nSQLite says: no such column: price\n</result>\n")
        assert tool(box, "runs")[0] == 1
    assert (
        tool(box, "execute", "<final_sql>\n```sql\nSELECT count(*) FROM sales\n```\n</final_sql>")[
            0
        ]
        == 0
    )
    assert tool(box, "runs")[0] == 0
    assert (box / "answer.sql").read_text() == "SELECT count(*) FROM sales\n"


def test_what_is_said_after_an_intermediate_query_is_not_taken_for_its_result(box: Path) -> None:
    reply = (
        "<intermediate_sql>SELECT 1</intermediate_sql><result>7</result><final_sql>SELECT"
        " 7</final_sql>"
    )
    assert "7" not in tool(box, "execute", reply)[1]
    assert not (box / "answer.sql").exists()


def test_a_reply_without_a_query_is_told_what_to_write(box: Path) -> None:
    assert tool(box, "execute", "<think>Hm.</think>")[0] == 2
    assert tool(box, "execute", "<final_sql> </final_sql>")[0] == 2


def test_of_several_paths_the_query_whose_rows_most_come_to_counts(box: Path) -> None:
    spelled = ("SELECT count(*) FROM sales", "select count(item) as n from sales where 1")
    rows = {
        tool(box, "execute", f"<final_sql>{query}</final_sql>")[0] or tool(box, "result")
        for query in spelled
    }
    assert rows == {(0, "(5,)\n")}
    tool(box, "execute", "<final_sql>SELECT price FROM sales</final_sql>")
    assert tool(box, "result")[0] == 1, "a query that fails has no say"


def test_a_query_cannot_change_the_database(box: Path) -> None:
    assert (
        "readonly"
        in tool(box, "execute", "<intermediate_sql>DELETE FROM sales</intermediate_sql>")[1]
    )


@pytest.mark.parametrize(("branches", "calls"), [("", 8), ("branches = [4]", 5)])
@pytest.mark.slow
def test_several_queries_from_one_look_at_the_values_are_voted_on_and_the_look_is_paid_once(
    workspace: Path, capsys: pytest.CaptureFixture[str], branches: str, calls: int
) -> None:
    world(workspace)
    shutil.copytree(AGENT, workspace / "tree")
    toml = (AGENT / "agent.toml").read_text()
    (workspace / "tree/agent.toml").write_text(
        toml.replace("samples = 1 ", f"{branches}\nsamples = 4 ")
    )
    look = "<think>How?</think><intermediate_sql>SELECT DISTINCT country FROM clients"
    asked = "<final_sql>SELECT count(*) FROM clients WHERE country {}</final_sql>"
    ends = ("= 'Italy'", "= 'DE'", "LIKE 'DEU'", "IN ('DE')")
    rows: list[dict[str, Any]] = [{"lacks": "<result>\ncountry\nItaly\nDE\n", "text": look}]
    rows += [{"sample": n, "text": asked.format(end)} for n, end in enumerate(ends)]
    (workspace / "script.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        "bench",
        "--domain",
        "sql",
        "--data",
        "q.jsonl",
        "--scaffold",
        "tree",
        "--split",
        "validation",
    ]
    words += [
        "--tasks",
        "sql:defog:validation-1",
        "--model",
        "scripted:script.jsonl",
        "--json",
        "--out",
        "runs/a",
    ]
    assert cli(words) == 0
    (cell,) = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["cells"]
    assert cell["mean"] == 1.0
    lines = Path("runs/a/journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines].count("reply") == calls
