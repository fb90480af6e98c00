"""The exam of a task is made with its gold: what can be asked, what is right of it, and what is
left out."""

from __future__ import annotations

import builtins
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from recreate.plugins.swe import exam, test_run
from recreate.plugins.swe.exam import Exam
from recreate.plugins.swe.observer import observe
from recreate.plugins.swe.test_run import Seen

TEXT = """
def test_sum():
    assert f(1) == 3

def test_sign():
    assert f(-9)

def test_nothing():
    pass

def test_refused():
    with pytest.raises(ValueError, match="no"):
        f("x")

def test_other():
    assert f(2) == 4
"""
WANTED = ["t.py::test_sum", "t.py::test_sign", "t.py::test_nothing", "t.py::test_refused"]
BASE = ["t.py::test_other"]


def gold(value: Any) -> int:
    if isinstance(value, str):
        raise ValueError("no number")
    return int(value) + 2


class Runs:
    """Runs what it is given in this process, with some `f`. took: seconds of each test."""

    def __init__(
        self, f: Callable[[Any], Any] = gold, took: Mapping[str, float] | None = None
    ) -> None:
        self.f, self.took = f, took or {}
        self.texts: list[str] = []

    def __call__(self, files: Mapping[str, str], tests: Sequence[str]) -> test_run.TestResults:
        told: list[Seen] = []
        observe(
            lambda record: told.append(
                Seen(*(record[k] for k in ("claim", "saw", "truth", "known")))
            )
        )
        outcomes = {}
        for file in tests:
            self.texts.append(files[file])
            names: dict[str, Any] = {"f": self.f, "pytest": pytest}
            exec(files[file], names)
            for name in [name for name in names if name.startswith("test_")]:
                try:
                    names[name]()
                    outcomes[f"{file}::{name}"] = "passed"
                except AssertionError:
                    outcomes[f"{file}::{name}"] = "failed"
        return test_run.TestResults(
            outcomes=outcomes, seen=tuple(told), took=self.took, seconds=0.5
        )


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_seen", "_raised"):
        monkeypatch.setattr(builtins, name, None, raising=False)


def broken(files: Mapping[str, str], tests: Sequence[str]) -> test_run.TestResults:
    """Sources with a bug that no test runs on."""
    return test_run.TestResults(doubt="it does not start")


def made(
    runs: Runs,
    text: str = TEXT,
    wanted: Sequence[str] = WANTED,
    allowed: float = 9.0,
    untouched: exam.Run = broken,
) -> Exam:
    base = [f"t.py::{line[4:-3]}" for line in text.splitlines() if line.startswith("def ")]
    return exam.make(
        {"t.py": text}, wanted, [b for b in base if b not in wanted], runs, untouched, allowed
    )


class Held(dict[int, int]):
    """What `f` gives in the tests below: holds 1 and 2, and says of `less` that it is not in it."""

    less = 0

    def __contains__(self, key: object) -> bool:
        return key != self.less and super().__contains__(key)

    def __eq__(self, other: object) -> bool:
        return not self.less and super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


class Short(Held):
    less = 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            (
                "def test_in():\n    assert 1 in f(0)\n    assert 3 not in f(0)\n    assert"
                " len(f(0)) == 2\n"
            ),
            "1 in f(0)",
        ),
        ("def test_in():\n    assert f(0) == {1: 1, 2: 2}\n", "f(0) == {1: 1, 2: 2}"),
    ],
)
def test_an_operator_that_the_tested_code_brings_itself_is_asked_where_the_bug_is_in_it(
    text: str, what: str
) -> None:
    right, wrong = Runs(lambda x: Held({1: 1, 2: 2})), Runs(lambda x: Short({1: 1, 2: 2}))
    asked = made(right, text, ["t.py::test_in"], untouched=wrong)
    assert what in asked.files["t.py"]
    assert (asked.blind, asked.wrong(right(asked.files, ["t.py"]))) == (False, "")
    assert "saw False" in asked.wrong(wrong(asked.files, ["t.py"]))
    by_form = made(right, text, ["t.py::test_in"])
    assert what not in by_form.files["t.py"]


def test_a_row_that_is_expected_to_fail_is_not_asked_and_the_others_are() -> None:
    text = "def test_rows():\n    for x, y in ((1, 3), (2, 5), (5, 7)):\n        assert f(x) == y\n"

    class Rows(Runs):
        def __call__(self, files: Mapping[str, str], tests: Sequence[str]) -> test_run.TestResults:
            result = super().__call__(files, tests)
            return result.model_copy(update={"outcomes": dict.fromkeys(result.outcomes, "passed")})

    asked = made(Rows(), text, ["t.py::test_rows"])
    assert [c.expected for c in asked.claims] == [("3", "", "7")]
    assert asked.telling == ("t.py::test_rows",)
    assert "saw 4" in asked.wrong(Rows(lambda x: 4)(asked.files, ["t.py"]))


