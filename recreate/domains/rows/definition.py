"""Which column is what, how answers are scored, how rows are dealt into splits: guessed once, or
said, and kept as benchmarks/NAME/domain.toml, which a person may edit. docs/format.md has its
lines."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from recreate.api import paths
from recreate.api.config import read_toml, write_toml
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict
from recreate.domains.rows import HUB, Columns
from recreate.domains.rows.numbers import is_number
from recreate.domains.rows.prompts import read_choices
from recreate.domains.rows.scorers import (
    Scorer,
    find_scorer,
    scorer_choice,
)
from recreate.domains.rows.settings import Definition, ScorerSettings, Shares, Wanted
from recreate.domains.rows.table import DataTable, cell, refuse, shorten_source

FILE = "domain.toml"

GUESSES: Mapping[str, Sequence[str]] = {
    "prompt": (
        "prompt",
        "question",
        "problem",
        "input",
        "instruction",
        "query",
        "text",
        "messages",
    ),
    "choices": ("choices", "options"),
    "answer": (
        "answer",
        "answers",
        "target",
        "label",
        "output",
        "solution",
        "expected",
        "reference",
        "ideal",
        "ground_truth",
        "reward_model.ground_truth",
        "answerkey",
    ),
    "id": ("id", "task_id", "uid"),
    "group": ("group",),
    "split": ("split",),
    "files": ("files",),
    "gold": ("gold", "canonical_solution"),
}
"""What a column is likely called, the likeliest first."""


def load(file: Path) -> Definition:
    """Read domain.toml. Raises BadInput that names the line's address."""
    try:
        return Definition.model_validate(read_toml(file.read_text("utf-8")))
    except ValidationError as e:
        # a typo is why a key is missing
        first = min(e.errors(), key=lambda error: error["type"] != "extra_forbidden")
        where = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ").lower()
        if first["type"] == "extra_forbidden":
            tables = (Definition, Columns, Shares, ScorerSettings)
            known = [name.rstrip("_") for table in tables for name in table.model_fields]
            near = difflib.get_close_matches(str(first["loc"][-1]), known, 1)
            why = "there is no such key" + (f"; did you mean {near[0]!r}?" if near else "")
        raise BadInput(
            f"{paths.short(file)}: {where + ': ' if where else ''}{why}",
            fix="mend that line; recreate init --domain NAME --template qa writes a right one",
            code="bad-domain-file",
        ) from None
    except (OSError, ValueError) as e:
        fix = "mend it, or delete it and name the data once more: --data FILE --score SCORER"
        raise BadInput(
            f"{paths.short(file)} cannot be read: {e}", fix=fix, code="bad-domain-file"
        ) from None


def absolute(definition: Definition, folder: Path) -> Definition:
    """Return the same with whole paths for the files that it names, which count from `folder`."""

    def resolve_path(path: str) -> str:
        return str((folder / Path(path).expanduser()).resolve())

    return _placed(definition, resolve_path)


def _placed(definition: Definition, place: Callable[[str], str]) -> Definition:
    data = definition.data
    if not data.startswith(HUB):
        data = place(data)
    elif data.startswith((f"{HUB}.", f"{HUB}/", f"{HUB}~")):
        data = HUB + place(data.removeprefix(HUB))
    score = find_scorer(definition.score).with_files(place)
    return definition.model_copy(update={"data": data, "score": score})


