"""Scorers of texts beside the plain ones.

f1           words in common, as SQuAD counts them
regex        a pattern of RE2, found in the answer
json-schema  the answer is JSON that fits a schema
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from recreate.api.config import read_json
from recreate.domains.rows.scorers import RowTask, Scored, TextScorer, as_json
from recreate.domains.rows.settings import ScorerSettings


class F1(TextScorer):
    """The harmonic mean of precision and recall of words, as SQuAD 1.1's evaluate script counts
    them."""

    name = "f1"
    pass_at = 0.8

    def compare(self, answer: str, expected: str, settings: ScorerSettings) -> Scored:
        found = squad_words(answer)
        right = squad_words(expected)
        if not found or not right:
            return Scored(
                float(found == right),
                "The answer has no words." if not found else "Other words are wanted.",
            )
        same = sum((Counter(found) & Counter(right)).values())
        if not same:
            return Scored(0.0, "No word of the answer is among the right ones.")
        precision = same / len(found)
        recall = same / len(right)
        score = 2 * precision * recall / (precision + recall)
        return Scored(
            score,
            f"{same} of the answer's {len(found)} words are among the right ones (F1 {score:.2f}).",
        )

    def check_text(self, text: str) -> str:
        return "" if squad_words(text) else "has no words" if text.strip() else "is blank"


class Regex(TextScorer):
    """1 when the row's pattern (RE2: linear time, no look-around) is found in the answer."""

    name = "regex"
    answer_is_gold = False
    columns: Mapping[str, Sequence[str]] = {
        "answer": ("regex", "pattern"),
        "gold": ("gold", "example"),
    }

    def compare(self, answer: str, expected: str, settings: ScorerSettings) -> Scored:
        held = _pattern(expected).search(answer.strip()) is not None
        return Scored(
            float(held), "The answer has the right form." if held else "The answer does not match."
        )

    def check_text(self, text: str) -> str:
        _pattern(text)
        return super().check_text(text)


class JsonSchema(TextScorer):
    """1 when the answer is JSON that the row's schema (draft 2020-12, unless it says another)
    allows."""

    name = "json-schema"
    plain = 0
    settings = ("seconds",)
    answer_is_gold = False
    columns: Mapping[str, Sequence[str]] = {
        "answer": ("schema", "json_schema"),
        "gold": ("gold", "example", "answer"),
    }

    def compare(self, answer: str, expected: str, settings: ScorerSettings) -> Scored:
        import referencing

        try:
            value = read_json(answer)
        except ValueError as e:
            return Scored(0.0, f"The answer is not JSON: {str(e)[:200]}.")
        validator = _validator(expected)
        try:
            error = next(iter(validator.iter_errors(value)), None)
        except RecursionError:
            return Scored(0.0, "The answer is nested too deeply.")
        except referencing.exceptions.Unresolvable as e:
            raise ValueError(f"has a schema that cannot be followed: {str(e)[:100]}") from None
        except (ArithmeticError, TypeError, ValueError) as e:  # 1e999 has no remainder
            return Scored(0.0, f"The answer cannot be compared with its schema: {str(e)[:100]}.")
        if error is None:
            return Scored(1.0, "The answer fits its schema.")
        where = "/".join(map(str, error.absolute_path))[:100]
        return Scored(
            0.0, f"The answer does not fit its schema at /{where}: it breaks `{error.validator}`."
        )

    def read_expected(self, value: Any) -> list[str]:
        schema = value if isinstance(value, Mapping | bool) else None
        if isinstance(value, str):
            try:
                schema = read_json(value)
            except ValueError:
                raise ValueError("is no JSON schema") from None
        if not isinstance(schema, Mapping) or not schema:
            raise ValueError("is no JSON schema: a schema is an object")
        text = json.dumps(schema)
        _validator(text)
        return [text]

    def write_gold(self, case: RowTask, value: Any) -> str:
        return as_json(value)

    def describe_answer(self) -> str:
        return "The answer is JSON."


# --- how texts are read
# ------------------------------------------------------------------------------------


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_words(text: str) -> list[str]:
    """Lower case, no punctuation, no articles: `normalize_answer` of SQuAD 1.1, in its order."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


@lru_cache(maxsize=4096)
def _pattern(text: str) -> Any:
    """Raises ValueError for what RE2 does not take."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options=options)
    except re2.error as e:
        said = e.args[0] if e.args else ""
        said = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ValueError(f"is no pattern of RE2: {said[:100]}") from None


@lru_cache(maxsize=4096)
def _validator(text: str) -> Any:
    """Return a validator whose patterns are RE2's and whose references stay in the schema. Raises
    ValueError."""
    import jsonschema
    import referencing

    def pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Any:
        if validator.is_type(instance, "string") and _pattern(wanted).search(instance) is None:
            yield jsonschema.ValidationError("it does not match")

    def nowhere(address: str) -> Any:
        raise referencing.exceptions.NoSuchResource(ref=address)

    schema = read_json(text)
    base = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    kind = jsonschema.validators.extend(base, {"pattern": pattern})
    try:
        base.check_schema(schema)
        for each in _patterns(schema):
            _pattern(each)
    except jsonschema.SchemaError as e:
        raise ValueError(f"is no JSON schema: {e.message[:100]}") from None
    return kind(schema, registry=referencing.Registry(retrieve=nowhere))


def _patterns(schema: Any) -> list[str]:
    """Return the patterns in a schema; names of properties among them are refused, since Python's
    own engine matches those."""
    if isinstance(schema, list):
        return [each for value in schema for each in _patterns(value)]
    if not isinstance(schema, Mapping):
        return []
    if "patternProperties" in schema:
        raise ValueError("has patternProperties, which are not taken")
    if isinstance(schema.get("$ref"), str) and not schema["$ref"].startswith("#"):
        raise ValueError(f"has a reference to {schema['$ref'][:60]}, and nothing is fetched")
    own = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
    return own + [each for value in schema.values() for each in _patterns(value)]
