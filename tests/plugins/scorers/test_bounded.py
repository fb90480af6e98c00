"""Comparing with a schema ends, whatever the answer is: by its CPU time, or out of memory."""

from __future__ import annotations

import json
import threading

import pytest

from recreate.domains.rows import bounded
from recreate.domains.rows.settings import ScorerSettings
from tests.domains.test_row_bounded import score

BRIEF = ScorerSettings(seconds=0.2)
TREE = {"$defs": {"n": {"anyOf": [{"items": {"$ref": "#/$defs/n"}, "maxItems": 1, "minItems": 1},
                                  {"items": {"$ref": "#/$defs/n"}, "minItems": 1}]}},
        "$ref": "#/$defs/n"}  # fmt: skip
MARKS = "a" + "\u0300\u0316" * 3_000_000
"""Characters that take long to read."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "answer", "right"),
    [
        ("json-schema", "[" * 40 + "]" * 40, TREE),
        ("json-schema", json.dumps([{"a": n} for n in range(50_000)]), {"uniqueItems": True}),
        ("f1", MARKS, "Paris"),
    ],
)
def test_an_answer_that_takes_for_ever_to_compare_is_wrong(
    kind: str, answer: str, right: object
) -> None:
    found = score(kind, answer, right)
    assert found.score == 0.0
    if kind == "json-schema":
        assert "0.2 s of CPU time" in found.why


@pytest.mark.slow
def test_an_answer_that_takes_all_memory_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "_SERVE", bounded._SERVE.replace(
        "serve()", "serve.__globals__['MEMORY'] = 1 << 28; serve()"))  # fmt: skip
    bounded.end_idle()
    found = score("json-schema", "[" * 40 + "]" * 40, TREE, ScorerSettings(seconds=60))
    bounded.end_idle()
    assert found.score == 0.0
    assert "more memory" in found.why


@pytest.mark.slow
def test_comparisons_go_on_after_one_that_was_ended() -> None:
    schema = {"type": "object", "required": ["a"]}
    for answer, right in (('{"a": 1}', 1.0), ("{}", 0.0), ('{"a": "\\ud800"}', 1.0), ("no", 0.0)):
        assert score("json-schema", answer, schema).score == right
    assert bounded.compare("json-schema", "[" * 40 + "]" * 40, TREE, BRIEF) is None
    assert score("json-schema", '{"a": 1}', schema).score == 1.0
    long = "Paris " * 5_000
    assert score("exact", long, long).score == 1.0
    assert score("regex", long, "^(Paris ?)+$").score == 1.0


@pytest.mark.slow
def test_many_are_compared_at_once_each_by_a_process_of_its_own() -> None:
    found: dict[int, float] = {}

    def ask(number: int) -> None:
        schema = {"const": number}
        found[number] = score("json-schema", str(number), schema, ScorerSettings()).score

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(6), 1.0)
    assert bounded._idle.qsize() <= 6


def test_the_rows_own_fault_is_told_as_such() -> None:
    with pytest.raises(ValueError, match="cannot be followed"):
        score("json-schema", "1", {"$ref": "#/nowhere"})
    with pytest.raises(ValueError, match="no JSON schema"):
        bounded.compare("json-schema", "1", {"type": 5}, BRIEF)


@pytest.mark.parametrize("answer", ["1e999", "-1e999", "NaN", "1e400", "2" * 300])
def test_a_number_that_cannot_be_divided_is_the_answers_fault(answer: str) -> None:
    found = score("json-schema", answer, {"multipleOf": 0.5})
    assert found.score == float(answer.isdigit())
    assert found.why