def decide(table: DataTable, wanted: Wanted) -> tuple[Definition, list[str]]:
    """Return (the definition, what was guessed, in words). Raises BadInput for a column that is not
    there, and for what can neither be guessed nor was said."""
    source = shorten_source(table)
    if not table.columns and table.faults:
        first = table.faults[0]
        raise BadInput(
            f"{source}, {table.place} {first.number}: {first.reason}; no row of it can be read",
            fix="""a row is an object with a prompt and an answer, one a line: {"prompt": "2 + 3", \
"answer": "5"}""",
            code="bad-rows",
        )
    columns = ", ".join(table.nested)
    for what, column in wanted.columns.model_dump().items():
        if column and not table.has(column):
            near = difflib.get_close_matches(column, [*table.columns, *table.nested], 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            flag = "row-files" if what == "files" else what
            raise BadInput(
                f"{source} has no column {column!r} (--{flag})",
                fix=f"{hint}there are: {columns}",
                code="no-column",
            )
    named, open_ = _complete(table, wanted)
    if open_:
        refuse(table, table.faults)  # a line that is broken may be why
        which = "column" if len(open_) == 1 else "columns"
        score = " --score SCORER" if "answer" in open_ and not wanted.score else ""
        raise BadInput(
            f"which {which} of {source} {'is' if len(open_) == 1 else 'are'} the"
            f" {' and the '.join(open_)}? There are: {columns}",
            fix=f"name {'it' if len(open_) == 1 and not score else 'them'}:"
            f"{''.join(f' --{each} COLUMN' for each in open_)}{score}"
            + f" ({scorer_choice().removeprefix('--score ')})"
            * bool(score),
            code="no-column",
        )
    given = wanted.columns.model_dump()
    guessed = [f"{what} = {named[what]}" for what in named if named[what] != given[what]]
    score = wanted.score or _guess_scorer(table, named)
    guessed += [] if wanted.score else [f"score = {score}"]
    data = wanted.data or table.source
    return Definition(data=data, score=score, columns=Columns(**named)), guessed


def open_questions(table: DataTable, wanted: Wanted) -> list[str]:
    """Return what `decide` could not guess: of prompt, answer, score."""
    named, open_ = _complete(table, wanted)
    if not wanted.score and named["answer"]:
        try:
            _guess_scorer(table, named)
        except BadInput:
            open_.append("score")
    return open_


def _complete(table: DataTable, wanted: Wanted) -> tuple[dict[str, str], list[str]]:
    """Return (the columns that are said or can be guessed, which of those that must be are not)."""
    scorer = find_scorer(wanted.score or "exact")
    named: dict[str, str] = wanted.columns.model_dump()
    for what in named:
        named[what] = named[what] or _guess(what, scorer, table, named)
    needed = ("prompt", "answer") if scorer.needs_answer else ("prompt",)
    return named, [what for what in needed if not named[what]]


def _guess(what: str, scorer: Scorer, table: DataTable, named: Mapping[str, str]) -> str:
    """Return the likeliest column that nothing else is; '' for none."""
    free = {
        column.casefold(): column
        for column in [*table.columns, *table.nested]
        if column not in named.values()
    }
    likely = [*scorer.columns.get(what, ()), *GUESSES[what]]
    if what == "gold" and not scorer.columns:
        return ""  # the answer itself is right
    found = next((free[name] for name in likely if name in free), "")
    if what == "choices" and found:
        try:
            for row in table.rows:
                read_choices(cell(row.values, found))
        except ValueError:
            return ""
    return found


def list_unseen(table: DataTable, columns: Columns) -> list[str]:
    """Return the columns that reach neither an agent nor a scorer."""
    named = [name for name in columns.model_dump().values() if name]
    used = {name if name in table.columns else name.partition(".")[0] for name in named}
    return [name for name in table.columns if name not in used]


def _guess_scorer(table: DataTable, named: Mapping[str, str]) -> str:
    """Return numeric where every answer is a number, exact where all are short, or are choices.
    Raises BadInput where neither is."""
    if named["choices"]:
        return "exact"
    values = [cell(row.values, named["answer"]) for row in table.rows]
    each = [one for value in values for one in (value if isinstance(value, list) else [value])]
    texts = [
        str(value)
        for value in each
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    ]
    if texts and len(texts) == len(each):
        if all(map(is_number, texts)):
            return "numeric"
        if max(map(len, texts)) <= 40 and not any("\n" in text for text in texts):
            return "exact"
    raise BadInput(
        f"how are answers of {shorten_source(table)} scored? They are too long to be compared as"
        " they are",
        fix=scorer_choice(),
        code="no-scorer",
    )


def text(definition: Definition, folder: Path, workspace: Path) -> str:
    """Return the text of domain.toml in `folder`: files within the workspace as seen from there,
    others by their whole path."""

    def shorten_path(path: str) -> str:
        inside = Path(path).is_relative_to(workspace.resolve())
        return os.path.relpath(path, folder.resolve()) if inside else path

    definition = _placed(definition, shorten_path)
    counts = find_scorer(definition.score).settings
    asked = definition.model_dump(by_alias=True)
    table: JsonDict = {}
    for name, value in asked.items():
        if isinstance(value, dict):
            kept = {key: each for key, each in value.items() if each not in ("", None)}
            if name == "scorer":  # the lines that count for this one, and what a person set besides
                default = ScorerSettings().model_dump()
                kept = {k: each for k, each in kept.items() if k in counts or each != default[k]}
            table |= {name: kept} if kept else {}
        elif value not in ("", ()):
            table[name] = value
    head = (
        "# The tasks of this folder's domain: docs/data.md. Yours to edit; recreate writes it once"
    )
    return f"{head} and reads it.\n{write_toml(table)}"


def differences(kept: Definition, wanted: Wanted) -> list[str]:
    """Return what is asked for otherwise than domain.toml says it, but for the data."""
    said = {**kept.columns.model_dump(), "score": kept.score}
    asked = {**wanted.columns.model_dump(), "score": wanted.score}
    return [f"{name} = {value}" for name, value in asked.items() if value and value != said[name]]
