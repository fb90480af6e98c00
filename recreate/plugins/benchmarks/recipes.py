"""Rows of published sets of tasks, by their fields: what each says as the one row that a RowDomain
reads.

A recipe knows a set's own columns. `read` also takes rows in the layout of an exchange file
(`dataset`, `instruction`, `input`, `gold`, `eval`), which names the set.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recreate.api.config import read_toml
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.syntax import parse_python
from recreate.api.types import digest
from recreate.domains.rows import read_first_row
from recreate.plugins.benchmarks import dumps

Row = JsonMap
SOLUTION = "solution.py"


class PublishedSet(NamedTuple):
    """One published set: `fields` are columns that its rows have, `sure` ones that no other rows
    have; `moved` where an exchange file has them (dots lead into objects). labels: a file beside
    the rows with more columns of the row that has the same `id`."""

    name: str
    domain: str
    fields: Sequence[str]
    read: Callable[[Row], JsonDict]
    moved: Mapping[str, str]
    sure: Callable[[Row], bool] = lambda row: True
    labels: str = ""


_EXCHANGE = {"dataset", "instruction", "input", "gold", "eval"}
_SPLITS = {"valid": "validation"}


def domain_of_file(path: Path) -> str:
    """Return the published domain whose rows a file holds, by its first; '' where none is sure."""
    recipe = find_recipe(read_first_row(path)) if path.suffix.lower() == ".jsonl" else None
    return recipe.domain if recipe else ""


def find_recipe(row: Row, domain: str = "") -> PublishedSet | None:
    """Return the recipe that a row's fields fit: of one domain, or, without, of any whose rows
    cannot be mistaken."""
    if row.keys() >= _EXCHANGE:
        named = str(row["dataset"])
        known = [
            each for each in RECIPES if named == each.name or named.startswith(each.name + "_")
        ]
        known = [each for each in known if domain in ("", each.domain)]
        return max(known, key=lambda each: len(each.name), default=None)
    fit = [each for each in RECIPES if domain in ("", each.domain) and row.keys() >= {*each.fields}]
    return next((each for each in fit if each.sure(row)), fit[0] if fit and domain else None)


def lacking(recipe: PublishedSet, row: Row) -> list[str]:
    """The columns that a row lacks to be one of this set, where it has some of them; none where it
    is of another."""
    wanted = _EXCHANGE if "dataset" in row else {*recipe.fields}
    return sorted(wanted - row.keys()) if wanted & row.keys() else []


def read(recipe: PublishedSet, row: Row) -> JsonDict:
    """The row with the columns that published.COLUMNS names, and perhaps `needs`, paths beside the
    data without which it is no task, and `left_out`, why it is none. Raises ValueError that says
    what is wrong, KeyError for a column that is not there."""
    split = str(row.get("split", ""))
    if row.keys() >= _EXCHANGE:
        given = {column: _at(row, place) for column, place in recipe.moved.items()}
        id = str(row["task_id"]).removeprefix(f"{recipe.name}_").removeprefix(f"{row['dataset']}_")
        row = {**given, "task_id": id, "group": row.get("group", "")}
    found = recipe.read({column: value for column, value in row.items() if value is not None})
    id = str(found.get("id") or row.get("task_id") or row.get("id") or "")
    # gsm8k's rows and defog's have none
    id = id or digest([found["prompt"], found.get("files")], 12)
    found = {
        "id": id,
        "group": str(row.get("group") or f"{recipe.name}-{id}"),
        "files": {},
        **found,
    }
    return {**found, "split": _SPLITS.get(split, split), "source": recipe.name}


def _at(row: Row, place: str) -> Any:
    value: Any = row
    for name in place.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


# --- code: tests, run apart from the answer
# -----------------------------------------------------------------


def _tested(prompt: str, given: str, gold: str, tests: Mapping[str, str], **more: Any) -> JsonDict:
    needs = (
        ["numpy"]
        if any(re.search(r"^\s*(?:import|from) numpy", text, re.M) for text in tests.values())
        else []
    )
    files = {SOLUTION: given} if given else {}
    return {
        "prompt": prompt,
        "answer": dict(tests),
        "files": files,
        "gold": {SOLUTION: gold},
        "requires": needs,
        **more,
    }


_CLOSE = """
def _allclose(out, exp, **how):
    out = np.asarray(out)
    return out.shape == np.shape(exp) and bool(np.allclose(out, exp, **how))
