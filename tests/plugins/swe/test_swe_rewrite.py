"""What becomes of a test file whose expected values are withheld: the text before and after, and
what is claimed."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.plugins.swe.withheld import Rewritten, rewrite


def rewritten(text: str, *tests: str, **how: Any) -> Rewritten:
    return rewrite(
        {"t.py": textwrap.dedent(text)}, [f"t.py::{t}" for t in tests or ("test_a",)], **how
    )


def told(made: Rewritten) -> list[str]:
    """What is claimed, in words: `value last`, `relation <= turned`, `truth False`."""
    return [
        " ".join(
            [c.kind, *[c.operator] * bool(c.operator), *["turned"] * c.turned, *["last"] * c.last]
            + [str(c.truth)] * (c.kind == "truth")
        )
        for c in made.claims
    ]


def same(made: Rewritten, text: str) -> None:
    assert "\n".join(filter(None, made.files["t.py"].split("\n"))) == textwrap.dedent(text).strip()


@pytest.mark.parametrize(
    ("said", "shown", "claims"),
    [
        ("assert f(1) is True", "assert _seen(0, f(1))", ["value"]),
        ("assert True is f(1)", "assert _seen(0, f(1))", ["value"]),
        ("assert f(1) is 'a'", "assert _seen(0, f(1))", ["relation is"]),
        ("assert f(1) is g(1)", "assert _seen(0, f(1))", ["value last"]),
        ("assert f(1) is g(True)", "assert _seen(0, f(1))", ["value last"]),
        ("assert f(1) is not None", "assert _seen(0, f(1))", ["relation is not"]),
        ("assert f(1) == expected", "assert _seen(0, f(1))", ["value last"]),
        ("assert expected == f(1)", "assert _seen(0, f(1))", ["value last"]),
        ("assert wanted_one == f(1)", "assert _seen(0, f(1))", ["value last"]),
        ("assert correct == f(1)", "assert _seen(0, f(1))", ["value last"]),
        ("assert Desired == f(1)", "assert _seen(0, f(1))", ["value last"]),
        ("assert 3 <= f(1)", "assert _seen(0, f(1))", ["relation <= turned"]),
        ("assert f(1) >= 3", "assert _seen(0, f(1))", ["relation >="]),
        ("assert 3 in f(1)", "assert _seen(0, f(1))", ["relation in turned"]),
        ("assert f(1) not in [3]", "assert _seen(0, f(1))", ["relation not in"]),
        ("assert 3 < f(1)", "assert _seen(0, f(1))", ["relation < turned"]),
        ("assert f(1) != 3", "assert _seen(0, f(1))", ["relation !="]),
        ("assert f(1) is not g(2)", "assert _seen(0, f(1) is g(2))", ["truth False"]),
        ("assert f(1) < g(1)", "assert _seen(0, f(1) < g(1))", ["truth True"]),
        ("assert g(1) == f(1)", "assert _seen(0, g(1))", ["value last"]),
        (
            "assert hash(f(1)) == hash(g(1))",
            "assert _seen(0, hash(f(1)) == hash(g(1)))",
            ["truth True"],
        ),
        ("assert f(1) == id(g(1))", "assert _seen(0, f(1) == id(g(1)))", ["truth True"]),
        ("assert 1 == 1", "assert _seen(0, 1 == 1)", ["truth True"]),
        ("assert 1 < f(1) < 3", "assert _seen(0, 1 < f(1) < 3)", ["truth True"]),
        ("assert f(1) or g(1) == 2", "assert _seen(0, f(1) or g(1) == 2)", ["truth True"]),
        ("assert not f(1) == 2", "assert _seen(0, f(1) == 2)", ["truth False"]),
        ("assert not f(1)", "assert _seen(0, f(1))", ["truth False"]),
        (
            "assert f(1) and not g(1)",
            "assert _seen(0, f(1))\nassert _seen(1, g(1))",
            ["truth True", "truth False"],
        ),
        (
            "assert isinstance(f(1), int)",
            "assert _seen(0, type(f(1)).__mro__)",
            ["relation isinstance"],
        ),
        ("assert isinstance(f(1))", "assert _seen(0, isinstance(f(1)))", ["truth True"]),
        (
            "assert not isinstance(f(1), int)",
            "assert _seen(0, isinstance(f(1), int))",
            ["truth False"],
        ),
    ],
)
def test_a_comparison_shows_the_side_that_the_code_gave(
    said: str, shown: str, claims: list[str]
) -> None:
    made = rewritten("def test_a(self):\n" + textwrap.indent(said, "    "))
    same(made, "def test_a(self):\n" + textwrap.indent(shown, "    "))
    assert told(made) == claims


@pytest.mark.parametrize(
    ("said", "shown", "claims"),
    [
        (
            "assert all(f(x) == 1 for x in g())",
            "assert all((_seen(0, f(x)) for x in g()))",
            ["value"],
        ),
        (
            "assert all([f(x) and g(x) == 2 for x in g()])",
            "assert all([_seen(0, f(x)) and _seen(1, g(x)) for x in g()])",
            ["truth True", "value"],
        ),
        ("assert all(f(1))", "assert _seen(0, all(f(1)))", ["truth True"]),
        (
            "assert all(f(x) == 1 for x in g()) and f(2) == 3",
            "assert all((_seen(0, f(x)) for x in g()))\nassert _seen(1, f(2))",
            ["value", "value"],
        ),
        (
            "assert all((f(x) for x in g()), 3)",
            "assert _seen(0, all((f(x) for x in g()), 3))",
            ["truth True"],
        ),
        (
            "assert any(f(x) for x in g())",
            "assert _seen(0, any((f(x) for x in g())))",
            ["truth True"],
        ),
    ],
)
def test_a_check_over_many_values_is_told_value_by_value(
    said: str, shown: str, claims: list[str]
) -> None:
    made = rewritten("def test_a(self):\n" + textwrap.indent(said, "    "))
    same(made, "def test_a(self):\n" + textwrap.indent(shown, "    "))
    assert told(made) == claims


@pytest.mark.parametrize(
    ("said", "shown", "claims"),
    [
        ("self.assertEqual(f(1), 2, 'msg')", "assert _seen(0, f(1))", ["value"]),
        ("eq_(f(1), 2)", "assert _seen(0, f(1))", ["value"]),
        ("self.assertIs(f(1), 2)", "assert _seen(0, f(1))", ["relation is"]),
        ("self.assertIsNot(f(1), 2)", "assert _seen(0, f(1))", ["relation is not"]),
        ("self.assertIn(f(1), [2])", "assert _seen(0, f(1))", ["relation in"]),
        ("self.assertNotIn(f(1), [2])", "assert _seen(0, f(1))", ["relation not in"]),
        ("self.assertNotEqual(f(1), 2)", "assert _seen(0, f(1))", ["relation !="]),
        ("self.assertGreater(f(1), 2)", "assert _seen(0, f(1))", ["relation >"]),
        ("self.assertGreaterEqual(f(1), 2)", "assert _seen(0, f(1))", ["relation >="]),
        ("self.assertLess(f(1), 2)", "assert _seen(0, f(1))", ["relation <"]),
        ("self.assertLessEqual(f(1), 2)", "assert _seen(0, f(1))", ["relation <="]),
        ("assertTrue(f(1))", "assert _seen(0, f(1))", ["truth True"]),
        ("assert_false(f(1), 'm')", "assert _seen(0, f(1))", ["truth False"]),
        ("assertIsNone(f(1), 'm')", "assert _seen(0, f(1))", ["value"]),
        ("assertIsNotNone(f(1))", "assert _seen(0, f(1))", ["relation is not"]),
        (
            "assertNotIsInstance(f(1), int, 'm')",
            "assert _seen(0, isinstance(f(1), int))",
            ["truth False"],
        ),
        (
            "assertIsInstance(f(1), int)",
            "assert _seen(0, type(f(1)).__mro__)",
            ["relation isinstance"],
        ),
        ("assertRaises(ValueError, f, 1, k=2)", "with _raised(0):\n    f(1, k=2)", ["raises"]),
        ("assertRaises(ValueError, f)", "with _raised(0):\n    f()", ["raises"]),
        ("assertRaisesRegex(ValueError, 'r', f, 1)", "with _raised(0):\n    f(1)", ["raises"]),
        ("pytest.raises(E, g, match='x')", "with _raised(0):\n    g(match='x')", ["raises"]),
    ],
)
def test_the_methods_of_unittest_and_nose_are_read_as_assertions(
    said: str, shown: str, claims: list[str]
) -> None:
    made = rewritten("def test_a(self):\n" + textwrap.indent(said, "    "))
    same(made, "def test_a(self):\n" + textwrap.indent(shown, "    "))
    assert told(made) == claims


@pytest.mark.parametrize(
    ("said", "shown", "claims"),
    [
        ("self.assertEqual(f(1))", "_seen(0, self.assertEqual(f(1)))", ["value last"]),
        (
            "self.assertEqual(f(1), 2, 3, 4)",
            "_seen(0, self.assertEqual(f(1), 2, 3, 4))",
            ["value last"],
        ),
        ("self.assertEqual(*f(1))", "_seen(0, self.assertEqual(*f(1)))", ["value last"]),
        ("a.b.assertEqual(f(1), 2)", "_seen(0, a.b.assertEqual(f(1), 2))", ["value last"]),
        ("assertTrue()", "_seen(0, assertTrue())", ["value last"]),
        ("assertTrue(f(1), 2, 3)", "_seen(0, assertTrue(f(1), 2, 3))", ["value last"]),
        ("assertIsNone(f(1), 2, 3)", "_seen(0, assertIsNone(f(1), 2, 3))", ["value last"]),
        ("assertIsNone()", "_seen(0, assertIsNone())", ["value last"]),
        ("assertIsInstance(f(1))", "_seen(0, assertIsInstance(f(1)))", ["value last"]),
        (
            "assertIsInstance(f(1), 2, 3, 4)",
            "_seen(0, assertIsInstance(f(1), 2, 3, 4))",
            ["value last"],
        ),
        ("assertRaises(ValueError)", "_seen(0, assertRaises(ValueError))", ["value last"]),
        (
            "assertRaisesRegex(ValueError, 'r')",
            "_seen(0, assertRaisesRegex(ValueError, 'r'))",
            ["value last"],
        ),
        (
            "f(1)\nself.g(2)\nlen([1])\nx = f(3)\nf(4).a()",
            "_seen(0, f(1))\n_seen(1, self.g(2))\nlen([1])\nx = f(3)\n_seen(2, f(4).a())",
            ["value last", "value last", "value last"],
        ),
    ],
)
def test_a_call_that_is_not_understood_stays_as_it_is(
    said: str, shown: str, claims: list[str]
) -> None:
    made = rewritten("def test_a(self):\n" + textwrap.indent(said, "    "))
    same(made, "def test_a(self):\n" + textwrap.indent(shown, "    "))
    assert told(made) == claims


@pytest.mark.parametrize(
    ("said", "shown", "claims"),
    [
        ("with pytest.raises(ValueError):\n    f()", "with _raised(0):\n    f()", ["raises"]),
        (
            "with pytest.raises(ValueError, match='x') as e:\n    f()",
            "with _raised(0) as e:\n    f()",
            ["raises"],
        ),
        (
            "with pytest.raises(ValueError, check=g):\n    f()",
            "with pytest.raises(ValueError, check=g):\n    f()",
            [],
        ),
        (
            "with self.assertRaises(ValueError, msg='m'):\n    f()",
            "with _raised(0):\n    f()",
            ["raises"],
        ),
        (
            "with self.assertRaises(ValueError, match='m'):\n    f()",
            "with self.assertRaises(ValueError, match='m'):\n    f()",
            [],
        ),
        ("with raises():\n    f()", "with raises():\n    f()", []),
        (
            "with open('x') as h, pytest.raises(E):\n    assert f() == 2",
            "with open('x') as h, _raised(0):\n    assert _seen(1, f())",
            ["raises", "value"],
        ),
        ("with self.assertRaisesRegex(E, 'r'):\n    f()", "with _raised(0):\n    f()", ["raises"]),
        (
            "with self.assertRaisesRegex(E):\n    f()",
            "with self.assertRaisesRegex(E):\n    f()",
            [],
        ),
        ("with pytest.raises(E, 'r'):\n    f()", "with pytest.raises(E, 'r'):\n    f()", []),
        (
            "with warns(X):\n    assert f(1) == 2",
            "with warns(X):\n    assert _seen(0, f(1))",
            ["value"],
        ),
        ("with h:\n    assert f(1) == 2", "with h:\n    assert _seen(0, f(1))", ["value"]),
    ],
)
def test_what_is_raised_is_told_when_all_of_its_description_is_understood(
    said: str, shown: str, claims: list[str]
) -> None:
    made = rewritten("def test_a(self):\n" + textwrap.indent(said, "    "))
    same(made, "def test_a(self):\n" + textwrap.indent(shown, "    "))
    assert told(made) == claims


@pytest.mark.parametrize(
    ("said", "shown", "claims"),
    [
        (
            "if g():\n    assert f(1) == 1\nelse:\n    assert f(2) == 2",
            "if g():\n    assert _seen(0, f(1))\nelse:\n    assert _seen(1, f(2))",
            ["value", "value"],
        ),
        (
            "for x in g():\n    assert f(x) == 1\nelse:\n    assert f(3) == 1",
            "for x in g():\n    assert _seen(0, f(x))\nelse:\n    assert _seen(1, f(3))",
            ["value", "value"],
        ),
        (
            (
                "try:\n    assert f(1) == 1\nexcept E:\n    assert f(2) == 2\n"
                "else:\n    assert f(3) == 3\nfinally:\n    assert f(4) == 4"
            ),
            (
                "try:\n    assert _seen(0, f(1))\nexcept E:\n    assert _seen(3, f(2))\n"
                "else:\n    assert _seen(1, f(3))\nfinally:\n    assert _seen(2, f(4))"
            ),
            ["value", "value", "value", "value"],
        ),
        (
            "match g():\n    case 1:\n        assert f(1) == 1",
            "match g():\n    case 1:\n        assert _seen(0, f(1))",
            ["value"],
        ),
        (
            "def inner():\n    assert f(1) == 2\ninner()",
            "def inner():\n    assert _seen(0, f(1))\ninner()",
            ["value"],
        ),
        ("while g():\n    assert f(1) == 2", "while g():\n    assert _seen(0, f(1))", ["value"]),
    ],
)
def test_assertions_are_found_wherever_they_stand(said: str, shown: str, claims: list[str]) -> None:
    made = rewritten("def test_a(self):\n" + textwrap.indent(said, "    "))
    same(made, "def test_a(self):\n" + textwrap.indent(shown, "    "))
    assert told(made) == claims


MODULE = """\
import datetime, os, json as js
from collections import Counter
from . import copy
from p import f, g
N = 5
T = (1, 'a')
"""


@pytest.mark.parametrize(
    "said",
    [
        "assert f(1) == 3",
        "assert f(1) == (1, 'a')",
        "assert f(1) == {'a': [1]}",
        "assert f(1) == [1, 2][0]",
        "assert f(1) == 'a'.upper()",
        "assert f(1) == datetime.date(2020, 1, 1)",
        "assert f(1) == js.dumps([1])",
        "assert f(1) == Counter('ab')",
        "assert f(1) == N",
        "assert f(1) == T",
        "assert f(1) == sorted([2, 1], key=lambda v: -v)",
        "assert f(1) == sorted([2, 1], key=lambda v: len(str(v)))",
        "assert f(1) == sorted([2, 1], key=lambda v, w=1: N + v + w)",
        "assert f(1) == dict(a=1)",
        "assert f(1) == [v for v in (1, 2)]",
        "x = 3\nassert f(1) == x",
        "x: int = 3\nassert f(1) == x",
        "x = y = 3\nassert f(1) == y",
        "x, y = 3, 4\nassert f(1) == y",
        "x = [1]\nassert f(1) == x",
        "x = (1, 'b')\nassert f(x) == x",
        "x = 'a' + str(1)\nassert f(x) == x",
        "x = 'a%d' % N\nassert f(x) == x",
        "x = -N\nassert f(x) == x",
        "x = N + 1\nassert f(x) == x",
        "x = f'{N}'\nassert f(x) == x",
        "for x in [1, 2]:\n    assert f(x) == x",
        "for x, y in [((1, 2), {3})]:\n    assert f(1) == y",
        "x = [1]\nlen(x)\nassert f(1) == x",
        "x = [[1]]\nassert f(1) == x",
        "x = y = 3\nassert f(x, y) == x + y",
        "x = 'a' + N\nassert f(x) == x",
        "T.count(1)\nassert f(1) == T",
    ],
)
def test_what_the_test_itself_works_out_is_known_without_the_tested_code(said: str) -> None:
    made = rewritten(MODULE + "def test_a(self, arg):\n" + textwrap.indent(said, "    "))
    assert told(made)[-1] == "value"


@pytest.mark.parametrize(
    "said",
    [
        "assert f(1) == os.sep",
        "assert f(1) == copy.copy(3)",
        "assert f(1) == sorted([2, 1], key=lambda v: g(v))",
        "assert f(1) == sorted([2, 1], key=lambda v: arg)",
        "assert f(1) == sorted([2, 1], key=g)",
        "assert f(1) == max([2, 1], default=g(1))",
        "assert f(1) == (y := 3)",
        "assert f(1) == unknown",
        "assert f(1) == len(g(1))",
        "assert f(1) == g.name",
        "assert f(1) == self.x",
        "assert f(1) == arg",
        "assert f(1) == g(1)(2)",
        "assert f(1) == [g(v) for v in (1, 2)]",
        "x = g(1)\nassert f(1) == x",
        "x = 3\nx += 1\nassert f(1) == x",
        "x = x + 1\nassert f(1) == x",
        "x = 3\nx = g(1)\nassert f(1) == x",
        "x, y = g(1)\nassert f(1) == x",
        "with g() as x:\n    assert f(1) == x",
        "try:\n    g()\nexcept ValueError as x:\n    assert f(1) == x",
        "def x():\n    return 3\nassert f(1) == x()",
        "def inner(y):\n    return y\ny = 3\nassert f(1) == y",
        "h = lambda y: y\ny = 3\nassert f(1) == y",
        "import re\nassert f(1) == re.escape('a')",
        "sorted = g\nassert f(1) == sorted([1])",
        "datetime = g\nassert f(1) == datetime.date(1)",
        "Counter = g\nassert f(1) == Counter('a')",
        "x = [1, [2]]\nassert f(x) == x",
        "x = (1, {2})\nassert f(x) == x",
        "x = list('ab')\nassert f(x) == x",
        "x = {'a': 1}\nassert f(x) == x",
        "x = {'a': 1}\nassert f(k=x) == x",
        "x = {'a': 1}\nx.update(g())\nassert f(1) == x",
        "x = {'a': 1}\nx['a'] = g()\nassert f(1) == x",
        "x = {'a': 1}\nx.y = g()\nassert f(1) == x",
        "x = {'a': 1}\nsorted([1], key=x)\nassert f(x) == x",
        "for x in [[1], [2]]:\n    assert f(x) == x",
        "for x in g():\n    assert f(1) == x",
        "x = [1] + [g]\nassert f(x) == x",
        "x = -g\nassert f(x) == x",
        "x = {'a': 1}\ny = x\nassert f(y) == y",
    ],
)
def test_what_the_tested_code_may_have_made_or_changed_is_only_what_it_gave(said: str) -> None:
    made = rewritten(MODULE + "def test_a(self, arg):\n" + textwrap.indent(said, "    "))
    assert told(made)[-1] == "value last"


def test_the_docstring_of_a_test_goes_and_that_of_the_module_stays() -> None:
    made = rewritten(
        '''
        """M."""
        def test_a():
            """Doc: right."""
            assert f(1) == 2
        ''',
        "test_a",
    )
    same(
        made,
        '''
        """M."""
        def test_a():
            pass
            assert _seen(0, f(1))
        ''',
    )
    assert told(made) == ["value"]


def test_a_test_that_stays_whole_loses_only_what_is_withheld() -> None:
    made = rewritten(
        '''
        def test_a():
            """Doc: right."""
            for x, y in [(1, 2)]:
                assert f(x) == y
        ''',
        "test_a",
        whole=frozenset({"t.py::test_a"}),
    )
    same(
        made,
        '''
        def test_a():
            """Doc: right."""
            for x, y in [(1, 2)]:
                assert _seen(0, f(x))
        ''',
    )
    assert told(made) == ["value"]


@pytest.mark.parametrize(
    "mark", ["@given(integers())", "@hypothesis.given(x=st.text())", "@settings(a=1)\n@given(y)"]
)
def test_what_hypothesis_draws_is_asked_nothing(mark: str) -> None:
    """How many examples come to an assertion is chance, and goes by the tested code's constants."""
    text = f"{mark}\ndef test_a(x):\n    assert f(x) == 3\n\ndef test_b():\n    assert f(1) == 2\n"
    made = rewritten(text, "test_a", "test_b")
    assert set(made.tests) == {"t.py::test_b"}
    assert told(made) == ["value"]
    assert "test_a" not in made.files["t.py"]
    alone = rewritten(text, "test_a")
    assert (alone.tests, alone.claims) == ({}, [])


