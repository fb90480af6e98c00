"""Runs a project's tests inside a sandbox and reports each in a record.

It is never imported by recreate: observer.py's text and its own are the program of `python3 -s -B
-c`, so nothing of it lies in the sandbox. It runs on Python 3.8 and pytest 6, and on what came
after. The order of one JSON line on stdin:
    ready    printed as soon as the record is open
    records  the file to write, made here and kept open: a JSON object a line
    tests, deselect, only, roots, trace
    observe  whether the tests are ones of which expected values are withheld
The tested code runs in this very process and can write what it likes: nothing here is secret, and
what is reported here alone does not make an answer pass (docs/grading.md).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest


class Recorder:
    """Hooks of pytest. What they need later is bound now, before any tested code is imported."""

    def __init__(self, order: dict[str, Any]) -> None:
        handle = os.open(
            order["records"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        encode, put = json.JSONEncoder(ensure_ascii=True).encode, os.write

        def record(value: dict[str, Any]) -> None:
            put(handle, encode(value).encode() + b"\n")

        print(order["ready"], end="", flush=True)
        self._record = record
        self._order = order
        self._coverage: Any = None
        if order["observe"]:
            # observer.py's text stands above
            observe(record)  # type: ignore[name-defined]  # noqa: F821
        record({"kind": "start", "pytest": pytest.__version__, "python": sys.version.split()[0]})

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        # Only now, after plugins were looked for: a folder of the sources must not bring one.
        sys.path[:0] = [str(Path(root).resolve()) for root in self._order["roots"]]
        if self._order["trace"]:
            import coverage

            self._coverage = coverage.Coverage(
                data_file=None, config_file=False, source=["."], omit=["*/tests/*", "*/test_*"]
            )
            self._coverage.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        only = self._order["only"] and set(self._order["only"])
        dropped = set(self._order["deselect"])
        items[:] = [
            i
            for i in items
            if not ({i.nodeid, i.nodeid.partition("::")[0], _function(i.nodeid)} & dropped)
        ]
        if only:
            items[:] = [i for i in items if {i.nodeid, _function(i.nodeid)} & only]
        self._record({"kind": "collected", "count": len(items)})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._coverage is not None:
            self._coverage.switch_context(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
        message = getattr(crash, "message", "") or (
            str(report.longrepr) if report.outcome == "failed" else ""
        )
        self._record(
            {
                "kind": "test",
                "id": report.nodeid,
                "when": report.when,
                "outcome": report.outcome,
                "expected": hasattr(report, "wasxfail"),
                "part": type(report).__name__ == "SubtestReport",
                "message": message[:1500] if report.outcome == "failed" else "",
                "seconds": round(getattr(report, "duration", 0.0), 3),
            }
        )

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            self._record(
                {
                    "kind": "uncollected",
                    "id": report.nodeid,
                    "message": str(report.longrepr)[-1500:],
                }
            )

    def finish(self, status: int) -> None:
        if self._coverage is not None:
            self._coverage.stop()
            self._record({"kind": "trace", "lines": self._lines()})
        self._record({"kind": "end", "status": status})

    def _lines(self) -> dict[str, dict[str, list[int]]]:
        """file -> test id -> the lines it ran."""
        data, here = self._coverage.get_data(), str(Path.cwd()) + os.sep
        found: dict[str, dict[str, list[int]]] = {}
        for file in data.measured_files():
            tests: dict[str, list[int]] = {}
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    tests.setdefault(context, []).append(line)
            found[file[len(here) :] if file.startswith(here) else file] = tests
        return found


def _function(nodeid: str) -> str:
    path, _, rest = nodeid.partition("::")
    return f"{path}::{rest.partition('[')[0]}"


def main() -> None:
    order = json.loads(sys.stdin.readline())
    arguments = [
        "-c",
        os.devnull,
        "--rootdir",
        str(Path.cwd()),
        "-p",
        "no:cacheprovider",
        "--color=no",
        "--tb=short",
    ]
    arguments += [
        "-q",
        "-rfE",
        "--show-capture=no",
        "--disable-warnings",
        "--continue-on-collection-errors",
    ]
    arguments += [f"--ignore={path}" for path in order["deselect"] if "::" not in path]
    arguments += ["--", *order["tests"]]
    recorder = Recorder(order)
    recorder.finish(int(pytest.main(arguments, plugins=[recorder])))


if __name__ == "__main__":
    main()
