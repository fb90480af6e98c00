"""A task that is a row of SWE-bench or its kin: its checkout, its tests, its environment; and which
rows are tasks.

The sources are the base commit as one commit without a past. The tests are those of the row's
test_patch, which is put over an answer; the repository's own command runs them, and its log is read
(test_log.py).
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from packaging.version import InvalidVersion, Version

from recreate.api.config import read_toml
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import SandboxBackend
from recreate.api.types import Record, Task, digest
from recreate.domains.python_env import NO_PYTEST, Environment, lacking, read_environment
from recreate.plugins.swe import clone, patch, sources, test_log, test_run
from recreate.plugins.swe.clone import Clone, CloneProblem
from recreate.plugins.swe.rows import PublishedRow, Refusal
from recreate.plugins.swe.sources import Say
from recreate.plugins.swe.test_run import ProjectTests
from recreate.plugins.swe.trees import publish, tree


class Specification(Record):
    """How the tests of a repository run, from a version on: a table of repositories.toml, which
    says what is what."""

    since: str = "0"
    python: tuple[str, ...] = ()
    pytest: str = ""
    requires: tuple[str, ...] = ()
    dated: bool = False
    env: Mapping[str, str] = {}
    runner: str = "pytest"
    roots: tuple[str, ...] = (".",)
    files: Mapping[str, str] = {}


@cache
def _repositories() -> Mapping[str, tuple[Specification, ...]]:
    table = read_toml((Path(__file__).parent / "repositories.toml").read_text("utf-8"))
    return {
        repo: tuple(map(Specification.model_validate, tables)) for repo, tables in table.items()
    }


def specification(row: PublishedRow) -> Specification:
    """Of the row's repository and version; what the row says of itself goes first. A repository
    that nobody described has its tests run by pytest, of the day when the row was created, with its
    requirements."""
    known = [
        s for s in _repositories().get(row.repo, ()) if _version(s.since) <= _version(row.version)
    ]
    found = known[-1] if known else Specification(dated=True, roots=(".", "src"))
    if row.python:
        found = found.model_copy(update={"python": row.python})
    if row.requires and not known:
        pins = {pin.partition("==")[0].lower(): pin for pin in row.requires}
        pytest = pins.pop("pytest", "").partition("==")[2]
        found = found.model_copy(update={"requires": tuple(pins.values()), "pytest": pytest})
    return found


def environment_of(row: PublishedRow, spec: Specification) -> Environment:
    """On the first of its Pythons that is here, else the first. Raises BadInput for what no
    environment can be."""
    return read_environment(
        {
            "python": next(
                (p for p in spec.python if not lacking(p)), spec.python[0] if spec.python else ""
            ),
            "pytest": spec.pytest if spec.runner == "pytest" else NO_PYTEST,
            "requires": spec.requires,
            "index_before": row.created_at if spec.dated else "",
            "env": spec.env,
            "runner": spec.runner,
        }
    )


def _version(text: str) -> Version:
    try:
        return Version(text or "0")
    except InvalidVersion:
        return Version("0")


class RowCase:
    """repos: where the clones are, None when the checkout is here already. Its folders are cached:
    nobody writes to them. What is wrong with a row is a Fault with the code `unsound-task`."""

    def __init__(
        self, row: PublishedRow, spec: Specification, repos: Path | None, say: Say
    ) -> None:
        self.row, self.specification, self._repos, self._say = row, spec, repos, say
        self.suite = ProjectTests(
            tests=(), roots=spec.roots, env=spec.env, runner=spec.runner, settings=True
        )
        self.fail_to_pass, passing = (
            tuple(dict.fromkeys(test_log.normal(name, spec.runner, row.repo) for name in names))
            for names in (row.fail_to_pass, row.pass_to_pass)
        )
        self.pass_to_pass: tuple[str, ...] | None = passing
        self.name = row.instance_id
        self.key = digest(
            [*self._source(), row.patch, row.test_patch, row.fail_to_pass, row.pass_to_pass, spec]
        )
        self.withholds = spec.runner == "pytest" and spec.pytest != NO_PYTEST

    # --- what is asked ---

    def task(self, split: str) -> Task:
        row = self.row
        facts = {
            "kind": "row",
            "row": row.model_dump(),
            "specification": self.specification.model_dump(),
        }
        return Task(
            id=row.task,
            domain="swe",
            prompt=self._prompt(),
            split=split,  # type: ignore[arg-type]
            group=row.repo,
            facts=facts,
        )

    def _prompt(self) -> str:
        asked = self.row.statement
        if not asked.strip():
            failing = "\n".join(f"- {name}" for name in self.row.fail_to_pass[:20])
            asked = (
                f"These tests of {self.row.repo} fail, and passed before:\n{failing}\n\nMend what"
                " is wrong."
            )
        command = " ".join(self.command(["..."]))
        return (
            f"{asked}\n\nYou are at the top of the sources of {self.row.repo}; no network is there."
            f" To run tests: `{command}`. What you change in tests or in how they are configured"
            " does not count."
        )

    @property
    def environment(self) -> Environment:
        return environment_of(self.row, self.specification)

    # --- its sources ---

    def start_folder(self) -> Path:
        """The base as one commit without a past; of SWE-smith's without the files of the tests that
        tell."""

        def build(fresh: Path) -> None:
            linked(self.base(), fresh)
            write(fresh, dict.fromkeys(withheld))
            publish(fresh, [], self.visible_tests())

        withheld = (
            _files_of(self.row.fail_to_pass)
            if self.row.breaks and self.row.statement.strip()
            else []
        )
        return tree([*self._source(), withheld], "given", build)

    def graded(self) -> Path:
        """The base with the tests of test_patch."""

        def build(fresh: Path) -> None:
            linked(self.base(), fresh)
            write(fresh, self._patched(patch.read(self.row.test_patch), fresh))

        return tree([*self._source(), self.row.test_patch, self.row.fail_to_pass], "graded", build)

    def base(self) -> Path:
        """The base commit's files, and those that are generated; of SWE-smith's with the bug."""

        def build(fresh: Path) -> None:
            self._say(f"checking out {self.row.repo} as it was for {self.name}, once")
            try:
                found = located([self.row], self._repos).get(self.row.task)
                if found is None:
                    raise CloneProblem(
                        f"the commit {self.row.commit[:12]} is not in the clone of {self.row.repo}"
                    )
                there, commit = found
                there.checkout(commit, fresh)
            except CloneProblem as e:
                raise _unsound(self.row, str(e)) from None
            texts = {
                p: text.replace("{version}", self.row.version)
                for p, text in self.specification.files.items()
            }
            write(
                fresh, {path: text for path, text in texts.items() if not (fresh / path).exists()}
            )
            if self.row.breaks:
                write(fresh, self._patched(patch.read(self.row.patch), fresh))

        return tree(self._source(), "base", build)

    def own_folders(self) -> list[Path]:
        return [self.graded()]  # the others are the same files but for a few

    def _source(self) -> list[object]:
        """What a checkout of the row depends on."""
        row = self.row
        return [
            "row",
            row.repo,
            row.commit,
            row.mirror,
            row.patch if row.breaks else "",
            self.specification.files,
        ]

    def _patched(self, changes: Sequence[patch.FileChange], folder: Path) -> dict[str, str | None]:
        """path -> text of the files that a change leaves, None for one that goes. Raises Fault if
        it does not apply."""
        here = [path for change in changes for path in change.paths if (folder / path).is_file()]
        try:
            return patch.apply(changes, sources.texts(folder, here))
        except patch.BadPatch as e:
            raise _unsound(self.row, f"a patch of it does not apply: {e}") from None

    def gold(self) -> dict[str, str | None]:
        changes = patch.read(self.row.patch)
        return self._patched(patch.undone(changes) if self.row.breaks else changes, self.graded())

    def hidden(self) -> list[str]:
        """The lines that the patches take away and add."""
        found = []
        for text in (self.row.patch, self.row.test_patch):
            lines = text.split("\n")
            found.append(
                "\n".join(
                    line[1:]
                    for line in lines
                    if line[:1] in "+-" and line[:3] not in ("+++", "---")
                )
            )
        return [text for text in found if text]

    def visible_tests(self) -> ProjectTests:
        return self.suite

    def place(self) -> tuple[str, str]:
        gold = self.gold()
        here = [path for path in gold if (self.graded() / path).is_file()]
        return patch.changed_place(sources.texts(self.graded(), here), gold)

    # --- its tests ---

    def unacceptable(self, path: str) -> str:
        """Why an answer's change to `path` is dropped, or '' when it counts.

        What the harness puts in its place anyway, and besides what decides how tests run. A
        package's own folder `test`, as in django, is no folder of tests.
        """
        pure = PurePosixPath(path)
        if sources.skipped(path):
            return "not a source file"
        if path in self.tests or path in _files_of(self.row.fail_to_pass):
            return "a test, which is put in its place"
        if pure.name in _CONFIGURES or pure.suffix == ".pth":
            return "configures how tests run"
        if (
            path in _RUNNERS
            or "tests" in pure.parts[:-1]
            or pure.parts[0] == "testing"
            or _test_file(pure.name)
        ):
            return "a test"
        top = next(
            (path[len(r) + 1 :] for r in self.suite.roots if r != "." and path.startswith(r + "/")),
            path,
        )
        first = PurePosixPath(top).parts[0]
        name, base = first.removesuffix(".py"), self.graded() / path.removesuffix(top)
        if sources.shadows(name) and not (base / first).exists():
            return "would stand in for a module of Python or of the runner"
        return ""

    @cached_property
    def tests(self) -> tuple[str, ...]:
        """The files of test_patch that there are after it."""
        return tuple(c.new for c in patch.read(self.row.test_patch) if c.new is not None)

    def command(self, tests: Sequence[str]) -> list[str]:
        """What runs the tests in these files."""
        match self.suite.runner:
            case "django":
                modules = [
                    (
                        path.removeprefix("tests/").removesuffix(".py").replace("/", ".")
                        if path.endswith(".py")
                        else path
                    )
                    for path in tests
                ]
                how = ["--verbosity", "2", "--settings=test_sqlite", "--parallel", "1"]
                return ["python3", "tests/runtests.py", *how, *modules]
            case "sympy":
                return ["python3", "bin/test", "-C", "--verbose", *tests]
            case _:
                return ["python3", "-m", "pytest", "-rA", "--color=no", *tests]

    def run(
        self,
        backend: SandboxBackend,
        env: Path,
        files: Mapping[str, str | None],
        timeout: float,
        tests: Sequence[str] | None = None,
    ) -> test_run.TestResults:
        """As of every case; outcomes by the names that `fail_to_pass` and `pass_to_pass` have."""
        if tests is not None:
            suite = self.suite.model_copy(update={"tests": tuple(tests)})
            return test_run.run(
                backend, self.graded(), env, suite, timeout=timeout, files=files, observe=True
            )
        command = self.command(self._run_files())
        found = test_run.logged(
            backend, self.graded(), env, self.suite, command, timeout=timeout, files=files
        )
        log = found.output
        shown = (
            log if len(log) <= _SHOWN else f"{log[: _SHOWN // 4]}\n[...]\n{log[-_SHOWN * 3 // 4 :]}"
        )
        outcomes = test_log.read(log, self.suite.runner, self.row.repo)
        return found.model_copy(update={"outcomes": outcomes, "output": shown})

    def _run_files(self) -> list[str]:
        """Of the files of test_patch those that hold tests, and the files that the tests' names
        begin with."""
        python = [path for path in self.tests if path.endswith(".py")]
        named = [path for path in python if _test_file(PurePosixPath(path).name)]
        if self.suite.runner != "pytest":
            return named or python
        told = _files_of((*self.row.fail_to_pass, *self.row.pass_to_pass))
        return list(
            dict.fromkeys([*named, *(path for path in told if (self.graded() / path).is_file())])
        )


_SHOWN = 200_000
"""Characters of a log that a grade keeps."""
_CONFIGURES = sources.CONFIG | {"pytest.toml", ".pytest.toml"}
_RUNNERS = frozenset({"bin/test", "bin/doctest", "setupext.py", "noxfile.py"})


def _test_file(name: str) -> bool:
    return (
        name.startswith(("test_", "tests."))
        or name.endswith(("_test.py", "_tests.py"))
        or name == "test.py"
    )


def _files_of(tests: Sequence[str]) -> list[str]:
    """The files that pytest's names begin with."""
    return list(dict.fromkeys(name.partition("::")[0] for name in tests if "::" in name))


