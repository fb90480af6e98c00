"""Tasks of a generator: a folder with generator.toml and a program generate.py, which for a seed
and a level prints one task. docs/data.md is its page.

The program, and what it prints, may be a model's work (invention.py). It runs in sandboxes alone,
one a run, and its task is kept only when the program prints the same one again, what an agent is
shown does not say the gold, and the verifier was checked: the gold passes; nothing, the question
itself and another seed's gold fail.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from recreate.api import paths
from recreate.api.config import Config, Split, read_json, read_toml, too_deep
from recreate.api.errors import UNSOUND, BadInput, Fault, Interrupted
from recreate.api.ports import Limits, SandboxBackend
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Record, Trace, digest
from recreate.domains.rows import Columns, table
from recreate.domains.rows.definition import FILE, absolute, load, text
from recreate.domains.rows.domain import RowDomain
from recreate.domains.rows.scorers import split_score, texts_of
from recreate.domains.rows.settings import Definition, ScorerSettings, Shares
from recreate.domains.validate import validate
from recreate.storage import files

SETTINGS = "generator.toml"
PROGRAM = "generate.py"
_OUTPUT = 4_000_000
"""Bytes that one task may have."""
_GIVEN = ("prompt", "answer", "gold", "files")
"""What a printed task may say; other columns could ask for packages, or name files of this
machine."""
_COLUMNS = Columns(
    prompt="prompt", answer="answer", id="id", split="split", files="files", gold="gold"
)
_PLAIN = ("exact", "numeric", "contains", "regex", "f1", "json-schema")
_SCORES = (*_PLAIN, "tests", "sql", "file")
_HANGS = 3
"""Time limits in a row after which no more is tried."""
_SHORT = 3
"""Characters of a right answer that may stand by chance in what an agent is shown."""
PROBED = 3
"""Tasks of each level that `check` makes, of one seed more at most."""
_REASONS = (
    ("gold fails", "gold-fails"),
    ("handing in nothing", "nothing-passes"),
    ("what should fail", "nothing-passes"),
    ("the gold of", "other-gold-passes"),
)


class GeneratorSettings(Config):
    """What generator.toml says. score, scorer, answer_file, about: as in domain.toml;
    FILE.py:function is a file of the folder. levels: of difficulty, from 1. seconds: for one task.
    answer_in_files: the answer is one of the things that stand in the files, to be found there."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    score: str
    levels: int = Field(default=1, ge=1, le=50)
    about: str = ""
    seconds: float = Field(default=10.0, gt=0, le=600)
    answer_in_files: bool = False
    answer_file: str = "answer.txt"
    scorer: ScorerSettings = ScorerSettings()


class GeneratedRows(Record):
    """What came of it: rows that are new in the file, how many seeds were tried, and for each name
    of a refusal how many and the reason of the first."""

    file: Path
    rows: Sequence[JsonMap]
    tried: int
    refused: Mapping[str, int]
    reasons: Mapping[str, str]