def test_rows_of_another_shape_stay_as_they_are() -> None:
    made = rewritten(
        """
        def test_a():
            for x, y in [(1, "r"), [2, "s"], g(3), (4, 5, 6), param(7, "u", id="u", marks=m), \
param(8), other(9, 1)]:
                assert f(x) == y
        """,
        "test_a",
    )
    same(
        made,
        """
        def test_a():
            for x, y in [(1, None), [2, None], g(3), (4, 5, 6), param(7, None, marks=m), param(8), \
other(9, 1)]:
                assert _seen(0, f(x))
        """,
    )
    assert told(made) == ["value last"]


def test_a_loop_over_expected_values_alone_loses_them_and_one_over_inputs_does_not() -> None:
    made = rewritten(
        """
        def test_a():
            for y in [1, 2]:
                assert f(1) == y
            for x in {3, 4}:
                assert f(x) == 2
            for z in g(5):
                f(1)
        """,
        "test_a",
    )
    same(
        made,
        """
        def test_a():
            for y in [None, None]:
                assert _seen(0, f(1))
            for x in {3, 4}:
                assert _seen(1, f(x))
            for z in g(5):
                f(1)
        """,
    )
    assert told(made) == ["value", "value"]


def test_values_of_a_mapping_and_columns_of_a_zip_are_cut() -> None:
    made = rewritten(
        """
        def test_a():
            for x, y in {1: "r"}.items():
                assert f(y) == x
            for a, b in {1: "r", **g()}.items():
                assert f(a) == b
            for c, d in {1: 2}.pop():
                assert f(c) == d
            for i, j in zip([1, 2], ["r", "s"]):
                assert f(i) == j
            for k, l in zip([1], [(2, 3)], [4]):
                assert f(k) == l
            for m in zip([1], [2]):
                assert f(1) == m
            for n, o in other([1], [2]):
                assert f(n) == o
            assert all(f(p) == q for p, q in [(1, "r")])
        """,
        "test_a",
    )
    same(
        made,
        """
        def test_a():
            for x, y in {1: 'r'}.items():
                assert _seen(0, f(y))
            for a, b in {1: None, **g()}.items():
                assert _seen(1, f(a))
            for c, d in {1: 2}.pop():
                assert _seen(2, f(c))
            for i, j in zip([1, 2], [None, None]):
                assert _seen(3, f(i))
            for k, l in zip([1], [(2, 3)], [4]):
                assert _seen(4, f(k))
            for m in zip([1], [2]):
                assert _seen(5, f(1))
            for n, o in other([1], [2]):
                assert _seen(6, f(n))
            assert all((_seen(7, f(p)) for p, q in [(1, None)]))
        """,
    )
    assert told(made) == [
        "value",
        "value last",
        "value",
        "value",
        "value",
        "value",
        "value last",
        "value",
    ]


