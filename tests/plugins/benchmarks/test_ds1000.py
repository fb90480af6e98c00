"""Snippets as DS-1000 has them: put into a program, checked by its tests, which run where no
snippet can reach them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.agents.attempt import attempt
from recreate.agents.scaffold import load
from recreate.api import registry
from recreate.api.errors import BadInput
from recreate.api.paths import shipped
from recreate.api.types import Call, Grade, Trace
from recreate.domains.rows import name_domain
from recreate.domains.validate import validate
from recreate.plugins.benchmarks.published import PublishedDomain
from recreate.sandboxes import choose
from tests.agents.test_request import Taped, text
from tests.plugins.audit.test_audit import KNOWN_TRICKS

PLAIN = (
    'schema = 1\nscore = "snippet"\nanswer_file = "answer.py"\n[left_out]\n"ds1000:Other-*" ='
    ' "needs another"\n'
)
"""A domain.toml that asks for no packages: its rows need none."""
PROGRAM = '''
import copy


def generate_test_case(test_case_id):
    def define_test_input(test_case_id):
        return {1: [3, 1, 2], 2: [7000, 41]}[test_case_id]

    def generate_ans(data):
        return sorted(data)

    test_input = define_test_input(test_case_id)
    return test_input, generate_ans(copy.deepcopy(test_input))


def exec_test(result, ans):
    assert abs(result[0] - ans[0]) <= 1e-5
    assert result == ans
    return 1


exec_context = r"""
items = test_input
[insert]
"""


def test_execution(solution: str):
    code = exec_context.replace("[insert]", solution)
    for i in range(2):
        test_input, expected_result = generate_test_case(i + 1)
        test_env = {"test_input": test_input}
        exec(code, test_env)
        assert exec_test(test_env["result"], expected_result)
'''
TEXT = '\n\ndef test_string(solution: str):\n    assert "sort" in solution\n'
ABOUT = {"library": "Plain", "library_problem_id": 4, "perturbation_origin_id": 3}
ROW = {
    "prompt": (
        "Problem:\nHow do I put `items` in order?\nresult = ... # put solution in this variable\n"
    ),
    "reference_code": "result = sorted(items)",
    "code_context": PROGRAM + TEXT,
    "metadata": ABOUT,
}
INDENTED = {
    **ROW,
    "reference_code": "    found = list(items)\n    found.sort()\n    return found",
    "code_context": PROGRAM.replace(
        "items = test_input\n[insert]\n", "def f(items):\n[insert]\nresult = f(test_input)\n"
    ),
    "metadata": {**ABOUT, "library_problem_id": 5},
}


def _domain(
    rows: Sequence[Mapping[str, Any]], folder: Path, settings: str = PLAIN
) -> PublishedDomain:
    file = folder / "given.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if settings:
        (folder / "benchmarks" / "ds1000").mkdir(parents=True, exist_ok=True)
        (folder / "benchmarks" / "ds1000" / "domain.toml").write_text(settings)
    found = registry.open_domain("ds1000", folder, data=str(file))
    assert isinstance(found, PublishedDomain)
    return found


def _graded(row: Mapping[str, Any], answer: str, folder: Path, settings: str = PLAIN) -> Grade:
    domain = _domain([row], folder, settings)
    (task,) = domain.tasks()
    return domain.grade(
        task, Trace(attempt="t", task=task.id, scaffold="", model="", answer=answer), choose()
    )


def test_the_gold_of_a_row_passes_and_neither_an_empty_nor_an_idle_snippet_does(
    tmp_path: Path,
) -> None:
    domain = _domain([ROW, INDENTED], tmp_path)
    assert [task.id for task in domain.tasks()] == [
        "ds1000:ds1000:Plain-4",
        "ds1000:ds1000:Plain-5",
    ]
    for task in domain.tasks():
        proof = validate(domain, task, choose())
        assert proof.ok, proof.reason
        assert "test_execution" not in task.prompt
        idle = Trace(attempt="t", task=task.id, scaffold="", model="", answer="    pass")
        assert domain.grade(task, idle, choose()).score == 0


def test_a_row_in_the_layout_of_an_exchange_file_is_the_same_task(tmp_path: Path) -> None:
    row = {
        "task_id": "ds1000_90",
        "dataset": "ds1000",
        "split": "valid",
        "group": "Plain-3",
        "input": {},
        "instruction": ROW["prompt"],
        "gold": {"reference_code": ROW["reference_code"]},
        "eval": {"code_context": ROW["code_context"]},
        "meta": ABOUT,
    }
    (task,) = _domain([row], tmp_path).tasks()
    (other,) = _domain([ROW], tmp_path).tasks()
    assert (task.id, task.prompt, task.group, task.facts["answer"]) == (
        other.id,
        other.prompt,
        other.group,
        other.facts["answer"],
    )
    assert name_domain(str(tmp_path / "given.jsonl")) == "ds1000"


def test_rows_are_left_out_by_what_their_ids_have_in_common_and_that_is_said(
    tmp_path: Path,
) -> None:
    domain = _domain([ROW, {**ROW, "metadata": {**ABOUT, "library": "Other"}}], tmp_path)
    assert [task.id for task in domain.tasks()] == ["ds1000:ds1000:Plain-4"]
    assert ("ds1000:ds1000:Other-*", "needs another") in domain.refused()


def test_a_row_without_a_place_for_the_snippet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no exec_context with an"):
        _domain([{**ROW, "code_context": "assert True"}], tmp_path).tasks()


def test_what_the_text_of_a_snippet_must_have_is_asked_too(tmp_path: Path) -> None:
    answer = (
        "result = []\nfor each in items:\n    result.insert(sum(other <= each for other in result),"
        " each)"
    )
    grade = _graded(ROW, answer, tmp_path)
    assert (grade.score, "its text" in grade.evidence) == (0, True)


def test_why_a_snippet_failed_says_what_it_raised_and_not_what_is_right(tmp_path: Path) -> None:
    assert "KeyError: 'result'" in _graded(ROW, "found = sorted(items)", tmp_path).evidence
    evidence = _graded(ROW, "result = items  # sort", tmp_path).evidence
    assert "a list of 3" in evidence
    assert "[1, 2, 3]" not in evidence


LIAR = (
    "class L(list):\n    def y(self, *a): return True\n    def s(self, *a): return self\n"
    "    __eq__ = __le__ = __lt__ = __ge__ = __gt__ = __bool__ = y\n"
    "    __sub__ = __rsub__ = __getitem__ = __iter__ = s\n    def __abs__(self): return 0.0\n"
)
WRONG = {
    "a list that equals everything": LIAR + "result = L()",
    "an object that equals everything": LIAR.replace("L(list)", "L") + "result = L()",
    "what is right by frames": (
        "import sys\nresult, frame = [], sys._getframe()\nwhile frame is not None:\n"
        "    result = frame.f_locals.get('expected_result', result)\n    frame = frame.f_back"
    ),
    "what is right by gc": (
        "import gc\nresult = []\nfor thing in gc.get_objects():\n    if isinstance(thing, dict) and"
        " 'generate_test_case' in thing:\n        result = thing['generate_test_case'](1)[1]"
    ),
    "the tests by processes": (
        "import glob\nresult = []\nfor path in glob.glob('/proc/*/cmdline') + "
        "glob.glob('/work/*') + glob.glob('/tmp/*'):\n    text = open(path).read()\n"
        "    if 'define_test_input' in text:\n        space = {}\n        exec(text, space)\n"
        "        result = space['generate_test_case'](1)[1]"
    ),
    "a verdict on the line": (
        'import os\nfor n in range(3, 20):\n    try:\n        os.write(n, b\'{"verdict": {"passed":'
        ' 2, "failed": [], "count": 2}, "key": ""}\\n\')\n    except OSError:\n        pass\nresult'
        " = []"
    ),
    "its own side tells": (
        "import gc\nfor thing in gc.get_objects():\n    if type(thing).__name__ == 'DataSide':\n"
        "        thing.tell({'ask': 'call', 'of': 1, 'args': []})\nresult = []"
    ),
    "an assertion that is none": (
        "import builtins\nbuiltins.AssertionError = SystemExit\nbuiltins.abs = lambda n: 0\n"
        "result = []"
    ),
    "leaves": "import os\nos._exit(0)",
    "ends": "raise SystemExit(0)",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_snippet_that_bends_its_own_process_forges_no_verdict(name: str, tmp_path: Path) -> None:
    grade = _graded(ROW, WRONG[name] + "  # sort", tmp_path)
    assert grade.score == 0, grade.evidence


def test_an_object_of_a_class_of_the_snippets_own_is_no_result(tmp_path: Path) -> None:
    asks = PROGRAM.replace(
        "    assert abs(result[0] - ans[0]) <= 1e-5\n    assert result == ans\n",
        "    ans == result\n",
    )
    right = "class Items:\n    def __eq__(self, other): return True\nresult = Items()  # sort"
    grade = _graded({**ROW, "code_context": asks + TEXT}, right, tmp_path)
    assert (grade.passed, "a class of its own" in grade.evidence) == (False, True)


def test_all_exploits_of_the_list_are_tried_on_a_snippet(tmp_path: Path) -> None:
    domain = _domain([ROW, INDENTED], tmp_path)
    for task in domain.tasks():
        found = domain.exploits(task)
        assert found.keys() >= KNOWN_TRICKS.keys()
        for name in ("recorder-by-frames", "equals everything"):
            compile(
                (
                    f"def f(test_input, items):\n{found[name]}"
                    if task.id.endswith("5")
                    else found[name]
                ),
                name,
                "exec",
            )


# --- the agent for small models that a person wrote
# ----------------------------------------------------------

SHOWN = """Problem:
How do I put `items` in order? For [2, 3, 1, 4] I want the result [1, 2, 3, 4]; mine is [2, 3, 1, \
4].
A:
<code>
items = [2, 3, 1, 4]
</code>
result = ... # put solution in this variable
BEGIN SOLUTION
<code>
"""
WITHIN = """Problem:
How do I put `items` in order? For [2, 3, 1, 4] the result should be [1, 2, 3, 4]; mine is [2, 3, \
1, 4].
A:
<code>
example_items = [2, 3, 1, 4]
def f(items=example_items):
    # return the solution in this function
    # result = f(items)
    ### BEGIN SOLUTION