class _Refused(Exception):
    """Why a task is not kept: a name that is counted, and a sentence."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


def find(name: str) -> tuple[Path, GeneratorSettings]:
    """The folder of a generator, by its path or as one that ships, and what its generator.toml
    says. Raises BadInput that says what is wrong with it."""
    folder = Path(name).expanduser()
    if not folder.is_dir() and Path(name).name == name:
        folder = paths.shipped("benchmarks") / "generators" / name
    if not (folder / SETTINGS).is_file() or not (folder / PROGRAM).is_file():
        raise BadInput(
            f"{name} is no generator: a folder with {SETTINGS} and {PROGRAM}",
            fix="--generator bills is one that ships; docs/data.md says what they hold",
            code="no-generator",
        )
    folder = folder.resolve()
    try:
        known = GeneratorSettings.model_validate(read_toml((folder / SETTINGS).read_text("utf-8")))
        kind, named = split_score(known.score)
    except (OSError, ValueError) as e:
        said = str(e).replace("\n", " ")[:300]
        raise BadInput(
            f"{name}/{SETTINGS}: {said}", fix='score = "numeric"', code="bad-generator"
        ) from None
    script = folder / named.rpartition(":")[0]
    if kind == "file" and not (script.is_file() and script.resolve().is_relative_to(folder)):
        raise BadInput(
            f"{name}/{SETTINGS}: {known.score} is no file of its folder",
            fix="put it there",
            code="bad-generator",
        )
    if kind not in _SCORES:
        raise BadInput(
            f"{name}/{SETTINGS}: score = {known.score!r} is none that generated tasks may have",
            fix=f"one of {', '.join(_SCORES[:-1])} or FILE.py:function",
            code="bad-generator",
        )
    return folder, known


def make(
    name: str,
    folder: Path,
    known: GeneratorSettings,
    counts: Sequence[int],
    *,
    workspace: Path,
    file: Path,
    seed: int,
    split: Split | None,
    backend: SandboxBackend,
    on_progress: Callable[[str], None],
) -> GeneratedRows:
    """Add tasks to the rows of a domain, `counts[k]` of level k + 1, and write its domain.toml
    where there is none.

    seed: the first; later calls go on after the last one of the file. split: of all, None to deal
    them by their digest. What was found when Ctrl-C comes is written. Raises BadInput for a domain
    of other data or another scorer, and for a sandbox without walls.
    """
    refuse_no_walls(backend)
    decided = _definition(folder, known, file)
    place = workspace / "benchmarks" / name
    _refuse_other(place / FILE, decided)
    before = _rows_before(file)
    making = _Making(name, folder, known, decided, backend, split, before)
    try:
        making.all(counts, max([seed, *(row["seed"] + 1 for row in before)]), on_progress)
    except KeyboardInterrupt:
        written = f"{len(making.kept)} tasks are in {paths.short(file)}"
        raise Interrupted(written, fix="the same command makes more of further seeds") from None
    finally:
        if making.kept:
            # another command may have added rows since `before`, of the same seeds
            with files.locked(file.parent):
                before = _rows_before(file)
                making.leave_out(before)
                lines = [
                    json.dumps(row, ensure_ascii=False) + "\n" for row in (*before, *making.kept)
                ]
                files.write(file, "".join(lines))
            if not (place / FILE).is_file():
                files.write(place / FILE, text(decided, place, workspace))
    return GeneratedRows(
        file=file,
        rows=making.kept,
        tried=making.tried,
        refused=making.refused,
        reasons=making.reasons,
    )


def refuse_no_walls(backend: SandboxBackend) -> None:
    """Raises BadInput for the sandbox in which a program could do what a user can."""
    if backend.name == "none":
        raise BadInput(
            "a generator runs in a sandbox alone, and the sandbox `none` has no walls",
            fix="leave --sandbox out; recreate doctor says which sandboxes work here",
            code="no-sandbox",
        )


def check(
    folder: Path, known: GeneratorSettings, backend: SandboxBackend, say: Callable[[str], None]
) -> tuple[list[JsonDict], list[str]]:
    """(tasks of every level, what is wrong with the generator): every level must give `PROBED`
    tasks that can be kept, of one seed more at most, and be told from the other levels by more than
    its seeds; and no answer may be right for more than half of them. Nothing is written."""
    making = _Making(
        "check", folder, known, _definition(folder, known, Path("rows.jsonl")), backend, None, ()
    )
    by_level: dict[int, list[JsonDict]] = {}
    for level in range(1, known.levels + 1):
        making.all([0] * (level - 1) + [PROBED], making.tried, say, spare=1)
        rows = by_level[level] = [row for row in making.kept if row["level"] == level]
        if len(rows) < PROBED:  # what is wrong there may take long at every level
            told = [f"{name}: {why}" for name, why in making.reasons.items()]
            return making.kept, [f"level {level}: {len(rows)} of {PROBED} tasks hold", *told]
    wrong = []
    gold, often = Counter(
        json.dumps(_gold(row), sort_keys=True) for row in making.kept
    ).most_common(1)[0]
    if 2 * often > len(making.kept):
        wrong.append(
            f"{gold[:80]} is the right answer of {often} of {len(making.kept)} tasks: a guess would"
            " pass"
        )
    for one, two in itertools.combinations(by_level, 2):
        if _alike(by_level[one], by_level[two]):
            wrong.append(
                f"levels {one} and {two} are told apart by nothing but chance: their questions have"
                " the same words in common, and neither questions nor files are longer in one of"
                " them"
            )
    return making.kept, wrong


class _Making:
    """One call: what was printed so far, kept and refused."""

    def __init__(
        self,
        name: str,
        folder: Path,
        known: GeneratorSettings,
        decided: Definition,
        backend: SandboxBackend,
        split: Split | None,
        before: Sequence[JsonMap],
    ) -> None:
        self.name = name
        self.folder = folder
        self.known = known
        self.decided = decided
        self.backend = backend
        self.split = split
        self.kind = split_score(decided.score)[0]
        self.version = digest(
            [(p.name, p.read_bytes().hex()) for p in sorted(folder.iterdir()) if p.is_file()], 12
        )
        self.seen = {_content(row) for row in before}
        self.printed: dict[tuple[int, int], JsonDict] = {}
        self.kept: list[JsonDict] = []
        self.tried = 0
        self.refused: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}

    def all(
        self, counts: Sequence[int], seed: int, say: Callable[[str], None], spare: int | None = None
    ) -> None:
        """Try seeds level by level; a level gets at most `spare` more than it owes tasks, by
        default twice as many and five."""
        hung = 0
        for level, count in enumerate(counts, 1):
            owed = count
            most = count + (2 * count + 5 if spare is None else spare) if count else 0
            while owed and most and hung < _HANGS:
                self.tried = self.tried + 1
                most = most - 1
                try:
                    self.kept.append(self._sound(seed, level))
                    owed = owed - 1
                    hung = 0
                except _Refused as e:
                    self.refused[e.name] += 1
                    self.reasons.setdefault(e.name, f"seed {seed}, level {level}: {e}")
                    hung = hung + 1 if e.name == "hangs" else 0
                seed += 1
            if count:
                say(f"level {level}: {count - owed} of {count} tasks")
        if hung == _HANGS:
            say(
                f"the generator ran past its {self.known.seconds:g} s {hung} times in a row: no"
                " more is tried"
            )

    def leave_out(self, there: Sequence[JsonMap]) -> None:
        """Drop of what was kept the rows that are in the file already."""
        asked = {_content(row) for row in there}
        ids = {row["id"] for row in there}
        double = [row for row in self.kept if row["id"] in ids or _content(row) in asked]
        self.kept = [row for row in self.kept if row not in double]
        for row in double:
            self.refused["duplicate"] += 1
            self.reasons.setdefault(
                "duplicate", f"seed {row['seed']}, level {row['level']}: another command made it"
            )

    def _sound(self, seed: int, level: int) -> JsonDict:
        """The row of a seed, once all was checked. Raises _Refused."""
        row = self._row(seed, level)
        if _content(row) in self.seen:
            raise _Refused("duplicate", "it asks what another task asks")
        if self._run(seed, level) != {name: row[name] for name in _GIVEN if row[name] is not None}:
            raise _Refused(
                "not-deterministic", "the same seed printed another task the second time"
            )
        other = self._other(row)
        self._refuse_shown(row)
        self._verify(row, other)
        self.seen.add(_content(row))
        return row

    def _row(self, seed: int, level: int) -> JsonDict:
        """What the program prints for a seed, as a row that can be a task. Raises _Refused."""
        if (level, seed) not in self.printed:
            given = self._run(seed, level)
            row = {"id": f"L{level}-{seed}", **{name: given.get(name) for name in _GIVEN}}
            row["split"] = self.split or Shares().split(_content(row))
            row |= {"level": level, "seed": seed, "generator": self.version}
            try:
                with tempfile.TemporaryDirectory(prefix="recreate-") as folder:
                    domain = self._domain([row], Path(folder))
                    domain.gold(domain.tasks()[0])
            except BadInput as e:
                why = e.message.rpartition("cannot be tasks. line 1: ")[2]
                raise _Refused("bad-task", why[:300]) from None
            self.printed[level, seed] = row
        return self.printed[level, seed]

    def _run(self, seed: int, level: int) -> JsonDict:
        """What the program prints, in a sandbox of its own. Raises _Refused."""
        seconds = self.known.seconds
        limits = Limits(
            seconds=seconds, cpu_seconds=int(seconds) + 1, disk_mb=128, output_bytes=_OUTPUT
        )
        with_errors = (
            f'python3 -B {PROGRAM} "$@" 2>/tmp/said; status=$?; [ $status = 0 ] || tail -c 2000'
            " /tmp/said"
        )
        sandbox = self.backend.open(source=self.folder, limits=limits)
        try:
            output = sandbox.run(
                ["bash", "-c", f"{with_errors}; exit $status", "bash", str(seed), str(level)]
            )
        finally:
            sandbox.close()
        if output.timed_out or output.limit == "seconds":
            raise _Refused("hangs", f"it ran for more than {seconds:g} s")
        if output.limit or output.cut:
            raise _Refused("too-large", f"it used more than it may: {output.limit or 'output'}")
        if output.status:
            last = (output.text.strip() or "nothing was said").splitlines()[-1]
            lines = re.findall(rf'/{PROGRAM}", line (\d+)', output.text)
            where = f" (line {lines[-1]} of {PROGRAM})" if lines else ""
            raise _Refused("raised", f"it ended with status {output.status}: {last[:200]}{where}")
        try:
            given = read_json(output.text)
            if too_deep(given):
                raise ValueError("it is nested too deeply")
        except ValueError as e:
            raise _Refused(
                "garbage", f"what it printed is not one JSON object: {str(e)[:200]}"
            ) from None
        if not isinstance(given, dict):
            raise _Refused("garbage", "what it printed is not one JSON object")
        if unknown := sorted(given.keys() - set(_GIVEN)):
            raise _Refused(
                "bad-task", f"it has {unknown[0][:80]!r}, and may have {', '.join(_GIVEN)}"
            )
        if not isinstance(given.get("files", {}), dict):
            raise _Refused("bad-task", "its files are no object of path -> text")
        return {name: value for name, value in given.items() if value is not None}

    def _other(self, row: JsonMap) -> JsonDict:
        """A row of another seed that has another gold, of the same level where there is one. Raises
        _Refused."""
        level = int(row["level"])
        seed = int(row["seed"])
        near = sorted(self.printed, key=lambda key: (key[0] != level, abs(key[1] - seed)))
        for key in (*near, *((level, seed + more) for more in range(1, 6))):
            try:
                other = self._row(key[1], key[0])
            except _Refused:
                continue
            if _gold(other) != _gold(row):
                return other
        raise _Refused(
            "same-gold",
            "no other seed has another gold, so that a verifier cannot be told to refuse any",
        )

    def _refuse_shown(self, row: JsonMap) -> None:
        """Refuse a task whose right answer stands, word for word, in what an agent is shown; not
        where another seed's stands beside it, as in a choice, nor in files of which it is one thing
        among others and is to be found.
        """
        files = _files(row)
        golds = [gold for gold in self._rights(row) if len(gold) > _SHORT]
        for place, shown in (("the question", str(row["prompt"])), *files.items()):
            for gold in golds:
                found = (
                    place in files
                    and self.known.answer_in_files
                    and gold != " ".join(shown.split())
                )
                if (
                    found
                    or not _says(shown, gold)
                    or any(_says(shown, each) for each in self._choices(row))
                ):
                    continue
                hint = (
                    "; if it is to be found there among others: answer_in_files = true"
                    if place in files
                    else ""
                )
                raise _Refused(
                    "gold-shown",
                    f"the right answer {gold[:80]!r} stands in {place}, word for word{hint}",
                )

    def _choices(self, row: JsonMap) -> set[str]:
        """The right answers of other seeds that are no short number."""
        for seed in range(row["seed"] + 1, row["seed"] + 4):
            with contextlib.suppress(_Refused):
                self._row(seed, row["level"])
        golds = {gold for other in self.printed.values() for gold in self._rights(other)}
        return {
            gold
            for gold in golds.difference(self._rights(row))
            if len(gold) > (1 if gold.isalpha() else _SHORT)
        }

    def _rights(self, row: JsonMap) -> Iterator[str]:
        """The texts that are right, each in one line: of `tests` of the files that differ from the
        task's own."""
        gold = _gold(row)
        if isinstance(gold, Mapping) and self.kind == "tests":
            texts = [text for path, text in gold.items() if text != _files(row).get(path)]
        elif isinstance(gold, Mapping) or self.kind == "json-schema":
            texts = [json.dumps(gold, ensure_ascii=False)]
        else:
            texts = texts_of(gold)
        yield from (" ".join(str(text).split()) for text in texts)

    def _verify(self, row: JsonMap, other: JsonMap) -> None:
        """Refuse a task whose verifier does not tell right from wrong."""
        with tempfile.TemporaryDirectory(prefix="recreate-") as folder:
            domain = self._domain([row, other], Path(folder))
            task, foreign = domain.tasks()
            proof = validate(domain, task, self.backend, foreign)
            if not proof.ok:
                names = (name for begins, name in _REASONS if proof.reason.startswith(begins))
                raise _Refused(next(names, "verifier-fails"), proof.reason[:300])
            idle = (
                json.dumps({"nothing.txt": "nothing\n"})
                if self.kind == "tests"
                else str(row["prompt"])
            )
            trace = Trace(attempt="make", task=task.id, scaffold="", model="", answer=idle)
            try:
                passes = domain.grade(task, trace, self.backend).passed
            except Fault as e:
                if e.code != UNSOUND:
                    raise
                raise _Refused("verifier-fails", e.message[:300]) from None
            if passes:
                raise _Refused("anything-passes", "its verifier passes what leaves the task undone")

    def _domain(self, rows: Sequence[JsonMap], folder: Path) -> RowDomain:
        """The rows as the domain that they will be, in a folder for the while."""
        data = folder / "rows.jsonl"
        place = folder / "benchmarks" / self.name
        files.write(data, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        files.make(place)
        decided = self.decided.model_copy(update={"data": str(data)})
        files.write(place / FILE, text(decided, place, folder))
        return RowDomain(self.name, workspace=folder, say=lambda _: None)


def _content(row: JsonMap) -> str:
    """What tells a task from another: its words and its files."""
    return digest([" ".join(str(row["prompt"]).split()), row["files"] or {}], 16)


def _says(shown: str, gold: str) -> bool:
    """Whether a text has these words, as whole words."""
    return re.search(rf"(?<!\w){re.escape(gold)}(?!\w)", " ".join(shown.split())) is not None


def _alike(one: Sequence[JsonMap], two: Sequence[JsonMap]) -> bool:
    """Whether tasks of two levels differ by nothing that one level's own tasks do not differ by as
    well."""

    def common(rows: Sequence[JsonMap]) -> set[str]:
        return set.intersection(
            *(set(re.sub(r"\d", "0", str(row["prompt"])).split()) for row in rows)
        )

    def sizes(rows: Sequence[JsonMap]) -> list[list[int]]:
        files = [_files(row).values() for row in rows]
        return [
            [len(str(row["prompt"])) for row in rows],
            [*map(len, files)],
            [sum(map(len, f)) for f in files],
        ]

    apart = any(
        max(a) < min(b) or max(b) < min(a) for a, b in zip(sizes(one), sizes(two), strict=True)
    )
    return not apart and common(one) == common(two)


def _definition(folder: Path, known: GeneratorSettings, file: Path) -> Definition:
    """What domain.toml says of rows of this generator in this file."""
    score = f"{folder / known.score}" if split_score(known.score)[0] == "file" else known.score
    return Definition(
        data=str(file.absolute()),
        score=score,
        about=known.about,
        answer_file=known.answer_file,
        columns=_COLUMNS,
        scorer=known.scorer,
    )


def _rows_before(file: Path) -> list[JsonDict]:
    """The rows that are there, all made by generators. Raises BadInput for a file of other rows."""
    if not file.is_file():
        return []
    found = table.read(str(file))
    table.refuse(found, found.faults)
    rows = [dict(row.values) for row in found.rows]
    if not all(type(row.get("seed")) is int and row.keys() >= {*_GIVEN, "level"} for row in rows):
        raise BadInput(
            f"{paths.short(file)} has rows that no generator made",
            fix="--data OTHER.jsonl",
            code="another-data",
        )
    return rows


def _gold(row: JsonMap) -> Any:
    return row["answer"] if row["gold"] in (None, "") else row["gold"]


def _files(row: JsonMap) -> dict[str, str]:
    """What lies in the agent's folder; a file whose text is null does not."""
    return {path: text for path, text in (row["files"] or {}).items() if text is not None}


def _refuse_other(file: Path, decided: Definition) -> None:
    """Raise BadInput where the domain is there and is of other rows or scored otherwise."""
    if not file.is_file():
        return
    there = absolute(load(file), file.parent)
    wanted = decided.model_copy(update={"data": str(Path(decided.data).resolve())})
    for what in ("data", "score", "columns", "scorer"):
        if getattr(there, what) != getattr(wanted, what):
            raise BadInput(
                f"{paths.short(file)} says otherwise of {what} than the generator",
                fix="name another DOMAIN",
                code="another-data",
            )
