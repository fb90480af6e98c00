"""Scorers that run something, each in a fresh sandbox without network that the agent never touched:
a person's FILE.py:function, hidden tests over the files that were handed in, two queries on one
database.

What they find comes back in a file whose name is random and is told to our runner alone, on its
stdin: what is printed counts for nothing. Of `FILE.py:function` and `sql` the answer is data, which
nothing runs. Tests written in Python run beside the code that they judge, in one process, and such
code can bend them (docs/data.md, "What can be bent").
"""

from __future__ import annotations

import inspect
import json
import math
import re
import secrets
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api import paths
from recreate.api.config import read_json
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import Limits, Sandbox
from recreate.api.types import Output, Task
from recreate.domains.rows.definition import Definition
from recreate.domains.rows.scorers import Scored, texts_of
from recreate.domains.rows.tasks import database, paths_of, tests_of
from recreate.plugins.withheld import apart
from recreate.storage.redact import redact

VERSION = 1
"""Of what is decided here: part of the grader's version."""
Open = Callable[[Limits], Sandbox]
"""A fresh sandbox with the row's files."""

_EXPECTED = (
    'return a number from 0 to 1, True or False, or {"score": ..., "passed": ..., "evidence": ...}'
)
_LONGEST = 2000
"""Characters of evidence that a scorer of somebody's may give."""
LIMITS = Limits(memory_mb=1024, output_bytes=200_000, disk_mb=512)


# --- FILE.py:function
# -------------------------------------------------------------------------------------

_RUN_FUNCTION = r"""
import json, os, sys, traceback
asked = json.load(sys.stdin)
sys.stdin = open(os.devnull)
name = asked.pop("result")
def where(e):
    lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == asked["file"]]
    return lines[-1] if lines else getattr(e, "lineno", None) or 0
try:
    with open(asked["file"], encoding="utf-8") as file:
        code = compile(file.read(), asked["file"], "exec")
    space = {"__name__": "scorer", "__file__": asked["file"]}
    exec(code, space)
    function = space.get(asked["function"])
    if not callable(function):
        found = {"error": "it defines no function " + asked["function"], "line": 0}
    else:
        line = getattr(getattr(function, "__code__", None), "co_firstlineno", 0)
        value = function(asked["answer"], asked["row"])
        found = {"value": value, "kind": type(value).__name__, "line": line}
    text = json.dumps(found, default=repr)
except BaseException as e:
    text = json.dumps({"error": type(e).__name__ + ": " + str(e)[:300], "line": where(e)})
with open(name + ".part", "w", encoding="utf-8") as out:
    out.write(text)
os.rename(name + ".part", name)
os._exit(0)
"""


def of_function(decided: Definition, task: Task, answer: str, opened: Open) -> Scored:
    """What the person's function(answer, row) gives. Raises Fault (`unsound-task`) that names file
    and line where it gives nothing that is a score: not the agent's fault."""
    path, _, function = decided.score.rpartition(":")
    shown = paths.short(Path(path))
    asked = {
        "file": "scorer.py",
        "function": function,
        "answer": answer,
        "row": dict(task.facts["row"]),
    }
    with_file = {"scorer.py": read_scorer(path)}
    found, output = _run(decided, opened, ["python3", "-I", "-c", _RUN_FUNCTION], asked, with_file)

    def bad(why: str, line: int = 0) -> Fault:
        return Fault(
            redact(f"the scorer {shown}{f':{line}' if line else ''} {why}, at {task.id}"),
            fix=f"mend {function} in {shown}: it must {_EXPECTED}",
            code=UNSOUND,
        )

    if not isinstance(found, dict):
        raise bad(_ended(output, decided.scorer.seconds))
    line = found.get("line") if isinstance(found.get("line"), int) else 0
    if "error" in found:
        raise bad(
            f"raised {str(found['error'])[:300]}" if line else str(found["error"])[:300], line or 0
        )
    value, kind = found.get("value"), found.get("kind")
    scored = _as_score(value, function)
    if scored is None:
        shown_value = value.get("score") if isinstance(value, Mapping) else value
        raise bad(f"gave {str(shown_value)[:80]} ({kind}), which is no score", line or 0)
    return scored


