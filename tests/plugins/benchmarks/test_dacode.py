"""Analysis of data as InfiAgent-DABench and DA-Code ask it: what is handed in is data, and is
compared as data."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api import registry
from recreate.api.errors import BadInput, Fault
from recreate.api.types import Grade, Task, Trace
from recreate.domains.rows import name_domain
from recreate.domains.validate import validate
from recreate.plugins.benchmarks.analysis import AnalysisScorer
from recreate.plugins.benchmarks.measures import METRICS, CsvTable, NotComparable, scored, values_in
from recreate.plugins.benchmarks.published import Dacode
from recreate.sandboxes import choose
from tests.plugins.audit.test_audit import KNOWN_TRICKS

PLAIN = 'schema = 1\nscore = "analysis"\n[left_out]\n"dacode:plan-9" = "nobody can"\n'
"""A domain.toml that asks for no packages: nothing that is compared needs any."""
TABLE = "town,price\nUlm,1.5\nBern,4\nBonn,0.5\n"
NAMED = {
    "task_id": "dabench_7000",
    "domain": "dacode",
    "dataset": "infiagent_dabench",
    "split": "train",
    "group": "table-towns.csv",
    "instruction": "What is the mean price, and which town is dearest?\n@mean[number] @town[name]",
    "input": {"file": "tables/towns.csv", "upstream": "A/B:tables/towns.csv"},
    "gold": {"answers": {"mean": "2.00", "town": "Bern"}},
    "eval": {"kind": "closed_form name[value], abs tol 1e-6"},
    "meta": {},
}


def _made(
    id: str,
    func: str,
    result: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    **config: Any,
) -> dict[str, Any]:
    """A row of DA-Code in the exchange layout."""
    return {
        "task_id": f"dacode_{id}",
        "domain": "dacode",
        "dataset": "dacode_public59",
        "split": "train",
        "group": id,
        "instruction": f"Do {id} with towns.csv.",
        "input": {"source_dir": f"files/{id}/source", "upstream": "x", "post_process": []},
        "gold": {"gold_dir": f"files/{id}/gold", "upstream": "x"},
        "eval": {
            "id": id,
            "config": config,
            "func": [func],
            "result": [result],
            "options": [options or {}],
        },
        "meta": {},
    }


SORTED = _made("dm-1", "compare_csv", {"file": ["result.csv"]}, {"condition_cols": [0, 1]})
TEXT = _made("di-1", "compare_text", {"number": [{"dearest": ["Bern"], "price": [4]}]})
REGRESSION = _made(
    "ml-1", "compare_ml", {"file": "out.csv"}, metric="r2", upper_bound=0.9, lower_bound=0.5
)
CLUSTER = _made(
    "ml-2", "compare_ml", {"file": "c.csv"}, metric="silhouette", upper_bound=0.9, lower_bound=0.0
)
BARS = _made(
    "plot-1", "compare_image", {"multi": True, "file": ["bars.png", "d/plot.json", "d/result.npy"]}
)
DATABASE = _made("dw-1", "compare_sqlite", {"file": ["base.db"]})
ROWS = [SORTED, TEXT, REGRESSION]
GOLDS = {
    "dm-1/gold/result.csv": "town,price,rank\nBern,4,1\nUlm,1.5,2\nBonn,0.5,3\n",
    "dm-1/source/result.csv": "town,price,rank\n",
    "ml-1/gold/out.csv": "Price (EUR)\n1.5\n4\n0.5\n2\n",
    "di-1/gold/result.json": "{}",
}
SHOWN = {
    "type": "bar",
    "color": ["#0000ff", "#ff0000"],
    "figsize": [6.0, 4.0],
    "graph_title": "Prices",
    "labels": ["a", "b"],
    "legend_title": "",
    "x_label": "town",
    "y_label": "",
    "xtick_labels": ["Ulm", "Bern"],
}
HEIGHTS = [[1.5, 4.0], [2.0, 0.25]]


def _array(rows: Sequence[Sequence[float]], descr: str = "<f8") -> bytes:
    """What numpy saves."""
    head = (
        repr({"descr": descr, "fortran_order": False, "shape": (len(rows), len(rows[0]))}).ljust(
            117
        )
        + "\n"
    )
    data = struct.pack(f"<{sum(map(len, rows))}d", *(n for row in rows for n in row))
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with the files that the rows name, and a domain.toml."""
    for place in (
        "tables",
        *(
            f"files/{id}/source"
            for id in ("dm-1", "di-1", "ml-1", "ml-2", "dw-1", "plan-9", "plot-1")
        ),
    ):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "towns.csv").write_text(TABLE)
        if place.startswith("files"):
            (tmp_path / place).with_name("gold").mkdir()
    for place, text in GOLDS.items():
        (tmp_path / "files" / place).write_text(text)
    (tmp_path / "files" / "plot-1" / "gold" / "plot.json").write_text(json.dumps(SHOWN))
    (tmp_path / "files" / "plot-1" / "gold" / "result.npy").write_bytes(_array(HEIGHTS))
    (tmp_path / "benchmarks" / "dacode").mkdir(parents=True)
    (tmp_path / "benchmarks" / "dacode" / "domain.toml").write_text(PLAIN)
    return tmp_path


