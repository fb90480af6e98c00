"""A task with its sources: the folder that an agent gets, the folder that is graded, what mends it,
and its tests."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from recreate.api.errors import BadInput
from recreate.api.ports import SandboxBackend
from recreate.api.syntax import parse_python
from recreate.api.types import Task, digest
from recreate.domains.python_env import Environment
from recreate.plugins.swe import copies, hunks, sources
from recreate.plugins.swe.facts import (
    Bug,
    Injected,
    Origin,
    Releases,
    Shown,
    bugs,
    injected,
    recipes,
    wrong_issue,
)
from recreate.plugins.swe.hard_mutation import mutated
from recreate.plugins.swe.mutation import Source
from recreate.plugins.swe.patch import changed_lines, changed_place
from recreate.plugins.swe.rows import PublishedRow, Refusal, dealt, holds_rows, read
from recreate.plugins.swe.sources import Say
from recreate.plugins.swe.swebench import RowCase, Specification, specification, usable
from recreate.plugins.swe.test_run import ProjectTests, TestResults, files_of, run, short
from recreate.plugins.swe.trees import publish, tree


class Case(Protocol):
    """What all kinds of task have in common, and of those of a package that pytest runs their
    suites, with a recorder. The folders are cached: read them, copy them, never write."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] | None = None
    """None: whatever passes without the bug."""
    suite: ProjectTests
    name: str
    key: str
    """What `passes without the bug` depends on, as a digest: cases with the same key share it."""
    withholds: bool = True
    """Whether its tests can be rewritten to hold no expected values."""

    @property
    def environment(self) -> Environment: ...

    def start_folder(self) -> Path:
        """What the agent starts from: nothing hidden is in it."""
        ...

    def graded(self) -> Path:
        """The sources with the bug, and every test."""
        ...

    def gold(self) -> dict[str, str | None]:
        """path -> text of the files that mend it, None for one that goes."""
        ...

    def hidden(self) -> list[str]:
        """What the agent is not shown: the lines that mend it, and those of tests that it does not
        see."""
        ...

    def visible_tests(self) -> ProjectTests:
        """The suite as far as the agent has it."""
        ...

    def place(self) -> tuple[str, str]:
        """Where the bug is: (file, the function's name, with dots for one in a class)."""
        ...

    def own_folders(self) -> Sequence[Path]:
        """Return the folders that are kept for this task alone; they are made when they are not
        there."""
        return self.start_folder(), self.graded()

    def unacceptable(self, path: str) -> str:
        """Return why an answer's change to `path` is dropped before grading, or '' when it
        counts."""
        own = copies.tops(self.graded(), self.suite)
        return sources.unacceptable(path, self.suite.tests, self.suite.roots, own)

    def run(
        self,
        backend: SandboxBackend,
        env: Path,
        files: Mapping[str, str | None],
        timeout: float,
        tests: Sequence[str] | None = None,
    ) -> TestResults:
        """Run the suite on the graded sources with `files` over them; with `tests`, files of it
        that tell what they see."""
        suite = self.suite
        if tests is not None:
            suite = suite.model_copy(update={"tests": tuple(tests)})
        where = (backend, self.graded(), env, suite)
        return run(*where, timeout=timeout, files=files, observe=tests is not None)


