"""A project's tests, run in a sandbox: what each test did, and whether the results can be
believed."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Limits, Sandbox, SandboxBackend
from recreate.api.types import Output, Record
from recreate.plugins.swe import sources
from recreate.sandboxes.rootfs import interpreter_mounts

_MOST = 64 * 1024 * 1024
"""Bytes of records that are read of one run: the tested code can write as many as the sandbox's
disk holds."""


_MOST_LOGGED = 16_000_000
"""Bytes that the log of a test command may have; what prints more is stopped."""

_LINE = 200_000
"""Bytes of one record, but for the lines that a traced run tells."""


class ProjectTests(Record):
    """Which tests there are and how they find the sources. Paths are relative to the sources' top
    folder.

    tests     files and folders given to pytest          roots     folders put on sys.path
    deselect  test ids, test functions or files that do not count here
    env       variables they run with                      runner    as in Environment
    settings  whether the project's own settings of pytest hold; they may ask for plugins that are
              not here
    masked    what else a sandbox has of the package (copies.py): files, and folders, which end with
              /
    first     what is imported comes from the sources before the environment, where pytest itself
              needs it
    """

    tests: tuple[str, ...]
    roots: tuple[str, ...] = (".",)
    deselect: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default={}, exclude_if=lambda value: not value)
    runner: str = Field(default="pytest", exclude_if=lambda value: value == "pytest")
    settings: bool = Field(default=False, exclude_if=lambda value: not value)
    masked: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    first: bool = Field(default=False, exclude_if=lambda value: not value)


class Seen(NamedTuple):
    """One observation: the claim's number, the form of what was seen (None: it has none), whether
    it is true, and the form of what was expected where that was left in."""

    claim: int
    saw: str | None
    truth: bool | None
    known: str | None = None


class TestResults(Record):
    """One run of a suite. outcomes: test id -> passed, failed, error, skipped, expected (xfail) or
    repeated.

    `doubt` says why no outcome counts ('' when they do): the run ended early, or its records are
    not what the runner writes. `lines` is file -> test id -> lines, when the run was traced; `took`
    is test id -> seconds; `seen` is what tests told of what they saw, in order (withheld.py). All
    of it is said by the process that ran the tested code, but for `cpu_seconds`, which only
    `run_each` knows.
    """

    outcomes: Mapping[str, str] = {}
    messages: Mapping[str, str] = {}
    doubt: str = ""
    uncollected: tuple[str, ...] = ()
    output: str = ""
    seconds: float = 0.0
    lines: Mapping[str, Mapping[str, tuple[int, ...]]] = {}
    took: Mapping[str, float] = {}
    cpu_seconds: float = 0.0
    seen: tuple[Seen, ...] = ()

    def passed(self) -> set[str]:
        return (
            set()
            if self.doubt
            else {t for t, outcome in self.outcomes.items() if outcome == "passed"}
        )


_FUTURE = "from __future__ import annotations\n"
_NOT_HERE = "import sys\nsys.path[:] = [folder for folder in sys.path if folder]\n"
"""What `python3 -P` does from 3.11 on. Before this line the program imports nothing."""


@cache
def program() -> str:
    """The runner's text. None of it lies in the sandbox, and no folder of the sources is on
    sys.path at first."""
    return text_of("observer.py", "pytest_runner.py")


@cache
def logging_program() -> str:
    """The text of the program that runs a test command of the sources' own."""
    return text_of("suite_runner.py")


def text_of(*names: str) -> str:
    """Programs of this folder as one, which begins with no folder of the sources on sys.path."""
    texts = [(Path(__file__).parent / name).read_text(encoding="utf-8") for name in names]
    return "\n".join([_FUTURE + _NOT_HERE, *(text.replace(_FUTURE, "", 1) for text in texts)])