def _domain(rows: Sequence[Mapping[str, Any]], folder: Path) -> Dacode:
    file = folder / "given.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = registry.open_domain("dacode", folder, data=str(file))
    assert isinstance(found, Dacode)
    return found


def _graded(domain: Dacode, task: Task, answer: str) -> Grade:
    trace = Trace(attempt="t", task=task.id, scaffold="", model="", answer=answer)
    return domain.grade(task, trace, choose())


def test_the_gold_of_each_kind_of_row_passes_and_doing_nothing_does_not(beside: Path) -> None:
    domain = _domain([NAMED, *ROWS], beside)
    assert [task.id for task in domain.tasks()] == [
        "dacode:infiagent_dabench:7000",
        "dacode:dacode:dm-1",
        "dacode:dacode:di-1",
        "dacode:dacode:ml-1",
    ]
    for task in domain.tasks():
        proof = validate(domain, task, choose())
        assert proof.ok, proof.reason
    assert name_domain(str(beside / "given.jsonl")) == "dacode"


def test_an_agent_has_the_row_s_files_and_never_what_is_right(beside: Path) -> None:
    domain = _domain([NAMED, SORTED], beside)
    for task, files in zip(
        domain.tasks(), (["towns.csv"], ["result.csv", "towns.csv"]), strict=True
    ):
        sandbox = domain.prepare(task, choose())
        try:
            found = sandbox.run("ls; grep -rl 'Bern,4,1' /work /tmp").text
        finally:
            sandbox.close()
        assert found.split() == files
        assert not any(text.strip() in task.prompt for text in domain.hidden(task))


def test_what_a_row_asks_to_be_written_is_handed_in_and_a_file_as_it_was_given_is_not(
    beside: Path,
) -> None:
    domain = _domain([SORTED], beside)
    (task,) = domain.tasks()
    assert "handed in is the file result.csv" in task.prompt
    sandbox = domain.prepare(task, choose())
    try:
        assert domain.collect(task, sandbox) == ""
        sandbox.write("result.csv", GOLDS["dm-1/gold/result.csv"].encode())
        answer = domain.collect(task, sandbox)
    finally:
        sandbox.close()
    assert _graded(domain, task, answer).passed
    assert domain.untouched(task, choose()).score == 0


def test_rows_whose_files_are_not_there_or_that_cannot_be_graded_are_left_out_and_told(
    beside: Path,
) -> None:
    lacking = {
        **NAMED,
        "task_id": "dabench_1",
        "input": {"file": None, "upstream": "A/B:data/my towns.csv"},
    }
    domain = _domain(
        [lacking, SORTED, CLUSTER, DATABASE, _made("plan-9", "compare_csv", {"file": "a.csv"})],
        beside,
    )
    assert [task.id for task in domain.tasks()] == ["dacode:dacode:dm-1"]
    assert dict(domain.refused()) == {
        "dacode:dacode:plan-9": "nobody can",
        "dacode:infiagent_dabench:1": "tables/my towns.csv is not beside the data",
        "dacode:dacode:ml-2": (
            "its metric is of features that the answer itself gives: any can be well apart"
        ),
        "dacode:dacode:dw-1": "its compare_sqlite is not built",
    }
    (beside / "tables" / "my towns.csv").write_text(TABLE)
    assert "dacode:infiagent_dabench:1" in [
        task.id for task in _domain([lacking, SORTED], beside).tasks()
    ]