def _unsound(row: PublishedRow, why: str) -> Fault:
    return Fault(
        f"{row.task}: {why}",
        fix="leave the row out; recreate tasks check says which hold",
        code=UNSOUND,
    )


def linked(source: Path, target: Path) -> None:
    """A tree with the same files, which share their place on the disk: nobody writes into a tree
    that is made."""
    shutil.copytree(source, target, copy_function=os.link, symlinks=True)


def write(folder: Path, files: Mapping[str, str | None]) -> None:
    """Files of a tree that is being made; one that is there may be another tree's too, so it is
    replaced."""
    for path, text in files.items():
        place = folder / path
        mode = place.stat().st_mode if place.exists() else 0o644
        place.unlink(missing_ok=True)
        if text is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode("utf-8"))
            place.chmod(mode & 0o777)


# --- which rows are tasks here
# ------------------------------------------------------------------------------


def located(own: Sequence[PublishedRow], repos: Path | None) -> dict[str, tuple[Clone, str]]:
    """Rows of one repository by task id: the clone that has the row's base, and the whole id of
    that commit. Those are missing whose commit is not there. Raises CloneProblem when there is no
    clone.

    A mirror of SWE-smith has the base alone, under another id; without it the repository itself
    serves.
    """
    if repos is None:
        raise CloneProblem("no clones are named: --repos DIR")
    try:
        mirror = clone.find(repos, own[0].mirror) if own[0].mirror else None
    except CloneProblem:
        mirror = None
    if mirror is not None:
        return {row.task: (mirror, mirror.head()) for row in own}
    there = clone.find(repos, own[0].repo)
    commits = there.commits(row.commit for row in own)
    return {row.task: (there, commits[row.commit]) for row in own if row.commit in commits}


