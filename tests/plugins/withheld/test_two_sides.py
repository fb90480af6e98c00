"""What goes over the line between tests and answer, all of it in one run: `test_` passes, and
`test_not_` must fail."""

from __future__ import annotations

from typing import Any

import pytest

from recreate.plugins.withheld import apart, looks, two_sides
from recreate.sandboxes import choose

ANSWER = '''
import datetime, decimal, fractions, inner.deep
class Bad(ValueError):
    pass
class Vec:
    """A vector."""
    def __init__(self, *x): self.x = list(x)
    def __eq__(self, o): return isinstance(o, Vec) and self.x == o.x
    def __hash__(self): return hash(tuple(self.x))
    def __lt__(self, o): return self.x < o.x
    def __le__(self, o): return self.x <= o.x
    def __gt__(self, o): return self.x > o.x
    def __ge__(self, o): return self.x >= o.x
    def __len__(self): return len(self.x)
    def __bool__(self): return any(self.x)
    def __iter__(self): return iter(self.x)
    def __reversed__(self): return reversed(self.x)
    def __contains__(self, i): return i in self.x
    def __getitem__(self, i): return self.x[i]
    def __setitem__(self, i, v): self.x[i] = v
    def __delitem__(self, i): del self.x[i]
    def __add__(self, o): return Vec(*[a + b for a, b in zip(self.x, o.x)]) if isinstance(o, Vec) \\
        else self.x[0] + o
    def __radd__(self, o): return o + self.x[0]
    def __sub__(self, o): return Vec(self.x[0] - (o.x[0] if isinstance(o, Vec) else o))
    def __mul__(self, n): return Vec(*[n * a for a in self.x])
    __rmul__ = __mul__
    def __pow__(self, n): return self.x[0] ** n
    def __and__(self, o): return Vec(*[a for a in self.x if a in o.x])
    def __or__(self, o): return Vec(*self.x, *o.x)
    def __neg__(self): return Vec(*[-a for a in self.x])
    def __pos__(self): return self
    def __abs__(self): return 5.0
    def __round__(self, n=0): return 7
    def __int__(self): return 3
    def __float__(self): return 1.5
    def __str__(self): return "v"
    def __repr__(self): return "Vec"
    def __enter__(self): return 4
    def __exit__(self, *e): self.left = True
class Sly:
    def __eq__(self, o): return True
    def __contains__(self, o): return True
    def __sub__(self, o): return 0.0
    def __truediv__(self, o): return Sly()
    def __abs__(self): return 0.0
    def __len__(self): return 0
    def __lt__(self, o): return True
    def __str__(self): return 5
    def startswith(self, *a): return True
class Num(int):
    def __eq__(self, o): return True
    __hash__ = int.__hash__
def same(x): return x
def many():
    return [None, True, "a\\u20ac", -3, 1.5, b"a", bytearray(b"b"), (1, [2]), {1}, frozenset({2}),
        {"a": {1: (2,)}}, 1j, decimal.Decimal("1.50"), fractions.Fraction(1, 3), range(3),
        slice(1, None), datetime.date(2000, 1, 2), datetime.time(1, 2), 10 ** 5000,
        datetime.datetime(2000, 1, 2, 3, 4, 5, 6), datetime.timedelta(1, 2, 3), ..., int]
def fails(kind=Bad): raise kind("no", 3)
def ends(): raise SystemExit(0)
def stops(): raise StopIteration
def later(): yield from (1, 2)
def each(work, items): return [work(i) for i in items]
def total(items): return sum(items)
def divmod(a, b): return "mine"
def change(a, b=None):
    a.clear()
    if b is not None: b["x"] = 1
    return 2
def grow(a): a.append(1)
def far(): return Vec(1, 2)
def sly(): return Sly()
def num(): return Num(4)
def big(): return "a" * 3_000_000
def tried(work):
    try: return work()
    except Bad as e: return "mine"
    except KeyError as e: return e.args
def printing(): print("said")
def printing_much(): print("x" * 200_000)
class Picky:
    def __contains__(self, o):
        if o not in (3, "a"): raise TypeError("another kind")
        return True
class Strict:
    def __eq__(self, o):
        if not isinstance(o, Strict): raise TypeError("another kind")
        return True
class Odd(UnicodeDecodeError):
    def __init__(self): pass
def odd(): raise Odd
def deep_error():
    found = []
    for _ in range(5000): found = [found]
    raise ValueError(found)
def below():
    import os
    os.write(1, b"{}\\n")
    os.write(2, b"{}\\n")
    return os.read(0, 9)
class Long:
    def __abs__(self): return Vec(1)
class Listed:
    def tolist(self): return 1j
class Scalar(Listed): pass
Scalar.__module__ = "numpy"
class Words:
    def __abs__(self): return "far"
    def __neg__(self): return "less"
    def __pos__(self): return [1]
    def __invert__(self): return {"a": 1}
'''
TESTS = """
import contextlib, datetime, decimal, fractions, io, unittest
import solution
from solution import Bad, Vec, change, each, fails, far, grow, same, sly
from inner.deep import deep
import inner.deep as again
import more

def test_data(): assert solution.many() == [None, True, "a\\u20ac", -3, 1.5, b"a", bytearray(b"b"),
    (1, [2]), {1}, frozenset({2}), {"a": {1: (2,)}}, 1j, decimal.Decimal("1.50"),
    fractions.Fraction(1, 3), range(3), slice(1, None), datetime.date(2000, 1, 2),
    datetime.time(1, 2), 10 ** 5000, datetime.datetime(2000, 1, 2, 3, 4, 5, 6),
    datetime.timedelta(1, 2, 3), ..., int]
def test_data_there_and_back():
    for thing in solution.many():
        back = same(thing)
        assert back == thing and type(back) is type(thing), thing
def test_a_number_of_its_own_is_a_number(): assert type(solution.num()) is int
def test_not_any_number(): assert solution.num() == 5
def test_own_error():
    try: fails()
    except Bad as e:
        assert e.args == ("no", 3) and str(e) == "('no', 3)"
        assert type(e).__name__ == "Bad"
    else: assert False
def test_own_error_is_a_builtin_one():
    with unittest.TestCase().assertRaises(ValueError): fails()
def test_not_another_error():
    with unittest.TestCase().assertRaises(KeyError): fails()
def test_an_error_by_class():
    with unittest.TestCase().assertRaises(KeyError) as e: fails(KeyError)
    assert e.exception.args == ("no", 3)
def test_an_end_is_an_error():
    for work in (solution.ends, solution.stops):
        try: work()
        except RuntimeError: continue
        assert False
def test_steps(): assert list(solution.later()) == [1, 2] and next(solution.later()) == 1
def test_functions(): assert each(lambda n: n + 1, [1, 2]) == [2, 3]
def test_builtins(): assert each(str, [1]) == ["1"]
def test_steps_handed_over(): assert solution.total(n for n in (1, 2)) == 3
def test_not_looked_into():
    class Own: a = 1
    each(lambda o: o.a, [1]) and each(getattr, [Own()])
def test_raised_over_there():
    def work(): raise KeyError("k")
    assert solution.tried(work) == ("k",)
    def work(): raise Bad("k")
    assert solution.tried(work) == "mine"
def test_changed():
    a, b = [1], {}
    change(a, b=b)
    assert (a, b) == ([], {"x": 1})
def test_changed_and_given():
    a = [1]
    k = change(a)
    assert a == []
    assert k == 2
def test_not_changed_unasked():
    a = [1]
    assert change(a) == 2
    assert sorted(a) == []
def test_kept():
    a = [1]
    assert change(a) == 2 and sorted(a) == [1]
def test_grown():
    a = []
    grow(a)
    assert len(a) == 1
def test_own(): assert far() == Vec(1, 2) and far() != Vec(1) and not far() != Vec(1, 2)
def test_order():
    assert Vec(1) < Vec(2) and Vec(2) > Vec(1) and Vec(1) <= Vec(1) and Vec(1) >= Vec(1)
    assert not Vec(2) < Vec(1)
def test_asked():
    v = far()
    assert (len(v), bool(v), bool(Vec(0)), list(v), v[0], v[-1:], 2 in v, 3 in v) == (
        2, True, False, [1, 2], 1, [2], True, False)
    assert (str(v), repr(v), int(v), float(v), abs(v), round(v), list(reversed(v))) == (
        "v", "Vec", 3, 1.5, 5.0, 7, [2, 1])
    assert (v.x, v.__doc__ and len({v, far()})) == ([1, 2], 1)
def test_reckoned():
    v = far()
    assert v + v == Vec(2, 4) and v * 2 == Vec(2, 4) and 2 * v == Vec(2, 4)
    assert v + 1 == 2 and 1 + v == 2 and v ** 2 == 1 and v - v == Vec(0)
    assert -v == Vec(-1, -2) and +v == v and v & Vec(2) == Vec(2) and Vec(1) | Vec(2) == v
    assert (v - 1).x == [0]
def test_written():
    v = far()
    v[0] = 5; del v[1]; v.y = 6
    assert v.x == [5] and v.y == 6
def test_errors_that_cannot_be_made_here():
    for work in (solution.odd, solution.deep_error):
        try: work()
        except RuntimeError: continue
        assert False
def test_handles(): assert solution.below() == b""
def test_own_length(): assert abs(solution.Long()) == Vec(1)
def test_a_number_of_numpys_is_a_number(): assert solution.Scalar() == 1j
def test_not_a_number_of_its_own(): assert solution.Listed() == 1j
def test_words_of_its_own():
    w = solution.Words()
    assert (-w, +w, ~w) == ("less", [1], {"a": 1})
def test_not_a_distance_in_words(): abs(solution.Words())
def test_not_short(): raise ValueError("x" * 400)
def LONG(): raise ValueError("x" * 400)
def test_a_helper_in_a_folder_of_that_name():
    from inner.helper import help
    assert help() == "the tests" and deep() == "deep"
def test_new_in_a_folder():
    from inner.new import new
    assert new() == "new"
def test_in_and_out():
    v = far()
    with v as four: assert four == 4
    assert v.left is True
def test_classes():
    assert isinstance(far(), Vec) and not isinstance(far(), solution.Sly) and not isinstance(3, Vec)
    assert issubclass(Vec, Vec) and not issubclass(Vec, solution.Sly)
def test_one_thing(): v = far(); assert same(v) is v
def test_what_is_not_there():
    assert not hasattr(solution, "nothing") and not hasattr(far(), "nothing")
    try: from solution import nothing
    except ImportError: return
    assert False
def test_folders(): assert deep() == again.deep() == "deep" and more.one == 1
def test_printed():
    out = io.StringIO()
    with contextlib.redirect_stdout(out): solution.printing()
    assert out.getvalue() == "said\\n"
def test_printed_much():
    out = io.StringIO()
    with contextlib.redirect_stdout(out): solution.printing_much()
    assert out.getvalue() == "x" * 100_000
def test_among_its_own():
    p = solution.Picky()
    assert 3 in p and "a" in p
def test_of_one_kind(): assert solution.Strict() == solution.Strict()
def test_not_of_another_kind(): assert solution.Strict() == 3
def test_pythons_own():
    import colorsys
    assert colorsys.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
def test_not_equal(): assert sly() == 3
def test_not_equal_turned(): assert 3 == sly()
def test_unequal(): assert sly() != 3 and sly() != far()
def test_not_among(): assert sly() in (3, 4)
def test_not_holding(): assert 3 in sly()
def test_not_far(): assert abs(sly() - 3) < 1
def test_not_far_as_an_object(): assert (sly() / 3) < 1
def test_not_as_long(): assert len(sly() / 3) == 0
def test_not_in_order(): assert sly() < 3
def test_not_a_text(): assert sly().startswith("a")
def test_not_as_text(): assert str(sly()) == 5
def test_not_too_much(): assert solution.big()
def test_not_too_much_handed_over(): same("a" * 3_000_000)
def test_not_awaited():
    async def it(): pass
    return it()
def test_not_stepped(): yield 1
class TestGroup:
    def setup_method(self): self.a = 1
    def test_it(self): assert same(self.a) == 1
    def test_not_it(self): assert same(self.a) == 2
class Cases(unittest.TestCase):
    def test_it(self):
        for n in (1, 2):
            with self.subTest(n=n): self.assertEqual(same(n), n)
    def test_not_it(self):
        for n in (1, 2):
            with self.subTest(n=n): self.assertEqual(same(n), 0)
    def test_not_long(self): self.fail("x" * 500)
    @unittest.skip("later")
    def test_later(self): pass
def test_skipped(): raise unittest.SkipTest("later")
def check(candidate): assert candidate(3) == 3
"""
LONG = "test_not_" + "long" * 25
TESTS = TESTS.replace("LONG", LONG)
BARE = "from solution import *\nassert total([1, 2]) == 3\nassert divmod(7, 2) == (3, 1)\n"
STAR = """from solution import *
seen = {*dir()}
if "total" not in seen:
    total = grow = None
def test_it(): assert not {"total", "grow"} & seen and "change" in seen
"""
FILES = {
    "solution.py": ANSWER,
    "inner/deep.py": "def deep(): return 'deep'\n",
    "more.py": "one = 1\n",
    "colorsys.py": "def rgb_to_hsv(*a): return 'mine'\n",
    "inner/new.py": "def new(): return 'new'\n",
}


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    backend = choose()
    own, other = backend.open(), backend.open()
    try:
        for path, text in FILES.items():
            other.write(path, text.encode())
        own.write("inner/deep.py", b"def deep(): return 'begun'\n")
        own.write("test_all.py", TESTS.encode())
        own.write("inner/helper.py", b"def help(): return 'the tests'\n")
        own.write("test_star.py", STAR.encode())
        own.write("test_one.py", b"def test_it(): pass\n")
        own.write("test_later.py", b"import unittest\ndef test_it(): raise unittest.SkipTest\n")
        own.write("test_bare.py", BARE.encode())
        own.write("test_bad.py", b"from solution import total\nassert total([1, 2]) == 4\n")
        asked = {
            "files": [
                "test_all.py",
                "test_bad.py",
                "test_bare.py",
                "test_one.py",
                "test_later.py",
                "test_star.py",
            ],
            "own": ["test_all", "inner.helper"],
            "modules": ["solution", "inner.deep"],
            "more": ["more", "json", "colorsys", "test_all", "inner.new"],
            "binds": {
                "test_all.py": looks.find_names(TESTS),
                "test_star.py": looks.find_names(STAR),
            },
            "looks": {"test_all.py": looks.find_looks(TESTS)},
            "solution": "solution",
            "entry": "same",
        }
        found, why = apart.run(apart.for_tests(), own, other, asked, 30.0)
    finally:
        own.close()
        other.close()
    assert not why, why
    return found