def test_parameters_are_cut_by_their_names_in_every_form() -> None:
    made = rewritten(
        """
        @pytest.mark.parametrize("y", [1, 2], ids=["a", "b"])
        @pytest.mark.parametrize(argnames="x, z", argvalues=[(1, 2)])
        @pytest.mark.parametrize(("v",), [(1,)])
        @pytest.mark.parametrize("w,", [1], indirect=True)
        @other("y", [1])
        @mark("y", [1])
        def test_a(x, y, z, v, w):
            assert f(x, w) == y
        """,
        "test_a",
    )
    same(
        made,
        """
        @pytest.mark.parametrize('y', [None, None])
        @pytest.mark.parametrize(argnames='x, z', argvalues=[(1, None)])
        @pytest.mark.parametrize(('v',), [None])
        @pytest.mark.parametrize('w,', [1], indirect=True)
        @other('y', [1])
        @mark('y', [1])
        def test_a(x, y, z, v, w):
            assert _seen(0, f(x, w))
        """,
    )
    assert told(made) == ["value"]


def test_a_name_that_is_read_no_more_is_bound_to_nothing_unless_that_would_leave_out_a_call() -> (
    None
):
    made = rewritten(
        """
        def test_a():
            x, y = 1, "r"
            a = b = "s"
            c = d = "t"
            e: str = "u"
            h: str
            i = g(2)
            j, k = "v", g(3)
            m = sorted([1], key=len)
            n = "w".upper()
            o = (p := 3)
            q = "kept", f(c)
            r: str = g(4)
            s = (yield 1)
            t = z[0] = 1
            assert f(x) == (y, a, b, d, e, h, i, j, k, m, n, o, q, r, s)
        """,
        "test_a",
    )
    same(
        made,
        """
        def test_a():
            x, y = (1, None)
            a = b = None
            c = d = 't'
            e: str = None
            h: str
            i = g(2)
            j, k = (None, g(3))
            m = None
            n = None
            o = (p := 3)
            q = ('kept', f(c))
            r: str = g(4)
            s = (yield 1)
            t = z[0] = 1
            assert _seen(0, f(x))
        """,
    )
    assert told(made) == ["value last"]


