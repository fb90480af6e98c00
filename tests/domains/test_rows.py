"""A file of rows is a domain: how it is read, dealt, kept in domain.toml, and what is said of bad
rows."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api import registry
from recreate.api.errors import BadInput
from recreate.api.ports import (
    Auditable,
    Domain,
    Validatable,
)
from recreate.api.types import Trace
from recreate.builder.selection import Rater, select
from recreate.domains.rows import name_domain, name_of
from recreate.domains.rows.domain import RowDomain
from recreate.domains.rows.settings import Shares
from recreate.runs.settings import Select
from recreate.sandboxes import choose

ROWS = [{"id": f"q{n}", "question": f"What is {n} and {n}?", "answer": 2 * n} for n in range(40)]


def put(path: Path, rows: list[Any]) -> str:
    """Rows as a file of JSON lines; a text is a line as it is."""
    path.write_text(
        "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), "utf-8"
    )
    return str(path)


def opened(workspace: Path, name: str = "sums", **given: Any) -> RowDomain:
    columns = given.pop("columns", None)
    part = registry.open_domain(name, workspace, columns=columns, **given)
    assert isinstance(part, RowDomain)
    return part


def refused(workspace: Path, rows: list[Any], **given: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        opened(workspace, data=put(workspace / "sums.jsonl", rows), **given).tasks()
    assert not (workspace / "benchmarks").exists()  # nothing is written down of what cannot be
    return caught.value


def test_a_file_is_a_domain_with_all_that_one_may_offer(workspace: Path) -> None:
    part = opened(workspace, data=put(workspace / "sums.jsonl", ROWS))
    for port in (Domain, Validatable, Auditable):
        assert isinstance(part, port), port
    registry.fit("domain", part)
    registry.fit_tasks(part)
    task = part.tasks()[3]
    assert (task.id, task.domain, part.gold(task), list(part.hidden(task))) == (
        "sums:sums:q3",
        "sums",
        "6",
        ["6"],
    )
    assert task.prompt.startswith(
        "What is 3 and 3?\n\nWrite the answer, and nothing else, to the file answer.txt"
    )
    backend = choose()
    sandbox = part.prepare(task, backend)
    try:
        sandbox.run("echo so it is 6 > answer.txt")
        answer = part.collect(task, sandbox)
    finally:
        sandbox.close()
    grade = part.grade(
        task, Trace(attempt="a", task=task.id, scaffold="", model="", answer=answer), backend
    )
    assert (answer, grade.score, grade.passed) == ("so it is 6", 1.0, True)


def test_what_was_decided_is_kept_and_used_afterwards(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = put(workspace / "sums.jsonl", ROWS)
    first = opened(workspace, data=data).tasks()
    said = capsys.readouterr().err
    assert (
        "guessed of sums.jsonl: prompt = question, answer = answer, id = id, score = numeric"
        in said
    )
    assert "train" in said
    file = workspace / "benchmarks" / "sums" / "domain.toml"
    assert 'data = "../../sums.jsonl"' in file.read_text()
    assert opened(workspace).tasks() == first  # by its name alone
    assert capsys.readouterr().err == ""
    file.write_text(file.read_text().replace('score = "numeric"', 'score = "exact"'))
    assert opened(workspace).definition.score == "exact"
    assert opened(workspace).grader != opened(workspace, score="numeric").grader
    assert "for this command score = numeric" in capsys.readouterr().err
    (workspace / "other").mkdir()
    with pytest.raises(BadInput, match="is of the data") as caught:
        opened(workspace, data=put(workspace / "other" / "sums.jsonl", ROWS)).tasks()
    assert "--domain OTHER" in caught.value.fix


def test_a_domain_file_that_a_person_spoilt_says_which_line(workspace: Path) -> None:
    opened(workspace, data=put(workspace / "sums.jsonl", ROWS)).tasks()
    file = workspace / "benchmarks" / "sums" / "domain.toml"
    text = file.read_text()
    for old, new, why in (
        ("train = 0.4", "train = 0.9", "splits: train, validation and test must add up to 1"),
        ("tolerance = 1e-06", "tolerance = -1", "scorer.tolerance"),
        ('prompt = "question"', 'prompts = "question"', "columns.prompts"),
        ('score = "numeric"', 'score = "close"', "'close' is no scorer"),
        ('prompt = "question"', 'prompt = "questoin"', "no column 'questoin'"),
        ("[columns]", "[columns", "cannot be read"),
        (
            'score = "numeric"',
            'scor = "numeric"',
            "scor: there is no such key; did you mean 'score'?",
        ),
        (
            "tolerance = 1e-06",
            "tolerence = 1",
            "scorer.tolerence: there is no such key; did you mean 'tolerance'?",
        ),
    ):
        file.write_text(text.replace(old, new))
        with pytest.raises(BadInput) as caught:
            opened(workspace).tasks()
        assert why in caught.value.message


def test_rows_are_of_one_kind_and_say_so(workspace: Path) -> None:
    sums = opened(workspace, data=put(workspace / "sums.jsonl", ROWS), score="numeric")
    with pytest.raises(BadInput, match="sums has no tasks of the kind 'hard'") as caught:
        select(sums, Select(kind="hard"), workspace, Rater("", "", ""))
    assert "leave --kind out" in caught.value.fix


def test_a_mistyped_domain_is_answered_with_the_workspaces_own_too(workspace: Path) -> None:
    opened(workspace, data=put(workspace / "sums.jsonl", ROWS), score="numeric")
    with pytest.raises(BadInput) as caught:
        opened(workspace, "sumz")
    assert caught.value.fix.startswith("did you mean 'sums'? there are: ")


def test_all_bad_rows_are_told_at_once_by_their_lines(workspace: Path) -> None:
    rows: list[Any] = [
        {"id": "a", "question": "one?", "answer": 1},
        {"id": "a", "question": "two?", "answer": 2},
        "{broken",
        {"id": "c", "question": "", "answer": 3},
        {"id": "d", "question": "four?", "answer": "none"},
        ["no", "object"],
        {"id": "f", "answer": 6},
        {"id": "g", "question": ["x"], "answer": 7},
        {"id": "h", "question": "x", "answer": None},
        '{"id": "i", "question": "x", "answer": NaN}',
    ]
    error = refused(workspace, rows, score="numeric")
    assert error.code == "bad-rows"
    assert error.message.startswith("9 of 10 rows of sums.jsonl cannot be tasks. ")
    for said in (
        "line 2: its id is that of line 1 too",
        "line 3: it is not JSON",
        "lines 4, 7: its question is empty",
        "line 5: its answer has no number",
        "line 6: it is a list, not an object",
        "line 8: its question is no text",
        "line 9: its answer is empty",
        "line 10: it is not JSON (NaN is no JSON)",
    ):
        assert said in error.message


def test_a_thousand_bad_rows_are_a_short_message(workspace: Path) -> None:
    error = refused(
        workspace, [{"question": f"{n}?", "answer": "x"} for n in range(1000)], score="numeric"
    )
    assert (
        "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 988 more: its answer has no number"
        in error.message
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prompt": "questoin"}, "has no column 'questoin' (--prompt)"),
        ({"columns": {"group": "grp"}}, "has no column 'grp' (--group)"),
        ({"score": "exakt"}, "'exakt' is no scorer"),
    ],
)
def test_a_column_or_scorer_that_is_not_there_is_named(
    workspace: Path, given: dict[str, Any], said: str
) -> None:
    assert said in refused(workspace, ROWS, **given).message


def test_what_cannot_be_guessed_is_asked_for_with_the_columns_there_are(workspace: Path) -> None:
    error = refused(workspace, [{"q": "x", "a": "y"}])
    assert "which columns of sums.jsonl are the prompt and the answer?" in error.message
    assert error.fix.startswith("name them: --prompt COLUMN --answer COLUMN --score SCORER")
    error = refused(workspace, [{"prompt": "x", "answer": "y" * 200}])
    assert "how are answers of sums.jsonl scored?" in error.message


def test_a_file_without_one_row_that_can_be_read_says_what_is_wrong_with_the_first(
    workspace: Path,
) -> None:
    file = workspace / "sums.jsonl"
    file.write_text("\n{not json\n")
    with pytest.raises(
        BadInput, match=r"sums\.jsonl, line 2: it is not JSON .*; no row of it can be read"
    ) as error:
        opened(workspace, data=str(file)).tasks()
    assert '{"prompt": "2 + 3", "answer": "5"}' in error.value.fix


def test_ids_that_cannot_be_typed_are_spelled_so_that_they_can(workspace: Path) -> None:
    rows = [
        {"id": id, "question": f"{id}?", "answer": "x"}
        for id in ("a b", "a,b", "a/b", "z" * 300, "plain-1")
    ]
    ids = [task.id for task in opened(workspace, data=put(workspace / "sums.jsonl", rows)).tasks()]
    assert len(set(ids)) == 5
    assert ids[-1] == "sums:sums:plain-1"
    assert all(len(id) < 120 and not set(id) & set(" ,#/") for id in ids)


def test_without_ids_a_row_is_known_by_what_it_says(workspace: Path) -> None:
    rows = [{"question": f"{n}?", "answer": "x"} for n in range(5)]
    one = {
        t.prompt: t.id
        for t in opened(workspace, data=put(workspace / "sums.jsonl", [*rows, rows[0]])).tasks()
    }
    two = {
        t.prompt: t.id
        for t in opened(
            workspace, data=put(workspace / "sums.jsonl", [*rows[::-1], rows[0]])
        ).tasks()
    }
    assert one == two


# --- splits
# -------------------------------------------------------------------------------------------------


@given(
    st.lists(st.text(min_size=1, max_size=8), unique=True, min_size=1, max_size=30),
    st.text(max_size=5),
)
def test_a_group_stays_in_its_split_whatever_is_appended(groups: list[str], more: str) -> None:
    shares = Shares()
    before = {group: shares.split(group) for group in groups}
    assert {
        group: shares.split(group) for group in [more, *reversed(groups)] if group in before
    } == before


def test_shares_are_about_as_they_are_written_and_the_seed_changes_them() -> None:
    counts = Counter(Shares().split(f"g{n}") for n in range(4000))
    assert {split: round(count / 4000, 1) for split, count in counts.items()} == {
        "train": 0.4,
        "validation": 0.3,
        "test": 0.3,
    }
    assert [Shares(seed=1).split(f"g{n}") for n in range(50)] != [
        Shares().split(f"g{n}") for n in range(50)
    ]


def test_no_group_is_in_two_splits_and_the_same_text_is_one_group(workspace: Path) -> None:
    rows = [{"question": f"{n % 7}  ?", "answer": n, "topic": f"t{n % 5}"} for n in range(60)]
    part = opened(workspace, data=put(workspace / "sums.jsonl", rows), columns={"group": "topic"})
    registry.fit_tasks(part)
    assert {task.group for task in part.tasks()} == {f"sums:t{n}" for n in range(5)}
    part = opened(workspace, "texts", data=put(workspace / "sums.jsonl", rows))
    registry.fit_tasks(part)
    assert len({task.group for task in part.tasks()}) == 7


def test_a_split_column_is_taken_at_its_word(workspace: Path) -> None:
    folds = ["train", "dev", "TEST", "val"]
    rows = [{"question": f"{n}?", "answer": "x", "fold": folds[n % 4]} for n in range(8)]
    part = opened(workspace, data=put(workspace / "sums.jsonl", rows), columns={"split": "fold"})
    assert [task.split for task in part.tasks()][:4] == [
        "train",
        "validation",
        "test",
        "validation",
    ]
    again = [{**rows[0], "fold": "test"}, *rows[:2], {**rows[3], "fold": "other"}]
    (workspace / "benchmarks" / "sums" / "domain.toml").unlink()
    (workspace / "benchmarks" / "sums").rmdir()
    (workspace / "benchmarks").rmdir()
    error = refused(workspace, again, columns={"split": "fold"})
    assert "line 4: its fold is none of train, validation and test" in error.message
    assert "line 2: its text is that of line 1, which is test" in error.message


def test_where_no_row_is_validation_train_is_dealt(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"question": f"{n}?", "answer": "x", "split": "test" if n % 4 == 0 else "train"}
        for n in range(80)
    ]
    part = opened(workspace, data=put(workspace / "sums.jsonl", rows))
    counts = Counter(task.split for task in part.tasks())
    assert counts["test"] == 20
    assert min(counts["train"], counts["validation"]) > 15
    assert "dealt between train and validation" in capsys.readouterr().err


# --- forms of files
# -----------------------------------------------------------------------------------------


def _write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as out:
        writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def _write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(rows, indent=1), "utf-8")


FORMS: dict[str, Callable[[Path, list[dict[str, Any]]], object]] = {
    "csv": _write_csv,
    "tsv": lambda path, rows: _write_csv(path, rows, "\t"),
    "json": _write_json,
    "jsonl": put,
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_every_form_gives_the_same_tasks(workspace: Path, form: str) -> None:
    rows = [
        {"id": f"q{n}", "question": f'Say "{n}",\nand then stop', "answer": f"{n} ü"}
        for n in range(6)
    ]
    FORMS[form](workspace / f"sums.{form}", rows)
    part = opened(workspace, data=str(workspace / f"sums.{form}"))
    assert [(task.id, task.prompt[:8], part.gold(task)) for task in part.tasks()] == [
        (f"sums:sums:q{n}", f'Say "{n}",', f"{n} ü") for n in range(6)
    ] or [(task.id, part.gold(task)) for task in part.tasks()] == [
        (f"sums:sums:q{n}", f"{n} ü") for n in range(6)
    ]


def test_a_csv_says_where_its_rows_stand(workspace: Path) -> None:
    text = 'question,answer\n"two\nlines",1\nlong,2,3\n,4\n'
    (workspace / "sums.csv").write_text(text)
    with pytest.raises(BadInput) as caught:
        opened(workspace, data=str(workspace / "sums.csv")).tasks()
    assert "line 4: it has 3 cells, and the header 2" in caught.value.message
    assert "line 5: its question is empty" in caught.value.message
    (workspace / "sums.csv").write_text("a,a\n1,2\n")
    with pytest.raises(BadInput, match="columns 1 and 2 of its header are both called 'a'"):
        opened(workspace, data=str(workspace / "sums.csv")).tasks()


def test_quotes_within_a_cell_of_csv_that_are_not_doubled_are_read_as_they_were_meant(
    workspace: Path,
) -> None:
    text = (
        'question,answer\n"Is it "in the\nlist" here?",1\nA 12" disk?,2\n"""So"", they "said"'
        ' so",3\n"Never ends,4\n'
    )
    (workspace / "sums.csv").write_text(text)
    with pytest.raises(BadInput, match="line 6: it is not CSV"):
        opened(workspace, data=str(workspace / "sums.csv")).tasks()
    (workspace / "sums.csv").write_text(text.replace('"Never', "Never"))
    found = [
        task.prompt.partition("\n\n")[0]
        for task in opened(workspace, data=str(workspace / "sums.csv")).tasks()
    ]
    assert found == [
        'Is it "in the\nlist" here?',
        'A 12" disk?',
        '"So", they "said" so',
        "Never ends",
    ]