def test_a_row_that_cannot_be_compared_is_no_fault_of_the_answer(beside: Path) -> None:
    domain = _domain(
        [_made("dm-1", "compare_csv", {"file": "result.csv"}, {"condition_cols": [9]})], beside
    )
    with pytest.raises(Fault, match="cannot be read") as e:
        _graded(domain, domain.tasks()[0], "a\n1\n")
    assert e.value.code == "unsound-task"


def test_an_array_that_only_numpy_reads_is_refused_with_its_line(beside: Path) -> None:
    (beside / "files" / "plot-1" / "gold" / "result.npy").write_bytes(_array(HEIGHTS, "|O"))
    with pytest.raises(
        BadInput, match="line 1: its answer is an array that is not read without numpy"
    ):
        _domain([BARS], beside).tasks()


def test_a_row_with_its_labels_in_the_set_s_own_columns_is_the_same_question(beside: Path) -> None:
    (beside / "da-dev-tables").mkdir()
    (beside / "da-dev-tables" / "towns.csv").write_text(TABLE)
    own = {
        "id": 7000,
        "question": "What is the mean price, and which town is dearest?",
        "constraints": "",
        "level": "x",
        "format": "@mean[number] @town[name]",
        "file_name": "towns.csv",
        "common_answers": [["mean", "2.00"], ["town", "Bern"]],
    }
    (one,), (other,) = _domain([own], beside).tasks(), _domain([NAMED], beside).tasks()
    assert (one.id, one.group, one.facts["answer"]) == (
        other.id,
        other.group,
        other.facts["answer"],
    )
    labels = {"id": 7000, "common_answers": own.pop("common_answers")}
    (beside / "da-dev-labels.jsonl").write_text(json.dumps(labels) + "\n")
    assert _domain([own], beside).tasks() == [one]
    # where the labels' file is no set of its own
    folder = registry.open_domain("dacode", beside, data=str(beside))
    assert list(folder.tasks()) == [one]


def test_no_exploit_of_any_kind_of_row_passes(beside: Path) -> None:
    domain = _domain([NAMED, *ROWS], beside)
    for task in domain.tasks():
        found = domain.exploits(task)
        assert len(found) > 20
        known = task.facts["answer"]
        asked = {
            "options": {},
            **known,
            "gold": AnalysisScorer().golds(domain._case(task))
            or known.get("gold")
            or known["values"],
        }
        for name, answer in found.items():
            if answer.strip():
                assert scored({**asked, "answer": answer})[0] < 1, (task.id, name)


def test_a_task_of_da_code_in_its_own_columns_is_the_same_task(beside: Path) -> None:
    (beside / "source").mkdir()
    (beside / "files" / "dm-1" / "source").rename(beside / "source" / "dm-1")
    (beside / "gold").mkdir()
    (beside / "files" / "dm-1" / "gold").rename(beside / "gold" / "dm-1")
    asked = {name: SORTED["eval"][name] for name in ("func", "result", "options", "config")}
    domain = _domain(
        [{"id": "dm-1", "instruction": SORTED["instruction"], "hardness": "Easy", **asked}], beside
    )
    (task,) = domain.tasks()
    assert task.id == "dacode:dacode:dm-1"
    assert task.prompt.startswith("Do dm-1 with towns.csv.")
    assert _graded(domain, task, domain.gold(task)).passed
    assert name_domain(str(beside / "given.jsonl")) == "dacode"


# --- named values
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("@mean[2] @town[Bern]", 1),
        ("The answer:\n@mean[2.0000001]\n@town[ 'Bern' ]", 1),
        ("@mean[2.001] @town[Bern]", 0.5),
        ("@mean[2]", 0.5),
        ("@mean[2] @town[Bern] @town[Ulm]", 0.5),
        ("@town[bern] @mean[nan]", 0),
        ("2.00 Bern", 0),
    ],
)
def test_named_values_are_right_one_by_one_and_never_two_at_once(answer: str, score: float) -> None:
    gold = {"mean": "2.00", "town": "Bern"}
    assert scored({"kind": "named", "answer": answer, "gold": gold, "tolerance": 1e-6})[0] == score


