"""What rows of one's own, scored by `tests` with nothing else said, are not bent by; and that what
tests ask of a right answer they still get."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from recreate.api.ports import SandboxBackend
from recreate.sandboxes import choose
from tests.plugins.withheld.test_row_tests import ADD, graded, opened

SAME = """
class Same:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return lambda *a, **k: True
"""
HELPED = {
    "test_add.py": (
        "import json\nfrom helper import same\nfrom solution import add\n\n\ndef test_it():\n"
        "    for a, b, right in json.load(open('table.json')):\n"
        "        assert same(add(a, b), right)\n"
    ),
    "helper.py": "def same(one, other):\n    return one == other\n",
    "table.json": "[[1, 2, 3], [5, 6, 11]]",
}
STARRED = """import math
from helper import same
def near(a, b):
    return abs(a - b) < 1e-9
from solution import *

def test_it():
    assert near(add(1, 2), 3)
    assert same(add(2, 2), 4)
    assert math.isclose(add(1, 1), 2)
"""
SORTED = "def turned(items):\n    return sorted(items)\n"
EMPTIED = "def turned(items):\n    items.clear()\n    return []\n"


LINE = "test $(python3 -c 'from solution import add; print(add(128, 511))') = 639"
CHECK = f"python3 -c 'import solution' || exit 1\n{LINE}\n"
REWRITES = """import os
for change in (
    lambda: open('{0}', 'w').write('exit 0\\n' * 99),
    lambda: os.chmod('{0}', 0o777),
    lambda: os.replace('{0}', 'gone'),
    lambda: os.remove('{0}'),
    lambda: open('{0}', 'w').write('exit 0\\n' * 99),
):
    try: change()
    except OSError: pass
"""


class Bent(NamedTuple):
    """A row's tests, its right answer, and what passed them undone."""

    tests: str | Mapping[str, str]
    right: str | Mapping[str, str]
    forged: str | Mapping[str, str]
    files: Mapping[str, str] = {}


