"""Expected values are taken out of tests, and what a test tells instead is judged outside of the
sandbox."""

from __future__ import annotations

import ast
import collections
import datetime
import decimal
import enum
import fractions
import textwrap
from typing import Any

import pytest

from recreate.api.types import Output
from recreate.plugins.swe import exam, test_run
from recreate.plugins.swe.observer import LOOSE, Opaque, form
from recreate.plugins.swe.test_run import Seen
from recreate.plugins.swe.withheld import Claim, rewrite


def blind(text: str, *tests: str, **how: Any) -> str:
    made = rewrite(
        {"test_a.py": textwrap.dedent(text)},
        [f"test_a.py::{t}" for t in tests or ("test_a",)],
        **how,
    )
    return made.files["test_a.py"]


# --- what the tested code's process is shown
# --------------------------------------------------------------


def test_a_table_that_is_bound_twice_or_in_two_tests_is_cut_each_time() -> None:
    text = blind(
        """
        def test_a():
            rows = [(1, "right")]
            for x, y in rows:
                assert f(x) == y
            rows = [(2, "fine")]
            for x, y in rows:
                assert g(x) == y

        def test_b():
            rows = [(3, "good")]
            for x, y in rows:
                assert f(x) == y

        def test_c():
            rows = [(4, "kept")]
            for x, y in rows:
                assert f(x) == y
            for x, y in rows:
                f(y)
        """,
        "test_a",
        "test_b",
        "test_c",
    )
    assert [word in text for word in ("right", "fine", "good", "kept")] == [
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("assert f(1) == 'right'", "assert _seen(0, f(1))"),
        ("assert 'right' == f(1)", "assert _seen(0, f(1))"),
        ("assert f(1) != 'right'", "assert _seen(0, f(1))"),
        ("assert f(1) is None", "assert _seen(0, f(1))"),
        ("assert f(1) is not None", "assert _seen(0, f(1))"),
        ("assert f(1) in ('right', 'fine')", "assert _seen(0, f(1))"),
        ("assert 'right' not in f(1)", "assert _seen(0, f(1))"),
        ("assert f(1) > 3", "assert _seen(0, f(1))"),
        ("assert f(1)", "assert _seen(0, f(1))"),
        ("assert not f(1)", "assert _seen(0, f(1))"),
        ("assert f(1) == g(2)", "assert _seen(0, f(1))"),
        ("assert f(1) != g(2)", "assert _seen(0, f(1) == g(2))"),
        ("assert f(1) == 'right', 'it should be right'", "assert _seen(0, f(1))"),
        (
            "assert f(1) == 'right' and f(2) == 3",
            "assert _seen(0, f(1))\n    assert _seen(1, f(2))",
        ),
        ("assert isinstance(f(1), dict)", "assert _seen(0, type(f(1)).__mro__)"),
        (
            "assert all(f(x) == 'right' for x in [1, 2])",
            "assert all((_seen(0, f(x)) for x in [1, 2]))",
        ),
        (
            "expected = 'right'\n    assert f(1) == expected",
            "expected = None\n    assert _seen(0, f(1))",
        ),
        ("x, y = (f(1), 'right')\n    assert x == y", "x, y = (f(1), None)"),
        ("for x, y in [(1, 'right')]:\n        assert f(x) == y", "for x, y in [(1, None)]:"),
        (
            "for x, y in {1: 'right'}.items():\n        assert f(x) == y",
            "for x, y in {1: None}.items():",
        ),
        (
            "for x, y in zip([1, 2], ['right', 'fine']):\n        assert f(x) == y",
            "zip([1, 2], [None, None])",
        ),
        (
            "with pytest.raises(ValueError, match='right'):\n        f(1)",
            "with _raised(0):\n        f(1)",
        ),
        ("pytest.raises(ValueError, f, 1)", "with _raised(0):\n        f(1)"),
        ("pytest.raises(ValueError, f)", "with _raised(0):\n        f()"),
        ("self.assertEqual(f(1), 'right')", "assert _seen(0, f(1))"),
        ("self.assertIsInstance(f(1), dict)", "assert _seen(0, type(f(1)).__mro__)"),
        ("self.assertIsNone(f(1))", "assert _seen(0, f(1))"),
        ("self.assertFalse(f(1))", "assert _seen(0, f(1))"),
        ("self.assertIn('right', f(1))", "assert _seen(0, f(1))"),
        (
            "with self.assertRaisesRegex(ValueError, 'right'):\n        f(1)",
            "with _raised(0):\n        f(1)",
        ),
        ("self.assertRaises(ValueError, f, 1)", "with _raised(0):\n        f(1)"),
        ("f(1)", "_seen(0, f(1))"),
    ],
)
def test_what_is_expected_is_not_in_the_text(said: str, shown: str) -> None:
    text = blind(f"from p import f, g\n\ndef test_a(self):\n    {said}\n")
    assert shown in text
    assert not any(word in text for word in ("right", "fine", "ValueError", "dict", "not ", "3"))


