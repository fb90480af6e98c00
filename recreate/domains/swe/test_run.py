"""A project's tests, run in a sandbox: what each test did, and whether the results can be believed."""

from __future__ import annotations

import ast
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from recreate.api import paths
from recreate.api.errors import BadInput, Fault
from recreate.api.ports import Limits, Sandbox, SandboxBackend
from recreate.api.types import Output, Record, digest
from recreate.domains.swe import sources
from recreate.sandboxes.rootfs import interpreter_mounts

_WORDS = ("empty", "basic", "unicode", "roundtrip", "default", "invalid", "order", "copy", "nested", "repr")
_NAMES = tuple(f"test_{word}" for word in _WORDS)
"""What canaries are called."""


class ProjectTests(Record):
    """Which tests there are and how they find the sources. Paths are relative to the sources' top folder.

    tests     files and folders given to pytest          roots     folders put on sys.path
    deselect  test ids, test functions or files that do not count here
    """

    tests: tuple[str, ...]
    roots: tuple[str, ...] = (".",)
    deselect: tuple[str, ...] = ()


class TestResults(Record):
    """One run of a suite. outcomes: test id -> passed, failed, error, skipped, expected (xfail) or repeated.

    `doubt` says why no outcome can be believed ('' when they can): it ended early, its records were touched, or
    a test that must fail did not. `lines` is file -> test id -> lines, when the run was traced.
    """

    outcomes: Mapping[str, str] = {}
    messages: Mapping[str, str] = {}
    doubt: str = ""
    uncollected: tuple[str, ...] = ()
    output: str = ""
    seconds: float = 0.0
    lines: Mapping[str, Mapping[str, tuple[int, ...]]] = {}

    def passed(self) -> set[str]:
        return set() if self.doubt else {t for t, outcome in self.outcomes.items() if outcome == "passed"}


@cache
def program() -> str:
    """The runner's text."""
    return (Path(__file__).parent / "pytest_runner.py").read_text(encoding="utf-8")


def program_digest() -> str:
    """What the runner does, as a digest: its layout and comments have no part in it."""
    return digest(ast.dump(ast.parse(program())), 8)


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
    canary: bool = True,
    trace: bool = False,
    output_bytes: int = Limits().output_bytes,
) -> TestResults:
    """Run the suite, or `only` some test ids of it, in a fresh sandbox with a copy of `source` and `files` over it.

    files: path -> text, None for one that is deleted. timeout: seconds. Raises Fault when the runner did not even
    start: that is the sandbox's or the environment's doing.
    """
    key, records = secrets.token_hex(32), f".records-{secrets.token_hex(8)}"
    token = f"canary {secrets.token_hex(8)}"
    ready = f"ready {secrets.token_hex(8)}\n"
    order = {
        "key": key,
        "ready": ready,
        "records": records,
        "tests": list(suite.tests),
        "deselect": list(suite.deselect),
        "only": sorted(only),
        "roots": list(suite.roots),
        "canary": {"names": list(_NAMES), "token": token} if canary else None,
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
    entries, sound = _signed(data, bytes.fromhex(key))
    return _judged(entries, sound, output, token if canary else "", timeout)


def _signed(data: bytes, key: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The records whose running MAC is right, up to the first that is not, and whether all were."""
    mac = hmac.new(key, digestmod="sha256")
    entries: list[dict[str, Any]] = []
    for line in data.split(b"\n"):
        if not line:
            continue
        found, _, text = line.partition(b" ")
        mac.update(text)
        if not hmac.compare_digest(found, mac.hexdigest().encode()):
            return entries, False
        entries.append(json.loads(text))
    return entries, True


def _judged(entries: list[dict[str, Any]], sound: bool, output: Output, token: str, timeout: float) -> TestResults:
    canaries: set[str] = set()
    phases: dict[str, list[tuple[str, str]]] = {}
    messages: dict[str, str] = {}
    expected: set[str] = set()
    uncollected: list[str] = []
    lines: dict[str, dict[str, tuple[int, ...]]] = {}
    ended = 0
    count = -1
    for entry in entries:
        kind = entry["kind"]
        if kind == "test":
            test = entry["id"]
            if entry["part"]:  # one of a test's parts: it counts when it failed
                if entry["outcome"] == "failed":
                    phases.setdefault(test, []).append(("part", "failed"))
                    messages.setdefault(test, entry["message"])
                continue
            phases.setdefault(test, []).append((entry["when"], entry["outcome"]))
            if entry["expected"]:
                expected.add(test)
            if entry["outcome"] == "failed":
                messages.setdefault(test, entry["message"])
        elif kind == "collected":
            count, canaries = entry["count"], set(entry["canaries"])
        elif kind == "uncollected":
            uncollected.append(entry["id"])
            messages.setdefault(entry["id"], entry["message"])
        elif kind == "trace":
            lines = {f: {t: tuple(n) for t, n in tests.items()} for f, tests in entry["lines"].items()}
        elif kind == "end":
            ended += 1
    doubt = ""
    if output.timed_out:
        doubt = f"the tests were stopped after {timeout:.0f} s"
    elif not sound:
        doubt = "the record of results was altered while the tests ran"
    elif ended != 1 or entries[-1]["kind"] != "end" or count < 0:
        doubt = f"the test process ended early (exit status {output.status}): its results do not count"
    elif token:
        doubt = _canaries(canaries, phases, messages, token)
    return TestResults(
        outcomes={t: _outcome(p, t in expected) for t, p in phases.items() if t not in canaries},
        messages={t: m for t, m in messages.items() if t not in canaries},
        doubt=doubt,
        uncollected=tuple(uncollected),
        output=output.text,
        seconds=output.seconds,
        lines=lines,
    )


def _canaries(
    canaries: set[str], phases: Mapping[str, list[tuple[str, str]]], messages: Mapping[str, str], token: str
) -> str:
    files = {t.partition("::")[0] for t in phases}
    unguarded = files - {c.partition("::")[0] for c in canaries}
    alive = [
        c
        for c in canaries
        if [p for p in phases.get(c, []) if p[0] == "call"] != [("call", "failed")] or token not in messages.get(c, "")
    ]
    if alive:
        return f"{len(alive)} of {len(canaries)} tests that must fail did not: the tested code interferes with pytest"
    if unguarded:
        return f"no test that must fail ran in {', '.join(sorted(unguarded)[:3])}"
    return ""


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
