"""Published sets of tasks as domains: rows of a known form, in place of columns that somebody
names.

benchmarks/NAME/domain.toml, shipped or the workspace's, says where the rows come from and how
answers are scored; recipes.py reads each set's own columns. No row is shipped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from recreate.api.config import Config
from recreate.api.errors import BadInput, Missing
from recreate.api.ports import SandboxBackend
from recreate.api.shapes import JsonMap
from recreate.api.types import Grade, Task, Trace, digest
from recreate.domains.rows import HUB, SUFFIXES, Columns, table
from recreate.domains.rows.domain import RowDomain, _RowsRead
from recreate.domains.rows.forms import BadRow
from recreate.domains.rows.settings import Definition, ScorerSettings, Shares
from recreate.domains.rows.table import DataRow, DataTable
from recreate.domains.rows.tasks import tasks_of
from recreate.plugins.benchmarks import recipes
from recreate.plugins.benchmarks.definitions import load_definition

COLUMNS = Columns(
    prompt="prompt",
    answer="answer",
    id="id",
    group="group",
    split="split",
    files="files",
    gold="gold",
)
"""What the rows of recipes.py have."""


class PublishedDefinition(Config):
    """benchmarks/NAME/domain.toml of a published domain. data: files, folders or hf:NAME, all of
    which are read; files that their rows name lie beside them, so all in one folder. left_out:
    SOURCE:ID, where * stands for anything, -> why that row is no task."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    data: tuple[str, ...] = ()
    score: str
    about: str = ""
    answer_file: str = "answer.txt"
    requires: tuple[str, ...] = ()
    python: str = ""
    splits: Shares = Shares()
    scorer: ScorerSettings = ScorerSettings()
    left_out: Mapping[str, str] = {}