def open_sandbox(
    backend: SandboxBackend,
    source: Path,
    env: Path,
    suite: ProjectTests,
    limits: Limits | None = None,
    *,
    worked_in: bool = True,
) -> Sandbox:
    """A fresh sandbox with a copy of `source`, the Python of the environment `env` first on PATH,
    and the variables of `suite`.

    worked_in: pytest and coverage find the sources by themselves.
    """
    variables = {
        "PATH": f"{env / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        **suite.env,
    }
    top = "." if backend.name == "none" else "/work"
    if worked_in or suite.first:
        inside = [f"{top}/{root}" for root in suite.roots if root not in ("", ".")]
        variables["PYTHONPATH"] = ":".join([*inside, *[top] * (worked_in or not inside)])
    if worked_in:
        variables |= {"GIT_PAGER": "cat", "PAGER": "cat"}
        if not suite.settings:
            variables["PYTEST_ADDOPTS"] = f"-c /dev/null --rootdir={top} -p no:cacheprovider"
    mounts = interpreter_mounts(env)
    if backend.name != "none":  # which cannot hide anything
        folder, file = nothing()
        mounts |= _hidden(env, list(mounts.values()))
        mounts |= {
            mask.rstrip("/"): folder if mask.endswith("/") else file for mask in suite.masked
        }
    return backend.open(source=source, mounts=mounts, env=variables, limits=limits)


def nothing() -> tuple[Path, Path]:
    """An empty folder and an empty file, to lie over what a sandbox must not show."""
    folder, file = paths.home() / "swe" / "empty", paths.home() / "swe" / "nothing"
    folder.mkdir(parents=True, exist_ok=True)
    file.touch()
    folder.chmod(0o755)
    file.chmod(0o644)
    return folder, file


def _hidden(env: Path, shown: Sequence[Path]) -> dict[str, Path]:
    """An empty folder over the packages of the interpreter that `env` was made from: they may hold
    the very package that a task is about, mended. Those of the system below /usr stay, as every
    sandbox shows them.
    """
    prefixes = [p for p in shown if p.resolve() != env.resolve()]
    found = [
        place
        for prefix in prefixes
        for name in ("site-packages", "dist-packages")
        for place in prefix.glob(f"lib/python3*/{name}")
        if not place.is_symlink() and not env.resolve().is_relative_to(place.resolve())
    ]
    return {str(place): nothing()[0] for place in found}


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
    """Run the suite, or `only` some test ids or functions of it, in a fresh sandbox with a copy of
    `source` and `files` over it.

    files: path -> text, None for one that is deleted. timeout: seconds. observe: the tests are ones
    that tell what they see. Raises Fault when the runner did not even start: that is the sandbox's
    or the environment's doing.
    """
    records = f".records-{secrets.token_hex(8)}"
    ready = f"ready {secrets.token_hex(8)}\n"
    order = _order(suite, ready, records, only, observe, trace)
    changes, data = files or {}, b""
    # the next exam could time what a run that holds expected values has read
    limits = Limits(
        seconds=timeout,
        cpu_seconds=int(timeout) + 30,
        output_bytes=output_bytes,
        forgets=not observe,
    )
    sandbox = open_sandbox(backend, source, env, suite, limits, worked_in=False)
    try:
        _write_files(sandbox, changes)
        line = json.dumps(order).encode() + b"\n"
        output = sandbox.run(["python3", "-s", "-B", "-c", program()], timeout=timeout, stdin=line)
        with suppress(FileNotFoundError, BadInput):
            data = sandbox.read(records)
    finally:
        sandbox.close()
    # where pytest runs on the sources, they can keep it from starting
    if not suite.first or ready in output.text:
        output = _started(output, ready)
    return _read_records(data[:_MOST], output, timeout, trace)


class TrialRun(NamedTuple):
    """One of several runs of tests on the same sources: `files` (path -> text, None: deleted) over
    them, `only` some test ids or functions, ending at `most` failures (0: never), in `seconds` of
    processor time."""

    files: Mapping[str, str | None]
    only: frozenset[str]
    most: int
    seconds: float
    trace: bool = False


