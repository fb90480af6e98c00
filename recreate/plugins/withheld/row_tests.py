"""The scorers `tests` and `tests-together`: hidden tests over the files that were handed in.

Tests written in Python run apart from the code that they judge, which is in a sandbox of its own
(apart.py) and can bend neither them nor what they tell. By `tests-together` they run in one process
with it, and it can (docs/data.md, "What can be bent").
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from recreate.api.config import read_json
from recreate.api.errors import BadInput
from recreate.api.ports import Sandbox
from recreate.api.shapes import JsonDict, JsonMap
from recreate.api.types import Trace
from recreate.domains.exploits import text_exploits
from recreate.domains.rows.places import check_paths, is_possible
from recreate.domains.rows.scorers import Open, RowTask, Scored, Scorer, as_json, find_scorer
from recreate.domains.rows.settings import Definition
from recreate.plugins.audit import audit
from recreate.plugins.scorers.programs import (
    LONGEST_EVIDENCE,
    change_files,
    describe_ending,
    limits_of,
    run_program,
    write_file,
)
from recreate.plugins.withheld import apart, exploits, looks
from recreate.storage.redact import redact

_FILES = 200
_BYTES = 1_000_000
"""How many changed files an answer may have, and how large a one."""
PROGRAMS = {
    "ends at once": "import os\nos._exit(0)\n",
    "exits well": "import sys\nsys.exit(0)\n",
    "prints a verdict": 'print(\'{"passed": 99, "failed": [], "count": 99}\')\n',
    "writes results": (
        "import os\nfor n in os.listdir('.'):\n    open(n + '.result', 'w').write('1')\n"
    ),
}
"""What a program may try in place of doing what it is asked."""

_NOT_APART = (
    "The right answer passes these tests in one process with them, and not apart from them. Write"
    " them so that plain data and functions go into the answer and plain data comes out, without"
    " mocks, fixtures or files (docs/data.md, Tests); or choose --score tests-together, whose"
    " verdicts the code that is handed in can bend."
)
"""What the check of a row says whose tests need the answer's own process."""

_RUN_TESTS = r"""
import inspect, io, json, os, sys, traceback, unittest
asked = json.load(sys.stdin)
name = asked.pop("result")
sys.stdin = open(os.devnull)
sys.path.insert(0, os.getcwd())
passed, failed = 0, []
def tell(what, e):
    failed.append(what + ": " + type(e).__name__ + (": " + str(e)[:200] if str(e) else ""))
def tried(what, work):
    global passed
    try:
        found = work()
        if inspect.isawaitable(found) or inspect.isgenerator(found):
            raise TypeError("a test that is a coroutine or a generator is not run")
        passed += 1
    except BaseException as e:
        tell(what, e)
for path in asked["files"]:
    space = {"__name__": os.path.basename(path)[:-3], "__file__": path}
    try:
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), space)
    except BaseException as e:
        tell(path, e)
        continue
    before = passed + len(failed)
    for key, value in list(space.items()):
        if inspect.isfunction(value) and key.startswith("test"):
            tried(key, value)
            continue
        if not inspect.isclass(value) or value is unittest.TestCase:
            continue
        if key.startswith("Test") and not issubclass(value, unittest.TestCase):
            for method in [each for each in dir(value) if each.startswith("test")]:
                def one():
                    made = value()
                    getattr(made, "setup_method", lambda: None)()
                    return getattr(made, method)()
                tried(key + "." + method, one)
        elif issubclass(value, unittest.TestCase):
            found = unittest.TestResult()
            unittest.defaultTestLoader.loadTestsFromTestCase(value).run(found)
            wrong = {}
            for case, text in found.failures + found.errors:
                wrong[id(getattr(case, "test_case", case))] = (case, text)
            passed += max(0, found.testsRun - len(wrong))
            for case, text in wrong.values():
                failed.append(case.id() + ": " + text.strip().splitlines()[-1][:200])
    if inspect.isfunction(space.get("check")) and asked["entry"]:
        def checked():
            module = {}
            with open(asked["solution"], encoding="utf-8") as file:
                exec(compile(file.read(), asked["solution"], "exec"), module)
            space["check"](module[asked["entry"]])
        tried("check", checked)
    if passed + len(failed) == before:
        passed += 1
with open(name + ".part", "w") as out:
    json.dump({"passed": passed, "failed": failed[:50], "count": passed + len(failed)}, out)
os.rename(name + ".part", name)
os._exit(0)
"""