"""


def _strict(test: str) -> str:
    """Tests of EvalPlus that see what they mean to. As published: of nothing and a number numpy
    finds all pairs close, and so it does of one number and a list of the same; two tests of MBPP+
    compare and assert nothing; and where the right value is worked out after the call, it is worked
    out from what the call left of its arguments.
    """
    if "np.allclose(" in test:
        test = test.replace("np.allclose(", "_allclose(")
        test = re.sub(
            r"^import numpy as np\n", lambda found: found[0] + _CLOSE, test, count=1, flags=re.M
        )
    test = test.replace(
        "(*inp), ref_func(*inp)", "(*__import__('copy').deepcopy(inp)), ref_func(*inp)"
    )
    return re.sub(
        r"^( +)exact_match = exp == \(out is not None\)\n(?! *assert)",
        r"\g<0>    assert exact_match\n",
        test,
        flags=re.M,
    )


def _humaneval(row: Row) -> JsonDict:
    begun = row["prompt"]
    entry = row["entry_point"]
    test = f"{begun}\n\nfrom solution import {entry}\n{_strict(row['test'])}\n\ncheck({entry})\n"
    prompt = (
        f"Complete the function `{entry}` in solution.py: it must do what its docstring"
        f" says.\n\n{_block(begun)}"
    )
    number = re.sub(r"^HumanEval/", "", str(row["task_id"]))
    whole = begun + row["canonical_solution"]
    return _tested(
        prompt, begun, whole, {"test_answer.py": test}, id=number, group=f"he-{number}", entry=entry
    )


def _humanevalfix(row: Row) -> JsonDict:
    entry = row["entry_point"]
    begun = row.get("prompt", "")
    wrong = begun + row["buggy_solution"]
    whole = begun + row["canonical_solution"]
    call = "" if re.search(rf"^check\({entry}\)", row["test"], re.M) else f"\n\ncheck({entry})\n"
    test = f"{whole}\n\nfrom solution import {entry}\n{row['test']}{call}"
    told = (
        f"The function `{entry}` in solution.py has a bug. Mend it: it must do what its docstring"
        " says."
    )
    prompt = f"{told}\n\n{_block(wrong)}"
    number = re.sub(r"^\w+/", "", str(row["task_id"]))
    return _tested(
        prompt, wrong, whole, {"test_answer.py": test}, id=number, group=f"he-{number}", entry=entry
    )


def _mbpp(row: Row) -> JsonDict:
    gold = str(row["code"]).replace("\r\n", "\n")
    listed = [str(each) for each in row.get("test_list") or []]
    test = _strict(str(row.get("test") or "\n".join(listed)))
    before = "\n".join(
        [*(row.get("test_imports") or []), str(row.get("test_setup_code") or "")]
    ).strip()
    names = [
        each
        for each in _defined(gold)
        if re.search(rf"\b{re.escape(each.name)}\b", f"{before}\n{test}")
    ]
    if not names:
        raise ValueError("has tests that use nothing that its code defines")
    before = "\n".join([*_lent(gold, test), before]).strip()
    heads = "\n".join(_head(each) for each in names)
    prompt = f"{row.get('text') or row['prompt']}\n\nWrite it into solution.py:\n\n{_block(heads)}"
    if listed:
        prompt += f"\n\nSuch as:\n\n{_block(listed[0])}"
    imports = ", ".join(each.name for each in names)
    whole = f"from solution import {imports}\n\n{before}\n\n{test}\n"
    number = re.sub(r"^\w+/", "", str(row["task_id"]))
    return _tested(
        prompt,
        "",
        gold,
        {"test_answer.py": whole},
        id=number,
        group=f"mbpp-{number}",
        entry=names[-1].name,
    )


_LOAD = """
def load_json_testcases(name):
    import json
    return json.loads({cases!r})
