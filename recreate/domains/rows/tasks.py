"""Rows as tasks: each cell read as what its column is, and every row that cannot be one told at
once."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from recreate.api.config import Split, read_json
from recreate.api.errors import BadInput
from recreate.api.syntax import literal
from recreate.api.types import Task, digest
from recreate.domains.rows.definition import NEEDS_NO_ANSWER, Definition
from recreate.domains.rows.scorers import PURE, expected_of, kind_of, texts_of
from recreate.domains.rows.table import BadRow, DataRow, DataTable, refuse
from recreate.plugins.benchmarks import dumps

SPLITS: Mapping[str, Split] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
"""How a split may be called in a column."""
MOST_FILES, MOST_BYTES = 2000, 50_000_000
"""What the files of one row may be."""
_ID = re.compile(r"[^A-Za-z0-9._@+-]+")


def tasks_of(
    name: str, found: DataTable, decided: Definition, base: Path
) -> tuple[list[Task], str]:
    """(the tasks in the order of their rows, what is to be said of their splits). base: the folder
    that paths in cells count from. Raises BadInput that tells all bad rows."""
    faults = list(found.faults)
    columns, kind = decided.columns, kind_of(decided.score)[0]
    seen: dict[str, DataRow] = {}
    made: list[tuple[DataRow, dict[str, Any]]] = []
    for row in found.rows:
        wrong, task = list[str](), dict[str, Any]()
        for part in _parts(row, decided, kind, base):
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
                prompt=task["prompt"] + "\n\n" + handing_in(decided, task["facts"].get("answer")),
                split=splits[row.at],
                group=f"{name}:{task['group']}" if columns.group else f"same-text:{task['group']}",
                facts={**task["facts"], **({"prompt": task["prompt"]} if kind == "judge" else {})},
            )
        )
    return tasks, _told_of_splits(made, columns.split)


def _told_of_splits(made: Sequence[tuple[DataRow, Mapping[str, Any]]], column: str) -> str:
    if not column or any(SPLITS[task["split"].lower()] == "validation" for _, task in made):
        return ""
    return (
        f"no row is validation by its {column}, so those of train are dealt between train and"
        " validation"
    )


def handing_in(decided: Definition, answer: Any = None) -> str:
    """What every prompt ends with: where the answer goes. answer: the row's, which of `analysis`
    says that too."""
    kind = kind_of(decided.score)[0]
    if kind == "analysis":
        return _handing_in_analysis(decided, answer)
    if kind == "tests":
        return (
            "Work on the files in /work: what you change there is handed in, and checked by tests"
            " that you do not see."
        )
    what = {
        "numeric": "The answer is a number; the last one in the file counts.",
        "sql": "The answer is one SQL query for SQLite (python3 has the module sqlite3).",
        "json-schema": "The answer is JSON.",
        "snippet": (
            "It is the code that takes the place of the solution, indented as it must be there:"
            " what is given around it runs before and after it."
        ),
        "math": "It is a number or a formula, in LaTeX where plain text cannot say it.",
    }.get(kind, "")
    where = f"the file {decided.answer_file} in /work."
    return f"Write the answer, and nothing else, to {where} {what}".rstrip()


_ANALYSIS = {
    "named": (
        "Write the answer, and nothing else, to the file {file} in /work: a line @name[value] for"
        " each name."
    ),
    "fields": "Write the answer, and nothing else, to the file {file} in /work: the JSON object.",
    "table": "What is handed in is the file {file} in /work.",
    "predictions": "What is handed in is the file {file} in /work.",
    "figure": (
        "What is handed in is the Python program that draws the figure, the file {file} in /work."
        " It is run once more, in /work with the files as they are given, and must save {image}"
        " there with matplotlib."
    ),
}


def _handing_in_analysis(decided: Definition, answer: Mapping[str, Any]) -> str:
    packages = [re.split(r"[^\w.-]", each)[0] for each in decided.requires]
    there = f" python3 there has {', '.join(packages)}." if packages else ""
    names = {"file": answer.get("file") or decided.answer_file, "image": answer.get("image")}
    return _ANALYSIS[answer["kind"]].format(**names) + there


def _parts(  # noqa: C901
    row: DataRow, decided: Definition, kind: str, base: Path
) -> Iterator[str | dict[str, Any]]:
    """What a row has for its task, piece by piece; a text is what is wrong with a piece."""
    columns, cells = decided.columns, row.values
    prompt = cells.get(columns.prompt)
    if not isinstance(prompt, str) or not prompt.strip():
        yield f"its {columns.prompt} {_why(prompt)}"
    else:
        yield {"prompt": prompt.strip(), "group": digest(" ".join(prompt.split()), 16)}
    facts: dict[str, Any] = {
        "row": {
            name: value
            for name, value in cells.items()
            if name not in (columns.split, columns.files)
        }
    }
    if columns.answer:
        value = cells.get(columns.answer)
        try:
            facts["answer"] = _answer(kind, value)
        except ValueError as e:
            if not (kind in NEEDS_NO_ANSWER and value in (None, "")):
                yield f"its {columns.answer} {e}"
    if columns.gold and cells.get(columns.gold) not in (None, ""):
        facts["gold"] = cells[columns.gold]
    if kind == "analysis" and "answer" in facts:
        try:
            facts["gold_digest"] = digest(golds_of(facts["answer"], base))
        except ValueError as e:
            yield f"its {columns.answer} {e}"
    needed = kind == "sql"
    if columns.files:
        try:
            facts |= _files(cells.get(columns.files), base)
        except ValueError as e:
            needed = False
            yield f"its {columns.files} {e}"
    if needed and not database(decided, facts):
        yield (
            "it has no database among its files: a .sqlite or .db file, or a .sql script that"
            " makes it"
        )
    yield {"facts": facts}
    if given := {name: facts[name] for name in ("files", "place_digest") if name in facts}:
        # the same question of other files
        yield {"group": digest([" ".join(str(prompt).split()), given], 16)}
    for what in ("id", "group", "split"):
        if column := getattr(columns, what):
            value = cells.get(column)
            if (
                not isinstance(value, str | int)
                or isinstance(value, bool)
                or not str(value).strip()
            ):
                yield f"its {column} {_why(value)}"
            elif what == "split" and str(value).strip().lower() not in SPLITS:
                yield f"its {column} is none of train, validation and test"
            else:
                yield {what: str(value).strip()}


def _why(value: Any) -> str:
    return (
        "is empty"
        if value in (None, "") or (isinstance(value, str) and not value.strip())
        else "is no text"
    )


def _answer(kind: str, value: Any) -> Any:
    """The cell, seen to be what the scorer takes. Raises ValueError that says what it is not."""
    if kind in PURE:
        expected_of(kind, value)
        return value
    if value in (None, "", [], {}):
        raise ValueError("is empty")
    if kind in ("sql", "math"):
        texts_of(value)
    if kind == "snippet" and not ("[insert]" in str(value) and "def test_execution(" in str(value)):
        raise ValueError("has no exec_context with an [insert] and no test_execution")
    if kind == "tests":
        tests_of(value)
    return analysis_of(value) if kind == "analysis" else value


def analysis_of(value: Any) -> dict[str, Any]:
    """What an answer of data analysis is compared with: an object with its `kind`. named: `values`,
    name -> text; fields: `gold`, a list of objects; the others: `file`, what is handed in, and
    `gold`, paths beside the data. Raises ValueError."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError:
            raise ValueError("is no JSON") from None
    if not isinstance(value, Mapping) or value.get("kind") not in _ANALYSIS:
        raise ValueError(f"has no kind that is one of {', '.join(_ANALYSIS)}")
    kind, gold = value["kind"], value.get("values" if value["kind"] == "named" else "gold")
    if not gold or not isinstance(gold, Mapping if kind == "named" else list):
        raise ValueError("has nothing that an answer is compared with")
    if kind == "fields" and not all(isinstance(each, Mapping) and each for each in gold):
        raise ValueError("has a right answer that is no object")
    if kind not in ("named", "fields"):
        for path in (value.get("file"), *gold):
            if not isinstance(path, str):
                raise ValueError("names no file")
            _refuse_path(path)
    return dict(value)


