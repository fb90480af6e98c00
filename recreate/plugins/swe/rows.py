"""Rows of SWE-bench and its kin as they are published: recognised by their fields, read from a
file, a data set's folder or the hub, and dealt into splits. What a row lacks is said of that row;
the others go on.

SWE-bench, Lite, Verified   repo, instance_id, base_commit, patch, test_patch, problem_statement,
                            version, created_at,
                            FAIL_TO_PASS and PASS_TO_PASS (lists, as JSON or Python writes them,
                            or a name a line; also in lower case)
SWE-rebench                 besides: install_config, requirements (of `pip freeze`), environment
                            (conda's), docker_image
SWE-smith                   repo (a mirror, owner__name.COMMIT), image_name, patch: the bug itself,
                            which a mend undoes
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from recreate.api.config import Split, read_json
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonMap
from recreate.api.syntax import literal
from recreate.api.types import Record
from recreate.domains.rows import HUB, read_first_row, table
from recreate.domains.rows.forms import SPLIT

_SPLITS: Mapping[str, Split] = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "dev": "validation",
    "test": "test",
}
_SHARES: tuple[tuple[Split, float], ...] = (("validation", 0.4), ("train", 0.4), ("test", 0.2))
_MIRROR = re.compile(r"^[\w.-]+/([\w.-]+)__([\w.-]+)\.([0-9a-f]{7,40})$")
_PINNED = re.compile(r"^\s*-?\s*([A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?)==([\w.!+*-]+)\s*$")
_PYTHON = re.compile(r"^\s*-\s*python=+(\d+\.\d+)", re.MULTILINE)
_HUB = re.compile(r"^(?:hub:)?([\w.-]+/[\w.-]+?)(?::(\w+))?$")
_SAVED = ("dataset_info.json", "dataset_dict.json")
"""What the package `datasets` writes beside a data set that it saves."""
FIELDS = frozenset({"instance_id", "repo", "patch"})
"""What every row has: by these it is known."""
_TESTS = ("FAIL_TO_PASS", "fail_to_pass")


class PublishedRow(Record):
    """One row, whoever published it.

    commit     the base commit, or its beginning; '' for a mirror's only one
    mirror     SWE-smith's repository, in which the base is all there is
    breaks     whether `patch` is the bug, and its mend is to undo it
    python     versions on which it reproduces, the first that is here is taken; requires: as `pip
               freeze` says them
    image      the container image that was published with it
    """

    kind: Literal["row"] = "row"
    instance_id: str = Field(min_length=1)
    repo: str = Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")
    commit: str = Field(default="", pattern=r"^([0-9a-f]{7,64})?$")
    mirror: str = ""
    version: str = ""
    created_at: str = ""
    statement: str = ""
    patch: str = Field(min_length=1)
    breaks: bool = False
    test_patch: str = ""
    fail_to_pass: tuple[str, ...] = Field(min_length=1)
    pass_to_pass: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    image: str = ""

    @property
    def task(self) -> str:
        return f"swe:{self.repo}:{self.instance_id}"


class Refusal(NamedTuple):
    """A row that is no task here: what it is called, and why."""

    name: str
    reason: str


def domain_of_file(path: Path) -> str:
    """Return `swe` for what that domain reads: rows of SWE-bench, recipes, folders, a data set's
    plain name; else ''."""
    if not path.is_file() or path.suffix.lower() == ".toml":
        return "swe"
    row = read_first_row(path)
    ours = row.keys() >= {"schema", "kind"} or "instance_id" in row
    return "swe" if ours or row.keys() >= FIELDS else ""


def holds_rows(source: str | Path) -> bool:
    """Whether a file or folder is one of rows, by the fields of the first object in it; or a name
    of the hub."""
    path = Path(source).expanduser()
    if not path.exists():
        return (
            path.suffix not in (".toml", ".json", ".jsonl", ".parquet")
            and _HUB.match(str(source)) is not None
        )
    if path.is_dir():
        return any((path / name).is_file() for name in _SAVED) or any(path.rglob("*.parquet"))
    if path.suffix == ".jsonl":
        return "instance_id" in read_first_row(path)
    return path.suffix in (".json", ".parquet")


def read(source: str | Path) -> tuple[list[tuple[PublishedRow, Split | None]], list[Refusal]]:
    """The rows of a .jsonl, .json or .parquet file, of a data set's folder, or of one on the hub
    (OWNER/NAME, also OWNER/NAME:SPLIT), with the split that each says of itself; and what cannot be
    a task, with why.

    Raises BadInput when there is nothing of the kind, Missing without the package `datasets` where
    it is needed.
    """
    found: dict[str, tuple[PublishedRow, Split | None]] = {}
    refused: list[Refusal] = []
    for place, value in _values(source):
        if isinstance(value, str):
            refused.append(Refusal(place, value))
            continue
        name = str(value.get("instance_id") or place)
        if not value.keys() >= FIELDS or value.keys().isdisjoint(_TESTS):
            lacks = ", ".join(sorted(FIELDS - value.keys()))
            what = f"it has no {lacks}" if lacks else "it is no row: SWE-bench's have FAIL_TO_PASS"
            refused.append(Refusal(name, what))
            continue
        try:
            row = row_of(value)
        except ValueError as e:
            refused.append(Refusal(name, _describe_error(e)))
            continue
        if found.setdefault(row.task, (row, _SPLITS.get(str(value.get("split", "")))))[0] != row:
            refused.append(Refusal(name, "another row has the same instance_id"))
    if not found and not refused:
        raise BadInput(
            f"there is no row in {source}", fix="a row is a JSON object a line", code="no-tasks"
        )
    return list(found.values()), refused


def row_of(value: JsonMap) -> PublishedRow:
    """A published row as ours. Raises ValueError saying what is wrong with it."""
    fail, passing = (_names(value, key) for key in ("FAIL_TO_PASS", "PASS_TO_PASS"))
    if not fail:
        raise ValueError("it has no tests: FAIL_TO_PASS is empty")
    for key in ("patch", "repo", "instance_id"):
        if not isinstance(value[key], str) or not value[key].strip():
            raise ValueError(f"its {key} is empty")
    repo = value["repo"]
    commit = _text(value, "base_commit")
    mirror = ""
    breaks = not commit and not _text(value, "test_patch")
    if match := _MIRROR.match(repo):
        mirror = repo
        repo = f"{match[1]}/{match[2]}"
        commit = commit or match[3]
    if not commit:
        raise ValueError("it has no base_commit")
    asked = value.get("install_config")
    config: JsonMap = asked if isinstance(asked, dict) else {}
    environment = _text(value, "environment")
    lines = (_text(value, "requirements") or environment).splitlines()
    own = {"pip", repo.rpartition("/")[2].lower()}
    pins = {
        m[1].lower(): f"{m[1]}=={m[2]}"
        for line in lines
        if (m := _PINNED.match(line)) and m[1].lower() not in own
    }
    pythons = (
        value.get("python_that_reproduces")
        or config.get("python")
        or _PYTHON.findall(environment)[:1]
    )
    return PublishedRow(
        instance_id=value["instance_id"],
        repo=repo,
        commit=commit.lower(),
        mirror=mirror,
        version=str(value.get("version") or ""),
        created_at=_text(value, "created_at"),
        statement=_text(value, "problem_statement"),
        patch=value["patch"],
        breaks=breaks,
        test_patch=_text(value, "test_patch"),
        fail_to_pass=fail,
        pass_to_pass=tuple(name for name in passing if name not in fail),
        python=tuple(str(p) for p in ([pythons] if isinstance(pythons, str | float) else pythons)),
        requires=tuple(pin for _, pin in sorted(pins.items())),
        image=_text(value, "image_name") or _text(value, "docker_image"),
    )


def dealt(rows: Sequence[tuple[PublishedRow, Split | None]]) -> dict[str, Split]:
    """repository -> split: what its rows say of themselves; else by turns, the largest repository
    first, to the split that lacks most of its share (validation and train 0.4 each, test 0.2).
    Raises BadInput when rows of one differ.
    """
    chosen: dict[str, Split] = {}
    for row, split in rows:
        if split and chosen.setdefault(row.repo, split) != split:
            raise BadInput(
                f"rows of {row.repo} are in two splits, {chosen[row.repo]} and {split}: one would"
                " give the other away",
                fix="give all rows of a repository one `split`, or none",
                code="bad-tasks-file",
            )
    sizes = Counter(row.repo for row, _ in rows)
    has: Counter[str] = Counter()
    for repo, split in chosen.items():
        has[split] += sizes[repo]
    for repo, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if repo not in chosen:
            chosen[repo] = max(_SHARES, key=lambda share: share[1] * len(rows) - has[share[0]])[0]
            has[chosen[repo]] += size
    return chosen


def _text(value: JsonMap, key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _names(value: JsonMap, key: str) -> tuple[str, ...]:
    """Return a list of test names, given as such, as JSON, as Python writes it, or a name a line.
    Raises ValueError for anything else."""
    names = value.get(key) or value.get(key.lower())
    if isinstance(names, str):
        names = _read_list(names.strip(), key)
    if names is None:
        return ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"its {key} is no list of names")
    return tuple(dict.fromkeys(name for name in names if name.strip()))


def _read_list(text: str, key: str) -> Any:
    if not text:
        return []
    try:
        return read_json(text)
    except ValueError:
        if text.startswith(("[", "(")):
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                return literal(text)
        lines = text.splitlines()
        if all(re.search(r"::|\.py\b|\(", line) for line in lines) and text[0] not in "[({":
            return [line.strip() for line in lines]
    raise ValueError(f"its {key} is no list of names: not JSON, not Python's, nor a name a line")


def _describe_error(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return (
        f"{'.'.join(map(str, first['loc']))}: {first['msg']}, and it is"
        f" {str(first['input'])[:60]!r}"
    )


# --- where they come from
# ---------------------------------------------------------------------------------


def _values(source: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield (where it stands, the value; a text in its place says why there is none). Of several
    splits of a data set the one that is measured on is read, else all."""
    path = Path(source).expanduser()
    name = str(source)
    stored = path.is_file()
    if not stored and not path.is_dir():
        match = _HUB.match(name)
        if match is None:
            raise BadInput(
                f"there is no {source}",
                fix="name a .jsonl, .json or .parquet file, or a data set of the hub as OWNER/NAME",
                code="no-tasks-file",
            )
        name = ":".join(filter(None, match.groups()))
    rows = table.read(name if stored else f"{HUB}{name}")
    measured = [row for row in rows.rows if row.values.get(SPLIT) == "test"]
    for row in rows.rows if stored else measured or rows.rows:
        values = dict(row.values)
        if not stored:
            values.pop(SPLIT, None)
        yield f"{rows.place} {row.number}", values
    yield from ((f"{rows.place} {fault.number}", fault.reason) for fault in rows.faults)