def test_what_is_no_file_of_rows_says_so(workspace: Path) -> None:
    for name, data, why in (
        ("a.jsonl", b"\xfe\xfa", "not UTF-8 at byte 0"),
        ("a.jsonl", b"", "it has no rows"),
        ("a.json", b"[1", "it is not JSON"),
        ("a.jsonl", b"[" * 200_000, "nested too deeply"),
        ("a.csv", b"question,answer\n", "it has no rows"),
        ("a.xlsx", b"PK", "no form of rows"),
    ):
        (workspace / name).write_bytes(data)
        with pytest.raises(BadInput) as caught:
            opened(workspace, "a", data=str(workspace / name)).tasks()
        assert why in caught.value.message
    with pytest.raises(BadInput, match="there is no"):
        opened(workspace, "a", data=str(workspace / "nothing.jsonl"))


def test_files_of_a_row_lie_in_its_sandbox(workspace: Path) -> None:
    (workspace / "tables").mkdir()
    (workspace / "tables" / "t.bin").write_bytes(b"\x00\xff")
    rows: list[Any] = [
        {"question": "1?", "answer": "x", "files": {"a/b.txt": "deep", "c": ""}},
        {"question": "2?", "answer": "x", "files": "tables"},
        {"question": "3?", "answer": "x", "files": None},
        {"question": "4?", "answer": "x", "files": '{"d.txt": "from JSON"}'},
    ]
    part, backend = opened(workspace, data=put(workspace / "sums.jsonl", rows)), choose()
    found = []
    for task in part.tasks():
        sandbox = part.prepare(task, backend)
        try:
            found.append(sandbox.run("find . -type f | sort").text.split())
        finally:
            sandbox.close()
    assert found == [["./a/b.txt", "./c"], ["./t.bin"], [], ["./d.txt"]]
    before = part.tasks()[1].digest
    (workspace / "tables" / "t.bin").write_bytes(b"other")
    assert opened(workspace).tasks()[1].digest != before
    with pytest.raises(BadInput, match="was changed while this ran"):
        part.prepare(part.tasks()[1], backend)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"../x": "a"}, "a path that cannot be"),
        ({"/etc/x": "a"}, "a path that cannot be"),
        ({".recreate/x": ""}, "a path that cannot be"),
        ({"x": 5}, "that is no text"),
        ("../secret", "cannot be"),
        ("nowhere", "not beside the data"),
        (5, "neither an object"),
        ("{", "no JSON object"),
    ],
)
def test_files_that_cannot_be_are_bad_rows(workspace: Path, files: Any, why: str) -> None:
    error = refused(workspace, [{"question": "1?", "answer": "x", "files": files}])
    assert why in error.message


# --- which domain a file means
# --------------------------------------------------------------------------------


def test_any_other_file_is_named_by_its_stem(workspace: Path) -> None:
    assert name_domain(put(workspace / "my questions (1).jsonl", ROWS)) == "my-questions-1"
    assert name_domain(put(workspace / "bad.jsonl", ["{", *ROWS])) == "bad"
    assert (name_of("hf:openai/gsm8k,main:train"), name_of("hf:./x/y")) == ("gsm8k", "y")
