"""What an attempt at a question in SQL earns beside its grade, after ReEx-SQL (arXiv 2505.12768,
its reward function): for the form of its replies, for queries that it ran in the middle of its
reasoning, and for a final query near the right one. The grade stays the verifier's: it is the
execution reward.

The paper's weights are format 2, execution 3, exact match 1, entity match 1, exploration 2. They
were read second-hand, and what each counts is our reading: the paper's own definitions were not to
be had.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from recreate.api.types import Experience, Step
from recreate.plugins.rl.recipe import ONE_MACHINE, Recipe, RecipePart

_TAG = r"</?(?:intermediate|final)_sql>"
FORM = re.compile(
    rf"\s*<think>(?:(?!<think>).)*</think>\s*<(intermediate|final)_sql>(?:(?!{_TAG}).)"
    rf"+(?:</\1_sql>)?\s*",
    re.DOTALL,
)
"""A reply: reasoning and one query. The endpoint may have stopped it before the closing tag."""
QUERY = re.compile(r"<(intermediate|final)_sql>(.*?)(?:</\1_sql>|\Z)", re.DOTALL)
FAILED = "SQLite says:"
"""How `reex-sql` tells of a query that did not run."""
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|[A-Za-z_]\w*|\d+(?:\.\d+)?|\S")
_FENCE = re.compile(r"^\s*```(?:sql|sqlite)?|```\s*$")
_SQL = """all and any as asc avg between by case cast collate count cross date desc distinct else \
end escape except
exists from full glob group having iif in inner instr integer intersect is isnull join julianday \
left length like limit
lower max min natural not notnull null nulls offset on or order outer over partition real \
recursive replace right round
row_number select strftime substr sum table text then total trim union upper using values when \
where with"""
_WORDS = frozenset(_SQL.split())


class ReExSQL(RecipePart):
    """Weights beside that of the grade, which is `execution`; 0 leaves one out."""

    slots: ClassVar[tuple[str, ...]] = ("process",)
    form: float = Field(default=2.0, ge=0)
    execution: float = Field(default=3.0, gt=0)
    exact: float = Field(default=1.0, ge=0)
    entities: float = Field(default=1.0, ge=0)
    exploration: float = Field(default=2.0, ge=0)

    def __call__(self, experience: Experience, gold: str) -> float:
        """In grades of 1: the weighted sum of the four, over the weight of the grade; 0 to their
        sum over that."""
        replies = [s for s in experience.trace.path() if s.kind == "action"]
        final = experience.trace.answer
        sum_ = (
            self.form * form(replies)
            + self.exact * float(bool(final.strip()) and normal(final) == normal(gold))
            + self.entities * alike(final, gold)
            + self.exploration * explored(replies, gold)
        )
        return sum_ / self.execution

    def faults(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        if recipe.does("replay") is not None:
            yield (
                "[reex-sql] is earned by attempts of now, and replayed ones keep their grade alone",
                "take one of both",
            )
        if any(part.in_pairs for part in recipe.parts.values()):
            yield (
                "[reex-sql] is added to what advantages are made of, and pairs are made by grades",
                "take one of both",
            )

    def on_verl(self, recipe: Recipe) -> Iterator[tuple[str, str]]:
        yield "[reex-sql] reads whole attempts, and verl is told their grades", ONE_MACHINE


def form(steps: Sequence[Step]) -> float:
    """1 where every reply is reasoning and one query and the last one's is final, else 0."""
    found = [FORM.fullmatch(step.reply) for step in steps]
    return float(bool(found) and all(found) and found[-1] is not None and found[-1][1] == "final")


def explored(steps: Sequence[Step], gold: str) -> float:
    """The share, 0 to 1, of the queries in the middle that were effective: each ran, was none of
    those before, and names something that the right query names. 0 without any, so that `SELECT 1`
    earns nothing."""
    seen = set[str]()
    all_ = 0
    good = 0
    right = entities(gold)
    for step in steps:
        query = QUERY.search(step.reply)
        if query is None or query[1] != "intermediate":
            continue
        text = normal(query[2])
        all_ = all_ + 1
        ran = FAILED not in step.output and not step.status
        good += ran and text not in seen and bool(entities(text) & right)
        seen.add(text)
    return good / all_ if all_ else 0.0


def alike(query: str, gold: str) -> float:
    """How far two queries name the same tables, columns and values, 0 to 1: the Jaccard index of
    their entities."""
    mine = entities(query)
    right = entities(gold)
    return len(mine & right) / len(mine | right) if mine | right else 0.0


def entities(query: str) -> frozenset[str]:
    """The tables, columns and values that a query names, in lower case but for values; not its
    aliases (`AS x`)."""
    tokens = _tokens(query)
    aliases = {
        word
        for before, word in itertools.pairwise(tokens)
        if before == "as" and word.isidentifier()
    }
    return frozenset(
        token.strip('"`[]')
        for token in tokens
        if (token[0].isalnum() or token[0] in "_'\"`[")
        and token not in _WORDS
        and token not in aliases
    ) - {""}


def normal(query: str) -> str:
    """A query without fences, its last semicolon, and differences in case and space outside of
    quotes."""
    return " ".join(_tokens(query)).rstrip("; ")


def _tokens(query: str) -> list[str]:
    text = _FENCE.sub("", query.strip()).strip()
    return [token if token[0] in "'\"`[" else token.lower() for token in _TOKEN.findall(text)]