class PublishedDomain(RowDomain):
    """Tasks that are rows of published sets. data: a file, a folder of files, or hf:NAME; '' where
    domain.toml says."""

    name = ""

    def __init__(self, *, workspace: Path | None = None, data: str | Path = "") -> None:
        super().__init__(self.name, workspace=workspace)
        self._data = str(data)
        self._lacking: dict[str, str] = {}

    def stratum(self, task: Task) -> str:
        """The set that it is of."""
        return str(task.facts["row"]["source"])

    def refused(self) -> Sequence[tuple[str, str]]:
        """Rows that domain.toml leaves out, of the sets that were read, and rows that say
        themselves that they are no tasks, or whose files are not there."""
        sources = {self.stratum(task) for task in self._contents.tasks}
        out = {
            id: why
            for id, why in self._settings.left_out.items()
            if id.partition(":")[0] in sources
        }
        return [(f"{self.name}:{id}", why) for id, why in {**out, **self._lacking}.items()]

    # --- where the rows are ---

    @cached_property
    def _settings(self) -> PublishedDefinition:
        known, file = load_definition(PublishedDefinition, self._where, self.name)
        here = [
            place if place.startswith(HUB) else str((file.parent / place).resolve())
            for place in known.data
        ]
        return known.model_copy(update={"data": tuple(here)})

    @cached_property
    def _loaded_rows(self) -> _RowsRead:
        known = self._settings
        named = [self._data] if self._data else known.data
        local = [Path(place).expanduser() for place in named if not place.startswith(HUB)]
        folders = {(path if path.is_dir() else path.parent).resolve() for path in local}
        base = folders.pop() if len(folders) == 1 else self._where
        decided = Definition(
            data=self._data or ", ".join(known.data),
            score=known.score,
            about=known.about,
            answer_file=known.answer_file,
            requires=known.requires,
            python=known.python,
            columns=COLUMNS,
            splits=known.splits,
            scorer=known.scorer,
        )
        tasks: dict[str, Task] = {}
        own: set[str] = set()
        for found in self._tables(known, base):
            has = _has_splits(found)
            made, _ = tasks_of(
                self.name, found if has else _dealt(found, known.splits), decided, base
            )
            tasks |= {task.id: task for task in made}
            own |= {task.id for task in made if has}
        kept = _keep_splits_apart(list(tasks.values()), own)
        twice = _twice(kept)
        self._lacking |= {id.partition(":")[2]: why for id, why in twice.items()}
        return _RowsRead(decided, [task for task in kept if task.id not in twice], base)

    def _tables(self, known: PublishedDefinition, base: Path) -> list[DataTable]:
        """The rows by their set, as COLUMNS has them. Raises BadInput for rows that are of none."""
        found: dict[str, DataTable] = {}
        labels: dict[str, Mapping[str, JsonMap]] = {}
        strange: list[tuple[str, JsonMap]] = []
        for place in self._places(known):
            read = self._table(place)
            table.refuse(read, read.faults)
            kinds = [recipes.find_recipe(row.values, self.name) for row in read.rows]
            usual = next((kind for kind in kinds if kind), None)
            rows = (
                row._replace(file=f"{table.shorten_source(read)} {read.place}") for row in read.rows
            )
            for row, recipe in zip(rows, kinds, strict=True):
                if recipe is None and usual and (lacks := recipes.lacking(usual, row.values)):
                    into = found.setdefault(
                        usual.name, DataTable(usual.name, read.place, [], [], [])
                    )
                    _fault(into, row, f"it has no {', '.join(lacks)}")
                    continue
                if recipe is None:
                    strange.append((f"{row.file} {row.number}", row.values))
                    continue
                into = found.setdefault(recipe.name, DataTable(recipe.name, read.place, [], [], []))
                if recipe.labels and recipe.labels not in labels:
                    labels[recipe.labels] = _labels(base / recipe.labels)
                more = labels.get(recipe.labels, {}).get(str(row.values.get("id")), {})
                self._lacking |= _place_row(
                    into, row._replace(values={**more, **row.values}), recipe, known, base
                )
        named = [place + _lacks(values, self.name) for place, values in strange[:3]]
        if not found:
            columns = ", ".join(list(strange[0][1])[:12]) if strange else ""
            seen = f": {named[0]}; its columns are {columns}" if strange else ""
            raise BadInput(
                f"{self._data or ', '.join(known.data) or self.name} has no row of a set that"
                f" {self.name} knows{seen}",
                fix=(
                    f"benchmarks/{self.name}/README.md lists the columns; other rows: --data FILE"
                    " --score SCORER --domain NAME"
                ),
                code="bad-rows",
            )
        if strange:
            count = f"{len(strange)} rows are" if strange[1:] else "1 row is"
            self._say(f"{count} of no set that {self.name} knows: {', '.join(named)}")
        return list(found.values())

    def _places(self, known: PublishedDefinition) -> Sequence[str]:
        if not self._data and not known.data:
            raise BadInput(
                f"the domain {self.name} has no rows: no data set of the hub is known to have them",
                fix=(
                    f"--data FILE: benchmarks/{self.name}/README.md says where its rows are and"
                    " their columns"
                ),
                code="no-tasks-file",
            )
        labels = {recipe.labels for recipe in recipes.RECIPES}
        places: list[str] = []
        for place in [self._data] if self._data else known.data:
            path = Path(place).expanduser()
            if place.startswith(HUB) or not path.is_dir():
                places.append(place)
            else:
                found = (f for f in sorted(path.iterdir()) if f.suffix.lower() in SUFFIXES)
                places += [str(file) for file in found if file.name not in labels]
        return places

    def _table(self, place: str) -> DataTable:
        try:
            return table.read(place)
        except BadInput as e:
            if not self._data and place.startswith(HUB):
                more = f"; where the hub can be reached: {e.fix}" if isinstance(e, Missing) else ""
                e.fix = (
                    f"--data FILE: benchmarks/{self.name}/README.md says where its rows are and"
                    f" their columns{more}"
                )
            raise


def _lacks(row: JsonMap, domain: str) -> str:
    """` has no answer`: what a row lacks to be one of the set that it is nearest to; '' for one
    that is near none."""
    near = [recipes.lacking(each, row) for each in recipes.RECIPES if each.domain == domain]
    least = min(filter(None, near), key=lambda lacks: len(lacks), default=[])
    return f" has no {', '.join(least)}" if least else ""


def _labels(file: Path) -> Mapping[str, JsonMap]:
    """id -> the columns that a labels' file beside the rows has; none where there is no such
    file."""
    return (
        {str(row.values.get("id")): row.values for row in table.read(str(file)).rows}
        if file.is_file()
        else {}
    )


