"""What the log of a repository's own test command says of each test: readers by runner, in the
names that SWE-bench's harness uses. Written beside swebench.harness.log_parsers (MIT), by what it
reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Outcome = tuple[str, str]
"""(a test's name, passed | failed | error | skipped | expected)."""

_WORDS = {
    "PASSED": "passed",
    "FAILED": "failed",
    "ERROR": "error",
    "SKIPPED": "skipped",
    "XFAIL": "passed",
}
"""An expected failure counts as passed in the harness."""
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SUMMARY = re.compile(r"=+ short test summary info =+\s*")
_UNITTEST = re.compile(r"^(\w+) \(([\w.<>]+)\)")
_VERDICTS = {
    "ok": "passed",
    "OK": "passed",
    "FAIL": "failed",
    "ERROR": "error",
    "expected failure": "expected",
}
_PARAMETERS = re.compile(r"^(.*?)\[(.*)\]$")
_PATHS = frozenset({"psf/requests", "pylint-dev/pylint"})
"""Repositories some of whose parameters are absolute paths: the harness keeps their last part."""


def read(log: str, runner: str, repo: str = "") -> dict[str, str]:
    """test -> outcome, of a log of `runner`: pytest, django or sympy; names as `normal` gives them.

    Of a name that comes more than once the last line counts, as in the harness; but what failed
    under its full name stays failed.
    """
    found: dict[str, str] = {}
    for name, outcome in _READERS[runner](_ANSI.sub("", log).replace("\r\n", "\n").split("\n")):
        name = normal(name, runner, repo)
        if (
            found.get(name) not in ("failed", "error")
            or outcome in ("failed", "error")
            or not _names_one_test(name, runner)
        ):
            found[name] = outcome
    return found


def normal(name: str, runner: str, repo: str = "") -> str:
    """A test's name as all Pythons and machines write it.

    django: Python 3.11 and newer print `test (module.Class.test)`, older ones `test
    (module.Class)`, which it becomes. pytest: cut at the first blank, as the harness does; of a
    parameter that is a path, the last part.
    """
    name = name.strip()
    if runner == "django":
        if match := _UNITTEST.match(name):
            test, place = match.groups()
            return f"{test} ({place.removesuffix('.' + test)})" + name[match.end() :]
        return name
    if runner == "pytest":
        name = name.split(" ")[0]
        if repo in _PATHS and (match := _PARAMETERS.match(name)):
            test, option = match.groups()
            if option.startswith("/") and not option.startswith("//") and "*" not in option:
                return f"{test}[/{option.rpartition('/')[2]}]"
    return name


def _names_one_test(name: str, runner: str) -> bool:
    """Whether a name is one test's alone: a first line of a docstring, a cut or a bare name may be
    several tests'."""
    if runner == "django":
        return _UNITTEST.match(name) is not None
    return runner == "pytest" and "::" in name and ("[" not in name or name.endswith("]"))


def _pytest(lines: list[str]) -> Iterator[Outcome]:
    """Yield what the short summary of `-rA` says: `PASSED path::test`, `FAILED path::test - why`.
    What tests printed stands before its heading; without one the whole log is read."""
    heads = (at for at, line in enumerate(lines) if _SUMMARY.fullmatch(line))
    for line in lines[next(heads, 0) :]:
        word, _, rest = line.partition(" ")
        if word in _WORDS and (name := rest.strip().partition(" - ")[0]):
            yield name, _WORDS[word]


def _django(lines: list[str]) -> Iterator[Outcome]:
    """unittest's verbose lines: `test (module.Class) ... ok`; with a docstring, its first line
    stands in the second line, before the dots. What a test prints may come between the dots and the
    verdict."""
    title = ""
    waiting: tuple[str, ...] = ()
    for line in map(str.strip, lines):
        if line.startswith(("FAIL: ", "ERROR: ")):
            yield line.partition(": ")[2], "failed" if line.startswith("FAIL") else "error"
        elif f"{line} ".find(" ... ") > 0:
            name, outcome = _dotted(line)
            names = (title, name) if title and not _UNITTEST.match(name) else (name,)
            title, waiting = "", () if outcome else names
            yield from ((each, outcome) for each in names if outcome)
        elif _UNITTEST.fullmatch(line):
            title = line
        elif waiting and (
            outcome := _VERDICTS.get(line) or ("passed" if line.startswith("ok") else "")
        ):
            yield from ((each, outcome) for each in waiting)
            waiting = ()
        else:
            title = ""


def _dotted(line: str) -> tuple[str, str]:
    """(the name before the dots, the outcome after them, '' when that comes later)."""
    for word, outcome in _VERDICTS.items():
        for dots in (" ... ", " ...  "):
            if line.endswith(dots + word):
                return line.removesuffix(dots + word), outcome
    name, skipped, _ = line.partition(" ... skipped")
    return (name, "skipped") if skipped else (f"{line} ".partition(" ... ")[0], "")


def _sympy(lines: list[str]) -> Iterator[Outcome]:
    """bin/test's verbose lines, `test_name ok`, and the headings of its failures, `____
    path.py:test_name ____`."""
    words = {
        "ok": "passed",
        "F": "failed",
        "E": "error",
        "f": "expected",
        "s": "skipped",
        "w": "skipped",
    }
    for line in map(str.strip, lines):
        if match := re.fullmatch(r"_+ (\S+\.py):(\S+) _+", line):
            yield f"{match[1]}:{match[2]}", "failed"
        elif line.startswith("test_"):
            name, _, rest = line.partition(" ")
            if (last := rest.rpartition(" ")[2].strip()) in words:
                yield name, words[last]


_READERS: dict[str, Callable[[list[str]], Iterator[Outcome]]] = {
    "pytest": _pytest,
    "django": _django,
    "sympy": _sympy,
}