def golds_of(answer: Mapping[str, Any], base: Path) -> list[str]:
    """The texts of the files that the right answer of data analysis is; of an array of numpy its
    rows as JSON. Raises ValueError."""
    if answer["kind"] in ("named", "fields"):
        return []
    found = [(path, contents(base / path)[0][1]) for path in answer["gold"]]
    return [
        _array(data) if path.endswith(".npy") else data.decode("utf-8", "replace")
        for path, data in found
    ]


def _array(data: bytes) -> str:
    """The rows of a plain array as numpy saves it, without numpy and without pickles. Raises
    ValueError."""
    try:
        start = 10 + int.from_bytes(data[8:10], "little")
        told = literal(data[10:start].decode("latin-1"))
        (rows, wide), kind = (
            (*told["shape"], 1)[:2],
            {"f8": "d", "i8": "q", "f4": "f", "i4": "i"}[told["descr"][1:]],
        )
        numbers = struct.unpack(f"<{rows * wide}{kind}", data[start:])
        if told["fortran_order"] or told["descr"][0] != "<":
            raise ValueError
    except (ValueError, KeyError, TypeError, SyntaxError, struct.error):
        raise ValueError("is an array that is not read without numpy") from None
    return json.dumps([numbers[row * wide : (row + 1) * wide] for row in range(rows)])


