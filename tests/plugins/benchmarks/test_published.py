"""Published sets as domains: their rows are known by their fields, and what is handed in can bend
no test."""

from __future__ import annotations

import json
import random
from ast import literal_eval
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api import registry
from recreate.api.errors import BadInput, Missing
from recreate.api.types import Grade, Task, Trace
from recreate.domains.rows import name_domain, table
from recreate.domains.validate import validate
from recreate.plugins.audit import audit
from recreate.plugins.benchmarks import recipes
from recreate.plugins.benchmarks.mathematics import read_math
from recreate.plugins.benchmarks.published import PublishedDomain
from recreate.plugins.withheld import exploits
from recreate.sandboxes import choose
from tests.plugins.audit.test_audit import KNOWN_TRICKS

HUMANEVAL = {
    "task_id": "HumanEval/7000",
    "prompt": 'def half(n):\n    return n // 2\n\n\ndef twice(n):\n    """Two times n."""\n',
    "canonical_solution": "    return 2 * n\n",
    "test": (
        "def check(candidate):\n    assert candidate(2) == 4\n    assert half(candidate(21)) =="
        " 21\n    assert abs(candidate(0.5) - 1.0) < 1e-6\n"
    ),
    "entry_point": "twice",
}
HUMANEVALFIX = {
    **HUMANEVAL,
    "task_id": "Python/7001",
    "buggy_solution": "    return 3 * n\n",
    "test": HUMANEVAL["test"] + "\ncheck(twice)",
}
MBPP = {
    "task_id": 7002,
    "text": "Write a function that turns a list round.",
    "code": "def turned(items):\r\n  return items[::-1]",
    "test_list": ["assert turned([1, 2]) == [2, 1]", "assert turned([]) == []"],
}
QUIXBUGS = {
    "task_id": "follow",
    "buggy_code": "\ndef follow(node):\n    return node\n",
    "solution": "\ndef follow(node):\n    return node.successor\n",
    "test_file": (
        "import pytest\nfrom node import Node\n\nif pytest.use_correct:\n    from"
        " correct_python_programs.follow import follow\nelse:\n    from python_programs.follow"
        " import follow\n\n\ndef test_follow():\n    end = Node(1)\n    assert follow(Node(2,"
        " end)).value == 1\n    assert follow(Node(2, end)) is end\n"
    ),
}
EXERCISM = {
    "task_id": "account",
    "instructions": "An account that is never below nothing.",
    "files": {"account.py": "class Account:\n    pass\n"},
    "solution_files": {
        "account.py": (
            "class Empty(ValueError):\n    pass\n\n\nclass Account:\n    def __init__(self,"
            " amount=0):\n        self.amount = amount\n\n    def __eq__(self, other):\n       "
            " return self.amount == other.amount\n\n    def take(self, amount):\n        if amount"
            " > self.amount:\n            raise Empty('too little', amount)\n        self.amount -="
            " amount\n        return self\n\n\ndef each(numbers, work):\n    for number in"
            " numbers:\n        yield work(number)\n\n\ndef sort(numbers):\n    numbers.sort()\n"
        )
    },
    "test_files": {
        "account_test.py": (
            "import unittest\n\nfrom account import Account, Empty, each, sort\n\n\nclass"
            " AccountTest(unittest.TestCase):\n    def test_take(self):\n       "
            " self.assertEqual(Account(5).take(2), Account(3))\n       "
            " self.assertNotEqual(Account(5), Account(3))\n\n    def test_too_little(self):\n      "
            "  with self.assertRaises(Empty) as err:\n            Account(1).take(2)\n       "
            " self.assertEqual(err.exception.args, ('too little', 2))\n\n    def test_each(self):\n"
            "        self.assertEqual(list(each([1, 2], lambda n: n + 1)), [2, 3])\n\n    def"
            " test_sort(self):\n        numbers = [2, 1]\n        sort(numbers)\n       "
            " self.assertEqual(numbers, [1, 2])\n"
        )
    },
}
HUMANEVALPLUS = {
    **HUMANEVAL,
    "task_id": "HumanEval/7004",
    "prompt": 'def third(n):\n    """A third of n."""\n',
    "entry_point": "third",
    "canonical_solution": "    return n / 3\n",
    "test": (
        "def assertion(out, exp, atol):\n    assert out == exp\n\n\ndef check(candidate):\n    for"
        " inp, exp in zip([[3], [6]], [1.0, 2.0]):\n        assertion(candidate(*inp), exp, 0)\n"
    ),
}
MBPPPLUS = {
    "task_id": 7005,
    "prompt": "Write a function that counts each element of a list.",
    "code": "def counted(items):\n    return {each: items.count(each) for each in items}\n",
    "test": (
        "def ref_func(items):\n    return {each: items.count(each) for each in items}\n\n\ndef"
        " assertion(out, exp, atol):\n    assert out == exp\n\n\ninputs = [[[1, 1]], [['a',"
        " 'b']]]\nfor i, inp in enumerate(inputs):\n    assertion(counted(*inp), ref_func(*inp),"
        " 0)\n"
    ),
}
CODE: list[dict[str, Any]] = [
    HUMANEVAL,
    HUMANEVALPLUS,
    HUMANEVALFIX,
    MBPPPLUS,
    MBPP,
    QUIXBUGS,
    EXERCISM,
]
"""A row of each set, in the layout in which it is published."""