def test_what_is_asked_over_the_line_is_what_one_process_would_say(told: dict[str, Any]) -> None:
    failed = [each.split(":")[0].split(" ")[0] for each in told["failed"]]
    names = [name.rpartition(".")[2] for name in failed]
    assert [each for each in told["failed"] if "test_not_" not in each] == [
        "test_bad.py: AssertionError"
    ]
    assert [each[-25:] for each in told["failed"] if "test_all.Cases.test_not_it" in each] == [
        " (n=2): AssertionError: 2 != 0"[-25:]
    ]
    wrong = [word for word in TESTS.replace("(", " ").split() if word.startswith("test_not_")]
    assert sorted(names) == sorted([*wrong, "py"])


def test_what_a_test_raises_is_told_in_short(told: dict[str, Any]) -> None:
    said = [each for each in told["failed"] if each.startswith("test_not_short")]
    assert said == [f"test_not_short: ValueError: {'x' * 200}"]
    for name in ("Cases.test_not_long", LONG):
        (said,) = [each for each in told["failed"] if name in each]
        assert (len(said), said[-9:]) == (300, "x" * 9)


def test_each_test_counts_once(told: dict[str, Any]) -> None:
    tests = TESTS.count("def test_")
    skipped, alone = 2, ("check", "test_bare.py", "test_bad.py", "test_one.py", "test_star.py")
    assert told["count"] == tests - skipped + len(alone)
    assert told["passed"] == told["count"] - len(told["failed"])