def of_own(function: Callable[..., Any], task: Task, answer: str) -> Scored:
    """What a function of the caller's gives, in this process. Raises Fault (`unsound-task`) naming
    file and line."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    place = (
        f"{paths.short(Path(code.co_filename))}:{code.co_firstlineno} ({name})"
        if code is not None
        else name
    )
    try:
        value = function(answer, dict(task.facts["row"]))
    except Exception as e:  # a caller's function may raise anything
        lines = [
            f.lineno
            for f in traceback.extract_tb(e.__traceback__)
            if code and f.filename == code.co_filename
        ]
        at = (
            f"{paths.short(Path(code.co_filename))}:{lines[-1]} ({name})"
            if code and lines
            else place
        )
        why = redact(f"the scorer {at} raised {type(e).__name__}: {str(e)[:300]}, at {task.id}")
        raise Fault(why, fix=f"mend {name}: it must {_EXPECTED}", code=UNSOUND) from e
    scored = _as_score(value, name)
    if scored is None:
        shown = value.get("score") if isinstance(value, Mapping) else value
        why = redact(
            f"the scorer {place} gave {str(shown)[:80]} ({type(value).__name__}), which is no"
            f" score, at {task.id}"
        )
        raise Fault(why, fix=f"mend {name}: it must {_EXPECTED}", code=UNSOUND)
    return scored


def source_of(function: Callable[..., Any]) -> str:
    """What tells a function from another: its source, else its name."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return (
            f"{getattr(function, '__module__', '')}"
            f".{getattr(function, '__qualname__', type(function).__name__)}"
        )


def _as_score(value: Any, function: str) -> Scored | None:
    """A scorer's value as a score; None for what is none."""
    given = value if isinstance(value, Mapping) else {"score": value}
    score = given.get("score")
    if not isinstance(score, bool | int | float) or not math.isfinite(score) or not 0 <= score <= 1:
        return None
    why = given.get("evidence")
    told = why[:_LONGEST] if isinstance(why, str) and why else f"{function} gives {float(score):g}."
    return Scored(
        float(score), told, given["passed"] if isinstance(given.get("passed"), bool) else None
    )


def read_scorer(path: str) -> str:
    """The text of a person's scorer. Raises BadInput."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        fix = "--score FILE.py:function, as seen from here"
        raise BadInput(
            f"the scorer {path} cannot be read: {why}", fix=fix, code="no-scorer"
        ) from None


# --- sql
# --------------------------------------------------------------------------------------------------

_RUN_QUERIES = r"""
import json, os, sqlite3, sys
asked = json.load(sys.stdin)
name = asked["result"]
NOT = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA}
def database():
    if asked["script"]:
        base = sqlite3.connect(":memory:")
        with open(asked["database"], encoding="utf-8") as file:
            base.executescript(file.read())
        base.commit()
    else:
        base = sqlite3.connect("file:" + asked["database"] + "?mode=ro&immutable=1", uri=True)
    base.execute("PRAGMA query_only = 1")
    verdicts = {action: sqlite3.SQLITE_DENY for action in NOT}
    base.set_authorizer(lambda action, *rest: verdicts.get(action, sqlite3.SQLITE_OK))
    return base
def plain(value):
    if isinstance(value, float):
        return round(value, 6) + 0.0 if abs(value) < 1e15 else value
    return float(value) if isinstance(value, int) and abs(value) < 2**53 else repr(value)
def rows(query):
    base = database()
    try:
        cursor = base.execute(query)
        if cursor.description is None:
            raise ValueError("it is no query: it gives no rows")
        found = cursor.fetchmany(200001)
        if len(found) > 200000:
            raise ValueError("it gives more than 200,000 rows")
        return [[plain(value) for value in row] for row in found]
    finally:
        base.close()