def _domain(name: str, rows: Sequence[Mapping[str, Any]], folder: Path) -> PublishedDomain:
    file = folder / "given.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = registry.open_domain(name, folder, data=str(file))
    assert isinstance(found, PublishedDomain)
    return found


def _graded(domain: PublishedDomain, task: Task, answer: str) -> Grade:
    trace = Trace(attempt="t", task=task.id, scaffold="", model="", answer=answer)
    return domain.grade(task, trace, choose())


def test_rows_of_each_set_are_known_by_their_fields_and_their_gold_alone_passes(
    tmp_path: Path,
) -> None:
    domain = _domain("code", CODE, tmp_path)
    assert [task.id for task in domain.tasks()] == [
        "code:humaneval:7000",
        "code:humanevalplus:7004",
        "code:humanevalfix:7001",
        "code:mbppplus:7005",
        "code:mbpp:7002",
        "code:quixbugs:follow",
        "code:exercism:account",
    ]
    for task in domain.tasks():
        proof = validate(domain, task, choose())
        assert proof.ok, proof.reason
    assert "canonical" not in domain.tasks()[0].prompt
    assert domain.stratum(domain.tasks()[4]) == "mbpp"


def test_a_row_in_the_layout_of_an_exchange_file_is_the_same_task(tmp_path: Path) -> None:
    row = {
        "task_id": "humaneval_7000",
        "dataset": "humaneval",
        "split": "valid",
        "group": "he-7000",
        "instruction": HUMANEVAL["prompt"],
        "input": {},
        "gold": {"solution": HUMANEVAL["canonical_solution"]},
        "eval": {"test": HUMANEVAL["test"], "entry_point": "twice"},
    }
    (task,) = _domain("code", [row], tmp_path).tasks()
    (other,) = _domain("code", [HUMANEVAL], tmp_path).tasks()
    assert (task.id, task.prompt, task.facts["answer"]) == (
        other.id,
        other.prompt,
        other.facts["answer"],
    )


def test_data_alone_means_the_domain_that_knows_its_rows(tmp_path: Path) -> None:
    for row, name in (
        (HUMANEVAL, "code"),
        ({"question": "1 + 1?", "answer": "1+1\n#### 2"}, "math"),
        (
            {"task_id": "retail_dev_1", "dataset": "taubench", "instruction": "You are Yusuf."},
            "apiworld",
        ),
        ({"id": "multi_turn_base_1", "question": [], "initial_config": {}}, "apiworld"),
    ):
        file = tmp_path / "mine.jsonl"
        file.write_text(json.dumps(row) + "\n")
        assert name_domain(str(file)) == name
    file.write_text('{"question": "Why?", "answer": "So."}\n')
    assert name_domain(str(file)) == "mine"


FIX = {**HUMANEVALFIX, "task_id": "Python/7000"}  # of the same function as HUMANEVAL