"""
_PYTEST = '''
class pytest:
    """As much of pytest as these tests use; what they call slow is left out, as by default."""

    use_correct = run_slow = False

    def skip(why=""):
        import unittest
        raise unittest.SkipTest(why)

    class mark:
        def parametrize(names, rows):
            def marked(test):
                test._cases = rows
                return test
            return marked
        parametrize = staticmethod(parametrize)
    skip = staticmethod(skip)
'''
NODE = '''class Node:
    """A node of a list or graph."""

    def __init__(self, value=None, successor=None, successors=(), predecessors=(), incoming=(), \
outgoing=()):
        self.value = value
        self.successor = successor
        self.successors = list(successors)
        self.predecessors = list(predecessors)
        self.incoming_nodes = list(incoming)
        self.outgoing_nodes = list(outgoing)
'''


def _quixbugs(row: Row) -> JsonDict:
    wrong = row["buggy_code"]
    test = str(row["test_file"])
    entry = re.search(r"from python_programs\.\w+ import (\w+)", test)
    if entry is None:
        raise ValueError("has a test file that imports nothing of python_programs")
    test = re.sub(
        r"if pytest\.use_correct:\n.*\nelse:\n\s+(from) python_programs\.\w+", r"\1 solution", test
    )
    test = re.sub(r"^(?:import pytest|from load_testdata .*)$", "", test, flags=re.M)
    test = _PYTEST + _LOAD.format(cases=json.dumps(row.get("json_cases") or [])) + test
    node = {"node.py": NODE} if "from node import" in test else {}
    prompt = (
        f"The function `{entry[1]}` in solution.py has a bug in one line. Mend"
        f" it.\n\n{_block(wrong)}"
    )
    made = _tested(prompt, wrong, row["solution"], {"test_answer.py": test}, entry=entry[1])
    return {**made, "files": {**made["files"], **node}, "id": str(row.get("task_id") or entry[1])}


def _exercism(row: Row) -> JsonDict:
    names = ", ".join(sorted(row["files"]))
    prompt = f"{row['instructions']}\n\nWrite it into {names}, in which it is begun."
    shown = "\n\n".join(_block(text) for text in row["files"].values())
    entry = next(iter(re.findall(r"^def (\w+)", "\n".join(row["files"].values()), re.M)), "")
    made = _tested(f"{prompt}\n\n{shown}", "", "", row["test_files"], entry=entry)
    return {**made, "files": dict(row["files"]), "gold": dict(row["solution_files"])}


def _block(code: str) -> str:
    return f"```python\n{code.strip(chr(10))}\n```"


def _defined(code: str) -> list[ast.FunctionDef | ast.ClassDef]:
    try:
        body = parse_python(code).body
    except SyntaxError:
        raise ValueError("has code that is no Python") from None
    return [each for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)]


def _lent(code: str, test: str) -> list[str]:
    """The imports of the right code that its tests use: as published both run in one namespace."""
    found = [
        each for each in parse_python(code).body if isinstance(each, ast.Import | ast.ImportFrom)
    ]
    return [
        ast.unparse(each)
        for each in found
        if any(re.search(rf"\b{re.escape(one.asname or one.name)}\.", test) for one in each.names)
    ]


def _head(node: ast.FunctionDef | ast.ClassDef) -> str:
    return (
        f"class {node.name}:"
        if isinstance(node, ast.ClassDef)
        else f"def {node.name}({ast.unparse(node.args)}):"
    )


# --- math
# ------------------------------------------------------------------------------------------------


def _math(row: Row) -> JsonDict:
    answer = row["answer"]
    text = str(answer)
    if "\n#### " in text:
        text = text.rpartition("\n#### ")[2].replace(",", "").strip()
    if isinstance(answer, float) and answer.is_integer():
        text = str(int(answer))
    id = str(row.get("unique_id") or row.get("task_id") or row.get("id") or "")
    question = row.get("problem") or row.get("question") or row.get("Problem")
    if not question:
        raise ValueError("has no problem or question")
    return {
        "prompt": str(question),
        "answer": text,
        **({"id": re.sub(r"^test/|\.json$", "", id)} if id else {}),
    }


def _is_math500(row: Row) -> bool:
    return "unique_id" in row and "subject" in row


def _is_gsm8k(row: Row) -> bool:
    return "\n#### " in str(row.get("answer"))


def _is_aime(row: Row) -> bool:
    return "year" in row or "artofproblemsolving" in str(row.get("url"))


# --- sql
# ------------------------------------------------------------------------------------------------


def _defog(row: Row) -> JsonDict:
    name = str(row["db_name"])
    prompt = f"{row['question']}\n\nThe database is {name}.sqlite in /work, in SQLite."
    if row.get("instructions"):
        prompt += f"\n\n{row['instructions']}"
    if (dialect := row.get("db_type") or "sqlite") != "sqlite":
        raise ValueError(f"has a query for {dialect}, not for SQLite")
    query = dumps.as_of_now(str(row["query"]))
    if query != row["query"]:
        prompt += (
            f"\n\nNow is {dumps.NOW}: write that out in place of 'now', CURRENT_DATE and the like."
        )
    queries = [each.strip() for each in query.split(";") if each.strip()]
    return {"prompt": prompt, "answer": queries, "files": f"db/{name}.sqlite"}


# --- ds1000
# -------------------------------------------------------------------------------------------------


def _ds1000(row: Row) -> JsonDict:
    about = row["metadata"]
    about = json.loads(about) if isinstance(about, str) else about
    library = about["library"]
    made = {"prompt": row["prompt"], "answer": row["code_context"], "gold": row["reference_code"]}
    group = f"{library}-{about['perturbation_origin_id']}"
    return {**made, "id": f"{library}-{about['library_problem_id']}", "group": group}


# --- dacode: analysis of data
# -------------------------------------------------------------------------------


def _dabench(row: Row) -> JsonDict:
    """InfiAgent-DABench: a question to one table, answered by named values: `common_answers`, a
    list of pairs, which its labels' file has, or `answers`, an object."""
    answers = dict(row["common_answers"] if "common_answers" in row else row["answers"])
    named = str(row.get("file_name") or "")
    place = (
        named
        if "/" in named
        else f"da-dev-tables/{named}"
        if named
        else f"tables/{_last(row['upstream'])}"
    )
    asked = "\n\n".join(
        str(row[name]).strip() for name in ("question", "constraints", "format") if row.get(name)
    )
    values = {str(name): str(value) for name, value in answers.items()}
    return {
        "prompt": f"{asked}\n\nThe table is {_last(place)} in /work.",
        "files": place,
        "needs": [place],
        "answer": {"kind": "named", "values": values, "tolerance": 1e-6},
        "group": f"table-{_last(place)}",
        "id": str(row.get("task_id") or row["id"]).removeprefix("dabench_"),
    }