def test_an_exam_that_the_bug_passes_is_blind_and_asks_what_it_can() -> None:
    text = "def test_in():\n    assert f(1) == 3\n    f(2)\n"
    asked = made(Runs(), text, ["t.py::test_in"], untouched=Runs())
    assert asked.blind
    assert "== 3" not in asked.files["t.py"]
    assert made(Runs(), "def test_in():\n    pass\n", ["t.py::test_in"], untouched=Runs()).blind


def test_each_test_is_asked_what_it_can_be_and_gold_gives_it() -> None:
    asked = made(runs := Runs())
    assert (asked.telling, asked.weak, asked.bare) == (
        ("t.py::test_sum",),
        ("t.py::test_sign", "t.py::test_refused"),
        ("t.py::test_nothing",),
    )
    assert asked.tests == dict.fromkeys(
        ("t.py::test_sum", "t.py::test_sign", "t.py::test_refused", "t.py::test_other"), 1
    )
    assert asked.seconds == 0.5
    assert "== 3" not in asked.files["t.py"]
    assert asked.wrong(runs(asked.files, ["t.py"])) == ""
    assert len(runs.texts) == 4  # all known, twice what is asked, and the line above


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda x: gold(x) + (x == 1), "test_sum, its expected values withheld, saw 4"),
        (lambda x: gold(x) + (x == 2), "test_other, its expected values withheld, saw 5"),
        (lambda x: gold(x) * (x != -9), "test_sign, its expected values withheld, saw False"),
        (
            lambda x: 7 if x == "x" else gold(x),
            "test_refused, its expected values withheld, saw what cannot be compared",
        ),
    ],
)
def test_other_code_than_gold_is_told_what_it_gave(wrong: Callable[[Any], Any], says: str) -> None:
    asked = made(Runs())
    found = asked.wrong(Runs(wrong)(asked.files, ["t.py"]))
    assert says in found


def test_what_gold_gives_another_way_each_time_is_asked_no_more() -> None:
    turns = itertools.count()

    def drifts(x: Any) -> Any:
        return next(turns) if x == 1 else gold(x)

    text = TEXT.replace("f(1) == 3", "f(1) == f(1) + 1 - 1")
    asked = made(Runs(drifts), text, [*WANTED, *BASE])
    assert "t.py::test_sum" in asked.bare
    assert asked.telling == ("t.py::test_other",)
    assert asked.wrong(Runs(drifts)(asked.files, ["t.py"])) == ""


def test_a_test_that_gold_does_not_pass_is_left_out_and_the_rest_is_asked() -> None:
    text = TEXT.replace("    assert f(1) == 3", "    assert f(1) == 3\n    raise AssertionError")
    asked = made(Runs(), text, [*WANTED, *BASE])
    assert "t.py::test_sum" not in asked.tests
    assert asked.bare == ("t.py::test_sum", "t.py::test_nothing")
    assert asked.telling == ("t.py::test_other",)


def test_tests_that_passed_before_are_asked_as_far_as_the_seconds_go_and_six_at_most() -> None:
    text = TEXT + "".join(
        f"\ndef test_more{n}():\n    assert f({n}) == {n + 2}\n" for n in range(9)
    )
    assert len(made(Runs(), text).tests) == 3 + 6
    slow = {f"t.py::test_more{n}": 4.0 for n in range(9)} | {
        "t.py::test_other": 4.0,
        "t.py::test_sum": 99.0,
    }
    assert len(made(Runs(took=slow), text).tests) == 3 + 2
    assert len(made(Runs(took=slow), text, allowed=8.0).tests) == 3 + 2
    assert len(made(Runs(took=slow), text, allowed=7.9).tests) == 3 + 1


def test_a_task_of_which_nothing_can_be_asked_says_so_without_a_run() -> None:
    nothing = "def test_nothing():\n    pass\n"
    runs = Runs()
    for text in (nothing, "def test_nothing(:\n"):
        assert made(runs, text, ["t.py::test_nothing"]) == Exam(
            bare=("t.py::test_nothing",), blind=True
        )
    assert runs.texts == []


def test_the_parameters_of_a_test_count_one_by_one() -> None:
    runs = Runs()
    asked = exam.make(
        {"t.py": TEXT}, ["t.py::test_sum[1]", "t.py::test_sum[2]"], BASE, runs, broken, 9.0
    )
    assert asked.telling == ("t.py::test_sum",)
    assert set(asked.tests) == {"t.py::test_sum", "t.py::test_other"}
    twice = test_run.TestResults(
        outcomes={f"t.py::test_sum[{n}]": "passed" for n in (1, 2)}, seen=()
    )
    assert asked.wrong(twice) == "t.py::test_other does not pass with its expected values withheld"