def test_a_column_of_parameters_that_is_only_compared_goes_with_its_names() -> None:
    text = blind("""
        import pytest
        from p import f

        @pytest.mark.parametrize("x, y", [(1, "right"), pytest.param(2, "fine", id="two-fine")], \
ids=["one", "two"])
        def test_a(x, y):
            assert f(x) == y
        """)
    assert "[(1, None), pytest.param(2, None)]" in text
    assert not any(word in text for word in ("right", "fine", "ids"))


def test_parameters_named_in_a_list_are_as_those_in_a_text_and_others_stay_as_they_are() -> None:
    text = blind("""
        import pytest
        from p import f
        NAMES = "x, y"

        @pytest.mark.parametrize(NAMES, [(1, 2)])
        @pytest.mark.parametrize("z")
        @pytest.mark.parametrize(["v", "w"], [(1, "right")])
        def test_a(v, w, x, y, z):
            assert f(v) == w
        """)
    assert "parametrize(NAMES, [(1, 2)])" in text
    assert "parametrize('z')" in text
    assert "parametrize(['v', 'w'], [(1, None)])" in text


def test_a_table_that_has_a_name_loses_its_column_when_nothing_else_reads_it() -> None:
    test = "def test_a():\n    for x, y in TABLE:\n        assert f(x) == y\n"
    table = "from p import f\nTABLE = [(1, 'right'), (2, 'fine')]\n\n"
    assert "TABLE = [(1, None), (2, None)]" in blind(table + test)
    assert "TABLE = [(1, 'right'), (2, 'fine')]" in blind(f"{table}{test}    assert f(TABLE)\n")


def test_what_a_helper_is_handed_to_compare_with_goes_too() -> None:
    text = blind("""
        from p import f
        RIGHT = "right"

        def check(x, y):
            assert f(x) == y

        def test_a():
            check(1, "fine")
            assert f(2) == RIGHT

        def test_other():
            assert f(3) == "seldom"
        """)
    assert "check(1, None)" in text
    assert not any(word in text for word in ("right", "fine", "seldom"))


def test_an_input_stays_whatever_it_is_compared_with() -> None:
    text = blind(
        "from p import f\n\ndef test_a():\n    x = 'in'\n    assert f(x) == x.upper() + 'right'\n  "
        "  f(x)\n"
    )
    assert "x = 'in'" in text
    assert "upper" not in text


def test_claims_keep_their_numbers_when_less_is_asked() -> None:
    text = "def test_a():\n    assert f(1) == 2\n    assert not f(3)\n    assert f(4) == 5\n"
    assert "assert f(1) == 2" in (less := blind(text, off=frozenset({0})))
    assert "_seen(1, f(3))" in less
    assert "_seen(2, f(4) == 5)" in blind(text, plainly=frozenset({2}))
    ast.parse(blind(text, known=True))
    text = "def test_a():\n    f(1)\n    if f(2):\n        assert f(3)\n"
    text += "def test_b():\n    with pytest.raises(E):\n        f(4)\n"
    assert "_raised(1)" in blind(text, "test_a", "test_b", off=frozenset({0}))


# --- forms go by equality
# ---------------------------------------------------------------------------------