def test_a_name_of_the_module_goes_when_only_expected_values_read_it() -> None:
    made = rewritten(
        """
        RIGHT = "right"
        KEPT = "kept"
        NEVER = "never"
        ONE, TWO = "one", "two"
        A: str = "ann"
        CALL = g("call")
        DEEP = "deep"
        BOTH = DEEP + "both"
        def helper():
            return KEPT
        def test_a():
            assert f(1) == RIGHT + TWO + A + CALL + BOTH
            assert f(ONE) == 1
        """,
        "test_a",
    )
    same(
        made,
        """
        RIGHT = None
        KEPT = 'kept'
        NEVER = 'never'
        ONE, TWO = ('one', None)
        A: str = None
        CALL = g('call')
        DEEP = None
        BOTH = None
        def helper():
            return KEPT
        def test_a():
            assert _seen(0, f(1))
            assert _seen(1, f(ONE))
        """,
    )
    assert told(made) == ["value last", "value"]


def test_what_a_helper_is_handed_only_to_compare_goes_where_it_is_plain() -> None:
    made = rewritten(
        """
        def check(x, y, /, z, *, k=1):
            assert f(x, z) == y
        class T:
            def look(self, x, y):
                assert f(x) == y
            def test_a(self):
                check(1, "r", 2)
                check(1, g("kept"), 2)
                check(*[1, "kept"], 2)
                self.look(1, "s")
                self.look(2, y="t")
                self.look(2, y=g("kept"))
                look(1, "kept")
                self.check(1, "kept", 2)
        """,
        "T::test_a",
    )
    same(
        made,
        """
        def check(x, y, /, z, *, k=1):
            assert _seen(8, f(x, z))
        class T:
            def look(self, x, y):
                assert _seen(9, f(x))
            def test_a(self):
                _seen(0, check(1, None, 2))
                _seen(1, check(1, g('kept'), 2))
                _seen(2, check(*[1, 'kept'], 2))
                _seen(3, self.look(1, None))
                _seen(4, self.look(2, y=None))
                _seen(5, self.look(2, y=g('kept')))
                _seen(6, look(1, 'kept'))
                _seen(7, self.check(1, 'kept', 2))
        """,
    )
    assert told(made) == ["value last"] * 10