def test_a_list_of_values_is_right_part_by_part_and_brackets_are_paired() -> None:
    asked = {"kind": "named", "gold": {"out": "9.03,9.0", "in": '"Yes"'}, "tolerance": 1e-6}
    assert scored({**asked, "answer": "@out[9.03, 9.00] @in[Yes]"})[0] == 1
    assert scored({**asked, "answer": "@out[9.03] @in[Yes]"})[0] == 0.5
    assert values_in("@a[[1, 2]] @b[] @c[never closed") == {"a": ["[1, 2]"], "b": [""]}


# --- a JSON object and tables
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ('{"dearest": ["bern"], "price": [4]}', 1),
        ('So:\n```json\n{"Dearest": "Bern", "price": 4.0}\n```', 1),
        ('{"dearests": ["Bern"], "price": [4]}', 1),
        ('{"dearest": ["Bern"], "price": [4.0005]}', 0),
        ('{"dearest": ["Bern", "Ulm"], "price": [4]}', 0),
        ('{"dearest": ["Bern"]}', 0),
        ("Bern, 4", 0),
        ("[" * 100_000, 0),
    ],
)
def test_a_json_object_is_right_when_all_its_fields_are(answer: str, score: float) -> None:
    asked = {"kind": "fields", "gold": [{"dearest": ["Bern"], "price": [4]}], "options": {}}
    assert scored({**asked, "answer": answer})[0] == score


def _tabled(answer: str, gold: str, **options: Any) -> float:
    return scored({"kind": "table", "answer": answer, "gold": [gold], "options": options})[0]


def test_columns_of_a_table_count_by_their_values_whatever_their_names_and_places() -> None:
    gold = "town,price\nUlm,1.5\nBern,4\n"
    assert _tabled("p,q\n1.5004,Ulm\n4.0,bern\n", gold) == 1
    assert _tabled("p,q\n1.6,Ulm\n4.0,Bern\n", gold) == 0.5
    assert _tabled("p,q\n1.6,Ulm\n4.0,Bern\n", gold, score_rule="all") == 0
    assert _tabled("p,q\n4,Bern\n1.5,Ulm\n", gold) == 0
    assert _tabled("p,q\n4,Bern\n1.5,Ulm\n", gold, ignore_order=True) == 1
    assert _tabled("p\n4\n1.5\n", gold, ignore_order=True, condition_cols=[1]) == 1
    assert _tabled("p,q\n1.5,Ulm\n", gold) == 0


def test_empty_cells_and_the_words_for_them_are_the_same_and_no_number() -> None:
    assert _tabled("a\n\n1\nNaN\n", "a\n1\nNA\n") == 1
    assert _tabled("a,b\n1,x\n,y\n", "a,b\n1,x\n0,y\n") == 0.5


def test_a_table_with_a_column_for_every_number_is_none() -> None:
    many = (
        ",".join(f"c{n}" for n in range(1001))
        + "\n"
        + ",".join(str(n / 1000) for n in range(1001))
        + "\n"
    )
    assert _tabled(many, "p-val\n0.0034\n") == 0
    assert _tabled("index,p-val\n0,0.0034\n", "p-val\n0.0034\n") == 1


def test_of_several_right_tables_each_is_right_with_its_own_options() -> None:
    golds = ["a\n1\n2\n", "a,b\n1,5\n2,6\n"]
    options = {
        "condition_cols": [[0], [1]],
        "ignore_order": [False, True],
        "score_rule": ["all", "divide"],
    }
    for answer, score in (("x\n1\n2\n", 1), ("x\n6\n5\n", 1), ("x\n2\n1\n", 0)):
        asked = {"kind": "table", "answer": answer, "gold": golds, "options": options}
        assert scored(asked)[0] == score, answer


