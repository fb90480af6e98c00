"""Rows as tasks: each cell read as what its column is, and every row that cannot be one told at
once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from recreate.api.config import Split
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Task, digest
from recreate.domains.rows.forms import SPLITS, BadRow
from recreate.domains.rows.prompts import (
    explain_no_text,
    list_choices,
    name_choice,
    read_choices,
    read_prompt,
)
from recreate.domains.rows.scorers import Scorer, find_scorer, texts_of
from recreate.domains.rows.settings import Definition
from recreate.domains.rows.table import DataRow, DataTable, cell, refuse

_ID = re.compile(r"[^A-Za-z0-9._@+-]+")


def tasks_of(
    name: str, found: DataTable, decided: Definition, base: Path
) -> tuple[list[Task], str]:
    """Return (the tasks in the order of their rows, what is to be said of their splits). base: the
    folder that paths in cells count from. Raises BadInput that tells all bad rows."""
    faults = list(found.faults)
    columns = decided.columns
    scorer = find_scorer(decided.score)
    seen: dict[str, DataRow] = {}
    made: list[tuple[DataRow, JsonDict]] = []
    for row in found.rows:
        wrong = list[str]()
        task = JsonDict()
        for part in _parts(row, decided, scorer, base):
            if isinstance(part, str):
                wrong.append(part)
            else:
                task.update(part)
        if (id := task.get("id")) and (first := seen.setdefault(id, row)) is not row:
            wrong.append(
                f"its {columns.id} is that of {first.file or found.place} {first.number} too"
            )
        faults += [BadRow(row.number, why, row.file) for why in wrong]
        if not wrong:
            made.append((row, task))
    splits, more = _splits(made, decided, found.place)
    refuse(found, [*faults, *more])
    same: Counter[str] = Counter()
    tasks = []
    for row, task in made:
        id = (
            _spelled(task["id"])
            if "id" in task
            else digest([task["prompt"], task["facts"].get("files")], 12)
        )
        same[id] += 1
        tasks.append(
            Task(
                id=f"{name}:{_spelled(Path(found.source).stem) or 'rows'}:{id}"
                + f".{same[id]}" * (same[id] > 1),
                domain=name,
                prompt=task["prompt"]
                + "\n\n"
                + "Answer with the label of the right choice. "
                * bool(columns.choices and decided.score == "exact")
                + scorer.instruct(decided, task["facts"].get("answer")),
                split=splits[row.at],
                group=f"{name}:{task['group']}" if columns.group else f"same-text:{task['group']}",
                facts={
                    **task["facts"],
                    **({"prompt": task["prompt"]} if scorer.asks_model else {}),
                },
            )
        )
    return tasks, _told_of_splits(made, columns.split)


def _told_of_splits(made: Sequence[tuple[DataRow, JsonMap]], column: str) -> str:
    if not column or any(SPLITS[task["split"].lower()] == "validation" for _, task in made):
        return ""
    return (
        f"no row is validation by its {column}, so those of train are dealt between train and"
        " validation"
    )


def _parts(
    row: DataRow, decided: Definition, scorer: Scorer, base: Path
) -> Iterator[str | JsonDict]:
    """Yield what a row has for its task, piece by piece; a text is what is wrong with a piece."""
    columns = decided.columns
    cells = row.values
    prompt = ""
    try:
        prompt = read_prompt(cell(cells, columns.prompt))
        if columns.choices:
            prompt += f"\n\n{list_choices(read_choices(cell(cells, columns.choices)))}"
        yield {"prompt": prompt, "group": digest(" ".join(prompt.split()), 16)}
    except ValueError as e:
        yield f"its {columns.prompt} {e}"
    facts, faults = _read_facts(cells, decided, scorer, base)
    yield from faults
    yield {"facts": facts}
    given = {name: facts[name] for name in ("files", "place_digest") if name in facts}
    if given:  # the same question of other files is another one
        yield {"group": digest([" ".join(prompt.split()), given], 16)}
    for what in ("id", "group", "split"):
        if column := getattr(columns, what):
            value = cell(cells, column)
            name = (
                texts_of(value)[0].strip()
                if type(value) in (str, int, float) and value != ""
                else ""
            )
            if not name:
                yield f"its {column} {explain_no_text(value)}"
            elif what == "split" and name.lower() not in SPLITS:
                yield f"its {column} is none of train, validation and test"
            else:
                yield {what: name}


def _read_facts(
    cells: JsonMap, decided: Definition, scorer: Scorer, base: Path
) -> tuple[JsonDict, list[str]]:
    """Return (the facts of a row's task, what is wrong with its cells)."""
    columns = decided.columns
    faults = list[str]()
    apart = (columns.split, columns.files)
    facts: JsonDict = {"row": {n: value for n, value in cells.items() if n not in apart}}
    if columns.answer:
        value = cell(cells, columns.answer)
        try:
            if columns.choices and decided.score == "exact":
                value = name_choice(cell(cells, columns.choices), value)
            facts["answer"] = scorer.read_answer(value)
            facts |= scorer.add_facts(facts["answer"], base)
        except ValueError as e:
            if scorer.needs_answer or value not in (None, ""):
                faults.append(f"its {columns.answer} {e}")
    if columns.gold and cell(cells, columns.gold) not in (None, ""):
        facts["gold"] = cell(cells, columns.gold)
    try:
        if columns.files:
            facts |= scorer.read_files(cell(cells, columns.files), base)
        if why := scorer.check_files(decided, facts):
            faults.append(why)
    except ValueError as e:
        faults.append(f"its {columns.files} {e}")
    return facts, faults


def _splits(
    made: Sequence[tuple[DataRow, JsonMap]], decided: Definition, place: str
) -> tuple[dict[tuple[str, int], Split], list[BadRow]]:
    """Return where a row stands -> its split, and the rows of which that cannot be said."""
    column = decided.columns.split
    shares = decided.splits
    if not column:
        return {row.at: shares.split(task["group"]) for row, task in made}, []
    found: dict[tuple[str, int], Split] = {}
    faults: list[BadRow] = []
    judged = any(SPLITS[task["split"].lower()] == "validation" for _, task in made)
    groups: dict[str, tuple[Split, DataRow]] = {}
    for row, task in made:
        split = SPLITS[task["split"].lower()]
        if split == "train" and not judged:
            split = shares.of_train(task["group"])
        other, first = groups.setdefault(task["group"], (split, row))
        if other != split:
            of = "group" if decided.columns.group else "text"
            named = f"{first.file or place} {first.number}"
            why = f"its {of} is that of {named}, which is {other}: one would give the other away"
            faults.append(BadRow(row.number, why, row.file))
        found[row.at] = split
    return found, faults


def _spelled(text: str) -> str:
    """Return a value as part of a task's id: what cannot be typed there is replaced, and told apart
    by a digest."""
    plain = _ID.sub("-", text).strip("-")
    return (
        plain
        if plain == text and len(plain) <= 100
        else f"{plain[:80]}-{digest(text, 6)}".lstrip("-")
    )
