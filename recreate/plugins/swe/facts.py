"""What a task is, as facts: read from benchmarks/swe. No recipe holds code of the packages.

real.toml        [[bug]] tables: two releases of a package and the tests that turn from failing to
                 passing
releases.toml    [[release]] tables: two releases of a package, in each [[release.bug]] tables: one
                 behaviour, the hunks of the change that mend it, by number, and the tests that turn
injected.jsonl   lines of kind `source` (a release or a repository, and how its tests run) and of
                 kind `task` (a mutation in one of those, and the tests that it makes fail)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from operator import not_
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from recreate.api import paths
from recreate.api.config import read_json, read_toml
from recreate.api.errors import BadInput
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Record, Split
from recreate.domains.python_env import Environment
from recreate.plugins.swe import sources
from recreate.plugins.swe.test_run import ProjectTests
from recreate.storage import files

REAL = "real.toml"
RELEASES = "releases.toml"
INJECTED = "injected.jsonl"

Shown = Literal["issue", "spec", "title"]
"""How a real bug is told: as a user would report it, with all that is expected, or in one line."""


class _Tested(Environment):
    """How the tests of some sources run, and in what. `python_path`: one folder or several, '' for
    the top."""

    tests: tuple[str, ...] = Field(min_length=1)
    python_path: tuple[str, ...] = (".",)
    deselect: tuple[str, ...] = ()

    @field_validator("python_path", mode="before")
    @classmethod
    def _folders(cls, value: Any) -> Any:
        return tuple(v or "." for v in ([value] if isinstance(value, str) else value))

    @property
    def suite(self) -> ProjectTests:
        which = {"tests": self.tests, "roots": self.python_path, "deselect": self.deselect}
        return ProjectTests.model_validate({**which, "env": self.env, "runner": self.runner})

    @property
    def environment(self) -> Environment:
        return Environment(
            **{name: getattr(self, name) for name in Environment.model_fields if name != "schema_"}
        )


class Bug(_Tested):
    """A real bug: `before` has it, `after` does not; they are releases, or commits of the
    repository at `path`.

    before_sha256, after_sha256  of the sdists; of a commit, the digest of its files
    prompt     the whole of what is expected, in our own words     issue   what a user would report:
               40 to 120 words
    title      the same in one line, as a short report has it: up to 14 words
    reproduce  a small test of our own, shown to the agent with `prompt`
    files      the only ones that gold changes, if not all
    hunks      path -> the only hunks of the change that gold has, by number (hunks.py), if not all;
               hunks_digest: what they say, as a digest
    given      what of `tests` the earlier sources have, or what else runs theirs, if not all
    public     the part of fail_to_pass that the agent is shown where there is neither text;
               observed: test id -> what its failure says
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
    prompt: str = ""
    fail_to_pass: tuple[str, ...] = Field(min_length=1)
    reproduce: str = ""
    files: tuple[str, ...] = ()
    path: str = Field(default="", exclude_if=not_)
    issue: str = Field(default="", exclude_if=not_)
    title: str = Field(default="", exclude_if=not_)
    given: tuple[str, ...] = Field(default=(), exclude_if=not_)
    hunks: Mapping[str, tuple[int, ...]] = Field(default={}, exclude_if=not_)
    hunks_digest: str = Field(default="", exclude_if=not_)
    public: tuple[str, ...] = Field(default=(), exclude_if=not_)
    observed: Mapping[str, str] = Field(default={}, exclude_if=not_)

    @property
    def task(self) -> str:
        return f"swe:{self.package}-{self.before[:12] if self.path else self.before}:{self.id}"


