"""What one change mends: the later tests on the earlier sources, told apart behaviour by behaviour.

The later tests run on the earlier sources and on the later ones. Those that turn from failing to
passing are divided by the fewest hunks of the change that each needs (hunks.py); a behaviour that
only brings new names is a feature, which nobody can be asked for without naming it. What is found
is a `Candidate`: a recipe without its texts, and what whoever writes these should see. Candidates
hold code of the package, recipes (`add`) do not.
"""

from __future__ import annotations

import ast
import email
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from packaging.requirements import InvalidRequirement, Requirement

from recreate.api.errors import BadInput, Fault
from recreate.api.ports import SandboxBackend
from recreate.api.shapes import JsonDict
from recreate.api.syntax import parse_python
from recreate.api.types import Record
from recreate.domains.python_env import Environment, environment
from recreate.plugins.swe import copies, hunks, patch, sources, test_run
from recreate.plugins.swe.case import RealCase
from recreate.plugins.swe.facts import Bug
from recreate.plugins.swe.sources import Say
from recreate.plugins.swe.test_run import ProjectTests, TestResults
from recreate.plugins.swe_tasks.generate import steady

MOST_TESTS = 60
"""More tests than that turn for a rewrite, not for a behaviour."""
MOST_PROBES = 50
MOST_IN_ALL = 200
"""Sets of hunks that are tried for one test before it is given up, and for one change."""
MOST_SHOWN = 6
"""Test functions that an agent is shown, all of them, where there is no text."""
_SHOWN = 4000
"""Characters of a test's text, or of the changelog, in a candidate."""
_LOUD = frozenset({"failed", "error"})

Need = tuple[str, int]
"""A hunk: its file and its number."""


class Candidate(Record):
    """One behaviour that a change mended. bug: the recipe, its texts still empty. kind `feature`:
    `why` says what shows it. released: the day. gold: a diff. failures: test id -> what it says
    before. tests: test function -> its text. changelog: what the later sources' own says that the
    earlier one did not."""

    bug: Bug
    kind: Literal["bug", "feature"] = "bug"
    why: str = ""
    released: str = ""
    gold: str = ""
    changelog: str = ""
    failures: Mapping[str, str] = {}
    tests: Mapping[str, str] = {}


# --- one change
# -------------------------------------------------------------------------------------------


