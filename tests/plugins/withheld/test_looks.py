"""Where a test looks at what a call made of its arguments: read from its text."""

from __future__ import annotations

from typing import Any

import pytest

from recreate.plugins.withheld.looks import ANY, find_looks, find_names

LOOKS: dict[str, dict[int, list[Any]]] = {
    "f(x)\nassert x == [1]\n": {1: [ANY]},
    "f(\n    x,\n    y,\n)\n": {1: [ANY], 2: [ANY], 3: [ANY], 4: [ANY]},
    "k = f(x)\nassert x == [1]\n": {1: [0]},
    "k = f(y, x)\nassert x == [1]\n": {1: [1]},
    "k = f(y, by=x)\nassert x == [1]\n": {1: ["by"]},
    "k = f(x, y)\nassert x == [1]\nassert [2] == y\n": {1: [0, 1]},
    "k = f(x)\nassert x[:k] == [1]\n": {1: [0]},
    "k = f(x)\nassert len(x) == 2\n": {1: [0]},
    "k = f(x)\nassert sorted(x) == [1]\n": {},
    "k = f(x)\nassert list(x[0]) == right[:k]\n": {1: [0]},
    "assert f(x) is None\nassert x == [1]\n": {1: [0]},
    "k = f(self.x)\nself.assertEqual(self.x, [1])\n": {1: [0], 2: [ANY]},
    "k = f(self.x)\nself.assertEqual([1], self.x, 'why')\n": {1: [0], 2: [ANY]},
    "k = f(x)\nself.assertEqual(k, 1)\n": {2: [ANY]},
    "k = f(x)\nself.checks(x, [1])\n": {2: [ANY]},
    "right = sorted(x)\nk = f(x)\nassert x == right\n": {2: [0]},
    "k = f(x)\nright = sorted(x)\nassert x == right\n": {},
    "k = f(x)\nright = x[0].a\nassert x == right\n": {},
    "k = f(x)\nright = g(k)\nassert x == right\n": {},
    "k = f(x)\nassert x == k\n": {},
    "assert x == [1]\nk = f(x)\n": {},
    "assert f(x) == sorted(x)\n": {},
    "assertEqual(f(x), sorted(x))\n": {},
    "self.assertEqual(f(x), sorted(x))\n": {},
    "check(\n    f(x),\n    sorted(x),\n)\n": {},
    "k = f(x)\nassert k == sorted(x)\n": {},
    "k = f(x)\nassert 1 < x < 3\n": {},
    "k = f(x())\nassert x == 1\n": {},
    "def a(x):\n    k = f(x)\n\ndef b(x):\n    assert x == [1]\n": {},
    "def a(x):\n    k = f(x)\n    assert x == [1]\n": {2: [0]},
    "class A:\n    def a(self, x):\n        f(x)\n": {3: [ANY]},
    "def a(x):\n    f(x)\n\nk = f(x)\nassert x == 1\n": {2: [ANY], 4: [0]},
    "no python at all\n": {},
    "\0": {},
}
"""A test -> line -> the arguments that are looked at."""


@pytest.mark.parametrize("text", LOOKS)
def test_an_argument_is_looked_at_where_it_is_compared_with_what_comes_of_neither(
    text: str,
) -> None:
    assert find_looks(text) == LOOKS[text]


def test_names_are_those_that_a_file_binds_at_its_top() -> None:
    text = (
        "import a.b, c as d\nfrom e import f\nfrom g import *\nh = [i for i in j]\n"
        "def k(l):\n    m = n\nclass O:\n    p = q\nfor r in s:\n    t += 1\n"
        "try:\n    import u\nexcept V as w:\n    pass\n"
    )
    assert set(find_names(text)) - {"i"} == {*"adfhkOrtuw"}
    assert find_names("no python") == find_names("\0") == []