class TestsScorer(Scorer):
    """The part of the row's tests that pass over the files that were handed in; a command passes or
    does not."""

    name = "tests"
    version = 2
    settings = ("seconds", "answer_file")
    columns: Mapping[str, Sequence[str]] = {
        "answer": ("tests", "test"),
        "gold": ("solution", "canonical_solution", "gold"),
    }
    answer_is_gold = False

    def fingerprint(self, definition: Definition) -> Sequence[Any]:
        return (apart.version(),)

    def read_answer(self, value: Any) -> Any:
        read_tests(super().read_answer(value))
        return value

    def instruct(self, definition: Definition, answer: Any) -> str:
        return (
            "Work on the files in /work: what you change there is handed in, and checked by tests"
            " that you do not see."
        )

    def collect(self, case: RowTask, sandbox: Sandbox) -> str:
        return collect_changes(sandbox, dict(self.files(case.task, case.base)))

    def explain_nothing(self, definition: Definition, answer: str) -> str:
        return "" if answer.strip() not in ("", "{}") else "no file was changed"

    def write_gold(self, case: RowTask, value: Any) -> str:
        files = changes_of(as_json(value), case.definition.scorer.answer_file)
        return json.dumps(files, ensure_ascii=False, sort_keys=True)

    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        try:
            changed = changes_of(trace.answer, case.definition.scorer.answer_file)
        except ValueError as e:
            return Scored(0.0, f"The answer {e}.")
        kind, tests = read_tests(case.expected)
        if kind == "cases":
            return _run_cases(case, tests, changed, open)
        if kind == "command":
            return _run_command(case, tests, changed, open)
        return self.run_files(case, check_paths(tests), changed, open)

    def run_files(
        self,
        case: RowTask,
        tests: Mapping[str, str],
        changed: Mapping[str, str | None],
        open: Open,
    ) -> Scored:
        """Return what tests in Python make of changed files."""
        scored = _run_apart(case, tests, changed, open)
        if scored.score == 1.0 or changed != self._gold_changes(case):
            return scored
        together = _run_beside(case, tests, changed, open).score == 1.0
        return scored._replace(why=f"{_NOT_APART}\n{scored.why}") if together else scored

    def _gold_changes(self, case: RowTask) -> Mapping[str, str | None] | None:
        """Return what the right answer changes, None where the row has none."""
        try:
            return changes_of(self.gold(case), case.definition.scorer.answer_file)
        except (BadInput, ValueError):
            return None

    def exploits(self, case: RowTask) -> dict[str, str]:
        """Return what fits every question, and functions and programs as wrong as they were, around
        them what bends tests or the machine."""
        kind, tests = read_tests(case.expected)
        given = case.task.facts.get("files") or {}
        own = set(tests) if kind == "files" else set[str]()
        named = case.definition.scorer.answer_file
        changes = self._gold_changes(case) or {}
        python = [name for name in (*changes, *given) if name.endswith(".py") and name not in own]
        file = named if named in {*changes, *given} else next(iter(python), named)
        made: dict[str, dict[str, str]] = {}
        if file.endswith(".py"):
            row = case.task.facts["row"]
            entry = str(row.get("entry") or row.get("entry_point") or "answer")
            source = str(given.get(file) or "")
            if f"def {entry}(" not in source or not _parses(source):
                source = (
                    f"def {entry}(*args, **named):\n    return None\n{exploits.any_name(entry)}"
                )
            made = {**audit.python(file, source, entry), **exploits.exploits(file)}
            made |= {name: {file: f"{source}\n{code}"} for name, code in PROGRAMS.items()}
        if kind == "files":
            made |= exploits.exploits_of_tests(file, tests)
        elif kind == "command":
            made |= exploits.exploits_of_line(file, [path for path in given if path not in changes])
        answers = {name: json.dumps(files) for name, files in made.items()}
        return {**text_exploits(case.task), **answers}