def tests_of(value: Any) -> tuple[str, Any]:
    """What the tests in a cell are: ("cases", a list of {"args", "stdin", "stdout"}), ("files",
    path -> text) or ("command", a line for bash). Raises ValueError for anything else."""
    if isinstance(value, str) and value.lstrip()[:1] in "[{":
        try:
            value = read_json(value)
        except ValueError:
            raise ValueError("is neither a command, nor Python, nor JSON") from None
    if isinstance(value, list):
        for case in value:
            if not isinstance(case, Mapping) or not isinstance(case.get("stdout"), str):
                raise ValueError('has a case without a text "stdout"')
            args, stdin = case.get("args", []), case.get("stdin", "")
            if (
                not isinstance(args, list)
                or not all(isinstance(a, str) for a in args)
                or not isinstance(stdin, str)
            ):
                raise ValueError(
                    'has a case whose "args" is no list of texts, or whose "stdin" is no text'
                )
        if not value:
            raise ValueError("has no case")
        return "cases", value
    if isinstance(value, Mapping):
        return "files", paths_of(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is no text")
    return (
        ("files", {"test_answer.py": value})
        if "\n" in value.strip()
        else ("command", value.strip())
    )


def paths_of(value: Any) -> dict[str, str]:
    """path -> text, seen to stay within a folder. Raises ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError("is no object of path -> text")
    if (
        len(value) > MOST_FILES
        or sum(len(v) for v in value.values() if isinstance(v, str)) > MOST_BYTES
    ):
        raise ValueError(f"has more than {MOST_FILES} files, or {MOST_BYTES / 1e6:.0f} MB")
    for path, text in value.items():
        if not isinstance(text, str):
            raise ValueError(f"has a file {str(path)[:80]!r} that is no text")
        _refuse_path(str(path))
    return {str(path): text for path, text in value.items()}


def _refuse_path(path: str) -> None:
    if not possible(path):
        raise ValueError(f"has a path that cannot be: {path[:80]!r}")


def possible(path: str) -> bool:
    """Whether a path stays within a folder, and is one that any disk takes and a person can
    read."""
    parts = PurePosixPath(path).parts
    if (
        not parts
        or path.startswith("/")
        or ".." in parts
        or parts[0] == ".recreate"
        or not path.isprintable()
    ):
        return False
    return len(path.encode()) <= 1000 and all(len(part.encode()) <= 200 for part in parts)


def _files(value: Any, base: Path) -> dict[str, Any]:
    """The facts of a row's files: `files`, path -> text; or `place`, a file or folder below `base`,
    and its digest."""
    if value in (None, ""):
        return {}
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = read_json(value)
        except ValueError:
            raise ValueError("is no JSON object of path -> text") from None
    if isinstance(value, Mapping):
        return {"files": paths_of({path: text for path, text in value.items() if text is not None})}
    if not isinstance(value, str):
        raise ValueError("is neither an object of path -> text nor a path")
    _refuse_path(value)
    found, held = sha256(), contents(base / value)
    dump = dumps.beside(base / value)
    for path, data in [(dump.name, dumps.made_of(dump)[0])] if dump else held:
        found.update(f"{path}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
    return {
        "place": value,
        "place_digest": found.hexdigest()[:16],
        "place_files": [path for path, _ in held],
    }


def contents(place: Path) -> list[tuple[str, bytes]]:
    """The plain files of a file or folder, (path in it, bytes), links left out; of a database that
    is not there, what the dump beside it makes. Raises ValueError."""
    try:
        if place.is_file():
            return [(place.name, place.read_bytes())]
        if dump := dumps.beside(place):
            return [(place.name, dumps.made_of(dump)[1])]
        if not place.is_dir():
            nor = f", nor is a dump {place.stem[:80]}.sql" if place.suffix == ".sqlite" else ""
            raise ValueError(f"names {place.name[:80]!r}, which is not beside the data{nor}")
        found, total = list[tuple[str, bytes]](), 0
        for path in sorted(place.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            total += path.stat().st_size
            if len(found) >= MOST_FILES or total > MOST_BYTES:
                raise ValueError(
                    f"names a folder of more than {MOST_FILES} files, or {MOST_BYTES / 1e6:.0f} MB"
                )
            found.append((path.relative_to(place).as_posix(), path.read_bytes()))
    except OSError as e:
        raise ValueError(f"cannot be read: {e.strerror}") from None
    return found


def database(decided: Definition, facts: Mapping[str, Any]) -> str:
    """Which of a row's files is its database, '' for none: the one that domain.toml names, else the
    first that is called so."""
    names = [*facts.get("files", ()), *facts.get("place_files", ())]
    if decided.scorer.database:
        return decided.scorer.database
    for ends in ((".sqlite", ".sqlite3", ".db"), (".sql",)):
        for name in names:
            if name.endswith(ends):
                return str(name)
    return ""


def _splits(
    made: Sequence[tuple[DataRow, Mapping[str, Any]]], decided: Definition, place: str
) -> tuple[dict[tuple[str, int], Split], list[BadRow]]:
    """Where a row stands -> its split, and the rows of which that cannot be said."""
    column, shares = decided.columns.split, decided.splits
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
    """A value as part of a task's id: what cannot be typed there is replaced, and told apart by a
    digest."""
    plain = _ID.sub("-", text).strip("-")
    return (
        plain
        if plain == text and len(plain) <= 100
        else f"{plain[:80]}-{digest(text, 6)}".lstrip("-")
    )


def files_of(task: Task, base: Path) -> list[tuple[str, bytes]]:
    """What lies in the sandbox of a task before anybody works there. Raises BadInput for a place
    that is gone or was changed."""
    found = [
        (path, text.encode("utf-8", "surrogatepass"))
        for path, text in task.facts.get("files", {}).items()
    ]
    if place := task.facts.get("place"):
        try:
            if _files(place, base)["place_digest"] != task.facts["place_digest"]:
                raise ValueError("was changed while this ran")
            found += contents(base / place)
        except ValueError as e:
            fix = "put it back, then the same again"
            raise BadInput(f"{task.id}: {place} {e}", fix=fix, code="bad-rows") from None
    return found


def as_json(value: Any) -> str:
    """A cell as text, for what is told or searched."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