class Word(str):
    pass


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (True, 1),
        (Colour.RED, 1),
        (decimal.Decimal("0.5"), 0.5),
        (fractions.Fraction(1, 2), 0.5),
        (complex(2, 0), 2),
        (Word("a"), "a"),
        (b"a", bytearray(b"a")),
        ({"a": 1, "b": 2}, collections.OrderedDict(b=2, a=1)),
        (collections.namedtuple("P", "x")(1), (1,)),
        ({1, 2}, frozenset({2, 1})),
        ({1: 2}.keys(), {1}),
        (collections.UserList([1]), [1]),
        (10**30, float(10**30) if float(10**30) == 10**30 else 10**30),
        (
            datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC),
            datetime.datetime(
                2020, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))
            ),
        ),
    ],
)
def test_equal_values_have_the_same_form(one: Any, other: Any) -> None:
    assert one == other
    assert form(one) == form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        ("1", 1),
        ((1,), [1]),
        ("a", b"a"),
        ({1: 2}, {1: 3}),
        (None, False),
        ([[1], 2], [[1, 2]]),
        ((), []),
    ],
)
def test_different_values_have_different_forms(one: Any, other: Any) -> None:
    assert form(one) != form(other)


def test_an_object_has_no_form_or_the_one_it_says() -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    class Named(Equal):
        def __repr__(self) -> str:
            return "3"

    for value in (object(), Equal(), [Equal()], iter(())):
        with pytest.raises(Opaque):
            form(value)
    assert LOOSE in form(Named())
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(Opaque):
        form(deep)


# --- what is told is judged here
# --------------------------------------------------------------------------


def claim(kind: str, *expected: str, **about: Any) -> Claim:
    return Claim.model_validate(
        {"number": 0, "test": "t::a", "kind": kind, "expected": expected, **about}
    )


def saw(*forms: str | None) -> list[Seen]:
    return [Seen(0, f, None) for f in forms]


@pytest.mark.parametrize(
    ("said", "good", "bad"),
    [
        (claim("value", "3"), ["3"], ["4", None, "'3'", "3" * 9000]),
        (claim("relation", "3", operator="!="), ["4", None], ["3"]),
        (
            claim("relation", "3", operator=">"),
            ["7/2", "4"],
            ["3", "5/2", None, "'a'", "(" * 4000, "a()"],
        ),
        (claim("relation", "3", operator=">", turned=True), ["2"], ["3", "4"]),
        (claim("relation", "[1, 'a']", operator="in"), ["1", "'a'"], ["2", "[1, 'a']", None]),
        (claim("relation", "'a'", operator="in", turned=True), ["'cat'", "['a']"], ["'dog'", "[]"]),
        (claim("relation", "None", operator="is not"), ["1", None], ["None"]),
        (
            claim("relation", "<class builtins.dict>", operator="isinstance"),
            ["(<class a.B>, <class builtins.dict>,)"],
            [],
        ),
    ],
)
def test_a_claim_is_right_for_what_the_test_accepts(
    said: Claim, good: list[str | None], bad: list[str | None]
) -> None:
    assert [f for f in good if not said.right(saw(f))] == []
    assert [f for f in bad if said.right(saw(f))] == []


@pytest.mark.parametrize(
    ("said", "truth"),
    [
        ("assert f(1)", True),
        ("assert not f(1)", False),
        ("assert not not f(1)", True),
        ("assert f(1) != g(1)", False),
        ("assert not f(1) == g(1) == h(1)", False),
        ("assert f(1) not in g(1)", False),
        ("assert not (f(1) is not g(1))", True),
    ],
)
def test_what_is_told_of_a_truth_is_what_is_so_when_the_test_holds(said: str, truth: bool) -> None:
    (made,) = rewrite({"t.py": f"def test_a():\n    {said}\n"}, ["t.py::test_a"]).claims
    assert (made.kind, made.truth) == ("truth", truth)
    made = made.model_copy(update={"expected": (repr(truth),)})
    assert made.right([Seen(0, "'anything'", truth)])
    assert not made.right([Seen(0, "'anything'", not truth)])
    assert not made.right([Seen(0, "'anything'", None)])


def test_what_was_said_must_be_seen_as_often_as_it_is_said() -> None:
    said = claim("value", "3", "3")
    assert said.right(saw("3", "3"))
    assert not said.right(saw("3"))
    assert not said.right(saw("3", "3", "3"))
    assert not said.right([])


def test_what_has_no_form_is_not_compared_and_the_rest_is() -> None:
    said = claim("value", "", "3")
    assert said.right(saw(None, "3"))
    assert said.right(saw("'anything'", "3"))
    assert not said.right(saw("3", None))