BENT = {
    "an object that equals everything": Bent(
        "from solution import add\n\ndef test_it():\n    assert add(1, 2) == 3\n",
        ADD,
        f"{SAME}\ndef add(a, b):\n    return Same()\n",
    ),
    "an object that says yes to every question of a text": Bent(
        "from solution import shout\n\ndef test_it():\n    assert shout('a').startswith('A')\n"
        "    assert shout('a').isupper()\n",
        "def shout(text):\n    return text.upper() + '!'\n",
        f"{SAME}\ndef shout(text):\n    return Same()\n",
    ),
    "a helper of the tests is rewritten": Bent(
        HELPED,
        ADD,
        "import helper\nhelper.same.__code__ = (lambda one, other: True).__code__\n"
        "def add(a, b):\n    return None\n",
    ),
    "a helper of the tests is handed in": Bent(
        HELPED,
        {"solution.py": ADD},
        {
            "solution.py": "def add(a, b):\n    return None\n",
            "helper.py": "def same(one, other):\n    return True\n",
        },
    ),
    "a helper of the tests is among the row's files, and rewritten": Bent(
        HELPED,
        ADD,
        "import helper\nhelper.same.__code__ = (lambda one, other: True).__code__\n"
        "def add(a, b):\n    return None\n",
        {"helper.py": HELPED["helper.py"]},
    ),
    "a table of the tests is read": Bent(
        HELPED,
        ADD,
        "import json\n\ndef add(a, b):\n"
        "    for one, other, right in json.load(open('table.json')):\n"
        "        if (one, other) == (a, b):\n            return right\n",
    ),
    "a helper in a folder of the tests is rewritten": Bent(
        {
            "checks/test_add.py": (
                "from checks.helper import same\nfrom app.sums import add\n\n\ndef test_it():\n"
                "    assert same(add(1, 2), 3)\n"
            ),
            "checks/helper.py": HELPED["helper.py"],
        },
        {"app/sums.py": ADD},
        {
            "app/sums.py": "def add(a, b):\n    return None\n",
            "checks/helper.py": "def same(one, other):\n    return True\n",
            "checks/__init__.py": "",
        },
        {"app/sums.py": "def add(a, b):\n    return None\n", "app/__init__.py": ""},
    ),
    "names that the tests have bound are bound anew": Bent(
        {"test_it.py": STARRED, "helper.py": HELPED["helper.py"]},
        ADD,
        f"{SAME}\nclass math:\n    isclose = staticmethod(lambda *a: True)\n\ndef near(a, b):\n"
        "    return True\n\ndef same(a, b):\n    return True\n\ndef add(a, b):\n    return None\n",
    ),
    "names that the tests have of a helper are bound anew": Bent(
        {
            "test_it.py": "from helper import *\nfrom solution import *\n\n\ndef test_it():\n"
            "    assert same(add(1, 2), 3)\n",
            "helper.py": HELPED["helper.py"],
        },
        ADD,
        "def same(a, b):\n    return True\n\ndef add(a, b):\n    return None\n",
    ),
    "names of Python's own are bound anew": Bent(
        "from solution import *\n\n\ndef test_it():\n    assert len(twice([1])) == 2\n",
        "def twice(items):\n    return items * 2\n",
        "def len(items):\n    return 2\n\ndef twice(items):\n    return items\n",
    ),
    "names that the tests bind later are bound anew": Bent(
        "from solution import *\n\ndef test_it():\n    assert near(add(1, 2), 3)\n\n"
        "try:\n    import no_such_module as near\nexcept ImportError:\n    pass\n"
        "if 'near' not in dir():\n    near = lambda a, b: a == b\n",
        ADD,
        "def near(a, b):\n    return True\n\ndef add(a, b):\n    return None\n",
    ),
    "an argument is emptied before what is right is worked out": Bent(
        "from solution import turned\n\ndef test_it():\n"
        "    for items in ([3, 1], [2], [5, 4, 6]):\n"
        "        assert turned(items) == sorted(items)\n",
        SORTED,
        EMPTIED,
    ),
    "an argument is emptied and then copied as what is right": Bent(
        "from solution import turned\n\ndef test_it():\n    items = [3, 1]\n"
        "    found = turned(items)\n    right = sorted(items)\n    assert found == right\n",
        SORTED,
        EMPTIED,
    ),
    "a dict is emptied by name": Bent(
        "import unittest\nfrom solution import turned\n\nclass It(unittest.TestCase):\n"
        "    def test_it(self):\n        given = {'b': 1, 'a': 2}\n"
        "        self.assertEqual(turned(items=given), sorted(given))\n",
        SORTED,
        EMPTIED,
    ),
    "a module of Python's own is handed in": Bent(
        "import random\nimport statistics\nfrom solution import add\n\ndef test_it():\n"
        "    assert statistics.mean([add(1, 2)]) == 3\n",
        {"solution.py": ADD},
        {
            "solution.py": "def add(a, b):\n    return None\n",
            "statistics.py": "def mean(items):\n    return 3\n",
            "sitecustomize.py": "import os\nos._exit(0)\n",
            "json.py": "def loads(text):\n    return {'verdict': 1}\n",
        },
    ),
    "a script that the line names is handed in": Bent(
        "bash check.sh",
        ADD,
        {"solution.py": "", "check.sh": "exit 0\n"},
        {"check.sh": CHECK},
    ),
    "a script that the line names is rewritten while it runs": Bent(
        "bash ./check.sh",
        ADD,
        REWRITES.format("check.sh"),
        {"check.sh": CHECK},
    ),
    "a script that the script names is moved away": Bent(
        "sh check.sh",
        ADD,
        "import os\nos.rename('inner/verify.py', 'gone')\n"
        "open('inner/verify.py', 'w').write('pass')\n",
        {
            "check.sh": "python3 -c 'import solution'\npython3 inner/verify.py\n",
            "inner/verify.py": "import subprocess\nfound = subprocess.run(['python3', '-c', '"
            "from solution import add; print(add(128, 511))'], capture_output=True)\n"
            "assert found.stdout == b'639\\n'\n",
        },
    ),
    "what make reads is handed in": Bent(
        "make test",
        ADD,
        {"solution.py": "", "GNUmakefile": "test:\n\ttrue\n"},
        {"Makefile": f"test:\n\t{LINE.replace('$', '$$')}\n"},
    ),
    "a module of Python's own stands in for what a check uses": Bent(
        "python3 check.py",
        ADD,
        {"solution.py": "", "subprocess.py": "import os\nos._exit(0)\n"},
        {
            "check.py": "import subprocess\nfound = subprocess.run(['python3', '-c', '"
            "from solution import add; print(add(128, 511))'], capture_output=True)\n"
            "assert found.stdout == b'639\\n'\n"
        },
    ),
    "tests in a folder that the line names are handed in": Bent(
        "for each in tests/*; do bash $each || exit 1; done; test -d tests/",
        ADD,
        {"solution.py": "", "tests/one.sh": "exit 0\n"},
        {"tests/one.sh": CHECK},
    ),
}