@pytest.mark.parametrize("text", ["", "a,b\n1,2,3\n4\n", "\x00"])
def test_what_is_no_table_scores_nothing_and_says_so(text: str) -> None:
    assert _tabled(text, "a,b\n1,2\n") == 0
    with pytest.raises(NotComparable):
        CsvTable("a\n1,2,3\n")


# --- predictions
# -------------------------------------------------------------------------------------------


def _predicted(
    answer: str, gold: str, metric: str, competition: bool = False, **options: Any
) -> float:
    bounds = {"metric": metric, "lower_bound": 0.5, "upper_bound": 0.9}
    asked = {
        "answer": answer,
        "gold": [gold],
        "config": bounds,
        "options": options,
        "competition": competition,
    }
    return scored({"kind": "predictions", **asked})[0]


def test_a_metric_counts_from_the_baseline_to_the_best_and_no_further() -> None:
    gold = "p\n" + "\n".join("1234512345") + "\n"
    assert _predicted(gold, gold, "accuracy") == 1
    assert _predicted(gold.replace("5", "4"), gold, "accuracy") == pytest.approx((0.8 - 0.5) / 0.4)
    assert _predicted("p\n" + "3\n" * 10, gold, "r2") == 0
    assert _predicted("p\n" + "0\n" * 10, gold, "rmse") == 0  # of an error less is better
    assert _predicted(gold, gold, "rmse") == 1


def test_predictions_go_by_the_rows_they_are_of() -> None:
    gold = "Id,Quality\n7,a\n8,b\n9,a\n10,b\n11,c\n12,a\n"
    other = "Id,Quality\n12,a\n7,a\n8,b\n9,a\n10,b\n11,c\n"
    assert _predicted(other, gold, "f1", competition=True) == 1
    assert _predicted("Quality\na\nb\na\nb\nc\na\n", gold, "f1") == 1
    assert _predicted("Quality\na\nb\na\nb\nc\na\n", gold, "f1", competition=True) == 0
    assert _predicted(other.replace("12,", "13,"), gold, "f1", competition=True) == 0
    assert _predicted(gold.replace("12,a\n", ""), gold, "f1") == 0
    assert _predicted(gold.replace("11,c", "11,"), gold, "f1") == 0
    assert _predicted("price_eur\n1.5\n4\n0.5\n", "Price (EUR)\n1.5\n4\n0.5\n", "r2") == 1


@pytest.mark.parametrize(
    ("right", "wrong", "options"),
    [
        (",y\n0,a\n1,b\n2,a\n", ",y\n0,b\n1,a\n2,b\n", {}),
        ("編號,結果\n1,a\n2,b\n3,a\n", "編號,結果\n1,b\n2,a\n3,b\n", {"target_column": "結果"}),
        ("humidity\na\nb\nc\n", "humidity\nb\nc\na\n", {"target_column": "humidity"}),
        ("y\n1000001\n1000002\n", "y\n1000002\n1000001\n", {"target_column": "y"}),
    ],
    ids=[
        "row numbers without a name",
        "names that are not ASCII",
        "a name that holds `id`",
        "labels of seven digits",
    ],
)
def test_what_is_predicted_is_compared_and_nothing_else(
    right: str, wrong: str, options: dict[str, str]
) -> None:
    assert _predicted(right, right, "accuracy", **options) == 1
    assert _predicted(wrong, right, "accuracy", **options) == 0


KNOWN = [
    # as scikit-learn 1.4.0 gives them
    ("accuracy", [1, 2, 3, 3, 1, 2, 2], [1, 2, 2, 3, 3, 2, 1], {}, 0.571429),
    ("f1", [1, 2, 3, 3, 1, 2, 2], [1, 2, 2, 3, 3, 2, 1], {}, 0.571429),
    ("f1", [1, 2, 3, 3, 1, 2, 2, 2], [1, 2, 2, 3, 3, 2, 1, 1], {"average": "macro"}, 0.490476),
    ("quadratic_weighted_kappa", [1, 2, 3, 3, 1, 2, 2], [1, 2, 2, 3, 3, 2, 1], {}, 0.25),
    ("roc_auc_score", [0.1, 0.4, 0.35, 0.8, 0.4], [0, 0, 1, 1, 1], {}, 0.75),
    ("r2", [2.5, 0.0, 2, 8], [3, -0.5, 2, 7], {}, 0.948608),
    ("mae", [2.5, 0.0, 2, 8], [3, -0.5, 2, 7], {}, 0.5),
    ("mse", [2.5, 0.0, 2, 8], [3, -0.5, 2, 7], {}, 0.375),
    ("rmsle", [2.5, 5, 4, 8], [3, 5, 2.5, 7], {}, 0.199324),
    ("medae", [2.5, 0.0, 2, 8], [3, -0.5, 2, 7], {}, 0.5),
]


