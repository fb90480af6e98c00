"""Scorers of texts: pure functions of an answer and what is expected. What runs something is in
programs.py, what asks a model in judge.py.

    exact        the text itself, but for the blank around it        f1           words in common,
                 as SQuAD counts them
    numeric      the last number of the answer                       regex        a pattern of RE2,
                 found in the answer
    contains     the text occurs in a short answer, as whole words   json-schema  the answer is JSON
                 that fits a schema
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import Field

from recreate.api.config import Config, read_json
from recreate.api.errors import BadInput

VERSION = 1
"""Of what these functions decide: part of the grader's version, so that no earlier score is reused
under another."""

LONGEST = 1_000_000
"""Characters of an answer that are looked at."""
_TAIL = 10_000
"""Characters at the end of an answer in which its last number is looked for."""


class ScorerSettings(Config):
    """The table [scorer] of domain.toml.

    pass_at      the score from which an answer has passed; default: 1, of f1 0.8, of a judge 0.7
    tolerance    numeric: how far off a number may be, as a part of the expected one or, below 1, as
                 it is
    ignore_case  exact: capitals do not count
    longest      contains: characters that an answer may have; 0: 100, and 10 times the expected
                 text
    seconds      tests, sql, math, snippet, analysis, FILE.py:function: for one answer, without
                 what it waited for a core (docs/ports/sandbox.md); math: of CPU time
    database     sql: the file among the row's that is the database, or a script that makes it;
                 default: the only one
    apart        tests in Python: the answer runs in a sandbox of its own and is asked for values,
                 so that it can bend neither the tests nor what they tell
    answer_file  tests: the file that a text in the gold column is, and that a command may be told
                 of
    """

    pass_at: float | None = Field(default=None, gt=0, le=1)
    tolerance: float = Field(default=1e-6, ge=0, le=1e9)
    ignore_case: bool = False
    longest: int = Field(default=0, ge=0)
    seconds: float = Field(default=30.0, gt=0, le=3600)
    database: str = ""
    apart: bool = False
    answer_file: str = Field(default="solution.py", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,99}$")


class Scored(NamedTuple):
    """score 0..1, and why, in words that do not say what is right; passed: None where the score
    decides."""

    score: float
    why: str
    passed: bool | None = None


NAMED = (
    "exact",
    "numeric",
    "contains",
    "regex",
    "f1",
    "json-schema",
    "tests",
    "sql",
    "math",
    "snippet",
    "analysis",
)
CHOICE = f"--score {', '.join(NAMED)}, judge:RUBRIC.md or FILE.py:function"
"""What may be typed."""


def kind_of(score: str) -> tuple[str, str]:
    """(the scorer's kind, the file that it names or ''). Raises BadInput."""
    if score in NAMED:
        return score, ""
    kind, _, rubric = score.partition(":")
    if kind == "judge" and rubric:
        return "judge", rubric
    path, _, function = score.rpartition(":")
    if path.endswith(".py") and function.isidentifier():
        return "file", score
    raise BadInput(f"{score!r} is no scorer", fix=CHOICE, code="unknown-scorer")


def texts_of(value: Any) -> list[str]:
    """The right answers that a cell holds: a text, a number, a truth value, a list of those, or
    {"text": [...]}, as SQuAD has it. Raises ValueError for anything else."""
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        value = value["text"]
    if isinstance(value, list):
        found = [text for each in value for text in texts_of(each)]
        if not found:
            raise ValueError("is an empty list")
        return list(dict.fromkeys(found))
    if value is None or value == "":
        raise ValueError("is empty")
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, int):
        return [str(value)]
    if isinstance(value, float):
        return [str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)]
    if isinstance(value, str):
        return [value]
    raise ValueError("is neither a text nor a number, nor a list of them")


# --- one answer
# ------------------------------------------------------------------------------------------