def test_a_test_is_found_where_its_class_has_it_from_and_others_go() -> None:
    made = rewritten(
        """
        class A:
            def test_a(self):
                assert f(1) == 1
            def test_b(self):
                assert f(1) == 2
            def own(self):
                assert f(1) == 9
        class B(A, m.C, B):
            def test_b(self):
                assert f(1) == 3
                self.own()
        class C(m.C, A):
            x = 1
        class D:
            def test_d(self):
                pass
            class E(A):
                def test_e(self):
                    assert f(1) == 4
        class G:
            def test_g(self):
                pass
        def test_named():
            pass
        def test_not():
            pass
        use = test_named
        """,
        "B::test_a",
        "B::test_b",
        "C::test_a",
        "D::E::test_e",
        "X::test_x",
        "D::test_none",
    )
    same(
        made,
        """
        class A:
            def test_a(self):
                assert _seen(0, f(1))
            def own(self):
                assert _seen(2, f(1))
        class B(A, m.C, B):
            def test_b(self):
                assert _seen(1, f(1))
                self.own()
        class C(m.C, A):
            x = 1
        class D:
            class E(A):
                def test_e(self):
                    assert _seen(3, f(1))
        class G:
            pass
        def test_named():
            pass
        use = test_named
        """,
    )
    assert told(made) == ["value", "value", "value", "value"]
    assert made.tests == {
        "t.py::B::test_a": {"t.py::B::test_a"},
        "t.py::B::test_b": {"t.py::B::own", "t.py::B::test_b"},
        "t.py::C::test_a": {"t.py::B::test_a"},
        "t.py::D::E::test_e": {"t.py::D::E::test_e"},
    }