def test_what_is_equal_in_a_run_but_another_in_the_next_is_asked_as_a_truth() -> None:
    runs = Runs()
    runs.f = lambda x: len(runs.texts) if x == 1 else gold(x)
    asked = made(runs, TEXT.replace("f(1) == 3", "f(1) == f(1)"))
    assert asked.weak == ("t.py::test_sum", "t.py::test_sign", "t.py::test_refused")
    assert ", f(1) == f(1))" in asked.files["t.py"]


def test_a_test_that_needs_both_sides_worked_out_is_asked_whether_they_are_equal() -> None:
    worked: list[int] = []

    def counts(x: Any) -> Any:
        if x == "count":
            found = len(worked)
            worked.clear()
            return found
        worked.append(0) if x in (1, 3) else None
        return gold(x)

    text = TEXT.replace(
        "f(1) == 3", "f(1) == f(3) - 2\n    if f('count') < 2:\n        raise AssertionError"
    )
    asked = made(Runs(counts), text)
    assert "t.py::test_sum" in asked.weak
    assert ", f(1) == f(3) - 2)" in asked.files["t.py"]


def test_a_message_may_be_twice_as_long_as_golds_and_a_hundred_characters() -> None:
    asked = made(Runs())

    def refuses(more: int) -> Callable[[Any], Any]:
        def f(x: Any) -> int:
            if x == "x":
                raise ValueError("no number" + "x" * more)
            return gold(x)

        return f

    assert asked.wrong(Runs(refuses(109))(asked.files, ["t.py"])) == ""
    assert "test_refused" in asked.wrong(Runs(refuses(110))(asked.files, ["t.py"]))


def test_no_more_than_two_hundred_characters_are_quoted_of_what_was_seen() -> None:
    asked = made(Runs())
    said = asked.wrong(Runs(lambda x: "y" * 900 if x == 1 else gold(x))(asked.files, ["t.py"]))
    assert said == "t.py::test_sum, its expected values withheld, saw '" + "y" * 199


def test_an_object_that_goes_by_its_own_words_is_asked_for_only_where_nothing_else_can_be() -> None:
    def f(x: Any) -> Any:
        return types.SimpleNamespace(a=1) if x == 1 else gold(x)

    text = "import types\n" + TEXT
    asked = made(Runs(f), text.replace("f(1) == 3", "f(1) == types.SimpleNamespace(a=1)"))
    assert asked.weak == ("t.py::test_sum", "t.py::test_sign", "t.py::test_refused")
    assert "_seen(3, f(1) == types.SimpleNamespace(a=1))" in asked.files["t.py"]
    asked = made(Runs(f), text.replace("f(1) == 3", "f(1) == f(1)"))
    assert asked.telling == ("t.py::test_sum",)
    assert "assert _seen(3, f(1))\n" in asked.files["t.py"]


def test_what_only_gold_gave_is_asked_for_where_the_test_tells_nothing_else() -> None:
    both = TEXT.replace("assert f(1) == 3", "assert f(1) == 3\n    assert f(4) == f(4)")
    asked = made(runs := Runs(), both)
    assert "_seen(4, f(4) == f(4))" in asked.files["t.py"]
    assert asked.wrong(Runs(lambda x: 7 if x == 4 else gold(x))(asked.files, ["t.py"])) == ""
    alone = made(runs, TEXT.replace("f(1) == 3", "f(1) == f(1)"))
    assert "test_sum" in alone.wrong(
        Runs(lambda x: 7 if x == 1 else gold(x))(alone.files, ["t.py"])
    )
    other = made(runs, TEXT.replace("f(2) == 4", "f(2) == f(2)"))
    assert other.wrong(Runs(lambda x: 7 if x == 2 else gold(x))(other.files, ["t.py"])) == ""


def test_files_are_asked_together_and_one_that_is_no_python_is_left_out() -> None:
    texts = {
        "b.py": TEXT,
        "a.py": TEXT.replace("== 3", "== 3 + 0"),
        "c.py": "def test_sum(:\n",
        "d.py": TEXT,
    }
    runs = Runs()
    asked = exam.make(
        texts,
        [f"{f}::test_sum" for f in texts if f != "d.py"],
        ["e.py::test_other"],
        runs,
        broken,
        9.0,
    )
    assert sorted(asked.files) == ["a.py", "b.py"]
    assert (asked.telling, asked.bare) == (
        ("b.py::test_sum", "a.py::test_sum"),
        ("c.py::test_sum",),
    )
    assert [c.number for c in asked.claims] == [0, 1]
    assert asked.wrong(runs(asked.files, ["a.py", "b.py"])) == ""