def test_sets_that_give_each_other_away_are_in_one_split_whoever_says_it(tmp_path: Path) -> None:
    more = [
        {**HUMANEVAL, "task_id": f"HumanEval/{n}", "prompt": f"# {n}\n{HUMANEVAL['prompt']}"}
        for n in (1, 2, 3)
    ]
    said = [
        {**row, "split": split}
        for row, split in zip(more, ("train", "validation", "test"), strict=True)
    ]
    for split in ("train", "validation", "test"):
        both = _domain("code", [*said, {**HUMANEVAL, "split": split}, FIX], tmp_path).tasks()
        assert {task.split for task in both if task.group.endswith("he-7000")} == {split}
        assert len(both) == 5
    other = [{**FIX, "split": "test"}, {**FIX, "task_id": "Python/8000", "split": "train"}]
    with pytest.raises(BadInput, match="humanevalfix:7000 is test and code:humaneval:7000 train"):
        _domain("code", [*said, {**HUMANEVAL, "split": "train"}, *other], tmp_path).tasks()


def test_a_text_that_stands_in_two_splits_is_left_out_of_the_second(tmp_path: Path) -> None:
    asked = ("1 + 1?", "2 + 2?", "1  +  1?", "2 + 2?")
    rows = [
        {
            "unique_id": f"test/{n}.json",
            "subject": "x",
            "problem": text,
            "answer": "2",
            "split": split,
        }
        for n, (text, split) in enumerate(
            zip(asked, ("train", "test", "test", "test"), strict=True)
        )
    ]
    domain = _domain("math", rows, tmp_path)
    assert [domain.tasks().index(task) for task in domain.tasks("test")] == [1, 2]
    ((id, why),) = domain.refused()
    assert (id, "which is train" in why) == ("math:math500:2", True)