def usable(
    found: Sequence[PublishedRow], repos: Path | None
) -> tuple[list[PublishedRow], list[Refusal]]:
    """The rows that are tasks on this machine, in their order; and the others, each with why.

    Looked at is what can be without a checkout: the clone, the commit, whether both patches apply,
    what it asks for.
    """
    refused: dict[str, str] = {}
    fitted: dict[str, PublishedRow] = {}
    by_clone: dict[str, list[PublishedRow]] = defaultdict(list)
    for row in found:
        by_clone[row.mirror or row.repo].append(row)
    for own in by_clone.values():
        try:
            places = located(own, repos)
            missing = [row for row in own if row.task not in places]
            refused |= {
                row.task: f"the commit {row.commit[:12]} is not in the clone of {row.repo}"
                for row in missing
            }
            if places:
                _look([row for row in own if row.task in places], places, refused, fitted)
        except CloneProblem as e:
            refused |= {row.task: str(e) for row in own}
    kept = [fitted.get(row.task, row) for row in found if row.task not in refused]
    return kept, [
        Refusal(row.instance_id, refused[row.task]) for row in found if row.task in refused
    ]


def _look(
    own: Sequence[PublishedRow],
    places: Mapping[str, tuple[Clone, str]],
    refused: dict[str, str],
    fitted: dict[str, PublishedRow],
) -> None:
    """Say of rows of one clone whose patches cannot be read or do not apply, or whose environments
    cannot be, why; and put those into `fitted` whose patches apply without the returns that end
    their lines."""
    changes: dict[str, list[list[patch.FileChange]]] = {}
    for row in own:
        try:
            changes[row.task] = [patch.read(row.patch), patch.read(row.test_patch)]
            if not changes[row.task][0]:
                raise patch.BadPatch("its patch changes nothing")
            if not row.breaks and not changes[row.task][1]:
                raise patch.BadPatch("it has no test_patch")
            environment_of(row, specification(row))
        except patch.BadPatch as e:
            refused[row.task] = f"a patch of it cannot be read: {e}"
        except BadInput as e:
            refused[row.task] = e.message
    wanted = {
        (places[row.task][1], path): None
        for row in own
        if row.task not in refused
        for part in changes[row.task]
        for change in part
        for path in change.paths
    }
    there = places[own[0].task][0]
    blobs = there.files(wanted)
    for row in own:
        if row.task in refused:
            continue
        commit = places[row.task][1]
        tree = {path: _text(data) for (of, path), data in blobs.items() if of == commit}
        texts = {path: text for path, text in tree.items() if text is not None}
        for what, part in zip(("patch", "test_patch"), changes[row.task], strict=True):
            odd = [path for change in part for path in change.paths if tree.get(path, "") is None]
            if odd:
                refused[row.task] = f"its {what} changes {odd[0]}, which is there and is not UTF-8"
                continue
            try:
                text = _fit_patch(getattr(row, what), texts)
                fitted[row.task] = fitted.get(row.task, row).model_copy(update={what: text})
            except patch.BadPatch as e:
                refused[row.task] = f"its {what} does not apply: {e}"


def _fit_patch(text: str, tree: Mapping[str, str]) -> str:
    """Return a patch as it applies: as it stands, else, where its headings end with a return too,
    without the returns, as `patch` takes it after `git apply` refused it. Raises BadPatch."""
    try:
        patch.apply(patch.read(text), tree)
    except patch.BadPatch:
        bare = text.replace("\r\n", "\n")
        if not re.search(r"^\+\+\+ .*\r$", text, re.MULTILINE):
            raise
        with suppress(patch.BadPatch):
            patch.apply(patch.read(bare), tree)
            return bare
        raise
    return text


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
