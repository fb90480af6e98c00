"""The tools of the agents for small models in the domain dacode, run as an agent's sandbox runs
them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recreate.agents.scaffold import load
from recreate.api.paths import shipped
from recreate.api.types import Task

BOTH = ("seed-dacode-small", "hand-dacode-small")
HAND = "hand-dacode-small"


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    (tmp_path / "calls.csv").write_text("Day,Num. Calls \n1,3\n2,\n3,5\n")
    return tmp_path


def told(
    sandbox: Path, scaffold: str, program: str, fence: str = "```python\n{}\n```"
) -> tuple[int, str, str]:
    """(its status, what it says, what is handed in) of the tool that gets the reply."""
    tools = shipped("scaffolds") / scaffold / "tools"

    def tool(name: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(tools / f"{name}.py")]
        return subprocess.run(
            command, cwd=sandbox, input=text, capture_output=True, text=True, check=False
        )

    done = tool("write", fence.format(program))
    answer = sandbox / "answer.txt"
    assert (tool("answered").returncode == 0) == answer.is_file()
    return (
        done.returncode,
        done.stdout + done.stderr,
        answer.read_text() if answer.is_file() else "",
    )


@pytest.mark.parametrize("scaffold", BOTH)
def test_the_answer_lines_that_a_program_prints_are_handed_in_and_nothing_else_of_it(
    sandbox: Path, scaffold: str
) -> None:
    found = told(
        sandbox, scaffold, "print('looking')\nprint(f'@days[{1 + 2}]')\nprint('@calls[8.0]')"
    )
    assert found == (0, "answer.txt is written\n", "@days[3]\n@calls[8.0]\n")


@pytest.mark.parametrize("scaffold", BOTH)
def test_a_program_that_fails_is_told_where_and_why_and_nothing_is_handed_in(
    sandbox: Path, scaffold: str
) -> None:
    status, said, answer = told(sandbox, scaffold, "print('@days[3]')\nrows = []\nrows[7]")
    assert (status, answer) == (0, "")
    assert "\nrows[7]\nIndexError: list index out of range\n" in said


@pytest.mark.parametrize("scaffold", BOTH)
def test_a_program_that_prints_no_answer_line_is_told_what_it_printed(
    sandbox: Path, scaffold: str
) -> None:
    status, said, answer = told(sandbox, scaffold, "print('days: 3')")
    assert (status, answer) == (0, "")
    assert said == "The program printed no line `@name[value]`. It printed:\ndays: 3\n"


@pytest.mark.parametrize("scaffold", BOTH)
def test_a_reply_without_a_program_is_malformed(sandbox: Path, scaffold: str) -> None:
    status, said, answer = told(sandbox, scaffold, "The answer is 3.", fence="{}")
    assert (status, said, answer) == (2, "there is no ```python block in the reply\n", "")


@pytest.mark.parametrize(("scaffold", "shown"), [(BOTH[0], "value"), (HAND, "")])
def test_each_name_that_a_question_asks_for_is_named_as_the_program_is_to_print_it(
    scaffold: str, shown: str
) -> None:
    """An example of another question's name is copied by small models."""
    asked = (
        "Find both.\n@mean_calls[number]\n@busiest_day[day]\n\nThe table is calls.csv in"
        " /work.\n\nWrite it."
    )
    task = Task(id="d:s:1", domain="dacode", prompt=asked, split="train", group="g")
    said = load(shipped("scaffolds") / scaffold).render(
        "workflow", task=task, before={"table": "(the table)"}
    )
    names = ("mean_calls", "busiest_day")
    assert [f'print(f"@{name}[{{{shown or name}}}]")' in said for name in names] == [True, True]
    assert said.count("print(f") == 2
    assert ("calls.csv" in said, "Write it." in said) == (scaffold == HAND, False)


PANDAS = """
import csv

def read_csv(path):
    rows = list(csv.DictReader(open(path)))
    return {name: [row[name] for row in rows] for name in rows[0]}
"""
"""As much of pandas as the programs below need: the environment of these tests has none."""


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        (
            "df = pd.read_csv('calls.csv')\nprint(f\"@n[{len(df['num calls'])}]\")",
            "@n[3]\n",
        ),  # a column, nearly
        ("df = pd.read_csv('calls.csv')\nprint(f\"@n[{len(df['number calls'])}]\")", "@n[3]\n"),
        (
            "df = pd.read_csv('data.csv')\nprint(f\"@n[{len(df['Day'])}]\")",
            "@n[3]\n",
        ),  # a file that is not there
        (
            "pd.read_csv('calls.csv')\nprint(f\"@n[{len(df['Day'])}]\")",
            "@n[3]\n",
        ),  # read, and not kept
        ("print(f\"@n[{len(df['Day'])}]\")", "@n[3]\n"),  # not read at all
        ("print(f'@root[{math.sqrt(2)}]')", "@root[1.41]\n"),  # not imported, not rounded
        ("print(f'@p[{0.00123456789}]')", "@p[0.0012]\n"),
        ("print(f'@root[{2.125}]')", "@root[2.125]\n"),
    ],
)
def test_the_agent_written_by_hand_mends_common_slips(
    sandbox: Path, program: str, answer: str
) -> None:
    (sandbox / "pandas.py").write_text(PANDAS)
    assert told(sandbox, HAND, program) == (0, "answer.txt is written\n", answer)


def test_the_agent_written_by_hand_hands_in_no_value_that_is_not_a_number(sandbox: Path) -> None:
    status, said, answer = told(sandbox, HAND, "print(f\"@mean[{float('nan')}]\")")
    assert (status, said[:14], answer) == (0, "A value is nan", "")