class ChangeStudy:
    """The tests of the later sources on the earlier ones, with any of the change's hunks.

    Raises BadInput: failing-suite, no-change, not-text.
    """

    def __init__(
        self, bug: Bug, env: Path, backend: SandboxBackend, say: Say, *, seconds: float = 40.0
    ) -> None:
        self.bug = bug
        self._env = env
        self._backend = backend
        self._say = say
        self._seconds = seconds
        self.case = RealCase(bug, say)
        try:
            self.change = self.case.change()
        except UnicodeDecodeError as e:
            why = f"{self.case.name} changes a source that is not UTF-8"
            raise BadInput(why, fix="take another one", code="not-text") from e
        if not self.change:
            raise BadInput(
                f"{self.case.name} changes no source", fix="take another one", code="no-change"
            )
        self.hunks: dict[Need, hunks.NumberedHunk] = {
            (path, n): hunk
            for path, texts in self.change.items()
            for n, hunk in enumerate(hunks.numbered(*texts), 1)
            if not hunks.silent(*texts, hunk)
        }
        self.probes = 0
        self._known: dict[frozenset[Need], set[str]] = {}

    def behaviours(self, *, fewest: bool = True) -> list[Candidate]:
        """What the change mends, each with the fewest hunks that do. Not fewest: with all where it
        mends one alone."""
        self.turned = turned = self._turned()
        failures = {
            t: steady(*(run.messages.get(t, "") for run in (self._first, self._again)))
            for t in turned
        }
        features = {t: why for t in turned if (why := self._feature(t, failures[t]))}
        wanted = [t for t in turned if t not in features]
        self._say(
            f"{len(turned)} tests turn, {len(features)} of them by new names; {len(self.hunks)}"
            " hunks"
        )
        found = []
        alone = len(self.hunks) == 1 or len(set(map(sources.function_of, wanted))) == 1
        needs = (
            {t: list(self.hunks) for t in wanted} if alone and not fewest else self._needs(wanted)
        )
        groups = sorted(hunks.clusters(needs), key=lambda group: min(group[1]))
        split = fewest or not (len(groups) == 1 and needs.keys() == set(wanted))
        if split:
            runs = self._each([self._texts(needed) for _, needed in groups], self._only)
        else:
            groups = [(wanted, set(self.hunks))]
            runs = [self._steady]
        for number, ((tests, needed), run) in enumerate(zip(groups, runs, strict=False), 1):
            made = self._candidate(
                f"{self._version()}-{number}", tests, needed, failures, run, split=split
            )
            if made is not None:
                found.append(made)
        for test, why in features.items():
            bug = self._recipe("feature", [test], set(self.hunks), {})
            found.append(
                Candidate(bug=bug, kind="feature", why=why, failures={test: failures[test]})
            )
        return found

    def _version(self) -> str:
        return self.bug.after[:10] if self.bug.path else self.bug.after

    def begin(self) -> None:
        """Run the tests on the later sources. Raises BadInput (failing-suite) where too few of them
        pass."""
        self._tests, self._only = self._changed_tests()
        whole = self._texts(self.hunks)
        if self._only == []:  # no test differs, so that none turns
            self.after = self._first = self._again = self._steady = TestResults()
            return
        for _ in range(4):
            self.after, self._first = self._each([whole, {}], self._only)
            turning = self._turning(self._first, self.after)
            self._again, self._steady = (
                self._each([{}, whole], turning) if turning else [TestResults()] * 2
            )
            hanging = {
                sources.function_of(t)
                for run in (self._first, self._again)
                if run.doubt
                for t in _cut_off(run)
            }
            if not hanging:
                break
            self._say(
                "left out, as the earlier sources do not come to an end:"
                f" {', '.join(sorted(hanging))}"
            )
            deselect = tuple(sorted({*self.bug.deselect, *hanging}))
            self.bug = self.bug.model_copy(update={"deselect": deselect})
            self.case = RealCase(self.bug, self._say)
        run = self.after
        passed = len(run.passed())
        if (
            not passed
            or passed < 0.7 * len(run.outcomes)
            or len(run.uncollected) > len(run.outcomes) // 20
        ):
            if not run.outcomes:
                self.after = run = self._run(self.hunks, tests=self._tests)
            why = run.doubt or next(iter(run.messages.values()), "") or run.output
            raise BadInput(
                f"{passed} of {len(run.outcomes)} tests of {self.case.name} pass:"
                f" {test_run.short(why[-600:], 700)}",
                fix="say what they need with --requires, where they are with --tests",
                code="failing-suite",
            )

    after: TestResults
    turned: Sequence[str] = ()
    """The tests that turn, those of features included."""

    def _turned(self) -> list[str]:
        """The tests that fail before and pass after, each seen twice."""
        again = set(self._turning(self._again, self._steady))
        return [t for t in self._turning(self._first, self.after) if t in again]

    def _turning(self, before: TestResults, after: TestResults) -> list[str]:
        """The tests that fail in one run and pass in the other, in the order of the other."""
        failing = {
            t for t, outcome in before.outcomes.items() if outcome in _LOUD and not before.doubt
        }
        turning = failing & after.passed()
        return [t for t in after.outcomes if t in turning]

    def _changed_tests(self) -> tuple[list[str], list[str] | None]:
        """The test files to run and, where these alone can turn, the test functions of them that
        differ. All of the suite, and None, where what tests read differs."""
        roots = (self.case.graded(), self.case._before())
        files = [
            {p: (r / p).read_bytes() for p in sources.files(r) if self.case._tests(p)}
            for r in roots
        ]
        changed = [p for p, data in files[0].items() if files[1].get(p) != data]
        modules = [
            p
            for p in changed
            if re.fullmatch(r"test_.*\.py|.*_test\.py|tests?\.py", PurePosixPath(p).name)
        ]
        if not modules or len(modules) != len(changed):
            return list(self.bug.tests), None
        only: list[str] = []
        for path in modules:
            new, old = (f.get(path, b"").decode("utf-8", "replace") for f in files)
            functions = sources.test_functions(new)
            known = sources.test_functions(old)
            alike = sources.reads_alike(old, new)
            differ = [
                name for name, text in functions.items() if known.get(name) != text or not alike
            ]
            only += ["::".join((path, *name)) for name in differ]
        return modules, only

    def _run(self, chosen: Iterable[Need], **how: Any) -> TestResults:
        only = how.pop("only", ())
        tests = how.pop("tests", None) or test_run.files_of(only)
        return test_run.run(
            self._backend,
            self.case.graded(),
            self._env,
            self._suite(tests),
            timeout=5 * self._seconds,
            files=self._texts(chosen),
            only=only,
            output_bytes=200_000,
            **how,
        )

    def _texts(self, chosen: Iterable[Need]) -> dict[str, str | None]:
        numbers: dict[str, list[int]] = {}
        for path, number in chosen:
            numbers.setdefault(path, []).append(number)
        return {path: hunks.applied(*self.change[path], n) for path, n in numbers.items()}

    # --- which hunks a test needs ---

    def _needs(self, tests: Sequence[str]) -> dict[str, list[Need]]:
        """Test -> the fewest hunks that it passes with, of those for which they could be found."""
        if not tests:
            return {}
        traced = self._run(self.hunks, only=tests, trace=True).lines
        touched = {t: self._touched(t, traced) for t in tests}
        self._asked = tests
        self._budget = 10**6
        needs: dict[str, list[Need]] = {}
        found: list[list[Need]] = []
        starts = {t: self._starts(touched[t]) for t in tests}
        self._probe([some[0] for some in starts.values()])
        self._probe([some[1] for t, some in starts.items() if not self._passes(t, some[0])])
        for test in sorted(tests, key=lambda t: (len(touched[t]), tests.index(t))):
            if self.probes >= MOST_IN_ALL:
                self._say(f"left out, {MOST_IN_ALL} sets of hunks were tried before: {test}")
                continue
            least = next((some for some in found if self._passes(test, some)), None)
            self._budget = 10**6
            start = (
                None
                if least
                else next((some for some in starts[test] if self._passes(test, some)), None)
            )
            self._budget = self.probes + MOST_PROBES
            if start is not None:
                least = hunks.minimal(start, partial(self._passes, test), self._probe)
                if self.probes >= self._budget:
                    self._say(f"left out, {MOST_PROBES} sets of hunks were not enough: {test}")
                    continue
                found.append(least)
                self._say(
                    f"{len(least)} of {len(self.hunks)} hunks, after {self.probes} probes: {test}"
                )
            if least:
                needs[test] = least
        return {t: needs[t] for t in tests if t in needs}

    def _starts(self, touched: Sequence[Need]) -> list[list[Need]]:
        """Where to begin: with the hunks that a test runs, with all of the functions that it runs,
        with what is in no function besides, with all of these files, with all."""
        functions = {self._function(h) for h in touched} - {None}
        near = [h for h in self.hunks if h in touched or self._function(h) in functions]
        loose = [h for h in self.hunks if h in near or h in self._loose]
        files = [h for h in self.hunks if h[0] in {p for p, _ in touched} or h in loose]
        return [list(touched), near, loose, files, list(self.hunks)]

    def _function(self, need: Need) -> tuple[str, int] | None:
        """The innermost function that a hunk is in afterwards: its file and first line."""
        lines = self._span(need)
        inside = [
            (node.body[0].lineno - (node.end_lineno or 0), (need[0], node.lineno))
            for node in _walk(self.change[need[0]][1])
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and lines & set(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
        ]
        return max(inside)[1] if inside else None

    def _touched(
        self, test: str, traced: Mapping[str, Mapping[str, tuple[int, ...]]]
    ) -> list[Need]:
        """The hunks of which a test runs a line, or the line beside what only goes."""
        return [h for h in self.hunks if self._span(h) & self._lines(h[0], traced).get(test, set())]

    def _span(self, need: Need) -> set[int]:
        hunk = self.hunks[need]
        first = hunk.start + 1
        return set(range(first, first + len(hunk.new))) if hunk.new else {hunk.start, first}

    @cached_property
    def _loose(self) -> set[Need]:
        return {
            h
            for h in self.hunks
            if h[0].endswith(".py") and not self._span(h) <= self._inside(h[0])
        }

    def _inside(self, path: str) -> set[int]:
        """The lines of a file afterwards that lie in the body of a function."""
        found: set[int] = set()
        for node in _walk(self.change[path][1]):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found |= set(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
        return found

    def _lines(
        self, path: str, traced: Mapping[str, Mapping[str, tuple[int, ...]]]
    ) -> dict[str, set[int]]:
        """test id -> the lines of a file that it runs; a statement of several lines is run
        whole."""
        by_test = {test: set(lines) for test, lines in traced.get(path, {}).items()}
        spans = []
        for node in _walk(self.change[path][1]):
            if isinstance(node, ast.stmt):
                body = getattr(node, "body", None)
                last = (
                    body[0].lineno - 1
                    if isinstance(body, list) and body
                    else node.end_lineno or node.lineno
                )
                if last > node.lineno:
                    spans.append(range(node.lineno, last + 1))
        for lines in by_test.values():
            for span in spans:
                if not lines.isdisjoint(span):
                    lines.update(span)
        return by_test

    def _passes(self, test: str, chosen: Sequence[Need]) -> bool:
        """Whether a test passes with these hunks alone."""
        key = frozenset(chosen)
        if key not in self._known and key:
            self._probe([chosen])
        return test in self._known.get(key, ())

    def _probe(self, sets: Iterable[Sequence[Need]]) -> None:
        """Find out which tests pass with each of these sets of hunks, several in one sandbox."""
        new: dict[frozenset[Need], dict[str, str | None]] = {}
        for chosen in map(frozenset, sets):
            if chosen and chosen not in self._known and chosen not in new:
                texts = self._texts(chosen)
                if all(t is None or _parses(t) for p, t in texts.items() if p.endswith(".py")):
                    new[chosen] = texts
                else:
                    self._known[chosen] = set()
        few = dict(list(new.items())[: max(0, self._budget - self.probes)])
        self.probes += len(few)
        for chosen, run in zip(few, self._each(few.values(), self._asked), strict=True):
            self._known[chosen] = run.passed()

    def _each(
        self, texts: Iterable[Mapping[str, str | None]], only: Sequence[str] | None
    ) -> list[TestResults]:
        runs = [
            test_run.TrialRun(files, frozenset(only or ()), 0, self._seconds) for files in texts
        ]
        return test_run.run_each(
            self._backend, self.case.graded(), self._env, self._suite(self._tests), runs
        )

    def _suite(self, tests: Iterable[str]) -> ProjectTests:
        """These tests, where nothing else of the package can be imported."""
        suite = self.case.suite.model_copy(update={"tests": tuple(tests)})
        return copies.without(suite, self._copies)

    @cached_property
    def _copies(self) -> copies.Copies:
        return copies.find(self._backend, self._env, self.case.graded(), self.case.suite, self._say)

    # --- what is made of it ---

    def _feature(self, test: str, said: str) -> str:
        """What shows that a test asks for a new name, or ''."""
        if self._new is None:
            old = [t for p, t in sources.texts(self.case._before()).items() if p.endswith(".py")]
            later = set().union(*(hunks.defined(after) for _, after in self.change.values()))
            self._new = later - set().union(*map(hunks.defined, old))
        match = re.search(
            r"has no attribute '(\w+)'|cannot import name '(\w+)'|unexpected keyword argument"
            r" '(\w+)'"
            r"|No module named '([\w.]+)'|name '(\w+)' is not defined",
            said,
        )
        names = {name.rpartition(".")[2] for name in (match.groups() if match else ()) if name}
        names |= hunks.used_names(self._test_text(test))
        new = sorted(names & self._new)
        return f"uses {', '.join(new[:5])}" if new else ""

    _new: set[str] | None = None

    def _test_text(self, test: str) -> str:
        file, *names = sources.function_of(test).split("::")
        text = (self.case.graded() / file).read_bytes().decode("utf-8", "replace")
        return sources.test_functions(text).get(tuple(names), "")

    def _candidate(
        self,
        id: str,
        tests: Sequence[str],
        needed: set[Need],
        failures: Mapping[str, str],
        whole: TestResults,
        *,
        split: bool,
    ) -> Candidate | None:
        turned = [t for t in failures if t in whole.passed()]
        if whole.doubt or not set(tests) <= set(turned) or len(tests) > MOST_TESTS:
            self._say(
                f"{id} is left out:"
                f" {whole.doubt or f'{len(turned)} tests turn, {len(tests)} were to'}"
            )
            return None
        if split and (broken := self._broken(whole, failures)):
            self._say(f"{id} is left out: its hunks alone break {broken[0]}")
            return None
        turned = [t for t in turned if t in tests]
        chosen: dict[str, list[int]] = {}
        for path, number in sorted(needed):
            chosen.setdefault(path, []).append(number)
        bug = self._recipe(id, turned, needed, chosen if split else {})
        shown = test_run.short
        bug = bug.model_copy(
            update={
                "public": tuple(_public(turned)),
                "observed": {t: shown(failures[t]) for t in turned if failures.get(t)},
            }
        )
        old = {p: b for p, (b, _) in self.change.items() if b is not None and p in chosen}
        gold = {p: t for p, t in self._texts(needed).items() if t is not None}
        texts = {sources.function_of(t): self._test_text(t)[:_SHOWN] for t in turned}
        return Candidate(
            bug=bug,
            gold=patch.make(old, gold),
            changelog=_changelog(self.case._before(), self.case._after()),
            failures={t: failures.get(t, "") for t in turned},
            tests=texts,
        )

    def _broken(self, whole: TestResults, failures: Mapping[str, str]) -> list[str]:
        """The tests that fail with these hunks though they pass without any and with all."""
        failing = [
            t for t, outcome in whole.outcomes.items() if outcome in _LOUD and t not in failures
        ]
        if not failing:
            return []
        return sorted(set(failing) & self._first.passed() & self.after.passed())

    def _recipe(
        self, id: str, tests: Sequence[str], needed: set[Need], chosen: Mapping[str, Sequence[int]]
    ) -> Bug:
        file = min(needed)[0]
        update: JsonDict = {
            "id": id,
            "fail_to_pass": tuple(tests),
            "group": _group(self.bug, file),
        }
        if chosen:
            update |= {
                "hunks": {p: tuple(n) for p, n in chosen.items()},
                "hunks_digest": hunks.fingerprint(self.change, chosen),
            }
        return self.bug.model_copy(update=update)


def _cut_off(run: TestResults) -> list[str]:
    """The tests that a run had begun and not ended when it was stopped."""
    return [
        t for t, outcome in run.outcomes.items() if outcome == "error" and t not in run.messages
    ]


def _walk(text: str | None) -> list[ast.AST]:
    try:
        return list(ast.walk(parse_python(text or "")))
    except (SyntaxError, ValueError, RecursionError):
        return []


def _parses(text: str) -> bool:
    try:
        parse_python(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _group(bug: Bug, file: str) -> str:
    for root in bug.python_path:
        if root not in ("", ".") and file.startswith(root + "/"):
            file = file[len(root) + 1 :]
    parts = PurePosixPath(file).with_suffix("").parts
    return "/".join((bug.package, *(parts[1:] if len(parts) > 1 else parts)))


def _public(failing: Sequence[str]) -> list[str]:
    """The tests that an agent may see where nobody wrote a text: all of a few functions, since a
    hidden one may ask for what these do not tell; of many the first half."""
    functions = list(dict.fromkeys(map(sources.function_of, failing)))
    shown = set(functions[: max(MOST_SHOWN, (len(functions) + 1) // 2)])
    return [t for t in failing if sources.function_of(t) in shown]


_CHANGELOG = re.compile(r"(change|history|news|release|what.?s.?new|readme)", re.IGNORECASE)


def _changelog(before: Path, after: Path) -> str:
    """The lines that the later sources' changelogs add."""
    added: list[str] = []
    for path in sources.files(after):
        name = PurePosixPath(path)
        if _CHANGELOG.search(name.name) and name.suffix in ("", ".rst", ".md", ".txt"):
            old = (
                (before / path).read_text("utf-8", errors="replace")
                if (before / path).is_file()
                else ""
            )
            new = (after / path).read_text("utf-8", errors="replace")
            lines = unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
            added += [
                line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")
            ]
    return "\n".join(added)[:_SHOWN]


# --- where its tests run
# -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """How the tests of a project are run while its bugs are looked for.

    wanted: what they need, where it is asked for; tests, python_path: where they and the sources
    are, looked for when not given; env: an environment that stands already.
    """

    backend: SandboxBackend
    wanted: Environment
    tests: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    env: Path | None = None
    say: Say = lambda _: None


def layout(
    old: Path, root: Path, tests: Sequence[str], python_path: Sequence[str], name: str
) -> JsonDict:
    """Where the tests and the sources are, and which tests the earlier sources have where these are
    others."""
    where = tuple(tests) or sources.find_tests(root)
    if not where or any(not (root / t).exists() for t in where):
        raise BadInput(
            f"no tests were found in the sources of {name}",
            fix=(
                "name them with --tests, or take another release: some leave their tests out of the"
                " sdist"
            ),
            code="no-tests",
        )
    there = tuple(t for t in where if (old / t).exists())
    given = {} if len(there) == len(where) else {"given": there or sources.find_tests(old)}
    path = tuple(python_path) or (("src",) if (root / "src").is_dir() else (".",))
    return {"tests": where, "python_path": path, **given}


_FIXTURES = {
    "mocker": "pytest-mock",
    "benchmark": "pytest-benchmark",
    "httpserver": "pytest-httpserver",
}
_MODULES = {
    "dateutil": "python-dateutil",
    "yaml": "PyYAML",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "docutils": "docutils",
    "pkg_resources": "setuptools<81",
    "ruamel": "ruamel.yaml",
    "simplejson": "simplejson",
    "xprocess": "pytest-xprocess",
}
"""Test modules' names that are not those of their packages."""


def prepare_change(
    bug: Bug,
    old: Path,
    environments: Sequence[Environment],
    env: Path | None,
    backend: SandboxBackend,
    say: Say,
) -> ChangeStudy:
    """The change with its tests in the first of these environments in which most of them pass; what
    is installed is what is asked, else what the sources require, and what the tests turn out to
    lack. No `index_before` is today's.

    Raises BadInput when they pass in none.
    """
    refusals: list[tuple[int, BadInput]] = []
    # named in the recipe: tomorrow the index of this day is the same
    today = datetime.now(UTC).date().isoformat()
    for at, each in enumerate(environments):
        if each in environments[:at] or (at and env):
            continue
        wanted = list(each.requires) or _required(old)
        day = each.index_before or today
        for _ in range(5):
            plain = not wanted and day == today
            fields = each.model_dump(exclude={"schema_"}) | {"env": each.env}
            fields |= {"requires": tuple(wanted), "index_before": "" if plain else day}
            tried = bug.model_copy(update=fields)
            try:
                study = ChangeStudy(tried, env or environment(tried.environment, say), backend, say)
                study.begin()
            except BadInput as e:
                if e.code in ("no-change", "not-text"):
                    raise
                passed = len(study.after.passed()) if e.code == "failing-suite" else -1
                refusals.append((passed, e))
                if passed < 0:
                    break
                more = [m for m in _lacking(study.after, study.case._after()) if m not in wanted]
                if not more or env:
                    break
                say(f"the tests lack {', '.join(more)}")
                wanted += more
            except Fault as e:
                if e.code != "runner":
                    raise
                why = (
                    f"pytest does not start with {', '.join(tried.requires) or 'nothing else'} of"
                    f" {day}: {e.message}"
                )
                refusals.append(
                    (
                        -1,
                        BadInput(
                            why, fix="another --python or --pytest may do", code="failing-suite"
                        ),
                    )
                )
                break
            else:
                return study
    raise max(refusals, key=lambda refusal: refusal[0])[1]  # of the environment that came nearest


def _required(root: Path) -> list[str]:
    """What sources say that they need to run: of an sdist's PKG-INFO, else of pyproject.toml."""
    info = root / "PKG-INFO"
    said: list[Any] | None = None
    if info.is_file():
        said = email.message_from_string(info.read_text("utf-8", errors="replace")).get_all(
            "Requires-Dist"
        )
    if said is None and (root / "pyproject.toml").is_file():
        try:
            said = (
                tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
                .get("project", {})
                .get("dependencies")
            )
        except (ValueError, AttributeError):
            said = None
    found = []
    for text in map(str, said or ()):
        try:
            one = Requirement(text)
        except InvalidRequirement:
            continue
        if one.url is None and (one.marker is None or one.marker.evaluate({"extra": ""})):
            one.marker = None
            found.append(str(one))
    return found


def _lacking(run: TestResults, root: Path) -> list[str]:
    """Packages that tests did not find, by what they say. Never the sources' own."""
    said = "\n".join([*run.messages.values(), run.output])
    own = {PurePosixPath(part).stem for p in sources.files(root) for part in PurePosixPath(p).parts}
    modules = {m.partition(".")[0] for m in re.findall(r"No module named '([\w.]+)'", said)}
    fixtures = {
        _FIXTURES[f] for f in re.findall(r"fixture '(\w+)' not found", said) if f in _FIXTURES
    }
    if "async def functions are not natively supported" in said:
        fixtures.add("pytest-asyncio")
    return sorted(
        fixtures | {_MODULES.get(m, m) for m in modules - own if m not in sys.stdlib_module_names}
    )