def tried(query):
    try:
        return rows(query), ""
    except Exception as e:
        return None, type(e).__name__ + ": " + str(e)[:300]
wanted, wrong = tried(asked["expected"])
found = {"bad": wrong}
if not wrong:
    given, why = tried(asked["answer"])
    key = lambda row: json.dumps(row)
    if why:
        found = {"same": False, "why": why}
    else:
        order = list if asked["ordered"] else lambda rows: sorted(map(key, rows))
        same = order(given) == order(wanted)
        wide = [len(given[0]) if given else None, len(wanted[0]) if wanted else None]
        found = {"same": same, "rows": len(given), "wanted": len(wanted), "wide": wide}
with open(name + ".part", "w") as out:
    json.dump(found, out)
os.rename(name + ".part", name)
"""
_ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)


def of_query(decided: Definition, task: Task, answer: str, opened: Open) -> Scored:
    """1 when the answer's query gives the rows that the right one gives; in their order where that
    has ORDER BY."""
    facts = task.facts
    file = database(decided, facts)
    query = _without_fence(answer)
    shown = f"the row's query of {task.id}"
    why = "There is no query in the answer."
    for expected in texts_of(facts["answer"]):
        asked = {
            "database": file,
            "script": file.endswith(".sql"),
            "expected": expected,
            "answer": query,
        }
        asked |= {"ordered": _ORDERED.search(expected) is not None}
        found, output = _run(decided, opened, ["python3", "-I", "-c", _RUN_QUERIES], asked, {})
        if not isinstance(found, dict):
            if output.limit:  # the right query was measured once, by `tasks check`
                return Scored(0.0, f"The query {_ended(output, decided.scorer.seconds)}.")
            raise Fault(
                f"{shown} could not be run: {_ended(output, decided.scorer.seconds)}", code=UNSOUND
            )
        if found.get("bad"):
            raise Fault(
                f"{shown} fails: {found['bad']}",
                fix=f"mend the row, or its database {file}",
                code=UNSOUND,
            )
        if found.get("same") is True:
            return Scored(1.0, "The query gives the right rows.")
        if found.get("why"):
            why = f"The query fails: {redact(str(found['why']))[:300]}"
        elif found.get("rows") != found.get("wanted"):
            why = f"The query gives {found.get('rows')} rows, which is not the right number."
        else:
            why = "The query gives as many rows as it should, and other values or another order."
    return Scored(0.0, why)


QUERIES = {
    "no rows": "SELECT 1 WHERE 0",
    "one row": "SELECT 1",
    "no value": "SELECT NULL",
    "two queries": "SELECT 1; SELECT 2",
    "not a number in SQL": "SELECT 9e999 - 9e999",
    "infinity in SQL": "SELECT 9e999",
    "a blob of zeros": "SELECT zeroblob(900000000)",
    "without end": (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    ),
    "what there is": "SELECT name FROM sqlite_master",
    "the schema written": "PRAGMA writable_schema = 1",
    "every row of a table gone": "DELETE FROM sqlite_master",
    "another database": "ATTACH '/tmp/other.sqlite' AS main2",
    "a table of its own": "CREATE TEMP TABLE t AS SELECT 1",
    "a library": "SELECT load_extension('/tmp/library.so')",
    "a file read": "SELECT readfile('/proc/self/cmdline')",
    "a file written": "VACUUM INTO '/tmp/other.sqlite'",
    "deep": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "wide": "SELECT " + ", ".join(["1"] * 5000),
    "a text of commands": "SELECT 1 -- .read /dev/stdin\n.output x",
}
"""What a query may try in place of answering."""


def _without_fence(answer: str) -> str:
    """The query itself, where the answer has it in a block of Markdown."""
    match = re.search(r"```(?:sql)?[ \t]*\n(.*?)\n?```", answer, re.DOTALL | re.IGNORECASE)
    return (match[1] if match else answer).strip().rstrip(";").strip()


# --- math
# -------------------------------------------------------------------------------------------------

_RUN_MATH = r"""
import json, logging, os, sys
asked = json.load(sys.stdin)
sys.stdin = open(os.devnull)
logging.disable(logging.CRITICAL)
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
import resource
used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + 1
resource.setrlimit(resource.RLIMIT_CPU, (used + asked["seconds"], used + asked["seconds"]))
def read(text):
    kinds = [LatexExtractionConfig(), ExprExtractionConfig()]
    return parse("$" + text + "$", kinds, parsing_timeout=None)
