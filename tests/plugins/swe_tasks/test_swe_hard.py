"""Hard injected bugs: what each kind does to a text, which of them count as hard, and that recipes
give them again."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.domains.python_env import read_environment
from recreate.domains.validate import validate
from recreate.plugins.swe import Swe, hard_mutation
from recreate.plugins.swe.case import case_of
from recreate.plugins.swe.facts import INJECTED, Injected, Part, Releases
from recreate.plugins.swe.hard_mutation import (
    beyond_one_token,
    differing_statements,
    distant,
    inversions,
    mutated,
    undone,
    unmarked,
)
from recreate.plugins.swe.mutation import Source
from recreate.plugins.swe.test_run import TestResults as Results
from recreate.plugins.swe.test_run import TrialRun, run_each
from recreate.plugins.swe_tasks.generate import (
    _anywhere,
    _Candidate,
    _id,
    _Noticed,
    _origin,
    _Trial,
    joined,
    likely,
    steady,
)
from tests.plugins.swe.swe_project import FILES, SUMS, Project, write

STOCK = '''"""Stock."""


class Shelf(dict):
    limit = 3

    def __init__(self, *items):
        super().__init__(items)
        self.taken = 0

    def get(self, key, default=None):
        """Blanks around a key do not count."""
        name = key.strip()
        return super().get(name, default)

    @property
    def total(self):
        return sum(self.values())

    def room(self):
        """How much more fits."""
        used = sum(self.values())
        return self.limit - used


def _placed(shelf, count, name):
    if count < 0:
        return None
    shelf[name] = shelf.get(name, 0) + count
    return shelf


def put(shelf, name, count):
    return _placed(shelf, count, name)


def move(source, target, name):
    _placed(target, source.pop(name, 0), name)
    if source.taken < 0:
        return None
    return target


def label(name, width, mark):
    text = mark + name.upper()
    return text[:width]
'''


def _bug(*parts: tuple[str, str, int], text: str = STOCK) -> str:
    several = [Part(file="s.py", function=f, operator=o, occurrence=n) for f, o, n in parts]
    found = mutated({"s.py": text}, several)
    assert found is not None
    ast.parse(found["s.py"])
    return found["s.py"]


# --- what each kind does
# ----------------------------------------------------------------------------------


def test_a_removed_override_leaves_the_inherited_method_and_everything_else() -> None:
    text = _bug(("Shelf.get", "override", 0))
    space: dict[str, type] = {}
    exec(text, space)
    assert space["Shelf"](("a", 1)).get(" a ") is None
    assert space["Shelf"](("a", 1)).get("a") == 1
    assert text == STOCK.replace(
        STOCK[STOCK.index("\n    def get(") : STOCK.index("\n    @property")], ""
    )


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("name", ["total", "room"])
def test_a_kept_value_is_right_once_and_stale_after_a_change(form: int, name: str) -> None:
    space: dict[str, type] = {}
    exec(_bug((f"Shelf.{name}", "kept", form)), space)
    shelf = space["Shelf"](("a", 1))

    def value() -> object:
        found = getattr(shelf, name)
        return found() if callable(found) else found

    first = value()
    assert first == {"total": 1, "room": 2}[name]
    shelf["b"] = 1
    assert value() == first


def test_a_table_that_forgets_an_argument_answers_for_another_one() -> None:
    for number in range(6):
        space: dict[str, object] = {}
        exec(_bug(("label", "kept-by", number)), space)
        label = space["label"]
        assert callable(label)
        assert label("ab", 9, "-") == "-AB"
        other = [("xy", 9, "-"), ("ab", 1, "-"), ("ab", 9, "+")][number // 2]
        assert label(*other) == "-AB"
        assert label("cd", 8, "=") == "=CD"


def test_swapped_parameters_are_swapped_in_all_calls_but_one() -> None:
    found = list(hard_mutation.swappable({"s.py": Source(STOCK)}))
    both = next(parts for parts in found if parts[0].occurrence == 1 and parts[1].function == "put")
    text = (mutated({"s.py": STOCK}, both) or {})["s.py"]
    assert "def _placed(shelf, name, count):" in text
    assert "return _placed(shelf, name, count)" in text
    assert "_placed(target, source.pop(name, 0), name)" in text
    assert {parts[0].function for parts in found} == {"_placed"}


def test_the_same_mistake_is_made_in_two_functions() -> None:
    found = list(hard_mutation.repeatable({"s.py": Source(STOCK)}, likely))
    assert all(
        one.function != other.function and one.operator == other.operator for one, other in found
    )
    boundary = next(parts for parts in found if parts[0].operator == "boundary")
    text = (mutated({"s.py": STOCK}, boundary) or {})["s.py"]
    assert "if count <= 0:" in text
    assert "if source.taken <= 0:" in text


def test_only_methods_that_a_class_inherits_are_removed() -> None:
    removed = {parts[0].function for parts in hard_mutation.removable({"s.py": Source(STOCK)})}
    assert removed == {"Shelf.get"}
    own = "class A:\n    x = 1\n    def f(self):\n        return 1\n\n"
    own += "class B(A):\n    x = 2\n    def f(self):\n        return 2\n"
    assert {parts[0].function for parts in hard_mutation.removable({"s.py": Source(own)})} == {
        "B.f"
    }


def test_a_hunk_of_an_earlier_difference_is_taken_back_where_it_still_stands() -> None:
    before = "def a():\n    return 1\n\n\ndef b(x):\n    return x\n"
    after = (
        "def a():\n    return 2\n\n\ndef b(x):\n    if x is None:\n        return 0\n    return x\n"
    )
    later = (
        "import os\n\n\n" + after.replace("return 2", "return 3") + "\n\ndef c():\n    return os\n"
    )
    source = Source(later)
    assert undone(source, before, after, 1) is None  # the line has changed since
    edit = undone(source, before, after, 2)
    assert edit is not None
    assert source.edited(edit) == later.replace("    if x is None:\n        return 0\n", "")
    assert undone(source, before, after, 0) is None
    assert undone(source, before, after, 3) is None
    twice = Source(later + after)
    assert undone(twice, before, after, 2) is None  # which of the two?


def test_parts_that_overlap_or_are_not_there_give_no_bug() -> None:
    part = Part(file="s.py", function="label", operator="kept-by", occurrence=0)
    assert mutated({"s.py": STOCK}, [part, part]) is None
    assert mutated({"s.py": STOCK}, [part.model_copy(update={"occurrence": 99})]) is None
    assert mutated({"s.py": STOCK}, [part.model_copy(update={"file": "t.py"})]) is None
    assert mutated({"s.py": "def ("}, [part]) is None
    assert mutated({"s.py": STOCK}, [part.model_copy(update={"operator": "undone"})]) is None


# --- what counts as hard
# ----------------------------------------------------------------------------------


def test_a_change_of_one_token_is_not_hard_and_a_change_of_two_statements_is() -> None:
    one, two = (
        {"s.py": _bug(("_placed", "boundary", 0))},
        _bug(("_placed", "boundary", 0), ("move", "boundary", 0)),
    )
    assert differing_statements(STOCK, one["s.py"]) == 1
    assert not beyond_one_token({"s.py": STOCK}, one)
    assert beyond_one_token({"s.py": STOCK}, {"s.py": two})
    assert not beyond_one_token({"s.py": STOCK}, {"s.py": _bug(("_placed", "parameters", 1))})


def test_comments_layout_and_docstrings_are_no_statements() -> None:
    text = STOCK.replace('"""How much more fits."""', '"""Otherwise."""').replace(
        "limit = 3", "limit  =  3  # three\n"
    )
    assert differing_statements(STOCK, text) == 0
    assert differing_statements("if a:\n    b\nc\n", "if a:\n    b\n    c\n") == 1


def test_statements_of_several_files_count_together() -> None:
    gold = {"a.py": "x = 1\n", "b.py": "y = 1\n"}
    assert beyond_one_token(gold, {"a.py": "x = 2\n", "b.py": "y = 2\n"})
    assert not beyond_one_token(gold, {"a.py": "x = 2 + 3\n"})


@pytest.mark.parametrize(
    "line", ["# kept", "my_cache = {}", "STALE = 1", "import functools as memoize"]
)
def test_a_mutant_with_a_telling_word_or_a_comment_of_its_own_is_refused(line: str) -> None:
    assert not unmarked({"s.py": "x = 1\n"}, {"s.py": f"x = 1\n{line}\n"})
    assert unmarked({"s.py": f"{line}\n"}, {"s.py": f"{line}\nx = 1\n"})


def test_no_form_of_any_kind_leaves_a_telling_word() -> None:
    source = Source(STOCK)
    for parts in [
        *hard_mutation.removable({"s.py": source}),
        *hard_mutation.keepable({"s.py": source}),
    ]:
        text = mutated({"s.py": STOCK}, parts)
        assert text is not None
        assert unmarked({"s.py": STOCK}, text), parts
        assert beyond_one_token({"s.py": STOCK}, text), parts


def test_a_failure_is_distant_when_no_test_names_what_is_changed() -> None:
    parts = [Part(file="s.py", function="Shelf.room", operator="kept", occurrence=0)]
    assert distant(parts, ["def test(): assert put(Shelf(), 'a', 1)"])
    assert not distant(parts, ["def test(): pass", "def test(): assert Shelf().room() == 3"])
    assert distant(parts, ["def test_rooms(): pass"])


def test_the_inversions_of_a_bug_are_those_in_what_it_brought() -> None:
    text = _bug(("Shelf.room", "kept", 1))
    found = {text.split("\n")[m.line - 1].strip() for m in inversions(STOCK, text)}
    assert "if self._room is not None:" in found
    assert not any("count" in line for line in found)


# --- tasks of them
# ----------------------------------------------------------------------------------------

TEST_STOCK = """
from calm.stock import Shelf, label, move, put