def _place_row(
    into: DataTable,
    row: DataRow,
    recipe: recipes.PublishedSet,
    known: PublishedDefinition,
    base: Path,
) -> dict[str, str]:
    """Put the row into its set's table, or what is wrong with it. Returns why it is no task, by its
    id, if it is none of itself."""
    rows = into.rows
    assert isinstance(rows, list)
    try:
        made = recipes.read(recipe, row.values)
    except KeyError as e:
        given = f", which {recipe.labels} beside it would give" if recipe.labels else ""
        _fault(into, row, f"it has no {e.args[0]}{given}")
    except (ValueError, TypeError, AttributeError) as e:
        ours = str(e).startswith(("has ", "is "))
        _fault(into, row, f"it {e}" if ours else f"it cannot be read: {e}")
    else:
        id = f"{recipe.name}:{made['id']}"
        if any(fnmatchcase(id, out) for out in known.left_out):
            return {}
        needs = made.pop("needs", ())
        why = made.pop("left_out", "")
        if gone := [path for path in needs if not (base / path).exists()]:
            why = f"{gone[0]} is not beside the data"
        if why:
            return {id: why}
        rows.append(row._replace(values=made))
    return {}


def _has_splits(found: DataTable) -> bool:
    """Whether the set says the split of each row, and has more than one."""
    splits = {row.values["split"] for row in found.rows}
    return "" not in splits and len(splits) > 1


def _dealt(found: DataTable, shares: Shares) -> DataTable:
    """With a split for each row, by its group."""
    rows = [
        row._replace(values={**row.values, "split": shares.split(row.values["group"])})
        for row in found.rows
    ]
    return found._replace(rows=rows)


def _keep_splits_apart(tasks: Sequence[Task], own: Collection[str]) -> list[Task]:
    """The tasks, no group of them in two splits. own: ids whose set says their splits; where their
    group is among these the others go. Raises BadInput where two such sets disagree."""
    first: dict[str, Task] = {}
    odd = [t for t in tasks if t.id in own and first.setdefault(t.group, t).split != t.split]
    if odd:
        named = ", ".join(
            f"{t.id} is {t.split} and {first[t.group].id} {first[t.group].split}" for t in odd[:3]
        )
        raise BadInput(
            f"{len(odd)} tasks are in another split than tasks that would give them away: {named}",
            fix=(
                "name one of the files, or take the column `split` out of one: its rows go then"
                " where the others are"
            ),
            code="bad-rows",
        )
    return [
        t if t.id in own else t.model_copy(update={"split": first.get(t.group, t).split})
        for t in tasks
    ]


def _twice(tasks: Sequence[Task]) -> dict[str, str]:
    """Why a task is left out, by its id: what it asks is asked in another split too."""
    first: dict[str, Task] = {}
    found: dict[str, str] = {}
    for task in tasks:
        asked = digest(
            [" ".join(task.prompt.split()), task.facts.get("files"), task.facts.get("place_digest")]
        )
        other = first.setdefault(asked, task)
        if other.split != task.split:
            found[task.id] = (
                f"its text is that of {other.id}, which is {other.split}: one would give the other"
                " away"
            )
    return found


def _fault(into: DataTable, row: DataRow, reason: str) -> None:
    assert isinstance(into.faults, list)
    into.faults.append(BadRow(row.number, reason, row.file))


class Code(PublishedDomain):
    """Python functions and programs: HumanEval, HumanEval+, MBPP+, HumanEvalFix, QuixBugs,
    Exercism."""

    name = "code"


class Mathematics(PublishedDomain):
    """Mathematics with an answer: MATH-500, AIME, AMC, GSM8K."""

    name = "math"


class Sql(PublishedDomain):
    """Questions to databases."""

    name = "sql"


class Ds1000(PublishedDomain):
    """Snippets of data science: DS-1000."""

    name = "ds1000"


class Dacode(PublishedDomain):
    """Analysis of data in files: DA-Code, InfiAgent-DABench."""

    name = "dacode"

    def untouched(self, task: Task, backend: SandboxBackend) -> Grade:
        """What is handed in where nobody did anything: a file may lie there under the answer's
        name."""
        sandbox = self.prepare(task, backend)
        try:
            answer = self.collect(task, sandbox)
        finally:
            sandbox.close()
        trace = Trace(attempt="untouched", task=task.id, scaffold="", model="", answer=answer)
        return self.grade(task, trace, backend)