class RealCase(Case):
    """The sources of one release, the tests of the next; or of a commit and the one before it.

    shown: which of its texts tells the bug; None: the issue where only some hunks of a release mend
    it, else the whole.
    """

    def __init__(self, bug: Bug, say: Say, shown: Shown | None = None) -> None:
        self.bug = bug
        self.fail_to_pass, self.suite = bug.fail_to_pass, bug.suite
        self.name = f"{bug.package} {bug.after[:12] if bug.path else bug.after}"
        self._pair = [
            bug.before_sha256,
            bug.after_sha256,
            bug.suite,
            self.environment.key,
            bug.files,
        ]
        self.key = digest([*self._pair, bug.hunks] if bug.hunks else self._pair)
        self._say = say
        usual: Shown = "issue" if bug.issue and (bug.hunks or not bug.prompt) else "spec"
        wanted = shown or usual
        self._texts: dict[Shown, str] = {"issue": bug.issue, "spec": bug.prompt, "title": bug.title}
        self._shown: Shown = wanted if self._texts[wanted] else usual
        self._variant = "" if self._shown == usual else f":{self._shown}"

    @property
    def environment(self) -> Environment:
        return self.bug.environment

    def task(self) -> Task:
        bug = self.bug
        version = f"commit {bug.before[:12]}" if bug.path else f"version {bug.before}"
        text = self._texts[self._shown]
        if not text:
            failing, one = _failing(bug.public, bug.observed), len(bug.public) == 1
            text = (
                f"{'This test' if one else 'These tests'} of what it should do"
                f" fail{'s' if one else ''}:\n{failing}\n\nFind the cause in the package and mend"
                f" it there, so that {'it passes' if one else 'they pass'} and every test that"
                " passes now keeps passing."
                + (
                    ""
                    if len(bug.public) == len(bug.fail_to_pass)
                    else " Tests that are not shown check the same."
                )
            )
        if self._shown == "spec" and bug.reproduce:
            run = f"python3 -m pytest {sources.REPRODUCE}"
            text = (
                f"{text.strip()}\n\n`{sources.REPRODUCE}` shows it: `{run}` fails and should pass."
            )
        how = _HOW.format(suite=" ".join(self.seen_tests()))
        prompt = f"This is the Python package {bug.package}, {version}.\n\n{text.strip()}\n\n{how}"
        facts = bug.model_dump() | ({"shown": self._shown} if self._variant else {})
        id = bug.task + self._variant
        return Task(
            id=id, domain="swe", prompt=prompt, split=bug.split, group=bug.group, facts=facts
        )

    def seen_tests(self) -> Sequence[str]:
        """What the prompt says can be run."""
        return (
            [_quoted(t) for t in self.bug.public[:2]]
            if not (self.bug.prompt or self.bug.issue)
            else self.bug.given or self.suite.tests
        )

    def _before(self) -> Path:
        return self._sources(self.bug.before, self.bug.before_sha256)

    def _after(self) -> Path:
        return self._sources(self.bug.after, self.bug.after_sha256)

    def _sources(self, version: str, sha256: str) -> Path:
        if self.bug.path:
            return sources.repository(sources.place(self.bug.path), version, sha256, self._say)
        return sources.release(self.bug.package, version, sha256, self._say)

    def visible_tests(self) -> ProjectTests:
        before = self._before()
        files = {*files_of(self.bug.public)} if self._public() else set()
        tests = [t for t in self.suite.tests if (before / t).exists() or t in files]
        shown = [sources.REPRODUCE] * bool(self._reproduce())
        return self.suite.model_copy(update={"tests": tuple(tests + shown)})

    def _reproduce(self) -> str:
        return self.bug.reproduce if self._shown == "spec" else ""

    def _public(self) -> tuple[str, ...]:
        return () if self.bug.prompt or self.bug.issue else self.bug.public

    def start_folder(self) -> Path:
        def build(fresh: Path) -> None:
            sources.copy(self._before(), fresh)
            gold = "\n".join(self.hidden()[: len(self.gold())])
            if self._shown == "issue" and (
                wrong := wrong_issue(self.bug.issue, self.fail_to_pass, gold)
            ):
                raise BadInput(
                    f"the issue of {self.bug.task} {wrong}",
                    fix="say what is seen, not what mends it",
                    code="bad-tasks-file",
                )
            fail = list(self._public())
            for path, text in self._shown_tests().items():
                (fresh / path).parent.mkdir(parents=True, exist_ok=True)
                (fresh / path).write_bytes(text.encode("utf-8"))
            if self._reproduce():
                (fresh / sources.REPRODUCE).write_text(self._reproduce(), encoding="utf-8")
                fail = [f"{sources.REPRODUCE}::{name}" for name in _tests_in(self._reproduce())]
            publish(fresh, fail, self.visible_tests())

        about: list[object] = [self.key, self._reproduce()]
        about += [
            text
            for text in (self.bug.issue if self._shown == "issue" else "", self._public())
            if text
        ]
        return tree(about, "given", build)

    def _shown_tests(self) -> dict[str, str]:
        """The files of public tests as they are after, without the functions that differ and are
        not public."""
        shown = {}
        for file in files_of(self._public()):
            text = (self._after() / file).read_bytes().decode("utf-8")
            before = self._before() / file
            old = (
                sources.test_functions(before.read_text("utf-8", errors="replace"))
                if before.is_file()
                else {}
            )
            public = {
                tuple(sources.function_of(t).split("::")[1:])
                for t in self._public()
                if t.startswith(file)
            }
            functions = sources.test_functions(text)
            cut = {
                name
                for name, body in functions.items()
                if old.get(name) != body and name not in public
            }
            shown[file] = sources.cut_tests(text, cut)[0]
        return shown

    def graded(self) -> Path:
        def build(fresh: Path) -> None:
            before, after = self._before(), self._after()
            sources.copy(before, fresh)
            for path in list(sources.files(fresh)):
                if self._tests(path):
                    (fresh / path).unlink()
            for path in sources.files(after):
                if self._tests(path):
                    (fresh / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(after / path, fresh / path)

        return tree([digest(self._pair)], "graded", build)

    def _tests(self, path: str) -> bool:
        return sources.is_test(path, self.suite.tests) or Path(path).name == "conftest.py"

    def change(self) -> dict[str, tuple[str | None, str | None]]:
        """path -> (text before, text after) of every file that the later sources have otherwise and
        that may mend."""
        before, after = (
            {p: (root / p).read_bytes() for p in sources.files(root) if self._mends(p)}
            for root in (self._before(), self._after())
        )
        changed = sorted(p for p in {**before, **after} if before.get(p) != after.get(p))
        return {
            p: (
                before[p].decode("utf-8") if p in before else None,
                after[p].decode("utf-8") if p in after else None,
            )
            for p in changed
        }

    def gold(self) -> dict[str, str | None]:
        change = self.change()
        if not self.bug.hunks:
            return {path: after for path, (_, after) in change.items()}
        try:
            found = hunks.fingerprint(change, self.bug.hunks)
        except KeyError:
            found = ""
        if found != self.bug.hunks_digest:
            raise BadInput(
                f"the hunks of {self.bug.task} are not those that it was made with",
                fix=(
                    "another version of recreate or of Python made it: make it anew with recreate"
                    " tasks make swe"
                ),
                code="stale-recipe",
            )
        return {
            path: hunks.applied(*change[path], numbers)
            for path, numbers in sorted(self.bug.hunks.items())
        }

    def hidden(self) -> list[str]:
        before, after = self._before(), self._after()
        tests = {
            p: (after / p).read_text("utf-8", errors="replace")
            for p in sources.files(after)
            if self._tests(p)
        }
        changed = {**{p: text or "" for p, text in self.gold().items()}, **tests}
        given = {
            p: (before / p).read_text("utf-8", errors="replace")
            for p in changed
            if (before / p).is_file()
        }
        return [changed_lines(given.get(p, ""), text) for p, text in changed.items()]

    def place(self) -> tuple[str, str]:
        """The first function that the mend changes, else the first of a file that it changes."""
        gold = self.gold()
        return changed_place(
            sources.texts(self.graded(), [p for p in gold if (self.graded() / p).is_file()]), gold
        )

    def _mends(self, path: str) -> bool:
        if self.bug.files:
            return path in self.bug.files
        parts = Path(path).parts
        return (
            path.endswith(".py")
            and not self._tests(path)
            and not sources.unacceptable(
                path, self.suite.tests, self.suite.roots, copies.tops(self._before(), self.suite)
            )
            and parts[0]
            not in ("docs", "doc", "examples", "benchmarks", "setup.py", "noxfile.py", "bin")
        )


class InjectedCase(Case):
    """A bug put by rule into a release or a repository, in one function or in several."""

    def __init__(self, origin: Origin, bug: Injected, say: Say) -> None:
        self.origin, self.bug = origin, bug
        self.fail_to_pass, self.suite = bug.fail_to_pass, origin.suite
        self.name = origin.name
        self.key = digest([origin.sha256 or origin.digest, origin.suite, self.environment.key])
        self._say = say

    @property
    def environment(self) -> Environment:
        return self.origin.environment

    def task(self) -> Task:
        origin, bug = self.origin, self.bug
        failing = _failing(bug.public, bug.observed)
        named = f"the Python package {origin.package}" + (
            f", version {origin.version}" if origin.version else ""
        )
        one = len(bug.public) == 1
        prompt = (
            f"This is {named}. {'This test of it fails' if one else 'These tests of it fail'}, and"
            f" passed before:\n{failing}\n\nFind the cause in the package and mend it there, so"
            f" that {'it passes' if one else 'they pass'} again and every other test"
            f" {'that passes now ' if origin.fails else ''}keeps passing. "
            + _fails(origin.fails)
            + (
                ""
                if len(bug.public) == len(bug.fail_to_pass)
                else "Tests that are not shown check the same."
            )
            + "\n\n"
            + _HOW.format(suite=" ".join(_quoted(t) for t in bug.public[:2]))
        )
        # measured: it would change the task's digest
        source = origin.model_dump(exclude={"seconds"})
        facts = {"kind": "injected", "origin": source, "bug": bug.model_dump()}
        return Task(
            id=bug.task, domain="swe", prompt=prompt, split=bug.split, group=bug.group, facts=facts
        )

    def pristine(self) -> Path:
        if self.origin.path:
            path = sources.place(self.origin.path)
            return sources.repository(path, self.origin.commit, self.origin.digest, self._say)
        return sources.release(
            self.origin.package, self.origin.version, self.origin.sha256, self._say
        )

    def _mutated(self) -> dict[str, str]:
        """path -> text of the files that have the bug."""
        found = mutated(self._gold(), self.bug.parts, self._earlier)
        if found is None or mark(found) != self.bug.mutant:
            raise BadInput(
                f"the recipe of {self.bug.task} does not give the bug it was made with",
                fix=(
                    "it was made by another version of recreate: make it anew with recreate tasks"
                    " make swe"
                ),
                code="stale-recipe",
            )
        return found

    def _gold(self) -> dict[str, str]:
        return sources.texts(
            self.pristine(), [f for f in self.bug.files if (self.pristine() / f).is_file()]
        )

    def _earlier(self, file: str) -> tuple[str, str]:
        return (
            earlier_texts(self.origin.package, self.bug.earlier, file, self._say)
            if self.bug.earlier
            else ("", "")
        )

    def visible_tests(self) -> ProjectTests:
        return self.suite

    def place(self) -> tuple[str, str]:
        """The first part's function, or its neighbour where it is gone."""
        names = [site.name for site in Source(self._mutated()[self.bug.file]).functions()]
        above = self.bug.function.rpartition(".")[0]
        near = [n for n in names if n == self.bug.function] + [
            n for n in names if n.rpartition(".")[0] == above
        ]
        return self.bug.file, (near + names)[0]

    def start_folder(self) -> Path:
        def build(fresh: Path) -> None:
            sources.copy(self.pristine(), fresh)
            for file, text in self._mutated().items():
                (fresh / file).write_text(text, encoding="utf-8", newline="")
            for file, functions in self._hides().items():
                left, missing = sources.cut_tests(
                    (fresh / file).read_bytes().decode("utf-8"), functions
                )
                if missing:
                    raise BadInput(
                        f"{self.bug.task} hides {'::'.join(next(iter(missing)))}, which {file} does"
                        " not define",
                        fix="list it under `public`, or make the task anew",
                        code="bad-tasks-file",
                    )
                (fresh / file).write_bytes(left.encode("utf-8"))
            publish(fresh, list(self.bug.public), self.suite)

        return tree([self.key, self._identity()], "given", build)

    def _hides(self) -> dict[str, list[list[str]]]:
        """file -> the test functions in it that the agent is not shown, each a name path."""
        hidden = {sources.function_of(t) for t in self.fail_to_pass} - {
            sources.function_of(t) for t in self.bug.public
        }
        return {
            file: [h.split("::")[1:] for h in hidden if h.startswith(file + "::")]
            for file in files_of(hidden)
        }

    def hidden(self) -> list[str]:
        gold = self._gold()
        found = [changed_lines(text, gold[file]) for file, text in self._mutated().items()]
        for file, functions in self._hides().items():
            whole = (self.pristine() / file).read_bytes().decode("utf-8")
            found.append(changed_lines(sources.cut_tests(whole, functions)[0], whole))
        return found

    def graded(self) -> Path:
        def build(fresh: Path) -> None:
            sources.copy(self.pristine(), fresh)
            for file, text in self._mutated().items():
                (fresh / file).write_text(text, encoding="utf-8", newline="")

        return tree([self.key, self._identity()], "graded", build)

    def gold(self) -> dict[str, str | None]:
        return {**self._gold()}

    def _identity(self) -> list[object]:
        return [self.bug.file, self.bug.mutant, self.fail_to_pass, self.bug.public]


def case_of(task: Task, say: Say, repos: Path | None = None) -> Case:
    """The task with its sources. Raises BadInput (`unknown-task`) for one of another domain."""
    if task.facts.get("kind") == "real":
        return RealCase(Bug.model_validate(task.facts), say, task.facts.get("shown"))
    if task.facts.get("kind") == "injected":
        origin, bug = (
            Origin.model_validate(task.facts["origin"]),
            Injected.model_validate(task.facts["bug"]),
        )
        return InjectedCase(origin, bug, say)
    if task.facts.get("kind") == "row":
        spec = Specification.model_validate(task.facts["specification"])
        return RowCase(PublishedRow.model_validate(task.facts["row"]), spec, repos, say)
    raise BadInput(
        f"{task.id} is not a task of swe", fix="recreate tasks list swe", code="unknown-task"
    )


def tasks_of(
    data: str | Path | None, say: Say, repos: Path | None = None, shown: Shown | None = None
) -> tuple[list[Task], list[Refusal]]:
    """The tasks of `data`: recipes, a file or folder of them, or rows of SWE-bench, which
    `rows.read` finds; None: the shipped recipes and the workspace's own. Each once, real bugs
    before injected ones; and the rows that are no tasks. shown: see RealCase.

    Raises BadInput when an id means two tasks, or a group lies in two splits."""
    tasks: list[Task] = []
    if data is not None and holds_rows(data):
        found, refused = read(data)
        splits = dealt(found)
        kept, others = usable([row for row, _ in found], repos)
        made = [RowCase(row, specification(row), repos, say).task(splits[row.repo]) for row in kept]
        return made, [*refused, *others]
    for file in recipes(None if data is None else Path(data)):
        if file.suffix == ".toml":
            tasks += [RealCase(bug, say, shown).task() for bug in bugs(file)]
        else:
            origins, injections = injected(file)
            tasks += [InjectedCase(origins[bug.source], bug, say).task() for bug in injections]
    _refuse_doubles(tasks)
    return list({task.id: task for task in tasks}.values()), []


def _refuse_doubles(tasks: Sequence[Task]) -> None:
    by_id: dict[str, Task] = {}
    splits: dict[str, Task] = {}
    for task in tasks:
        known = by_id.setdefault(task.id, task)
        if known.digest != task.digest:
            raise BadInput(
                f"two different tasks are called {task.id}",
                fix="rename one of them in benchmarks/swe",
                code="bad-tasks-file",
            )
        other = splits.setdefault(task.group, task)
        if other.split != task.split:
            raise BadInput(
                f"the group {task.group} is split: {other.id} is {other.split}, {task.id} is"
                f" {task.split}",
                fix="give all tasks of a group one split",
                code="bad-tasks-file",
            )


def _fails(tests: Sequence[str], most: int = 5) -> str:
    """That they fail or waver whatever one does, in a sentence with a space behind it; '' for
    none."""
    if not tests:
        return ""
    more = f" and {len(tests) - most} more" if len(tests) > most else ""
    return (
        f"With or without the bug these cannot be relied on here: {', '.join(tests[:most])}{more}. "
    )


_HOW = (
    "You are at the top of its sources; no network is there. To run tests: `python3 -m pytest"
    " {suite}`. What you change in tests or in how they are configured does not count."
)


def _failing(tests: Sequence[str], observed: Mapping[str, str]) -> str:
    """A list of tests, each with what its failure says."""
    return "\n".join(
        f"- {test}" + (f"\n  {short(observed[test])}" if observed.get(test) else "")
        for test in tests
    )


def content(text: str) -> str:
    """The digest of a file's text that recipes hold."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def mark(files: Mapping[str, str]) -> str:
    """The digest of the files of a bug that recipes hold: of one file, that of its text."""
    texts = list(files.values())
    return content(texts[0] if len(texts) == 1 else json.dumps(sorted(files.items())))


def earlier_texts(package: str, releases: Releases, file: str, say: Say) -> tuple[str, str]:
    """A file in the two releases that a bug is about; '' where it is not."""
    pairs = (releases.before, releases.before_sha256), (releases.after, releases.after_sha256)
    found = [sources.release(package, version, sha256, say) for version, sha256 in pairs]
    before, after = (
        sources.texts(root, [file] * (root / file).is_file()).get(file, "") for root in found
    )
    return before, after


def _quoted(test: str) -> str:
    return (
        test
        if all(c.isalnum() or c in "/._:-" for c in test)
        else "'" + test.replace("'", "'\\''") + "'"
    )


def _tests_in(text: str) -> list[str]:
    found = []
    for node in parse_python(text).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            found.append(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = [
                n.name
                for n in node.body
                if isinstance(n, ast.FunctionDef) and n.name.startswith("test")
            ]
            found += [f"{node.name}::{name}" for name in inner]
    return found