def test_two_puts():
    shelf = Shelf()
    put(shelf, "a", 1)
    put(shelf, " a", 0)
    assert dict(shelf) == {"a": 1, " a": 1}


def test_put_and_count():
    shelf = Shelf()
    assert shelf.total == 0
    put(shelf, "a", 2)
    assert sum(shelf.values()) == 2
    assert [shelf.total] == [2]


def test_move():
    one, two = Shelf(), Shelf()
    put(one, "a", 2)
    assert dict(move(one, two, "a")) == {"a": 2}


def test_label():
    assert label("ab", 9, "-") == "-AB"
"""


@pytest.fixture
def stock(project: Project, tmp_path: Path) -> Path:
    files = {"calm/__init__.py": "", "calm/stock.py": STOCK, "tests/test_stock.py": TEST_STOCK}
    return write(tmp_path / "stock", {**files, "calm/sums.py": FILES["calm/sums.py"]})


@pytest.mark.slow
def test_hard_tasks_are_sound_and_the_same_again(
    project: Project, stock: Path, tmp_path: Path
) -> None:
    file, again = tmp_path / "a" / INJECTED, tmp_path / "b" / INJECTED
    made = project.make(repo=stock, file=file, n=1, hard=True).tasks
    assert [t.digest for t in project.make(repo=stock, file=again, n=1, hard=True).tasks] == [
        t.digest for t in made
    ]
    assert made
    swe = Swe(file, env=project.env, say=lambda _: None)
    for task in swe.tasks():
        assert validate(swe, task, project.backend).ok
        case, bug = case_of(task, lambda _: None), Injected.model_validate(task.facts["bug"])
        texts = {f: (case.graded() / f).read_text() for f in case.gold()}
        assert beyond_one_token({f: t or "" for f, t in case.gold().items()}, texts)
        assert bug.file not in task.prompt
        # the place of the bug can be told, even where a function is gone
        assert set(swe.exploits(task))


@pytest.mark.slow
def test_a_part_that_only_hidden_tests_notice_is_refused_and_what_a_part_or_a_token_mends(
    project: Project, stock: Path, tmp_path: Path
) -> None:
    wanted = read_environment({})
    origin, pristine = _origin(
        None, None, stock, wanted, ("tests",), (".",), tmp_path / INJECTED, lambda _: None
    )
    trial = _Trial(origin, pristine, project.env, project.backend, lambda _: None)
    tests = {
        name: f"tests/test_stock.py::{name}"
        for name in ("test_two_puts", "test_put_and_count", "test_label")
    }

    def candidate(*parts: tuple[str, str, int]) -> tuple[_Candidate, _Noticed]:
        several = tuple(
            Part(file="calm/stock.py", function=f, operator=o, occurrence=n) for f, o, n in parts
        )
        text = mutated({"calm/stock.py": STOCK}, several)
        assert text is not None
        one = _Candidate("repeated", several, text, frozenset(trial.passing))
        run = trial._each([trial._trial(text, frozenset(), 0)])[0]
        failing = tuple(t for t in run.outcomes if run.outcomes[t] == "failed")
        return one, _Noticed(failing, {t: run.messages[t] for t in failing})

    kept, label = ("Shelf.total", "kept", 0), ("label", "slice", 0)
    both, noticed = candidate(kept, label)
    assert noticed.failing == (tests["test_put_and_count"],)  # `[:width]` gone is noticed by nobody
    assert trial._is_shown_publicly(both, noticed)
    assert not trial._stays(both, noticed)  # without the first part all pass
    hidden, noticed = candidate(kept, ("label", "called", 0))
    assert noticed.failing == (tests["test_put_and_count"], tests["test_label"])
    assert not trial._is_shown_publicly(hidden, noticed)
    assert trial._stays(hidden, noticed)
    single, noticed = candidate(("Shelf.get", "override", 0))
    assert trial._stays(single, noticed)
    assert trial._keep_independent({single: noticed}) == {single: noticed}
    assert not trial._keep_independent({single: _Noticed((tests["test_label"],), {})})


@pytest.mark.slow
def test_hard_and_other_tasks_of_one_source_stand_side_by_side(
    project: Project, stock: Path, tmp_path: Path
) -> None:
    file = tmp_path / INJECTED
    easy = project.make(repo=stock, file=file, n=1).tasks
    hard = project.make(repo=stock, file=file, n=1, hard=True).tasks
    # nor is a group of both split
    assert {t.id for t in Swe(file).tasks()} == {t.id for t in (*easy, *hard)}
    more = [json.loads(line).get("more") for line in file.read_text().splitlines()]
    assert None in more  # a bug of one part is written as ever


@pytest.mark.slow
def test_a_hunk_of_a_repository_cannot_be_undone(project: Project, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no releases"):
        project.make(file=tmp_path / INJECTED, undo=[("1.0", "1.1")])


# --- many runs in one sandbox
# -----------------------------------------------------------------------------


@pytest.mark.slow
def test_runs_that_share_a_sandbox_see_their_own_change_only_and_one_that_hangs_ends(
    project: Project,
) -> None:
    case = case_of(project.task, lambda _: None)
    high = "tests/test_sums.py::test_high_is_high"
    same_size = (
        SUMS.replace("value > high", "value < high"),
        SUMS.replace("return high", "return  low"),
    )
    assert len(same_size[0]) == len(same_size[1])
    hangs = SUMS.replace("        return low\n", "        while True:\n            pass\n").replace(
        "value < low", "True"
    )
    changed = [SUMS, same_size[0], SUMS, same_size[1], hangs, SUMS]
    runs = [TrialRun({"calm/sums.py": text}, frozenset({high}), 0, 1.0) for text in changed]
    runs += [
        TrialRun({"calm/sums.py": None}, frozenset(), 0, 9.0),
        TrialRun({}, frozenset(), 1, 9.0),
    ]
    found = run_each(project.backend, case.graded(), project.env, case.suite, runs)
    outcomes = [found[n].outcomes.get(high) for n in (0, 1, 2, 3, 5)]
    assert outcomes == ["passed", "failed", "passed", "failed", "passed"]
    assert found[4].doubt
    assert found[1].messages[high].startswith("assert 4 == 3")
    assert found[6].uncollected == ("tests/test_sums.py",)
    # it ends at the first
    assert [list(r.outcomes.values()).count("failed") for r in found[-1:]] == [1]
    assert all(r.cpu_seconds > 0 for r in found)


def test_what_a_failure_says_is_kept_without_where_python_is_installed() -> None:
    message = "None = f(<module 'x' from '/home/me/.py/3.11/lib/python3.11/x.py'>)"
    assert _anywhere(message) == "None = f(<module 'x' from '/lib/python3.11/x.py'>)"
    assert _anywhere("a/b == /work/c") == "a/b == /work/c"


def test_what_a_failure_says_is_kept_without_the_numbers_that_waver() -> None:
    first = "peak memory too high: 4946725 bytes assert 4946725 < 32768 after 0.25 s at 0x7fa1"
    again = "peak memory too high: 4946893 bytes assert 4946893 < 32768 after 0.3 s at 0x7fb2"
    assert (
        steady(first, again)
        == "peak memory too high: ... bytes assert ... < 32768 after ... s at 0x7fa1"
    )
    assert steady(first, first) == first
    assert steady("assert 4 == 3", "assert 'x' == 3") == "assert 4 == 3"


def test_two_bugs_of_one_source_never_have_the_same_id(tmp_path: Path) -> None:
    text = {
        "calm/stock.py": STOCK,
        "calm/sums.py": SUMS,
        "calm/old/sums.py": SUMS,
        "tests/test_sums.py": "",
    }
    write(tmp_path, text)

    def id(*parts: tuple[str, str, str, int], before: str = "") -> str:
        several = tuple(
            Part(file=f, function=name, operator=o, occurrence=n) for f, name, o, n in parts
        )
        sha = {"before_sha256": before, "after_sha256": "b"}
        earlier = Releases(before=before, after="2.0", **sha) if before else None
        return _id(
            tmp_path,
            _Candidate(
                several[0].operator, several, {f: text[f] for f, *_ in parts}, frozenset(), earlier
            ),
        )

    put, move, label = (
        ("calm/stock.py", name, "boundary", 0) for name in ("_placed", "move", "label")
    )
    assert id(put) == "stock._placed-boundary-0"
    assert id(put, move).startswith("stock._placed-boundary-0-and-1-")
    assert id(put, move) == id(put, move) != id(put, label)
    assert id(put, before="1.0") != id(put, before="1.5")
    new, old = ((f"calm/{where}sums.py", "clamp", "compare", 0) for where in ("", "old/"))
    assert id(new) != id(old)


def test_the_shipped_hard_tasks_are_many_and_nothing_small_mends_them() -> None:
    tasks = Swe(paths.shipped("benchmarks") / "swe").tasks()
    hard = [
        t
        for t in tasks
        if t.facts["kind"] == "injected" and Injected.model_validate(t.facts["bug"]).hard
    ]
    assert len(hard) >= 30
    assert len({t.facts["origin"]["package"] for t in hard}) >= 8
    assert {t.split for t in hard} == {"train", "validation", "test"}


# --- bugs that are judged together
# ------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_bugs_in_other_lines_join_and_those_that_touch_do_not(
    numbers: list[int], data: st.DataObject
) -> None:
    lines = [f"{n}\n" for n in numbers]
    places = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=3))
    others = [[*lines[:at], f"{chr(97 + n)}\n", *lines[at + 1 :]] for n, at in enumerate(places)]
    found = joined("".join(lines), ["".join(each) for each in others])
    if len(set(places)) < len(places):
        assert found is None
        return
    for n, at in enumerate(places):
        lines[at] = f"{chr(97 + n)}\n"
    assert found == "".join(lines)


# as each alone: the suite is run once for both
@pytest.mark.parametrize(
    ("outcomes", "asked"),
    [
        ({"a": "failed", "b": "failed", "c": "passed"}, 1),
        ({"a": "failed", "b": "failed", "c": "failed"}, 3),
        ({"a": "failed", "b": "passed", "c": "passed"}, 3),
    ],
)
def test_the_suite_is_run_once_for_several_bugs_and_with_each_only_where_it_says_otherwise(
    outcomes: dict[str, str], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = _Trial.__new__(_Trial)
    trial.passing, trial._took, trial._cpu = frozenset("abc"), {}, 1.0
    trial._modules = {"m.py": Source("x = 1\ny = 2\n")}
    texts, seen = {"a": "x = 0\ny = 2\n", "b": "x = 1\ny = 0\n"}, list[str]()
    alone = {
        "a": {"a": "failed", "b": "passed", "c": "passed"},
        "b": {"a": "passed", "b": "failed", "c": "failed"},
    }

    def each(runs: Sequence[TrialRun]) -> list[Results]:
        told = [str(run.files["m.py"]) for run in runs]
        seen.extend(told)
        which = [
            outcomes if t == "x = 0\ny = 0\n" else alone["a" if t == texts["a"] else "b"]
            for t in told
        ]
        return [
            Results(outcomes=o, messages={t: f"assert {t}" for t in o if o[t] == "failed"})
            for o in which
        ]

    monkeypatch.setattr(trial, "_each", each)
    part = Part(file="m.py", function="f", operator="o", occurrence=0)
    found = {
        _Candidate("o", (part,), {"m.py": text}, frozenset(t)): _Noticed((t,), {t: f"assert {t}"})
        for t, text in texts.items()
    }
    agreed = trial._agreed(found)
    assert len(seen) == asked
    assert [noticed.failing for noticed in agreed.values()] == [("a",), ("b",)][
        : 2 if asked == 1 else 1
    ]