def test_a_claim_that_is_never_made_is_not_asked() -> None:
    text = TEXT.replace(
        "assert f(1) == 3", "assert f(1) == 3\n    if f(1) == 9:\n        assert f(1) == 9"
    )
    asked = made(runs := Runs(), text)
    assert "assert f(1) == 9" in asked.files["t.py"]
    assert len(asked.claims) == 4
    assert asked.wrong(runs(asked.files, ["t.py"])) == ""


def test_what_gold_refuses_with_other_words_each_time_is_asked_no_more() -> None:
    turns = itertools.count()

    def refuses(x: Any) -> int:
        if x == "x":
            raise ValueError("no number" if next(turns) != 1 else "something")
        return gold(x)

    asked = made(Runs(refuses))
    assert asked.bare == ("t.py::test_nothing", "t.py::test_refused")
    assert "t.py::test_refused" not in asked.tests
    assert all(claim.kind != "raises" for claim in asked.claims)
    assert "pytest.raises(ValueError, match='no')" in asked.files["t.py"]
    assert asked.wrong(Runs()(asked.files, ["t.py"])) == ""


def test_a_run_that_is_in_doubt_makes_no_exam() -> None:
    class Doubtful(Runs):
        def __call__(self, files: Mapping[str, str], tests: Sequence[str]) -> test_run.TestResults:
            return super().__call__(files, tests).model_copy(update={"doubt": "ended early"})

    asked = made(runs := Doubtful())
    assert asked == Exam(bare=tuple(WANTED), blind=True)
    # All known, all that is withheld, tests left whole, truths; the same without the test that
    # passed before; nothing.
    assert [sum("def test_other" in text for text in runs.texts[at:][:4]) for at in (0, 4)] == [
        4,
        0,
    ]
    assert len(runs.texts) == 8


def test_a_claim_that_holds_only_now_and_then_is_first_asked_as_a_truth_and_then_not_at_all() -> (
    None
):
    turns = itertools.count()

    def drifts(x: Any) -> Any:
        return next(turns) % 2 if x == -9 else gold(x)

    def drawn(x: Any) -> Any:
        return next(turns) if x == 1 else gold(x)

    assert (
        "t.py::test_sign"
        in made(Runs(drifts), TEXT.replace("assert f(-9)", "assert f(-9) or True")).weak
    )
    assert (
        "t.py::test_sign"
        in made(Runs(drifts), TEXT.replace("assert f(-9)", "x = f(-9) + f(-9)\n    assert x")).weak
    )
    asked = made(Runs(drawn), TEXT.replace("f(1) == 3", "f(1) == f(1)"))
    assert asked.tests.keys() == {"t.py::test_sign", "t.py::test_refused", "t.py::test_other"}


def test_a_claim_that_is_asked_plainly_is_asked_of_what_is_empty_too() -> None:
    text = "def test_sum():\n    assert f(3) == 'right'\n"
    text += "def test_other():\n    for x in 0, 2:\n        assert f(x) == list(f(x))\n"
    asked = made(Runs(lambda x: "right" if x == 3 else list(range(x))), text, ["t.py::test_sum"])
    assert sorted(c.expected for c in asked.claims) == [("'right'",), ("True", "True")]


def many(prefix: str) -> str:
    return "".join(f"def test_{prefix}{n}():\n    assert f({n}) == {n + 2}\n" for n in range(20))


def drawn(seed: str, allowed: float = 9.0, took: float = 0.0) -> list[str]:
    texts = {"near.py": TEXT + many("n"), "far.py": many("f"), "farther.py": many("g")}
    base = [
        f"{file}::{line[4:-3]}"
        for file, text in texts.items()
        for line in text.splitlines()
        if line.startswith("def test") and line[4:-3] not in ("test_sum", "test_nothing")
    ]
    runs = Runs(took=dict.fromkeys(base, took))
    wanted = ["near.py::test_sum"]
    return sorted(
        set(exam.make(texts, wanted, base, runs, broken, allowed, seed).tests) - set(wanted)
    )


def test_tests_of_the_same_files_and_of_others_are_asked_besides() -> None:
    asked = drawn("a task")
    files = [test.partition("::")[0] for test in asked]
    assert files.count("near.py") == files.count("far.py") + files.count("farther.py") == 6


def test_which_tests_are_asked_besides_is_a_tasks_own_and_the_same_each_time() -> None:
    assert drawn("a task") == drawn("a task")
    assert len({tuple(drawn(f"task {n}")) for n in range(5)}) > 1


def test_tests_besides_are_asked_as_far_as_their_seconds_go() -> None:
    near = drawn("a task", allowed=1.0, took=0.3)
    assert [test.partition("::")[0] for test in near] == ["near.py"] * 3
    assert drawn("a task", allowed=0.1, took=0.3) == []
