"""A project's tests, run in a sandbox: what each test did, and whether the results can be believed."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Limits, Sandbox, SandboxBackend
from recreate.api.types import Output, Record
from recreate.domains.swe import sources
from recreate.sandboxes.rootfs import interpreter_mounts

_MOST = 64 * 1024 * 1024
"""Bytes of records that are read of one run: the tested code can write as many as the sandbox's disk holds."""


_LINE = 200_000
"""Bytes of one record, but for the lines that a traced run tells."""


class ProjectTests(Record):
    """Which tests there are and how they find the sources. Paths are relative to the sources' top folder.

    tests     files and folders given to pytest          roots     folders put on sys.path
    deselect  test ids, test functions or files that do not count here
    """

    tests: tuple[str, ...]
    roots: tuple[str, ...] = (".",)
    deselect: tuple[str, ...] = ()


class Seen(NamedTuple):
    """One observation: the claim's number, the form of what was seen (None: it has none), whether it is true, and the
    form of what was expected where that was left in."""

    claim: int
    saw: str | None
    truth: bool | None
    known: str | None = None


class TestResults(Record):
    """One run of a suite. outcomes: test id -> passed, failed, error, skipped, expected (xfail) or repeated.

    `doubt` says why no outcome counts ('' when they do): the run ended early, or its records are not what the runner
    writes. `lines` is file -> test id -> lines, when the run was traced; `took` is test id -> seconds; `seen` is what
    tests told of what they saw, in order (withheld.py). All of it is said by the process that ran the tested code.
    """

    outcomes: Mapping[str, str] = {}
    messages: Mapping[str, str] = {}
    doubt: str = ""
    uncollected: tuple[str, ...] = ()
    output: str = ""
    seconds: float = 0.0
    lines: Mapping[str, Mapping[str, tuple[int, ...]]] = {}
    took: Mapping[str, float] = {}
    seen: tuple[Seen, ...] = ()

    def passed(self) -> set[str]:
        return set() if self.doubt else {t for t, outcome in self.outcomes.items() if outcome == "passed"}


@cache
def program() -> str:
    """The runner's text."""
    here = Path(__file__).parent
    return "\n".join((here / name).read_text(encoding="utf-8") for name in ("observer.py", "pytest_runner.py"))