class TogetherScorer(TestsScorer):
    """The same, but that tests in Python run in one process with the answer, which can bend
    them."""

    name = "tests-together"

    def fingerprint(self, definition: Definition) -> Sequence[Any]:
        return ()

    def run_files(
        self,
        case: RowTask,
        tests: Mapping[str, str],
        changed: Mapping[str, str | None],
        open: Open,
    ) -> Scored:
        """Return what tests in Python make of changed files."""
        return _run_beside(case, tests, changed, open)


def _run_command(
    case: RowTask, command: str, changed: Mapping[str, str | None], open: Open
) -> Scored:
    seconds = case.definition.scorer.seconds
    own, strange = _files_of_tests(case, command, changed)
    with TemporaryDirectory(prefix="recreate-") as folder:
        shown = {}
        for number, (path, data) in enumerate(own.items()):
            shown[f"/work/{path}"] = Path(folder, str(number))
            shown[f"/work/{path}"].write_bytes(data)
        try:
            sandbox = open(limits_of(case), shown)
        except BadInput:  # without walls nothing is out of reach
            sandbox = open(limits_of(case))
        try:
            change_files(sandbox, {p: t for p, t in changed.items() if p not in (*own, *strange)})
            output = sandbox.run(command, timeout=seconds)
        finally:
            sandbox.close()
    words = f"The tests end with the status {output.status}.\n"
    if told := sorted({*changed} & {*own, *strange}):
        words += f"What was handed in as {', '.join(told)} is not used: it is the tests' own.\n"
    said = redact(output.text[-LONGEST_EVIDENCE:])
    return Scored(float(output.status == 0), (words + said).rstrip())


_UNASKED: Mapping[str, Sequence[str]] = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "npm": ("package.json",),
    "tox": ("tox.ini", "setup.cfg", "pyproject.toml"),
    "pytest": (
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
    ),
}
"""Files that a program of a line reads though the line does not name them."""
_OF_TESTS = re.compile(r"test|check|verif|grade|spec|expect|assert", re.IGNORECASE)
"""How files are called that are the tests', where no right answer says what may be changed."""


def _files_of_tests(
    case: RowTask, command: str, changed: Mapping[str, str | None]
) -> tuple[dict[str, bytes], set[str]]:
    """Return (the row's files that are the tests', which the line names or what it names does, and
    which a right answer leaves as they are; what was handed in and would stand in for a module of
    Python's own, or be read unasked)."""
    scorer = find_scorer(case.definition.score)
    given = dict(scorer.files(case.task, case.base))
    try:
        may_change = changes_of(scorer.gold(case), case.definition.scorer.answer_file)
        kept = {path for path in given if path not in may_change}
    except (BadInput, ValueError):
        may_change = {}
        kept = {path for path in given if _OF_TESTS.search(path)}
    unasked = {
        name
        for word, names in _UNASKED.items()
        if re.search(rf"\b{word}\b", command)
        for name in names
    }
    own: dict[str, bytes] = {}
    texts = [command]
    while texts:
        text = texts.pop()
        named = [path for path in kept - own.keys() if _is_named(path, text, unasked)]
        own |= {path: given[path] for path in named}
        texts += [given[path].decode("utf-8", "replace") for path in named]
    strange = {
        path
        for path in changed.keys() - given.keys() - may_change.keys()
        if Path(path).name in unasked
        or path.partition("/")[0].removesuffix(".py") in {*sys.stdlib_module_names, "pytest"}
    }
    return own, strange