def test_an_exception_has_the_bases_of_one_exception() -> None:
    chain = '"Exception", "BaseException", "object"'
    said = claim("raises", '[["ValueError"], "not a .* number", 200]')
    for own, right in (('"A", "B", "C", "D"', True), ('"A", "B", "C", "D", "E"', False)):
        assert said.right(saw(f'[[{own}, "ValueError", {chain}], "not a good number"]')) is right
    assert said.right(saw(f'[["ValueError", {chain}], "not a good number"]'))
    assert said.right(saw(f'[["Own", "ValueError", {chain}], "not a good number"]'))
    for wrong in (
        f'[["KeyError", "LookupError", {chain}], "not a good number"]',
        f'[["ValueError", {chain}], "something"]',
        (
            f'[["All", "ValueError", "TypeError", "KeyError", "LookupError", {chain}], "not a good'
            ' number"]'
        ),
        f'[["ValueError", {chain}], "{"all words " * 40} not a good number"]',
        "[[1], 2]",
        "[]",
        "not JSON",
        "[" * 4000,
    ):
        assert not said.right(saw(wrong)), wrong


@pytest.mark.parametrize(
    ("said", "telling"),
    [
        (claim("value", "3"), True),
        (claim("value", "1"), False),
        (claim("value", "1", "3"), True),
        (claim("value", ""), False),
        (claim("truth", "True"), False),
        (claim("relation", "3", operator=">"), False),
        (claim("relation", "[1, 2]", operator="in"), True),
        (claim("relation", "[1, 2]", operator="in", turned=True), False),
        (claim("raises", '[["ValueError"], "twelve chars", 200]'), True),
        (claim("raises", '[["ValueError"], "eleven char", 200]'), False),
        (claim("raises", '[["ValueError"], null, 200]'), False),
    ],
)
def test_a_claim_tells_more_than_a_guess(said: Claim, telling: bool) -> None:
    assert said.telling is telling


def test_a_run_is_right_when_all_is_told_and_nothing_else() -> None:
    asked = exam.Exam(tests={"t::a": 1}, claims=(claim("value", "3"),))
    right = test_run.TestResults(outcomes={"t::a": "passed"}, seen=tuple(saw("3")))
    assert asked.wrong(right) == ""
    for change in (
        {"seen": ()},
        {"seen": tuple(saw("4"))},
        {"seen": (*saw("3"), Seen(7, "3", True))},
        {"outcomes": {"t::a": "failed"}},
        {"outcomes": {}},
        {"doubt": "ended early"},
    ):
        assert asked.wrong(right.model_copy(update=change)) != "", change


_TEST = (
    '{"kind": "test", "id": "a", "when": "call", "outcome": "passed", "part": false, "expected":'
    " false"
)


@pytest.mark.parametrize(
    "line",
    [
        "1",
        "[]",
        "{}",
        '{"kind": "other"}',
        '{"kind": "seen", "claim": 1e999, "saw": null, "truth": true, "known": null}',
        '{"kind": "seen", "claim": true, "saw": null, "truth": true, "known": null}',
        '{"kind": "seen", "claim": 1, "saw": [], "truth": true, "known": null}',
        '{"kind": "seen", "claim": 1, "saw": null, "truth": "True", "known": null}',
        '{"kind": "trace", "lines": {"a": {"b": [1e999]}}}',
        "[" * 100_000,
        '{"kind": "start", "x": "' + "x" * 300_000 + '"}',
        "\udcff",
        _TEST + ', "message": "", "seconds": "now"}',
        _TEST.replace("passed", "failed") + ', "message": 3, "seconds": 1}',
        '{"kind": "end", "status": 0}\n{"kind": "start"}',
        "1" * 5000,
    ],
)
def test_records_that_the_runner_does_not_write_make_results_not_count(line: str) -> None:
    begun = '{"kind": "collected", "count": 1}\n'
    data = (begun + line + '\n{"kind": "end", "status": 0}\n').encode("utf-8", "surrogateescape")
    results = test_run._read_records(data, Output(text="", status=0), 1.0, False)
    assert results.doubt == "the record of results holds what the runner does not write"
    assert results.passed() == set()


def test_a_message_with_half_a_character_can_be_stored() -> None:
    record = _TEST.replace("passed", "failed") + ', "message": "\\ud800", "seconds": 1}\n'
    data = ('{"kind": "collected"}\n' + record + '{"kind": "end"}\n').encode()
    results = test_run._read_records(data, Output(text="", status=0), 1.0, False)
    assert not results.doubt
    assert results.model_dump_json()
