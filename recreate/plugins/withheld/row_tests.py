"""The scorer `tests`: hidden tests over the files that were handed in.

Tests written in Python run beside the code that they judge, in one process, and such code can bend
them (docs/data.md, "What can be bent"); with `apart` of [scorer] the answer runs in a sandbox of
its own (apart.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api.config import read_json
from recreate.api.errors import BadInput
from recreate.api.ports import Sandbox
from recreate.api.types import Trace
from recreate.domains.exploits import text_exploits
from recreate.domains.rows.places import check_paths, is_possible
from recreate.domains.rows.programs import (
    LONGEST_EVIDENCE,
    change_files,
    describe_ending,
    limits_of,
    run_program,
    write_file,
)
from recreate.domains.rows.scorers import Open, RowTask, Scored, Scorer, as_json
from recreate.domains.rows.settings import Definition
from recreate.plugins.audit import audit
from recreate.plugins.withheld import apart
from recreate.storage.redact import redact

_FILES, _BYTES = 200, 1_000_000
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
    settings = ("seconds", "answer_file")
    columns: Mapping[str, Sequence[str]] = {
        "answer": ("tests", "test"),
        "gold": ("solution", "canonical_solution", "gold"),
    }
    answer_is_gold = False

    def fingerprint(self, definition: Definition) -> Sequence[Any]:
        return (apart.version(),) if definition.scorer.apart else ()

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
        run = _run_apart if case.definition.scorer.apart else _run_beside
        return run(case, check_paths(tests), changed, open)

    def exploits(self, case: RowTask) -> dict[str, str]:
        """Return what fits every question, and functions and programs as wrong as they were, around
        them what bends tests or the machine."""
        given = case.task.facts.get("files") or {}
        named = case.definition.scorer.answer_file
        python = (name for name in given if name.endswith(".py"))
        file = named if named in given else next(python, named)
        if not file.endswith(".py"):
            return text_exploits(case.task)
        row = case.task.facts["row"]
        entry = str(row.get("entry") or row.get("entry_point") or "answer")
        source = str(given.get(file) or "")
        if f"def {entry}(" not in source or not _parses(source):
            source = f"def {entry}(*args, **named):\n    return None\n{apart.any_name(entry)}"
        made = {**audit.python(file, source, entry), **apart.exploits(file)}
        made |= {name: {file: f"{source}\n{code}"} for name, code in PROGRAMS.items()}
        answers = {name: json.dumps(files) for name, files in made.items()}
        return {**text_exploits(case.task), **answers}


def _run_command(
    case: RowTask, command: str, changed: Mapping[str, str | None], open: Open
) -> Scored:
    seconds = case.definition.scorer.seconds
    sandbox = open(limits_of(case))
    try:
        change_files(sandbox, changed)
        output = sandbox.run(command, timeout=seconds)
    finally:
        sandbox.close()
    words = f"The tests end with the status {output.status}.\n"
    shown = redact(output.text[-LONGEST_EVIDENCE:])
    return Scored(float(output.status == 0), (words + shown).rstrip())


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
    passed, count = found.get("passed"), found["count"]
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
    """Score by the tests in one sandbox, the answer in another: by the part that passes."""
    beside = {path: text for path, text in tests.items() if not apart.is_test(path)}
    own, other = open(limits_of(case)), open(limits_of(case))
    try:
        change_files(other, changed)
        for path, text in beside.items():
            write_file(other, path, text)
        row = {case.definition.scorer.answer_file, *case.task.facts.get("files", {}), *beside}
        for path, text in tests.items():
            if path not in beside:
                write_file(own, path, text)
        asked: dict[str, Any] = {
            "files": sorted(filter(apart.is_test, tests)),
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
    names = {path.removesuffix(".py") for path in paths if path.endswith(".py")}
    return sorted(name for name in names if name.isidentifier())


def _run_cases(
    case: RowTask,
    cases: Sequence[Mapping[str, Any]],
    changed: Mapping[str, str | None],
    open: Open,
) -> Scored:
    """Score by cases: inputs go in and outputs come out, and are compared here, where nothing that
    was handed in runs."""
    program, seconds = case.definition.scorer.answer_file, case.definition.scorer.seconds
    start = {".py": ["python3"], ".sh": ["bash"]}.get(Path(program).suffix, [f"./{program}"])
    right, wrong = 0, list[str]()
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
    if isinstance(value, str) and value.lstrip()[:1] in "[{":
        try:
            value = read_json(value)
        except ValueError:
            raise ValueError("is neither a command, nor Python, nor JSON") from None
    if isinstance(value, list):
        for case in value:
            if not isinstance(case, Mapping) or not isinstance(case.get("stdout"), str):
                raise ValueError('has a case without a text "stdout"')
            args, stdin = case.get("args", []), case.get("stdin", "")
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
    return (
        ("files", {"test_answer.py": value})
        if "\n" in value.strip()
        else ("command", value.strip())
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
