"""What a scorer is, and the plain ones: pure functions of an answer and what is expected.

    exact     the text itself, but for the blank around it
    numeric   the last number of the answer
    contains  the text occurs in a short answer, as whole words

A plug-in brings another as a subclass of `Scorer`, an entry point of `recreate.scorer`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from recreate.api.config import read_json
from recreate.api.errors import BadInput
from recreate.api.plugins import lacking, names
from recreate.api.ports import AskJudge, Limits, Sandbox
from recreate.api.registry import find
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Task, Trace
from recreate.domains.exploits import text_exploits
from recreate.domains.rows import bounded
from recreate.domains.rows.numbers import explain_doubt, format_number, marked_part, readings
from recreate.domains.rows.places import check_paths, read_files, refuse_path
from recreate.domains.rows.settings import Definition, ScorerSettings

LONGEST = 1_000_000
"""Characters of an answer that are looked at."""
OWN = "function.py:function"
"""How a function of the caller's is called where a scorer has a name."""


class Scored(NamedTuple):
    """score 0..1, and why, in words that do not say what is right; passed: None where the score
    decides."""

    score: float
    why: str
    passed: bool | None = None


class Open(Protocol):
    """Opens a fresh sandbox with the row's files; mounts as `SandboxBackend.open` has them."""

    def __call__(self, limits: Limits, mounts: Mapping[str, Path] = ..., /) -> Sandbox: ...


@dataclass(frozen=True)
class RowTask:
    """A row's task with what its domain decides. base: the folder that paths in cells count from;
    ask: the judge's model, None for none."""

    task: Task
    definition: Definition
    base: Path
    ask: AskJudge | None = None

    @property
    def expected(self) -> Any:
        """The cell of the answer's column."""
        return self.task.facts["answer"]