class Origin(_Tested):
    """Sources to inject bugs into: a release (package, version, sha256) or a repository (path,
    commit, digest).

    `seconds`: how long its suite took where the tasks were made. `fails`: tests, or files of them,
    that fail or waver with or without a bug, which prompts say.
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
    fails: tuple[str, ...] = Field(default=(), exclude_if=not_)


class Part(Record):
    """One place of a bug: the occurrence-th one at which an operator can act in a function of a
    file."""

    file: str
    function: str
    operator: str
    occurrence: int


class Releases(Record):
    """Two neighbouring releases of the package, of which a bug takes something back."""

    before: str
    after: str
    before_sha256: str
    after_sha256: str


class Injected(Record):
    """A bug put into the sources by rule, in one function or, with `more` parts, in several places.

    `mutant` is the SHA-256 (16 hex digits) of the file that results, or of the files. `public` is
    the part of `fail_to_pass` that the agent may see; `observed`: test id -> what its failure says.
    `earlier`: the releases that a part with the operator `undone` is about.
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
    more: tuple[Part, ...] = Field(default=(), exclude_if=not_)
    earlier: Releases | None = Field(default=None, exclude_if=not_)

    @property
    def task(self) -> str:
        return f"swe:{self.source}:{self.id}"

    @property
    def parts(self) -> tuple[Part, ...]:
        first = Part(
            file=self.file,
            function=self.function,
            operator=self.operator,
            occurrence=self.occurrence,
        )
        return (first, *self.more)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that have a part of it."""
        return tuple(dict.fromkeys(part.file for part in self.parts))

    @property
    def hard(self) -> bool:
        """Whether several statements have to change to mend it."""
        return bool(self.more) or self.operator in ("override", "kept", "kept-by", "undone")


def recipes(data: Path | None) -> list[Path]:
    """The recipe files of a folder, or `data` itself; None: the shipped ones, then the workspace's.
    Raises BadInput."""
    if data is not None and not data.is_dir():
        return [data]
    found = [
        f / name
        for f in folders(data)
        for name in (REAL, RELEASES, INJECTED)
        if (f / name).is_file()
    ]
    if not found:
        raise BadInput(
            f"there are no tasks of swe in {' or '.join(map(str, folders(data)))}",
            fix="make some: recreate tasks make swe --package NAME==VERSION",
            code="no-tasks",
        )
    return found


def folders(data: str | Path | None) -> list[Path]:
    """Where recipes lie, and what was measured of their tasks: the shipped folder and the
    workspace's; or that of `data`, where it is a file or a folder here."""
    shared = paths.shipped("benchmarks") / "swe"
    own = paths.workspace() / "benchmarks" / "swe"
    if data is None:
        return list({f.resolve(): f for f in (shared, own)}.values())
    place = Path(data)
    return [place if place.is_dir() else place.parent if place.exists() else own]


def bugs(file: Path) -> list[Bug]:
    """The [[bug]] tables of a TOML file, and those of its [[release]] tables. Raises BadInput that
    names the table."""
    try:
        read = read_toml(_text(file))
    except ValueError as e:
        raise _broken(file, str(e)) from None
    tables: list[tuple[str, Any]] = []
    for kind, releases in (
        ("[[bug]]", [{"bug": read.get("bug", [])}]),
        ("[[release]]", read.get("release", [])),
    ):
        for number, release in enumerate(releases if isinstance(releases, list) else [None], 1):
            own = release.get("bug") if isinstance(release, dict) else None
            if not isinstance(own, list) or not all(isinstance(bug, dict) for bug in own):
                raise _broken(file, f"{kind} number {number} has no tables of bugs")
            shared = {k: v for k, v in release.items() if k != "bug"}
            where = f"[[release]] number {number}, [[release.bug]]" if shared else kind
            tables += [(f"{where} number {n}", {**shared, **bug}) for n, bug in enumerate(own, 1)]
    if not tables:
        raise _broken(file, "it has no [[bug]] and no [[release]] table")
    found = []
    for where, table in tables:
        try:
            found.append(Bug.model_validate(table))
        except ValidationError as e:
            raise _broken(file, f"{where}: {_first(e)}") from None
        if not (found[-1].prompt or found[-1].issue or found[-1].public):
            raise _broken(
                file, f"{where}: it says nothing of the bug: prompt, issue or public is needed"
            )
        if wrong := wrong_issue(found[-1].issue, found[-1].fail_to_pass):
            raise _broken(file, f"{where}: its issue {wrong}")
        if wrong := wrong_title(found[-1].title, found[-1].fail_to_pass):
            raise _broken(file, f"{where}: its title {wrong}")
    return found


FEWEST_WORDS = 40
MOST_WORDS = 120


def wrong_issue(text: str, fail_to_pass: Sequence[str], gold: str = "") -> str:
    """What keeps a text from being one that a user would report, or ''. gold: the lines that mend
    the bug."""
    if not text:
        return ""
    count = len(text.split())
    if not FEWEST_WORDS <= count <= MOST_WORDS:
        return f"has {count} words; {FEWEST_WORDS} to {MOST_WORDS} are meant"
    if named := _find_test_name(text, fail_to_pass):
        return named
    told = " ".join(text.split())
    for line in map(str.strip, gold.split("\n")):
        if (
            len(line) >= 20
            and len(re.findall(r"\w+", line)) >= 3
            and " ".join(line.split()) in told
        ):
            return f"holds a line of what mends it: {line}"
    return ""


def wrong_title(text: str, fail_to_pass: Sequence[str]) -> str:
    """What keeps a text from being the title of a user's report, or ''."""
    count = len(text.split())
    if text and (not 3 <= count <= 14 or "\n" in text):
        return f"has {count} words; one line of 3 to 14 is meant"
    return _find_test_name(text, fail_to_pass)


def _find_test_name(text: str, fail_to_pass: Sequence[str]) -> str:
    for test in fail_to_pass:
        name = sources.function_of(test).rpartition("::")[2]
        if re.search(rf"\b{re.escape(name)}\b", text):
            return f"names the hidden test {name}"
    return ""


