"""Scorers that run something, each in a fresh sandbox without network that the agent never touched:
what they share, and a person's FILE.py:function.

What a runner finds comes back in a file whose name is random and is given to our runner alone, on
its stdin: what is printed counts for nothing. Of `FILE.py:function` the answer is data, which
nothing runs.
"""

from __future__ import annotations

import inspect
import json
import math
import secrets
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recreate.api import paths
from recreate.api.config import read_json
from recreate.api.errors import UNSOUND, BadInput, Fault
from recreate.api.ports import Limits, Sandbox
from recreate.api.shapes import JsonMap
from recreate.api.types import Output, Trace
from recreate.domains.rows.scorers import OWN, Open, RowTask, Scored, Scorer, unknown_scorer
from recreate.domains.rows.settings import Definition
from recreate.storage.redact import redact

_EXPECTED = (
    'return a number from 0 to 1, True or False, or {"score": ..., "passed": ..., "evidence": ...}'
)
LONGEST_EVIDENCE = 2000
"""Characters of evidence that a scorer of somebody's may give."""
LIMITS = Limits(memory_mb=1024, output_bytes=200_000, disk_mb=512)

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


class FileScorer(Scorer):
    """A person's function(answer, row), which runs in a sandbox."""

    name = "file"
    settings = ("seconds",)
    needs_answer = False
    tried_first = True

    def __init__(self, argument: str = "") -> None:
        self.path, _, self.function = argument.rpartition(":")
        if not self.path:
            raise unknown_scorer(self.name)

    @staticmethod
    def of(function: Callable[..., Any]) -> Scorer:
        """Return the scorer that a function of the caller's is."""
        return OwnScorer(function)

    def with_files(self, place: Callable[[str], str]) -> str:
        return f"{place(self.path)}:{self.function}"

    def fingerprint(self, definition: Definition) -> Sequence[Any]:
        return self.function, read_scorer(self.path)

    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        """Return what the function gives. Raises Fault (`unsound-task`) that names file and line
        where that is no score: not the agent's fault."""
        path = self.path
        function = self.function
        shown = paths.short(Path(path))
        asked = {
            "file": "scorer.py",
            "function": function,
            "answer": trace.answer,
            "row": dict(case.task.facts["row"]),
        }
        with_file = {"scorer.py": read_scorer(path)}
        found, output = run_program(
            case, open, ["python3", "-I", "-c", _RUN_FUNCTION], asked, with_file
        )

        def bad(why: str, line: int = 0) -> Fault:
            return Fault(
                redact(f"the scorer {shown}{f':{line}' if line else ''} {why}, at {case.task.id}"),
                fix=f"mend {function} in {shown}: it must {_EXPECTED}",
                code=UNSOUND,
            )

        if not isinstance(found, dict):
            raise bad(describe_ending(output, case))
        line = found.get("line") if isinstance(found.get("line"), int) else 0
        if "error" in found:
            raise bad(
                f"raised {str(found['error'])[:300]}" if line else str(found["error"])[:300],
                line or 0,
            )
        value = found.get("value")
        kind = found.get("kind")
        scored = _as_score(value, function)
        if scored is None:
            shown_value = value.get("score") if isinstance(value, Mapping) else value
            raise bad(f"gave {str(shown_value)[:80]} ({kind}), which is no score", line or 0)
        return scored