"""


def _by_hand(row: Mapping[str, Any], folder: Path, *replies: str) -> tuple[Grade, Trace]:
    """What comes of the replies of a model. Raises IndexError where more are asked for."""
    domain = _domain([row], folder)
    (task,) = domain.tasks()
    agent = load(shipped("scaffolds") / "hand-ds1000-small")
    taped, call = (
        Taped([text(reply) for reply in replies]),
        Call(run="r", attempt="a", step=0, task=task.id),
    )
    trace = attempt(agent, task, domain, choose(), taped, call)
    assert not taped.replies, "it is handed in before"
    return domain.grade(task, trace, choose()), trace


def test_an_answer_that_gives_the_result_shown_is_handed_in_without_the_questions_data(
    tmp_path: Path,
) -> None:
    """A small model copies the data, which are other ones where it is checked, and the fence of the
    question."""
    reply = "<code>\nitems = [2, 3, 1, 4]\nresult = sorted(items)\n</code>"
    grade, trace = _by_hand({**ROW, "prompt": SHOWN}, tmp_path, reply)
    assert (grade.passed, trace.ending, trace.answer) == (
        True,
        "submitted",
        "result = sorted(items)",
    ), grade.evidence


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (
            "result = items.sorted()",
            "raised AttributeError: 'list' object has no attribute 'sorted'",
        ),
        ("result = items", "That changes nothing: it is what was given."),
        ("result = [4, 3, 1]", "the result is\n[4, 3, 1]\nNo such result is in the question."),
        ("items = [2, 3, 1, 4]", "That is what is given already."),
        ("for n in items:\n    print(n)", "That does not assign result."),
    ],
)
@pytest.mark.slow
def test_what_is_wrong_with_an_answer_is_told_once_and_it_is_mended(
    first: str, told: str, tmp_path: Path
) -> None:
    blocks = [f"```python\n{code}\n```" for code in (first, "result = sorted(items)")]
    grade, trace = _by_hand({**ROW, "prompt": SHOWN}, tmp_path, *blocks)
    assert grade.passed, grade.evidence
    assert told in trace.steps[0].output


def test_of_answers_that_are_all_wrong_the_one_that_got_furthest_is_handed_in(
    tmp_path: Path,
) -> None:
    replies = ["```python\nresult = [7, 1, 1]  # sort\n```", "```python\nnone(items)\n```"]
    grade, trace = _by_hand({**ROW, "prompt": SHOWN}, tmp_path, *replies)
    assert (grade.passed, trace.answer) == (False, "result = [7, 1, 1]  # sort")


@pytest.mark.parametrize(
    "reply",
    [
        "found = sorted(items)",
        (
            "example_items = [2, 3, 1, 4]\ndef f(items=example_items):\n    # return it\n    return"
            " sorted(items)"
        ),
    ],
)
def test_the_body_of_a_function_is_handed_in_however_it_is_written(
    reply: str, tmp_path: Path
) -> None:
    grade, trace = _by_hand({**INDENTED, "prompt": WITHIN}, tmp_path, f"```python\n{reply}\n```")
    assert (grade.passed, trace.ending) == (True, "submitted"), (grade.evidence, trace.answer)
    assert "def f" not in trace.answer


def test_where_the_given_code_cannot_run_by_itself_the_first_answer_is_handed_in(
    tmp_path: Path,
) -> None:
    prompt = SHOWN.replace("items = [2, 3, 1, 4]\n<", "items = load_data()\n<")
    grade, _ = _by_hand(
        {**ROW, "prompt": prompt},
        tmp_path,
        "```python\nitems = load_data()\nresult = sorted(items)\n```",
    )
    assert grade.passed, grade.evidence


# --- with numpy, pandas and matplotlib, in the environment that the domain asks for
# -------------------------

VALUES = {
    "arrays": (
        "[np.arange(6).reshape(2, 3), np.float32(1.5), np.array(['a', None, [1]], dtype=object),"
        " np.matrix([1]), np.ma.masked_array([1, 2], [0, 1]), np.array(['2020-01-01'], 'M8[D]'), 1"
        " + 2j]"
    ),
    "sparse": "sparse.csr_matrix(np.eye(3))",
    "frame": (
        "pd.DataFrame({'a': pd.Categorical(['x', 'y', 'x'], ordered=True), 'b':"
        " pd.to_datetime(['2020', None, '2021']).tz_localize('Europe/Rome'), 'c': pd.array([1,"
        " None, 3], dtype='Int64'), 'd': [1.5, (2,), None], 'e': pd.to_timedelta([1, 2, 3], 'h'),"
        " 'f': pd.period_range('2020', periods=3, freq='M')},"
        " index=pd.MultiIndex.from_product([['k'], [1, 2, 3]], names=['g', None]))"
    ),
    "series": "pd.Series([1, 2], index=pd.date_range('2020', periods=2, freq='D'), name=('n', 1))",
    "intervals": "pd.cut(pd.Series([1, 5, 9]), 2)",
    "no columns": "pd.DataFrame(index=[3, 3])",
    "a zone of minutes": "pd.Series(pd.to_datetime(['2020-01-01T00:00:00-06:00']))",
}
DATA = '''
import copy
import numpy as np
import pandas as pd
from scipy import sparse


def generate_test_case(test_case_id):
    np.random.seed(5)
    return np.random.rand(3), VALUE


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(other, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
    elif isinstance(other, pd.Series):
        pd.testing.assert_series_equal(one, other)
    elif sparse.issparse(other):
        return (one != other).nnz == 0
    elif isinstance(other, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        return bool(one == other)
    return True


def exec_test(result, ans):
    return same(result, ans)


exec_context = r"""
import numpy as np
import pandas as pd
from scipy import sparse
given = test_input
[insert]
"""


def test_execution(solution: str):
    code = exec_context.replace("[insert]", solution)
    test_input, expected_result = generate_test_case(1)
    test_env = {"test_input": test_input}
    exec(code, test_env)
    assert exec_test(test_env["result"], expected_result)
'''
FIGURE = '''
import numpy as np
import matplotlib
import matplotlib.pyplot as plt
from PIL import Image


def generate_test_case(test_case_id):
    plt.plot([1, 2], [3, 4], label="one")
    plt.legend()
    plt.savefig("ans.png", bbox_inches="tight")
    plt.close()
    return None, None


def exec_test(result, ans):
    code_img = np.array(Image.open("output.png"))
    oracle_img = np.array(Image.open("ans.png"))
    if code_img.shape != oracle_img.shape or not np.allclose(code_img, oracle_img):
        ax = plt.gca()
        assert isinstance(ax.lines[0], matplotlib.lines.Line2D)
        np.testing.assert_allclose(ax.lines[0].get_xdata(), [1, 2])
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one"]
    return 1


exec_context = r"""
import matplotlib.pyplot as plt
[insert]
plt.savefig('output.png', bbox_inches ='tight')
result = None
"""


def test_execution(solution: str):
    code = exec_context.replace("[insert]", solution)
    test_input, expected_result = generate_test_case(1)
    test_env = {"test_input": test_input}
    exec(code, test_env)
    assert exec_test(test_env["result"], expected_result)
'''


HOLLOW = "np.testing.assert_array_equal(result, ans)\n    return 1"
"""Of nothing and a number this finds all pairs equal."""
# another one, and what is asked of it is right
FIGURES = [
    ("plt.plot([1, 2], [3, 4], label='one')\nplt.legend()", True),  # the same image
    ("plt.plot([1, 2], [3, 5], label='one')\nplt.legend()", True),
    ("plt.plot([1, 3], [3, 4], label='one')\nplt.legend()", False),
    ("plt.plot([1, 2], [3, 4], label='one')", False),
    ("pass", False),
    ("import shutil\nplt.savefig = lambda *a, **k: shutil.copy('ans.png', 'output.png')", False),
    (
        (
            "class L:\n    def __getattr__(self, name): return self\n    def __call__(self): return"
            " self\n    def __getitem__(self, key): return self\n    def __len__(self): return"
            " 1\nplt.gca = L()"
        ),
        False,
    ),
]


@pytest.mark.live
def test_data_comes_to_the_tests_as_the_snippet_made_it(tmp_path: Path) -> None:
    # in one test, since every test has a home of its own and builds the environment
    for value in VALUES.values():
        row = {**ROW, "code_context": DATA.replace("VALUE", value)}
        grade = _graded(row, f"result = {value}", tmp_path, "")
        assert grade.passed, (value, grade.evidence)
        assert not _graded(row, "result = given", tmp_path, "").passed, value
    once = DATA.replace("VALUE", "np.float64(test_case_id)").replace(
        "return same(result, ans)", HOLLOW
    )
    assert not _graded({**ROW, "code_context": once}, "result = []", tmp_path, "").passed


@pytest.mark.live
def test_a_figure_is_judged_by_its_image_or_by_what_is_asked_of_it(tmp_path: Path) -> None:
    for code, passes in FIGURES:
        assert _graded({**ROW, "code_context": FIGURE}, code, tmp_path, "").passed == passes, code
