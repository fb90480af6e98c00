"""Files of rows as people have them: encodings, dialects of CSV, JSON that is not lines, nested
columns, messages as prompts, choices."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from recreate.api import registry
from recreate.api.errors import BadInput
from recreate.api.types import Trace
from recreate.domains.rows import name_domain
from recreate.domains.rows.domain import RowDomain
from recreate.sandboxes import choose

SUMS = [(f"What is {n} + {n}?", str(2 * n)) for n in range(1, 7)]
ROWS = [{"question": q, "answer": a} for q, a in SUMS]


def opened(workspace: Path, name: str, data: bytes | str, **columns: str) -> RowDomain:
    file = workspace / name
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    part = registry.open_domain("mine", workspace, data=str(file), columns=columns)
    assert isinstance(part, RowDomain)
    return part


def pairs(part: RowDomain) -> list[tuple[str, str]]:
    """What is asked, without what a prompt ends with, and the right answer."""
    ends = "\n\nWrite the answer"
    return [(task.prompt.partition(ends)[0], part.gold(task)) for task in part.tasks()]


def refused(workspace: Path, name: str, data: bytes | str, **columns: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        opened(workspace, name, data, **columns).tasks()
    assert not (workspace / "benchmarks").exists()
    return caught.value


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(separator: str, header: str = "", row: str = "{q}{s}{a}") -> str:
    first = header or f"question{separator}answer"
    body = (row.format(q=q, s=separator, a=a, n=n) for n, (q, a) in enumerate(SUMS))
    return "\n".join([first, *body]) + "\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", table(";"), "its columns are separated by ';'"),
        ("a.csv", table("\t"), "its columns are separated by '\\t'"),
        ("a.tsv", table(";"), "its columns are separated by ';'"),
        ("a.csv", table("|"), "its columns are separated by '|'"),
        ("a.csv", "\ufeff" + table(","), ""),
        ("a.csv", "sep=,\n" + table(","), ""),
        ("a.csv", '"sep=;"\r\n' + table(";"), ""),
        ("a.csv", table(",", "question,answer,", "{q},{a},"), "column 3 has neither a name"),
        ("a.csv", table(",", row="{q},{a},"), ""),
        ("a.csv", table(",", ",question,answer", "{n},{q},{a}"), "column 1 has no name"),
        ("a.csv", table(",").replace("\n", "\r"), ""),
        ("a.csv", table(",").replace("\n", "\r\n"), ""),
        ("a.csv", table(",", "question, answer"), ""),
    ],
)
def test_any_dialect_of_csv_gives_the_same_rows(
    workspace: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, said: str
) -> None:
    assert pairs(opened(workspace, name, text)) == SUMS
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-8-sig"])
def test_an_encoding_that_says_itself_is_read(workspace: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    assert pairs(opened(workspace, "a.tsv", (mark + table("\t")).encode(encoding))) == SUMS
    data = (mark + lines(ROWS)).encode(encoding)
    (workspace / "benchmarks" / "mine" / "domain.toml").unlink()
    assert pairs(opened(workspace, "a.jsonl", data)) == SUMS


def test_cp1252_is_advised_with_the_line_as_it_would_read(workspace: Path) -> None:
    text = "question,answer\nCapital nr 0 \u2014 with an accent?,Orl\u00e9ans\n"
    error = refused(workspace, "a.csv", text.encode("cp1252"))
    assert "byte 29, in line 2" in error.message
    assert "'Capital nr 0 \u2014 with an accent?,Orl\u00e9ans'" in error.message
    assert "iconv -f cp1252 -t utf-8 a.csv > utf8-a.csv" in error.fix


def test_one_broken_line_of_utf_8_is_not_converted_with_all_others(workspace: Path) -> None:
    text = "".join(f"Wie hei\u00dft {n}?,\u00e4\u00f6\u00fc{n}\n" for n in range(9))
    data = b"question,answer\n" + text.encode() + b"half a character \xc3,x\n"
    error = refused(workspace, "a.csv", data)
    assert "line 11 is not UTF-8" in error.message
    assert "iconv" not in error.fix


@pytest.mark.parametrize(
    ("name", "data", "why", "fix"),
    [
        ("a.csv", b"caf\x81\xe9,x\n", "not UTF-8 at byte 3", "iconv -f ENCODING"),
        ("a.csv", table(",").encode("utf-16-le"), "UTF-16 without its mark", "iconv -f utf-16le"),
        ("a.csv", table(",").encode("utf-16-be"), "UTF-16 without its mark", "iconv -f utf-16be"),
        ("a.csv", b"\xff\xfeq\0x", "begins as UTF-16", "UTF-8"),
        ("a.csv", b"PK\x03\x04 rest", "a ZIP archive", "CSV UTF-8"),
        ("a.jsonl", gzip.compress(lines(ROWS).encode()), "compressed", "gunzip"),
        ("a.jsonl", b"PAR1 rest", "a Parquet file", ".parquet"),
        ("a.csv", table(",", "question,,answer", "{q},x,{a}"), "column 2 of its header", "between"),
        ("a.csv", table(",", "question,answer,answer", "{q},{a},{a}"), "2 and 3", "of its own"),
        ("a.csv", table(",", ",question,answer", "1,{q},{a}"), "column 1 of its header", "name it"),
    ],
)
def test_what_cannot_be_read_says_where_and_what_to_do(
    workspace: Path, name: str, data: bytes | str, why: str, fix: str
) -> None:
    error = refused(workspace, name, data)
    assert why in error.message
    assert fix in error.fix


def test_a_compressed_file_is_named_as_such_and_not_as_a_broken_row(workspace: Path) -> None:
    file = workspace / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(lines(ROWS).encode()))
    assert name_domain(str(file)) == "rows.jsonl"
    error = refused(workspace, file.name, file.read_bytes())
    assert "gunzip" in error.fix


PANDAS = {name: {str(n): row[name] for n, row in enumerate(ROWS)} for name in ROWS[0]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps({"version": "1", "data": ROWS}, indent=1)),
        ("a.json", json.dumps({"data": ROWS})),
        ("a.jsonl", json.dumps({"rows": ROWS})),
        ("a.json", json.dumps({"meta": {"by": "me"}, "Questions": ROWS})),
        ("a.jsonl", "\n".join(json.dumps(row, indent=2) for row in ROWS)),
        ("a.json", "".join(json.dumps(row) for row in ROWS)),
        ("a.jsonl", json.dumps(ROWS)),
        ("a.json", lines(ROWS)),
        ("a.json", json.dumps(PANDAS)),
        ("a.json", json.dumps({n: [row[n] for row in ROWS] for n in ROWS[0]})),
        ("a.json", json.dumps({"columns": ["question", "answer"], "index": [0], "data": SUMS})),
    ],
)
def test_json_in_any_arrangement_gives_the_same_rows(workspace: Path, name: str, text: str) -> None:
    assert pairs(opened(workspace, name, text)) == SUMS


def test_splits_that_are_lists_of_one_object_are_the_rows_splits(workspace: Path) -> None:
    text = json.dumps({"train": ROWS[:3], "validation": ROWS[3:5], "test": ROWS[5:]})
    part = opened(workspace, "a.json", text)
    assert [task.split for task in part.tasks()] == ["train"] * 3 + ["validation"] * 2 + ["test"]


def test_one_row_whose_cells_are_lists_is_a_row(workspace: Path) -> None:
    row = {"prompt": [{"role": "user", "content": "2 + 2?"}], "answer": ["4", "four"]}
    assert pairs(opened(workspace, "a.jsonl", json.dumps(row))) == [("2 + 2?", "4")]


def test_broken_json_is_told_by_its_line(workspace: Path) -> None:
    good = json.dumps({"q": "1?", "a": "1"})
    error = refused(workspace, "a.jsonl", f"{good}\n{{'q': 2}}\n{good}\n")  # with no --prompt
    assert "line 2: it is not JSON" in error.message
    assert "--prompt" not in error.fix
    pretty = json.dumps(ROWS[0], indent=2).replace('",', '"')
    assert "line 3 column 3" in refused(workspace, "a.json", pretty).message
    for n in (1, 2):
        nan = '{"question": "1?", "answer": "1", "hint": NaN}\n' * n
        assert (
            "line 1: it is not JSON (NaN is no JSON)" in refused(workspace, "n.jsonl", nan).message
        )


# --- columns
# --------------------------------------------------------------------------------------------

VERL = [
    {
        "data_source": "sums",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": q}],
        "reward_model": {"style": "rule", "ground_truth": a},
        "extra_info": {"split": "train", "index": n},
    }
    for n, (q, a) in enumerate(SUMS)
]


@pytest.mark.parametrize("named", [{}, {"answer": "reward_model.ground_truth"}])
def test_nested_columns_and_messages_are_read_as_verl_has_them(
    workspace: Path, capsys: pytest.CaptureFixture[str], named: dict[str, str]
) -> None:
    wanted = [(f"Be brief.\n\n{q}", a) for q, a in SUMS]
    assert pairs(opened(workspace, "a.jsonl", lines(VERL), **named)) == wanted
    assert "no agent is shown the columns data_source, extra_info" in capsys.readouterr().err
    kept = registry.open_domain("mine", workspace)  # by domain.toml
    assert isinstance(kept, RowDomain)
    assert pairs(kept) == wanted


def test_columns_of_json_text_are_nested_too(workspace: Path) -> None:
    rows = [{**row, "reward_model": json.dumps(row["reward_model"])} for row in VERL]
    rows = [{**row, "prompt": json.dumps(row["prompt"])} for row in rows]
    assert pairs(opened(workspace, "a.jsonl", lines(rows)))[0] == (
        "Be brief.\n\nWhat is 1 + 1?",
        "2",
    )


def test_a_nested_column_that_is_not_there_is_named_with_those_that_are(workspace: Path) -> None:
    error = refused(workspace, "a.jsonl", lines(VERL), answer="reward_model.ground_thruth")
    assert "no column 'reward_model.ground_thruth' (--answer)" in error.message
    assert "did you mean 'reward_model.ground_truth'?" in error.fix


def test_evals_and_trl_rows_are_read(workspace: Path) -> None:
    chat = [[{"role": "user", "content": q}] for q, _ in SUMS]
    evals = [{"input": each, "ideal": [a]} for each, (_, a) in zip(chat, SUMS, strict=True)]
    assert pairs(opened(workspace, "a.jsonl", lines(evals))) == SUMS
    (workspace / "benchmarks" / "mine" / "domain.toml").unlink()
    trl = [
        {"prompt": each, "answer": a, "info": {}} for each, (_, a) in zip(chat, SUMS, strict=True)
    ]
    assert pairs(opened(workspace, "a.jsonl", lines(trl))) == SUMS


def test_turns_of_a_chat_are_told_apart_and_an_answer_among_them_is_no_prompt(
    workspace: Path,
) -> None:
    turns = [("user", "Hi"), ("assistant", "Hello"), ("user", [{"type": "text", "text": "2 + 2?"}])]
    row = {"messages": [{"role": r, "content": c} for r, c in turns], "answer": "4"}
    assert pairs(opened(workspace, "a.jsonl", lines([row]))) == [
        ("user: Hi\n\nassistant: Hello\n\nuser: 2 + 2?", "4")
    ]
    (workspace / "benchmarks" / "mine" / "domain.toml").unlink()
    (workspace / "benchmarks" / "mine").rmdir()
    (workspace / "benchmarks").rmdir()
    row["messages"] = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    assert "would give the answer away" in refused(workspace, "a.jsonl", lines([row])).message
    picture = [{"type": "image_url", "image_url": {"url": "x"}}]
    row["messages"] = [{"role": "user", "content": picture}]
    assert "a part that is no text" in refused(workspace, "a.jsonl", lines([row])).message


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        (["4", "0", "99", "7"], "A"),
        (["4", "0", "99", "7"], 0),
        (["four", "nought"], "four"),
        ([4, 0, 99], "4"),
        ([4, 0, 99], 4),
        ({"text": ["4", "0"], "label": ["A", "B"]}, "A"),
        ({"A": "4", "B": "0"}, "A"),
        ([{"label": "A", "text": "4"}, {"label": "B", "text": "0"}], "A"),
    ],
)
def test_choices_reach_the_agent_and_their_label_is_the_answer(
    workspace: Path, choices: Any, answer: Any
) -> None:
    row = {"input": "What is 2 + 2?", "choices": choices, "target": answer}
    part = opened(workspace, "a.jsonl", lines([row]))
    (task,) = part.tasks()
    shown = "four" if "four" in choices else "4"
    assert f"What is 2 + 2?\n\nA. {shown}\nB. " in task.prompt
    assert "the label of the right choice" in task.prompt
    assert part.gold(task) == "A"
    for given, right in (("A", 1.0), (shown, 1.0), ("B", 0.0), ("0", 0.0)):
        trace = Trace(attempt="a", task=task.id, scaffold="", model="", answer=given)
        assert part.grade(task, trace, choose()).score == right


def test_an_answer_that_is_none_of_the_choices_is_a_bad_row(workspace: Path) -> None:
    row = {"input": "What is 2 + 2?", "choices": ["4", "0"], "target": "C"}
    assert (
        "its target is none of its choices, which are A, B"
        in refused(workspace, "a.jsonl", lines([row])).message
    )


def test_choices_that_cannot_be_listed_are_a_column_that_no_agent_is_shown(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"question": "2 + 2?", "choices": "4 or 5", "answer": "4"}
    opened(workspace, "a.jsonl", lines([row])).tasks()
    assert "no agent is shown the columns choices" in capsys.readouterr().err


def test_numbers_are_ids_however_a_program_wrote_them(workspace: Path) -> None:
    rows = [{"id": n / 2, **row} for n, row in enumerate(ROWS)]
    part = opened(workspace, "a.jsonl", lines(rows))
    assert [task.id for task in part.tasks()][:3] == ["mine:a:0", "mine:a:0.5", "mine:a:1"]
    rows[2]["id"] = True
    (workspace / "benchmarks" / "mine" / "domain.toml").unlink()
    with pytest.raises(BadInput, match="line 3: its id is no text"):
        opened(workspace, "a.jsonl", lines(rows)).tasks()


def test_everything_that_cannot_be_guessed_is_asked_for_at_once(workspace: Path) -> None:
    error = refused(workspace, "a.jsonl", lines([{"q": "x", "a": "y"}]))
    assert error.message == (
        "which columns of a.jsonl are the prompt and the answer? There are: q, a"
    )
    assert error.fix.startswith("name them: --prompt COLUMN --answer COLUMN --score SCORER (")
    error = refused(workspace, "a.jsonl", lines([{"q": "x", "answer": "y"}]))
    assert error.fix == "name it: --prompt COLUMN"


# --- numbers
# --------------------------------------------------------------------------------------------


def test_decimal_commas_are_read_where_semicolons_part_the_columns(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "question;answer\nHow much is 1 and a half?;1,5\nAnd more, then?;1.234,25\nNone?;-2\n"
    part = opened(workspace, "a.csv", text)
    assert [part.gold(task) for task in part.tasks()] == ["1.5", "1234.25", "-2"]
    assert "answer has decimal commas: 1,5 is read with a point" in capsys.readouterr().err
    for given, right in (("1,5", 1.0), ("1.50", 1.0), ("5", 0.0), ("15", 0.0)):
        trace = Trace(attempt="a", task="", scaffold="", model="", answer=given)
        assert part.grade(part.tasks()[0], trace, choose()).score == right
    (workspace / "benchmarks" / "mine" / "domain.toml").unlink()
    text = "question;answer\nA list?;1,500\nAnother?;2,750\n"  # thousands, or not: as they stand
    part = opened(workspace, "a.csv", text)
    assert [part.gold(task) for task in part.tasks()] == ["1,500", "2,750"]


@pytest.mark.parametrize(
    ("cell", "read"),
    [
        ("1,5", "1,5 is read as 1.5"),
        ("0,125", "0,125 is read as 0.125"),
        ("0,5%", "0,5% is read as 0.5%"),
        ("3 or 4", "3 or 4 is read as 4, and has 2 numbers"),
        ("2024-01-05", "2024-01-05 is read as 5"),
        ("(5)", "(5) is read as 5, and might be -5"),
        ("10M", "10M is read as 10"),
        ("7:30", "has no number"),
        ("0x1F", "has no number"),
    ],
)
def test_an_expected_cell_that_is_not_one_number_is_refused_with_its_line(
    workspace: Path, cell: str, read: str
) -> None:
    rows = [ROWS[0], {"question": "Half of 3?", "answer": cell}]
    file = workspace / "a.jsonl"
    file.write_text(lines(rows))
    with pytest.raises(BadInput) as caught:
        registry.open_domain("mine", workspace, data=str(file), score="numeric").tasks()
    assert f"line 2: its answer {read}" in caught.value.message


def test_a_column_of_decimal_commas_is_not_taken_for_texts(workspace: Path) -> None:
    text = 'question,answer\nHalf of 3?,"1,5"\nHalf of 5?,"2,5"\n'
    error = refused(workspace, "a.csv", text)
    assert "line 2: its answer 1,5 is read as 1.5" in error.message
    assert "line 3: its answer 2,5 is read as 2.5" in error.message


def test_numbers_in_other_notations_are_guessed_to_be_numbers(workspace: Path) -> None:
    rows = [{"question": f"Distance {n}?", "answer": f"{n}.5\u00d710^{n + 2}"} for n in range(1, 4)]
    part = opened(workspace, "a.jsonl", lines(rows))
    assert part.definition.score == "numeric"
    trace = Trace(attempt="a", task="", scaffold="", model="", answer="1500 km")
    assert part.grade(part.tasks()[0], trace, choose()).passed
    (workspace / "benchmarks" / "mine" / "domain.toml").unlink()
    rows = [{"question": f"When, {n}?", "answer": f"2024-01-0{n}"} for n in range(1, 4)]
    assert opened(workspace, "a.jsonl", lines(rows)).definition.score == "exact"