def _last(path: str) -> str:
    return str(path).rpartition("/")[2]


_METRICS = {
    "accuracy",
    "f1",
    "quadratic_weighted_kappa",
    "roc_auc_score",
    "r2",
    "mae",
    "mse",
    "rmse",
    "rmsle",
    "smape",
    "medae",
}
"""What measures.py computes of predictions."""


def _dacode(row: Row) -> JsonDict:
    """DA-Code: a folder of files, and what is to be made of them. Columns of its evaluation's file
    stand in the row of the task."""
    id = str(row.get("task_id") or row["id"]).removeprefix("dacode_")
    exchanged = "input" in row
    source = str(row.get("source") or (f"files/{id}/source" if exchanged else f"source/{id}"))
    right = str(row.get("gold") or (f"files/{id}/gold" if exchanged else f"gold/{id}"))
    (func,), (result,), (options,) = row["func"], row["result"], row["options"]
    made = {
        "prompt": str(row["instruction"]),
        "id": id,
        "files": source,
        "needs": [source, right],
        "group": id,
    }
    files = (
        [result["file"]] if isinstance(result.get("file"), str) else list(result.get("file") or ())
    )
    golds = [f"{right}/{name}" for name in files]
    if func == "compare_csv":
        return {
            **made,
            "answer": {"kind": "table", "file": files[0], "gold": golds, "options": options},
        }
    if func == "compare_text":
        return {
            **made,
            "answer": {"kind": "fields", "gold": list(result["number"]), "options": options},
        }
    if func in ("compare_ml", "compare_competition_ml"):
        config = {name: row["config"][name] for name in ("metric", "upper_bound", "lower_bound")}
        if config["metric"] == "silhouette":
            return {
                **made,
                "left_out": (
                    "its metric is of features that the answer itself gives: any can be well apart"
                ),
            }
        if config["metric"] not in _METRICS:
            return {**made, "left_out": f"its metric {config['metric']} is not built"}
        competition = func == "compare_competition_ml"
        answer = {
            "kind": "predictions",
            "file": files[0],
            "gold": golds,
            "config": config,
            "options": options,
        }
        return {**made, "answer": {**answer, "competition": competition}}
    if func == "compare_image":
        (image, *_), data = files, [f"{right}/plot.json", f"{right}/result.npy"]
        answer = {
            "kind": "figure",
            "file": "plot.py",
            "image": image,
            "gold": data,
            "options": options,
        }
        return {**made, "needs": [source, *data], "answer": answer}
    return {**made, "left_out": f"its {func} is not built"}


def _is_plain(row: Row) -> bool:
    return "def assertion(" not in str(row.get("test"))


_FUNCTIONS: Mapping[str, Callable[[Row], Any]] = {
    function.__name__.lstrip("_"): function
    for function in (
        _dabench,
        _dacode,
        _defog,
        _ds1000,
        _exercism,
        _humaneval,
        _humanevalfix,
        _math,
        _mbpp,
        _quixbugs,
        _is_aime,
        _is_gsm8k,
        _is_math500,
        _is_plain,
    )
}
"""By the names that recipes.toml has."""


def _read_recipes() -> tuple[PublishedSet, ...]:
    """Return what recipes.toml lists."""
    text = Path(__file__).with_name("recipes.toml").read_text("utf-8")
    listed: list[JsonDict] = read_toml(text)["set"]
    for each in listed:
        each |= {what: _FUNCTIONS[each[what]] for what in ("read", "sure") if what in each}
    return tuple(PublishedSet(**each) for each in listed)


RECIPES = _read_recipes()
