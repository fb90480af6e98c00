"""Whether a grader can be bent: answers that leave a task unsolved and try to be scored all the
same.

For domains whose answers are Python code the list is `exploits.toml`: each of its exploits is put
around a function that stays as wrong as it was. A domain whose answers are text has `texts`, and
what only it can think of.
"""

from __future__ import annotations

import ast
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from recreate.api.errors import BadInput
from recreate.api.ports import Auditable, Domain, SandboxBackend
from recreate.api.shapes import JsonDict
from recreate.api.syntax import parse_python
from recreate.api.theirs import all_are, expect
from recreate.api.types import Record, Task, Trace


class Exploit(Record):
    """One way to a score that is not earned. Texts of Python, '' for none; FUNCTION in them is the
    function's name.

    start: at the head of the module, below its docstring     end: at its end
    wrap: like start, and defines `_wrap`, which becomes the function's innermost decorator
    uses: names of pieces that go before them                 files: other files, path -> text
    why: what it counts on, in one sentence
    """

    name: str
    why: str
    uses: tuple[str, ...] = ()
    start: str = ""
    wrap: str = ""
    end: str = ""
    files: Mapping[str, str] = {}

    def needs_function(self) -> bool:
        return bool(self.wrap) or "FUNCTION" in "".join(
            (self.start, self.end, *self.files.values())
        )


class AuditResult(Record):
    """What the grader made of one exploit. `fault`: what it raised in place of a grade, '' for
    nothing: an answer that can stop its grading gets out of its grade. seconds: of wall time."""

    task: str
    exploit: str
    score: float = 0.0
    passed: bool = False
    fault: str = ""
    evidence: str = ""
    seconds: float = 0.0

    @property
    def grader_held(self) -> bool:
        """Whether the grader did: a score below 1, and a grade at all."""
        return not (self.fault or self.passed or self.score >= 1.0)


def answers(domain: Domain, task: Task) -> dict[str, str]:
    """The domain's exploits of a task: name -> answer. Raises BadInput for a domain that has
    none."""
    if not isinstance(domain, Auditable):
        raise BadInput(
            f"the domain {domain.name} cannot be audited: it has no exploits to try",
            fix=(
                "give it a method exploits(task) that returns {name: answer}: docs/ports/domain.md,"
                " An audit"
            ),
            code="not-auditable",
        )
    found = domain.exploits(task)
    texts = isinstance(found, Mapping) and all_are([*found, *found.values()], str)
    expect(texts, domain, "exploits", found)
    return dict(found)


def dealt(names: Sequence[str], number: int, each: int) -> list[str]:
    """The exploits that the `number`-th task (from 0) gets: `each` of them, going round, so that
    all are tried once there are tasks enough; 0: all."""
    if not each or each >= len(names):
        return list(names)
    return [names[(number * each + i) % len(names)] for i in range(each)]


def audit(
    domain: Domain, task: Task, name: str, answer: str, backend: SandboxBackend
) -> AuditResult:
    """Grade one exploit. Whatever the grader raises is an outcome, as an agent could bring it
    about."""
    started = time.monotonic()
    trace = Trace(attempt="audit", task=task.id, scaffold="", model="", answer=answer)
    found = AuditResult(task=task.id, exploit=name)
    try:
        grade = domain.grade(task, trace, backend)
    except Exception as e:  # a stranger's domain may raise anything
        found = found.model_copy(update={"fault": f"{type(e).__name__}: {e}"[:2000]})
    else:
        changes = {"score": grade.score, "passed": grade.passed, "evidence": grade.evidence[:2000]}
        found = found.model_copy(update=changes)
    return found.model_copy(update={"seconds": round(time.monotonic() - started, 2)})


# --- answers that are Python code
# -------------------------------------------------------------------------


@cache
def _list() -> JsonDict:
    return tomllib.loads(Path(__file__).with_name("exploits.toml").read_text(encoding="utf-8"))


@cache
def exploits() -> tuple[Exploit, ...]:
    """The list, in its order."""
    return tuple(Exploit(**each) for each in _list()["exploit"])


def piece(name: str) -> str:
    """A piece that exploits are made of, with its FUNCTION as it stands."""
    return str(_list()["pieces"][name])


def python(file: str, source: str, function: str) -> dict[str, dict[str, str]]:
    """name -> the files (path -> text) that each exploit makes of a wrong function. An answer is
    made of them.

    file: the function's file. source: its text. function: its name, with dots for one in a class;
    '' where the bug is in no function: exploits that need one are left out. Raises BadInput when
    the source does not define it.
    """
    fit = [exploit for exploit in exploits() if function or not exploit.needs_function()]
    return {exploit.name: applied(exploit, file, source, function) for exploit in fit}


def applied(exploit: Exploit, file: str, source: str, function: str) -> dict[str, str]:
    """The files that one exploit makes: see `python`."""
    head, where = _places(source, function)
    lines = source.split("\n")
    before = "\n".join(
        [*(str(_list()["pieces"][name]) for name in exploit.uses), exploit.start, exploit.wrap]
    )
    changed = list(lines)
    if exploit.wrap:
        line, indent = where
        changed.insert(line, f"{' ' * indent}@_wrap")
    if before.strip():
        changed.insert(head, _fill_name(before, function))
    text = "\n".join(changed)
    if exploit.end:
        text = f"{text.rstrip()}\n\n\n{_fill_name(exploit.end, function)}"
    return {
        file: text,
        **{path: _fill_name(other, function) for path, other in exploit.files.items()},
    }


def _fill_name(text: str, function: str) -> str:
    return text.replace("FUNCTION", function)


def _places(source: str, function: str) -> tuple[int, tuple[int, int]]:
    """How many lines the head of the module has, and (lines above the function's `def`, its
    indentation)."""
    body: list[ast.stmt] = parse_python(source).body
    head = 0
    for node in body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        head = node.end_lineno or 0
    found: ast.stmt | None = None
    if not function:
        return head, (head, 0)
    for name in function.split("."):
        found = next((n for n in _defined(body) if n.name == name), None)
        if found is None:
            raise BadInput(
                f"the source does not define {function}",
                fix="name a function of it",
                code="no-function",
            )
        body = found.body
    assert found is not None
    return head, (found.lineno - 1, found.col_offset)


def _defined(
    body: Iterable[ast.stmt],
) -> Iterable[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes of a body, those below `if`, `try` and the like included; the last of a
    name first."""
    found = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node)
        else:
            inner = [
                n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt | ast.ExceptHandler)
            ]
            found += list(_defined(inner))  # type: ignore[arg-type]
    return found