def row_of(bent: Bent) -> dict[str, Any]:
    row = {"prompt": "Do it.", "tests": bent.tests, "solution": bent.right, "files": bent.files}
    return {name: value for name, value in row.items() if value}


def answer_of(files: str | Mapping[str, str]) -> str:
    return files if isinstance(files, str) else json.dumps(files)


@pytest.fixture(scope="module")
def backend() -> SandboxBackend:
    return choose()


@pytest.mark.parametrize("name", BENT)
def test_what_leaves_a_task_undone_does_not_pass(
    workspace: Path, backend: SandboxBackend, name: str
) -> None:
    bent = BENT[name]
    part = opened(workspace, [row_of(bent)], "tests")
    right = graded(part, 0, part.gold(part.tasks()[0]), backend)
    assert right.passed, right.evidence
    forged = graded(part, 0, answer_of(bent.forged), backend)
    assert forged.score == 0.0, forged.evidence


KEPT = {
    "what a call is made for": (
        "from solution import f\n\ndef test_it():\n    items = [3, 1]\n    f(items)\n"
        "    assert items == [1, 3]\n",
        "def f(items):\n    items.sort()\n",
    ),
    "what a call changes besides the value that it gives": (
        "from solution import f\n\ndef test_it():\n    items = [3, 3, 1]\n    kept = f(items)\n"
        "    assert kept == 2\n    assert items[:kept] == [1, 3]\n",
        "def f(items):\n    items[:] = sorted(set(items))\n    return len(items)\n",
    ),
    "what a call changes and gives nothing for": (
        "from solution import f\n\ndef test_it():\n    seen = {'a': 1}\n"
        "    assert f(seen, by=2) is None\n    assert len(seen) == 2\n"
        "    assert seen == {'a': 1, 'b': 2}\n",
        "def f(seen, by):\n    seen['b'] = by\n",
    ),
    "an argument given by name": (
        "from solution import f\n\ndef test_it():\n    items = [3, 1]\n    f(items=items)\n"
        "    assert items == [1, 3]\n",
        "def f(items):\n    items.sort()\n",
    ),
    "rows of a table": (
        "import unittest\nfrom solution import f\n\nclass It(unittest.TestCase):\n"
        "    def test_it(self):\n        for given, right in [([[1, 2]], [[2, 1]])]:\n"
        "            f(*[given])\n            self.assertEqual(given, right)\n"
        "        self.grid = {1, 2}\n        done = f2(self.grid)\n"
        "        self.assertSetEqual(self.grid, {1})\n        self.assertTrue(done)\n\n"
        "from solution import f2\n",
        "def f(rows):\n    for row in rows:\n        row.reverse()\n\n"
        "def f2(seen):\n    seen.discard(2)\n    return True\n",
    ),
    "what is printed": (
        "import contextlib, io\nfrom solution import f\n\ndef test_it():\n    out = io.StringIO()\n"
        "    with contextlib.redirect_stdout(out):\n        assert f(2) == 4\n"
        "    assert out.getvalue() == 'two\\n'\n",
        "import sys\ndef f(n):\n    sys.stdout.buffer.write(b'two\\n')\n    return 2 * n\n",
    ),
    "what is printed before an error": (
        "import contextlib, io\nfrom solution import f\n\ndef test_it():\n    out = io.StringIO()\n"
        "    with contextlib.redirect_stdout(out):\n        try:\n            f()\n"
        "        except ValueError as e:\n            print(e)\n"
        "    assert out.getvalue() == 'one\\nbad\\n'\n",
        "def f():\n    print('one')\n    raise ValueError('bad')\n",
    ),
    "a set of the answer's own": (
        "from solution import Own\n\ndef test_it():\n    assert Own([1]).issubset(Own([1, 2]))\n"
        "    assert not Own([3]).issubset(Own([1]))\n",
        "class Own:\n    def __init__(self, items):\n        self.items = items\n"
        "    def issubset(self, other):\n"
        "        return all(i in other.items for i in self.items)\n",
    ),
    "everything under its own name": (
        "from solution import *\n\ndef test_one():\n    area = f(2)\n    assert area == 4\n\n"
        "def test_two():\n    assert area(3) == 9\n",
        "def f(n):\n    return area(n)\n\ndef area(n):\n    return n * n\n",
    ),
}
"""What tests ask of a right answer: their text, and the answer."""