def agrees(one):
    return verify(read(one), read(asked["answer"]), timeout_seconds=None)
same = any(map(agrees, asked["expected"]))
with open(asked["result"] + ".part", "w") as out:
    json.dump({"same": bool(same)}, out)
os.rename(asked["result"] + ".part", asked["result"])
"""
_LONGEST_MATH = 300
"""Characters of an answer that is no more than an answer."""


def of_math(decided: Definition, task: Task, answer: str, opened: Open) -> Scored:
    """1 when math-verify (sympy) holds the answer for equal to the right one: 1/2 and 0.5, x+1 and
    1+x. It runs in a sandbox, since reading a formula evaluates it, and for `seconds` of CPU time,
    since it can take for ever: by wall time a busy machine refused right answers (8 of 100
    comparisons at a load of 20)."""
    given = math_answer(answer)
    if not given or len(given) > _LONGEST_MATH:
        return Scored(0.0, f"There is no answer of at most {_LONGEST_MATH} characters.")
    expected = texts_of(task.facts["answer"])
    if any("".join(given.split()) == "".join(one.split()) for one in expected):
        return Scored(1.0, "The answer is right.")
    asked = {"answer": given, "expected": expected, "seconds": math.ceil(decided.scorer.seconds)}
    patient = decided.scorer.model_copy(update={"seconds": 60 + 6 * decided.scorer.seconds})
    waiting = decided.model_copy(update={"scorer": patient})
    found, output = _run(waiting, opened, ["python3", "-I", "-c", _RUN_MATH], asked, {})
    if not isinstance(found, dict):
        if "No module named" in output.text:
            why = f"math-verify is not in the sandbox: {output.text[-200:]}"
            raise Fault(why, fix='requires = ["math-verify[antlr4_13_2]==0.9.0"] in domain.toml')
        # its own CPU time was not used up: the machine was busy, which no answer can bring about
        if output.timed_out:
            raise Fault(
                f"{task.id}: math-verify did not end in {patient.seconds:g} s of a busy machine",
                fix="--jobs 1",
            )
        return Scored(
            0.0,
            f"The answer cannot be read as mathematics in {decided.scorer.seconds:g} s of CPU"
            " time.",
        )
    return (
        Scored(1.0, "The answer is right.")
        if found.get("same") is True
        else Scored(0.0, "The answer is not equal.")
    )


_SAID = re.compile(r"^(?:####|the (?:final )?answer is:?|answer:)\s*", re.IGNORECASE)


def math_answer(text: str) -> str:
    """The answer in a text: what its last \\boxed holds, else its last line, without dollars around
    it."""
    start = text.rfind("\\boxed{")
    if start >= 0:
        depth, at = 0, start + len("\\boxed")
        for end in range(at, min(len(text), at + 10_000)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if not depth:
                return text[at + 1 : end].strip()
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    line = _SAID.sub("", lines[-1] if lines else "").removesuffix(".").strip()
    while len(line) > 1 and line[0] == line[-1] == "$":
        line = line[1:-1].strip()
    return line


# --- tests
# ------------------------------------------------------------------------------------------------

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
        elif not inspect.isclass(value):
            continue
        elif key.startswith("Test") and not issubclass(value, unittest.TestCase):
            for method in [each for each in dir(value) if each.startswith("test")]:
                def one():
                    made = value()
                    getattr(made, "setup_method", lambda: None)()
                    return getattr(made, method)()
                tried(key + "." + method, one)
        elif issubclass(value, unittest.TestCase) and value is not unittest.TestCase:
            found = unittest.TestResult()
            unittest.defaultTestLoader.loadTestsFromTestCase(value).run(found)
            wrong = {
                id(getattr(case, "test_case", case)): (case, text)
                for case, text in found.failures + found.errors
            }
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


def of_tests(decided: Definition, task: Task, answer: str, opened: Open) -> Scored:
    """The part of the row's tests that pass over the files that were handed in; a command passes or
    does not."""
    solution = decided.scorer.answer_file
    try:
        changed = changes_of(answer, solution)
    except ValueError as e:
        return Scored(0.0, f"The answer {e}.")
    kind, tests = tests_of(task.facts["answer"])
    if kind == "cases":
        return _cases(decided, tests, changed, opened)
    if kind == "files" and decided.scorer.apart:
        return _apart(decided, task, paths_of(tests), changed, opened)
    if kind == "files":
        files = paths_of(tests)
        entry = task.facts["row"].get("entry_point", "")
        asked = {
            "files": sorted(f for f in files if f.endswith(".py")),
            "solution": solution,
            "entry": entry,
        }
        command = ["python3", "-B", "-c", _RUN_TESTS]
        found, output = _run(decided, opened, command, asked, files, changed)
        if (
            not isinstance(found, dict)
            or not isinstance(found.get("count"), int)
            or not found["count"]
        ):
            return Scored(0.0, f"The tests {_ended(output, decided.scorer.seconds)}.")
        passed, count = found.get("passed"), found["count"]
        if not isinstance(passed, int) or not 0 <= passed <= count:
            return Scored(0.0, "What the tests told cannot be.")
        told = "\n".join(redact(str(each))[:300] for each in found.get("failed", [])[:10])
        return Scored(passed / count, f"{passed} of {count} tests pass.\n{told}".rstrip())
    sandbox = opened(_limits(decided))
    try:
        _change(sandbox, changed)
        output = sandbox.run(tests, timeout=decided.scorer.seconds)
    finally:
        sandbox.close()
    told = redact(output.text[-_LONGEST:])
    return Scored(
        float(output.status == 0),
        f"The tests end with the status {output.status}.\n{told}".rstrip(),
    )


def _apart(
    decided: Definition,
    task: Task,
    tests: Mapping[str, str],
    changed: Mapping[str, str | None],
    opened: Open,
) -> Scored:
    """The tests in one sandbox, the answer in another. Passed is all of them; the score is the part
    that passes."""
    beside = {path: text for path, text in tests.items() if not apart.is_test(path)}
    own, other = opened(_limits(decided)), opened(_limits(decided))
    try:
        _change(other, changed)
        for path, text in beside.items():
            _write(other, path, text)
        row = {decided.scorer.answer_file, *task.facts.get("files", {}), *beside}
        for path, text in tests.items():
            if path not in beside:
                _write(own, path, text)
        asked: dict[str, Any] = {
            "files": sorted(filter(apart.is_test, tests)),
            "modules": _modules(row),
            "more": _modules(changed),
        }
        solution = decided.scorer.answer_file.removesuffix(".py")
        asked |= {"solution": solution, "entry": task.facts["row"].get("entry_point", "")}
        found, why = apart.run(apart.for_tests(), own, other, asked, decided.scorer.seconds)
    finally:
        own.close()
        other.close()
    if not found.get("count"):
        return Scored(0.0, f"The tests could not be run to their end: {why or 'there is none'}.")
    told = "\n".join(redact(str(each))[:300] for each in found["failed"][:10])
    return Scored(
        found["passed"] / found["count"],
        f"{found['passed']} of {found['count']} tests pass.\n{told}".rstrip(),
    )


def _modules(paths: Iterable[str]) -> list[str]:
    names = {path.removesuffix(".py") for path in paths if path.endswith(".py")}
    return sorted(name for name in names if name.isidentifier())


def _cases(
    decided: Definition,
    cases: Sequence[Mapping[str, Any]],
    changed: Mapping[str, str | None],
    opened: Open,
) -> Scored:
    """Inputs go in and outputs come out, and are compared here, where nothing that was handed in
    runs."""
    program = decided.scorer.answer_file
    start = {".py": ["python3"], ".sh": ["bash"]}.get(Path(program).suffix, [f"./{program}"])
    right, told = 0, list[str]()
    sandbox = opened(_limits(decided))
    try:
        _change(sandbox, changed)
        for number, case in enumerate(cases, 1):
            words = [*start, program] if start[0] != f"./{program}" else start
            stdin = str(case.get("stdin", "")).encode("utf-8", "surrogatepass")
            output = sandbox.run(
                [*words, *case.get("args", [])], timeout=decided.scorer.seconds, stdin=stdin
            )
            same = _lines(output.text) == _lines(case["stdout"]) and output.status == 0
            right += same
            if not same and len(told) < 5:
                why = (
                    _ended(output, decided.scorer.seconds)
                    if output.status
                    else "prints something else"
                )
                told.append(f"case {number}: the program {why}")
    finally:
        sandbox.close()
    return Scored(
        right / len(cases), f"{right} of {len(cases)} cases are right.\n" + "\n".join(told)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def changes_of(answer: str, file: str) -> dict[str, str | None]:
    """path -> text, None for a file that was deleted: JSON as `collect` makes it; any other text is
    that of `file`. Raises ValueError."""
    try:
        found = read_json(answer) if answer.lstrip().startswith("{") else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        v is None or isinstance(v, str) for v in found.values()
    ):
        return {file: answer}
    paths_of({path: text or "" for path, text in found.items()})
    return {str(path): text for path, text in found.items()}


# --- what they share
# --------------------------------------------------------------------------------------


def _limits(decided: Definition) -> Limits:
    return LIMITS.model_copy(update={"seconds": decided.scorer.seconds})


def _change(sandbox: Sandbox, changed: Mapping[str, str | None]) -> None:
    for path, text in changed.items():
        if text is None:
            sandbox.run(["rm", "-rf", "--", path])
        else:
            _write(sandbox, path, text)


def _write(sandbox: Sandbox, path: str, text: str) -> None:
    """Also where what was handed in made a folder, or a file where a folder must be."""
    data = text.encode("utf-8", "surrogatepass")
    try:
        sandbox.write(path, data)
    except BadInput:
        above = ["/".join(path.split("/")[:n]) for n in range(1, path.count("/") + 1)]
        sandbox.run(["rm", "-f", "--", *above])
        sandbox.run(["rm", "-rf", "--", path])
        sandbox.write(path, data)


def _run(
    decided: Definition,
    opened: Open,
    command: Sequence[str],
    asked: Mapping[str, Any],
    files: Mapping[str, str],
    changed: Mapping[str, str | None] | None = None,
) -> tuple[Any, Output]:
    """(what the runner told in its file, None for nothing that can be read; how it ended), in a
    fresh sandbox: the row's files, what was changed, and over both `files`."""
    name = f".result-{secrets.token_hex(16)}"
    sandbox = opened(_limits(decided))
    try:
        _change(sandbox, changed or {})
        for path, text in files.items():
            _write(sandbox, path, text)
        stdin = json.dumps({**asked, "result": name}).encode("utf-8", "surrogatepass")
        output = sandbox.run(command, timeout=decided.scorer.seconds, stdin=stdin)
        if output.status == 127 and "python3" in output.text:
            raise Fault(
                "there is no python3 in the sandbox",
                fix="install it where sandboxes see it: /usr/bin/python3",
            )
        try:
            data = sandbox.read(name)
            return (read_json(data) if len(data) < 1_000_000 else None), output
        except (OSError, ValueError):
            return None, output
    finally:
        sandbox.close()


def _ended(output: Output, seconds: float) -> str:
    """How a program stopped that told nothing."""
    if output.timed_out or output.limit == "seconds":
        return f"took longer than {seconds:g} s"
    if output.limit:
        return f"used more {output.limit} than it may"
    return f"ended with the status {output.status} and told nothing"