@pytest.mark.parametrize(
    ("base", "above"),
    [
        ("KeyError", KeyError),
        ("Exception", Exception),
        ("SystemExit", Exception),
        ("BaseException", Exception),
        ("int", Exception),
        ("len", Exception),
    ],
)
def test_an_errors_class_of_over_there_is_one_that_a_test_can_catch(
    base: str, above: type[BaseException]
) -> None:
    side = object.__new__(two_sides.Side)
    side.apart, side.far = False, {}
    found = side.get(["E", 5, "Own" * 50, base])
    assert (found.__bases__, found.__name__) == ((above,), ("Own" * 50)[:100])
    assert side.get(["E", 5, "Own", base]) is found


@pytest.mark.parametrize("base", ["no_such_class", 3, None])
def test_an_errors_class_that_cannot_be_ends_the_tests(
    monkeypatch: pytest.MonkeyPatch, base: Any
) -> None:
    monkeypatch.setattr(two_sides.Gone, "raised", False)
    side = object.__new__(two_sides.Side)
    side.apart, side.far = False, {}
    with pytest.raises(two_sides.Gone):
        side.get(["E", 5, "Own", base])
    assert two_sides.Gone.raised


@pytest.mark.parametrize(
    "told",
    [
        ["x", 1],
        ["B", "len"],
        ["B", "no_such_name"],
        ["c", "None"],
        ["o", "1", False],
        ["yours", 1],
        ["m", "type", [["s", "x"]]],
        ["d", [[["l", []], None]]],
        ["i", "zz"],
        ["s"],
        [],
        3,
        "s",
    ],
)
def test_what_cannot_be_told_ends_the_tests(monkeypatch: pytest.MonkeyPatch, told: Any) -> None:
    monkeypatch.setattr(two_sides.Gone, "raised", False)
    side = object.__new__(two_sides.Side)
    side.apart, side.far, side.mine = False, {}, {}
    with pytest.raises(two_sides.Gone):
        side.get(told)