def _is_named(path: str, text: str, unasked: Collection[str]) -> bool:
    """Whether a line or a script names a file, or a folder of tests that it lies in; of tests also
    by a pattern."""
    above = [str(each) for each in Path(path).parents if _OF_TESTS.search(str(each))]
    words = "|".join(re.escape(each) for each in (path, *above))
    patterns = re.findall(r"(?:\./)?([\w./*?-]*[*?][\w./*?-]*)", text)
    return (
        Path(path).name in unasked
        or bool(re.search(rf"(?<![\w./-])(?:\./)?(?:{words})/?(?![\w/-])", text))
        or bool(_OF_TESTS.search(path) and any(fnmatchcase(path, each) for each in patterns))
    )


def _run_beside(
    case: RowTask, tests: Mapping[str, str], changed: Mapping[str, str | None], open: Open
) -> Scored:
    """Score by tests that run in one process with what they judge."""
    asked = {
        "files": sorted(f for f in tests if f.endswith(".py")),
        "solution": case.definition.scorer.answer_file,
        "entry": case.task.facts["row"].get("entry_point", ""),
    }
    command = ["python3", "-B", "-c", _RUN_TESTS]
    found, output = run_program(case, open, command, asked, tests, changed)
    if not isinstance(found, dict) or not isinstance(found.get("count"), int) or not found["count"]:
        return Scored(0.0, f"The tests {describe_ending(output, case)}.")
    passed = found.get("passed")
    count = found["count"]
    if not isinstance(passed, int) or not 0 <= passed <= count:
        return Scored(0.0, "What the tests told cannot be.")
    return _score_part(passed, count, found.get("failed", []))


def _score_part(passed: int, count: int, failed: Sequence[Any]) -> Scored:
    shown = "\n".join(redact(str(each))[:300] for each in failed[:10])
    return Scored(passed / count, f"{passed} of {count} tests pass.\n{shown}".rstrip())


def _run_apart(
    case: RowTask,
    tests: Mapping[str, str],
    changed: Mapping[str, str | None],
    open: Open,
) -> Scored:
    """Score by the tests in one sandbox, the answer in another: by the part that passes. All that
    the tests bring, helpers and tables too, is on their side alone."""
    own = open(limits_of(case))
    other = open(limits_of(case))
    try:
        change_files(other, changed)
        for path, text in tests.items():
            write_file(own, path, text)
        answer_file = case.definition.scorer.answer_file
        facts = case.task.facts
        row = {answer_file, *facts.get("files", {}), *facts.get("place_files", ())}
        asked: JsonDict = {
            "files": sorted(filter(apart.is_test, tests)),
            "own": _modules(tests),
            "binds": {path: looks.find_names(text) for path, text in tests.items()},
            "looks": {path: looks.find_looks(text) for path, text in tests.items()},
            "modules": _modules(row),
            "more": _modules(changed),
        }
        solution = case.definition.scorer.answer_file.removesuffix(".py")
        asked |= {"solution": solution, "entry": case.task.facts["row"].get("entry_point", "")}
        found, why = apart.run(apart.for_tests(), own, other, asked, case.definition.scorer.seconds)
    finally:
        own.close()
        other.close()
    if not found.get("count"):
        return Scored(0.0, f"The tests could not be run to their end: {why or 'there is none'}.")
    return _score_part(found["passed"], found["count"], found["failed"])


def _modules(paths: Iterable[str]) -> list[str]:
    """Return the modules that files are, with dots for folders."""
    names = {re.sub(r"(^|/)__init__$", "", path[:-3]) for path in paths if path.endswith(".py")}
    parts = [name.split("/") for name in names]
    return sorted(".".join(each) for each in parts if all(map(str.isidentifier, each)))