def exact(answer: str, expected: str, settings: ScorerSettings) -> Scored:
    """1 for the text itself; blank around it and the spelling of characters (Unicode NFC) do not
    count."""
    found, right = _plain(answer), _plain(expected)
    if settings.ignore_case:
        found, right = found.casefold(), right.casefold()
    return Scored(
        float(found == right),
        "The answer is another text." if found != right else "The answer is right.",
    )


def contains(answer: str, expected: str, settings: ScorerSettings) -> Scored:
    """1 when the text occurs as whole words, whatever the capitals, in an answer that is not much
    longer."""
    found, right = _words(answer), _words(expected)
    most = settings.longest or 100 + 10 * len(expected)
    if len(answer.strip()) > most:
        return Scored(
            0.0, f"The answer has {len(answer.strip())} characters, and {most} are the most."
        )
    edge = r"(?:^|\W)"
    held = bool(right) and re.search(f"{edge}{re.escape(right)}(?:$|\\W)", found) is not None
    return Scored(
        float(held),
        "The answer holds what it must." if held else "What the answer must hold is not in it.",
    )


def numeric(answer: str, expected: str, settings: ScorerSettings) -> Scored:
    """1 when the last number of the answer is the expected one; 1,234.5, 3/4, 1 1/2, 12%, 1e3 and
    -5 are numbers."""
    right, found = readings(expected), readings(answer)
    if not found:
        return Scored(0.0, "There is no number in the answer.")
    for one, one_percent in found:
        for other, other_percent in right:
            if one_percent == other_percent or len(found) != len(right):
                allowed = Fraction(settings.tolerance) * max(Fraction(1), abs(other))
                if abs(one - other) <= allowed:
                    return Scored(1.0, "The number is right.")
    shown = found[0][0]
    return Scored(0.0, f"The last number of the answer, {_shown(shown)}, is not the right one.")


def f1(answer: str, expected: str, settings: ScorerSettings) -> Scored:
    """The harmonic mean of precision and recall of words, as SQuAD 1.1's evaluate script counts
    them."""
    found, right = squad_words(answer), squad_words(expected)
    if not found or not right:
        return Scored(
            float(found == right),
            "The answer has no words." if not found else "Other words are wanted.",
        )
    same = sum((Counter(found) & Counter(right)).values())
    if not same:
        return Scored(0.0, "No word of the answer is among the right ones.")
    precision, recall = same / len(found), same / len(right)
    score = 2 * precision * recall / (precision + recall)
    return Scored(
        score,
        f"{same} of the answer's {len(found)} words are among the right ones (F1 {score:.2f}).",
    )


def regex(answer: str, expected: str, settings: ScorerSettings) -> Scored:
    """1 when the row's pattern (RE2: linear time, no look-around) is found in the answer."""
    held = _pattern(expected).search(answer.strip()) is not None
    return Scored(
        float(held), "The answer has the right form." if held else "The answer does not match."
    )


def json_schema(answer: str, expected: str, settings: ScorerSettings) -> Scored:
    """1 when the answer is JSON that the row's schema (draft 2020-12, unless it says another)
    allows."""
    try:
        value = read_json(answer)
    except ValueError as e:
        return Scored(0.0, f"The answer is not JSON: {str(e)[:200]}.")
    try:
        error = next(iter(_validator(expected).iter_errors(value)), None)
    except RecursionError:
        return Scored(0.0, "The answer is nested too deeply.")
    # a reference within the schema that leads nowhere: only following it tells
    except Exception as e:
        raise ValueError(f"has a schema that cannot be followed: {str(e)[:100]}") from None
    if error is None:
        return Scored(1.0, "The answer fits its schema.")
    where = "/".join(map(str, error.absolute_path))[:100]
    return Scored(
        0.0, f"The answer does not fit its schema at /{where}: it breaks `{error.validator}`."
    )


PureScorer = Callable[[str, str, ScorerSettings], Scored]
PURE: Mapping[str, PureScorer] = {
    "exact": exact,
    "numeric": numeric,
    "contains": contains,
    "regex": regex,
    "f1": f1,
    "json-schema": json_schema,
}
"""By name. Each takes (answer, what is expected, settings)."""


