"""Scorers of texts: what is right, what is not, and that no answer stops them."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api import plugins
from recreate.api.errors import BadInput
from recreate.api.types import Task, Trace
from recreate.domains.exploits import text_exploits
from recreate.domains.rows import scorers
from recreate.domains.rows.domain import domain
from recreate.domains.rows.scorers import (
    Open,
    RowTask,
    Scored,
    Scorer,
    TextScorer,
    find_scorer,
    texts_of,
)
from recreate.domains.rows.settings import ScorerSettings
from recreate.sandboxes import choose

S = ScorerSettings()
WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
RIGHT = {
    "exact": "Paris",
    "numeric": "42",
    "contains": "Paris",
}


def text_scorer(kind: str) -> TextScorer:
    scorer = find_scorer(kind)
    assert isinstance(scorer, TextScorer)
    return scorer


def score(kind: str, answer: str, value: object, settings: ScorerSettings) -> Scored:
    return text_scorer(kind).compare_all(answer, value, settings)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The answer is 1,234.50 dollars", "1234.5"),
        ("$1,000", "1000"),
        ("x = -5.", "-5"),
        ("\u22125", "-5"),
        ("3/4", "0.75"),
        ("3/4.", "0.75"),
        ("1 1/2", "1.5"),
        (r"\frac{3}{4}", "0.75"),
        (r"\boxed{42}", "42"),
        ("1e3", "1000"),
        ("50%", "0.5"),
        ("50%", "50"),
        ("0.5", "50%"),
        ("12%", "12%"),
        ("#### 42", "42"),
        ("on 2024/01/02", "2"),
        (".5", "0.5"),
        ("first 7, then 8", "8"),
        ("10-5", "5"),
        ("1234567", "1,234,567"),
        ("1,000.5", "1000.5"),
        ("1.000,5", "1000.5"),
        ("1 000,5", "1000.5"),
        ("1\u00a0000,5", "1000.5"),
        ("1'000.5", "1000.5"),
        ("1_000", "1000"),
        (r"12\,345", "12345"),
        ("1{,}000", "1000"),
        ("12,34,567", "1234567"),
        ("1.234.567", "1234567"),
        ("= 1,5", "1.5"),
        ("0,125", "0.125"),
        ("1234,5 m", "1234.5"),
        ("it is 1,234, I think", "1234"),
        ("1e-3", "0.001"),
        ("1.5\u00d710^3", "1500"),
        ("1.5 x 10^3", "1500"),
        (r"1.5 \times 10^{3}", "1500"),
        ("1.5\u00d710\u207b\u00b3", "0.0015"),
        ("10^3", "1000"),
        ("\u00bd", "0.5"),
        ("-1\u00bd", "-1.5"),
        (r"\frac12", "0.5"),
        (r"-\frac{1}{2}", "-0.5"),
        (r"3\frac12", "3.5"),
        (r"$\frac{1}{2}$", "0.5"),
        ("1/2 cup", "0.5"),
        ("\u20137", "-7"),
        ("\u22127", "-7"),
        ("-\u00a05", "-5"),
        ("2\u20137", "7"),
        ("99.9\u202f%", "0.999"),
        ("\u0661\u0662", "12"),
        ("\uff11\uff12", "12"),
        ("10k", "10000"),
        ("2 million", "2000000"),
        ("5 m^2", "5"),
        ("5 m\u00b2", "5"),
        ("H2O is 18", "18"),
        ("1200 USD", "1200"),
        ("\u00a33.50.", "3.5"),
        ("3.5\u20ac", "3.5"),
        ("1e400", "1e400"),
        ("<think>13</think>12", "12"),
        ("5", "5 apples"),
        ("72", "so 48 + 24 = 72\n#### 72"),
        ("72", r"48 + 24 = \boxed{72}"),
    ],
)
def test_the_last_number_of_an_answer_is_read_as_people_write_numbers(
    answer: str, expected: str
) -> None:
    assert score("numeric", answer, expected, S).score == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        "nan",
        "inf",
        "1e999",
        "9" * 1_000_000,
        "x5",
        "v1.2.5",
        "1/0",
        "5 and then 6",
        "-5",
        "1,5",
        "7:5",
        "0x5",
        "five",
        "5k",
        "5 million",
        "1.2\u00d710^5",
        r"-\frac{5}{1}",
    ],
)
def test_what_is_no_number_or_another_one_is_wrong(answer: str) -> None:
    assert score("numeric", answer, "5", S).score == 0.0


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_a_number_is_right_however_it_is_written(number: int, places: int) -> None:
    value = Fraction(number, 10**places)
    for spelled in (
        f"{number / 10**places:.{places}f}",
        f"so it is {number / 10**places:,.{places}f}.",
        f"{value}",
    ):
        assert (
            text_scorer("numeric").compare(spelled, f"{number / 10**places:.{places}f}", S).score
            == 1.0
        ), spelled


@given(st.floats(-1e9, 1e9), st.floats(0.001, 1e6))
def test_a_number_that_is_further_off_than_the_tolerance_is_wrong(
    number: float, off: float
) -> None:
    settings = ScorerSettings(tolerance=1e-9)
    far = number + off * max(1.0, abs(number))
    assert text_scorer("numeric").compare(f"{far:.10f}", f"{number:.10f}", settings).score == 0.0
    assert (
        text_scorer("numeric")
        .compare(f"{far:.10f}", f"{number:.10f}", ScorerSettings(tolerance=off * 1.01))
        .score
        == 1.0
    )


@given(WORDS)
def test_a_text_equals_itself_and_blank_around_it_does_not_count(text: str) -> None:
    if text.strip():
        assert score("exact", f"\n {text}\t\r\n", text, S).score == 1.0
        assert score("exact", text + " and more", text, S).score == 0.0


def test_capitals_count_unless_they_are_ignored() -> None:
    assert score("exact", "paris", "Paris", S).score == 0.0
    assert score("exact", "paris", "Paris", ScorerSettings(ignore_case=True)).score == 1.0
    assert score("exact", "Cafe\u0301", "Caf\u00e9", S).score == 1.0


def test_a_short_answer_may_hold_the_text_as_whole_words() -> None:
    assert score("contains", "It is PARIS.", "Paris", S).score == 1.0
    assert score("contains", "A comparison", "Paris", S).score == 0.0
    assert score("contains", "Paris " * 100, "Paris", S).score == 0.0
    assert score("contains", "Paris " * 100, "Paris", ScorerSettings(longest=1000)).score == 1.0


def test_the_best_of_several_right_answers_counts() -> None:
    assert score("exact", "two", ["one", "two"], S).score == 1.0
    squad = {"text": ["the red barn", "red barn"], "answer_start": [1, 2]}
    assert score("exact", "red barn", squad, S).score == 1.0
    assert texts_of([True, 3, 2.0, 2.5]) == ["true", "3", "2", "2.5"]


@pytest.mark.parametrize(
    ("kind", "cell", "why"),
    [
        ("numeric", "many", "no number"),
        ("numeric", "1,5", "1,5 is read as 1.5"),
        ("numeric", ["3", "4 or 5"], "4 or 5 is read as 5, and has 2 numbers"),
        ("exact", None, "is empty"),
        ("exact", {"a": 1}, "neither a text nor a number"),
        ("exact", [], "an empty list"),
        ("contains", " ", "is blank"),
    ],
)
def test_a_cell_that_a_scorer_cannot_take_says_why(kind: str, cell: object, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        text_scorer(kind).read_expected(cell)


@given(st.sampled_from(sorted(RIGHT)), st.text(max_size=200))
def test_no_answer_stops_a_scorer(kind: str, answer: str) -> None:
    found = score(kind, answer, RIGHT[kind], S)
    assert 0.0 <= found.score <= 1.0
    assert found.why


@pytest.mark.parametrize("kind", sorted(RIGHT))
def test_answers_that_fit_every_question_are_not_right(kind: str) -> None:
    task = Task(
        id="a:b:c",
        domain="a",
        prompt="Which town is the capital of France?",
        split="train",
        group="g",
    )
    for name, answer in text_exploits(task).items():
        assert score(kind, answer, RIGHT[kind], S).score < 0.8, name


class Palindrome(Scorer):
    """A stranger's scorer: what reads the same from both ends is right."""

    name = "palindrome"
    needs_answer = False

    def describe_answer(self) -> str:
        return "It reads the same from both ends."

    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        text = trace.answer.strip()
        return Scored(float(text == text[::-1]), "It reads the same, or does not.")


def test_a_package_brings_a_scorer(monkeypatch: pytest.MonkeyPatch) -> None:
    brought = {"palindrome": f"{__name__}:Palindrome"}
    monkeypatch.setitem(plugins.BUILT_IN, "scorer", plugins.BUILT_IN["scorer"] | brought)
    words = domain(
        [{"prompt": f"A palindrome of {n} letters?"} for n in range(5)], score="palindrome"
    )
    task = words.tasks()[0]
    assert task.prompt.endswith("It reads the same from both ends.")
    trace = Trace(attempt="a", task=task.id, scaffold="", model="", answer="level")
    assert words.grade(task, trace, choose()).passed
    assert not words.grade(task, trace.model_copy(update={"answer": "lever"}), choose()).passed


def test_a_scorer_whose_plug_in_is_not_here_is_named_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scorers, "lacking", lambda kind, name: "judge" if name == "jury" else "")
    with pytest.raises(BadInput, match="is of the plug-in judge, which is not installed"):
        find_scorer("jury:RUBRIC.md")
    with pytest.raises(BadInput, match="'guess' is no scorer"):
        find_scorer("guess")
