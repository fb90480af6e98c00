"""A task with its sources: the folder that an agent gets, the folder that is graded, and what mends it."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from recreate.api import paths
from recreate.api.errors import BadInput
from recreate.api.types import Task, digest
from recreate.domains.swe import sources
from recreate.domains.swe.facts import Bug, Injected, Origin, bugs, injected, recipes
from recreate.domains.swe.mutation import mutate
from recreate.domains.swe.sources import Say
from recreate.domains.swe.test_run import ProjectTests, files_of, short
from recreate.storage.files import once

LAYOUT = 1
"""Part of the name of every tree made here: raise it when the way they are made changes."""


class Case(Protocol):
    """What the two kinds of task have in common. The folders are cached: read them, copy them, never write."""

    fail_to_pass: tuple[str, ...]
    suite: ProjectTests
    requires: tuple[str, ...]
    name: str
    key: str
    """What `passes without the bug` depends on, as a digest: cases with the same key share it."""

    def task(self) -> Task: ...

    def given(self) -> Path:
        """What the agent starts from: nothing hidden is in it."""
        ...

    def graded(self) -> Path:
        """The sources with the bug, and every test."""
        ...

    def gold(self) -> dict[str, str | None]:
        """path -> text of the files that mend it, None for one that goes."""
        ...

    def hidden(self) -> list[str]:
        """What the agent is not shown: the lines that mend it, and those of tests that it does not see."""
        ...

    def seen(self) -> ProjectTests:
        """The suite as far as the agent has it."""
        ...

    def place(self) -> tuple[str, str]:
        """Where the bug is: (file, the function's name, with dots for one in a class)."""
        ...


class RealCase:
    """The sources of one release, the tests of the next."""

    def __init__(self, bug: Bug, say: Say) -> None:
        self.bug = bug
        self.fail_to_pass, self.suite, self.requires = bug.fail_to_pass, bug.suite, bug.requires
        self.name = f"{bug.package} {bug.after}"
        self.key = digest([bug.before_sha256, bug.after_sha256, bug.suite, sorted(bug.requires), bug.files])
        self._say = say

    def task(self) -> Task:
        bug = self.bug
        how = _HOW.format(suite=" ".join(self.suite.tests))
        shown = (
            f"\n\n`{sources.REPRODUCE}` shows it: `python3 -m pytest {sources.REPRODUCE}` fails and should pass."
            if bug.reproduce
            else ""
        )
        named = f"This is the Python package {bug.package}, version {bug.before}."
        prompt = f"{named}\n\n{bug.prompt.strip()}{shown}\n\n{how}"
        return Task(id=bug.task, domain="swe", prompt=prompt, split=bug.split, group=bug.group, facts=bug.model_dump())

    def _before(self) -> Path:
        return sources.release(self.bug.package, self.bug.before, self.bug.before_sha256, self._say)

    def _after(self) -> Path:
        return sources.release(self.bug.package, self.bug.after, self.bug.after_sha256, self._say)

    def seen(self) -> ProjectTests:
        before = self._before()
        tests = [t for t in self.suite.tests if (before / t).exists()]
        return self.suite.model_copy(update={"tests": tuple(tests + [sources.REPRODUCE] * bool(self.bug.reproduce))})

    def given(self) -> Path:
        def build(fresh: Path) -> None:
            sources.copy(self._before(), fresh)
            fail: list[str] = []
            if self.bug.reproduce:
                (fresh / sources.REPRODUCE).write_text(self.bug.reproduce, encoding="utf-8")
                fail = [f"{sources.REPRODUCE}::{name}" for name in _tests_in(self.bug.reproduce)]
            _publish(fresh, fail, self.seen())

        return _tree([self.key, self.bug.reproduce], "given", build)

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

        return _tree([self.key], "graded", build)

    def _tests(self, path: str) -> bool:
        return sources.is_test(path, self.suite.tests) or Path(path).name == "conftest.py"

    def gold(self) -> dict[str, str | None]:
        before, after = (
            {p: (root / p).read_bytes() for p in sources.files(root) if self._mends(p)}
            for root in (self._before(), self._after())
        )
        changed = [p for p in {**before, **after} if before.get(p) != after.get(p)]
        return {p: after[p].decode("utf-8") if p in after else None for p in sorted(changed)}

    def hidden(self) -> list[str]:
        before, after = self._before(), self._after()
        tests = {p: (after / p).read_text("utf-8", errors="replace") for p in sources.files(after) if self._tests(p)}
        changed = {**{p: text or "" for p, text in self.gold().items()}, **tests}
        given = {p: (before / p).read_text("utf-8", errors="replace") for p in changed if (before / p).is_file()}
        return [_changed(given.get(p, ""), text) for p, text in changed.items()]

    def place(self) -> tuple[str, str]:
        """The first function that the mend changes, else the first of a file that it changes."""
        changed = {p: t for p, t in self.gold().items() if p.endswith(".py") and t and (self.graded() / p).is_file()}
        found = [(p, *_changed_function((self.graded() / p).read_text("utf-8"), t)) for p, t in changed.items()]
        path, name, _ = min(found, key=lambda each: each[2])
        return path, name

    def _mends(self, path: str) -> bool:
        if self.bug.files:
            return path in self.bug.files
        parts = Path(path).parts
        return (
            path.endswith(".py")
            and not self._tests(path)
            and not sources.unacceptable(path, self.suite.tests, self.suite.roots)
            and parts[0] not in ("docs", "doc", "examples", "benchmarks", "setup.py", "noxfile.py", "bin")
        )


class InjectedCase:
    """One function changed by rule, in a release or a repository."""

    def __init__(self, origin: Origin, bug: Injected, say: Say) -> None:
        self.origin, self.bug = origin, bug
        self.fail_to_pass, self.suite, self.requires = bug.fail_to_pass, origin.suite, origin.requires
        self.name = origin.name
        self.key = digest([origin.sha256 or origin.digest, origin.suite, sorted(origin.requires)])
        self._say = say

    def task(self) -> Task:
        origin, bug = self.origin, self.bug
        failing = "\n".join(
            f"- {test}" + (f"\n  {short(seen)}" if (seen := bug.observed.get(test)) else "") for test in bug.public
        )
        named = f"the Python package {origin.package}" + (f", version {origin.version}" if origin.version else "")
        one = len(bug.public) == 1
        prompt = (
            f"This is {named}. {'This test of it fails' if one else 'These tests of it fail'}, and passed before:\n"
            f"{failing}\n\n"
            f"Find the cause in the package and mend it there, so that {'it passes' if one else 'they pass'} again "
            "and every other test keeps passing. "
            + ("" if len(bug.public) == len(bug.fail_to_pass) else "Tests that are not shown check the same.")
            + "\n\n"
            + _HOW.format(suite=" ".join(_quoted(t) for t in bug.public[:2]))
        )
        source = origin.model_dump(exclude={"seconds"})  # measured: it would change the task's digest
        facts = {"kind": "injected", "origin": source, "bug": bug.model_dump()}
        return Task(id=bug.task, domain="swe", prompt=prompt, split=bug.split, group=bug.group, facts=facts)

    def pristine(self) -> Path:
        if self.origin.path:
            path = Path(self.origin.path).expanduser()
            path = path if path.is_absolute() else paths.workspace() / path
            return sources.repository(path, self.origin.commit, self.origin.digest, self._say)
        return sources.release(self.origin.package, self.origin.version, self.origin.sha256, self._say)

    def _mutated(self) -> str:
        bug = self.bug
        file = self.pristine() / bug.file
        text = file.read_bytes().decode("utf-8") if file.is_file() else ""
        found = mutate(text, bug.function, bug.operator, bug.occurrence)
        if found is None or content(found) != bug.mutant:
            raise BadInput(
                f"the recipe of {bug.task} does not give the bug it was made with",
                fix="it was made by another version of recreate: make it anew with recreate tasks make swe",
                code="stale-recipe",
            )
        return found

    def seen(self) -> ProjectTests:
        return self.suite

    def place(self) -> tuple[str, str]:
        return self.bug.file, self.bug.function

    def given(self) -> Path:
        def build(fresh: Path) -> None:
            sources.copy(self.pristine(), fresh)
            (fresh / self.bug.file).write_text(self._mutated(), encoding="utf-8", newline="")
            for file, functions in self._hides().items():
                left, missing = sources.cut_tests((fresh / file).read_bytes().decode("utf-8"), functions)
                if missing:
                    raise BadInput(
                        f"{self.bug.task} hides {'::'.join(next(iter(missing)))}, which {file} does not define",
                        fix="list it under `public`, or make the task anew",
                        code="bad-tasks-file",
                    )
                (fresh / file).write_bytes(left.encode("utf-8"))
            _publish(fresh, list(self.bug.public), self.suite)

        return _tree([self.key, self._identity()], "given", build)

    def _hides(self) -> dict[str, list[list[str]]]:
        """file -> the test functions in it that the agent is not shown, each a name path."""
        hidden = {sources.function_of(t) for t in self.fail_to_pass} - {sources.function_of(t) for t in self.bug.public}
        return {file: [h.split("::")[1:] for h in hidden if h.startswith(file + "::")] for file in files_of(hidden)}

    def hidden(self) -> list[str]:
        gold = self.gold()[self.bug.file] or ""
        found = [_changed(self._mutated(), gold)]
        for file, functions in self._hides().items():
            whole = (self.pristine() / file).read_bytes().decode("utf-8")
            found.append(_changed(sources.cut_tests(whole, functions)[0], whole))
        return found

    def graded(self) -> Path:
        def build(fresh: Path) -> None:
            sources.copy(self.pristine(), fresh)
            (fresh / self.bug.file).write_text(self._mutated(), encoding="utf-8", newline="")

        return _tree([self.key, self._identity()], "graded", build)

    def gold(self) -> dict[str, str | None]:
        return {self.bug.file: (self.pristine() / self.bug.file).read_bytes().decode("utf-8")}

    def _identity(self) -> list[object]:
        return [self.bug.file, self.bug.mutant, self.fail_to_pass, self.bug.public]


def _changed(before: str, after: str) -> str:
    """The lines that differ, those that go and those that come."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(line[1:] for line in lines if not line.startswith(("---", "+++", "@@")))


def case_of(task: Task, say: Say) -> Case:
    """The task with its sources. Raises BadInput (`unknown-task`) for one of another domain."""
    if task.facts.get("kind") == "real":
        return RealCase(Bug.model_validate(task.facts), say)
    if task.facts.get("kind") == "injected":
        origin, bug = Origin.model_validate(task.facts["origin"]), Injected.model_validate(task.facts["bug"])
        return InjectedCase(origin, bug, say)
    raise BadInput(f"{task.id} is not a task of swe", fix="recreate tasks list swe", code="unknown-task")


def tasks_of(data: Path | None, say: Say) -> list[Task]:
    """The tasks of `data`, a recipe file or a folder of them; None: the shipped ones and the workspace's own. Each
    once, real bugs before injected ones. Raises BadInput when an id means two tasks, or a group lies in two splits."""
    tasks: list[Task] = []
    for file in recipes(data):
        if file.suffix == ".toml":
            tasks += [RealCase(bug, say).task() for bug in bugs(file)]
        else:
            origins, injections = injected(file)
            tasks += [InjectedCase(origins[bug.source], bug, say).task() for bug in injections]
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
                f"the group {task.group} is split: {other.id} is {other.split}, {task.id} is {task.split}",
                fix="give all tasks of a group one split",
                code="bad-tasks-file",
            )
    return list(by_id.values())


_HOW = (
    "You are at the top of its sources; no network is there. To run tests: `python3 -m pytest {suite}`. "
    "What you change in tests or in how they are configured does not count."
)


def _changed_function(before: str, after: str) -> tuple[str, int]:
    """(the innermost function of `before` that differs, 0), or (its first, 1) when no function does, ('', 2)."""
    old, new = before.split("\n"), after.split("\n")
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    lines = [line for tag, low, high, _, _ in matcher.get_opcodes() if tag != "equal" for line in range(low, high + 1)]
    spans = [(node.end_lineno or 0, node.lineno, name) for name, node in _functions(ast.parse(before).body, "")]
    for line in lines:
        inside = [(end - start, name) for end, start, name in spans if start <= line + 1 <= end]
        if inside:
            return min(inside)[1], 0
    return (spans[0][2], 1) if spans else ("", 2)


def _functions(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")


def content(text: str) -> str:
    """The digest of a file's text that recipes hold."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _quoted(test: str) -> str:
    return test if all(c.isalnum() or c in "/._:-" for c in test) else "'" + test.replace("'", "'\\''") + "'"


def _tests_in(text: str) -> list[str]:
    found = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            found.append(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = [n.name for n in node.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test")]
            found += [f"{node.name}::{name}" for name in inner]
    return found


def _publish(folder: Path, fail: Sequence[str], seen: ProjectTests) -> None:
    """What tools of a scaffold read, and a git repository with the state the agent starts from."""
    public = {"fail": list(fail), "suite": list(seen.tests), "python_path": list(seen.roots)}
    (folder / sources.PUBLIC).parent.mkdir(exist_ok=True)
    (folder / sources.PUBLIC).write_text(json.dumps(public, indent=1) + "\n", encoding="utf-8")
    _commit(folder)


def _commit(folder: Path) -> None:
    """One commit of everything, if git is here: a convenience for agents, on which nothing of ours relies."""
    if shutil.which("git") is None:
        return
    nobody = {"NAME": "recreate", "EMAIL": "recreate@localhost", "DATE": "2000-01-01T00:00:00Z"}
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in nobody.items()}
    for command in (
        ["init", "--quiet", "--template=", "--initial-branch=main"],
        ["add", "--all", "--force", "--", ".", ":(exclude).recreate"],
        ["commit", "--quiet", "--message", "The sources as they are"],
        ["repack", "-adq"],
    ):
        done = subprocess.run(
            ["git", *command], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode != 0:
            shutil.rmtree(folder / ".git", ignore_errors=True)
            return
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "exclude").write_text(".recreate/\n__pycache__/\n*.pyc\n", encoding="utf-8")


def _tree(identity: object, which: str, build: Callable[[Path], None]) -> Path:
    return once(paths.home() / "swe" / "trees" / f"{digest([LAYOUT, identity])}-{which}", build)