def score(kind: str, answer: str, value: Any, settings: ScorerSettings) -> Scored:
    """The best that an answer scores over the right ones of a cell. An empty answer scores 0."""
    answer = answer[:LONGEST].encode("utf-8", "replace").decode()  # half a character is none
    if not answer.strip():
        return Scored(0.0, "There is no answer.")
    return max(
        (PURE[kind](answer, right, settings) for right in expected_of(kind, value)),
        key=lambda s: s.score,
    )


def expected_of(kind: str, value: Any) -> list[str]:
    """What a cell holds, in the form that the scorer takes. Raises ValueError that says what is
    wrong with it."""
    if kind == "json-schema":
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
    found = texts_of(value)
    for each in found:
        if kind == "numeric" and number_in(each) is None:
            raise ValueError("has no number")
        if kind == "regex":
            _pattern(each)
        if not each.strip():
            raise ValueError("is blank")
        if kind == "f1" and not squad_words(each):
            raise ValueError("has no words")
        if kind == "contains" and not _words(each):
            raise ValueError("is blank")
    return found


# --- how texts are read
# ------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n")).strip()


def _words(text: str) -> str:
    return " ".join(_plain(text).casefold().split())


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_words(text: str) -> list[str]:
    """Lower case, no punctuation, no articles: `normalize_answer` of SQuAD 1.1, in its order."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


_FRAC = re.compile(r"\\[dt]?frac\{([-+]?\d{1,50})\}\{(\d{1,50})\}")
_DECIMAL = r"(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"(?<![\w./])(?P<sign>[-+]?)(?:[$€£]\s?)?(?:(?P<whole>\d{{1,50}})\s)?(?P<top>\d{{1,50}})"
    rf"\s?/\s?(?P<below>\d{{1,50}})"
    rf"(?![\d/]|\.\d)(?P<per>\s?%)?"
    rf"|(?<![\w.])(?P<minus>[-+]?)(?:[$€£]\s?)?(?P<plain>{_DECIMAL})(?:[eE](?P<power>[-+]"
    rf"?\d{{1,3}})(?!\w))?"
    r"(?P<percent>\s?%)?"
)


def readings(text: str) -> list[tuple[Fraction, bool]]:
    """The last number of a text: (value, whether it is read as a part). `12%` may mean 0.12 and,
    where only one side has the sign, 12; [] for no number. Numbers of over 400 digits are none."""
    tail = (
        text[-_TAIL:]
        .replace("\u2212", "-")
        .replace("\u00a0", "")
        .replace("\u202f", "")
        .replace("\\%", "%")
    )
    tail = _FRAC.sub(r" \1/\2 ", tail)
    found = None
    for match in _NUMBER.finditer(tail):
        found = match
    if found is None:
        return []
    if found["top"]:
        if not int(found["below"]):
            return []
        value = Fraction(int(found["top"]), int(found["below"])) + int(found["whole"] or 0)
        value, percent = -value if found["sign"] == "-" else value, found["per"]
    else:
        digits = found["plain"].replace(",", "")
        if len(digits) > 400:
            return []
        value = Fraction(digits if digits[0] != "." else "0" + digits) * Fraction(10) ** int(
            found["power"] or 0
        )
        value, percent = -value if found["minus"] == "-" else value, found["percent"]
    return [(value / 100, True), (value, False)] if percent else [(value, True)]


def number_in(text: str) -> Fraction | None:
    """The last number of a text, None for none."""
    found = readings(text)
    return found[0][0] if found else None


def _shown(value: Fraction) -> str:
    try:
        return f"{float(value):.12g}"
    except OverflowError:
        return "which is very large"


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
    """A validator whose patterns are RE2's and whose references stay in the schema. Raises
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
    """The patterns in a schema; names of properties among them are refused, since Python's own
    engine matches those."""
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
