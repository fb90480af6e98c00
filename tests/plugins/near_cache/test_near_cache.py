"""Which requests a near question's reply may answer, and which it may not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recreate.api.ports import TaskQuestion
from recreate.api.types import Call, Message, Reply
from recreate.models.replies import ModelQuestion, SharedReplies
from recreate.plugins.near_cache.near_cache import (
    QUESTION_CHARS,
    Embedding,
    NearCache,
    framed,
    particulars,
)

ANGLES = {"How many cars?": 0.0, "How many cars are there?": 0.2, "How many trains?": 0.6}


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[math.cos(ANGLES.get(text, 2.0)), math.sin(ANGLES.get(text, 2.0))] for text in texts]


class Nothing:
    """No reply to the very same question is there, and none is kept."""

    key = ""

    def get(self, question: ModelQuestion) -> Reply | None:
        return None

    def keep(self, question: ModelQuestion, reply: Reply) -> None: ...


def cache(
    folder: Path, near: float = 0.95, held_out: Sequence[str] = (), by: str = "angles"
) -> NearCache:
    return NearCache(
        Nothing(),
        folder,
        near,
        lambda: Embedding(by, embed),
        lambda task, group: {task, group} & {*held_out} != set(),
    )


def call(task: str = "one", **fields: Any) -> Call:
    return Call(run="r", attempt=f"of-{task}", step=0, task=task, **fields)


def asked(question: str, system: str = "You count.") -> list[Message]:
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"Answer this.\n\n{question}\n"},
    ]


def keep(
    found: NearCache, question: str = "How many cars?", by: Call | None = None, **reply: Any
) -> None:
    of = TaskQuestion(question, "group-one")
    params = {"seed": 1, "temperature": 0.2}
    question_ = ModelQuestion("m", asked(question), params, by or call(), of)
    found.keep(question_, Reply(text="7", **reply))


def get(
    found: NearCache,
    question: str = "How many cars are there?",
    by: Call | None = None,
    **other: Any,
) -> Reply | None:
    given = {
        "model": "m",
        "system": "You count.",
        "params": {"seed": 2, "temperature": 0.2},
        **other,
    }
    messages = asked(question, given["system"])
    task = TaskQuestion(question)
    return found.get(
        ModelQuestion(given["model"], messages, given["params"], by or call("two"), task)
    )


def test_a_near_question_gets_the_reply_with_its_similarity_and_source(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    keep(kept, tokens_in=30, tokens_out=4)
    found = get(cache(tmp_path))
    assert found is not None
    assert found.near is not None
    assert (found.text, found.from_cache, found.tokens_in) == ("7", True, 30)
    assert (found.near.task, found.near.call) == ("one", "r/of-one/0")
    assert found.near.similarity == pytest.approx(math.cos(0.2), abs=1e-5)


def test_a_question_that_is_not_so_near_is_asked_and_the_nearest_answers(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    keep(kept)
    assert get(kept, "How many trains?") is None
    assert get(cache(tmp_path, 0.8), "How many trains?") is not None
    keep(kept, "How many trains?", call("three"))
    found = get(cache(tmp_path, 0.5), "How many cars are there?")
    assert found is not None
    assert found.near is not None
    assert found.near.task == "one"


@pytest.mark.parametrize(
    "other",
    [
        {"model": "another"},
        {"system": "You guess."},
        {"params": {"temperature": 0.9}},
        {"params": {"temperature": 0.2, "tools": [{"name": "bash"}]}},
        {"by": call("two", repeat=1)},
        {"by": call("two", sample=1)},
    ],
)
def test_another_model_system_prompt_parameter_or_repeat_is_never_near(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    kept = cache(tmp_path)
    keep(kept)
    assert get(kept) is not None
    assert get(kept, **other) is None


def test_what_is_said_beside_the_question_must_be_the_same(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    keep(kept)
    question = "How many cars are there?"
    params = {"seed": 2, "temperature": 0.2}
    lesson: list[Message] = [
        *asked(question),
        {"role": "user", "content": "A lesson: count twice."},
    ]
    task = TaskQuestion(question)
    assert kept.get(ModelQuestion("m", lesson, params, call("two"), task)) is None
    assert kept.get(ModelQuestion("m", asked(question), params, call("two"), task)) is not None


@pytest.mark.parametrize("phase", ["validation", "test", "select", "rerun", "rehearse", "propose"])
def test_only_train_attempts_are_answered_and_only_their_replies_are_kept(
    tmp_path: Path, phase: str
) -> None:
    kept = cache(tmp_path)
    keep(kept, by=call(phase=phase))
    assert get(kept) is None
    keep(kept)
    assert get(kept) is not None
    assert get(kept, by=call("two", phase=phase)) is None


@pytest.mark.parametrize("role", ["optimizer", "judge"])
def test_calls_of_the_optimizer_and_of_a_judge_are_neither_answered_nor_kept(
    tmp_path: Path, role: str
) -> None:
    kept = cache(tmp_path)
    keep(kept, by=call(role=role))
    assert get(kept, by=call("two", role=role)) is None
    keep(kept)
    assert get(kept, by=call("two", role=role)) is None


@pytest.mark.parametrize("held", ["one", "group-one"])
def test_the_reply_to_a_task_that_was_held_out_since_answers_nobody(
    tmp_path: Path, held: str
) -> None:
    keep(cache(tmp_path))
    assert get(cache(tmp_path)) is not None
    assert get(cache(tmp_path, held_out=[held])) is None


def test_a_reused_reply_is_not_kept_for_the_next_nor_one_that_tells_its_tokens(
    tmp_path: Path,
) -> None:
    kept = cache(tmp_path)
    keep(kept)
    reused = get(kept)
    assert reused is not None
    of = TaskQuestion("How many trains?")
    kept.keep(ModelQuestion("m", asked(of.text), {"temperature": 0.2}, call("two"), of), reused)
    keep(
        kept,
        "How many trains?",
        call("three"),
        token_ids=(1, 2),
        logprobs=(-0.1, -0.2),
        prompt_ids=(3,),
    )
    keep(kept, "How many trains?", call("three"), doubtful=True)
    assert get(kept, "How many trains?") is None


def test_the_very_same_question_is_answered_first_and_kept_for_near_ones(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    kept.exact = SharedReplies(tmp_path)
    of = TaskQuestion("How many cars?")
    question = ModelQuestion("m", asked(of.text), {"seed": 1, "temperature": 0.2}, call(), of)
    kept.exact.keep(question, Reply(text="7"))
    found = kept.get(question)
    assert found is not None
    assert (found.text, found.near) == ("7", None)
    near = get(cache(tmp_path))
    assert near is not None
    assert near.near is not None


def test_vectors_of_another_embedder_are_not_compared(tmp_path: Path) -> None:
    keep(cache(tmp_path))
    assert get(cache(tmp_path, by="others")) is None


def test_a_question_longer_than_embedders_read_is_asked(tmp_path: Path) -> None:
    kept = cache(tmp_path, 0.1)
    for length, found in ((QUESTION_CHARS, True), (QUESTION_CHARS + 1, False)):
        keep(kept, "x" * length, call(f"t{length}"))
        assert (get(kept, "x" * length) is not None) is found


@pytest.mark.parametrize(
    "other", ["How many cars in 2020?", "How many cars in Lyon?", "How many cars in 2019 of 5?"]
)
def test_questions_whose_numbers_or_names_differ_are_not_near(tmp_path: Path, other: str) -> None:
    kept = cache(tmp_path, 0.1)
    keep(kept, "How many cars in 2019?")
    assert get(kept, "In 2019, how many cars?") is not None
    assert get(kept, other) is None


def test_numbers_and_names_are_read_wherever_a_sentence_begins() -> None:
    assert particulars("In 2019, what did Lyon earn? Sum it.") == particulars(
        "What did Lyon earn in 2019? Sum."
    )
    assert particulars("In 2019, what did Lyon earn? Sum it.") == {"2019", "Lyon"}
    assert particulars("what is b2b?") == {"b2b"}


def test_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    kept = cache(tmp_path)
    keep(kept)
    (file,) = (tmp_path / "near").glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"7"', b'"8"'))
    assert get(kept) is None


def test_the_cache_counts_and_forgets_near_replies_too(tmp_path: Path) -> None:
    keep(cache(tmp_path))
    whole = SharedReplies(tmp_path)
    assert whole.size()[0] == 1
    whole.clear()
    assert (whole.size(), get(cache(tmp_path))) == ((0, 0), None)


def test_the_question_is_taken_whole_or_by_its_lines_and_the_rest_is_the_frame() -> None:
    def texts(content: str, question: str) -> tuple[str, str]:
        frame, said = framed([{"role": "user", "content": content}], question)
        return str(frame[0]["content"]), said

    assert texts("Tables: a\nWhat is b?\nGo.", "What is b?") == (
        "Tables: a\n\ue000\nGo.",
        "What is b?",
    )
    assert texts("Say: What is b? Go.", "What is b?") == ("Say: \ue000 Go.", "What is b?")
    assert texts("What is b?\nGo.", "What is b?\nWrite it down.") == ("\ue000\nGo.", "What is b?")
    assert texts("Say: what is b? Go.", "What is b?") == ("Say: what is b? Go.", "")
    assert texts("Go.", "") == ("Go.", "")
