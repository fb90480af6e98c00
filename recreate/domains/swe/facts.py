"""What a task is, as facts: read from benchmarks/swe. No recipe holds code of the packages.

real.toml        [[bug]] tables: two releases of a package and the tests that turn from failing to passing
injected.jsonl   lines of kind `source` (a release or a repository, and how its tests run) and of kind `task`
                 (a mutation in one of those, and the tests that it makes fail)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from recreate.api import paths
from recreate.api.config import read_json, read_toml
from recreate.api.errors import BadInput
from recreate.api.types import Record, Split
from recreate.domains.swe.test_run import ProjectTests
from recreate.storage import files

REAL, INJECTED = "real.toml", "injected.jsonl"


class _Tested(Record):
    """How the tests of some sources run. `python_path`: one folder or several, '' for the top."""

    tests: tuple[str, ...] = Field(min_length=1)
    python_path: tuple[str, ...] = (".",)
    requires: tuple[str, ...] = ()
    deselect: tuple[str, ...] = ()

    @field_validator("python_path", mode="before")
    @classmethod
    def _folders(cls, value: Any) -> Any:
        return tuple(v or "." for v in ([value] if isinstance(value, str) else value))

    @property
    def suite(self) -> ProjectTests:
        return ProjectTests(tests=self.tests, roots=self.python_path, deselect=self.deselect)


class Bug(_Tested):
    """A real bug: `before` has it, `after` does not. `prompt` is an issue text in our own words.

    `reproduce`: a small test of our own, shown to the agent. `files`: the only ones that gold changes, if not all.
    """

    kind: Literal["real"] = "real"
    id: str
    package: str
    before: str
    after: str
    before_sha256: str
    after_sha256: str
    split: Split
    group: str
    prompt: str
    fail_to_pass: tuple[str, ...] = Field(min_length=1)
    reproduce: str = ""
    files: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        return f"swe:{self.package}-{self.before}:{self.id}"


class Origin(_Tested):
    """Sources to inject bugs into: a release (package, version, sha256) or a repository (path, commit, digest).

    `seconds`: how long its suite took where the tasks were made.
    """

    kind: Literal["source"] = "source"
    name: str
    package: str
    version: str = ""
    sha256: str = ""
    path: str = ""
    commit: str = ""
    digest: str = ""
    seconds: float = 0.0


class Injected(Record):
    """A bug put into one function by rule. `mutant` is the SHA-256 (16 hex digits) of the file that results.

    `public` is the part of `fail_to_pass` that the agent may see; `observed`: test id -> what its failure says.
    """

    kind: Literal["task"] = "task"
    source: str
    id: str
    file: str
    function: str
    operator: str
    occurrence: int
    mutant: str
    split: Split
    group: str
    fail_to_pass: tuple[str, ...] = Field(min_length=1)
    public: tuple[str, ...] = Field(min_length=1)
    observed: Mapping[str, str] = {}

    @property
    def task(self) -> str:
        return f"swe:{self.source}:{self.id}"


def recipes(data: Path | None) -> list[Path]:
    """The recipe files of a folder, or `data` itself; None: the shipped ones, then the workspace's. Raises BadInput."""
    if data is not None and not data.is_dir():
        return [data]
    shared, own = paths.shipped("benchmarks") / "swe", paths.workspace() / "benchmarks" / "swe"
    folders = {f.resolve(): f for f in ([data] if data is not None else [shared, own])}
    found = [f / name for f in folders.values() for name in (REAL, INJECTED) if (f / name).is_file()]
    if not found:
        raise BadInput(
            f"there are no tasks of swe in {' or '.join(str(f) for f in folders.values())}",
            fix="make some: recreate tasks make swe --package NAME==VERSION",
            code="no-tasks",
        )
    return found


def bugs(file: Path) -> list[Bug]:
    """The [[bug]] tables of a real.toml. Raises BadInput that names the line or the table."""
    try:
        tables = read_toml(_text(file)).get("bug", [])
    except ValueError as e:
        raise _broken(file, str(e)) from None
    if not isinstance(tables, list) or not tables:
        raise _broken(file, "it has no [[bug]] table")
    found = []
    for number, table in enumerate(tables, 1):
        try:
            found.append(Bug.model_validate(table))
        except ValidationError as e:
            raise _broken(file, f"[[bug]] number {number}: {_first(e)}") from None
    return found


def injected(file: Path) -> tuple[dict[str, Origin], list[Injected]]:
    """The sources and tasks of an injected.jsonl. Raises BadInput that names the line."""
    sources: dict[str, Origin] = {}
    tasks: list[Injected] = []
    for number, line in enumerate(_text(file).split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = read_json(line)
            kind = value.get("kind") if isinstance(value, dict) else None
            if kind == "source":
                origin = Origin.model_validate(value)
                sources[origin.name] = origin
            elif kind == "task":
                task = Injected.model_validate(value)
                if task.source not in sources:
                    raise _broken(file, f"no source above is called {task.source!r}", number)
                tasks.append(task)
            else:
                raise _broken(file, 'a line is {"kind": "source", ...} or {"kind": "task", ...}', number)
        except ValidationError as e:
            raise _broken(file, _first(e), number) from None
        except ValueError as e:
            raise _broken(file, f"not JSON: {e}", number) from None
    if not tasks:
        raise _broken(file, "it has no task")
    return sources, tasks


def add(file: Path, origin: Origin, tasks: list[Injected]) -> None:
    """Put the tasks of one source into an injected.jsonl in place of those it had, and leave the others alone."""
    sources, known = injected(file) if file.exists() else ({}, [])
    sources[origin.name] = origin
    kept = [t for t in known if t.source != origin.name] + tasks
    lines = []
    for name, source in sorted(sources.items()):
        own = sorted((t for t in kept if t.source == name), key=lambda t: t.id)
        lines += [source.model_dump_json(exclude_defaults=False), *(t.model_dump_json() for t in own)] if own else []
    files.write(file, "".join(line + "\n" for line in lines))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(f"{file} is not there", fix="check the path", code="no-tasks-file") from None
    except UnicodeDecodeError as e:
        line = file.read_bytes()[: e.start].count(b"\n") + 1
        raise _broken(file, "not UTF-8", line) from None


def _first(e: ValidationError) -> str:
    error = e.errors()[0]
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg']}" if where else str(error["msg"])


def _broken(file: Path, why: str, line: int | None = None) -> BadInput:
    place = f"{file}, line {line}" if line else str(file)
    return BadInput(f"{place}: {why}", fix=f"mend {file.name}, or take it away", code="bad-tasks-file")