def run_each(
    backend: SandboxBackend, source: Path, env: Path, suite: ProjectTests, runs: Sequence[TrialRun]
) -> list[TestResults]:
    """The results of every run, all in one fresh sandbox, one after the other. For sources that are
    trusted to leave each other's files alone: mutants, never an answer. A run that was ended at
    `most` failures has only those.
    """
    if not runs:
        return []
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    if suite.first:  # pytest holds what is changed, so that no run can have it imported before
        how = [
            (
                (
                    suite.model_copy(update={"tests": tuple(files_of(one.only))})
                    if one.only
                    else suite
                ),
                one,
            )
            for one in runs
        ]
        return [
            run(
                backend,
                source,
                env,
                tests,
                timeout=5 * crowd * one.seconds,
                files=one.files,
                only=one.only,
            )
            for tests, one in how
        ]
    ready = f"ready {secrets.token_hex(8)}\n"
    records = [f".records-{secrets.token_hex(8)}" for _ in runs]
    told = []
    for one, file in zip(runs, records, strict=True):
        near = suite.model_copy(update={"tests": tuple(files_of(one.only))}) if one.only else suite
        order = _order(near, "", file, one.only, False, one.trace)
        told.append(
            {"order": order, "files": dict(one.files), "most": one.most, "seconds": one.seconds}
        )
    line = (
        json.dumps({"ready": ready, "runner": program(), "runs": told, "crowd": crowd}).encode()
        + b"\n"
    )
    timeout = 30 + 6 * crowd * sum(one.seconds for one in runs)
    limits = Limits(seconds=timeout, cpu_seconds=int(timeout) + 30)
    sandbox = open_sandbox(backend, source, env, suite, limits, worked_in=False)
    try:
        trials = text_of("trial_runner.py")
        output = sandbox.run(["python3", "-s", "-B", "-c", trials], timeout=timeout, stdin=line)
        output = _started(output, ready)
        last = output.text.strip().rpartition("\n")[2]
        used = json.loads(last) if last.startswith("[") else []
        found = []
        for number, file in enumerate(records):
            data = b""
            with suppress(FileNotFoundError, BadInput):
                data = sandbox.read(file)
            results = _read_records(data[:_MOST], output, timeout, runs[number].trace)
            cpu = used[number] if number < len(used) else 0.0
            found.append(results.model_copy(update={"output": "", "cpu_seconds": cpu}))
        return found
    finally:
        sandbox.close()


def _order(
    suite: ProjectTests, ready: str, records: str, only: Iterable[str], observe: bool, trace: bool
) -> dict[str, object]:
    """What the runner is told."""
    return {
        "ready": ready,
        "records": records,
        "tests": list(suite.tests),
        "deselect": list(suite.deselect),
        "only": sorted(only),
        "roots": list(suite.roots),
        "observe": observe,
        "trace": trace,
    }


def _started(output: Output, ready: str) -> Output:
    """The same without the sign that the runner started. Raises Fault when it is not there."""
    if ready not in output.text and not output.timed_out:
        raise Fault(
            "the test runner did not start:"
            f" {output.text.strip()[-800:] or f'exit {output.status}'}",
            fix=(
                "try `recreate doctor`; a broken environment is built anew once you delete the"
                " folder `envs` of RECREATE_HOME"
            ),
            code="runner",
        )
    return output.model_copy(update={"text": output.text.replace(ready, "", 1)})


