"""Two small repositories with a past and a future, and rows in SWE-bench's schema of them: pytest's
and unittest's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from recreate.plugins.swe import Swe, patch

BUG = (
    'def shout(text):\n    """In capitals."""\n    return text.lower()\n\n\ndef quiet(text):\n   '
    " return text.lower()\n"
)
MENDED = BUG.replace("text.lower()\n\n", "text.upper()\n\n", 1)

PYTEST = {
    "calm/__init__.py": "",
    "calm/words.py": BUG,
    "tests/test_words.py": (
        "from calm.words import quiet\n\n\ndef test_quiet():\n    assert quiet('A') == 'a'\n"
    ),
    "README.md": "# calm\n",
}
PYTEST_TESTS = (
    PYTEST["tests/test_words.py"].replace("import quiet", "import quiet, shout")
    + "\n\ndef test_shout():\n    assert shout('a') == 'A'\n"
)

RUNNER = """import sys
import unittest

labels = [word for word in sys.argv[1:] if not word.startswith("-") and word not in ("1", "2")]
sys.path.insert(0, "tests")
suite = unittest.defaultTestLoader.loadTestsFromNames(labels)
sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
"""
UNITTEST = {
    "django/__init__.py": "",
    "django/words.py": BUG,
    "tests/runtests.py": RUNNER,
    "tests/words/__init__.py": "",
    "tests/words/tests.py": (
        "import unittest\n\nfrom django.words import quiet\n\n\nclass"
        " WordsTests(unittest.TestCase):\n    def test_quiet(self):\n       "
        " self.assertEqual(quiet('A'), 'a')\n"
    ),
}
UNITTEST_TESTS = (
    UNITTEST["tests/words/tests.py"].replace("import quiet", "import quiet, shout")
    + "\n    def test_shout(self):\n        self.assertEqual(shout('a'), 'A')\n\n    def"
    ' test_mark(self):\n        """\n        Capitals are loud.\n        """\n       '
    ' self.assertEqual(shout("b"), "B")\n'
)
STATEMENT = "shout does not shout\nDescription\n\t\nIt says `a` where `A` is meant.\r\n"


class RowsHere(Swe):
    """swe with the environment that ROWS_ENV names, so that nothing is asked of the package
    index."""

    def __init__(self, data: Path | None = None, *, repos: Path | None = None) -> None:
        super().__init__(data, repos=repos, env=Path(os.environ["ROWS_ENV"]), say=lambda _: None)


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    command = ["git", "-C", str(folder), *names, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, files: dict[str, str], after: dict[str, str]) -> str:
    """A repository with a commit before `files`, that one, and a later one with `after`; the id of
    the middle one."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "PAST").write_text("what was\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "past")
    (folder / "PAST").unlink()
    for step in (files, after):
        for name, text in step.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "step")
    return git(folder, "rev-parse", "HEAD~1")


def pytest_row(repos: Path, **changes: Any) -> dict[str, Any]:
    """A row of acme/calm, with its clone made when it is not there."""
    place = repos / "acme__calm"
    mend = {"calm/words.py": MENDED}
    if not place.exists():
        repository(place, PYTEST, {**mend, "tests/test_words.py": PYTEST_TESTS})
    row = {
        "instance_id": "acme__calm-1",
        "repo": "acme/calm",
        "base_commit": git(place, "rev-parse", "HEAD~1"),
        "version": "1.0",
        "problem_statement": STATEMENT,
        "created_at": "2024-01-01T00:00:00Z",
        "patch": patch.make({"calm/words.py": BUG}, mend),
        "test_patch": patch.make(PYTEST, {**PYTEST, "tests/test_words.py": PYTEST_TESTS}),
        "FAIL_TO_PASS": json.dumps(["tests/test_words.py::test_shout"]),
        "PASS_TO_PASS": json.dumps(["tests/test_words.py::test_quiet"]),
    }
    return {**row, **changes}


def unittest_row(repos: Path, **changes: Any) -> dict[str, Any]:
    """The same of a django of our own; its names are those that older Pythons print, and one is a
    docstring."""
    place = repos / "django"
    mend = {"django/words.py": MENDED}
    if not place.exists():
        repository(place, UNITTEST, {**mend, "tests/words/tests.py": UNITTEST_TESTS})
    row = {
        "instance_id": "django__django-1",
        "repo": "django/django",
        "base_commit": git(place, "rev-parse", "HEAD~1"),
        "version": "5.0",
        "problem_statement": STATEMENT,
        "patch": patch.make({"django/words.py": BUG}, mend),
        "test_patch": patch.make(UNITTEST, {**UNITTEST, "tests/words/tests.py": UNITTEST_TESTS}),
        "FAIL_TO_PASS": ["test_shout (words.tests.WordsTests)", "Capitals are loud."],
        "PASS_TO_PASS": ["test_quiet (words.tests.WordsTests)"],
        "python_that_reproduces": [f"3.{sys.version_info.minor}"],
    }
    return {**row, **changes}


def write_rows(file: Path, *rows: Any) -> Path:
    file.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return file