@pytest.mark.parametrize(
    ("name", "row", "changed", "says"),
    [
        (
            "math",
            {"problem": "1?", "answer": "1", "unique_id": "a", "subject": "x"},
            {"problem": None},
            "has no problem",
        ),
        (
            "math",
            {"problem": "1?", "answer": "1", "unique_id": "a", "subject": "x"},
            {"answer": None},
            "has no answer",
        ),
        (
            "math",
            {"problem": "1?", "answer": "1", "unique_id": "a", "subject": "x"},
            {"answer": ...},
            "has no answer",
        ),
        ("code", HUMANEVAL, {"test": ...}, "has no test"),
        ("code", HUMANEVAL, {"prompt": None}, "has no prompt"),
        ("code", HUMANEVAL, {"prompt": 3}, "cannot be read: "),
    ],
)
def test_a_row_that_lacks_a_column_of_its_set_is_refused_with_its_line_and_the_column(
    name: str, row: dict[str, Any], changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    bad = {column: value for column, value in {**row, **changed}.items() if value is not ...}
    with pytest.raises(BadInput, match=rf"1 of 2 rows .* line 2: it {says}"):
        _domain(
            name, [row, {**bad, "unique_id": "b", "task_id": "HumanEval/7003"}], tmp_path
        ).tasks()


def _aime(at: Path, *rows: Mapping[str, Any]) -> None:
    """Rows of mathematics in a file of a folder."""
    at.parent.mkdir(exist_ok=True)
    given = (
        {"id": f"{at.stem}{n}", "problem": f"{at.stem} + {n}?", "answer": "2", **row}
        for n, row in enumerate(rows)
    )
    at.write_text(
        "".join(json.dumps({k: v for k, v in row.items() if v is not ...}) + "\n" for row in given)
    )


def test_a_bad_row_of_a_folder_is_told_with_its_file_its_line_and_what_it_lacks(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> str:
        with pytest.raises(BadInput) as e:
            registry.open_domain("math", workspace, data="sets").tasks()
        return e.value.message

    _aime(workspace / "sets/a.jsonl", {}, {"answer": ...}, {"problem": None})
    _aime(workspace / "sets/b.jsonl", {}, {}, {"answer": None}, {"id": "a0"})
    assert (
        told()
        == "4 of 7 rows read as aime24 cannot be tasks. sets/a.jsonl line 2: it has no answer;"
        " sets/a.jsonl line 3: it has no problem or question; sets/b.jsonl line 3: it has no"
        " answer; sets/b.jsonl line 4: its id is that of sets/a.jsonl line 1 too"
    )
    _aime(workspace / "sets/a.jsonl", {})
    _aime(workspace / "sets/b.jsonl", {"id": "a0"})
    assert told().endswith(" sets/b.jsonl line 1: its id is that of sets/a.jsonl line 1 too"), (
        "also on the same line"
    )
    (workspace / "sets/b.jsonl").write_text('{"id": "x", "problem": "1?"}\n')
    registry.open_domain("math", workspace, data="sets").tasks()
    assert (
        "1 row is of no set that math knows: sets/b.jsonl line 1 has no answer"
        in capsys.readouterr().err
    )
    (workspace / "sets/a.jsonl").unlink()
    assert "sets/b.jsonl line 1 has no answer; its columns are id, problem" in told()


def test_a_set_in_several_files_has_each_row_in_the_split_that_it_says(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        _aime(tmp_path / "sets" / f"{split}.jsonl", *[{"split": split}] * 3)
    tasks = registry.open_domain("math", tmp_path, data=str(tmp_path / "sets")).tasks()
    assert [task.split for task in tasks] == [task.id.rpartition(":")[2][:-1] for task in tasks]
    assert len(tasks) == 9


WRONG = {
    "equals everything": (
        "class L:\n    def __eq__(self, o): return True\n    def __sub__(self, o): return 0.0\n"
        "    def __abs__(self): return 0.0\n    def __bool__(self): return True\n"
        "    def __floordiv__(self, o): return self\n"
        "    def __lt__(self, o): return True\ndef twice(n): return L()\n"
    ),
    "another helper": "def half(n): return 21\ndef twice(n): return 4 if n == 2 else 1.0\n",
    "skips": "import unittest\ndef twice(n): raise unittest.SkipTest\n",
    "leaves": "import os\ndef twice(n): os._exit(0)\n",
    "leaves at once": "import sys\nsys.exit(0)\n",
    "tells a verdict": (
        'import os\nfor n in range(3, 20):\n    try:\n        os.write(n, b\'{"verdict": {"passed":'
        ' 9, "failed": [], "count": 9}, "key": ""}\\n\')\n    except OSError:\n        pass\ndef'
        " twice(n): return n\n"
    ),
    "bends its own interpreter": (
        "import builtins, sys, unittest\nbuiltins.AssertionError = Exception\n"
        "sys.modules['unittest'] = None\nbuiltins.abs = lambda n: 0\ndef twice(n): return n\n"
    ),
    "looks for the tests": (
        "import glob, re\ndef twice(n):\n    text = ''.join(open(f).read() for f in "
        "glob.glob('/work/**', recursive=True) if f.endswith('test_answer.py'))\n"
        "    return 2 * n if 'assert' in text else n\n"
    ),
}


def test_tests_of_mbpp_have_the_modules_that_the_right_code_imports(tmp_path: Path) -> None:
    code = "import sys\nimport re\n\n\ndef size(x):\n    return sys.getsizeof(x)\n"
    row = {
        "task_id": 7008,
        "text": "Its size.",
        "code": code,
        "test_list": ["assert size('a') == sys.getsizeof('a')"],
    }
    domain = _domain("code", [row], tmp_path)
    (task,) = domain.tasks()
    assert validate(domain, task, choose()).ok
    assert "import re" not in task.facts["answer"]["test_answer.py"]


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_bends_its_own_process_bends_no_test(name: str, tmp_path: Path) -> None:
    domain = _domain("code", [HUMANEVAL], tmp_path)
    grade = _graded(domain, domain.tasks()[0], json.dumps({"solution.py": WRONG[name]}))
    assert not grade.passed, grade.evidence


def test_an_answer_cannot_put_a_file_over_what_lies_beside_it(tmp_path: Path) -> None:
    domain = _domain("code", [QUIXBUGS], tmp_path)
    lies = (
        "class Node:\n    value = 1\n    def __init__(self, *a): pass\n    def __eq__(self, o):"
        " return True\n"
    )
    answer = json.dumps(
        {"node.py": lies, "test_answer.py": "", "solution.py": QUIXBUGS["buggy_code"]}
    )
    assert not _graded(domain, domain.tasks()[0], answer).passed


def _asks(*tests: str, before: str = "") -> dict[str, Any]:
    """A row of MBPP whose tests are these: they ask for the mean of a list."""
    code = "def mean(items):\n    return sum(items) / len(items)\n"
    return {
        "task_id": 7003,
        "text": "Write it.",
        "code": code,
        "test_list": list(tests),
        "test_setup_code": before,
    }


TAKEN_IN: dict[str, dict[str, Any]] = {
    "no distance": _asks("assert abs(mean([1, 2]) - 1.5) < 1e-6"),
    "no distance, by parts": _asks("assert abs(mean([1, 2]) / 1.5 - 1) < 1e-6"),
    "no distance, squared": _asks("assert (mean([1, 2]) - 1.5) ** 2 < 1e-6"),
    "no distance, as a length": _asks("assert len(mean([1, 2]) - 1.5) == 0"),
    "no distance, holds it": _asks("assert 'b' in mean(['b'])"),
    "modules that agree": _asks(
        "assert statistics.fmean([mean([1, 1])]) == 1", before="import statistics"
    ),
    "empties its arguments": MBPPPLUS,
    "ends what goes through it": _asks("assert all(map(lambda n: mean([n]) == n, [1, 2]))"),
    "leaves where it is called": _asks(
        "try:\n    mean(1)\nexcept:\n    pass\nelse:\n    assert False"
    ),
    "names of the tests' own": _asks(
        "assert isinstance(mean([1, 2]), float)", before="from solution import *"
    ),
}
"""A row whose tests were taken in by the exploit of that name."""


@pytest.mark.parametrize("name", TAKEN_IN)
def test_tests_that_ask_over_the_line_are_not_taken_in(name: str, tmp_path: Path) -> None:
    domain = _domain("code", [TAKEN_IN[name]], tmp_path)
    (task,) = domain.tasks()
    grade = _graded(domain, task, domain.exploits(task)[name.partition(",")[0]])
    assert (grade.passed, grade.score) == (False, 0.0), grade.evidence


@pytest.mark.parametrize("number", range(len(CODE)))
def test_exploits_leave_a_row_of_each_set_undone(number: int, tmp_path: Path) -> None:
    domain = _domain("code", [CODE[number]], tmp_path)
    (task,) = domain.tasks()
    found = domain.exploits(task)
    assert found.keys() >= {*KNOWN_TRICKS, *exploits.exploits("a.py")}
    name = list(found)[-1 - number]
    result = audit.audit(domain, task, name, found[name], choose())
    assert result.grader_held, (name, result)


@pytest.mark.audit
@pytest.mark.parametrize("number", range(len(CODE)))
def test_no_exploit_passes_at_a_row_of_any_set(
    number: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Each at two of the rows; with --whole each at all of them."""
    own = tmp_path / "benchmarks" / "code" / "domain.toml"
    own.parent.mkdir(parents=True)
    # some go on to the end
    own.write_text('schema = 1\nscore = "tests"\n[scorer]\nseconds = 5\n')
    domain = _domain("code", [CODE[number]], tmp_path)
    (task,) = domain.tasks()
    tries = domain.exploits(task)
    names = list(tries)
    random.Random(38).shuffle(names)  # those of a family go to several rows
    each = 0 if pytestconfig.getoption("--whole") else 2 * -(-len(names) // len(CODE))
    for name in audit.dealt(names, number, each):
        result = audit.audit(domain, task, name, tries[name], choose())
        assert result.grader_held, (name, result)


EVALPLUS = """import numpy as np

def assertion(out, exp, atol):
    assert np.allclose(out, exp, rtol=1e-07, atol=1e-6)


assertion(mean([1, 2]), EXPECTED, 0)
"""


@pytest.mark.parametrize(
    ("expected", "given", "right"),
    [
        ("1.5", "[]", False),
        ("[1.5, 1.5]", "1.5", False),
        ("[]", "3", False),
        ("1.5", "[1.5]", False),
        ("1.5", "1.5000001", True),
        ("[1.5, 2.0]", "(1.5, 2)", True),
        ("[]", "()", True),
    ],
)
def test_numbers_that_evalplus_finds_close_are_as_many_as_the_right_ones(
    expected: str, given: str, right: bool
) -> None:
    pytest.importorskip("numpy")
    row = {
        "task_id": 7006,
        "prompt": "x",
        "code": _asks()["code"],
        "test": EVALPLUS.replace("EXPECTED", expected),
    }
    test = recipes.read(recipes.RECIPES[3], row)["answer"]["test_answer.py"].replace(
        "from solution import mean", ""
    )
    space = {"mean": lambda items: literal_eval(given)}
    if right:
        exec(test, space)
    else:
        with pytest.raises(AssertionError):
            exec(test, space)


def test_a_test_of_mbpp_plus_that_compares_and_asserts_nothing_asserts_it(tmp_path: Path) -> None:
    test = (
        "def assertion(out, exp, atol):\n    if isinstance(out, bool):\n        exact_match = out"
        " == exp\n    else:\n        exact_match = exp == (out is not None)\n\n\nassertion(mean([1,"
        " 2]), True, 0)\n"
    )
    row = {"task_id": 7007, "prompt": "Write it.", "code": _asks()["code"], "test": test}
    domain = _domain("code", [row], tmp_path)
    (task,) = domain.tasks()
    assert validate(domain, task, choose()).ok
    assert not _graded(domain, task, domain.exploits(task)["no value"]).passed


SUBTESTS = """import unittest
import account


class T(unittest.TestCase):
    def test_all(self):
        for n in range(9):
            with self.subTest(n=n):
                self.assertEqual(account.Account(n).take(n).amount, 0)

    @unittest.skipUnless(hasattr(account, "each"), "later")
    def test_each(self):
        pass
"""


def test_a_test_of_many_parts_that_fail_counts_as_one(tmp_path: Path) -> None:
    domain = _domain("code", [{**EXERCISM, "test_files": {"account_test.py": SUBTESTS}}], tmp_path)
    (task,) = domain.tasks()
    assert validate(domain, task, choose()).ok
    wrong = (
        "class Account:\n    def __init__(self, n): self.amount = n\n    def take(self, n): return"
        " self\n"
    )
    assert _graded(domain, task, json.dumps({"account.py": wrong})).score == 0.0
    assert _graded(domain, task, json.dumps({"account.py": wrong + "each = 1\n"})).score == 0.5


def test_tests_that_are_all_skipped_are_none(tmp_path: Path) -> None:
    test = SUBTESTS.replace("    def test_all(self)", "    def all(self)")
    domain = _domain("code", [{**EXERCISM, "test_files": {"account_test.py": test}}], tmp_path)
    (task,) = domain.tasks()
    assert _graded(domain, task, domain.gold(task)).passed
    assert not _graded(domain, task, json.dumps({"account.py": "class Account: pass\n"})).passed


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so \\boxed{1} or rather \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("I think\nThe answer is $7$.", "7"),
        ("18", "18"),
        ("\\boxed{never closed", "\\boxed{never closed"),
        ("", ""),
    ],
)
def test_the_answer_of_a_text_is_what_its_last_box_or_line_says(text: str, answer: str) -> None:
    assert read_math(text) == answer


@pytest.mark.parametrize("text", ["$" * 1_000_000, "$ " * 500_000 + "$"])
def test_a_line_of_dollars_is_read_at_once(text: str) -> None:
    assert read_math(text) == text


def test_published_rows_without_an_id_are_known_by_their_text(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": f"{n} + 1\n#### {n + 1}"} for n in range(3)]
    tasks = {task.prompt: task.id for task in _domain("math", rows, tmp_path).tasks()}
    assert len(set(tasks.values())) == 3
    (tmp_path / "again").mkdir()
    again = {
        task.prompt: task.id for task in _domain("math", rows[::-1], tmp_path / "again").tasks()
    }
    assert again == tasks


def test_of_mathematics_the_text_itself_is_right_and_a_long_one_is_none(tmp_path: Path) -> None:
    row = {"question": "How many?", "answer": "3 * 6 = 18\n#### 18", "id": "q1"}
    domain = _domain("math", [row], tmp_path)
    (task,) = domain.tasks()
    assert domain.gold(task) == "18"
    assert _graded(domain, task, "18").passed
    assert not _graded(domain, task, " ".join(map(str, range(1000)))).passed


@pytest.mark.live
@pytest.mark.parametrize(
    ("right", "given", "passes"),
    [
        ("\\frac{1}{2}", "0.5", True),
        ("ab+ac", "a(b+c)", True),
        ("\\sqrt2", "1.4", False),
        ("7", "9^{9^{9^{9}}}", False),  # ends by its CPU time, and is graded
    ],
)
def test_equal_formulas_are_right_and_one_without_end_is_wrong(
    right: str, given: str, passes: bool, tmp_path: Path
) -> None:
    domain = _domain(
        "math", [{"problem": "What?", "answer": right, "unique_id": "1", "subject": "x"}], tmp_path
    )
    (task,) = domain.tasks()
    assert _graded(domain, task, given).passed == passes


def test_of_several_right_queries_each_is_right(tmp_path: Path) -> None:
    import sqlite3

    (tmp_path / "db").mkdir()
    with sqlite3.connect(tmp_path / "db" / "shop.sqlite") as base:
        base.execute("CREATE TABLE sales (price REAL, town TEXT)")
        base.execute("INSERT INTO sales VALUES (1, 'Ulm'), (2, 'Bern')")
    base.close()
    query = "SELECT town FROM sales ORDER BY price; SELECT town, price FROM sales ORDER BY price"
    row = {
        "task_id": "s1",
        "question": "Which towns, the cheapest first?",
        "query": query,
        "db_name": "shop",
    }
    domain = _domain("sql", [row], tmp_path)
    (task,) = domain.tasks()
    assert validate(domain, task, choose()).ok
    assert _graded(domain, task, "SELECT town, price FROM sales ORDER BY price").passed
    assert not _graded(domain, task, "SELECT town FROM sales ORDER BY price DESC").passed


def test_a_line_of_a_published_file_that_cannot_be_read_is_told_and_not_left_out(
    tmp_path: Path,
) -> None:
    file = tmp_path / "given.jsonl"
    file.write_text(json.dumps(HUMANEVAL) + "\n" + json.dumps(MBPP)[:-5] + "\n")
    with pytest.raises(BadInput, match=r"1 of 2 rows of .*line 2: it is not JSON"):
        registry.open_domain("code", tmp_path, data=str(file)).tasks()


@pytest.mark.parametrize("named", ["rows.jsonl", "."])
def test_data_that_domain_toml_names_has_its_files_beside_it_as_with_data(
    named: str, tmp_path: Path
) -> None:
    place, where = tmp_path / "sets", tmp_path / "workspace"
    (place / "db").mkdir(parents=True)
    (place / "db" / "shop.sqlite").touch()
    row = {
        "task_id": "s1",
        "question": "How many?",
        "query": "SELECT count(*) FROM sales",
        "db_name": "shop",
    }
    (place / "rows.jsonl").write_text(json.dumps(row) + "\n")
    own = where / "benchmarks" / "sql" / "domain.toml"
    own.parent.mkdir(parents=True)
    given = (
        f"schema = 1\nscore = 'sql'\nanswer_file = 'answer.sql'\ndata = ['../../../sets/{named}']\n"
    )
    own.write_text(given)
    (task,) = registry.open_domain("sql", where).tasks()
    (same,) = registry.open_domain("sql", where, data=str(place / "rows.jsonl")).tasks()
    assert task == same


def test_a_hub_that_cannot_be_reached_is_told_apart_from_one_whose_package_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_player(kind: type[BadInput]) -> str:
        def read(place: str) -> None:
            raise kind(f"{place} cannot be had", fix="pip install it", code="x")

        monkeypatch.setattr(table, "read", read)
        with pytest.raises(kind, match=r"^hf:.* cannot be had") as e:
            registry.open_domain("ds1000", tmp_path).tasks()
        return e.value.fix

    said = "--data FILE: benchmarks/ds1000/README.md says where its rows are and their columns"
    assert ask_player(BadInput) == said
    assert ask_player(Missing) == f"{said}; where the hub can be reached: pip install it"


def test_rows_of_no_known_set_and_no_rows_at_all_say_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="its columns are colour") as e:
        _domain("code", [{"colour": "red"}], tmp_path).tasks()
    assert "--domain NAME" in e.value.fix
    with pytest.raises(BadInput, match="has no rows") as e:
        registry.open_domain("sql", tmp_path).tasks()
    assert "--data FILE" in e.value.fix
    lacking = {
        "task_id": "humaneval_1",
        "dataset": "humaneval",
        "instruction": "x",
        "input": {},
        "gold": {},
        "eval": {},
    }
    with pytest.raises(BadInput, match="line 1: it has no entry_point"):
        _domain("code", [lacking], tmp_path).tasks()