def logged(
    backend: SandboxBackend,
    source: Path,
    env: Path,
    suite: ProjectTests,
    argv: Sequence[str],
    *,
    timeout: float,
    files: Mapping[str, str | None],
) -> TestResults:
    """Run a test command of the sources' own in a fresh sandbox. Of the results only `output` is
    known, which is all that it printed, and whether that is whole; the rest as in `run`."""
    mark = secrets.token_hex(16)
    order = {"mark": mark, "argv": list(argv), "roots": list(suite.roots), "most": _MOST_LOGGED}
    limits = Limits(
        seconds=timeout,
        cpu_seconds=int(timeout) + 30,
        output_bytes=_MOST_LOGGED + 100_000,
        processes=256,
        disk_mb=1024,
        forgets=True,
    )
    sandbox = open_sandbox(backend, source, env, suite, limits, worked_in=False)
    try:
        _write_files(sandbox, files)
        line = json.dumps(order).encode() + b"\n"
        output = sandbox.run(
            ["python3", "-I", "-B", "-c", logging_program()], timeout=timeout, stdin=line
        )
    finally:
        sandbox.close()
    rest = _started(output, f"begin {mark}\n").text
    log, ended, status = rest.rpartition(f"\nend {mark} ")
    doubt = ""
    if output.timed_out:
        doubt = f"the tests were stopped after {timeout:.0f} s"
    elif status.strip() == "flood" or output.cut:
        doubt = f"the tests printed more than {_MOST_LOGGED // 1_000_000} MB"
    elif not ended:
        doubt = (
            f"the test process ended early (exit status {output.status}): its results do not count"
        )
    return TestResults(output=log if ended else rest, doubt=doubt, seconds=output.seconds)


def _write_files(sandbox: Sandbox, files: Mapping[str, str | None]) -> None:
    for path, text in files.items():
        if text is not None:
            sandbox.write(path, text.encode("utf-8"))
    if deleted := [path for path, text in files.items() if text is None]:
        sandbox.run(["rm", "-f", "--", *deleted], timeout=30)


class _Strange(Exception):
    """A record that the runner does not write."""


def _read_records(data: bytes, output: Output, timeout: float, traced: bool) -> TestResults:
    """What the records say. Whoever wrote them: nothing in them may do more than make the results
    not count."""
    found = _Records(traced)
    doubt = ""
    try:
        for line in data.split(b"\n"):
            if len(line) > _LINE and not traced:
                raise _Strange
            if line:
                found.add(json.loads(line))
    except (
        _Strange,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        ArithmeticError,
        MemoryError,
    ):
        doubt = "the record of results holds what the runner does not write"
    if output.timed_out:
        doubt = f"the tests were stopped after {timeout:.0f} s"
    elif not doubt and not found.whole:
        doubt = (
            f"the test process ended early (exit status {output.status}): its results do not count"
        )
    return TestResults(
        outcomes={t: _outcome(p, t in found.expected) for t, p in found.phases.items()},
        messages=found.messages,
        doubt=doubt,
        uncollected=tuple(found.uncollected),
        output=output.text,
        seconds=output.seconds,
        lines=found.lines,
        took=found.took,
        seen=tuple(found.visible_tests),
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
        self.visible_tests: list[Seen] = []
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
            self.visible_tests.append(
                Seen(claim, _maybe(entry["saw"]), truth, _maybe(entry["known"]))
            )
        elif kind == "collected":
            self._begun = True
        elif kind == "uncollected":
            self.uncollected.append(_text(entry["id"]))
            self.messages.setdefault(entry["id"], _text(entry["message"]))
        elif kind == "trace" and self.traced:
            self.lines = {
                f: {t: tuple(map(int, n)) for t, n in tests.items()}
                for f, tests in entry["lines"].items()
            }
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
    if len({when for when, _ in phases if when != "part"}) != len(
        [1 for when, _ in phases if when != "part"]
    ):
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
    return (
        "passed" if by == {"setup": "passed", "call": "passed", "teardown": "passed"} else "error"
    )


def short(message: str, limit: int = 200) -> str:
    """What a failure says, on one line: facts for a prompt, not the traceback."""
    # addresses vary
    words = re.sub(r"(\b0x|(?<=\.\.\.)x?)[0-9a-f]{6,}(?=\W)", "", " ".join(message.split()))
    return words if len(words) <= limit else words[: limit - 3] + "..."


def files_of(tests: Iterable[str]) -> Sequence[str]:
    return sorted({sources.function_of(t).partition("::")[0] for t in tests})
