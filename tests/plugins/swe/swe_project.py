"""A small project with tests, a Python that has pytest and nothing else, and tasks made of the
two."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from recreate.api.ports import SandboxBackend
from recreate.api.types import Grade, Task, Trace
from recreate.plugins.swe import Swe
from recreate.plugins.swe_tasks.generate import MadeTasks, make
from recreate.sandboxes import choose

WORDS = '''"""Words."""


def shout(text, mark="!"):
    """TEXT in capitals, with a mark."""
    if not text:
        return ""
    loud = text.upper()
    return loud + mark


def initials(name):
    letters = [word[0] for word in name.split()]
    return "".join(letters).upper()
'''

SUMS = '''"""Sums."""


def clamp(value, low, high):
    """VALUE, but at least LOW and at most HIGH."""
    if value < low:
        return low
    if value > high:
        return high
    return value


def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)
'''

TEST_WORDS = """import pytest

from calm.words import initials, shout


@pytest.mark.parametrize("text", ["a::b", "x[1]", "t\\tt", "\\u00fc ber", "it's \\\\ \\"so\\""])
def test_shout(text):
    assert shout(text) == text.upper() + "!"


def test_shout_nothing():
    assert shout("") == ""


class TestInitials:
    def test_two(self):
        assert initials("ada lovelace") == "AL"


class TestMore:
    def test_one(self):
        assert initials("ada") == "A"
"""

TEST_SUMS = """import unittest

from calm.sums import clamp, mean


class ClampTest(unittest.TestCase):
    def test_low(self):
        self.assertEqual(clamp(-5, 0, 3), 0)

    def test_parts(self):
        for value, expected in [(1, 1), (9, 3)]:
            with self.subTest(value=value):
                self.assertEqual(clamp(value, 0, 3), expected)


def test_high_is_high():
    assert clamp(4, 0, 3) == 3


def test_mean():
    assert mean([1, 2, 6]) == 3


def test_mean_of_one():
    assert mean([7]) == 7
"""

FILES = {
    "calm/__init__.py": "",
    "calm/words.py": WORDS,
    "calm/sums.py": SUMS,
    "tests/test_words.py": TEST_WORDS,
    "tests/test_sums.py": TEST_SUMS,
    "README.md": "# calm\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder


@dataclass
class Project:
    """`task` is a bug in clamp: tests of it fail in tests/test_sums.py, one of them hidden."""

    home: Path
    env: Path
    repo: Path
    data: Path
    swe: Swe
    task: Task
    backend: SandboxBackend

    def grade(self, answer: str, task: Task | None = None) -> Grade:
        task = task or self.task
        trace = Trace(attempt="a", task=task.id, scaffold="s", model="m", answer=answer)
        return self.swe.grade(task, trace, self.backend)

    def answer(self, files: dict[str, str | None]) -> str:
        """The diff of an agent that writes these files (None: deletes) into its box."""
        sandbox = self.swe.prepare(self.task, self.backend)
        try:
            for name, text in files.items():
                if text is None:
                    sandbox.run(["rm", name])
                else:
                    sandbox.write(name, text.encode())
            return self.swe.collect(self.task, sandbox)
        finally:
            sandbox.close()

    def source(self, name: str) -> str:
        sandbox = self.swe.prepare(self.task, self.backend)
        try:
            return sandbox.read(name).decode()
        finally:
            sandbox.close()

    def make(self, **changes: object) -> MadeTasks:
        wanted = {
            "repo": self.repo,
            "env": self.env,
            "backend": self.backend,
            "n": 4,
            "file": self.data,
        }
        return make(**(wanted | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def _project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    home = tmp_path_factory.mktemp("swe")
    env = _environment(home / "env")
    repo = write(home / "calm", FILES)
    backend = choose()
    data = home / "benchmarks" / "swe" / "injected.jsonl"
    (home / "recreate.toml").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECREATE_HOME", str(home / "home"))
        patch.chdir(home)
        swe = Swe(data, env=env, say=lambda _: None, patience=1.0)
        project = Project(home, env, repo, data, swe, Task.model_construct(), backend)
        data.parent.mkdir(parents=True)
        data.write_text(recipe(repo, "calm"))
        project.task = swe.tasks()[0]
        swe.baseline(project.task, backend)
    return project


@pytest.fixture
def project(_project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Shared by a session, with the folder of caches that was used to make it."""
    monkeypatch.setenv("RECREATE_HOME", str(_project.home / "home"))
    monkeypatch.chdir(_project.home)
    return _project


def recipe(repo: Path, path: str) -> str:
    """By hand: `value > high` becomes `value < high` in clamp; one of the two tests that notice is
    hidden."""
    from recreate.plugins.swe import sources
    from recreate.plugins.swe.case import content
    from recreate.plugins.swe.facts import Part
    from recreate.plugins.swe.hard_mutation import mutated as buggy

    _, commit, digest = sources.snapshot(repo)
    part = Part(file="calm/sums.py", function="clamp", operator="compare", occurrence=1)
    mutated = (buggy({part.file: SUMS}, [part]) or {})[part.file]
    assert mutated == SUMS.replace("value > high", "value < high")
    about = {"name": "calm-1", "package": "calm", "path": path, "commit": commit, "digest": digest}
    failing = [f"tests/test_sums.py::{t}" for t in ("ClampTest::test_parts", "test_high_is_high")]
    bug = {
        "source": "calm-1",
        "id": "sums.clamp-compare-1",
        "file": "calm/sums.py",
        "function": "clamp",
        "operator": "compare",
        "occurrence": 1,
        "mutant": content(mutated),
        "split": "train",
        "group": "calm/sums",
        "fail_to_pass": failing,
        "public": failing[1:],
        "observed": {failing[1]: "assert 4 == 3"},
    }
    lines = [{"kind": "source", "tests": ["tests"], **about}, {"kind": "task", **bug}]
    return "".join(json.dumps(line) + "\n" for line in lines)


def _environment(folder: Path) -> Path:
    """A Python with copies of pytest and coverage: no plugin of the developer's own environment
    loads in it."""
    venv.create(folder, with_pip=False, symlinks=True)
    install(folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages")
    return folder


def install(packages: Path) -> None:
    for name in (
        "pytest",
        "py",
        "_pytest",
        "pluggy",
        "iniconfig",
        "packaging",
        "pygments",
        "coverage",
    ):
        found = importlib.util.find_spec(name)
        assert found is not None, f"the tests of swe need {name}"
        assert found.origin is not None
        if Path(found.origin).name != "__init__.py":
            shutil.copy(found.origin, packages)
            continue
        shutil.copytree(Path(found.origin).parent, packages / name)
    told = metadata.distribution("pluggy").locate_file(
        f"pluggy-{metadata.version('pluggy')}.dist-info"
    )
    shutil.copytree(str(told), packages / Path(str(told)).name)  # which pytest shows