def test_a_test_that_stands_twice_in_a_file_is_not_asked() -> None:
    made = rewritten(
        """
        def test_a():
            assert f(1) == 1
        def test_a():
            assert f(1) == 2
        def test_b():
            assert f(1) == 3
        """,
        "test_a",
        "test_b",
    )
    same(
        made,
        """
        def test_b():
            assert _seen(0, f(1))
        """,
    )
    assert told(made) == ["value"]


def test_a_helper_that_several_tests_call_is_asked_once_and_belongs_to_each() -> None:
    made = rewritten(
        """
        def first(x):
            second(x)
        def second(x):
            first(x)
            assert f(x) == "r"
            g(x)
        def test_a():
            first(1)
        def test_b():
            second(2)
            g(3)
        def third():
            assert f(1) == "kept"
        """,
        "test_a",
        "test_b",
    )
    same(
        made,
        """
        def first(x):
            second(x)
        def second(x):
            first(x)
            assert _seen(1, f(x))
            g(x)
        def test_a():
            _seen(0, first(1))
        def test_b():
            _seen(2, second(2))
            _seen(3, g(3))
        def third():
            assert f(1) == 'kept'
        """,
    )
    assert told(made) == ["value last", "value", "value last", "value last"]
    assert made.tests == {
        "t.py::test_a": {"t.py::first", "t.py::test_a", "t.py::second"},
        "t.py::test_b": {"t.py::test_b", "t.py::first", "t.py::second"},
    }


def test_a_known_text_has_what_is_expected_beside_what_is_seen() -> None:
    made = rewritten(
        '''
        def test_a():
            """Doc."""
            with pytest.raises(E, match="x"):
                f(1)
            with self.assertRaisesRegex(F, "y"):
                f(2)
            with pytest.raises(G):
                f(3)
            assert f(4) == 5
            assert f(6)
            assert isinstance(f(7), int)
        ''',
        "test_a",
        known=True,
    )
    same(
        made,
        '''
        def test_a():
            """Doc."""
            with _raised(0, E, 'x'):
                f(1)
            with _raised(1, F, 'y'):
                f(2)
            with _raised(2, G, None):
                f(3)
            assert _seen(3, f(4), 5)
            assert _seen(4, f(6))
            assert _seen(5, type(f(7)).__mro__, int)
        ''',
    )
    assert told(made) == [
        "raises",
        "raises",
        "raises",
        "value",
        "truth True",
        "relation isinstance",
    ]


