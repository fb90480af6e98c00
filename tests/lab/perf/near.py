"""What a near cache saves, and how many replies it reuses wrongly, by nearness: a generated stream
of questions.

Each question asks one of five things of one of six cities in one of four years, in one of four
wordings. A reply is reused rightly where both ask the same; the nearest other question of the
stream differs in a year, a city or a word.
"""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from recreate.api.ports import TaskQuestion
from recreate.api.types import Call, Message, Reply
from recreate.memory.embedders import open_embedder
from recreate.models.replies import ModelQuestion
from recreate.plugins.near_cache.near_cache import Embedding, NearCache
from tests.lab.perf.table import Row
from tests.plugins.near_cache.test_near_cache import Nothing

ASKED = {
    "total": (
        "What was the total revenue of the shops in {city} in {year}?",
        "How much revenue did the shops in {city} make in {year} altogether?",
        "Give the revenue of all shops in {city} for {year}, summed.",
        "In {year}, what did the shops in {city} earn in total?",
    ),
    "count": (
        "How many orders were placed in {city} in {year}?",
        "What is the number of orders placed in {city} in {year}?",
        "Count the orders from {city} in {year}.",
        "In {year}, how many orders came from {city}?",
    ),
    "unpaid": (
        "How many orders placed in {city} in {year} were not paid?",
        "What is the number of unpaid orders in {city} in {year}?",
        "Count the orders from {city} in {year} that were never paid.",
        "In {year}, how many orders from {city} stayed unpaid?",
    ),
    "highest": (
        "What is the highest price of an order in {city} in {year}?",
        "How much did the most expensive order in {city} cost in {year}?",
        "Give the price of the dearest order from {city} in {year}.",
        "In {year}, what was the largest price paid for an order in {city}?",
    ),
    "lowest": (
        "What is the lowest price of an order in {city} in {year}?",
        "How much did the cheapest order in {city} cost in {year}?",
        "Give the price of the cheapest order from {city} in {year}.",
        "In {year}, what was the smallest price paid for an order in {city}?",
    ),
}
CITIES = ("Lyon", "Porto", "Leeds", "Graz", "Turin", "Ghent")
YEARS = (2019, 2020, 2021, 2022)
NEARNESS = (0.8, 0.85, 0.9, 0.95, 0.97, 0.99)
TOKENS = 400
"""Of one request and its reply."""


class Asked(NamedTuple):
    """A question of the stream, and what it asks."""

    text: str
    meaning: tuple[str, str, int]


def stream(size: int, seed: int = 0) -> list[Asked]:
    """Questions as they come; some meanings are asked for often."""
    rng = random.Random(seed)
    meanings = [(what, city, year) for what in ASKED for city in CITIES for year in YEARS]
    rng.shuffle(meanings)
    often = [1 / (1 + n) ** 0.5 for n in range(len(meanings))]
    found = []
    for what, city, year in rng.choices(meanings, often, k=size):
        found.append(
            Asked(rng.choice(ASKED[what]).format(city=city, year=year), (what, city, year))
        )
    return found


def reused(asked: Sequence[Asked], near: float, embedding: Embedding) -> tuple[int, int]:
    """(replies that were reused, those of another meaning) over the stream; what is not reused is
    answered and kept."""
    meanings = {f"t{n}": each.meaning for n, each in enumerate(asked)}
    right = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        cache = NearCache(
            Nothing(), Path(folder), near, lambda: embedding, lambda task, group: False
        )
        for n, each in enumerate(asked):
            call = Call(run="r", attempt=f"a{n}", step=0, task=f"t{n}")
            messages: list[Message] = [
                {"role": "user", "content": f"Answer in one query.\n\n{each.text}"}
            ]
            question = ModelQuestion("m", messages, {}, call, TaskQuestion(each.text))
            found = cache.get(question)
            if found is None or found.near is None:
                cache.keep(question, Reply(text="x"))
                continue
            same = meanings[found.near.task] == each.meaning
            right, wrong = right + same, wrong + (not same)
    return right + wrong, wrong


def measure(size: int = 200) -> Iterator[Row]:
    """Per embedder and nearness: of all calls those saved, of these those answered with another
    question's meaning."""
    asked = stream(size)
    same = size - len({each.text for each in asked})
    yield Row(
        "near", "the very same words", "share of calls", same / size, None, None, None, None, ""
    )
    for name in ("minilm", "hashed"):
        embedder = open_embedder(name)
        vector = functools.cache(lambda text, by=embedder: by.embed([text])[0])
        embedding = Embedding(embedder.name, lambda texts, of=vector: [of(text) for text in texts])
        for near in NEARNESS:
            saved, wrong = reused(asked, near, embedding)
            case = f"{name} {near:g}"
            yield Row(
                "near saved", case, "share of calls", saved / size, None, None, None, None, ""
            )
            yield Row("near saved", case, "tokens", saved * TOKENS, None, None, None, None, "")
            yield Row(
                "near wrong",
                case,
                "share of reused",
                wrong / max(1, saved),
                None,
                None,
                None,
                None,
                "",
            )
