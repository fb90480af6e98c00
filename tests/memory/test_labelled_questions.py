"""The labelled retrieval set is whole, its labels follow from its rules, and it can tell embedders
apart."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from recreate.memory.store import ExperienceStore
from recreate.storage.redact import redact
from tests.lab.retrieval import HERE, KINDS, experiences, queries, questions, relevant


def test_the_labels_are_what_their_rules_say() -> None:
    known, asked = experiences(), queries()
    assert len(asked) >= 60
    assert {q.kind for q in asked} == set(KINDS)
    for query in asked:
        assert list(query.relevant) == relevant(query.grain, query.rule, known), query.text
        assert query.relevant, query.text
    assert len({q.text for q in asked}) == len({q.id for q in asked}) == len(asked)


@pytest.mark.slow
def test_there_are_hundreds_of_questions_of_four_kinds_and_half_of_each_is_kept_apart() -> None:
    asked = questions.questions()
    assert len(asked) >= 400
    assert asked == questions.questions()
    ids = {e.id for e in experiences()}
    for kind in questions.KINDS:
        own = [q for q in asked if q.kind == kind]
        assert len(own) >= 80
        assert 0.4 < sum(q.unseen for q in own) / len(own) < 0.6
        assert all(q.relevant and q.relevant <= ids for q in own)


def test_the_set_is_small_and_says_nothing_of_a_machine() -> None:
    for name in ("experiences.jsonl", "queries.jsonl", "paraphrases.jsonl"):
        text = (HERE / name).read_text("utf-8")
        assert len(text) < 500_000
        assert redact(text) == text
        assert not re.search(r"/(root|home|tmp|work|opt|Users)/", text)


@pytest.mark.slow
def test_keywords_alone_miss_what_was_said_in_other_words(tmp_path: Path) -> None:
    """What the set is for: were paraphrases found by keywords, it could not tell embedders
    apart."""
    from tests.lab.perf.retrieval import _recall, judged

    asked = queries()
    memory = ExperienceStore(tmp_path, "hashed")
    memory.add(experiences())
    found = judged(_recall(memory, "keywords"), asked).recall
    by_kind = {
        kind: statistics.fmean(r for r, q in zip(found, asked, strict=True) if q.kind == kind)
        for kind in KINDS
    }
    assert by_kind["lexical"] > 0.9
    assert by_kind["paraphrase"] < 0.4