def test_a_claim_that_is_off_stays_and_one_that_is_asked_plainly_is_a_truth() -> None:
    made = rewritten(
        """
        def test_a():
            with pytest.raises(E, match="x"):
                f(1)
            assert f(4) == 5
            assert not f(6)
            assert f(7) != 8
            assert f(9) not in (8,)
            assert f(10) == 11
        """,
        "test_a",
        off=frozenset({0, 2}),
        plainly=frozenset({1, 3, 4}),
    )
    same(
        made,
        """
        def test_a():
            with pytest.raises(E, match='x'):
                f(1)
            assert _seen(1, f(4) == 5)
            assert not f(6)
            assert _seen(3, f(7) == 8)
            assert _seen(4, f(9) in (8,))
            assert _seen(5, f(10))
        """,
    )
    assert told(made) == ["truth True", "truth False", "truth False", "value"]


SEVERAL = """
def check(x):
    assert f(x) == 1
    f(x)

def test_a():
    f(0)
    assert f(1) == 2
    f(2)

def test_b():
    f(3)
    with pytest.raises(E):
        f(4)

def test_c():
    check(5)
    f(6)
    f(7)

def test_d():
    assert f(8) and f(9) == 10
"""


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)), st.booleans())
@pytest.mark.slow
def test_claims_keep_their_numbers_whatever_is_asked_of_them(
    off: set[int], plainly: set[int], known: bool
) -> None:
    tests = ("test_a", "test_b", "test_c", "test_d")
    whole = {c.number: c.test for c in rewritten(SEVERAL, *tests).claims}
    less = rewritten(SEVERAL, *tests, off=frozenset(off), plainly=frozenset(plainly), known=known)
    assert {c.number: c.test for c in less.claims} == {
        n: test for n, test in whole.items() if n not in off
    }


def test_a_table_that_is_read_for_more_than_its_inputs_stays() -> None:
    made = rewritten(
        """
        READ = [(1, "r")]
        MORE = [(1, "r")]
        MORE += [(2, "s")]
        LIST = ["r"]
        ROWS = [(1, "r")]
        WIDE = [(1, "r")]
        def test_a():
            for x, y in READ:
                assert f(x) == y
            for z, w in READ:
                assert f(z) == w
            for a, b in MORE:
                assert f(a) == b
            for c in LIST:
                assert f(1) == c
            for d in LIST:
                assert f(2) == d
            for h, i in ROWS:
                assert f(h) == i
            for j in ROWS:
                assert f(1) == 1
            for k, l in WIDE:
                assert f(k) == l
            for m, n, o in WIDE:
                assert f(m, n) == o
        """,
        "test_a",
    )
    same(
        made,
        """
        READ = [(1, None)]
        MORE = [(1, 'r')]
        MORE += [(2, 's')]
        LIST = [None]
        ROWS = [(1, 'r')]
        WIDE = [(1, 'r')]
        def test_a():
            for x, y in READ:
                assert _seen(0, f(x))
            for z, w in READ:
                assert _seen(1, f(z))
            for a, b in MORE:
                assert _seen(2, f(a))
            for c in LIST:
                assert _seen(3, f(1))
            for d in LIST:
                assert _seen(4, f(2))
            for h, i in ROWS:
                assert _seen(5, f(h))
            for j in ROWS:
                assert _seen(6, f(1))
            for k, l in WIDE:
                assert _seen(7, f(k))
            for m, n, o in WIDE:
                assert _seen(8, f(m, n))
        """,
    )
    assert told(made) == [
        "value",
        "value",
        "value last",
        "value",
        "value",
        "value",
        "value",
        "value",
        "value",
    ]


def test_what_the_code_gave_and_a_list_collected_is_what_is_shown() -> None:
    made = rewritten("""
        def test_a():
            ids, calls, pure, given = [], [], [], [3, 4]
            for x in f(1):
                ids.append(x)
            g(calls.append)
            pure.append("r")
            pure.extend(["s"])
            h(given)
            assert ids == [1, 2]
            assert calls == [5]
            assert f(2) == pure
            assert f(3) == given
        """)
    same(
        made,
        """
        def test_a():
            ids, calls, pure, given = ([], [], [], [3, 4])
            for x in f(1):
                ids.append(x)
            g(calls.append)
            pure.append('r')
            pure.extend(['s'])
            h(given)
            assert _seen(0, ids)
            assert _seen(1, calls)
            assert _seen(2, f(2))
            assert _seen(3, f(3))
        """,
    )
    assert told(made) == ["value", "value", "value", "value last"]


# --- helpers in other files
# ---------------------------------------------------------------------------------

UTIL = """
import unittest
import pkg
EXPECTED = {1: "secret one"}
LIMIT = 3
class Case(unittest.TestCase):
    def look(self, x, expected_value, *, flag=False):  # "secret comment"
        found = []
        for y in pkg.f(x):
            found.append(y)
        self.inner(found, expected_value)
    def inner(self, found, expected_value):
        self.assertEqual(sorted(found), sorted(expected_value))
    def assert_raises(self, text, kind):
        with self.assertRaises(kind):
            pkg.f(text)
    def test_shared(self):
        assert pkg.f(LIMIT) == "secret two"
    def test_other(self):
        assert pkg.f(LIMIT) == "secret three"
def check(x):
    assert pkg.f(x) == EXPECTED[1]
def unused(x):
    assert pkg.f(x) == "kept"
"""
SUITE = {
    "pkg/testing.py": "def verify(x):\n    assert x == 'not ours'\n",
    "tests/__init__.py": "",
    "tests/util.py": UTIL,
    "tests/conftest.py": (
        """
import pytest
@pytest.fixture
def test_folder():
    return "folder"
@pytest.fixture
def agrees():
    def compare(x, wanted):
        assert pkg.f(x) == wanted
    return compare
"""
    ),
    "tests/sub/test_a.py": (
        """
from .. import util
from ..util import *
from tests.util import check as verified
from pkg.testing import verify
import json
class TestA(util.Case):
    def test_a(self):
        self.look(1, ["secret four"])
        self.look(2, expected_value=["secret five"], flag=True)
        self.assert_raises("x", ValueError)
    def test_b(self):
        verified(1)
        util.check(2)
        check(3)
        verify(4)
    def test_c(self):
        pass
def test_d(agrees, test_folder):
    agrees(1, "secret six")
"""
    ),
    "tests/test_unread.py": "from .util import check\ndef test_u():\n    check(1)\n",
}