@pytest.mark.parametrize(("metric", "given", "right", "options", "value"), KNOWN)
def test_metrics_are_those_of_scikit_learn(
    metric: str, given: list[float], right: list[float], options: dict[str, Any], value: float
) -> None:
    found = METRICS[metric]([float(n) for n in given], [float(n) for n in right], options)
    assert found == pytest.approx(value, abs=1e-6)


# --- figures
# -----------------------------------------------------------------------------------------------


def _figured(keys: Sequence[str] = (), **changed: Any) -> float:
    given = {**SHOWN, "data": HEIGHTS, **changed}
    gold = [json.dumps(SHOWN), json.dumps(HEIGHTS)]
    return scored(
        {
            "kind": "figure",
            "answer": json.dumps(given),
            "gold": gold,
            "options": {"keys": list(keys)},
        }
    )[0]


@pytest.mark.parametrize(
    ("changed", "score"),
    [
        ({}, 1),
        ({"data": [[0.25, 2.0], [1.5, 4.000001]]}, 1),
        ({"data": [[1.5, 4.0], [1.5, 4.0]]}, 0),
        ({"data": [[1.5, 4.0]]}, 0),
        ({"data": [["x"], None]}, 0),
        ({"color": ["#0505ff", "#fa0000"]}, 1),
        ({"color": ["#0000ff"]}, 0),
        ({"color": []}, 0),
        ({"color": 7}, 0),
        ({"graph_title": "prices "}, 1),
        ({"graph_title": "Rents"}, 0),
        ({"figsize": [4.0, 6.1]}, 0),
        ({"figsize": "6 by 4"}, 0),
        ({"xtick_labels": ["ulm", "bern"]}, 1),
        ({"xtick_labels": ["Ulm", "Ulm"]}, 0),
    ],
)
def test_a_figure_is_right_by_its_numbers_and_by_what_the_row_asks_of_it(
    changed: dict[str, Any], score: float
) -> None:
    assert _figured(**changed) == score


def test_what_a_row_does_not_ask_of_a_figure_does_not_count() -> None:
    assert _figured(["figsize"], color=[], graph_title="Rents") == 1


def test_a_figure_is_asked_for_as_the_program_that_draws_it(beside: Path) -> None:
    domain = _domain([BARS], beside)
    (task,) = domain.tasks()
    assert "the file plot.py in /work" in task.prompt
    assert "must save bars.png" in task.prompt
    assert domain.exploits(task).keys() >= KNOWN_TRICKS.keys()
    compile(domain.gold(task), "plot.py", "exec")


@pytest.mark.live
def test_a_program_that_draws_the_right_figure_passes_and_no_other(beside: Path) -> None:
    (beside / "benchmarks" / "dacode" / "domain.toml").unlink()  # the shipped one has matplotlib
    domain = _domain([BARS], beside)
    (task,) = domain.tasks()
    right = domain.gold(task)
    assert _graded(domain, task, right).passed
    table = "import pandas\nfor price in pandas.read_csv('towns.csv').price:\n    print(price)\n"
    assert _graded(domain, task, table + right).passed
    for wrong in (
        right.replace("4.0", "4.1"),
        right.replace("bars.png", "other.png"),
        right.replace("savefig", "draw"),
    ):
        assert not _graded(domain, task, wrong).passed
    found = domain.exploits(task)
    for name in (
        "nothing is drawn",
        "a liar",
        "its own verdict",
        "found, by frames",
        "leaves",
        "ends",
    ):
        grade = _graded(domain, task, found[name])
        assert grade.score == 0, (name, grade.evidence)