class Scorer(ABC):
    """How answers of rows are scored, `--score NAME` or `--score NAME:ARGUMENT`.

    version         of what it decides: part of the grader's
    pass_at         the score from which an answer has passed, where domain.toml does not say
    settings        of [scorer], what domain.toml writes down for it
    columns         what its columns are likely called, before what all are called
    needs_answer    whether a row must have an answer
    answer_is_gold  whether an answer in a row is one that could be handed in
    asks_model      whether a model is asked: `RowTask.ask`
    tried_first     whether it is a person's, which is tried on right answers before a model is paid
    shows_gold      whether an optimizer may be shown the right answers of train tasks
    """

    name = ""
    version = 1
    pass_at = 1.0
    settings: Sequence[str] = ()
    columns: Mapping[str, Sequence[str]] = {}
    needs_answer = True
    answer_is_gold = True
    asks_model = False
    tried_first = False
    shows_gold = False
    longest = LONGEST

    def __init__(self, argument: str = "") -> None:
        if argument:
            raise unknown_scorer(f"{self.name}:{argument}")

    def with_files(self, place: Callable[[str], str]) -> str:
        """Return how the scorer is spelled once each file that it names is put through `place`."""
        return self.name

    def fingerprint(self, definition: Definition) -> Sequence[Any]:
        """Return what else changes its verdicts: part of the grader's version."""
        return ()

    # --- of a row ---

    def read_answer(self, value: Any) -> Any:
        """Return the cell of the answer as the task keeps it. Raises ValueError."""
        if value in (None, "", [], {}):
            raise ValueError("is empty")
        return value

    def read_place(self, place: Path) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
        """Return the files (path, bytes) that a cell's path names, and what their digest is of.
        Raises ValueError."""
        found = read_files(place)
        return found, found

    def read_files(self, value: Any, base: Path) -> JsonDict:
        """Return the facts of a row's files: `files`, path -> text; or `place`, a file or folder
        below `base`, and its digest."""
        if value in (None, ""):
            return {}
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                value = read_json(value)
            except ValueError:
                raise ValueError("is no JSON object of path -> text") from None
        if isinstance(value, Mapping):
            return {
                "files": check_paths(
                    {path: text for path, text in value.items() if text is not None}
                )
            }
        if not isinstance(value, str):
            raise ValueError("is neither an object of path -> text nor a path")
        refuse_path(value)
        held, identity = self.read_place(base / value)
        found = sha256()
        for path, data in identity:
            found.update(f"{path}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
        return {
            "place": value,
            "place_digest": found.hexdigest()[:16],
            "place_files": [path for path, _ in held],
        }

    def files(self, task: Task, base: Path) -> list[tuple[str, bytes]]:
        """Return what lies in the sandbox of a task before anybody works there. Raises BadInput for
        a place that is gone or was changed."""
        found = [
            (path, text.encode("utf-8", "surrogatepass"))
            for path, text in task.facts.get("files", {}).items()
        ]
        if place := task.facts.get("place"):
            try:
                if self.read_files(place, base)["place_digest"] != task.facts["place_digest"]:
                    raise ValueError("was changed while this ran")
                found += self.read_place(base / place)[0]
            except ValueError as e:
                fix = "put it back, then the same again"
                raise BadInput(f"{task.id}: {place} {e}", fix=fix, code="bad-rows") from None
        return found

    def add_facts(self, answer: Any, base: Path) -> JsonMap:
        """Return what a task keeps besides its row. Raises ValueError that says what is wrong with
        the answer."""
        return {}

    def check_files(self, definition: Definition, facts: JsonMap) -> str:
        """Return what is wrong with a row's files, '' for nothing."""
        return ""

    def instruct(self, definition: Definition, answer: Any) -> str:
        """Return what a prompt ends with: where the answer goes."""
        about = self.describe_answer()
        first = (
            f"Write the answer, and nothing else, to the file {definition.answer_file} in /work."
        )
        return f"{first} {about}".rstrip()

    def describe_answer(self) -> str:
        """Return what an answer is, '' where that needs no words."""
        return ""

    # --- of an answer ---

    def collect(self, case: RowTask, sandbox: Sandbox) -> str:
        """Return what is handed in, '' for nothing."""
        try:
            data = sandbox.read(case.definition.answer_file)
        except FileNotFoundError:
            return ""
        return self.trim(data[: 4 * self.longest].decode("utf-8", "replace")[: self.longest])

    def trim(self, text: str) -> str:
        """Return the text without the blank around it."""
        return text.strip()

    def explain_nothing(self, definition: Definition, answer: str) -> str:
        """Return why there is nothing to grade, '' where there is something."""
        return "" if answer.strip() else f"no {definition.answer_file}, or an empty one"

    @abstractmethod
    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        """Return what the answer is worth. Raises ValueError for a row that cannot be compared
        with, Fault."""

    def doubt(self, case: RowTask, open: Open) -> str:
        """Return why an answer that does nothing would pass too, '' where none is known to: what
        only running the right one shows."""
        return ""

    def gold(self, case: RowTask) -> str:
        """Return a right answer. Raises BadInput (`no-gold`) where the row has none."""
        facts = case.task.facts
        columns = case.definition.columns
        value = facts.get("gold", facts.get("answer") if self.answer_is_gold else None)
        if value is None:
            raise BadInput(
                f"{case.task.id} has no right answer: its {columns.answer or 'answer'} is none"
                " itself",
                fix="name a column that holds one: --answer COLUMN or --gold COLUMN",
                code="no-gold",
            )
        try:
            return self.write_gold(case, value)
        except ValueError as e:
            why = f"{case.task.id}: its {columns.gold} {e}"
            raise BadInput(why, fix="mend the row", code="no-gold") from None

    def write_gold(self, case: RowTask, value: Any) -> str:
        """Return the cell of a right answer in the form that is handed in. Raises ValueError."""
        return self.trim(texts_of(value)[0])

    def hidden(self, case: RowTask) -> list[str]:
        """Return what no agent is shown: right answers, and what an answer is checked with."""
        return [as_json(case.task.facts[n]) for n in ("answer", "gold") if n in case.task.facts]

    def exploits(self, case: RowTask) -> dict[str, str]:
        """Return answers that leave the task undone and try to be scored all the same."""
        return text_exploits(case.task)


def split_score(score: str) -> tuple[str, str]:
    """Return (the scorer's name, its argument or ''); `file` for FILE.py:function. Raises
    BadInput."""
    name, _, argument = score.partition(":")
    if name in names("scorer"):
        return name, argument
    path, _, function = score.rpartition(":")
    if path.endswith(".py") and function.isidentifier():
        return "file", score
    raise unknown_scorer(score)


def find_scorer(score: str) -> Scorer:
    """Return the scorer that `--score` means. Raises BadInput."""
    name, argument = split_score(score)
    scorer: Scorer = find("scorer", name)(argument)
    return scorer


def unknown_scorer(score: str) -> BadInput:
    """Return the error for what is no scorer, with those that there are."""
    plugin = lacking("scorer", score.partition(":")[0])
    why = f"is of the plug-in {plugin}, which is not installed" if plugin else "is no scorer"
    return BadInput(f"{score!r} {why}", fix=scorer_choice(), code="unknown-scorer")


def scorer_choice() -> str:
    """Return what may be typed."""
    return f"--score {', '.join(sorted(names('scorer').keys() - {'file'}))} or FILE.py:function"


def as_json(value: Any) -> str:
    """Return a cell as text, for what is shown or searched."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def texts_of(value: Any) -> list[str]:
    """Return the right answers that a cell holds: a text, a number, a truth value, a list of those,
    or {"text": [...]}, as SQuAD has it. Raises ValueError for anything else."""
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


# --- the scorers
# -----------------------------------------------------------------------------------------


class TextScorer(Scorer):
    """A scorer that compares an answer with each of the right ones; the best counts.

    plain  characters of an answer up to which no comparison takes long; a longer one is compared
           in a process that ends after `settings.seconds` of CPU time
    """

    plain = 10_000
    shows_gold = True

    @abstractmethod
    def compare(self, answer: str, expected: str, settings: ScorerSettings) -> Scored:
        """Return what one answer is worth beside one right one."""

    def check_text(self, text: str) -> str:
        """Return why nothing can be compared with a right answer, '' where it can."""
        return "" if text.strip() else "is blank"

    def read_expected(self, value: Any) -> list[str]:
        """Return what a cell holds, in the form that `compare` takes. Raises ValueError."""
        found = texts_of(value)
        if why := next(filter(None, map(self.check_text, found)), ""):
            raise ValueError(why)
        return found

    def compare_all(self, answer: str, value: Any, settings: ScorerSettings) -> Scored:
        """Return the best that an answer scores over the right ones of a cell; an empty one scores
        0."""
        answer = answer[:LONGEST].encode("utf-8", "replace").decode()  # half a character is none
        if not answer.strip():
            return Scored(0.0, "There is no answer.")
        each = (self.compare(answer, right, settings) for right in self.read_expected(value))
        return max(each, key=lambda scored: scored.score)

    def read_answer(self, value: Any) -> Any:
        self.read_expected(value)
        return value

    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        settings = case.definition.scorer
        if len(trace.answer) <= self.plain:
            return self.compare_all(trace.answer, case.expected, settings)
        found = bounded.compare(self.name, trace.answer, case.expected, settings)
        if found is None:
            more = f"{settings.seconds:g} s of CPU time, or more memory than it may"
            return Scored(0.0, f"To compare the answer takes more than {more}.")
        return Scored(*found)

    def hidden(self, case: RowTask) -> list[str]:
        right = self.read_expected(case.expected) if "answer" in case.task.facts else []
        return [*super().hidden(case), *right]


class Exact(TextScorer):
    """1 for the text itself; blank around it and the spelling of characters (Unicode NFC) do not
    count."""

    name = "exact"
    settings = ("ignore_case",)

    def compare(self, answer: str, expected: str, settings: ScorerSettings) -> Scored:
        found = _plain(answer)
        right = _plain(expected)
        if settings.ignore_case:
            found = found.casefold()
            right = right.casefold()
        return Scored(
            float(found == right),
            "The answer is another text." if found != right else "The answer is right.",
        )


class Contains(TextScorer):
    """1 when the text occurs as whole words, whatever the capitals, in an answer that is not much
    longer."""

    name = "contains"
    settings = ("longest",)

    def compare(self, answer: str, expected: str, settings: ScorerSettings) -> Scored:
        found = _words(answer)
        right = _words(expected)
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

    def check_text(self, text: str) -> str:
        return "" if _words(text) else "is blank"


class Numeric(TextScorer):
    """1 when the last number of the answer is the expected one, however they are spelled."""

    name = "numeric"
    version = 2
    settings = ("tolerance",)

    def compare(self, answer: str, expected: str, settings: ScorerSettings) -> Scored:
        right = readings(expected)
        found = readings(answer)
        if not found:
            return Scored(0.0, "There is no number in the answer.")
        for one, one_percent in found:
            for other, other_percent in right:
                if one_percent == other_percent or len(found) != len(right):
                    allowed = Fraction(settings.tolerance) * max(Fraction(1), abs(other))
                    if abs(one - other) <= allowed:
                        return Scored(1.0, "The number is right.")
        shown = found[0][0]
        return Scored(
            0.0, f"The last number of the answer, {format_number(shown)}, is not the right one."
        )

    def check_text(self, text: str) -> str:
        return explain_doubt(text)

    def read_expected(self, value: Any) -> list[str]:
        return super().read_expected([marked_part(text) for text in texts_of(value)])

    def describe_answer(self) -> str:
        return "The answer is a number; the last one in the file counts."


# --- how texts are read
# ------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n")).strip()


def _words(text: str) -> str:
    return " ".join(_plain(text).casefold().split())