def suite(*tests: str, **texts: str) -> Rewritten:
    given = {path: text for path, text in SUITE.items() if path != "pkg/testing.py"} | texts
    return rewrite(given, [f"tests/sub/test_a.py::{t}" for t in tests])


def test_helpers_of_the_files_that_a_test_imports_are_rewritten_with_it() -> None:
    made = suite("TestA::test_a", "TestA::test_b", "TestA::test_shared", "test_d")
    assert sorted(made.files) == ["tests/conftest.py", "tests/sub/test_a.py", "tests/util.py"]
    assert "secret" not in "".join(made.files.values())
    helpers, tests, fixtures = (
        made.files[f"tests/{f}.py"] for f in ("util", "sub/test_a", "conftest")
    )
    assert ", sorted(found))" in helpers
    assert "pkg.f(x) == 'kept'" in helpers
    assert "test_other" not in helpers
    assert "self.look(1, None)" in tests
    assert "self.look(2, expected_value=None, flag=True)" in tests
    assert "self.assert_raises('x', None)" in tests
    assert "with _raised(" in helpers
    assert "EXPECTED = None" in helpers
    assert "test_c" not in tests
    assert "def test_folder():" in fixtures
    assert "agrees(1, None)" in tests
    file = "tests/sub/test_a.py::TestA::"
    assert made.tests[f"{file}test_a"] == {
        f"{file}{f}" for f in ("test_a", "look", "inner", "assert_raises")
    }
    assert made.tests[f"{file}test_b"] == {f"{file}test_b", "tests/util.py::check"}
    assert made.tests[f"{file}test_shared"] == {f"{file}test_shared"}
    assert made.tests["tests/sub/test_a.py::test_d"] == {
        "tests/sub/test_a.py::test_d",
        "tests/conftest.py::agrees",
    }


def test_what_another_file_names_is_kept_and_one_that_is_no_python_is_as_if_it_were_not_there() -> (
    None
):
    reads = (
        SUITE["tests/sub/test_a.py"]
        + "from tests.util import EXPECTED, LIMIT, Case\nuse = EXPECTED, Case.test_other\n"
    )
    made = suite("TestA::test_b", **{"tests/sub/test_a.py": reads})
    assert all(
        word in made.files["tests/util.py"] for word in ("secret one", "test_other", "LIMIT = 3")
    )
    alone = suite("TestA::test_a", "TestA::test_shared", **{"tests/util.py": "def ("})
    assert (sorted(alone.files), list(alone.tests)) == (
        ["tests/sub/test_a.py"],
        ["tests/sub/test_a.py::TestA::test_a"],
    )


@pytest.mark.parametrize(
    ("file", "said", "found"),
    [
        ("a/b/test_x.py", "from common import check", "a/b/common.py"),
        ("a/b/test_x.py", "from common import check", "a/common.py"),
        ("a/b/test_x.py", "from b.common import check", "a/b/common.py"),
        ("a/b/test_x.py", "from . import check", "a/b/__init__.py"),
        ("a/b/test_x.py", "from .common import check", "a/b/common.py"),
        ("a/b/test_x.py", "from ..common import check", "a/common/__init__.py"),
        ("a/b/test_x.py", "from .common import *", "a/b/common.py"),
        ("a/b/test_x.py", "from .other import same as check", ""),
        ("a/b/test_x.py", "from ..common import check", "a/b/common.py/common.py"),
        ("a/b/test_x.py", "from .json import check", "a/b/json.py"),
        ("a/b/test_x.py", "from json import check", ""),
    ],
)
def test_an_import_is_found_as_pytest_would(file: str, said: str, found: str) -> None:
    helper = "def check(x):\n    assert f(x) == 'r'\n"
    texts = {
        file: f"{said}\ndef test_a():\n    check(1)\n",
        found or "a/b/json.py": helper,
        "a/b/other.py": "x = same\n",
    }
    made = rewrite(texts, [f"{file}::test_a"])
    reached = found and not found.endswith("common.py/common.py")
    assert (found in made.files and "'r'" not in made.files[found]) == bool(reached)


def test_files_that_import_each_other_in_a_ring_are_read_once() -> None:
    texts = {
        "test_x.py": (
            "from one import *\nfrom two import B\nclass TestX(B):\n    def test_a(self):\n       "
            " go(1)\n"
        ),
        "one.py": "from two import *\nclass B(B): pass\n",
        "two.py": "from one import *\nimport one\nclass B(one.B): pass\n",
    }
    assert sorted(
        rewrite(texts, ["test_x.py::TestX::test_a", "test_x.py::TestX::test_b"]).tests
    ) == ["test_x.py::TestX::test_a"]
