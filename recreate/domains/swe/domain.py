"""The domain `swe`: a bug in a small Python package, and the package's own tests to tell whether it is mended."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from recreate import paths
from recreate.domains.swe import patch, source, suite, tree
from recreate.domains.swe.environment import environment
from recreate.domains.swe.mutate import mutate
from recreate.domains.swe.once import once
from recreate.domains.swe.recipe import INJECTED, REAL, Bug, Injected, Origin, bugs, injected
from recreate.errors import BadInput, Fault
from recreate.ports import Limits, Rung, Sandbox
from recreate.types import Grade, Record, Split, Task, Trace, digest

_FILES, _BYTES = 100, 1_000_000
"""How many changed files, and how large a one, an answer may hold."""


class Baseline(Record):
    """What passes when the bug is not there: test ids, and the suite's time in seconds."""

    passed: tuple[str, ...]
    seconds: float


class Swe:
    """Tasks from benchmarks/swe: shipped ones, and the workspace's own.

    data  another folder of recipes, or one recipe file, instead of those
    env   a Python environment with pytest and coverage to run tests in, instead of building one for each task
    say   told what takes a while (fetching, building an environment); stderr unless given
    """

    name = "swe"

    def __init__(
        self, data: Path | None = None, *, env: Path | None = None, say: Callable[[str], None] | None = None
    ) -> None:
        self._data = data
        self._env = env
        self._say = say or (lambda text: print(text, file=sys.stderr))
        self._tasks: list[Task] | None = None

    # --- the port ---

    def tasks(self, split: Split | None = None) -> Sequence[Task]:
        """Real bugs, then injected ones, in the order of their files. Raises BadInput for a broken recipe file."""
        if self._tasks is None:
            self._tasks = _checked([task for file in self._recipes() for task in _read(file)])
        return [t for t in self._tasks if split is None or t.split == split]

    def prepare(self, task: Task, rung: Rung) -> Sandbox:
        """The buggy sources with the tests that may be seen, pytest and coverage, and `.recreate/public.json`."""
        recipe = _recipe(task)
        return suite.opened(rung, self._given(task), self._environment(recipe), self._seen(recipe, task))

    def collect(self, task: Task, box: Sandbox) -> str:
        """The unified diff of what is changed in the box, by content alone: what git says in there is not asked."""
        given = self._given(task)
        order = json.dumps({"manifest": tree.manifest(given), "skipped": sorted(tree.SKIPPED)}).encode() + b"\n"
        output = box.run(["python3", "-P", "-s", "-B", "-c", _CHANGED], timeout=60, stdin=order)
        last = output.text.strip().rpartition("\n")[2]
        try:
            names = [str(n) for n in json.loads(last)]
        except (ValueError, TypeError):
            raise Fault(f"the changed files were not listed: {output.text[-500:]}", code="collect") from None
        before, after, left = {}, {}, []
        for name in [n for n in names if not tree.skipped(n)]:
            if len(before) + len(after) >= 2 * _FILES:
                left.append(name)
                continue
            try:
                data = box.read(name)
                if len(data) > _BYTES:
                    left.append(name)
                    continue
                after[name] = data.decode("utf-8")
            except FileNotFoundError:
                pass
            except (BadInput, UnicodeDecodeError):
                left.append(name)
                continue
            if (given / name).is_file():
                before |= tree.texts(given, [name])
        head = "".join(f"# left out, not a text file of at most {_BYTES} bytes: {n!r}\n" for n in left[:20])
        diff = patch.make(before, after)
        return head + diff if diff else ""

    def grade(self, task: Task, trace: Trace, rung: Rung) -> Grade:
        """Run the project's tests on the answer. 1.0 when all that should pass do, else 0.0; nothing between."""
        recipe = _recipe(task)
        base = self._graded(recipe)
        try:
            files, dropped = self._applied(recipe, trace.answer, base)
        except patch.BadPatch as e:
            return Grade(score=0.0, passed=False, evidence=f"The answer does not apply: {e}.")
        if not files:
            why = "it changes only " + "; ".join(dropped) if dropped else "it is empty"
            return Grade(score=0.0, passed=False, evidence=f"Nothing to grade in the answer: {why}.")
        baseline = self.baseline(task, rung)
        run = self._run(rung, recipe, base, files, _patience(baseline.seconds))
        return _grade(recipe.fail_to_pass, baseline.passed, run, dropped)

    # --- beyond the port: gold, folders, and what passes without the bug ---

    def gold(self, task: Task) -> str:
        """The diff that mends the task: the injected change undone, or what the later release changed."""
        recipe = _recipe(task)
        base = self._graded(recipe)
        after = self._gold_texts(recipe, base)
        return patch.make(tree.texts(base, [p for p in after if (base / p).is_file()]), _present(after))

    def diff(self, task: Task, folder: Path) -> str:
        """What `folder` changes in the task's sources, in the form `collect` returns."""
        if not folder.is_dir():
            raise BadInput(f"{folder} is not a folder", fix="name a folder with the task's sources, changed")
        return patch.make(tree.texts(self._given(task)), tree.texts(folder))

    def baseline(self, task: Task, rung: Rung) -> Baseline:
        """What passes once the task is mended, the same in two runs; kept in home(). Raises Fault when nothing does."""
        recipe = _recipe(task)
        base = self._graded(recipe)
        mended = _present(self._gold_texts(recipe, base))
        about = [_source_key(recipe), recipe.suite, sorted(recipe.requires), suite.program_digest()]
        about += [str(self._env or ""), sys.version_info[:2], recipe.task if isinstance(recipe, Bug) else ""]
        file = paths.home() / "swe" / "baselines" / f"{digest(about)}.json"

        def build(fresh: Path) -> None:
            self._say(f"running the tests of {_source_name(recipe)} without the bug, once")
            runs = [self._run(rung, recipe, base, dict(mended), 600.0) for _ in range(2)]
            passed = runs[0].passed() & runs[1].passed()
            if not passed:
                why = runs[0].doubt or runs[1].doubt or f"none passed\n{runs[0].output[-1500:]}"
                raise Fault(
                    f"the tests of {_source_name(recipe)} do not run here: {why}",
                    fix="recreate tasks check swe says which tasks hold on this machine",
                    code="baseline",
                )
            seconds = round(max(run.seconds for run in runs), 2)
            fresh.write_text(Baseline(passed=tuple(sorted(passed)), seconds=seconds).model_dump_json())

        found = Baseline.model_validate_json(once(file, build).read_text())
        lost = [t for t in recipe.fail_to_pass if t not in set(found.passed)]
        if lost:
            raise Fault(
                f"{task.id} cannot be graded here: even without the bug {lost[0]} does not pass"
                + (f", nor {len(lost) - 1} others" if lost[1:] else ""),
                fix="leave the task out; `recreate tasks check swe` lists those that hold on this machine",
                code="unsound-task",
            )
        return found

    # --- recipes ---

    def _recipes(self) -> list[Path]:
        if self._data is not None and self._data.is_file():
            return [self._data]
        folders = (
            [self._data]
            if self._data is not None
            else [paths.shipped("benchmarks") / "swe", paths.workspace() / "benchmarks" / "swe"]
        )
        distinct = {folder.resolve(): folder for folder in folders}
        found = [f / name for f in distinct.values() for name in (REAL, INJECTED) if (f / name).is_file()]
        if not found:
            where = " or ".join(str(f) for f in distinct.values())
            raise BadInput(
                f"there are no tasks of swe in {where}",
                fix="make some: recreate tasks make swe --package NAME==VERSION",
                code="no-tasks",
            )
        return found

    # --- trees, each made once and then only read ---

    def _pristine(self, origin: Origin) -> Path:
        if origin.path:
            return source.repository(Path(origin.path), origin.commit, origin.digest, self._say)
        return source.release(origin.package, origin.version, origin.sha256, self._say)

    def _graded(self, recipe: Bug | tuple[Origin, Injected] | Recipe) -> Path:
        raise NotImplementedError