class OwnScorer(FileScorer):
    """A function of the caller's, which runs in this process."""

    tried_first = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self._own = function

    def with_files(self, place: Callable[[str], str]) -> str:
        return OWN

    def fingerprint(self, definition: Definition) -> Sequence[Any]:
        return (_source_of(self._own),)

    def score(self, case: RowTask, trace: Trace, open: Open) -> Scored:
        """Return what the function gives. Raises Fault (`unsound-task`) naming file and line."""
        function = self._own
        code = getattr(function, "__code__", None)
        name = getattr(function, "__name__", type(function).__name__)

        def refuse(why: str, line: int = 0) -> Fault:
            place = name
            if code is not None:
                file = paths.short(Path(code.co_filename))
                place = f"{file}:{line or code.co_firstlineno} ({name})"
            what = redact(f"the scorer {place} {why}, at {case.task.id}")
            return Fault(what, fix=f"mend {name}: it must {_EXPECTED}", code=UNSOUND)

        try:
            value = function(trace.answer, dict(case.task.facts["row"]))
        except Exception as e:  # a caller's function may raise anything
            frames = traceback.extract_tb(e.__traceback__)
            own = [f.lineno or 0 for f in frames if code and f.filename == code.co_filename]
            raise refuse(f"raised {type(e).__name__}: {str(e)[:300]}", own[-1] if own else 0) from e
        scored = _as_score(value, name)
        if scored is None:
            shown = value.get("score") if isinstance(value, Mapping) else value
            raise refuse(f"gave {str(shown)[:80]} ({type(value).__name__}), which is no score")
        return scored


def _source_of(function: Callable[..., Any]) -> str:
    """Return what tells a function from another: its source, else its name."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return (
            f"{getattr(function, '__module__', '')}"
            f".{getattr(function, '__qualname__', type(function).__name__)}"
        )


def _as_score(value: Any, function: str) -> Scored | None:
    """Return a scorer's value as a score; None for what is none."""
    given = value if isinstance(value, Mapping) else {"score": value}
    score = given.get("score")
    if not isinstance(score, bool | int | float) or not math.isfinite(score) or not 0 <= score <= 1:
        return None
    why = given.get("evidence")
    words = f"{function} gives {float(score):g}."
    if isinstance(why, str) and why:
        words = why[:LONGEST_EVIDENCE]
    return Scored(
        float(score), words, given["passed"] if isinstance(given.get("passed"), bool) else None
    )


def read_scorer(path: str) -> str:
    """Return the text of a person's scorer. Raises BadInput."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        fix = "--score FILE.py:function, as seen from here"
        raise BadInput(
            f"the scorer {path} cannot be read: {why}", fix=fix, code="no-scorer"
        ) from None


def limits_of(case: RowTask) -> Limits:
    """Return what a program of a scorer may use for one answer."""
    return LIMITS.model_copy(update={"seconds": case.definition.scorer.seconds})


def change_files(sandbox: Sandbox, changed: Mapping[str, str | None]) -> None:
    for path, text in changed.items():
        if text is None:
            sandbox.run(["rm", "-rf", "--", path])
        else:
            write_file(sandbox, path, text)


def write_file(sandbox: Sandbox, path: str, text: str) -> None:
    """Write a text, also where what was handed in made a folder, or a file where a folder is."""
    data = text.encode("utf-8", "surrogatepass")
    try:
        sandbox.write(path, data)
    except BadInput:
        above = ["/".join(path.split("/")[:n]) for n in range(1, path.count("/") + 1)]
        sandbox.run(["rm", "-f", "--", *above])
        sandbox.run(["rm", "-rf", "--", path])
        sandbox.write(path, data)


def run_program(
    case: RowTask,
    open: Open,
    command: Sequence[str],
    asked: JsonMap,
    files: Mapping[str, str],
    changed: Mapping[str, str | None] | None = None,
) -> tuple[Any, Output]:
    """Return (what the runner wrote into its file, None for what cannot be read; how it ended), in
    a fresh sandbox: the row's files, what was changed, and over both `files`."""
    name = f".result-{secrets.token_hex(16)}"
    seconds = case.definition.scorer.seconds
    sandbox = open(limits_of(case))
    try:
        change_files(sandbox, changed or {})
        for path, text in files.items():
            write_file(sandbox, path, text)
        stdin = json.dumps({**asked, "result": name}).encode("utf-8", "surrogatepass")
        output = sandbox.run(command, timeout=seconds, stdin=stdin)
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


def describe_ending(output: Output, case: RowTask) -> str:
    """Return how a program stopped that told nothing."""
    seconds = case.definition.scorer.seconds
    if output.timed_out or output.limit == "seconds":
        return f"took longer than {seconds:g} s"
    if output.limit:
        return f"used more {output.limit} than it may"
    return f"ended with the status {output.status} and told nothing"