@pytest.mark.parametrize("name", KEPT)
def test_what_tests_ask_of_a_right_answer_they_get(
    workspace: Path, backend: SandboxBackend, name: str
) -> None:
    tests, right = KEPT[name]
    part = opened(workspace, [{"prompt": "Do it.", "tests": tests, "solution": right}], "tests")
    grade = graded(part, 0, right, backend)
    assert grade.passed, grade.evidence


def test_a_row_whose_tests_need_the_answers_process_is_told_what_to_write_or_choose(
    workspace: Path, backend: SandboxBackend
) -> None:
    tests = (
        "import unittest.mock\nimport solution\n\ndef test_it():\n"
        "    with unittest.mock.patch('solution.fetch', lambda: 2):\n"
        "        assert solution.twice() == 4\n"
    )
    right = "def fetch():\n    return 1\n\ndef twice():\n    return 2 * fetch()\n"
    row = {"prompt": "Do it.", "tests": tests, "solution": right}
    apart = opened(workspace, [row], "tests")
    said = graded(apart, 0, right, backend)
    assert not said.passed
    assert "--score tests-together" in said.evidence
    assert (
        "tests-together" not in graded(apart, 0, "def twice():\n    return 3\n", backend).evidence
    )
    together = opened(workspace, [row], "tests-together", "r")
    assert graded(together, 0, right, backend).passed
    assert not graded(together, 0, "def twice():\n    return 3\n", backend).passed
    assert together.grader != apart.grader


def test_a_script_of_bash_is_no_file_that_an_answer_could_change(
    workspace: Path, backend: SandboxBackend
) -> None:
    script = f"#!/bin/bash\n{CHECK}"
    part = opened(workspace, [{"prompt": "Do it.", "tests": script, "solution": ADD}], "tests")
    assert graded(part, 0, ADD, backend).passed
    assert not graded(
        part, 0, "import os, glob\nfor each in glob.glob('*'): os.remove(each)\n", backend
    ).passed


def test_without_a_right_answer_a_file_is_the_tests_by_its_name(
    workspace: Path, backend: SandboxBackend
) -> None:
    files = {"check.sh": CHECK, "solution.py": "", "run.sh": "bash check.sh"}
    part = opened(
        workspace, [{"prompt": "Do it.", "tests": "bash check.sh", "files": files}], "tests"
    )
    forged = graded(part, 0, json.dumps({"check.sh": "exit 0\n"}), backend)
    assert not forged.passed
    assert "handed in as check.sh is not used" in forged.evidence
    assert graded(part, 0, json.dumps({"solution.py": ADD, "check.sh": None}), backend).passed
    part = opened(
        workspace, [{"prompt": "Do it.", "tests": "bash run.sh", "files": files}], "tests", "r"
    )
    assert graded(part, 0, json.dumps({"run.sh": "exit 0\n"}), backend).passed