def injected(file: Path) -> tuple[dict[str, Origin], list[Injected]]:
    """The sources and tasks of an injected.jsonl. Raises BadInput that names the line."""
    origins: dict[str, Origin] = {}
    tasks: list[Injected] = []
    for number, line in enumerate(_text(file).split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = read_json(line)
            kind = value.get("kind") if isinstance(value, dict) else None
            if kind == "source":
                origin = Origin.model_validate(value)
                origins[origin.name] = origin
            elif kind == "task":
                task = Injected.model_validate(value)
                if task.source not in origins:
                    raise _broken(file, f"no source above is called {task.source!r}", number)
                tasks.append(task)
            else:
                raise _broken(
                    file, 'a line is {"kind": "source", ...} or {"kind": "task", ...}', number
                )
        except ValidationError as e:
            raise _broken(file, _first(e), number) from None
        except ValueError as e:
            raise _broken(file, f"not JSON: {e}", number) from None
    if not tasks:
        raise _broken(file, "it has no task")
    return origins, tasks


def add(file: Path, origin: Origin, tasks: list[Injected], *, others: bool = False) -> None:
    """Put the tasks of one source into an injected.jsonl in place of those it had of their kind
    (hard, or not), and leave the others alone. others: those it had stay, too, where the source is
    as it was and no group is split.
    """
    origins, known = injected(file) if file.exists() else ({}, [])
    before = origins.get(origin.name, origin)
    others = others and before == origin.model_copy(update={"seconds": before.seconds})
    origins[origin.name] = origin
    kinds = {t.hard for t in tasks}
    ids = {t.id for t in tasks}
    splits = {t.group: t.split for t in tasks}

    def stays(task: Injected) -> bool:
        if task.source != origin.name or task.hard not in kinds:
            return True
        return others and task.id not in ids and splits.get(task.group, task.split) == task.split

    kept = [t for t in known if stays(t)] + tasks
    lines = []
    for name, source in sorted(origins.items()):
        own = sorted((t for t in kept if t.source == name), key=lambda t: t.id)
        lines += (
            [source.model_dump_json(exclude_defaults=False), *(t.model_dump_json() for t in own)]
            if own
            else []
        )
    files.write(file, "".join(line + "\n" for line in lines))


def add_bugs(file: Path, new: Sequence[Bug]) -> None:
    """Put real bugs into a TOML file of releases; one of the same id is replaced. What stands above
    the first table stays. Raises BadInput where the file is broken."""
    known = {bug.task: bug for bug in (bugs(file) if file.exists() else [])} | {
        bug.task: bug for bug in new
    }
    head = _text(file).partition("[[")[0] if file.exists() else ""
    releases: dict[str, list[Bug]] = {}
    for bug in known.values():
        releases.setdefault(json.dumps(_dumped(bug, _SHARED), sort_keys=True), []).append(bug)
    tables = []
    for own in sorted(
        releases.values(), key=lambda own: (own[0].package.lower(), own[0].before, own[0].after)
    ):
        lines = ["[[release]]", *_pairs(_dumped(own[0], _SHARED))]
        for bug in sorted(own, key=lambda bug: bug.id):
            lines += [
                "",
                "[[release.bug]]",
                *_pairs(_dumped(bug, [f for f in Bug.model_fields if f not in _SHARED])),
            ]
        tables.append("\n".join(lines) + "\n")
    files.write(file, head + "\n".join(tables))


_SHARED = (
    *(
        "package",
        "path",
        "before",
        "after",
        "before_sha256",
        "after_sha256",
        "split",
        "tests",
        "given",
    ),
    *("python_path", "deselect", "python", "pytest", "requires", "index_before", "env", "runner"),
)
"""What the bugs of one release have in common, in the order in which it is written."""


def _dumped(bug: Bug, names: Sequence[str]) -> JsonDict:
    dump = bug.model_dump(mode="json", exclude_defaults=True, exclude={"schema_", "kind"})
    return {name: dump[name] for name in names if name in dump}


def _pairs(table: JsonMap) -> list[str]:
    return [f"{name} = {_toml(value)}" for name, value in table.items()]


def _toml(value: Any) -> str:
    if isinstance(value, str) and "\n" in value and value.replace("\n", "").isprintable():
        return '"""\n' + value.replace("\\", "\\\\").replace('"""', '""\\"') + '"""'
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        one = "[" + ", ".join(map(_toml, value)) + "]"
        return one if len(one) < 100 else "[\n" + "".join(f"  {_toml(v)},\n" for v in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


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
    said = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {said}" if where else said


def _broken(file: Path, why: str, line: int | None = None) -> BadInput:
    place = f"{file}, line {line}" if line else str(file)
    return BadInput(
        f"{place}: {why}", fix=f"mend {file.name}, or take it away", code="bad-tasks-file"
    )
