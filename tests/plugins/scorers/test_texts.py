"""Words in common, patterns, schemas: what is right, and that no answer stops them."""

from __future__ import annotations

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recreate.api.types import Task
from recreate.domains.exploits import text_exploits
from recreate.domains.rows.scorers import Scored, TextScorer, find_scorer
from recreate.domains.rows.settings import ScorerSettings

S = ScorerSettings()
RIGHT = {
    "regex": r"^\d{4}$",
    "f1": "the old red barn",
    "json-schema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
}


def text_scorer(kind: str) -> TextScorer:
    scorer = find_scorer(kind)
    assert isinstance(scorer, TextScorer)
    return scorer


def score(kind: str, answer: str, value: object, settings: ScorerSettings) -> Scored:
    return text_scorer(kind).compare_all(answer, value, settings)


def _squad(prediction: str, truth: str) -> float:
    """`f1_score` of SQuAD 1.1's evaluate-v1.1.py."""

    def normal(text: str) -> list[str]:
        kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    found, right = normal(prediction), normal(truth)
    same = sum((Counter(found) & Counter(right)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(found), same / len(right)
    return 2 * precision * recall / (precision + recall)


@given(
    st.lists(st.sampled_from(["the", "A", "cat", "sat,", "on", "mat.", "x-y"]), max_size=8),
    st.data(),
)
def test_f1_is_that_of_squads_own_script(words: list[str], data: st.DataObject) -> None:
    truth = " ".join(
        data.draw(
            st.lists(st.sampled_from(["the", "cat", "sat", "mat", "dog"]), min_size=1, max_size=8)
        )
    )
    answer = " ".join(words)
    if answer.strip() and _squad(truth, truth):
        assert score("f1", answer, truth, S).score == pytest.approx(_squad(answer, truth))


def test_words_are_compared_with_the_best_of_several_right_answers() -> None:
    right = {"text": ["the red barn", "barn"], "answer_start": [1, 2]}
    assert score("f1", "red barn", right, S).score == 1.0


def test_a_pattern_that_would_take_for_ever_is_matched_at_once() -> None:
    assert score("regex", "a" * 50_000 + "b", r"^(a+)+$", S).score == 0.0
    assert score("regex", "in 1984", r"\b\d{4}$", S).score == 1.0


def test_an_answer_fits_its_schema() -> None:
    for answer, right in (
        ('{"a": 1}', 1.0),
        ('{"a": "1"}', 0.0),
        ("{}", 0.0),
        ("nope", 0.0),
        ("[" * 100_000, 0.0),
    ):
        assert score("json-schema", answer, RIGHT["json-schema"], S).score == right
    slow = {"type": "string", "pattern": "^(a+)+$"}
    assert score("json-schema", f'"{"a" * 50_000}b"', slow, S).score == 0.0
    deep = {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}
    assert score("json-schema", "[" * 60 + "]" * 60, deep, S).score == 1.0


@pytest.mark.parametrize(
    ("kind", "cell", "why"),
    [
        ("regex", "(?=x)", "no pattern of RE2"),
        ("f1", "the", "no words"),
        ("json-schema", "{", "no JSON schema"),
        ("json-schema", {"type": 5}, "no JSON schema"),
        ("json-schema", {"$ref": "https://x.example/s"}, "nothing is fetched"),
        ("json-schema", {"patternProperties": {"(a+)+$": {}}}, "patternProperties"),
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
