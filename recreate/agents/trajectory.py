"""A trajectory at a glance: what happened at which step, and where two of them part; pure.

An index has one row a step: files seen and edited, commands, errors, tests. It is made of plain searches over the
text, so that an attempt of hundreds of steps and megabytes is indexed at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from recreate.api.types import Experience, Record, Step, Trace

MOST = 6
"""Names one cell of a row holds."""
_ACTION_CHARS = 8_000
"""So much of an action is searched for names, here-documents cut out of it first."""
_HEAD_CHARS = 2_000
_PATH = re.compile(r"(?<![\w./-])/?(?:[\w.-]+/)*[\w-]+\.[A-Za-z]\w{0,7}\b(?![\w/(])|(?<![\w./-])/?(?:[\w.-]+/)+[\w-]+")
_EDITED = re.compile(
    r">>?\s*(?P<to>[\w./-]+)"
    r"|\btee\s+(?:-a\s+)?(?P<tee>[\w./-]+)"
    r"|\bsed\s+(?:-[A-Za-z]*i\S*|--in-place\S*)\s(?P<sed>[^\n;|&]*)"
    r"|\bopen\(\s*['\"](?P<open>[^'\"]+)['\"]\s*,\s*['\"][wax]"
    r"|\bPath\(\s*['\"](?P<path>[^'\"]+)['\"]\s*\)\.write_"
    r"|\b(?:mv|cp|rm)\s+(?P<moved>[^\n;|&]*)"
    r"|^(?:\+\+\+|---)\s+[ab]/(?P<diff>\S+)",
    re.MULTILINE,
)
# possessive, and held between separators: an action of ten thousand blank lines costs no more than another
_COMMAND = re.compile(r"(?:^|[;|&\n])[ \t]*+(?:\w++=[^\s;|&]*+[ \t]++)*+((?:\./)?[A-Za-z_][\w./+-]*+)")
_HEREDOC = re.compile(r"<<-?[ \t]*+(['\"]?)(\w++)\1[^\n]*+\n")
_ERROR = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)\b")
_COUNT = re.compile(r"\b(\d+) (passed|failed|errors?|skipped)\b")
_TEST = re.compile(r"(?:FAILED|ERROR) (\S+::\S+)")
_SHELL = ("cd", "echo", "set", "export", "true", "then", "do", "done", "fi", "if", "else", "for", "while", "EOF", "PY")


class IndexRow(Record):
    """One step at a glance. chars: the length of reply and output together."""

    step: int
    sample: int
    kind: str
    status: int | None
    commands: tuple[str, ...]
    seen: tuple[str, ...]
    edited: tuple[str, ...]
    errors: tuple[str, ...]
    tests: str
    chars: int


def index(trace: Trace) -> tuple[IndexRow, ...]:
    """One row a step, in order."""
    return tuple(_row(step) for step in trace.steps)


def tell_index(rows: Sequence[IndexRow]) -> str:
    """The index as lines of text."""
    return "\n".join(_line(row) for row in rows) or "no steps were taken"


def differ(a: Experience, b: Experience) -> str:
    """What sets two experiences apart, in a few lines: how they went, what only one of them did and met."""
    rows = [index(e.trace) for e in (a, b)]
    lines = []
    for name, e, own in (("this", a, rows[0]), ("other", b, rows[1])):
        outcome = "passed" if e.grade.passed else f"failed (score {e.grade.score:g})"
        ended = f"{e.trace.ending} {e.trace.limit}".strip()
        lines.append(f"{name}: {e.id}, {outcome}, {ended}, {len(own)} steps, agent {e.digest}")
    for title, cell in (
        ("commands", "commands"),
        ("files seen", "seen"),
        ("files edited", "edited"),
        ("errors met", "errors"),
    ):
        counts = [Counter[str](name for row in own for name in getattr(row, cell)) for own in rows]
        for name, only in (("this", counts[0] - counts[1]), ("other", counts[1] - counts[0])):
            if only:
                said = ", ".join(f"{what} x{n}" if n > 1 else what for what, n in only.most_common(12))
                lines.append(f"{title}, more in {name}: {said}")
    for name, own in (("this", rows[0]), ("other", rows[1])):
        tests = [f"step {row.step}: {row.tests}" for row in own if row.tests]
        if tests:
            lines.append(f"tests in {name}: " + "; ".join(tests[-5:]))
    return "\n".join(lines)


def _row(step: Step) -> IndexRow:
    # a reply that a tool of the scaffold took whole is no shell: its words are not commands
    done = step.action if step.action != step.reply or step.kind == "before" else ""
    bare = _without_heredocs(done)[:_ACTION_CHARS]
    action = done[:_ACTION_CHARS]
    # Python in a here-document may write files itself
    edited = _edited(action if not bare or "open(" in action or "write_" in action else bare)
    seen = _distinct(p for p in _paths(action) if p not in edited)
    if not action or len(seen) + len(edited) == 0:
        seen = _distinct(_paths(step.output[:_HEAD_CHARS]))
    return IndexRow(
        step=step.step,
        sample=step.sample,
        kind=step.kind,
        status=step.status,
        commands=(action,) if step.kind == "before" else _commands(bare),
        seen=seen,
        edited=edited,
        errors=_distinct(_errors(step.output)),
        tests=_tests(step.output),
        chars=len(step.reply) + len(step.output),
    )


def _line(row: IndexRow) -> str:
    parts = [f"step {row.step}" + (f" sample {row.sample}" if row.sample else "")]
    if row.kind == "before":
        parts.append(f"{', '.join(row.commands)} ran before the first turn")
    elif row.kind == "malformed":
        parts.append("the reply could not be read")
    elif row.commands:
        parts.append(" ".join(row.commands))
    else:
        parts.append("the reply was handed to the agent's tool")
    if row.status is not None:
        parts.append(f"status {row.status}")
    for name, cell in (("saw", row.seen), ("edited", row.edited), ("errors", row.errors)):
        if cell:
            parts.append(f"{name} {', '.join(cell)}")
    if row.tests:
        parts.append(f"tests {row.tests}")
    return " | ".join([*parts, f"{row.chars} characters"])


def _commands(bare: str) -> tuple[str, ...]:
    """The programs that a shell action starts; of code, nothing."""
    found = (m[1].rpartition("/")[2] for m in _COMMAND.finditer(bare))
    return _distinct(name for name in found if name not in _SHELL)


def _without_heredocs(action: str) -> str:
    """The action without what its here-documents hold, which is no command."""
    kept, at = [], 0
    while found := _HEREDOC.search(action, at):
        kept += [action[at : found.start()], "\n"]
        closing = re.compile(rf"^{found[2]}$", re.MULTILINE).search(action, found.end())
        at = closing.end() if closing else len(action)
    return "".join([*kept, action[at:]])


def _edited(action: str) -> tuple[str, ...]:
    names: list[str] = []
    for found in _EDITED.finditer(action):
        kind = found.lastgroup
        if kind in ("sed", "moved"):
            names += [word for word in found[kind].split() if _PATH.fullmatch(word)][-2:]
        elif kind and not found[kind].startswith("/dev/") and not found[kind].isdigit():
            names.append(found[kind])
    return _distinct(names)


def _paths(text: str) -> Iterator[str]:
    for found in _PATH.finditer(text):
        name = found[0]
        if not name.startswith(("/dev/", "/usr/", "s/")) and not re.fullmatch(r"[\d.]+", name):
            yield name


def _errors(text: str) -> Iterator[str]:
    """Names of exceptions that begin a line (after pytest's `E`), as a traceback ends."""
    for word in ("Error", "Exception"):
        at = text.find(word)
        while at >= 0:
            start = text.rfind("\n", 0, at) + 1
            line = text[start : at + len(word) + 1].removeprefix("E").lstrip()
            found = _ERROR.match(line)
            if found and found.end() >= len(line) - 1:
                yield found[0].rpartition(".")[2]
            end = text.find("\n", at)
            at = text.find(word, end) if end >= 0 else -1


def _tests(text: str) -> str:
    """The last summary of a test run in the output, with the first tests that failed."""
    at = max(text.rfind(" passed"), text.rfind(" failed"), text.rfind(" error"))
    if at < 0:
        return ""
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    counts = [f"{n} {what}" for n, what in _COUNT.findall(text[start : end if end >= 0 else len(text)])]
    failed = _distinct(_TEST.findall(text[max(0, start - 4000) : start])) if counts else ()
    return ", ".join(counts) + (f" ({', '.join(failed[:3])})" if failed else "")


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) == MOST:
            break
    return tuple(found)