def _run_cases(
    case: RowTask,
    cases: Sequence[JsonMap],
    changed: Mapping[str, str | None],
    open: Open,
) -> Scored:
    """Score by cases: inputs go in and outputs come out, and are compared here, where nothing that
    was handed in runs."""
    program = case.definition.scorer.answer_file
    seconds = case.definition.scorer.seconds
    start = {".py": ["python3"], ".sh": ["bash"]}.get(Path(program).suffix, [f"./{program}"])
    right = 0
    wrong = list[str]()
    sandbox = open(limits_of(case))
    try:
        change_files(sandbox, changed)
        for number, each in enumerate(cases, 1):
            words = [*start, program] if start[0] != f"./{program}" else start
            stdin = str(each.get("stdin", "")).encode("utf-8", "surrogatepass")
            output = sandbox.run([*words, *each.get("args", [])], timeout=seconds, stdin=stdin)
            same = _lines(output.text) == _lines(each["stdout"]) and output.status == 0
            right += same
            if not same and len(wrong) < 5:
                why = describe_ending(output, case) if output.status else "prints something else"
                wrong.append(f"case {number}: the program {why}")
    finally:
        sandbox.close()
    return Scored(
        right / len(cases), f"{right} of {len(cases)} cases are right.\n" + "\n".join(wrong)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def changes_of(answer: str, file: str) -> dict[str, str | None]:
    """Return path -> text, None for a file that was deleted: JSON as `collect` makes it; any other
    text is that of `file`. Raises ValueError."""
    try:
        found = read_json(answer) if answer.lstrip().startswith("{") else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        v is None or isinstance(v, str) for v in found.values()
    ):
        return {file: answer}
    check_paths({path: text or "" for path, text in found.items()})
    return {str(path): text for path, text in found.items()}


def read_tests(value: Any) -> tuple[str, Any]:
    """Return what the tests in a cell are: ("cases", a list of {"args", "stdin", "stdout"}),
    ("files", path -> text) or ("command", a line for bash). Raises ValueError for anything else."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            value = read_json(value)
        except ValueError:
            raise ValueError("is neither a command, nor Python, nor JSON") from None
    if isinstance(value, list):
        for case in value:
            if not isinstance(case, Mapping) or not isinstance(case.get("stdout"), str):
                raise ValueError('has a case without a text "stdout"')
            args = case.get("args", [])
            stdin = case.get("stdin", "")
            if (
                not isinstance(args, list)
                or not all(isinstance(a, str) for a in args)
                or not isinstance(stdin, str)
            ):
                raise ValueError(
                    'has a case whose "args" is no list of texts, or whose "stdin" is no text'
                )
        if not value:
            raise ValueError("has no case")
        return "cases", value
    if isinstance(value, Mapping):
        return "files", check_paths(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is no text")
    text = value.strip()
    script = re.match(r"#!\s*(/usr)?/bin/(env )?(ba)?sh\b", text)
    return (
        ("files", {"test_answer.py": value}) if "\n" in text and not script else ("command", text)
    )


def collect_changes(sandbox: Sandbox, before: Mapping[str, bytes]) -> str:
    """Return what differs from the files that were there, as JSON: path -> text, null for a file
    that is gone. What is no text, too large, or one too many is left out; `.git`, `.recreate` and
    caches are no part of an answer.
    """
    listed = sandbox.run(
        "find . -type f -not -path './.recreate/*' -not -path './.git/*' -not -path"
        " '*/__pycache__/*' -not -path '*/.pytest_cache/*' -size -1025k -printf '%P\\0' | sort -z"
    )
    found: dict[str, str | None] = {}
    there = {name for name in listed.text.split("\0") if is_possible(name)}
    for name in sorted(there):
        if len(found) >= _FILES:
            break
        try:
            data = sandbox.read(name)
            if len(data) <= _BYTES and data != before.get(name):
                found[name] = data.decode("utf-8")
        except (FileNotFoundError, BadInput, UnicodeDecodeError):
            continue
    found |= {name: None for name in before if name not in there and len(before[name]) <= _BYTES}
    return json.dumps(found, ensure_ascii=False, sort_keys=True) if found else ""


def _parses(source: str) -> bool:
    try:
        compile(source, "source", "exec")
    except (SyntaxError, ValueError):
        return False
    return bool(source)