def open_sandbox(
    backend: SandboxBackend, source: Path, env: Path, suite: ProjectTests | None = None, limits: Limits | None = None
) -> Sandbox:
    """A fresh sandbox with a copy of `source` and the Python of the environment `env` first on PATH.

    With `suite`, it is a sandbox to work in: pytest and coverage find the sources by themselves.
    """
    variables = {
        "PATH": f"{env / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    if suite is not None:
        top = "." if backend.name == "none" else "/work"
        inside = [f"{top}/{root}" for root in suite.roots if root not in ("", ".")]
        variables |= {"PYTHONPATH": ":".join([*inside, top]), "GIT_PAGER": "cat", "PAGER": "cat"}
        # The project's own settings of pytest may ask for plugins that are not here.
        variables["PYTEST_ADDOPTS"] = f"-c /dev/null --rootdir={top} -p no:cacheprovider"
    mounts = interpreter_mounts(env)
    if backend.name != "none":  # which cannot hide anything
        mounts |= _hidden(env, list(mounts.values()))
    return backend.open(source=source, mounts=mounts, env=variables, limits=limits)


def _hidden(env: Path, shown: Sequence[Path]) -> dict[str, Path]:
    """An empty folder over the packages of the interpreter that `env` was made from: they may hold the very package
    that a task is about, mended. Those of the system below /usr stay, as every sandbox shows them."""
    empty = paths.home() / "swe" / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    empty.chmod(0o755)
    prefixes = [p for p in shown if p.resolve() != env.resolve()]
    found = [
        place
        for prefix in prefixes
        for name in ("site-packages", "dist-packages")
        for place in prefix.glob(f"lib/python3*/{name}")
        if not place.is_symlink() and not env.resolve().is_relative_to(place.resolve())
    ]
    return {str(place): empty for place in found}


def run(
    backend: SandboxBackend,
    source: Path,
    env: Path,
    suite: ProjectTests,
    *,
    timeout: float,
    files: Mapping[str, str | None] | None = None,
    only: Iterable[str] = (),
    observe: bool = False,
    trace: bool = False,
    output_bytes: int = Limits().output_bytes,
) -> TestResults:
    """Run the suite, or `only` some test ids of it, in a fresh sandbox with a copy of `source` and `files` over it.

    files: path -> text, None for one that is deleted. timeout: seconds. observe: the tests are ones that tell what they
    see. Raises Fault when the runner did not even
    start: that is the sandbox's or the environment's doing.
    """
    records = f".records-{secrets.token_hex(8)}"
    ready = f"ready {secrets.token_hex(8)}\n"
    order = {
        "ready": ready,
        "records": records,
        "tests": list(suite.tests),
        "deselect": list(suite.deselect),
        "only": sorted(only),
        "roots": list(suite.roots),
        "observe": observe,
        "trace": trace,
    }
    changes, data = files or {}, b""
    limits = Limits(seconds=timeout, cpu_seconds=int(timeout) + 30, output_bytes=output_bytes)
    sandbox = open_sandbox(backend, source, env, limits=limits)
    try:
        for path, text in changes.items():
            if text is not None:
                sandbox.write(path, text.encode("utf-8"))
        if deleted := [path for path, text in changes.items() if text is None]:
            sandbox.run(["rm", "-f", "--", *deleted], timeout=30)
        line = json.dumps(order).encode() + b"\n"
        output = sandbox.run(["python3", "-P", "-s", "-B", "-c", program()], timeout=timeout, stdin=line)
        with suppress(FileNotFoundError, BadInput):
            data = sandbox.read(records)
    finally:
        sandbox.close()
    if ready not in output.text and not output.timed_out:
        raise Fault(
            f"the test runner did not start: {output.text.strip()[-800:] or f'exit {output.status}'}",
            fix="try `recreate doctor`; a broken environment is built anew once you delete the folder `envs` of"
            " RECREATE_HOME",
            code="runner",
        )
    output = output.model_copy(update={"text": output.text.replace(ready, "", 1)})
    return _judged(data[:_MOST], output, timeout, trace)


class _Strange(Exception):
    """A record that the runner does not write."""


def _judged(data: bytes, output: Output, timeout: float, traced: bool) -> TestResults:
    """What the records say. Whoever wrote them: nothing in them may do more than make the results not count."""
    found = _Records(traced)
    doubt = ""
    try:
        for line in data.split(b"\n"):
            if len(line) > _LINE and not traced:
                raise _Strange
            if line:
                found.add(json.loads(line))
    except (_Strange, ValueError, TypeError, KeyError, AttributeError, RecursionError, ArithmeticError, MemoryError):
        doubt = "the record of results holds what the runner does not write"
    if output.timed_out:
        doubt = f"the tests were stopped after {timeout:.0f} s"
    elif not doubt and not found.whole:
        doubt = f"the test process ended early (exit status {output.status}): its results do not count"
    return TestResults(
        outcomes={t: _outcome(p, t in found.expected) for t, p in found.phases.items()},
        messages=found.messages,
        doubt=doubt,
        uncollected=tuple(found.uncollected),
        output=output.text,
        seconds=output.seconds,
        lines=found.lines,
        took=found.took,
        seen=tuple(found.seen),
    )


class _Records:
    def __init__(self, traced: bool) -> None:
        self.traced = traced
        self.phases: dict[str, list[tuple[str, str]]] = {}
        self.messages: dict[str, str] = {}
        self.expected: set[str] = set()
        self.uncollected: list[str] = []
        self.lines: dict[str, dict[str, tuple[int, ...]]] = {}
        self.took: dict[str, float] = {}
        self.seen: list[Seen] = []
        self.whole = False
        self._begun = False

    def add(self, entry: dict[str, Any]) -> None:
        """Raises one of several errors for what is no record."""
        if self.whole:
            raise _Strange
        kind = entry["kind"]
        if kind == "test":
            self._test(_text(entry["id"]), entry)
        elif kind == "seen":
            claim, truth = entry["claim"], entry["truth"]
            if type(claim) is not int or type(truth) not in (bool, type(None)):
                raise _Strange
            self.seen.append(Seen(claim, _maybe(entry["saw"]), truth, _maybe(entry["known"])))
        elif kind == "collected":
            self._begun = True
        elif kind == "uncollected":
            self.uncollected.append(_text(entry["id"]))
            self.messages.setdefault(entry["id"], _text(entry["message"]))
        elif kind == "trace" and self.traced:
            self.lines = {f: {t: tuple(map(int, n)) for t, n in tests.items()} for f, tests in entry["lines"].items()}
        elif kind == "end":
            self.whole = self._begun
        elif kind != "start":
            raise _Strange

    def _test(self, test: str, entry: dict[str, Any]) -> None:
        if entry["outcome"] == "failed":
            self.messages.setdefault(test, _text(entry["message"]))
        if entry["part"]:  # one of a test's parts: it counts when it failed
            if entry["outcome"] == "failed":
                self.phases.setdefault(test, []).append(("part", "failed"))
            return
        self.phases.setdefault(test, []).append((_text(entry["when"]), _text(entry["outcome"])))
        self.took[test] = self.took.get(test, 0.0) + float(entry["seconds"])
        if entry["expected"]:
            self.expected.add(test)


def _text(value: object) -> str:
    """A text that can be stored: half of a surrogate pair cannot."""
    if not isinstance(value, str):
        raise _Strange
    return value.encode("utf-8", "replace").decode("utf-8")


def _maybe(value: object) -> str | None:
    return None if value is None else _text(value)


def _outcome(phases: list[tuple[str, str]], expected: bool) -> str:
    if len({when for when, _ in phases if when != "part"}) != len([1 for when, _ in phases if when != "part"]):
        return "repeated"
    by = {when: outcome for when, outcome in phases if when != "part"}
    if ("part", "failed") in phases or by.get("call") == "failed":
        return "failed"
    if "failed" in by.values():
        return "error"
    if expected:
        return "expected"
    if "skipped" in by.values():
        return "skipped"
    return "passed" if by == {"setup": "passed", "call": "passed", "teardown": "passed"} else "error"


def short(message: str, limit: int = 200) -> str:
    """What a failure says, on one line: facts for a prompt, not the traceback."""
    words = re.sub(r"(\b0x|(?<=\.\.\.)x?)[0-9a-f]{6,}(?=\W)", "", " ".join(message.split()))  # addresses vary
    return words if len(words) <= limit else words[: limit - 3] + "..."


def files_of(tests: Iterable[str]) -> Sequence[str]:
    return sorted({sources.function_of(t).partition("::")[0] for t in tests})
